# SPDX-License-Identifier: Apache-2.0
"""What the adapters of all frameworks share: `Steering`.

An adapter is the framework's own kind of callback and a `Steering`. It calls `_start` when the
training begins and `_finish` when it ends; in between each step comes by `StepGate.next_step`, which
calls `_look` only when there is something to do. What it can do it says by the methods in the
section "for adapters" below: the learning rate, and a function or the reason why there is none for
each of the verbs checkpoint, evaluate and extend. Everything else, so what a sender sees, is here
and the same for all frameworks.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import time
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from kajitori._errors import ArgumentError, ChannelWarning, StateError, UnsupportedError
from kajitori._run import Run
from kajitori._step_gate import StepGate
from kajitori._values import Arg, Param

Command = Callable[..., Any] | tuple[Callable[..., Any], Mapping[str, Any]]

REPORT_SECONDS = 0.5
"""Metrics of steps are reported at most this often; those of epochs and evaluations always."""

NEVER = 2**62
"""A step that does not come."""

AT_EPOCH_END = {"evaluate"}
"""Verbs that act at the end of an epoch only, unless an adapter says otherwise."""


_taken_up: set[str] = set()  # checkpoints that a training of this process went on from


class Steering(StepGate):
    """The part of an adapter that is no framework's. All arguments are those of the adapters:

    fifo: path of a FIFO for commands (``echo stop > PATH``); one made by ``mkfifo`` is used as it is,
        a missing one is made and removed at the end.
    run: a `kajitori.Run` of yours. The adapter does not close it, and `fifo` and `name` are yours to
        give to it. Without it each training is a run of its own.
    commands: own verbs, ``{"save": function}`` or ``{"freeze": (function, {"count": int})}``; the
        function gets the adapter, then its arguments.
    parameters: ``{"dropout": (get, set, 0, 1)}``, or a list of `kajitori.Param`.
    name: what `kajitori ps` shows [the script's name].
    checkpoint_dir: folder for the verb `checkpoint`.
    """

    _at_epoch_end = AT_EPOCH_END
    _skip_validation: bool | None = False  # after a stop that does not say

    def __init__(
        self,
        fifo: str | os.PathLike[str] | None = None,
        run: Run | None = None,
        commands: Mapping[str, Command] | None = None,
        parameters: Mapping[str, tuple[Any, ...]] | Iterable[Param] | None = None,
        name: str | None = None,
        checkpoint_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__()
        if run is not None and not isinstance(run, Run):
            raise ArgumentError(f"run: {type(run).__name__} is no kajitori.Run")
        if run is not None and (fifo is not None or name is not None):
            raise ArgumentError("fifo and name belong to kajitori.Run(…) when a run is given")
        self.run = run
        self._owns_run = run is None
        self._fifo = fifo
        self._name = name
        self._checkpoint_dir = _folder("checkpoint_dir", checkpoint_dir)
        if not isinstance(commands or {}, Mapping):
            raise ArgumentError(
                f"commands: {type(commands).__name__} is no dict of names and functions"
            )
        self._commands = {key: _command(key, value) for key, value in (commands or {}).items()}
        self._parameters = _parameters(parameters or {})
        self._training = False
        self._phase = ""
        self._end: weakref.ref[Any] | None = None

    @property
    def step(self) -> int:
        """The newest step begun, counted over the whole training from 0; -1 before the first."""
        return -1 if self.run is None else self.run.step

    @property
    def epoch(self) -> int:
        """The newest epoch begun, from 0; -1 before the first."""
        return -1 if self.run is None else self.run.epoch

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
        if (
            found
            and folder
            and os.path.dirname(os.path.realpath(found)) != os.path.realpath(folder)
        ):
            return ""
        return found

    # For adapters: what is to be said about a framework.

    def _describe(self) -> str:
        """Name and version of the framework, for status."""
        raise NotImplementedError

    def _prepare(self) -> None:
        """Called with the run open and before anybody is served: takes up a checkpoint, sets the
        counters."""

    def _own_parameters(self) -> list[Param]:
        """What `get` and `set` see beside the user's own: `lr`. One of a user's name is left out."""
        return []

    def _verbs(self) -> Mapping[str, Callable[..., Any] | str]:
        """For each of checkpoint, evaluate and extend the function that does it (as of
        `Run.add_verb`), or the reason why this training cannot."""
        return {}

    def _abilities(self) -> Mapping[str, bool]:
        """Arguments of `Run.declare` beside leave and abort."""
        return {}

    def _guard(self) -> contextlib.AbstractContextManager[Any]:
        """Surrounds a user's own verb or setter."""
        return contextlib.nullcontext()

    def _run_options(self) -> Mapping[str, Any]:
        """Arguments of `kajitori.Run` beside name, fifo and framework: total_steps, total_epochs, and
        rank and world_size where the framework knows them."""
        return {}

    # For adapters: what they call.

    def _start(self) -> None:
        """The training begins: opens a run, registers all there is, and serves the doors."""
        if self._owns_run:
            if self.run is not None:
                self.run.close()  # of a training that ended by an exception
            self.run = self._open()
        assert self.run is not None
        _say_ranks(self.run)
        self._look_ns = 0
        self.run._open_gate(self)
        try:
            self._prepare()
            self._register(self.run)
            self.run.listen()
        except BaseException:
            self._finish()  # most frameworks tell callbacks nothing of it
            raise
        self._training = True
        self._set_phase("train")

    def _finish(self) -> None:
        """The training has ended; a second call does nothing."""
        self._training = False
        if self._owns_run and self.run is not None:
            self.run.close()

    def _finish_with(self, thing: Any) -> None:
        """Has the run end when `thing` is collected: something that lives as long as the framework's
        own call, where callbacks are not told that it has ended, or that an exception ended it."""
        me, run = weakref.ref(self), self.run

        def end(_: Any) -> None:
            steering = me()
            if steering is not None and steering.run is run:
                with contextlib.suppress(StateError):  # it is inside of a callback of its own
                    steering._finish()

        self._end = weakref.ref(thing, end)

    def _set_phase(self, phase: str) -> None:
        """What the training does from now on, for status: train, validation, …"""
        self._phase = phase
        self.run.set_phase(phase)

    @contextlib.contextmanager
    def _in_phase(self, phase: str) -> Iterator[None]:
        """What it does within a `with`."""
        self.run.set_phase(phase)
        try:
            yield
        finally:
            self.run.set_phase(self._phase)

    def _report(self, metrics: Mapping[str, Any] | None) -> None:
        """Reports metrics, by the framework's own names, at the newest step. What is no scalar, or
        has a name that none can have, is left out."""
        for tag, value in (metrics or {}).items():
            with contextlib.suppress(TypeError, ValueError):
                self.run.report(tag, self.run.step, value)

    def _is_report_due(self) -> bool:
        """Whether metrics of a step are wanted, which is at most every REPORT_SECONDS; the gate opens
        again then."""
        now = time.monotonic_ns()
        if now < self._look_ns:
            return False
        self._look_ns = now + int(REPORT_SECONDS * 1e9)
        return True

    def _checkpoint_to_take_up(self) -> str:
        """The one in `checkpoint_dir` that the process was started again for; "" when there is none, or
        a training of this process went on from it already."""
        path = self.resumed_from
        return path if self._checkpoint_dir and path not in _taken_up else ""

    def _has_taken_up(self, path: str) -> None:
        """The training goes on from it, the next one does not."""
        _taken_up.add(path)

    def _skips_validation(self) -> bool:
        """Whether no validation is to come with the stop that was applied: as its sender wants it, else
        as the program does."""
        wanted = self.run.stop_validate
        return bool(self._skip_validation) if wanted is None else not wanted

    # What is the same for all.

    def _open(self) -> Run:
        run = Run(
            name=self._name,
            fifo=self._fifo,
            listen=False,  # parameters and verbs come first
            framework=self._describe(),
            **self._run_options(),
        )
        run._closes = True
        return run

    def _register(self, run: Run) -> None:
        """Registers parameters and verbs; on a run that has them from an earlier training, makes them
        act on this one."""
        taken = {param.name for param in self._parameters}
        own = [param for param in self._own_parameters() if param.name not in taken]
        for param in [*map(self._guarded, self._parameters), *own]:
            if not run._rebind(param.name, param.get, param.set):
                run.add(param)
        for name, (function, args, help) in self._commands.items():

            def call(_function: Callable[..., Any] = function, **kwargs: Any) -> Any:
                with self._guard():
                    return _function(self, **kwargs)

            if not run._rebind_verb(name, call):
                run.add_verb(name, call, args, help, name in self._at_epoch_end)
        run.declare(**self._abilities())
        for verb, what in self._verbs().items():
            self._provide(run, verb, what)

    def _guarded(self, param: Param) -> Param:
        if param.set is None:
            return param

        def set(value: Any, _set: Callable[[Any], Any] = param.set) -> None:
            with self._guard():
                _set(value)

        return dataclasses.replace(param, set=set)

    def _provide(self, run: Run, verb: str, what: Callable[..., Any] | str) -> None:
        """A standard verb, or the reason why there is none; unless the program has its own."""
        is_ours = verb in run._provided
        if verb in self._commands or (run._has_verb(verb) and not is_ours):
            return
        if is_ours:
            run._rebind_verb(verb, _unable(what) if isinstance(what, str) else what)
        elif isinstance(what, str):
            run.refuse(verb, what)
        else:
            run.refuse(verb, None)  # an earlier training may have
            run.add_verb(verb, what, at_epoch_end=verb in self._at_epoch_end)
            run._provided.add(verb)

    def __getstate__(self) -> dict[str, Any]:
        """A copy is for another training: it has no part in a run that this one has opened."""
        state = vars(self) | {"_training": False, "_end": None}
        return state | {"run": None} if self._owns_run else state


@functools.cache
def _warn_of_ranks(world_size: int) -> None:
    """Once a process."""
    warnings.warn(
        f"this is rank 0 of {world_size}, and only it is steered yet: it answers questions, notes and "
        "your own commands, and refuses what all ranks would have to do at the same step (stop, set, "
        "pause, checkpoint, ...). Where each rank may act alone: KAJITORI_RANK_ALONE=1",
        ChannelWarning,
        stacklevel=5,
    )


def _say_ranks(run: Run) -> None:
    if not run.rank_alone and run.rank == 0:
        _warn_of_ranks(run.world_size)


def _unable(reason: str) -> Callable[..., Any]:
    def refuse(**_: Any) -> None:
        raise UnsupportedError(reason)

    return refuse


def _folder(of: str, value: Any) -> str | None:
    try:
        return None if value is None else os.path.abspath(value)
    except TypeError:
        raise ArgumentError(f"{of}: {value!r} is no path") from None


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
        listed = list(parameters) if isinstance(parameters, Iterable) else [parameters]
        for one in listed:
            if not isinstance(one, Param):
                raise ArgumentError(
                    f"parameters: {one!r} is no kajitori.Param; a list of these is wanted, or a dict as "
                    '{"dropout": (get, set)}'
                )
        return listed
    found = []
    for name, value in parameters.items():
        if not isinstance(value, tuple) or not 2 <= len(value) <= 4 or not callable(value[0]):
            raise ArgumentError(f"parameter {name}: expected (get, set), (get, set, min, max)")
        get, set_, low, high = (*value, None, None)[:4]
        kind = type(get())
        type_ = kind if kind in (bool, int, str) else float
        found.append(Param(name=name, get=get, set=set_, type=type_, min=low, max=high))
    return found
