# SPDX-License-Identifier: Apache-2.0
"""What `EventWriter` writes, read by TensorBoard, TensorFlow and ourselves, and its bytes beside those
of TensorBoard's own writer."""

import copy
import math
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest
from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.plugins.hparams import api_pb2, plugin_data_pb2
from tensorboard.plugins.hparams import metadata as hparams_metadata
from tensorboard.plugins.scalar import metadata as scalar_metadata
from tensorboard.plugins.text.summary_v2 import text_pb
from tensorboard.summary.writer.record_writer import RecordWriter
from tensorboard.util import tensor_util

import kajitori
from kajitori import _event_writer

VALUES = [
    ("loss", 0, 0.25),
    ("loss", 1, math.nan),
    ("loss", 127, math.inf),
    ("loss", 128, -math.inf),
    ("a/b", -1, 1.5),
    ("a/b", 2**63 - 1, -2.0),
    ("a/b", -(2**63), 0.0),
    ("損失 🦊 \n=", 300, 1e-45),
    ("x" * 4096, 5, 3.0),
]


def records(path):
    """The framed records of a file as (bytes of the frame and all, event)."""
    data = pathlib.Path(path).read_bytes()
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 8], "little")
        record = data[at : at + size + 16]
        yield record, event_pb2.Event.FromString(record[12:-4])
        at += size + 16
    assert at == len(data)


class _Sink:
    def write(self, data):
        self.data = data


def framed(event):
    """The record that TensorBoard's own writer makes of an event."""
    sink = _Sink()
    RecordWriter(sink).write(event.SerializeToString(deterministic=True))
    return sink.data


def value_event(wall_time, step, summary):
    return framed(event_pb2.Event(wall_time=wall_time, step=step, summary=summary))


def same(a, b):
    return np.array_equal(np.float32(a), np.float32(b), equal_nan=True)


def test_scalars_have_the_bytes_of_tensorboards_writer(tmp_path):
    with kajitori.EventWriter(tmp_path) as writer:
        for tag, step, value in VALUES:
            writer.add_scalar(tag, step, value, wall_time=1.7e9 + 0.125)
    (first, version), *rest = records(writer.path)
    assert version.file_version == "brain.Event:2"
    assert version.source_metadata.writer == f"kajitori {kajitori.__version__}"
    assert first == framed(version)
    for (tag, step, value), (record, _) in zip(VALUES, rest, strict=True):
        summary = summary_pb2.Summary()
        summary.value.add(tag=tag, simple_value=value)
        assert record == value_event(1.7e9 + 0.125, step, summary)


def test_zeros_are_left_out_as_there(tmp_path):
    with kajitori.EventWriter(tmp_path) as writer:
        writer.add_scalar("t", 0, 0.0, wall_time=0)
    summary = summary_pb2.Summary()
    summary.value.add(tag="t", simple_value=0)
    assert list(records(writer.path))[1][0] == value_event(0, 0, summary)


def test_doubles_have_the_bytes_of_tensorboards_tensor(tmp_path):
    with kajitori.EventWriter(tmp_path, double=True) as writer:
        for tag, step, value in VALUES:
            writer.add_scalar(tag, step, value, wall_time=5)
    for (tag, step, value), (record, _) in zip(VALUES, list(records(writer.path))[1:], strict=True):
        summary = summary_pb2.Summary()
        summary.value.add(
            tag=tag,
            tensor=tensor_util.make_tensor_proto(np.float64(value)),
            metadata=scalar_metadata.create_summary_metadata(None, None),
        )
        assert record == value_event(5, step, summary)


@pytest.mark.parametrize("content", ["", "**bold** 🦊\n\n| a | b |", "x" * (1 << 20)])
def test_text_has_the_bytes_of_tensorboards_text(tmp_path, content):
    with kajitori.EventWriter(tmp_path) as writer:
        writer.add_text("notes", -3, content, wall_time=5)
    assert list(records(writer.path))[1][0] == value_event(5, -3, text_pb("notes", content))


def hparams_event(wall_time, tag, **data):
    summary = summary_pb2.Summary()
    content = plugin_data_pb2.HParamsPluginData(**data).SerializeToString(deterministic=True)
    value = summary.value.add(tag=tag, tensor=hparams_metadata.NULL_TENSOR)
    value.metadata.plugin_data.plugin_name = hparams_metadata.PLUGIN_NAME
    value.metadata.plugin_data.content = content
    return value_event(wall_time, 0, summary)


