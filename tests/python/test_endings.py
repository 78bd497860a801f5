# SPDX-License-Identifier: Apache-2.0
"""How a steered training ends, standard verbs, and the other side's methods for them."""

import json
import os
import socket
import subprocess
import sys
import threading

import pytest
from kajitori._ffi import lib
from training import PATIENCE, outside, while_polling

import kajitori


@pytest.fixture
def run():
    with kajitori.Run(name="test") as run:
        yield run


def tell(run, method, *args, **options):
    """What a method of `Client` returned, called in another thread while this one is the training."""

    def send():
        with kajitori.connect(run.id) as client:
            return getattr(client, method)(*args, **options)

    return while_polling(run, send)


def last_line(run_id=None):
    return kajitori.journal(run_id)[-1]


def test_the_end_is_remembered_after_close(run):
    tell(run, "stop", reason="enough")
    for _ in range(2):
        assert (run.ending, run.exit_status, run.pruned) == ("stop", 0, False)
        assert run.stop_reason == "enough"
        run.close()
    assert last_line()["ending"] == "stop"


def test_a_prune_is_told_to_the_training_with_what_the_rule_saw(run):
    record = tell(run, "prune", rule="median", value=0.9, threshold=0.5, by="rules", wait="applied")
    assert record["args"] == {"rule": "median", "value": 0.9, "threshold": 0.5}
    assert run.pruned
    assert (run.ending, run.exit_status) == ("prune", 76)


def test_abort_is_raised_at_the_safe_point_and_only_once(run):
    with pytest.raises(kajitori.Aborted) as caught:
        tell(run, "abort", reason="wrong data")
    assert caught.value.reason == "wrong data"
    assert caught.value.code == run.exit_status == 77
    assert run.poll() is True, "what finally blocks do is not interrupted again"
    assert run.ending == "abort"


def test_leaving_saves_a_checkpoint_first(run, tmp_path):
    run.add_verb("checkpoint", lambda: tmp_path / "saved")
    with pytest.raises(kajitori.Left) as caught:
        tell(run, "pause", level="leave")
    assert caught.value.code == run.exit_status == 75
    run.close()
    end = last_line()
    assert end["ending"] == "leave"
    assert end["checkpoint"]["path"] == str(tmp_path / "saved")


def test_what_a_program_cannot_do_is_refused_with_the_reason(run):
    run.refuse("evaluate", "there is no test set")
    for method, options, message in (
        ("evaluate", {}, "there is no test set"),
        ("checkpoint", {}, "checkpoint"),
        ("pause", {"level": "leave"}, "checkpoint"),
        ("stop", {"validate": False}, "cannot choose"),
    ):
        with pytest.raises(kajitori.RejectedError, match=message):
            tell(run, method, **options)
    run.refuse("evaluate", None)
    run.add_verb("evaluate", lambda: {"loss": 0.25})
    assert tell(run, "evaluate")["result"] == {"loss": 0.25}
    with pytest.raises(kajitori.ArgumentError, match="stop"):
        run.refuse("stop", "no")


def test_a_program_that_wants_no_exceptions():
    with kajitori.Run(raises=False) as run:
        with pytest.raises(kajitori.RejectedError, match="only knows how to stop"):
            tell(run, "abort")
        run.declare(abort=True, skip_validation=True)
        tell(run, "stop", validate=False)
        assert run.stop_validate is False
        tell(run, "abort")
        assert run.poll() is True
        assert run.ending == "abort"


def test_extend_gets_what_was_asked_for(run):
    seen = []

    @run.verb
    def extend(epochs=None, steps=None):
        seen.append((epochs, steps))
        return {"total_epochs": 12} if epochs else {"total_steps": 120}

    tell(run, "extend", epochs=2)
    tell(run, "extend", steps=20)
    assert seen == [(2, None), (None, 20)]
    with kajitori.connect() as client:
        status = client.status()
    assert (status["total_epochs"], status["total_steps"]) == (12, 120)


def test_a_verb_that_can_only_act_at_the_end_of_an_epoch(run):
    run.begin_epoch(0)
    epochs = []
    run.add_verb("look", lambda: epochs.append(run.epoch), at_epoch_end=True)
    assert tell(run, "command", "look", wait="accepted")["at"] == "epoch"
    run.poll()
    assert epochs == []
    run.end_epoch(0)
    assert epochs == [0]


def test_a_remark_and_a_pause_for_a_time(run):
    tell(run, "note", "looks good", by="me")
    assert last_line()["words"] == ["looks good"]
    tell(run, "pause", for_=0.01, wait="applied")
    assert "resumed" in [line.get("event") for line in kajitori.journal()]


