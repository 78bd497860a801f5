# SPDX-License-Identifier: Apache-2.0
"""SteeringCallback with tf.keras 2.15: what Keras 3 has not, or does otherwise. What both have is tested
by tests/python/test_keras*.py, which run with tf.keras, too (`tools/run-tests keras-2.15`), and there
name each case that was measured."""

import json
import os
import pathlib
import re
import socket
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from fits import STEPS, X, Y, fit, make_model
from test_keras_fits import Send, settled
from training import PATIENCE, TOP, applied

import kajitori
from kajitori.keras import SteeringCallback

PROGRAMS = pathlib.Path(__file__).parent / "programs"

optimizers, legacy = keras.optimizers, keras.optimizers.legacy
scaled = tf.keras.mixed_precision.LossScaleOptimizer


def decay():
    return optimizers.schedules.CosineDecay(0.1, 100)


OPTIMIZERS = {
    "Adam": lambda: optimizers.Adam(0.125),
    "legacy": lambda: legacy.Adam(0.125),
    "LossScaleOptimizer": lambda: scaled(optimizers.Adam(0.125)),
    "schedule": lambda: optimizers.Adam(decay()),
    "schedule of a legacy one": lambda: legacy.Adam(decay()),
    "LossScaleOptimizer with a schedule": lambda: scaled(optimizers.Adam(decay())),
    "function": lambda: legacy.SGD(lambda: tf.constant(0.125)),
}


@pytest.fixture(autouse=True)
def fresh_keras(monkeypatch):
    monkeypatch.delenv("KAJITORI_CHECKPOINT", raising=False)
    keras.utils.set_random_seed(0)
    yield
    keras.backend.clear_session()


class Moves(keras.callbacks.Callback):
    """Whether each step of the training has moved the first layer."""

    def on_train_begin(self, logs=None):
        self.by, self.last = [], self.model.get_weights()[0]

    def on_train_batch_end(self, batch, logs=None):
        now = self.model.get_weights()[0]
        self.by.append(bool((now != self.last).any()))
        self.last = now


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_set_lr_in_every_kind_of_optimizer(make):
    """By zero and back: nothing moves in between, and only a schedule is traced anew, once."""
    model, moves = make_model(optimizer=make()), Moves()
    fit(model, Send("set lr=0", step=3), moves, SteeringCallback(), epochs=1)
    traced = model.train_tf_function
    assert moves.by[4:] == [False] * (STEPS - 4)
    ((_, old, new, _),) = settled("set")
    assert 0.09 < old["lr"] <= 0.125
    assert new == {"lr": 0}
    fit(model, Send("set lr=0.25", step=3), moves, SteeringCallback(), epochs=1)
    assert moves.by == [False] * 4 + [True] * (STEPS - 4)
    assert settled("set") == [("applied", {"lr": 0}, {"lr": 0.25}, None)]
    assert model.optimizer.learning_rate.numpy() == 0.25
    assert model.train_tf_function is traced


@pytest.mark.parametrize("make", list(OPTIMIZERS.values())[1:6], ids=list(OPTIMIZERS)[1:6])
def test_going_on_is_the_training_that_never_left(tmp_path, monkeypatch, make):
    """To the last bit, from the middle of an epoch, whatever the optimizer is."""
    options = {"epochs": 3, "shuffle": False}
    keras.utils.set_random_seed(0)
    whole = make_model(optimizer=make())
    fit(whole, SteeringCallback(), Send("set lr=0.5", step=1), **options)

    keras.utils.set_random_seed(0)
    cb = SteeringCallback(checkpoint_dir=tmp_path)
    left = make_model(optimizer=make())
    with pytest.raises(kajitori.Left):
        fit(left, cb, Send("set lr=0.5", step=1), Send("pause level=leave", step=13), **options)
    monkeypatch.setenv("KAJITORI_CHECKPOINT", kajitori.journal()[-1]["checkpoint"]["path"])
    model, again = make_model(optimizer=make()), SteeringCallback(checkpoint_dir=tmp_path)
    fit(model, again, **options)
    assert again.step == 3 * STEPS
    assert model.optimizer.learning_rate.numpy() == 0.5
    for weights, expected in zip(model.get_weights(), whole.get_weights(), strict=True):
        np.testing.assert_array_equal(weights, expected)


