# SPDX-License-Identifier: Apache-2.0
"""kajitori events --verify, --repair, --stats, --runs."""

import json
import os
import pathlib
import shutil

import pytest
from event_writer import EventWriter

EVENTS = pathlib.Path(__file__).resolve().parent.parent / "data" / "events"
DAMAGED = [
    (manifest.parent / name, entry)
    for manifest in sorted((EVENTS / "damaged").glob("*/manifest.json"))
    for name, entry in json.loads(manifest.read_text()).items()
]
IDS = [f"{folder.parent.name}-{folder.name}" for folder, _ in DAMAGED]


def ranges(report, what):
    return [[row["begin"], row["end"]] for row in report["damage"] if row["what"] == what]


def verify(place, folder, *words):
    """Its report, and the exit status."""
    for status in (0, 1):
        try:
            done = place.kajitori(
                "events", folder, "--verify", "--format", "json", *words, status=status
            )
        except AssertionError:
            if status == 1:
                raise
            continue
        return json.loads(done.stdout), status
    return None


@pytest.mark.parametrize(("folder", "entry"), DAMAGED, ids=IDS)
def test_verify(place, folder, entry):
    report, status = verify(place, folder)
    malformed = [row for row in report["damage"] if row["kind"] == "message"]
    damage = [row for row in report["damage"] if row["what"] == "damaged" and row not in malformed]
    assert [[row["begin"], row["end"]] for row in damage] == (entry["damage"] or [])
    assert bool(malformed) == folder.name.startswith("proto_")
    assert status == bool(damage or malformed)
    # told that it is finished, claims_past_end_middle does not end with an unfinished record
    torn = entry["end"] == "partial" and not entry["damage"]
    assert bool(ranges(report, "unfinished")) == torn
    assert report["whole"] == (not report["damage"])
    _, status = verify(place, folder, "--finished")
    assert status == bool(report["damage"])


@pytest.mark.parametrize(("folder", "entry"), DAMAGED, ids=IDS)
def test_repair(place, tmp_path, folder, entry):
    out = tmp_path / "out"
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    place.kajitori("events", folder, "--repair", out)
    assert before == {path.name: path.read_bytes() for path in folder.iterdir()}
    words = ("--format", "jsonl", "--finished")
    rows = place.kajitori("events", folder, *words).stdout
    if folder.name == "gz_name":  # no event file by its name
        assert not out.exists()
        return
    assert place.kajitori("events", out, *words).stdout == rows
    assert len(rows.splitlines()) == entry["rows"]
    report, status = verify(place, out, "--finished")
    assert (report["whole"], status) == (True, 0)
    for path in out.iterdir():
        original = folder / path.name
        assert path.stat().st_mtime_ns == original.stat().st_mtime_ns
        if entry["end"] == "clean" and not entry["damage"] and "proto_" not in folder.name:
            assert path.read_bytes() == original.read_bytes()


@pytest.fixture
def logs(tmp_path):
    folder = tmp_path / "logs"
    for run in ("train", "val"):
        writer = EventWriter(folder / run)
        for step in range(5):
            writer.add("loss", step, 0.5)
        writer.close()
    return folder


def damage(path, at=-5):
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def test_verify_says_what_is_wrong(place, logs):
    done = place.kajitori("events", logs, "--verify")
    bytes_in_all = sum(path.stat().st_size for path in logs.glob("*/*"))
    assert done.stdout == f"whole: 2 files, 12 records, {bytes_in_all} bytes\n"
    path = next((logs / "val").iterdir())
    damage(path)
    done = place.kajitori("events", logs, "--verify", status=1)
    size = path.stat().st_size
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["begin", "end", "record", "kind", "what", "file"]
    assert lines[1].split() == [str(size - 42), str(size), "5", "payload", "damaged", str(path)]
    assert len(lines) == 2
    assert place.kajitori("events", logs, "--verify", "--run", "train").stdout.startswith("whole:")
    assert place.kajitori("events", path, "--verify", status=1).stdout == done.stdout


def test_points_behind_damage_are_told_of(place, logs):
    path = next((logs / "val").iterdir())
    damage(path, 60)
    with path.open("ab") as file:
        file.write(b"\x18\x00\x00")
    with next((logs / "train").iterdir()).open("ab") as file:
        file.write(b"\x18\x00\x00")
    unfinished = "kajitori: {} an unfinished record at the end{}\n"
    done = place.kajitori("events", logs, "--tag", "loss")
    assert done.stderr == (
        "kajitori: 1 file is damaged; --finished reads what is behind the damage\n"
        + unfinished.format("1 file has", " (still being written?)")
    )
    done = place.kajitori("events", logs, "--tag", "loss", "--finished")
    assert "is damaged" not in done.stderr
    assert done.stderr.endswith(unfinished.format("2 files have", ""))


def test_what_cannot_be_read_is_not_whole(place, tmp_path):
    (tmp_path / "points.jsonl").symlink_to("/dev/null")
    spec = f"jsonl:{tmp_path}/points.jsonl"
    done = place.kajitori("events", spec, "--verify", "--format", "json", status=1)
    verdict = json.loads(done.stdout)
    assert verdict["whole"] is False
    assert [row["what"] for row in verdict["damage"]] == ["unreadable"]
    done = place.kajitori("events", spec, "--repair", tmp_path / "out", status=1)
    assert done.stderr.endswith("points.jsonl cannot be read; nothing was written\n")
    assert not (tmp_path / "out").exists()


