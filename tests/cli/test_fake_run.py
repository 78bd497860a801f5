# SPDX-License-Identifier: Apache-2.0
"""The verbs against a fake run: what is printed, what is cleaned, how failures end."""

import json
import os
import pty
import subprocess

import yaml
from fake_run import End, event

NASTY = "bad\x1b[31m\x07\x9b2J\u202ename\ntwo"
CLEAN = "bad[31m2Jname two"
STATUS = {
    "id": "digits-1",
    "name": "digits",
    "pid": 42,
    "state": "running",
    "phase": "train",
    "step": 1201,
    "epoch": 3,
    "total_steps": 5000,
    "total_epochs": 20,
    "start_time": 1796045719.5,
    "idle_s": 0.01,
    "metrics": [
        {"tag": "loss", "step": 1200, "value": 0.1, "wall_time": 1.0},
        {"tag": "acc", "step": 1200, "value": "NaN", "wall_time": 1.0},
    ],
    "params": {"lr": 0.001},
    "scheduled": [{"seq": 7, "verb": "set", "at": "epoch:5", "args": {"lr": 0.5}}],
    "recoverable": [{"seq": 3, "state": "accepted", "verb": "stop", "at": "step:9"}],
    "checkpoint": {"path": "/ck/1100.npz", "step": 1100, "epoch": 2},
}


def record(state, **more):
    return {"n": 9, "seq": 4, "state": state, "verb": "set", "at": "now", **more}


def test_status(place, fake):
    fake(answers={"status": STATUS})
    text = place.kajitori("status").stdout
    for line in (
        "run         digits-1",
        "state       running",
        "step        1201 of 5000",
        "epoch       3 of 20",
        "phase       train",
        "  loss = 0.1 (step 1200)",
        "  acc = NaN (step 1200)",
        "  lr = 0.001",
        "  command 7: set lr=0.5 at epoch:5",
        "recoverable",
        "  command 3: stop at step:9",
        "checkpoint  /ck/1100.npz (step 1100)",
    ):
        assert line in text.splitlines(), line
    assert place.json("status") == STATUS
    text = place.kajitori("status", "--format", "yaml").stdout
    assert "\nstep: 1201\n" in text
    assert yaml.safe_load(text) == STATUS


def test_status_that_is_none(place, fake):
    run = fake(answers={"status": "odd"})
    for form in ("table", "csv", "json", "yaml"):
        done = place.kajitori("status", "--format", form, status=1)
        assert (done.stdout, done.stderr) == (
            "",
            'kajitori: the run\'s answer is not a status: "odd"\n',
        )
    run.answers["status"] = {**STATUS, "scheduled": [{"args": 3}, 4], "metrics": [5], "params": 6}
    assert "scheduled\n" in place.kajitori("status").stdout


def test_text_of_a_run_is_cleaned(place, fake):
    odd = {**STATUS, "name": NASTY, "phase": NASTY, "params": {NASTY: NASTY}}
    fake("digits-1", {"status": odd}, {"name": NASTY, "framework": NASTY})
    for words in (["ps"], ["ps", "--format", "csv"], ["ps", "--format", "value"], ["status"]):
        text = place.kajitori(*words).stdout
        assert CLEAN in text
        assert not set(text) & set("\x1b\x07\x9b\u202e"), words
    text = place.kajitori("status", "--format", "json").stdout
    assert not set(text) & set("\x1b\x07\x9b\u202e")
    assert json.loads(text)["name"] == NASTY
    text = place.kajitori("status", "--format", "yaml").stdout
    assert not set(text) & set("\x1b\x07\x9b\u202e")
    assert yaml.safe_load(text) == odd
    assert json.loads(place.kajitori("ps", "--format", "json").stdout)[0]["name"] == NASTY


