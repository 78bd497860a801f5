# SPDX-License-Identifier: Apache-2.0
"""kajitori events DIR --format jsonl: the listings of tests/data/events, byte for byte."""

import json
import pathlib

import pytest

EVENTS = pathlib.Path(__file__).resolve().parent.parent / "data" / "events"
WHOLE = sorted(
    path.with_suffix("")
    for kind in ("cases", "wire")
    for path in (EVENTS / kind).glob("*.jsonl")
    if "." not in path.stem
)
DAMAGED = [
    (manifest.parent / name, entry)
    for manifest in sorted((EVENTS / "damaged").glob("*/manifest.json"))
    for name, entry in json.loads(manifest.read_text()).items()
]


def listing(folder):
    return (folder.parent / (folder.name + ".jsonl")).read_text()


def of_its_own_folder(lines):
    """The listings of damaged files name the run of the file that was damaged."""
    runs = {json.dumps(json.loads(line)["run"]) for line in lines}
    assert len(runs) <= 1
    return "".join(line.replace(f'"run":{run}', '"run":"."', 1) for run in runs for line in lines)


@pytest.mark.parametrize("folder", WHOLE, ids=lambda folder: f"{folder.parent.name}-{folder.name}")
def test_whole(place, folder):
    for words in ((), ("--finished",)):
        done = place.kajitori("events", folder, "--format", "jsonl", *words)
        assert done.stdout == listing(folder)
        assert done.stderr == ""


@pytest.mark.parametrize(
    ("folder", "entry"),
    DAMAGED,
    ids=[f"{folder.parent.name}-{folder.name}" for folder, _ in DAMAGED],
)
def test_damaged(place, folder, entry):
    rows = listing(folder).splitlines(keepends=True)
    assert len(rows) == entry["rows"]
    done = place.kajitori("events", folder, "--format", "jsonl")
    assert done.stdout == of_its_own_folder(rows[: entry["prefix"]])
    done = place.kajitori("events", folder, "--format", "jsonl", "--finished")
    assert done.stdout == of_its_own_folder(rows)


def test_there_are_all_of_them():
    assert len(WHOLE) >= 32
    assert len(DAMAGED) >= 71
