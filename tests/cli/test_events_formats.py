# SPDX-License-Identifier: Apache-2.0
"""kajitori events: how values are spelled, npz, --output, charts."""

import csv
import fcntl
import io
import json
import math
import os
import pty
import random
import resource
import signal
import struct
import subprocess
import termios

import numpy
import pytest
from event_writer import EventWriter
from waiting import until

NAN, INFINITY = float("nan"), float("inf")


def write(folder, tag, values, name="events.out.tfevents.1796045719.host"):
    writer = EventWriter(folder, name)
    for step, value in enumerate(values):
        writer.add(tag, step, value)
    writer.close()


def as_float32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def test_numbers_are_spelled_as_python_does(place, tmp_path):
    """wall_time is a double, value a float32: both as repr has them."""
    random.seed(5)
    doubles = [struct.unpack("<d", random.randbytes(8))[0] for _ in range(3000)]
    doubles += [2.0**k for k in range(-1074, 1024)] + [float(f"1e{k}") for k in range(-320, 309)]
    doubles += [random.randrange(10**9) / 10.0 ** random.randrange(9) for _ in range(3000)]
    doubles = [number for number in doubles if math.isfinite(number)]
    writer = EventWriter(tmp_path)
    for step, number in enumerate(doubles):
        writer.add("x", step, as_float32(step / 7), wall_time=number)
    writer.close()
    lines = place.kajitori("events", tmp_path, "--format", "jsonl").stdout.splitlines()
    assert len(lines) == len(doubles)
    for step, (line, number) in enumerate(zip(lines, doubles, strict=True)):
        assert line == json.dumps(
            {
                "run": ".",
                "tag": "x",
                "step": step,
                "wall_time": number,
                "value": as_float32(step / 7),
            },
            separators=(",", ":"),
        )


def test_bytes_of_tags(place, tmp_path):
    writer = EventWriter(tmp_path)
    writer.add(b"a\xff\x1b[2J\xed\xa0\x80\xc3\xa9\xf0\x9f\x98\x80\x7f", 1, 1.0)
    writer.close()
    line = place.kajitori("events", tmp_path, "--format", "jsonl").stdout
    assert line.isascii()
    assert json.loads(line)["tag"].encode("utf-8", "surrogateescape") == (
        b"a\xff\x1b[2J\xed\xa0\x80\xc3\xa9\xf0\x9f\x98\x80\x7f"
    )
    for words in (("--list",), ("--values",), ("--values", "--format", "csv"), ("--plot",)):
        assert "\x1b" not in place.kajitori("events", tmp_path, *words).stdout


def test_rows_in_every_format(place, tmp_path):
    write(tmp_path, "loss", [0.5, NAN])
    words = ("events", tmp_path, "--values")
    table = place.kajitori(*words).stdout.splitlines()
    assert table[0].split() == ["run", "tag", "step", "value", "wall_time"]
    assert place.kajitori(*words, "--format", "value").stdout == "0.5\nNaN\n"
    rows = list(csv.DictReader(io.StringIO(place.kajitori(*words, "--format", "csv").stdout)))
    assert [row["value"] for row in rows] == ["0.5", "NaN"]
    assert [row["value"] for row in place.json(*words)] == [0.5, "NaN"]
    yaml = place.kajitori(*words, "--format", "yaml").stdout
    assert yaml.startswith('- run: "."\n  tag: "loss"\n  step: 0\n  value: 0.5\n')
    (tmp_path / "empty").mkdir()
    assert place.json("events", tmp_path / "empty", "--values") == []


@pytest.fixture
def logs(tmp_path):
    folder = tmp_path / "logs"
    write(folder / "train", "loss", [0.5, NAN, INFINITY])
    write(folder / "train", "acc", [1.0], "events.out.tfevents.1796045720.host")
    write(folder / "val", b"l\xff\xc3\xa9", [-0.0])
    return folder


def check_archive(path):
    with numpy.load(path, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive}
    assert sorted(arrays) == ["run", "series", "step", "tag", "value", "wall_time"]
    assert arrays["step"].dtype == numpy.int64
    assert arrays["step"].tolist() == [0, 1, 2, 0, 0]
    assert arrays["wall_time"].tolist() == [1796045719.5] * 5
    numpy.testing.assert_array_equal(arrays["value"], [0.5, NAN, INFINITY, 1.0, -0.0])
    assert math.copysign(1, arrays["value"][4]) == -1
    assert arrays["series"].tolist() == [0, 0, 0, 1, 2]
    assert arrays["run"].tolist() == ["train", "train", "val"]
    assert arrays["tag"].tolist() == ["loss", "acc", "l\udcffé"]


