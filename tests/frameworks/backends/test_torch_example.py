# SPDX-License-Identifier: Apache-2.0
"""examples/torch_steered.py, steered from another process, left in the middle of an epoch and taken up
again; the lines at the beginning of docs/frameworks/torch.md."""

import re
import subprocess

import torch
from test_examples import connected, finish, start
from torch_training import X, Y, make_loader
from training import PATIENCE, TOP, applied

import kajitori


def test_torch_steered(tmp_path):
    process = start(tmp_path, "torch_steered.py", "--epochs", 1000000)
    with connected(process) as client:
        record = client.send("set lr=0.01", timeout=PATIENCE)
        assert record["new"] == {"lr": 0.01}
        assert client.evaluate(timeout=PATIENCE)["result"]["accuracy"] > 0
        client.pause("leave", wait="accepted")
        assert process.wait(PATIENCE) == kajitori.Left().code
    saved = kajitori.journal()[-1]["checkpoint"]
    assert [line["verb"] for line in applied()] == ["set", "evaluate", "pause"]

    options = ("--fifo", "ctl", "--epochs", 1000000)
    process = start(tmp_path, "torch_steered.py", *options, KAJITORI_CHECKPOINT=saved["path"])
    with connected(process) as client:
        assert client.status()["params"]["lr"] < 0.0101
        subprocess.run(["sh", "-c", "echo stop reason=enough > ctl"], cwd=tmp_path, check=True)
        out = finish(process)
    epoch = saved["step"] // 44
    begin, end = out.splitlines()
    assert begin == f"goes on from {saved['path']} in epoch {epoch}"
    steps = re.fullmatch(r"stopped \(enough\) after (\d+) steps: val_accuracy 0\.\d+", end)[1]
    assert int(steps) > saved["step"]


def test_the_lines_to_start_with(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    whole, two_lines, *_ = re.findall(
        r"```python\n(.*?)```", (TOP / "docs/frameworks/torch.md").read_text(), re.DOTALL
    )
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.125)
    names = {
        "model": model,
        "optimizer": optimizer,
        "scheduler": torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9),
        "loader": make_loader(),
        "others": [(X, Y)],
        "loss_of": torch.nn.functional.mse_loss,
    }
    exec(whole, names)
    assert (names["run"].step, capsys.readouterr().out) == (1000, "this runs, also after a stop\n")
    before, inside = two_lines.split("...\n")
    exec(before, names)
    exec("for _ in range(9):\n" + inside, names)
    assert names["run"].step == 9
    names["run"].close()
