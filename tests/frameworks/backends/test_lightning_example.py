# SPDX-License-Identifier: Apache-2.0
"""The program that docs/frameworks/lightning.md shows."""

import re
import runpy
import sys

from lightning_fits import result_of, settled
from training import TOP


def test_the_example(tmp_path, monkeypatch, capsys):
    plan = tmp_path / "plan"
    plan.write_text(
        "set lr=0.01 at=step:5\n"
        "evaluate at=step:6\n"
        "extend epochs=3 at=step:7\n"
        "checkpoint at=epoch:0\n"
        'stop at=epoch:3 reason="good enough"\n'
    )
    monkeypatch.setenv("KAJITORI_SCHEDULE", str(plan))
    folder = tmp_path / "checkpoints"
    script = TOP / "examples" / "lightning_steered.py"
    monkeypatch.setattr(sys, "argv", [str(script), "--epochs", "2", "--checkpoints", str(folder)])
    runpy.run_path(str(script), run_name="__main__")
    out = capsys.readouterr().out
    found = re.search(r"stopped \(good enough\) after (\d+) steps: val_accuracy (0\.\d+)", out)
    assert found, out
    (path,) = folder.glob("*.ckpt")
    of_epoch = int(path.stem.removeprefix("step-"))
    assert int(found[1]) == 4 * of_epoch
    assert float(found[2]) > 0.8
    assert settled("set") == [("applied", {"lr": 0.001}, {"lr": 0.01}, None)]
    assert result_of("extend")["schedules"] == {"CosineAnnealingLR": "T_max 2 -> 5"}
    assert 0 <= result_of("evaluate")["val_accuracy"] <= 1
