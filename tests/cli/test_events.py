# SPDX-License-Identifier: Apache-2.0
"""kajitori events: what is there, points, following, and errors."""

import csv
import io
import json

import pytest
from event_writer import EventWriter


@pytest.fixture
def logs(tmp_path):
    folder = tmp_path / "logs"
    train, validation = EventWriter(folder / "train"), EventWriter(folder / "validation")
    for step, value in ((0, 0.5), (1, 0.1), (2, float("nan")), (3, float("-inf")), (4, 1e-5)):
        train.add("loss", step, value)
    validation.add("loss", 0, 2.0)
    validation.add("acc\x1b[31m", 7, 3.0)
    train.close()
    validation.close()
    return folder


def test_list(place, logs):
    rows = place.json("events", logs)
    assert [(row["run"], row["tag"], row["count"]) for row in rows] == [
        ("train", "loss", 5),
        ("validation", "acc\x1b[31m", 1),
        ("validation", "loss", 1),
    ]
    assert rows[0]["first_step"] == 0
    assert rows[0]["last_step"] == 4
    assert rows[2]["last_value"] == 2.0
    done = place.kajitori("events", logs, "--list")
    assert done.stderr == ""
    text = done.stdout
    assert text.splitlines()[0].split()[:3] == ["run", "tag", "count"]
    assert "\x1b" not in text


def test_points(place, logs):
    text = place.kajitori(
        "events", logs, "--tag", "loss", "--run", "train", "--format", "csv"
    ).stdout
    rows = list(csv.DictReader(io.StringIO(text)))
    assert list(rows[0]) == ["run", "tag", "step", "value", "wall_time"]
    assert [row["step"] for row in rows] == ["0", "1", "2", "3", "4"]
    assert [row["value"] for row in rows] == [
        "0.5", "0.10000000149011612", "NaN", "-Infinity", "9.999999747378752e-06",
    ]  # fmt: skip
    assert rows[0]["wall_time"] == "1796045719.5"
    points = place.json("events", logs, "--tag", "loss")
    assert len(points) == 6
    assert sorted(str(p["value"]) for p in points if p["run"] == "train")[:2] == [
        "-Infinity",
        "0.10000000149011612",
    ]
    lines = place.kajitori("events", logs, "--tag", "loss", "--format", "jsonl").stdout.splitlines()
    assert [json.loads(line) for line in lines] == points
    values = place.kajitori("events", logs, "-t", "loss", "-r", "validation", "--format", "value")
    assert values.stdout == "2.0\n"
    table = place.kajitori("events", logs, "-t", "loss", "-r", "validation").stdout.splitlines()
    assert table[0].split() == ["run", "tag", "step", "value", "wall_time"]
    assert table[1].split()[:4] == ["validation", "loss", "0", "2.0"]


def test_missing_tag_lists_the_nearest(place, logs):
    done = place.kajitori("events", logs, "--tag", "los", status=1)
    assert done.stderr == (
        f"kajitori: {logs}: no tag 'los'; there is: loss (in train), loss (in validation), "
        "acc[31m (in validation)\n"
    )
    assert done.stdout == ""
    done = place.kajitori("events", logs, "--tag", "acc", "--run", "train", status=1)
    assert "no tag 'acc' in run train; there is: acc[31m (in validation)" in done.stderr
    assert place.kajitori("events", logs, "--list", "--tag", "los", status=1).stdout == ""
    done = place.kajitori("events", logs, "--tag", "train/loss", status=1)
    assert "no tag 'train/loss'; give --run RUN --tag TAG; there is: loss (in train)" in done.stderr
    done = place.kajitori("events", logs, "--run", "test", status=1)
    assert done.stderr == f"kajitori: {logs}: no run 'test'; there is: train, validation\n"


def test_one_long_name_does_not_hide_the_others(place, tmp_path):
    writer = EventWriter(tmp_path / "logs")
    for tag in ("x" * 70000, "", "\u00e9" * 60, "acc"):
        writer.add(tag, 0, 1)
    writer.close()
    done = place.kajitori("events", tmp_path / "logs", "--tag", "loss", status=1)
    names = done.stderr.strip().split("there is: ")[1].split(", ")
    assert sorted(names) == sorted(["x" * 57 + "...", "(empty tag)", "\u00e9" * 28 + "...", "acc"])


