# SPDX-License-Identifier: Apache-2.0
"""log --as-schedule and send --schedule: a steered run done again."""

import json
import random
import subprocess

import pytest


def write_journal(place, *lines, run_id="old-1"):
    folder = place.state / "runs" / run_id
    folder.mkdir(parents=True, exist_ok=True)
    text = ""
    for n, line in enumerate(lines, 1):
        text += json.dumps({"n": n, "time": 1796045719.0 + n, **line}) + "\n"
    (folder / "journal.jsonl").write_text(text)


def applied(seq, verb, step=7, place="step", state="applied", **more):
    record = {"seq": seq, "state": state, "verb": verb, "at": "now", "step": step, "epoch": 2}
    return {**record, "place": place, "door": "socket", **more}


def started(**run):
    return {"event": "run_started", "run": {"id": "old-1", **run}}


def schedule(place, *lines):
    write_journal(place, *lines)
    head, *rest = place.kajitori("log", "old", "--as-schedule").stdout.splitlines()
    assert head == "# What was applied in old-1, each command where it was."
    return rest


@pytest.mark.parametrize(
    ("record", "line"),
    [
        (applied(1, "set", args={"lr": 0.0001}), "set lr=0.0001 at=step:7"),
        (applied(1, "set", place="epoch", args={"n": 3}), "set n=3 at=epoch:2"),
        (applied(1, "set", step=-1, place="poll", args={"on": True}), "set on=true at=now"),
        (
            applied(1, "set", place="poll", args={"on": False}),
            "set on=false at=step:8 # it was later than the beginning of the step before",
        ),
        (
            applied(1, "shake", place=None),
            "shake at=step:7 # the journal does not say where in this step",
        ),
        (applied(1, "set", args={"s": "a/b-1.5"}), "set s=a/b-1.5 at=step:7"),
        (applied(1, "set", args={"s": ""}), 'set s="" at=step:7'),
        (applied(1, "set", args={"s": 'a "b"\\\n\tc'}), 'set s="a \\"b\\"\\\\\\n\\tc" at=step:7'),
        (applied(1, "set", args={"s": "学"}), 'set s="学" at=step:7'),
        (applied(1, "load", words=["a=b", "#c", "=d"]), 'load "a=b" "#c" "=d" at=step:7'),
        (
            applied(1, "stop", save=True, reason="good enough", args={"validate": False}),
            'stop validate=false save=yes reason="good enough" at=step:7',
        ),
        (
            applied(1, "prune", args={"rule": "median", "value": 0.5}),
            "prune rule=median value=0.5 at=step:7",
        ),
        (applied(1, "abort"), "abort at=step:7"),
        (applied(1, "checkpoint", state="done"), "checkpoint at=step:7"),
        (applied(1, "extend", args={"epochs": 2}), "extend epochs=2 at=step:7"),
        (
            applied(1, "pause", args={"for": "15m"}),
            "# pause for=15m at=step:7: it changes nothing in the training",
        ),
        (
            applied(1, "note", state="done", words=["a\nb"]),
            '# note "a\\nb" at=step:7: it changes nothing in the training',
        ),
        (
            applied(1, "set", args={"api_key": "***", "lr": 1}),
            '# set api_key="***" lr=1 at=step:7: a value is masked in the journal',
        ),
        (
            applied(1, "set", args={"s": "a\x01b"}),
            '# set s="ab" at=step:7: it has control bytes',
        ),
        (applied(1, "shake", state="failed", error="no\nroom"), "# shake at=step:7: no room"),
        (applied(1, "set", state="done", dry_run=True), None),
        (applied(1, "checkpoint", door="run"), None),
        (applied(9, "shake", door="run", recovered=3), "shake at=step:7"),
        (applied(1, "get", state="done"), None),
        (applied(1, "set", state="accepted"), None),
        (applied(1, "set", state="expired"), None),
        ({"seq": 1, "state": "done", "verb": "stop", "result": {"already_stopping": True}}, None),
    ],
)
def test_a_command_as_a_line(place, record, line):
    if record.get("place", "") is None:
        del record["place"]
    assert schedule(place, started(), record) == ([line] if line else [])


