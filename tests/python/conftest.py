# SPDX-License-Identifier: Apache-2.0
"""Each test has its own folders for doors and journals; no run of another test or user is seen."""

import json
import os
import pathlib
import subprocess
import sys
import threading
import time

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import kajitori

PATIENCE = 120  # seconds until something that never comes is a failure

TOP = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def places(tmp_path, monkeypatch):
    monkeypatch.setenv("KAJITORI_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setenv("KAJITORI_STATE_DIR", str(tmp_path / "state"))
    for name in ("KAJITORI_RUN_ID", "KAJITORI_STUDY", "KAJITORI_TRIAL"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def while_polling(run, function, *args):
    """What `function` returns, called in a second thread while this one is the training."""
    outcome = {}

    def work():
        try:
            outcome["result"] = function(*args)
        except BaseException as error:
            outcome["error"] = error

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    deadline = time.monotonic() + PATIENCE
    while thread.is_alive():
        run.poll()
        assert time.monotonic() < deadline, "no answer"
    if "error" in outcome:
        raise outcome["error"]
    return outcome["result"]


def ask(run, *lines, **options):
    """Sends commands over the socket, one after the other; the records of all of them."""

    def send():
        with kajitori.connect(run.id) as client:
            return [client.send(line, **options) for line in lines]

    records = while_polling(run, send)
    return records[0] if len(lines) == 1 else records


def outside(code):
    """Another process that talks to the only run: `code` sees `c`, a connected client, and prints."""
    text = "import json, kajitori\nwith kajitori.connect() as c:\n"
    text += "".join(f"    {line}\n" for line in code.splitlines())
    return subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True)


def applied(run_id=None):
    """What the journal of a run says was applied, in order."""
    return [line for line in kajitori.journal(run_id) if line.get("state") == "applied"]


def last_json(process):
    out, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    return json.loads(out)
