# SPDX-License-Identifier: Apache-2.0
"""`set lr` through everything that an optimizer can have: it is read back, and the next update uses it."""

import keras
import numpy as np
import pytest
from fits import STEPS, fit, make_model
from test_keras_fits import Send, settled

import kajitori
from kajitori.keras import SteeringCallback

pytestmark = [
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
    pytest.mark.usefixtures("fresh_keras"),
    pytest.mark.backends("tensorflow", "jax", "torch"),
]

schedules = keras.optimizers.schedules


def kernel(model):
    return np.asarray(model.get_weights()[0])


class Moves(keras.callbacks.Callback):
    """How far each step of the training has moved the first layer."""

    def __init__(self):
        super().__init__()
        self.by = []

    def on_train_begin(self, logs=None):
        self.last = kernel(self.model)

    def on_train_batch_end(self, batch, logs=None):
        now = kernel(self.model)
        self.by.append(float(np.abs(now - self.last).max()))
        self.last = now


def remarks(verb):
    return [line.get("remark") for line in kajitori.journal() if line.get("verb") == verb]


@pytest.mark.parametrize(
    "rate",
    [
        schedules.ExponentialDecay(0.1, 10, 0.5),
        schedules.CosineDecay(0.1, 100),
        schedules.PiecewiseConstantDecay([3], [0.1, 0.01]),
        lambda: 0.1,
    ],
    ids=["ExponentialDecay", "CosineDecay", "PiecewiseConstantDecay", "function"],
)
def test_a_schedule_is_replaced_and_the_next_step_uses_what_was_set(rate):
    """By zero and back, which no schedule does: nothing moves in between."""
    model, moves = make_model(optimizer=keras.optimizers.SGD(rate)), Moves()
    first, second = Send("set lr=0", step=4), Send("set lr=0.25", step=7)
    fit(model, moves, SteeringCallback(), first, second, epochs=1)
    assert [by > 0 for by in moves.by] == [True] * 5 + [False] * 3 + [True] * 2
    (_, old, new, _), (_, old2, new2, _) = settled("set")
    assert 0 < old["lr"] <= 0.1
    assert (new, old2, new2) == ({"lr": 0}, {"lr": 0}, {"lr": 0.25})
    assert float(keras.ops.convert_to_numpy(model.optimizer.learning_rate)) == 0.25
    name = type(rate).__name__ if isinstance(rate, schedules.LearningRateSchedule) else "<lambda>"
    assert f"lr follows {name}" in remarks("set")[0], "the sender is told what it ends"
    assert "constant once it is set" in remarks("set")[0]


def test_a_schedule_that_was_replaced_is_saved_by_keras_and_loaded_without_us(tmp_path):
    model = make_model(optimizer=keras.optimizers.SGD(schedules.CosineDecay(0.1, 100)))
    fit(model, SteeringCallback(), Send("set lr=0.25"), epochs=1)
    model.save(tmp_path / "model.keras")
    config = keras.models.load_model(tmp_path / "model.keras").optimizer.get_config()
    assert config["learning_rate"]["config"]["initial_learning_rate"] == 0.25
    assert config["learning_rate"]["module"] == "keras.optimizers.schedules"


@pytest.mark.backends("tensorflow", "jax")
def test_nothing_of_ours_traces_a_step_anew_but_the_end_of_a_schedule():
    traced = []

    class Traced(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = keras.layers.Dense(1)

        def call(self, x, training=None):
            if training:
                traced.append(x.shape)
            return self.dense(x)

    def count(optimizer, *senders):
        traced.clear()
        model = Traced()
        model.compile(optimizer, "mse")
        callbacks = [SteeringCallback(commands={"own": lambda cb: None}), *senders]
        fit(model, *(callbacks if senders else []), epochs=2)
        return len(traced)

    alone = count(keras.optimizers.SGD(0.1))
    sender = Send("set lr=0.5", "own", "pause", "resume", "set lr=0.25")
    assert count(keras.optimizers.SGD(0.1), sender) == alone
    decay = schedules.CosineDecay(0.1, 100)
    assert count(keras.optimizers.SGD(decay), Send("set lr=0.5")) > alone


def test_the_optimizers_of_several_have_a_rate_each():
    optimizers = keras.optimizers.OptimizerMap(keras.optimizers.SGD(0.125, name="rest"))
    optimizers[".*kernel"] = keras.optimizers.SGD(schedules.CosineDecay(0.25, 100), name="kernels")
    model = make_model(optimizer=keras.optimizers.MultiOptimizer(optimizers))
    moves, cb = Moves(), SteeringCallback()
    fit(model, moves, cb, Send("set lr.kernels=0 lr.rest=0.5", step=4), epochs=1)
    assert [by > 0 for by in moves.by] == [True] * 5 + [False] * 5
    ((_, old, new, _),) = settled("set")
    assert new == {"lr.kernels": 0, "lr.rest": 0.5}
    assert old["lr.rest"] == 0.125
    assert cb.step == STEPS


def test_mixed_precision_with_a_schedule():
    keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        optimizer = keras.optimizers.SGD(schedules.CosineDecay(0.1, 100))
        model, moves = make_model(optimizer=optimizer), Moves()
        fit(model, moves, SteeringCallback(), Send("set lr=0", step=STEPS), epochs=2)
    finally:
        keras.mixed_precision.set_global_policy("float32")
    assert type(model.optimizer).__name__ == "LossScaleOptimizer"
    assert settled("set")[0][2] == {"lr": 0}
    assert any(by > 0 for by in moves.by[: STEPS + 1])
    assert not any(by > 0 for by in moves.by[STEPS + 1 :])


def test_gradient_accumulation_with_a_schedule():
    optimizer = keras.optimizers.SGD(schedules.CosineDecay(0.1, 100), gradient_accumulation_steps=2)
    model, moves = make_model(optimizer=optimizer), Moves()
    fit(model, moves, SteeringCallback(), Send("set lr=0", step=4), epochs=1)
    assert [k for k, by in enumerate(moves.by) if by > 0] == [1, 3]


def test_callbacks_that_set_it_again_are_named_in_the_answer():
    scheduler = keras.callbacks.LearningRateScheduler(lambda epoch, lr: 0.125)
    plateau = keras.callbacks.ReduceLROnPlateau("loss")
    model = make_model()
    fit(model, scheduler, plateau, SteeringCallback(), Send("set lr=0.5"), epochs=2)
    assert set(remarks("set")) == {
        "LearningRateScheduler sets lr anew at the beginning of the next epoch; "
        "ReduceLROnPlateau may lower lr at the end of an epoch"
    }
    assert float(model.optimizer.learning_rate) == 0.125


def test_a_rate_set_over_a_schedule_is_in_the_checkpoint(tmp_path, monkeypatch):
    def compiled():
        return make_model(optimizer=keras.optimizers.SGD(schedules.CosineDecay(0.1, 100)))

    lines = ("set lr=0.25", "pause level=leave at=epoch")
    with pytest.raises(kajitori.Left):
        fit(compiled(), SteeringCallback(checkpoint_dir=tmp_path), Send(*lines), epochs=3)
    monkeypatch.setenv("KAJITORI_CHECKPOINT", kajitori.journal()[-1]["checkpoint"]["path"])
    model = compiled()
    cb = SteeringCallback(checkpoint_dir=tmp_path)
    fit(model, cb, epochs=3)
    assert cb.step == 3 * STEPS
    assert float(keras.ops.convert_to_numpy(model.optimizer.learning_rate)) == 0.25
