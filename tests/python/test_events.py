# SPDX-License-Identifier: Apache-2.0
"""kajitori.EventReader and read_events."""

import contextlib
import dis
import json
import math
import os
import pathlib
import pickle
import selectors
import signal
import subprocess
import sys
import threading

import pytest
from event_rows import rows
from event_writer import EventWriter
from training import PATIENCE

import kajitori


def test_what_is_there(logs):
    found = kajitori.read_events(logs)
    assert list(found) == [("train", "loss"), ("validation", "acc"), ("validation", "loss")]
    loss = found["train", "loss"]
    assert list(loss.step) == [0, 1, 1, 3, 4]
    assert list(loss.value) == [0.5, 0.25, 0.125, math.inf, -math.inf]
    assert (loss.series, loss.flags) == (None, None)
    assert list(found["validation", "acc"].step) == [-7]
    assert list(found["validation", "acc"].wall_time) == [12.5]


def test_one_tag_of_one_run(logs):
    assert list(kajitori.read_events(logs, tag="loss")) == [
        ("train", "loss"),
        ("validation", "loss"),
    ]
    assert list(kajitori.read_events(logs, run="validation")) == [
        ("validation", "acc"),
        ("validation", "loss"),
    ]
    assert list(kajitori.read_events(logs, tag="loss", run="train")) == [("train", "loss")]
    assert list(kajitori.read_events(logs, tag=b"validation/loss")) == [("validation", "loss")]


def test_what_is_not_there_is_an_error_that_lists_what_is(logs, tmp_path):
    with pytest.raises(kajitori.NotFoundError, match=r"no tag 'los'; there is: 'loss' of 'train'"):
        kajitori.read_events(logs, tag="los")
    with pytest.raises(kajitori.NotFoundError, match="no tag 'acc' of run 'train'"):
        kajitori.read_events(logs, tag="acc", run="train")
    with pytest.raises(kajitori.NotFoundError, match="nothing"):
        kajitori.read_events(tmp_path / "none", run="train")
    with pytest.raises(kajitori.NotFoundError, match="no such folder"):
        kajitori.read_events(tmp_path / "none")
    with pytest.raises(kajitori.NotFoundError, match="no such tag; there is: 'loss' of 'train'"):
        kajitori.read_events(f"events:{logs}:los")
    assert kajitori.read_events(tmp_path / "logs/train/..", tag="acc")
    (tmp_path / "empty").mkdir()
    assert kajitori.read_events(tmp_path / "empty") == {}


def test_merging(logs):
    def steps(merge):
        columns = kajitori.read_events(logs, "loss", "train", merge)["train", "loss"]
        return list(zip(columns.step, columns.value, strict=True))[:3]

    assert steps("all") == [(0, 0.5), (1, 0.25), (1, 0.125)]
    assert steps("first") == [(0, 0.5), (1, 0.25), (3, math.inf)]
    assert steps("last") == [(0, 0.5), (1, 0.125), (3, math.inf)]
    with pytest.raises(kajitori.ArgumentError, match="all, last, first"):
        steps("newest")


@pytest.mark.parametrize("name", ["a:b\\c", "events:x", "日本 語", b"\xff\xfe:"])
def test_a_folder_of_any_name(tmp_path, name):
    folder = tmp_path / os.fsdecode(name)
    writer = EventWriter(folder / "run \N{SNOWMAN}")
    writer.add("loss", 1, 4.0)
    writer.close()
    for source in (folder, str(folder)):
        assert list(kajitori.read_events(source, tag="loss")) == [("run \N{SNOWMAN}", "loss")]


def test_a_relative_folder_that_looks_like_a_spec(tmp_path, monkeypatch, logs):
    monkeypatch.chdir(tmp_path)
    logs.rename("events:logs")
    assert len(kajitori.read_events(pathlib.Path("events:logs"))) == 3
    with pytest.raises(kajitori.NotFoundError, match="no such folder"):
        kajitori.read_events("logs")
    pathlib.Path("events:logs").rename("jsnol:logs")
    assert len(kajitori.read_events("jsnol:logs")) == 3, "there is such a folder"


def test_a_spec(logs):
    assert list(kajitori.read_events(f"events:{logs}:acc")) == [("validation", "acc")]
    assert list(kajitori.read_events(f"events:{logs}", tag="acc")) == [("validation", "acc")]
    with pytest.raises(kajitori.ArgumentError, match="names one already"):
        kajitori.EventReader(f"events:{logs}:acc", tag="loss")
    with pytest.raises(kajitori.ArgumentError, match="known: events"):
        kajitori.EventReader("jsnol:metrics")


