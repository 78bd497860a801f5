# SPDX-License-Identifier: Apache-2.0
"""What SteeringCallback does to trainings of XGBoost."""

import copy
import gc
import os
import pickle
import threading

import boosts
import numpy as np
import pytest
import xgboost
from boosts import X_TEST, Y_TEST, X, Y, doors, refused, results, same, send, settled
from sklearn.base import clone
from training import PATIENCE
from xgboost.callback import EarlyStopping, LearningRateScheduler, TrainingCheckPoint

import kajitori
from kajitori.xgboost import SteeringCallback

PARAMS = {
    "nthread": 1,
    "verbosity": 0,
    "max_depth": 2,
    "objective": "binary:logistic",
    "learning_rate": 0.25,
}
TRAIN = xgboost.DMatrix(X, Y, nthread=1)
TEST = xgboost.DMatrix(X_TEST, Y_TEST, nthread=1)
ROUNDS = 20


class Witness(xgboost.callback.TrainingCallback):
    """Notes what XGBoost told it, and calls `do` when an iteration has run."""

    def __init__(self, do=None, at=3):
        self.do, self.at, self.iterations, self.ends = do, at, 0, 0

    def after_iteration(self, model, epoch, evals_log):
        self.iterations += 1
        if self.do is not None and epoch == self.at:
            self.do()
        return False

    def after_training(self, model):
        self.ends += 1
        return model


def sends(*lines, at=3):
    return Witness(lambda: send(*lines), at)


def train(*callbacks, rounds=ROUNDS, params=None, evals=((TEST, "test"),), **options):
    return xgboost.train(
        PARAMS | (params or {}),
        TRAIN,
        rounds,
        evals=evals,
        callbacks=callbacks,
        verbose_eval=False,
        **options,
    )


@pytest.mark.parametrize(
    ("line", "rounds"),
    [
        ("stop", 4),
        ("stop at=step:4", 4),
        ("stop at=step:8", 8),
        ("stop at=epoch", 4),
        ("stop at=epoch:6", 7),
        ("prune rule=mine", 4),
    ],
)
def test_a_stop_acts_between_two_iterations_and_all_callbacks_see_the_last_one(line, rounds):
    before, cb, behind, history = sends(line), SteeringCallback(), Witness(), {}
    stopping = EarlyStopping(rounds=ROUNDS)
    model = train(before, cb, behind, stopping, evals_result=history)
    assert model.num_boosted_rounds() == rounds
    assert len(history["test"]["logloss"]) == rounds
    assert (before.iterations, before.ends) == (behind.iterations, behind.ends) == (rounds, 1)
    assert len(stopping.stopping_history["test"]["logloss"]) == rounds
    assert (cb.step, cb.epoch, cb.iteration) == (rounds, rounds, rounds)
    assert cb.run.should_stop
    assert (cb.pruned, cb.run.ending) == (("prune" in line), line.split()[0])
    assert cb.run.closed
    assert same(model.predict(TEST), train(rounds=rounds).predict(TEST))


def test_what_waits_for_a_far_epoch_makes_no_iteration_look():
    class Counted(SteeringCallback):
        looks = 0

        def _look(self, *args):
            self.looks += 1
            return super()._look(*args)

    cb = Counted()
    model = train(sends("stop at=epoch:899", at=5), cb, rounds=2000, params={"max_depth": 1})
    assert model.num_boosted_rounds() == 900
    assert cb.looks < 300  # some by the clock


def test_what_comes_in_the_last_iteration_is_carried_out():
    cb = SteeringCallback(commands={"where": lambda cb: cb.model.num_boosted_rounds()})
    train(sends("where", at=ROUNDS - 1), cb)
    assert results("where") == [ROUNDS]


def test_early_stopping_ends_the_run_without_a_stop():
    stopping = EarlyStopping(rounds=3, save_best=True, min_delta=1.0)
    cb = SteeringCallback()
    model = train(cb, stopping)
    assert (cb.run.should_stop, cb.run.closed, cb.step) == (False, True, 4)
    assert model.num_boosted_rounds() == 1


