#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Commands from many writers at once: which of them arrive, with kajitori and with a callback that polls.

The polling callback is the usual recipe: at each step (2 ms here) it opens the FIFO with O_NONBLOCK, clears the flag,
reads 128 bytes, drains the rest, and closes. Both sides get the same writers; kajitori's also write to `ctl` and to
the socket. Each command carries its writer and a number, and is looked for in the journal and in what the program saw.

Exit status 1 when kajitori lost one, took one twice, glued two, or changed the order of one writer's.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import dataclasses
import fcntl
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

from steered import BUILD, Training

STEP_US = 2000
SHELL = (
    'trap "" PIPE; taken=0; k=0; while [ $k -lt {count} ]; do '
    'echo "tick writer={writer} number=$k" > "{path}" 2>/dev/null && taken=$((taken+1)); k=$((k+1)); done; echo $taken'
)


def argv_of(how: str, path: pathlib.Path, writer: int, count: int) -> list[str]:
    tail = [str(path), str(writer), str(count)]
    script = str(pathlib.Path(__file__).with_name("loss_writer.py"))
    if how == "sh":
        return ["sh", "-c", SHELL.format(path=path, writer=writer, count=count)]
    if how.startswith("python "):
        return [sys.executable, script, how.removeprefix("python "), *tail]
    return [str(BUILD / "loss-writer"), how, *tail]


WAYS_OF_FIFOS = ["sh", "python open", "fopen", "nonblock"]
WAYS_OF_SOCKETS = ["python socket", "socket"]


def start_writers(
    jobs: list[tuple[str, pathlib.Path]], count: int, first: int = 0
) -> Iterator[int]:
    """Starts them all at once; then, for each, how many of its commands were taken."""
    writers = [
        subprocess.Popen(
            argv_of(how, path, first + k, count),
            stdout=subprocess.PIPE,
            text=True,
        )
        for k, (how, path) in enumerate(jobs)
    ]
    try:
        for writer in writers:
            out = writer.communicate()[0]
            if writer.returncode != 0:
                raise SystemExit(f"loss_bench.py: {writer.args}: status {writer.returncode}")
            yield int(out)
    finally:
        for writer in writers:  # else one would wait for ever at a FIFO that nobody reads
            writer.kill()


@dataclasses.dataclass
class Tally:
    """What became of `taken` commands that writers were told were written."""

    taken: int
    arrived: int
    twice: int
    unknown: int  # glued, cut, or not to be parsed
    disorder: int

    def is_perfect(self) -> bool:
        return self.arrived == self.taken and not (self.twice or self.unknown or self.disorder)

    def __str__(self) -> str:
        return (
            f"{self.taken:8d} {self.arrived:8d} {self.taken - self.arrived:8d} {self.unknown:8d} "
            f"{self.twice:8d} {self.disorder:8d}"
        )


HEADING = f"{'':44s} {'taken':>8s} {'arrived':>8s} {'lost':>8s} {'unknown':>8s} {'twice':>8s} {'disorder':>8s}"


def tally(taken: int, pairs: list[tuple[int, int]], unknown: int) -> Tally:
    newest: dict[int, int] = collections.defaultdict(lambda: -1)
    disorder = 0
    for writer, number in pairs:
        disorder += number < newest[writer]
        newest[writer] = max(newest[writer], number)
    distinct = len(set(pairs))
    return Tally(taken, distinct, len(pairs) - distinct, unknown, disorder)


class Recipe:
    """The polling callback in a process of its own (`--poll FIFO`)."""

    def __init__(self, fifo: pathlib.Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--poll", fifo], stdout=subprocess.PIPE, text=True
        )
        self.process.stdout.readline()

    def stop(self) -> dict:
        self.process.terminate()
        return json.loads(self.process.communicate()[0])


def look(fifo: str) -> bytes:
    fd = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) & ~os.O_NONBLOCK)
    text = os.read(fd, 128)
    while os.read(fd, 128):
        pass
    os.close(fd)
    return text


