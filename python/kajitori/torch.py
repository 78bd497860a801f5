# SPDX-License-Identifier: Apache-2.0
"""Steering of a torch training loop of one's own: `Run`.

::

    import kajitori.torch

    run = kajitori.torch.Run(optimizer, model=model, checkpoint_dir="checkpoints")
    for epoch in run.epochs(100):
        for x, y in run.steps(loader):
            ...
            optimizer.step()
        run.report(val_loss=validate())

or two lines in a loop that stays as it is: ``run = kajitori.torch.Run(optimizer)`` before it, and
``if run.should_stop: break`` in it. Then, from any shell, ``kajitori status``, ``kajitori set lr=1e-4``,
``kajitori pause``, ``kajitori stop --at epoch``. docs/frameworks/torch.md says when each verb acts.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

try:
    import torch
except ImportError as error:
    raise ImportError(f"kajitori.torch needs PyTorch (pip install torch): {error}") from error

from kajitori import _run, _torch_checkpoint, _torch_rates
from kajitori._errors import ArgumentError, StateError, UnsupportedError
from kajitori._pruning import Pruning, Trial
from kajitori._steering import NEVER, REPORT_SECONDS, Command, Steering
from kajitori._torch_loops import Epochs, Place, Steps, Validation
from kajitori._values import Param

__all__ = ["Run"]


class Run(Steering):
    """A torch training that can be steered from outside: stop, pause, set and get, checkpoint, …. It
    begins here, and ends with the loop over `epochs`, a `with`, or `close`.

    All arguments are optional:

    optimizer: one, or a dict or list of several. Parameter `lr` is its learning rate. In a loop that is
        not over `steps`, a step is one of (the first of) them.
    model, scheduler, scaler: what a checkpoint has beside the optimizer; each one, or a dict or list.
        The model may be wrapped by DistributedDataParallel or compiled.
    state: more objects with state_dict and load_state_dict, ``{"ema": ema}``.
    evaluate: function for the verb `evaluate`; called with this run, the model in eval mode and without
        gradients, it returns a dict of metrics.
    skip_validation: True: after a stop that does not say ``validate=yes`` a loop over `validate` ends
        after one batch. False: it does so only after ``validate=no``. None: there is no such loop,
        until there is one.
    fifo, run, commands, parameters, name, checkpoint_dir: as of all adapters of kajitori
        (docs/frameworks/torch.md); a function of `commands` gets this run, then its arguments.

    A stop ends the loops by their own way: what stands behind them runs. An exception in an own verb or
    setter is the sender's reply and never ends the training. A channel that cannot be opened is one
    `kajitori.ChannelWarning`. ``pause level=leave`` and ``abort`` leave the loop by `kajitori.Left` and
    `kajitori.Aborted`.
    """

    _at_epoch_end = frozenset()

    def __init__(
        self,
        optimizer: Any = None,
        model: Any = None,
        scheduler: Any = None,
        scaler: Any = None,
        *,
        state: Mapping[str, Any] | None = None,
        evaluate: Callable[[Run], Any] | None = None,
        skip_validation: bool | None = None,
        fifo: str | os.PathLike[str] | None = None,
        run: _run.Run | None = None,
        commands: Mapping[str, Command] | None = None,
        parameters: Mapping[str, tuple[Any, ...]] | Iterable[Param] | None = None,
        name: str | None = None,
        checkpoint_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__(fifo, run, commands, parameters, name, checkpoint_dir)
        self._optimizers = {name: _bare(one) for name, one in _named(optimizer).items()}
        for name, one in _parts("optimizer", self._optimizers).items():
            if not isinstance(one, torch.optim.Optimizer):
                raise ArgumentError(f"{name}: {type(one).__name__} is no torch.optim.Optimizer")
        self._models = _named(model)
        self._schedulers = _named(scheduler)
        self._parts = {
            **_parts("model", self._models),
            **_parts("optimizer", self._optimizers),
            **_parts("scheduler", self._schedulers),
            **_parts("scaler", _named(scaler)),
        }
        self._parts |= _more_parts(state, self._parts)
        for part, what in self._parts.items():
            if not hasattr(what, "state_dict"):
                raise ArgumentError(f"{part}: {type(what).__name__} has no state_dict")
        if evaluate is not None and not callable(evaluate):
            raise ArgumentError(f"evaluate: {type(evaluate).__name__} is no function")
        self._evaluation = evaluate
        self._skip_validation = skip_validation
        self._pruning: Pruning | None = None
        self._step_of_trial = "epoch"
        self._hook: Any = None  # while the optimizer counts the steps
        self._is_asked = False  # the loop looks at should_stop
        self._is_held = False  # by a `with`
        self._log_ns = 0
        self._place = Place()
        self._start()

    @property
    def should_stop(self) -> bool:
        """True once a stop was applied, or the trial of `prune_with` is to end. In a loop that is not over
        `steps` commands act here, between two steps."""
        if self._hook is not None:
            self._is_asked = True
            step = self._next_step - 1
            if self.run._pending or step >= self.run._due:
                self._act(step)
        return self._is_over

    @property
    def stop_reason(self) -> str:
        """The reason given with the stop, "" when there is none."""
        return self.run.stop_reason

    @property
    def ending(self) -> str | None:
        """What ended the training: "stop", "prune", "leave" or "abort"; None: nothing yet, or its own
        end."""
        return self.run.ending

    @property
    def pruned(self) -> bool:
        """True once a rule, or the trial of `prune_with`, has pruned the training."""
        return super().pruned or (self._pruning is not None and self._pruning.pruned)

    @property
    def initial_epoch(self) -> int:
        """The epoch that the training begins with: 0 for a fresh start."""
        return self._place.initial_epoch

    @property
    def skips_validation(self) -> bool:
        """Whether a stop was applied, and wants no validation."""
        return self.run.should_stop and self._skips_validation()

    @property
    def _is_over(self) -> bool:
        return self.run.should_stop or (self._pruning is not None and self._pruning.pruned)

    def epochs(self, n: int) -> Epochs:
        """For ``for epoch in run.epochs(n)``: the numbers of the epochs, from `initial_epoch` on. The run
        ends with this loop, unless it is one of a `with` or has a `kajitori.Run` of yours."""
        return Epochs(self, n)

    def steps(self, loader: Iterable[Any], accumulate: int = 1) -> Steps:
        """For ``for batch in run.steps(loader)``: the batches of a loader, each of which is a step. With
        gradients that are accumulated over several batches, `accumulate` of them are one. Where there is
        no loop over `epochs`, each loop of this kind is an epoch."""
        return Steps(self, loader, accumulate)

    def validate(self, loader: Iterable[Any]) -> Validation:
        """For ``for batch in run.validate(loader)``: a validation in which commands act, too. A stop that
        wants no validation ends it after a batch."""
        if self._skip_validation is None and self._training:
            self._skip_validation = False
            self.run.declare(**self._abilities())
        return Validation(self, loader)

    def report(self, metrics: Mapping[str, Any] | None = None, /, **more: Any) -> None:
        """Reports metrics, ``run.report(val_loss=x)``, at the newest step: numbers, or tensors of one."""
        for tag, value in {**(metrics or {}), **more}.items():
            value = value.detach() if isinstance(value, torch.Tensor) else value
            self.run.report(tag, self.run.step, value)
            if self._pruning is not None and tag == self._pruning.metric:
                self._ask(float(value))

    def log(self, metrics: Mapping[str, Any] | None = None, /, **more: Any) -> None:
        """For metrics of each step, ``run.log(loss=loss)``: reports them at most every half second. A
        tensor is looked at only then."""
        now = time.monotonic_ns()
        if now >= self._log_ns:
            self._log_ns = now + int(REPORT_SECONDS * 1e9)
            self.report(metrics, **more)

    def prune_with(self, trial: Trial, metric: str, per: str = "epoch") -> None:
        """Has a trial of kajitori or of Optuna decide whether to go on, each time that `report` gets
        `metric`. What it is told as step is the number of the epoch, or with ``per="step"`` that of the
        step. When it decides to end, the loops end as by a stop, and the one over `epochs` raises
        TrialPruned behind its last epoch (without it: `raise_if_pruned`)."""
        if per not in ("epoch", "step"):
            raise ArgumentError(f"per {per!r} is neither epoch nor step")
        if not self.run.rank_alone:
            raise UnsupportedError(
                f"this is rank {self.run.rank} of {self.run.world_size}: a trial that ends one rank alone "
                "would leave the others waiting for it"
            )
        self._pruning = Pruning(trial, metric)
        self._step_of_trial = per

    def _ask(self, value: float) -> None:
        step = self.run.step if self._step_of_trial == "step" else self.run.epoch
        if step < 0:
            raise StateError(f'prune_with: there is no {self._step_of_trial} yet; say per="step"')
        was = self._pruning.pruned
        if self._pruning.look(value, step) and not was:
            self.run.note(f"the trial: {self._pruning.exception()}")
            self._look_step = 0

    def raise_if_pruned(self) -> None:
        """Raises TrialPruned when the trial of `prune_with` has ended the training."""
        if self._pruning is not None and self._pruning.pruned:
            raise self._pruning.exception()

    def close(self) -> None:
        """Ends the run; a second call does nothing."""
        self._finish()

    def __enter__(self) -> Run:
        self._is_held = True
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        self._is_held = False
        self._finish()
        if kind is None:
            self.raise_if_pruned()

    def __reduce__(self) -> Any:
        raise UnsupportedError("a kajitori.torch.Run belongs to its training and cannot be copied")

    def _describe(self) -> str:
        return f"torch {torch.__version__}"

    def _run_options(self) -> dict[str, int]:
        distributed = torch.distributed
        if not (distributed.is_available() and distributed.is_initialized()):
            return {}
        return {"rank": distributed.get_rank(), "world_size": distributed.get_world_size()}

    def _start(self) -> None:
        super()._start()
        self._look_ns = NEVER
        for optimizer in list(self._optimizers.values())[:1]:
            self._hook = optimizer.register_step_post_hook(self.next_step)

    def _finish(self) -> None:
        self._count_no_steps()
        super()._finish()

    def _count_no_steps(self) -> None:
        """From now on the optimizer's steps are none of ours: `steps` counts, or the run is over."""
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    def _prepare(self) -> None:
        path = self._checkpoint_to_take_up()
        if path:
            place = _torch_checkpoint.load_place(path)
            randoms = _torch_checkpoint.restore(path, self._parts)
            self._place = Place(place, randoms)
            _torch_checkpoint.set_random_state(randoms["now"])
            self._next_step = place["step"] + 1
            self._has_taken_up(path)
            self.run.note(f"goes on from {path}")
        else:
            self._place = Place()
            self._next_step = max(self.run.step, 0) + 1
        self.run._publish(self._next_step - 1, self._place.epoch)
        self._look_step = 0

    def _abilities(self) -> dict[str, bool]:
        is_known = self._skip_validation is not None
        return {"skip_validation": is_known, "by_default": bool(self._skip_validation)}

    def _own_parameters(self) -> list[Param]:
        return _torch_rates.parameters(self._optimizers, self._schedulers.values())

    def _verbs(self) -> dict[str, Any]:
        can: dict[str, Any] = {
            "checkpoint": self._checkpoint,
            "evaluate": self._evaluate,
            "extend": self._extend,
        }
        if self._evaluation is None:
            can["evaluate"] = "the program gave kajitori.torch.Run no function evaluate"
        if self._checkpoint_dir is None:
            can["checkpoint"] = "the program gave kajitori.torch.Run no checkpoint_dir"
        elif not self._models or not self._optimizers:
            can["checkpoint"] = "the program gave kajitori.torch.Run no model and optimizer to save"
        return can

    def _look(self, step: int, *_: Any) -> bool | None:
        """What StepGate calls when there is something to do. A loop that looks at should_stop carries it
        out there, where the step's schedulers have done their part, too."""
        if self._hook is not None and self._is_asked:
            self._is_asked = False
            return None
        return self._act(step) or None

    def _act(self, step: int) -> bool:
        """A safe point: the step begins. Where nothing says what an epoch is, it ends one, too."""
        self.run.begin_step(step)
        epoch = self.run.epoch
        if (
            self._hook is not None
            and self._place.is_without_epochs
            and self.run._due_epoch <= epoch
        ):
            self.run.end_epoch(epoch)
        self._look_step = 0 if self._is_over else self.run._due
        return self._is_over

    def _checkpoint(self) -> dict[str, Any]:
        """checkpoint: saves model, optimizer, schedules, random numbers, and the place in the training"""
        for optimizer in self._optimizers.values():
            self._check_schedulers(optimizer)
        with self._in_phase("checkpoint"):
            step = self._next_step - 1
            place, randoms = self._place.state(step), self._place.random_states(step)
            path = _torch_checkpoint.save(self._checkpoint_dir, self._parts, place, randoms)
        return {"path": path}

    def _check_schedulers(self, optimizer: Any) -> None:
        known = [leaf for leaf, _ in _torch_rates.leaves(self._schedulers.values())]
        for leaf, _ in _torch_rates.leaves(_torch_rates.schedulers_of(optimizer)):
            if not any(leaf is one for one in known):
                raise UnsupportedError(
                    f"the optimizer has a schedule ({type(leaf).__name__}) that the program did not "
                    "give to kajitori.torch.Run(scheduler=...), so a checkpoint would lack it"
                )

    def _evaluate(self) -> Any:
        """evaluate: the metrics of the program's own function"""
        modes = [(m, m.training) for model in self._models.values() for m in model.modules()]
        state = _torch_checkpoint.random_state()
        try:
            for model in self._models.values():
                model.train(False)
            with self._in_phase("evaluation"), torch.no_grad():
                return self._evaluation(self)
        finally:
            for module, was in modes:
                module.training = was
            _torch_checkpoint.set_random_state(state)

    def _extend(self, epochs: int = 0, steps: int = 0) -> dict[str, Any]:
        """extend: more epochs, of which schedules that end with the training are told"""
        if steps:
            raise UnsupportedError("a loop over epochs(n) has no number of steps; extend epochs=N")
        total = self._place.total_epochs
        if not total:
            raise UnsupportedError("the program's loop is not one over run.epochs(n)")
        schedulers = []
        for optimizer in self._optimizers.values():
            schedulers += _torch_rates.schedulers_of(optimizer, self._schedulers.values())
        told = _torch_rates.stretch(schedulers, total, total + epochs)
        self._place.extend(epochs)
        return {"total_epochs": total + epochs} | ({"schedules": told} if told else {})