def test_too_long_a_line(place):
    (line,) = schedule(place, started(), applied(1, "set", args={"s": "x" * 5000}))
    assert line.startswith("# set s=")
    assert line.endswith(": it is longer than a text line may be")


def test_order_is_that_of_the_effects(place):
    lines = schedule(
        place,
        started(),
        applied(1, "set", state="accepted", args={"lr": 1}),
        applied(2, "set", args={"lr": 2}, step=5),
        applied(2, "set", state="done", args={"lr": 2}, step=5),
        applied(1, "set", args={"lr": 1}, step=9),
        applied(1, "set", state="done", args={"lr": 1}, step=9),
        applied(3, "shake", step=11),
        applied(3, "shake", state="failed", step=11, error="no room"),
    )
    assert lines == [
        "set lr=2 at=step:5",
        "set lr=1 at=step:9",
        "# shake at=step:11: no room",
    ]


def test_runs_of_the_same_id(place):
    """A fresh start forgets what was before; one from a checkpoint what was applied after that."""
    before = applied(1, "set", args={"lr": 9}, step=3)
    save = applied(3, "checkpoint", state="done", step=5, result={"path": "/ck/5"})
    leave = applied(5, "pause", step=8, state="done", args={"level": "leave"})
    leave["result"] = {"checkpoint": {"path": "/ck/8"}}
    first = [started(), applied(2, "set", args={"lr": 1}, step=4), save]
    lost = applied(4, "set", args={"lr": 2}, step=7)
    last = applied(6, "set", args={"lr": 3}, step=9)
    lines = schedule(
        place, started(), before, *first, lost, leave, started(checkpoint="/ck/5"), last
    )
    assert lines == ["set lr=1 at=step:4", "checkpoint at=step:5", "set lr=3 at=step:9"]
    lines = schedule(place, *first, lost, leave, started(checkpoint="/ck/8"), last)
    assert [line for line in lines if line[0] != "#"] == [
        "set lr=1 at=step:4",
        "checkpoint at=step:5",
        "set lr=2 at=step:7",
        "set lr=3 at=step:9",
    ]


def test_wrong_usage_of_log(place):
    assert "not with --follow" in place.kajitori("log", "--as-schedule", "-f", status=2).stderr
    assert "there is no journal" in place.kajitori("log", "--as-schedule", status=3).stderr


def test_send_a_schedule(place, tmp_path):
    digits = place.digits(run_id="digits-one")
    path = tmp_path / "steps.txt"
    path.write_text(
        "# a comment\n\nset lr=0.5 at=step:99999999\n  \n"
        'shake scale=0.01 reason="a b" at=epoch:999999 # why not\nset momentum=0.5'
    )
    text = "dry run: 3 commands would be accepted, nothing is changed\n"
    assert place.kajitori("send", "--schedule", path, "--dry-run").stdout == text
    assert place.json("status")["scheduled"] == []
    lines = place.kajitori("send", "digits", "--schedule", path).stdout.splitlines()
    assert lines[0].startswith("set: waits for step 99999999 (command ")
    assert lines[1].startswith("shake: waits for the end of epoch 999999 (command ")
    assert len(lines) == 3
    assert len(place.json("status")["scheduled"]) >= 2
    with path.open() as file:
        command = [place.command, "send", "--schedule", "-", "--format", "json"]
        done = subprocess.run(command, env=place.env, stdin=file, capture_output=True, text=True)
    assert [record["verb"] for record in json.loads(done.stdout)] == ["set", "shake", "set"]
    place.kajitori("stop")
    assert digits.wait() == 0


