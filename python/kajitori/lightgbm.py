# SPDX-License-Identifier: Apache-2.0
"""Steering and pruning of `lightgbm.train`, `lightgbm.cv` and the estimators of `lightgbm.sklearn`.

::

    from kajitori.lightgbm import SteeringCallback

    lightgbm.train(params, data, num_boost_round=1000, callbacks=[SteeringCallback(fifo="ctl")])

docs/frameworks/lightgbm.md says when each verb acts.

A callback of LightGBM is called after each iteration, can end the training only there, by an
exception, and is told neither of the beginning nor of the end. So the run begins when the first
iteration has run. It ends with the last one, or when LightGBM's own copy of the parameters goes, which
its function makes when it is called: there is a string in it that tells us.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterable, Mapping
from typing import Any

try:
    import lightgbm
    from lightgbm.callback import CallbackEnv, EarlyStopException
except (ImportError, OSError) as error:  # OSError: no libgomp
    raise ImportError(
        f"kajitori.lightgbm needs LightGBM (pip install lightgbm): {error}"
    ) from error

from kajitori._boosting import LEARNING_RATE, Boosting, locals_of
from kajitori._errors import ArgumentError
from kajitori._pruning import Pruning, Trial
from kajitori._run import Run
from kajitori._steering import Command
from kajitori._step_gate import StepGate
from kajitori._values import Param, positive

__all__ = ["PruningCallback", "SteeringCallback"]

RATES = (LEARNING_RATE, "shrinkage_rate", "eta")
"""What LightGBM calls a learning rate."""

BEHIND_RECORDS, BEHIND_PRUNING = 28, 29
"""Orders: record_evaluation has 20, early_stopping, which may end the training, 30."""

_early_stopping = getattr(lightgbm.callback, "_EarlyStoppingCallback", ())
_reset_parameter = getattr(lightgbm.callback, "_ResetParameterCallback", ())


class _Mark(str):
    """A string that can be referred to weakly."""


class SteeringCallback(Boosting):
    """Makes a training steerable from outside: stop, pause, set and get, checkpoint, own verbs, ….

    All arguments are optional:

    fifo: path of a FIFO for commands (``echo stop > PATH``); one made by ``mkfifo`` is used as it is,
        a missing one is made and removed at the end.
    run: a `kajitori.Run` of yours, whose doors are then open before the first iteration has run. The
        callback does not close it, and `fifo` and `name` are yours to give to it. Without it each
        training is a run of its own.
    commands: own verbs, ``{"save": lambda cb: cb.model.save_model("now.txt")}`` or ``{"freeze":
        (function, {"count": int})}``; the function gets this callback, then its arguments.
    parameters: what `get` and `set` see beside `lr`: ``{"leaves": (get, set, 2, 255)}``, or a list of
        `kajitori.Param`.
    name: what `kajitori ps` shows [the script's name].
    checkpoint_dir: folder for the verb `checkpoint`, and so for ``stop save=yes`` and ``pause
        level=leave``.
    rounds: how many iterations the model is to have, which the verb `extend` makes more. Give `train`
        a ``num_boost_round`` that is the most it may become.
    """

    _more = "lightgbm.train a num_boost_round of"
    _is_zero_refused = True

    __call__ = StepGate.next_step

    def __init__(
        self,
        fifo: str | os.PathLike[str] | None = None,
        run: Run | None = None,
        commands: Mapping[str, Command] | None = None,
        parameters: Mapping[str, tuple[Any, ...]] | Iterable[Param] | None = None,
        name: str | None = None,
        checkpoint_dir: str | os.PathLike[str] | None = None,
        rounds: int | None = None,
    ) -> None:
        super().__init__(fifo, run, commands, parameters, name, checkpoint_dir, rounds)
        self.order = BEHIND_PRUNING
        self.before_iteration = False
        self._env: Any = None
        self._others: list[Any] = []  # LightGBM's own callbacks in this training
        self._schedules: list[tuple[Any, dict[str, Any]]] = []  # with what they were before a set

    @property
    def initial_iteration(self) -> int:
        """Iterations of the checkpoint that ``kajitori resume`` wants this training to go on from; 0
        for a fresh start."""
        path = self.resumed_from
        return lightgbm.Booster(model_file=path).current_iteration() if path else 0

    @property
    def resumed_params(self) -> dict[str, float]:
        """The learning rate that was in force when that checkpoint was saved, for ``params |
        steering.resumed_params``; {} for a fresh start."""
        path = self.resumed_from
        rate = _learning_rate(lightgbm.Booster(model_file=path)) if path else None
        return {} if rate is None else {LEARNING_RATE: rate}

    def _look(self, step: int, env: Any) -> None:
        """What StepGate calls when there is something to do."""
        self._env = env
        try:
            if not self._training or env.model is not self.model:
                step = self._begin(env)
            ends = self._begin_iteration(step)
        finally:
            self._env = None  # it has the parameters
        if ends:
            others = self._others
            self._finish()
            if env.iteration + 1 < env.end_iteration:
                self._end_training(env, others)
        elif self._is_report_due():
            self._report_new()

    def _begin(self, env: Any) -> int:
        """The training's first iteration has run."""
        self._check_free("lightgbm.engine")
        self.model = env.model
        self._before, self._most = env.begin_iteration, env.end_iteration
        self._others = list(locals_of("lightgbm.engine").get("callbacks_set", ()))
        self._start()
        mark = env.params["kajitori"] = _Mark(self.run.id)
        self._finish_with(mark)
        self._kept = [env.evaluation_result_list] if env.evaluation_result_list else None
        self._kept_name = "evaluation_result_list"
        self._owner, self._owner_name = env.model, "model"
        self._next_step = self._first + 2
        return self._first + 1

    def _end_training(self, env: Any, others: Iterable[Any]) -> None:
        """Ends it as if it had been of so many iterations: with early stopping the best one counts,
        else all of them (which `lightgbm.cv` does not take for none)."""
        for other in others:
            if isinstance(other, _early_stopping):
                other(CallbackEnv(**{**vars(env), "end_iteration": env.iteration + 1}))
        raise EarlyStopException(
            env.iteration if self._is_cv() else -1, env.evaluation_result_list or []
        )

    def _finish(self) -> None:
        if self._training:
            self._report_new()
        for schedule, before in self._schedules:
            schedule.kwargs = before
        self._schedules = []
        self._others = []
        self._owner = None
        super()._finish()

    def _describe(self) -> str:
        return f"lightgbm {lightgbm.__version__}"

    def _run_options(self) -> dict[str, Any]:
        rank, world_size = _ranks(_config(self._boosters()[0]))
        return {
            "total_steps": self._total(),
            "total_epochs": self._total(),
            "rank": rank,
            "world_size": world_size,
        }

    def _prepare(self) -> None:
        super()._prepare()
        kept = self.resumed_params.get(LEARNING_RATE)
        if kept is not None and kept != self._get_learning_rate() and not self._is_cv():
            self._keep_learning_rate(kept)
            self.run.note(f"goes on with lr={kept}")

    def _report_new(self) -> None:
        if self._kept:
            self._report_series(_curves(self._kept))
            self._kept.clear()

    def _newest(self) -> dict[str, float]:
        curves = _curves([self._env.evaluation_result_list or ()])
        return {name: values[0] for name, values in curves.items()}

    def _is_cv(self) -> bool:
        return isinstance(self.model, lightgbm.CVBooster)

    def _boosters(self) -> list[Any]:
        return self.model.boosters if self._is_cv() else [self.model]

    def _get_learning_rate(self) -> float | None:
        return _learning_rate(self._boosters()[0])

    def _set_learning_rate(self, value: float) -> None:
        for booster in self._boosters():
            booster.reset_parameter({LEARNING_RATE: value})
        self._env.params[LEARNING_RATE] = value
        for other in self._others:
            if isinstance(other, _reset_parameter) and set(RATES) & set(other.kwargs):
                self._disarm(other, value)

    def _disarm(self, schedule: Any, value: float) -> None:
        """Has a schedule of the learning rate say `value` until the training ends."""
        if all(schedule is not other for other, _ in self._schedules):
            self._schedules.append((schedule, schedule.kwargs))
        rates = {name: lambda _: value for name in RATES if name in schedule.kwargs}
        schedule.kwargs = schedule.kwargs | rates
        self._env.params.update(dict.fromkeys(rates, value))

    def _save(self, name: str) -> str:
        return self._write_whole(
            f"{name}.txt", lambda path: self.model.save_model(path, num_iteration=-1)
        )

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_env": None, "_others": [], "_schedules": []}


def _curves(kept: Iterable[Iterable[Any]]) -> dict[str, list[float]]:
    """The metrics of some iterations, of a cross-validation their mean and deviation."""
    found = {}
    for results in zip(*kept, strict=False):  # of one metric
        name = f"{results[0][0]}-{results[0][1]}"
        values = [result[2] for result in results]
        if len(results[0]) > 4 and results[0][4] is not None:
            found[f"{name}-mean"] = values
            found[f"{name}-stdv"] = [result[4] for result in results]
        else:
            found[name] = values
    return found


def _config(booster: Any) -> dict[str, str]:
    """What the library works with, as it writes it into each model."""
    lines = booster.model_to_string(num_iteration=1).splitlines()
    pairs = (line[1:-1].split(": ", 1) for line in lines if line[:1] == "[" and line[-1:] == "]")
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2}


