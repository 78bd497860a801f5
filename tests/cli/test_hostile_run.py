# SPDX-License-Identifier: Apache-2.0
"""A run that is not what it should be: whatever it says, no verb sends a control character to the
terminal, waits for ever, or takes the memory of the machine."""

import json
import resource
import subprocess
import time
import unicodedata

import pytest
from event_writer import EventWriter
from fake_run import End, FakeRun, event

NASTY = (
    "a\x1b[2J\x1b]0;owned\x07\x1b]52;c;cm0gLXJm\x1b\\\x9b31m\x90q\x9c\x08\x08\x7f\x00\r\n\t"
    "\u202egpj\u2066\u2069\u200e\u200f\u061c\u2028\u2029\ufeff\u0085z"
)
FORMATS = ("table", "json", "jsonl", "csv", "yaml", "value")
STATUS = {
    "id": NASTY,
    "name": NASTY,
    "state": NASTY,
    "phase": NASTY,
    "step": NASTY,
    "epoch": 1,
    "total_steps": NASTY,
    "metrics": [{"tag": NASTY, "step": 1, "value": NASTY, "wall_time": 1.0}],
    "params": {NASTY: NASTY, "lr": [NASTY]},
    "scheduled": [{"seq": 1, "verb": NASTY, "at": NASTY, "args": {NASTY: NASTY}}],
}
RECORD = {
    "n": 1,
    "time": 1.0,
    "seq": 4,
    "state": "done",
    "verb": NASTY,
    "args": {NASTY: NASTY},
    "words": [NASTY],
    "line": NASTY,
    "at": NASTY,
    "old": {NASTY: NASTY},
    "new": {NASTY: NASTY},
    "by": NASTY,
    "reason": NASTY,
    "door": NASTY,
    "result": {NASTY: [NASTY]},
    "error": NASTY,
    "step": 1,
    "epoch": 1,
}
PARAMS = {
    "params": [
        {
            "name": NASTY,
            "type": NASTY,
            "value": NASTY,
            "step": 1,
            "unit": NASTY,
            "help": NASTY,
            "effect": NASTY,
        }
    ]
}
HELP = {
    "verbs": [
        {
            "name": NASTY,
            "help": NASTY,
            "own": True,
            "args": [{"name": NASTY, "type": NASTY, "required": True, "help": NASTY}],
        }
    ]
}
ANSWERS = {
    "status": STATUS,
    "params": PARAMS,
    "help": HELP,
    "command": RECORD,
    "journal": {"lines": [RECORD], "last": 1},
}
VERBS = {
    "ps": ["ps"],
    "status": ["status"],
    "get": ["get"],
    "get one": ["get", NASTY.replace("\0", "")],
    "stop": ["stop"],
    "pause": ["pause"],
    "resume": ["resume"],
    "set": ["set", "lr=1"],
    "send": ["send", "help"],
    "send own": ["send", "tick n=1"],
    "ping": ["ping"],
    "params": ["params"],
    "note": ["note", "digits-1", "hello"],
    "checkpoint": ["checkpoint"],
    "evaluate": ["evaluate"],
    "extend": ["extend", "epochs=1"],
    "prune": ["prune"],
    "abort": ["abort"],
    "pause leave": ["pause", "--level", "leave"],
    "group": ["status", "--all"],
}
MEMORY = 400 << 20


@pytest.fixture
def fake(place):
    runs = []

    def start(answers):
        info = dict.fromkeys(("name", "framework", "study", "cwd"), NASTY) | {"argv": [NASTY]}
        runs.append(FakeRun(place.runtime, "digits-1", answers, info))
        return runs[-1]

    yield start
    for run in runs:
        run.close()


def run_limited(place, *words, timeout=60):
    """The command with little memory, whatever its exit status. It must not need the time-out."""
    return subprocess.run(
        [place.command, *words],
        env=place.env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=timeout,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY)),
    )


