# SPDX-License-Identifier: Apache-2.0
"""The training side: `Run`.

A call into C gives up the interpreter's lock, and beside a busy Python thread it takes milliseconds
to get it back. So the idle case never leaves Python: the library shares a small struct
(``kj_run_cell``), and `Run.poll` looks at its first word as memory. The truth value of a ctypes
integer is the fastest such look (bench/poll_python.py has the figures); C is called only when the
word is set.

C memory lives as long as anything in Python that looks at it: the run's handle, the view of its cell
and `_pending` hold one another, so a thread or an exit handler that still uses a run which another
one closes finds a closed run, never freed memory.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, overload

from kajitori._errors import (
    Aborted,
    ArgumentError,
    Left,
    StateError,
    UnsupportedError,
    check,
    new_error,
    warn_pending,
)
from kajitori._ffi import ffi, lib
from kajitori._step_gate import StepGate
from kajitori._values import (
    EFFECTS,
    Arg,
    Interrupted,
    Param,
    ParamBinding,
    Scalar,
    VerbBinding,
    count,
    limit,
    number,
    path,
    range_flags,
    text,
    type_code,
    whole,
)

F = TypeVar("F", bound=Callable[..., Any])

_STEP = ffi.offsetof("kj_run_cell", "step") // 8
_EPOCH = ffi.offsetof("kj_run_cell", "epoch") // 8
_DUE_STEP = ffi.offsetof("kj_run_cell", "due_step") // 8
_DUE_EPOCH = ffi.offsetof("kj_run_cell", "due_epoch") // 8
_CELL_SIZE = ffi.sizeof("kj_run_cell")


_ENDINGS = {
    lib.KJ_ENDING_NONE: None,
    lib.KJ_ENDING_STOP: "stop",
    lib.KJ_ENDING_PRUNE: "prune",
    lib.KJ_ENDING_LEAVE: "leave",
    lib.KJ_ENDING_ABORT: "abort",
}
_EXTEND_ARGS = ("epochs", "steps")  # declared by the library

# what can be asked after `Run.close`, too
_KEPT: dict[str, Callable[[Any], Any]] = {
    "stop_reason": lambda ptr: ffi.string(lib.kj_run_stop_reason(ptr)).decode(errors="replace"),
    "stop_validate": lambda ptr: {1: True, 0: False}.get(lib.kj_run_stop_validate(ptr)),
    "ending": lambda ptr: _ENDINGS.get(lib.kj_run_ending(ptr)),
    "exit_status": lib.kj_run_exit_status,
    "resumed_from": lambda ptr: os.fsdecode(ffi.string(lib.kj_run_resumed_from(ptr))),
}


def _dead_cell() -> memoryview:
    """Stands in for the shared struct once the run is closed: nothing is ever due."""
    cell = memoryview(bytearray(_CELL_SIZE)).cast("q")
    cell[_STEP] = cell[_EPOCH] = -1
    cell[_DUE_STEP] = cell[_DUE_EPOCH] = 2**63 - 1
    return cell


_RUNS: weakref.WeakSet[Run] = weakref.WeakSet()  # those that are open


@atexit.register
def _close_all() -> None:
    for run in list(_RUNS):
        with contextlib.suppress(StateError):  # a daemon thread is in it: ends with the process
            run.close()


def _forget_other_threads() -> None:
    """A forked child has only its own thread: no other is inside of a run."""
    for run in list(_RUNS):
        run._inside = threading.Lock()


os.register_at_fork(after_in_child=_forget_other_threads)


def _marks(fifo: Any, run_id: str | None) -> frozenset[Any]:
    """What a second run of this thread would have to share with this one."""
    if fifo is not None:
        fifo = os.path.realpath(os.fsencode(fifo))
    here = (os.getpid(), threading.get_ident())
    return frozenset((*here, mark) for mark in (fifo, run_id) if mark is not None)


def _close_forgotten(marks: frozenset[Any]) -> list[Run]:
    """Closes the open runs of this thread that have one of these marks."""
    closed = []
    for run in [run for run in _RUNS if run._marks & marks]:
        with contextlib.suppress(StateError):  # it is inside of a callback of its own
            run.note("closed: a newer run of this thread takes its place")
            run.close()
            closed.append(run)
    return closed


def _view(handle: Any) -> memoryview:
    """The run's `kj_run_cell`, which keeps `handle` alive."""
    cell = ffi.gc(lib.kj_run_get_cell(handle), lambda _cell, _handle=handle: None)
    return memoryview(ffi.buffer(cell, _CELL_SIZE)).cast("B").cast("q")