def test_npz_to_a_file_and_a_pipe(place, logs, tmp_path):
    place.kajitori("events", logs, "--format", "npz", "--output", tmp_path / "points.npz")
    check_archive(tmp_path / "points.npz")
    done = subprocess.run(
        [place.command, "events", logs, "--format", "npz"],
        env=place.env,
        capture_output=True,
        check=True,
    )
    assert done.stdout == (tmp_path / "points.npz").read_bytes()
    check_archive(io.BytesIO(done.stdout))


def test_npz_of_some_tags_and_of_none(place, logs, tmp_path):
    path = tmp_path / "points.npz"
    place.kajitori("events", logs, "--format", "npz", "-o", path, "-t", "acc")
    archive = numpy.load(path)
    assert archive["series"].tolist() == [0]
    assert archive["tag"].tolist() == ["acc"]
    (tmp_path / "empty").mkdir()
    place.kajitori("events", tmp_path / "empty", "--format", "npz", "-o", path)
    archive = numpy.load(path)
    assert {name: archive[name].shape for name in archive} == dict.fromkeys(archive, (0,))
    done = place.kajitori("events", logs, "--format", "npz", "-o", path, "-t", "los", status=1)
    assert "no tag 'los'" in done.stderr
    assert numpy.load(path)["step"].shape == (0,)


