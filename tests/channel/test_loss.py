# SPDX-License-Identifier: Apache-2.0
"""bench/loss_bench.py at a smaller size: writers of all kinds, by all doors, and no command lost, glued, taken twice or
out of its writer's order, by the journal and by what the program saw."""

import pathlib
import subprocess
import sys

TOP = pathlib.Path(__file__).resolve().parents[2]


def test_many_writers_bursts_nonblocking_and_two_trainings():
    done = subprocess.run(
        [
            sys.executable,
            TOP / "bench/loss_bench.py",
            *("--writers", "40", "--commands", "50", "--bursts", "20", "--silent-s", "0"),
            "--no-recipe",
        ],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith("kajitori")]
    assert sum(int(row[-6]) for row in rows if row[-7] == "program") == 2000 + 80 + 80 + 50 + 200
