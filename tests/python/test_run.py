# SPDX-License-Identifier: Apache-2.0
"""kajitori.Run and kajitori.Client: a training without a framework."""

import ctypes
import decimal
import functools
import gc
import math
import os
import signal
import stat
import subprocess
import sys
import textwrap
import warnings

import pytest
from training import PATIENCE, applied, ask, last_json, outside, while_polling

import kajitori


def echo(text, path):
    """What a shell does; another process, so that nothing is shared."""
    return subprocess.Popen(["sh", "-c", 'printf "%b" "$0" > "$1"', text, str(path)])


def test_a_run_is_listed_while_it_lives():
    with kajitori.Run(name="mine", run_id="mine-1", framework="numpy", total_steps=10) as run:
        assert run.id == "mine-1"
        assert os.path.isdir(run.dir)
        (info,) = kajitori.runs()
        assert (info.id, info.name, info.framework, info.pid) == (
            "mine-1",
            "mine",
            "numpy",
            os.getpid(),
        )
        assert (info.study, info.trial) == ("", -1)
        assert not run.closed
    assert run.closed
    assert kajitori.runs() == []


def test_totals_that_are_known_later(run):
    with kajitori.connect() as client:
        run.set_totals(steps=20, epochs=2)
        status = client.status()
        assert (status["total_steps"], status["total_epochs"]) == (20, 2)
        run.set_totals(epochs=3)
        status = client.status()
        assert (status["total_steps"], status["total_epochs"]) == (0, 3)
    run.close()
    run.set_totals(1, 1)


def test_the_name_is_that_of_the_script(tmp_path):
    script = tmp_path / "my_training.py"
    script.write_text("import kajitori\nwith kajitori.Run() as run: print(run.id)\n")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("my_training-")