def expect_harmless(done):
    """UTF-8 without a control, format or surrogate character but for newline and tab."""
    for text in (done.stdout.decode(), done.stderr.decode()):
        odd = {c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp")}
        assert not odd - set("\n\t"), (done.args, odd, text)


@pytest.mark.parametrize("verb", VERBS)
def test_what_a_run_says_is_printed_without_control_characters(place, fake, verb):
    fake(ANSWERS)
    for form in FORMATS:
        done = run_limited(place, *VERBS[verb], "--format", form)
        assert done.returncode >= 0
        expect_harmless(done)


@pytest.mark.parametrize("verb", VERBS)
def test_errors_of_a_run_are_printed_without_control_characters(place, fake, verb):
    fake(dict.fromkeys(("status", "params", "help", "command"), RuntimeError(-9, NASTY)))
    done = run_limited(place, *VERBS[verb])
    assert done.returncode >= 0
    expect_harmless(done)


def test_a_hello_is_printed_without_control_characters(place, fake):
    run = fake({})
    for hello in (
        RuntimeError(-9, NASTY),
        {"protocol": 99, "version": NASTY},
        {"protocol": NASTY},
        NASTY,
    ):
        run.answers["hello"] = hello
        for words in (["status"], ["ps"], ["stop"], ["watch"]):
            expect_harmless(run_limited(place, *words))


def test_watch_prints_no_control_characters(place, fake):
    events = b"".join(
        [
            event(event="command", **RECORD),
            event(event="metric", tag=NASTY, step=NASTY, value=NASTY, wall_time=1.0),
            event(event="state", state=NASTY, step=1, epoch=1),
            event(event=NASTY, text=NASTY),
            event(event="gap", lost=NASTY),
            event(event="state", state="ended", step=1, epoch=1),
        ]
    )
    answer = FakeRun._envelope(2, {"last": 1, "cursor": NASTY})
    fake({**ANSWERS, "subscribe": End(answer + events)})
    for form in ("table", "jsonl"):
        done = run_limited(place, "watch", "--format", form)
        expect_harmless(done)
        assert b"a[2J" in done.stdout or b"\\u001b" in done.stdout


def test_log_prints_no_control_characters(place):
    folder = place.state / "runs" / "digits-1"
    folder.mkdir(parents=True, mode=0o700)
    lines = [RECORD, {"n": 2, "time": 1.0, "event": NASTY, "text": NASTY}]
    lines += [
        {"n": 3, "time": 1.0, "event": e, "text": NASTY, "door": NASTY, "run": {"argv": [NASTY]}}
        for e in ("run_started", "stale", "flood", "warning", "run_ended")
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "journal.jsonl").write_text(text + NASTY + "\n")
    for form in ("table", "json", "jsonl"):
        done = run_limited(place, "log", "digits-1", "--format", form)
        assert done.returncode >= 0
        expect_harmless(done)


def test_events_prints_no_control_characters(place, tmp_path):
    (tmp_path / "logs").mkdir()
    writer = EventWriter(tmp_path / "logs")
    writer.add(NASTY, 1, 0.5)
    writer.close()
    for words in (["events", tmp_path / "logs"], ["events", tmp_path / "logs", "--tag", "x"]):
        expect_harmless(run_limited(place, *map(str, words)))


ENDLESS = b'{"jsonrpc": "2.0", "method": "event", "params": {"event": "state", "pad": "%s"}}\n' % (
    b"x" * 60000
)


class Flood(FakeRun):
    """Answers hello, and every other request with `chunk` again and again until nobody reads."""

    def __init__(self, runtime, chunk):
        self.chunk = chunk
        self.sent = 0
        super().__init__(runtime, "digits-1", {"subscribe": {"last": 1, "cursor": "x"}})

    def _serve(self, connection):
        try:
            lines = connection.makefile("r")
            for line in lines:
                request = json.loads(line)
                if request["method"] in ("hello", "subscribe"):
                    answer = self.answers[request["method"]]
                    connection.sendall(self._envelope(request["id"], answer))
                    if request["method"] == "hello":
                        continue
                while True:
                    connection.sendall(self.chunk)
                    self.sent += len(self.chunk)
        except OSError:
            pass  # the command has seen enough
        finally:
            connection.close()


@pytest.mark.parametrize(
    ("words", "limit_s"),
    [
        (["status"], 30),
        (["ps"], 30),
        (["get"], 30),
        (["stop", "--timeout", "2"], 30),
        (["set", "lr=1", "--timeout", "2"], 30),
        (["send", "help", "--timeout", "2"], 30),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
@pytest.mark.parametrize("chunk", [ENDLESS, b"x" * 65536], ids=["events", "one line"])
def test_a_run_that_never_stops_talking(place, words, limit_s, chunk):
    """Events without end, or 100 MB and more of one line, in place of the answer."""
    run = Flood(place.runtime, chunk)
    began = time.monotonic()
    done = run_limited(place, *words)
    run.close()
    assert time.monotonic() - began < limit_s  # it ended by itself
    assert b"memory" not in done.stderr
    if words == ["ps"]:
        assert b"silent" in done.stdout
    else:
        assert done.returncode in (1, 4), done
        assert len(done.stderr.splitlines()) == 1


def test_watch_of_a_run_that_never_stops_talking(place):
    """Its lines are printed as they come; what waits is bounded."""
    run = Flood(place.runtime, ENDLESS.replace(b'"state"', b'"state", "state": "running"'))
    watch = subprocess.Popen(
        [place.command, "watch", "--format", "jsonl"],
        env=place.env,
        stdout=subprocess.PIPE,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY)),
    )
    for _ in range(2000):
        assert watch.stdout.readline().startswith(b'{"event"')
    assert watch.poll() is None
    watch.kill()
    watch.wait()
    watch.stdout.close()
    run.close()


def test_deep_and_odd_json_ends_the_connection(place, fake):
    run = fake({})
    for line in (
        b"[" * 500000,
        b'{"a":' * 100000 + b"1",
        b"\xff\xfe\x00",
        b"1e999999",
        b"[]",
        b"7",
    ):
        run.answers["status"] = lambda _, line=line: line + b"\n"
        done = run_limited(place, "status")
        assert done.returncode == 1, done
        assert done.stderr.startswith(b"kajitori: the run "), done.stderr
        expect_harmless(done)