def test_early_stopping_keeps_the_best_trees_after_a_stop():
    scores = iter([5, 1, *range(10, 100)])
    model = train(
        sends("stop", at=5),
        SteeringCallback(),
        EarlyStopping(rounds=50, save_best=True, metric_name="mine"),
        custom_metric=lambda predictions, data: ("mine", next(scores)),
    )
    assert (model.best_iteration, model.num_boosted_rounds()) == (1, 2)


def test_checkpoints_of_xgboost_are_written(tmp_path):
    saving = TrainingCheckPoint(tmp_path, interval=2)
    train(sends("stop", at=6), saving, SteeringCallback())
    assert sorted(path.name for path in tmp_path.glob("model_*")) == [
        f"model_{n}.ubj" for n in (2, 4, 6)
    ]


def test_status_and_a_pause():
    seen = {}

    def look():
        with kajitori.connect() as client:
            client.send("pause", wait="accepted")

            def meanwhile():
                with kajitori.connect() as other:
                    while (status := other.status())["state"] != "paused":
                        pass
                    seen.update(status, info=other.info)
                    other.send("set lr=0.5", wait="done", timeout=PATIENCE)
                    other.send("resume", wait="accepted")

            thread = threading.Thread(target=meanwhile, daemon=True)
            thread.start()
            seen["thread"] = thread

    model = train(Witness(look), SteeringCallback(name="boost"))
    seen["thread"].join(PATIENCE)
    assert model.num_boosted_rounds() == ROUNDS
    assert (seen["step"], seen["epoch"], seen["phase"]) == (4, 4, "train")
    assert (seen["total_steps"], seen["total_epochs"]) == (ROUNDS, ROUNDS)
    assert seen["info"].framework == f"xgboost {xgboost.__version__}"
    assert seen["params"]["lr"] == 0.25
    assert settled("set")[-1][:4] == ("done", 4, {"lr": 0.25}, {"lr": 0.5})


@pytest.mark.parametrize(
    "params",
    [{}, {"booster": "dart", "rate_drop": 0.5}, {"tree_method": "exact"}, {"booster": "gblinear"}],
    ids=str,
)
def test_set_lr_is_read_back_and_the_next_iteration_uses_it(params):
    if params.get("booster") == "gblinear":
        params = params | {"updater": "coord_descent"}
    steered = train(sends("set lr=0.5"), SteeringCallback(), params=params)
    expected = train(LearningRateScheduler([0.25] * 3 + [0.5] * 17), params=params)
    assert settled("set")[-1] == ("done", 4, {"lr": 0.25}, {"lr": 0.5}, None)
    assert same(steered.predict(TEST), expected.predict(TEST))
    assert not same(steered.predict(TEST), train(params=params).predict(TEST))


class Rates(Witness):
    """The learning rate that is in force when an iteration begins."""

    def __init__(self, steering):
        super().__init__()
        self.steering, self.rates = steering, []

    def before_iteration(self, model, epoch, evals_log):
        self.rates.append(self.steering._get_learning_rate())
        return False


@pytest.mark.parametrize("schedule", [[LearningRateScheduler(lambda n: 0.25 / (n + 2))], []])
def test_set_lr_holds_also_against_a_schedule(schedule):
    cb = SteeringCallback()
    seen = Rates(cb)
    train(*schedule, sends("set lr=0.5"), cb, seen)
    assert 0.5 not in seen.rates[:4]
    assert set(seen.rates[4:]) == {0.5}


@pytest.mark.parametrize("value", ["1e39", "1e-50"])
def test_set_lr_to_what_xgboost_cannot_hold_fails_and_the_training_goes_on(value):
    model = train(sends(f"set lr={value}"), SteeringCallback())
    assert [(line[0], line[4]) for line in settled("set")] == [
        ("failed", f"lr: {float(value)} is out of the range of XGBoost's numbers (float32)")
    ]
    assert same(model.predict(TEST), train().predict(TEST))