def parse(text: bytes) -> tuple[int, int] | None:
    """The one command that the text is, without its last character; None for anything else."""
    words = text[:-1].decode().split(" ")
    if len(words) != 3 or words[0] != "tick" or "\n" in words[2]:
        return None
    return int(words[1].removeprefix("writer=")), int(words[2].removeprefix("number="))


def poll(fifo: str) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    pairs: list[tuple[int, int]] = []
    unknown, steps, longest = 0, 0, 0.0
    print("ready", flush=True)
    began = time.monotonic()
    try:
        while True:
            time.sleep(STEP_US / 1e6)
            text = look(fifo)
            if text:
                pair = parse(text)
                pairs += [pair] if pair else []
                unknown += pair is None
            now = time.monotonic()
            longest = max(longest, now - began)
            began = now
            steps += 1
    finally:
        longest = max(longest, time.monotonic() - began)
        print(
            json.dumps({"pairs": pairs, "unknown": unknown, "steps": steps, "longest_s": longest})
        )


def ours_of(training: Training, taken: int) -> list[Tally]:
    """By the journal, and by what the program saw. The training has been stopped."""
    lines = [line for line in training.journal() if "seq" in line]
    refusals = [line for line in lines if line["state"] == "rejected"]
    for reason, n in collections.Counter((r["door"], r["error"]) for r in refusals).most_common(9):
        print(f"    rejected, and so in the journal: {n} by {reason[0]}: {reason[1]}")
    tallies = []
    for pairs in (
        [
            (line["args"]["writer"], line["args"]["number"])
            for line in lines
            if line.get("verb") == "tick" and line["state"] == "done"
        ],
        training.saw(),
    ):
        tallies.append(tally(taken, pairs, len(refusals)))
    return tallies


