# SPDX-License-Identifier: Apache-2.0
"""What `kajitori.lightning` knows of the loops inside of a Lightning trainer.

Lightning has no public way to end a validation early, to run one in between, or to save in the middle
of one so that the training can go on from there. What is done here instead is what its own loops do
(`fit_loop`, `training_epoch_loop` and `evaluation_loop` of Lightning 2.6), at the places where they
allow it; tests/frameworks/backends/test_lightning_*.py hold it against the real thing.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from kajitori import _torch_rates
from kajitori._checkpoint import cannot_go_on
from kajitori._errors import UnsupportedError

PACKAGES = ("lightning.pytorch", "pytorch_lightning")
"""One and the same framework under two names, whose classes are not the same."""


def callback_classes() -> tuple[type, ...]:
    """The class `Callback` of each package that the program has imported, so that `isinstance` holds;
    else of one that is there. `ImportError`."""
    loaded = [sys.modules[name] for name in PACKAGES if sys.modules.get(name)]
    if loaded:
        return tuple(package.Callback for package in loaded)
    try:
        return (importlib.import_module(PACKAGES[0]).Callback,)
    except ImportError:
        return (importlib.import_module(PACKAGES[1]).Callback,)


def package_of(trainer: Any) -> ModuleType:
    """The package that the trainer is of."""
    for cls in type(trainer).__mro__:
        for name in PACKAGES:
            if cls.__module__.startswith(name + "."):
                return sys.modules[name]
    raise UnsupportedError(f"{type(trainer).__name__} is no trainer of {' or '.join(PACKAGES)}")


def put_last(trainer: Any, callback: Any) -> None:
    """Has `callback` called behind all others, so that it sees, and saves, what they have done."""
    trainer.callbacks = [other for other in trainer.callbacks if other is not callback] + [callback]


class EpochEnd:
    """In `on_train_epoch_end`, `call` has a function called at the very end of this epoch. Lightning
    calls those callbacks last there that look at metrics, which are told by their class, and the
    module before them. So one of that class is among the trainer's callbacks until its turn has
    come, and no longer: each callback costs a step some microseconds."""

    def __init__(self) -> None:
        self._callback: Any = None

    def call(self, trainer: Any, function: Callable[[Any], None]) -> None:
        def at_end(trainer: Any) -> None:
            self.take_back(trainer)
            function(trainer)

        self._callback = _last_class(package_of(trainer))(at_end)
        put_last(trainer, self._callback)

    def take_back(self, trainer: Any) -> None:
        if self._callback is not None:
            trainer.callbacks = [one for one in trainer.callbacks if one is not self._callback]
            self._callback = None


@functools.cache
def _last_class(package: ModuleType) -> type:
    class Last(package.callbacks.EarlyStopping):  # type: ignore[name-defined]
        def __init__(self, function: Callable[[Any], None]) -> None:
            super().__init__(monitor="")
            self._function = function

        def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            self._function(trainer)

        def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
            pass

        def state_dict(self) -> dict[str, Any]:
            return {}

    return Last


class Minimum:
    """Lightning's `min_epochs` and `min_steps`, which would hold back a stop: what a person or a
    pruner asks for goes before them. They come back with `restore`."""

    def __init__(self) -> None:
        self._kept: tuple[Any, Any, Any] | None = None

    def lift(self, trainer: Any) -> None:
        loop = trainer.fit_loop
        now = (loop.min_epochs, loop.epoch_loop.min_steps)
        if now == (0, None):
            return  # none, or another callback has lifted them, and puts them back
        self._kept = (loop, *now)
        loop.min_epochs, loop.epoch_loop.min_steps = 0, None

    def restore(self) -> None:
        if self._kept is not None:
            loop, loop.min_epochs, loop.epoch_loop.min_steps = self._kept
            self._kept = None


def batches(trainer: Any) -> int:
    """Batches that have begun in the whole training, those before a resumption too."""
    return trainer.fit_loop.epoch_loop.batch_progress.total.ready


def new_metrics(trainer: Any) -> dict[str, Any]:
    """Those of `trainer.callback_metrics` that belong to what runs now: of the batch, or, at the end of
    an epoch or a validation, of that. The property has those of earlier validations, too. On all
    ranks alike, since those of an epoch may be gathered from all."""
    connector = trainer._logger_connector
    return dict(connector.metrics["callback"]) if trainer._results is not None else {}


def can_skip_validation(trainer: Any) -> bool:
    return hasattr(trainer.fit_loop.epoch_loop, "_skip_next_val")


def skip_validation(trainer: Any) -> None:
    """At the end of a batch: the validation that would follow is left out."""
    trainer.fit_loop.epoch_loop._skip_next_val = True


def needs_validation(trainer: Any) -> bool:
    """Whether somebody would end the training by an exception at the end of this epoch, for want of a
    metric that no validation has given yet."""
    stopping = package_of(trainer).callbacks.EarlyStopping
    wanted = [one.monitor for one in trainer.callbacks if isinstance(one, stopping) and one.strict]
    wanted += [
        config.monitor
        for config in trainer.lr_scheduler_configs
        if config.reduce_on_plateau and config.strict
    ]
    return any(monitor not in trainer.callback_metrics for monitor in wanted)


def cut_validation(trainer: Any) -> None:
    """At the end of a batch of validation: it ends as if its data had ended."""
    fetcher = trainer.fit_loop.epoch_loop.val_loop._data_fetcher
    fetcher.done = True
    if hasattr(fetcher, "batches"):  # fetched ahead
        fetcher.batches = []


def validate(trainer: Any) -> None:
    """The trainer's own validation, between two batches or epochs, as its `val_check_interval` does
    it: all callbacks are told, and the loggers get the metrics."""
    loop, connector = trainer.fit_loop.epoch_loop.val_loop, trainer._logger_connector
    kept = (connector._first_loop_iter, connector._current_fx)
    trainer.validating = True
    try:
        loop.run()
    except BaseException:
        loop._on_evaluation_model_train()
        raise
    finally:
        trainer.training = True
        connector._first_loop_iter, connector._current_fx = kept


def is_validation_next(trainer: Any) -> bool:
    """Whether a validation goes on, or follows the batch that has run."""
    loop = trainer.fit_loop
    return trainer.validating or loop.epoch_loop._should_check_val_fx(loop._data_fetcher)


@contextlib.contextmanager
def as_before_validation(trainer: Any) -> Iterator[None]:
    """Within it the loops' counters are those of a training that was interrupted at the first batch
    of a validation: one that goes on from there does that validation, where Lightning would take
    it for done."""
    epoch_loop = trainer.fit_loop.epoch_loop
    of_training, of_validation = epoch_loop.batch_progress, epoch_loop.val_loop.batch_progress
    kept = [progress.state_dict() for progress in (of_training, of_validation)]
    for count in (of_training.total, of_training.current):
        count.completed = count.processed
    of_validation.reset()
    of_validation.increment_ready()
    of_validation.increment_started()
    try:
        yield
    finally:
        of_training.load_state_dict(kept[0])
        of_validation.load_state_dict(kept[1])


@contextlib.contextmanager
def as_before_training(trainer: Any) -> Iterator[None]:
    """Within it the counters are those of a training that has not begun, not of its sanity check."""
    progress = trainer.fit_loop.epoch_loop.val_loop.batch_progress
    kept = progress.state_dict()
    progress.reset()
    try:
        yield
    finally:
        progress.load_state_dict(kept)


def begin_next_epoch(trainer: Any) -> None:
    """In `on_train_start` of a training that goes on from the end of an epoch. Where `max_steps` is set,
    Lightning takes it for one that was interrupted before that end, and would end the epoch a second
    time, without its metrics."""
    loop = trainer.fit_loop
    if not loop.restarted_on_epoch_end:
        return
    loop.epoch_progress.increment_completed()
    epoch_loop = loop.epoch_loop
    inner = (epoch_loop.val_loop, epoch_loop.automatic_optimization, epoch_loop.manual_optimization)
    for one in (loop, epoch_loop, *inner):
        one._restarting = False
        one.reset_restart_stage()


def restore(trainer: Any, path: str) -> None:
    """In `on_fit_start`: has the trainer go on from the checkpoint, in the order of its own
    `fit(ckpt_path=…)` with a strategy that restores late; loops, optimizers and schedules follow
    behind that hook. `FailedError`."""
    try:
        trainer._checkpoint_connector._restore_modules_and_callbacks(path, weights_only=False)
    except Exception as error:
        raise cannot_go_on(path, error) from error


def validates_within_epochs(trainer: Any) -> bool:
    """Whether an epoch may have more than one validation."""
    if trainer.check_val_every_n_epoch is None or trainer.val_check_batch is None:
        return True
    return trainer.val_check_batch < trainer.num_training_batches


def steps_as_batches(trainer: Any) -> bool:
    """Whether each batch is one step of an optimizer, in which Lightning counts `max_steps`."""
    return trainer.lightning_module.automatic_optimization and trainer.accumulate_grad_batches == 1


def has_rates(optimizer: Any) -> bool:
    """Not so the one that Lightning puts in where a model has none."""
    groups = optimizer.param_groups
    return bool(groups) and all("lr" in group for group in groups)


def schedulers(trainer: Any) -> list[Any]:
    return [config.scheduler for config in trainer.lr_scheduler_configs]


def extend(trainer: Any, epochs: int, steps: int) -> tuple[dict[str, int], dict[str, str]]:
    """Raises the limit that ends the training, and tells the schedules. Returns the limit, and what
    became of the schedules."""
    name, old, more = ("max_epochs", trainer.max_epochs, epochs)
    if not epochs:
        name, old, more = ("max_steps", trainer.max_steps, steps)
    _check_limit(trainer, name)
    told = _torch_rates.stretch(schedulers(trainer), old, old + more)
    limits = {name: old + more}
    set_limits(trainer, limits)
    return limits, told


def _check_limit(trainer: Any, name: str) -> None:
    """Whether it is this limit that ends the training."""
    other, verb = {
        "max_epochs": ("max_steps", "extend steps=N"),
        "max_steps": ("max_epochs", "extend epochs=N"),
    }[name]
    if getattr(trainer, name) == -1:
        raise UnsupportedError(f"this training has no {name}; {verb}")
    if name == "max_epochs" and trainer.max_steps != -1:
        raise UnsupportedError(f"max_steps={trainer.max_steps} may end this training; {verb}")
    if name == "max_steps" and not steps_as_batches(trainer):
        raise UnsupportedError(
            f"{other}, if any, may be extended: max_steps counts steps of optimizers, and a batch of "
            "this training is not one"
        )


def set_limits(trainer: Any, limits: dict[str, int]) -> None:
    """Raises those of the trainer's limits that are lower."""
    loop = trainer.fit_loop
    if loop.max_epochs != -1:
        loop.max_epochs = max(loop.max_epochs, limits.get("max_epochs", -1))
    if loop.max_steps != -1:
        loop.epoch_loop.max_steps = max(loop.max_steps, limits.get("max_steps", -1))
