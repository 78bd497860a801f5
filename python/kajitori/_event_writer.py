# SPDX-License-Identifier: Apache-2.0
"""Writes TensorBoard event files: `EventWriter`."""

from __future__ import annotations

import math
import os
import threading
import weakref
from collections.abc import Iterable, Mapping
from typing import Any

from kajitori._errors import ArgumentError, StateError, UnsupportedError, check, new_error
from kajitori._ffi import ffi, lib
from kajitori._values import Scalar, path, text, whole

_STATUSES: dict[str, int] = {
    "success": lib.KJ_HPARAMS_SUCCESS,
    "failure": lib.KJ_HPARAMS_FAILURE,
    "running": lib.KJ_HPARAMS_RUNNING,
}


class _Handle:
    """The C writer, None once it is closed, and the lock of all who use it.

    A signal handler may use the writer that it interrupted, or close it. It never runs inside of a
    C call, nor between a look at `ptr` and the C call that gets it: no Python function is called
    in between."""

    __slots__ = ("__weakref__", "lock", "ptr")

    def __init__(self, ptr: Any) -> None:
        self.ptr = ptr
        self.lock = threading.RLock()
        _HANDLES.add(self)


_HANDLES: weakref.WeakSet[_Handle] = weakref.WeakSet()


def _forget_other_threads() -> None:
    """A forked child has only its own thread: no other is inside of a writer."""
    for handle in list(_HANDLES):
        handle.lock = threading.RLock()


os.register_at_fork(after_in_child=_forget_other_threads)


def _close_forgotten(handle: _Handle) -> None:
    if handle.lock.acquire(blocking=False):  # else a daemon thread is in it: ends with the process
        ptr, handle.ptr = handle.ptr, None
        lib.kj_event_writer_close(ptr or ffi.NULL, ffi.NULL)
        handle.lock.release()


def _bytes(of: str, value: str) -> bytes:
    """UTF-8 that C can take as it is."""
    try:
        raw = value.encode()
    except (AttributeError, UnicodeEncodeError):
        raise ArgumentError(f"{of}: {value!r} is no text") from None
    if b"\0" in raw:
        raise ArgumentError(f"{of}: {value!r} has a NUL in it")
    return raw


def _set_value(c_value: Any, name: str, value: Any, keep: list[Any]) -> None:
    """`value`, or what a NumPy scalar holds, as a ``kj_value``."""
    if not isinstance(value, (bool, int, float, str)) and hasattr(value, "item"):
        value = value.item()
    if isinstance(value, bool):
        c_value.type, c_value.i = lib.KJ_TYPE_BOOL, value
    elif isinstance(value, int) and -(2**63) <= value < 2**63:
        c_value.type, c_value.i = lib.KJ_TYPE_INT, value
    elif isinstance(value, (int, float)):
        c_value.type, c_value.f = lib.KJ_TYPE_FLOAT, value
    elif isinstance(value, str):
        c_value.type, c_value.s = lib.KJ_TYPE_STRING, text(f"hyperparameter {name}", value, keep)
    else:
        raise ArgumentError(f"hyperparameter {name}: {value!r} is none of bool, int, float, str")


