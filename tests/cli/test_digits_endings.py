# SPDX-License-Identifier: Apache-2.0
"""How examples/digits saves, measures, goes on longer, ends, and is continued."""

import json

import pytest


@pytest.fixture
def digits(place):
    return place.digits("--checkpoints", place.tmp_path, run_id="digits-one")


def send(place, run_id, line, wait="done"):
    done = place.kajitori("send", run_id, line, "--wait", wait, "--format", "json")
    return json.loads(done.stdout)


def ended(place, run_id):
    (record,) = [r for r in place.journal(run_id) if r.get("event") == "run_ended"]
    return record


def test_status_says_when_a_pause_is_over_and_what_saves(place, digits):
    place.kajitori("pause", "--for", "1h")
    place.kajitori("stop", "--save", "--at", "epoch:999999")
    status = place.json("status")
    assert 0 < status["resumes_in_s"] <= 3600
    assert status["scheduled"][0]["save"] is True
    table = place.kajitori("status").stdout
    assert "resumes (s)" in table
    assert "stop save=yes at epoch:999999" in table
    place.kajitori("pause", "--for", "2h")
    place.kajitori("resume")
    assert "resumes_in_s" not in place.json("status")


def test_a_continued_run_does_what_the_first_one_would_have_done(place, digits):
    """Saved in the middle of an epoch, and compared, byte by byte, in the middle of another one."""
    send(place, "digits-one", "pause")
    early = place.json("status", "digits-one")["step"] + 20
    late = early + 300
    for step in (early, late):
        send(place, "digits-one", f"checkpoint at=step:{step}", "accepted")
    send(place, "digits-one", f"stop at=step:{late + 1}", "accepted")
    send(place, "digits-one", "resume")
    assert digits.wait() == 0
    checkpoint = ended(place, "digits-one")["checkpoint"]
    assert checkpoint["step"] == late
    first = place.tmp_path / f"digits-one-{early}.digits"

    env = {"KAJITORI_RUN_ID": "digits-two", "KAJITORI_CHECKPOINT": str(first)}
    second = place.start(
        *(place.digits_path, "--seed", 7, "--lr", 1, "--step-ms", 10),
        *("--checkpoints", place.tmp_path),
        env=env,
    )
    second.wait_line(f"resumed from {first} at step {early},")
    line = f"stop save=yes at=step:{late}"
    record = json.loads(
        place.kajitori("send", "digits-two", line, "--wait", "done", "--format", "json").stdout
    )
    assert second.wait() == 0
    assert place.journal("digits-two")[0]["run"]["checkpoint"] == str(first)
    saved = record["result"]["checkpoint"]["path"]
    with open(saved, "rb") as ours, open(checkpoint["path"], "rb") as theirs:
        assert ours.read() == theirs.read()


def test_no_checkpoint_no_training(place):
    (place.tmp_path / "bad").write_text("x")
    env = {"KAJITORI_RUN_ID": "digits-one", "KAJITORI_CHECKPOINT": str(place.tmp_path / "bad")}
    process = place.start(place.digits_path, env=env)
    assert process.wait() == 1
    assert "no checkpoint of this program" in process.err
    assert "ending" not in ended(place, "digits-one")


def test_evaluate_and_extend(place):
    digits = place.digits(run_id="digits-one", epochs=1, step_ms=40)
    metrics = send(place, "digits-one", "evaluate")["result"]
    assert 0 <= metrics["validation/accuracy"] <= 1
    assert send(place, "digits-one", "extend epochs=1")["result"]["total_epochs"] == 2
    assert place.json("status", "digits-one")["total_epochs"] == 2
    done = place.kajitori("send", "digits-one", "extend steps=2", "--wait", "done", status=1)
    assert "counts in epochs" in done.stderr
    assert digits.wait() == 0
    assert digits.out.splitlines()[-1] == "finished at step 90, epoch 2"


@pytest.mark.parametrize(
    ("line", "status", "says", "ending"),
    [
        ("abort reason=hurry", 77, "aborted at step", "abort"),
        ("prune rule=median value=0.9 threshold=0.5", 76, "pruned at step", "prune"),
        ("pause level=leave", 75, "left at step", "leave"),
        ("stop save=yes validate=no", 0, "stopped at step", "stop"),
    ],
)
def test_endings(place, digits, line, status, says, ending):
    digits.wait_line("epoch 0")
    place.kajitori("send", "digits-one", line)
    assert digits.wait() == status
    assert digits.out.splitlines()[-1].startswith(says)
    record = ended(place, "digits-one")
    assert record["ending"] == ending
    assert ("checkpoint" in record) == (ending in ("leave", "stop"))


def test_without_validation_there_is_no_line_of_it(place, digits):
    send(place, "digits-one", "pause")
    send(place, "digits-one", "stop validate=no", "accepted")
    assert digits.wait() == 0
    epochs = [line for line in digits.out.splitlines() if line.startswith("epoch ")]
    last = place.journal("digits-one")[-1]
    assert len(epochs) == last["epoch"]  # the last one that began has none


def test_a_checkpoint_that_cannot_be_written_stops_nothing(place):
    digits = place.digits("--checkpoints", place.tmp_path / "none", run_id="digits-one")
    done = place.kajitori("send", "digits-one", "stop save=yes", "--wait", "done", status=1)
    assert "nothing else was done" in done.stderr
    assert "No such file" in done.stderr
    place.kajitori("stop", "digits-one")
    assert digits.wait() == 0
