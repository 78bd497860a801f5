# SPDX-License-Identifier: Apache-2.0
"""`fit` of Keras 3 on the backend that KERAS_BACKEND names, or of tf.keras 2.15."""

import numpy as np
from turns import STEPS, measure

try:
    import keras

    assert keras.__version__ >= "3"
except (ImportError, AssertionError):
    from tensorflow import keras

import kajitori.keras

EPOCH = 240


class Empty(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        pass


class Dispatcher(keras.callbacks.Callback):
    """Hands everything on to the adapter, and the end of a batch to one of both."""

    def __init__(self, turns, steering):
        super().__init__()
        self.turns, self.steering = turns, steering
        self.ends = {
            "empty": Empty().on_train_batch_end,
            "steering": steering.on_train_batch_end,
        }

    def set_model(self, model):
        super().set_model(model)
        self.steering.set_model(model)

    def set_params(self, params):
        super().set_params(params)
        self.steering.set_params(params)

    def on_train_begin(self, logs=None):
        self.steering.on_train_begin(logs)

    def on_train_end(self, logs=None):
        self.steering.on_train_end(logs)

    def on_epoch_begin(self, epoch, logs=None):
        self.steering.on_epoch_begin(epoch, logs)

    def on_epoch_end(self, epoch, logs=None):
        self.steering.on_epoch_end(epoch, logs)

    def on_train_batch_end(self, batch, logs=None):
        self.turns.next()
        self.ends[self.turns.name](batch, logs)


def train(turns):
    model = keras.Sequential(
        [
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    lots = np.random.default_rng(0)
    x = lots.normal(size=(EPOCH * 32, 64)).astype("float32")
    y = lots.integers(10, size=EPOCH * 32)
    dispatcher = Dispatcher(turns, kajitori.keras.SteeringCallback())
    epochs = max(STEPS // EPOCH, 1)
    model.fit(x, y, batch_size=32, epochs=epochs, verbose=0, callbacks=[dispatcher])


measure(train)
