# SPDX-License-Identifier: Apache-2.0
"""`fit` of Keras 3 on the backend that KERAS_BACKEND names, or of tf.keras 2.15."""

import numpy as np
from turns import STEPS, both, measure

try:
    import keras

    assert keras.__version__ >= "3"
except (ImportError, AssertionError):
    from tensorflow import keras

import kajitori.keras

EPOCH = 240


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
    callback = both(kajitori.keras.SteeringCallback, "on_train_batch_end", turns)()
    epochs = max(STEPS // EPOCH, 1)
    model.fit(x, y, batch_size=32, epochs=epochs, verbose=0, callbacks=[callback])


measure(train)
