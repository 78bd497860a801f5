# SPDX-License-Identifier: Apache-2.0
"""Steering and pruning of `xgboost.train`, `xgboost.cv` and the estimators of `xgboost.sklearn`.

::

    from kajitori.xgboost import SteeringCallback

    xgboost.train(params, data, num_boost_round=1000, callbacks=[SteeringCallback(fifo="ctl")])

docs/frameworks/xgboost.md says when each verb acts.

All that acts does so in `before_iteration`: there XGBoost has called all callbacks for the iteration
that has run, and has written its history. One that ends the training in `after_iteration` hides it
from the callbacks behind, and `xgboost.cv` then wants a best iteration.
"""

from __future__ import annotations

import json
import weakref
from collections.abc import Sequence
from typing import Any

try:
    import numpy
    import xgboost
    from xgboost import collective
except ImportError as error:
    raise ImportError(f"kajitori.xgboost needs XGBoost (pip install xgboost): {error}") from error

from kajitori._boosting import LEARNING_RATE, Boosting, locals_of, shortest
from kajitori._errors import ArgumentError, OutOfRangeError
from kajitori._pruning import Pruning, Trial
from kajitori._steering import NEVER
from kajitori._step_gate import StepGate

__all__ = ["PruningCallback", "SteeringCallback"]

KEPT = "kajitori_learning_rate"
"""Attribute of a saved model: the learning rate that a `set` has put in force."""


class SteeringCallback(Boosting, xgboost.callback.TrainingCallback):
    """Makes a training steerable from outside: stop, pause, set and get, checkpoint, own verbs, ….

    All arguments are optional:

    fifo: path of a FIFO for commands (``echo stop > PATH``); one made by ``mkfifo`` is used as it is,
        a missing one is made and removed at the end.
    run: a `kajitori.Run` of yours, for a program that trains more than once. The callback does not
        close it, and `fifo` and `name` are yours to give to it. Without it each training is a run of
        its own.
    commands: own verbs, ``{"save": lambda cb: cb.model.save_model("now.ubj")}`` or ``{"freeze":
        (function, {"count": int})}``; the function gets this callback, then its arguments.
    parameters: what `get` and `set` see beside `lr`: ``{"depth": (get, set, 1, 16)}``, or a list of
        `kajitori.Param`.
    name: what `kajitori ps` shows [the script's name].
    checkpoint_dir: folder for the verb `checkpoint`, and so for ``stop save=yes`` and ``pause
        level=leave``.
    rounds: how many iterations the model is to have, which the verb `extend` makes more. Give `train`
        a ``num_boost_round`` that is the most it may become.
    """

    _more = "xgboost.train a num_boost_round of"

    before_iteration = StepGate.next_step

    def before_training(self, model: Any) -> Any:
        if model is not self.model:
            self._check_free("xgboost.training")
        self.model = model
        self._before = model.num_boosted_rounds()
        rounds = locals_of("xgboost.training").get("num_boost_round")
        self._most = NEVER if rounds is None else self._before + rounds
        self._history: weakref.ref[Any] | None = None  # {data: {metric: [value, …]}}
        self._is_new = False  # the learning rate was set in this look
        self._is_undone = False  # another callback replaces what was set
        self._start()
        return model

    def after_training(self, model: Any) -> Any:
        if self._training:
            self.model = model
            self._begin_iteration(self._next_step)
            self._report_new()
            self._finish()
        return model

    @property
    def initial_iteration(self) -> int:
        """Iterations of the checkpoint that ``kajitori resume`` wants this training to go on from; 0
        for a fresh start."""
        path = self.resumed_from
        return xgboost.Booster(model_file=path).num_boosted_rounds() if path else 0

    def _describe(self) -> str:
        return f"xgboost {xgboost.__version__}"

    def _run_options(self) -> dict[str, Any]:
        return {
            "total_steps": self._total(),
            "total_epochs": self._total(),
            "rank": collective.get_rank(),
            "world_size": collective.get_world_size(),
        }

    def _prepare(self) -> None:
        super()._prepare()
        kept = self.model.attr(KEPT)
        if kept is not None:
            self.model.set_attr(**{KEPT: None})
            self._keep_learning_rate(float(kept))
            self.run.note(f"goes on with lr={kept}")

    def _look(self, step: int, model: Any, epoch: int, evals_log: Any) -> bool:
        """What StepGate calls when there is something to do."""
        if self._history is None:
            self._history = weakref.ref(evals_log)
            self._finish_with(evals_log)  # XGBoost's own, which nobody else has
        stop = self._begin_iteration(step)
        if stop:
            self._next_step = step  # it does not begin
        elif self._set_value is not None:
            self._set_again()
        if self._is_report_due():
            self._report_new()
        return stop

    def _set_again(self) -> None:
        """A LearningRateScheduler sets the rate after each iteration: where one does, the value that
        was set from outside is put back."""
        if self._is_new:
            self._is_new = False
        elif not self._is_undone:
            self._is_undone = self._get_learning_rate() != shortest(self._set_value)
            if not self._is_undone:
                return
        self._set_learning_rate(self._set_value)
        self._look_step = 0

    def _keep_learning_rate(self, value: float) -> None:
        super()._keep_learning_rate(value)
        self._is_new = True

    def _metrics(self, first: int) -> dict[str, Sequence[float]]:
        """Each metric's values from that of iteration `first` of this training on, of a
        cross-validation their mean and deviation, by the names that XGBoost prints and returns."""
        found: dict[str, Sequence[float]] = {}
        for data, metrics in ((self._history and self._history()) or {}).items():
            for metric, values in metrics.items():
                name, new = f"{data}-{metric}", values[first:]
                if not self._is_cv():
                    found[name] = new
                elif new:
                    found[f"{name}-mean"], found[f"{name}-std"] = zip(*new, strict=True)
        return found

    def _report_new(self) -> None:
        self._report_series(self._metrics(self._n_reported))

    def _newest(self) -> dict[str, float]:
        return {name: values[0] for name, values in self._metrics(-1).items()}

    def _is_cv(self) -> bool:
        return not isinstance(self.model, xgboost.Booster)

    def _get_learning_rate(self) -> float | None:
        booster = self.model.cvfolds[0].bst if self._is_cv() else self.model
        found = _find(json.loads(booster.save_config()), LEARNING_RATE)
        return None if found is None else shortest(found)

    def _set_learning_rate(self, value: float) -> None:
        single = numpy.finfo(numpy.float32)  # XGBoost would end the training, and by an exception
        if value != 0 and not float(single.tiny) <= value <= float(single.max):
            raise OutOfRangeError(f"{value} is out of the range of XGBoost's numbers (float32)")
        self.model.set_param(LEARNING_RATE, value)

    def _save(self, name: str) -> str:
        if self._set_value is not None:
            self.model.set_attr(**{KEPT: repr(self._set_value)})
        try:
            return self._write_whole(f"{name}.ubj", self.model.save_model)
        finally:
            self.model.set_attr(**{KEPT: None})

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_history": None}


