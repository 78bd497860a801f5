# SPDX-License-Identifier: Apache-2.0
"""Several runs at once: --study, --match, --all."""

import csv

import pytest


def status(**more):
    return {
        "state": "running",
        "step": 5,
        "epoch": 2,
        "params": {"lr": 0.2, "on": True, "mode": "fast"},
        "metrics": [
            {"tag": "val_loss", "step": 4, "value": 2.0},
            {"tag": "gap", "step": 4, "value": "NaN"},
        ],
        **more,
    }


def done(verb):
    return {"seq": 4, "state": "applied", "verb": verb, "at": "now", "step": 7, "epoch": 0}


@pytest.fixture
def three(fake):
    """a-1 and b-2 of study s, and c-3 without one; lr is 0.2, 0.05, and c-3 has none."""
    answers = {"command": lambda params: done(params.get("verb", "set"))}
    runs = [
        fake("a-1", {"status": status(), **answers}, {"study": "s", "framework": "keras 3"}),
        fake("b-2", {"status": status(params={"lr": 0.05}), **answers}, {"study": "s"}),
        fake("c-3", {"status": status(params={}, state="paused", epoch=9), **answers}),
    ]
    for k, run in enumerate(runs):
        run.answers["status"]["id"] = run.answers["status"]["name"] = run.dir.name
        info = run.dir / "run.json"
        info.write_text(info.read_text().replace("1796045719.5", str(1796045719.5 + k)))
    return runs


@pytest.mark.parametrize(
    ("match", "ids"),
    [
        (["lr>0.1"], "a-1"),
        (["lr>=0.05"], "a-1 b-2"),
        (["lr <= 0.05"], "b-2"),
        (["lr=0.2"], "a-1"),
        (["lr==2e-1"], "a-1"),
        (["lr!=0.2"], "b-2"),  # c-3 has no lr
        (["val_loss>=2", "lr<1"], "a-1 b-2"),
        (["epoch<3"], "a-1 b-2"),
        (["epoch>3"], "c-3"),
        (["state=paused"], "c-3"),
        (["state!=paused"], "a-1 b-2"),
        (["name~-"], "a-1 b-2 c-3"),
        (["name~b"], "b-2"),
        (["framework~keras"], "a-1"),
        (["on=true"], "a-1"),
        (["mode=fast"], "a-1"),
        (["study=s", "state=running"], "a-1 b-2"),
        (["gap<1"], ""),
        (["gap>1"], ""),
        (["gap!=1"], ""),
        (["gap=nan"], ""),
        (["nothing=1"], ""),
        (["mode>3"], ""),
    ],
)
def test_match(place, three, match, ids):
    options = [word for expr in match for word in ("--match", expr)]
    rows = place.json("ps", *options)
    assert " ".join(row["id"] for row in rows) == ids
    text = place.kajitori("stop", *options, status=0 if ids else 3)
    assert text.stdout == "".join(
        f"{run}: stop: applied at step 7 (epoch 0)\n" for run in ids.split()
    )
    for run in three:
        commands = [r for r in run.requests if r["method"] == "command"]
        assert len(commands) == (run.dir.name in ids.split())


def test_study_and_all(place, three):
    assert [row["id"] for row in place.json("ps", "--study", "s")] == ["a-1", "b-2"]
    assert place.kajitori("pause", "--study", "s").stdout == (
        "a-1: paused at step 7 (epoch 0)\nb-2: paused at step 7 (epoch 0)\n"
    )
    assert place.kajitori("stop", "--all").stdout.count("\n") == 3
    asked = [r["method"] for r in three[2].requests]
    assert asked == ["hello", "command"]  # no status without --match
    assert place.json("resume", "--study", "s", "--match", "lr<0.1") == [
        {"run": "b-2", "exit_status": 0, "record": done("resume")}
    ]


def test_the_exit_status_is_the_worst(place, three):
    three[0].answers["command"] = Exception(-9, "lr = 2.0: must be <= 1.0")
    three[1].answers["command"] = Exception(-20, "the setter refused")
    answer = place.kajitori("set", "lr=2", "--all", status=5)
    assert answer.stdout == "c-3: set: applied at step 7 (epoch 0)\n"
    assert answer.stderr == (
        "kajitori: a-1: lr = 2.0: must be <= 1.0\nkajitori: b-2: the setter refused\n"
    )