def test_set_lr_refuses_what_is_none():
    class Ask(Witness):
        def before_iteration(self, model, epoch, evals_log):
            if epoch == 0:
                self.reasons = refused("set lr=-1", "set lr=nan", "stop validate=no")
            return False

    ask = Ask()
    train(SteeringCallback(), ask)
    assert ">= 0" in ask.reasons["set lr=-1"]
    assert "finite" in ask.reasons["set lr=nan"]
    assert "validat" in ask.reasons["stop validate=no"]


@pytest.mark.parametrize("params", [{}, {"booster": "dart"}, {"booster": "gblinear"}], ids=str)
def test_a_callback_that_nobody_uses_changes_nothing(params):
    if params.get("booster") == "gblinear":
        params = params | {"updater": "coord_descent"}
    cb = SteeringCallback()
    assert same(
        train(sends("get lr"), cb, params=params).predict(TEST),
        train(params=params).predict(TEST),
    )


def test_going_on_from_a_checkpoint_is_exact(tmp_path, monkeypatch):
    folder = tmp_path / "checkpoints"
    with pytest.raises(kajitori.Left) as left:
        train(sends("pause level=leave at=step:10"), SteeringCallback(checkpoint_dir=folder))
    assert left.value.code == 75
    assert doors() == []
    (path,) = folder.iterdir()
    assert path.name == "step-00000010.ubj"
    assert results("pause")[-1]["checkpoint"]["path"] == str(path)
    monkeypatch.setenv("KAJITORI_CHECKPOINT", str(path))
    cb = SteeringCallback(checkpoint_dir=folder)
    assert cb.initial_iteration == 10
    model = train(cb, rounds=20 - cb.initial_iteration, xgb_model=cb.resumed_from or None)
    assert (cb.step, model.num_boosted_rounds()) == (20, 20)
    assert same(model.predict(TEST), train(rounds=20).predict(TEST))


def test_a_checkpoint_keeps_the_learning_rate_that_was_set(tmp_path):
    train(sends("set lr=0.5", "stop save=yes"), SteeringCallback(checkpoint_dir=tmp_path))
    (path,) = tmp_path.glob("step-*")
    cb = SteeringCallback()
    model = train(cb, rounds=6, xgb_model=path)
    expected = train(LearningRateScheduler([0.25] * 3 + [0.5] * 17), rounds=10)
    assert same(model.predict(TEST), expected.predict(TEST))
    assert model.attributes() == {}
    assert cb.run.closed


def test_a_checkpoint_now_and_one_that_fails(tmp_path):
    folder = tmp_path / "c"
    model = train(sends("checkpoint"), SteeringCallback(checkpoint_dir=folder))
    assert results("checkpoint") == [{"path": str(folder / "step-00000004.ubj")}]
    assert os.listdir(folder) == ["step-00000004.ubj"]
    saved = xgboost.Booster(model_file=folder / "step-00000004.ubj")
    assert same(saved.predict(TEST), model[:4].predict(TEST))
    (tmp_path / "file").write_text("")
    model = train(sends("stop save=yes"), SteeringCallback(checkpoint_dir=tmp_path / "file"))
    assert model.num_boosted_rounds() == ROUNDS
    assert settled("stop")[-1][0] == "failed"


def test_what_this_program_cannot_do_is_refused_with_the_reason():
    lines = ("checkpoint", "stop save=yes", "pause level=leave", "extend epochs=2")
    reasons = {}
    train(Witness(lambda: reasons.update(refused(*lines))), SteeringCallback())
    for line in lines[:3]:
        assert "no checkpoint_dir" in reasons[line]
    assert "rounds=N" in reasons["extend epochs=2"]


