# SPDX-License-Identifier: Apache-2.0
"""kajitori events --cursor: each row once, whatever happens in between; --merge."""

import json
import os
import random
import subprocess
import time

import pytest
from event_writer import EventWriter, header, scalar
from waiting import until

KILLS = 300 if os.environ.get("KAJITORI_SOAK") else 12
NAME = "events.out.tfevents.1796045719.host"


@pytest.fixture
def logs(tmp_path):
    folder = tmp_path / "logs"
    writer = EventWriter(folder / "train")
    for step in range(3):
        writer.add("loss", step, 0.5 * step)
    writer.close()
    return folder


def append(folder, *steps, tag="loss"):
    with (folder / NAME).open("ab") as file:
        for step in steps:
            file.write(scalar(tag, step, 0.5 * step))


def steps_of(text):
    return [json.loads(line)["step"] for line in text.splitlines()]


def test_goes_on_where_it_stopped(place, logs, tmp_path):
    words = ("events", logs, "--format", "jsonl", "--cursor", tmp_path / "at")
    assert steps_of(place.kajitori(*words).stdout) == [0, 1, 2]
    assert place.kajitori(*words).stdout == ""
    append(logs / "train", 3, 4)
    EventWriter(logs / "new").close()
    append(logs / "new", 9)
    assert steps_of(place.kajitori(*words).stdout) == [9, 3, 4]
    assert place.kajitori(*words).stdout == ""


def test_a_file_is_continued_without_a_second_header(place, logs, tmp_path):
    words = ("events", logs, "-t", "loss", "--format", "csv", "--cursor", tmp_path / "at")
    path = tmp_path / "points.csv"
    for step in (3, 4):
        assert place.kajitori(*words, "--output", path).stdout == ""
        append(logs / "train", step)
    place.kajitori(*words, "--output", path)
    place.kajitori(*words, "--output", path)
    lines = path.read_text().splitlines()
    assert lines[0] == "run,tag,step,value,wall_time"
    assert [line.split(",")[2] for line in lines[1:]] == ["0", "1", "2", "3", "4"]


def test_what_the_cursor_does_not_know_is_cut_off(place, logs, tmp_path):
    path = tmp_path / "points.jsonl"
    words = ("events", logs, "--format", "jsonl", "--cursor", tmp_path / "at", "--output", path)
    place.kajitori(*words)
    expected = place.kajitori("events", logs, "--format", "jsonl").stdout
    assert path.read_text() == expected
    with path.open("a") as file:
        file.write('{"run": "half a line')
    place.kajitori(*words)
    assert path.read_text() == expected
    with path.open("ab") as stdout:  # the same file by the shell's >>
        append(logs / "train", 3)
        stdout.write(b"torn")
        stdout.flush()
        subprocess.run(
            [place.command, *map(str, words[:-2])], env=place.env, stdout=stdout, check=True
        )
    assert steps_of(path.read_text()) == [0, 1, 2, 3]


def test_a_new_output_is_not_cut(place, logs, tmp_path):
    words = ("events", logs, "--format", "jsonl", "--cursor", tmp_path / "at", "--output")
    place.kajitori(*words, tmp_path / "one")
    append(logs / "train", 3)
    (tmp_path / "two").write_text("kept\n" * 200)
    place.kajitori(*words, tmp_path / "two")
    text = (tmp_path / "two").read_text()
    assert text.startswith("kept\n" * 200)
    assert steps_of(text[5 * 200 :]) == [3]


def test_a_cursor_of_another_call_is_refused(place, logs, tmp_path):
    words = ("events", logs, "--cursor", tmp_path / "at", "--format")
    place.kajitori(*words, "jsonl")
    saved = (tmp_path / "at").read_text()
    for more in (("csv",), ("jsonl", "--tag", "loss"), ("jsonl", "--run", "train")):
        done = place.kajitori(*words, *more, status=2)
        assert "is of a call with another place, format, --tag or --run" in done.stderr
    for text in ("", "{", "[]", '"x"'):
        (tmp_path / "at").write_text(text)
        assert "cannot be read, or is none" in place.kajitori(*words, "jsonl", status=1).stderr
    broken = json.loads(saved)
    broken["reader"] = "nonsense"
    (tmp_path / "at").write_text(json.dumps(broken))
    assert place.kajitori(*words, "jsonl", status=1).stdout == ""
    done = place.kajitori(*words[:-2], tmp_path / "no" / "at", "--format", "jsonl", status=1)
    assert "cannot write the cursor" in done.stderr


