# SPDX-License-Identifier: Apache-2.0
"""The programs of docs/c.md and docs/event-reader.md, built as the former says."""

import os
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


def build(place, tmp_path, page, name):
    """The first program of a page."""
    program = re.findall(r"^```c\n(.*?)^```", (DOCS / page).read_text(), flags=re.M | re.S)[0]
    (how,) = re.findall(r"^```sh\n(.*?)^```", (DOCS / "c.md").read_text(), flags=re.M | re.S)
    (tmp_path / f"{name}.c").write_text(program)
    (tmp_path / "include").symlink_to(ROOT / "include")
    built = pathlib.Path(os.path.realpath(place.command)).parents[1]
    (tmp_path / "build").symlink_to(built)
    how = how.replace("training", name)
    subprocess.run(["sh", "-ec", how], cwd=tmp_path, check=True, timeout=60)
    return tmp_path / name


def test_reader(place, tmp_path):
    reader = build(place, tmp_path, "event-reader.md", "reader")
    place.kajitori("emit", "--events", tmp_path / "logs", "step=7", "loss=0.5")
    done = place.start(reader, f"events:{tmp_path / 'logs'}", "finished")
    assert (done.wait(), done.out) == (0, ". loss 7 0.5")
    following = place.start(reader, f"events:{tmp_path / 'logs'}:loss")
    following.wait_line(". loss 7 0.5")
    place.kajitori("emit", "--events", tmp_path / "logs", "step=8", "loss=0.25")
    following.wait_line(". loss 8 0.25")
    following.popen.kill()
    refused = place.start(reader, "evnts:logs")
    assert refused.wait() == 1
    assert "unknown metric source" in refused.err


def test_program_of_the_page(place, tmp_path):
    program = build(place, tmp_path, "c.md", "training")
    training = place.start(program, env={"KAJITORI_RUN_ID": "page"})
    while not (place.runtime / "page" / "sock").exists():
        assert training.popen.poll() is None, training.err
    watching = place.start_kajitori("watch")
    watching.wait_line("loss = ")  # lr is registered before the first step
    assert "lr: 0.1 -> 0.5, applied at step" in place.kajitori("set", "lr=0.5").stdout
    place.kajitori("stop", "reason=enough")
    assert training.wait() == 0
    assert re.fullmatch(r"stopped with loss [0-9.e+-]+: enough", training.out)
