# SPDX-License-Identifier: Apache-2.0
"""Programs of bench/ at a smaller size, for what they count: no command lost, glued, taken twice or out of its writer's
order, by the journal and by what the program saw; every answer after its line in the journal."""

import pathlib
import subprocess
import sys

TOP = pathlib.Path(__file__).resolve().parents[2]


def bench(name, *options):
    """What it prints; its exit status says that it counted nothing wrong."""
    done = subprocess.run(
        [sys.executable, TOP / "bench" / name, *options],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_many_writers_bursts_nonblocking_and_two_trainings():
    sizes = ("--writers", "40", "--commands", "50", "--bursts", "20", "--silent-s", "0")
    lines = bench("loss_bench.py", *sizes, "--no-recipe")
    rows = [line.split() for line in lines if line.startswith("kajitori")]
    assert sum(int(row[-6]) for row in rows if row[-7] == "program") == 2000 + 80 + 80 + 50 + 200


def test_every_answer_comes_after_its_line_in_the_journal():
    lines = bench("rate_bench.py", "--seconds", "2", "--rate", "2000", "--counts-only")
    assert lines[0].startswith("4000 commands")
    assert [line for line in lines if line.endswith(": yes")] == [
        "every answer after its journal line: yes",
        "every command in the journal once: yes",
        "every command carried out once: yes",
    ]
