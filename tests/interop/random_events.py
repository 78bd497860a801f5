# SPDX-License-Identifier: Apache-2.0
"""Folders of random event files, written by the real writers: TensorFlow's ``tf.summary`` and
TensorBoard's ``EventFileWriter`` with messages made by hand."""

import math
import random

import numpy as np
import tensorflow as tf
from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2
from tensorboard.summary.writer.event_file_writer import EventFileWriter

# by TensorFlow's numbers: the repeated field of each type, and its size in bytes
DTYPES = {
    1: ("float_val", 4), 2: ("double_val", 8), 3: ("int_val", 4), 4: ("int_val", 1),
    5: ("int_val", 2), 6: ("int_val", 1), 9: ("int64_val", 8), 10: ("bool_val", 1),
    14: ("half_val", 2), 17: ("int_val", 2), 19: ("half_val", 2), 22: ("uint32_val", 4),
    23: ("uint64_val", 8),
}  # fmt: skip
ONE_ELEMENT = (None, [], [1], [1, 1])
OTHER_SHAPES = ([3], [2, 2], [0])
TAGS = [
    "loss",
    "val/loss",
    "acc uracy",
    "日本語",
    "a:b\\c",
    "",
    "line\nbreak",
    "\x01",
    "x" * 300,
    "*",
]
PLUGINS = ["", "", "scalars", "images", "text", "hparams", "custom"]
RUNS = [".", "train", "train/deep", "a b", "run:7", "ラン", "-x"]
ODD_FLOATS = [0.0, -0.0, math.nan, math.inf, -math.inf, 1e-45, 3.4e38, 1e300, 16777217.0]


def any_float(rng):
    return rng.choice(ODD_FLOATS) if rng.random() < 0.3 else rng.gauss(0, 10 ** rng.randint(-5, 5))


def any_float32(rng):
    with np.errstate(over="ignore"):
        return float(np.float32(any_float(rng)))


def any_step(rng):
    if rng.random() < 0.1:
        return rng.choice([-(2**63), 2**63 - 1, -1, 2**53 + 1, 0])
    return rng.randint(0, 50)


def any_wall_time(rng):
    return rng.choice([0.0, -5.0, math.inf]) if rng.random() < 0.05 else rng.uniform(1.7e9, 1.8e9)


def elements(rng, field, dtype, size, n):
    """As the repeated field has them."""
    if field == "float_val":
        return [any_float32(rng) for _ in range(n)]
    if field == "double_val":
        return [any_float(rng) for _ in range(n)]
    if field == "bool_val":
        return [rng.random() < 0.5 for _ in range(n)]
    is_signed = dtype in (3, 5, 6, 9)
    low = -(2 ** (8 * size - 1)) if is_signed else 0
    high = low + 2 ** (8 * size) - 1
    return [rng.choice([low, high, rng.randint(low, high), rng.randint(0, 9)]) for _ in range(n)]


def any_tensor(rng):
    dtype, (field, size) = rng.choice(list(DTYPES.items()))
    shape = rng.choice(OTHER_SHAPES) if rng.random() < 0.2 else rng.choice(ONE_ELEMENT)
    n = math.prod(shape or [])
    tensor = tensor_pb2.TensorProto(dtype=dtype)
    if shape is not None:
        tensor.tensor_shape.SetInParent()
        for length in shape:
            tensor.tensor_shape.dim.add(size=length)
    if n == 0 or rng.random() < 0.5:
        getattr(tensor, field).extend(elements(rng, field, dtype, size, n))
    else:
        content = rng.randbytes(size * n) if dtype != 10 else bytes(rng.choices((0, 1), k=n))
        tensor.tensor_content = content[: -1 if rng.random() < 0.05 else None]
    return tensor


def any_value(rng):
    value = summary_pb2.Summary.Value(tag=rng.choice(TAGS))
    kind = rng.random()
    if kind < 0.4:
        value.simple_value = any_float32(rng)
    elif kind < 0.85:
        value.tensor.CopyFrom(any_tensor(rng))
    elif kind < 0.9:
        value.image.encoded_image_string = rng.randbytes(rng.randint(0, 5000))
    elif kind < 0.93:
        value.histo.bucket_limit.extend([0.5, 1.0])
        value.histo.bucket.extend([1.0, 2.0])
    elif kind < 0.96:
        value.tensor.dtype = 7
        value.tensor.string_val.append(rng.randbytes(9))
    if rng.random() < 0.4:
        value.metadata.plugin_data.plugin_name = rng.choice(PLUGINS)
        value.metadata.display_name = "名"
        value.metadata.data_class = rng.randint(0, 3)
    return value


def any_event(rng):
    event = event_pb2.Event(wall_time=any_wall_time(rng), step=any_step(rng))
    kind = rng.random()
    if kind < 0.85:
        event.summary.value.extend(any_value(rng) for _ in range(rng.choice((1, 1, 1, 2, 5))))
    elif kind < 0.9:
        event.session_log.status = rng.randint(1, 3)
    elif kind < 0.93:
        event.graph_def = rng.randbytes(rng.randint(0, 300000))
    elif kind < 0.95:
        event.tagged_run_metadata.tag = "trace"
    return event


class ByTensorBoard:
    """EventFileWriter, with messages that no library would write."""

    def __init__(self, folder):
        self.writer = EventFileWriter(str(folder))

    def write(self, rng):
        self.writer.add_event(any_event(rng))

    def close(self):
        self.writer.close()


class ByTensorFlow:
    """tf.summary."""

    def __init__(self, folder):
        self.writer = tf.summary.create_file_writer(str(folder))

    def write(self, rng):
        tag = rng.choice(TAGS[:5])
        step = any_step(rng)
        with self.writer.as_default(step):
            kind = rng.random()
            if kind < 0.8:
                tf.summary.scalar(tag, any_float32(rng), description=rng.choice((None, "said")))
            elif kind < 0.9:
                tf.summary.text(tag, "some words")
            else:
                tf.summary.histogram(tag, [1.0, 2.0, 3.0])

    def close(self):
        self.writer.close()


def write_folder(folder, seed, n_events=150, look=None):
    """Several runs with several files each, all open at the same time. `look` is called now and then
    when what one of them holds has been written."""
    rng = random.Random(seed)
    runs = rng.sample(RUNS, rng.randint(1, 3))
    writers = [
        rng.choice((ByTensorBoard, ByTensorBoard, ByTensorFlow))(folder / run)
        for run in runs
        for _ in range(rng.randint(1, 3))
    ]
    for n in range(n_events):
        writer = rng.choice(writers)
        writer.write(rng)
        if look and n % 5 == 0:
            writer.writer.flush()
            look()
    for writer in writers:
        writer.close()
    return folder
