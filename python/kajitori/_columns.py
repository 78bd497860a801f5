# SPDX-License-Identifier: Apache-2.0
"""Points as columns: C memory that Python looks at.

Each view holds the block it looks into (`_view`), so it stays right when batch and reader are gone,
and nothing is copied on the way to NumPy, which is not needed here.
"""

from __future__ import annotations

import functools
import operator
from array import array
from typing import Any, ClassVar

from kajitori._errors import StateError
from kajitori._ffi import ffi, lib

_FORMATS = {"step": "q", "wall_time": "d", "value": "d", "series": "I", "flags": "I"}


def _view(pointer: Any, n: int, format_: str, owner: Any) -> memoryview | None:
    """`n` numbers of C memory that `owner` keeps; None for a column that is not given."""
    if not pointer:
        return None
    # no Python function: it would be where Ctrl-C comes, and is swallowed
    held = ffi.gc(pointer, functools.partial(operator.is_, owner))
    size = n * ffi.sizeof(ffi.typeof(pointer).item)
    return memoryview(ffi.buffer(held, size)).cast("B").cast(format_).toreadonly()


class Columns:
    """Points as columns, one element each, in the order of delivery: `step`, `wall_time` (seconds
    since 1970, as the writer said), `value`, `series` (`EventReader.series` says which run and tag
    that is) and `flags`.

    Each is a read-only memoryview, which NumPy takes without a copy: ``np.asarray(columns.value)``.
    They hold their memory by themselves. `series` and `flags` are None in a history.

    A row whose `flags` have `RESTART` is no value: its writer says that what follows starts again at
    `step`.
    """

    RESTART: ClassVar[int] = lib.KJ_POINT_RESTART

    __slots__ = ("flags", "series", "step", "value", "wall_time")

    step: memoryview
    wall_time: memoryview
    value: memoryview
    series: memoryview | None
    flags: memoryview | None

    def __init__(self, **columns: memoryview | None) -> None:
        for name in _FORMATS:
            setattr(self, name, columns.get(name))

    def __len__(self) -> int:
        return len(self.step)

    def __repr__(self) -> str:
        return f"<Columns of {len(self)} points>"

    def by_series(self) -> dict[int, Columns]:
        """The values of each series, without restarts. Copied, unless there is one series only."""
        if self.series is None or self.flags is None:
            raise StateError("a history is of one series")
        rows: dict[int, list[int]] = {}
        for row, (series, flags) in enumerate(zip(self.series, self.flags, strict=True)):
            if not flags & self.RESTART:
                rows.setdefault(series, []).append(row)
        return {
            series: self if len(found) == len(self) else self._some(found)
            for series, found in rows.items()
        }

    def _some(self, rows: list[int]) -> Columns:
        return Columns(
            **{
                name: memoryview(
                    array(format_, map(getattr(self, name).__getitem__, rows))
                ).toreadonly()
                for name, format_ in _FORMATS.items()
            }
        )


_EMPTY = Columns(**{name: memoryview(b"").cast(format_) for name, format_ in _FORMATS.items()})


def columns_of(pointer: Any) -> Columns:
    """The columns at ``kj_columns *`` `pointer`, whose one reference they take over."""
    if pointer.n == 0:
        lib.kj_columns_unref(pointer)
        return _EMPTY
    owner = ffi.gc(pointer, lib.kj_columns_unref)
    return Columns(
        **{
            name: _view(getattr(pointer, name), pointer.n, format_, owner)
            for name, format_ in _FORMATS.items()
        }
    )