def test_ps(place, fake):
    fake("b-2", {"status": STATUS}, {"start_time": 2000000000, "study": "s", "trial": 7})
    fake(
        "a-1",
        {"status": {**STATUS, "state": "paused"}},
        {"start_time": 1000000000, "pid": 17, "framework": "keras 3"},
    )
    rows = place.json("ps")
    assert [row["id"] for row in rows] == ["a-1", "b-2"]
    assert rows[0]["state"] == "paused"
    assert rows[0]["step"] == 1201
    assert rows[0]["pid"] == 17
    assert yaml.safe_load(place.kajitori("ps", "--format", "yaml").stdout) == rows
    assert rows[1]["study"] == "s"
    assert rows[1]["trial"] == 7
    lines = place.kajitori("ps", "--format", "jsonl").stdout.splitlines()
    assert [json.loads(line) for line in lines] == rows
    assert rows[0]["started"] == 1000000000.0
    assert ",1000000000.0," in place.kajitori("ps", "--format", "csv").stdout
    header, *lines = place.kajitori("ps").stdout.splitlines()
    assert header.split() == [
        "id",
        "name",
        "state",
        "step",
        "framework",
        "started",
        "study",
        "trial",
        "pid",
    ]
    assert lines[0].startswith("a-1  a-1   paused   1201  keras 3")
    assert [
        line.split("\t")[0]
        for line in place.kajitori("ps", "--format", "value").stdout.splitlines()
    ] == ["a-1", "b-2"]


def on_terminal(place, *words, **env):
    """What the command writes to a terminal."""
    main, terminal = pty.openpty()
    done = subprocess.run(
        [place.command, *words],
        stdout=terminal,
        stderr=subprocess.PIPE,
        env={**place.env, **env},
    )
    os.close(terminal)
    text = os.read(main, 65536).decode()
    os.close(main)
    assert (done.returncode, done.stderr) == (0, b"")
    return text


def test_colours_only_on_a_terminal(place, fake):
    fake(answers={"status": {**STATUS, "state": "ru\x1b[5mnning"}})
    text = on_terminal(place, "ps")
    assert text.startswith("\x1b[1mid ")
    assert text.count("\x1b") == 2
    assert "\x1b" not in on_terminal(place, "ps", NO_COLOR="1")
    assert "\x1b" not in on_terminal(place, "ps", TERM="dumb")
    assert "\x1b" not in place.kajitori("ps").stdout


def test_ps_of_a_run_that_does_not_answer(place, fake):
    fake(answers={"status": None})
    assert place.json("ps")[0]["state"] == "silent"


def test_ps_of_a_run_that_ends_meanwhile(place, fake):
    def end(_):
        run._lock.close()

    run = fake(answers={"status": end})
    assert place.json("ps") == []


def test_columns_of_wide_characters(place, fake):
    fake("a-1", {"status": STATUS}, {"name": "学習ア1"})
    fake("b-2", {"status": STATUS}, {"name": "bert"})
    _, wide, narrow = place.kajitori("ps").stdout.splitlines()
    assert wide.startswith("a-1  学習ア1  running")
    assert narrow.startswith("b-2  bert     running")


def test_which_run(place, fake):
    fake("digits-1", {"status": STATUS})
    fake("digits-2", {"status": {**STATUS, "id": "digits-2"}})
    done = place.kajitori("status", status=2)
    assert done.stderr == "kajitori: there are 2 live runs, name one: digits-1, digits-2\n"
    done = place.kajitori("stop", "dig", status=2)
    assert done.stderr == "kajitori: 'dig' fits 2 live runs: digits-1, digits-2\n"
    done = place.kajitori("status", "mnist", status=3)
    assert done.stderr == (
        "kajitori: no live run begins with 'mnist'; there is digits-1, digits-2\n"
    )
    assert place.json("status", "digits-2")["id"] == "digits-2"
    assert place.json("status", "-r", "digits-2")["id"] == "digits-2"


def test_dead_runs_are_removed_by_who_lists(place, fake):
    run = fake()
    run._lock.close()
    place.kajitori("ps")
    assert not run.dir.exists()


