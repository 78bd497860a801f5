# SPDX-License-Identifier: Apache-2.0
"""Parameters and arguments: their declarations, and values on their way through C."""

from __future__ import annotations

import contextlib
import json
import math
import operator
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kajitori._errors import ArgumentError, fill
from kajitori._ffi import ffi, lib

Scalar = float | int | bool | str

TYPES: dict[Any, int] = {
    bool: lib.KJ_TYPE_BOOL,
    int: lib.KJ_TYPE_INT,
    float: lib.KJ_TYPE_FLOAT,
    str: lib.KJ_TYPE_STRING,
}
TYPES |= {"bool": TYPES[bool], "int": TYPES[int], "float": TYPES[float], "string": TYPES[str]}
EFFECTS: dict[str, int] = {
    "step": lib.KJ_EFFECT_STEP,
    "epoch": lib.KJ_EFFECT_EPOCH,
    "restart": lib.KJ_EFFECT_RESTART,
}


@dataclass(frozen=True, kw_only=True)
class Param:
    """A parameter that `kajitori get` and `set` see.

    `type` is float, int, bool or str. `get` returns the value in force; `set` puts a new one in
    force and is only called with finite values of the declared type and range. Without `set` the
    parameter can only be read. `min` and `max` are inclusive (`min_exclusive=True`: value > min),
    for int and float. `effect` says when a new value takes effect: "step", "epoch" or "restart".
    """

    name: str
    get: Callable[[], Scalar]
    set: Callable[[Any], object] | None = None
    type: type[Scalar] | str = float
    min: float | None = None
    max: float | None = None
    min_exclusive: bool = False
    unit: str | None = None
    help: str | None = None
    effect: str = "step"


@dataclass(frozen=True, kw_only=True)
class Arg:
    """An argument of an own verb, given as ``name=value``.

    `type` is float, int, bool or str; `min` and `max` (inclusive) are for int and float. An argument
    that is not `required` and not given is not passed to the function.
    """

    type: type[Scalar] | str = str
    required: bool = True
    min: float | None = None
    max: float | None = None
    min_exclusive: bool = False
    help: str | None = None


def type_code(of: str, type_: Any) -> int:
    try:
        return TYPES[type_]
    except (KeyError, TypeError):
        raise ArgumentError(f"{of}: type {type_!r} is none of float, int, bool, str") from None


def _c_string(of: str, value: bytes, keep: list[Any]) -> Any:
    if b"\0" in value:
        raise ArgumentError(f"{of}: {value!r} has a NUL in it")
    keep.append(ffi.new("char[]", value))
    return keep[-1]


def text(of: str, value: str | None, keep: list[Any]) -> Any:
    """A C string in UTF-8 that lives as long as `keep`, NULL for None."""
    if value is None:
        return ffi.NULL
    try:
        return _c_string(of, value.encode(), keep)
    except (AttributeError, UnicodeEncodeError):
        raise ArgumentError(f"{of}: {value!r} is no text") from None


def path(of: str, value: str | bytes | os.PathLike[Any] | None, keep: list[Any]) -> Any:
    """The same for a path, in the bytes that the file system has."""
    if value is None:
        return ffi.NULL
    try:
        name = os.fsencode(value)
    except (TypeError, UnicodeEncodeError):
        raise ArgumentError(f"{of}: {value!r} is no path") from None
    if not name:
        raise ArgumentError(f"{of}: the path is empty")
    return _c_string(of, name, keep)


def count(of: str, value: Any) -> int:
    """A number of steps or epochs; more than C can hold is "not known"."""
    try:
        number = operator.index(value)
    except TypeError:
        raise ArgumentError(f"{of}: {value!r} is no whole number") from None
    return number if number < 2**63 else 0


def number(of: str, value: Any) -> float:
    """A number, or what a framework has for one."""
    try:
        return float(value)
    except Exception as error:
        shape = getattr(value, "shape", None)
        what = type(value).__name__ + (f" of shape {tuple(shape)}" if shape else "")
        raise ArgumentError(f"{of}: one number is wanted, not {what}") from error


def positive(of: str, value: Any) -> int:
    """A whole number of 1 or more."""
    with contextlib.suppress(TypeError):
        if not isinstance(value, bool) and (number := operator.index(value)) >= 1:
            return number
    raise ArgumentError(f"{of}: {value!r} is no whole number of 1 or more")


def whole(of: str, value: Any) -> int:
    """A whole number as C has it."""
    try:
        number = operator.index(value)
    except TypeError:
        number = 2**63
    if not -(2**63) <= number < 2**63:
        raise ArgumentError(f"{of} {value!r} is no whole number of 64 bits")
    return number


