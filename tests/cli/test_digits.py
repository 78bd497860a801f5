# SPDX-License-Identifier: Apache-2.0
"""The verbs against a real training, examples/digits."""

import json
import os
import re
import shutil
import signal

import pytest

APPLIED = r"applied at step (\d+) \(epoch (\d+)\)"


@pytest.fixture
def digits(place):
    return place.digits(run_id="digits-one")


def finish(place, process):
    place.kajitori("stop", process.run_id)
    assert process.wait() == 0
    assert "stopped at step" in process.out


def test_ps_and_status(place, digits):
    (row,) = place.json("ps")
    assert row["id"] == digits.run_id == "digits-one"
    assert (row["name"], row["state"], row["pid"]) == ("digits", "running", digits.popen.pid)
    digits.wait_line("epoch 0")
    status = place.json("status")
    assert status["state"] == "running"
    assert status["step"] > 0
    assert {metric["tag"] for metric in status["metrics"]} == {
        "train/loss",
        "validation/loss",
        "validation/accuracy",
    }
    assert status["params"] == {"lr": 0.05, "momentum": 0.9}
    text = place.kajitori("status", "dig").stdout
    assert "\nstate       running\n" in text
    assert "  lr = 0.05\n" in text


def test_set_and_get(place, digits):
    done = place.kajitori("set", "lr=1e-3")
    assert re.fullmatch(rf"lr: 0.05 -> 0.001, {APPLIED}\n", done.stdout)
    done = place.kajitori("set", "digits", "lr=0.5", "momentum=0", "--reason", "to see")
    assert re.fullmatch(
        rf"lr: 0.001 -> 0.5, {APPLIED}\nmomentum: 0.9 -> 0.0, {APPLIED}\n", done.stdout
    )
    assert place.kajitori("get", "lr", "--format", "value").stdout == "0.5\n"
    rows = place.json("get")
    assert [(row["name"], row["value"]) for row in rows] == [("lr", 0.5), ("momentum", 0.0)]
    assert rows[0]["step"] > 0
    lines = [line for line in place.journal("digits-one") if line.get("state") == "applied"]
    assert lines[1]["old"] == {"lr": 0.001, "momentum": 0.9}
    assert lines[1]["new"] == {"lr": 0.5, "momentum": 0.0}
    assert lines[1]["reason"] == "to see"
    assert lines[1]["by"].startswith("tester@")
    assert lines[1]["uid"] == os.geteuid()
    text = place.kajitori("log").stdout
    assert "set lr=0.5 momentum=0.0: lr 0.001 -> 0.5, momentum 0.9 -> 0.0 (reason: to see)" in text


def test_pause_and_resume(place, digits):
    assert re.fullmatch(r"paused at step \d+ \(epoch \d+\)\n", place.kajitori("pause").stdout)
    before = place.json("status")
    assert before["state"] == "paused"
    assert place.kajitori("pause").stdout == "pause: already paused\n"
    # Commands are carried out while it waits, and it does not move.
    assert f"applied at step {before['step']} " in place.kajitori("set", "lr=0.1").stdout
    assert re.fullmatch(r"resumed at step \d+ \(epoch \d+\)\n", place.kajitori("resume").stdout)
    assert place.kajitori("resume").stdout == "resume: not paused\n"
    finish(place, digits)


def test_stop(place, digits):
    done = place.kajitori("stop", "--reason", "good enough")
    assert re.fullmatch(rf"stop: {APPLIED}\n", done.stdout)
    assert digits.wait() == 0
    assert digits.out.splitlines()[-1].endswith(": good enough")
    assert place.kajitori("ps").stdout == ""
    assert not (place.runtime / "digits-one").exists()
    place.kajitori("stop", status=3)
    text = place.kajitori("log").stdout
    assert text.splitlines()[0].endswith(f"run started: digits-one, pid {digits.popen.pid}")
    assert "stopped (reason: good enough)" in text.splitlines()[-1]


