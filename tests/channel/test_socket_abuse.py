# SPDX-License-Identifier: Apache-2.0
"""The socket door, and what programs that are broken or hostile send to it."""

import contextlib
import json
import os
import socket
import struct
import time

import pytest

PARSE_ERROR, INVALID_REQUEST, NO_METHOD, BAD_PARAMS, REJECTED = -32700, -32600, -32601, -32602, -9
REQUEST_MAX = 65536


class Connection:
    def __init__(self, place, run_id="digits-one"):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(str(place.runtime / run_id / "sock"))
        self.socket.settimeout(60)
        self.lines = self.socket.makefile("rb")

    def send(self, data):
        self.socket.sendall(data)

    def receive(self):
        """The next message, or None at the end."""
        line = self.lines.readline()
        return json.loads(line) if line else None

    def answer(self):
        while (message := self.receive()) and "id" not in message:
            pass
        return message

    def call(self, method, **params):
        request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        self.send(json.dumps(request).encode() + b"\n")
        message = self.answer()
        return message.get("result", message.get("error"))

    def close(self):
        self.lines.close()
        self.socket.close()


@pytest.fixture
def digits(place):
    return place.digits(run_id="digits-one")


@pytest.fixture
def connection(place, digits):
    connection = Connection(place)
    yield connection
    connection.close()


def request(**members):
    return json.dumps({"jsonrpc": "2.0", "id": 1, **members}).encode()


NEST = 100