def test_the_name_is_that_of_the_package(tmp_path):
    folder = tmp_path / "trainer"
    folder.mkdir()
    (folder / "__main__.py").write_text(
        "import kajitori\nwith kajitori.Run() as run: print(run.id)\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "trainer"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("trainer-")


def test_after_close_every_call_is_harmless(run):
    run.begin_epoch(2)
    run.begin_step(7)
    run.close()
    run.close()
    assert run.poll() is False
    assert run.begin_step(8) is False
    assert run.begin_epoch(3) is False
    assert run.end_epoch(3) is False
    assert run.should_stop is False
    assert run.stop_reason == ""
    run.report("loss", 8, 1.0)
    run.set_phase("train")
    with pytest.raises(kajitori.StateError, match="is closed"):
        run.add_param("lr", float, get=lambda: 1.0)
    with pytest.raises(kajitori.StateError):
        run.add_verb("go", print)


def test_step_and_epoch_stay_readable_after_close(run):
    run.begin_epoch(2)
    run.begin_step(7)
    assert (run.step, run.epoch) == (7, 2)
    run.close()
    assert (run.step, run.epoch) == (7, 2)


def test_a_forgotten_run_is_closed_when_collected():
    run = kajitori.Run()
    cycle = {"run": run, "lr": 1.0}  # run -> parameter -> run: the collector has to see it
    run.add_param("lr", float, get=functools.partial(cycle.__getitem__, "lr"))
    assert len(kajitori.runs()) == 1
    del run, cycle
    gc.collect()
    assert kajitori.runs() == []


def test_a_forgotten_run_is_closed_at_exit():
    code = "import kajitori\nrun = kajitori.Run(run_id='left')\nrun.begin_step(3)\n"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert kajitori.runs() == []
    last = kajitori.journal("left")[-1]
    assert last["event"] == "run_ended"
    assert last["step"] == 3


def test_a_run_ends_with_its_block_when_that_raises():
    with pytest.raises(ZeroDivisionError), kajitori.Run():
        _ = 1 / 0
    assert kajitori.runs() == []


def test_a_run_cannot_be_pickled(run):
    import pickle

    with pytest.raises(kajitori.UnsupportedError, match="cannot be pickled"):
        pickle.dumps(run)


def test_two_runs_in_one_process():
    with kajitori.Run(run_id="a") as a, kajitori.Run(run_id="b") as b:
        with pytest.raises(kajitori.AmbiguousRunError, match=r"a.*b"):
            kajitori.connect()
        ask(b, "stop")
        assert (a.poll(), b.poll()) == (False, True)


def test_stop_with_its_reason(run):
    run.begin_epoch(0)
    run.begin_step(5)
    record = ask(run, "stop reason=enough")
    assert record["state"] in ("applied", "done")
    assert (record["step"], record["epoch"]) == (5, 0)
    assert run.should_stop
    assert run.stop_reason == "enough"
    assert run.poll() is True
    assert run.begin_step(6) is True
    run.close()
    assert run.should_stop
    assert run.stop_reason == "enough"


def test_stop_at_a_step(run):
    run.begin_step(0)
    ask(run, "stop at=step:4", wait="accepted")
    done = next(step for step in range(1, 100) if run.begin_step(step))
    assert done == 4


def test_stop_at_the_end_of_the_epoch(run):
    run.begin_epoch(0)
    ask(run, "stop at=epoch", wait="accepted")
    assert run.begin_step(0) is False
    assert run.end_epoch(0) is True


def test_set_replies_with_old_and_new_value(run):
    values = {"lr": 0.1}
    run.add_param("lr", float, lambda: values["lr"], lambda v: values.update(lr=v), min=0, max=1)
    run.begin_step(3)
    record = ask(run, "set lr=0.25")
    assert (record["old"], record["new"], record["step"]) == ({"lr": 0.1}, {"lr": 0.25}, 3)
    assert values["lr"] == 0.25
    assert [line["verb"] for line in applied(run.id)] == ["set"]


@pytest.mark.parametrize("value", ["2", "-1", "nan", "inf", "fast"])
def test_a_value_that_does_not_fit_is_rejected(run, value):
    values = {"lr": 0.1}
    run.add_param("lr", float, lambda: values["lr"], lambda v: values.update(lr=v), min=0, max=1)
    with pytest.raises(kajitori.RejectedError, match="lr"):
        ask(run, f"set lr={value}")
    assert values["lr"] == 0.1


@pytest.mark.parametrize(
    ("type_", "before", "text", "after"),
    [
        (float, 0.5, "1e-3", 0.001),
        (int, 3, "-12", -12),
        (bool, False, "true", True),
        (str, "adam", '"say \\"sgd\\""', 'say "sgd"'),
        (str, "", "舵", "舵"),
        ("float", 1.0, "2", 2.0),
    ],
)
def test_values_of_each_type(run, type_, before, text, after):
    values = {"v": before}
    run.add_param("v", type_, lambda: values["v"], lambda v: values.update(v=v))
    record = ask(run, f"set v={text}")
    assert values["v"] == after
    assert type(values["v"]) is type(after)
    assert (record["old"]["v"], record["new"]["v"]) == (before, after)


def test_a_setter_that_raises_is_the_reply_and_not_the_end(run):
    def refuse(value):
        raise RuntimeError(f"no {value}\ntoday")

    run.add_param("x", float, lambda: 1.0, refuse)
    with pytest.raises(kajitori.FailedError, match=r"^x: RuntimeError: no 2\.0 today$"):
        ask(run, "set x=2")
    assert run.poll() is False


def test_a_getter_that_raises_at_registration_is_raised_here(run):
    with pytest.raises(kajitori.FailedError, match="ZeroDivisionError"):
        run.add_param("x", float, lambda: 1 / 0)


def test_a_read_only_parameter(run):
    run.add_param("size", int, lambda: 7, help="cannot be changed", unit="B")
    with pytest.raises(kajitori.RejectedError, match="size"):
        ask(run, "set size=8")
    with kajitori.connect(run.id) as client:
        (param,) = client.call("params")["params"]
    assert (param["name"], param["value"], param["unit"], param["type"]) == ("size", 7, "B", "int")


def test_wrong_declarations_are_refused(run):
    with pytest.raises(kajitori.ArgumentError, match="get is missing"):
        run.add_param("x")
    with pytest.raises(kajitori.ArgumentError, match="none of float, int, bool, str"):
        run.add_param("x", list, list)
    with pytest.raises(kajitori.ArgumentError, match="none of step, epoch, restart"):
        run.add_param("x", float, lambda: 1.0, effect="later")
    run.add_param("x", float, lambda: 1.0)
    with pytest.raises(kajitori.ExistsError, match="x"):
        run.add_param("x", float, lambda: 1.0)
    with pytest.raises(kajitori.ExistsError, match="stop"):
        run.add_verb("stop", print)
    with pytest.raises(kajitori.ArgumentError):
        run.add_param("at", float, lambda: 1.0)
    with pytest.raises(kajitori.ArgumentError, match="none of step, epoch, restart"):
        run.add_param("y", float, lambda: 1.0, effect=[])
    with pytest.raises(kajitori.ArgumentError, match="metric loss: one number is wanted, not str"):
        run.report("loss", 0, "low")
    with pytest.raises(kajitori.ArgumentError, match="parameter y: the limit 'low' is no number"):
        run.add_param("y", float, lambda: 1.0, min="low")
    with pytest.raises(kajitori.ArgumentError, match="does not map names to types"):
        run.add_verb("go", print, ["x"])
    with pytest.raises(kajitori.ArgumentError, match="are functions"):
        run.add_param("y", float, lambda: 1.0, 3)
    with pytest.raises(kajitori.ArgumentError, match="3 is no function"):
        run.add_verb("go", 3)
    with pytest.raises(kajitori.FailedError, match=r"declared int, and its value is 3\.5"):
        run.add_param("y", int, lambda: 3.5)


def test_own_verbs_with_arguments_and_result(run):
    seen = []

    @run.verb
    def hello():
        """Says hello."""
        return "hello"

    @run.verb(
        "freeze",
        args={"count": kajitori.Arg(type=int, min=1), "names": kajitori.Arg(required=False)},
    )
    def freeze_layers(count, names="all"):
        seen.append((count, names))
        return {"frozen": count, "loss": math.nan}

    assert hello() == "hello"
    assert ask(run, "hello")["result"] == "hello"
    assert ask(run, "freeze count=3")["result"] == {"frozen": 3, "loss": "NaN"}
    ask(run, "freeze count=2 names=conv")
    assert seen == [(3, "all"), (2, "conv")]
    for line in ("freeze", "freeze count=0", "freeze count=1 speed=2"):
        with pytest.raises(kajitori.RejectedError):
            ask(run, line)
    with kajitori.connect(run.id) as client:
        (verb,) = client.call("help", {"verb": "hello"})["verbs"]
    assert verb["help"] == "Says hello."


def test_a_verb_that_raises_is_the_reply(run):
    run.add_verb("divide", lambda: 1 / 0)
    with pytest.raises(kajitori.FailedError, match="ZeroDivisionError: division by zero"):
        ask(run, "divide")
    assert run.poll() is False


class Unshowable(Exception):
    def __str__(self):
        raise RuntimeError


class Harmless(kajitori.Error):
    code = 0


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (Unshowable(), "Unshowable"),
        (Harmless("not done"), "not done"),
        (kajitori.RejectedError("not now"), "not now"),
        (StopIteration(3), "StopIteration: 3"),
        (ValueError("a\nb\0c"), "ValueError: a b"),
    ],
)
def test_whatever_a_verb_raises_is_failed(run, capfd, error, message):
    @run.verb
    def fail():
        raise error

    with pytest.raises(kajitori.FailedError) as caught:
        ask(run, "fail")
    assert str(caught.value) == message
    assert capfd.readouterr() == ("", "")