class EventWriter:
    """Writes scalars, text and hyperparameters for TensorBoard. A context manager.

    ::

        with kajitori.EventWriter("logs/7") as writer:
            writer.add_scalar("loss", step, loss)

    Each record is in the file when the call returns, whole; nothing of TensorFlow or TensorBoard is
    needed. All threads of a process may use one writer, and signal handlers. In a forked child it
    writes nothing.

    append: go on in the newest file that such a writer of this host left in the folder; several
        processes may do so at the same time. Otherwise each writer has a file of its own.
    double: scalars with 64 bits. TensorBoard shows them only with ``--load_fast=false``.
    buffer: records wait until there are 64 KiB of them, or for `flush` or `close`.
    suffix: end of the file's name.
    purge_step: this writer goes on from an earlier one, whose points from this step on count no more.

    Raises `ArgumentError` for what cannot be meant, `Error` when the file cannot be written; a call
    that raises has written nothing of its record, and the next one goes on in good order.
    """

    __slots__ = ("__weakref__", "_err", "_handle", "_path")

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        append: bool = False,
        double: bool = False,
        buffer: bool = False,
        suffix: str = "",
        purge_step: int | None = None,
    ) -> None:
        keep: list[Any] = []
        options = ffi.new(
            "kj_event_writer_options *", {"size": ffi.sizeof("kj_event_writer_options")}
        )
        options.flags = (
            (lib.KJ_EVENT_WRITER_APPEND if append else 0)
            | (lib.KJ_EVENT_WRITER_DOUBLE if double else 0)
            | (lib.KJ_EVENT_WRITER_BUFFER if buffer else 0)
        )
        options.suffix = text("suffix", suffix, keep)
        if purge_step is not None:
            options.purge_step = whole("purge_step", purge_step)
            options.has_purge_step = 1
        self._err = new_error()
        result = ffi.new("kj_event_writer **")
        where = path("folder", folder, keep)
        check(lib.kj_event_writer_open(where, options, result, self._err), self._err)
        self._handle = _Handle(result[0])
        self._path = os.fsdecode(ffi.string(lib.kj_event_writer_path(result[0])))
        weakref.finalize(self, _close_forgotten, self._handle)

    @property
    def path(self) -> str:
        """Path of the file."""
        return self._path

    @property
    def closed(self) -> bool:
        """True after `close`."""
        return self._handle.ptr is None

    def _call(self, function: Any, *args: Any) -> None:
        handle = self._handle
        with handle.lock:
            ptr = handle.ptr
            if ptr is None:
                raise StateError(f"the writer of {self._path} is closed")
            check(function(ptr, *args, self._err), self._err)

    def add_scalar(self, tag: str, step: int, value: float, wall_time: float | None = None) -> None:
        """Writes a value of `tag` (1 to 4096 bytes). NaN and infinities are values. `wall_time` is in
        seconds since 1970 [now]."""
        name, step, value = _bytes("tag", tag), whole("step", step), float(value)
        time = math.nan if wall_time is None else float(wall_time)
        self._call(lib.kj_event_writer_add_scalar, name, step, time, value)

    def add_text(self, tag: str, step: int, text: str, wall_time: float | None = None) -> None:
        """Writes Markdown for TensorBoard's page "Text", at most 1 MiB."""
        name, step, content = _bytes("tag", tag), whole("step", step), _bytes("text", text)
        time = math.nan if wall_time is None else float(wall_time)
        self._call(lib.kj_event_writer_add_text, name, step, time, content)

    def add_hparams(
        self,
        params: Mapping[str, Scalar],
        *,
        metrics: Iterable[str] = (),
        group: str | None = None,
        start_time: float = 0.0,
    ) -> None:
        """Writes the hyperparameters of this run, for TensorBoard's page "HParams". It takes the
        first call of a run only.

        metrics: tags of the scalars that are shown beside them, for all runs of a log folder. Without
            any, TensorBoard looks for itself.
        group: runs of one trial have the same [the folder's name].
        start_time: in seconds since 1970 [now].
        """
        keep: list[Any] = []
        if not isinstance(params, Mapping):
            raise ArgumentError(f"params: {params!r} does not map names to values")
        c_params = ffi.new("kj_hparam[]", max(len(params), 1))
        for c_param, (name, value) in zip(c_params, params.items(), strict=False):
            c_param.name = text("name of a hyperparameter", name, keep)
            _set_value(c_param.value, name, value, keep)
        if isinstance(metrics, str) or not isinstance(metrics, Iterable):
            raise ArgumentError(f"metrics: {metrics!r} is no list of tags")
        tags = [text("metric", tag, keep) for tag in metrics]
        hparams = ffi.new("kj_hparams *", {"size": ffi.sizeof("kj_hparams")})
        hparams.params, hparams.n_params = c_params, len(params)
        hparams.metrics = c_tags = ffi.new("const char *[]", tags)
        hparams.n_metrics = len(tags)
        hparams.group = text("group", group, keep)
        hparams.start_time = start_time
        self._call(lib.kj_event_writer_add_hparams, hparams)
        del c_tags

    def end_hparams(self, status: str = "success", end_time: float = 0.0) -> None:
        """How the run of `add_hparams` ended: "success", "failure" or "running"."""
        if status not in list(_STATUSES):
            raise ArgumentError(f"status {status!r} is none of {', '.join(_STATUSES)}")
        self._call(lib.kj_event_writer_end_hparams, _STATUSES[status], end_time)

    def flush(self) -> None:
        """With ``buffer=True``: what waits is in the file afterwards."""
        self._call(lib.kj_event_writer_flush)

    def sync(self) -> None:
        """`flush`, and the file is on the disk."""
        self._call(lib.kj_event_writer_sync)

    def close(self) -> None:
        """Writes what waits. A second call does nothing; a writer that is forgotten is closed when it
        is collected, or at exit."""
        with self._handle.lock:
            ptr, self._handle.ptr = self._handle.ptr, None
            if ptr is not None:
                check(lib.kj_event_writer_close(ptr, self._err), self._err)

    def __reduce__(self) -> Any:
        raise UnsupportedError(
            "a kajitori.EventWriter belongs to its process and cannot be pickled"
        )

    def __enter__(self) -> EventWriter:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<kajitori.EventWriter {self._path}{' (closed)' if self.closed else ''}>"
