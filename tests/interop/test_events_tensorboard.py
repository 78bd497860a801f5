# SPDX-License-Identifier: Apache-2.0
"""Random event files of the real writers, read by us, by TensorFlow, by TensorBoard's loader and
accumulator, and by its data server: the same scalars, bit for bit, in the same order.

What they do not show and we do: types of tensors that TensorBoard's Python cannot decode
(UNKNOWN_TO_TENSORBOARD), and events with tags that are not UTF-8. What TensorFlow shows and we do not:
a tensor that has no value at all, as 0.
"""

import collections
import os
import random
import struct
import time

import pytest
import random_events
import tensorflow as tf
from tensorboard import context
from tensorboard.backend.event_processing import event_file_loader
from tensorboard.backend.event_processing import plugin_event_accumulator as accumulator
from tensorboard.compat.proto import event_pb2
from tensorboard.data import server_ingester
from tensorboard.summary.writer.event_file_writer import EventFileWriter
from tensorboard.summary.writer.record_writer import RecordWriter
from tensorboard.util import grpc_util, tensor_util

import kajitori

SEEDS = range(300 if os.environ.get("KAJITORI_SOAK") else 10)
PATIENCE = 120  # seconds until what never comes is a failure
UNKNOWN_TO_TENSORBOARD = {14, 22, 23}  # bfloat16, uint32, uint64
ALL = dict.fromkeys(("scalars", "text", "images", "histograms", "audio"), 0)


def bits(number):
    return "NaN" if number != number else struct.pack("<d", number)


def element(decode, tensor):
    """The one number of a tensor, or None."""
    names = [field.name for field, _ in tensor.ListFields()]
    if not any(name == "tensor_content" or name.endswith("_val") for name in names):
        return None
    try:
        array = decode(tensor)
    except (TypeError, ValueError):
        return None
    is_number = array.dtype.kind in "fiub" or array.dtype.name == "bfloat16"
    return float(array.reshape(())[()]) if array.size == 1 and is_number else None


def scalars(events, decode):
    """(tag, step, bits of wall_time, bits of value) of each; ("START", step) of a session."""
    for event in events:
        if event.WhichOneof("what") == "session_log" and event.session_log.status == 1:
            yield "START", event.step
        for value in event.summary.value:
            number = None
            if value.WhichOneof("value") == "simple_value":
                number = value.simple_value
            elif value.WhichOneof("value") == "tensor":
                number = element(decode, value.tensor)
            if number is not None:
                yield value.tag, event.step, bits(event.wall_time), bits(number)


def files_of(folder):
    """{run: its files in the order of their names}"""
    found = {}
    for base, _, names in os.walk(os.fsencode(folder)):
        if names:
            run = os.fsdecode(os.path.relpath(base, os.fsencode(folder)))
            found[run] = [os.fsdecode(os.path.join(base, name)) for name in sorted(names)]
    return found


def by_tensorflow(folder):
    return {
        run: [
            row
            for file in files
            for row in scalars(tf.compat.v1.train.summary_iterator(file), tf.make_ndarray)
        ]
        for run, files in files_of(folder).items()
    }


def without_sessions(rows):
    """And without the runs that have no scalar."""
    found = {run: [row for row in rows[run] if row[0] != "START"] for run in rows}
    return {run: some for run, some in found.items() if some}


def batch_rows(reader, columns):
    """(run, row as in `scalars`) of each value; ("START", step) of each restart."""
    for step, wall_time, value, series, flags in zip(
        columns.step, columns.wall_time, columns.value, columns.series, columns.flags, strict=True
    ):
        if flags & columns.RESTART:
            yield "START", step
        else:
            info = reader.series(series)
            yield info.run, (info.tag, step, bits(wall_time), bits(value))


