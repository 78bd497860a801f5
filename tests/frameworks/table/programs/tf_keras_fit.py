# SPDX-License-Identifier: Apache-2.0
"""`fit` of the tf.keras of TensorFlow 2.15."""

import numpy as np
from cell_driver import EPOCHS, LR, STEPS, TESTS, serve
from tensorflow import keras

from kajitori.keras import SteeringCallback

BATCH = 8
X = np.random.default_rng(0).normal(size=(STEPS * BATCH, 4)).astype("float32")
Y = X.sum(axis=1, keepdims=True)
VALIDATION = (X[: TESTS * BATCH], Y[: TESTS * BATCH])


class Watch(keras.callbacks.Callback):
    def __init__(self, record):
        super().__init__()
        self.record = record

    def on_train_batch_end(self, batch, logs=None):
        if logs:  # else it was seen before the training was left, and passed over
            # of a schedule: what the batch has used
            self.record.step(self.model.optimizer.learning_rate.numpy())

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
