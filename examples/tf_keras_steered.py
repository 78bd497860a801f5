# SPDX-License-Identifier: Apache-2.0
"""Classifies handwritten digits with tf.keras, in a Model.fit that listens to a FIFO.

TensorFlow 2.15 (tf.keras is Keras 2.15 there)::

    mkfifo ctl
    python examples/tf_keras_steered.py --fifo ctl --epochs 1000000 &
    echo stop > ctl

Or, without a FIFO, ``kajitori stop --at epoch``, ``kajitori set lr=1e-4``, ``kajitori pause``, ….
"""

import argparse

import tensorflow as tf
from sklearn.datasets import load_digits

from kajitori.keras import SteeringCallback

parser = argparse.ArgumentParser()
parser.add_argument("--fifo", help="take commands from a FIFO at this path too")
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--lr", type=float, default=0.001, help="learning rate of Adam")
parser.add_argument("--checkpoints", default="checkpoints", help="folder for checkpoints")
args = parser.parse_args()

tf.keras.utils.set_random_seed(0)
digits = load_digits()
x, y = digits.data.astype("float32") / 16, digits.target

model = tf.keras.Sequential(
    [
        tf.keras.layers.Dense(64, activation="relu", input_shape=(64,)),
        tf.keras.layers.Dense(10, activation="softmax"),
    ]
)
model.compile(
    tf.keras.optimizers.Adam(args.lr), loss="sparse_categorical_crossentropy", metrics=["accuracy"]
)
steering = SteeringCallback(fifo=args.fifo, checkpoint_dir=args.checkpoints)
history = model.fit(
    x[:1400],
    y[:1400],
    validation_data=(x[1400:], y[1400:]),
    epochs=args.epochs,
    verbose=0,
    callbacks=[steering],
)

# The code after fit runs, whether the training was stopped or came to its end.
how = "stopped" if steering.run.should_stop else "finished"
epochs, accuracy = len(history.history["loss"]), history.history["val_accuracy"][-1]
print(f"{how} after {epochs} epochs, {steering.step} steps: val_accuracy {accuracy:.3f}")