def test_nothing_is_sent_when_a_line_is_rejected(place, tmp_path):
    place.digits(run_id="digits-one")
    path = tmp_path / "steps.txt"
    path.write_text("set lr=0.5 command_id=a\n\nset lr=50\nstop hard=yes\n")
    done = place.kajitori("send", "--schedule", path, status=5)
    first, second, third = done.stderr.splitlines()
    assert first.startswith(f"kajitori: {path}:3: lr")
    assert second.startswith(f"kajitori: {path}:4: ")
    assert "hard" in second
    assert third == "kajitori: nothing was sent"
    assert done.stdout == ""
    assert place.json("status")["params"]["lr"] == 0.05
    path.write_text("set lr=0.5 command_id=a\n")
    place.kajitori("send", "--schedule", path)  # what was only checked is no repeat
    place.kajitori("send", "set momentum=0.1")
    assert place.json("status")["params"]["lr"] == 0.5


@pytest.mark.parametrize(
    ("text", "status", "says"),
    [
        (b"# nothing\n", 2, "steps.txt: there is no command in it"),
        (b"stop\nset s=" + b"x" * 5000, 1, "steps.txt:2: longer than 4096 bytes"),
        (b"stop\nset\0lr\n", 1, "steps.txt:2: there is a zero byte in it"),
    ],
)
def test_files_that_cannot_be_sent(place, fake, tmp_path, text, status, says):
    run = fake()
    (tmp_path / "steps.txt").write_bytes(text)
    done = place.kajitori("send", "--schedule", tmp_path / "steps.txt", status=status)
    assert done.stderr == f"kajitori: {tmp_path}/{says}\n"
    assert [r for r in run.requests if r["method"] == "command"] == []
    done = place.kajitori("send", "--schedule", tmp_path / "none", status=1)
    assert done.stderr == f"kajitori: {tmp_path}/none: No such file or directory\n"
    assert "one run" in place.kajitori("send", "--schedule", "x", "--all", status=2).stderr


def steer_at_random(place, chance):
    """Commands of every kind, at whatever step they come."""
    for _ in range(40):
        kind = chance.randrange(8)
        if kind < 3:
            words = ["set", f"lr={chance.uniform(0.001, 0.2):.17g}"]
        elif kind == 3:
            words = ["set", f"momentum={chance.uniform(0, 0.9)}", "lr=0.05", "--at", "epoch"]
        elif kind == 4:
            words = ["send", f"shake scale={chance.uniform(0, 0.05)}"]
        elif kind == 5:
            words = ["checkpoint"]
        elif kind == 6:
            place.kajitori("pause")
            place.kajitori("set", f"lr={chance.uniform(0.001, 0.2)}")
            words = ["resume"]
        else:
            words = ["evaluate"]
        place.kajitori(*words, "--wait", "done")


def test_a_steered_run_done_again_is_the_same_to_the_bit(place, tmp_path):
    folders = [tmp_path / name for name in ("first", "again", "other")]
    for folder in folders:
        folder.mkdir()
    first = place.digits("--checkpoints", folders[0], run_id="digits-one")
    steer_at_random(place, random.Random(7))
    place.kajitori("stop", "--save")
    assert first.wait() == 0
    steps = place.kajitori("log", "digits-one", "--as-schedule").stdout
    (tmp_path / "steps.txt").write_text(steps)
    assert steps.count("\nset ") > 10
    assert "\nshake " in steps

    def run_again(folder, path):
        env = {"KAJITORI_SCHEDULE": str(path), "KAJITORI_RUN_ID": "digits-one"}
        again = place.start(
            *(place.digits_path, "--epochs", 1000000, "--checkpoints", folder), env=env
        )
        assert again.wait() == 0
        return {file.name: file.read_bytes() for file in folder.iterdir()}

    wanted = {file.name: file.read_bytes() for file in folders[0].iterdir()}
    assert run_again(folders[1], tmp_path / "steps.txt") == wanted
    text = steps.replace("lr=0.", "lr=0.0", 1)
    (tmp_path / "other.txt").write_text(text)
    assert run_again(folders[2], tmp_path / "other.txt") != wanted