def _program_name() -> str:
    """What `kajitori ps` shows: the name of the script, or of the package that runs as one."""
    script = sys.argv[0] if sys.argv and sys.argv[0] not in ("", "-", "-c", "-m") else "python"
    name = os.path.basename(script).removesuffix(".py")
    if name == "__main__":
        name = os.path.basename(os.path.dirname(os.path.abspath(script)))
    return name.encode(errors="replace").decode() or "python"


class Run:
    """A training that can be steered while it goes on. A context manager.

    ::

        with kajitori.Run() as run:
            run.add_param("lr", float, get=lambda: opt.lr, set=opt.set_lr, min=0)
            for step, batch in enumerate(batches):
                if run.begin_step(step):
                    break
                train(batch)

    Commands act in the thread that calls `begin_step`, `poll`, `begin_epoch` or `end_epoch`, and only
    there; while nothing is to be done these calls cost about as much as `threading.Event.is_set`.
    They return True once a stop was applied. While the run is paused they wait, without the
    interpreter's lock.

    All arguments are optional:

    name: what `kajitori ps` shows [the script's name].
    fifo: path of a FIFO through which commands come too (``echo stop > PATH``). One that is there is
        used as it is, a missing one is made with mode 0600 and removed at the end.
    run_id: 1 to 64 of ``A-Z a-z 0-9 . _ -`` [$KAJITORI_RUN_ID, else made up].
    framework: shown by status.
    strict: a door that cannot be opened is an exception. Otherwise it is one `ChannelWarning`, and
        the training goes on with the doors that work, or with none.
    listen: False: what comes to the doors waits there until `listen` is called, so that nobody asks
        for a parameter that is about to be registered. Call it soon.
    total_steps, total_epochs: how long the training will be, for progress; 0 = not known.
    runtime_dir, state_dir: folders of the doors and of the journals [docs/protocol.md, section 1].
    mailbox: folder for mailboxes, for file systems that sockets do not cross [$KAJITORI_MAILBOX_DIR].
    schedule: a file of commands with ``at=``, taken in before the first step [$KAJITORI_SCHEDULE].
    signals: signals that are commands, ``"INT,TERM,USR1=checkpoint"`` [none].
    threaded: False: no helper thread. The safe points serve the doors, at most 20 times a second, and
        questions are answered only there.
    raises: False: the program does not want `Left` and `Aborted`; see `declare`.
    rank_alone: True: each rank of a distributed training is a run of its own, since none waits for
        another [$KAJITORI_RANK_ALONE]. Otherwise rank 0 refuses what all would have to do, and the
        others have no doors.
    events_dir: folder in which what is reported is written as a TensorBoard event file, too
        [$KAJITORI_EVENTS_DIR, else none].
    rank, world_size: which of how many processes that train together this is, where the framework
        knows it better than the launcher's environment [0, 0: the environment].

    Raises `ArgumentError` for what cannot be meant, such as a malformed `run_id`.

    A run that is still open in this thread and has the same `fifo` or `run_id`, as a notebook's cell
    leaves it that was interrupted, is closed first; both journals say so.
    """

    __slots__ = (
        "__weakref__",
        "_cell",
        "_closes",
        "_dir",
        "_due",
        "_gate",
        "_id",
        "_inside",
        "_interrupted",
        "_kept",
        "_marks",
        "_params",
        "_pending",
        "_provided",
        "_ptr",
        "_raises",
        "_rank_alone",
        "_ranks",
        "_stopped",
        "_verbs",
    )

    def __init__(
        self,
        name: str | None = None,
        fifo: str | os.PathLike[str] | None = None,
        run_id: str | None = None,
        framework: str | None = None,
        strict: bool = False,
        listen: bool = True,
        total_steps: int = 0,
        total_epochs: int = 0,
        runtime_dir: str | os.PathLike[str] | None = None,
        state_dir: str | os.PathLike[str] | None = None,
        mailbox: str | os.PathLike[str] | None = None,
        schedule: str | os.PathLike[str] | None = None,
        signals: str | None = None,
        threaded: bool = True,
        raises: bool = True,
        rank_alone: bool = False,
        events_dir: str | os.PathLike[str] | None = None,
        rank: int = 0,
        world_size: int = 0,
    ) -> None:
        self._stopped = False
        self._closes = False
        self._raises = lib.KJ_RUN_LEFT | lib.KJ_RUN_ABORTED if raises else 0
        self._kept: dict[str, Any] = {}
        self._provided: set[str] = set()  # standard verbs that are a SteeringCallback's
        self._gate: Callable[[], StepGate | None] = lambda: None
        self._inside = threading.Lock()
        self._interrupted = Interrupted()
        self._params: dict[str, tuple[ParamBinding, Any]] = {}
        self._verbs: dict[str, tuple[VerbBinding, Any]] = {}

        keep: list[Any] = []
        options = ffi.new("kj_run_options *", {"size": ffi.sizeof("kj_run_options")})
        options.flags = (
            lib.KJ_RUN_INTERRUPTIBLE
            | (lib.KJ_RUN_STRICT if strict else 0)
            | (0 if listen else lib.KJ_RUN_LISTEN_LATER)
            | (0 if threaded else lib.KJ_RUN_THREADLESS)
            | (lib.KJ_RUN_RANK_ALONE if rank_alone else 0)
        )
        options.name = text("name", name or _program_name(), keep)
        options.run_id = text("run_id", run_id, keep)
        options.fifo_path = path("fifo", fifo, keep)
        options.framework = text("framework", framework, keep)
        options.runtime_dir = path("runtime_dir", runtime_dir, keep)
        options.state_dir = path("state_dir", state_dir, keep)
        options.total_steps = count("total_steps", total_steps)
        options.total_epochs = count("total_epochs", total_epochs)
        options.mailbox_dir = path("mailbox", mailbox, keep)
        options.schedule_path = path("schedule", schedule, keep)
        options.signals = text("signals", signals, keep)
        options.events_dir = path("events_dir", events_dir, keep)
        options.rank = count("rank", rank)
        options.world_size = count("world_size", world_size)
        self._marks = _marks(fifo, run_id)
        replaced = _close_forgotten(self._marks)
        err = new_error()
        result = ffi.new("kj_run **")
        check(lib.kj_run_open(options, result, err), err)

        self._ptr = ffi.gc(result[0], lib.kj_run_close)
        self._id = ffi.string(lib.kj_run_id(self._ptr)).decode()
        self._dir = ffi.string(lib.kj_run_dir(self._ptr)).decode(errors="surrogateescape")
        self._ranks = (lib.kj_run_rank(self._ptr), lib.kj_run_world_size(self._ptr))
        self._rank_alone = bool(lib.kj_run_rank_alone(self._ptr))
        self._cell = _view(self._ptr)
        self._due = self._cell[_DUE_STEP]  # when it becomes smaller, `_pending` is set
        self._pending: Any = ctypes.c_uint32.from_buffer(self._cell)
        _RUNS.add(self)
        if raises:
            self.declare(leave=True, abort=True)
        for old in replaced:
            self.note(f"takes the place of run {old.id}, which was still open in this thread")
        warn_pending(stacklevel=2)

    def listen(self) -> None:
        """Serves the doors of a run that was made with ``listen=False``, from now on."""
        ptr = self._ptr  # keeps it alive beside a close() in another thread
        if ptr is not None:
            err = new_error()
            check(lib.kj_run_listen(ptr, err), err)

    def poll(self) -> bool:
        """A safe point: carries out the commands that are due, waits in it while paused. True once a
        stop was applied."""
        if self._pending:  # for ever once a stop was applied
            return self._enter(lib.kj_run_poll)
        return False

    def begin_step(self, step: int) -> bool:
        """Step number `step` (from 0, counted over the whole training) begins: carries out what is
        scheduled for it or an earlier one, then as `poll`."""
        try:
            self._cell[_STEP] = step
        except (TypeError, ValueError):
            raise ArgumentError(f"step {step!r} is no whole number of 64 bits") from None
        if self._pending or step >= self._due:
            return self._enter(lib.kj_run_begin_step, step)
        return False

    def begin_epoch(self, epoch: int) -> bool:
        """Epoch number `epoch` (from 0) begins; then as `poll`."""
        try:
            self._cell[_EPOCH] = epoch
        except (TypeError, ValueError):
            raise ArgumentError(f"epoch {epoch!r} is no whole number of 64 bits") from None
        return self.poll()

    def end_epoch(self, epoch: int) -> bool:
        """The epoch ends: carries out what is scheduled for its end or an earlier one (``at=epoch``),
        then as `poll`."""
        return self._enter(lib.kj_run_end_epoch, whole("epoch", epoch))

    def _enter(self, function: Any, *args: Any) -> bool:
        """One of the four calls above in C, unless one is going on: a callback that polls, or a
        second thread, goes on at once."""
        if not self._inside.acquire(blocking=False):
            return self._stopped
        try:
            if self._ptr is None:
                return self._stopped
            bits = lib.KJ_RUN_INTERRUPTED
            while bits & lib.KJ_RUN_INTERRUPTED:  # Python's own signal handlers run in between
                bits = function(self._ptr, *args)
            self._due = self._cell[_DUE_STEP]
            if bits & lib.KJ_RUN_STOP:
                self._stopped = True
        finally:
            self._inside.release()
        ended = bits & self._raises
        self._raises &= ~ended
        interrupted, self._interrupted.error = self._interrupted.error, None
        if interrupted is not None:
            raise interrupted
        warn_pending(stacklevel=3)
        if ended:
            self._leave(Aborted if ended & lib.KJ_RUN_ABORTED else Left)
        return self._stopped

    def _leave(self, ending: type[Aborted | Left]) -> None:
        reason = self.stop_reason
        if self._closes:
            self.close()
        raise ending(reason)

    def _open_gate(self, gate: StepGate) -> None:
        """Has `gate` look at the run's cell until the run is closed, or another gate comes."""
        self._close_gate()
        gate._open_gate(self._cell)
        self._gate = weakref.ref(gate)

    def _close_gate(self) -> None:
        """Without it the gate would keep C's memory, and so the doors."""
        gate = self._gate()
        if gate is not None:
            gate._close_gate()

    def _publish(self, step: int, epoch: int) -> None:
        """Publishes the counters where a framework could not obey: no safe point."""
        self._cell[_STEP] = step
        self._cell[_EPOCH] = epoch

    @property
    def _due_epoch(self) -> int:
        """The smallest epoch for whose end something is scheduled."""
        return self._cell[_DUE_EPOCH]

    @property
    def id(self) -> str:
        """The run's id."""
        return self._id

    @property
    def dir(self) -> str:
        """The folder of the doors, "" when no door could be opened."""
        return self._dir

    @property
    def rank(self) -> int:
        """Which of the processes of a distributed training this is; 0 in a training of one."""
        return self._ranks[0]

    @property
    def world_size(self) -> int:
        """How many processes train together, by the launcher's word; 1 in a training of one."""
        return self._ranks[1]

    @property
    def rank_alone(self) -> bool:
        """Whether this process may be steered alone: it is the only one, or the user said so."""
        return self._rank_alone

    @property
    def step(self) -> int:
        """The newest step begun, -1 before the first."""
        return self._cell[_STEP]

    @property
    def epoch(self) -> int:
        """The newest epoch begun, -1 before the first."""
        return self._cell[_EPOCH]

    @property
    def should_stop(self) -> bool:
        """True once a stop was applied, also after `close`."""
        return self._stopped

    @property
    def stop_reason(self) -> str:
        """The reason given with the stop that was applied, "" when there is none."""
        return self._keep("stop_reason")

    @property
    def stop_validate(self) -> bool | None:
        """Whether the stop wants the validation that the loop would still make; None: nothing said."""
        return self._keep("stop_validate")

    @property
    def ending(self) -> str | None:
        """What ended the training: "stop", "prune", "leave" or "abort"; None: nothing yet, or its own
        end."""
        return self._keep("ending")

    @property
    def pruned(self) -> bool:
        """True once a rule has pruned it."""
        return self.ending == "prune"

    @property
    def exit_status(self) -> int:
        """The status for `sys.exit` that tells a supervisor how the training ended: 0, 75 (left), 76
        (pruned) or 77 (aborted)."""
        return self._keep("exit_status")

    @property
    def resumed_from(self) -> str:
        """The checkpoint that ``kajitori resume`` wants the training to go on from, "" for a fresh
        start."""
        return self._keep("resumed_from")

    def _keep(self, name: str) -> Any:
        """What C says; after `close`, what it said last."""
        with contextlib.suppress(StateError):
            self._kept[name] = _KEPT[name](self._live())
        return self._kept[name]

    @property
    def closed(self) -> bool:
        """True after `close`."""
        return self._ptr is None

    def declare(
        self,
        *,
        skip_validation: bool = False,
        by_default: bool = False,
        leave: bool = False,
        abort: bool = False,
    ) -> None:
        """Says what the program looks at; without that the command is refused.

        skip_validation: at `stop_validate` (``stop validate=no``); `by_default`: it skips it, too,
        where the stop says nothing. leave, abort: at `ending` after
        each safe point that returned True (``pause level=leave``, ``abort``); a run with
        ``raises=True`` has said so for itself.
        """
        bits = lib.KJ_CAN_SKIP_VALIDATION if skip_validation else 0
        bits |= lib.KJ_SKIPS_VALIDATION if by_default else 0
        bits |= lib.KJ_CAN_LEAVE if leave else 0
        bits |= lib.KJ_CAN_ABORT if abort else 0
        with contextlib.suppress(StateError):  # closed
            lib.kj_run_declare(self._live(), bits)

    def refuse(self, verb: str, reason: str | None) -> None:
        """This program cannot do `verb` (checkpoint, evaluate, extend or pause), and `reason`, one
        line, is what its senders are told; None takes it back. Raises `ArgumentError`."""
        err, keep = new_error(), []
        name, why = text("verb", verb, keep), text("reason", reason, keep)
        check(lib.kj_run_refuse_verb(self._live(), name, why, err), err)

    def remark(self, verb: str, text_: str | None) -> None:
        """What the program has to say to those who send `verb` (1 to 1024 bytes): each answer has it as
        its `remark`, from the first one on; None takes it back. Raises `ArgumentError`."""
        err, keep = new_error(), []
        name, said = text("verb", verb, keep), text("text", text_, keep)
        with contextlib.suppress(StateError):  # closed
            check(lib.kj_run_remark(self._live(), name, said, err), err)

    def note(self, remark: str) -> None:
        """Writes a remark into the journal."""
        err = new_error()
        with contextlib.suppress(StateError):  # closed
            check(lib.kj_run_note(self._live(), text("remark", remark, []), err), err)

    def set_totals(self, steps: int = 0, epochs: int = 0) -> None:
        """How long the training will be, for progress; 0 = not known."""
        with contextlib.suppress(StateError):  # closed
            lib.kj_run_set_totals(
                self._live(), count("total_steps", steps), count("total_epochs", epochs)
            )

    def set_phase(self, phase: str) -> None:
        """What the training is doing now, for status: "train", "validation", … (63 bytes)."""
        with contextlib.suppress(StateError):  # closed
            lib.kj_run_set_phase(self._live(), text("phase", phase, []))

    def report(self, tag: str, step: int, value: float) -> None:
        """Reports metric `tag` (1 to 512 bytes) at `step`. NaN and infinities are values.

        It calls C: beside busy Python threads report every so many steps, not each. Raises
        `ArgumentError` for an empty or too long tag, and for a value that is no number.
        """
        err, of = new_error(), f"metric {tag}"
        with contextlib.suppress(StateError):  # closed
            name = text("tag", tag, [])
            check(lib.kj_run_report(self._live(), name, step, number(of, value), err), err)

    def _report_series(self, tag: str, first: int, values: Iterable[float]) -> None:
        """Reports a metric at the steps `first`, `first` + 1, …: as many calls of `report`, at less
        cost."""
        err, name = new_error(), text("tag", tag, [])
        with contextlib.suppress(StateError):  # closed
            for step, value in enumerate(values, first):
                it = number(f"metric {tag}", value)
                check(lib.kj_run_report(self._live(), name, step, it, err), err)

    def add_param(
        self,
        name: str,
        type: type[Scalar] | str = float,
        get: Callable[[], Scalar] | None = None,
        set: Callable[[Any], object] | None = None,
        *,
        min: float | None = None,
        max: float | None = None,
        min_exclusive: bool = False,
        unit: str | None = None,
        help: str | None = None,
        effect: str = "step",
    ) -> None:
        """Registers a parameter; see `Param` for the arguments. `get` is called once.

        An exception of `get` or `set` is the reply to the sender ("failed" with its message) and
        does not end the training; one of the first `get` is raised here. Raises `ExistsError` for a
        name that is taken, `ArgumentError`.
        """
        if get is None:
            raise ArgumentError(f"parameter {name}: get is missing")
        self.add(
            Param(
                name=name,
                get=get,
                set=set,
                type=type,
                min=min,
                max=max,
                min_exclusive=min_exclusive,
                unit=unit,
                help=help,
                effect=effect,
            )
        )

    def add(self, param: Param) -> None:
        """Registers a parameter that is described by a `Param`. As `add_param`."""
        of = f"parameter {param.name}"
        if param.effect not in list(EFFECTS):
            raise ArgumentError(f"{of}: effect {param.effect!r} is none of {', '.join(EFFECTS)}")
        if not callable(param.get) or not (param.set is None or callable(param.set)):
            raise ArgumentError(f"{of}: get and set are functions")
        binding = ParamBinding(param, self._interrupted)
        handle = ffi.new_handle(binding)
        keep: list[Any] = []
        c_param = ffi.new("kj_param *", {"size": ffi.sizeof("kj_param")})
        c_param.type = type_code(of, param.type)
        c_param.name = text(f"{of}: name", param.name, keep)
        c_param.unit = text(f"{of}: unit", param.unit, keep)
        c_param.help = text(f"{of}: help", param.help, keep)
        bits = (lib.KJ_PARAM_MIN, lib.KJ_PARAM_MAX, lib.KJ_PARAM_MIN_EXCLUSIVE)
        c_param.flags = range_flags(param.min, param.max, param.min_exclusive, bits)
        c_param.min = limit(of, param.min)
        c_param.max = limit(of, param.max)
        c_param.effect = EFFECTS[param.effect]
        c_param.get = lib.kjp_param_get
        if param.set is None:
            c_param.flags |= lib.KJ_PARAM_READ_ONLY
        else:
            c_param.set = lib.kjp_param_set
        c_param.userdata = handle
        err = new_error()
        check(lib.kj_run_add_param(self._live(), c_param, err), err)
        self._params[param.name] = (binding, handle)

    def add_verb(
        self,
        name: str,
        function: Callable[..., Any],
        args: Mapping[str, type[Scalar] | str | Arg] | None = None,
        help: str | None = None,
        at_epoch_end: bool = False,
    ) -> None:
        """Registers an own verb: ``kajitori send "NAME key=value …"`` calls ``function(key=value, …)``
        in the training thread, with `at_epoch_end` only at the end of an epoch.

        `args` maps each argument's name to float, int, bool, str, or an `Arg`; a bare type is
        required. What the function returns (any JSON value; None for nothing) is the sender's
        result, an exception its "failed". `help` is one line [the first of the docstring]. Raises
        `ExistsError` for a name that is taken, built-in ones too, `ArgumentError`.

        Three names are those of standard verbs, which a program that can do them provides in this
        way. ``checkpoint`` saves all that a resumed training needs, and returns the path; ``stop
        save=yes`` and ``pause level=leave`` call it, too. ``evaluate`` returns a dict of metrics.
        ``extend`` gets `epochs` or `steps`, without being declared, and may return
        ``{"total_epochs": N}`` or ``{"total_steps": N}``.
        """
        if not callable(function):
            raise ArgumentError(f"verb {name}: {function!r} is no function")
        if not isinstance(args or {}, Mapping):
            raise ArgumentError(f"verb {name}: args {args!r} does not map names to types")
        declared = {
            key: arg if isinstance(arg, Arg) else Arg(type=arg) for key, arg in (args or {}).items()
        }
        names = _EXTEND_ARGS if name == "extend" else declared
        binding = VerbBinding(name, function, names, self._interrupted)
        handle = ffi.new_handle(binding)
        keep: list[Any] = []
        c_args = ffi.new("kj_arg[]", max(len(declared), 1))
        for c_arg, (key, arg) in zip(c_args, declared.items(), strict=False):
            _describe_arg(c_arg, f"verb {name}: argument {key}", key, arg, keep)
        if help is None:
            help = ((function.__doc__ or "").strip().splitlines() or [None])[0]
        c_verb = ffi.new("kj_verb *", {"size": ffi.sizeof("kj_verb")})
        c_verb.name = text(f"verb {name}: name", name, keep)
        c_verb.help = text(f"verb {name}: help", help, keep)
        c_verb.args = c_args
        c_verb.n_args = len(declared)
        c_verb.flags = lib.KJ_VERB_AT_EPOCH_END if at_epoch_end else 0
        c_verb.run = lib.kjp_verb_run
        c_verb.userdata = handle
        err = new_error()
        check(lib.kj_run_add_verb(self._live(), c_verb, err), err)
        self._verbs[name] = (binding, handle)

    @overload
    def verb(self, name: F) -> F: ...
    @overload
    def verb(
        self,
        name: str | None = None,
        args: Mapping[str, type[Scalar] | str | Arg] | None = None,
        help: str | None = None,
        at_epoch_end: bool = False,
    ) -> Callable[[F], F]: ...
    def verb(
        self, name: Any = None, args: Any = None, help: Any = None, at_epoch_end: bool = False
    ) -> Any:
        """`add_verb` as a decorator: ``@run.verb`` or ``@run.verb("name", args={…})``."""
        if callable(name):
            self.add_verb(name.__name__, name)
            return name

        def register(function: F) -> F:
            self.add_verb(name or function.__name__, function, args, help, at_epoch_end)
            return function

        return register

    def _rebind(self, name: str, get: Any, set: Any) -> bool:
        """Gives a registered parameter other callbacks; False when there is none of this name."""
        if name not in self._params:
            return False
        binding = self._params[name][0]
        binding.param = _with_callbacks(binding.param, get, set)
        return True

    def _rebind_verb(self, name: str, function: Callable[..., Any]) -> bool:
        if name not in self._verbs:
            return False
        self._verbs[name][0].function = function
        return True

    def _has_verb(self, name: str) -> bool:
        return name in self._verbs

    def _live(self) -> Any:
        """For use in a call's own expression: a variable in a frame that a traceback keeps would keep
        the run open."""
        ptr = self._ptr
        if ptr is None:
            raise StateError(f"run {self._id} is closed")
        return ptr

    def close(self) -> None:
        """Ends the run: the doors are removed, who waits for a command is told. A second call does
        nothing; a run that is forgotten is closed when it is collected, or at exit."""
        if self._ptr is None:
            return
        if not self._inside.acquire(blocking=False):
            raise StateError("a run cannot be closed inside of its own callbacks or safe points")
        try:
            for name in _KEPT:
                self._keep(name)
            cell = _dead_cell()
            cell[_STEP], cell[_EPOCH] = self.step, self.epoch
            self._close_gate()
            self._pending, self._cell, self._due = self._stopped, cell, cell[_DUE_STEP]
            self._ptr = None  # the last one to look at it; with it C ends the run
            _RUNS.discard(self)
        finally:
            self._inside.release()
        warn_pending(stacklevel=2)

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._ptr is None else f"step {self.step}"
        return f"<kajitori.Run {self._id} ({state})>"

    def __reduce__(self) -> Any:
        raise UnsupportedError("a kajitori.Run belongs to its process and cannot be pickled")


def _with_callbacks(param: Param, get: Any, set: Any) -> Param:
    return Param(**{**vars(param), "get": get, "set": set})


def _describe_arg(c_arg: Any, of: str, name: str, arg: Arg, keep: list[Any]) -> None:
    c_arg.size = ffi.sizeof("kj_arg")
    c_arg.type = type_code(of, arg.type)
    c_arg.name = text(f"{of}: name", name, keep)
    c_arg.help = text(f"{of}: help", arg.help, keep)
    bits = (lib.KJ_ARG_MIN, lib.KJ_ARG_MAX, lib.KJ_ARG_MIN_EXCLUSIVE)
    c_arg.flags = range_flags(arg.min, arg.max, arg.min_exclusive, bits)
    c_arg.flags |= lib.KJ_ARG_REQUIRED if arg.required else 0
    c_arg.min = limit(of, arg.min)
    c_arg.max = limit(of, arg.max)
