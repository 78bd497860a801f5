# SPDX-License-Identifier: Apache-2.0
"""kajitori tune: what is refused before anything is done, and what fails later."""

import os
import sqlite3
import sys

import pytest
from studies import execute, is_alive, trials_of, wait_for


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"program": ["python3", "train.py", "{unit}"]}, "unknown name {unit}"),
        ({"program": ["python3", "train.py", "{x"]}, 'single "{"'),
        ({"program": ["python3", "train.py"]}, "parameter x is not used"),
        ({"program": ["no-such-program", "{x}"]}, "no-such-program: not found in PATH"),
        ({"program": ["./train.py", "{x}"]}, "not executable"),
        ({"params": ["x=1"]}, "neither a range nor choices"),
        ({"params": ["x=0..1", "x=0..2"]}, "given twice"),
        ({"params": ["trial=0..1"]}, "this name is taken"),
        ({"metric": "events:logs/{trial}"}, "events:DIR:TAG"),
        (
            {"metric": "jsonl:m{trial}.jsonl"},
            "expected jsonl:FILE:FIELD, for example jsonl:m0.jsonl:val_loss",
        ),
        (
            {"metric": "csv:m{trial}.csv:*"},
            "expected csv:FILE:COLUMN, for example csv:m0.csv:val_loss",
        ),
        ({"metric": "trainer:out\\:{trial}"}, "expected trainer:DIR:KEY"),
        ({"metric": "text:-:/loss=(.*)/"}, "reads standard input"),
        ({"metric": "csv:m.csv:loss", "options": ["--jobs", "2"]}, "put {trial} into it"),
        ({"metric": "stdout:/(/"}, "stdout:"),
        ({"metric": "nowhere:x"}, "unknown metric source"),
        ({"options": ["--pruner", "medain"]}, "median"),
        ({"options": ["--pruner", "median:warmup=3"]}, "warmup"),
        ({"options": ["--sampler", "tpee"]}, "tpee"),
        ({"options": ["--grace", "soon"]}, "--grace soon"),
        ({"options": ["--jobs", "0"]}, "--jobs 0"),
        ({"options": ["--minimize", "--maximize"]}, "exclude each other"),
        ({"metric": "events:logs:loss", "options": ["--jobs", "2"]}, "put {trial} into it"),
        ({"options": ["--jobs", "1025"]}, "1025 jobs at once; at most 1024"),
        ({"params": ["x=-1e308..1e308"]}, 'parameter "x": the range must be finite'),
        ({"params": ["x=0..1:step=1e-320"]}, "too many steps"),
    ],
)
def test_refused_before_anything_is_started(study, change, said):
    for name, value in change.items():
        setattr(study, name, value)
    done = study.run(2, status=2)
    assert said in done.stderr, done.stderr
    assert done.stdout == ""
    assert sorted(path.name for path in study.folder.iterdir()) == ["train.py"]


def test_a_trials_folder_that_cannot_be(study):
    for folder, said in (
        ("train.py", "train.py is not a folder"),
        ("train.py/x", "Not a directory"),
    ):
        assert said in study.run(1, "--trials-dir", folder, status=1).stderr
    assert sorted(path.name for path in study.folder.iterdir()) == ["train.py"]


def test_a_file_that_is_no_database(study):
    """A file that is no database is not written over."""
    (study.folder / "kajitori.db").write_text("these are my notes, and no database at all\n" * 30)
    done = study.run(1, status=1)
    assert "kajitori.db" in done.stderr
    assert (study.folder / "kajitori.db").read_text().startswith("these are my notes")


def test_no_command(study, place):
    assert "behind '--'" in place.kajitori("tune", "--metric", "events:x:y", status=2).stderr


def test_a_program_that_fails_at_once(study):
    study.write("train.py", "print('hello')\nraise SystemExit('no data here')\n")
    done = study.run(24, status=1)
    assert "all 3 failed" in done.stderr
    assert "no data here" in done.stderr
    assert [state for _, state in study.states()] == ["FAIL"] * 3
    assert "exit status 1" in done.stderr


def test_a_line_that_never_comes(study):
    study.metric = r"stdout:/val=(\S+)/"
    done = study.run(2, status=1)
    assert r"no line of its output matched /val=(\S+)/" in done.stderr


def test_a_failure_later_does_not_end_the_study(study):
    study.write(
        "train.py",
        """
        import os, sys
        print("step=0 loss=1")
        if os.environ["KAJITORI_TRIAL"] == "1":
            sys.exit("out of luck")
        if os.environ["KAJITORI_TRIAL"] == "2":
            print("step=1 loss=nan")
        """,
    )
    rows = study.table(4)
    assert [row["state"] for row in rows] == ["COMPLETE", "FAIL", "FAIL", "COMPLETE"]
    assert rows[1]["reason"] == "exit status 1; its last line: out of luck"
    assert "nan" in rows[2]["reason"]