def test_set_shows_old_and_new(place, fake):
    run = fake(
        answers={
            "command": record("applied", old={"lr": 0.001}, new={"lr": 0.0001}, step=1201, epoch=3)
        }
    )
    done = place.kajitori("set", "lr=1e-4")
    assert done.stdout == "lr: 0.001 -> 0.0001, applied at step 1201 (epoch 3)\n"
    params = run.requests[-1]["params"]
    assert params["verb"] == "set"
    assert params["args"] == {"lr": "1e-4"}
    assert params["by"].startswith("tester@")
    assert "at" not in params
    place.kajitori(
        "set",
        "digits",
        "lr=1e-4",
        "m=0.8",
        "--at",
        "epoch",
        "--by",
        "me",
        "--reason",
        "why not",
        "--command-id",
        "x1",
    )
    params = run.requests[-1]["params"]
    assert params == {
        "verb": "set",
        "args": {"lr": "1e-4", "m": "0.8"},
        "at": "epoch",
        "by": "me",
        "reason": "why not",
        "command_id": "x1",
    }
    assert place.json("set", "lr=1e-4")["new"] == {"lr": 0.0001}


def test_replies(place, fake):
    run = fake()
    for answer, words, text in (
        (
            {"verb": "stop", "step": 1304, "epoch": 4},
            ["stop"],
            "stop: applied at step 1304 (epoch 4)",
        ),
        ({"verb": "pause", "step": 5, "epoch": 0}, ["pause"], "paused at step 5 (epoch 0)"),
        ({"verb": "resume", "step": 5, "epoch": 0}, ["resume"], "resumed at step 5 (epoch 0)"),
        (
            {"verb": "stop", "step": -1, "epoch": -1},
            ["stop"],
            "stop: applied before the first step",
        ),
        (
            {"verb": "save", "step": 7, "result": {"path": "a\x1bb"}},
            ["send", "save", "--wait", "applied"],
            'save: applied at step 7: {"path":"a\\u001bb"}',
        ),
    ):
        run.answers["command"] = {"seq": 4, "state": "applied", "at": "now", **answer}
        assert place.kajitori(*words).stdout == text + "\n"
    run.answers["command"] = {"seq": 4, "state": "scheduled", "verb": "stop", "at": "step:5000"}
    assert place.kajitori("stop", "--at", "step:5000").stdout == (
        "stop: waits for step 5000 (command 4)\n"
    )
    run.answers["command"] = {"seq": 4, "state": "done", "verb": "stop", "dry_run": True}
    done = place.kajitori("stop", "--dry-run")
    assert done.stdout == "dry run: stop would be accepted, nothing is changed\n"
    assert run.requests[-1]["params"]["dry_run"] is True


def test_send(place, fake):
    run = fake(answers={"command": {"seq": 1, "state": "done", "verb": "note", "step": 3}})
    place.kajitori("send", "note text='a b'")
    assert run.requests[-1]["params"]["line"] == "note text='a b'"
    place.kajitori("send", "digits-1", "note x")
    assert run.requests[-1]["params"]["line"] == "note x"
    run.answers["command"] = {
        "seq": 1,
        "state": "done",
        "verb": "help",
        "result": {"a": [{"b": 1}]},
    }
    assert place.kajitori("send", "help").stdout == "a:\n  - b: 1\n"
    run.answers["command"]["result"] = {"already_stopping": True, "seq": 3}
    assert place.kajitori("send", "stop").stdout == "help: already stopping\n"
    first, second = place.kajitori("send", "note", "x", status=3).stderr.splitlines()
    assert first == "kajitori: no live run begins with 'note'; there is digits-1"
    assert second.endswith("kajitori send 'note x'")


def test_send_waits_for_the_end_of_an_own_verb(place, fake):
    def begin(_):
        record = {"seq": 4, "state": "applied", "verb": "save", "step": 7, "epoch": 0}
        answer = {"jsonrpc": "2.0", "id": 2, "result": record}
        failed = {**record, "state": "failed", "error": "no room left"}
        return json.dumps(answer).encode() + b"\n" + event(event="command", **failed)

    fake(answers={"command": begin})
    done = place.kajitori("send", "save", status=1)
    assert (done.stdout, done.stderr) == ("", "kajitori: no room left\n")
    assert "applied" in place.kajitori("send", "save", "--wait", "applied").stdout