def test_set_and_options(run):
    values = {"lr": 1.0}
    run.add_param("lr", get=lambda: values["lr"], set=lambda v: values.update(lr=v))
    assert tell(run, "set", {"lr": 0.5}, dry_run=True)["dry_run"] is True
    assert values == {"lr": 1.0}
    for _ in range(2):
        record = tell(run, "set", {"lr": 0.5}, reason="slower", command_id="one")
        assert (record["seq"], record["new"]) == (2, {"lr": 0.5})
    assert tell(run, "recover")["state"] == "done"


def test_a_client_that_can_only_look(run):
    with kajitori.connect(read_only=True) as client:
        assert client.version == kajitori.__version__
        assert client.status()["state"] == "running"
        with pytest.raises(kajitori.Error, match="monitor"):
            client.stop()
    assert run.poll() is False


def test_events_go_on_where_they_were_after_a_lost_connection(run):
    seen = []

    def watch():
        with kajitori.connect(run.id) as client:
            events = client.events(kinds=["metric"])
            ready.set()
            for event in events:
                seen.append(event["value"])
                if event["value"] == 5:
                    all_seen.set()
                if event["value"] == 2:
                    lost.wait(PATIENCE)
                    fd = os.dup(lib.kj_client_get_fd(client._client))
                    with socket.socket(fileno=fd) as connection:
                        connection.shutdown(socket.SHUT_RDWR)

    ready, lost, all_seen = threading.Event(), threading.Event(), threading.Event()
    thread = threading.Thread(target=watch)
    thread.start()
    ready.wait(PATIENCE)
    for value in range(5):
        run.report("loss", value, value)
    lost.set()
    run.report("loss", 5, 5)
    assert all_seen.wait(PATIENCE)
    run.close()
    thread.join(PATIENCE)
    assert seen == [0, 1, 2, 3, 4, 5]


def test_events_after_a_cursor(run):
    with kajitori.connect() as client:
        events = client.events(kinds=["metric"])
        run.report("loss", 1, 0.5)
        run.report("loss", 2, 0.25)
        cursor = next(events)["cursor"]
    with kajitori.connect() as client:
        assert next(client.events(after=cursor))["value"] == 0.25


PROGRAM = """
import sys, kajitori
try:
    with kajitori.Run({options}) as run:
        run.add_verb("checkpoint", lambda: "saved")
        step = 0
        print("ready", flush=True)
        while not run.begin_step(step):
            step += 1
    print("after the loop", run.ending)
except Exception:
    print("never")
finally:
    print("finally", run.closed, flush=True)
sys.exit(run.exit_status)
"""


def ending_of(command, options=""):
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(options=options)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "ready\n"
    command(process)
    out, err = process.communicate(timeout=PATIENCE)
    assert err == ""
    return process.returncode, out


@pytest.mark.parametrize(
    ("line", "status", "out"),
    [
        ("stop", 0, "after the loop stop\nfinally True\n"),
        ("prune", 76, "after the loop prune\nfinally True\n"),
        ("pause level=leave", 75, "finally True\n"),
        ("abort", 77, "finally True\n"),
    ],
)
def test_what_with_and_finally_see(line, status, out):
    def command(process):
        sender = outside(f"c.send({json.dumps(line)}, wait='accepted')")
        assert sender.wait(PATIENCE) == 0

    assert ending_of(command) == (status, out)


def test_signals_are_commands():
    def command(process):
        process.send_signal(15)

    assert ending_of(command, "signals='TERM'") == (0, "after the loop stop\nfinally True\n")
    assert kajitori.journal()[-1]["reason"] == "SIGTERM"


def test_without_a_helper_thread():
    def command(process):
        sender = outside("c.send('stop')")
        assert sender.wait(PATIENCE) == 0

    assert ending_of(command, "threaded=False")[0] == 0


def test_a_schedule_is_taken_in_before_the_first_step(tmp_path):
    path = tmp_path / "schedule"
    path.write_text("stop at=step:7 reason=planned\n")
    with kajitori.Run(schedule=path) as run:
        step = 0
        while not run.begin_step(step):
            step += 1
    assert (step, run.stop_reason) == (7, "planned")


def test_commands_come_through_a_mailbox_too(tmp_path):
    with kajitori.Run(mailbox=tmp_path / "box") as run:
        new = tmp_path / "box" / "new"
        new.write_text("stop reason=posted\n")
        new.rename(tmp_path / "box" / run.id / "in" / "1.txt")
        while not run.poll():
            pass
        assert run.stop_reason == "posted"
    assert [line["door"] for line in kajitori.journal() if line.get("state") == "applied"] == [
        "mailbox"
    ]
