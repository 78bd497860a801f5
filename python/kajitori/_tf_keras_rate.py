# SPDX-License-Identifier: Apache-2.0
"""Learning rates of optimizers of tf.keras, of both kinds, through their schedules.

To set a rate that follows a schedule is to move the schedule: from now on it gives what it would have
given, in proportion to the new rate. A function that TensorFlow has traced keeps the schedule that it
was traced with, so the first time the model's train function is traced anew; after that only a factor
is assigned.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from kajitori._errors import OutOfRangeError, UnsupportedError

FACTOR = "kajitori_factor"
"""Name of the factor among the parts of an optimizer that a checkpoint has."""


def get(optimizer: Any) -> float:
    """The rate of the next batch."""
    source = _source(optimizer)
    return _shortest(
        source(optimizer.iterations) if is_schedule(source) else optimizer.learning_rate
    )


def set(model: Any, optimizer: Any, value: float) -> None:
    source = _source(optimizer)
    if is_schedule(source):
        _set_scheduled(model, optimizer, value)
    elif hasattr(source, "assign"):
        source.assign(_fitting(value, source.dtype))
    else:
        raise UnsupportedError(
            f"the learning rate is a {type(source).__name__}, which cannot be assigned; to set it, "
            "compile the model with a number or a schedule"
        )


def _set_scheduled(model: Any, optimizer: Any, value: float) -> None:
    schedule = _source(optimizer)
    rate = np.asarray(getattr(schedule, "unmoved", schedule)(optimizer.iterations))
    _fitting(value, rate.dtype)
    unmoved = float(rate)
    if not (np.isfinite(unmoved) and unmoved > 0):
        raise UnsupportedError(
            f"the learning rate follows a schedule ({type(schedule).__name__}) that gives "
            f"{unmoved:g} now, of which {value:g} is no multiple"
        )
    move(model, optimizer).assign(value / unmoved)
    if hasattr(optimizer, "_current_learning_rate"):
        optimizer._current_learning_rate.assign(value)


def move(model: Any, optimizer: Any) -> Any:
    """The factor of the optimizer's schedule, which gets one where it has none."""
    schedule = _source(optimizer)
    if not hasattr(schedule, FACTOR):
        factor = _new_factor()
        optimizer._track_trackable(factor, FACTOR, overwrite=True)
        optimizer.learning_rate = _movable(schedule, factor)
        model.train_function = model.make_train_function(force=True)
    return getattr(_source(optimizer), FACTOR)


def prepare(model: Any, optimizer: Any, prefix: str) -> None:
    """Before a checkpoint is loaded: if it is one of a schedule that had been moved, this one gets a
    factor, too."""
    import tensorflow as tf

    names = [name for name, _ in tf.train.list_variables(prefix)]
    if is_schedule(_source(optimizer)) and any(f"/{FACTOR}/" in name for name in names):
        move(model, optimizer)


def _new_factor() -> Any:
    import tensorflow as tf

    return tf.Variable(1.0, dtype=tf.float64, trainable=False, name=FACTOR)


def _movable(schedule: Any, factor: Any) -> Any:
    """A copy that is multiplied by `factor`. A model that is saved has the schedule as it was."""
    import tensorflow as tf

    kind = type(schedule)

    class Movable(kind):
        def unmoved(self, step: Any) -> Any:
            return super().__call__(step)

        def __call__(self, step: Any) -> Any:
            rate = tf.convert_to_tensor(super().__call__(step))
            return tf.cast(tf.cast(rate, factor.dtype) * factor, rate.dtype)

    for name in ("__name__", "__qualname__", "__module__"):
        setattr(Movable, name, getattr(kind, name))
    moved = copy.copy(schedule)
    moved.__class__ = Movable
    setattr(moved, FACTOR, factor)
    return moved


def is_schedule(source: Any) -> bool:
    return callable(source) and hasattr(source, "get_config")


def _source(optimizer: Any) -> Any:
    """What the optimizer takes its rate from: a variable, a schedule, or what else it was given."""
    if hasattr(optimizer, "_hyper"):  # a legacy one, which makes its variables late
        optimizer._create_hypers()
        return optimizer._hyper["learning_rate"]
    return getattr(optimizer, "_learning_rate", optimizer.learning_rate)


def _fitting(value: float, dtype: Any) -> float:
    dtype = np.dtype(getattr(dtype, "as_numpy_dtype", dtype))
    with np.errstate(over="ignore"):
        if not np.isfinite(np.asarray(value).astype(dtype)):
            raise OutOfRangeError(f"{value} is more than {dtype} can hold")
    return value


def _shortest(value: Any) -> float:
    """The shortest decimal that is the same number in the array's precision: 0.001, where a float32
    widened would show 0.0010000000474974513."""
    array = np.asarray(value)
    return float(str(array[()])) if array.dtype.kind == "f" else float(array)
