# SPDX-License-Identifier: Apache-2.0
"""Steering of `keras.Model.fit`, of Keras 3 and of tf.keras 2.15: `SteeringCallback`; and `PruningCallback`
for trials of a study.

::

    from kajitori.keras import SteeringCallback

    model.fit(x, y, epochs=100, callbacks=[SteeringCallback(fifo="ctl")])

then, from any shell, ``kajitori status``, ``kajitori set lr=1e-4``, ``kajitori pause``,
``kajitori checkpoint``, ``kajitori stop --at epoch``, or ``echo stop > ctl``. docs/frameworks/keras.md
says when each verb acts.
"""

from __future__ import annotations

import functools
import importlib.util
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kajitori import _keras_checkpoint
from kajitori._errors import ArgumentError, FailedError, OutOfRangeError, UnsupportedError
from kajitori._keras_callback import Callback, after_all_others, callbacks_beside
from kajitori._keras_pruning import PruningCallback
from kajitori._keras_remarks import remarks
from kajitori._run import Run
from kajitori._steering import NEVER, Command, Steering
from kajitori._values import Param

__all__ = ["PruningCallback", "SteeringCallback"]

if not any(importlib.util.find_spec(package) for package in ("keras", "tf_keras")):
    raise ImportError(
        "kajitori.keras needs Keras and a backend for it: pip install keras tensorflow"
    )

_REFUSED = {
    "checkpoint": "the program gave SteeringCallback no checkpoint_dir",
    "evaluate": "the program gave SteeringCallback no evaluation_data",
    "extend": "fit's number of epochs is fixed when it begins; to be able to, give SteeringCallback "
    "epochs=N, and fit more of them",
}