class Array:
    """As array libraries have them."""

    def __init__(self, value):
        self.value = value

    def tolist(self):
        return self.value


class Tensor:
    """As TensorFlow has them."""

    def numpy(self):
        return Array([1.5, math.inf])


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (Array(3), 3),
        ({"a": Array([0.5, math.nan])}, {"a": [0.5, "NaN"]}),
        (Tensor(), [1.5, "Infinity"]),
        (2**63 - 1, 2**63 - 1),
        (2**80, str(2**80)),
        ({1: None}, {"1": None}),
        (decimal.Decimal("0.10"), "0.10"),
        (b"ab", "b'ab'"),
    ],
)
def test_results_of_all_kinds(run, value, shown):
    run.add_verb("thing", lambda: value)
    assert ask(run, "thing")["result"] == shown


def test_results_that_cannot_be_sent(run):
    endless = []
    endless.append(endless)
    run.add_verb("endless", lambda: endless)
    run.add_verb("huge", lambda: "x" * 1_000_000)
    with pytest.raises(kajitori.FailedError, match="RecursionError"):
        ask(run, "endless")
    with pytest.raises(kajitori.FailedError, match="at most"):
        ask(run, "huge")


def test_a_result_that_is_no_json_is_shown_as_text(run):
    run.add_verb("thing", lambda: {"path": os.path, "n": ctypes.c_int})
    assert "module" in ask(run, "thing")["result"]["path"]


