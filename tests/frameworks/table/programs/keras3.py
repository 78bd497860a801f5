# SPDX-License-Identifier: Apache-2.0
"""Keras 3, on the backend that KERAS_BACKEND names."""

import keras
import numpy as np
from cell_driver import EPOCHS, LR, STEPS, TESTS, serve

from kajitori.keras import SteeringCallback

BATCH = 8
X = np.random.default_rng(0).normal(size=(STEPS * BATCH, 4)).astype("float32")
Y = X.sum(axis=1, keepdims=True)
VALIDATION = (X[: TESTS * BATCH], Y[: TESTS * BATCH])


class Watch(keras.callbacks.Callback):
    def __init__(self, record):
        super().__init__()
        self.record = record

    def on_train_batch_begin(self, batch, logs=None):
        if keras.backend.backend() == "jax":
            self.model.jax_state_sync()
        self.lr = keras.ops.convert_to_numpy(self.model.optimizer.learning_rate)

    def on_train_batch_end(self, batch, logs=None):
        if logs:  # else it was seen before the training was left, and passed over
            self.record.step(self.lr)

    def on_test_batch_end(self, batch, logs=None):
        self.record.test()

    def on_epoch_end(self, epoch, logs=None):
        self.record.epoch_end()

    def on_train_end(self, logs=None):
        self.record.end()


def train(record):
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    lr = LR
    if record.options.get("schedule"):
        lr = keras.optimizers.schedules.ExponentialDecay(LR, STEPS, 0.5)
    model.compile(keras.optimizers.Adam(lr), "mse", metrics=["mae"])
    steering = SteeringCallback(
        commands={"count": lambda cb: len(record.did["lrs"])},
        checkpoint_dir=record.folder,
        evaluation_data=VALIDATION,
        epochs=EPOCHS,
    )
    model.fit(
        X,
        Y,
        batch_size=BATCH,
        epochs=2 * EPOCHS,  # which extend may come to
        verbose=0,
        validation_data=VALIDATION,
        validation_batch_size=BATCH,
        callbacks=[Watch(record), steering],
    )
    record.did["pruned"] = steering.pruned


serve(train)
