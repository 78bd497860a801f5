# SPDX-License-Identifier: Apache-2.0
"""What differs between versions of Keras: here, Keras 3 on any of its backends. `_tf_keras` has the
same functions for tf.keras 2.15."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np

from kajitori._errors import OutOfRangeError, UnsupportedError

WEIGHTS = "model.weights.h5"


def describe() -> str:
    return f"keras {keras.__version__} ({keras.backend.backend()})"


def model_of(model: Any) -> Any:
    """What a callback shows as its model: without torch's wrapper, and up to date on JAX."""
    if keras.backend.backend() == "torch":
        return _unwrapped(model)
    _sync(model)
    return model


def _unwrapped(model: Any) -> Any:
    return model if isinstance(model, keras.Model) else model.module


def _sync(model: Any) -> None:
    """On JAX a loop carries its own copy of the variables and writes it back: fetch it first,
    and the loop takes what we assign."""
    if keras.backend.backend() == "jax":
        model.jax_state_sync()


def iterations(model: Any) -> int:
    """Batches that the optimizer has seen, 0 when there is no optimizer to ask. `iterations` would
    be fewer of them with `gradient_accumulation_steps`."""
    optimizer = getattr(model, "optimizer", None)
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    _sync(model)
    iterations = getattr(inner, "_iterations", getattr(inner, "iterations", None))
    return 0 if iterations is None else int(keras.ops.convert_to_numpy(iterations))


def can_skip_batches(model: Any) -> bool:
    """Whether the optimizer leaves out batches whose gradients overflow."""
    return hasattr(model.optimizer, "inner_optimizer")


def get_learning_rate(model: Any) -> float:
    _sync(model)
    return _shortest(keras.ops.convert_to_numpy(model.optimizer.learning_rate))


def set_learning_rate(model: Any, value: float) -> None:
    optimizer = model.optimizer
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    if not isinstance(inner.learning_rate, keras.Variable):
        raise UnsupportedError(
            "the learning rate follows a schedule "
            f"({type(getattr(inner, '_learning_rate', None)).__name__}); to set it, compile the "
            "model with a number"
        )
    dtype = inner.learning_rate.dtype
    with np.errstate(over="ignore"):
        if not np.isfinite(np.asarray(value).astype(dtype)):
            raise OutOfRangeError(f"{value} is more than {dtype} can hold")
    _sync(model)
    optimizer.learning_rate = value


@contextlib.contextmanager
def guards_trainable(model: Any) -> Iterator[None]:
    """On JAX a loop holds the trainable variables in a list of its own, and a layer that is frozen
    meanwhile ends `fit` with an exception: it is put back, and refused instead."""
    is_jax = keras.backend.backend() == "jax"
    layers = model._flatten_layers() if is_jax else []
    before = [(layer, layer.trainable) for layer in layers]  # the outer ones first
    yield
    if any(layer.trainable != was for layer, was in before):
        for layer, was in before:
            layer.trainable = was
        raise UnsupportedError("on JAX no layer's `trainable` can change during a fit")


def begin_with_epoch(model: Any, epoch: int | None) -> None:
    """For a `fit` in its on_train_begin, in the way of `keras.callbacks.BackupAndRestore`; None
    takes it back, since it would count for the next `fit`, too."""
    if not hasattr(model, "_initial_epoch"):
        raise UnsupportedError("this model's fit cannot begin with a later epoch")
    model._initial_epoch = epoch


def evaluate(model: Any, data: Any) -> dict[str, Any]:
    x, y, weights = keras.utils.unpack_x_y_sample_weight(data)
    return model.evaluate(x, y, sample_weight=weights, verbose=0, return_dict=True)


def skip_validation(model: Any) -> None:
    """Ends a validation after the batch that runs."""
    model.stop_evaluating = True


def save_weights(model: Any, folder: str) -> None:
    model.save_weights(os.path.join(folder, WEIGHTS))


def load_weights(model: Any, folder: str) -> None:
    optimizer = getattr(model, "optimizer", None)
    if optimizer is not None and not optimizer.built:
        optimizer.build(model.trainable_variables)
    model.load_weights(os.path.join(folder, WEIGHTS))


def _shortest(value: Any) -> float:
    """The shortest decimal that is the same number in the array's precision: 0.001, where a float32
    widened would show 0.0010000000474974513."""
    array = np.asarray(value)
    return float(str(array[()])) if array.dtype.kind == "f" else float(array)
