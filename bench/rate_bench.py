#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Many commands a second over several connections, for a minute, to a C training that steps without a rest.

Every one must be in the journal when its answer arrives (looked at for a sample; at the end all are counted there and in
what the program saw), and the memory of the training must not grow: it is read once a second from /proc, and between the
middle of the time and its end may not grow by more than a tenth.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

from steered import BUILD, Training, journal_files

GROWTH_MAX, RATE_MIN = 1.1, 0.98
SAMPLE = 100


def rss_mb(pid: int) -> float:
    pages = int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def watch(training: Training, writer: subprocess.Popen, every_s: float) -> list[float]:
    """The memory of the training, until the writer ends."""
    series = []
    while writer.poll() is None:
        series.append(rss_mb(training.process.pid))
        time.sleep(every_s)
    return [*series, rss_mb(training.process.pid)]


def count_journalled(folder: pathlib.Path, state: str) -> tuple[int, int]:
    """How many lines of that state a `tick` has, and how many different ones."""
    lines, distinct = 0, set()
    for file in journal_files(folder):
        for text in file.open():
            # the first line of a file repeats what waits, in a list
            if f'"state":"{state}","verb":"tick"' in text and '"event":' not in text:
                args = json.loads(text)["args"]
                distinct.add((args["writer"], args["number"]))
                lines += 1
    return lines, len(distinct)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rate", type=int, default=10000, help="commands a second")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--counts-only", action="store_true", help="rate and memory do not matter")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        training = Training(pathlib.Path(folder), "rate", 0)
        words = (options.connections, options.rate, options.seconds, SAMPLE)
        writer = subprocess.Popen(
            [BUILD / "rate-writer", training.dir, training.journal_folder, *map(str, words)],
            stdout=subprocess.PIPE,
            text=True,
        )
        memory = watch(training, writer, options.seconds / 60)
        if writer.returncode != 0:
            return 1
        told = json.loads(writer.stdout.read())
        training.stop()
        accepted = count_journalled(training.journal_folder, "accepted")
        done = count_journalled(training.journal_folder, "done")
        saw = training.saw()
        files = journal_files(training.journal_folder)
        size_mb = sum(file.stat().st_size for file in files) / 2**20
    sent = int(options.seconds * options.rate / options.connections) * options.connections
    whole = (sent, sent)
    middle, end = max(memory[len(memory) // 3 : 2 * len(memory) // 3 + 1]), max(memory[-10:])
    good = {
        "every answer after its journal line": told["unwritten"] == 0,
        "every command in the journal once": accepted == done == whole == (told["accepted"], sent),
        "every command carried out once": (len(saw), len(set(saw))) == whole,
    }
    reached = told["accepted"] / told["took_s"]
    if not options.counts_only:
        good["the rate reached"] = reached >= RATE_MIN * options.rate
        good["memory flat"] = end <= GROWTH_MAX * middle
    print(f"{sent} commands, {options.connections} connections, {options.rate} a second wanted")
    print(f"  {reached:.0f} a second reached, the last one sent {told['late_ms']:.0f} ms late")
    print(
        f"  {told['sampled']} answers whose journal line was looked for, {told['unwritten']} without"
    )
    print(
        f"  journal: {accepted[0]} accepted, {done[0]} done, {size_mb:.0f} MiB in {len(files)} files"
    )
    print(
        f"  memory of the training: {memory[0]:.1f} MiB at the start, {middle:.1f} in the middle third, {end:.1f} at the end"
    )
    for name, holds in good.items():
        print(f"{name}: {'yes' if holds else 'NO'}")
    return 0 if all(good.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