def test_a_changed_search_space(study):
    study.run(1)
    study.params = ["x=0..2"]
    done = study.run(2, status=1)
    assert "parameter x was 0.0..1.0 and is now 0.0..2.0" in done.stderr
    assert "--study NAME" in done.stderr
    study.params = ["x=0..1", "y=1|2"]
    study.program += ["{y}"]
    assert "parameter y was not there" in study.run(2, status=1).stderr
    study.run(1, "--study", "other")
    study.params, study.program = ["y=1|2"], [*study.program[:3], "{y}"]
    assert "parameter y was not there" in study.run(2, status=1).stderr
    assert len(study.states()) == 2


def test_a_changed_metric_or_direction(study):
    study.run(1)
    said = study.run(2, "--maximize", status=1).stderr
    assert "the direction of study train has changed: it was --minimize and is now" in said
    assert "--study NAME" in said
    study.metric = r"stdout:/loss=(\S+)/"
    assert "the metric of study train has changed" in study.run(2, status=1).stderr


def test_a_folder_of_another_study(study):
    study.run(1)
    done = study.run(1, "--study", "other", "--trials-dir", "kajitori-trials/train", status=1)
    assert "belongs to another study" in done.stderr
    (study.folder / "kajitori.db").unlink()
    assert "whose database is gone" in study.run(1, status=1).stderr


def test_an_unknown_revision(study):
    study.run(1)
    db = sqlite3.connect(study.folder / "kajitori.db")
    db.execute("UPDATE alembic_version SET version_num = 'v99.0.0.a'")
    db.commit()
    db.close()
    assert "v99.0.0.a" in study.run(2, status=1).stderr


def test_a_locked_database(study):
    """It is waited for, while the program goes on; a person may still end it."""
    study.write(
        "train.py",
        """
        print("step=0 loss=1")
        open("go").read()
        print("step=1 loss=0.5")
        """,
    )
    os.mkfifo(study.folder / "go")
    study.program = [sys.executable, "train.py", "{x}"]
    tune = study.start(1, "-v")
    tune.wait_line("step 0 value")
    db = sqlite3.connect(study.folder / "kajitori.db", isolation_level=None)
    db.execute("BEGIN EXCLUSIVE")
    (study.folder / "go").write_text("go")
    wait_for(study.trial_file(0, "exit.json"))
    tune.wait_line("waiting for it, the programs go on")
    db.execute("ROLLBACK")
    db.close()
    assert tune.wait() == 0, tune.err
    assert [(row["state"], row["value"], row["steps"]) for row in trials_of(tune)] == [
        ("COMPLETE", 0.5, 2)
    ]


def test_a_database_that_fails_for_good(study):
    """The worker ends and says so; the program goes on, and is taken over when the database is well."""
    study.write(
        "train.py",
        """
        for step in range(3):
            print(f"step={step} loss=1")
            open(f"go{step}").read()
        """,
    )
    for step in range(3):
        os.mkfifo(study.folder / f"go{step}")
    study.program = [sys.executable, "train.py", "{x}"]
    tune = study.start(1, "-v")
    tune.wait_line("step 0 value")
    execute(study, "ALTER TABLE trial_intermediate_values RENAME TO hidden")
    (study.folder / "go0").write_text("go")
    assert tune.wait() == 1
    assert "running trials (1) go on under their shims" in tune.err
    assert "trial_intermediate_values" in tune.err
    assert is_alive(study.trial_json(0, "shim.json")["pid"])
    execute(study, "ALTER TABLE hidden RENAME TO trial_intermediate_values")
    again = study.start(1)
    again.wait_line("found running")
    (study.folder / "go1").write_text("go")
    (study.folder / "go2").write_text("go")
    assert again.wait() == 0, again.err
    assert [(row["state"], row["steps"]) for row in trials_of(again)] == [("COMPLETE", 3)]


@pytest.mark.parametrize("replaced", [False, True])
def test_a_database_that_is_deleted_or_replaced(study, replaced):
    """SQLite would go on in the deleted file, and all that is stored would be lost in silence."""
    study.write(
        "train.py",
        """
        print("step=0 loss=1")
        open("go").read()
        print("step=1 loss=1")
        """,
    )
    os.mkfifo(study.folder / "go")
    study.program = [sys.executable, "train.py", "{x}"]
    tune = study.start(2, "-v")
    tune.wait_line("step 0 value")
    (study.folder / "kajitori.db").unlink()
    if replaced:
        sqlite3.connect(study.folder / "kajitori.db").close()
        (study.folder / "kajitori.db").touch()
    (study.folder / "go").write_text("go")
    assert tune.wait() == 1
    assert "kajitori.db was deleted, moved or replaced while it was in use" in tune.err
    assert tune.out == ""


def test_a_shim_that_is_not_there(study):
    study.place.env["KAJITORI_SHIM"] = "/nowhere/kajitori-shim"
    assert "/nowhere/kajitori-shim: not there" in study.run(1, status=1).stderr
