# SPDX-License-Identifier: Apache-2.0
"""SteeringCallback in every kind of fit, and beside other callbacks in any order. Commands are sent
from a callback, so that each test knows the step at which they arrive."""

import copy
import os
import pickle
import sys
import threading

import keras
import numpy as np
import pytest
from fits import FOR_EVER, STEPS, Guard, X, Y, fit, make_model
from training import applied

import kajitori
from kajitori.keras import SteeringCallback

pytestmark = [
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:`shuffle=True` was passed:UserWarning"),
    pytest.mark.usefixtures("fresh_keras"),
]


KERAS_3 = pytest.mark.backends("tensorflow", "jax", "torch")
TENSORFLOW = pytest.mark.backends("tensorflow", "tf.keras")


class Send(keras.callbacks.Callback):
    """Has commands accepted before batch number `step` of the training, or elsewhere."""

    def __init__(self, *lines, step=3, hook="on_train_batch_begin", run=None):
        super().__init__()
        self.lines, self.left, self.run = lines, step, run
        setattr(self, hook, self._count)

    def _count(self, *args, logs=None):
        if self.left == 0:
            with kajitori.connect(self.run and self.run()) as client:
                for line in self.lines:
                    client.send(line, wait="accepted")
        self.left -= 1


def settled(verb):
    """How commands of this verb ended: state, old, new, reason."""
    return [
        tuple(line.get(key) for key in ("state", "old", "new", "error"))
        for line in kajitori.journal()
        if line.get("verb") == verb and line["state"] in ("applied", "failed", "rejected")
    ]


def functional():
    inputs = keras.Input((4,))
    model = keras.Model(inputs, keras.layers.Dense(1)(inputs))
    model.compile(keras.optimizers.SGD(0.125), "mse")
    return model


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(1)

    def call(self, x):
        return self.dense(x)


class OwnStep(Subclassed):
    """Its own loop with its own optimizer, as adversarial networks have."""

    def compile(self, own):
        super().compile()
        self.own = own

    def train_step(self, data):
        import tensorflow as tf

        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self(x) - y) ** 2)
        weights = self.trainable_variables
        self.own.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return {"loss": loss}


def subclassed():
    model = Subclassed()
    model.compile(keras.optimizers.SGD(0.125), "mse")
    return model


def compiled(**options):
    def make():
        model = functional()
        model.compile(keras.optimizers.SGD(0.125), "mse", **options)
        return model

    return make


def accumulating():
    return make_model(optimizer=keras.optimizers.Adam(0.125, gradient_accumulation_steps=3))


@pytest.mark.parametrize(
    "make",
    [
        functional,
        subclassed,
        compiled(run_eagerly=True),
        pytest.param(
            compiled(jit_compile=True), marks=pytest.mark.backends("tensorflow", "jax", "tf.keras")
        ),
        pytest.param(accumulating, marks=KERAS_3),
    ],
    ids=["functional", "subclassed", "run_eagerly", "jit_compile", "gradient_accumulation"],
)
def test_kinds_of_models(make):
    cb, model = SteeringCallback(), make()
    _, guard = fit(model, cb, Send("set lr=0.5", "stop at=step:7"))
    assert settled("set") == [("applied", {"lr": 0.125}, {"lr": 0.5}, None)]
    assert float(model.optimizer.learning_rate) == 0.5
    assert guard.batches == cb.step == 7


def test_mixed_precision():
    keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        model = make_model()
        cb = SteeringCallback()
        fit(model, cb, Send("set lr=0.5", step=0), epochs=3)
    finally:
        keras.mixed_precision.set_global_policy("float32")
    assert type(model.optimizer).__name__.startswith("LossScaleOptimizer")
    assert settled("set") == [("applied", {"lr": 0.125}, {"lr": 0.5}, None)]
    assert cb.step == 3 * STEPS, "also where batches are left out because gradients overflow"


def batches():
    while True:
        yield X[:8], Y[:8]


class Batches(getattr(keras.utils, "PyDataset", None) or keras.utils.Sequence):
    def __len__(self):
        return STEPS

    def __getitem__(self, index):
        return X[:8], Y[:8]


def dataset(y=Y):
    import tensorflow as tf

    return tf.data.Dataset.from_tensor_slices((X, y)).batch(8)


def classes():
    return dataset((Y > 0).astype("int64"))