def test_hparams_have_the_bytes_of_tensorboards(tmp_path):
    params = {"amsgrad": True, "batch": 64, "lr": 1e-3, "opt": "adam", "wd": math.nan}
    with kajitori.EventWriter(tmp_path) as writer:
        writer.add_hparams(params, metrics=["loss", "acc"], group="g", start_time=7)
        writer.end_hparams("failure", end_time=9.5)
    (_, _), (experiment, one), (start, two), (end, three) = records(writer.path)
    types = (2, 3, 3, 1, 3)
    assert experiment == hparams_event(
        one.wall_time,
        "_hparams_/experiment",
        experiment=api_pb2.Experiment(
            time_created_secs=one.wall_time,
            hparam_infos=[
                api_pb2.HParamInfo(name=name, type=type_)
                for name, type_ in zip(params, types, strict=True)
            ],
            metric_infos=[
                api_pb2.MetricInfo(name=api_pb2.MetricName(tag=tag)) for tag in ("loss", "acc")
            ],
        ),
    )
    info = plugin_data_pb2.SessionStartInfo(group_name="g", start_time_secs=7)
    info.hparams["amsgrad"].bool_value = True
    info.hparams["batch"].number_value = 64
    info.hparams["lr"].number_value = 1e-3
    info.hparams["opt"].string_value = "adam"
    info.hparams["wd"].number_value = math.nan
    assert start == hparams_event(
        two.wall_time, "_hparams_/session_start_info", session_start_info=info
    )
    assert end == hparams_event(
        three.wall_time,
        "_hparams_/session_end_info",
        session_end_info=plugin_data_pb2.SessionEndInfo(status="STATUS_FAILURE", end_time_secs=9.5),
    )


def test_purge_step_is_a_session_start(tmp_path):
    with kajitori.EventWriter(tmp_path, purge_step=5) as writer:
        pass
    for record, event in list(records(writer.path))[1:]:
        log = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
        assert record == framed(event_pb2.Event(wall_time=event.wall_time, step=5, session_log=log))


def write_all(folder, **options):
    with kajitori.EventWriter(folder, **options) as writer:
        for tag, step, value in VALUES:
            writer.add_scalar(tag, step, value, wall_time=1.7e9)
        writer.add_text("notes", 3, "**hello**")
    return writer


def test_event_accumulator_reads_it(tmp_path):
    from tensorboard.backend.event_processing import event_accumulator

    write_all(tmp_path)
    accumulator = event_accumulator.EventAccumulator(str(tmp_path), size_guidance={"scalars": 0})
    accumulator.Reload()
    assert set(accumulator.Tags()["scalars"]) == {tag for tag, _, _ in VALUES}
    got = {tag: accumulator.Scalars(tag) for tag in accumulator.Tags()["scalars"]}
    for tag, events in got.items():
        wanted = [(step, value) for t, step, value in VALUES if t == tag]
        assert [event.step for event in events] == [step for step, _ in wanted]
        assert all(
            same(event.value, value) for event, (_, value) in zip(events, wanted, strict=True)
        )
        assert {event.wall_time for event in events} == {1.7e9}
    (text,) = accumulator.Tensors("notes")
    assert text.tensor_proto.string_val == [b"**hello**"]


def test_summary_iterator_reads_it(tmp_path):
    from tensorflow.compat.v1.train import summary_iterator

    writer = write_all(tmp_path)
    events = list(summary_iterator(writer.path))
    values = [(event, value) for event in events for value in event.summary.value]
    assert len(values) == len(VALUES) + 1
    for (tag, step, wanted), (event, value) in zip(VALUES, values, strict=False):
        assert (value.tag, event.step) == (tag, step)
        assert same(value.simple_value, wanted)


def test_we_read_it(tmp_path):
    for options in ({}, {"double": True}, {"buffer": True}):
        folder = tmp_path / "-".join(["run", *options])
        write_all(folder, **options)
        history = kajitori.read_events(folder)
        got = [
            (tag, step, value)
            for (_, tag), columns in history.items()
            for step, value in zip(columns.step, columns.value, strict=True)
        ]
        assert len(got) == len(VALUES)
        got.sort(key=str)
        for (tag, step, value), wanted in zip(got, sorted(VALUES, key=str), strict=True):
            assert (tag, step) == wanted[:2]
            assert same(value, wanted[2])


def write_trials(folder):
    for number, (lr, opt) in enumerate([(0.1, "sgd"), (0.01, "adam")]):
        with kajitori.EventWriter(folder / f"trial-{number}") as writer:
            writer.add_hparams({"lr": np.float32(lr), "opt": opt, "nesterov": False, "n": 3})
            writer.add_scalar("acc", 0, 0.25)
            writer.add_scalar("acc", 1, 0.5 + number)
            writer.add_text("notes", 0, f"# {opt}")
            writer.end_hparams("success" if number else "failure")