def _learning_rate(booster: Any) -> float | None:
    config = _config(booster)
    if config.get("boosting") == "rf":  # which shrinks nothing
        return None
    rate = float(config[LEARNING_RATE])  # of six digits
    given = [booster.params[name] for name in RATES if name in booster.params]
    return next((float(value) for value in given if float(f"{float(value):.6g}") == rate), rate)


def _ranks(config: Mapping[str, str]) -> tuple[int, int]:
    """Rank and number of the machines, in the way of LightGBM: a machine's place in the list is its
    rank, and it finds itself by its address and port."""
    world_size = int(config.get("num_machines", 1))
    if world_size == 1:
        return 0, 1
    port = config.get("local_listen_port", "")
    for rank, machine in enumerate(config.get("machines", "").split(",")):
        host, _, its_port = machine.replace(" ", ":").partition(":")
        if its_port.strip() == port and _is_here(host):
            return min(rank, world_size - 1), world_size
    return 0, world_size  # a list in a file


def _is_here(host: str) -> bool:
    with contextlib.suppress(OSError):
        address = socket.getaddrinfo(host, 0, type=socket.SOCK_DGRAM)[0]
        with socket.socket(address[0], socket.SOCK_DGRAM) as probe:
            probe.bind(address[4])
            return True
    return False