def test_a_run_that_does_not_answer_is_not_passed_over(place, three):
    three[1].answers["status"] = None
    answer = place.kajitori("stop", "--match", "lr>0.1", status=4)
    assert answer.stdout.startswith("a-1: stop: applied")
    assert answer.stderr == "kajitori: b-2 does not answer, so it is not known whether it matches\n"


def test_status_as_csv_has_one_header(place, three):
    three[0].answers["status"]["checkpoint"] = {"path": "/ck/1"}
    lines = place.kajitori("status", "--all", "--format", "csv").stdout.splitlines()
    assert len(lines) == 4
    columns = lines[0].split(",")
    assert {"id", "state", "checkpoint"} < set(columns)
    rows = list(csv.DictReader(lines))
    assert [row["id"] for row in rows] == ["a-1", "b-2", "c-3"]
    assert [bool(row["checkpoint"]) for row in rows] == [True, False, False]


def test_none_matches(place, three):
    answer = place.kajitori("stop", "--study", "t", status=3)
    assert answer.stderr == "kajitori: none of the 3 live runs is of study t\n"
    answer = place.kajitori("stop", "--match", "lr>7", status=3)
    assert answer.stderr == "kajitori: none of the 3 live runs matches\n"
    assert place.kajitori("ps", "--study", "t").stderr == "kajitori: no live run is one of these\n"
    for run in three:
        run._lock.close()
    assert place.kajitori("stop", "--all", status=3).stderr == "kajitori: no run is live\n"


def test_dry_run_lists_the_group_first(place, three):
    answers = {"command": {**done("stop"), "state": "done", "dry_run": True}}
    for run in three:
        run.answers.update(answers)
    lines = place.kajitori("stop", "--study", "s", "--dry-run").stdout.splitlines()
    assert lines == [
        "2 runs: a-1, b-2",
        "a-1: dry run: stop would be accepted, nothing is changed",
        "b-2: dry run: stop would be accepted, nothing is changed",
    ]
    assert three[0].requests[-1]["params"]["dry_run"] is True


def test_questions_to_a_group(place, three):
    lines = place.kajitori("status", "--study", "s").stdout.splitlines()
    assert lines == [
        "a-1: running, step 5, epoch 2, val_loss=2.0 gap=NaN, lr=0.2 on=true mode=fast",
        "b-2: running, step 5, epoch 2, val_loss=2.0 gap=NaN, lr=0.05",
    ]
    assert [row["id"] for row in place.json("status", "--all")] == ["a-1", "b-2", "c-3"]
    assert [row["run"] for row in place.json("ping", "--all")] == ["a-1", "b-2", "c-3"]
    got = {"seq": 1, "state": "done", "verb": "get"}
    for run in three:
        params = {"params": [{"name": "lr", "value": 0.5, "step": 7}]}
        run.answers.update({"params": params, "command": {**got, "result": params}})
    assert [row["run"] for row in place.json("params", "--study", "s")] == ["a-1", "b-2"]
    values = place.kajitori("get", "lr", "--study", "s", "--format", "value").stdout
    assert values == "a-1\t0.5\nb-2\t0.5\n"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["stop", "--match", "lr"], "--match 'lr': write NAME, one of < <= > >= = != ~, and a"),
        (["stop", "--match", ">3"], "--match '>3': write NAME, "),
        (["stop", "--match", "lr="], "--match 'lr=': write NAME, "),
        (["stop", "--match", "lr=>3"], "--match 'lr=>3': write NAME, "),
        (["stop", "--match", "lr!==3"], "--match 'lr!==3': write NAME, "),
        (["stop", "--match", "lr!3"], "--match 'lr!3': write NAME, "),
        (["ps", "--match", "lr>high"], "--match 'lr>high': > needs a number, not 'high'"),
        (["stop", "--study", ""], "the name of the study is empty"),
        (
            ["stop", "--all", "--run", "a"],
            "--run names one run, --study, --match and --all several",
        ),
        (["stop", "a", "--all"], "'a' is one argument too many"),
        (["watch", "--all"], "no such option: --all"),
    ],
)
def test_wrong_usage(place, words, says):
    first, second = place.kajitori(*words, status=2).stderr.splitlines()
    assert first.startswith(f"kajitori: {says}")
    assert second.startswith("Usage: kajitori ")
