# SPDX-License-Identifier: Apache-2.0
"""A command and a run of different versions: what both know works, what one does not know is said
(docs/protocol.md, section 9). The other version is a fake, in both directions."""

import json
import socket

import pytest
from fake_run import End, FakeRun, event
from test_fake_run import STATUS, record

UNKNOWN = {"mood": "good", "later": [1, {"x": None}]}  # members of a version to come


class Raw:
    """A client that says what it is told."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(str(path))
        self.lines = self.socket.makefile("r")
        self.last_id = 0

    def call(self, method, **params):
        self.last_id += 1
        message = {"jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params}
        self.socket.sendall(json.dumps({**message, **UNKNOWN}).encode() + b"\n")
        for line in self.lines:
            answer = json.loads(line)
            if answer.get("id") == self.last_id:
                return answer
        raise AssertionError("no answer")

    def close(self):
        self.lines.close()
        self.socket.close()


@pytest.fixture
def raw(place):
    run_id = place.digits().run_id
    client = Raw(place.runtime / run_id / "sock")
    yield client
    client.close()


@pytest.fixture
def fake(place):
    runs = []

    def start(answers=None, info=None):
        runs.append(FakeRun(place.runtime, f"digits-{len(runs)}", answers, info))
        return runs[-1]

    yield start
    for run in runs:
        run.close()


def test_a_client_to_come_is_told_what_the_run_speaks(raw):
    error = raw.call("hello", protocol=2, client="kajitori 9.0.0", **UNKNOWN)["error"]
    assert error["data"]["protocol"] == 1
    assert error["data"]["version"]
    hello = raw.call("hello", protocol=1, client="kajitori 9.0.0", **UNKNOWN)["result"]
    assert hello["protocol"] == 1
    assert raw.call("status", **UNKNOWN)["result"]["state"] == "running"


def test_a_client_to_come_hears_what_the_run_does_not_know(raw):
    assert raw.call("rewind", to=5)["error"]["message"].startswith('no method "rewind"')
    answer = raw.call("command", verb="rewind", args={"to": 5})
    assert answer["error"]["message"].startswith('no verb "rewind"')
    assert answer["error"]["data"]["state"] == "rejected"
    # A member beside "verb" may change what the command does: it is refused, not ignored.
    answer = raw.call("command", verb="stop", quietly=True)
    assert 'has no member "quietly"' in answer["error"]["message"]
    assert raw.call("ping")["result"] == {}


def future(method_results):
    """A run of protocol 2 that speaks 1, too, and has members that nobody knows yet."""
    hello = {"protocol": 1, "version": "9.0.0", "run": {**UNKNOWN}, **UNKNOWN}
    return {"hello": hello, **method_results}


def test_members_that_the_command_does_not_know(place, fake):
    params = [{"name": "lr", "type": "complex", "value": 0.1, "step": 3, **UNKNOWN}]
    done = record("done", old={"lr": 1}, new={"lr": 2}, step=3, epoch=0, **UNKNOWN)
    fake(
        future(
            {
                "status": {**STATUS, **UNKNOWN, "metrics": [{**STATUS["metrics"][0], **UNKNOWN}]},
                "params": {"params": params, **UNKNOWN},
                "command": lambda request: (
                    record("done", verb="get", result={"params": params, **UNKNOWN}, **UNKNOWN)
                    if request["verb"] == "get"
                    else done
                ),
            }
        ),
        info=UNKNOWN,
    )
    assert "state       running" in place.kajitori("status").stdout
    assert place.json("status")["mood"] == "good"
    assert place.json("ps")[0]["step"] == 1201
    assert "lr" in place.kajitori("params").stdout
    assert place.kajitori("get", "lr", "--format", "value").stdout == "0.1\n"
    assert place.kajitori("set", "lr=2").stdout == "lr: 1 -> 2, applied at step 3 (epoch 0)\n"


def test_events_and_states_that_the_command_does_not_know(place, fake):
    def subscribe(_):
        answer = FakeRun._envelope(run.requests[-1]["id"], {"last": 1, "cursor": "c", **UNKNOWN})
        return End(
            answer
            + event(event="weather", **UNKNOWN)
            + event(event="command", **record("postponed", **UNKNOWN))
            + event(event="state", state="dreaming", step=1, epoch=0, **UNKNOWN)
            + event(event="metric", tag="loss", step=1, value=0.5, wall_time=1.0, **UNKNOWN)
            + event(event="state", state="ended", step=1, epoch=0, **UNKNOWN)
        )

    run = fake(future({"subscribe": subscribe}))
    done = place.kajitori("watch", "--format", "jsonl", status=0)
    kinds = [json.loads(line)["event"] for line in done.stdout.splitlines()]
    assert kinds[:4] == ["weather", "command", "state", "metric"]


def test_a_run_that_speaks_another_protocol_only(place, fake):
    fake({"hello": {"protocol": 2, "version": "9.0.0", "run": {}}})
    for words in (["status"], ["stop"], ["get"], ["watch"]):
        done = place.kajitori(*words, status=1)
        assert "protocol 2 (kajitori 9.0.0)" in done.stderr, done
        assert "use the same version on both" in done.stderr
    assert place.json("ps")[0]["id"] == "digits-0"  # run.json says what it says


def test_a_run_that_refuses_our_protocol(place, fake):
    run = fake()
    error = {"code": -12, "message": "this run speaks protocol 2"}
    run.answers["hello"] = lambda params: (
        json.dumps(
            {
                "jsonrpc": "2.0",
                "id": run.requests[-1]["id"],
                "error": {**error, "data": {"protocol": 2, "version": "9.0.0"}},
            }
        ).encode()
        + b"\n"
    )
    done = place.kajitori("status", status=1)
    assert "9.0.0" in done.stderr or "protocol 2" in done.stderr


def test_an_older_run_is_named_with_what_it_does_not_know(place, fake):
    old = RuntimeError(-9, 'no verb "note"; there are ping, help, status, params, get, set, stop')
    fake(
        {
            "hello": {"protocol": 1, "version": "0.0.7", "run": {}},
            "command": old,
            "params": RuntimeError(-32601, 'no method "params"'),
        }
    )
    done = place.kajitori("note", "hello", status=5)
    assert 'no verb "note"' in done.stderr
    assert "the run is kajitori 0.0.7, this side kajitori 0.1.0" in done.stderr


def test_a_run_json_of_a_version_to_come(place, fake):
    fake(
        {"status": STATUS},
        {
            "protocol": 2,
            "version": "9.0.0",
            "name": {"text": "digits"},
            "pid": "42",
            "start_time": "2026-11-30",
            "argv": {"0": "train"},
            "trial": "three",
            **UNKNOWN,
        },
    )
    row = place.json("ps")[0]
    assert row["id"] == "digits-0"
    assert row["state"] == "running"
    place.kajitori("status")


def test_a_journal_of_a_version_to_come(place):
    folder = place.state / "runs" / "digits-1"
    folder.mkdir(parents=True, mode=0o700)
    lines = [
        {"n": 1, "time": 1.0, "event": "run_started", "run": {"id": "digits-1", **UNKNOWN}},
        {"n": 2, "time": 2.0, "event": "weather", **UNKNOWN},
        {**record("postponed", verb="rewind", **UNKNOWN), "n": 3, "time": 3.0},
        {**record("done", args={"lr": [1, 2]}, **UNKNOWN), "n": 4, "time": 4.0},
    ]
    (folder / "journal.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    shown = place.kajitori("log", "digits-1", "--format", "jsonl").stdout.splitlines()
    assert len(shown) == 4
    assert json.loads(shown[1])["mood"] == "good"
    assert "rewind" in place.kajitori("log", "digits-1").stdout
    # A run of this version goes on with it.
    place.digits(run_id="digits-1")
    assert [line["n"] for line in place.journal("digits-1")][:5] == [1, 2, 3, 4, 5]
