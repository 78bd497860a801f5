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

import numpy as np

from kajitori._errors import UnsupportedError
from kajitori._keras_callback import is_of_keras
from kajitori._precision import check_fits, shortest

WEIGHTS = "model.weights"
"""Prefix of the files of a checkpoint, in TensorFlow's own format: the one in HDF5 lacks optimizers of
`keras.optimizers.legacy` and all learning rates."""

BEST_WEIGHTS = "EarlyStopping does not put back the weights of the best epoch"


def describe() -> str:
    package = next(sys.modules[name] for name in ("tf_keras", "keras") if name in sys.modules)
    return f"tf.keras {package.__version__}"


def model_of(model: Any) -> Any:
    """What a callback shows as its model."""
    return model


def _inner(optimizer: Any) -> Any:
    """The one that steps: without the wrapper that scales losses."""
    return getattr(optimizer, "inner_optimizer", optimizer)


def iterations(model: Any) -> int:
    """Batches that the optimizer has seen, 0 when there is no optimizer to ask."""
    optimizer = _inner(getattr(model, "optimizer", None))
    return 0 if optimizer is None else int(optimizer.iterations.numpy())


def can_skip_batches(model: Any) -> bool:
    """No: one whose gradients overflow is counted, too."""
    return False


def optimizers(model: Any) -> dict[str, Any]:
    """Those that have a learning rate: there is one, without a name."""
    optimizer = getattr(model, "optimizer", None)
    return {"": optimizer} if hasattr(optimizer, "learning_rate") else {}


def _source(optimizer: Any) -> Any:
    """What the optimizer takes its rate from: a variable, a schedule, or what else it was given."""
    inner = _inner(optimizer)
    if hasattr(inner, "_hyper"):  # a legacy one, which makes its variables late
        inner._create_hypers()
        return inner._hyper["learning_rate"]
    return getattr(inner, "_learning_rate", inner.learning_rate)


def _is_number(source: Any) -> bool:
    return hasattr(source, "assign")


def schedule_of(optimizer: Any) -> Any:
    """What the learning rate follows; None where it is a number that can be assigned."""
    source = _source(optimizer)
    return None if _is_number(source) else source


def get_learning_rate(model: Any, optimizer: Any) -> float:
    """That of the next batch."""
    return shortest(_rate(optimizer))


def _rate(optimizer: Any) -> Any:
    source = _source(optimizer)
    if callable(source) and not _is_number(source):
        is_schedule = hasattr(source, "get_config")  # else a function without arguments
        source = source(_inner(optimizer).iterations) if is_schedule else source()
    return np.asarray(source.numpy() if hasattr(source, "numpy") else source)


def set_learning_rate(model: Any, optimizer: Any, value: float) -> None:
    """From the next batch on, whatever the optimizer has. A schedule is replaced by a number, and the
    step, which may have been traced with the old one, is traced anew."""
    dtype = _rate(optimizer).dtype
    check_fits(value, dtype)
    source = _source(optimizer)
    if _is_number(source):
        source.assign(value)
    else:
        _replace(_inner(optimizer), value, dtype)
        model.train_function = model.make_train_function(force=True)


def _replace(optimizer: Any, value: float, dtype: Any) -> None:
    import tensorflow as tf

    rate = tf.Variable(
        value,
        dtype=dtype,
        trainable=False,
        name="learning_rate",
        aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
    )
    if hasattr(optimizer, "_hyper"):
        optimizer._set_hyper("learning_rate", rate)
    else:
        optimizer._learning_rate = rate


def guards_trainable(model: Any) -> Any:
    """Nothing to guard: a layer's `trainable` is looked at by `compile` only."""
    return contextlib.nullcontext()


_COUNTERS = "_maybe_load_initial_counters_from_ckpt"  # where a fit asks with which batch it begins
_UNUSED = -1  # Keras' number for no batch


def begin_with_epoch(model: Any, epoch: int | None) -> None:
    """For a `fit` in its on_train_begin, in the way of `tf.keras.callbacks.BackupAndRestore`; None
    takes it back."""
    vars(model).pop(_COUNTERS, None)
    if epoch is None:
        return
    if not hasattr(model, _COUNTERS):
        raise UnsupportedError("this model's fit cannot begin with a later epoch")
    setattr(model, _COUNTERS, lambda steps, initial_epoch: (epoch, 0))


def is_backup(callback: Any) -> bool:
    return is_of_keras(callback, "BackupAndRestore")