def test_odd_arguments(logs):
    for options, message in (
        ({"tag": 3}, "tag: 3 is no text"),
        ({"tag": "a\0b"}, "NUL"),
        ({"run": ""}, "run: the path is empty"),
        ({"poll_ms": -1}, "poll_ms"),
        ({"grace_ms": 2**32}, "grace_ms"),
    ):
        with pytest.raises(kajitori.ArgumentError, match=message):
            kajitori.EventReader(logs, **options)
    with pytest.raises(kajitori.ArgumentError, match="source"):
        kajitori.EventReader(7)
    with kajitori.EventReader(logs) as reader:
        for timeout in ("soon", math.nan):
            with pytest.raises(kajitori.ArgumentError, match="timeout"):
                reader.read(timeout)
        with pytest.raises(kajitori.ArgumentError, match="max_points"):
            reader.read(max_points=-1)
        with pytest.raises(kajitori.NotFoundError):
            reader.series(99)
        with pytest.raises(kajitori.StateError):
            reader.history("train", "loss")


def test_tags_that_are_no_text(tmp_path):
    writer = EventWriter(tmp_path / "logs")
    tags = [b"\xff\xfe", "日本".encode(), b"a\nb", b"nul\0in it", b""]
    for step, tag in enumerate(tags):
        writer.add(tag, step, 1.0)
    writer.close()
    found = kajitori.read_events(tmp_path / "logs")
    assert {tag.encode(errors="surrogateescape"): list(found[run, tag].step) for run, tag in found} == {
        tag: [step] for step, tag in enumerate(tags)
    }  # fmt: skip
    assert len(kajitori.read_events(tmp_path / "logs", tag="\udcff\udcfe")) == 1
    assert len(kajitori.read_events(tmp_path / "logs", tag=b"\xff\xfe")) == 1
    with kajitori.EventReader(tmp_path / "logs", finished=True, keep=True) as reader:
        assert sum(map(len, reader)) == len(tags)
        assert list(reader.history(".", b"nul\0in it").step) == [3]


def test_batches(logs):
    with kajitori.EventReader(logs, finished=True) as reader:
        batches = list(iter(lambda: rows(reader, reader.read(max_points=2)), []))
        assert [len(batch) for batch in batches] == [2, 2, 2, 1]
        assert [row for batch in batches for row in batch] == [
            ("train", "loss", 0, 0.5),
            ("train", "loss", 1, 0.25),
            ("train", "loss", 1, 0.125),
            ("train", "loss", 3, math.inf),
            ("train", "loss", 4, -math.inf),
            ("validation", "loss", 0, 2.0),
            ("validation", "acc", -7, 3.0),
        ]
        assert len(reader.read(None)) == 0, "nothing is left"
        assert list(reader) == []


def test_following_until_somebody_says_that_it_is_finished(tmp_path):
    reader = kajitori.EventReader(tmp_path / "later" / "logs")
    seen = []

    def follow():
        for columns in reader:
            seen.extend(rows(reader, columns))
            arrived.release()

    arrived = threading.Semaphore(0)
    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    writer = EventWriter(tmp_path / "later" / "logs")
    for step in range(5):
        writer.add("loss", step, 0.5 * step)
        assert arrived.acquire(timeout=PATIENCE)
    with pytest.raises(kajitori.StateError, match="one thread at a time"):
        reader.read()
    reader.finish()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert seen == [(".", "loss", step, 0.5 * step) for step in range(5)]
    reader.close()
    writer.close()


def test_a_descriptor_for_selectors(tmp_path):
    (tmp_path / "logs").mkdir()
    with kajitori.EventReader(tmp_path / "logs") as reader, selectors.DefaultSelector() as selector:
        selector.register(reader, selectors.EVENT_READ)
        writer = EventWriter(tmp_path / "logs")
        writer.add("loss", 1, 2.0)
        columns = reader.read()
        while not len(columns):
            assert selector.select(PATIENCE)
            columns = reader.read()
        assert rows(reader, columns) == [(".", "loss", 1, 2.0)]
        writer.close()


FOLLOW = """
import signal, sys, kajitori
reader = kajitori.EventReader(sys.argv[1])
signal.signal(signal.SIGTERM, lambda *_: reader.finish())
try:
    print("waiting", flush=True)
    for columns in reader:
        pass
    print("finished")
except KeyboardInterrupt:
    print("interrupted", len(reader.read()))
"""


