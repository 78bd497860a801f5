# SPDX-License-Identifier: Apache-2.0
"""Steering of `keras.Model.fit`, of Keras 3 and of tf.keras 2.15: `SteeringCallback`.

::

    from kajitori.keras import SteeringCallback

    model.fit(x, y, epochs=100, callbacks=[SteeringCallback(fifo="ctl")])

then, from any shell, ``kajitori status``, ``kajitori set lr=1e-4``, ``kajitori pause``,
``kajitori checkpoint``, ``kajitori stop --at epoch``, or ``echo stop > ctl``. docs/frameworks/keras.md
says when each verb acts.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterable, Mapping
from typing import Any

from kajitori import _keras_checkpoint
from kajitori._errors import UnsupportedError
from kajitori._keras_callback import Callback
from kajitori._run import Run
from kajitori._steering import NEVER, Command, Steering
from kajitori._values import Param

__all__ = ["SteeringCallback"]

if not any(importlib.util.find_spec(package) for package in ("keras", "tf_keras")):
    raise ImportError(
        "kajitori.keras needs Keras and a backend for it: pip install keras tensorflow"
    )

_REFUSED = {
    "checkpoint": "the program gave SteeringCallback no checkpoint_dir",
    "evaluate": "the program gave SteeringCallback no evaluation_data",
    "extend": "fit's number of epochs is fixed when it begins; checkpoint, stop, and begin a fit with "
    "more of them",
}

_taken_up: set[str] = set()  # checkpoints that a fit of this process went on from


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
    ) -> None:
        super().__init__(fifo, run, commands, parameters, name, checkpoint_dir)
        self._skip_validation = skip_validation
        self._evaluation_data = evaluation_data
        self._epoch = -1
        self._has_trained = False  # all batches of the epoch have run
        self._has_gone_on = False  # this fit begins with a checkpoint's epoch
        self._first = 0  # number of the epoch's first step
        self._last = NEVER  # the step that begins when the epoch's last batch has run
        self._steps: int | None = None  # of an epoch, None while nobody knows
        self._done = 0  # the optimizer's count when the first epoch began
        self._offset = 0  # what to add to it
        self._is_fresh = True  # no epoch of this fit has begun

    @property
    def epoch(self) -> int:
        """The epoch that runs, from 0; -1 before the first."""
        return self._epoch

    @property
    def initial_epoch(self) -> int:
        """The epoch that `fit` begins with: 0 for a fresh start. With `checkpoint_dir` `fit` does so by
        itself."""
        path = self.resumed_from
        return _keras_checkpoint.load_state(path)["epoch"] if path and self._checkpoint_dir else 0

    def on_train_begin(self, logs: Any = None) -> None:
        self._start()
        self._obey(self.run.should_stop)

    def on_train_end(self, logs: Any = None) -> None:
        self._finish()

    def _finish(self) -> None:
        self._forget_initial_epoch()
        super()._finish()

    def _describe(self) -> str:
        return self._backend.describe()

    def _run_options(self) -> dict[str, Any]:
        epochs = self.params.get("epochs") or 0
        return {"total_steps": epochs * (self.params.get("steps") or 0), "total_epochs": epochs}

    def _prepare(self) -> None:
        self._steps = self.params.get("steps")  # params are overwritten by an evaluate in between
        self._is_fresh = True
        self._go_on()
        done = self._backend.iterations(self.model)
        self._offset = max(self.run.step - done, 0)
        self._first = self._offset + done

    def _go_on(self) -> None:
        """Takes up the checkpoint that the process was started again for, once."""
        path = self.resumed_from
        if not path or not self._checkpoint_dir or path in _taken_up:
            return
        epoch = self.initial_epoch
        _keras_checkpoint.restore(path, self.model)
        self._backend.begin_with_epoch(self.model, epoch)
        self._has_gone_on = True
        _taken_up.add(path)
        self.run.note(f"goes on from {path}")

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
            )
        return {"path": path}

    def _evaluate(self) -> dict[str, Any]:
        """evaluate: the metrics of the program's evaluation_data, at the end of an epoch"""
        with self._in_phase("evaluation"):
            return self._backend.evaluate(self.model, self._evaluation_data)

    def _own_parameters(self) -> list[Param]:
        """`lr`, unless there is no optimizer (a model with its own loop)."""
        if not hasattr(getattr(self.model, "optimizer", None), "learning_rate"):
            return []
        return [
            Param(
                name="lr",
                get=lambda: self._backend.get_learning_rate(self.model),
                set=self._set_learning_rate,
                min=0,
                help="learning rate of the optimizer",
            )
        ]

    def _set_learning_rate(self, value: float) -> None:
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
        backend.set_learning_rate(model, value)

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
        self._is_fresh = False
        self._has_trained = False
        self._gate_offset = self._first + 1
        self._last = self._first + self._steps if self._steps else NEVER
        self._look_step = 0
        self._forget_initial_epoch()
        self.run._publish(self._first, epoch)

    # The next step begins in on_train_batch_end, not in on_train_batch_begin: Keras looks at
    # stop_training after that call, and a stop applied later would let one more step run. Nearly
    # always there is nothing to do: StepGate.on_train_batch_end returns (bench/keras_overhead.py).

    def _look(self, step: int, logs: Any) -> None:
        """What StepGate calls when there is something to do: a safe point, or metrics."""
        step = min(step, self._last)  # steps_per_execution counts past the end
        if self.run.begin_step(step):
            self.model.stop_training = True
        if self._is_report_due():
            self._report(logs)
        self._look_step = min(self.run._due, self._last + 1)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._has_trained = True
        self._report(logs)
        self._obey(self.run.end_epoch(epoch))

    def on_test_begin(self, logs: Any = None) -> None:
        if self._training:
            self._has_trained = True
            self._set_phase("validation")

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        if self._training and self.run.poll():
            self.model.stop_training = True
            if self._skips_validation():
                self._backend.skip_validation(self.model)

    def on_test_end(self, logs: Any = None) -> None:
        if self._training:
            self._set_phase("train")

    def _skips_validation(self) -> bool:
        wanted = self.run.stop_validate
        return self._skip_validation if wanted is None else not wanted

    def _obey(self, stop: bool) -> None:
        if stop:
            self.model.stop_training = True
