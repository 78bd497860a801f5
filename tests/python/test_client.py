# SPDX-License-Identifier: Apache-2.0
"""The client: what it sends, waits for, and refuses."""

import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest
from training import PATIENCE, finish, while_polling

import kajitori


def test_what_a_client_cannot_send(run):
    with kajitori.connect(run.id) as client:
        for options in (
            {"args": [("lr", 1)]},
            {"args": {"lr": b"1"}},
            {"args": {"lr": object()}},
            {"wait": []},
            {"timeout": "soon"},
            {"timeout": float("nan")},
        ):
            with pytest.raises(kajitori.ArgumentError):
                client.command("ping", **options)
        with pytest.raises(kajitori.ArgumentError, match="method: 5 is no text"):
            client.call(5)
        with pytest.raises(kajitori.ArgumentError, match="timeout"):
            next(client.events(timeout="soon"))


def test_numbers_of_numpy_are_numbers(run):
    values = []
    run.add_param("lr", float, lambda: 0.5, values.append)

    def send():
        with kajitori.connect(run.id) as client:
            client.set({"lr": np.float32(0.25)})

    while_polling(run, send)
    assert values == [0.25]


@pytest.mark.parametrize("wait", ["send('stop')", "call('status')", "events().__next__()"])
def test_ctrl_c_ends_the_wait_of_a_client(tmp_path, wait):
    """The training passes no safe point, and for status its process is stopped."""
    trainer = subprocess.Popen(
        [sys.executable, "-c", "import kajitori, sys\nwith kajitori.Run(): sys.stdin.read()"],
        stdin=subprocess.PIPE,
    )
    code = textwrap.dedent(f"""
        import kajitori, os, signal, threading
        signal.signal(signal.SIGINT, signal.default_int_handler)
        handled = []
        def handle(*args):  # returns, so the wait goes on
            handled.append(args)
            threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
        signal.signal(signal.SIGUSR1, handle)
        client = kajitori.connect()
        if "status" in {wait!r}:
            os.kill({trainer.pid}, signal.SIGSTOP)
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        try:
            client.{wait}
        except KeyboardInterrupt:
            print("interrupted", len(handled))
    """)
    try:
        while not kajitori.runs():
            assert trainer.poll() is None
        assert finish(code) == "interrupted 1\n"
    finally:
        trainer.kill()
        trainer.wait()


def test_no_such_run():
    with pytest.raises(kajitori.NoSuchRunError, match="no run is live"):
        kajitori.connect()
    with kajitori.Run(), pytest.raises(kajitori.NoSuchRunError, match="nobody"):
        kajitori.connect("nobody")
    with pytest.raises(kajitori.NoSuchRunError):
        kajitori.journal("nobody")


def test_a_command_that_is_not_applied_in_time(run):
    with kajitori.connect(run.id) as client, pytest.raises(kajitori.WaitTimeoutError):
        client.send("stop", timeout=0.01)
    assert run.poll() is True, "it stays accepted"


def test_a_run_that_ends_first(run):
    with kajitori.connect(run.id) as client:
        client.send("stop at=step:100", wait="accepted")
        run.close()
        with pytest.raises(kajitori.RunEndedError):
            client.status()


def test_a_closed_client(run):
    client = kajitori.connect(run.id)
    client.close()
    client.close()
    with pytest.raises(kajitori.StateError):
        client.status()
    with (
        kajitori.connect(run.id) as client,
        pytest.raises(kajitori.ArgumentError, match="accepted"),
    ):
        client.send("ping", wait="soon")


def test_a_connection_is_for_one_thread_at_a_time(run):
    client = kajitori.connect(run.id)
    events = client.events()
    held = threading.Thread(target=lambda: next(events), daemon=True)
    held.start()
    while not client._lock.locked():
        pass
    for use in (client.status, client.close, lambda: client.command("ping")):
        with pytest.raises(kajitori.StateError, match="one thread at a time"):
            use()
    run.report("loss", 1, 0.5)
    held.join(PATIENCE)
    assert client.status()["id"] == run.id
    client.close()
