# SPDX-License-Identifier: Apache-2.0
"""Steering through a FIFO: what writers do, and what became of it with a callback that opens, reads
and closes the FIFO at each step, is what these tests are named after. Here every line counts once."""

import ctypes
import errno
import os
import pathlib
import signal
import subprocess
import threading

import pytest
from waiting import until

TIMEOUT_S = 60


@pytest.fixture
def digits(place, tmp_path):
    """A training with a FIFO of the user's own at `process.fifo`."""
    path = tmp_path / "fifo"
    os.mkfifo(path)
    process = place.digits("--fifo", path, run_id="digits-one")
    process.fifo = path
    return process


def until_steps_later(place, n):
    first = place.json("status")["step"]
    until(lambda: place.json("status")["step"] >= first + n)


def follow(place):
    return place.start_kajitori("log", "--follow")


def finish(place, process):
    """Stops it, and returns its journal."""
    place.kajitori("stop", process.run_id)
    assert process.wait() == 0
    return place.journal(process.run_id)


def done(journal, verb):
    return [line for line in journal if line.get("verb") == verb and line["state"] == "done"]


def rejected(journal):
    return [line["error"] for line in journal if line.get("state") == "rejected"]


def sh(script):
    subprocess.run(["sh", "-c", script], check=True, timeout=TIMEOUT_S)


def write_by_sh(path, line, n):
    sh(f"for k in $(seq {n}); do echo '{line}' > '{path}'; done")


def write_by_python(path, line, n):
    for _ in range(n):
        with path.open("w") as fifo:
            fifo.write(line + "\n")


def write_by_c(path, line, n):
    libc = ctypes.CDLL(None)
    libc.fopen.restype = ctypes.c_void_p
    for _ in range(n):
        stream = ctypes.c_void_p(libc.fopen(os.fsencode(path), b"w"))
        assert libc.fputs(line.encode() + b"\n", stream) >= 0
        assert libc.fclose(stream) == 0


def write_nonblocking(path, line, n):
    """A reader is always there, so that no try ends in ENXIO; a full FIFO (EAGAIN) says so."""
    for _ in range(n):
        fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        while True:
            try:
                assert os.write(fd, line.encode() + b"\n") == len(line) + 1
                break
            except BlockingIOError:
                os.sched_yield()
        os.close(fd)


@pytest.mark.parametrize("write", [write_by_sh, write_by_python, write_by_c, write_nonblocking])
def test_200_commands_one_after_the_other(place, digits, write):
    write(digits.fifo, "shake scale=0", 200)
    assert len(done(finish(place, digits), "shake")) == 200


@pytest.mark.parametrize("write", [write_by_sh, write_by_python, write_by_c])
def test_50_commands_each_when_the_one_before_is_done(place, digits, write):
    for k in range(50):
        write(digits.fifo, f"set lr=0.{k + 1:02}", 1)
        until(lambda n=k + 1: len(done(place.journal("digits-one"), "set")) == n)
    assert len(done(finish(place, digits), "set")) == 50


def test_four_shells_at_once(place, digits):
    sh(
        f"for w in 1 2 3 4; do (for k in $(seq 50); do echo shake scale=0 > '{digits.fifo}'; done) &"
        " done; wait"
    )
    assert len(done(finish(place, digits), "shake")) == 200


def test_1000_writers(place, digits):
    sh(f"for k in $(seq 1000); do echo shake scale=0 > '{digits.fifo}' & done; wait")
    assert len(done(finish(place, digits), "shake")) == 1000


def test_two_trainings_on_one_fifo(place, digits):
    """One reads it; the other one says so, and has its own doors."""
    other = place.digits("--fifo", digits.fifo, run_id="digits-two")
    assert "another run reads the FIFO" in other.wait_line("digits: ", "stderr")
    write_by_sh(digits.fifo, "shake scale=0", 50)
    assert len(done(finish(place, digits), "shake")) == 50
    assert done(finish(place, other), "shake") == []


def test_a_command_before_the_first_step(place, tmp_path):
    path = tmp_path / "fifo"
    os.mkfifo(path)
    process = place.digits("--fifo", path, run_id="digits-one", step_ms=200)
    path.write_text("stop at=step:0\n")
    assert process.wait() == 0
    assert "stopped at step" in process.out


def test_nobody_reads(place, digits):
    """The run has ended: the command says so at once, and no writer hangs at its own FIFO."""
    finish(place, digits)
    place.kajitori("stop", "digits-one", status=3)
    with pytest.raises(OSError, match=os.strerror(errno.ENXIO)):
        os.open(digits.fifo, os.O_WRONLY | os.O_NONBLOCK)
    with pytest.raises(FileNotFoundError):
        (place.runtime / "digits-one" / "ctl").write_text("stop\n")


