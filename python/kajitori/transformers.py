# SPDX-License-Identifier: Apache-2.0
"""Steering and pruning of `transformers.Trainer`: `SteeringCallback` and `PruningCallback`.

::

    from kajitori.transformers import SteeringCallback

    trainer = Trainer(model, args, train_dataset=data, callbacks=[SteeringCallback(fifo="ctl")])
    trainer.train()

then, from any shell, ``kajitori status``, ``kajitori set lr=1e-4``, ``kajitori pause``,
``kajitori checkpoint``, ``kajitori stop --at epoch``, or ``echo stop > ctl``.
docs/frameworks/transformers.md says when each verb acts.
"""

from __future__ import annotations

import functools
import os
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any

try:
    import transformers
    from transformers import Trainer, TrainerCallback
    from transformers.trainer_utils import has_length
except ImportError as error:
    raise ImportError(
        f"kajitori.transformers needs transformers, torch and accelerate "
        f"(pip install transformers torch accelerate): {error}"
    ) from error

from kajitori import _torch_rates, _trainer
from kajitori._errors import ChannelWarning, StateError, UnsupportedError
from kajitori._pruning import Pruning, Trial
from kajitori._run import Run
from kajitori._steering import NEVER, Command, Steering
from kajitori._step_gate import StepGate
from kajitori._values import Param

__all__ = ["PruningCallback", "SteeringCallback"]

_NO_TRAINER = "the callback's trainer is no transformers.Trainer"
_NO_DATA = "the Trainer has no eval_dataset"
_NO_TRAINING: dict[str, Any] = {
    "model": None,
    "args": None,
    "state": None,
    "control": None,
    "optimizer": None,
    "lr_scheduler": None,
    "_loader": None,
    "_trainer": None,  # a weak reference
    "_skipping": None,  # while the rest of an evaluation is passed over
    "_is_predicting": False,
    "_is_answering": False,  # an evaluation that a sender asked for is going on
    "_later": None,  # what is done once the Trainer has logged, evaluated and saved
    "_can_go_on": False,  # the Trainer's own end of the training can be taken back
    "_evaluated": -1,  # the step of the newest evaluation
    "_saved": -1,  # the step of the newest checkpoint that a sender asked for
    "_epoch": -1,
    "_planned_epochs": 0,  # of the Trainer's own loop
    "_is_longer": False,
}
_BEST = "at the end of train the best model is loaded (load_best_model_at_end)"
_SHORT_AGAIN = "what leaves and is resumed is as long as TrainingArguments say, without extend"
_NOT_LONGER = "this version of transformers has no way to go on when the last of its epochs is over"


