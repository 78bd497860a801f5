# SPDX-License-Identifier: Apache-2.0
"""What else happens in a `fit` when a verb is obeyed, so that its sender is told beforehand."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from kajitori._keras_callback import is_of_keras


def remarks(backend: ModuleType, model: Any, callbacks: list[Any]) -> dict[str, list[str]]:
    """By verb, what the other callbacks of the `fit` do then, and what the learning rate follows."""
    said: dict[str, list[str]] = {"stop": [], "prune": [], "set": [], "extend": []}
    keeps = []
    for callback in callbacks:
        if is_of_keras(callback, "EarlyStopping") and callback.restore_best_weights:
            said["stop"].append(backend.BEST_WEIGHTS)
            said["prune"].append(backend.BEST_WEIGHTS)
        elif is_of_keras(callback, "BackupAndRestore"):
            keeps.append("BackupAndRestore keeps its backup, and the next fit goes on from it")
        elif is_of_keras(callback, "LearningRateScheduler"):
            said["set"].append(
                "LearningRateScheduler sets lr anew at the beginning of the next epoch"
            )
            said["extend"].append("LearningRateScheduler is asked for each epoch more")
        elif is_of_keras(callback, "ReduceLROnPlateau"):
            said["set"].append("ReduceLROnPlateau may lower lr at the end of an epoch")
    said["stop"] += keeps
    for name, optimizer in backend.optimizers(model).items():
        source, lr = backend.schedule_of(optimizer), f"lr.{name}" if name else "lr"
        if source is not None:
            follows = f"{lr} follows {_words(source)}"
            said["set"].append(f"{follows}, and is constant once it is set")
            said["extend"].append(f"{follows}, which does not change with it")
    return said


def _words(schedule: Any) -> str:
    length = getattr(schedule, "decay_steps", None) or getattr(schedule, "first_decay_steps", None)
    name = getattr(schedule, "__name__", type(schedule).__name__)
    return f"{name} with decay_steps={length}" if length else name