def test_ctrl_c_in_a_verb_reaches_the_training(run):
    @run.verb
    def interrupt():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ask(run, "interrupt")
    assert run.poll() is False


def test_a_verb_may_poll_and_report_but_not_close(run):
    @run.verb
    def busy():
        run.report("inner", 1, 2.0)
        assert run.poll() is False
        with pytest.raises(kajitori.StateError, match="own callbacks"):
            run.close()
        return "ok"

    assert ask(run, "busy")["result"] == "ok"


def test_unknown_verb_names_the_nearest(run):
    with pytest.raises(kajitori.RejectedError, match="stop"):
        ask(run, "stpo")


def test_pause_waits_and_resume_goes_on(run):
    run.begin_step(1)

    def steer():
        with kajitori.connect(run.id) as client:
            paused = client.send("pause")
            state = client.status()["state"]
            return paused, state, client.send("resume")

    paused, state, resumed = while_polling(run, steer)
    assert paused["state"] in ("applied", "done")
    assert state == "paused"
    assert resumed["state"] in ("applied", "done")


def test_ctrl_c_ends_a_paused_training():
    code = textwrap.dedent("""
        import signal
        import kajitori
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a background shell ignores it
        with kajitori.Run(run_id="paused") as run:
            print("ready", flush=True)
            while not run.poll():
                pass
    """)
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout.readline() == "ready\n"
        with kajitori.connect("paused") as client:
            client.send("pause")
            child.send_signal(signal.SIGINT)
            _, err = child.communicate(timeout=PATIENCE)
    finally:
        child.kill()
    assert "KeyboardInterrupt" in err
    assert kajitori.journal("paused")[-1]["event"] == "run_ended"


def test_metrics_reach_status(run):
    run.begin_step(4)
    run.report("loss", 4, 0.5)
    run.report("bad", 4, float("nan"))
    run.set_phase("validation")
    with kajitori.connect(run.id) as client:
        status = client.status()
    values = {metric["tag"]: metric["value"] for metric in status["metrics"]}
    assert values == {"loss": 0.5, "bad": "NaN"}
    assert (status["step"], status["phase"], status["state"]) == (4, "validation", "running")
    with pytest.raises(kajitori.ArgumentError):
        run.report("", 4, 1.0)


def test_events_are_seen_from_another_process(run):
    watcher = outside(
        "events = c.events()\nprint(json.dumps(next(e for e in events if e['event'] == 'metric')))"
    )
    step = 0
    while watcher.poll() is None:
        run.begin_step(step)
        run.report("loss", step, 0.25)
        step += 1
    event = last_json(watcher)
    assert (event["tag"], event["value"]) == ("loss", 0.25)


