# SPDX-License-Identifier: Apache-2.0
"""What the tests of the command, of Python and of interop share: an own place for runs and journals,
the command, processes whose output is waited for line by line."""

import json
import os
import pathlib
import subprocess
import threading
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
TIMEOUT_S = 60  # only a broken program needs that long


class Process:
    """A child whose output lines are read as they come. Killed at the end of the test."""

    def __init__(self, argv, env, cwd=None, stdin=None):
        self.popen = subprocess.Popen(
            [str(a) for a in argv],
            env=env,
            cwd=cwd,
            stdin=stdin,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.lines = {"stdout": [], "stderr": []}
        self._looked_at = dict.fromkeys(self.lines, 0)
        self._open = set(self.lines)
        self._changed = threading.Condition()
        self._threads = [
            threading.Thread(target=self._read, args=(name,), daemon=True) for name in self.lines
        ]
        for thread in self._threads:
            thread.start()

    def _read(self, name):
        for line in getattr(self.popen, name):
            with self._changed:
                self.lines[name].append(line.rstrip("\n"))
                self._changed.notify_all()
        with self._changed:
            self._open.remove(name)
            self._changed.notify_all()

    def _find(self, text, streams):
        for name in streams:
            while self._looked_at[name] < len(self.lines[name]):
                line = self.lines[name][self._looked_at[name]]
                self._looked_at[name] += 1
                if text in line:
                    return line
        return None

    def wait_line(self, text, stream=None, timeout=TIMEOUT_S):
        """The next line that holds `text`, of the stream named or of both. What was looked at in one
        stream is not looked at again; the other one is left as it is."""
        streams = [stream] if stream else list(self.lines)
        deadline = time.monotonic() + timeout
        with self._changed:
            while (line := self._find(text, streams)) is None:
                left = deadline - time.monotonic()
                if left <= 0 or not self._open & set(streams):
                    raise AssertionError(f"no line with {text!r}: {self.lines}")
                self._changed.wait(left)
            return line

    def wait(self, timeout=TIMEOUT_S):
        """The exit status; all lines have been read afterwards."""
        status = self.popen.wait(timeout)
        for thread in self._threads:
            thread.join(timeout)
        return status

    @property
    def out(self):
        return "\n".join(self.lines["stdout"])

    @property
    def err(self):
        return "\n".join(self.lines["stderr"])

    def kill(self):
        if self.popen.poll() is None:
            self.popen.kill()
        self.popen.wait()
        for stream in (self.popen.stdin, self.popen.stdout, self.popen.stderr):
            if stream:
                stream.close()


class Place:
    """A runtime folder and a state folder of the test's own, and what is started in them."""

    def __init__(self, tmp_path):
        self.tmp_path = tmp_path
        self.runtime = tmp_path / "rt"
        self.state = tmp_path / "st"
        self.env = dict(os.environ)
        for name in (
            "NO_COLOR",
            "KAJITORI_RUN_ID",
            "KAJITORI_STUDY",
            "KAJITORI_TRIAL",
            "KAJITORI_EVENTS_DIR",
        ):
            self.env.pop(name, None)
        self.env.update(
            KAJITORI_RUNTIME_DIR=str(self.runtime),
            KAJITORI_STATE_DIR=str(self.state),
            USER="tester",
        )
        self.command = os.environ.get("KAJITORI_BIN", str(ROOT / "build" / "kajitori"))
        self.digits_path = os.environ.get(
            "KAJITORI_DIGITS", str(ROOT / "build" / "examples" / "digits")
        )
        self._processes = []

    def start(self, *argv, env=None, cwd=None, stdin=None):
        process = Process(argv, {**self.env, **(env or {})}, cwd, stdin)
        self._processes.append(process)
        return process

    def kajitori(self, *words, status=0, env=None, cwd=None):
        """Runs the command to its end and expects the exit status."""
        done = subprocess.run(
            [self.command, *map(str, words)],
            env={**self.env, **(env or {})},
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
        assert done.returncode == status, (words, done.returncode, done.stdout, done.stderr)
        return done

    def json(self, *words):
        return json.loads(self.kajitori(*words, "--format", "json").stdout)

    def start_kajitori(self, *words, **options):
        return self.start(self.command, *words, **options)

    def digits(self, *options, run_id=None, step_ms=2, epochs=1000000):
        """Starts examples/digits and returns when its run can be reached: process.run_id."""
        env = {"KAJITORI_RUN_ID": run_id} if run_id else {}
        process = self.start(
            self.digits_path, "--epochs", epochs, "--step-ms", step_ms, *options, env=env
        )
        process.run_id = process.wait_line("run ", "stdout").removeprefix("run ")
        return process

    def journal(self, run_id):
        """Its whole lines: behind the last newline is what is being written, or was torn by a death."""
        text = (self.state / "runs" / run_id / "journal.jsonl").read_text()
        return [json.loads(line) for line in text.split("\n")[:-1]]

    def close(self):
        for process in self._processes:
            process.kill()


@pytest.fixture
def place(tmp_path):
    place = Place(tmp_path)
    yield place
    place.close()