def test_a_command_left_by_a_killed_training_is_not_obeyed_by_the_next(place, digits):
    digits.popen.kill()
    digits.wait()
    writer = subprocess.Popen(["sh", "-c", f"echo stop reason=old > '{digits.fifo}'"])
    stat = pathlib.Path(f"/proc/{writer.pid}/stat")
    until(lambda: ") S " in stat.read_text())  # in open(2)
    again = place.digits("--fifo", digits.fifo, run_id="digits-one")
    assert writer.wait(TIMEOUT_S) == 0
    again.wait_line("epoch 1 ")
    stale = [line for line in finish(place, again) if line.get("event") == "stale"]
    assert [(line["door"], line["text"]) for line in stale] == [("fifo", "stop reason=old ")]


def test_a_writer_that_opens_and_stays_silent(place, digits):
    with digits.fifo.open("w"):
        until_steps_later(place, 50)
        digits.wait_line("epoch 1 ")
        place.kajitori("set", "lr=0.25")
    finish(place, digits)


def test_a_command_in_two_writes(place, digits):
    fd = os.open(digits.fifo, os.O_WRONLY)
    os.write(fd, b"st")
    until_steps_later(place, 20)  # the training goes on meanwhile
    os.write(fd, b"op\n")
    assert digits.wait() == 0
    os.close(fd)


def test_no_newline(place, digits):
    sh(f"printf stop > '{digits.fifo}'")
    assert digits.wait() == 0


def test_two_lines_in_one_write(place, digits):
    sh(f"printf 'set lr=0.25\\nstop\\n' > '{digits.fifo}'")
    assert digits.wait() == 0
    assert len(done(place.journal("digits-one"), "set")) == 1


@pytest.mark.parametrize("text", ["STOP\n", " stop\n", "stop \n", "stop\r\n", "\tstop\t# now\n"])
def test_spellings_of_stop(place, digits, text):
    digits.fifo.write_bytes(text.encode())
    assert digits.wait() == 0


def test_two_stops(place, digits):
    digits.fifo.write_text("stop reason=first\nstop reason=second\n")
    assert digits.wait() == 0
    assert digits.out.endswith(": first")
    assert len(done(place.journal("digits-one"), "stop")) == 2


def test_a_stop_while_paused(place, digits):
    digits.fifo.write_text("pause\n")
    until(lambda: place.json("status")["state"] == "paused")
    digits.fifo.write_text("stop\n")
    assert digits.wait() == 0


@pytest.mark.parametrize("value", ["nan", "NaN", "inf", "-inf", "1e999", "0", "x", '""'])
def test_values_that_are_none(place, digits, value):
    digits.fifo.write_text(f"set lr={value}\n")
    place.kajitori("set", f"lr={value}", status=5)
    assert place.json("get", "lr")[0]["value"] == 0.05
    journal = finish(place, digits)
    assert len(rejected(journal)) == 2
    assert done(journal, "set") == []


def test_empty_lines_count_as_nothing(place, digits):
    digits.fifo.write_text("\n\n   \n# nothing\n\r\n")
    journal = finish(place, digits)
    assert {line["door"] for line in journal if "seq" in line} == {"socket"}


def test_200_bytes_on_one_line(place, digits):
    digits.fifo.write_text("stop reason=" + 200 * "x" + "\n")
    assert digits.wait() == 0
    assert digits.out.endswith(200 * "x")


def test_bytes_that_are_no_utf8(place, digits):
    digits.fifo.write_bytes(b"\xff\xfe\nset lr=0.25\n")
    journal = finish(place, digits)
    assert rejected(journal) == ["line is not UTF-8"]
    assert len(done(journal, "set")) == 1


def test_the_path_is_missing(place, tmp_path):
    digits = place.digits("--fifo", tmp_path / "missing" / "fifo", run_id="digits-one")
    assert "missing/fifo" in digits.wait_line("digits: ", "stderr")
    finish(place, digits)
    digits = place.digits("--fifo", tmp_path / "fifo", run_id="digits-one")  # made
    (tmp_path / "fifo").write_text("stop\n")
    assert digits.wait() == 0
    assert digits.err == ""
    assert not (tmp_path / "fifo").exists()


def test_the_path_is_deleted_while_training(place, digits):
    digits.fifo.unlink()
    assert str(digits.fifo) in digits.wait_line("was deleted", "stderr")
    finish(place, digits)


def test_the_path_is_a_plain_file(place, tmp_path):
    """`echo stop > path` before mkfifo: the file is refused, kept, and never obeyed."""
    path = tmp_path / "fifo"
    path.write_text("stop\n")
    digits = place.digits("--fifo", path, run_id="digits-one")
    assert "is a regular file, not a FIFO" in digits.wait_line("digits: ", "stderr")
    digits.wait_line("epoch 1 ")
    finish(place, digits)
    assert path.read_text() == "stop\n"


