# SPDX-License-Identifier: Apache-2.0
"""PruningCallback of XGBoost, with trials of Optuna and a stub."""

import optuna
import pytest
import xgboost
from boosts import StubTrial, X, Y, doors
from test_xgboost import PARAMS, ROUNDS, TEST, TRAIN, Witness, train
from xgboost.callback import EarlyStopping

import kajitori
from kajitori.xgboost import PruningCallback, SteeringCallback

LOSS = "test-logloss"


def test_each_value_is_reported_once_at_its_own_iteration_and_asked_for_once():
    trial, history = StubTrial(), {}
    train(PruningCallback(trial, LOSS), evals_result=history)
    assert trial.reported == list(enumerate(history["test"]["logloss"]))
    assert trial.asked == ROUNDS


@pytest.mark.parametrize("at", [0, 5, ROUNDS - 1])
def test_all_callbacks_see_the_end_before_the_trial_is_pruned(at):
    trial, history = StubTrial(prune_at=at), {}
    before, behind = Witness(), Witness()
    cb, stopping = SteeringCallback(), EarlyStopping(rounds=ROUNDS)
    with pytest.raises(kajitori.TrialPruned, match=f"at step {at}, with {LOSS} = "):
        train(before, PruningCallback(trial, LOSS), cb, behind, stopping, evals_result=history)
    assert (before.iterations, before.ends) == (behind.iterations, behind.ends) == (at + 1, 1)
    assert len(stopping.stopping_history["test"]["logloss"]) == at + 1
    assert len(history["test"]["logloss"]) == at + 1
    assert trial.asked == at + 1
    assert (cb.run.closed, cb.run.should_stop, doors()) == (True, False, [])


def test_early_stopping_that_cuts_the_model_does_not_hide_it():
    trial = StubTrial(prune_at=5)
    with pytest.raises(kajitori.TrialPruned):
        train(PruningCallback(trial, LOSS), EarlyStopping(rounds=ROUNDS, save_best=True))


def test_the_model_that_another_callback_kept_is_a_plain_booster():
    kept = []

    class Keep(Witness):
        def after_training(self, model):
            kept.append(model)
            return model

    with pytest.raises(kajitori.TrialPruned):
        train(PruningCallback(StubTrial(prune_at=5), LOSS), Keep())
    assert type(kept[0]) is xgboost.Booster
    assert kept[0].reset().num_boosted_rounds() == 6


def test_a_metric_that_is_not_evaluated_is_named_with_those_that_are():
    with pytest.raises(kajitori.ArgumentError, match=r"nonsense is not.*there is test-logloss"):
        train(PruningCallback(StubTrial(), "nonsense"))
    with pytest.raises(kajitori.ArgumentError, match="no evals"):
        train(PruningCallback(StubTrial(), LOSS), evals=())
    with pytest.raises(kajitori.ArgumentError, match="trial of"):
        PruningCallback(3, LOSS)


def test_going_on_reports_behind_what_was_reported():
    trial = StubTrial()
    model = train(PruningCallback(trial, LOSS), rounds=4)
    train(PruningCallback(trial, LOSS), rounds=3, xgb_model=model)
    assert [step for step, _ in trial.reported] == list(range(7))


def test_cross_validation():
    trial, before, behind = StubTrial(prune_at=5), Witness(), Witness()
    callbacks = [before, PruningCallback(trial, LOSS), behind]
    with pytest.raises(kajitori.TrialPruned):
        xgboost.cv(PARAMS, TRAIN, ROUNDS, callbacks=callbacks)
    assert [step for step, _ in trial.reported] == list(range(6))
    assert (before.iterations, before.ends) == (behind.iterations, behind.ends) == (6, 1)


def test_a_study_of_optuna():
    """A fixed threshold prunes exactly the trials that learn nothing."""
    returned = []

    def objective(trial):
        rate = trial.suggest_categorical("rate", [0.0001, 0.5])
        model = train(PruningCallback(trial, LOSS), Witness(), params={"learning_rate": rate})
        returned.append(trial.number)
        return float(model.eval(TEST).rsplit(":", 1)[1])

    def fit(trial):
        estimator = xgboost.XGBClassifier(
            n_estimators=ROUNDS,
            n_jobs=1,
            learning_rate=0.0001,
            callbacks=[PruningCallback(trial, "validation_0-logloss")],
        )
        estimator.fit(X, Y, eval_set=[(X, Y)], verbose=False)

    sampler = optuna.samplers.GridSampler({"rate": [0.0001, 0.5]}, seed=0)
    pruner = optuna.pruners.ThresholdPruner(upper=0.6, n_warmup_steps=3)
    study = optuna.create_study(sampler=sampler, pruner=pruner)
    study.optimize(objective, n_trials=2)
    states = {trial.params["rate"]: trial for trial in study.trials}
    pruned, complete = states[0.0001], states[0.5]
    assert pruned.state == optuna.trial.TrialState.PRUNED
    assert complete.state == optuna.trial.TrialState.COMPLETE
    assert sorted(pruned.intermediate_values) == [0, 1, 2, 3]
    assert sorted(complete.intermediate_values) == list(range(ROUNDS))
    assert returned == [complete.number]
    study.enqueue_trial({})
    study.optimize(fit, n_trials=1)
    assert study.trials[-1].state == optuna.trial.TrialState.PRUNED
