# SPDX-License-Identifier: Apache-2.0
"""The programs that docs/frameworks/xgboost.md and lightgbm.md show, and the modules without their
libraries."""

import re
import runpy
import subprocess
import sys

import pytest
from boosts import settled
from training import PATIENCE, TOP

import kajitori


@pytest.mark.parametrize("name", ["xgboost", "lightgbm"])
def test_the_example_is_steered_leaves_and_goes_on(name, tmp_path, monkeypatch, capsys):
    script = TOP / "examples" / f"{name}_steered.py"
    folder = tmp_path / "checkpoints"
    arguments = [
        "--lr",
        "0.25",
        "--rounds",
        "8",
        "--checkpoints",
        folder,
        "--fifo",
        tmp_path / "ctl",
    ]
    monkeypatch.setattr(sys, "argv", [str(script), *map(str, arguments)])

    def run(*plan):
        (tmp_path / "plan").write_text("\n".join(plan) + "\n")
        monkeypatch.setenv("KAJITORI_SCHEDULE", str(tmp_path / "plan"))
        runpy.run_path(str(script), run_name="__main__")
        return capsys.readouterr().out

    with pytest.raises(kajitori.Left):
        run("set lr=0.5 at=step:3", "pause level=leave at=epoch:4")
    assert settled("set")[-1] == ("done", 3, {"lr": 0.25}, {"lr": 0.5}, None)
    (path,) = folder.iterdir()
    assert path.stem == "step-00000005"
    monkeypatch.setenv("KAJITORI_CHECKPOINT", str(path))
    out = run("extend epochs=4 at=step:7")
    assert re.fullmatch(r"finished with 12 iterations: \S+ 0\.\d+\n", out), out
    monkeypatch.delenv("KAJITORI_CHECKPOINT")
    out = run('stop at=step:6 reason="good enough"')
    assert re.fullmatch(r"stopped \(good enough\) with 6 iterations: \S+ \d\.\d+\n", out), out


@pytest.mark.parametrize("name", ["xgboost", "lightgbm"])
def test_without_the_library_the_module_says_what_to_install(name):
    code = (
        "import sys, kajitori; assert not {'xgboost', 'lightgbm'} & set(sys.modules)\n"
        f"sys.modules['{name}'] = None\n"
        f"try:\n    import kajitori.{name}\nexcept ImportError as error:\n    print(error)"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE, check=True
    ).stdout
    assert re.fullmatch(rf"kajitori\.{name} needs \w+ \(pip install {name}\): .*\n", out), out