def check_hparams(provider):
    """TensorBoard's page "HParams", by its own code."""
    from tensorboard.context import RequestContext
    from tensorboard.plugins import base_plugin
    from tensorboard.plugins.hparams import backend_context, list_session_groups

    context = backend_context.Context(base_plugin.TBContext(data_provider=provider))
    request_context = RequestContext()
    content = context.hparams_metadata(request_context, "")
    experiment = context.experiment_from_metadata(request_context, "", True, content, [])
    assert {info.name for info in experiment.hparam_infos} == {"lr", "opt", "nesterov", "n"}
    assert {info.name.tag for info in experiment.metric_infos} == {"acc"}
    request = api_pb2.ListSessionGroupsRequest(
        start_index=0,
        slice_size=10,
        allowed_statuses=["STATUS_SUCCESS", "STATUS_FAILURE", "STATUS_RUNNING"],
    )
    for name in ("lr", "opt", "nesterov", "n"):
        request.col_params.add(hparam=name)
    request.col_params.add(metric=api_pb2.MetricName(tag="acc"))
    groups = list_session_groups.Handler(request_context, context, "", request).run().session_groups
    rows = {
        group.name: (
            group.hparams["opt"].string_value,
            group.hparams["nesterov"].bool_value,
            group.hparams["n"].number_value,
            group.metric_values[0].value,
            group.sessions[0].status,
        )
        for group in groups
    }
    assert rows == {
        "trial-0": ("sgd", False, 3, 0.5, api_pb2.STATUS_FAILURE),
        "trial-1": ("adam", False, 3, 1.5, api_pb2.STATUS_SUCCESS),
    }


def check_scalars_and_text(provider):
    from tensorboard.context import RequestContext

    scalars = provider.read_scalars(
        RequestContext(), experiment_id="", plugin_name="scalars", downsample=100
    )
    assert [(d.step, d.value) for d in scalars["trial-1"]["acc"]] == [(0, 0.25), (1, 1.5)]
    tensors = provider.read_tensors(
        RequestContext(), experiment_id="", plugin_name="text", downsample=100
    )
    assert [d.numpy.item() for d in tensors["trial-0"]["notes"]] == [b"# sgd"]


def test_tensorboards_pages_show_it(tmp_path):
    from tensorboard.backend.event_processing import data_provider, plugin_event_multiplexer

    write_trials(tmp_path)
    multiplexer = plugin_event_multiplexer.EventMultiplexer()
    multiplexer.AddRunsFromDirectory(str(tmp_path))
    multiplexer.Reload()
    provider = data_provider.MultiplexerDataProvider(multiplexer, str(tmp_path))
    check_hparams(provider)
    check_scalars_and_text(provider)


def test_tensorboards_data_server_shows_it(tmp_path):
    from tensorboard.data import server_ingester
    from tensorboard.util import grpc_util

    write_trials(tmp_path)
    ingester = server_ingester.SubprocessServerDataIngester(
        server_ingester.get_server_binary(),
        str(tmp_path),
        reload_interval=0,
        channel_creds_type=grpc_util.ChannelCredsType.LOCAL,
    )
    ingester.start()
    try:
        check_hparams(ingester.data_provider)
        check_scalars_and_text(ingester.data_provider)
    finally:
        ingester._stdin_handle.close()  # which ends the server


def test_metrics_that_are_named_are_those_that_are_shown(tmp_path):
    from tensorboard.backend.event_processing import data_provider, plugin_event_multiplexer
    from tensorboard.context import RequestContext
    from tensorboard.plugins import base_plugin
    from tensorboard.plugins.hparams import backend_context

    with kajitori.EventWriter(tmp_path / "a") as writer:
        writer.add_hparams({"lr": 0.5}, metrics=["acc"])
        writer.add_scalar("loss", 0, 1)
        writer.add_scalar("acc", 0, 1)
    multiplexer = plugin_event_multiplexer.EventMultiplexer()
    multiplexer.AddRunsFromDirectory(str(tmp_path))
    multiplexer.Reload()
    provider = data_provider.MultiplexerDataProvider(multiplexer, str(tmp_path))
    context = backend_context.Context(base_plugin.TBContext(data_provider=provider))
    content = context.hparams_metadata(RequestContext(), "")
    experiment = context.experiment_from_metadata(RequestContext(), "", True, content, [])
    assert [info.name.tag for info in experiment.metric_infos] == ["acc"]


