# SPDX-License-Identifier: Apache-2.0
"""examples/transformers_steered.py, a BERT that a schedule of commands steers."""

import re
import runpy
import sys

from tiny_trainer import results
from training import TOP, applied


def test_the_example(tmp_path, monkeypatch, capsys):
    plan = tmp_path / "plan"
    plan.write_text(
        "set lr=0.01 at=step:5\n"
        "evaluate at=step:6\n"
        "checkpoint at=step:7\n"
        "extend epochs=1 at=step:8\n"
        'stop at=step:60 reason="good enough"\n'
    )
    monkeypatch.setenv("KAJITORI_SCHEDULE", str(plan))
    script, output = TOP / "examples" / "transformers_steered.py", tmp_path / "output"
    monkeypatch.setattr(sys, "argv", [str(script), "--epochs", "1", "--output", str(output)])
    runpy.run_path(str(script), run_name="__main__")
    out = capsys.readouterr().out
    found = re.search(r"stopped \(good enough\) after 60 steps: accuracy (0\.\d+)", out)
    assert found, out
    assert float(found[1]) > 0.15
    assert applied()[0]["new"] == {"lr": 0.01}
    assert set(results("evaluate")[0]) >= {"eval_loss", "eval_accuracy"}
    assert results("checkpoint") == [{"path": str(output / "checkpoint-7")}]
    assert results("extend") == [{"total_steps": 88, "total_epochs": 2, "schedule": "told"}]
    assert (output / "checkpoint-7" / "model.safetensors").exists()
