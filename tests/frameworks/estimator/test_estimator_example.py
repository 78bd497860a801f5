# SPDX-License-Identifier: Apache-2.0
"""The study that the documents show."""

import re
import subprocess
import sys

from training import PATIENCE, TOP

import kajitori


def test_estimator_pruned(tmp_path):
    command = [sys.executable, TOP / "examples/estimator_pruned.py", "--trials", "6"]
    done = subprocess.run(
        [*command, "--steps", "200"], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stderr
    complete, pruned = map(int, re.match(r"(\d) complete, (\d) pruned\n", done.stdout).groups())
    assert complete >= 2
    assert pruned >= 1
    assert complete + pruned == 6
    for number in range(6):
        evaluations = kajitori.read_events(tmp_path / "trials" / str(number) / "eval", "accuracy")
        [steps] = [list(columns.step) for columns in evaluations.values()]
        assert steps == list(range(50, steps[-1] + 1, 50))