def test_tag_of_a_spec(place, logs, tmp_path):
    table = tmp_path / "metrics.csv"
    table.write_text("step,loss,acc\n0,0.5,0.1\n1,0.25,0.2\n")
    assert [row["tag"] for row in place.json("events", f"csv:{table}")] == ["acc", "loss"]
    assert [row["tag"] for row in place.json("events", f"csv:{table}:acc")] == ["acc"]
    assert [row["run"] for row in place.json("events", f"events:{logs}:train/loss")] == ["train"]
    for words in ((), ("--values",), ("--plot",)):
        done = place.kajitori("events", f"csv:{table}:los", *words, status=1)
        assert done.stderr.endswith("no such tag; there is: acc, loss\n")
    done = place.kajitori("events", f"csv:{table}:acc", "--tag", "loss", status=1)
    assert done.stderr.endswith("no tag 'loss'; there is: acc\n")


def test_following_what_is_not_there_yet_says_so(place, logs, tmp_path):
    for words, note in (
        ((logs, "--tag", "acc", "--run", "train"), "no tag 'acc' in run train yet; there is: "),
        ((logs, "--run", "test"), "no run 'test' yet; there is: train, validation"),
        ((f"events:{logs}:acc",), "no such tag yet; there is: "),
        ((tmp_path / "none",), "there is nothing yet"),
    ):
        following = place.start_kajitori("events", *words, "--follow")
        following.wait_line(note, "stderr")
        following.popen.kill()


def test_one_of_several_tags_is_missing(place, logs):
    done = place.kajitori(
        "events", logs, "-t", "loss", "-t", "lr", "-r", "train", "--format", "value", status=1
    )
    assert len(done.stdout.splitlines()) == 5
    assert "no tag 'lr' in run train" in done.stderr


def test_globs(place, tmp_path):
    writer = EventWriter(tmp_path / "a1")
    for tag in ("epoch_loss", "epoch_acc", "batch_loss", "odd[1]"):
        writer.add(tag, 1, 1.0)
    writer.close()
    for run in ("a2", "b1"):
        writer = EventWriter(tmp_path / run)
        writer.add("epoch_loss", 1, 1.0)
        writer.close()

    def chosen(*words):
        return [(row["run"], row["tag"]) for row in place.json("events", tmp_path, *words)]

    assert chosen("-t", "epoch_*") == [
        ("a1", "epoch_loss"),
        ("a1", "epoch_acc"),
        ("a2", "epoch_loss"),
        ("b1", "epoch_loss"),
    ]
    assert chosen("-t", "*_loss", "-t", "odd[1]", "-r", "a[12]") == [
        ("a1", "epoch_loss"),
        ("a1", "batch_loss"),
        ("a1", "odd[1]"),
        ("a2", "epoch_loss"),
    ]
    assert chosen("--list", "-r", "b*") == [("b1", "epoch_loss")]
    assert len(chosen("--values")) == 6
    assert len(chosen("--values", "-r", "a2", "-r", "b1")) == 2


def test_a_long_name_does_not_widen_the_table(place, logs):
    writer = EventWriter(logs / "train", "events.out.tfevents.1796045800.host")
    writer.add("x" * 300, 1, 4.0)
    writer.close()
    lines = place.kajitori("events", logs).stdout.splitlines()
    assert [len(line) < 200 for line in lines] == [True, True, False, True, True]


def test_missing_folder(place, tmp_path):
    done = place.kajitori("events", tmp_path / "none", status=1)
    assert done.stderr == f"kajitori: {tmp_path}/none: no such folder\n"
    done = place.kajitori("events", "/dev/null", status=2)
    assert "neither a folder nor a file" in done.stderr
    for name, spec in (
        ("metrics.csv", "csv:{}"),
        ("metrics.jsonl", "jsonl:{}"),
        ("trainer_state.json", "trainer:{}"),
        ("train.log", "text:{}:/PATTERN/"),
    ):
        path = tmp_path / name
        path.write_text("step,loss\n")
        done = place.kajitori("events", path, status=2)
        assert f"is no event file; read it as {spec.format(path)}\n" in done.stderr
    (tmp_path / "empty").mkdir()
    done = place.kajitori("events", tmp_path / "empty")
    assert "no scalars" in done.stderr
    done = place.kajitori("events", tmp_path / "empty", "--tag", "loss", status=1)
    assert "there are no scalars in it" in done.stderr


def test_folder_with_a_colon(place, tmp_path):
    writer = EventWriter(tmp_path / "a:b\\c")
    writer.add("loss", 1, 4.0)
    writer.close()
    assert place.json("events", tmp_path / "a:b\\c")[0]["last_value"] == 4.0