def _named(given: Any) -> dict[str, Any]:
    """One has the name "", those of a list their numbers."""
    if given is None:
        return {}
    if isinstance(given, Mapping):
        return {str(name): one for name, one in given.items()}
    if isinstance(given, (list, tuple)):
        return {str(k) if len(given) > 1 else "": one for k, one in enumerate(given)}
    return {"": given}


def _bare(optimizer: Any) -> Any:
    """The one within what libraries wrap around it (`accelerate`)."""
    while isinstance(inner := getattr(optimizer, "optimizer", None), torch.optim.Optimizer):
        optimizer = inner
    return optimizer


def _parts(kind: str, named: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{kind}.{name}" if name else kind: one for name, one in named.items()}


def _more_parts(state: Any, taken: Mapping[str, Any]) -> Mapping[str, Any]:
    """Each is a file of its own in a checkpoint."""
    if not isinstance(state or {}, Mapping):
        raise ArgumentError(f'state: {type(state).__name__} is no dict, as in {{"ema": ema}}')
    for name in state or {}:
        if name in taken or f"{name}.pt" == _torch_checkpoint.RANDOM:
            raise ArgumentError(f"state: the name {name!r} is taken; give it another one")
        if not isinstance(name, str) or not name or os.path.basename(name) != name:
            raise ArgumentError(f"state: {name!r} cannot name a file")
    return state or {}
