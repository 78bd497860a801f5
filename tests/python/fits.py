# SPDX-License-Identifier: Apache-2.0
"""What the tests of SteeringCallback share: a model, and a training that other processes steer."""

import subprocess
import time

import keras
import numpy as np
from training import PATIENCE, outside

from kajitori.keras import SteeringCallback

STEPS = 10  # of an epoch
FOR_EVER = 1_000_000


def make_model(learning_rate=0.125, steps_per_execution=1, optimizer=None):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8), keras.layers.Dense(1)])
    model.compile(
        optimizer or keras.optimizers.Adam(learning_rate),
        loss="mse",
        metrics=["mae"],
        steps_per_execution=steps_per_execution,
    )
    return model


X = np.random.default_rng(0).normal(size=(STEPS * 8, 4)).astype("float32")
Y = X.sum(axis=1, keepdims=True)


class Guard(keras.callbacks.Callback):
    """Counts what Keras did, and ends a training that nothing ends."""

    def __init__(self):
        super().__init__()
        self.batches = self.epochs = self.tests = 0
        self.deadline = time.monotonic() + PATIENCE

    def on_train_batch_end(self, batch, logs=None):
        self.batches += 1
        assert time.monotonic() < self.deadline, "no command came through"

    def on_epoch_end(self, epoch, logs=None):
        self.epochs += 1

    def on_test_batch_end(self, batch, logs=None):
        self.tests += 1


class At(keras.callbacks.Callback):
    """Starts another process after so many batches (of training or validation)."""

    def __init__(self, start, batches=3, hook="on_train_batch_end"):
        super().__init__()
        self.start, self.left, self.process = start, batches, None
        setattr(self, hook, self._count)

    def _count(self, batch, logs=None):
        self.left -= 1
        if self.left == 0:
            self.process = self.start()


def fit(model, *callbacks, epochs=FOR_EVER, validate=False, **options):
    """The training; `At` sees a batch before the steering callback does."""
    guard = Guard()
    order = sorted(callbacks, key=lambda callback: isinstance(callback, SteeringCallback))
    history = model.fit(
        X,
        Y,
        batch_size=8,
        epochs=epochs,
        verbose=0,
        callbacks=[guard, *order],
        validation_data=(X, Y) if validate else None,
        validation_batch_size=8 if validate else None,
        **options,
    )
    return history, guard


def has_files(folder):
    """tf.keras' BackupAndRestore leaves an empty folder, Keras 3's none."""
    return any(path.is_file() for path in folder.rglob("*"))


def shell(line):
    return lambda: subprocess.Popen(["sh", "-c", line])


def steering(code):
    return lambda: outside(code)
