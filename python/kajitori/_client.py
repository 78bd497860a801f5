# SPDX-License-Identifier: Apache-2.0
"""The other side of the channel: find runs and talk to them (docs/protocol.md)."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kajitori._errors import ArgumentError, StateError, check, new_error
from kajitori._ffi import ffi, lib
from kajitori._values import Interrupted, path, text

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


def connect(run: str | None = None, runtime_dir: str | os.PathLike[str] | None = None) -> Client:
    """A connection to the run whose id begins with `run`, or to the only one.

    Raises `NoSuchRunError`, `AmbiguousRunError`.
    """
    err = new_error()
    found = _RunList(runtime_dir).list
    result = ffi.new("const kj_run_info **")
    keep: list[Any] = []
    check(lib.kj_run_list_find(found, text("run", run, keep), result, err), err)
    return Client(_info(result[0]))


class Client:
    """One connection to a run. For one thread at a time; a context manager."""

    def __init__(self, info: RunInfo) -> None:
        err = new_error()
        result = ffi.new("kj_client **")
        check(lib.kj_client_open(os.fsencode(info.dir), result, err), err)
        self._client = ffi.gc(result[0], lib.kj_client_close)
        self._interrupted = Interrupted()
        self._handle = ffi.new_handle(self._interrupted)
        lib.kj_client_set_interrupt(self._client, lib.kjp_look, self._handle)
        self.info = info

    def _open(self) -> Any:
        if self._client is None:
            raise StateError("the connection is closed")
        return self._client

    def _check(self, result: int, err: Any) -> None:
        """`check`, but first what a signal handler raised while C waited."""
        interrupted, self._interrupted.error = self._interrupted.error, None
        if interrupted is not None:
            raise interrupted
        check(result, err)

    def call(
        self, method: str, params: dict[str, Any] | None = None, timeout: float | None = 10.0
    ) -> Any:
        """The result of one JSON-RPC method. `timeout` in seconds, None waits for ever.

        Raises `WaitTimeoutError`, `RunEndedError`, or the run's own refusal.
        """
        err = new_error()
        result = ffi.new("char **")
        body = ffi.NULL if params is None else json.dumps(params).encode()
        self._check(
            lib.kj_client_call(self._open(), method.encode(), body, _ms(timeout), result, err), err
        )
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
        """Sends one command as text, for example ``"set lr=0.1"``, and waits until it is "accepted"
        (checked, numbered and journalled; what to wait for when it is scheduled), "applied" (begun, at
        its step), or "done". Returns its record: seq, state, step, old, new, result, …

        Raises `RejectedError`, `FailedError` with the run's reason, `WaitTimeoutError` (it may still
        be applied), `RunEndedError`.
        """
        if wait not in WAITS:
            raise ArgumentError(f"wait: {wait!r} is none of {', '.join(WAITS)}")
        err = new_error()
        result = ffi.new("char **")
        params = {"line": line} | ({} if by is None else {"by": by})
        self._check(
            lib.kj_client_command(
                self._open(), json.dumps(params).encode(), WAITS[wait], _ms(timeout), result, err
            ),
            err,
        )
        return _take_json(result)

    def events(self, timeout: float | None = None) -> Iterator[dict[str, Any]]:
        """Subscribes, then yields events as they come. Ends when the run ends, or when none came
        for `timeout` seconds."""
        self.call("subscribe", {})
        while True:
            err = new_error()
            result = ffi.new("char **")
            found = lib.kj_client_next_event(self._open(), _ms(timeout), result, err)
            if found == 0 or found == lib.KJ_EENDED:
                return
            self._check(found, err)
            yield _take_json(result)

    def close(self) -> None:
        """Ends the connection. A second call does nothing."""
        client, self._client = self._client, None
        if client is not None:
            ffi.release(client)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _ms(timeout: float | None) -> int:
    return -1 if timeout is None else int(max(0, min(timeout * 1000, 2**31 - 1)))


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
