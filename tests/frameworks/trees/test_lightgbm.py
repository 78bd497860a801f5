# SPDX-License-Identifier: Apache-2.0
"""What SteeringCallback does to trainings of LightGBM."""

import copy
import gc
import os
import pickle
import threading

import boosts
import lightgbm
import numpy as np
import pytest
from boosts import X_TEST, Y_TEST, X, Y, doors, refused, results, same, send, settled
from sklearn.base import clone
from training import PATIENCE

import kajitori
from kajitori.lightgbm import SteeringCallback

PARAMS = {
    "num_threads": 1,
    "num_leaves": 4,
    "objective": "binary",
    "learning_rate": 0.25,
    "verbosity": -1,
    "deterministic": True,
}
ROUNDS = 20


class Witness:
    """Counts iterations, and calls `do` when one has run. A function of a user comes before ours."""

    def __init__(self, do=None, at=3, order=0):
        self.do, self.at, self.order, self.iterations = do, at, order, 0

    def __call__(self, env):
        self.iterations += 1
        if self.do is not None and env.iteration == self.at:
            self.do()


def sends(*lines, at=3):
    return Witness(lambda: send(*lines), at)


def train(*callbacks, rounds=ROUNDS, params=None, valid=("test",), **options):
    data = {"train": lightgbm.Dataset(X, Y, free_raw_data=False)}
    data["test"] = lightgbm.Dataset(X_TEST, Y_TEST, reference=data["train"])
    return lightgbm.train(
        PARAMS | (params or {}),
        data["train"],
        rounds,
        valid_sets=[data[name] for name in valid],
        callbacks=list(callbacks),
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
def test_a_stop_leaves_what_a_training_of_so_many_iterations_leaves(line, rounds):
    witness, cb, history = sends(line), SteeringCallback(), {}
    model = train(witness, cb, lightgbm.record_evaluation(history))
    plain = train(rounds=rounds)
    assert (model.num_trees(), model.current_iteration()) == (rounds, rounds)
    assert len(history["valid_0"]["binary_logloss"]) == rounds
    assert witness.iterations == rounds
    assert (model.best_iteration, model.best_score) == (plain.best_iteration, plain.best_score)
    assert same(model.predict(X_TEST), plain.predict(X_TEST))
    assert (cb.step, cb.epoch, cb.iteration) == (rounds, rounds, rounds)
    assert cb.run.should_stop
    assert (cb.pruned, cb.run.ending) == (("prune" in line), line.split()[0])
    assert cb.run.closed


def test_what_waits_for_a_far_epoch_makes_no_iteration_look():
    class Counted(SteeringCallback):
        looks = 0

        def _look(self, *args):
            self.looks += 1
            return super()._look(*args)

    cb = Counted()
    model = train(sends("stop at=epoch:899", at=5), cb, rounds=2000, params={"num_leaves": 2})
    assert model.num_trees() == 900
    assert cb.looks < 300  # some by the clock


def test_what_comes_in_the_last_iteration_is_carried_out():
    cb = SteeringCallback(commands={"where": lambda cb: cb.model.current_iteration()})
    model = train(sends("where", "stop", at=ROUNDS - 1), cb)
    assert results("where") == [ROUNDS]
    assert (model.num_trees(), cb.run.should_stop, cb.run.closed) == (ROUNDS, True, True)


def scores(*values):
    """A metric with these values, one an iteration, then worse ones."""
    values = [*values, *range(100, 200)]
    return lambda predictions, data: ("mine", values.pop(0), False)


@pytest.mark.parametrize("by_parameter", [False, True])
def test_early_stopping_takes_a_stop_for_the_end(by_parameter):
    """LightGBM then keeps the trees up to the best iteration."""
    params = {"metric": "None"} | ({"early_stopping_round": 50} if by_parameter else {})
    early = [] if by_parameter else [lightgbm.early_stopping(50, verbose=False)]
    for rounds, callbacks in ((ROUNDS, [sends("stop", at=5), SteeringCallback()]), (6, [])):
        model = train(*callbacks, *early, params=params, feval=scores(5, 1, 7), rounds=rounds)
        assert (model.best_iteration, model.num_trees()) == (2, 2)
        assert model.best_score["valid_0"]["mine"] == 1


def test_early_stopping_ends_the_run_without_a_stop():
    cb = SteeringCallback()
    stopping = lightgbm.early_stopping(3, verbose=False)
    model = train(cb, stopping, params={"metric": "None"}, feval=scores(5, 1, 7))
    assert (cb.run.should_stop, cb.run.closed, doors()) == (False, True, [])
    assert (model.best_iteration, cb.step) == (2, 5)


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

        seen["thread"] = threading.Thread(target=meanwhile, daemon=True)
        seen["thread"].start()

    model = train(Witness(look), SteeringCallback(name="boost"))
    seen["thread"].join(PATIENCE)
    assert model.num_trees() == ROUNDS
    assert (seen["step"], seen["epoch"], seen["phase"]) == (4, 4, "train")
    assert (seen["total_steps"], seen["total_epochs"]) == (ROUNDS, ROUNDS)
    assert seen["info"].framework == f"lightgbm {lightgbm.__version__}"
    assert seen["params"]["lr"] == 0.25
    assert settled("set")[-1][:4] == ("done", 4, {"lr": 0.25}, {"lr": 0.5})


def scheduled(*rates):
    return lightgbm.reset_parameter(learning_rate=[*rates])


@pytest.mark.parametrize(
    "params", [{}, {"boosting": "dart"}, {"data_sample_strategy": "goss"}], ids=str
)
@pytest.mark.parametrize("name", ["learning_rate", "eta"])
def test_set_lr_is_read_back_and_the_next_iteration_uses_it(params, name):
    rate = {"learning_rate": 0.25} if name == "learning_rate" else {"eta": 0.25}
    params = params | rate
    cb = SteeringCallback()
    value = 0.512345678901
    steered = train(sends(f"set lr={value}"), cb, params=params)
    expected = train(scheduled(*[0.25] * 4, *[value] * 16), params=params)
    assert settled("set")[-1] == ("done", 4, {"lr": 0.25}, {"lr": value}, None)
    assert same(steered.predict(X_TEST), expected.predict(X_TEST))
    assert not same(steered.predict(X_TEST), train(params=params).predict(X_TEST))


@pytest.mark.parametrize("name", ["learning_rate", "eta"])
def test_set_lr_puts_a_schedule_out_of_force_until_the_end(name):
    schedule = lightgbm.reset_parameter(**{name: lambda n: 0.25 / (n + 1)})
    alone = train(schedule).predict(X_TEST)
    steered = train(schedule, sends("set lr=0.5"), SteeringCallback())
    rates = [0.25 / (n + 1) for n in range(4)] + [0.5] * 16
    assert same(steered.predict(X_TEST), train(scheduled(*rates)).predict(X_TEST))
    assert same(train(schedule).predict(X_TEST), alone)


def test_set_lr_refuses_what_is_none():
    reasons = {}
    lines = ("set lr=0", "set lr=nan", "stop validate=no")
    train(Witness(lambda: reasons.update(refused(*lines))), SteeringCallback())
    assert "> 0" in reasons["set lr=0"]
    assert "finite" in reasons["set lr=nan"]
    assert "validat" in reasons["stop validate=no"]
    forest = {"boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.5}
    ask = Witness(lambda: reasons.update(refused("set lr=0.5")))
    train(ask, SteeringCallback(), params=forest)
    assert "lr" in reasons["set lr=0.5"]


@pytest.mark.parametrize("params", [{}, {"boosting": "dart"}], ids=str)
def test_a_callback_that_nobody_uses_changes_nothing(params):
    seen = []
    keep = Witness(lambda: None)
    keep.__class__ = type("Keep", (Witness,), {"__call__": lambda self, env: seen.append(env)})
    steered = train(sends("get lr"), SteeringCallback(), keep, params=params)
    assert same(steered.predict(X_TEST), train(params=params).predict(X_TEST))
    assert steered.params == train(params=params).params
    assert set(seen[-1].params) - set(seen[-1].model.params) == {"kajitori"}


def test_going_on_from_a_checkpoint_is_exact(tmp_path, monkeypatch):
    folder = tmp_path / "checkpoints"
    with pytest.raises(kajitori.Left) as left:
        train(sends("pause level=leave at=step:10"), SteeringCallback(checkpoint_dir=folder))
    assert left.value.code == 75
    assert doors() == []
    (path,) = folder.iterdir()
    assert path.name == "step-00000010.txt"
    assert results("pause")[-1]["checkpoint"]["path"] == str(path)
    monkeypatch.setenv("KAJITORI_CHECKPOINT", str(path))
    cb = SteeringCallback(checkpoint_dir=folder)
    assert (cb.initial_iteration, cb.resumed_params) == (10, {"learning_rate": 0.25})
    model = train(cb, rounds=20 - cb.initial_iteration, init_model=cb.resumed_from or None)
    assert (cb.step, model.num_trees()) == (20, 20)
    assert same(model.predict(X_TEST), train(rounds=20).predict(X_TEST))


def test_going_on_keeps_the_learning_rate_that_was_set(tmp_path, monkeypatch):
    train(sends("set lr=0.5", "stop save=yes"), SteeringCallback(checkpoint_dir=tmp_path))
    (path,) = tmp_path.glob("step-*")
    monkeypatch.setenv("KAJITORI_CHECKPOINT", str(path))
    cb = SteeringCallback(checkpoint_dir=tmp_path)
    exact = train(cb, rounds=6, init_model=cb.resumed_from, params=cb.resumed_params)
    expected = train(scheduled(*[0.25] * 4, *[0.5] * 6), rounds=10)
    assert same(exact.predict(X_TEST), expected.predict(X_TEST))
    model = train(cb, rounds=6, init_model=cb.resumed_from)
    expected = train(scheduled(*[0.25] * 5, *[0.5] * 5), rounds=10)
    tail = [tree["shrinkage"] for tree in model.dump_model()["tree_info"][4:]]
    assert tail == [0.25, 0.5, 0.5, 0.5, 0.5, 0.5]
    monkeypatch.delenv("KAJITORI_CHECKPOINT")
    assert (cb.initial_iteration, cb.resumed_params) == (0, {})


def test_a_checkpoint_now_and_one_that_fails(tmp_path):
    folder = tmp_path / "c"
    model = train(sends("checkpoint"), SteeringCallback(checkpoint_dir=folder))
    assert results("checkpoint") == [{"path": str(folder / "step-00000004.txt")}]
    assert os.listdir(folder) == ["step-00000004.txt"]
    saved = lightgbm.Booster(model_file=folder / "step-00000004.txt")
    assert same(saved.predict(X_TEST), model.predict(X_TEST, num_iteration=4))
    (tmp_path / "file").write_text("")
    model = train(sends("stop save=yes"), SteeringCallback(checkpoint_dir=tmp_path / "file"))
    assert model.num_trees() == ROUNDS
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

    def look():
        with kajitori.connect() as client:
            total.update(client.status())

    model = train(sends("extend epochs=2", "extend steps=1"), Witness(look, at=4), cb, rounds=50)
    assert results("extend")[-1] == {"total_steps": 9, "total_epochs": 9}
    assert (total["total_steps"], total["total_epochs"]) == (9, 9)
    assert not cb.run.should_stop
    assert same(model.predict(X_TEST), train(rounds=9).predict(X_TEST))
    more = train(SteeringCallback(rounds=12), rounds=50, init_model=model)
    assert same(more.predict(X_TEST), train(rounds=12).predict(X_TEST))


def test_extend_to_more_than_the_program_asked_for_fails():
    cb = SteeringCallback(rounds=6)
    model = train(sends("extend epochs=5"), cb, rounds=10)
    assert "no more than 10" in settled("extend")[-1][4]
    assert model.num_trees() == 6


def test_an_extension_is_one_of_this_training():
    cb = SteeringCallback(rounds=6)
    assert train(sends("extend epochs=2"), cb, rounds=10).num_trees() == 8
    assert train(cb, rounds=10).num_trees() == 6


def test_evaluate_says_the_metrics_of_the_iteration_that_has_run():
    history = {}
    train(sends("evaluate"), SteeringCallback(), lightgbm.record_evaluation(history))
    value = history["valid_0"]["binary_logloss"][3]
    assert results("evaluate") == [{"valid_0-binary_logloss": value}]
    train(sends("evaluate"), SteeringCallback(), valid=())
    assert "evaluates nothing" in settled("evaluate")[-1][4]


def test_abort_leaves_at_once():
    witness, later = sends("abort"), Witness(order=100)
    with pytest.raises(kajitori.Aborted) as caught:
        train(witness, SteeringCallback(), later)
    assert caught.value.code == 77
    assert (witness.iterations, later.iterations) == (4, 3)
    assert doors() == []


def test_verbs_and_parameters_of_ones_own():
    leaves = {"value": 4}

    def set_leaves(value):
        cb.model.reset_parameter({"num_leaves": value})
        leaves["value"] = value

    def grow(cb, count):
        return [cb.iteration, cb.model.current_iteration(), count]

    cb = SteeringCallback(
        commands={"grow": (grow, {"count": int}), "fail": lambda cb: 1 / 0},
        parameters={"leaves": (lambda: leaves["value"], set_leaves, 2, 8)},
    )
    model = train(sends("grow count=3", "fail", "set leaves=2"), cb)
    assert results("grow") == [[4, 4, 3]]
    assert "division" in settled("fail")[-1][4]
    sizes = [tree["num_leaves"] for tree in model.dump_model()["tree_info"]]
    assert sizes == [4] * 4 + [2] * 16


def test_each_iteration_of_each_metric_reaches_the_stream(tmp_path):
    history = {}
    with kajitori.Run(events_dir=tmp_path) as run:
        train(
            SteeringCallback(run=run),
            lightgbm.record_evaluation(history),
            lightgbm.early_stopping(ROUNDS, verbose=False),
            valid=("train", "test"),
            valid_names=["train", "test"],
            params={"metric": ["binary_error", "auc"]},
        )
    found = boosts.curves(tmp_path)
    names = ["test-auc", "test-binary_error", "train-auc", "train-binary_error"]
    assert sorted(found) == names
    for name, points in found.items():
        data, metric = name.split("-")
        assert [step for step, _ in points] == list(range(ROUNDS))
        assert np.allclose([value for _, value in points], history[data][metric])


def test_cross_validation(tmp_path):
    def cv(*callbacks, rounds=ROUNDS):
        data = lightgbm.Dataset(X, Y)
        return lightgbm.cv(PARAMS, data, rounds, nfold=2, callbacks=list(callbacks))

    reasons = {}
    with kajitori.Run(events_dir=tmp_path) as run:
        cb = SteeringCallback(run=run, checkpoint_dir=tmp_path / "c")
        ask = Witness(lambda: reasons.update(refused("checkpoint")))
        found = cv(ask, sends("set lr=0.5", "stop at=step:9"), cb)
    assert "several models" in reasons["checkpoint"]
    assert found == cv(scheduled(*[0.25] * 4, *[0.5] * 5), rounds=9)
    curves = boosts.curves(tmp_path)
    names = ["valid-binary_logloss-mean", "valid-binary_logloss-stdv"]
    assert sorted(curves) == names
    values = [value for _, value in curves[names[0]]]
    assert np.allclose(values, found["valid binary_logloss-mean"])


def test_estimators():
    cb, history = SteeringCallback(), {}
    estimator = lightgbm.LGBMClassifier(n_estimators=ROUNDS, num_leaves=4, n_jobs=1, verbosity=-1)
    record = lightgbm.record_evaluation(history)
    for fitted in (estimator, clone(estimator)):
        fitted.fit(X, Y, eval_X=(X_TEST,), eval_y=(Y_TEST,), callbacks=[sends("stop"), cb, record])
        assert fitted.n_estimators_ == 4
        assert len(fitted.evals_result_["valid_0"]["binary_logloss"]) == 4
        assert fitted.predict(X_TEST).shape == Y_TEST.shape


def test_a_copy_has_no_part_in_the_run():
    made = []

    def do():
        made.extend([copy.deepcopy(cb), pickle.loads(pickle.dumps(cb))])

    cb = SteeringCallback(name="one", rounds=8)
    train(Witness(do), Witness(do, at=5), cb)
    assert len(made) == 4
    for other in made:
        assert (other.run, other.model) == (None, None)
        assert train(other).num_trees() == 8


def test_trainings_one_after_the_other_and_one_inside_of_another():
    cb = SteeringCallback()
    ids = []
    for _ in range(2):
        train(cb, rounds=3)
        ids.append(cb.run.id)
    assert len(set(ids)) == 2

    def inner(cb):
        """Trains another model meanwhile."""
        return train(SteeringCallback(name="inner"), rounds=2).num_trees()

    cb = SteeringCallback(commands={"inner": inner})
    model = train(sends("inner"), cb)
    assert (results("inner", cb.run.id), model.num_trees()) == ([2], ROUNDS)


def test_a_callback_that_is_in_a_training_is_refused_in_one_inside_of_it():
    cb, refusals = SteeringCallback(), []

    def inner():
        with pytest.raises(kajitori.ArgumentError, match="needs a callback of its own") as caught:
            train(cb, rounds=3)
        refusals.append(caught.typename)

    assert train(Witness(inner), cb).num_trees() == ROUNDS
    assert refusals == ["ArgumentError"]
    assert cb.run.closed


def test_one_run_for_several_trainings():
    with kajitori.Run() as run:
        cb = SteeringCallback(run=run)
        train(cb, rounds=5)
        model = train(sends("stop at=step:8", at=0), cb, rounds=5)
        assert (run.step, run.closed) == (8, False)
        assert model.num_trees() == 3
        assert train(cb).num_trees() == 1  # a run that was stopped stays so


def test_an_exception_out_of_the_training_leaves_no_door():
    cb = SteeringCallback()
    with pytest.raises(ZeroDivisionError):
        train(Witness(lambda: 1 / 0), cb)
    gc.collect()
    assert (cb.run.closed, doors()) == (True, [])
    assert train(cb).num_trees() == ROUNDS


def test_an_exception_that_somebody_keeps():
    cb = SteeringCallback()
    try:
        train(Witness(lambda: 1 / 0), cb)
    except ZeroDivisionError as error:
        kept = error
    model = train(sends("stop", at=5), cb)
    assert (model.num_trees(), cb.step) == (6, 6)
    assert cb.run.closed
    assert train(cb).num_trees() == ROUNDS
    del kept
