# SPDX-License-Identifier: Apache-2.0
"""Metrics that trainings write, read while they grow: `EventReader`, and `read_events` for what is
there already.

Waiting is done in Python, on the reader's descriptor: signal handlers run as in any other wait, and
`EventReader.finish` of another thread ends it.
"""

from __future__ import annotations

import math
import os
import re
import select
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Any

from kajitori._columns import Columns, columns_of
from kajitori._errors import (
    ArgumentError,
    EventWarning,
    NotFoundError,
    StateError,
    UnsupportedError,
    check,
    new_error,
    warn_pending,
)
from kajitori._event_info import (
    Damage,
    EventStats,
    FileInfo,
    Listing,
    TagInfo,
    names_of,
    stats_of,
    tag_info_of,
    text_of,
)
from kajitori._ffi import ffi, lib
from kajitori._values import path, whole

Source = str | os.PathLike[str]

MERGES: dict[str, int] = {
    "all": lib.KJ_MERGE_ALL,
    "last": lib.KJ_MERGE_LAST,
    "first": lib.KJ_MERGE_FIRST,
}
_SOURCES = names_of(lib.kj_events_source_name)
_LOOK_MS = 1000  # a signal that comes just before a wait begins is seen after that time


def _bytes(of: str, value: str | bytes) -> bytes:
    """A name as it stands in a file."""
    if isinstance(value, bytes):
        return value
    try:
        return value.encode(errors="surrogateescape")
    except (AttributeError, UnicodeEncodeError):
        raise ArgumentError(f"{of}: {value!r} is no text") from None


def _is_spec(source: Source) -> bool:
    """Whether it begins with the name of a source and a colon, or looks so and is no path: then C
    says which names there are."""
    name = re.match(r"([a-z]+):", source) if isinstance(source, str) else None
    return bool(name) and (name[1] in _SOURCES or not os.path.exists(source))


def _spec(source: Source, tag: str | bytes | None) -> bytes:
    """`source` as C wants it: a spec as it stands, anything else as a place of event files."""
    if source is None:
        raise ArgumentError("source: None is no path")
    if _is_spec(source):
        spec = os.fsencode(source)
        if tag is not None and re.match(rb"[a-z]+:(?:[^\\:]|\\.)*:", spec, re.S):
            raise ArgumentError(f"tag: {source!r} names one already")
    else:
        folder = ffi.string(path("source", source, [])).replace(b"\\", b"\\\\")
        spec = b"events:" + folder.replace(b":", b"\\:")
    if tag is not None:
        spec += b":" + _bytes("tag", tag)
    if b"\0" in spec:
        raise ArgumentError(f"{spec!r} has a NUL in it")
    return spec


def _milliseconds(of: str, value: float | None) -> int:
    """0, the library's default, for None."""
    number = 0 if value is None else whole(of, value)
    if not 0 <= number < 2**32:
        raise ArgumentError(f"{of}: {value!r} is no number of milliseconds")
    return number


_READERS: weakref.WeakSet[EventReader] = weakref.WeakSet()


def _leave_to_other_threads() -> None:
    """A forked child has only its own thread: what another one was inside of is left as it is."""
    for reader in list(_READERS):
        if reader._lock.locked() and reader._events is not None:
            ffi.gc(reader._events, None)


os.register_at_fork(after_in_child=_leave_to_other_threads)


def _deadline(timeout: float | None) -> float:
    try:
        seconds = math.inf if timeout is None else float(timeout)
    except (TypeError, ValueError):
        seconds = math.nan
    if math.isnan(seconds):
        raise ArgumentError(f"timeout: {timeout!r} is no number of seconds")
    return time.monotonic() + seconds


