# SPDX-License-Identifier: Apache-2.0
"""What each verb sends, and its reply in one clear line, against a fake run."""

import json

import pytest

PLACE = "at step 7 (epoch 0)"


def sent(run):
    params = dict(run.requests[-1]["params"])
    assert params.pop("by") == "me"
    return params


def answer(state="applied", **more):
    return {"seq": 4, "state": state, "at": "now", "step": 7, "epoch": 0, **more}


@pytest.mark.parametrize(
    ("words", "params"),
    [
        (["stop"], {"verb": "stop"}),
        (["stop", "--save"], {"verb": "stop", "save": True}),
        (["stop", "save=yes"], {"verb": "stop", "save": True}),
        (["stop", "save=no"], {"verb": "stop"}),
        (["stop", "--validate", "no"], {"verb": "stop", "args": {"validate": "no"}}),
        (["stop", "d", "validate=yes"], {"verb": "stop", "args": {"validate": "yes"}}),
        (["abort", "--reason", "wrong data"], {"verb": "abort", "reason": "wrong data"}),
        (["pause", "--level", "leave"], {"verb": "pause", "args": {"level": "leave"}}),
        (
            ["pause", "d", "--for", "15m", "level=hold"],
            {"verb": "pause", "args": {"level": "hold", "for": "15m"}},
        ),
        (
            ["prune", "d", "--rule", "median", "--value", "0.5", "threshold=0.4", "--save"],
            {
                "verb": "prune",
                "args": {"rule": "median", "value": "0.5", "threshold": "0.4"},
                "save": True,
            },
        ),
        (["checkpoint"], {"verb": "checkpoint", "args": {}}),
        (
            ["checkpoint", "d", "name=before", "at=epoch"],
            {"verb": "checkpoint", "args": {"name": "before"}, "at": "epoch"},
        ),
        (["evaluate", "batches=10"], {"verb": "evaluate", "args": {"batches": "10"}}),
        (["extend", "+20"], {"verb": "extend", "args": {"epochs": "20"}}),
        (["extend", "d", "+20"], {"verb": "extend", "args": {"epochs": "20"}}),
        (["extend", "+20", "--run", "d"], {"verb": "extend", "args": {"epochs": "20"}}),
        (["extend", "--epochs", "3"], {"verb": "extend", "args": {"epochs": "3"}}),
        (["extend", "d", "steps=500"], {"verb": "extend", "args": {"steps": "500"}}),
        (["note", "loss looks odd"], {"verb": "note", "words": ["loss looks odd"]}),
        (["note", "loss", "looks", "odd"], {"verb": "note", "words": ["loss", "looks", "odd"]}),
        (["note", "digits", "looks odd"], {"verb": "note", "words": ["looks odd"]}),
        (["note", "-r", "d", "digits", "odd"], {"verb": "note", "words": ["digits", "odd"]}),
        (["recover"], {"verb": "recover", "words": []}),
        (["recover", "d", "7", "9"], {"verb": "recover", "words": ["7", "9"]}),
        (["recover", "7"], {"verb": "recover", "words": ["7"]}),
        (["send", "shake # hard", "--dry-run"], {"line": "shake dry_run=yes # hard"}),
    ],
)
def test_what_is_sent(place, fake, words, params):
    run = fake(answers={"command": answer("done", verb=words[0])})
    place.kajitori(*words, "--by", "me")
    assert sent(run) == params


