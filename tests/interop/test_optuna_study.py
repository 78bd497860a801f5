# SPDX-License-Identifier: Apache-2.0
"""One study, worked on in turn by kajitori (through study-driver, in C) and by Optuna: both see the same trials."""

import datetime
import json
import math
import os
import pathlib
import sqlite3
import subprocess

import optuna
import pytest

optuna.logging.set_verbosity(optuna.logging.ERROR)

ROOT = pathlib.Path(__file__).resolve().parents[2]
DRIVER = os.environ.get("KAJITORI_STUDY_DRIVER", str(ROOT / "build/tests/interop/study-driver"))
NAME = "研究 'a' \"b\" 🚀"
CHOICES = ["sgd", 'アダム "x"', None, 0.5, 3]


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/study.db"


def drive(url, *args, name=NAME):
    done = subprocess.run(
        [DRIVER, url, name, *map(str, args)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def ours(url, name=NAME):
    return [json.loads(line) for line in drive(url, "dump", name=name).splitlines()]


def load(url, name=NAME, **kwargs):
    return optuna.load_study(study_name=name, storage=url, **kwargs)


def same(a, b):
    if isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b):
        return True
    return a == b and type(a) is type(b)


def second(time):
    return "" if time is None else time.replace(microsecond=0).isoformat(" ")


def assert_both_see_the_same(url, name=NAME):
    mine, theirs = ours(url, name), load(url, name).trials
    assert [t["number"] for t in mine] == [t.number for t in theirs] == list(range(len(mine)))
    for a, b in zip(mine, theirs, strict=True):
        assert a["state"] == b.state.name
        assert (a["value"] is None) == (b.values is None)
        assert b.values is None or same(float(a["value"]), b.value)
        assert list(a["params"]) == list(b.params)
        assert all(same(a["params"][k], b.params[k]) for k in b.params), (a, b)
        assert [s for s, _ in a["reports"]] == sorted(b.intermediate_values)
        assert all(same(float(v), b.intermediate_values[s]) for s, v in a["reports"]), (a, b)
        assert a["attributes"] == b.user_attrs
        assert a["start"] == second(b.datetime_start)
        assert a["complete"] == second(b.datetime_complete)
    return mine, theirs


def objective(trial):
    """The search space of the driver, in Optuna's words."""
    trial.suggest_float("lr", 1e-5, 0.1, log=True)
    momentum = trial.suggest_float("momentum", -1, 1)
    trial.suggest_float("drop", 0, 0.9, step=0.3)
    units = trial.suggest_int("ユニット", 16, 128, step=16)
    trial.suggest_int("depth", 1, 64, log=True)
    trial.suggest_categorical("optimizer", CHOICES)
    trial.set_user_attr("メモ", {"by": "optuna", "nan": [1, None]})
    for step, extra in enumerate([1.0, math.nan, math.inf, 0.5]):
        trial.report(abs(momentum) + units / 128 + extra, step)
        if trial.should_prune():
            raise optuna.TrialPruned()
    return abs(momentum) + units / 128


def optimize(url, n, seed=1):
    study = load(
        url,
        sampler=optuna.samplers.RandomSampler(seed=seed),
        pruner=optuna.pruners.MedianPruner(n_startup_trials=4),
    )
    study.optimize(objective, n_trials=n)
    return study


def test_optuna_opens_what_kajitori_wrote(url):
    before = datetime.datetime.now()
    drive(url, "run", 24)
    mine, theirs = assert_both_see_the_same(url)
    study = load(url)
    assert study.direction.name == "MINIMIZE"
    states = {t.state.name for t in theirs}
    assert {"COMPLETE", "PRUNED", "FAIL"} <= states
    reports = [v for t in theirs for v in t.intermediate_values.values()]
    assert any(map(math.isnan, reports))
    assert {math.inf, -math.inf} <= set(reports)
    assert all(t["cut"] for t in mine if t["state"] == "PRUNED")
    now = datetime.datetime.now()
    assert all(before <= t.datetime_start <= t.datetime_complete <= now for t in theirs)
    first = theirs[0].distributions
    assert first["lr"] == optuna.distributions.FloatDistribution(1e-5, 0.1, log=True)
    assert first["drop"] == optuna.distributions.FloatDistribution(0, 0.9, step=0.3)
    assert first["ユニット"] == optuna.distributions.IntDistribution(16, 128, step=16)
    assert first["depth"] == optuna.distributions.IntDistribution(1, 64, log=True)
    assert first["optimizer"] == optuna.distributions.CategoricalDistribution(CHOICES)
    assert theirs[0].user_attrs["メモ"]["big"] == 2**65


def test_the_same_seed_proposes_what_optuna_proposes(url, tmp_path):
    """A new study in Optuna with the driver's seed: the same parameters, trial by trial."""
    drive(url, "run", 10)
    study = optuna.create_study(
        sampler=optuna.samplers.RandomSampler(seed=5), pruner=optuna.pruners.NopPruner()
    )
    for trial in load(url).trials:
        asked = study.ask(trial.distributions)
        assert list(asked.params) == list(trial.params)
        for name, value in trial.params.items():
            expected = asked.params[name]
            assert value == expected or math.isclose(value, expected, rel_tol=3e-16)
        study.tell(asked, 0.0)


def test_the_text_is_optunas_own(url, tmp_path):
    """Every distribution text of ours is, byte for byte, what Optuna writes for the same distribution."""
    drive(url, "run", 2)
    with sqlite3.connect(url.removeprefix("sqlite:///")) as db:
        rows = db.execute("SELECT DISTINCT distribution_json FROM trial_params").fetchall()
    assert len(rows) == 6
    for (text,) in rows:
        parsed = optuna.distributions.json_to_distribution(text)
        assert optuna.distributions.distribution_to_json(parsed) == text


def test_in_turns(url):
    drive(url, "run", 8)
    optimize(url, 10)
    assert_both_see_the_same(url)
    drive(url, "run", 8)
    optimize(url, 4, seed=2)
    drive(url, "run", 3)
    mine, theirs = assert_both_see_the_same(url)
    assert len(theirs) == 33
    assert min(t["value"] for t in mine if t["state"] == "COMPLETE") == load(url).best_value
    peers = [t for t in mine if t["cut"] and t["number"] >= 18]
    assert peers, "kajitori prunes against Optuna's trials too"


def test_at_the_same_time(url):
    """Both work on the study at once: every number once, nothing lost."""
    drive(url, "run", 1)
    driver = subprocess.Popen([DRIVER, url, NAME, "run", "25"], stderr=subprocess.PIPE, text=True)
    optimize(url, 10)
    assert driver.wait(timeout=60) == 0, driver.stderr.read()
    driver.stderr.close()
    _, theirs = assert_both_see_the_same(url)
    assert len(theirs) == 36
    assert sum(t.user_attrs["メモ"]["by"] == "optuna" for t in theirs) == 10


def test_kajitori_opens_what_optuna_wrote(url):
    study = optuna.create_study(study_name=NAME, storage=url)
    study.enqueue_trial({"momentum": 0.25, "optimizer": None}, user_attrs={"who": "me"})
    study.enqueue_trial({})
    drive(url, "run", 3)
    _, theirs = assert_both_see_the_same(url)
    assert theirs[0].params["momentum"] == 0.25
    assert theirs[0].params["optimizer"] is None
    assert theirs[0].user_attrs["who"] == "me"
    optimize(url, 6)
    assert_both_see_the_same(url)


def test_optuna_claims_what_kajitori_enqueued(url):
    drive(url, "enqueue", json.dumps({"lr": 0.05, "ユニット": 32, "optimizer": 'アダム "x"'}))
    study = load(url)
    (waiting,) = study.trials
    assert waiting.state.name == "WAITING"
    assert waiting.datetime_start is None
    assert waiting.system_attrs["fixed_params"]["ユニット"] == 32
    optimize(url, 2)
    assert load(url).trials[0].params["lr"] == 0.05
    assert load(url).trials[0].user_attrs["from"] == "driver"
    assert_both_see_the_same(url)


def test_a_changed_search_space_is_refused(url):
    drive(url, "run", 1)
    answer = drive(url, "space")
    assert answer.startswith("-1 ")
    assert "another log setting" in answer
    with pytest.raises(ValueError, match=r"compatible|different"):
        load(url).ask({"lr": optuna.distributions.FloatDistribution(0, 1)})
    assert load(url).trials[1].params == {}


def test_several_objectives_are_refused_in_one_line(url):
    optuna.create_study(study_name=NAME, storage=url, directions=["minimize", "maximize"])
    done = subprocess.run([DRIVER, url, NAME, "dump"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "has 2 objectives; only one is supported" in done.stderr


def test_optuna_checks_our_database_without_changing_it(url):
    drive(url, "run", 2)
    path = url.removeprefix("sqlite:///")
    with sqlite3.connect(path) as db:
        before = sorted(db.execute("SELECT name, sql FROM sqlite_master").fetchall())
    load(url).trials  # noqa: B018
    with sqlite3.connect(path) as db:
        assert sorted(db.execute("SELECT name, sql FROM sqlite_master").fetchall()) == before
        assert db.execute("SELECT * FROM alembic_version").fetchall() == [("v3.2.0.a",)]