def test_an_unknown_command(place, digits):
    following = follow(place)
    digits.fifo.write_text("stpo\n")
    assert "did you mean stop?" in following.wait_line("stpo")
    finish(place, digits)


def test_lines_split_at_every_byte(place, digits):
    line = b'set lr=0.25 reason="two words" # done\n'
    fd = os.open(digits.fifo, os.O_WRONLY)
    for k in range(1, len(line)):
        os.write(fd, line[:k])
        place.kajitori("ps")  # the first part has been read by now, or is just being read
        os.write(fd, line[k:])
    os.close(fd)
    journal = finish(place, digits)
    assert rejected(journal) == []
    sets = done(journal, "set")
    assert len(sets) == len(line) - 1
    assert {(s["args"]["lr"], s["reason"]) for s in sets} == {(0.25, "two words")}


def test_a_line_of_a_megabyte(place, digits):
    digits.fifo.write_text("set lr=0.5 reason=" + 1_000_000 * "x" + "\nset lr=0.25\n")
    journal = finish(place, digits)
    assert rejected(journal) == ["line of more than 4096 bytes"]
    assert [s["args"] for s in done(journal, "set")] == [{"lr": 0.25}]


@pytest.mark.parametrize(
    "garbage", [bytes(range(256)) * 64, b"\0" * 20000, b"\x1b]0;x\x07\r" * 999]
)
def test_binary_garbage(place, digits, garbage):
    digits.fifo.write_bytes(garbage + b"\nset lr=0.25\n")
    journal = finish(place, digits)
    assert [s["args"] for s in done(journal, "set")] == [{"lr": 0.25}]
    assert rejected(journal)
    shown = place.kajitori("log").stdout
    assert all(c.isprintable() or c == "\n" for c in shown)


def test_writers_killed_in_the_middle_of_a_line(place, digits):
    """A part of a line is refused or is a line by itself; the next writer's one is whole."""
    for k in range(20):
        writer = subprocess.Popen(
            ["sh", "-c", f"exec > '{digits.fifo}'; printf 'set lr='; kill -9 $$"]
        )
        assert writer.wait(TIMEOUT_S) == -signal.SIGKILL
        until(lambda n=k + 1: len(rejected(place.journal("digits-one"))) == n)
        digits.fifo.write_text(f"set lr=0.{k + 1}\n")
        until(lambda n=k + 1: len(done(place.journal("digits-one"), "set")) == n)
    journal = finish(place, digits)
    assert len(rejected(journal)) == 20
    assert len(done(journal, "set")) == 20


@pytest.mark.parametrize("line", ["y", "ping", "resume save=yes", "\\0377", "set lr=99"])
def test_a_flood_holds_nobody(place, digits, line):
    """`yes > FIFO`: the training goes on, status is answered, the journal stays small, and the
    command that comes by another door is obeyed."""
    flood = place.start("sh", "-c", f"exec yes \"$(printf '{line}')\" > '{digits.fifo}'")
    following = follow(place)
    following.wait_line("flood")
    until_steps_later(place, 100)
    place.kajitori("set", "lr=0.25")
    (place.runtime / "digits-one" / "ctl").write_text("stop reason=enough\n")
    assert digits.wait() == 0
    assert digits.out.endswith(": enough")
    flood.wait()
    journal = place.journal("digits-one")
    floods = [entry for entry in journal if entry.get("event") == "flood"]
    assert sum(entry["lines"] for entry in floods) > 1000
    assert {entry["door"] for entry in floods} == {"fifo"}
    assert len(journal) < 100 + 20 * len(floods) + 50
    assert [entry["n"] for entry in journal] == list(range(1, len(journal) + 1))


def test_a_flood_of_commands_is_limited_by_the_queue(place, digits):
    place.kajitori("pause")
    (place.runtime / "digits-one" / "ctl").write_text("")
    flood = place.start("sh", "-c", f"exec yes shake scale=0 at=step:99999999 > '{digits.fifo}'")
    following = follow(place)
    assert "commands wait already" in following.wait_line("commands wait already")
    flood.kill()
    assert place.json("status")["state"] == "paused"
    assert len(place.json("status")["scheduled"]) == 100  # as many as are shown
    finish(place, digits)


def test_readers_that_steal_are_no_harm_to_the_training(place, digits):
    """`cat FIFO` by mistake: it takes lines away, as any reader does, and nothing worse."""
    thief = place.start("cat", digits.fifo)
    for _ in range(100):
        digits.fifo.write_text("shake scale=0\n")
    thief.kill()
    journal = finish(place, digits)
    assert len(done(journal, "shake")) <= 100


def test_many_threads_and_both_fifos(place, digits):
    paths = [digits.fifo, place.runtime / "digits-one" / "ctl"]
    threads = [
        threading.Thread(target=write_by_python, args=(path, "shake scale=0", 50))
        for path in paths * 4
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(done(finish(place, digits), "shake")) == 400
