#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What it costs to follow 10,000 runs that are quiet: processor time and wake-ups of `kajitori events --follow` over a minute,
beside TensorBoard's data server at its default of a look every 5 s. Both have read everything before the minute begins."""

from __future__ import annotations

import argparse
import dataclasses
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

TOP = pathlib.Path(__file__).resolve().parent.parent
BUILD = TOP / "build"
SCALARS_PER_RUN = 500
TARGET = 0.5  # per cent of a core


@dataclasses.dataclass(frozen=True)
class Usage:
    cpu: float  # seconds
    switches: int


def usage(pid: int) -> Usage:
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    switches = 0
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        lines = (task / "status").read_text().splitlines()
        switches += sum(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt"))
    return Usage((int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), switches)


def follow(folder: str, runs: int) -> subprocess.Popen:
    """Ours, once it has printed every value there is."""
    command = [BUILD / "kajitori", "events", folder, "--follow", "--tag", "lr", "--format", "csv"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    rows = runs * SCALARS_PER_RUN // 10
    for _ in range(rows + 1):
        process.stdout.readline()
    return process


def serve(folder: str) -> subprocess.Popen:
    """The data server, once its first load is done."""
    import tensorboard_data_server

    command = [tensorboard_data_server.server_binary(), "--logdir", folder, "--port", "0"]
    command += ["--port-file", tempfile.mktemp(), "--reload", "5", "-vv"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    for line in process.stderr:
        if "Finished load cycle" in line:
            break
    threading.Thread(target=process.stderr.read, daemon=True).start()  # or it waits for us
    return process


def measure(title: str, process: subprocess.Popen, seconds: float) -> float:
    time.sleep(2)  # what it still does after the first reading is not idling
    before = usage(process.pid)
    time.sleep(seconds)
    after = usage(process.pid)
    process.kill()
    process.wait()
    share = 100 * (after.cpu - before.cpu) / seconds
    print(f"  {title:<40}{share:8.3f} % of a core {after.switches - before.switches:8d} wake-ups")
    return share


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10000)
    parser.add_argument("--seconds", type=float, default=60)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [BUILD / "bench/events-make", "runs", str(arguments.runs), folder], check=True
        )
        print(f"{arguments.runs} quiet runs, {arguments.seconds:.0f} s")
        share = measure(
            "kajitori events --follow", follow(folder, arguments.runs), arguments.seconds
        )
        peer = measure("data server, a look every 5 s", serve(folder), arguments.seconds)
    print(f"  ratio: {peer / share if share else float('inf'):.0f} x")
    print(f"  under {TARGET} % of a core: {'yes' if share < TARGET else 'NO'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
