# SPDX-License-Identifier: Apache-2.0
"""The tutorials: both languages have the same code, and all of it does what the page says."""

import os
import pathlib
import re
import signal
import subprocess

import pytest

import kajitori

TOP = pathlib.Path(__file__).resolve().parents[3]
BUILD = pathlib.Path(os.environ.get("KAJITORI_BIN", TOP / "build/kajitori")).parent
PATIENCE_S = 400
# A reader waits some seconds until the training has begun.
WAIT = "until kajitori get lr >/dev/null 2>&1; do kill -0 $! || exit 9; done\n"
TRAP = "trap 'kill $(jobs -p) 2>/dev/null || :' EXIT\n"  # what still runs would hold our pipe
PAGES = ["tutorial-steer-keras", "tutorial-prune-estimator"]


def blocks(page):
    """(language, text) of the blocks of code."""
    return re.findall(r"^```(\w+)\n(.*?)^```", (TOP / "docs" / page).read_text(), flags=re.M | re.S)


def lay_out(page, folder):
    """Writes the files of a page, and returns its shell commands."""
    commands = []
    for language, text in blocks(page):
        name = re.match(r"(?:# |/\* )(\S+\.(?:py|c))\b", text)
        if language == "sh":
            commands.append(re.sub(r"&\n", "&\n" + WAIT, text))
        elif name:
            (folder / name[1]).write_text(text)
    return "".join(commands)


def bash(script, folder, environment):
    (folder / "package").mkdir()
    (folder / "package/kajitori").symlink_to(kajitori.__path__[0])
    env = dict(
        os.environ,
        PATH=f"{BUILD}:{TOP}/{environment}/bin:{os.environ['PATH']}",
        PYTHONPATH=str(folder / "package"),
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
        output, _ = process.communicate(timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    assert process.returncode == 0, output
    return output


@pytest.mark.parametrize("page", PAGES)
def test_both_languages_have_the_same_code(page):
    assert blocks(f"{page}.md") == blocks(f"{page}.ja.md")


@pytest.mark.parametrize("environment", [".venv", ".venv-estimator"])
def test_steering_keras(tmp_path, environment):
    output = bash(lay_out("tutorial-steer-keras.md", tmp_path), tmp_path, environment)
    assert re.search(r"^lr is 0\.001 from step \d+ on$", output, flags=re.M), output
    assert re.search(r"^later\.keras$", output, flags=re.M), output
    assert re.search(r"^stop after \d+ epochs: good enough$", output, flags=re.M), output
    assert (tmp_path / "now.keras").exists()
    assert (tmp_path / "later.keras").exists()
    verbs = [line["verb"] for line in kajitori.journal() if line.get("state") == "applied"]
    assert verbs == ["set", "save", "set", "set", "save", "stop"]


def test_pruning_an_estimator(tmp_path):
    output = bash(lay_out("tutorial-prune-estimator.md", tmp_path), tmp_path, ".venv-estimator")
    assert re.search(r"^2 passed", output, flags=re.M), output
    trials = re.findall(
        r"^trial \d: (\w+) at step (\d+) with 0\.\d+; without a pruner 0\.\d+$", output, re.M
    )
    assert len(trials) == 6
    assert {("complete", "200"), ("pruned", "100")} <= set(trials)
    (keras,) = re.findall(r"^\['COMPLETE', 'COMPLETE', .*\]$", output, re.M)
    assert "'PRUNED'" in keras
