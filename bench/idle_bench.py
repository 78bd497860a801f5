#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How often the helper thread of a run wakes up while nobody wants anything: its context switches, from /proc, in 10 s.

Four trainings that step once a millisecond: with its doors only; with a FIFO of its own and a writer that holds it open;
with ten clients that are connected and silent; and one that has subscribed to a training which reports nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import sys
import tempfile
import time

from steered import Training

STEP_US = 1000
CLIENTS = 10


def switches(pid: int) -> int:
    """Of the thread that is named "kajitori"."""
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        if (task / "comm").read_text() == "kajitori\n":
            lines = (task / "status").read_text().splitlines()
            return sum(int(line.split()[1]) for line in lines if "ctxt_switches" in line)
    raise SystemExit("idle_bench.py: the run has no helper thread")


def settle(training: Training, stack: contextlib.ExitStack) -> None:
    """Until the helper has answered all that came before: one more answer, by a connection that then stays."""
    stack.enter_context(training.connect()).call("ping")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=10)
    seconds = parser.parse_args().seconds
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        fifo = folder / "fifo"
        os.mkfifo(fifo)
        bare = Training(folder, "bare", STEP_US)
        with_fifo = Training(folder, "with-fifo", STEP_US, fifo)
        stack.enter_context(fifo.open("w"))
        with_clients = Training(folder, "with-clients", STEP_US)
        for _ in range(CLIENTS):
            settle(with_clients, stack)
        watched = Training(folder, "watched", STEP_US)
        settle(watched, stack)
        client = stack.enter_context(watched.connect())
        client.call("subscribe")
        trainings = {
            "doors only": bare,
            "a FIFO of its own, a writer that holds it open": with_fifo,
            f"{CLIENTS} clients that are silent": with_clients,
            "one that has subscribed": watched,
        }
        time.sleep(0.2)  # the helper may still be on its way back to its wait
        before = {name: switches(t.process.pid) for name, t in trainings.items()}
        time.sleep(seconds)
        woken = {name: switches(t.process.pid) - before[name] for name, t in trainings.items()}
        for training in trainings.values():
            training.stop()
    print(f"wake-ups of the helper thread in {seconds:g} s, training steps each millisecond")
    for name, n in woken.items():
        print(f"  {name:50s} {n:5d}")
    good = not any(woken.values())
    print(f"none: {'yes' if good else 'NO'}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
