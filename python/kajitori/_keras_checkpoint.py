# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of a `fit`: a folder with the weights and the optimizer, in a format of Keras' own, and the
place in the training (`state.json`). It appears by one rename, so one that is there is whole."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from typing import Any

from kajitori._errors import FailedError, UnsupportedError
from kajitori._keras_callback import backend_of

STATE = "state.json"
FORMAT = 1


def save(folder: str, model: Any, step: int, epoch: int, batch: int, more: dict[str, Any]) -> str:
    """Writes ``folder/step-N`` and returns its path. `epoch` is the one that a resumed `fit` begins
    with, `batch` how many batches of it the weights have seen already, `more` what else was changed
    from outside."""
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, f"step-{step:08d}")
    new = tempfile.mkdtemp(prefix=".new-", dir=folder)
    try:
        backend_of(model).save_weights(model, new)
        state = {"format": FORMAT, "step": step, "epoch": epoch, "batch": batch} | more
        with open(os.path.join(new, STATE), "w", encoding="utf-8") as file:
            json.dump(state, file)
        if os.path.isdir(path):
            os.rename(path, os.path.join(new, "old"))
        os.rename(new, path)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise
    shutil.rmtree(os.path.join(path, "old"), ignore_errors=True)
    return path


def load_state(path: str) -> dict[str, Any]:
    """The place in the training that the checkpoint is of."""
    try:
        with open(os.path.join(path, STATE), encoding="utf-8") as file:
            state = json.load(file)
        found = state["format"]
        for key in ("epoch", "batch"):
            if found == FORMAT and not (isinstance(state[key], int) and state[key] >= 0):
                raise ValueError(f"{key} {state[key]!r}")
    except (OSError, ValueError, TypeError, LookupError) as error:
        raise FailedError(_damaged(path, error)) from error
    if found != FORMAT:
        raise UnsupportedError(f"{path}: a checkpoint of format {found!r}")
    return state


def _damaged(path: str, error: Exception) -> str:
    return f"cannot go on from the checkpoint {path}: {type(error).__name__}: {error}"


def restore(path: str, model: Any) -> None:
    """Loads weights and optimizer. `FailedError` when they cannot be read, or are not this model's."""
    try:
        backend_of(model).load_weights(model, path)
    except Exception as error:
        raise FailedError(_damaged(path, error)) from error