def by_us(folder):
    """{run: rows}, and the steps of all restarts."""
    rows = collections.defaultdict(list)
    with kajitori.EventReader(folder, finished=True) as reader:
        for columns in reader:
            for run, row in batch_rows(reader, columns):
                rows[run].append(row)
    return rows, rows.pop("START", [])


@pytest.fixture(scope="module", params=SEEDS)
def folder(request, tmp_path_factory):
    return random_events.write_folder(tmp_path_factory.mktemp("logs"), request.param)


def test_tensorflow_reads_the_same(folder):
    expected = by_tensorflow(folder)
    rows, restarts = by_us(folder)
    assert rows == without_sessions(expected)
    later = []  # a START is a restart when something of its run came before
    for run in sorted(expected, key=lambda run: b"" if run == "." else os.fsencode(run)):
        later += [row[1] for n, row in enumerate(expected[run]) if n and row[0] == "START"]
    assert restarts == later


def test_tensorboard_s_loader_reads_the_same(folder):
    rows, unknown = collections.defaultdict(list), set()

    def decode(tensor):
        """TensorFlow stands in, and only, where TensorBoard knows nothing of the type."""
        try:
            return tensor_util.make_ndarray(tensor)
        except TypeError:
            unknown.add(tensor.dtype)
            return tf.make_ndarray(tensor)

    for run, files in files_of(folder).items():
        for file in files:
            events = event_file_loader.LegacyEventFileLoader(file).Load()
            rows[run].extend(scalars(events, decode))
    assert by_us(folder)[0] == without_sessions(rows)
    assert unknown <= UNKNOWN_TO_TENSORBOARD


def test_tensorboard_s_accumulator_shows_the_same(folder):
    """Series by series, with its purge rules off and nothing sampled."""
    expected = {}
    for run in files_of(folder):
        shown = accumulator.EventAccumulator(
            os.path.join(folder, run),
            size_guidance={accumulator.TENSORS: 0},
            tensor_size_guidance=ALL,
            purge_orphaned_data=False,
        )
        shown.Reload()
        for tag in shown.Tags()["tensors"]:
            found = [
                (event.step, bits(event.wall_time), bits(number))
                for event in shown.Tensors(tag)
                if (number := element(tf.make_ndarray, event.tensor_proto)) is not None
            ]
            if found:
                expected[run, tag] = found
    assert expected == {
        key: [
            (step, bits(wall_time), bits(value))
            for step, wall_time, value in zip(
                columns.step, columns.wall_time, columns.value, strict=True
            )
        ]
        for key, columns in kajitori.read_events(folder).items()
    }


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_read_while_it_is_written_is_the_same(tmp_path, seed):
    rows = collections.defaultdict(list)

    def look():
        for run, row in batch_rows(reader, reader.read()):
            rows[run].append(row)

    with kajitori.EventReader(tmp_path, keep=True) as reader:
        random_events.write_folder(tmp_path, seed, look=look)
        assert rows
        reader.finish()
        while len(columns := reader.read()):
            for run, row in batch_rows(reader, columns):
                rows[run].append(row)
        rows.pop("START", None)
        expected = without_sessions(by_tensorflow(tmp_path))
        assert {run: collections.Counter(found) for run, found in rows.items()} == {
            run: collections.Counter(found) for run, found in expected.items()
        }
        kept = sum(len(reader.history(info.run, info.tag)) for info in reader.tags())
    assert kept == sum(map(len, expected.values()))


def test_batches_and_cursors_change_nothing(folder):
    """Read in batches of random size, each by a reader of its own that goes on from a cursor."""
    rng = random.Random(str(folder.name))
    rows, cursor = collections.defaultdict(list), None
    while True:
        with kajitori.EventReader(folder, finished=True, cursor=cursor) as reader:
            columns = reader.read(max_points=rng.choice((1, 7, 50, 1000)))
            for run, row in batch_rows(reader, columns):
                rows[run].append(row)
            cursor = reader.cursor
        if not len(columns):
            break
    restarts = rows.pop("START", [])
    assert (rows, restarts) == by_us(folder)


