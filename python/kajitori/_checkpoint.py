# SPDX-License-Identifier: Apache-2.0
"""What the checkpoints of all adapters have in common: each appears by one rename, so one that is there
is whole; one that cannot be read is refused in the same words; and those in a format of our own have
their place in the training in `state.json`."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kajitori._errors import FailedError, UnsupportedError

STATE = "state.json"
FORMAT = 1


@contextlib.contextmanager
def appearing(path: str) -> Iterator[str]:
    """For ``with appearing(path) as written``: what is written there, a file or a folder of the same
    name, becomes `path` at the end, in place of what was there, and is on the disk then. Folders above
    are made. After an exception all is as before."""
    home, name = os.path.split(path)
    os.makedirs(home, exist_ok=True)
    with tempfile.TemporaryDirectory(
        prefix=".new-", dir=home, ignore_cleanup_errors=True
    ) as folder:
        written = os.path.join(folder, name)
        yield written
        _flush(written)
        if os.path.isdir(path):
            os.rename(path, os.path.join(folder, "old"))
        os.rename(written, path)
    _flush_one(home)


def _flush(path: str) -> None:
    """A file, or a folder with all that is in it."""
    for folder, _, files in os.walk(path):
        for name in files:
            _flush_one(os.path.join(folder, name))
        _flush_one(folder)
    if not os.path.isdir(path):
        _flush_one(path)


def _flush_one(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def cannot_go_on(path: str, error: Exception) -> FailedError:
    """What is raised when the checkpoint `path` cannot be read, or is not of this training."""
    return FailedError(f"cannot go on from the checkpoint {path}: {type(error).__name__}: {error}")


def save_state(folder: str, state: Mapping[str, Any]) -> None:
    """Writes `state.json`."""
    with open(os.path.join(folder, STATE), "w", encoding="utf-8") as file:
        json.dump({"format": FORMAT, **state}, file)


def load_state(path: str, counts: Iterable[str]) -> dict[str, Any]:
    """What `save_state` wrote. `FailedError` when it cannot be read, or one of `counts` is no number
    from 0 on; `UnsupportedError` for another format."""
    try:
        with open(os.path.join(path, STATE), encoding="utf-8") as file:
            state = json.load(file)
        found = state["format"]
        for key in counts if found == FORMAT else ():
            if not (isinstance(state[key], int) and state[key] >= 0):
                raise ValueError(f"{key} {state[key]!r}")
    except (OSError, ValueError, TypeError, LookupError) as error:
        raise cannot_go_on(path, error) from error
    if found != FORMAT:
        raise UnsupportedError(f"{path}: a checkpoint of format {found!r}")
    return state
