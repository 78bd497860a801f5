# SPDX-License-Identifier: Apache-2.0
"""A helper thread that has nothing to do does nothing: it does not wake up."""

import contextlib
import pathlib
import socket

EPOCHS = 5


def helper_switches(pid):
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        if (task / "comm").read_text() == "kajitori\n":
            lines = (task / "status").read_text().splitlines()
            return sum(int(line.split()[1]) for line in lines if "ctxt_switches" in line)
    raise AssertionError("no thread of this name")


def switches_in(process, epochs):
    """How often the helper woke up while so many epochs ended."""
    before = helper_switches(process.popen.pid)
    n = len(process.lines["stdout"])
    while len(process.lines["stdout"]) < n + epochs:
        process.wait_line("epoch ", "stdout")
    return helper_switches(process.popen.pid) - before


def quiet_epochs(place, process):
    """The same when it is told nothing, from when it has come back to its wait."""
    place.kajitori("status")  # it has begun
    while switches_in(process, 1):
        pass
    return switches_in(process, EPOCHS)


def connect(place, run_id):
    client = socket.socket(socket.AF_UNIX)
    client.connect(str(place.runtime / run_id / "sock"))
    client.sendall(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
    assert client.recv(100)
    return client


def test_no_wake_ups_while_nobody_wants_anything(place, tmp_path):
    digits = place.digits("--fifo", tmp_path / "fifo", run_id="digits-one")
    assert quiet_epochs(place, digits) == 0


def test_no_wake_ups_beside_silent_clients_and_writers(place, tmp_path):
    digits = place.digits("--fifo", tmp_path / "fifo", run_id="digits-one")
    with contextlib.ExitStack() as stack:
        stack.enter_context((tmp_path / "fifo").open("w"))
        stack.enter_context((place.runtime / "digits-one" / "ctl").open("w"))
        for _ in range(10):
            stack.enter_context(connect(place, "digits-one"))
        assert quiet_epochs(place, digits) == 0
