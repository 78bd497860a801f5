# SPDX-License-Identifier: Apache-2.0
"""kajitori emit: values from a shell into an event file."""

import concurrent.futures
import math
import subprocess

import pytest

import kajitori


@pytest.fixture
def logs(tmp_path):
    return tmp_path / "logs"


def emit(place, logs, *words, **kwargs):
    return place.kajitori("emit", "--events", logs, *words, **kwargs)


def emit_lines(place, logs, lines, *words):
    return subprocess.run(
        [place.command, "emit", "--events", logs, *words, "-"],
        input=lines,
        env=place.env,
        capture_output=True,
        text=True,
    )


def points(logs, tag):
    columns = kajitori.read_events(logs, tag=tag)[".", tag]
    return list(zip(columns.step, columns.value, columns.wall_time, strict=True))


def values(logs, tag):
    return [point[:2] for point in points(logs, tag)]


def files(logs):
    return sorted(path.name for path in logs.iterdir())


def test_values_of_one_call(place, logs):
    done = emit(place, logs, "--step", "100", "loss=0.25", "val/acc=-1e3", "a=b=2")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert values(logs, "loss") == [(100, 0.25)]
    assert values(logs, "val/acc") == [(100, -1000)]
    assert values(logs, "a=b") == [(100, 2)]


def test_calls_go_on_in_one_file(place, logs):
    for step in range(5):
        emit(place, logs, "--step", step, f"loss={step}")
    assert len(files(logs)) == 1
    assert values(logs, "loss") == [(step, step) for step in range(5)]


def test_step_is_0_unless_it_is_given_and_may_be_negative(place, logs):
    emit(place, logs, "loss=1")
    emit(place, logs, "--step=-7", "loss=2")
    emit(place, logs, "--step", 2**63 - 1, "loss=3")
    emit(place, logs, "loss=4", "step=5", "acc=6")
    assert values(logs, "loss") == [(0, 1), (-7, 2), (2**63 - 1, 3), (5, 4)]
    assert values(logs, "acc") == [(5, 6)]


def test_nan_and_infinities_are_values(place, logs):
    emit(place, logs, "x=nan", "y=inf", "z=-Inf")
    ((step, value),) = values(logs, "x")
    assert (step, math.isnan(value)) == (0, True)
    assert values(logs, "y") == [(0, math.inf)]
    assert values(logs, "z") == [(0, -math.inf)]


def test_double_keeps_all_digits(place, logs):
    emit(place, logs, "--double", "x=0.1")
    emit(place, logs, "y=0.1")
    assert values(logs, "x") == [(0, 0.1)]
    ((_, single),) = values(logs, "y")
    assert single != 0.1
    assert math.isclose(single, 0.1, rel_tol=1e-6)


def test_wall_time(place, logs):
    emit(place, logs, "--wall-time", "1700000000.5", "loss=1")
    assert points(logs, "loss") == [(0, 1, 1700000000.5)]


def test_verbose_names_the_file(place, logs):
    done = emit(place, logs, "-v", "loss=1")
    assert done.stderr.strip() == f"kajitori: {logs / files(logs)[0]}"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["loss"], "loss: it is TAG=VALUE, and VALUE a number, nan or inf"),
        (["loss="], "loss=: it is"),
        (["=1"], "=1: it is"),
        (["loss=0x10"], "loss=0x10: it is"),
        (["loss= 1"], "loss= 1: it is"),
        (["loss=1,5"], "loss=1,5: it is"),
        (["ok=1", "loss=high"], "loss=high: it is"),
        (["loss=1", "step=1.5"], "step=1.5: the step is a whole number"),
        (["--step", "1.5", "loss=1"], "--step 1.5: a whole number"),
        (["--step", "9223372036854775808", "loss=1"], "a whole number"),
        (["--wall-time", "nan", "loss=1"], "--wall-time nan: seconds since 1970"),
        (["--text", "notes"], "--text notes: it is TAG=TEXT"),
        (["--hparam", "=1"], "--hparam =1: it is NAME=VALUE"),
        ([], "nothing to emit"),
        (["step=5"], "nothing to emit"),
    ],
)
def test_wrong_words_write_nothing(place, logs, words, message):
    done = emit(place, logs, *words, status=2)
    assert message in done.stderr
    assert "Usage: kajitori emit" in done.stderr
    assert not logs.exists()


def test_without_events_it_says_what_is_right(place):
    done = place.kajitori("emit", "loss=1", status=2)
    assert "--events DIR" in done.stderr
    assert "a run that lives reports its metrics itself" in done.stderr


def test_folder_that_cannot_be_made(place):
    done = emit(place, "/dev/null/logs", "loss=1", status=1)
    assert "/dev/null" in done.stderr


