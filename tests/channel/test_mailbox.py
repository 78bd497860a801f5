# SPDX-License-Identifier: Apache-2.0
"""A real training that is reached through a folder: from a shell, and by the command as from another
host, where none of its doors are."""

import ctypes
import json
import os
import shutil
import signal
import struct
import subprocess

import pytest
from waiting import PATIENCE_S, until


@pytest.fixture
def box(place, tmp_path):
    """Mailboxes for all that is started from now on; place.elsewhere is the environment of a login node."""
    folder = tmp_path / "shared" / "box"
    place.env["KAJITORI_MAILBOX_DIR"] = str(folder)
    place.elsewhere = {"KAJITORI_RUNTIME_DIR": str(tmp_path / "other-host")}
    return folder


def answer(folder, name):
    path = folder / "out" / f"{name}.json"
    return until(lambda: path.exists() and json.loads(path.read_text()))


def state_of(folder, name, state):
    """The answer to NAME.txt once its first command is in that state."""
    path = folder / "out" / f"{name}.json"

    def look():
        (first,) = json.loads(path.read_text()) if path.exists() else [{}]
        return first if first.get("result", {}).get("state") == state else None

    return until(look)


def drop(folder, name, line):
    """As the documentation tells people to do it."""
    put = 'printf "%s\\n" "$2" > "$0/in/.$1" && mv "$0/in/.$1" "$0/in/$1.txt"'
    subprocess.run(["sh", "-ec", put, str(folder), name, line], check=True)


def test_a_shell_stops_a_training(place, box):
    digits = place.digits(run_id="digits-one")
    folder = box / "digits-one"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert json.loads((folder / "run.json").read_text())["mailbox"] == str(folder)
    drop(folder, "lr", "set lr=0.25")
    assert state_of(folder, "lr", "done")["result"]["new"] == {"lr": 0.25}
    drop(folder, "typo", "stpo")
    (refused,) = answer(folder, "typo")
    assert "stop" in refused["error"]["message"]
    drop(folder, "end", "stop reason=enough")
    assert digits.wait() == 0
    assert state_of(folder, "end", "done")["result"]["reason"] == "enough"
    assert "ended" in json.loads((folder / "run.json").read_text())
    doors = [line["door"] for line in place.journal("digits-one") if "seq" in line]
    assert set(doors) == {"mailbox"}


def test_the_command_from_another_host(place, box):
    digits = place.digits(run_id="digits-one")
    far = place.elsewhere

    def kajitori(*words, status=0):
        return place.kajitori(*words, status=status, env=far)

    (row,) = json.loads(kajitori("ps", "--format", "json").stdout)
    assert (row["id"], row["state"], row["pid"]) == ("digits-one", "running", digits.popen.pid)
    assert len(place.json("ps")) == 1  # where its doors are, it is listed once
    assert "lr: 0.05 -> 0.5, applied at step" in kajitori("set", "lr=0.5").stdout
    assert kajitori("get", "lr", "--format", "value").stdout == "0.5\n"
    assert "did you mean stop" in kajitori("send", "stpo", status=5).stderr
    assert "mailbox" in kajitori("watch", status=1).stderr
    kajitori("pause")
    assert json.loads(kajitori("status", "--format", "json").stdout)["state"] == "paused"
    kajitori("resume")
    kajitori("stop", "--wait", "done", "--reason", "seen from far")
    assert digits.wait() == 0
    assert kajitori("ps", "--format", "json").stdout == "[]\n"
    assert "no run is live" in kajitori("stop", status=3).stderr
    assert not (box / "digits-one").exists()  # all answers were fetched


def test_a_killed_training_is_not_listed(place, box):
    digits = place.digits(run_id="digits-one")
    folder = box / "digits-one"
    digits.popen.send_signal(signal.SIGKILL)
    digits.popen.wait()
    assert place.kajitori("ps", "--format", "json", env=place.elsewhere).stdout == "[]\n"
    drop(folder, "late", "stop")
    again = place.digits(run_id="digits-one")  # takes its place at once, and does not obey
    (stale,) = answer(folder, "late")
    assert "before this run began" in stale["error"]["message"]
    assert place.json("status")["state"] == "running"
    place.kajitori("stop", env=place.elsewhere)
    assert again.wait() == 0


def test_the_process_stands_still(place, box):
    """A request that was not taken is taken back: the training does not stop when it goes on."""
    digits = place.digits(run_id="digits-one")
    digits.popen.send_signal(signal.SIGSTOP)
    done = place.kajitori("stop", "--timeout", "0.3", status=4, env=place.elsewhere)
    assert "was taken back" in done.stderr
    assert list((box / "digits-one" / "in").iterdir()) == []
    digits.popen.send_signal(signal.SIGCONT)
    place.kajitori("set", "lr=0.125", env=place.elsewhere)
    place.kajitori("stop", env=place.elsewhere)
    assert digits.wait() == 0


def test_the_folder_is_deleted(place, box):
    digits = place.digits(run_id="digits-one")
    shutil.rmtree(box)

    def warnings():
        return [line for line in place.journal("digits-one") if line.get("event") == "warning"]

    assert "was deleted" in until(warnings)[0]["text"]
    place.kajitori("stop")
    assert digits.wait() == 0
    assert len(warnings()) == 1


def test_many_at_once_in_their_order(place, box):
    digits = place.digits(run_id="digits-one")
    folder = box / "digits-one"
    for k in range(300):
        drop(folder, f"n{k:03}", f"note {k}")
    until(lambda: (folder / "out" / "n299.json").exists())
    notes = [line for line in place.journal("digits-one") if line.get("verb") == "note"]
    assert [int(line["words"][0]) for line in notes] == list(range(300))
    place.kajitori("stop")
    assert digits.wait() == 0


def refuse_mknod():
    """In the child before exec: the kernel answers mknodat and mknod with EPERM, as some file systems do."""
    libc = ctypes.CDLL(None, use_errno=True)
    load, equal, ret = 0x20, 0x15, 0x06
    lines = [
        (load, 0, 0, 0),
        (equal, 1, 0, 259),
        (equal, 0, 1, 133),
        (ret, 0, 0, 0x50001),
        (ret, 0, 0, 0x7FFF0000),
    ]
    code = b"".join(struct.pack("HBBI", *line) for line in lines)
    buffer = ctypes.create_string_buffer(code)
    program = ctypes.create_string_buffer(
        struct.pack("HxxxxxxP", len(lines), ctypes.addressof(buffer))
    )
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    assert libc.prctl(22, 2, program, 0, 0) == 0


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the filter names numbers of x86_64")
def test_where_fifos_are_refused(place, tmp_path):
    env = {**place.env, "KAJITORI_RUN_ID": "digits-one"}
    with subprocess.Popen(
        [place.digits_path, "--epochs", "1000000", "--step-ms", "2"],
        env=env,
        preexec_fn=refuse_mknod,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as digits:
        folder = place.runtime / "digits-one" / "mailbox"
        warning = digits.stderr.readline()
        assert "refuses FIFOs" in warning
        assert str(folder) in warning
        assert not (place.runtime / "digits-one" / "ctl").exists()
        assert place.json("status", "digits-one")["state"] in ("running", "paused")
        drop(folder, "end", "stop")
        assert digits.wait(PATIENCE_S) == 0