def test_stop_of_a_paused_run(place, digits):
    place.kajitori("pause")
    finish(place, digits)


def test_stop_at_a_step_and_at_the_end_of_an_epoch(place, digits):
    done = place.kajitori("set", "lr=0.1", "--at", "epoch", "--wait", "applied")
    step, epoch = map(int, re.search(APPLIED, done.stdout).groups())
    at = step + 100
    scheduled = place.kajitori("stop", "--at", f"step:{at}").stdout
    assert re.fullmatch(rf"stop: waits for step {at} \(command \d+\)\n", scheduled)
    assert digits.wait() == 0
    assert f"stopped at step {at}," in digits.out
    assert epoch >= 0


def test_options_may_be_given_as_in_a_text_line(place, digits):
    done = place.kajitori("set", "lr=0.2", "reason=why not", "wait=done", "by=me")
    assert re.fullmatch(rf"lr: 0.05 -> 0.2, {APPLIED}\n", done.stdout)
    assert "dry run" in place.kajitori("pause", "dry_run=yes").stdout
    place.kajitori("stop", "digits", "at=epoch", "reason=good enough")
    assert digits.wait() == 0
    assert digits.out.splitlines()[-1].endswith(": good enough")
    stop = [r for r in place.journal("digits-one") if r.get("verb") == "stop"]
    assert {r["at"] for r in stop} == {"epoch"}
    place.kajitori("stop", "att=epoch", status=2)


def test_wait_done(place, digits):
    assert "applied at step" in place.kajitori("set", "lr=0.2", "--wait", "done").stdout
    assert place.json("set", "lr=0.3", "--wait", "done")["state"] == "done"


def test_own_verb_and_help(place, digits):
    done = place.kajitori("send", "shake scale=0.01")
    assert re.fullmatch(
        r'shake: (applied|done) at step \d+ \(epoch \d+\)(: \{"weights": ?\d+\})?\n', done.stdout
    )
    result = json.loads(
        place.kajitori("send", "digits-one", "shake", "--wait", "done", "--format", "json").stdout
    )
    assert result["result"]["weights"] > 0
    lines = [line.split() for line in place.kajitori("send", "help").stdout.splitlines()]
    assert lines[0] == ["verb", "argument", "type", "range", "required", "help"]
    at = [line[:1] for line in lines].index(["shake"])
    assert lines[at + 1][:5] == ["scale", "float", "0.0", "..", "10.0"]


def test_watch_until_the_run_ends(place, digits):
    watching = place.start_kajitori("watch", "--format", "json")
    table = place.start_kajitori("watch")
    assert json.loads(watching.wait_line('"metric"'))["tag"]
    table.wait_line("validation/accuracy = ")
    place.kajitori("set", "lr=0.2", "--by", "me")
    table.wait_line("applied: set lr=0.2: lr 0.05 -> 0.2")
    place.kajitori("pause")
    table.wait_line("  paused")
    finish(place, digits)
    assert watching.wait() == 0
    assert table.wait() == 0
    events = [json.loads(line) for line in watching.lines["stdout"]]
    assert {event["event"] for event in events} >= {"metric", "command", "state"}
    assert events[-1]["event"] == "state"
    assert events[-1]["state"] == "ended"
    assert any(event["event"] == "metric" and event.get("epoch", -1) >= 0 for event in events)
    assert any("accuracy = " in line and "  (epoch " in line for line in table.lines["stdout"])
    assert table.lines["stdout"][-1].endswith("ended")
    assert "digits-one has ended" in table.err


def test_interrupted_watch_leaves_the_run_alone(place, digits):
    watching = place.start_kajitori("watch")
    watching.wait_line("validation/accuracy = ")
    watching.popen.send_signal(signal.SIGINT)
    assert watching.wait() == -signal.SIGINT
    assert place.json("status")["state"] == "running"


