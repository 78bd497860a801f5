# SPDX-License-Identifier: Apache-2.0
"""Pruning of `keras.Model.fit` by a trial: `PruningCallback`."""

from __future__ import annotations

import warnings
from typing import Any

from kajitori._errors import ArgumentError
from kajitori._keras_callback import Callback, after_all_others, callbacks_beside
from kajitori._pruning import Pruning, Trial
from kajitori._steering import Steering


class PruningCallback(Callback):
    """Reports a metric of each epoch to a trial, and ends `fit` when the trial is to be pruned.

    trial: one of kajitori or of Optuna.
    monitor: the metric, by the name that it has in `logs`: ``"val_accuracy"``.
    interval: report and ask each so many epochs only.

    The training ends by Keras' own way (`model.stop_training`): all other callbacks get their
    `on_epoch_end` and `on_train_end`, in whatever order they are given. Then `fit` raises
    `optuna.TrialPruned` for a trial of Optuna, else `kajitori.TrialPruned`. It does so, too, when a
    `SteeringCallback` of the same `fit` was told to ``prune``. An epoch that a stop has cut short is
    not reported.
    """

    def __init__(self, trial: Trial, monitor: str, interval: int = 1) -> None:
        if not isinstance(interval, int) or interval < 1:
            raise ArgumentError(f"interval: {interval!r} is no number of epochs, 1 or more")
        self._pruning = Pruning(trial, monitor)
        self._interval = interval
        self._missed: list[str] | None = None  # what there was in place of a metric not seen yet
        self._is_told = False

    @property
    def pruned(self) -> bool:
        """True once the trial was pruned."""
        return self._pruning.pruned

    def on_train_begin(self, logs: Any = None) -> None:
        self._missed, self._is_told = None, False

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if (epoch + 1) % self._interval or any(
            getattr(other, "partial_epoch", None) is not None for other in callbacks_beside(self)
        ):
            return
        logs = logs or {}
        value = logs.get(self._pruning.metric)
        if value is None:
            self._miss(sorted(logs))
        else:
            self._missed, self._is_told = None, True
            if self._pruning.look(float(value), epoch):
                self.model.stop_training = True

    def _miss(self, tags: list[str]) -> None:
        """Says so at once, unless it may come with a validation that was not due in this epoch."""
        self._missed = tags
        is_validated = any(tag.startswith("val_") for tag in tags)
        if is_validated or not self._pruning.metric.startswith("val_"):
            self._warn()

    def _warn(self) -> None:
        if self._is_told:
            return
        self._is_told = True
        warnings.warn(
            f"PruningCallback: there is no metric {self._pruning.metric!r}, so nothing is pruned; "
            f"there are {', '.join(self._missed or []) or 'none'}",
            stacklevel=3,
        )

    def on_train_end(self, logs: Any = None) -> None:
        if self._pruning.pruned:
            after_all_others(self, self._raise, self._pruning.exception())
        elif any(isinstance(o, Steering) and o.pruned for o in callbacks_beside(self)):
            after_all_others(self, self._raise, self._pruning.exception("pruned by a command"))
        elif self._missed is not None:
            self._warn()

    @staticmethod
    def _raise(error: Exception) -> None:
        raise error
