# SPDX-License-Identifier: Apache-2.0
"""What the tests of the package share: asking a run of this process, and other processes that do."""

import json
import pathlib
import subprocess
import sys
import textwrap
import threading
import time

import kajitori

PATIENCE = 120  # seconds until something that never comes is a failure

TOP = pathlib.Path(__file__).resolve().parents[2]


def while_polling(run, function, *args):
    """What `function` returns, called in a second thread while this one is the training."""
    outcome = {}

    def work():
        try:
            outcome["result"] = function(*args)
        except BaseException as error:
            outcome["error"] = error

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    deadline = time.monotonic() + PATIENCE
    while thread.is_alive():
        run.poll()
        assert time.monotonic() < deadline, "no answer"
    if "error" in outcome:
        raise outcome["error"]
    return outcome["result"]


def ask(run, *lines, **options):
    """Sends commands over the socket, one after the other; the records of all of them."""

    def send():
        with kajitori.connect(run.id) as client:
            return [client.send(line, **options) for line in lines]

    records = while_polling(run, send)
    return records[0] if len(lines) == 1 else records


def outside(code):
    """Another process that talks to the only run: `code` sees `c`, a connected client, and prints."""
    text = "import json, kajitori\nwith kajitori.connect() as c:\n"
    text += "".join(f"    {line}\n" for line in code.splitlines())
    return subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True)


def applied(run_id=None):
    """What the journal of a run says was applied, in order."""
    return [line for line in kajitori.journal(run_id) if line.get("state") == "applied"]


def last_json(process):
    out, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    return json.loads(out)


def finish(code, *args, **options):
    """Runs a program to its end; what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *args],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        **options,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout
