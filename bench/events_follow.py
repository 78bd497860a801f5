#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""From a writer's flush to the value in a reader's hands: ours (events-latency) beside TensorBoard's reload loop in Python, at
its default of 5 s and at 10 ms. The writer is a process of its own that appends one whole record at a time."""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time
import warnings

TOP = pathlib.Path(__file__).resolve().parent.parent
FIRST = 3  # values that are there before the loop begins


def write(path: str, values: int, gap: float, told: multiprocessing.Queue, go) -> None:
    from tensorboard.compat.proto import event_pb2, summary_pb2
    from tensorboard.summary.writer.record_writer import RecordWriter

    def append(step: int) -> None:
        value = summary_pb2.Summary.Value(tag="loss", simple_value=step)
        event = event_pb2.Event(
            step=step, wall_time=time.time(), summary=summary_pb2.Summary(value=[value])
        )
        with open(path, "ab", 0) as file:
            RecordWriter(file).write(event.SerializeToString())

    for step in range(1, FIRST + 1):
        append(step)
    go.wait()
    for step in range(FIRST + 1, FIRST + 1 + values):
        time.sleep(gap * random.uniform(0.5, 1.5))
        append(step)
        told.put((step, time.time()))


def ingester(folder: str, interval: float):
    from tensorboard.backend.event_processing import data_ingester

    flags = argparse.Namespace(
        logdir=folder,
        logdir_spec="",
        path_prefix="",
        generic_data="auto",
        purge_orphaned_data=True,
        reload_interval=interval,
        reload_task="thread",
        max_reload_threads=1,
        reload_multifile=False,
        reload_multifile_inactive_secs=86400,
        samples_per_plugin={"scalars": 0},
        window_title="",
        detect_file_replacement=None,
        event_file=None,
        db=None,
    )
    return data_ingester.LocalDataIngester(flags)


def last_step(multiplexer) -> int:
    try:
        return multiplexer.Tensors("run", "loss")[-1].step
    except (KeyError, IndexError):
        return 0  # not loaded yet


def tensorboard(interval: float, values: int, gap: float) -> list[float]:
    """Seconds from the end of each write to the value in TensorBoard's multiplexer."""
    with tempfile.TemporaryDirectory() as folder:
        run = pathlib.Path(folder, "run")
        run.mkdir()
        path = str(run / "events.out.tfevents.1700000000.host.1.0")
        told: multiprocessing.Queue = multiprocessing.Queue()
        go = multiprocessing.Event()
        writer = multiprocessing.Process(
            target=write, args=(path, values, gap, told, go), daemon=True
        )
        writer.start()
        loop = ingester(folder, interval)
        loop.start()
        multiplexer = loop._multiplexer
        seen: dict[int, float] = {}
        last = FIRST + values
        while last not in seen:
            step = last_step(multiplexer)
            if step >= FIRST and not go.is_set():
                go.set()
            for number in range(max(seen, default=0) + 1, step + 1):
                seen[number] = time.time()
            time.sleep(0.0005)
        writer.join()
        written = dict(told.get() for _ in range(values))
    return [max(0.0, seen[step] - when) for step, when in written.items()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--values", type=int, default=20, help="of TensorBoard at 5 s")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    logging.disable(logging.CRITICAL)
    done = subprocess.run([TOP / "build/bench/events-latency"], check=False)
    for interval, values, gap in ((5.0, arguments.values, 0.7), (0.01, 200, 0.02)):
        delays = sorted(tensorboard(interval, values, gap))
        print(
            f"TensorBoard's loop, {interval:g} s between looks: median"
            f" {1e3 * statistics.median(delays):.1f} ms, worst {1e3 * delays[-1]:.1f} ms"
            f" ({len(delays)} values)"
        )
    return done.returncode


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)
    sys.exit(main())