class Bench:
    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.n = 0
        self.failed = False

    def fifo(self) -> pathlib.Path:
        self.n += 1
        path = self.folder / f"fifo-{self.n}"
        os.mkfifo(path)
        return path

    def training(self, fifo: pathlib.Path, step_us: int = STEP_US) -> Training:
        self.n += 1
        return Training(self.folder, f"training-{self.n}", step_us, fifo)

    def row(self, name: str, result: Tally, must_be_perfect: bool) -> None:
        print(f"{name:44s} {result}", flush=True)
        self.failed |= must_be_perfect and not result.is_perfect()

    def rows(self, name: str, tallies: list[Tally]) -> None:
        for seen_by, result in zip(("journal", "program"), tallies, strict=True):
            self.row(f"{name}, by its {seen_by}", result, True)

    def many_writers(self, n_writers: int, count: int) -> None:
        training = self.training(self.fifo())
        doors = [(how, training.fifo) for how in WAYS_OF_FIFOS]
        doors += [(how, training.dir / "ctl") for how in WAYS_OF_FIFOS]
        doors += [(how, training.dir) for how in WAYS_OF_SOCKETS]
        taken = sum(start_writers([doors[k % len(doors)] for k in range(n_writers)], count))
        training.stop()
        self.rows("kajitori", ours_of(training, taken))

    def many_writers_polled(self, n_writers: int, count: int) -> None:
        fifo = self.fifo()
        recipe = Recipe(fifo)
        taken = sum(start_writers([(WAYS_OF_FIFOS[k % 4], fifo) for k in range(n_writers)], count))
        self.recipe_row("the polling callback", [recipe], taken)

    def recipe_row(self, name: str, recipes: list[Recipe], taken: int) -> None:
        results = [recipe.stop() for recipe in recipes]
        pairs = [tuple(pair) for result in results for pair in result["pairs"]]
        unknown = sum(result["unknown"] for result in results)
        self.row(name, tally(taken, pairs, unknown), False)

    def write_bursts(self, fifo: pathlib.Path, ways: list[str], bursts: int) -> int:
        n = len(ways)
        return sum(
            taken
            for k in range(bursts)
            for taken in start_writers([(how, fifo) for how in ways], 1, n * k)
        )

    def bursts(self, ways: list[str], bursts: int, with_recipe: bool) -> None:
        """All of `ways` at once, one command each, and again when they have ended."""
        training = self.training(self.fifo())
        taken = self.write_bursts(training.fifo, ways, bursts)
        training.stop()
        self.rows("kajitori", ours_of(training, taken))
        if with_recipe:
            recipe = Recipe(fifo := self.fifo())
            self.recipe_row("the polling callback", [recipe], self.write_bursts(fifo, ways, bursts))

    def nonblocking(self, count: int, with_recipe: bool) -> None:
        training = self.training(self.fifo())
        taken = sum(start_writers([("nonblock", training.fifo)], count))
        training.stop()
        self.rows("kajitori", ours_of(training, taken))
        self.failed |= taken != count
        if with_recipe:
            recipe = Recipe(fifo := self.fifo())
            taken = sum(start_writers([("nonblock", fifo)], count))
            self.recipe_row(f"the polling callback ({count} tries)", [recipe], taken)

    def two_trainings(self, count: int, with_recipe: bool) -> None:
        """Both are given the same FIFO: one gets it, the other one says so and has its own doors."""
        fifo = self.fifo()
        first, second = self.training(fifo), self.training(fifo)
        jobs = [
            ("sh", fifo),
            ("sh", second.dir / "ctl"),
            ("socket", first.dir),
            ("socket", second.dir),
        ]
        taken = list(start_writers(jobs, count))
        first.stop()
        second.stop()
        self.rows("kajitori, first", ours_of(first, taken[0] + taken[2]))
        self.rows("kajitori, second", ours_of(second, taken[1] + taken[3]))
        self.failed |= "another run reads the FIFO" not in second.warnings()
        if with_recipe:
            recipes = [Recipe(fifo := self.fifo()), Recipe(fifo)]
            taken = list(start_writers([("sh", fifo)], count))
            self.recipe_row("two polling callbacks together", recipes, sum(taken))

    def silent_writer(self, seconds: float) -> None:
        training = self.training(fifo := self.fifo())
        print(f"longest time between two steps, in {seconds:g} s")
        for name in ("without a writer", "a writer that is silent"):
            with contextlib.ExitStack() as stack:
                if name != "without a writer":
                    stack.enter_context(fifo.open("w"))
                training.longest_gap()
                time.sleep(seconds)
                gap = training.longest_gap()
            print(f"  {'kajitori, ' + name:44s} {gap['longest_ms']:9.1f} ms")
        training.stop()
        recipe = Recipe(fifo := self.fifo())
        with fifo.open("w"):
            time.sleep(seconds)
        result = recipe.stop()
        print(
            f"  {'the polling callback, such a writer':44s} {1000 * result['longest_s']:9.1f} ms",
            flush=True,
        )
        self.failed |= gap["longest_ms"] >= 1000 * seconds / 2


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--writers", type=int, default=200)
    parser.add_argument("--commands", type=int, default=500, help="of each writer")
    parser.add_argument("--bursts", type=int, default=100)
    parser.add_argument("--silent-s", type=float, default=8, help="0: not measured")
    parser.add_argument("--no-recipe", action="store_true", help="kajitori only")
    parser.add_argument("--poll", metavar="FIFO", help="be the polling callback")
    options = parser.parse_args()
    if options.poll:
        poll(options.poll)
        return 0
    with_recipe = not options.no_recipe
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(pathlib.Path(folder))
        print(HEADING)
        print(f"{options.writers} writers at once, {options.commands} commands each")
        bench.many_writers(options.writers, options.commands)
        if with_recipe:
            bench.many_writers_polled(options.writers, options.commands)
        print(f"four shells at once, {options.bursts} times")
        bench.bursts(["sh"] * 4, options.bursts, with_recipe)
        for how in ("sh", "fopen"):
            print(f"one command each by {how}, one after the other")
            bench.bursts([how], 2 * options.bursts, with_recipe)
        print("one O_NONBLOCK writer")
        bench.nonblocking(options.commands, with_recipe)
        print("two trainings on one FIFO")
        bench.two_trainings(options.commands, with_recipe)
        if options.silent_s:
            bench.silent_writer(options.silent_s)
    print(f"kajitori: none lost, glued, twice or out of order: {'NO' if bench.failed else 'yes'}")
    return 1 if bench.failed else 0


if __name__ == "__main__":
    sys.exit(main())
