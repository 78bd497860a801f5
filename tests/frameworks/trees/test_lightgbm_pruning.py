# SPDX-License-Identifier: Apache-2.0
"""PruningCallback of LightGBM, with trials of Optuna and a stub."""

import gc

import lightgbm
import optuna
import pytest
from boosts import X_TEST, Y_TEST, StubTrial, X, Y, doors
from test_lightgbm import PARAMS, ROUNDS, Witness, train

import kajitori
from kajitori.lightgbm import PruningCallback, SteeringCallback

LOSS = "binary_logloss"


def test_each_value_is_reported_once_at_its_own_iteration_and_asked_for_once():
    trial, history = StubTrial(), {}
    early = lightgbm.early_stopping(ROUNDS, verbose=False)  # ends the last iteration, too
    train(PruningCallback(trial, LOSS), early, lightgbm.record_evaluation(history))
    assert trial.reported == list(enumerate(history["valid_0"][LOSS]))
    assert trial.asked == ROUNDS


def test_the_arguments_of_optuna_s_callback():
    trial = StubTrial()
    train(PruningCallback(trial, LOSS, "mine", 5), valid_names=["mine"])
    assert [step for step, _ in trial.reported] == [4, 9, 14, 19]


@pytest.mark.parametrize("at", [0, 5, ROUNDS - 1])
def test_the_others_have_seen_the_iteration_when_the_trial_is_pruned(at):
    trial, history = StubTrial(prune_at=at), {}
    cb, witness = SteeringCallback(), Witness()
    with pytest.raises(kajitori.TrialPruned, match=f"at step {at}, with {LOSS} = "):
        train(PruningCallback(trial, LOSS), cb, witness, lightgbm.record_evaluation(history))
    assert witness.iterations == at + 1
    assert len(history["valid_0"][LOSS]) == at + 1
    assert trial.asked == at + 1
    gc.collect()
    assert doors() == []


def test_a_metric_that_is_not_evaluated_is_named_with_those_that_are():
    with pytest.raises(kajitori.ArgumentError, match=r"nonsense of valid_0 is not.*valid_0 binary"):
        train(PruningCallback(StubTrial(), "nonsense"))
    with pytest.raises(kajitori.ArgumentError, match="no valid_sets"):
        train(PruningCallback(StubTrial(), LOSS), valid=())
    with pytest.raises(kajitori.ArgumentError, match="trial of"):
        PruningCallback(3, LOSS)
    with pytest.raises(kajitori.ArgumentError, match="report_interval"):
        PruningCallback(StubTrial(), LOSS, "valid_0", 0)


def test_going_on_reports_behind_what_was_reported():
    trial = StubTrial()
    model = train(PruningCallback(trial, LOSS), rounds=4)
    train(PruningCallback(trial, LOSS), rounds=3, init_model=model)
    assert [step for step, _ in trial.reported] == list(range(7))


def test_cross_validation():
    trial = StubTrial(prune_at=5)
    data = lightgbm.Dataset(X, Y)
    with pytest.raises(kajitori.TrialPruned):
        lightgbm.cv(PARAMS, data, ROUNDS, callbacks=[PruningCallback(trial, LOSS)])
    assert [step for step, _ in trial.reported] == list(range(6))


def test_a_study_of_optuna():
    """A fixed threshold prunes exactly the trials that learn nothing."""

    def objective(trial):
        rate = trial.suggest_categorical("rate", [0.0001, 0.5])
        model = train(PruningCallback(trial, LOSS), params={"learning_rate": rate})
        return model.best_score["valid_0"][LOSS]

    def fit(trial):
        estimator = lightgbm.LGBMClassifier(
            n_estimators=ROUNDS, n_jobs=1, learning_rate=0.0001, verbosity=-1
        )
        callbacks = [PruningCallback(trial, LOSS)]
        estimator.fit(X, Y, eval_X=(X_TEST,), eval_y=(Y_TEST,), callbacks=callbacks)

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
    study.enqueue_trial({})
    study.optimize(fit, n_trials=1)
    assert study.trials[-1].state == optuna.trial.TrialState.PRUNED


def test_a_study_with_the_opposite_direction_is_told():
    study = optuna.create_study(direction="maximize")
    with pytest.raises(kajitori.ArgumentError, match="binary_logloss is to be minimized"):
        study.optimize(lambda trial: train(PruningCallback(trial, LOSS)), n_trials=1)
