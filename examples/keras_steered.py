# SPDX-License-Identifier: Apache-2.0
"""Trains a small network on scikit-learn's digits and can be steered while it runs.

python keras_steered.py --fifo ctl &
kajitori status
kajitori set lr=1e-4
kajitori send 'save path=now.keras'
kajitori checkpoint
kajitori pause --level leave --at epoch
kajitori resume RUN
echo stop > ctl
"""

import argparse
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
os.environ.setdefault("TF_NUM_INTEROP_THREADS", "1")

import keras
from sklearn.datasets import load_digits

from kajitori.keras import SteeringCallback

parser = argparse.ArgumentParser()
parser.add_argument("--fifo", help="take commands from a FIFO at this path too")
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--lr", type=float, default=0.001, help="learning rate of Adam")
parser.add_argument("--checkpoints", default="checkpoints", help="folder for checkpoints")
args = parser.parse_args()

keras.utils.set_random_seed(0)
digits = load_digits()
x, y = digits.data.astype("float32") / 16, digits.target

model = keras.Sequential(
    [
        keras.Input((64,)),
        keras.layers.Dense(64, activation="relu"),
        keras.layers.Dropout(0.2),
        keras.layers.Dense(10, activation="softmax"),
    ]
)
model.compile(
    keras.optimizers.Adam(args.lr), loss="sparse_categorical_crossentropy", metrics=["accuracy"]
)


def save(callback, path):
    """Writes the whole model to PATH."""
    callback.model.save(path)
    return {"path": os.path.abspath(path)}


steering = SteeringCallback(
    fifo=args.fifo,
    commands={"save": (save, {"path": str})},
    checkpoint_dir=args.checkpoints,
    evaluation_data=(x[1400:], y[1400:]),
)
if steering.resumed_from:
    print(f"goes on from {steering.resumed_from} with epoch {steering.initial_epoch}", flush=True)
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
why = f" ({steering.run.stop_reason})" if steering.run.stop_reason else ""
epochs = len(history.history["loss"])
accuracy = history.history["val_accuracy"][-1]
print(f"{how}{why} after {epochs} epochs, {steering.step} steps: val_accuracy {accuracy:.3f}")
