# SPDX-License-Identifier: Apache-2.0
"""Trainings of real frameworks, followed while they run. Each waits for us after each step of its
work, until we have seen what it wrote: so nothing is read that was not there at once."""

import os
import struct
import subprocess
import sys

import pytest
import tensorflow as tf

import kajitori

PATIENCE = 120  # seconds until what never comes is a failure

KERAS = """
import sys
import keras
import numpy as np

class WaitForReader(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        print("written", flush=True)
        sys.stdin.readline()

keras.utils.set_random_seed(0)
x = np.random.default_rng(0).normal(size=(64, 4)).astype("float32")
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile("sgd", "mse", metrics=["mae"])
model.fit(
    x, x.sum(axis=1), validation_split=0.25, epochs=5, verbose=0,
    callbacks=[keras.callbacks.TensorBoard(sys.argv[1]), WaitForReader()],
)
"""

TF_SUMMARY = """
import sys
import tensorflow as tf

writer = tf.summary.create_file_writer(sys.argv[1] + "/run")
for step in range(5):
    with writer.as_default(step):
        tf.summary.scalar("loss", 1 / (step + 3))
        tf.summary.histogram("weights", [0.0, step])
        tf.summary.scalar("accuracy", step / 7)
    writer.flush()
    print("written", flush=True)
    sys.stdin.readline()
"""

EPOCH_TAGS = [
    ("train", "epoch_loss"),
    ("train", "epoch_mae"),
    ("validation", "epoch_loss"),
    ("validation", "epoch_mae"),
]


def take(reader, seen, timeout=0.0):
    columns = reader.read(timeout)
    for row in zip(columns.series, columns.step, columns.wall_time, columns.value, strict=True):
        info = reader.series(row[0])
        seen.setdefault((info.run, info.tag), []).append(row[1:])
    return len(columns)


def follow(code, folder, awaited):
    """What arrived, by run and tag, each in the order of its arrival. When the training has said for
    the n-th time that it has written, n values of each of `awaited` have to come."""
    seen = {}
    process = subprocess.Popen(
        [sys.executable, "-c", code, folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"},
    )
    with process, kajitori.EventReader(folder) as reader:
        for n, line in enumerate(process.stdout, start=1):
            assert line == "written\n"
            while any(len(seen.get(key, [])) < n for key in awaited):
                assert take(reader, seen, PATIENCE), seen
            print(file=process.stdin, flush=True)
        assert process.wait(PATIENCE) == 0
        reader.finish()
        while take(reader, seen):
            pass
    return seen


def written(folder):
    """The same of what is in the files, by TensorFlow."""
    found = {}
    for path in sorted(folder.rglob("events.out.tfevents.*")):
        for event in tf.compat.v1.train.summary_iterator(str(path)):
            for value in event.summary.value:
                array = tf.make_ndarray(value.tensor) if value.HasField("tensor") else None
                if array is not None and array.ndim == 0 and array.dtype.kind == "f":
                    key = str(path.parent.relative_to(folder)), value.tag
                    found.setdefault(key, []).append((event.step, event.wall_time, float(array)))
    return found


@pytest.mark.parametrize(
    ("code", "awaited"),
    [(KERAS, EPOCH_TAGS), (TF_SUMMARY, [("run", "loss"), ("run", "accuracy")])],
    ids=["keras", "tf.summary"],
)
def test_every_value_arrives_once_in_order_while_it_trains(tmp_path, code, awaited):
    seen = follow(code, tmp_path, awaited)
    for key in awaited:
        assert [step for step, _, _ in seen[key]] == list(range(5)), key
    assert seen == written(tmp_path)
    values = [value for _, _, value in seen[awaited[0]]]
    assert values == [struct.unpack("<f", struct.pack("<f", value))[0] for value in values]
