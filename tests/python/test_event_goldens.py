# SPDX-License-Identifier: Apache-2.0
"""The listings of tests/data/events, row by row, through `kajitori.read_events`."""

import json
import struct

import pytest
from training import TOP

import kajitori

DATA = TOP / "tests/data/events"
pytestmark = pytest.mark.filterwarnings("ignore::kajitori.EventWarning")

SPELLED = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": -float("inf")}
LISTINGS = sorted(DATA.glob("*/*.jsonl")) + sorted(DATA.glob("damaged/*/*.jsonl"))
DAMAGED = {
    path: variant
    for manifest in DATA.glob("damaged/*/manifest.json")
    for name, variant in json.loads(manifest.read_text()).items()
    if (path := manifest.with_name(name)).is_dir()
}


def bits(number):
    """A NaN has no sign in a listing."""
    number = SPELLED.get(number, number)
    return "NaN" if number != number else struct.pack("<d", number)


def listed(path):
    """{(run, tag): [(step, bits of wall_time, bits of value)]}. What was damaged is listed under the run
    of the file that it was made of."""
    is_damaged = "damaged" in path.parts
    rows = {}
    for line in path.read_text().splitlines():
        row = json.loads(line)
        point = (row["step"], bits(row["wall_time"]), bits(row["value"]))
        run = "." if is_damaged else row["run"]
        rows.setdefault((run, row["tag"]), []).append(point)
    return rows


def points(columns):
    return [
        (step, bits(wall_time), bits(value))
        for step, wall_time, value in zip(
            columns.step, columns.wall_time, columns.value, strict=True
        )
    ]


def read(folder, **options):
    return {key: points(found) for key, found in kajitori.read_events(folder, **options).items()}


def name(path):
    return str(path.relative_to(DATA).with_suffix(""))


def test_there_are_listings_of_all_kinds():
    assert len(LISTINGS) > 60
    assert len(DAMAGED) > 30


@pytest.mark.parametrize("listing", LISTINGS, ids=name)
def test_all_rows_of_a_listing(listing):
    expected = listed(listing)
    got = read(listing.with_suffix(""))
    assert list(got) == sorted(expected, key=lambda key: tuple(part.encode() for part in key))
    assert got == expected


@pytest.mark.parametrize("folder", DAMAGED, ids=name)
def test_what_may_still_heal_is_left_out(folder):
    got = read(folder, finished=False)
    assert sum(map(len, got.values())) == DAMAGED[folder]["prefix"]


def joined(ranges):
    """Without the borders between neighbours."""
    whole = []
    for begin, end in ranges:
        if whole and whole[-1][1] == begin:
            whole[-1][1] = end
        else:
            whole.append([begin, end])
    return whole


@pytest.mark.parametrize("folder", DAMAGED, ids=name)
def test_damage_is_told_as_byte_ranges(folder):
    with kajitori.EventReader(folder, finished=True) as reader:
        n = sum(len(columns) for columns in reader)
        skipped = [part for part in reader.damage() if part.skipped]
        stats = reader.stats()
        files = [file.path for file in reader.files()]
    assert n == stats.points == DAMAGED[folder]["rows"]
    assert files == [] if folder.name == "gz_name" else [str(next(folder.iterdir()))]
    assert stats.skipped_bytes == sum(part.end - part.begin for part in skipped)
    if folder.name.startswith("proto_"):  # whole records, of which one has no meaning
        assert [part.kind for part in skipped] == ["message"]
    else:
        expected = DAMAGED[folder]["damage"] or []
        assert joined([part.begin, part.end] for part in skipped) == expected
