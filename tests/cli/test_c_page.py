# SPDX-License-Identifier: Apache-2.0
"""The program of docs/c.md, built as the page says."""

import os
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_program_of_the_page(place, tmp_path):
    page = (ROOT / "docs" / "c.md").read_text()
    (program,) = re.findall(r"^```c\n(.*?)^```", page, flags=re.M | re.S)
    (build,) = re.findall(r"^```sh\n(.*?)^```", page, flags=re.M | re.S)
    (tmp_path / "training.c").write_text(program)
    (tmp_path / "include").symlink_to(ROOT / "include")
    built = pathlib.Path(os.path.realpath(place.command)).parents[1]
    (tmp_path / "build").symlink_to(built)
    subprocess.run(["sh", "-ec", build], cwd=tmp_path, check=True, timeout=60)
    training = place.start(tmp_path / "training", env={"KAJITORI_RUN_ID": "page"})
    while not (place.runtime / "page" / "sock").exists():
        assert training.popen.poll() is None, training.err
    watching = place.start_kajitori("watch")
    watching.wait_line("loss = ")  # lr is registered before the first step
    assert "lr: 0.1 -> 0.5, applied at step" in place.kajitori("set", "lr=0.5").stdout
    place.kajitori("stop", "reason=enough")
    assert training.wait() == 0
    assert re.fullmatch(r"stopped with loss [0-9.e+-]+: enough", training.out)