def test_a_cursor_that_cannot_be_leaves_the_output_as_it_is(place, logs, tmp_path):
    at, path = tmp_path / "at", tmp_path / "points.jsonl"
    words = ("events", logs, "--format", "jsonl", "--cursor", at, "--output", path)
    place.kajitori(*words)
    with path.open("a") as file:
        file.write("what the cursor does not know\n")
    before, saved = path.read_text(), json.loads(at.read_text())
    for broken, message in (
        ({"reader": saved["reader"][:-5]}, f"the cursor {at}: cursor: not JSON"),
        ({"reader": "{}"}, f"the cursor {at}: this is no cursor"),
        ({"version": 2}, f"the cursor {at} is of another version of kajitori"),
    ):
        at.write_text(json.dumps(saved | broken))
        assert message in place.kajitori(*words, status=1).stderr
        assert path.read_text() == before


def test_an_output_that_was_emptied_gets_a_header_and_a_note(place, logs, tmp_path):
    path = tmp_path / "points.csv"
    words = (
        "events",
        logs,
        "-t",
        "loss",
        "--format",
        "csv",
        "--cursor",
        tmp_path / "at",
        "-o",
        path,
    )
    place.kajitori(*words)
    path.write_text("")
    append(logs / "train", 3)
    assert "the output is shorter than when the cursor" in place.kajitori(*words).stderr
    header_line, row = path.read_text().splitlines()
    assert (header_line, row.split(",")[2]) == ("run,tag,step,value,wall_time", "3")


def test_a_cursor_is_for_one_call_at_a_time(place, logs, tmp_path):
    words = ("events", logs, "--format", "jsonl", "--cursor", tmp_path / "at")
    follower = place.start_kajitori(*words, "--follow")
    for _ in range(3):
        follower.wait_line('{"run":"train"', "stdout")
    done = place.kajitori(*words, status=1)
    assert (done.stdout, done.stderr.count("\n")) == ("", 1)
    assert f"the cursor {tmp_path / 'at'} is in use by another call" in done.stderr
    follower.kill()
    append(logs / "train", 3)
    assert steps_of(place.kajitori(*words).stdout)[-1] == 3


def test_a_cursor_that_cannot_be_written_leaves_nothing(place, logs, tmp_path):
    (tmp_path / "at").mkdir()
    done = place.kajitori("events", logs, "--cursor", tmp_path / "at", status=1)
    assert "cannot be read, or is none" in done.stderr
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("at")] == ["at"]


def make_bytes(n):
    data = header()
    for step in range(n):
        data += scalar("loss" if step % 3 else "acc", step, step / 7)
    return data


def test_killed_at_any_moment_each_row_is_there_once(place, tmp_path):
    chance = random.Random(20261130)
    data = make_bytes(40 * KILLS)
    folder = tmp_path / "logs"
    path, output = folder / NAME, tmp_path / "points.jsonl"
    folder.mkdir()
    words = ("events", folder, "--format", "jsonl", "--cursor", tmp_path / "at", "-o", output)
    at = 0
    with path.open("ab", buffering=0) as file:
        for k in range(KILLS):
            process = subprocess.Popen(
                [place.command, *map(str, words), "--follow"],
                env=place.env,
                stderr=subprocess.PIPE,
            )
            end = len(data) * (k + 1) // KILLS
            while at < end:
                size = min(end - at, chance.randrange(1, 400))
                file.write(data[at : at + size])
                at += size
                time.sleep(chance.random() * 0.002)  # not to wait for something
            if k % 3 == 0:  # also one that has printed what there is
                wait_for_line(output, last_whole_step(data, at))
            assert process.poll() is None, process.stderr.read()
            process.kill()
            process.wait()
            process.stderr.close()
    place.kajitori(*words)
    assert output.read_text() == place.kajitori("events", folder, "--format", "jsonl").stdout
    assert len(output.read_text().splitlines()) == 40 * KILLS
    saved = json.loads((tmp_path / "at").read_text())
    assert saved["format"] == "jsonl"
    assert saved["output"]["bytes"] == output.stat().st_size


def last_whole_step(data, at):
    whole, step = len(header()), -1
    while True:
        size = 12 + int.from_bytes(data[whole : whole + 8], "little") + 4
        if whole >= len(data) or whole + size > at:
            return step
        whole, step = whole + size, step + 1


def wait_for_line(path, step):
    until(lambda: path.exists() and f'"step":{step},' in path.read_text())


def test_merge(place, tmp_path):
    """A training that was resumed at step 2."""
    EventWriter(tmp_path).close()
    with (tmp_path / NAME).open("ab") as file:
        for step, value in ((0, 1.0), (1, 2.0), (2, 3.0), (3, 4.0), (2, 5.0), (1, 6.0)):
            file.write(scalar("loss", step, value))

    def merged(how):
        rows = place.json("events", tmp_path, "-t", "loss", "--merge", how)
        return [(row["step"], row["value"]) for row in rows]

    assert merged("all") == [(0, 1.0), (1, 2.0), (2, 3.0), (3, 4.0), (2, 5.0), (1, 6.0)]
    assert merged("first") == [(0, 1.0), (1, 2.0), (2, 3.0), (3, 4.0)]
    assert merged("last") == [(0, 1.0), (1, 6.0), (2, 5.0), (3, 4.0)]