class SteeringCallback(Steering, Callback):
    """Makes `Model.fit` steerable from outside: stop, pause, set and get, checkpoint, own verbs, ….

    All arguments are optional:

    fifo: path of a FIFO for commands (``echo stop > PATH``); one made by ``mkfifo`` is used as it is,
        a missing one is made and removed at the end of `fit`.
    run: a `kajitori.Run` of yours, for a program that does more than one `fit`. The callback does not
        close it, and `fifo` and `name` are yours to give to it. Without it, each `fit` is a run of its
        own, from its beginning to its end.
    commands: own verbs, ``{"save": lambda cb: cb.model.save("now.keras")}``. A function gets this
        callback (with `model`, `run`, `step`, `epoch`) and then its arguments, which are declared by
        a pair: ``{"freeze": (freeze_layers, {"count": int})}`` is ``kajitori send 'freeze count=3'``.
        Types are float, int, bool, str, or a `kajitori.Arg`. What it returns is the sender's answer.
    parameters: what `get` and `set` see beside `lr`: ``{"dropout": (get, set, 0, 1)}``, that is getter,
        setter (None: cannot be set) and, if wanted, smallest and largest value; the type is that of
        the getter's first answer. Or a list of `kajitori.Param`.
    name: what `kajitori ps` shows [the script's name].
    skip_validation: after a stop that does not say ``validate=yes``, no more than one batch of
        validation runs. The `val_` metrics of that epoch are then those of fewer batches, and callbacks
        that look at them see these.
    checkpoint_dir: folder for the verb `checkpoint`, and so for ``stop save=yes`` and ``pause
        level=leave``. A `fit` that ``kajitori resume`` has started again goes on from the checkpoint
        by itself. Each `fit` of a program needs a folder of its own. ``commands={"checkpoint": …}``
        takes its place.
    evaluation_data: (x, y), (x, y, sample_weight), or a dataset, for the verb `evaluate`.
    epochs: how many epochs there will be, which the verb `extend` can make more, up to those that were
        given to `fit`: ``fit(epochs=1000, callbacks=[SteeringCallback(epochs=100)])``.

    `lr`, the optimizer's learning rate, is registered unless `parameters` has one of that name.

    A stop makes `fit` return by Keras' own way (`model.stop_training`): the code after `fit` runs and
    its history is whole. An exception in an own verb or setter is the sender's reply and never ends
    the training. A channel that cannot be opened is one `kajitori.ChannelWarning`. ``pause
    level=leave`` and ``abort`` leave `fit` by `kajitori.Left` and `kajitori.Aborted`.
    """

    def __init__(
        self,
        fifo: str | os.PathLike[str] | None = None,
        run: Run | None = None,
        commands: Mapping[str, Command] | None = None,
        parameters: Mapping[str, tuple[Any, ...]] | Iterable[Param] | None = None,
        name: str | None = None,
        skip_validation: bool = False,
        checkpoint_dir: str | os.PathLike[str] | None = None,
        evaluation_data: Any = None,
        epochs: int | None = None,
    ) -> None:
        super().__init__(fifo, run, commands, parameters, name, checkpoint_dir)
        self._skip_validation = skip_validation
        self._evaluation_data = evaluation_data
        if epochs is not None and (not isinstance(epochs, int) or epochs < 1):
            raise ArgumentError(f"epochs: {epochs!r} is no number of epochs, 1 or more")
        self._epochs = epochs
        self._most_epochs = 0  # what fit was given
        self._epoch = -1
        self._has_trained = False  # all batches of the epoch have run
        self._has_gone_on = False  # this fit begins with a checkpoint's epoch
        self._first = 0  # number of the epoch's first step
        self._last = NEVER  # the step that begins when the epoch's last batch has run
        self._steps: int | None = None  # of an epoch, None while nobody knows
        self._done = 0  # the optimizer's count when the first epoch began
        self._offset = 0  # what to add to it
        self._is_fresh = True  # no epoch of this fit has begun
        self._skip = 0  # batches of this fit's first epoch that its weights have seen already
        self._partial_epoch: int | None = None
        self._is_obeyed = False  # a stop was passed on to Keras
        self._remarks: dict[str, str | None] = {}  # by verb
        self._held: dict[str, float] = {}  # learning rates that were set in place of a schedule
        self._finish_backups: Callable[[bool], None] | None = None

    @property
    def epoch(self) -> int:
        """The epoch that runs, from 0; -1 before the first."""
        return self._epoch

    @property
    def partial_epoch(self) -> int | None:
        """How many batches of the last epoch of a `fit` had run when a stop cut it short; None when none
        did."""
        return self._partial_epoch

    @property
    def initial_epoch(self) -> int:
        """The epoch that `fit` begins with: 0 for a fresh start. With `checkpoint_dir` `fit` does so by
        itself."""
        path = self.resumed_from
        return _keras_checkpoint.load_state(path)["epoch"] if path and self._checkpoint_dir else 0

    def on_train_begin(self, logs: Any = None) -> None:
        self._start()
        if self._has_gone_on and any(map(self._backend.is_backup, callbacks_beside(self))):
            after_all_others(self, self._take_up, self.resumed_from)  # not what a backup has loaded
        if self.run.should_stop:  # one of the user's own, by a fit before
            self.model.stop_training = True

    def on_train_end(self, logs: Any = None) -> None:
        if self._finish_backups is not None:
            after_all_others(self, self._finish_backups, True)
            self._finish_backups = None
        self._finish()

    def _finish(self) -> None:
        self._forget_initial_epoch()
        super()._finish()

    def _describe(self) -> str:
        return self._backend.describe()

    def _run_options(self) -> dict[str, Any]:
        epochs = self._total_epochs()
        return {"total_steps": epochs * (self.params.get("steps") or 0), "total_epochs": epochs}

    def _total_epochs(self) -> int:
        most = self.params.get("epochs") or 0
        return min(self._epochs or most, most)

    def _prepare(self) -> None:
        self._steps = self.params.get("steps")  # params are overwritten by an evaluate in between
        self._most_epochs = self.params.get("epochs") or 0
        self._is_fresh = True
        self._skip = 0
        self._partial_epoch = None
        self._is_obeyed = False
        self._remarks, self._held = {}, {}
        self._forget_failed()
        self._go_on()
        done = self._backend.iterations(self.model)
        self._offset = max(self.run.step - done, 0)
        self._first = self._offset + done
        self._remark()

    def _forget_failed(self) -> None:
        """What a fit before this one has not ended, since an exception ended it."""
        self._backend.end_skipping(self.model)
        if self._finish_backups is not None:
            self._finish_backups(False)
            self._finish_backups = None

    def _go_on(self) -> None:
        """Takes up the checkpoint that the process was started again for, once."""
        self._backend.watch_backup(self.model)
        path = self._checkpoint_to_take_up()
        if not path:
            return
        state = self._take_up(path)
        self._has_gone_on = True
        self._skip = state["batch"]
        self._has_taken_up(path)
        self.run.note(f"goes on from {path}")

    def _take_up(self, path: str) -> dict[str, Any]:
        """Loads the checkpoint, and has fit begin there: nowhere, if it is of the end."""
        state = _keras_checkpoint.load_state(path)
        _keras_checkpoint.restore(path, self.model)
        if self._epochs is not None:
            self._epochs = max(self._epochs, state.get("epochs", 0))
        is_over = state["epoch"] >= self._total_epochs()
        self._backend.begin_with_epoch(self.model, self._most_epochs if is_over else state["epoch"])
        for name, optimizer in self._backend.optimizers(self.model).items():
            if name in state.get("learning_rates", {}):
                self._hold(name, optimizer, state["learning_rates"][name])
        return state

    def _remark(self, count: int = 0) -> None:
        """What senders are told beside the answer, where `count` batches of an epoch have run, unless 0."""
        said = remarks(self._backend, self.model, callbacks_beside(self))
        if count and count != self._steps:
            said["stop"].insert(0, self._partly(count))
        for verb, texts in said.items():
            remark = "; ".join(texts) or None
            if self._remarks.get(verb) != remark:
                self._remarks[verb] = remark
                self.run.remark(verb, remark)

    def _partly(self, count: int) -> str:
        of = f"{count} of {self._steps}" if self._steps else f"{count}"
        return f"epoch {self._epoch} ends after {of} batches"

    def _forget_initial_epoch(self) -> None:
        if self._has_gone_on:
            self._backend.begin_with_epoch(self.model, None)
            self._has_gone_on = False

    def _abilities(self) -> dict[str, bool]:
        return {"skip_validation": True, "by_default": self._skip_validation}

    def _verbs(self) -> dict[str, Any]:
        can = dict(_REFUSED)
        if self._checkpoint_dir is not None:
            can["checkpoint"] = self._checkpoint
        if self._evaluation_data is not None:
            can["evaluate"] = self._evaluate
        if self._epochs is not None:
            can["extend"] = self._extend
        return can

    def _guard(self) -> Any:
        return self._backend.guards_trainable(self.model)

    def _checkpoint(self) -> dict[str, Any]:
        """checkpoint: saves weights, optimizer, and the place in the training"""
        with self._in_phase("checkpoint"):
            count = self.run.step - self._first
            is_whole = self._has_trained or count == self._steps
            path = _keras_checkpoint.save(
                self._checkpoint_dir,
                self.model,
                step=self.run.step,
                epoch=self._epoch + is_whole,
                batch=0 if is_whole else count,
                more=self._changed(),
            )
        return {"path": path}

    def _changed(self) -> dict[str, Any]:
        """What a fit that goes on from a checkpoint could not know."""
        held = {"learning_rates": self._held} if self._held else {}
        return held | ({"epochs": self._epochs} if self._epochs is not None else {})

    def _extend(self, epochs: int | None = None, steps: int | None = None) -> dict[str, Any]:
        """extend epochs=N: N epochs more"""
        if epochs is None:
            raise UnsupportedError("in epochs only: extend epochs=N")
        total = self._epochs + epochs
        if total > self._most_epochs:
            raise OutOfRangeError(
                f"fit was given epochs={self._most_epochs}, and cannot go on to {total}"
            )
        self._epochs = total
        return {"total_epochs": total}

    def _evaluate(self) -> dict[str, Any]:
        """evaluate: the metrics of the program's evaluation_data, at the end of an epoch"""
        with self._in_phase("evaluation"):
            return self._backend.evaluate(self.model, self._evaluation_data)

    def _own_parameters(self) -> list[Param]:
        """`lr`; with several optimizers one for each, `lr.NAME`. None for a model with its own loop."""
        return [
            Param(
                name=f"lr.{name}" if name else "lr",
                get=functools.partial(self._get_learning_rate, optimizer),
                set=functools.partial(self._set_learning_rate, name, optimizer),
                min=0,
                help=f"learning rate of the optimizer {name}".rstrip(),
            )
            for name, optimizer in self._backend.optimizers(self.model).items()
        ]

    def _get_learning_rate(self, optimizer: Any) -> float:
        return self._backend.get_learning_rate(self.model, optimizer)

    def _set_learning_rate(self, name: str, optimizer: Any, value: float) -> None:
        backend, model = self._backend, self.model
        if (
            self.run.step > self._offset + self._done
            and backend.iterations(model) == self._done
            and not backend.can_skip_batches(model)
        ):
            raise UnsupportedError(
                "this training does not use model.optimizer; give SteeringCallback "
                'parameters={"lr": (get, set)} for the one that it uses'
            )
        self._hold(name, optimizer, value)

    def _hold(self, name: str, optimizer: Any, value: float) -> None:
        follows = self._backend.schedule_of(optimizer) is not None
        self._backend.set_learning_rate(self.model, optimizer, value)
        if follows or name in self._held:
            self._held[name] = value

    def _can_count(self) -> bool:
        """Whether our own count of steps is exact. It is not where Keras runs several at once and the
        last of them may be cut; the optimizer's, which we ask then, is one too high after each epoch
        of data that end by surprise."""
        return self.model.steps_per_execution == 1 or bool(self._steps)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._epoch = epoch
        if self._is_fresh or not self._can_count():
            done = self._backend.iterations(self.model)
            self._done = done if self._is_fresh else self._done
            self._first = self._offset + done
        else:
            self._first = self.run.step
        skipped = self._skip_seen(epoch) if self._is_fresh else 0
        self._first -= skipped
        self._is_fresh = False
        self._has_trained = False
        self._gate_offset = self._first + 1
        self._last = self._first + self._steps if self._steps else NEVER
        self._look_step = 0
        self._forget_initial_epoch()
        self.run._publish(self._first + skipped, epoch)

    def _skip_seen(self, epoch: int) -> int:
        """Passes over the batches that this epoch's weights have seen before the training was left;
        how many."""
        if not self._has_gone_on:
            begun, self._skip = self._backend.place_of_backup(callbacks_beside(self))
            self._skip = self._skip if begun == epoch else 0
        if self._steps and self._skip >= self._steps:
            raise FailedError(
                f"cannot go on behind batch {self._skip} of an epoch: this one has {self._steps}"
            )
        if self._skip:
            self._backend.skip_batches(self.model, self._skip)
            self.run._close_gate()  # the steps until then are no news
            self.run.note(f"epoch {epoch} goes on behind its first {self._skip} batches")
        return self._skip

    # The next step begins in on_train_batch_end, not in on_train_batch_begin: Keras looks at
    # stop_training after that call, and a stop applied later would let one more step run. Nearly
    # always there is nothing to do: StepGate.on_train_batch_end returns (bench/keras_overhead.py).

    def _look(self, step: int, logs: Any) -> None:
        """What StepGate calls when there is something to do: a safe point, or metrics."""
        step = min(step, self._last)  # steps_per_execution counts past the end
        count = step - self._first
        if count < self._skip:
            return
        if self._skip:
            self._skip = 0
            self.run._open_gate(self)
        may_act = bool(self.run._pending) or step >= self.run._due  # not the memory of the run
        if may_act:
            self._remark(count)
        self._obey(self.run.begin_step(step), count)
        if may_act:
            self._remark()
        if self._is_report_due():
            self._report(logs)
        self._look_step = min(self.run._due, self._last + 1)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._has_trained = True
        self._report(logs)
        self._obey(self.run.end_epoch(epoch))
        if self._epochs is not None and epoch + 1 >= self._epochs:
            self.model.stop_training = True

    def on_test_begin(self, logs: Any = None) -> None:
        if self._training:
            self._has_trained = True
            self._set_phase("validation")

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        if self._training and self.run.poll():
            self._obey(True)
            if self._skips_validation():
                self._backend.skip_validation(self.model)

    def on_test_end(self, logs: Any = None) -> None:
        if self._training:
            self._set_phase("train")

    def _obey(self, stop: bool, count: int = 0) -> None:
        """Has `fit` return; at the first call, where `count` batches of an epoch have run, unless 0."""
        if not stop:
            return
        self.model.stop_training = True
        if self._is_obeyed:
            return
        self._is_obeyed = True
        if count and count != self._steps:
            self._partial_epoch = count
            self.run.note(self._partly(count))
        if self.run.ending == "stop" and not self._is_complete():
            batches = self._partial_epoch or 0
            begins = self._epoch if batches else self._epoch + 1
            beside = callbacks_beside(self)
            self._finish_backups = self._backend.keep_backups(beside, begins, batches)

    def _is_complete(self) -> bool:
        is_last = self._epoch + 1 >= min(self._epochs or self._most_epochs, self._most_epochs)
        return is_last and self._partial_epoch is None

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_finish_backups": None}