def test_a_name_that_is_empty_is_no_place(place, logs):
    done = place.kajitori("events", logs, "--repair", "", status=2)
    assert "--repair OUT: the name is empty" in done.stderr
    for option in ("--output", "--cursor"):
        done = place.kajitori("events", logs, "--values", option, "", status=2)
        assert "the name of a file is empty" in done.stderr


def test_repair_of_a_tree(place, logs, tmp_path):
    out = tmp_path / "out"
    (logs / "val" / "checkpoint").write_text("not copied")
    path = next((logs / "val").iterdir())
    path = logs / "val" / "events.out.tfevents.1796045719.host"
    damage(path)
    os.utime(path, ns=(1, 1600000000123456789))
    path.chmod(0o640)
    done = place.kajitori("events", logs, "--repair", out)
    assert done.stdout == f"{path}: left out 42 bytes\n{out}: 2 files, 42 bytes left out\n"
    assert sorted(str(p.relative_to(out)) for p in out.rglob("*") if p.is_file()) == [
        f"{run}/{path.name}" for run in ("train", "val")
    ]
    mended = out / "val" / path.name
    assert mended.read_bytes() == path.read_bytes()[:-42]
    assert mended.stat().st_mtime_ns == 1600000000123456789
    assert mended.stat().st_mode & 0o777 == 0o640
    assert place.kajitori("events", out, "--verify", "--finished").stdout.startswith("whole: 2")
    done = place.kajitori("events", logs, "--repair", out, status=2)
    assert "it is not empty" in done.stderr
    for inside in (logs, logs / "out", logs / "new" / "out/"):
        done = place.kajitori("events", f"{logs}/", "--repair", inside, status=2)
        assert "where it would be more runs" in done.stderr
    assert sorted(entry.name for entry in logs.iterdir()) == ["train", "val"]
    (tmp_path / "empty").mkdir()
    place.kajitori("events", path, "--repair", tmp_path / "empty")
    assert (tmp_path / "empty" / path.name).read_bytes() == mended.read_bytes()


def test_repair_of_more_damage_than_is_listed(place, tmp_path):
    writer = EventWriter(tmp_path / "logs")
    for step in range(5000):
        writer.add("loss", step, 0.5)
    writer.close()
    data = bytearray(writer.path.read_bytes())
    record = (len(data) - 40) // 5000
    for step in range(0, 5000, 2):
        data[len(data) - record * (5000 - step) + record - 5] ^= 1
    writer.path.write_bytes(data)
    place.kajitori("events", tmp_path / "logs", "--repair", tmp_path / "out")
    rows = place.kajitori("events", tmp_path / "out", "--format", "jsonl").stdout
    assert (
        rows
        == place.kajitori("events", tmp_path / "logs", "--format", "jsonl", "--finished").stdout
    )
    assert len(rows.splitlines()) > 2000
    assert place.kajitori("events", tmp_path / "out", "--verify").stdout.startswith(
        "whole: 1 file,"
    )


def test_stats(place, logs):
    path = next((logs / "val").iterdir())
    damage(path, 60)
    with path.open("ab") as file:
        file.write(b"\x18\x00\x00")
    report = json.loads(
        place.kajitori("events", logs, "--stats", "--finished", "--format", "json").stdout
    )
    rows = {pathlib.Path(row["file"]).parent.name: row for row in report["files"]}
    assert rows["train"]["points"] == 5
    assert rows["train"]["records"] == 6
    assert rows["train"]["end"] == "none"
    assert rows["val"]["points"] == 4
    assert rows["val"]["skipped_records"] == 1
    assert rows["val"]["waiting_bytes"] == 3
    assert rows["val"]["end"] == "partial"
    total = report["total"]
    assert total["runs"] == total["files"] == 2
    assert total["points"] == 9
    assert total["skipped_bytes"] == rows["val"]["skipped_bytes"] > 0
    assert total["waiting_files"] == 1
    assert total["kinds"]["scalar"] == 9
    text = place.kajitori("events", logs, "--stats", "--finished").stdout
    assert text.splitlines()[0].split()[:3] == ["bytes", "records", "points"]
    assert "kinds: scalar 9 file_version 2" in text


def test_kinds_of_a_mixed_file(place):
    folder = EVENTS / "cases" / "tf221_mixed_sparse"
    report = json.loads(place.kajitori("events", folder, "--stats", "--format", "json").stdout)
    kinds = report["total"]["kinds"]
    assert kinds["scalar"] == 6
    assert kinds["image"] > 0
    assert kinds["histogram"] > 0


def test_runs(place, logs):
    shutil.copytree(logs / "val", logs / "other")
    os.utime(next((logs / "other").iterdir()), (1600000000, 1600000000))
    EventWriter(logs / "val", "events.out.tfevents.1796045720.host").close()
    rows = place.json("events", logs, "--runs")
    assert [(r["run"], r["files"], r["tags"], r["points"]) for r in rows] == [
        ("other", 1, 1, 5),
        ("train", 1, 1, 5),
        ("val", 2, 1, 5),
    ]
    assert rows[2]["bytes"] == sum(path.stat().st_size for path in (logs / "val").iterdir())
    assert [row["run"] for row in place.json("events", logs, "--runs", "--run", "*r")] == ["other"]
    lines = place.kajitori("events", logs, "--runs").stdout.splitlines()
    assert lines[0].split() == ["run", "files", "bytes", "tags", "points", "last_change"]
    assert (
        "no run 'x'; there is: "
        in place.kajitori("events", logs, "--runs", "--run", "x", status=1).stderr
    )
