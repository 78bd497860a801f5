# SPDX-License-Identifier: Apache-2.0
"""Two ranks of Lightning's own launcher, which sets no RANK: the trainer says which one it is."""

import json
import os
import pathlib
import subprocess
import sys

from training import PATIENCE

HERE = pathlib.Path(__file__).resolve().parent
ALL_DO = ["stop", "set lr=0.5", "pause", "checkpoint", "evaluate", "extend epochs=1", "abort"]


def test_two_ranks(tmp_path):
    path = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, HERE / "lightning_ranks.py", tmp_path],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    zero, one = (json.loads((tmp_path / f"rank-{k}.json").read_text()) for k in (0, 1))

    assert (zero["rank"], one["rank"]) == ([0, 2, False], [1, 2, False])
    assert (zero["has_door"], one["has_door"]) == (True, False)
    assert list(zero["refused"]) == ALL_DO
    assert all("this is rank 0 of 2" in why for why in zero["refused"].values())
    assert (zero["own"], one["own"]) == ([0], [])
    assert len(zero["said"]) == 1
    assert "rank 0 of 2, and only it is steered" in zero["said"][0]
    assert one["said"] == []

    assert zero["batches"] == one["batches"] == 2 * 3  # pruned after two epochs, all at once
    assert zero["pruned"] == one["pruned"]
    assert zero["pruned"].startswith("pruned at step 1, with val_loss = ")
    for rank in (zero, one):
        assert rank["hooks"][-4:] == ["train_end", "fit_end", "teardown", "exception"]