def test_tags_that_are_no_text(tmp_path):
    """Protobuf's Python refuses them; so they take the place of names that it takes."""
    rng = random.Random(1)
    for folder in ("plain", "odd"):
        (tmp_path / folder).mkdir()
    names = {}
    with (
        open(tmp_path / "plain" / "events.out.tfevents.1.host", "wb") as plain,
        open(tmp_path / "odd" / "events.out.tfevents.1.host", "wb") as odd,
    ):
        for number in range(200):
            event = event_pb2.Event(step=number, wall_time=number + 0.5)
            value = event.summary.value.add(tag=f"@@{number:04d}" + "@" * rng.randint(0, 40))
            value.simple_value = rng.random()
            tag, message = value.tag.encode(), event.SerializeToString()
            names[value.tag] = bytes(rng.choices(range(128, 256), k=len(tag)))
            RecordWriter(plain).write(message)
            RecordWriter(odd).write(message.replace(tag, names[value.tag]))
    expected = by_tensorflow(tmp_path / "plain")["."]
    rows, _ = by_us(tmp_path / "odd")
    assert [(tag.encode(errors="surrogateescape"), *rest) for tag, *rest in rows["."]] == [
        (names[tag], *rest) for tag, *rest in expected
    ]


def shown_by_server(folder, n_runs):
    """{(run, tag): [(step, bits of wall_time, bits of value)]} of TensorBoard's data server, which
    has loaded a run when it shows the tag "end"."""
    ingester = server_ingester.SubprocessServerDataIngester(
        server_ingester.get_server_binary(),
        str(folder),
        reload_interval=0,
        channel_creds_type=grpc_util.ChannelCredsType.LOCAL,
        samples_per_plugin={"scalars": 0},
    )
    ingester.start()
    provider, place = ingester.data_provider, context.RequestContext()
    deadline = time.monotonic() + PATIENCE
    shown = {}
    while sum("end" in tags for tags in shown.values()) < n_runs:
        assert time.monotonic() < deadline, shown
        shown = provider.read_scalars(
            place, experiment_id="", plugin_name="scalars", downsample=10**6
        )
    return {
        (run, tag): [(p.step, bits(p.wall_time), bits(p.value)) for p in points]
        for run, tags in shown.items()
        for tag, points in tags.items()
    }


@pytest.mark.parametrize("seed", range(3))
def test_what_the_data_server_shows_is_among_ours(tmp_path, seed):
    rng = random.Random(seed)
    runs = rng.sample(random_events.RUNS, 3)
    for run in runs:
        writers = [EventFileWriter(str(tmp_path / run)) for _ in range(2)]
        for number in range(200):  # it drops what comes behind a point of a higher step
            step = rng.randint(max(0, number - 3), number)
            event = event_pb2.Event(step=step, wall_time=rng.uniform(1.7e9, 1.8e9))
            value = event.summary.value.add(tag=rng.choice(random_events.TAGS[:5]))
            if rng.random() < 0.7:
                value.simple_value = random_events.any_float32(rng)
            else:
                value.tensor.CopyFrom(random_events.any_tensor(rng))
                value.metadata.plugin_data.plugin_name = "scalars"
            rng.choice(writers).add_event(event)
        end = event_pb2.Event(step=1, wall_time=1.0)
        end.summary.value.add(tag="end", simple_value=1.0)
        for writer in writers:
            writer.add_event(end)
            writer.close()
    shown = shown_by_server(tmp_path, len(runs))
    ours = {
        key: {
            (step, bits(wall_time), bits(value))
            for step, wall_time, value in zip(
                columns.step, columns.wall_time, columns.value, strict=True
            )
        }
        for key, columns in kajitori.read_events(tmp_path).items()
    }
    assert sum(map(len, shown.values())) > 50
    assert all(set(points) <= ours[key] for key, points in shown.items())