class EventReader:
    """Follows what trainings write: TensorBoard event files, and the other sources of docs/metrics.md.
    A context manager and an iterator.

    ::

        with kajitori.EventReader("logs", tag="epoch_loss") as reader:
            for columns in reader:          # what is new, until somebody calls reader.finish()
                for step, value in zip(columns.step, columns.value):
                    print(step, value)

    source: a folder, an event file, or text that begins with the name of a source, as
        ``"csv:metrics.csv"``. It need not exist yet.
    tag, run: only this tag (``RUN/TAG`` too, where no tag has that name), only this run.
    finished: nothing will be appended any more: damage is not waited for, and the iterator ends.
    poll: without inotify, as on network file systems.
    check_all: check the payload checksum of every record, also of large ones without a scalar.
    keep: keep all points, for `history`.
    cursor: go on where another reader was, from its `cursor`.
    poll_ms, grace_ms: see docs/event-reader.md.

    For one thread at a time: while one call goes on, a second one is a `StateError`. `finish` may be
    called from any thread, and from a signal handler. What cannot be read for the time being, or is
    ignored, is one `EventWarning`.

    Raises `ArgumentError` for a source that cannot work, `DataError` for a cursor of another one.
    """

    def __init__(
        self,
        source: Source,
        *,
        tag: str | bytes | None = None,
        run: str | None = None,
        finished: bool = False,
        poll: bool = False,
        check_all: bool = False,
        keep: bool = False,
        cursor: str | bytes | None = None,
        poll_ms: int | None = None,
        grace_ms: int | None = None,
    ) -> None:
        self._lock, self._finish_lock = threading.Lock(), threading.RLock()
        keep_alive: list[Any] = []
        options = ffi.new("kj_events_options *", {"size": ffi.sizeof("kj_events_options")})
        options.flags = (
            (lib.KJ_EVENTS_FINISHED if finished else 0)
            | (lib.KJ_EVENTS_POLL if poll else 0)
            | (lib.KJ_EVENTS_CHECK_ALL if check_all else 0)
            | (lib.KJ_EVENTS_KEEP if keep else 0)
        )
        options.poll_ms = _milliseconds("poll_ms", poll_ms)
        options.grace_ms = _milliseconds("grace_ms", grace_ms)
        options.run = path("run", run, keep_alive)
        if cursor is not None:
            keep_alive.append(ffi.new("char[]", _bytes("cursor", cursor)))
            options.cursor = keep_alive[-1]
        err = new_error()
        result = ffi.new("kj_events **")
        check(lib.kj_events_open(_spec(source, tag), options, result, err), err)
        self._events = ffi.gc(result[0], lib.kj_events_close)
        self._err, self._result = err, ffi.new("kj_columns **")  # of every kj_events_next
        self._finishing, self._pid = finished, os.getpid()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._close_wake = weakref.finalize(self, os.close, self._wake)
        self._poll = select.poll()
        self._poll.register(lib.kj_events_get_fd(self._events), select.POLLIN)
        self._poll.register(self._wake, select.POLLIN)
        _READERS.add(self)

    def _turn(self) -> threading.Lock:
        """The lock, for one call. It is entered by the caller itself: nothing that a signal handler
        raises comes between the lock and its release."""
        if os.getpid() != self._pid:
            raise StateError("the reader belongs to the process that made it")
        if self._lock.locked():
            raise StateError("a reader is for one thread at a time; another call goes on in it")
        return self._lock

    def _live(self) -> Any:
        if self._events is None:
            raise StateError("the reader is closed")
        return self._events

    def _next(self, events: Any, max_points: int) -> Columns:
        """What is there now."""
        if self._finishing and not lib.kj_events_is_finished(events):
            lib.kj_events_finish(events)
        check(lib.kj_events_next(events, 0, max_points, self._result, self._err), self._err)
        return columns_of(self._result[0])

    def _read(self, deadline: float, max_points: int) -> Columns:
        with self._turn():
            events = self._live()
            columns = self._next(events, max_points)
            while not len(columns) and not lib.kj_events_is_finished(events):
                left = deadline - time.monotonic()
                if left <= 0:
                    break
                if self._poll.poll(min(_LOOK_MS, math.ceil(min(left, 1e6) * 1000))):
                    columns = self._next(events, max_points)
        warn_pending(stacklevel=3, category=EventWarning)
        return columns

    def read(self, timeout: float | None = 0.0, max_points: int = 0) -> Columns:
        """What is new, at most `max_points` of it [65536]. Waits until there is something, at most
        `timeout` seconds (None: for ever); empty when nothing came, or nothing is left of a source
        that is finished."""
        number = whole("max_points", max_points)
        if number < 0:
            raise ArgumentError(f"max_points: {max_points!r} is negative")
        return self._read(_deadline(timeout), number)

    def __iter__(self) -> Iterator[Columns]:
        return self

    def __next__(self) -> Columns:
        columns = self._read(math.inf, 0)
        if not len(columns):
            raise StopIteration
        return columns

    def finish(self) -> None:
        """Nothing will be appended any more: what is there is still delivered, damage is not waited
        for, and the iterator ends. In any thread."""
        if os.getpid() != self._pid:
            return
        self._finishing = True
        with self._finish_lock:  # so that nobody closes it meanwhile
            if self._close_wake.alive:
                os.eventfd_write(self._wake, 1)

    def fileno(self) -> int:
        """For `selectors`: readable when `read` has something to look at."""
        with self._turn():
            events = self._live()
            return lib.kj_events_get_fd(events)

    def tags(self) -> list[TagInfo]:
        """All tags seen so far, whether they were asked for or not, sorted by run, then tag."""
        return self._list(lib.kj_events_list_tags, lib.kjp_tag, new_error())

    def _list(self, function: Any, callback: Any, *err: Any) -> list[Any]:
        """What `callback` makes of all that `function` calls it with; `err` if that can fail."""
        with self._turn():
            events = self._live()
            listing = Listing()
            handle = ffi.new_handle(listing)
            r = function(events, callback, handle, *err)
        if listing.error is not None:
            raise listing.error
        if err:
            check(r, *err)
        return listing.rows

    def files(self) -> list[FileInfo]:
        """Every file, in the order of delivery."""
        return self._list(lib.kj_events_list_files, lib.kjp_file)

    def damage(self) -> list[Damage]:
        """What is damaged, file by file, what was skipped first."""
        return self._list(lib.kj_events_list_damage, lib.kjp_damage)

    def stats(self) -> EventStats:
        """The figures of all files so far."""
        with self._turn():
            events = self._live()
            stats = ffi.new("kj_events_stats *", {"size": ffi.sizeof("kj_events_stats")})
            lib.kj_events_get_stats(events, stats)
        return stats_of(stats)

    def series(self, number: int) -> TagInfo:
        """The run and tag of an element of `Columns.series`. Raises `NotFoundError`."""
        index = whole("series", number)
        if not 0 <= index < 2**32:
            raise NotFoundError(f"series: there is no {index}")
        with self._turn():
            events = self._live()
            err = new_error()
            info = ffi.new("kj_tag_info *", {"size": ffi.sizeof("kj_tag_info")})
            check(lib.kj_events_get_series(events, index, info, err), err)
            return tag_info_of(info)

    def history(self, run: str, tag: str | bytes, merge: str = "all") -> Columns:
        """All points of one tag of one run that were read so far, with ``keep=True``. `merge`: "all"
        in the order in which they were read, without a copy; "last" and "first": by step, one point
        each, the last or the first one read; with "last" a restart takes back what was read before it
        at its step and beyond. Raises `NotFoundError`, which names the nearest."""
        if merge not in list(MERGES):
            raise ArgumentError(f"merge: {merge!r} is none of {', '.join(MERGES)}")
        keep_alive: list[Any] = []
        name = _bytes("tag", tag)
        with self._turn():
            events = self._live()
            err = new_error()
            result = ffi.new("kj_columns **")
            r = lib.kj_events_get_history(
                events, path("run", run, keep_alive), name, len(name), MERGES[merge], result, err
            )
            check(r, err)
            return columns_of(result[0])

    @property
    def cursor(self) -> str:
        """Where the reader is, as one line. A reader that is made with it, here or in another
        process, delivers what this one has not delivered yet, and nothing twice."""
        with self._turn():
            events = self._live()
            err = new_error()
            result = ffi.new("char **")
            check(lib.kj_events_get_cursor(events, result, ffi.new("uint64_t *"), err), err)
            try:
                return text_of(result[0])
            finally:
                lib.kj_free(result[0])

    def _drain(self) -> None:
        """Reads all that is there, to be kept."""
        with self._turn():
            events = self._live()
            err = new_error()
            while check(lib.kj_events_step(events, 0, ffi.NULL, ffi.NULL, err), err):
                pass
        warn_pending(stacklevel=3, category=EventWarning)

    def close(self) -> None:
        """Columns stay as they are. A second call does nothing."""
        if self._events is None:
            return
        if os.getpid() != self._pid:
            self._events = None
            return
        with self._turn(), self._finish_lock:
            events, self._events = self._events, None
            if events is not None:
                ffi.release(events)
                self._close_wake()

    def __reduce__(self) -> Any:
        raise UnsupportedError(
            "a kajitori.EventReader belongs to its process and cannot be pickled; its cursor can"
        )

    def __enter__(self) -> EventReader:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _refuse_nothing(source: Source, tag: Any, run: Any, tags: list[TagInfo]) -> None:
    asked = [f"{what} {name!r}" for what, name in (("tag", tag), ("run", run)) if name is not None]
    there = ", ".join(f"{info.tag!r} of {info.run!r}" for info in tags[:10])
    more = f", and {len(tags) - 10} more" if len(tags) > 10 else ""
    raise NotFoundError(
        f"{os.fspath(source)}: no {' of '.join(asked) or 'such tag'}; there is: {there or 'nothing'}{more}"
    )


def read_events(
    source: Source,
    tag: str | bytes | None = None,
    run: str | None = None,
    merge: str = "all",
    finished: bool = True,
) -> dict[tuple[str, str], Columns]:
    """All points that are there now, as ``{(run, tag): columns}``, sorted. `source`, `tag` and `run`
    as for `EventReader`, `merge` as for `EventReader.history`. ``finished=False``: what is torn or
    damaged may still heal, and is left out; else it is skipped over.

    Raises `NotFoundError` when the folder is not there, or nothing has the `tag` or `run` asked for,
    be it in `source`.
    """
    with EventReader(source, tag=tag, run=run, finished=finished, keep=True) as reader:
        reader._drain()
        tags = reader.tags()
        found = {
            (info.run, info.tag): reader.history(info.run, info.tag, merge)
            for info in tags
            if info.selected
        }
        if not found and (tags or tag is not None or run is not None):
            _refuse_nothing(source, tag, run, tags)
        if not tags and not _is_spec(source) and not os.path.exists(source):
            raise NotFoundError(f"{os.fspath(source)}: no such folder")
        return found
