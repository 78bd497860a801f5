#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a look of a pruning hook costs when a run has 10, 100 and 1,000 evaluations behind it: `PruningHook`, which keeps its place
in the files, beside a hook that reads all files again, as Optuna's TensorFlowPruningHook does. CPU of a look that finds
nothing new and of one that finds a new evaluation, and the bytes that were read for it."""

from __future__ import annotations

import collections
import os
import pathlib
import statistics
import sys
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import tensorflow as tf

import kajitori
from kajitori.tensorflow import PruningHook

COUNTS = (10, 100, 1000)
LOOKS = 200
TARGET = 2.0  # times the cost at the least count
METRICS = ("accuracy", "average_loss", "loss")


class Trial:
    """Takes what it is given."""

    def report(self, value: float, step: int) -> None:
        self.newest = step

    def should_prune(self) -> bool:
        return False


class ReReading:
    """The peer: at each look every event of every file, then what is newer than the last look."""

    def __init__(self, trial: Trial, folder: str, metric: str) -> None:
        self.trial, self.folder, self.metric, self.newest = trial, folder, metric, -1

    def look(self) -> None:
        found: dict[int, dict[str, float]] = collections.defaultdict(dict)
        for path in sorted(pathlib.Path(self.folder).glob("*tfevents*")):
            for event in tf.compat.v1.train.summary_iterator(str(path)):
                for value in event.summary.value:
                    if value.HasField("simple_value"):
                        found[event.step][value.tag] = value.simple_value
        step = max(found)
        if step > self.newest:
            self.newest = step
            self.trial.report(found[step][self.metric], step)


class Ours(PruningHook):
    def look(self) -> None:
        self._read()

    def bytes_read(self) -> int:
        return self._reader.stats().bytes


def evaluate(writer: kajitori.EventWriter, step: int) -> None:
    for tag in METRICS:
        writer.add_scalar(tag, step, 1 / (step + 1))
    writer.flush()


def cost(hook: Ours | ReReading, before_each: object) -> float:
    """Microseconds of CPU of a look: the median."""
    times = []
    for _ in range(LOOKS):
        before_each()
        begin = time.process_time_ns()
        hook.look()
        times.append(time.process_time_ns() - begin)
    return statistics.median(times) / 1000


def measure(title: str, make: object, count: int) -> tuple[float, float]:
    with tempfile.TemporaryDirectory() as folder, kajitori.EventWriter(folder) as writer:
        for step in range(count):
            evaluate(writer, step)
        steps = iter(range(count, count + 2 * LOOKS))
        trial = Trial()
        hook = make(trial, folder, "accuracy")
        hook.look()
        same = cost(hook, lambda: None)
        read = hook.bytes_read() if isinstance(hook, Ours) else 0
        new = cost(hook, lambda: evaluate(writer, next(steps)))
        if isinstance(hook, Ours):
            read = f"{(hook.bytes_read() - read) / LOOKS:12.0f}"
        else:
            read = f"{sum(path.stat().st_size for path in pathlib.Path(folder).iterdir()):12d}"
        assert trial.newest == count + LOOKS - 1
        print(f"  {title:<24}{count:8d}{same:16.1f}{new:16.1f}{read}")
    return same, new


def main() -> int:
    print(f"  {'':<24}{'before':>8}{'nothing new, us':>16}{'one new, us':>16}{'bytes':>12}")
    theirs = [measure("all files again", ReReading, count) for count in COUNTS]
    ours = [measure("kajitori PruningHook", Ours, count) for count in COUNTS]
    growth = max(ours[-1][kind] / ours[0][kind] for kind in (0, 1))
    print(f"  from {COUNTS[0]} to {COUNTS[-1]} evaluations: ours {growth:.2f} x, ", end="")
    print(f"the other {max(theirs[-1][kind] / theirs[0][kind] for kind in (0, 1)):.1f} x")
    print(f"  at {COUNTS[-1]}, with one new: {theirs[-1][1] / ours[-1][1]:.0f} x")
    print(f"  constant (at most {TARGET:g} x): {'yes' if growth <= TARGET else 'NO'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