def test_text_and_hparams_as_tensorboard_reads_them(place, logs):
    from tensorboard.backend.event_processing import plugin_event_accumulator
    from tensorboard.plugins.hparams import metadata

    emit(place, logs, "--text", "notes=**a** = b", "--text", "other=", "--step", "3")
    emit(
        place,
        logs,
        *("--hparam", "lr=1e-3"),
        *("--hparam", "n=3"),
        *("--hparam", "nesterov=false"),
        *("--hparam", "opt=a=b"),
        "acc=1",
    )
    accumulator = plugin_event_accumulator.EventAccumulator(str(logs))
    accumulator.Reload()
    (text,) = accumulator.Tensors("notes")
    assert (text.step, text.tensor_proto.string_val[0]) == (3, b"**a** = b")
    assert accumulator.Tensors("other")[0].tensor_proto.string_val == [b""]
    content = accumulator.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    info = metadata.parse_session_start_info_plugin_data(content)
    assert {name: value.WhichOneof("kind") for name, value in info.hparams.items()} == {
        "lr": "number_value",
        "n": "number_value",
        "nesterov": "bool_value",
        "opt": "string_value",
    }
    assert info.hparams["lr"].number_value == 1e-3
    assert info.hparams["opt"].string_value == "a=b"
    assert info.group_name == "logs"


def test_lines_of_standard_input(place, logs):
    lines = "loss=1\n\n  loss=2 acc=0.5\r\nstep=10 loss=3\nloss=4 step=20\nloss=5"
    done = emit_lines(place, logs, lines, "--step", "5")
    assert (done.returncode, done.stderr) == (0, "")
    assert values(logs, "loss") == [(5, 1), (6, 2), (10, 3), (20, 4), (21, 5)]
    assert values(logs, "acc") == [(6, 0.5)]


def test_bad_lines_are_told_and_passed_over(place, logs):
    lines = f"loss=1\nstep=9 hello\nloss=2 step=x\nloss={'9' * 70000}\nloss=3\n"
    done = emit_lines(place, logs, lines)
    assert done.returncode == 1
    assert [line.split(":")[1].strip() for line in done.stderr.splitlines()] == [
        "line 2",
        "line 3",
        "line 4",
    ]
    assert values(logs, "loss") == [(0, 1), (1, 3)]


def test_a_line_that_cannot_be_written_costs_no_other(place, logs):
    lines = [
        b"loss=0",
        b"good=1 bad\xff=1",
        b"good=2 " + b"x" * 4097 + b"=1",
        b"a\0b=1",
        b"loss=1",
        b"x" * 4096 + b"=2",
    ]
    done = subprocess.run(
        [place.command, "emit", "--events", logs, "-"],
        input=b"\n".join(lines),
        env=place.env,
        capture_output=True,
    )
    name = "a name has 1 to 4096 bytes, and all is UTF-8"
    assert done.returncode == 1
    assert done.stderr.decode().splitlines() == [
        f"kajitori: line 2: {name}",
        f"kajitori: line 3: {name}",
        "kajitori: line 4: there is a NUL byte in it",
    ]
    assert values(logs, "loss") == [(0, 0), (1, 1)]
    assert sorted(tag for _, tag in kajitori.read_events(logs)) == ["loss", "x" * 4096]


@pytest.mark.parametrize(
    "words",
    [["bad\udcff=1"], ["x" * 4097 + "=1"], ["--text", "t=\udcff"], ["--hparam", "h=\udcff"]],
)
def test_a_word_that_cannot_be_written_writes_nothing(place, logs, words):
    done = emit(place, logs, "good=1", *words, status=2)
    assert "1 to 4096 bytes" in done.stderr
    assert not logs.exists()


def test_standard_input_that_cannot_be_read(place, logs):
    with (logs.parent / "file").open("w") as unreadable:
        words = [place.command, "emit", "--events", logs, "-"]
        done = subprocess.run(words, stdin=unreadable, env=place.env, capture_output=True)
    assert done.returncode == 1
    assert b"cannot read standard input: Bad file descriptor" in done.stderr


def test_each_line_is_there_before_the_next_is_read(place, logs):
    process = place.start_kajitori("emit", "--events", logs, "-", stdin=subprocess.PIPE)
    with kajitori.EventReader(logs) as reader:
        for value in range(3):
            process.popen.stdin.write(f"loss={value}\n")
            process.popen.stdin.flush()
            columns = next(iter(reader))
            assert (list(columns.step), list(columns.value)) == ([value], [value])
    process.popen.stdin.close()
    assert process.wait() == 0


def test_a_thousand_at_once_lose_nothing(place, logs):
    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        done = list(
            pool.map(lambda step: emit(place, logs, "--step", step, f"loss={step}"), range(1000))
        )
    assert len(done) == 1000
    assert len(files(logs)) == 1
    assert sorted(values(logs, "loss")) == [(step, step) for step in range(1000)]