class PruningCallback(Pruning):
    """Ends a training that the trial's pruner finds not worth going on with.

    trial: a trial of kajitori or of Optuna.
    metric: the metric's name, ``"binary_logloss"``.
    valid_name: the validation data's name; `lightgbm.cv` has one only.
    report_interval: each so many iterations a value is reported.

    Each value is reported at its iteration's number. When all other callbacks, but early stopping,
    have seen the iteration, `optuna.TrialPruned`, or `kajitori.TrialPruned` for a trial that is not
    Optuna's, comes out of `train`.
    """

    def __init__(
        self, trial: Trial, metric: str, valid_name: str = "valid_0", report_interval: int = 1
    ) -> None:
        super().__init__(trial, metric)
        self._valid_name = valid_name
        self._interval = positive("report_interval", report_interval)
        self.order = BEHIND_RECORDS
        self.before_iteration = False

    def __call__(self, env: Any) -> None:
        if (env.iteration + 1) % self._interval:
            return
        value, maximize = self._find(env)
        self._check_direction(maximize)
        if self.look(value, env.iteration):
            raise self.exception()

    def _find(self, env: Any) -> tuple[float, bool]:
        name = "valid" if isinstance(env.model, lightgbm.CVBooster) else self._valid_name
        results = [tuple(result)[:4] for result in env.evaluation_result_list or ()]
        for data, metric, value, maximize in results:
            if data == name and metric in (self.metric, f"valid {self.metric}"):
                return value, maximize
        there = ", ".join(f"{data} {metric}" for data, metric, _, _ in results)
        raise ArgumentError(
            f"metric {self.metric} of {name} is not evaluated; there is "
            + (there or "nothing: train was given no valid_sets")
        )

    def _check_direction(self, maximize: bool) -> None:
        """A study of Optuna that wants the opposite would prune its best trials."""
        study = getattr(self.trial, "study", None)
        if study is not None and (study.direction.name == "MAXIMIZE") != maximize:
            raise ArgumentError(
                f"metric {self.metric} is to be {'maximized' if maximize else 'minimized'}, and "
                "the study has the opposite direction"
            )
