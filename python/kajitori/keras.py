# SPDX-License-Identifier: Apache-2.0
"""Steering of `keras.Model.fit`: `SteeringCallback`.

::

    from kajitori.keras import SteeringCallback

    model.fit(x, y, epochs=100, callbacks=[SteeringCallback(fifo="ctl")])

then, from any shell, ``kajitori status``, ``kajitori set lr=1e-4``, ``kajitori pause``,
``kajitori stop --at epoch``, or ``echo stop > ctl``. docs/keras.md says when each verb acts.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

try:
    import keras
except ImportError as error:
    raise ImportError(
        f"kajitori.keras needs Keras 3 and a backend for it (pip install keras tensorflow): {error}"
    ) from error
import numpy as np

from kajitori._errors import ArgumentError, OutOfRangeError, UnsupportedError
from kajitori._run import Run
from kajitori._values import Arg, Param

__all__ = ["SteeringCallback"]

if int(keras.__version__.split(".")[0]) < 3:
    raise ImportError(f"kajitori.keras needs Keras 3, this is Keras {keras.__version__}")

Command = Callable[..., Any] | tuple[Callable[..., Any], Mapping[str, Any]]

REPORT_SECONDS = 0.5
"""Metrics of batches are reported at most this often; those of epochs always."""


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


def _shortest(value: Any) -> float:
    """The shortest decimal that is the same number in the array's precision: 0.001, where a float32
    widened would show 0.0010000000474974513."""
    array = np.asarray(value)
    return float(str(array[()])) if array.dtype.kind == "f" else float(array)


class SteeringCallback(keras.callbacks.Callback):
    """Makes `Model.fit` steerable from outside: stop, pause, resume, set and get, status, own verbs.

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
    skip_validation: after a stop no more than one batch of validation runs. The `val_` metrics of that
        epoch are then those of fewer batches, and callbacks that look at them see these.

    `lr`, the optimizer's learning rate, is registered unless `parameters` has one of that name.

    A stop makes `fit` return by Keras' own way (`model.stop_training`): the code after `fit` runs and
    its history is whole. An exception in an own verb or setter is the sender's reply and never ends
    the training. A channel that cannot be opened is one `kajitori.ChannelWarning`.
    """

    def __init__(
        self,
        fifo: str | os.PathLike[str] | None = None,
        run: Run | None = None,
        commands: Mapping[str, Command] | None = None,
        parameters: Mapping[str, tuple[Any, ...]] | Iterable[Param] | None = None,
        name: str | None = None,
        skip_validation: bool = False,
    ) -> None:
        super().__init__()
        if run is not None and (fifo is not None or name is not None):
            raise ArgumentError("fifo and name belong to kajitori.Run(…) when a run is given")
        self.run = run
        self._owns_run = run is None
        self._fifo = fifo
        self._name = name
        self._skip_validation = skip_validation
        self._backend = _Keras3
        self._commands = {key: _command(key, value) for key, value in (commands or {}).items()}
        self._parameters = _parameters(parameters or {})
        self._training = False
        self._epoch = -1
        self._first = 0  # number of the epoch's first step
        self._steps: int | None = None  # of an epoch, None while nobody knows
        self._done = 0  # the optimizer's count when the first epoch began
        self._offset = 0  # what to add to it
        self._is_fresh = True  # no epoch of this fit has begun
        self._next_report = 0.0

    @property
    def step(self) -> int:
        """The newest step begun, counted over the whole training from 0; -1 before the first."""
        return -1 if self.run is None else self.run.step

    @property
    def epoch(self) -> int:
        """The epoch that runs, from 0; -1 before the first."""
        return self._epoch

    def on_train_begin(self, logs: Any = None) -> None:
        if self._owns_run:
            if self.run is not None:
                self.run.close()  # of a fit that ended by an exception
            self.run = self._open()
        assert self.run is not None
        self._steps = self.params.get("steps")  # params are overwritten by an evaluate in between
        self._next_report = 0.0
        self._is_fresh = True
        done = self._backend.iterations(self.model)
        self._offset = max(self.run.step - done, 0)
        self._first = self._offset + done
        try:
            self._register(self.run)
            self.run.listen()
        except BaseException:
            self.on_train_end()  # Keras does not call it now
            raise
        self._training = True
        self.run.set_phase("train")
        self._obey(self.run.should_stop)

    def on_train_end(self, logs: Any = None) -> None:
        self._training = False
        if self._owns_run and self.run is not None:
            self.run.close()

    def __getstate__(self) -> dict[str, Any]:
        """A copy is for another fit: it has no part in a run that this one has opened."""
        state = vars(self) | {"_training": False}
        return state | {"run": None} if self._owns_run else state

    def _open(self) -> Run:
        epochs = self.params.get("epochs") or 0
        return Run(
            name=self._name,
            fifo=self._fifo,
            listen=False,  # `lr` and the commands come first
            framework=self._backend.describe(),
            total_steps=epochs * (self.params.get("steps") or 0),
            total_epochs=epochs,
        )

    def _register(self, run: Run) -> None:
        """Registers parameters and verbs; on a run that has them from an earlier fit, makes them act
        on this one."""
        for param in [*self._parameters, *self._learning_rate()]:
            if not run._rebind(param.name, param.get, param.set):
                run.add(param)
        for name, (function, args, help) in self._commands.items():

            def call(_function: Callable[..., Any] = function, **kwargs: Any) -> Any:
                return _function(self, **kwargs)

            if not run._rebind_verb(name, call):
                run.add_verb(name, call, args, help)

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
        self.run._publish(self._first, epoch)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        # The next step begins here, not in on_train_batch_begin: Keras looks at stop_training after
        # this call, and a stop applied later would let one more step run.
        count = batch + 1
        if self._steps and count > self._steps:
            count = self._steps  # steps_per_execution counts past the end
        if self.run.begin_step(self._first + count):
            self.model.stop_training = True
        now = time.monotonic()
        if now >= self._next_report:
            self._next_report = now + REPORT_SECONDS
            self._report(logs)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._report(logs)
        self._obey(self.run.end_epoch(epoch))

    def on_test_begin(self, logs: Any = None) -> None:
        if self._training:
            self.run.set_phase("validation")

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        if self._training and self.run.poll():
            self.model.stop_training = True
            if self._skip_validation:
                self.model.stop_evaluating = True

    def on_test_end(self, logs: Any = None) -> None:
        if self._training:
            self.run.set_phase("train")

    def _obey(self, stop: bool) -> None:
        if stop:
            self.model.stop_training = True

    def _report(self, logs: Any) -> None:
        for tag, value in (logs or {}).items():
            # what is no scalar, or has a name that none can have, is left out
            with contextlib.suppress(TypeError, ValueError):
                self.run.report(tag, self.run.step, value)


def _command(name: str, value: Command) -> tuple[Callable[..., Any], dict[str, Any], str | None]:
    """Function, declared arguments, one line of help."""
    function, args = value if isinstance(value, tuple) else (value, {})
    if not callable(function):
        raise ArgumentError(f"command {name}: neither a function nor a pair (function, arguments)")
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
