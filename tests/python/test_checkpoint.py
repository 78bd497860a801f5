# SPDX-License-Identifier: Apache-2.0
"""What the checkpoints of all adapters have in common."""

import os
import stat

import pytest

from kajitori import FailedError, UnsupportedError
from kajitori._checkpoint import STATE, appearing, load_state, save_state


def write(path, text):
    with appearing(path) as written:
        os.mkdir(written)
        with open(os.path.join(written, "file"), "w") as file:
            file.write(text)


def test_it_appears_with_the_rights_of_a_folder_that_the_program_makes(tmp_path):
    path = tmp_path / "folder" / "step-1"
    write(path, "first")
    os.mkdir(tmp_path / "other")
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE((tmp_path / "other").stat().st_mode)
    assert os.listdir(path) == ["file"]


def test_the_one_before_is_replaced_and_nothing_is_left_beside(tmp_path):
    path = tmp_path / "step-1"
    write(path, "first")
    write(path, "second")
    assert (path / "file").read_text() == "second"
    assert os.listdir(tmp_path) == ["step-1"]


def test_what_fails_leaves_the_one_before(tmp_path):
    path = tmp_path / "step-1"
    write(path, "first")
    with pytest.raises(TypeError):
        write(path, 2)
    assert (path / "file").read_text() == "first"
    assert os.listdir(tmp_path) == ["step-1"]


def test_a_file_appears_in_the_same_way(tmp_path):
    for text in ("first", "second"):
        with appearing(tmp_path / "model.txt") as written:
            assert written.endswith(os.sep + "model.txt")
            with open(written, "w") as file:
                file.write(text)
    assert (tmp_path / "model.txt").read_text() == "second"
    assert os.listdir(tmp_path) == ["model.txt"]


def test_it_is_on_the_disk_before_it_appears(tmp_path, monkeypatch):
    """After a power failure one that is there is whole, too."""
    fsync, path, flushed = os.fsync, tmp_path / "step-1", []

    def note(fd):
        fsync(fd)
        flushed.append((os.path.basename(os.readlink(f"/proc/self/fd/{fd}")), path.exists()))

    monkeypatch.setattr(os, "fsync", note)
    write(path, "first")
    assert flushed == [("file", False), ("step-1", False), (tmp_path.name, True)]
    flushed.clear()
    with appearing(path.with_name("model.txt")) as written, open(written, "w") as file:
        file.write("first")
    assert [name for name, _ in flushed] == ["model.txt", tmp_path.name]


def test_a_state_is_read_back(tmp_path):
    save_state(tmp_path, {"step": 3, "more": [1]})
    assert load_state(tmp_path, ("step",)) == {"format": 1, "step": 3, "more": [1]}


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", FailedError),
        ("[]", FailedError),
        ('{"format": 1}', FailedError),
        ('{"format": 1, "step": -1}', FailedError),
        ('{"format": 1, "step": "3"}', FailedError),
        ('{"format": 2}', UnsupportedError),
    ],
)
def test_a_state_that_is_none_is_refused_and_named(tmp_path, text, error):
    (tmp_path / STATE).write_text(text)
    with pytest.raises(error, match=str(tmp_path)):
        load_state(tmp_path, ("step",))
