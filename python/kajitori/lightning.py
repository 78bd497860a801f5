# SPDX-License-Identifier: Apache-2.0
"""Steering and pruning of `Trainer.fit` of PyTorch Lightning: `SteeringCallback`, `PruningCallback`.

::

    from kajitori.lightning import SteeringCallback

    trainer = lightning.Trainer(max_epochs=100, callbacks=[SteeringCallback(fifo="ctl")])
    trainer.fit(model, data)

then, from any shell, ``kajitori status``, ``kajitori set lr=1e-4``, ``kajitori pause``,
``kajitori checkpoint``, ``kajitori stop --at epoch``, or ``echo stop > ctl``.
docs/frameworks/lightning.md says when each verb acts. Trainers of `lightning.pytorch` and of
`pytorch_lightning` will both do.
"""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

try:
    from kajitori import _lightning_loops as loops
    from kajitori import _torch_rates

    _BASES = loops.callback_classes()
except ImportError as error:
    raise ImportError(
        f"kajitori.lightning needs PyTorch Lightning (pip install lightning): {error}"
    ) from error

from kajitori._errors import StateError, UnsupportedError
from kajitori._pruning import Pruning, Trial
from kajitori._run import Run
from kajitori._steering import Command, Steering
from kajitori._step_gate import StepGate
from kajitori._values import Param

__all__ = ["PruningCallback", "SteeringCallback"]