MALFORMED = [
    (b"{", PARSE_ERROR, None),
    (b"}", PARSE_ERROR, None),
    (b"stop", PARSE_ERROR, None),
    (b"\xff\xfe", PARSE_ERROR, None),
    (b"\xef\xbb\xbf{}", PARSE_ERROR, None),
    (b"\0\0\0", PARSE_ERROR, None),
    (b"{} {}", PARSE_ERROR, None),
    (b"[" * NEST + b"]" * NEST, PARSE_ERROR, None),
    (b"[" * (REQUEST_MAX - 1), PARSE_ERROR, None),
    (b'{"a":' * NEST + b"1" + b"}" * NEST, PARSE_ERROR, None),
    (b"{" + b'"a":"' + b"x" * 60000 + b"", PARSE_ERROR, None),
    (b"null", INVALID_REQUEST, None),
    (b"5", INVALID_REQUEST, None),
    (b'"ping"', INVALID_REQUEST, None),
    (b"[]", INVALID_REQUEST, None),
    (b"[" + b",".join([request(method="ping")] * 1000) + b"]", INVALID_REQUEST, None),  # a batch
    (b"{}", INVALID_REQUEST, None),
    (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', INVALID_REQUEST, 1),
    (b'{"jsonrpc":2.0,"id":1,"method":"ping"}', INVALID_REQUEST, 1),
    (b'{"id":1,"method":"ping"}', INVALID_REQUEST, 1),
    (b'{"jsonrpc":"2.0","id":1}', INVALID_REQUEST, 1),
    (b'{"jsonrpc":"2.0","id":1,"method":5}', INVALID_REQUEST, 1),
    (b'{"jsonrpc":"2.0","id":{},"method":"ping"}', INVALID_REQUEST, None),
    (b'{"jsonrpc":"2.0","id":[1],"method":"ping"}', INVALID_REQUEST, None),
    (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', INVALID_REQUEST, None),
    (request(method="explode"), NO_METHOD, 1),
    (request(method=""), NO_METHOD, 1),
    (request(method="PING"), NO_METHOD, 1),
    (request(method="ping\0x"), INVALID_REQUEST, 1),
    (request(method="x" * 50000), NO_METHOD, 1),
    (request(method="ping", params=[1]), BAD_PARAMS, 1),
    (request(method="ping", params="x"), BAD_PARAMS, 1),
    (request(method="hello", params={}), BAD_PARAMS, 1),
    (request(method="hello", params={"protocol": "1"}), BAD_PARAMS, 1),
    (request(method="help", params={"verb": 5}), BAD_PARAMS, 1),
    (request(method="journal", params={"after": "x"}), BAD_PARAMS, 1),
    (request(method="journal", params={"limit": -1}), BAD_PARAMS, 1),
    (request(method="journal", params={"limit": 1.5}), BAD_PARAMS, 1),
    (request(method="subscribe", params={"events": "command"}), BAD_PARAMS, 1),
    (request(method="subscribe", params={"events": []}), BAD_PARAMS, 1),
    (request(method="subscribe", params={"events": [[]]}), BAD_PARAMS, 1),
]


@pytest.mark.parametrize("number", range(len(MALFORMED)))
def test_malformed_requests_get_one_error_and_the_next_one_its_answer(connection, number):
    line, code, request_id = MALFORMED[number]
    connection.send(line + b"\n" + request(id="next", method="ping") + b"\n")
    answer = connection.answer()
    assert answer["jsonrpc"] == "2.0"
    assert answer["error"]["code"] == code, answer
    assert answer["id"] == request_id
    assert answer["error"]["message"].isprintable()
    assert len(answer["error"]["message"]) < 1000
    assert connection.answer() == {"jsonrpc": "2.0", "id": "next", "result": {}}


MALFORMED_COMMANDS = [
    {},
    {"verb": ""},
    {"verb": 5},
    {"verb": ["stop"]},
    {"verb": "st op"},
    {"verb": "stop\0"},
    {"verb": "x" * 65},
    {"verb": "stop", "words": "x"},
    {"verb": "stop", "words": [1]},
    {"verb": "get", "words": ["lr"] * 65},
    {"verb": "stop", "args": []},
    {"verb": "stop", "args": {"at": "now"}},
    {"verb": "set", "args": {"lr": {}}},
    {"verb": "set", "args": {"lr": True}},
    {"verb": "set", "args": {"l r": 1}},
    {"verb": "set", "args": {f"k{k}": 1 for k in range(65)}},
    {"verb": "stop", "at": 5},
    {"verb": "stop", "at": "step:-1"},
    {"verb": "stop", "at": "step:9223372036854775808"},
    {"verb": "stop", "at": "step:1e3"},
    {"verb": "stop", "reason": {}},
    {"verb": "stop", "reason": "x" * 1025},
    {"verb": "stop", "by": "x" * 129},
    {"verb": "stop", "by": "a\0b"},
    {"verb": "stop", "command_id": ""},
    {"verb": "stop", "command_id": "x" * 129},
    {"verb": "stop", "dry_run": "perhaps"},
    {"verb": "resume", "save": True},
    {"verb": "stop", "wait": "done"},
    {"verb": "stop", "hard": True},
    {"line": 5},
    {"line": None},
    {"line": "stop\0"},
    {"line": "stop\nstop"},
    {"line": "x" * 4097},
    {"line": "stop", "verb": "stop"},
    {"line": 'stop reason="'},
    {"line": ""},
]


@pytest.mark.parametrize("number", range(len(MALFORMED_COMMANDS)))
def test_malformed_commands_are_rejected_and_journalled(place, connection, number):
    error = connection.call("command", **MALFORMED_COMMANDS[number])
    assert error["code"] == REJECTED, error
    assert error["message"].isprintable()
    assert error["data"]["state"] == "rejected"
    assert error["data"]["door"] == "socket"
    assert error["data"]["uid"] == os.geteuid()
    assert place.journal("digits-one")[-1]["error"] == error["message"]
    assert connection.call("status")["state"] == "running"


def test_a_request_split_at_every_byte(connection):
    line = request(method="ping") + b"\n"
    for k in range(1, len(line)):
        connection.send(line[:k])
        connection.send(line[k:])
        assert connection.answer() == {"jsonrpc": "2.0", "id": 1, "result": {}}


def test_the_longest_request_and_one_byte_more(place, connection):
    line = request(method="ping")
    connection.send(line + b" " * (REQUEST_MAX - len(line)) + b"\n")
    assert connection.answer()["result"] == {}
    connection.send(line + b" " * (REQUEST_MAX + 1 - len(line)) + b"\n")
    assert connection.answer()["error"]["code"] == INVALID_REQUEST
    assert connection.receive() is None
    other = Connection(place)
    assert other.call("ping") == {}
    other.close()


def test_endless_garbage_ends_the_connection(place, connection):
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        for _ in range(1000):
            connection.send(b"x" * 65536)
    assert place.json("status")["state"] == "running"


def test_ids_come_back_as_they_were(connection):
    for request_id in (0, -1, 2**53 + 1, 1.5, "", "a\u00e9\n", None):
        connection.send(request(id=request_id, method="ping") + b"\n")
        answer = connection.answer()
        assert answer["id"] == request_id
        assert type(answer["id"]) is type(request_id)


def test_a_request_without_an_id_gets_no_answer(place, connection):
    connection.send(b'{"jsonrpc":"2.0","method":"command","params":{"line":"shake scale=0"}}\n')
    connection.send(b'{"jsonrpc":"2.0","method":"explode"}\n')
    assert connection.call("ping") == {}
    assert any(line.get("verb") == "shake" for line in place.journal("digits-one"))


def test_answers_are_strict_json(place, connection):
    """Bare NaN is no JSON; what a sender writes comes back as a string."""
    connection.send(
        b'{"jsonrpc":"2.0","id":NaN,"method":"command",'
        b'"params":{"verb":"set","args":{"lr":NaN,"momentum":-Infinity}}}\n'
    )
    line = connection.lines.readline()
    journal = (place.state / "runs/digits-one/journal.jsonl").read_text()

    def refuse(token):
        raise AssertionError(token)

    for text in [line, *journal.splitlines()]:
        json.loads(text, parse_constant=refuse)
    assert json.loads(line)["error"]["data"]["args"] == {"lr": "NaN", "momentum": "-Infinity"}


def test_200_connections(place, digits):
    many = [Connection(place) for _ in range(200)]
    served = refused = 0
    for connection in many:
        with contextlib.suppress(BrokenPipeError):
            connection.send(request(method="ping") + b"\n")
        try:
            answer = connection.answer()
        except ConnectionResetError:
            answer = {"error": {"message": "64 connections"}}
        served += "result" in answer
        refused += "64 connections" in answer.get("error", {}).get("message", "")
    assert (served, refused) == (64, 136)
    (place.runtime / "digits-one" / "ctl").write_text("set lr=0.25\n")  # the FIFO is free
    for connection in many:
        connection.close()
    deadline = time.monotonic() + 60
    while place.journal("digits-one")[-1].get("state") != "done":
        assert time.monotonic() < deadline


def test_connections_that_are_reset(place, digits):
    for _ in range(100):
        connection = Connection(place)
        connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.send(request(method="status") * 3 + b"\n" + request(method="help") + b"\n")
        connection.close()
    assert place.json("status")["state"] == "running"


def test_a_client_that_asks_all_the_time_holds_nobody(place, connection):
    """The training goes on, and so do other clients, while one asks without a pause."""
    other = Connection(place)
    first = other.call("status")["step"]
    burst = (request(method="status") + b"\n") * 100
    deadline = time.monotonic() + 60
    while other.call("status")["step"] < first + 100:
        assert time.monotonic() < deadline
        connection.send(burst)
        for _ in range(100):
            assert connection.answer()["result"]["id"] == "digits-one"
    other.close()


def test_a_client_that_never_reads_is_left_behind(place, connection, digits):
    connection.call("subscribe")
    connection.socket.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        for _ in range(100_000):
            connection.socket.send(request(method="help") + b"\n")
    place.kajitori("set", "lr=0.25")
    place.kajitori("stop")
    assert digits.wait() == 0


def test_methods_answer_as_the_protocol_says(connection):
    hello = connection.call("hello", protocol=1, client="test")
    assert set(hello) == {"protocol", "version", "run"}
    assert {"protocol", "version", "id", "name", "pid", "uid", "host", "boot_id"} <= set(
        hello["run"]
    )
    assert {"start_time", "argv", "cwd"} <= set(hello["run"])
    assert connection.call("ping") == {}
    (verb,) = connection.call("help", verb="shake")["verbs"]
    assert set(verb) == {"name", "help", "own", "args"}
    assert verb["own"] is True
    (arg,) = verb["args"]
    assert set(arg) == {"name", "type", "required", "min", "max", "help"}
    assert set(connection.call("status")) == {
        *("id", "name", "pid", "state", "phase", "step", "epoch", "total_steps", "total_epochs"),
        *("start_time", "idle_s", "metrics", "params", "scheduled", "rank", "world_size"),
    }
    for param in connection.call("params")["params"]:
        assert param["type"] == "float"
        assert {"name", "value", "step", "help", "min", "max", "effect"} <= set(param)
    assert connection.call("params")["params"][0]["min_exclusive"] is True
    journal = connection.call("journal", after=0, limit=1)
    assert [line["event"] for line in journal["lines"]] == ["run_started"]
    assert journal["last"] >= 1
    assert connection.call("journal", after=journal["last"] + 1000)["lines"] == []
    assert set(connection.call("subscribe", events=["state"])) == {"last", "cursor"}


@pytest.mark.parametrize("verb", ["ping", "help", "status", "params", "get"])
def test_questions_as_commands(place, connection, verb):
    record = connection.call("command", verb=verb)
    assert record["state"] == "done"
    assert isinstance(record["result"], dict)
    line = place.journal("digits-one")[-1]
    assert (line["verb"], line["state"]) == (verb, "done")
    assert "result" not in line
    assert connection.call("command", verb=verb, at="epoch")["code"] == REJECTED


def states(place, seq):
    return [line["state"] for line in place.journal("digits-one") if line.get("seq") == seq]


def test_the_life_of_commands(place, connection):
    connection.call("subscribe", events=["command", "state"])

    def finish(state="done", **params):
        record = connection.call("command", **params)
        while record["state"] != state:
            message = connection.receive()["params"]
            if message.get("seq") == record["seq"]:
                record = message
        return record

    done = finish(verb="set", args={"lr": 0.25}, reason="r", by="b", command_id="c")
    assert states(place, done["seq"]) == ["accepted", "applied", "done"]
    assert (done["old"], done["new"]) == ({"lr": 0.05}, {"lr": 0.25})
    assert {"n", "time", "seq", "state", "verb", "args", "at", "step", "epoch", "door"} <= set(done)
    assert (done["uid"], done["pid"]) == (os.geteuid(), os.getpid())
    assert (done["by"], done["reason"], done["command_id"]) == ("b", "r", "c")
    assert connection.call("command", verb="stop", command_id="c")["seq"] == done["seq"]
    dry = connection.call("command", verb="stop", dry_run=True)
    assert (dry["state"], dry["dry_run"]) == ("done", True)
    assert states(place, dry["seq"]) == ["done"]
    done = finish(line="shake scale=0 at=epoch")
    assert states(place, done["seq"]) == ["accepted", "scheduled", "applied", "done"]
    assert done["result"]["weights"] > 0
    assert connection.call("command", verb="resume")["result"] == {"not_paused": True}
    assert connection.call("command", verb="resume", at="epoch")["code"] == REJECTED
    seq = finish(verb="pause")["seq"]
    already = connection.call("command", verb="pause")["result"]
    assert already == {"already_paused": True, "seq": seq}
    assert connection.call("status")["idle_s"] == 0
    later = connection.call("command", verb="stop", at="step:99999999")
    middle = connection.call("command", verb="stop", at="step:99999998")
    assert states(place, later["seq"])[-1] == "expired"
    now = connection.call("command", verb="stop", reason="over")
    while (message := connection.receive())["params"].get("state") != "ended":
        pass
    assert message["params"]["event"] == "state"
    assert states(place, middle["seq"])[-1] == "expired"
    assert states(place, now["seq"]) == ["accepted", "applied", "done"]
    end = place.journal("digits-one")[-1]
    assert (end["event"], end["stopped"], end["reason"]) == ("run_ended", True, "over")
    assert {"step", "epoch"} <= set(end)


def test_nesting_up_to_the_limit(connection):
    """63 levels, the request's own object and params among them."""
    for levels, key in ((61, "result"), (62, "error")):
        value = "[" * levels + "1" + "]" * levels
        text = f'{{"jsonrpc":"2.0","id":1,"method":"ping","params":{{"x":{value}}}}}\n'
        connection.send(text.encode())
        assert key in connection.answer(), levels