def test_how_commands_fail(place, fake):
    run = fake()
    run.answers["command"] = Exception(-9, "lr = 2.0: must be <= 1.0")
    done = place.kajitori("set", "lr=2", status=5)
    assert done.stderr == "kajitori: lr = 2.0: must be <= 1.0\n"
    assert done.stdout == ""
    run.answers["command"] = Exception(-20, "the setter refused")
    assert "the setter refused" in place.kajitori("set", "lr=2", status=1).stderr
    run.answers["command"] = record("accepted")
    done = place.kajitori("set", "lr=2", "--timeout", "1", status=4)
    assert "stays accepted and may still be applied" in done.stderr
    assert place.kajitori("set", "lr=2", "--wait", "accepted").stdout == (
        "set: accepted as command 4\n"
    )
    assert place.kajitori("set", "lr=2", "--wait", "received").stdout
    run.answers["command"] = lambda _: (
        json.dumps({"jsonrpc": "2.0", "id": 2, "result": record("accepted")}).encode()
        + b"\n"
        + event(event="command", **record("expired", error="the run ended"))
    )
    assert "the run ended" in place.kajitori("set", "lr=2", status=6).stderr
    run.answers["command"] = None
    assert "ended" in place.kajitori("set", "lr=2", status=6).stderr
    run.answers["command"] = b"garbage\n"
    assert "not JSON" in place.kajitori("set", "lr=2", status=1).stderr
    run.answers["hello"] = {"protocol": 2, "version": "9.1.0", "run": {}}
    assert "protocol 2 (kajitori 9.1.0)" in place.kajitori("status", status=1).stderr


def test_get(place, fake):
    known = {
        "lr": {"name": "lr", "type": "float", "value": 0.001, "step": 7, "unit": "1/s"},
        "on": {"name": "on", "type": "bool", "value": True, "step": -1},
    }

    def get(params):
        chosen = [known[name] for name in params["words"] or known]
        return {"seq": 1, "state": "done", "verb": "get", "result": {"params": chosen}}

    run = fake(answers={"command": get})
    assert [line.split() for line in place.kajitori("get").stdout.splitlines()] == [
        ["name", "value", "step", "unit"],
        ["lr", "0.001", "7", "1/s"],
        ["on", "true", "-", "-"],
    ]
    assert place.kajitori("get", "lr", "--format", "value").stdout == "0.001\n"
    assert place.kajitori("get", "digits-1", "on", "--format", "value").stdout == "true\n"
    assert place.json("get", "on", "lr") == [
        {"name": "on", "value": True, "step": None, "unit": None},
        {"name": "lr", "value": 0.001, "step": 7, "unit": "1/s"},
    ]
    assert run.requests[-1]["params"] == {"verb": "get", "words": ["on", "lr"]}
    run.answers["command"] = Exception(-9, "no parameter 'lx'; did you mean 'lr'?")
    assert "did you mean 'lr'?" in place.kajitori("get", "lx", status=5).stderr


def test_watch(place, fake):
    run = fake()

    def subscribe(_):
        return (
            json.dumps({"jsonrpc": "2.0", "id": 2, "result": {"last": 3}}).encode()
            + b"\n"
            + event(event="metric", tag="lo\x1b[1mss", step=7, value=0.5, wall_time=1796045719.5)
            + event(event="state", state="paused", step=8, epoch=0)
            + event(
                event="command",
                **record(
                    "applied", step=8, old={"lr": 1}, new={"lr": 2}, args={"lr": 2}, by="me", uid=7
                ),
            )
            + event(event="gap", lost=12)
            + b"x"
        )

    run.answers["subscribe"] = subscribe
    # The torn byte at the end keeps the connection busy; the fake run closes when we are gone.
    watching = place.start_kajitori("watch")
    assert watching.wait_line("lo[1mss = 0.5").endswith("         7  lo[1mss = 0.5")
    watching.wait_line("         8  paused")
    line = watching.wait_line("command 4")
    assert "applied: set lr=2: lr 1 -> 2" in line
    assert line.endswith("[me (uid 7)]")
    watching.wait_line("12 events were lost")
    watching.kill()