def on_terminal(place, *words):
    """Exit status and output on a terminal of 100 columns."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    process = subprocess.Popen(
        [place.command, *map(str, words)],
        env=place.env | {"LC_ALL": "C.UTF-8"},
        stdin=subprocess.DEVNULL,
        stdout=slave,
        stderr=slave,
    )
    os.close(slave)
    text = b""
    while True:
        try:
            piece = os.read(master, 65536)
        except OSError:  # the terminal is closed
            break
        if not piece:
            break
        text += piece
    os.close(master)
    return process.wait(), text.decode().replace("\r\n", "\n")


def test_npz_of_names_that_are_too_long_together(place, tmp_path):
    writer = EventWriter(tmp_path / "logs")
    for step in range(1000):
        writer.add(f"t{step}", 0, 1)
    writer.add("x" * 70000, 0, 1)
    writer.close()
    words = ("events", tmp_path / "logs", "--format", "npz", "-o", tmp_path / "out")
    done = place.kajitori(*words, status=1)
    assert "1001 names, each in the length of the longest tag" in done.stderr
    assert not (tmp_path / "out").exists()
    place.kajitori(*words, "--tag", "x*")
    with numpy.load(tmp_path / "out") as points:
        assert list(points["tag"]) == ["x" * 70000]


def test_npz_refuses_a_terminal(place, logs):
    status, text = on_terminal(place, "events", logs, "--format", "npz")
    assert status == 2
    assert "give --output FILE" in text


def test_the_run_stands_once_on_a_terminal(place, logs):
    _, text = on_terminal(place, "events", logs)
    assert [line.split()[0] for line in text.splitlines()[1:]] == ["train", "loss", "val"]
    lines = place.kajitori("events", logs).stdout.splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["train", "train", "val"]


def test_output_is_replaced_when_complete(place, logs, tmp_path):
    path = tmp_path / "points.csv"
    path.write_text("before")
    path.chmod(0o640)
    (tmp_path / "link").symlink_to("points.csv")
    words = ("events", logs, "--values", "--format", "csv")
    expected = place.kajitori(*words).stdout
    done = place.kajitori(*words, "--output", tmp_path / "link")
    assert done.stdout == ""
    assert path.read_text() == expected
    assert path.stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "link").is_symlink()
    place.kajitori(*words, "--tag", "none", "--output", path, status=1)
    assert path.read_text() == expected
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["link", "logs", "points.csv"]
    done = place.kajitori(*words, "--output", tmp_path / "no" / "file", status=1)
    assert "cannot write" in done.stderr
    assert place.kajitori(*words, "--output", "/dev/null").stdout == ""
    assert place.kajitori(*words, "--output", "/dev/full", status=1).stderr.startswith(
        "kajitori: cannot"
    )


def test_an_output_that_is_interrupted_leaves_nothing(place, tmp_path):
    process = place.start_kajitori(
        "events", "jsonl:-", "--values", "-o", tmp_path / "out", stdin=subprocess.PIPE
    )
    until(lambda: list(tmp_path.glob("out.*.part")))
    process.popen.terminate()
    assert process.wait() == -signal.SIGTERM
    assert list(tmp_path.glob("out*")) == []


def limited(place, size, *words):
    """The command where no file may have more than `size` bytes."""
    return subprocess.run(
        [place.command, "events", *map(str, words)],
        env=place.env,
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size)),
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--values", "--output", "out"), "cannot write {}"),
        (("--format", "npz", "--output", "out"), "cannot write {}"),
        (("--format", "jsonl", "--cursor", "out"), "cannot write the cursor {}: File too large"),
    ],
)
def test_what_cannot_be_written_leaves_nothing(place, logs, tmp_path, words, message):
    out = tmp_path / "out"
    done = limited(place, 100, logs, *(out if word == "out" else word for word in words))
    assert done.returncode == 1
    assert done.stderr == f"kajitori: {message.format(out)}\n"
    assert [path.name for path in tmp_path.iterdir()] == ["logs"]


def test_a_copy_that_cannot_be_written_is_not_there(place, tmp_path):
    writer = EventWriter(tmp_path / "logs" / "a")
    writer.close()
    long = EventWriter(tmp_path / "logs" / "b")
    for step in range(100):
        long.add("loss", step, 0.5)
    long.close()
    out = tmp_path / "out"
    done = limited(place, 1000, tmp_path / "logs", "--repair", out)
    copy = out / "b" / long.path.name
    assert (done.returncode, done.stderr) == (1, f"kajitori: cannot write {copy}: File too large\n")
    assert [p for p in out.rglob("*") if p.is_file()] == [out / "a" / writer.path.name]


def test_plot_of_one_run(place, tmp_path):
    write(tmp_path, "loss", [1.0, 0.1, NAN, 0.01, INFINITY, 0.0])
    ascii_text = place.kajitori("events", tmp_path, "--plot", env={"LC_ALL": "C"}).stdout
    assert ascii_text.isascii()
    lines = ascii_text.splitlines()
    assert lines[0] == "loss  * ."
    assert lines[1].startswith("         1 |*")
    assert lines[13].startswith("         0 |")
    assert lines[7].startswith("       0.5 |")
    assert ascii_text.count("*") == 1 + 4
    assert lines[-1] == "not drawn: 1 NaN, 1 infinite"
    assert max(map(len, lines)) == 80
    text = place.kajitori("events", tmp_path, "--plot", env={"LC_ALL": "C.UTF-8"}).stdout
    assert any(0x2800 < ord(character) < 0x2900 for character in text)
    logarithmic = place.kajitori("events", tmp_path, "--plot", "--log", env={"LC_ALL": "C"}).stdout
    lines = logarithmic.splitlines()
    assert lines[7].startswith("       0.1 |")
    assert "*" in lines[7]
    assert lines[-1] == "not drawn: 1 NaN, 1 infinite, 1 not above 0"


def test_plot_of_several_runs(place, logs):
    write(logs / "val", "loss", [0.25, 0.125], "events.out.tfevents.1796045720.host")
    text = place.kajitori("events", logs, "--plot", "-t", "loss").stdout
    assert text.splitlines()[0] == "loss  * train  + val"
    assert text.count("+") == 1 + 2 + 1
    write(logs / "odd", "nothing", [NAN])
    text = place.kajitori("events", logs, "--plot", "-t", "nothing", env={"LC_ALL": "C"}).stdout
    assert text == "nothing  * odd\nnot drawn: 1 NaN\n"
    _, text = on_terminal(place, "events", logs, "--plot", "-t", "acc")
    assert max(map(len, text.splitlines())) == 100


def test_plot_of_extremes(place, tmp_path):
    write(tmp_path, "wide", [3e38, -3e38, 1e-45])
    write(tmp_path, "same", [7.0, 7.0], "events.out.tfevents.1796045720.host")
    writer = EventWriter(tmp_path, "events.out.tfevents.1796045721.host")
    writer.add("steps", -(2**63), 1.0)
    writer.add("steps", 2**63 - 1, 2.0)
    writer.close()
    for env in ({"LC_ALL": "C"}, {"LC_ALL": "C.UTF-8"}):
        lines = place.kajitori("events", tmp_path, "--plot", env=env).stdout.splitlines()
        assert [line.split()[0] for line in lines if line[:1].isalpha()] == [
            "wide",
            "same",
            "steps",
        ]
