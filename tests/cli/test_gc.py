# SPDX-License-Identifier: Apache-2.0
"""Keeping house: what is listed, what is removed, and what never is."""

import os
import signal
import time

DAY = 86400


def leave_run(place, run_id, days):
    """What a run that ended so many days ago has left."""
    folder = place.state / "runs" / run_id
    folder.mkdir(parents=True, mode=0o700)
    for name, text in (("journal.jsonl", "x" * 999 + "\n"), ("run.json", "{}")):
        (folder / name).write_text(text)
        when = time.time() - days * DAY
        os.utime(folder / name, (when, when))
    return folder


def test_nothing_is_removed_without_yes(place):
    old, new = leave_run(place, "old-1", 40), leave_run(place, "new-1", 2)
    done = place.kajitori("gc")
    assert "old-1" in done.stdout
    assert "40 d" in done.stdout
    assert "older than 30 days" in done.stdout
    assert "new-1" not in done.stdout
    assert "--yes removes it" in done.stderr
    assert (old / "journal.jsonl").exists()
    (row,) = place.json("gc")
    assert row["path"] == str(old)
    assert (row["what"], row["bytes"], row["reason"]) == ("run", 1002, "older than 30 days")
    assert 40 * DAY <= row["age_s"] < 41 * DAY
    done = place.kajitori("gc", "--yes")
    assert "removed" in done.stderr
    assert not old.exists()
    assert new.exists()
    done = place.kajitori("gc")
    assert done.stdout == ""
    assert "nothing to remove" in done.stderr


def test_age_and_size(place):
    for days in (1, 2, 3, 4):
        leave_run(place, f"run-{days}", days)
    left = place.state / "runs"
    value = ("--format", "value", "-q")
    assert place.kajitori("gc", "--keep", "3K", *value).stdout.count("\n") == 1
    assert place.kajitori("gc", "--keep", "1G").stdout == ""  # the age does not count then
    rows = place.json("gc", "--older-than", "84h", "--keep", "2100")
    assert [(os.path.basename(row["path"]), row["reason"]) for row in rows] == [
        ("run-4", "older than 84 hours"),
        ("run-3", "the oldest beyond 2100 bytes"),
    ]
    place.kajitori("gc", "--older-than", "84h", "--keep", "2100", "--yes")
    assert sorted(os.listdir(left)) == ["run-1", "run-2"]
    place.kajitori("gc", "--older-than", "0", "-y")
    assert os.listdir(left) == []


def test_a_live_run_stays_and_a_dead_one_loses_its_doors(place):
    live, dead = place.digits(run_id="live-1"), place.digits(run_id="dead-1")
    dead.popen.send_signal(signal.SIGKILL)
    dead.popen.wait()
    assert (place.runtime / "dead-1").exists()
    rows = place.json("gc", "--older-than", "0")
    assert [(os.path.basename(row["path"]), row["what"]) for row in rows] == [
        ("dead-1", "doors"),
        ("dead-1", "run"),
    ]
    assert (place.runtime / "dead-1").exists()
    place.kajitori("gc", "--older-than", "0", "--yes")
    assert not (place.runtime / "dead-1").exists()
    assert not (place.state / "runs" / "dead-1").exists()
    assert place.json("status")["id"] == "live-1"
    assert place.journal("live-1")
    place.kajitori("stop", "live")
    assert live.wait() == 0


def test_files_of_others_stay(place):
    folder = leave_run(place, "run-1", 50)
    (folder / "notes.txt").write_text("mine")
    done = place.kajitori("gc", "--yes")
    assert "other files in its folder stay" in done.stdout
    assert os.listdir(folder) == ["notes.txt"]


def test_wrong_words(place):
    for words in (
        ("--older-than", "soon"),
        ("--older-than", "-1d"),
        ("--keep", "5X"),
        ("--keep", "nan"),
        ("digits",),
    ):
        assert place.kajitori("gc", *words, status=2).stdout == ""
