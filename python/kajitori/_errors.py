# SPDX-License-Identifier: Apache-2.0
"""Exceptions for the library's error codes, both ways, and its warnings."""

from __future__ import annotations

import warnings
from typing import Any

from kajitori._ffi import ffi, lib


class Error(Exception):
    """Something the library refused or could not do. The message is one line.

    `code` is the number in ``enum kj_error_code``, always negative; `domain` and `native` name the
    failure below it (for example ``"errno"`` and 13), or are ``""`` and 0.
    """

    code: int = lib.KJ_EFAILED
    domain: str = ""
    native: int = 0


class ArgumentError(Error, ValueError):
    """An argument that cannot be meant."""

    code = lib.KJ_EARG


class OutOfRangeError(Error, ValueError):
    """A value outside of its declared range."""

    code = lib.KJ_ERANGE


class NotFoundError(Error, LookupError):
    """Something named is not there."""

    code = lib.KJ_ENOENT


class ExistsError(Error):
    """The name is taken."""

    code = lib.KJ_EEXIST


class NoSuchRunError(Error, LookupError):
    """No live run (or no journal) has this id."""

    code = lib.KJ_ENORUN


class AmbiguousRunError(Error, LookupError):
    """Several runs fit; the message lists them."""

    code = lib.KJ_EAMBIGUOUS


class RejectedError(Error):
    """The run refused the command; the message is its reason. Nothing was applied."""

    code = lib.KJ_EREJECTED


class WaitTimeoutError(Error, TimeoutError):
    """No answer in time. A command that was accepted may still be applied."""

    code = lib.KJ_ETIMEOUT


class RunEndedError(Error):
    """The run ended before it answered."""

    code = lib.KJ_EENDED


class ProtocolError(Error):
    """The other side speaks another protocol, or another version."""

    code = lib.KJ_EPROTO


class StateError(Error):
    """Not possible now, for example after `Run.close`."""

    code = lib.KJ_ESTATE


class UnsupportedError(Error):
    """This training cannot do that; the message says why."""

    code = lib.KJ_EUNSUPPORTED


class DataError(Error, ValueError):
    """Damaged or malformed data, as a cursor of another source."""

    code = lib.KJ_EDATA


class FailedError(Error):
    """The training tried and failed; the message is its reason."""

    code = lib.KJ_EFAILED


class Left(SystemExit):
    """Raised out of a safe point by ``pause level=leave``: the checkpoint is saved, and the process
    is to end, so that its memory is free until ``kajitori resume``.

    A `SystemExit` with the status 75: unhandled, it ends the program quietly, after `finally` and
    `with` blocks. ``except Exception`` does not catch it. `reason` is what the sender gave.
    """

    def __init__(self, reason: str = "") -> None:
        super().__init__(lib.KJ_EXIT_LEFT)
        self.reason = reason


class Aborted(SystemExit):
    """Raised out of a safe point by ``abort``: leave at once, without validation or saving.

    As `Left`, with the status 77.
    """

    def __init__(self, reason: str = "") -> None:
        super().__init__(lib.KJ_EXIT_ABORTED)
        self.reason = reason


class ChannelWarning(UserWarning):
    """The channel, or a part of it, does not work. The training goes on without it."""


class EventWarning(UserWarning):
    """Something an `EventReader` cannot read for the time being, or ignores."""


_CLASSES: dict[int, type[Error]] = {cls.code: cls for cls in Error.__subclasses__()}


def new_error() -> Any:
    """A ``kj_error *`` for one call, or for several."""
    return ffi.new("kj_error *", {"size": ffi.sizeof("kj_error")})


def check(result: int, err: Any) -> int:
    """`result` when it is not negative, else the exception that `err` describes."""
    if result >= 0:
        return result
    if result == lib.KJ_EMEM:
        raise MemoryError
    message = ffi.string(err.message).decode(errors="replace")
    error = _CLASSES.get(result, Error)(message or ffi.string(lib.kj_error_text(result)).decode())
    error.code = result
    error.domain = ffi.string(err.domain).decode(errors="replace")
    error.native = err.native
    raise error


def fill(err: Any, error: BaseException) -> int:
    """Describes an exception of the user's code in `err`; returns its code."""
    code = lib.KJ_EFAILED
    try:
        text = str(error)
        if isinstance(error, Error):
            code = error.code if error.code < 0 else code
        else:
            text = f"{type(error).__name__}: {text}"
    except BaseException:  # an exception that cannot be shown
        text = type(error).__name__
    if err:
        line = " ".join(text.split()).encode(errors="replace")[: len(err.message) - 1]
        err.code = code
        ffi.buffer(err.message)[: len(line) + 1] = (
            line.decode(errors="ignore").encode().ljust(len(line) + 1, b"\0")
        )
    return code


_LOG_SIZE = 1024
_log_text = ffi.new("char[]", _LOG_SIZE)


def warn_pending(stacklevel: int, category: type[Warning] = ChannelWarning) -> None:
    """Issues what the library wanted to say since the last call, in the calling thread."""
    while lib.kjp_log_take(_log_text, _LOG_SIZE):
        text = ffi.string(_log_text).decode(errors="replace")
        warnings.warn(text, category, stacklevel=stacklevel + 1)
    lost = lib.kjp_log_lost()
    if lost:
        warnings.warn(f"{lost} more warnings were lost", category, stacklevel=stacklevel + 1)


lib.kjp_log_start()
