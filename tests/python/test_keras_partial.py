# SPDX-License-Identifier: Apache-2.0
"""What a stop does to fit and to the other callbacks, one test for each case that was measured: 45 steps
an epoch, 5 epochs, and a stop after batch 10 of epoch 3 ("mid") or at the end of epoch 3 ("end")."""

import json
import math

import keras
import numpy as np
import pytest
from conftest import BACKEND
from fits import Guard, has_files, make_model
from test_keras_fits import KERAS_3, Send
from training import applied

import kajitori
from kajitori.keras import SteeringCallback

pytestmark = [
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
    pytest.mark.usefixtures("fresh_keras"),
]

STEPS, EPOCHS = 45, 5
X = np.random.default_rng(0).normal(size=(STEPS, 4)).astype("float32")
Y = X.sum(axis=1, keepdims=True)
MID = ("stop at=step:100",)
END = ("stop at=epoch:2",)


def train(*callbacks, lines=(), model=None, validate=False, **options):
    """The training, in which these commands are sent before its first step."""
    cb, guard = SteeringCallback(), Guard()
    model = model or make_model(optimizer=keras.optimizers.SGD(0.01))
    first = [Send(*lines, step=0, hook="on_epoch_begin")] if lines else []
    history = model.fit(
        X,
        Y,
        batch_size=1,
        epochs=EPOCHS,
        verbose=0,
        shuffle=False,
        callbacks=[cb, *callbacks, *first, guard],
        validation_data=(X, Y) if validate else None,
        validation_batch_size=STEPS,
        **options,
    )
    return cb, guard, history, model


def notes(text):
    return [line["text"] for line in kajitori.journal() if line.get("event") == "note"].count(text)


def answers(verb):
    return {
        line["state"]: line.get("remark") for line in kajitori.journal() if line.get("verb") == verb
    }


def test_a_stop_in_the_middle_marks_the_epoch_as_a_partial_one():
    """The history has an entry for it as for a whole one: so we say it."""
    cb, guard, history, model = train(lines=MID, validate=True)
    assert (guard.batches, guard.epochs, guard.tests) == (100, 3, 3)
    assert history.epoch == [0, 1, 2]
    assert len(history.history["val_loss"]) == 3
    assert cb.partial_epoch == 10
    said = "epoch 2 ends after 10 of 45 batches"
    assert notes(said) == 1
    assert answers("stop") == {"accepted": None, "scheduled": None, "applied": said, "done": said}
    assert model.stop_training, "as Keras leaves it; the next fit clears it"
    assert train(model=model)[1].batches == STEPS * EPOCHS


def test_a_stop_at_the_end_leaves_no_partial_epoch():
    cb, guard, history, _ = train(lines=END)
    assert (guard.batches, history.epoch, cb.partial_epoch) == (135, [0, 1, 2], None)
    assert applied()[0]["place"] == "epoch"


@pytest.mark.backends("tensorflow", "jax", "tf.keras")
def test_a_stop_in_the_middle_of_20_steps_per_execution():
    cb, _, _, model = train(lines=MID, model=make_model(steps_per_execution=20))
    assert int(model.optimizer.iterations) == cb.step == 2 * STEPS + 20
    assert cb.partial_epoch == 20


def weights_of(model):
    return [np.asarray(weights) for weights in model.get_weights()]


@pytest.fixture(scope="module")
def whole():
    """The weights of the training that nobody stops."""
    keras.utils.set_random_seed(0)
    return weights_of(train()[3])


@pytest.mark.parametrize("lines", [MID, END], ids=["mid", "end"])
@pytest.mark.parametrize(
    "options",
    [{}, {"delete_checkpoint": False}, {"save_freq": 10}, {"save_freq": 7}],
    ids=["default", "kept", "save_freq=10", "save_freq=7"],
)
def test_backup_and_restore_goes_on_exactly_where_it_was_stopped(tmp_path, whole, lines, options):
    """By itself Keras 3 loses the rest of the epoch, runs 10 steps twice, or begins anew."""

    def backup():
        return keras.callbacks.BackupAndRestore(tmp_path / "backup", **options)

    keras.utils.set_random_seed(0)
    best = keras.callbacks.EarlyStopping("loss", mode="max", patience=50, restore_best_weights=True)
    first, _, _, _ = train(backup(), best, lines=lines)
    said = answers("stop")["accepted"]
    assert "BackupAndRestore keeps its backup" in said
    what = "does not put back" if BACKEND == "tf.keras" else "puts back"
    assert f"EarlyStopping {what} the weights of the best epoch" in said
    assert has_files(tmp_path / "backup")

    ours = backup()
    second, _, history, model = train(ours)
    trained = sum(cb.step - start for cb, start in ((first, 0), (second, first.step)))
    assert trained == second.step == int(model.optimizer.iterations) == STEPS * EPOCHS
    assert history.epoch == ([2, 3, 4] if first.partial_epoch else [3, 4])
    for weights, expected in zip(weights_of(model), whole, strict=True):
        np.testing.assert_array_equal(weights, expected)
    is_kept = options.get("delete_checkpoint") is False
    assert has_files(tmp_path / "backup") is is_kept, "a training that is whole ends as always"


@KERAS_3
def test_a_backup_without_a_stop_is_taken_as_keras_takes_it(tmp_path):
    """Also the one of a training that failed, which has a number of a batch of Keras' own in it."""

    class Fail(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if (self.epoch, batch) == (2, 12):
                raise ZeroDivisionError

        def on_epoch_begin(self, epoch, logs=None):
            self.epoch = epoch

    backup = keras.callbacks.BackupAndRestore(tmp_path / "backup", save_freq=10)
    with pytest.raises(ZeroDivisionError):
        train(backup, Fail())
    assert json.loads((tmp_path / "backup/training_metadata.json").read_text())["batch"] == 9
    again = keras.callbacks.BackupAndRestore(tmp_path / "backup")
    cb, guard, _, _ = train(again)
    assert guard.batches == 3 * STEPS
    assert cb.step == 100 + 3 * STEPS


def test_a_prune_leaves_no_backup(tmp_path):
    backup = keras.callbacks.BackupAndRestore(tmp_path / "backup")
    train(backup, lines=("prune at=step:100",))
    assert not has_files(tmp_path / "backup")
    assert backup.delete_checkpoint is True


def test_model_checkpoint_and_history_of_the_partial_epoch(tmp_path):
    """What is named like a whole epoch equals the weights at the end, and the history has its metrics."""
    path = tmp_path / "e{epoch:02d}.weights.h5"
    save = keras.callbacks.ModelCheckpoint(path, save_weights_only=True)
    _, _, history, model = train(save, lines=MID)
    assert sorted(file.name for file in tmp_path.glob("*.h5"))[-1] == "e03.weights.h5"
    ended = weights_of(model)
    model.load_weights(tmp_path / "e03.weights.h5")
    for weights, expected in zip(weights_of(model), ended, strict=True):
        np.testing.assert_array_equal(weights, expected)
    assert all(math.isfinite(loss) for loss in history.history["loss"])


def test_a_stop_in_on_train_batch_begin_lets_that_batch_run():
    _, guard, _, _ = train(Send("stop", step=10))
    assert guard.batches == 11