def test_extend_gives_the_training_more_iterations():
    cb = SteeringCallback(rounds=6)
    total = {}

    def extend():
        send("extend epochs=2", "extend steps=1")

    def look():
        with kajitori.connect() as client:
            total.update(client.status())

    model = train(Witness(extend), Witness(look, at=4), cb, rounds=10**9)
    assert results("extend")[-1] == {"total_steps": 9, "total_epochs": 9}
    assert (total["total_steps"], total["total_epochs"]) == (9, 9)
    assert not cb.run.should_stop
    assert same(model.predict(TEST), train(rounds=9).predict(TEST))
    more = train(SteeringCallback(rounds=12), rounds=10**9, xgb_model=model)
    assert same(more.predict(TEST), train(rounds=12).predict(TEST))


def test_extend_to_more_than_the_program_asked_for_fails():
    cb = SteeringCallback(rounds=6)
    model = train(sends("extend epochs=5"), cb, rounds=10)
    assert "no more than 10" in settled("extend")[-1][4]
    assert model.num_boosted_rounds() == 6


def test_an_extension_is_one_of_this_training():
    cb = SteeringCallback(rounds=6)
    assert train(sends("extend epochs=2"), cb, rounds=10).num_boosted_rounds() == 8
    assert train(cb, rounds=10).num_boosted_rounds() == 6


@pytest.mark.parametrize("rounds", [0, -1, 1.5, True, "x", float("nan"), float("inf")])
def test_rounds_is_a_number_of_iterations(rounds):
    with pytest.raises(kajitori.ArgumentError, match="rounds"):
        SteeringCallback(rounds=rounds)


@pytest.mark.parametrize(
    "options",
    [
        {"run": 3},
        {"checkpoint_dir": 3},
        {"commands": 3},
        {"commands": {"save": 3}},
        {"parameters": 3},
        {"parameters": [3]},
        {"parameters": {"depth": 3}},
    ],
)
def test_an_argument_that_cannot_be_is_named(options):
    name = next(iter(options)).removesuffix("s")
    with pytest.raises(kajitori.ArgumentError, match=f"^{name}"):
        SteeringCallback(**options)


def test_evaluate_says_the_metrics_of_the_iteration_that_has_run():
    history = {}
    train(sends("evaluate"), SteeringCallback(), evals_result=history)
    assert results("evaluate") == [{"test-logloss": history["test"]["logloss"][3]}]
    train(sends("evaluate"), SteeringCallback(), evals=())
    assert "evaluates nothing" in settled("evaluate")[-1][4]


def test_abort_leaves_at_once():
    witness = sends("abort")
    with pytest.raises(kajitori.Aborted) as caught:
        train(witness, SteeringCallback())
    assert caught.value.code == 77
    assert (witness.iterations, witness.ends) == (4, 0)
    assert doors() == []


def test_verbs_and_parameters_of_ones_own():
    depth = {"value": 2}

    def set_depth(value):
        cb.model.set_param("max_depth", value)
        depth["value"] = value

    def grow(cb, count):
        return [cb.iteration, cb.model.num_boosted_rounds(), count]

    cb = SteeringCallback(
        commands={"grow": (grow, {"count": int}), "fail": lambda cb: 1 / 0},
        parameters={"depth": (lambda: depth["value"], set_depth, 1, 8)},
    )
    model = train(sends("grow count=3", "fail", "set depth=1"), cb)
    assert results("grow") == [[4, 4, 3]]
    assert "division" in settled("fail")[-1][4]
    trees = model.get_dump()
    assert max(tree.count("\n") for tree in trees[4:]) == 3
    assert max(tree.count("\n") for tree in trees[:4]) == 7


def test_each_iteration_of_each_metric_reaches_the_stream(tmp_path):
    history = {}
    with kajitori.Run(events_dir=tmp_path) as run:
        train(
            SteeringCallback(run=run),
            evals=((TRAIN, "train"), (TEST, "test")),
            params={"eval_metric": ["error", "logloss"]},
            evals_result=history,
        )
    found = boosts.curves(tmp_path)
    assert sorted(found) == ["test-error", "test-logloss", "train-error", "train-logloss"]
    for name, points in found.items():
        data, metric = name.split("-")
        assert [step for step, _ in points] == list(range(ROUNDS))
        assert np.allclose([value for _, value in points], history[data][metric])