def subscription(cursor, *events):
    answer = {"jsonrpc": "2.0", "id": 2, "result": {"last": 3, "cursor": cursor}}
    return json.dumps(answer).encode() + b"\n" + b"".join(events)


def test_watch_goes_on_where_the_connection_broke(place, fake):
    """Each connection breaks after what it sent; the last one is that of a run that ends."""
    state = {"state": "paused", "step": 8, "epoch": 0}
    connections = [
        End(subscription("c0")),
        End(subscription("x", event(event="metric", tag="loss", step=1, value=1, cursor="c1"))),
        End(subscription("x", event(event="gap", lost=-1), event(event="state", **state))),
        End(subscription("x", event(event="state", cursor="c9", **{**state, "state": "ended"}))),
    ]
    run = fake(answers={"subscribe": lambda _: connections.pop(0)})
    lines = place.kajitori("watch", "--after", "c-1").stdout.splitlines()
    asked = [r["params"] for r in run.requests if r["method"] == "subscribe"]
    assert asked == [{"after": "c-1"}, {"after": "c0"}, {"after": "c1"}, {"after": "c1"}]
    assert [line.split()[2:] for line in lines] == [
        ["1", "loss", "=", "1"],
        ["-", "events", "were", "lost,", "it", "is", "not", "known", "how", "many"],
        ["8", "paused"],
        ["8", "ended"],
    ]


def test_watch_ends_with_a_run_that_died(place, fake):
    def die(_):
        run._lock.close()
        return End(subscription("c0"))

    run = fake(answers={"subscribe": die})
    assert place.kajitori("watch").stderr.endswith("digits-1 has ended\n")


def test_log(place):
    folder = place.state / "runs" / "old-run"
    folder.mkdir(parents=True)
    lines = [
        {"n": 1, "time": 1796045719.1, "event": "run_started", "run": {"id": "old-run", "pid": 3}},
        {
            "n": 2,
            "time": 1796045719.2,
            "seq": 1,
            **record("applied"),
            "args": {"lr": 0.5},
            "step": 3,
            "old": {"lr": 1},
            "new": {"lr": 0.5},
            "door": "ctl",
            "uid": 7,
            "by": "me\x1b[2J",
            "reason": "because",
        },
        {"n": 3, "time": 1796045719.2, **record("done"), "door": "fifo"},
        {"n": 4, "time": 1796045719.2, "event": "resumed", "seq": 2, "after_s": 3.5},
        {
            "n": 5,
            "time": 1796045719.3,
            "event": "run_ended",
            "step": 9,
            "stopped": True,
            "reason": "enough",
            "ending": "leave",
            "checkpoint": {"path": "/ck/9", "step": 9, "epoch": 0},
        },
    ]
    lines[0]["recoverable"] = [{"seq": 1}, {"seq": 2}]
    lines[1]["n"] = 2
    lines[2]["n"] = 3
    lines[1]["dry_run"] = True
    text = "".join(json.dumps(line) + "\n" for line in lines) + '{"n": 6, "ti'
    (folder / "journal.jsonl").write_text(text)
    first, second, third, fourth, last = place.kajitori("log").stdout.splitlines()
    assert first.endswith("run started: old-run, pid 3, recoverable commands: 2")
    assert "         3  applied   set lr=0.5: lr 1 -> 0.5 (reason: because) (dry run)" in second
    assert second.endswith("[me[2J (uid 7), ctl]")
    assert third.endswith("  [fifo]")
    assert fourth.endswith("-         resumed: the pause of command 2 is over, after 3.5 s")
    assert last.endswith("run ended, left, checkpoint /ck/9 (reason: enough)")
    raw = place.kajitori("log", "old", "--format", "json").stdout
    assert [json.loads(line) for line in raw.splitlines()] == lines
    assert place.kajitori("log", "old", "--follow").stdout.count("\n") == 5
    done = place.kajitori("log", "new", status=3)
    assert done.stderr == "kajitori: no journal begins with 'new'; there is old-run\n"
