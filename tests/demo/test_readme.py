# SPDX-License-Identifier: Apache-2.0
"""The commands of README.md do what it says, in the order in which a reader would type them."""

import os
import pathlib
import re
import signal
import subprocess

import pytest

TOP = pathlib.Path(__file__).resolve().parents[2]
# The reader waits some seconds: the run can be seen a moment before its parameters are registered.
WAIT = "until kajitori get lr >/dev/null 2>&1; do kill -0 $! || exit 9; done\n"
TRAP = "trap 'kill $(jobs -p) 2>/dev/null || :' EXIT\n"  # what still runs would hold our pipe


def blocks(page: str) -> list[str]:
    return re.findall(r"^```sh\n(.*?)^```", (TOP / page).read_text(), flags=re.M | re.S)


@pytest.fixture
def here(tmp_path):
    """A folder that looks like the checkout, so that what the commands write stays out of it."""
    for name in ("build", "examples", ".venv"):
        (tmp_path / name).symlink_to(TOP / name)
    return tmp_path


def bash(script: str, folder: pathlib.Path) -> subprocess.CompletedProcess:
    env = dict(
        os.environ,
        KAJITORI_RUNTIME_DIR=str(folder / "run"),
        KAJITORI_STATE_DIR=str(folder / "state"),
    )
    process = subprocess.Popen(
        ["bash", "-euo", "pipefail", "-c", TRAP + script],
        cwd=folder,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=400)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    return subprocess.CompletedProcess(script, process.returncode, output)


def test_both_languages_have_the_same_commands():
    def commands(page: str) -> list[str]:
        return [
            re.sub(r"\s+#.*", "", line) for block in blocks(page) for line in block.splitlines()
        ]

    assert commands("README.md") == commands("README.ja.md")


def test_first_steering(here):
    start, steer, *_ = blocks("README.md")
    done = bash(start + WAIT + steer + "wait\n", here)
    assert done.returncode == 0, done.stdout
    assert re.search(r"lr: 0\.001 -> 0\.0001, applied at step \d+ \(epoch \d+\)", done.stdout), (
        done.stdout
    )
    assert re.search(r"stopped .*after \d+ epochs", done.stdout), done.stdout


def test_first_study_and_its_event_files(here):
    start, _, study, events = blocks("README.md")
    path = start.splitlines()[0]
    done = bash(f"{path}\n{study}", here)
    assert done.returncode == 0, done.stdout
    check = (
        "import optuna; s = optuna.load_study(study_name='keras_plain', storage='sqlite:///kajitori.db');"
        "print(len(s.trials), all(t.state.is_finished() for t in s.trials))"
    )
    assert "12 True" in bash(f'{path}\npython -c "{check}"', here).stdout
    done = bash(f"{path}\n{events}", here)
    assert done.returncode == 0, done.stdout
    assert re.search(r"0/validation +epoch_loss ", done.stdout), done.stdout
    assert re.search(r"epoch_loss +\* train +\+ validation", done.stdout), done.stdout
