# SPDX-License-Identifier: Apache-2.0
"""kajitori resume of a run that is no more: its recorded command line, with the same id, from its checkpoint."""

import json
import os
import shlex
import subprocess
import sys

import pytest

PROGRAM = """\
import json, os, sys
keys = ("KAJITORI_RUN_ID", "KAJITORI_CHECKPOINT", "KAJITORI_STATE_DIR", "WANDB_TOKEN")
print(json.dumps([sys.argv[1:], os.getcwd(), {k: os.environ.get(k) for k in keys}]), flush=True)
"""


@pytest.fixture
def left(place, tmp_path):
    """Writes what a run leaves: its journal and run.json."""

    def write(*args, run_id="old-1", ending="leave", checkpoint="/ck/7", lines=(), **more):
        work = tmp_path / "work"
        work.mkdir(exist_ok=True)
        (work / "program.py").write_text(PROGRAM)
        argv = [sys.executable, "program.py", *args]
        run = {"id": run_id, "pid": 3, "argv": argv, "cwd": str(work), **more}
        folder = place.state / "runs" / run_id
        folder.mkdir(parents=True)
        (folder / "run.json").write_text(json.dumps(run))
        end = {"event": "run_ended", "step": 7, "epoch": 0, "stopped": True}
        if ending:
            end["ending"] = ending
        if checkpoint:
            end["checkpoint"] = {"path": checkpoint, "step": 7, "epoch": 0}
        journal = [
            {"event": "run_started", "run": run},
            *lines,
            *([end] if ending != "died" else []),
        ]
        for n, line in enumerate(journal, 1):
            line.update(n=n, time=1796045719.0 + n)
        (folder / "journal.jsonl").write_text("".join(json.dumps(x) + "\n" for x in journal))
        return work

    return write


def run_as(place, *words, **env):
    return json.loads(place.kajitori("resume", *words, env=env).stdout)


def test_it_starts_again(place, left):
    work = left("--epochs", "3", "it's")
    args, cwd, env = run_as(place, "old")
    assert args == ["--epochs", "3", "it's"]
    assert cwd == str(work)
    assert env["KAJITORI_RUN_ID"] == "old-1"
    assert env["KAJITORI_CHECKPOINT"] == "/ck/7"


def test_the_printed_command_does_the_same(place, left):
    left("a b", "--wandb-token", "***", "db=postgres://me:***@h/x", "token=***")
    text = place.kajitori("resume", "old", "--print").stdout
    assert '--wandb-token "$WANDB_TOKEN" "$KAJITORI_ARG_5" token="$TOKEN"' in text
    env = {"WANDB_TOKEN": "s 1", "KAJITORI_ARG_5": "whole", "TOKEN": "s2"}
    done = subprocess.run(
        ["sh", "-c", text], env={**place.env, **env}, capture_output=True, text=True
    )
    assert json.loads(done.stdout) == run_as(place, "old", **env)


def test_secrets_come_from_the_environment(place, left):
    left("--wandb-token", "***", "--api-key=***", "db=postgres://me:***@h/x")
    done = place.kajitori("resume", "old", status=1)
    assert done.stdout == ""
    assert done.stderr.startswith(
        "kajitori: argument 3 is masked (***): set WANDB_TOKEN to the value, or KAJITORI_ARG_3\n"
    )
    done = place.kajitori("resume", "old", status=1, env={"WANDB_TOKEN": "s1"})
    assert "argument 4 is masked (--api-key=***): set API_KEY to the value" in done.stderr
    env = {"WANDB_TOKEN": "s1", "API_KEY": "s2"}
    done = place.kajitori("resume", "old", status=1, env=env)
    assert "(db=postgres://me:***@h/x): set KAJITORI_ARG_5\n" in done.stderr
    env["KAJITORI_ARG_5"] = "db=postgres://me:s3@h/x"
    args, _, _ = run_as(place, "old", **env)
    assert args == ["--wandb-token", "s1", "--api-key=s2", "db=postgres://me:s3@h/x"]
    env["KAJITORI_ARG_3"] = "other"
    assert run_as(place, "old", **env)[0][1] == "other"


@pytest.mark.parametrize(
    ("ending", "says"),
    [
        ("stop", "it was ended by stop"),
        ("", "it came to its end"),
        ("died", "it died"),
    ],
)
def test_a_run_that_did_not_leave(place, left, ending, says):
    saved = {"seq": 1, "state": "done", "verb": "checkpoint", "result": {"path": "/ck/5"}}
    left(ending=ending, checkpoint=None, lines=[saved])
    done = place.kajitori("resume", "old", status=1)
    assert done.stderr == (
        f"kajitori: old-1 did not leave, {says}; with --again it is started again all the same\n"
    )
    assert run_as(place, "old", "--again")[2]["KAJITORI_CHECKPOINT"] == "/ck/5"


