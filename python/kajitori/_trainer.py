# SPDX-License-Identifier: Apache-2.0
"""A `transformers.Trainer` from inside of its callbacks.

A callback is not told which Trainer calls it, and can ask only by flags that are looked at later. A
sender wants the path of the checkpoint and the metrics as the answer, so we find the Trainer and do
both by its own methods.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
import transformers
from transformers.trainer_utils import SaveStrategy

from kajitori._checkpoint import appearing
from kajitori._errors import UnsupportedError


def find() -> transformers.Trainer | None:
    """The Trainer that is calling its callbacks just now."""
    return next(callers(), None)


def callers() -> Iterator[transformers.Trainer]:
    """All Trainers that are at work in this thread, innermost first; one may come several times."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_varnames[:1] == ("self",):
            found = frame.f_locals.get("self")
            if isinstance(found, transformers.Trainer):
                yield found
        frame = frame.f_back


class Wrapped:
    """A method of one Trainer that goes through ``function(original, …)`` until `undo`. Others may
    wrap it too, and undo in any order."""

    def __init__(self, trainer: Any, name: str, function: Callable[..., Any]) -> None:
        self._trainer, self._name, self._function = trainer, name, function
        self._is_on = True
        self._original = getattr(trainer, name)
        setattr(trainer, name, self)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not self._is_on:
            return self._original(*args, **kwargs)
        return self._function(self._original, *args, **kwargs)

    def undo(self) -> None:
        self._is_on = False
        trainer, name = self._trainer, self._name
        while isinstance(now := vars(trainer).get(name), Wrapped) and not now._is_on:
            delattr(trainer, name)
            if now._original != getattr(trainer, name):
                setattr(trainer, name, now._original)


@contextlib.contextmanager
def changed(thing: Any, **values: Any) -> Iterator[None]:
    """Attributes of `thing` have other values within a `with`."""
    before = {name: getattr(thing, name) for name in values}
    try:
        for name, value in values.items():
            setattr(thing, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(thing, name, value)


def _keeps_flags(trainer: Any) -> contextlib.AbstractContextManager[None]:
    """What the Trainer was about to do (log, evaluate, save, stop) it does afterwards all the same."""
    return changed(trainer.control, **vars(trainer.control))


def save(trainer: Any, folder: str | None) -> str:
    """Writes ``checkpoint-N`` by the Trainer's own method, with all that `resume_from_checkpoint`
    reads, into `folder` [where the Trainer has its own]. It appears by one rename, so one that is
    there is whole. Returns its path."""
    trial = getattr(trainer, "_trial", None)
    home = os.path.abspath(folder or trainer._get_output_dir(trial))
    name = f"checkpoint-{trainer.state.global_step}"
    path = os.path.join(home, name)
    with (
        appearing(path) as written,
        changed(
            trainer.args,
            output_dir=os.path.dirname(written),
            save_only_model=False,
            save_strategy=SaveStrategy.NO,  # else the best model would be looked for here
            save_total_limit=None,
            push_to_hub=False,  # it would be uploaded from here, later
        ),
    ):
        trainer._save_checkpoint(trainer.model, trial)
        # in a search for hyperparameters, in a folder of the trial below
        os.rename(os.path.join(trainer._get_output_dir(trial), name), written)
    if not folder:
        with _keeps_flags(trainer):
            trainer.callback_handler.on_save(trainer.args, trainer.state, trainer.control)
    return path


def _counts(callback: Any) -> bool:
    """Whether it counts evaluations, and so is not to hear of one that a sender asked for."""
    return isinstance(callback, transformers.EarlyStoppingCallback) or getattr(
        callback, "_counts_evaluations", False
    )


def evaluate(trainer: Any) -> dict[str, Any]:
    """The metrics of the Trainer's `eval_dataset`. The training goes on as if nobody had asked: with
    the same random numbers, and without a word to callbacks that count evaluations."""
    handler = trainer.callback_handler
    told = [callback for callback in handler.callbacks if not _counts(callback)]
    with (
        changed(handler, callbacks=told),
        _keeps_flags(trainer),
        torch.random.fork_rng(devices=[]),  # a loader draws one
    ):
        return trainer.evaluate()


def lengthen(scheduler: Any, steps: int) -> bool:
    """Tells the Trainer's schedule that the training is longer by so many steps; the learning rate is
    then that of the longer schedule. False for a schedule that does not depend on the length.
    `UnsupportedError` for one that may, and cannot be told."""
    if isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau | transformers.GreedyLR):
        return False
    functions = getattr(scheduler, "lr_lambdas", None)
    if functions is None or not all(map(_is_of_transformers, functions)):
        raise UnsupportedError(
            f"the learning rate follows a schedule of the program's own ({type(scheduler).__name__}), "
            'which cannot be told; give SteeringCallback commands={"extend": …} that does it all'
        )
    longer = [_lengthened(function, steps) for function in functions]
    if longer == functions:
        return False
    scheduler.lr_lambdas = longer
    rates = [
        base * function(scheduler.last_epoch)
        for base, function in zip(scheduler.base_lrs, longer, strict=True)
    ]
    for group, rate in zip(scheduler.optimizer.param_groups, rates, strict=True):
        group["lr"] = rate
    scheduler._last_lr = rates  # what the Trainer logs
    return True


def _is_of_transformers(function: Any) -> bool:
    function = getattr(function, "func", function)
    return getattr(function, "__module__", "").startswith("transformers.")


def _lengthened(function: Any, steps: int) -> Any:
    """Of transformers' own functions from a step to a factor: its total, or its longest part."""
    known = getattr(function, "keywords", {})
    for name in ("num_training_steps", "num_stable_steps"):
        if name in known:
            return functools.partial(function, **{name: known[name] + steps})
    return function