def _find(config: Any, name: str) -> Any:
    """The first value of this name in nested dicts and lists; None when there is none."""
    if isinstance(config, dict) and name in config:
        return config[name]
    inner = config.values() if isinstance(config, dict) else config
    for value in inner if isinstance(config, (dict, list)) else ():
        found = _find(value, name)
        if found is not None:
            return found
    return None


class PruningCallback(Pruning, xgboost.callback.TrainingCallback):
    """Ends a training that the trial's pruner finds not worth going on with.

    trial: a trial of kajitori or of Optuna.
    observation_key: data and metric, as XGBoost prints them: ``"validation-logloss"``; with an
        estimator ``"validation_0-logloss"``.

    Each iteration's value is reported at the iteration's number. All other callbacks get their
    `after_training`, then `optuna.TrialPruned`, or `kajitori.TrialPruned` for a trial that is not
    Optuna's, comes out of `train`.
    """

    def __init__(self, trial: Trial, observation_key: str) -> None:
        super().__init__(trial, observation_key)
        self._first = 0

    def before_training(self, model: Any) -> Any:
        self._first = model.num_boosted_rounds()
        return model

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        found = {
            f"{data}-{metric}": values[-1]
            for data, metrics in evals_log.items()
            for metric, values in metrics.items()
        }
        if self.metric not in found:
            names = ", ".join(found) or "nothing: train was given no evals"
            raise ArgumentError(f"metric {self.metric} is not evaluated; there is {names}")
        value = found[self.metric]
        self.look(value[0] if isinstance(value, tuple) else value, self._first + epoch)
        return False  # True would hide this iteration from the callbacks behind

    def before_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        return self.pruned

    def after_training(self, model: Any) -> Any:
        if not self.pruned:
            return model
        if isinstance(model, xgboost.Booster) and hasattr(xgboost.Booster, "reset"):
            return _raise_at_the_end(model, self.exception())
        callbacks = getattr(locals_of("xgboost.callback").get("self"), "callbacks", [self])
        for other in callbacks[callbacks.index(self) + 1 :]:
            model = other.after_training(model)
        raise self.exception()  # xgboost.cv does nothing more


class _Pruned(xgboost.Booster):
    """The last thing that `xgboost.train` does is to `reset` the model: then all callbacks have had
    their `after_training`."""

    def reset(self) -> xgboost.Booster:
        self.__class__ = xgboost.Booster
        self.reset()
        raise self.__dict__.pop("_exception")

    def __getitem__(self, trees: Any) -> Any:
        return _raise_at_the_end(super().__getitem__(trees), self._exception)


def _raise_at_the_end(model: Any, exception: Exception) -> Any:
    model.__class__, model._exception = _Pruned, exception
    return model
