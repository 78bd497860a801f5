# SPDX-License-Identifier: Apache-2.0
"""What a reader tells about what it has read: C's structs and listings as Python's."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from kajitori._ffi import ffi, lib


def names_of(function: Any) -> list[str]:
    """What `function` calls the numbers from 0 on."""
    names: list[str] = []
    while name := function(len(names)):
        names.append(ffi.string(name).decode())
    return names


_KINDS = names_of(lib.kj_event_kind_name)
_DAMAGE = names_of(lib.kj_damage_kind_name)


@dataclass(frozen=True)
class TagInfo:
    """What has been seen of one tag of one run. Bytes of a tag that are not UTF-8 are surrogates, as
    in file names (`os.fsencode` gives them back). `min_value` is NaN when every value was. `plugin`,
    `display_name` and `description` are of the first metadata, or "". `selected`: its points are
    delivered. `dtype` is TensorFlow's number for how the last value was written; 0: as text."""

    series: int
    run: str
    tag: str
    count: int
    first_step: int
    last_step: int
    last_value: float
    min_value: float
    max_value: float
    plugin: str
    display_name: str
    description: str
    selected: bool
    dtype: int


@dataclass(frozen=True)
class FileInfo:
    """One file. `state` says what stands at offset `committed`, behind the last record that was read
    or skipped: "none", "partial", "hole", "header", "payload", "message", "large", "shrunk",
    "unreadable". `generation`: how often it was replaced or truncated and read anew; `present`:
    whether it is there; `quiet_ms`: since it was last seen to change."""

    run: str
    path: str
    state: str
    file_size: int
    committed: int
    records: int
    points: int
    skipped_records: int
    skipped_bytes: int
    generation: int
    present: bool
    quiet_ms: int


@dataclass(frozen=True)
class Damage:
    """The bytes [begin, end) of a file, which belong to no record that was understood. `record` is
    the number of the one that should be there. `skipped`: given up; else still waited for."""

    run: str
    file: str
    kind: str
    begin: int
    end: int
    record: int
    skipped: bool
    generation: int


@dataclass(frozen=True)
class EventStats:
    """Figures of all files. `kinds` counts values: "scalar", "image", "histogram", ..."""

    files: int
    runs: int
    bytes: int
    records: int
    points: int
    skipped_records: int
    skipped_bytes: int
    waiting_files: int
    kinds: dict[str, int]


def _path_text(pointer: Any) -> str:
    return os.fsdecode(ffi.string(pointer)) if pointer else ""


def text_of(pointer: Any) -> str:
    """A text of C; bytes that are not UTF-8 are surrogates."""
    return ffi.string(pointer).decode(errors="surrogateescape") if pointer else ""


def tag_info_of(info: Any) -> TagInfo:
    """``kj_tag_info *`` as Python has it."""
    return TagInfo(
        series=info.series,
        run=_path_text(info.run),
        tag=ffi.buffer(info.tag, info.tag_size)[:].decode(errors="surrogateescape"),
        count=info.count,
        first_step=info.first_step,
        last_step=info.last_step,
        last_value=info.last_value,
        min_value=info.min_value,
        max_value=info.max_value,
        plugin=text_of(info.plugin),
        display_name=text_of(info.display_name),
        description=text_of(info.description),
        selected=bool(info.selected),
        dtype=info.dtype,
    )


def _file_info(info: Any) -> FileInfo:
    return FileInfo(
        run=_path_text(info.run),
        path=_path_text(info.path),
        state=_DAMAGE[info.state],
        file_size=info.file_size,
        committed=info.committed,
        records=info.records,
        points=info.points,
        skipped_records=info.skipped_records,
        skipped_bytes=info.skipped_bytes,
        generation=info.generation,
        present=bool(info.present),
        quiet_ms=info.quiet_ms,
    )


def _damage(damage: Any) -> Damage:
    return Damage(
        run=_path_text(damage.run),
        file=_path_text(damage.file),
        kind=_DAMAGE[damage.kind],
        begin=damage.begin,
        end=damage.end,
        record=damage.record,
        skipped=bool(damage.skipped),
        generation=damage.generation,
    )


def stats_of(stats: Any) -> EventStats:
    """``kj_events_stats *`` as Python has it."""
    return EventStats(
        files=stats.files,
        runs=stats.runs,
        bytes=stats.bytes,
        records=stats.records,
        points=stats.points,
        skipped_records=stats.skipped_records,
        skipped_bytes=stats.skipped_bytes,
        waiting_files=stats.waiting_files,
        kinds={name: stats.kinds[kind] for kind, name in enumerate(_KINDS)},
    )


class Listing:
    """What C's callbacks have listed, or what one of them raised."""

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self.error: BaseException | None = None


def _note_error(_class: Any, error: BaseException, traceback: Any) -> None:
    ffi.from_handle(traceback.tb_frame.f_locals["userdata"]).error = error


@ffi.def_extern(error=-1, onerror=_note_error)
def kjp_tag(userdata: Any, tag: Any) -> int:
    ffi.from_handle(userdata).rows.append(tag_info_of(tag))
    return 0


@ffi.def_extern(error=-1, onerror=_note_error)
def kjp_file(userdata: Any, file: Any) -> int:
    ffi.from_handle(userdata).rows.append(_file_info(file))
    return 0


@ffi.def_extern(error=-1, onerror=_note_error)
def kjp_damage(userdata: Any, damage: Any) -> int:
    ffi.from_handle(userdata).rows.append(_damage(damage))
    return 0
