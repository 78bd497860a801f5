# SPDX-License-Identifier: Apache-2.0
"""What the pruning callbacks of all frameworks share."""

import math

import optuna
import pytest

import kajitori
from kajitori._pruning import Pruning


class Trial:
    """Prunes at a step; keeps what it was told and asked."""

    def __init__(self, at=None):
        self.at = at
        self.calls = []

    def report(self, value, step):
        self.calls.append((step, value))

    def should_prune(self):
        self.calls.append("?")
        return self.at is not None and self.calls[-2][0] >= self.at


def test_each_step_is_reported_and_asked_for_once():
    trial = Trial()
    pruning = Pruning(trial, "loss")
    assert not any(pruning.look(value, step) for step, value in [(1, 3), (1, 2), (5, 1), (4, 9)])
    assert trial.calls == [(1, 3.0), "?", (5, 1.0), "?"]


def test_pruned_stays_pruned():
    trial = Trial(at=2)
    pruning = Pruning(trial, "loss")
    assert [pruning.look(0.5, step) for step in range(5)] == [False, False, True, True, True]
    assert trial.calls[-2:] == [(2, 0.5), "?"]
    with pytest.raises(kajitori.TrialPruned, match=r"^pruned at step 2, with loss = 0\.5$"):
        raise pruning.exception()


def test_what_is_no_number_is_a_value():
    trial = Trial()
    Pruning(trial, "loss").look(math.nan, 0)
    assert math.isnan(trial.calls[0][1])


def test_a_trial_of_optuna_gets_its_exception():
    study = optuna.create_study(pruner=optuna.pruners.ThresholdPruner(upper=1.0))

    def objective(trial):
        pruning = Pruning(trial, "loss")
        for step in range(5):
            if pruning.look(float(step), step):
                raise pruning.exception()
        return 0.0

    study.optimize(objective, n_trials=1)
    (trial,) = study.trials
    assert trial.state == optuna.trial.TrialState.PRUNED
    assert trial.intermediate_values == {0: 0.0, 1: 1.0, 2: 2.0}


def test_what_is_no_trial_is_refused():
    with pytest.raises(kajitori.ArgumentError, match=r"^trial: int has no report and should_prune"):
        Pruning(3, "loss")