def test_a_checkpoint_of_a_model_that_is_not_built_yet(tmp_path, monkeypatch):
    """Its variables get their values when they are made."""

    def make():
        model = keras.Sequential([keras.layers.Dense(8), keras.layers.Dense(1)])
        model.compile(legacy.Adam(0.125), "mse")
        return model

    first = make()
    line = "pause level=leave at=epoch"
    with pytest.raises(kajitori.Left):
        fit(first, SteeringCallback(checkpoint_dir=tmp_path), Send(line), epochs=2)
    monkeypatch.setenv("KAJITORI_CHECKPOINT", kajitori.journal()[-1]["checkpoint"]["path"])
    second = make()
    cb = SteeringCallback(checkpoint_dir=tmp_path)
    fit(second, Send("stop", step=0), cb, epochs=2)
    assert cb.step == STEPS + 1


@pytest.mark.parametrize("line", ["stop at=step:14", "stop at=epoch:1"])
def test_early_stopping_does_not_put_back_the_best_weights(line):
    """As Keras 3 would; the first answer to a stop says so."""
    model = make_model()
    best = keras.callbacks.EarlyStopping("loss", mode="max", patience=9, restore_best_weights=True)
    kept = []
    keep = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: kept.append(model.get_weights())
    )
    fit(model, best, keep, SteeringCallback(), Send(line, step=3))
    for weights, expected in zip(model.get_weights(), kept[-1], strict=True):
        np.testing.assert_array_equal(weights, expected)
    first = next(line for line in kajitori.journal() if line.get("verb") == "stop")
    assert "EarlyStopping does not put back the weights" in first["remark"]


@pytest.mark.parametrize("save_freq", ["epoch", 3])
def test_a_backup_of_a_stop_is_no_trap_for_a_fit_without_us(tmp_path, save_freq):
    """tf.keras alone would go on with epoch 2 and leave six batches out; now none is, in either."""

    def backup():
        return keras.callbacks.BackupAndRestore(str(tmp_path / "backup"), save_freq=save_freq)

    fit(make_model(), backup(), SteeringCallback(), Send("stop", step=13))
    history, guard = fit(make_model(), backup(), epochs=3)
    assert history.epoch == [1, 2]
    assert guard.batches == 2 * STEPS - (0 if save_freq == "epoch" else 4)
    assert not any(path.is_file() for path in (tmp_path / "backup").rglob("*"))


def test_a_backup_of_a_fit_that_failed_in_the_middle_of_an_epoch(tmp_path):
    """tf.keras goes on with its next batch; with us it is that of the data, too, and steps go on."""

    def backup():
        return keras.callbacks.BackupAndRestore(str(tmp_path / "backup"), save_freq=3)

    def fail(batch, logs):
        if cb.step == 14:
            raise ZeroDivisionError

    cb = SteeringCallback()
    last = keras.callbacks.LambdaCallback(on_train_batch_end=fail)
    with pytest.raises(ZeroDivisionError):
        make_model().fit(X, Y, batch_size=8, epochs=3, verbose=0, callbacks=[cb, backup(), last])
    again = SteeringCallback()
    history, _ = fit(make_model(), backup(), again, epochs=3)
    assert history.epoch == [1, 2]
    assert again.step == 3 * STEPS


def test_callbacks_that_set_the_rate_again_are_named_in_the_answer():
    scheduler = keras.callbacks.LearningRateScheduler(lambda epoch, lr: 0.125)
    fit(make_model(), scheduler, SteeringCallback(), Send("set lr=0.5"), epochs=2)
    said = next(line["remark"] for line in kajitori.journal() if line.get("verb") == "set")
    assert said == "LearningRateScheduler sets lr anew at the beginning of the next epoch"


def test_nothing_of_ours_traces_a_step_anew(tmp_path):
    model = make_model()
    lines = ("checkpoint", "own", "pause", "resume", "set lr=0.5", "evaluate")
    cb = SteeringCallback(
        checkpoint_dir=tmp_path, evaluation_data=(X, Y), commands={"own": lambda cb: None}
    )
    fit(model, cb, Send(*lines), epochs=2, validate=True)
    assert {line["verb"] for line in applied()} == {line.split()[0] for line in lines}
    alone = make_model()
    fit(alone, epochs=2, validate=True)
    traces = [m.train_tf_function.experimental_get_tracing_count() for m in (model, alone)]
    assert traces[0] == traces[1]