def limit(of: str, value: Any) -> float:
    """The smallest or greatest value, 0 for None."""
    try:
        return 0.0 if value is None else float(value)
    except (TypeError, ValueError, OverflowError):
        raise ArgumentError(f"{of}: the limit {value!r} is no number") from None


def range_flags(
    low: float | None, high: float | None, exclusive: bool, bits: tuple[int, int, int]
) -> int:
    flags = 0 if low is None else bits[0]
    flags |= 0 if high is None else bits[1]
    return flags | (bits[2] if exclusive and low is not None else 0)


class Interrupted:
    """Where an exception that is no error (KeyboardInterrupt, SystemExit) of a callback waits until
    the C call that made the callback has returned."""

    __slots__ = ("error",)

    def __init__(self) -> None:
        self.error: BaseException | None = None

    def note(self, error: BaseException) -> None:
        if not isinstance(error, Exception):
            self.error = error


class ParamBinding:
    """What C gets as userdata of a parameter."""

    def __init__(self, param: Param, interrupted: Interrupted) -> None:
        self.param = param
        self.interrupted = interrupted
        self.string: Any = None

    def get(self, ret_value: Any) -> None:
        value = self.param.get()
        code = TYPES[self.param.type]
        if code == lib.KJ_TYPE_STRING:
            self.string = ffi.new("char[]", str(value).encode(errors="replace"))
            ret_value.s = self.string
        elif code == lib.KJ_TYPE_FLOAT:
            ret_value.f = float(value)
        elif code == lib.KJ_TYPE_BOOL:
            ret_value.i = bool(value)
        else:
            ret_value.i = int(value)
            if ret_value.i != value:
                raise ValueError(f"{self.param.name} is declared int, and its value is {value!r}")
        ret_value.type = code

    def set(self, value: Any) -> None:
        assert self.param.set is not None
        self.param.set(read_value(value))


def read_value(value: Any) -> Scalar | None:
    """A ``kj_value`` as a Python object."""
    if value.type == lib.KJ_TYPE_STRING:
        return ffi.string(value.s).decode()
    if value.type == lib.KJ_TYPE_FLOAT:
        return value.f
    if value.type == lib.KJ_TYPE_BOOL:
        return bool(value.i)
    return value.i if value.type == lib.KJ_TYPE_INT else None


class VerbBinding:
    """What C gets as userdata of an own verb."""

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        args: Iterable[str],
        interrupted: Interrupted,
    ) -> None:
        self.function = function
        self.args = tuple(args)
        self.is_checkpoint = name == "checkpoint"
        self.interrupted = interrupted

    def run(self, call: Any, err: Any) -> int:
        kwargs = {}
        value = ffi.new("kj_value *")
        for name in self.args:
            if lib.kj_call_get_arg(call, name.encode(), value):
                kwargs[name] = read_value(value)
        result = self.function(**kwargs)
        if self.is_checkpoint:
            result = _with_path(result)
        if result is None:
            return 0
        return lib.kj_call_set_result(call, to_json(result).encode(), err)


def _with_path(result: Any) -> Any:
    """A checkpoint's result is an object with its path, which has to lead there from any folder."""
    if isinstance(result, (str, os.PathLike)):
        result = {"path": result}
    if isinstance(result, Mapping) and "path" in result:
        return {**result, "path": os.path.abspath(os.fsdecode(result["path"]))}
    return result


def _plain(value: Any) -> Any:
    """Arrays and tensors as Python's numbers, or lists of them, anything else as its text."""
    if hasattr(value, "numpy"):
        value = value.numpy()
    return value.tolist() if hasattr(value, "tolist") else str(value)


def _finite(value: Any) -> Any:
    """NaN and infinities as the strings that the protocol has for them, and integers that it has no
    room for as their digits."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return str(value)
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, (list, tuple)) else value


def to_json(value: Any) -> str:
    return json.dumps(_finite(value), default=lambda item: _finite(_plain(item)))


@ffi.def_extern(error=lib.KJ_EFAILED)
def kjp_param_get(userdata: Any, ret_value: Any, err: Any) -> int:
    binding = ffi.from_handle(userdata)
    try:
        binding.get(ret_value)
    except BaseException as error:
        binding.interrupted.note(error)
        return fill(err, error)
    return 0


@ffi.def_extern(error=lib.KJ_EFAILED)
def kjp_param_set(userdata: Any, value: Any, err: Any) -> int:
    binding = ffi.from_handle(userdata)
    try:
        binding.set(value)
    except BaseException as error:
        binding.interrupted.note(error)
        return fill(err, error)
    return 0


@ffi.def_extern(error=lib.KJ_EFAILED)
def kjp_verb_run(userdata: Any, call: Any, err: Any) -> int:
    binding = ffi.from_handle(userdata)
    try:
        return binding.run(call, err)
    except BaseException as error:
        binding.interrupted.note(error)
        return fill(err, error)