@pytest.mark.parametrize(
    ("data", "options"),
    [
        (batches, {"steps_per_epoch": STEPS}),
        (Batches, {}),
        pytest.param(lambda: Batches(workers=2, use_multiprocessing=True), {}, marks=KERAS_3),
        pytest.param(dataset, {}, marks=TENSORFLOW),
        pytest.param(
            classes,
            {"class_weight": {0: 1.0, 1: 2.0}},
            marks=TENSORFLOW,
        ),
    ],
    ids=["generator", "PyDataset", "PyDataset in processes", "tf.data", "class_weight"],
)
def test_kinds_of_data(data, options):
    model, guard = make_model(), Guard()
    callbacks = [SteeringCallback(), Send("stop at=step:13"), guard]
    model.fit(data(), epochs=100, verbose=0, callbacks=callbacks, **options)
    assert guard.batches == 13
    assert applied()[0]["step"] == 13


@TENSORFLOW
def test_a_loop_with_an_optimizer_of_its_own_is_not_told_that_lr_was_set():
    """`compile` without an optimizer gives the model one that nobody uses."""
    model = OwnStep()
    model.compile(keras.optimizers.SGD(0.125))
    fit(model, SteeringCallback(), Send("set lr=0.5"), epochs=1)
    ((state, _, _, reason),) = settled("set")
    assert state == "failed"
    assert "does not use model.optimizer" in reason
    own = {
        "lr": (
            lambda: float(model.own.learning_rate),
            lambda v: setattr(model.own, "learning_rate", v),
        )
    }
    fit(model, SteeringCallback(parameters=own), Send("set lr=0.5"), epochs=1)
    assert settled("set") == [("applied", {"lr": 0.125}, {"lr": 0.5}, None)]
    assert float(model.own.learning_rate) == 0.5


def test_an_lr_that_the_precision_cannot_hold():
    model = make_model()
    fit(model, SteeringCallback(), Send("set lr=1e300"), epochs=1)
    assert settled("set") == [("failed", None, None, "lr: 1e+300 is more than float32 can hold")]
    assert float(model.optimizer.learning_rate) == 0.125


def others(folder):
    keras_callbacks = keras.callbacks
    has_tensorflow = keras.backend.backend() == "tensorflow"
    return [
        keras_callbacks.EarlyStopping(patience=50, restore_best_weights=True),
        keras_callbacks.ModelCheckpoint(str(folder / "e{epoch:02d}.keras")),
        keras_callbacks.BackupAndRestore(str(folder / "backup"), delete_checkpoint=False),
        *([keras_callbacks.TensorBoard(str(folder / "logs"))] if has_tensorflow else []),
        keras_callbacks.ReduceLROnPlateau(),
        keras_callbacks.LearningRateScheduler(lambda epoch, lr: lr),
        keras_callbacks.CSVLogger(str(folder / "log.csv")),
    ]


@pytest.mark.parametrize("is_first", [True, False])
def test_beside_other_callbacks_in_any_order(tmp_path, is_first):
    """A stop in the middle of epoch 1: each of them ends its work as it does at the end of a fit."""

    def train(cb, *more, epochs):
        guard = Guard()
        callbacks = others(tmp_path)
        callbacks = [cb, *callbacks] if is_first else [*callbacks, cb]
        history = make_model().fit(
            X,
            Y,
            batch_size=8,
            epochs=epochs,
            verbose=0,
            validation_data=(X, Y),
            callbacks=[*callbacks, *more, guard],
        )
        return history, guard

    history, guard = train(SteeringCallback(), Send("stop", step=13), epochs=FOR_EVER)
    assert guard.batches == 14
    assert len(history.history["val_loss"]) == 2, "the validation of the epoch that was cut ran"
    assert (tmp_path / "log.csv").read_text().count("\n") == 3
    assert sorted(path.name for path in tmp_path.glob("*.keras")) == ["e01.keras", "e02.keras"]
    cb = SteeringCallback()
    _, guard = train(cb, epochs=3)
    assert guard.epochs == 2, "BackupAndRestore goes on with the epoch that was cut"
    assert cb.step == 3 * STEPS, "and behind the batches that it has had"