def test_steps_per_execution_that_keras_chooses():
    """By "auto" it changes while it trains; a step is a batch all the same."""
    model, cb = make_model(steps_per_execution="auto"), SteeringCallback()
    fit(model, cb, epochs=3)
    assert cb.step == int(model.optimizer.iterations) == 3 * STEPS


def test_a_mirrored_strategy_of_one_replica(tmp_path):
    with tf.distribute.MirroredStrategy(["cpu:0"]).scope():
        model = make_model(optimizer=optimizers.SGD(decay()))
    cb = SteeringCallback(checkpoint_dir=tmp_path)
    _, guard = fit(model, cb, Send("set lr=0.5", "checkpoint", "stop at=step:13"), validate=True)
    assert guard.batches == cb.step == 13
    assert model.optimizer.learning_rate.numpy() == 0.5
    assert [line["state"] for line in applied()] == ["applied"] * 3
    assert (tmp_path / "step-00000004/model.weights.index").exists()


def test_a_stop_with_an_average_of_weights():
    """`use_ema`: the model has the averages when fit returns, as always."""
    model = make_model(optimizer=optimizers.SGD(0.1, use_ema=True, ema_momentum=0.5))
    fit(model, SteeringCallback(), Send("stop"))
    averages = model.optimizer._model_variables_moving_average
    for weights, average in zip(model.trainable_variables, averages, strict=True):
        np.testing.assert_array_equal(weights.numpy(), average.numpy())


def test_metrics_come_as_tensors_that_nobody_waits_for():
    """Ours is no reason for Keras to fetch the metrics of each step."""
    model = make_model()
    seen = []
    peek = keras.callbacks.Callback()
    peek._supports_tf_logs = True
    peek.on_train_batch_end = lambda batch, logs: seen.append(type(logs["loss"]))
    model.fit(X, Y, batch_size=8, epochs=1, verbose=0, callbacks=[SteeringCallback(), peek])
    assert not any(issubclass(kind, float) for kind in seen)


def ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    names = [f"127.0.0.1:{s.getsockname()[1]}" for s in sockets]
    for s in sockets:
        s.close()
    return names


def test_one_of_two_workers_is_not_stopped_alone():
    """That would be a crash of both in the middle of an epoch, and a hang at its end."""
    workers = ports(2)

    def start(index):
        task = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": index}}
        return subprocess.Popen(
            [sys.executable, PROGRAMS / "tf_keras_worker.py"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"TF_CONFIG": json.dumps(task)},
        )

    processes = [start(0), start(1)]
    ends = [process.communicate(timeout=PATIENCE) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], ends
    (rank, size, batches, refused, reasons), other = (json.loads(out) for out, _ in ends)
    assert (rank, size, batches) == (0, 2, 15)
    assert refused == ["stop", "stop at=epoch", "set lr=0.5", "pause"]
    assert all("this is rank 0 of 2" in why for why in reasons)
    assert other == [1, 2, 15, [], []]
    assert ends[0][1].count("ChannelWarning: this is rank 0 of 2, and only it is steered yet") == 1
    assert "ChannelWarning" not in ends[1][1]


def test_echo_stop_into_the_fifo_of_a_program(tmp_path):
    """The need, to the letter: mkfifo, a training, `echo stop > ctl`."""
    subprocess.run(["mkfifo", "ctl"], cwd=tmp_path, check=True)
    process = subprocess.Popen(
        [
            sys.executable,
            TOP / "examples/tf_keras_steered.py",
            "--fifo",
            "ctl",
            "--epochs",
            "1000000",
        ],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    )
    while not kajitori.runs():
        assert process.poll() is None
    subprocess.run(["sh", "-c", "echo stop > ctl"], cwd=tmp_path, check=True, timeout=PATIENCE)
    out, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert re.fullmatch(r"stopped after \d+ epochs, \d+ steps: val_accuracy \d\.\d+\n", out)
    (stop,) = applied()
    assert (stop["verb"], stop["door"]) == ("stop", "fifo")
