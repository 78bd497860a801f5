# SPDX-License-Identifier: Apache-2.0
"""A plain Keras program: trains a small network on scikit-learn's digits, with the TensorBoard
callback. It knows nothing of kajitori; `kajitori tune` prunes it from its event files.

    python keras_plain.py --lr 0.001 --units 64 --epochs 12 --logdir logs
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

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.001, help="learning rate of Adam")
parser.add_argument("--units", type=int, default=64, help="width of the hidden layer")
parser.add_argument("--epochs", type=int, default=12)
parser.add_argument("--logdir", default="logs", help="folder of the event files")
args = parser.parse_args()

keras.utils.set_random_seed(0)
digits = load_digits()
x, y = digits.data.astype("float32") / 16, digits.target

model = keras.Sequential(
    [
        keras.Input((64,)),
        keras.layers.Dense(args.units, activation="relu"),
        keras.layers.Dense(10, activation="softmax"),
    ]
)
model.compile(
    keras.optimizers.Adam(args.lr), loss="sparse_categorical_crossentropy", metrics=["accuracy"]
)
history = model.fit(
    x[:1400],
    y[:1400],
    validation_data=(x[1400:], y[1400:]),
    epochs=args.epochs,
    verbose=0,
    callbacks=[keras.callbacks.TensorBoard(args.logdir, write_graph=False)],
)
print(f"val_loss {history.history['val_loss'][-1]:.4f}")