@KERAS_3
def test_early_stopping_puts_back_the_best_weights_after_a_stop_of_ours():
    model = make_model()
    best = keras.callbacks.EarlyStopping(monitor="loss", mode="max", restore_best_weights=True)
    kept = []

    class Keep(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            kept.append(model.get_weights())

    fit(model, best, Keep(), SteeringCallback(), Send("stop", step=STEPS + 3))
    for weights, expected in zip(model.get_weights(), kept[0], strict=True):
        np.testing.assert_array_equal(weights, expected)


def test_a_stop_by_another_callback_is_not_ours():
    cb = SteeringCallback()
    early = keras.callbacks.EarlyStopping(monitor="loss", mode="max", patience=0)
    _, guard = fit(make_model(), cb, early)
    assert guard.epochs < 10
    assert not cb.run.should_stop
    assert kajitori.journal()[-1]["stopped"] is False


@pytest.mark.parametrize("step", [3, STEPS - 1])
def test_a_stop_can_skip_the_validation(step):
    """One that came before it: all but a batch of it."""
    cb = SteeringCallback(skip_validation=True)
    history, guard = fit(make_model(), cb, Send("stop", step=step), validate=True)
    assert (guard.batches, guard.tests) == (step + 1, 1)
    assert len(history.history["val_loss"]) == 1


def test_a_stop_during_the_validation_can_skip_the_rest_of_it():
    cb = SteeringCallback(skip_validation=True)
    model = make_model()
    send = Send("stop", hook="on_test_batch_begin", step=4)
    history, guard = fit(model, cb, send, validate=True)
    assert (guard.batches, guard.tests) == (STEPS, 5)
    assert len(history.history["val_loss"]) == 1
    model.evaluate(X, Y, verbose=0, callbacks=[guard])
    assert guard.tests > 5, "a later evaluation is whole"


def test_a_fit_inside_of_a_fit():
    outer, inner = SteeringCallback(name="outer"), SteeringCallback(name="inner")

    class Nested(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            fit(make_model(), inner, epochs=2)

    _, guard = fit(make_model(), outer, Nested(), epochs=2)
    assert (guard.batches, outer.step, inner.step) == (2 * STEPS, 2 * STEPS, 2 * STEPS)
    assert kajitori.runs() == []


def test_an_evaluation_inside_of_a_fit_with_the_same_callback():
    """It overwrites what Keras told the callback about the length of an epoch."""
    cb, model = SteeringCallback(), make_model()

    class Evaluate(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            model.evaluate(X, Y, verbose=0, callbacks=[cb])
            model.predict(X, verbose=0, callbacks=[cb])

    fit(model, cb, Evaluate(), epochs=2)
    assert cb.step == 2 * STEPS


def test_two_fits_in_two_threads():
    ended = {}

    def train(number):
        cb = SteeringCallback(name=f"fit{number}")
        send = Send("stop", step=number, run=lambda: cb.run.id)
        _, guard = fit(make_model(), cb, send)
        ended[number] = guard.batches

    threads = [threading.Thread(target=train, args=(number,)) for number in (4, 6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ended == {4: 5, 6: 7}


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt, SystemExit])
def test_what_is_raised_in_fit_leaves_no_run_behind_once_it_is_closed(error):
    cb = SteeringCallback(commands={"fail": lambda cb: (_ for _ in ()).throw(error)})

    class Fail(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 5 and error is ZeroDivisionError:
                raise error

    with pytest.raises(error) as caught:  # keeps the frames of the traceback
        fit(make_model(), cb, Send("fail"), Fail(), epochs=1)
    assert len(kajitori.runs()) == 1
    cb.run.close()
    assert kajitori.runs() == []
    assert caught.tb is not None


def test_what_cannot_be_registered_leaves_no_run_behind():
    with pytest.raises(kajitori.ExistsError):
        fit(make_model(), SteeringCallback(commands={"stop": print}), epochs=1)
    assert kajitori.runs() == []


def test_copies_of_a_callback_have_no_run():
    cb = SteeringCallback(name="original")
    for original in (cb, fit(make_model(), cb, epochs=1) and cb):
        for made in (copy.copy, copy.deepcopy, lambda c: pickle.loads(pickle.dumps(c))):
            assert made(original).run is None
    other = copy.deepcopy(cb)
    fit(make_model(), other, epochs=1)
    assert other.step == STEPS


def test_metrics_that_cannot_be_reported_are_left_out():
    class Logs(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            logs |= {"x" * 600: 1.0, "text": "fast", "array": np.zeros(3), "none": None, "last": 2}

    seen = []

    class Look(keras.callbacks.Callback):
        def on_train_end(self, logs=None):
            with kajitori.connect() as client:
                seen.extend(metric["tag"] for metric in client.status()["metrics"])

    guard = Guard()
    callbacks = [Logs(), Look(), SteeringCallback(), guard]
    make_model().fit(X, Y, batch_size=8, epochs=2, verbose=0, callbacks=callbacks)
    assert sorted(seen) == ["last", "loss", "mae"]
    assert guard.epochs == 2


def test_as_many_epochs_as_an_integer_can_count():
    _, guard = fit(make_model(), SteeringCallback(), Send("stop"), epochs=sys.maxsize)
    assert guard.batches == 4


def test_a_writer_that_opens_the_fifo_and_stays_silent(tmp_path):
    path = tmp_path / "ctl"

    class Silent(keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            self.fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK)

        def on_train_end(self, logs=None):
            os.close(self.fd)

    cb = SteeringCallback(fifo=path)
    guard = Guard()
    make_model().fit(X, Y, batch_size=8, epochs=2, verbose=0, callbacks=[cb, Silent(), guard])
    assert guard.batches == 2 * STEPS
