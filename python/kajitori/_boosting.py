# SPDX-License-Identifier: Apache-2.0
"""What XGBoost and LightGBM have in common: `Boosting`, the adapter of a training whose iterations are
steps and epochs at once.

Iteration N is step N and epoch N, counted over the whole training. What is due is carried out between
two iterations, when all that the framework does at the end of the first one is done. Both frameworks
fix the number of iterations when a training begins, so a training that may be extended is begun with
more of them than it is to have, and `rounds` says how many these are.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from kajitori._checkpoint import appearing
from kajitori._errors import ArgumentError, UnsupportedError
from kajitori._run import Run
from kajitori._steering import NEVER, Command, Steering
from kajitori._values import Param, positive

LEARNING_RATE = "learning_rate"


class Boosting(Steering):
    """See `Steering`. `model` is the booster that is trained, of a cross-validation all of them."""

    _at_epoch_end = frozenset()  # each safe point is one
    _more = ""  # how a training is begun with more iterations, for who asks for extend

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
        super().__init__(fifo, run, commands, parameters, name, checkpoint_dir)
        self._rounds = None if rounds is None else positive("rounds", rounds)
        self._wanted = self._rounds  # extended
        self.model: Any = None
        self._first = 0  # step of the training's first iteration
        self._before = 0  # iterations that the model had already
        self._most = NEVER  # iterations of the model that the framework will do
        self._last = NEVER  # the step that does not begin any more
        self._n_reported = 0  # iterations whose metrics have been reported
        self._set_value: float | None = None  # of the learning rate, once somebody has set it

    @property
    def iteration(self) -> int:
        """The newest iteration begun, counted over the whole training from 0; -1 before the first."""
        return self.step

    def _total(self) -> int:
        """Iterations that the model is to have; 0: not known."""
        total = min(self._wanted or NEVER, self._most)
        return 0 if total == NEVER else total

    def _check_free(self, module: str) -> None:
        """Before another model is taken: a training that is still under way would lose its place."""
        if self._training and any(
            value is self.model for found in _callers(module) for value in found.values()
        ):
            raise ArgumentError(
                "this SteeringCallback is in a training; one inside of that needs a callback of its own"
            )

    def _start(self) -> None:
        self._wanted = self._rounds
        super()._start()

    def _prepare(self) -> None:
        self._first = max(self.run.step, self._before)
        self._set_last()
        self._n_reported = 0
        self._set_value = None
        self._counts_epochs = True
        self._next_step = self._first
        self._look_step = 0

    def _set_last(self) -> None:
        self._last = self._first - self._before + (self._total() or NEVER)

    def _begin_iteration(self, step: int) -> bool:
        """Iteration `step` begins, so the one before has ended: carries out what is due. True when no
        more of them are wanted."""
        run = self.run
        if self._first < step and run._due_epoch < step:
            run._publish(step, step - 1)
            run.end_epoch(step - 1)
        run._publish(step, step)
        stop = run.begin_step(step)
        self._look_step = min(run._due, run._due_epoch + 1, self._last)
        return stop or step >= self._last

    def _report_series(self, curves: Mapping[str, Sequence[float]]) -> None:
        """Reports the values of iterations behind those that have been reported."""
        for tag, values in curves.items():
            with contextlib.suppress(TypeError, ValueError):  # as of Steering._report
                self.run._report_series(tag, self._first + self._n_reported, values)
        self._n_reported += max(map(len, curves.values()), default=0)

    def _finish(self) -> None:
        super()._finish()
        self._kept = None

    # The verbs.

    def _verbs(self) -> Mapping[str, Callable[..., Any] | str]:
        return {
            "checkpoint": self._can_checkpoint() or self._checkpoint,
            "evaluate": self._evaluate,
            "extend": self._can_extend() or self._extend,
        }

    def _can_checkpoint(self) -> str:
        """Why not; "" when it can."""
        if self._is_cv():
            return "a cross-validation trains several models, and none of them can go on"
        if self._checkpoint_dir is None:
            return "the program gave SteeringCallback no checkpoint_dir"
        return ""

    def _can_extend(self) -> str:
        if self._rounds is None:
            return (
                "the number of iterations is fixed when the training begins; give SteeringCallback "
                f"rounds=N and {self._more} more of them, or save a checkpoint and go on from it"
            )
        return ""

    def _checkpoint(self) -> dict[str, Any]:
        """checkpoint: saves the model as it is between two iterations"""
        with self._in_phase("checkpoint"):
            return {"path": self._save(f"step-{self.run.step:08d}")}

    def _evaluate(self) -> dict[str, Any]:
        """evaluate: the metrics of the iteration that has just run"""
        found = self._newest()
        if not found:
            raise UnsupportedError("this training evaluates nothing: it was given no data to do so")
        return found

    def _extend(self, epochs: int | None = None, steps: int | None = None) -> dict[str, Any]:
        """extend: so many more iterations"""
        rounds = self._wanted + (epochs or 0) + (steps or 0)
        if rounds > self._most:
            raise UnsupportedError(
                f"{rounds} iterations; the program asked for no more than {self._most}"
            )
        self._wanted = rounds
        self._set_last()
        return {"total_steps": self._last, "total_epochs": self._last}

    def _own_parameters(self) -> list[Param]:
        if self._get_learning_rate() is None:
            return []
        return [
            Param(
                name="lr",
                get=self._get_learning_rate,
                set=self._keep_learning_rate,
                min=0,
                min_exclusive=self._is_zero_refused,
                help="learning rate: what the next trees are shrunk by",
            )
        ]

    def _keep_learning_rate(self, value: float) -> None:
        self._set_learning_rate(value)
        self._set_value = value

    # What differs.

    _is_zero_refused = False

    def _is_cv(self) -> bool:
        """Whether it is a cross-validation."""
        raise NotImplementedError

    def _newest(self) -> dict[str, float]:
        """The metrics of the newest iteration, {} when there are none."""
        raise NotImplementedError

    def _get_learning_rate(self) -> float | None:
        """As it is in force; None: this training has none."""
        raise NotImplementedError

    def _set_learning_rate(self, value: float) -> None:
        raise NotImplementedError

    def _save(self, name: str) -> str:
        """Writes the file `name`, with a suffix, into the folder of checkpoints; its path."""
        raise NotImplementedError

    def _write_whole(self, name: str, write: Callable[[str], object]) -> str:
        """Has `write` write a file, which appears by one rename: one that is there is whole."""
        path = os.path.join(self._checkpoint_dir, name)
        with appearing(path) as written:  # of the same suffix, which tells XGBoost the format
            write(written)
        return path

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"model": None}


def locals_of(module: str) -> Mapping[str, Any]:
    """The local variables of the function of `module` that has called us; {} when there is none. Both
    frameworks keep there what they tell no callback."""
    return next(_callers(module), {})


def _callers(module: str) -> Iterator[Mapping[str, Any]]:
    """Of all of its functions that are under way in this thread, the innermost first."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__") == module:
            yield frame.f_locals
        frame = frame.f_back


def shortest(value: Any) -> float:
    """The shortest decimal that is the same number in single precision, as the library holds it."""
    import numpy

    with contextlib.suppress(OverflowError):
        return float(str(numpy.float32(value)))
    return float(value)