class SteeringCallback(Steering, *_BASES):  # type: ignore[misc]
    """Makes `Trainer.fit` steerable from outside: stop, pause, set and get, checkpoint, own verbs, ….

    All arguments are optional:

    fifo: path of a FIFO for commands (``echo stop > PATH``); one made by ``mkfifo`` is used as it is,
        a missing one is made and removed at the end of `fit`.
    run: a `kajitori.Run` of yours, for a program that does more than one `fit`. The callback does not
        close it, and `fifo` and `name` are yours to give to it. Without it, each `fit` is a run of its
        own, from its beginning to its end.
    commands: own verbs, ``{"save": lambda cb: cb.trainer.save_checkpoint("now.ckpt")}``. A function
        gets this callback (with `trainer`, `model`, `run`, `step`, `epoch`) and then its arguments,
        which are declared by a pair: ``{"freeze": (freeze_layers, {"count": int})}`` is ``kajitori send
        'freeze count=3'``. What it returns is the sender's answer.
    parameters: what `get` and `set` see beside `lr`: ``{"dropout": (get, set, 0, 1)}``, or a list of
        `kajitori.Param`.
    name: what `kajitori ps` shows [the script's name].
    skip_validation: after a stop that does not say ``validate=yes``, the validation that Lightning
        would still make is left out.
    checkpoint_dir: folder for the verb `checkpoint`, and so for ``stop save=yes`` and ``pause
        level=leave``. A `fit` that ``kajitori resume`` has started again goes on from the checkpoint
        by itself. Each `fit` of a program needs a folder of its own. ``commands={"checkpoint": …}``
        takes its place.

    A step is a batch. `trainer.global_step`, which counts the steps of optimizers, is a parameter that
    can be read. `lr` is that of the optimizers, through their schedules.

    A stop makes `fit` return by Lightning's own way (`trainer.should_stop`), also before `min_epochs`
    or `min_steps`: all hooks and the code after `fit` run. ``pause level=leave`` and ``abort`` leave
    `fit` by `kajitori.Left` and `kajitori.Aborted`; other callbacks get `on_exception` then.
    """

    _at_epoch_end = frozenset()  # a validation can be made after any batch

    on_train_batch_end = StepGate.next_step

    def __init__(
        self,
        fifo: str | os.PathLike[str] | None = None,
        run: Run | None = None,
        commands: Mapping[str, Command] | None = None,
        parameters: Mapping[str, tuple[Any, ...]] | Iterable[Param] | None = None,
        name: str | None = None,
        skip_validation: bool = False,
        checkpoint_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__(fifo, run, commands, parameters, name, checkpoint_dir)
        self.trainer: Any = None
        self._skip_validation = skip_validation
        self._forget()

    def _forget(self) -> None:
        """What belongs to one fit."""
        self._minimum = loops.Minimum()
        self._epoch_end = loops.EpochEnd()
        self._is_fitting = False
        self._offset = 0  # steps of the run that were another fit's
        self._validated: dict[str, Any] = {}  # metrics of the newest validation
        self._extended: dict[str, int] = {}  # limits of the trainer that `extend` has changed
        self._at_epochs_end = False  # where the training is, or went on from
        self._at_start = False  # no batch has run
        self._came_with: Any = None  # state of the loops in the checkpoint that it went on from
        self._is_saving = False

    @property
    def model(self) -> Any:
        """The LightningModule; None before the first `fit`."""
        return None if self.trainer is None else self.trainer.lightning_module

    # The training's beginning and end.

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        if stage != "fit":
            return
        if self._is_fitting:
            raise StateError("this SteeringCallback steers a fit that goes on; give each its own")
        self.trainer = trainer
        self._forget()
        self._is_fitting = True
        loops.put_last(trainer, self)

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        self._go_on()

    def _go_on(self) -> None:
        """Takes up the checkpoint that the process was started again for, once, unless `fit` was given
        one."""
        path = self._checkpoint_to_take_up()
        if not path:
            return
        if not self.trainer.ckpt_path:
            loops.restore(self.trainer, path)
        self._has_taken_up(path)

    def on_sanity_check_start(self, trainer: Any, pl_module: Any) -> None:
        self._start()
        self._at_start = True
        self._set_phase("sanity check")

    def on_sanity_check_end(self, trainer: Any, pl_module: Any) -> None:
        self._set_phase("train")

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        if not self._training:
            self._start()
        self.run.set_totals(self._total_steps(), self._total_epochs())
        if self._at_epochs_end:
            loops.begin_next_epoch(trainer)
        self._at_start = True
        self._count_from_here()
        self._obey(self.run.begin_step(self.run.step))

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._finish()

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        if trainer is self.trainer and stage == "fit":
            self._finish()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        if trainer is self.trainer:
            self._finish()

    def _finish(self) -> None:
        self._is_fitting = False
        self._minimum.restore()
        self._epoch_end.take_back(self.trainer)
        super()._finish()

    # What is to be said about this framework.

    def _describe(self) -> str:
        package = loops.package_of(self.trainer)
        return f"{package.__name__} {package.__version__}"

    def _run_options(self) -> dict[str, Any]:
        return {
            "total_epochs": self._total_epochs(),
            "rank": self.trainer.global_rank,
            "world_size": self.trainer.world_size,
        }

    def _total_epochs(self) -> int:
        return max(self.trainer.max_epochs or 0, 0)

    def _total_steps(self) -> int:
        """0 when nobody knows."""
        epochs, of_epoch = self._total_epochs(), self.trainer.num_training_batches
        limits = [epochs * of_epoch] if epochs and of_epoch != float("inf") else []
        if self.trainer.max_steps > 0 and loops.steps_as_batches(self.trainer):
            limits.append(self.trainer.max_steps)
        return int(min(limits, default=0))

    def _prepare(self) -> None:
        done = loops.batches(self.trainer)
        self._offset = max(self.run.step - done, 0)
        if self.trainer.ckpt_path:
            self.run.note(f"goes on from {self.trainer.ckpt_path}")

    def _abilities(self) -> dict[str, bool]:
        return {
            "skip_validation": loops.can_skip_validation(self.trainer),
            "by_default": self._skip_validation,
        }

    def _own_parameters(self) -> list[Param]:
        optimizers = [one for one in self.trainer.optimizers if loops.has_rates(one)]
        names = {"" if len(optimizers) == 1 else str(k): one for k, one in enumerate(optimizers)}
        counter = Param(
            name="global_step",
            get=lambda: self.trainer.global_step,
            set=None,
            type=int,
            help="steps of the optimizers, as Lightning counts them",
        )
        return [counter, *_torch_rates.parameters(names, loops.schedulers(self.trainer))]

    def _verbs(self) -> dict[str, Any]:
        checkpoint: Any = self._checkpoint
        if self._checkpoint_dir is None:
            checkpoint = "the program gave SteeringCallback no checkpoint_dir"
        evaluate: Any = self._evaluate
        if not self.trainer.enable_validation:
            evaluate = "this training has no validation"
        return {"checkpoint": checkpoint, "evaluate": evaluate, "extend": self._extend}

    def _checkpoint(self) -> dict[str, Any]:
        """checkpoint: the trainer's save_checkpoint, with all that going on needs"""
        name = f"step-{max(self.run.step, 0):08d}.ckpt"
        path = os.path.join(self._checkpoint_dir, name)
        os.makedirs(self._checkpoint_dir, exist_ok=True)
        self._is_saving = True
        try:
            with self._in_phase("checkpoint"), self._resumable():
                self.trainer.save_checkpoint(path)
        finally:
            self._is_saving = False
        return {"path": path}

    def _resumable(self) -> contextlib.AbstractContextManager[Any]:
        if self.trainer.sanity_checking or (self._at_start and self._came_with is None):
            return loops.as_before_training(self.trainer)
        is_settled = self._at_start or self._at_epochs_end
        if not is_settled and loops.is_validation_next(self.trainer):
            return loops.as_before_validation(self.trainer)
        return contextlib.nullcontext()

    def _evaluate(self) -> dict[str, Any]:
        """evaluate: a validation by the trainer, in between; the result is its metrics"""
        if self.trainer.validating or self.trainer.sanity_checking:
            raise UnsupportedError("a validation is going on")
        with self._in_phase("evaluation"):
            loops.validate(self.trainer)
        return self._validated

    def _extend(self, epochs: int = 0, steps: int = 0) -> dict[str, Any]:
        """extend: raises the trainer's max_epochs, or its max_steps, and tells the schedules"""
        limits, schedules = loops.extend(self.trainer, epochs, steps)
        self._extended |= limits
        steps, epochs = self._total_steps(), self._total_epochs()
        self.run.set_totals(steps, epochs)
        totals = {"total_steps": steps, "total_epochs": epochs}
        return totals | limits | {"schedules": schedules}

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        if self._training:
            checkpoint["kajitori"] = {"limits": self._extended, "epoch_end": self._at_epochs_end}
        if self._is_saving and self._at_start and self._came_with is not None:
            checkpoint["loops"] = self._came_with  # has trained nothing since

    def on_load_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        self._came_with = checkpoint.get("loops")
        state = checkpoint.get("kajitori")
        if state is not None:
            self._extended, self._at_epochs_end = state["limits"], state["epoch_end"]
            loops.set_limits(trainer, self._extended)

    # Steps, epochs, validations.

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        self._count_from_here()

    def _count_from_here(self) -> None:
        """Not only when an epoch begins: one that is gone on with has no such hook."""
        first = self._offset + loops.batches(self.trainer)
        self._next_step = first + 1  # begins when the first batch has run
        self._look_step = 0
        self.run._publish(first, self.trainer.current_epoch)

    # The next step begins in on_train_batch_end, where Lightning looks at should_stop. Nearly always
    # there is nothing to do: StepGate.next_step returns.

    def _look(self, step: int, trainer: Any, *args: Any, **kwargs: Any) -> None:
        """What StepGate calls when there is something to do: a safe point, or metrics."""
        if not self._training:
            return
        self._at_start = self._at_epochs_end = False
        if self.run.begin_step(step):
            self._obey(True)
            if self._skips_validation() and not loops.needs_validation(trainer):
                loops.skip_validation(trainer)
        if self._is_report_due():
            self._report(loops.new_metrics(trainer))
        self._look_step = self.run._due

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        self._epoch_end.call(trainer, self._end_epoch)

    def _end_epoch(self, trainer: Any) -> None:
        self._at_start, self._at_epochs_end = False, True
        self._report(loops.new_metrics(trainer))
        self._obey(self.run.end_epoch(trainer.current_epoch))

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        if self._is_ours(trainer):
            self._set_phase("validation")

    def on_validation_batch_end(self, trainer: Any, *args: Any, **kwargs: Any) -> None:
        if self._training and trainer is self.trainer and self.run.poll():
            self._obey(True)
            if self._skips_validation():
                loops.cut_validation(trainer)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        if self._is_ours(trainer):
            self._validated = loops.new_metrics(trainer)
            self._report(self._validated)
            self._set_phase("train")

    def _is_ours(self, trainer: Any) -> bool:
        """Whether a validation is one of the training."""
        return self._training and trainer is self.trainer and not trainer.sanity_checking

    def _obey(self, stop: bool) -> None:
        if stop:
            self.trainer.should_stop = True
            self._minimum.lift(self.trainer)

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        for name in ("log", "log_dict"):  # Lightning gives each callback those of the model
            state.pop(name, None)
        fresh = {"_is_fitting": False, "_minimum": loops.Minimum(), "_epoch_end": loops.EpochEnd()}
        return state | {"trainer": None} | fresh


class PruningCallback(Pruning, *_BASES):  # type: ignore[misc]
    """Reports `monitor` to a trial after each validation (or, where it is logged in the training, each
    epoch), and ends `fit` when the trial is to be pruned: all hooks of all callbacks run, then
    `TrialPruned` comes out of `fit`, Optuna's for a trial of Optuna.

    trial: one of kajitori or of Optuna: anything with ``report(value, step)`` and ``should_prune()``.
    monitor: name of the metric, as logged by ``self.log``.
    """

    def __init__(self, trial: Trial, monitor: str) -> None:
        super().__init__(trial, monitor)
        self._forget()

    def _forget(self) -> None:
        self._minimum = loops.Minimum()
        self._epoch_end = loops.EpochEnd()
        self._has_looked = False

    def check_pruned(self) -> None:
        """Raises what `fit` has raised, or nothing."""
        if self.pruned:
            raise self.exception()

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        self._forget()

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        if trainer.state.fn == "fit" and not trainer.sanity_checking:
            self._look_at_metrics(trainer)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        self._epoch_end.call(trainer, self._look_at_metrics)

    def _look_at_metrics(self, trainer: Any) -> None:
        value = loops.new_metrics(trainer).get(self.metric)
        if value is None:
            return
        self._has_looked = True
        step = (
            trainer.global_step if loops.validates_within_epochs(trainer) else trainer.current_epoch
        )
        if trainer.is_global_zero:
            self.look(value.item(), step)
        self.__dict__ |= trainer.strategy.broadcast(self._decision())
        if self.pruned:
            trainer.should_stop = True
            self._minimum.lift(trainer)

    def _decision(self) -> dict[str, Any]:
        """What rank 0 tells the others."""
        return {name: vars(self)[name] for name in ("pruned", "_step", "_value")}

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        if not self._has_looked:
            names = ", ".join(sorted(trainer.callback_metrics)) or "none"
            warnings.warn(
                f"PruningCallback: this training logs no metric {self.metric!r}, so nothing was "
                f"reported; its metrics: {names}",
                stacklevel=2,
            )

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        self._finish(trainer)
        loops.put_last(trainer, self)

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """The last of all hooks of callbacks when pruned."""
        if stage == "fit" and self.pruned:
            pl_module.teardown(stage=stage)
            raise self.exception()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._finish(trainer)

    def _finish(self, trainer: Any) -> None:
        self._minimum.restore()
        self._epoch_end.take_back(trainer)
