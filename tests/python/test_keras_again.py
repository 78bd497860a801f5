# SPDX-License-Identifier: Apache-2.0
"""What one fit leaves behind for the next: of the same callbacks, of the same model, after exceptions, and
where several things go on from somewhere at once. The training is the one of test_keras_partial.py."""

import keras
import numpy as np
import pytest
from fits import Guard, make_model
from test_keras_fits import Send
from test_keras_partial import EPOCHS, MID, STEPS, X, Y, train, weights_of, whole
from test_keras_pruning import Trial

import kajitori
from kajitori.keras import PruningCallback, SteeringCallback

__all__ = ["whole"]

pytestmark = [
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
    pytest.mark.usefixtures("fresh_keras"),
    pytest.mark.backends("tensorflow", "jax", "torch", "tf.keras"),
]


def sgd():
    return make_model(optimizer=keras.optimizers.SGD(0.01))


def fit(model, *callbacks, epochs=EPOCHS):
    callbacks = list(callbacks)
    return model.fit(
        X, Y, batch_size=1, epochs=epochs, verbose=0, shuffle=False, callbacks=callbacks
    )


class Fail(keras.callbacks.Callback):
    """Once, in this hook's n-th call."""

    def __init__(self, hook, calls):
        super().__init__()
        self.left = calls
        setattr(self, hook, self._count)

    def _count(self, *args, logs=None):
        self.left -= 1
        if self.left == 0:
            raise ZeroDivisionError


@pytest.mark.parametrize("options", [{}, {"save_freq": 7}], ids=["default", "save_freq=7"])
@pytest.mark.parametrize("is_first", [True, False], ids=["before", "behind"])
def test_a_checkpoint_is_gone_on_from_though_there_is_a_backup(
    tmp_path, monkeypatch, whole, options, is_first
):
    """Left in the middle of an epoch, where both have something of their own to go on from."""

    def callbacks():
        backup = keras.callbacks.BackupAndRestore(tmp_path / "backup", **options)
        cb = SteeringCallback(checkpoint_dir=tmp_path / "checkpoints")
        return cb, [cb, backup] if is_first else [backup, cb]

    keras.utils.set_random_seed(0)
    cb, both = callbacks()
    send = Send("pause level=leave at=step:100", step=0, hook="on_epoch_begin")
    with pytest.raises(kajitori.Left):
        fit(sgd(), *both, send)
    monkeypatch.setenv("KAJITORI_CHECKPOINT", kajitori.journal()[-1]["checkpoint"]["path"])
    model, (cb, both) = sgd(), callbacks()
    history = fit(model, *both)
    assert history.epoch == [2, 3, 4]
    assert cb.step == STEPS * EPOCHS
    for weights, expected in zip(weights_of(model), whole, strict=True):
        np.testing.assert_array_equal(weights, expected)


@pytest.mark.backends("tensorflow", "jax", "torch")  # tf.keras never deletes that backup
def test_an_exception_after_a_stop_takes_nothing_of_it_into_the_next_fit(tmp_path):
    """Two things are done only when fit is over: the backup is one of Keras' own again, and its place."""
    backup = keras.callbacks.BackupAndRestore(tmp_path / "backup")
    cb, model = SteeringCallback(), sgd()
    send = Send(*MID, step=0, hook="on_epoch_begin")
    with pytest.raises(ZeroDivisionError):
        fit(model, cb, send, Fail("on_epoch_end", 3), backup)
    again = Guard()
    fit(model, cb, again, backup)
    assert again.batches in (3 * STEPS, 3 * STEPS - 10)
    assert backup.delete_checkpoint is True
    assert not (tmp_path / "backup").exists()


def test_an_exception_while_batches_are_passed_over_leaves_a_whole_fit(tmp_path):
    backup = keras.callbacks.BackupAndRestore(tmp_path / "backup")
    train(backup, lines=MID)
    model = sgd()
    with pytest.raises(ZeroDivisionError):
        fit(model, SteeringCallback(), backup, Fail("on_train_batch_end", 5))
    before = int(model.optimizer.iterations)
    fit(model, SteeringCallback())  # which begins with a later epoch, as Keras keeps that number
    assert int(model.optimizer.iterations) > before
    assert (int(model.optimizer.iterations) - before) % STEPS == 0


@pytest.mark.parametrize("place", [0, 1])
def test_a_stop_and_a_pruner_at_the_end_of_the_same_epoch(tmp_path, place):
    backup = keras.callbacks.BackupAndRestore(tmp_path / "backup")
    callbacks = [SteeringCallback()]
    callbacks.insert(place, PruningCallback(Trial(at=1), "loss"))
    send = Send("stop at=epoch:1", step=0, hook="on_epoch_begin")
    with pytest.raises(kajitori.TrialPruned):
        fit(sgd(), *callbacks, send, backup)
    assert backup.delete_checkpoint is True


def test_going_on_behind_the_last_epoch_trains_nothing(tmp_path, monkeypatch):
    def steering():
        return SteeringCallback(checkpoint_dir=tmp_path, epochs=2)

    send = Send("pause level=leave at=epoch", step=1, hook="on_epoch_begin")
    with pytest.raises(kajitori.Left):
        fit(sgd(), steering(), send)
    monkeypatch.setenv("KAJITORI_CHECKPOINT", kajitori.journal()[-1]["checkpoint"]["path"])
    guard, cb = Guard(), steering()
    fit(sgd(), cb, guard)
    assert (cb.initial_epoch, guard.batches, cb.run.closed) == (2, 0, True)


def test_a_list_of_callbacks_that_the_program_has_made(tmp_path):
    model, guard = sgd(), Guard()
    backup = keras.callbacks.BackupAndRestore(tmp_path / "backup")
    send = Send(*MID, step=0, hook="on_epoch_begin")
    ours = [SteeringCallback(), PruningCallback(Trial(), "loss"), send, backup, guard]
    callbacks = keras.callbacks.CallbackList(ours, add_history=True, model=model)
    callbacks.set_params({"epochs": EPOCHS, "steps": STEPS, "verbose": 0})
    model.fit(X, Y, batch_size=1, epochs=EPOCHS, verbose=0, shuffle=False, callbacks=callbacks)
    assert guard.batches == 100
    assert callbacks.callbacks[:5] == ours
    assert type(callbacks.callbacks[-1]).__name__ == "History"


def test_a_loop_of_the_programs_own_tells_callbacks_no_params():
    cb, trial, model = SteeringCallback(), Trial(), sgd()
    callbacks = keras.callbacks.CallbackList([cb, PruningCallback(trial, "loss")], model=model)
    callbacks.on_train_begin()
    for epoch in range(2):
        callbacks.on_epoch_begin(epoch)
        for batch in range(3):
            callbacks.on_train_batch_begin(batch)
            callbacks.on_train_batch_end(batch, {"loss": 1.0})
        callbacks.on_epoch_end(epoch, {"loss": 1.0})
    callbacks.on_train_end()
    assert (cb.step, cb.epoch, cb.run.closed) == (6, 1, True)
    assert list(trial.values) == [0, 1]
