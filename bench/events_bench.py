#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How fast event files are read: ours beside TensorBoard's data server (rustboard), its Python loader, and TensorFlow's reader.

Every reader loads the same files, in processes of their own, in turn, warm page cache; ROUNDS rounds, the least processor time
of each counts, since the machine is shared. The slow readers get a twentieth of the scalars. Our figure is of one thread and
includes the opening of the folder; the data server is held to one thread too, and its figure is its own load cycle's
(wall-clock time; processor time where that is measured).
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import pathlib
import subprocess
import sys
import tempfile

TOP = pathlib.Path(__file__).resolve().parent.parent
BUILD = TOP / "build/bench"
PEERS = TOP / "bench/events_peers.py"


@dataclasses.dataclass(frozen=True)
class Folder:
    path: str
    events: int


@dataclasses.dataclass(frozen=True)
class Reader:
    title: str
    command: tuple[str, ...]
    folder: Folder
    rounds: int


def make(kind: str, n: int, path: pathlib.Path, events: int) -> Folder:
    subprocess.run([BUILD / "events-make", kind, str(n), path], check=True)
    return Folder(str(path), events)


def ours(title: str, mode: str, folder: Folder, rounds: int) -> Reader:
    return Reader(title, (str(BUILD / "events-load"), mode, folder.path), folder, rounds)


def peer(title: str, mode: str, folder: Folder, warm: Folder, rounds: int) -> Reader:
    command = (sys.executable, str(PEERS), mode, folder.path, warm.path)
    return Reader(title, command, folder, rounds)


def load(reader: Reader) -> dict:
    done = subprocess.run(reader.command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"events_bench.py: {' '.join(reader.command)}: {done.stderr[-500:]}")
    result = json.loads(done.stdout.splitlines()[-1])
    if result.get("events", reader.folder.events) != reader.folder.events:
        raise SystemExit(f"events_bench.py: {reader.title} read {result['events']} values")
    return result


def best(readers: list[Reader]) -> list[dict]:
    """Of each reader the load with the least processor time; the readers take turns."""
    found: list[dict] = [{} for _ in readers]
    for number in range(max(reader.rounds for reader in readers)):
        for k, reader in enumerate(readers):
            if number < reader.rounds:
                result = load(reader)
                cost = result["cpu"] or result["seconds"]
                if not found[k] or cost < found[k]["cost"]:
                    found[k] = result | {"cost": cost}
    return found


def compare(title: str, readers: list[Reader]) -> list[float]:
    """Prints a table; the ratios to the first reader, by microseconds of processor an event."""
    print(title)
    results = best(readers)
    costs = [
        1e6 * result["cost"] / reader.folder.events
        for result, reader in zip(results, readers, strict=True)
    ]
    for reader, result, cost in zip(readers, results, costs, strict=True):
        print(
            f"  {reader.title:<58}{cost:9.3f} us an event {cost / costs[0]:9.1f} x"
            f"{result['rss_kb'] / 1024:8.0f} MB"
        )
    ratios = [cost / costs[0] for cost in costs]
    if results[0].get("events"):
        grown = 1024 * results[0]["rss_kb"] / readers[0].folder.events
        print(f"  ours: {grown:.1f} bytes of resident memory a point")
    return ratios


def judge(what: str, ratio: float, target: float) -> None:
    print(
        f"  {what}: {ratio:.1f} x (wanted: at least {target:g}): {'yes' if ratio >= target else 'NO'}"
    )


def scalars(kind: str, form: str, work: pathlib.Path, n: int, rounds: int) -> None:
    full = make(kind, n, work / kind, n)
    short = make(kind, n // 20, work / f"{kind}-short", n // 20)
    warm = make(kind, 100, work / f"{kind}-warm", 100)
    ratios = compare(
        f"{n} scalars in one file, {form}",
        [
            ours("kajitori, both checksums, all values kept", "all", full, rounds),
            ours("kajitori, both checksums, last value of each tag", "last", full, rounds),
            peer("data server, no payload checksums", "server", full, warm, rounds),
            peer("data server, both checksums", "server-checksums", full, warm, rounds),
            peer("TensorFlow's summary_iterator", "summary_iterator", short, warm, 3),
            peer("TensorBoard's loader in Python", "loader", short, warm, 3),
            peer("TensorBoard's loader with TensorFlow's reader", "loader-tf", short, warm, 3),
            peer("TensorBoard's accumulator in Python", "accumulator", short, warm, 3),
            peer("TensorBoard's server in Python, to the values", "python-server", short, warm, 3),
        ],
    )
    judge("the data server without checksums", ratios[2], 10)
    judge("TensorBoard's Python server, from the file to the values", ratios[8], 500)
    print(f"  its file loader alone, which keeps and decodes nothing: {ratios[5]:.0f} x")


def images(work: pathlib.Path, n: int, rounds: int) -> None:
    folder = make("images", n, work / "images", 100 * n)
    ratios = compare(
        f"{n} images of 250 kB with {100 * n} scalars among them, one file",
        [
            ours("kajitori, payloads of scalars checked, all values kept", "all", folder, rounds),
            ours("kajitori, every payload checked", "check", folder, rounds),
            peer("data server, no payload checksums", "server", folder, folder, rounds),
            peer("data server, both checksums", "server-checksums", folder, folder, rounds),
        ],
    )
    judge("the data server with checksums", ratios[3], 20)
    print(f"  with every payload checked: {ratios[3] / ratios[1]:.1f} x")


def many_runs(work: pathlib.Path, n: int, rounds: int) -> None:
    folder = make("runs", n, work / "runs", 500 * n)
    ratios = compare(
        f"{n} runs of 500 scalars each: from the start to the last value of each",
        [
            ours("kajitori, both checksums, last value of each tag", "last", folder, rounds),
            ours("kajitori, both checksums, all values kept", "all", folder, rounds),
            peer("data server, no payload checksums", "server", folder, folder, rounds),
            peer("data server, both checksums", "server-checksums", folder, folder, rounds),
        ],
    )
    judge("the data server without checksums", ratios[2], 5)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--scale", type=float, default=1.0, help="of all sizes, for a quick look")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        work, scale, rounds = pathlib.Path(name), arguments.scale, arguments.rounds
        scalars("scalars", "simple_value", work, int(1e6 * scale), rounds)
        scalars("tensors", "as TensorFlow 2 writes them", work, int(1e6 * scale), rounds)
        images(work, int(2000 * scale), rounds)
        many_runs(work, int(2000 * scale), rounds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
