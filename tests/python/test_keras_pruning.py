# SPDX-License-Identifier: Apache-2.0
"""PruningCallback in real trainings: what the trial is told, what the other callbacks are, and what the
caller of fit gets."""

import math
import warnings

import keras
import numpy as np
import optuna
import pytest
from fits import STEPS, Guard, X, Y, fit, has_files, make_model
from test_keras_fits import Send

import kajitori
from kajitori.keras import PruningCallback, SteeringCallback

pytestmark = [
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
    pytest.mark.usefixtures("fresh_keras"),
]


class Trial:
    """Prunes from a step on; keeps what it was told, and how often it was asked."""

    def __init__(self, at=None):
        self.at, self.values, self.asked = at, {}, 0

    def report(self, value, step):
        assert step not in self.values
        self.values[step] = value

    def should_prune(self):
        self.asked += 1
        return self.at is not None and max(self.values) >= self.at


class Ends(keras.callbacks.Callback):
    """Which hooks of an end it got."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def on_epoch_end(self, epoch, logs=None):
        self.seen.append(epoch)

    def on_train_end(self, logs=None):
        self.seen.append("train")


@pytest.mark.parametrize("place", [0, 1, 2])
def test_every_other_callback_gets_its_end_wherever_ours_stands(place):
    trial, first, last = Trial(at=2), Ends(), Ends()
    callbacks = [first, last]
    callbacks.insert(place, PruningCallback(trial, "loss"))
    model = make_model()
    with pytest.raises(kajitori.TrialPruned, match=r"^pruned at step 2, with loss = "):
        model.fit(X, Y, batch_size=8, epochs=9, verbose=0, callbacks=callbacks)
    assert first.seen == last.seen == [0, 1, 2, "train"]
    assert list(trial.values) == [0, 1, 2]
    assert trial.asked == 3
    history = model.fit(X, Y, batch_size=8, epochs=2, verbose=0)
    assert history.epoch == [0, 1], "the next fit is a whole one"


def test_the_best_weights_are_put_back_and_the_backup_is_removed(tmp_path):
    """What on_train_end is there for, and Optuna's own callback leaves out."""
    best = keras.callbacks.EarlyStopping(monitor="loss", mode="max", restore_best_weights=True)
    backup = keras.callbacks.BackupAndRestore(tmp_path / "backup")
    kept = []
    keep = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: kept.append(model.get_weights())
    )
    model = make_model()
    with pytest.raises(kajitori.TrialPruned):
        fit(model, PruningCallback(Trial(at=1), "loss"), best, backup, keep, epochs=9)
    for weights, expected in zip(model.get_weights(), kept[0], strict=True):
        np.testing.assert_array_equal(weights, expected)
    assert not has_files(tmp_path / "backup")


def test_all_of_ten_trials_get_their_end():
    """Of ten trials that Optuna's own callback prunes, four get an on_train_end."""
    study = optuna.create_study(pruner=optuna.pruners.ThresholdPruner(upper=100.0))
    model, ended = make_model(learning_rate=0.0), []
    end = keras.callbacks.LambdaCallback(on_train_end=lambda logs: ended.append(logs))

    def objective(trial):
        scale = 1.0 if trial.number % 3 == 0 else 1e3
        history = model.fit(
            X[:16],
            scale * Y[:16],
            batch_size=8,
            epochs=3,
            verbose=0,
            callbacks=[PruningCallback(trial, "loss"), end],
        )
        return history.history["loss"][-1]

    study.optimize(objective, n_trials=10)
    states = [trial.state.name for trial in study.trials]
    assert states == ["COMPLETE" if k % 3 == 0 else "PRUNED" for k in range(10)]
    assert len(ended) == 10
    assert [len(trial.intermediate_values) for trial in study.trials[:2]] == [3, 1]


def test_it_takes_the_arguments_of_optunas_callback():
    trial = Trial()
    fit(make_model(), PruningCallback(trial, monitor="mae", interval=2), epochs=5)
    assert list(trial.values) == [1, 3]
    with pytest.raises(kajitori.ArgumentError, match="interval: 0 is no number of epochs"):
        PruningCallback(trial, "loss", interval=0)
    with pytest.raises(kajitori.ArgumentError, match="trial: int has no report"):
        PruningCallback(3, "loss")
    with pytest.raises(kajitori.ArgumentError, match="trial: the class Trial"):
        PruningCallback(Trial, "loss")
    with pytest.raises(kajitori.ArgumentError, match=r"metric: \['loss'\] is no name"):
        PruningCallback(trial, ["loss"])


def test_what_is_no_number_is_reported():
    trial = Trial()
    nan = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: logs.update(own=math.nan))
    fit(make_model(), nan, PruningCallback(trial, "own"), epochs=1)
    assert math.isnan(trial.values[0])


def test_a_metric_that_is_missing_is_told_once_with_those_that_exist():
    trial = Trial()
    with pytest.warns(UserWarning, match=r"no metric 'accuracy', .*there are loss, mae$") as seen:
        fit(make_model(), PruningCallback(trial, "accuracy"), epochs=3)
    assert len([w for w in seen if "no metric" in str(w.message)]) == 1
    with pytest.warns(UserWarning, match="no metric 'val_loss'"):
        fit(make_model(), PruningCallback(trial, "val_loss"), epochs=1)
    assert trial.values == {}


def test_a_metric_of_validations_that_are_not_in_each_epoch():
    trial = Trial()
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "PruningCallback")
        callbacks = PruningCallback(trial, "val_loss")
        fit(make_model(), callbacks, epochs=4, validate=True, validation_freq=2)
    assert list(trial.values) == [1, 3]


def test_together_with_steering_a_stop_prunes_nothing():
    trial, cb = Trial(at=5), SteeringCallback()
    history, guard = fit(make_model(), PruningCallback(trial, "loss"), cb, Send("stop", step=13))
    assert guard.batches == 14
    assert history.epoch == [0, 1]
    assert list(trial.values) == [0], "the epoch that was cut short is not one of the trial's"


@pytest.mark.parametrize("is_first", [True, False])
def test_together_with_steering_a_prune_is_one_of_the_trial(is_first):
    cb, pruning, guard = SteeringCallback(), PruningCallback(Trial(), "loss"), Guard()
    callbacks = [pruning, cb] if is_first else [cb, pruning]
    callbacks += [Send("prune", step=STEPS + 3), guard]
    with pytest.raises(kajitori.TrialPruned, match="pruned by a command"):
        make_model().fit(X, Y, batch_size=8, epochs=9, verbose=0, callbacks=callbacks)
    assert guard.batches == STEPS + 4
    assert cb.run.closed
    assert cb.run.ending == "prune"