@pytest.mark.parametrize(
    ("words", "record", "text"),
    [
        (
            ["checkpoint"],
            answer("done", result={"path": "/ck/\x1b7.npz", "bytes": 3}),
            f"checkpoint: /ck/7.npz, {PLACE}",
        ),
        (
            ["evaluate"],
            answer("done", result={"loss": 0.5, "acc": "NaN"}),
            f"evaluate: loss=0.5 acc=NaN, {PLACE}",
        ),
        (["evaluate"], answer("done"), f"evaluate: done {PLACE}"),
        (["evaluate"], answer("done", result=3), f"evaluate: done {PLACE}: 3"),
        (
            ["extend", "+2"],
            answer("done", result={"total_epochs": 42}),
            f"extend: 42 epochs in all, {PLACE}",
        ),
        (
            ["extend", "--steps", "2"],
            answer("done", result={"total_steps": 42, "total_epochs": 3}),
            f"extend: 3 epochs, 42 steps in all, {PLACE}",
        ),
        (["prune"], answer("done"), f"prune: applied {PLACE}"),
        (
            ["recover"],
            answer(
                "done",
                result={
                    "recovered": 2,
                    "rejected": 1,
                    "commands": [
                        {"recovered": 3, "seq": 9, "state": "accepted"},
                        {"recovered": 5, "error": "lr: no"},
                    ],
                },
            ),
            "recover: 2 sent anew, 1 rejected\n"
            "  command 3: sent anew as command 9, accepted\n"
            "  command 5: rejected: lr: no",
        ),
        (
            ["recover"],
            {"state": "done", "seq": 4, "result": {"recovered": 0, "rejected": 0, "commands": []}},
            "recover: there is nothing to recover",
        ),
        (
            ["recover", "--dry-run"],
            {
                "state": "done",
                "seq": 4,
                "dry_run": True,
                "result": {
                    "recoverable": [
                        {"seq": 3, "verb": "set", "args": {"lr": 0.5}, "at": "step:9"},
                        {"seq": 5, "verb": "note", "words": ["hi"], "at": "now"},
                    ]
                },
            },
            "dry run: recover would send anew\n"
            "  command 3: set lr=0.5 at step:9\n"
            "  command 5: note hi at now",
        ),
        (["abort"], answer("applied"), f"abort: applied {PLACE}"),
        (["note", "x"], answer("done"), "note: in the journal as command 4"),
        (["pause"], answer("applied"), f"paused {PLACE}"),
        (["pause"], answer("applied", args={"for": "15m"}), f"paused {PLACE}, for 15m"),
        (
            ["pause"],
            answer("applied", args={"level": "leave"}, result={"checkpoint": {"path": "/ck/7"}}),
            f"leaves {PLACE}, checkpoint /ck/7; 'kajitori resume digits-1' starts it again",
        ),
        (
            ["stop"],
            answer("accepted", at="epoch:3"),
            "stop: waits for the end of epoch 3 (command 4)",
        ),
        (
            ["stop"],
            answer("accepted", at="epoch"),
            "stop: waits for the end of the epoch that runs (command 4)",
        ),
        (["stop"], answer("scheduled", at="step:9"), "stop: waits for step 9 (command 4)"),
        (["stop"], answer("done", result={"already_stopping": True}), "stop: already stopping"),
        (
            ["stop", "--save"],
            answer("done", result={"checkpoint": {"path": "/ck/7"}}),
            f"stop: applied {PLACE}, checkpoint /ck/7",
        ),
        (["stop"], answer("done", step=-1, epoch=-1), "stop: applied before the first step"),
    ],
)
def test_replies(place, fake, words, record, text):
    fake(answers={"command": {**record, "verb": words[0]}})
    assert place.kajitori(*words, "--wait", "accepted").stdout == text + "\n"


