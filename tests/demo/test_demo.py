# SPDX-License-Identifier: Apache-2.0
"""`tools/demo` as a whole: it checks its own steps, so here it has to succeed, and to end cleanly."""

import os
import pathlib
import re
import signal
import subprocess

import pytest

TOP = pathlib.Path(__file__).resolve().parents[2]
DEMO = TOP / "tools/demo"
TRIALS = "12"  # enough for some to be pruned; each loads TensorFlow
PATIENCE = 900  # seconds until a demo that hangs is a failure


def start(tmp_path, **env):
    return subprocess.Popen(
        [DEMO],
        env=dict(os.environ, TMPDIR=str(tmp_path), **env),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=lambda: signal.signal(
            signal.SIGINT, signal.SIG_DFL
        ),  # a background shell ignores it
    )


def processes_of(folder):
    """Command lines of live processes that were started with `folder` in their environment."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/environ"):
        try:
            if str(folder).encode() in path.read_bytes():
                found.append((path.parent / "cmdline").read_bytes())
        except OSError:
            continue
    return found


def test_the_demo_does_what_it_says(tmp_path):
    process = start(tmp_path, KAJITORI_DEMO_TRIALS=TRIALS)
    out, _ = process.communicate(timeout=PATIENCE)
    print(out)
    assert process.returncode == 0
    for command in ("ps", "status", "set lr=1e-4", "pause", "resume", "stop", "log", "tune"):
        assert f"\n$ kajitori {command}" in out, f"{command} is not shown"
    assert "\n$ echo stop > " in out
    assert "All of it happened as said" in out
    assert processes_of(tmp_path) == []
    check_what_to_try_next(out)


def check_what_to_try_next(out):
    folder, events, watch, optuna = re.search(r"To try next:\n((?:  .*\n)+)", out)[1].splitlines()
    assert " watch " in watch, "it has no end, and is not tried here"
    for command, says in ((events, "run,tag,step,value,wall_time"), (optuna, "FrozenTrial(")):
        done = subprocess.run(
            ["bash", "-c", f"{folder} && {command}"],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(says)


@pytest.mark.parametrize("when", [r"waiting for step", r"trial 1 started"])
def test_ctrl_c_ends_it_and_what_it_started(tmp_path, when):
    process = start(tmp_path)
    lines = []
    for line in process.stdout:
        lines.append(line)
        if re.search(when, line):
            process.send_signal(signal.SIGINT)
            break
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, "".join(lines)
    assert processes_of(tmp_path) == []


def test_without_a_build_it_says_what_to_do(tmp_path):
    process = start(tmp_path, KAJITORI_BIN=str(tmp_path / "none"))
    out, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    assert "make build makes it" in out
