# SPDX-License-Identifier: Apache-2.0
"""What a kajitori.EventReader tells about what it has read, and where it is."""

import json
import math
import os
import subprocess
import sys

import pytest
from event_rows import rows
from event_writer import scalar
from training import PATIENCE

import kajitori


def test_what_a_reader_can_tell(logs):
    with kajitori.EventReader(logs, tag="loss", finished=True) as reader:
        assert sum(map(len, reader)) == 6
        acc, loss = reader.tags()[1], reader.tags()[0]
        assert (acc.run, acc.tag, acc.count, acc.selected) == ("validation", "acc", 1, False)
        assert (loss.run, loss.tag, loss.count, loss.selected) == ("train", "loss", 5, True)
        assert (loss.first_step, loss.last_step, loss.dtype) == (0, 4, 1)
        assert (loss.last_value, loss.min_value, loss.max_value) == (-math.inf, -math.inf, math.inf)
        assert reader.series(loss.series) == loss
        stats = reader.stats()
        assert (stats.files, stats.runs, stats.points, stats.waiting_files) == (2, 2, 7, 0)
        assert stats.kinds["scalar"] == 7
        assert stats.kinds["file_version"] == 2
        files = reader.files()
        assert [file.run for file in files] == ["train", "validation"]
        assert stats.bytes == sum(os.path.getsize(file.path) for file in files)
        assert all(file.state == "none" and file.present for file in files)
        assert reader.damage() == []


def test_a_torn_end_is_waited_for(logs):
    (path,) = (logs / "train").iterdir()
    record = scalar("loss", 5, 1.0)
    with kajitori.EventReader(logs) as reader, path.open("ab", buffering=0) as file:
        file.write(record[:20])
        assert len(reader.read()) == 7
        assert reader.stats().waiting_files == 1
        (torn,) = reader.damage()
        size = path.stat().st_size
        assert (torn.kind, torn.skipped, torn.begin, torn.end) == (
            "partial",
            False,
            size - 20,
            size,
        )
        assert reader.files()[0].state == "partial"
        file.write(record[20:])
        columns = reader.read(timeout=PATIENCE)
        assert rows(reader, columns) == [("train", "loss", 5, 1.0)]


def test_a_cursor(logs, tmp_path):
    with kajitori.EventReader(logs) as reader:
        first = rows(reader, reader.read(max_points=3))
        cursor = reader.cursor
    assert "\n" not in cursor
    json.loads(cursor)
    with kajitori.EventReader(logs, cursor=cursor, finished=True) as reader:
        rest = [row for columns in reader for row in rows(reader, columns)]
        assert [info.count for info in reader.tags()] == [5, 1, 1]
        end = reader.cursor
    with kajitori.EventReader(logs, finished=True) as reader:
        assert first + rest == [row for columns in reader for row in rows(reader, columns)]
    with kajitori.EventReader(logs, cursor=end.encode(), finished=True) as reader:
        assert list(reader) == []
    for wrong in ("{}", "no cursor"):
        with pytest.raises(kajitori.DataError):
            kajitori.EventReader(logs, cursor=wrong)
    with pytest.raises(kajitori.DataError):
        kajitori.EventReader(tmp_path, cursor=end)


def test_a_cursor_in_another_process(logs):
    code = "import sys, kajitori; r = kajitori.EventReader(sys.argv[1]); r.read(max_points=int(sys.argv[2])); print(r.cursor)"
    cursor = subprocess.run(
        [sys.executable, "-c", code, logs, "4"], capture_output=True, text=True, check=True
    ).stdout
    with kajitori.EventReader(logs, cursor=cursor.strip()) as reader:
        assert [step for _, _, step, _ in rows(reader, reader.read())] == [4, 0, -7]