def test_what_the_program_does_itself_is_waited_for(place, fake):
    def begin(params):
        record = answer("applied", verb=params["verb"])
        done = {**record, "state": "failed", "error": "no room left"}
        event = {"jsonrpc": "2.0", "method": "event", "params": {"event": "command", **done}}
        reply = {"jsonrpc": "2.0", "id": 2, "result": record}
        return "".join(json.dumps(line) + "\n" for line in (reply, event)).encode()

    fake(answers={"command": begin})
    for words in (["checkpoint"], ["evaluate"], ["extend", "+1"]):
        assert place.kajitori(*words, status=1).stderr == "kajitori: no room left\n"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["extend"], "say by how much: +20 or --epochs 20, or --steps 5000"),
        (["extend", "+2", "--steps", "3"], "say by how much: +20 or --epochs 20, or --steps 5000"),
        (["extend", "+2", "+3"], "the number of epochs is given twice"),
        (["extend", "+2x"], "'+2x': write + and a whole number of epochs, as in +20"),
        (["extend", "a", "b", "+2"], "'+2' is one argument too many"),
        (["extend", "a", "b"], "'b' is one argument too many"),
        (["note"], "say what to note"),
        (["recover", "d", "x"], "'x' is no number of a command"),
        (["checkpoint", "a", "b"], "'b' is no NAME=VALUE"),
        (["stop", "save=maybe"], "save=maybe: must be yes or no"),
        (["abort", "hard=yes"], "'hard=yes' is one argument too many"),
    ],
)
def test_wrong_usage(place, words, says):
    first, second = place.kajitori(*words, status=2).stderr.splitlines()
    assert first.startswith(f"kajitori: {says}")
    assert second.startswith(f"Usage: kajitori {words[0]} ")


def test_help_is_a_table(place, fake):
    scale = {"name": "scale", "type": "float", "min": 0, "min_exclusive": True, "required": True}
    times = {"name": "times", "type": "int", "min": 1.0, "max": 1e12, "required": False}
    verbs = [
        {
            "name": "shake",
            "help": "adds noise",
            "own": True,
            "args": [{**scale, "help": "how"}, times],
        },
        {"name": "evaluate", "help": "", "args": [], "why_not": "no validation data\x1b"},
    ]
    result = {"seq": 1, "state": "done", "verb": "help", "result": {"verbs": verbs}}
    fake(answers={"command": result})
    assert [line.rstrip() for line in place.kajitori("send", "help").stdout.splitlines()] == [
        "verb      argument  type   range               required  help",
        "shake                                                    adds noise",
        "          scale     float  > 0                 yes       how",
        "          times     int    1 .. 1000000000000",
        "evaluate                                                 refused: no validation data",
    ]
    assert place.json("send", "help") == result


def test_params(place, fake):
    params = [
        {"name": "lr", "type": "float", "value": 0.1, "min": 0, "max": 1, "effect": "step"},
        {"name": "n", "type": "int", "value": 3, "step": 7, "read_only": True, "help": "units"},
    ]
    fake(answers={"params": {"params": params}})
    assert [line.split() for line in place.kajitori("params").stdout.splitlines()] == [
        ["name", "value", "type", "range", "unit", "effect", "step", "help"],
        ["lr", "0.1", "float", "0", "..", "1", "-", "step", "-", "-"],
        ["n", "3", "int", "-", "-", "read", "only", "7", "units"],
    ]
    assert place.json("params")[0]["range"] == "0 .. 1"


def test_ping(place, fake):
    run = fake()
    name, time_us, unit = place.kajitori("ping").stdout.split()
    assert (name, unit) == ("digits-1:", "us")
    assert int(time_us) >= 0
    assert run.requests[-1]["method"] == "ping"
    (row,) = place.json("ping")
    assert row["run"] == "digits-1"
    assert row["round_trip_us"] > 0
    run.answers["ping"] = None
    assert place.kajitori("ping", status=6).stdout == ""


def test_another_version_is_said_once(place, fake):
    for name in ("a-1", "b-2"):
        hello = {"protocol": 1, "version": "0.0.7", "run": {}}
        fake(name, {"hello": hello, "command": answer("done", verb="stop")})
    one = place.kajitori("stop", "a-1")
    ours = place.kajitori("version").stdout.split()[1]
    assert one.stderr == f"kajitori: a-1 is steered by kajitori 0.0.7, this command is {ours}\n"
    assert place.kajitori("stop", "--all").stderr.count("0.0.7") == 1
    assert place.kajitori("stop", "a-1", "-q").stderr == ""
