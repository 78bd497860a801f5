# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of a `fit`: a folder with the weights and the optimizer, in a format of Keras' own, and the
place in the training (`_checkpoint`)."""

from __future__ import annotations

import os
from typing import Any

from kajitori import _checkpoint
from kajitori._keras_callback import backend_of


def save(folder: str, model: Any, step: int, epoch: int, batch: int, more: dict[str, Any]) -> str:
    """Writes ``folder/step-N`` and returns its path. `epoch` is the one that a resumed `fit` begins
    with, `batch` how many batches of it the weights have seen already, `more` what else was changed
    from outside."""
    path = os.path.join(folder, f"step-{step:08d}")
    with _checkpoint.appearing(path) as written:
        os.mkdir(written)
        backend_of(model).save_weights(model, written)
        state = {"step": step, "epoch": epoch, "batch": batch} | more
        _checkpoint.save_state(written, state)
    return path


def load_state(path: str) -> dict[str, Any]:
    """The place in the training that the checkpoint is of, and `more`."""
    return _checkpoint.load_state(path, ("epoch", "batch"))


def restore(path: str, model: Any) -> None:
    """Loads weights and optimizer. `FailedError` when they cannot be read, or are not this model's."""
    try:
        backend_of(model).load_weights(model, path)
    except Exception as error:
        raise _checkpoint.cannot_go_on(path, error) from error
