# SPDX-License-Identifier: Apache-2.0
"""Steering of `keras.Model.fit`: `SteeringCallback`.

::

    from kajitori.keras import SteeringCallback

    model.fit(x, y, epochs=100, callbacks=[SteeringCallback(fifo="ctl")])

then, from any shell, ``kajitori status``, ``kajitori set lr=1e-4``, ``kajitori pause``,
``kajitori checkpoint``, ``kajitori stop --at epoch``, or ``echo stop > ctl``. docs/keras.md says when
each verb acts.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

try:
    import keras
except ImportError as error:
    raise ImportError(
        f"kajitori.keras needs Keras 3 and a backend for it (pip install keras tensorflow): {error}"
    ) from error
import numpy as np

from kajitori import _keras_checkpoint
from kajitori._errors import ArgumentError, ChannelWarning, OutOfRangeError, UnsupportedError
from kajitori._run import Run
from kajitori._step_gate import StepGate
from kajitori._values import Arg, Param

__all__ = ["SteeringCallback"]

if int(keras.__version__.split(".")[0]) < 3:
    raise ImportError(f"kajitori.keras needs Keras 3, this is Keras {keras.__version__}")

Command = Callable[..., Any] | tuple[Callable[..., Any], Mapping[str, Any]]

REPORT_SECONDS = 0.5
"""Metrics of batches are reported at most this often; those of epochs always."""

NEVER = 2**62

_REFUSED = {
    "checkpoint": "the program gave SteeringCallback no checkpoint_dir",
    "evaluate": "the program gave SteeringCallback no evaluation_data",
    "extend": "fit's number of epochs is fixed when it begins; checkpoint, stop, and begin a fit with "
    "more of them",
}

_AT_EPOCH_END = {"evaluate"}  # a nested evaluation resets the running metrics of the epoch

_taken_up: set[str] = set()  # checkpoints that a fit of this process went on from


class _Keras3:
    """What differs between versions of Keras: here, Keras 3 on any of its backends."""

    @staticmethod
    def describe() -> str:
        return f"keras {keras.__version__} ({keras.backend.backend()})"

    @staticmethod
    def _sync(model: Any) -> None:
        """On JAX a loop carries its own copy of the variables and writes it back: fetch it first,
        and the loop takes what we assign."""
        if keras.backend.backend() == "jax":
            model.jax_state_sync()

    @classmethod
    def iterations(cls, model: Any) -> int:
        """Batches that the optimizer has seen, 0 when there is no optimizer to ask. `iterations` would
        be fewer of them with `gradient_accumulation_steps`."""
        optimizer = getattr(model, "optimizer", None)
        inner = getattr(optimizer, "inner_optimizer", optimizer)
        cls._sync(model)
        iterations = getattr(inner, "_iterations", getattr(inner, "iterations", None))
        return 0 if iterations is None else int(keras.ops.convert_to_numpy(iterations))

    @staticmethod
    def can_skip_batches(model: Any) -> bool:
        """Whether the optimizer leaves out batches whose gradients overflow."""
        return hasattr(model.optimizer, "inner_optimizer")

    @classmethod
    def get_learning_rate(cls, model: Any) -> float:
        cls._sync(model)
        return _shortest(keras.ops.convert_to_numpy(model.optimizer.learning_rate))

    @classmethod
    def set_learning_rate(cls, model: Any, value: float) -> None:
        optimizer = model.optimizer
        inner = getattr(optimizer, "inner_optimizer", optimizer)
        if not isinstance(inner.learning_rate, keras.Variable):
            raise UnsupportedError(
                "the learning rate follows a schedule "
                f"({type(getattr(inner, '_learning_rate', None)).__name__}); to set it, compile the "
                "model with a number"
            )
        dtype = inner.learning_rate.dtype
        with np.errstate(over="ignore"):
            if not np.isfinite(np.asarray(value).astype(dtype)):
                raise OutOfRangeError(f"{value} is more than {dtype} can hold")
        cls._sync(model)
        optimizer.learning_rate = value

    @staticmethod
    @contextlib.contextmanager
    def guards_trainable(model: Any) -> Iterator[None]:
        """On JAX a loop holds the trainable variables in a list of its own, and a layer that is frozen
        meanwhile ends `fit` with an exception: it is put back, and refused instead."""
        is_jax = keras.backend.backend() == "jax"
        layers = model._flatten_layers() if is_jax else []
        before = [(layer, layer.trainable) for layer in layers]  # the outer ones first
        yield
        if any(layer.trainable != was for layer, was in before):
            for layer, was in before:
                layer.trainable = was
            raise UnsupportedError("on JAX no layer's `trainable` can change during a fit")

    @staticmethod
    def begin_with_epoch(model: Any, epoch: int | None) -> None:
        """For a `fit` in its on_train_begin, in the way of `keras.callbacks.BackupAndRestore`; None
        takes it back, since it would count for the next `fit`, too."""
        if not hasattr(model, "_initial_epoch"):
            raise UnsupportedError("this model's fit cannot begin with a later epoch")
        model._initial_epoch = epoch

    @staticmethod
    def evaluate(model: Any, data: Any) -> dict[str, Any]:
        x, y, weights = keras.utils.unpack_x_y_sample_weight(data)
        return model.evaluate(x, y, sample_weight=weights, verbose=0, return_dict=True)


def _shortest(value: Any) -> float:
    """The shortest decimal that is the same number in the array's precision: 0.001, where a float32
    widened would show 0.0010000000474974513."""
    array = np.asarray(value)
    return float(str(array[()])) if array.dtype.kind == "f" else float(array)


class SteeringCallback(StepGate, keras.callbacks.Callback):
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
        super().__init__()
        if run is not None and (fifo is not None or name is not None):
            raise ArgumentError("fifo and name belong to kajitori.Run(…) when a run is given")
        self.run = run
        self._owns_run = run is None
        self._fifo = fifo
        self._name = name
        self._skip_validation = skip_validation
        self._checkpoint_dir = None if checkpoint_dir is None else os.path.abspath(checkpoint_dir)
        self._evaluation_data = evaluation_data
        self._backend = _Keras3
        self._commands = {key: _command(key, value) for key, value in (commands or {}).items()}
        self._parameters = _parameters(parameters or {})
        self._training = False
        self._epoch = -1
        self._has_trained = False  # all batches of the epoch have run
        self._has_gone_on = False  # this fit begins with a checkpoint's epoch
        self._phase = ""
        self._first = 0  # number of the epoch's first step
        self._last = NEVER  # the step that begins when the epoch's last batch has run
        self._steps: int | None = None  # of an epoch, None while nobody knows
        self._done = 0  # the optimizer's count when the first epoch began
        self._offset = 0  # what to add to it
        self._is_fresh = True  # no epoch of this fit has begun

    @property
    def step(self) -> int:
        """The newest step begun, counted over the whole training from 0; -1 before the first."""
        return -1 if self.run is None else self.run.step

    @property
    def epoch(self) -> int:
        """The epoch that runs, from 0; -1 before the first."""
        return self._epoch

    @property
    def pruned(self) -> bool:
        """True once a rule has pruned the training."""
        return self.run is not None and self.run.pruned

    @property
    def resumed_from(self) -> str:
        """The checkpoint that ``kajitori resume`` wants this training to go on from, "" for a fresh
        start. With `checkpoint_dir`: only one that lies there."""
        found = os.environ.get("KAJITORI_CHECKPOINT", "")
        folder = self._checkpoint_dir
        if found and folder and not _keras_checkpoint.is_inside(found, folder):
            return ""
        return found

    @property
    def initial_epoch(self) -> int:
        """The epoch that `fit` begins with: 0 for a fresh start. With `checkpoint_dir` `fit` does so by
        itself."""
        path = self.resumed_from
        return _keras_checkpoint.load_state(path)["epoch"] if path and self._checkpoint_dir else 0

    def on_train_begin(self, logs: Any = None) -> None:
        if self._owns_run:
            if self.run is not None:
                self.run.close()  # of a fit that ended by an exception
            self.run = self._open()
        assert self.run is not None
        _say_ranks(self.run)
        self._steps = self.params.get("steps")  # params are overwritten by an evaluate in between
        self._look_ns = 0
        self._is_fresh = True
        self.run._open_gate(self)
        try:
            self._go_on()
            done = self._backend.iterations(self.model)
            self._offset = max(self.run.step - done, 0)
            self._first = self._offset + done
            self._register(self.run)
            self.run.listen()
        except BaseException:
            self.on_train_end()  # Keras does not call it now
            raise
        self._training = True
        self._set_phase("train")
        self._obey(self.run.should_stop)

    def on_train_end(self, logs: Any = None) -> None:
        self._training = False
        self._forget_initial_epoch()
        if self._owns_run and self.run is not None:
            self.run.close()

    def __getstate__(self) -> dict[str, Any]:
        """A copy is for another fit: it has no part in a run that this one has opened."""
        state = vars(self) | {"_training": False}
        return state | {"run": None} if self._owns_run else state

    def _open(self) -> Run:
        epochs = self.params.get("epochs") or 0
        run = Run(
            name=self._name,
            fifo=self._fifo,
            listen=False,  # `lr` and the commands come first
            framework=self._backend.describe(),
            total_steps=epochs * (self.params.get("steps") or 0),
            total_epochs=epochs,
        )
        run._closes = True
        return run

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

    def _register(self, run: Run) -> None:
        """Registers parameters and verbs; on a run that has them from an earlier fit, makes them act
        on this one."""
        for param in [*map(self._guarded, self._parameters), *self._learning_rate()]:
            if not run._rebind(param.name, param.get, param.set):
                run.add(param)
        for name, (function, args, help) in self._commands.items():

            def call(_function: Callable[..., Any] = function, **kwargs: Any) -> Any:
                with self._backend.guards_trainable(self.model):
                    return _function(self, **kwargs)

            if not run._rebind_verb(name, call):
                run.add_verb(name, call, args, help, name in _AT_EPOCH_END)
        run.declare(skip_validation=True, by_default=self._skip_validation)
        self._provide(run, "checkpoint", self._checkpoint, self._checkpoint_dir is not None)
        self._provide(run, "evaluate", self._evaluate, self._evaluation_data is not None)
        self._provide(run, "extend", None, False)

    def _guarded(self, param: Param) -> Param:
        if param.set is None:
            return param

        def set(value: Any, _set: Callable[[Any], Any] = param.set) -> None:
            with self._backend.guards_trainable(self.model):
                _set(value)

        return dataclasses.replace(param, set=set)

    def _provide(self, run: Run, verb: str, function: Any, can: bool) -> None:
        """A standard verb, or the reason why there is none; unless the program has its own."""
        is_ours = verb in run._provided
        if verb in self._commands or (run._has_verb(verb) and not is_ours):
            return
        if not can:
            function = _unable(_REFUSED[verb])
        if is_ours:
            run._rebind_verb(verb, function)
        elif can:
            run.refuse(verb, None)  # an earlier fit may have
            run.add_verb(verb, function, at_epoch_end=verb in _AT_EPOCH_END)
            run._provided.add(verb)
        else:
            run.refuse(verb, _REFUSED[verb])

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

    def _learning_rate(self) -> list[Param]:
        """`lr`, unless it is the user's own or there is no optimizer (a model with its own loop)."""
        own = any(param.name == "lr" for param in self._parameters)
        if own or not hasattr(getattr(self.model, "optimizer", None), "learning_rate"):
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
        now = time.monotonic_ns()
        if now >= self._look_ns:
            self._look_ns = now + int(REPORT_SECONDS * 1e9)
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
                self.model.stop_evaluating = True

    def on_test_end(self, logs: Any = None) -> None:
        if self._training:
            self._set_phase("train")

    def _skips_validation(self) -> bool:
        wanted = self.run.stop_validate
        return self._skip_validation if wanted is None else not wanted

    def _set_phase(self, phase: str) -> None:
        self._phase = phase
        self.run.set_phase(phase)

    @contextlib.contextmanager
    def _in_phase(self, phase: str) -> Iterator[None]:
        self.run.set_phase(phase)
        try:
            yield
        finally:
            self.run.set_phase(self._phase)

    def _obey(self, stop: bool) -> None:
        if stop:
            self.model.stop_training = True

    def _report(self, logs: Any) -> None:
        for tag, value in (logs or {}).items():
            # what is no scalar, or has a name that none can have, is left out
            with contextlib.suppress(TypeError, ValueError):
                self.run.report(tag, self.run.step, value)


