# SPDX-License-Identifier: Apache-2.0
"""Columns: the memory of the library, seen by NumPy without a copy, and how long it lives."""

import gc
import struct
import subprocess
import sys
import threading

import numpy as np
import pytest
from event_writer import EventWriter, header, record, scalar

import kajitori

DTYPES = {
    "step": np.int64,
    "wall_time": np.float64,
    "value": np.float64,
    "series": np.uint32,
    "flags": np.uint32,
}
START = record(b"\x09" + struct.pack("<d", 1.0) + b"\x10\x03" + b"\x3a\x02\x08\x01")


def write(folder, n, first=0):
    writer = EventWriter(folder)
    for step in range(first, first + n):
        writer.add("loss" if step % 3 else "acc", step, step * 0.5)
    writer.close()
    return folder


def test_arrays_are_the_memory_of_the_library(tmp_path):
    with kajitori.EventReader(write(tmp_path / "logs", 30)) as reader:
        columns = reader.read()
    assert len(columns) == 30
    for name, dtype in DTYPES.items():
        column = getattr(columns, name)
        one, other = np.asarray(column), np.asarray(getattr(columns, name))
        assert (one.dtype, one.shape) == (dtype, (30,))
        assert np.shares_memory(one, other)
        assert not one.flags.writeable
        with pytest.raises(TypeError):
            column[0] = 1
    assert np.asarray(columns.step).tolist() == list(range(30))
    assert np.asarray(columns.value).tolist() == [step * 0.5 for step in range(30)]


def test_a_history_is_not_copied(tmp_path):
    with kajitori.EventReader(write(tmp_path / "logs", 30), keep=True, finished=True) as reader:
        assert sum(map(len, reader)) == 30
        one, other = reader.history(".", "loss"), reader.history(".", "loss")
        assert np.shares_memory(np.asarray(one.value), np.asarray(other.value))
        assert (one.series, one.flags) == (None, None)
        assert np.asarray(one.step).tolist() == [step for step in range(30) if step % 3]


def test_an_empty_batch(tmp_path):
    with kajitori.EventReader(tmp_path) as reader:
        columns = reader.read()
    assert len(columns) == 0
    for name, dtype in DTYPES.items():
        array = np.asarray(getattr(columns, name))
        assert (array.dtype, array.shape) == (dtype, (0,))
    assert columns.by_series() == {}


def test_arrays_outlive_batch_and_reader(tmp_path):
    """While their memory is held it is not filled again, whatever is read afterwards."""
    folder = write(tmp_path / "logs", 200)
    arrays = []
    for _ in range(20):
        with kajitori.EventReader(folder, keep=True) as reader:
            for _ in range(10):
                columns = reader.read(max_points=20)
                arrays.append((np.asarray(columns.step), np.asarray(columns.value)))
                del columns
            history = reader.history(".", "loss")
            arrays.append((np.asarray(history.step), np.asarray(history.value)))
            del history
        del reader
        gc.collect()
    for number, (step, value) in enumerate(arrays):
        begin = number % 11 * 20
        whole = np.arange(200)
        expected = whole[whole % 3 != 0] if begin == 200 else np.arange(begin, begin + 20)
        assert step.tolist() == expected.tolist()
        assert value.tolist() == (expected * 0.5).tolist()


def test_a_history_that_is_held_does_not_change_when_more_comes(tmp_path):
    folder = write(tmp_path / "logs", 50)
    with kajitori.EventReader(folder, keep=True) as reader:
        reader.read()
        before = np.asarray(reader.history(".", "loss").step)
        expected = before.tolist()
        write(folder, 1000, first=50)
        while len(reader.read()):
            pass
        assert len(reader.history(".", "loss")) > 600
        assert before.tolist() == expected


def test_released_in_other_threads(tmp_path):
    folder = write(tmp_path / "logs", 400)
    failed = []

    def look(columns, begin):
        value = np.asarray(columns.value)
        del columns
        gc.collect()
        if value.tolist() != [step * 0.5 for step in range(begin, begin + 40)]:
            failed.append(begin)

    for _ in range(5):
        threads = []
        with kajitori.EventReader(folder) as reader:
            for begin in range(0, 400, 40):
                thread = threading.Thread(target=look, args=(reader.read(max_points=40), begin))
                thread.start()
                threads.append(thread)
        for thread in threads:
            thread.join()
    assert not failed


def test_by_series(tmp_path):
    folder = tmp_path / "logs"
    writer = EventWriter(folder)
    for step in range(5):
        writer.add("loss" if step % 2 else "acc", step, step * 0.5)
    writer.close()
    with (folder / "events.out.tfevents.1796045719.host").open("ab") as file:
        file.write(START + scalar("loss", 3, 9.0))
    with kajitori.EventReader(folder, finished=True) as reader:
        columns = reader.read()
        assert [bool(flags & columns.RESTART) for flags in columns.flags] == [False] * 5 + [
            True,
            False,
        ]
        assert columns.step[5] == 3
        assert np.isnan(columns.value[5])
        parts = {reader.series(number).tag: part for number, part in columns.by_series().items()}
    assert {tag: list(part.step) for tag, part in parts.items()} == {
        "acc": [0, 2, 4],
        "loss": [1, 3, 3],
    }
    assert list(parts["loss"].value) == [0.5, 1.5, 9.0]
    assert np.asarray(parts["acc"].step).dtype == np.int64
    with pytest.raises(kajitori.StateError):
        kajitori.read_events(folder)[".", "acc"].by_series()


def test_one_series_is_not_copied_by_series(tmp_path):
    with kajitori.EventReader(write(tmp_path / "logs", 30), tag="loss") as reader:
        columns = reader.read()
    (part,) = columns.by_series().values()
    assert np.shares_memory(np.asarray(part.value), np.asarray(columns.value))


MEASURE = """
import re, sys
import kajitori

def high_water():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1]) * 1024

def count(folder):
    with kajitori.EventReader(folder, finished=True, keep=True) as reader:
        n = sum(map(len, reader))
        assert len(reader.history(".", "loss")) == n
        return n

count(sys.argv[1])
before = high_water()
n = count(sys.argv[2])
print(n, high_water() - before)
"""


def test_a_million_points_take_at_most_40_bytes_each(tmp_path):
    for name, n in (("few", 1000), ("many", 1000000)):
        (tmp_path / name).mkdir()
        file = tmp_path / name / "events.out.tfevents.1.host"
        file.write_bytes(header() + scalar("loss", 7, 0.5) * n)
    out = subprocess.run(
        [sys.executable, "-c", MEASURE, tmp_path / "few", tmp_path / "many"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    n, grown = map(int, out.split())
    assert n == 1000000
    assert grown <= 40 * n, f"{grown / n} bytes a point"