@pytest.mark.parametrize(
    ("number", "said"),
    [(signal.SIGINT, "interrupted 0\n"), (signal.SIGTERM, "finished\n")],
    ids=["ctrl-c", "finish in a handler"],
)
def test_a_signal_ends_the_wait(tmp_path, number, said):
    process = subprocess.Popen(
        [sys.executable, "-c", FOLLOW, tmp_path], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "waiting\n"
    process.send_signal(number)
    out, _ = process.communicate(timeout=PATIENCE)
    assert out == said


def test_after_close(logs):
    reader = kajitori.EventReader(logs, keep=True)
    columns = reader.read()
    reader.close()
    reader.close()
    reader.finish()
    for call in (
        reader.read,
        reader.tags,
        reader.files,
        reader.damage,
        reader.stats,
        reader.fileno,
    ):
        with pytest.raises(kajitori.StateError, match="closed"):
            call()
    assert len(columns) == 7
    assert columns.value[5] == 2.0


def test_readers_leave_no_descriptors(logs):
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        kajitori.EventReader(logs).read()
        with kajitori.EventReader(logs) as reader:
            reader.read()
        with pytest.raises(kajitori.DataError):
            kajitori.EventReader(logs, cursor="{}")
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.filterwarnings("error")
def test_what_is_skipped_is_a_warning_and_a_tag_of_several_runs_is_none(logs):
    assert len(kajitori.read_events(logs, tag="loss")) == 2
    path = next((logs / "train").iterdir())
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(data)
    with pytest.warns(kajitori.EventWarning, match="skipped"):
        kajitori.read_events(logs, tag="loss")


def test_other_sources(tmp_path):
    (tmp_path / "a:b.jsonl").write_text(
        '{"step": 1, "loss": 0.5, "acc": 1}\n{"step": 2, "loss": NaN}\n'
    )
    place = f"jsonl:{tmp_path}/a\\:b.jsonl"
    found = kajitori.read_events(place)
    assert {key: list(columns.step) for key, columns in found.items()} == {
        (".", "acc"): [1],
        (".", "loss"): [1, 2],
    }
    assert list(kajitori.read_events(place, tag="acc")) == [(".", "acc")]
    (tmp_path / "m.csv").write_text("epoch,val_loss\n0,0.25\n1,0.125\n")
    found = kajitori.read_events(f"csv:{tmp_path}/m.csv", tag="val_loss")
    assert list(found[".", "val_loss"].value) == [0.25, 0.125]


def test_the_end_of_standard_input_is_the_end():
    code = """
import kajitori
with kajitori.EventReader("jsonl:-") as reader:
    for columns in reader:
        print(*columns.value, flush=True)
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        for step in range(3):
            print(json.dumps({"step": step, "loss": step}), file=process.stdin, flush=True)
            assert process.stdout.readline() == f"{step}.0\n"
        process.stdin.close()
        assert process.wait(PATIENCE) == 0
        assert process.stdout.read() == ""


def interrupt_at(n, function):
    """Calls `function`, with Ctrl-C at the `n`th place of this package at which Python looks for
    signals: after a call, at the beginning of a function, and where a loop goes back. What was
    raised; None when there are fewer places."""
    left, last = n, {}

    def trace(frame, event, arg):
        nonlocal left
        if not frame.f_code.co_filename.startswith(
            (os.path.dirname(kajitori.__file__), contextlib.__file__)
        ):
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            if last.get(frame, "RESUME").startswith(("CALL", "RESUME", "JUMP_BACKWARD")):
                left -= 1
                if left == 0:
                    sys.settrace(None)
                    raise KeyboardInterrupt
            last[frame] = dis.opname[frame.f_code.co_code[frame.f_lasti]]
        return trace

    sys.settrace(trace)
    try:
        function()
    except KeyboardInterrupt as error:
        return error  # whose traceback keeps all frames
    finally:
        sys.settrace(None)
    return None


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_ctrl_c_at_any_moment_leaves_the_reader_usable(logs):
    n = 1
    while True:
        with kajitori.EventReader(logs) as reader:
            error = interrupt_at(n, lambda reader=reader: reader.read(0))
            reader.read(0)
            assert len(reader.tags()) == 3
        if error is None:
            break
        n += 1
    assert n > 10


def test_a_forked_child_leaves_the_reader_alone(logs):
    reader = kajitori.EventReader(logs)
    assert len(reader.read(0)) == 7
    child = os.fork()
    if child == 0:
        try:
            reader.finish()
            reader.read(0)
        except kajitori.StateError as error:
            reader.close()
            os._exit(0 if "process" in str(error) else 2)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    writer = EventWriter(logs / "train")
    writer.add("loss", 9, 1.0)
    writer.close()
    assert list(reader.read(PATIENCE).step) == [9]
    assert reader._poll.poll(0) == []
    reader.close()


def test_a_child_that_is_forked_beside_a_read_ends(logs):
    reader = kajitori.EventReader(logs)
    reader.read(0)
    thread = threading.Thread(target=reader.read, args=(None,))
    thread.start()
    while not reader._lock.locked():
        os.sched_yield()
    child = os.fork()
    if child == 0:
        reader.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    reader.finish()
    thread.join()


def test_arguments_that_cannot_be_meant(logs):
    with pytest.raises(kajitori.ArgumentError, match="source: None is no path"):
        kajitori.EventReader(None)
    with pytest.raises(kajitori.ArgumentError, match=r"poll_ms 1\.5"):
        kajitori.EventReader(logs, poll_ms=1.5)
    with kajitori.EventReader(logs) as reader:
        for number in (-1, 99, 2**32):
            with pytest.raises(kajitori.NotFoundError):
                reader.series(number)
        with pytest.raises(kajitori.ArgumentError, match="max_points"):
            reader.read(0, max_points="x")
        with pytest.raises(kajitori.ArgumentError, match="merge"):
            reader.history("train", "loss", merge=[])
        with pytest.raises(kajitori.UnsupportedError, match="its cursor can"):
            pickle.dumps(reader)
