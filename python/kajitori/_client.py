# SPDX-License-Identifier: Apache-2.0
"""The other side of the channel: find runs and talk to them (docs/protocol.md)."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kajitori._errors import (
    ArgumentError,
    NoSuchRunError,
    RunEndedError,
    StateError,
    check,
    new_error,
)
from kajitori._ffi import ffi, lib
from kajitori._values import Interrupted, Scalar, path, text

WAITS: dict[str, int] = {
    "accepted": lib.KJ_WAIT_ACCEPTED,
    "applied": lib.KJ_WAIT_APPLIED,
    "done": lib.KJ_WAIT_DONE,
}


@dataclass(frozen=True)
class RunInfo:
    """A live run. `dir` is the folder of its doors; `trial` is -1 and `study` "" outside of a study;
    `start_time` is in seconds since 1970; `json` is its whole run.json."""

    id: str
    name: str
    pid: int
    dir: str
    framework: str
    study: str
    trial: int
    start_time: float
    json: dict[str, Any]


def _string(pointer: Any) -> str:
    return ffi.string(pointer).decode(errors="replace") if pointer else ""


def _take_json(pointer: Any) -> Any:
    """The JSON text at ``char **`` `pointer`, which is freed."""
    try:
        return json.loads(ffi.string(pointer[0]))
    finally:
        lib.kj_free(pointer[0])


def _info(info: Any) -> RunInfo:
    return RunInfo(
        id=_string(info.id),
        name=_string(info.name),
        pid=info.pid,
        dir=os.fsdecode(ffi.string(info.dir)),
        framework=_string(info.framework),
        study=_string(info.study),
        trial=info.trial,
        start_time=info.start_time,
        json=json.loads(_string(info.json) or "{}"),
    )


class _RunList:
    def __init__(self, runtime_dir: str | os.PathLike[str] | None) -> None:
        err = new_error()
        result = ffi.new("kj_run_list **")
        keep: list[Any] = []
        check(lib.kj_run_list_load(path("runtime_dir", runtime_dir, keep), result, err), err)
        self.list = ffi.gc(result[0], lib.kj_run_list_free)


def runs(runtime_dir: str | os.PathLike[str] | None = None) -> list[RunInfo]:
    """The live runs of this user, oldest first; of all places where they may be, or of
    `runtime_dir` only."""
    found = _RunList(runtime_dir).list
    return [_info(lib.kj_run_list_get(found, i)) for i in range(lib.kj_run_list_size(found))]


def connect(
    run: str | None = None,
    runtime_dir: str | os.PathLike[str] | None = None,
    read_only: bool = False,
) -> Client:
    """A connection to the run whose id begins with `run`, or to the only one; with `read_only` one
    that can ask everything and change nothing.

    Raises `NoSuchRunError`, `AmbiguousRunError`.
    """
    err = new_error()
    found = _RunList(runtime_dir).list
    result = ffi.new("const kj_run_info **")
    keep: list[Any] = []
    check(lib.kj_run_list_find(found, text("run", run, keep), result, err), err)
    return Client(_info(result[0]), read_only)


class Client:
    """One connection to a run; a context manager. For one thread at a time: while one call waits,
    a second one is a `StateError`.

    The methods that send a command (`set`, `stop`, `pause`, …) take the options of `command`:

    at: "now" (the next safe point), "step:N", "epoch" (the end of the one that runs), "epoch:N".
    by: who says so. reason: why. Both are recorded.
    command_id: makes a repeat harmless.
    dry_run: checked and answered, not carried out.
    wait: until it is "accepted" (checked, numbered and journalled; for one that is scheduled),
        "applied" (begun, at its step) or "done".
    timeout: of that wait, in seconds; None waits for ever.

    They return the command's record (seq, state, step, old, new, result, …), and raise
    `RejectedError` or `FailedError` with the run's reason, `WaitTimeoutError` (it may still be
    applied), `RunEndedError`.
    """

    def __init__(self, info: RunInfo, read_only: bool = False) -> None:
        self.info = info
        self._read_only = read_only
        self._lock = threading.Lock()
        self._interrupted = Interrupted()
        self._handle = ffi.new_handle(self._interrupted)
        self._client = self._connect()

    def _connect(self) -> Any:
        err = new_error()
        options = ffi.new("kj_client_options *", {"size": ffi.sizeof("kj_client_options")})
        options.flags = lib.KJ_CLIENT_READ_ONLY if self._read_only else 0
        result = ffi.new("kj_client **")
        check(lib.kj_client_open_with(os.fsencode(self.info.dir), options, result, err), err)
        client = ffi.gc(result[0], lib.kj_client_close)
        lib.kj_client_set_interrupt(client, lib.kjp_look, self._handle)
        return client

    @contextlib.contextmanager
    def _using(self) -> Iterator[Any]:
        """The connection, for one call into C."""
        if not self._lock.acquire(blocking=False):
            raise StateError("a connection is for one thread at a time; another call waits in it")
        try:
            if self._client is None:
                raise StateError("the connection is closed")
            yield self._client
        finally:
            self._lock.release()

    def _check(self, result: int, err: Any) -> None:
        """`check`, but first what a signal handler raised while C waited."""
        interrupted, self._interrupted.error = self._interrupted.error, None
        if interrupted is not None:
            raise interrupted
        check(result, err)

    @property
    def version(self) -> str:
        """The version of the library in the run."""
        with self._using() as client:
            return _string(lib.kj_client_get_version(client))

    def call(
        self, method: str, params: dict[str, Any] | None = None, timeout: float | None = 10.0
    ) -> Any:
        """The result of one JSON-RPC method. `timeout` in seconds, None waits for ever.

        Raises `WaitTimeoutError`, `RunEndedError`, or the run's own refusal.
        """
        err = new_error()
        result = ffi.new("char **")
        keep: list[Any] = []
        name = text("method", method, keep)
        body = ffi.NULL if params is None else _body(params)
        with self._using() as client:
            r = lib.kj_client_call(client, name, body, _ms(timeout), result, err)
            self._check(r, err)
        return _take_json(result)

    def status(self, timeout: float | None = 10.0) -> dict[str, Any]:
        """State, step, epoch, phase, newest metrics, parameters, what is scheduled."""
        return self.call("status", None, timeout)

    def send(
        self,
        line: str,
        *,
        wait: str = "done",
        timeout: float | None = 60.0,
        by: str | None = None,
    ) -> dict[str, Any]:
        """Sends one command as text, for example ``"set lr=0.1 at=epoch"``."""
        return self._command({"line": line} | ({} if by is None else {"by": by}), wait, timeout)

    def command(
        self,
        verb: str,
        *words: str,
        args: Mapping[str, Any] | None = None,
        at: str | None = None,
        by: str | None = None,
        reason: str | None = None,
        command_id: str | None = None,
        dry_run: bool = False,
        wait: str = "done",
        timeout: float | None = 60.0,
    ) -> dict[str, Any]:
        """Sends the command `verb`, one of the program's own, too."""
        given = {"at": at, "by": by, "reason": reason, "command_id": command_id}
        params = {"verb": verb} | {key: value for key, value in given.items() if value is not None}
        params |= {"words": words} if words else {}
        if not isinstance(args or {}, Mapping):
            raise ArgumentError(f"args: {args!r} does not map names to values")
        params |= {"args": {k: v for k, v in args.items() if v is not None}} if args else {}
        return self._command(params | ({"dry_run": True} if dry_run else {}), wait, timeout)

    def _command(self, params: dict[str, Any], wait: str, timeout: float | None) -> dict[str, Any]:
        if wait not in list(WAITS):
            raise ArgumentError(f"wait: {wait!r} is none of {', '.join(WAITS)}")
        err = new_error()
        result = ffi.new("char **")
        body = _body(params)
        with self._using() as client:
            r = lib.kj_client_command(client, body, WAITS[wait], _ms(timeout), result, err)
            self._check(r, err)
        return _take_json(result)

    def set(self, values: Mapping[str, Scalar], **options: Any) -> dict[str, Any]:
        """Gives parameters new values, all or none."""
        return self.command("set", args=values, **options)

    def stop(
        self, *, save: bool | None = None, validate: bool | None = None, **options: Any
    ) -> dict[str, Any]:
        """Asks the training to leave its loop; `save`: after a checkpoint; `validate`: with or
        without the validation that it would still make."""
        return self.command("stop", args={"save": save, "validate": validate}, **options)

    def abort(self, **options: Any) -> dict[str, Any]:
        """Ends the training at once: no validation, no checkpoint."""
        return self.command("abort", **options)

    def prune(
        self,
        *,
        rule: str | None = None,
        value: float | None = None,
        threshold: float | None = None,
        save: bool | None = None,
        validate: bool | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        """Stops it by a rule; what the rule saw is recorded."""
        saw = {"rule": rule, "value": value, "threshold": threshold}
        return self.command("prune", args=saw | {"save": save, "validate": validate}, **options)

    def pause(
        self,
        level: str | None = None,
        for_: str | float | None = None,
        save: bool | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        """Lets the training wait ("hold", the default), for `for_` seconds (or "15m", "2h") or until
        `resume`; or ("leave") saves a checkpoint and ends the process."""
        args = {"level": level, "for": for_ if for_ is None else str(for_), "save": save}
        return self.command("pause", args=args, **options)

    def resume(self, **options: Any) -> dict[str, Any]:
        """Ends a pause that holds."""
        return self.command("resume", **options)

    def checkpoint(self, **options: Any) -> dict[str, Any]:
        """Saves all that a resumed training needs; the result's `path` says where."""
        return self.command("checkpoint", **options)

    def evaluate(self, **options: Any) -> dict[str, Any]:
        """Evaluates now; the result has the metrics."""
        return self.command("evaluate", **options)

    def extend(
        self, *, epochs: int | None = None, steps: int | None = None, **options: Any
    ) -> dict[str, Any]:
        """Lets the training go on for so many more epochs or steps."""
        return self.command("extend", args={"epochs": epochs, "steps": steps}, **options)

    def note(self, remark: str, **options: Any) -> dict[str, Any]:
        """Leaves a remark in the journal, for those who watch, too."""
        return self.command("note", remark, **options)

    def recover(self, *seqs: int, **options: Any) -> dict[str, Any]:
        """Carries out commands that a run of this id had accepted when it died: all, or those."""
        return self.command("recover", *map(str, seqs), **options)

    def events(
        self,
        timeout: float | None = None,
        after: str | None = None,
        kinds: Iterable[str] = ("command", "metric", "state"),
    ) -> Iterator[dict[str, Any]]:
        """Subscribes, and yields events as they come: those after `after`, the `cursor` of an event
        seen before, or from now on. Ends when the run ends, or when none came for `timeout` seconds.

        A connection that is lost is made again while the run lives, and goes on where it was. What the
        run does not keep any more is one event ``{"event": "gap", "lost": N}``.
        """
        wanted = {"events": list(kinds)}
        cursor = self._subscribe(wanted, after)
        return self._follow(wanted, cursor, timeout)

    def _subscribe(self, wanted: dict[str, Any], after: str | None) -> str | None:
        answer = self.call("subscribe", wanted | ({} if after is None else {"after": after}))
        return answer.get("cursor", after)

    def _follow(
        self, wanted: dict[str, Any], cursor: str | None, timeout: float | None
    ) -> Iterator[dict[str, Any]]:
        while True:
            err = new_error()
            result = ffi.new("char **")
            with self._using() as client:
                found = lib.kj_client_next_event(client, _ms(timeout), result, err)
            if found == 0:
                return
            if found == lib.KJ_EENDED:
                try:
                    self._client = self._connect()
                    cursor = self._subscribe(wanted, cursor)
                except (NoSuchRunError, RunEndedError):
                    return
                continue
            self._check(found, err)
            event = _take_json(result)
            cursor = event.get("cursor", cursor)
            yield event
            if event.get("event") == "state" and event.get("state") == "ended":
                return

    def close(self) -> None:
        """Ends the connection. A second call does nothing."""
        if self._client is not None:
            with self._using() as client:
                self._client = None
                ffi.release(client)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _ms(timeout: float | None) -> int:
    if timeout is None:
        return -1
    try:
        seconds = float(timeout)
        return 2**31 - 1 if seconds > 2e6 else max(0, int(seconds * 1000))  # NaN is no integer
    except (TypeError, ValueError):
        raise ArgumentError(f"timeout: {timeout!r} is no number of seconds") from None


def _plain(value: Any) -> Any:
    """A number of another library as Python's."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{value!r} is neither number, truth value nor text")


def _body(params: Any) -> bytes:
    try:
        return json.dumps(params, default=_plain).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ArgumentError(f"cannot be sent: {error}") from None


def _note_interrupt(_class: Any, error: BaseException, traceback: Any) -> None:
    ffi.from_handle(traceback.tb_frame.f_locals["userdata"]).error = error


@ffi.def_extern(error=1, onerror=_note_interrupt)
def kjp_look(userdata: Any) -> int:
    """Called by C while it waits. That Python is entered is all: it runs signal handlers then, and
    what one of them raises ends the wait."""
    return 0


@ffi.def_extern(error=-1)
def kjp_journal_line(userdata: Any, json_line: Any) -> int:
    ffi.from_handle(userdata).append(ffi.string(json_line))
    return 0


def journal(
    run: str | None = None, state_dir: str | os.PathLike[str] | None = None
) -> list[dict[str, Any]]:
    """The journal of the run whose id begins with `run` (None: the newest), also of one that has
    ended, oldest line first."""
    err = new_error()
    lines: list[bytes] = []
    keep: list[Any] = []
    handle = ffi.new_handle(lines)
    check(
        lib.kj_journal_read(
            path("state_dir", state_dir, keep),
            text("run", run, keep),
            lib.kjp_journal_line,
            handle,
            ffi.NULL,
            err,
        ),
        err,
    )
    return [json.loads(line) for line in lines]