def test_log_follow(place, digits):
    following = place.start_kajitori("log", "--follow")
    following.wait_line("run started")
    place.kajitori("set", "lr=0.2")
    following.wait_line("applied   set lr=0.2")
    finish(place, digits)
    assert following.wait() == 0
    assert "run ended" in following.lines["stdout"][-1]
    assert following.out == place.kajitori("log").stdout.rstrip("\n")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["set", "lr=20"], r"lr.*20.*10"),
        (["set", "lr=0"], r"lr.*> 0"),
        (["set", "lr=nan"], r"lr.*nan"),
        (["set", "lr=NaN", "momentum=0.5"], r"lr"),
        (["set", "momentum=0.5", "lr=inf"], r"lr"),
        (["set", "lr=fast"], r"lr.*fast"),
        (["set", "ls=0.1"], r"ls.*lr"),
        (["get", "momentun"], r"momentun.*momentum"),
        (["send", "stopp"], r"stopp.*stop"),
        (["send", "shake scael=1"], r"scael.*scale"),
        (["send", "shake scale=99"], r"scale.*99"),
        (["send", "stop hard=yes"], r"hard"),
        (["send", 'set lr="0.1'], r"quote|\""),
        (["send", ""], r"no command"),
        (["stop", "--at", "tomorrow"], r"tomorrow"),
        (["pause", "--at", "step:x"], r"step:x"),
        (["send", "resume save=yes"], r"resume takes no save="),
    ],
)
def test_rejected(place, digits, words, says):
    done = place.kajitori(*words, status=5)
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert re.search(says, done.stderr), done.stderr
    status = place.json("status")
    assert status["params"] == {"lr": 0.05, "momentum": 0.9}
    assert status["state"] == "running"
    assert status["scheduled"] == []


def test_line_that_cannot_be_read_is_in_the_log(place, digits):
    place.kajitori("send", "lr=0.1", "--by", "me", status=5)
    (record,) = [r for r in place.journal("digits-one") if r.get("state") == "rejected"]
    assert (record["line"], record["by"]) == ("lr=0.1", "me")
    assert "  rejected  lr=0.1: a line begins with a verb" in place.kajitori("log").stdout


def test_dry_run(place, digits):
    done = place.kajitori("set", "lr=0.3", "--dry-run")
    assert done.stdout == "dry run: set would be accepted, nothing is changed\n"
    place.kajitori("set", "lr=30", "--dry-run", status=5)
    assert place.json("status")["params"]["lr"] == 0.05


def test_command_id_makes_a_repeat_harmless(place, digits):
    first = place.json("set", "lr=0.3", "--command-id", "a", "--wait", "done")
    place.kajitori("set", "lr=0.4")
    again = place.json("set", "lr=0.3", "--command-id", "a", "--wait", "done")
    assert again["seq"] == first["seq"]
    assert place.json("status")["params"]["lr"] == 0.4


def test_timeout(place, digits):
    words = ("set", "lr=0.3", "--at", "epoch:999999", "--wait", "applied", "--timeout", "1")
    done = place.kajitori(*words, status=4)
    assert "stays accepted and may still be applied" in done.stderr
    (scheduled,) = place.json("status")["scheduled"]
    assert scheduled["at"] == "epoch:999999"
    assert "at epoch:999999" in place.kajitori("status").stdout


def test_run_ends_before_the_command_is_applied(place, digits):
    following = place.start_kajitori("log", "--follow")
    waiting = place.start_kajitori("set", "lr=0.3", "--at", "epoch:999999", "--wait", "applied")
    following.wait_line("scheduled")
    finish(place, digits)
    assert waiting.wait() == 6
    assert waiting.err.count("\n") == 0
    assert "ended" in waiting.err


