# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of a torch loop: a folder with the state of each part (`model.pt`, `optimizer.pt`, ...),
that of the random number generators, and the place in the training (`_checkpoint`). All of it is loaded
with ``weights_only=True``: nothing in a checkpoint is executed, and what could not be loaded so is not
saved."""

from __future__ import annotations

import io
import os
import random
import sys
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import torch

from kajitori._checkpoint import appearing, cannot_go_on, load_state, save_state
from kajitori._errors import FailedError

RANDOM = "random.pt"


def save(
    folder: str, parts: Mapping[str, Any], place: Mapping[str, int], randoms: Mapping[str, Any]
) -> str:
    """Writes ``folder/step-N`` and returns its path. `parts` have a state_dict, `place` is the place in
    the training with its step N, `randoms` has states as of `random_state`."""
    path = os.path.join(folder, f"step-{place['step']:08d}")
    with appearing(path) as written:
        os.mkdir(written)
        for name, part in parts.items():
            _write(os.path.join(written, f"{name}.pt"), unwrapped(part).state_dict())
        _write(os.path.join(written, RANDOM), dict(randoms))
        save_state(written, {**place, "parts": list(parts)})
    return path


def _write(path: str, state: Any) -> None:
    state = _plain(state)
    rest = io.BytesIO()
    torch.save(_without_tensors(state), rest)
    rest.seek(0)
    try:
        _read(rest)
    except Exception as error:
        name = os.path.basename(path).removesuffix(".pt")
        lines = str(error).splitlines()
        why = next((line.strip() for line in lines if "WeightsUnpickler error" in line), error)
        raise FailedError(f"the state of {name} could not be loaded again: {why}") from error
    torch.save(state, path)


def _read(file: Any) -> Any:
    return torch.load(file, map_location="cpu", weights_only=True)


def _plain(state: Any) -> Any:
    """With Python's numbers for NumPy's, as in a learning rate of `numpy.logspace`: what is loaded with
    ``weights_only=True`` may have none of these."""
    numpy = sys.modules.get("numpy")
    return _mapped(state, lambda x: x.item() if numpy and isinstance(x, numpy.generic) else x)


def _without_tensors(state: Any) -> Any:
    return _mapped(state, lambda x: None if type(x) in (torch.Tensor, torch.nn.Parameter) else x)


def _mapped(state: Any, function: Callable[[Any], Any]) -> Any:
    """A copy of the dicts, lists and tuples, with other leaves."""
    if type(state) in (dict, OrderedDict):
        copy = type(state)((key, _mapped(value, function)) for key, value in state.items())
        if isinstance(copy, OrderedDict):
            vars(copy).update(vars(state))  # versions of a model's parts
        return copy
    if type(state) in (list, tuple):
        return type(state)(_mapped(one, function) for one in state)
    return function(state)


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
    return load_state(path, ("step", "epoch", "batch", "loop", "extended"))


def restore(path: str, parts: Mapping[str, Any]) -> dict[str, Any]:
    """Loads the state of the parts, and returns that of the random number generators. `FailedError` when
    it cannot be read, or is not of these parts."""
    try:
        for name, part in parts.items():
            unwrapped(part).load_state_dict(_read(os.path.join(path, f"{name}.pt")))
        return _read(os.path.join(path, RANDOM))
    except Exception as error:
        raise cannot_go_on(path, error) from error


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