def test_without_a_checkpoint_it_begins_anew(place, left):
    left(ending="died", checkpoint=None)
    done = place.kajitori("resume", "old", "--again", env={"KAJITORI_CHECKPOINT": "/other"})
    assert done.stderr == "kajitori: old-1 has saved no checkpoint: it begins anew\n"
    assert json.loads(done.stdout)[2]["KAJITORI_CHECKPOINT"] is None


def test_detached(place, left):
    work = left()
    os.mkfifo(work / "done")
    (work / "program.py").write_text(
        "import os\nprint(os.getsid(0) == os.getpid(), os.environ['KAJITORI_RUN_ID'], flush=True)\n"
        "open('done', 'w')\n"
    )
    done = place.kajitori("resume", "old", "--detach")
    log = place.state / "runs" / "old-1" / "output.log"
    assert done.stdout.startswith("old-1: started again, pid ")
    assert done.stdout.endswith(f", output in {log}\n")
    (work / "done").read_text()  # until it has printed all
    assert log.read_text() == "True old-1\n"
    assert log.stat().st_mode & 0o777 == 0o600
    place.kajitori("gc", "--older-than", "0d", "--yes")
    assert not log.parent.exists()


def test_two_at_once(place, left):
    """The first one's program has not opened its run yet."""
    work = left()
    os.mkfifo(work / "go")
    (work / "program.py").write_text("print('here', flush=True)\nopen('go').read()\n")
    first = place.start_kajitori("resume", "old")
    first.wait_line("here")
    done = place.kajitori("resume", "old", status=1)
    assert done.stderr == "kajitori: old-1 is being started again already\n"
    place.kajitori("resume", "old", "--print")
    (work / "go").write_text("")
    assert first.wait() == 0
    (work / "program.py").write_text("print('here', flush=True)\n")
    assert place.kajitori("resume", "old").stdout == "here\n"


def test_what_is_gone(place, left, tmp_path):
    work = left()
    work.rename(tmp_path / "elsewhere")
    done = place.kajitori("resume", "old", status=1)
    assert done.stderr == f"kajitori: the folder of old-1, {work}: No such file or directory\n"
    left(run_id="new-1", argv=["/no/such/program"])
    for options in ([], ["--detach"]):
        done = place.kajitori("resume", "new", *options, status=1)
        assert done.stderr == (
            "kajitori: cannot start /no/such/program: No such file or directory\n"
        )
    left(run_id="odd-1", argv=[])
    done = place.kajitori("resume", "odd", status=1)
    assert done.stderr == "kajitori: the command line of odd-1 was not recorded\n"
    left(run_id="cut-1", argv_cut=True)
    done = place.kajitori("resume", "cut", "--print", status=1)
    assert "the command line of cut-1 was not recorded whole" in done.stderr
    assert "KAJITORI_RUN_ID=cut-1 KAJITORI_CHECKPOINT=/ck/7" in done.stderr
    left(run_id="lost-1", cwd=None)
    done = place.kajitori("resume", "lost", status=1)
    assert done.stderr.startswith("kajitori: the folder of lost-1 was not recorded")
    done = place.kajitori("resume", "none-", status=3)
    assert done.stderr.startswith("kajitori: no journal begins with 'none-'; there is ")


def test_a_run_that_lives(place, left, fake):
    left()
    run = fake("old-1", {"command": {"seq": 1, "state": "applied", "verb": "resume", "step": 7}})
    assert place.kajitori("resume", "old").stdout == "resumed at step 7\n"
    assert run.requests[-1]["params"]["verb"] == "resume"
    assert (
        place.kajitori("resume", "old", "--again", status=1).stderr == "kajitori: old-1 is live\n"
    )
    done = place.kajitori("resume", "--all", "--again", status=2)
    assert "started again one by one" in done.stderr


def test_digits_leaves_and_comes_back(place):
    digits = place.digits("--checkpoints", place.tmp_path, run_id="digits-one")
    place.kajitori("set", "lr=0.125")
    done = place.kajitori("pause", "--level", "leave", "--wait", "done")
    assert digits.wait() == 75
    path = done.stdout.split("checkpoint ")[1].split(";")[0]
    back = place.start_kajitori("resume", "digits")
    back.wait_line(f"resumed from {path} at step ")
    back.wait_line("epoch ")
    assert place.json("status")["id"] == "digits-one"
    assert back.popen.pid == place.json("status")["pid"]
    assert place.json("status")["params"]["lr"] == 0.125
    place.kajitori("stop")
    assert back.wait() == 0
    assert shlex.split(place.kajitori("resume", "--again", "--print").stdout)[0] == "cd"