def test_stop_that_an_earlier_one_replaces(place, digits):
    following = place.start_kajitori("log", "--follow")
    waiting = place.start_kajitori("stop", "--at", "step:99999999", "--wait", "applied")
    following.wait_line("scheduled")
    finish(place, digits)
    assert waiting.wait() == 6
    assert "replaced by the earlier stop" in waiting.err


def test_killed_run(place, digits):
    following = place.start_kajitori("log", "--follow")
    waiting = place.start_kajitori("stop", "--at", "epoch:999999", "--wait", "applied")
    following.wait_line("scheduled")
    digits.popen.kill()
    digits.wait()
    assert waiting.wait() == 6
    assert following.wait() == 0
    assert (place.runtime / "digits-one").exists()
    assert place.kajitori("ps").stdout == ""
    assert not (place.runtime / "digits-one").exists()
    place.kajitori("status", status=3)
    assert "scheduled stop" in place.kajitori("log").stdout


def test_stopped_process(place, digits):
    other = place.digits(run_id="other")
    digits.popen.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, digits.popen.pid, os.WSTOPPED)
    listing = place.start_kajitori("ps", "--format", "json")
    asking = place.start_kajitori("status", "digits-one")
    done = place.kajitori("stop", "digits-one", "--timeout", "0.01", status=4)
    assert done.stderr == "kajitori: the run does not answer (is its process stopped?)\n"
    assert listing.wait() == 0
    assert [row["state"] for row in json.loads(listing.out)] == ["silent", "running"]
    assert asking.wait() == 4
    assert asking.err == done.stderr.rstrip("\n")
    digits.popen.send_signal(signal.SIGCONT)
    finish(place, digits)
    finish(place, other)


def test_two_runs(place, digits):
    other = place.digits(run_id="digits-two")
    done = place.kajitori("stop", status=2)
    assert "digits-one" in done.stderr
    assert "digits-two" in done.stderr
    assert place.kajitori("get", "lr", status=2).stdout == ""
    place.kajitori("set", "digits-t", "lr=0.4")
    assert place.json("status", "digits-two")["params"]["lr"] == 0.4
    assert place.json("status", "digits-one")["params"]["lr"] == 0.05
    finish(place, other)
    finish(place, digits)


def test_two_runs_with_one_id(place, digits):
    other = place.digits(run_id="digits-one")
    assert other.run_id != "digits-one"
    assert len(place.json("ps")) == 2


def test_echo_into_both_fifos(place, tmp_path):
    path = tmp_path / "mine"
    digits = place.digits("--fifo", path, run_id="digits-one")
    path.write_text("set lr=0.25\n")
    following = place.start_kajitori("log", "--follow")
    following.wait_line("done      set lr=0.25")
    (place.runtime / "digits-one" / "ctl").write_text("stop reason=echo\n")
    assert digits.wait() == 0
    assert digits.out.endswith(": echo")
    assert not path.exists()
    assert following.wait() == 0
    assert "[fifo]" in following.out
    assert "[ctl]" in following.out


def test_fifo_path_is_a_regular_file(place, tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("precious")
    digits = place.digits("--fifo", path)
    assert str(path) in digits.wait_line("digits: ", "stderr")
    finish(place, digits)
    assert path.read_text() == "precious"


def test_fifo_in_a_missing_folder(place, tmp_path):
    digits = place.digits("--fifo", tmp_path / "none" / "fifo")
    assert "none" in digits.wait_line("digits: ", "stderr")
    finish(place, digits)


def test_no_runtime_folder_can_be_made(place):
    place.runtime.write_text("in the way")
    digits = place.digits(epochs=2, step_ms=0)
    digits.wait_line("digits: ", "stderr")
    assert digits.wait() == 0
    assert "finished at step" in digits.out
    place.kajitori("status", status=1)


def test_runtime_folder_vanishes(place):
    digits = place.digits(run_id="digits-one")
    shutil.rmtree(place.runtime)
    place.kajitori("status", status=3)
    for epoch in range(3):
        digits.wait_line(f"epoch {epoch}")