@pytest.mark.parametrize("module", ["event_accumulator", "plugin_event_accumulator"])
def test_tensorboard_purges_what_a_resumed_run_writes_again(tmp_path, module):
    """The first time, too, when the run has no START yet."""
    import importlib

    loader = importlib.import_module(f"tensorboard.backend.event_processing.{module}")
    for attempt, (first, purge_step) in enumerate([(0, None), (5, 5), (3, 3)]):
        with kajitori.EventWriter(tmp_path, purge_step=purge_step) as writer:
            for step in range(first, 10 - attempt):
                writer.add_scalar("loss", step, attempt, wall_time=1000 + attempt)
        accumulator = loader.EventAccumulator(str(tmp_path))
        accumulator.Reload()
        events = (
            accumulator.Scalars("loss")
            if module == "event_accumulator"
            else accumulator.Tensors("loss")
        )
        assert [event.step for event in events] == list(range(10 - attempt))
        assert {event.wall_time for event in events if event.step >= first} == {1000 + attempt}


def test_we_take_back_what_a_resumed_run_writes_again(tmp_path):
    for first, purge_step in [(0, None), (5, 5)]:
        with kajitori.EventWriter(tmp_path, purge_step=purge_step) as writer:
            for step in range(first, 10 - first // 5 * 2):
                writer.add_scalar("loss", step, first)
    with kajitori.EventReader(tmp_path, keep=True, finished=True) as reader:
        for _ in reader:
            pass
        columns = reader.history(".", "loss", merge="last")
    assert list(columns.step) == list(range(8))
    assert list(columns.value) == [0] * 5 + [5] * 3


def test_append_goes_on_in_the_file(tmp_path):
    paths = set()
    for step in range(3):
        with kajitori.EventWriter(tmp_path, append=True) as writer:
            writer.add_scalar("loss", step, 1)
            paths.add(writer.path)
    assert [str(path) for path in tmp_path.iterdir()] == list(paths)
    ((_, columns),) = kajitori.read_events(tmp_path).items()
    assert list(columns.step) == [0, 1, 2]


def test_threads_share_a_writer(tmp_path):
    with kajitori.EventWriter(tmp_path, buffer=True) as writer:

        def write(name):
            for step in range(500):
                writer.add_scalar(name, step, step)

        threads = [threading.Thread(target=write, args=(f"t{k}",)) for k in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    history = kajitori.read_events(tmp_path)
    assert {tag: list(columns.step) for (_, tag), columns in history.items()} == {
        f"t{k}": list(range(500)) for k in range(8)
    }


def test_what_waits_is_visible_after_flush_sync_and_close(tmp_path):
    writer = kajitori.EventWriter(tmp_path, buffer=True, suffix=".x")
    assert writer.path.endswith(".x")
    sizes = [os.path.getsize(writer.path)]
    for step, write_out in enumerate([writer.flush, writer.sync, writer.close]):
        writer.add_scalar("loss", step, 1)
        assert os.path.getsize(writer.path) == sizes[-1]
        write_out()
        sizes.append(os.path.getsize(writer.path))
    assert sizes == sorted(set(sizes))


def test_closed_writer_says_so(tmp_path):
    writer = kajitori.EventWriter(tmp_path)
    assert not writer.closed
    assert "(closed)" not in repr(writer)
    writer.close()
    writer.close()
    assert writer.closed
    assert "(closed)" in repr(writer)
    for call in (
        lambda: writer.add_scalar("a", 0, 0),
        lambda: writer.add_text("a", 0, ""),
        lambda: writer.add_hparams({}),
        writer.end_hparams,
        writer.flush,
        writer.sync,
    ):
        with pytest.raises(kajitori.StateError, match="closed"):
            call()


def test_what_is_refused(tmp_path):
    for options in ({"suffix": "/x"}, {"suffix": "\0"}, {"purge_step": 1.5}):
        with pytest.raises(kajitori.ArgumentError):
            kajitori.EventWriter(tmp_path, **options)
    with pytest.raises(kajitori.ArgumentError):
        kajitori.EventWriter("")
    with pytest.raises(kajitori.Error, match="/dev/null"):
        kajitori.EventWriter("/dev/null/logs")
    with kajitori.EventWriter(tmp_path / "logs") as writer:
        size = os.path.getsize(writer.path)
        for call in (
            lambda: writer.add_scalar("", 0, 0),
            lambda: writer.add_scalar("x" * 4097, 0, 0),
            lambda: writer.add_scalar("a\0b", 0, 0),
            lambda: writer.add_scalar("\udcff", 0, 0),
            lambda: writer.add_scalar(7, 0, 0),
            lambda: writer.add_scalar("a", 0.5, 0),
            lambda: writer.add_scalar("a", 2**63, 0),
            lambda: writer.add_scalar("a", 0, 0, wall_time=math.inf),
            lambda: writer.add_text("a", 0, "x" * ((1 << 20) + 1)),
            lambda: writer.add_hparams({"a": None}),
            lambda: writer.add_hparams({"": 1}),
            lambda: writer.add_hparams(["a"]),
            lambda: writer.add_hparams({"a": "x" * (1 << 20)}),
            lambda: writer.end_hparams("perhaps"),
        ):
            with pytest.raises(kajitori.ArgumentError):
                call()
        assert os.path.getsize(writer.path) == size


def test_forgotten_writer_is_closed_at_exit_and_not_by_a_forked_child(tmp_path):
    code = (
        "import os, sys, kajitori\n"
        f"writer = kajitori.EventWriter({str(tmp_path)!r}, buffer=True)\n"
        "writer.add_scalar('loss', 1, 1)\n"
        "if os.fork() == 0:\n"
        "    try:\n        writer.flush()\n"
        "    except kajitori.StateError:\n        pass\n"
        "    else:\n        os._exit(3)\n"
        "    sys.exit()\n"
        "assert os.wait()[1] == 0\n"
        "writer.add_scalar('loss', 2, 1)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    ((_, columns),) = kajitori.read_events(tmp_path).items()
    assert list(columns.step) == [1, 2]


@pytest.mark.parametrize("last", ["flush", "close"])
def test_a_signal_handler_uses_the_writer_that_it_interrupts(tmp_path, monkeypatch, last):
    """The signal comes while the writer is locked, just after the call into C."""

    def interrupted(result, err, check=_event_writer.check):
        if signal.getsignal(signal.SIGUSR1) != signal.SIG_DFL:
            signal.raise_signal(signal.SIGUSR1)
        return check(result, err)

    def handle(number, frame):
        signal.signal(number, signal.SIG_DFL)
        writer.add_scalar("handler", 1, 1)
        getattr(writer, last)()

    writer = kajitori.EventWriter(tmp_path)
    signal.signal(signal.SIGUSR1, handle)
    monkeypatch.setattr(_event_writer, "check", interrupted)
    writer.add_scalar("loss", 1, 1)
    assert writer.closed == (last == "close")
    writer.close()
    assert list(kajitori.read_events(tmp_path)) == [(".", "handler"), (".", "loss")]


@pytest.mark.parametrize("metrics", ["loss", 5])
def test_metrics_that_are_no_list(tmp_path, metrics):
    with (
        kajitori.EventWriter(tmp_path) as writer,
        pytest.raises(kajitori.ArgumentError, match=r"metrics: .* is no list of tags"),
    ):
        writer.add_hparams({"lr": 1.0}, metrics=metrics)


def test_a_writer_is_not_pickled(tmp_path):
    with kajitori.EventWriter(tmp_path) as writer:
        for function in (pickle.dumps, copy.copy):
            with pytest.raises(kajitori.UnsupportedError, match="cannot be pickled"):
                function(writer)


def train(folder, first, end):
    with kajitori.Run(events_dir=folder) as run:
        for step in range(first, end):
            run.begin_step(step)
            run.report("loss", step, first)


def test_threads_report_at_once(tmp_path):
    def report(tag):
        for step in range(500):
            run.report(tag, step, 1)

    with kajitori.Run(events_dir=tmp_path) as run:
        threads = [threading.Thread(target=report, args=("x" * n,)) for n in (1, 40, 200)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    with kajitori.EventReader(tmp_path, finished=True) as reader:
        assert sum(map(len, reader)) == 1500
        assert reader.damage() == []


def test_run_writes_what_it_reports(tmp_path, monkeypatch):
    logs = tmp_path / "logs"
    train(logs, 0, 6)
    monkeypatch.setenv("KAJITORI_CHECKPOINT", "/checkpoints/4")
    train(logs, 4, 8)
    with kajitori.EventReader(logs, keep=True, finished=True) as reader:
        for _ in reader:
            pass
        columns = reader.history(".", "loss", merge="last")
    assert list(columns.step) == list(range(8))
    assert list(columns.value) == [0] * 4 + [4] * 4


def test_folder_that_a_run_cannot_write(tmp_path):
    with (
        pytest.warns(kajitori.ChannelWarning, match="/dev/null/logs"),
        kajitori.Run(events_dir="/dev/null/logs") as run,
    ):
        run.report("loss", 0, 1)
    with pytest.raises(kajitori.Error, match="/dev/null/logs"):
        kajitori.Run(events_dir="/dev/null/logs", strict=True)
