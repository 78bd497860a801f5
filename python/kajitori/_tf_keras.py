# SPDX-License-Identifier: Apache-2.0
"""What differs between versions of Keras: here, tf.keras 2.15 and its later editions (`tf_keras`).
`_keras3` has the same functions.

A `fit` of tf.keras calls some methods of its model at places where it calls no callback. Where there
is no other way in, such a method is replaced for one model and one `fit`: by an attribute of the
model, which hides that of its class.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from typing import Any

from kajitori import _tf_keras_rate
from kajitori._errors import UnsupportedError

WEIGHTS = "model.weights"
"""Prefix of the files of a checkpoint, in TensorFlow's own format: the one in HDF5 lacks optimizers of
`keras.optimizers.legacy` and all learning rates."""


def describe() -> str:
    package = next(sys.modules[name] for name in ("tf_keras", "keras") if name in sys.modules)
    return f"tf.keras {package.__version__}"


def model_of(model: Any) -> Any:
    """What a callback shows as its model."""
    return model


def optimizer_of(model: Any) -> Any:
    """The one that steps: without the wrapper that scales losses."""
    optimizer = getattr(model, "optimizer", None)
    return getattr(optimizer, "inner_optimizer", optimizer)


def iterations(model: Any) -> int:
    """Batches that the optimizer has seen, 0 when there is no optimizer to ask."""
    optimizer = optimizer_of(model)
    return 0 if optimizer is None else int(optimizer.iterations.numpy())


def can_skip_batches(model: Any) -> bool:
    """No: one whose gradients overflow is counted, too."""
    return False


def optimizers(model: Any) -> dict[str, Any]:
    """Those that have a learning rate: "" is the only one."""
    optimizer = optimizer_of(model)
    return {"": optimizer} if hasattr(optimizer, "learning_rate") else {}


def get_learning_rate(model: Any, optimizer: Any) -> float:
    return _tf_keras_rate.get(optimizer)


def set_learning_rate(model: Any, optimizer: Any, value: float) -> None:
    _tf_keras_rate.set(model, optimizer, value)


def schedule_of(optimizer: Any) -> str | None:
    """None: a schedule stays, within what `_tf_keras_rate` puts in its place."""
    return None


def skip_batches(model: Any, count: int) -> None:
    """For a `fit` in its on_epoch_begin: the next `count` batches are taken from the data, and nothing is
    done with them."""
    train, left = model.train_function, count

    def skip(batches: Any) -> Any:
        nonlocal left
        for _ in range(model._steps_per_execution.numpy()):
            next(batches)
        left -= int(model._steps_per_execution.numpy())
        if left <= 0:
            model.train_function = train
        return {}

    model.train_function = skip


def remarks(model: Any, callbacks: list[Any]) -> dict[str, list[str]]:
    """By verb, what else happens when it is obeyed."""
    return {"stop": [], "prune": [], "set": [], "extend": []}


def keep_backups(callbacks: list[Any], epoch: int, batches: int) -> Callable[[], None]:
    """Nothing yet: a `BackupAndRestore` does what it does."""
    return lambda: None


def place_of_backup(callbacks: list[Any]) -> tuple[int, int]:
    return 0, 0


def guards_trainable(model: Any) -> Any:
    """Nothing to guard: a layer's `trainable` is looked at by `compile` only."""
    return contextlib.nullcontext()


def evaluate(model: Any, data: Any) -> dict[str, Any]:
    x, y, weights = (*data, None, None)[:3] if isinstance(data, tuple) else (data, None, None)
    return model.evaluate(x, y, sample_weight=weights, verbose=0, return_dict=True)


def skip_validation(model: Any) -> None:
    """Ends the validation of a `fit` after the batch that runs, as if its data had ended."""
    handler = getattr(model, "_eval_data_handler", None)
    if handler is not None:
        handler._insufficient_data = True


def begin_with_epoch(model: Any, epoch: int | None) -> None:
    """For a `fit` in its on_train_begin, in the way of `tf.keras.callbacks.BackupAndRestore`; None
    takes it back."""
    if epoch is None:
        vars(model).pop(_COUNTERS, None)
        return
    if not hasattr(model, _COUNTERS):
        raise UnsupportedError("this model's fit cannot begin with a later epoch")
    setattr(model, _COUNTERS, lambda steps, initial_epoch: (epoch, 0))


_COUNTERS = "_maybe_load_initial_counters_from_ckpt"  # called by a fit in its beginning


def save_weights(model: Any, folder: str) -> None:
    model.save_weights(os.path.join(folder, WEIGHTS))


def load_weights(model: Any, folder: str) -> None:
    """Variables that are not there yet get their values when they are made."""
    prefix = os.path.join(folder, WEIGHTS)
    optimizer = optimizer_of(model)
    if model.built and hasattr(optimizer, "build"):
        optimizer.build(model.trainable_variables)
    if optimizer is not None:
        _tf_keras_rate.prepare(model, optimizer, prefix)
    model.load_weights(prefix).assert_existing_objects_matched()