@functools.cache
def _warn_of_ranks(world_size: int) -> None:
    """Once a process."""
    warnings.warn(
        f"this is rank 0 of {world_size}, and only it is steered yet: it answers questions, notes and "
        "your own commands, and refuses what all ranks would have to do at the same step (stop, set, "
        "pause, checkpoint, ...). Where each rank may act alone: KAJITORI_RANK_ALONE=1",
        ChannelWarning,
        stacklevel=4,
    )


def _say_ranks(run: Run) -> None:
    if not run.rank_alone and run.rank == 0:
        _warn_of_ranks(run.world_size)


def _unable(reason: str) -> Callable[..., Any]:
    def refuse() -> None:
        raise UnsupportedError(reason)

    return refuse


def _command(name: str, value: Command) -> tuple[Callable[..., Any], dict[str, Any], str | None]:
    """Function, declared arguments, one line of help."""
    function, args = value if isinstance(value, tuple) and len(value) == 2 else (value, {})
    if not callable(function) or not isinstance(args, Mapping):
        raise ArgumentError(
            f"command {name}: neither a function nor a pair of one and its arguments, as in "
            '(function, {"count": int})'
        )
    doc = (function.__doc__ or "").strip().splitlines()
    declared = {key: arg if isinstance(arg, Arg) else Arg(type=arg) for key, arg in args.items()}
    return function, declared, doc[0] if doc else None


def _parameters(parameters: Mapping[str, tuple[Any, ...]] | Iterable[Param]) -> list[Param]:
    if not isinstance(parameters, Mapping):
        return list(parameters)
    found = []
    for name, value in parameters.items():
        if not isinstance(value, tuple) or not 2 <= len(value) <= 4 or not callable(value[0]):
            raise ArgumentError(f"parameter {name}: expected (get, set), (get, set, min, max)")
        get, set_, low, high = (*value, None, None)[:4]
        kind = type(get())
        type_ = kind if kind in (bool, int, str) else float
        found.append(Param(name=name, get=get, set=set_, type=type_, min=low, max=high))
    return found
