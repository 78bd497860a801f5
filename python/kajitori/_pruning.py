# SPDX-License-Identifier: Apache-2.0
"""What the pruning callbacks of all frameworks share: `Pruning`, one trial's side of a pruner.

A trial is one of kajitori or of Optuna: anything with ``report(value, step)`` and
``should_prune()``. Each new value is reported once, at its own step, and the pruner is asked once
for it. How a training ends is the framework's matter; `Pruning.exception` is what its caller then
gets: an `optuna.TrialPruned` for a trial of Optuna, so that ``study.optimize`` knows it, else a
`kajitori.TrialPruned`.
"""

from __future__ import annotations

import sys
from typing import Protocol

from kajitori._errors import ArgumentError


class TrialPruned(Exception):
    """No error: the pruner has ended this trial. The message says at which step and value."""


class Trial(Protocol):
    """What a pruning callback wants of a trial; an `optuna.Trial` is one."""

    def report(self, value: float, step: int) -> None: ...

    def should_prune(self) -> bool: ...


class Pruning:
    """Reports the values of `metric` to `trial`, and asks whether to go on."""

    def __init__(self, trial: Trial, metric: str) -> None:
        if isinstance(trial, type):
            raise ArgumentError(
                f"trial: the class {trial.__name__}, where one of its trials is wanted"
            )
        if not callable(getattr(trial, "report", None)) or not callable(
            getattr(trial, "should_prune", None)
        ):
            raise ArgumentError(
                f"trial: {type(trial).__name__} has no report and should_prune; expected a trial of "
                "kajitori or of Optuna"
            )
        if not isinstance(metric, str):
            raise ArgumentError(f"metric: {metric!r} is no name of one")
        self.trial = trial
        self.metric = metric
        self.pruned = False
        self._step: int | None = None
        self._value = 0.0

    @property
    def step(self) -> int | None:
        """Of the newest value, None before the first."""
        return self._step

    def look(self, value: float, step: int) -> bool:
        """Reports a value. True when the trial is to be pruned. Of one step the first value counts,
        and a step before the newest one (a training that was taken up again) is passed over."""
        if self.pruned or (self._step is not None and step <= self._step):
            return self.pruned
        self._value, self._step = float(value), int(step)
        self.trial.report(self._value, self._step)
        self.pruned = bool(self.trial.should_prune())
        return self.pruned

    def exception(self, message: str | None = None) -> Exception:
        """To be raised where the caller of the training sees it. `message` says why, where it was not
        the pruner."""
        message = message or f"pruned at step {self._step}, with {self.metric} = {self._value:.6g}"
        optuna = sys.modules.get("optuna")
        if optuna is not None and isinstance(self.trial, optuna.trial.BaseTrial):
            return optuna.TrialPruned(message)
        return TrialPruned(message)