def test_status_is_answered_while_the_interpreter_is_blocked():
    """The training sits in a call that holds the interpreter's lock until the answer is there: were the
    lock needed for the answer, this would never end."""
    code = textwrap.dedent("""
        import ctypes, os, kajitori
        libc = ctypes.PyDLL(None)  # calls keep the interpreter's lock
        buffer = ctypes.create_string_buffer(10)
        with kajitori.Run(run_id="blocked") as run:
            run.begin_step(41)
            print("blocking", flush=True)
            libc.read(0, buffer, 1)
            print("free", flush=True)
            while not run.poll():
                pass
    """)
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout.readline() == "blocking\n"
    with kajitori.connect("blocked") as client:
        assert client.status(timeout=PATIENCE)["step"] == 41
        record = client.send("stop", wait="accepted", timeout=PATIENCE)
        assert record["state"] == "accepted"
        child.stdin.write("x")
        child.stdin.flush()
        assert child.stdout.readline() == "free\n"
    assert child.wait(timeout=PATIENCE) == 0
    assert [line["verb"] for line in applied("blocked")] == ["stop"]


def test_opening_and_closing_leaves_nothing_behind():
    def use():
        with kajitori.Run(run_id="again") as run:
            run.add_param("lr", float, lambda: 1.0, lambda value: None)
            run.add_verb("go", print, {"n": int})
            run.begin_step(1)
            run.report("loss", 1, 1.0)

    def count():
        gc.collect()
        return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))

    use()
    before, blocks = count(), sys.getallocatedblocks()
    for _ in range(50):
        use()
    assert count() == before
    assert sys.getallocatedblocks() - blocks < 50, "not one for each run"


def test_a_million_steps_leave_nothing_behind(run):
    run.begin_step(0)
    blocks = sys.getallocatedblocks()
    for step in range(1_000_000):
        run.begin_step(step)
    assert sys.getallocatedblocks() - blocks < 100


def test_a_fifo_of_the_users_own(tmp_path):
    path = tmp_path / "ctl"
    os.mkfifo(path)
    path.chmod(0o666)
    with kajitori.Run(fifo=path) as run:
        writer = echo("stop\\n", path)
        while not run.poll():
            pass
        assert writer.wait() == 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o666, "it is the user's: it stays as it was"
    assert [(line["verb"], line["door"]) for line in applied()] == [("stop", "fifo")]


def test_a_fifo_that_is_not_there_is_made_and_removed(tmp_path):
    path = tmp_path / "ctl"
    with kajitori.Run(fifo=str(path)) as run:
        assert stat.S_ISFIFO(path.stat().st_mode)
        echo("STOP", path)  # no newline, upper case
        while not run.poll():
            pass
    assert not path.exists()


def test_bad_bytes_do_not_end_the_training(tmp_path):
    path = tmp_path / "ctl"
    with kajitori.Run(fifo=path) as run:
        echo("\\0377\\0376 broken\\nfly\\nstop\\n", path)
        while not run.poll():
            pass
    rejected = [line for line in kajitori.journal() if line.get("state") == "rejected"]
    assert len(rejected) == 2


@pytest.mark.parametrize("what", ["file", "folder missing"])
def test_a_path_that_cannot_be_a_fifo_is_one_warning(tmp_path, what):
    path = tmp_path / "ctl" if what == "file" else tmp_path / "no/such/ctl"
    if what == "file":
        path.write_text("precious")
    with pytest.warns(kajitori.ChannelWarning, match="ctl") as caught:
        run = kajitori.Run(fifo=path)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    with run:
        ask(run, "stop")  # the other doors work
    if what == "file":
        assert path.read_text() == "precious"
    with pytest.raises(kajitori.Error, match="ctl"):
        kajitori.Run(fifo=path, strict=True)


def test_a_deleted_fifo_leaves_the_other_doors(tmp_path):
    path = tmp_path / "ctl"
    with kajitori.Run(fifo=path) as run:
        path.unlink()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            while not caught:
                run.poll()
        assert [w.category for w in caught] == [kajitori.ChannelWarning]
        assert "deleted" in str(caught[0].message)
        ask(run, "stop")
    assert run.should_stop