class SteeringCallback(Steering, TrainerCallback):
    """Makes `Trainer.train` steerable from outside: stop, pause, set and get, checkpoint, own verbs, ….

    All arguments are optional:

    fifo: path of a FIFO for commands (``echo stop > PATH``); one made by ``mkfifo`` is used as it is,
        a missing one is made and removed at the end of `train`.
    run: a `kajitori.Run` of yours, for a program that does more than one `train`. The callback does
        not close it, and `fifo` and `name` are yours to give to it. Without it, each `train` is a run
        of its own, from its beginning to its end.
    commands: own verbs, ``{"save": lambda cb: cb.trainer.save_model("now")}``. A function gets this
        callback (with `trainer`, `model`, `args`, `state`, `control`, `run`, `step`, `epoch`) and then
        its arguments, which are declared by a pair: ``{"freeze": (freeze_layers, {"count": int})}`` is
        ``kajitori send 'freeze count=3'``. What it returns is the sender's answer.
    parameters: what `get` and `set` see beside `lr`: ``{"dropout": (get, set, 0, 1)}``, that is getter,
        setter (None: cannot be set) and, if wanted, smallest and largest value. Or a list of
        `kajitori.Param`.
    name: what `kajitori ps` shows [the script's name].
    skip_validation: after a stop that does not say ``validate=yes``, no evaluation begins, and one that
        runs ends with its batch; its metrics are then those of fewer batches.
    checkpoint_dir: folder for the verb `checkpoint`, and so for ``stop save=yes`` and ``pause
        level=leave`` [the Trainer's `output_dir`, where `save_total_limit` counts them too].

    A stop makes `train` return by the Trainer's own way (`control.should_training_stop`): the code
    after `train` runs and `state.log_history` is whole. An exception in an own verb or setter is the
    sender's reply and never ends the training. A channel that cannot be opened is one
    `kajitori.ChannelWarning`. ``pause level=leave`` and ``abort`` leave `train` by `kajitori.Left` and
    `kajitori.Aborted`.
    """

    _at_epoch_end = frozenset()

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
        self._skip_validation = skip_validation
        self._forget()

    def _forget(self) -> None:
        """No training is known."""
        vars(self).update(_NO_TRAINING, _wrapped=[])

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | _NO_TRAINING | {"_wrapped": []}

    @property
    def trainer(self) -> Trainer | None:
        """The Trainer whose callback this is, from the beginning of `train`."""
        return None if self._trainer is None else self._trainer()

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        trainer = _trainer.find()
        self._check_not_nested(trainer)
        self._undo()
        self._forget()
        self.args, self.state, self.control = args, state, control
        self.model = kwargs.get("model")
        self.optimizer, self.lr_scheduler = kwargs.get("optimizer"), kwargs.get("lr_scheduler")
        self._loader = kwargs.get("train_dataloader")
        if trainer is not None:
            self._trainer = weakref.ref(trainer)
        self._start()
        self._look_ns = NEVER  # metrics come by on_log
        self._wrap(trainer)
        self._obey(self.run.should_stop)

    def _check_not_nested(self, trainer: Any) -> None:
        old = self.trainer
        if self._training and old is not trainer and any(old is one for one in _trainer.callers()):
            raise StateError("this SteeringCallback steers a train that goes on; give each its own")

    def _wrap(self, trainer: Any) -> None:
        for name, function in (
            ("_run_epoch", self._run_epoch),
            ("_finalize_training", self._finalize),
            ("predict", self._predict),
        ):
            if hasattr(trainer, name):
                self._wrapped.append(_trainer.Wrapped(trainer, name, function))
        handler = getattr(trainer, "callback_handler", None)
        if handler is not None:
            self._wrapped.append(_trainer.Wrapped(handler, "on_epoch_begin", self._or_end))

    def _or_end(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        """Callbacks are not told of an exception: it ends the run."""
        try:
            return original(*args, **kwargs)
        except BaseException:
            self._finish()
            raise

    def _undo(self) -> None:
        self._end_skipping()
        if self._later is not None:
            self._later.undo()
        while self._wrapped:
            self._wrapped.pop().undo()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._finish()

    def _finish(self) -> None:
        self._undo()
        super()._finish()

    def _describe(self) -> str:
        return f"transformers {transformers.__version__}"

    def _run_options(self) -> dict[str, Any]:
        epochs = self.state.num_train_epochs
        return {
            "total_steps": self.state.max_steps,
            "total_epochs": epochs if has_length(self._loader) else 0,
            "rank": self.args.process_index,
            "world_size": self.args.world_size,
        }

    def _prepare(self) -> None:
        step = self.state.global_step
        self._epoch = int(self.state.epoch or 0) - 1
        self._planned_epochs = self.state.num_train_epochs
        self._next_step = step + 1
        self._look_step = 0
        self.run._publish(step, self._epoch)
        if step:
            self.run.note(f"goes on from step {step}")
        best = _BEST if self.args.load_best_model_at_end else None
        for verb, remark in (("stop", best), ("prune", best), ("pause", None)):
            self.run.remark(verb, remark)

    def _abilities(self) -> dict[str, bool]:
        can = self._evaluation_data() is not None and not self.args.batch_eval_metrics
        return {"skip_validation": can, "by_default": can and self._skip_validation}

    def _evaluation_data(self) -> Any:
        return getattr(self.trainer, "eval_dataset", None)

    def _verbs(self) -> dict[str, Any]:
        if self.trainer is None:
            return dict.fromkeys(("checkpoint", "evaluate", "extend"), _NO_TRAINER)
        return {
            "checkpoint": self._checkpoint,
            "evaluate": self._evaluate if self._evaluation_data() is not None else _NO_DATA,
            "extend": self._extend if hasattr(self.trainer, "_run_epoch") else _NOT_LONGER,
        }

    def _checkpoint(self) -> dict[str, Any]:
        """checkpoint: saves model, optimizer, schedule, random numbers, and the place in the training"""
        with self._in_phase("checkpoint"):
            path = _trainer.save(self.trainer, self._checkpoint_dir)
        self._saved = self.state.global_step
        return {"path": path}

    def _evaluate(self) -> dict[str, Any]:
        """evaluate: the metrics of the Trainer's eval_dataset"""
        self._is_answering = True
        try:
            with self._in_phase("evaluation"):
                return _trainer.evaluate(self.trainer)
        finally:
            self._is_answering = False

    def _extend(self, epochs: int | None = None, steps: int | None = None) -> dict[str, Any]:
        """extend: trains longer, and tells the schedule of the learning rate"""
        state, control = self.state, self.control
        is_last = state.global_step == state.max_steps and self._can_go_on
        if control.should_training_stop and not is_last:
            raise UnsupportedError("the training is ending already")
        per_epoch = self._steps_per_epoch()
        if steps is None:
            if per_epoch is None:
                raise UnsupportedError("the data have no length: extend steps=N")
            steps = epochs * per_epoch
        told = _trainer.lengthen(self.lr_scheduler, steps)
        state.max_steps += steps
        total = {"total_steps": state.max_steps}
        if per_epoch is not None:
            state.num_train_epochs = total["total_epochs"] = -(-state.max_steps // per_epoch)
        control.should_training_stop = False
        self._is_longer = True
        self.run.remark("pause", _SHORT_AGAIN)
        return total | {"schedule": "told" if told else "does not depend on the length"}

    def _steps_per_epoch(self) -> int | None:
        if not has_length(self._loader):
            return None
        return max(-(-len(self._loader) // self.args.gradient_accumulation_steps), 1)

    def _run_epoch(self, original: Any, epoch: int, **rest: Any) -> None:
        """The Trainer's number of epochs is fixed when it begins: those that `extend` has added come
        within the last of them. What its callbacks are not told is an exception: it ends the run."""
        trainer = self.trainer
        try:
            original(epoch=epoch, **rest)
            if epoch + 1 < self._planned_epochs:
                return
            while self._is_longer and not trainer.control.should_training_stop:
                epoch += 1
                trainer.control = trainer.callback_handler.on_epoch_begin(
                    trainer.args, trainer.state, trainer.control
                )
                original(epoch=epoch, **rest)
        except BaseException:
            self._finish()
            raise

    def _finalize(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        """At the end of a training whose best model is kept, the Trainer with ``save_total_limit=1``
        deletes the newest checkpoint: not one that came with the stop, from which to go on."""
        keeps = {"save_total_limit": None} if self._saved == self.state.global_step else {}
        with _trainer.changed(self.args, **keeps):
            return self._or_end(original, *args, **kwargs)

    def _predict(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        """By a callback or an own verb: predictions are no validation, and stay whole."""
        before, self._is_predicting = self._is_predicting, True
        try:
            return original(*args, **kwargs)
        finally:
            self._is_predicting = before

    def _own_parameters(self) -> list[Param]:
        """`lr` for all groups of the optimizer's parameters, `lr.0`, `lr.1`, … for each."""
        schedule = self.lr_scheduler
        # the Trainer wraps the optimizer; the schedule knows the one or the other
        optimizer = getattr(schedule, "optimizer", self.optimizer)
        if not getattr(optimizer, "param_groups", None):
            return []
        return _torch_rates.parameters({"": optimizer}, [] if schedule is None else [schedule])

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._training:
            self._epoch += 1
            self.run._publish(state.global_step, self._epoch)

    # Nearly always there is nothing to do at the end of a step, and StepGate.next_step returns. If
    # there is, it waits until the Trainer has logged, evaluated and saved what is due at this step.

    on_step_end = StepGate.next_step

    def _look(self, _step: int, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """What StepGate calls when there is something to do."""
        if self._training:
            self.control = control
            self._next_step = state.global_step + 1
            self.run._publish(state.global_step, self._epoch)
            self._afterwards(self._end_step)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._training:
            self.control = control
            self._obey(self.run.should_stop)
            control.should_evaluate |= self._wants_validation()
            self._afterwards(self._end_epoch)

    def _afterwards(self, act: Callable[[], bool]) -> None:
        """`act` says whether an evaluation is to follow."""
        trainer, name = self.trainer, "_maybe_log_save_evaluate"
        if self._later is None and hasattr(trainer, name):
            self._later = _trainer.Wrapped(trainer, name, functools.partial(self._act, act))
        elif act():  # a loop of its own, that has not come there since the last time
            self.control.should_evaluate = True

    def _act(self, act: Callable[[], bool], original: Any, *args: Any, **kwargs: Any) -> None:
        later, self._later = self._later, None
        later.undo()
        original(*args, **kwargs)
        if act():
            self.control.should_evaluate = True
            original(*args, **kwargs)

    def _wants_validation(self) -> bool:
        """Whether a stop wants one that has not been."""
        return bool(self.run.stop_validate) and self._evaluated != self.state.global_step

    def _end_step(self) -> bool:
        self._can_go_on = True
        self._obey(self.run.begin_step(self.state.global_step))
        self._look_step = self.run._due
        return False

    def _end_epoch(self) -> bool:
        self._can_go_on = self.state.epoch % 1 == 0
        self._obey(self.run.end_epoch(self._epoch))
        return self._wants_validation()

    def on_substep_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Between two batches whose gradients are summed up. The Trainer would leave the step half
        done: a stop that is applied here is obeyed at its end."""
        if self._training:
            self._can_go_on = False
            self.run.poll()

    def on_prediction_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if not self._training or self._is_answering:
            return
        if self._phase != "validation":
            self._set_phase("validation")
        self._can_go_on = False
        if self.run.poll():
            control.should_training_stop = True
            if self._skips_validation() and not self._is_predicting:
                self._skip()

    def _skip(self) -> None:
        """The batches that are left are read, and nothing is predicted for them."""
        if self._skipping is None:
            self._skipping = _trainer.Wrapped(
                self.trainer, "prediction_step", lambda *args, **kwargs: (None, None, None)
            )

    def _end_skipping(self) -> None:
        if self._skipping is not None:
            self._skipping.undo()
            self._skipping = None

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._training and not self._is_answering:
            self._end_skipping()
            self._evaluated = state.global_step
            self._set_phase("train")

    def on_predict(self, args: Any, state: Any, control: Any, *rest: Any, **kwargs: Any) -> None:
        if self._training:
            self._set_phase("train")

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        if self._training:
            self._report({tag: value for tag, value in (logs or {}).items() if tag != "epoch"})

    def _skips_validation(self) -> bool:
        if self.args.batch_eval_metrics or self._evaluation_data() is None:
            return False
        return super()._skips_validation()

    def _obey(self, stop: bool) -> None:
        if stop:
            self.control.should_training_stop = True
            if self._skips_validation():
                self.control.should_evaluate = False


class PruningCallback(TrainerCallback):
    """Ends the training of a trial that is not worth going on with.

    trial: of Optuna, or anything with ``report(value, step)`` and ``should_prune()``.
    metric: its name in the metrics of an evaluation; "loss" is "eval_loss", as in `TrainingArguments`.

    Each evaluation is reported once, at its `global_step`. When the trial is to be pruned, `train`
    ends as by a stop, so that every callback gets its `on_train_end`, and then raises
    `optuna.TrialPruned` for a trial of Optuna, else `kajitori.TrialPruned`.
    """

    _counts_evaluations = True

    def __init__(self, trial: Trial, metric: str = "eval_loss") -> None:
        self.trial = trial
        self.metric = metric if metric.startswith("eval_") else f"eval_{metric}"
        self._pruning = Pruning(trial, self.metric)
        self._others: set[str] | None = set()  # names of metrics, until ours has come
        self._end: _trainer.Wrapped | None = None

    @property
    def pruned(self) -> bool:
        """True once the trial is to be pruned."""
        return self._pruning.pruned

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._undo()
        trainer = _trainer.find()
        if hasattr(trainer, "_finalize_training"):
            self._end = _trainer.Wrapped(trainer, "_finalize_training", self._finalize)
        if args.world_size > 1 and args.process_index == 0:
            _warn_of_ranks(args.world_size)

    def _undo(self) -> None:
        if self._end is not None:
            self._end.undo()
            self._end = None

    def on_evaluate(
        self, args: Any, state: Any, control: Any, metrics: Any = None, **kwargs: Any
    ) -> None:
        if args.process_index > 0:
            return
        if self.metric not in (metrics or {}):
            if self._others is not None:
                self._others.update(metrics or {})
            return
        self._others = None
        value, step = metrics[self.metric], state.global_step
        if args.world_size > 1:
            self.trial.report(float(value), step)
        elif self._pruning.look(value, step):
            control.should_training_stop = True

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._others:
            warnings.warn(
                f"no evaluation had {self.metric}; there are {', '.join(sorted(self._others))}",
                ChannelWarning,
                stacklevel=2,
            )
        if self._end is None and self.pruned:
            raise self._pruning.exception()

    def _finalize(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        """The end of `train`, in which all callbacks get their `on_train_end`."""
        result = original(*args, **kwargs)
        self._undo()
        if self.pruned:
            raise self._pruning.exception()
        return result

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_end": None}


def _warn_of_ranks(world_size: int) -> None:
    warnings.warn(
        f"this is rank 0 of {world_size}: its evaluations are reported, and nothing is pruned, which "
        "all ranks would have to do at the same step",
        ChannelWarning,
        stacklevel=3,
    )