def test_cross_validation(tmp_path):
    def cv(*callbacks, rounds=ROUNDS):
        return xgboost.cv(PARAMS, TRAIN, rounds, nfold=2, callbacks=callbacks, as_pandas=False)

    reasons = {}
    with kajitori.Run(events_dir=tmp_path) as run:
        cb = SteeringCallback(run=run, checkpoint_dir=tmp_path / "c")
        ask = Witness(lambda: reasons.update(refused("checkpoint")))
        found = cv(ask, sends("set lr=0.5", "stop at=step:9"), cb)
    assert "several models" in reasons["checkpoint"]
    schedule = LearningRateScheduler([0.25] * 3 + [0.5] * 17)
    assert found == cv(schedule, rounds=9)
    curves = boosts.curves(tmp_path)
    assert sorted(curves) == sorted(found)
    assert np.allclose(
        [value for _, value in curves["test-logloss-mean"]], found["test-logloss-mean"]
    )


def test_estimators_and_their_clones(tmp_path):
    cb = SteeringCallback()
    estimator = xgboost.XGBClassifier(
        n_estimators=ROUNDS, max_depth=2, n_jobs=1, callbacks=[sends("stop"), cb]
    )
    estimator.fit(X, Y, eval_set=[(X_TEST, Y_TEST)], verbose=False)
    assert estimator.get_booster().num_boosted_rounds() == 4
    assert len(estimator.evals_result()["validation_0"]["logloss"]) == 4
    assert estimator.predict(X_TEST).shape == Y_TEST.shape
    other = clone(estimator)
    other.callbacks[0].iterations = 0
    other.fit(X, Y, verbose=False)
    assert other.callbacks[1] is not cb
    assert other.callbacks[1].run.id != cb.run.id
    assert other.get_booster().num_boosted_rounds() == 4


def test_a_copy_has_no_part_in_the_run():
    made = []

    def do():
        made.extend([copy.deepcopy(cb), pickle.loads(pickle.dumps(cb))])

    cb = SteeringCallback(name="one", rounds=8)
    train(Witness(do), cb)
    for other in made:
        assert (other.run, other.model) == (None, None)
        assert train(other).num_boosted_rounds() == 8


def test_trainings_one_after_the_other_and_one_inside_of_another():
    cb = SteeringCallback()
    ids = []
    for _ in range(2):
        train(cb, rounds=3)
        ids.append(cb.run.id)
    assert len(set(ids)) == 2

    def inner(cb):
        """Trains another model meanwhile."""
        return train(SteeringCallback(name="inner"), rounds=2).num_boosted_rounds()

    cb = SteeringCallback(commands={"inner": inner})
    model = train(sends("inner"), cb)
    assert (results("inner", cb.run.id), model.num_boosted_rounds()) == ([2], ROUNDS)


def test_a_callback_that_is_in_a_training_is_refused_in_one_inside_of_it():
    cb, refusals = SteeringCallback(), []

    def inner():
        with pytest.raises(kajitori.ArgumentError, match="needs a callback of its own") as caught:
            train(cb, rounds=3)
        refusals.append(caught.typename)

    assert train(Witness(inner), cb).num_boosted_rounds() == ROUNDS
    assert refusals == ["ArgumentError"]
    assert cb.run.closed


def test_one_run_for_several_trainings():
    with kajitori.Run() as run:
        cb = SteeringCallback(run=run)
        train(cb, rounds=5)
        train(sends("stop at=step:8", at=0), cb, rounds=5)
        assert (run.step, run.closed) == (8, False)
        assert cb.model.num_boosted_rounds() == 3
        train(cb)
        assert cb.model.num_boosted_rounds() == 0  # a run that was stopped stays so


def test_an_exception_out_of_the_training_leaves_no_door():
    cb = SteeringCallback()
    with pytest.raises(ZeroDivisionError):
        train(cb, Witness(lambda: 1 / 0))
    gc.collect()
    assert (cb.run.closed, doors()) == (True, [])
    assert train(cb).num_boosted_rounds() == ROUNDS
