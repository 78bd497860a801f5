# SPDX-License-Identifier: Apache-2.0
"""The programs that the documents and the demo show."""

import os
import re
import subprocess
import sys

from event_writer import EventWriter
from training import PATIENCE, TOP, applied

import kajitori

EXAMPLES = TOP / "examples"


def start(tmp_path, script, *args, **environment):
    return subprocess.Popen(
        [sys.executable, EXAMPLES / script, *map(str, args)],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | environment,
    )


def finish(process):
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    return out


def connected(process):
    """A connection to the only run, once it is there and has registered its parameter."""
    while True:
        assert process.poll() is None, process.stderr.read()
        try:
            client = kajitori.connect()
        except kajitori.NoSuchRunError:
            continue
        while "lr" not in client.status()["params"]:
            pass
        return client


def test_keras_plain_writes_event_files_and_knows_nothing_of_us(tmp_path):
    assert "import kajitori" not in (EXAMPLES / "keras_plain.py").read_text()
    out = finish(
        start(tmp_path, "keras_plain.py", "--epochs", 2, "--units", 16, "--logdir", "logs")
    )
    assert re.fullmatch(r"val_loss \d\.\d{4}\n", out)
    assert list((tmp_path / "logs/validation").glob("events.out.tfevents.*"))
    assert not (tmp_path / "state").exists()


def test_keras_steered_by_fifo_and_socket(tmp_path):
    process = start(tmp_path, "keras_steered.py", "--fifo", "ctl", "--epochs", 1000000)
    with connected(process) as client:
        record = client.send("set lr=1e-4", timeout=PATIENCE)
        assert (record["old"], record["new"]) == ({"lr": 0.001}, {"lr": 0.0001})
        saved = client.send("save path=now.keras", timeout=PATIENCE)["result"]["path"]
        subprocess.run(["sh", "-c", "echo stop reason=enough > ctl"], cwd=tmp_path, check=True)
        out = finish(process)
    assert saved == str(tmp_path / "now.keras")
    assert (tmp_path / "now.keras").exists()
    assert re.fullmatch(
        r"stopped \(enough\) after \d+ epochs, \d+ steps: val_accuracy 0\.\d+\n", out
    )
    assert [line["verb"] for line in applied()] == ["set", "save", "stop"]


def test_keras_steered_leaves_and_goes_on(tmp_path):
    process = start(tmp_path, "keras_steered.py", "--epochs", 1000000)
    with connected(process) as client:
        client.pause("leave", at="epoch", wait="accepted")
        assert process.wait(PATIENCE) == kajitori.Left().code
    saved = kajitori.journal()[-1]["checkpoint"]
    process = start(
        tmp_path, "keras_steered.py", "--epochs", 1000000, KAJITORI_CHECKPOINT=saved["path"]
    )
    with connected(process) as client:
        assert client.evaluate(timeout=PATIENCE)["result"]["accuracy"] > 0.1
        client.stop(wait="applied", timeout=PATIENCE)
        out = finish(process)
    epoch = saved["step"] // 44
    assert out.startswith(f"goes on from {saved['path']} with epoch {epoch}\nstopped after ")


def test_keras_steered_left_alone(tmp_path):
    out = finish(start(tmp_path, "keras_steered.py", "--epochs", 1))
    assert out.startswith("finished after 1 epochs, 44 steps: ")


def test_plain_loop(tmp_path):
    process = start(tmp_path, "plain_loop.py", "--epochs", 1000000)
    with connected(process) as client:
        assert client.send("set lr=0.5", timeout=PATIENCE)["new"] == {"lr": 0.5}
        client.send("shuffle seed=7", timeout=PATIENCE)
        client.send("stop at=epoch", wait="accepted", timeout=PATIENCE)
        out = finish(process)
    steps, loss = re.fullmatch(r"stopped after (\d+) steps: loss (0\.\d+)\n", out).groups()
    assert int(steps) % 56 == 0, "whole epochs"
    assert float(loss) < 2.302, "better than guessing"


def test_follow_events(tmp_path):
    """Beside a training, then afterwards."""
    process = start(tmp_path, "follow_events.py", "logs", "--tag", "loss", "--until", 3)
    writer = EventWriter(tmp_path / "logs/train")
    for step, value in enumerate((2.0, 1.5, 1.75, 1.0)):
        writer.add("loss", step, value)
        writer.add("accuracy", step, 0.5)
    out = finish(process).splitlines()
    assert out[:4] == [
        "train loss 0 2 *",
        "train loss 1 1.5 *",
        "train loss 2 1.75",
        "train loss 3 1 *",
    ]
    assert re.fullmatch(r"1 tags, [78] values", out[4]), "the last one may have come meanwhile"
    writer.close()
    out = finish(start(tmp_path, "follow_events.py", "logs", "--finished"))
    assert out.splitlines()[-1] == "2 tags, 8 values"
