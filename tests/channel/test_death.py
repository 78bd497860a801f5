# SPDX-License-Identifier: Apache-2.0
"""A training that is killed at any moment leaves a journal that can be read, and nothing else that
the next run would stumble over. The next run of its id says which commands it had accepted and not
carried out."""

import contextlib
import itertools
import json
import os
import random
import shutil
import socket
import threading

ROUNDS_OF_ONE_JOURNAL = 10  # the last of them is stopped, not killed
ROUNDS = 556 if os.environ.get("KAJITORI_SOAK") else 22  # 500 and 20 are killed
LINES = b"set lr=0.25\nset lr=0.5 at=epoch\nbogus\n"
PAUSE_S = 0.003


def write_fifos(paths, over):
    """Commands by both FIFOs until `over`."""
    while not over.is_set():
        for path in paths:
            with contextlib.suppress(OSError):
                fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
                with contextlib.suppress(OSError):
                    os.write(fd, LINES)
                os.close(fd)
        over.wait(PAUSE_S)


class SocketWriter:
    """Commands by the socket, one after the other, until it is told that it is over. `answered` has the reasons, all
    different, of those that the run said were accepted."""

    def __init__(self, path, over):
        self.path, self.over = path, over
        self.answered = set()
        self.numbers = itertools.count()
        self.thread = threading.Thread(target=self._write)
        self.thread.start()

    def _write(self):
        while not self.over.is_set():
            with contextlib.suppress(OSError, ValueError), socket.socket(socket.AF_UNIX) as to_run:
                to_run.connect(str(self.path))
                self._send_commands(to_run)
            self.over.wait(PAUSE_S)

    def _send_commands(self, to_run):
        lines = to_run.makefile("rb")
        for k in itertools.takewhile(lambda _: not self.over.is_set(), self.numbers):
            late = "set lr=0.125 at=step:999999999"
            line = late if k % 20 == 0 else ["set lr=0.5", "shake scale=0"][k % 2]
            params = {"line": f"{line} reason={k}"}
            request = {"jsonrpc": "2.0", "id": k, "method": "command", "params": params}
            to_run.sendall(json.dumps(request).encode() + b"\n")
            while (answer := json.loads(lines.readline())).get("id") != k:
                pass
            if "result" in answer:
                self.answered.add(str(k))
            self.over.wait(PAUSE_S)


def read_journal(place, run_id):
    """All lines of all files; a last one without an end is none."""
    folder = place.state / "runs" / run_id
    files = [*sorted(folder.glob("journal-*.jsonl")), folder / "journal.jsonl"]
    texts = [file.read_text() for file in files]
    assert all(text.endswith("\n") for text in texts[:-1])
    lines = [json.loads(line) for text in texts for line in text.split("\n")[:-1]]
    assert [line["n"] for line in lines] == list(range(1, len(lines) + 1))
    return lines


def open_commands(lines):
    """Those that the dead have accepted and neither carried out nor answered; a run that ended left none."""
    state = {}
    for line in lines:
        if line.get("event") == "run_ended":
            state.clear()
        elif "seq" in line:
            state[line["seq"]] = line["state"]
            if "recovered" in line and line["state"] == "accepted":
                state.pop(line["recovered"])
    return sorted(seq for seq, at in state.items() if at in ("accepted", "scheduled", "applied"))


def accepted(lines):
    return [line for line in lines if line.get("state") == "accepted"]


def numbers_once(lines):
    """The first line of each command says that it was taken or refused; its number is its own."""
    firsts = [line["seq"] for line in lines if line.get("state") in ("accepted", "rejected")]
    return len(firsts) == len(set(firsts)) and firsts == sorted(firsts)


def check_what_is_said_of_the_dead(place, process, wanted):
    """At most 100 of them are named."""
    listed = place.json("status").get("recoverable", [])
    assert [command["seq"] for command in listed] == wanted[:100]
    if wanted:
        assert f"left {len(wanted)} command" in process.wait_line("undone", "stderr")


def test_killed_at_random_moments(place, tmp_path):
    moments = random.Random(1)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    doors = place.runtime / "digits-one"
    over = threading.Event()
    fifos = threading.Thread(target=write_fifos, args=([fifo, doors / "ctl"], over))
    fifos.start()
    by_socket = SocketWriter(doors / "sock", over)
    wanted, taken = [], set()
    try:
        for k in range(ROUNDS):
            process = place.digits("--fifo", fifo, run_id="digits-one", step_ms=0)
            assert process.run_id == "digits-one"  # the dead one's folder has been swept
            check_what_is_said_of_the_dead(place, process, wanted)
            for _ in range(moments.randrange(4)):
                process.wait_line("epoch ", "stdout")
            over.wait(moments.random() / 50)
            if k % ROUNDS_OF_ONE_JOURNAL == ROUNDS_OF_ONE_JOURNAL - 1:
                place.kajitori("stop", "--at", "now")
            else:
                process.popen.kill()
            process.wait()
            assert len(process.err.splitlines()) == bool(wanted)  # of FIFO, journal and id nothing
            place.kajitori("log")
            lines = read_journal(place, "digits-one")
            began = [line for line in lines if line.get("event") == "run_started"][-1]
            named = [command["seq"] for command in began.get("recoverable", [])]
            assert named == wanted[:100]
            assert numbers_once(lines)
            wanted = open_commands(lines)
            taken |= {line["reason"] for line in accepted(lines) if "reason" in line}
            if not wanted:
                shutil.rmtree(place.state / "runs" / "digits-one")
        assert by_socket.answered <= taken
        assert by_socket.answered
    finally:
        over.set()
        fifos.join()
        by_socket.thread.join()
    assert place.json("ps") == []
    assert not doors.exists()
    assert list(place.runtime.iterdir()) == []


def test_the_runtime_folder_is_deleted_under_a_training(place):
    digits = place.digits(run_id="digits-one")
    folder = place.runtime / "digits-one"
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    place.runtime.rmdir()
    assert "was deleted" in digits.wait_line("was deleted", "stderr")
    digits.wait_line("epoch 1 ", "stdout")
    place.kajitori("stop", status=3)
    other = place.digits(run_id="digits-one")  # the name is free, and the journal is not shared
    assert "a live run of this id" in other.wait_line("journal", "stderr")
    place.kajitori("stop")
    assert other.wait() == 0
    assert digits.popen.poll() is None