def test_one_file_and_a_spec(place, logs):
    path = next((logs / "validation").iterdir())
    rows = place.json("events", path)
    assert [(row["run"], row["tag"]) for row in rows] == [(".", "acc\x1b[31m"), (".", "loss")]
    (logs / "validation" / "events.out.tfevents.9.other").write_bytes(path.read_bytes())
    assert len(place.json("events", path, "--values")) == 2
    assert len(place.json("events", f"events:{path}:loss", "--values")) == 1
    assert len(place.json("events", f"events:{logs}", "--values", "-r", "train")) == 5


def test_other_sources(place, tmp_path):
    (tmp_path / "m.jsonl").write_text('{"step": 1, "loss": 0.5}\n{"step": 2, "loss": 0.25}\n')
    (tmp_path / "m.csv").write_text("step,loss\n1,0.5\n2,0.25\n")
    (tmp_path / "t.log").write_text("step 1 loss=0.5\nstep 2 loss=0.25\n")
    for spec in ("jsonl:m.jsonl", "csv:m.csv:loss", r"text:t.log:/step (?<step>\d+) loss=(\S+)/"):
        kind, rest = spec.split(":", 1)
        spec = f"{kind}:{tmp_path}/{rest}"
        rows = place.json("events", spec, "--values")
        assert [(row["run"], row["step"], row["value"]) for row in rows] == [
            (".", 1, 0.5),
            (".", 2, 0.25),
        ]
        (row,) = place.json("events", spec)
        assert (row["count"], row["last_value"], row["max"]) == (2, 0.25, 0.5)
        (row,) = place.json("events", spec, "--runs")
        assert (row["run"], row["files"], row["tags"], row["points"]) == (".", 1, 1, 2)
        assert place.kajitori("events", spec, "--verify").stdout.startswith("whole: 1 file, ")
        assert "points: 2\n" in place.kajitori("events", spec, "--stats").stdout
    done = place.kajitori("events", f"csv:{tmp_path}/none.csv", status=1)
    assert done.stderr.endswith("none.csv: there is nothing yet; --follow waits for it\n")
    assert "unknown" not in place.kajitori("events", "nosuch:thing", status=1).stderr


def test_options_that_exclude_each_other(place, logs):
    for words, message in (
        (("--list", "--runs"), "--list and --runs exclude each other"),
        (("--list", "--follow"), "--list and --follow exclude each other"),
        (("--verify", "--cursor", "c"), "--verify and --cursor exclude each other"),
        (("--follow", "--merge", "last"), "--merge last needs all points"),
        (("--follow", "--format", "json"), "--follow prints rows that may be continued"),
        (("--follow", "--finished"), "--finished and --follow exclude each other"),
        (("--merge", "best"), "--merge best: give all, last or first"),
        (("--log",), "--log goes with --plot"),
        (("--verify", "--tag", "loss"), "--verify is about files; it has no --tag"),
        (("--repair", "out", "--output", "x"), "--repair and --output exclude each other"),
        (("--plot", "--format", "csv"), "--format csv: --plot has the formats table"),
    ):
        done = place.kajitori("events", logs, *words, status=2)
        assert message in done.stderr
        assert done.stdout == ""


def test_follow_waits_for_the_folder_and_for_more(place, tmp_path):
    folder = tmp_path / "later" / "logs"
    following = place.start_kajitori(
        "events", folder, "--tag", "loss", "--follow", "--format", "jsonl"
    )
    writer = EventWriter(folder)
    for step in range(3):
        writer.add("loss", step, 0.5 * step)
        assert json.loads(following.wait_line("loss"))["step"] == step
    writer.close()
    following.kill()


def test_torn_record_at_the_end(place, logs):
    path = next((logs / "train").iterdir())
    with path.open("ab") as file:
        file.write(b"\x18\x00\x00")
    done = place.kajitori("events", logs, "--tag", "loss", "--run", "train", "--format", "value")
    assert len(done.stdout.splitlines()) == 5
    assert "unfinished record" in done.stderr
    assert "unfinished record" in place.kajitori("events", logs).stderr
    done = place.kajitori("events", logs, "--finished")
    assert done.stderr == "kajitori: 1 file has an unfinished record at the end\n"


def test_damaged_record_is_skipped_when_finished(place, logs):
    path = next((logs / "train").iterdir())
    data = bytearray(path.read_bytes())
    data[-5] ^= 1  # in the data of the last record
    path.write_bytes(data)
    writer = EventWriter(logs / "train", path.name)
    writer.add("loss", 9, 7.0)
    writer.close()
    words = ("events", logs, "-t", "loss", "-r", "train", "--finished", "--format", "csv")
    done = place.kajitori(*words)
    assert [line.split(",")[2] for line in done.stdout.splitlines()[1:]] == [
        "0",
        "1",
        "2",
        "3",
        "9",
    ]
    assert "1 damaged record (" in done.stderr
