# SPDX-License-Identifier: Apache-2.0
"""What differs between versions of Keras: here, Keras 3 on any of its backends. `_tf_keras` has the
same functions for tf.keras 2.15."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from typing import Any

import keras

from kajitori._errors import UnsupportedError
from kajitori._precision import check_fits, shortest

WEIGHTS = "model.weights.h5"
SHAPES = "build.json"
BEST_WEIGHTS = "at the end of fit EarlyStopping puts back the weights of the best epoch"


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


def optimizers(model: Any) -> dict[str, Any]:
    """Those that have a learning rate: "" is the only one, or each of a `MultiOptimizer` by its name."""
    optimizer = getattr(model, "optimizer", None)
    if hasattr(optimizer, "learning_rate"):
        return {"": optimizer}
    return {inner.name: inner for inner in getattr(optimizer, "optimizers", [])}


def get_learning_rate(model: Any, optimizer: Any) -> float:
    _sync(model)
    return shortest(keras.ops.convert_to_numpy(optimizer.learning_rate))


def set_learning_rate(model: Any, optimizer: Any, value: float) -> None:
    """From the next batch on, whatever the optimizer has. A schedule is replaced by a constant one, of a
    kind that Keras can save and load, and the step, which may have been traced with the old one, is
    traced anew."""
    dtype = getattr(optimizer.learning_rate, "dtype", keras.backend.floatx())
    dtype = keras.backend.standardize_dtype(dtype)
    check_fits(value, dtype)
    _sync(model)
    if schedule_of(optimizer) is None:
        optimizer.learning_rate = value
        return
    optimizer.learning_rate = keras.optimizers.schedules.ExponentialDecay(value, 1, 1.0)
    model.train_function = None
    model.make_train_function()


def schedule_of(optimizer: Any) -> Any:
    """What the learning rate follows; None where it is a number that can be assigned."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    schedule = getattr(inner, "_learning_rate", None)
    return None if isinstance(schedule, keras.Variable) else schedule


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


def is_backup(callback: Any) -> bool:
    return isinstance(callback, keras.callbacks.BackupAndRestore)


def watch_backup(model: Any) -> None:
    """Nothing: a `BackupAndRestore` has a fit begin with an epoch."""


def skip_batches(model: Any, count: int) -> None:
    """For a `fit` in its on_epoch_begin: the next `count` batches are taken from the data, and nothing is
    done with them. The other callbacks are called for them, without metrics."""
    train, left = model.train_function, count

    def skip(*args: Any) -> Any:
        nonlocal left
        *state, batches = args  # JAX carries a state along
        if keras.backend.backend() != "torch":  # there, the batch itself
            for _ in range(model.steps_per_execution):
                next(batches)
        left -= model.steps_per_execution
        if left <= 0:
            model.train_function = train
        return ({}, *state) if state else {}

    skip.kajitori_train = train
    model.train_function = skip


def end_skipping(model: Any) -> None:
    """After a `fit` that failed while it passed over batches; else nothing."""
    model.train_function = getattr(model.train_function, "kajitori_train", model.train_function)


def keep_backups(callbacks: list[Any], epoch: int, batches: int) -> Callable[[bool], None]:
    """Has each `BackupAndRestore` keep its backup, and makes it that of the place where `fit` is: in this
    epoch, with `batches` of it behind. To be called at a stop, and what it returns when all callbacks
    have had their on_train_end: with True; with False where an exception has ended `fit` before."""
    backups = [b for b in callbacks if is_backup(b)]
    deletes = [backup.delete_checkpoint for backup in backups]
    for backup in backups:
        backup.delete_checkpoint = False
        if backup.save_freq != "epoch":
            backup._current_epoch, backup._last_batch_seen = epoch, max(batches - 1, 0)
            backup._save_model()

    def finish(is_whole: bool) -> None:
        for backup, delete in zip(backups, deletes, strict=True):
            backup.delete_checkpoint = delete
            if batches and is_whole:
                place = {"epoch": epoch, "batch": batches - 1, "batches": batches}
                with open(backup._training_metadata_path, "w", encoding="utf-8") as file:
                    json.dump(place, file)

    return finish


def place_of_backup(callbacks: list[Any]) -> tuple[int, int]:
    """Epoch and number of batches of it that the weights which a `BackupAndRestore` has loaded have seen;
    (0, 0) unless the backup was one of `keep_backups`."""
    for backup in callbacks:
        if is_backup(backup):
            with contextlib.suppress(FileNotFoundError, LookupError):
                with open(backup._training_metadata_path, encoding="utf-8") as file:
                    place = json.load(file)
                return int(place["epoch"]), int(place["batches"])
    return 0, 0


def evaluate(model: Any, data: Any) -> dict[str, Any]:
    x, y, weights = keras.utils.unpack_x_y_sample_weight(data)
    return model.evaluate(x, y, sample_weight=weights, verbose=0, return_dict=True)


def skip_validation(model: Any) -> None:
    """Ends a validation after the batch that runs."""
    model.stop_evaluating = True


def save_weights(model: Any, folder: str) -> None:
    model.save_weights(os.path.join(folder, WEIGHTS))
    with open(os.path.join(folder, SHAPES), "w", encoding="utf-8") as file:
        json.dump(model.get_build_config(), file)


def _build(model: Any, folder: str) -> None:
    """Makes the variables of a model that would have them only from its first batch on."""
    path = os.path.join(folder, SHAPES)
    if model.built or not os.path.exists(path):
        return
    with open(path, encoding="utf-8") as file:
        model.build_from_config(json.load(file))
    model.built = bool(model.variables)  # a default `build` leaves it to the first call


def load_weights(model: Any, folder: str) -> None:
    _build(model, folder)
    optimizer = getattr(model, "optimizer", None)
    if optimizer is not None and not optimizer.built:
        optimizer.build(model.trainable_variables)
    model.load_weights(os.path.join(folder, WEIGHTS))