def watch_backup(model: Any) -> None:
    """For a `fit` in its on_train_begin: a `BackupAndRestore` lets a fit begin with any batch, but with the
    data of the first one. Now it begins with the epoch, and the place is kept for
    `place_of_backup`."""
    vars(model).pop(_COUNTERS, None)  # of a fit that failed in its beginning
    original = getattr(model, _COUNTERS, None)
    if original is None:
        return

    def counters(steps: int | None, initial_epoch: int) -> tuple[int, int]:
        vars(model).pop(_COUNTERS, None)
        epoch, batch = original(steps, initial_epoch)
        state = model._training_state
        if state is not None:
            ours = _UNUSED - int(state._ckpt_saved_batch.numpy())
            can_skip = steps and _build_optimizer(model)
            state.kajitori_place = (epoch, max(batch, ours) if can_skip else 0)
        return epoch, 0

    setattr(model, _COUNTERS, counters)


def _build_optimizer(model: Any) -> bool:
    """Makes its variables, which get their values now from a checkpoint that may be gone at the first
    step; False where the model has none yet."""
    inner = _inner(getattr(model, "optimizer", None))
    if model.built and hasattr(inner, "build"):
        inner.build(model.trainable_variables)
    elif model.built and hasattr(inner, "_create_all_weights"):
        inner._create_all_weights(model.trainable_variables)
    return bool(model.built)


def place_of_backup(callbacks: list[Any]) -> tuple[int, int]:
    """Epoch and number of batches of it that the weights which a `BackupAndRestore` has loaded have
    seen."""
    for backup in callbacks:
        place = getattr(getattr(backup, "_training_state", None), "kajitori_place", None)
        if place is not None:
            return place
    return 0, 0


def keep_backups(callbacks: list[Any], epoch: int, batches: int) -> Callable[[bool], None]:
    """Has each `BackupAndRestore` keep its backup, and makes it that of the place where `fit` is: in this
    epoch, with `batches` of it behind. To be called at a stop, and what it returns when all callbacks
    have had their on_train_end: with True; with False where an exception has ended `fit` before.

    One that saves each epoch saves once more at its end, and a fit that finds that goes on with the
    next one. So a partial epoch is saved as the end of the one before, and its batches by a number
    that Keras never writes and never reads. Without us that epoch is begun anew then."""
    backups = [b for b in callbacks if is_backup(b)]
    deletes = [backup.delete_checkpoint for backup in backups]
    for backup in backups:
        backup.delete_checkpoint = False
        state, steps = backup._training_state, backup.params.get("steps")
        if isinstance(backup.save_freq, int):
            if batches or steps:
                state._ckpt_saved_batch.assign((batches or steps) - 1)
            state.back_up(epoch)
        elif batches:
            state._ckpt_saved_epoch.assign(epoch - 1)
            state._ckpt_saved_batch.assign(_UNUSED - batches)

    def finish(is_whole: bool) -> None:
        for backup, delete in zip(backups, deletes, strict=True):
            backup.delete_checkpoint = delete

    return finish


def skip_batches(model: Any, count: int) -> None:
    """For a `fit` in its on_epoch_begin: the next `count` batches are taken from the data, and nothing is
    done with them. The other callbacks are called for them, without metrics; `TensorBoard`, which
    writes the graph of the step at the end of the first batch, finds none: there is none yet."""
    train, traced, left = model.train_function, model.train_tf_function, count

    def skip(batches: Any) -> dict[str, Any]:
        nonlocal left
        each = int(model._steps_per_execution.numpy())
        for _ in range(each):
            next(batches)
        left -= each
        if left <= 0:
            model.train_function, model.train_tf_function = train, traced
        return {}

    skip.kajitori_train = train, traced
    model.train_function, model.train_tf_function = skip, None


def end_skipping(model: Any) -> None:
    """After a `fit` that failed while it passed over batches; else nothing."""
    kept = getattr(model.train_function, "kajitori_train", None)
    if kept is not None:
        model.train_function, model.train_tf_function = kept


def evaluate(model: Any, data: Any) -> dict[str, Any]:
    x, y, weights = (*data, None, None)[:3] if isinstance(data, tuple) else (data, None, None)
    return model.evaluate(x, y, sample_weight=weights, verbose=0, return_dict=True)


def skip_validation(model: Any) -> None:
    """Ends the validation of a `fit` after the batch that runs, as if its data had ended."""
    handler = getattr(model, "_eval_data_handler", None)
    if handler is not None:
        handler._insufficient_data = True


def save_weights(model: Any, folder: str) -> None:
    model.save_weights(os.path.join(folder, WEIGHTS))


def load_weights(model: Any, folder: str) -> None:
    """Variables that are not there yet get their values when they are made."""
    _build_optimizer(model)
    model.load_weights(os.path.join(folder, WEIGHTS)).assert_existing_objects_matched()
