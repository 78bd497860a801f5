# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of a torch loop: a folder with the state of each part (`model.pt`, `optimizer.pt`, ...),
that of the random number generators, and the place in the training (`state.json`). It appears by one
rename, so one that is there is whole. All of it is loaded with ``weights_only=True``: nothing in a
checkpoint is executed."""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Mapping
from typing import Any

import torch

from kajitori._errors import FailedError, UnsupportedError

STATE = "state.json"
RANDOM = "random.pt"
FORMAT = 1


def save(
    folder: str, parts: Mapping[str, Any], place: Mapping[str, int], randoms: Mapping[str, Any]
) -> str:
    """Writes ``folder/step-N`` and returns its path. `parts` have a state_dict, `place` is the place in
    the training with its step N, `randoms` has states as of `random_state`."""
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, f"step-{place['step']:08d}")
    new = tempfile.mkdtemp(prefix=".new-", dir=folder)
    try:
        for name, part in parts.items():
            _write(os.path.join(new, f"{name}.pt"), unwrapped(part).state_dict())
        _write(os.path.join(new, RANDOM), dict(randoms))
        with open(os.path.join(new, STATE), "w", encoding="utf-8") as file:
            json.dump({"format": FORMAT, **place, "parts": list(parts)}, file)
        if os.path.isdir(path):
            os.rename(path, os.path.join(new, "old"))
        os.rename(new, path)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise
    shutil.rmtree(os.path.join(path, "old"), ignore_errors=True)
    return path


def _write(path: str, state: Any) -> None:
    torch.save(state, path)
    if not os.path.basename(path).startswith(("model", "optimizer")):
        _read(path)  # small, and made of whatever the user's objects have


def _read(path: str) -> Any:
    return torch.load(path, map_location="cpu", weights_only=True)


def unwrapped(part: Any) -> Any:
    """The module within `DistributedDataParallel`, `DataParallel` or what `torch.compile` made of it, so
    that the names in a checkpoint are the same with and without."""
    while True:
        if isinstance(part, (torch.nn.parallel.DistributedDataParallel, torch.nn.DataParallel)):
            part = part.module
        elif "_orig_mod" in getattr(part, "_modules", ()):
            part = part._orig_mod
        else:
            return part


def load_place(path: str) -> dict[str, Any]:
    """The place in the training that the checkpoint is of."""
    try:
        with open(os.path.join(path, STATE), encoding="utf-8") as file:
            state = json.load(file)
        found = state["format"]
        if found == FORMAT:
            for key in ("step", "epoch", "batch", "loop", "extended"):
                if not (isinstance(state[key], int) and state[key] >= 0):
                    raise ValueError(f"{key} {state[key]!r}")
    except (OSError, ValueError, TypeError, LookupError) as error:
        raise FailedError(_damaged(path, error)) from error
    if found != FORMAT:
        raise UnsupportedError(f"{path}: a checkpoint of format {found!r}")
    return state


def restore(path: str, parts: Mapping[str, Any]) -> dict[str, Any]:
    """Loads the state of the parts, and returns that of the random number generators. `FailedError` when
    it cannot be read, or is not of these parts."""
    try:
        for name, part in parts.items():
            unwrapped(part).load_state_dict(_read(os.path.join(path, f"{name}.pt")))
        return _read(os.path.join(path, RANDOM))
    except Exception as error:
        raise FailedError(_damaged(path, error)) from error


def _damaged(path: str, error: Exception) -> str:
    return f"cannot go on from the checkpoint {path}: {type(error).__name__}: {error}"


def random_state() -> dict[str, Any]:
    """Of torch, of Python, and of NumPy if it is in use."""
    state: dict[str, Any] = {"torch": torch.get_rng_state(), "python": random.getstate()}
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        state["cuda"] = torch.cuda.get_rng_state_all()
    if "numpy" in sys.modules:
        kind, keys, *rest = sys.modules["numpy"].random.get_state(legacy=True)
        state["numpy"] = (kind, keys.tolist(), *rest)
    return state


def set_random_state(state: Mapping[str, Any]) -> None:
    torch.set_rng_state(state["torch"])
    random.setstate(state["python"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(state["cuda"])
    if "numpy" in state:
        import numpy as np

        np.random.set_state(state["numpy"])