def test_no_place_for_doors_is_a_deaf_run(tmp_path):
    blocker = tmp_path / "file"
    blocker.write_text("")
    with pytest.warns(kajitori.ChannelWarning):
        run = kajitori.Run(runtime_dir=blocker / "runtime", state_dir=blocker / "state")
    with run:
        assert run.dir == ""
        assert run.begin_step(1) is False
        run.report("loss", 1, 1.0)
    with pytest.raises(kajitori.Error):
        kajitori.Run(runtime_dir=blocker / "runtime", strict=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": 3}, "name: 3 is no text"),
        ({"name": "\udcff"}, "name: .* is no text"),
        ({"run_id": "a\0b"}, "run_id: .* has a NUL in it"),
        ({"fifo": ""}, "fifo: the path is empty"),
        ({"fifo": 7}, "fifo: 7 is no path"),
        ({"fifo": []}, r"fifo: \[\] is no path"),
        ({"run_id": []}, r"run_id: \[\] is no text"),
        ({"total_steps": 1.5}, r"total_steps: 1\.5 is no whole number"),
        ({"total_epochs": -1}, "cannot be negative"),
    ],
)
def test_options_that_cannot_be_meant(options, message):
    with pytest.raises(kajitori.ArgumentError, match=message):
        kajitori.Run(**options)


@pytest.mark.parametrize("value", [1.0, "1", None, 2**63])
def test_a_step_that_is_none(run, value):
    with pytest.raises(kajitori.ArgumentError, match="no whole number of 64 bits"):
        run.begin_step(value)
    with pytest.raises(kajitori.ArgumentError, match="no whole number of 64 bits"):
        run.begin_epoch(value)
    with pytest.raises(kajitori.ArgumentError, match="no whole number of 64 bits"):
        run.end_epoch(value)


def test_paths_in_bytes_and_names_that_are_no_utf8(tmp_path, monkeypatch):
    path = os.fsencode(tmp_path) + b"/\xff"
    monkeypatch.setattr(sys, "argv", [os.fsdecode(b"/x/\xff.py")])
    with kajitori.Run(fifo=path) as run:
        assert stat.S_ISFIFO(os.stat(path).st_mode)
        assert kajitori.runs()[0].name == "?"
        ask(run, "ping")


def test_a_malformed_id_is_refused():
    for bad in (".hidden", "a/b", "x" * 65):
        with pytest.raises(kajitori.ArgumentError):
            kajitori.Run(run_id=bad)


def test_the_end_of_an_epoch_that_nobody_began(run):
    with kajitori.connect(run.id) as client:
        client.stop(at="epoch:2", wait="accepted")
    assert not run.end_epoch(1)
    assert run.end_epoch(2)
    assert [(line["epoch"], line["place"]) for line in applied(run.id)] == [(2, "epoch")]
    assert run.epoch == 2


def test_nobody_is_answered_before_the_run_listens():
    with kajitori.Run(listen=False) as run:
        asked = subprocess.Popen(
            [sys.executable, "-c", f"import kajitori; kajitori.connect({run.id!r}).send('set a=2')"]
        )
        values = {"a": 1.0}
        run.add_param("a", get=lambda: values["a"], set=lambda value: values.update(a=value))
        run.listen()
        while asked.poll() is None:
            run.poll()
        assert asked.returncode == 0
        assert values == {"a": 2.0}
        run.listen()
    run.listen()


def test_what_is_said_of_a_run_that_nothing_has_ended(run):
    def said():
        return run.ending, run.pruned, run.exit_status, run.stop_validate, run.resumed_from

    assert said() == (None, False, 0, None, "")
    run.close()
    assert said() == (None, False, 0, None, "")
    run.declare(leave=True)
    run.note("too late")


def test_a_remark_of_the_program(run):
    run.note("warm-up is over")
    assert [line["text"] for line in kajitori.journal() if line.get("event") == "note"] == [
        "warm-up is over"
    ]
    with pytest.raises(kajitori.ArgumentError, match="1 to 4096 bytes"):
        run.note("")


def test_left_and_aborted_end_the_program_quietly_and_are_no_exceptions():
    for error, status in ((kajitori.Left, 75), (kajitori.Aborted, 77)):
        code = f"import kajitori\ntry:\n    raise kajitori.{error.__name__}('full')\n"
        code += "except Exception:\n    print('caught')\nfinally:\n    print('finally')\n"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert (done.returncode, done.stdout, done.stderr) == (status, "finally\n", "")
        assert error("full").reason == "full"
