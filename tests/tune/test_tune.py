# SPDX-License-Identifier: Apache-2.0
"""kajitori tune with real processes: small programs that know nothing of kajitori, and examples/digits.

Nothing sleeps to wait: programs block on FIFOs or for ever, tests wait for lines and files.
"""

import json
import os
import pathlib
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time

import pytest
from studies import (
    PROGRAM,
    Study,
    execute,
    is_alive,
    processes_with,
    trials_of,
    until,
    wait_for,
    wait_text,
)


def test_a_study_completes_and_goes_on(study):
    study.options = ["--pruner", "none"]
    rows = study.table(4, "--jobs", "2")
    assert [row["number"] for row in rows] == [0, 1, 2, 3]
    for row in rows:
        assert row["state"] == "COMPLETE"
        assert row["steps"] == 3
        assert row["value"] == row["params"]["x"]
    again = study.table(6)
    assert [row["number"] for row in again] == [0, 1, 2, 3, 4, 5]
    assert again[:4] == rows
    done = study.run(6)
    assert "resumed" in done.stderr
    assert "best: trial" in done.stdout
    assert " started: x=" not in done.stderr
    assert "has its 6 trials already; a greater --trials goes on" in done.stderr


def test_the_same_seed_draws_the_same(study):
    first = study.table(3, "--seed", "7")
    second = study.table(3, "--seed", "7", "--study", "other")
    assert [row["params"] for row in first] == [row["params"] for row in second]


def test_maximize_finds_the_greatest(study):
    study.options = ["--pruner", "none", "--maximize"]
    done = study.run(4)
    rows = study.table(4)
    best = max(rows, key=lambda row: row["value"])
    assert f"best: trial {best['number']}, value" in done.stdout


def test_what_the_program_is_given(study):
    study.write(
        "train.py",
        """
        import os, sys
        names = ("KAJITORI_STUDY", "KAJITORI_TRIAL", "KAJITORI_RUN_ID", "PYTHONUNBUFFERED", "HOME")
        print("env", *(os.environ.get(name) for name in names))
        print("argv", sys.argv[1:], "stdin", repr(sys.stdin.read()), "group", os.getpgrp() == os.getpid())
        print("to stderr", file=sys.stderr)
        print("fds", sorted(int(fd) for fd in os.listdir("/proc/self/fd"))[:-1])
        print("step=0 loss=1")
        """,
    )
    study.params = ["x=1..4:int", "opt=adam|sgd"]
    study.program = [sys.executable, "train.py", "{x}", "--o={opt}", "{{{trial}}}", "{study}"]
    row = study.table(1)[0]
    output = study.trial_file(0, "output.log").read_text()
    x, opt = row["params"]["x"], row["params"]["opt"]
    assert isinstance(x, int)
    assert 1 <= x <= 4
    assert opt in ("adam", "sgd")
    record = study.trial_json(0, "trial.json")
    assert f"env train 0 {record['run_id']} 1 {os.environ.get('HOME')}" in output
    assert f"argv ['{x}', '--o={opt}', '{{0}}', 'train'] stdin '' group True" in output
    assert "to stderr" in output
    assert "fds [0, 1, 2]" in output
    assert record["run_id"].startswith("train-0-")
    assert record["params"] == row["params"]
    assert study.trial_json(0, "exit.json")["exit_code"] == 0


def test_the_first_value_of_a_step_counts(study):
    steps = [(0, 5), (1, 4), (2, 3), (1, 9), (2, 9), (3, 2), (0, 9), (-1, 9)]
    study.write("train.py", "".join(f"print('step={step} loss={loss}')\n" for step, loss in steps))
    row = study.table(1)[0]
    assert row["steps"] == 4
    assert row["value"] == 2.0
    db = sqlite3.connect(study.folder / "kajitori.db")
    values = db.execute(
        "SELECT step, intermediate_value FROM trial_intermediate_values ORDER BY step"
    ).fetchall()
    db.close()
    assert values == [(0, 5.0), (1, 4.0), (2, 3.0), (3, 2.0)]


def test_median_prunes_with_sigterm(study):
    study.program[2] = "2"
    done = study.run(4)
    rows = study.table(4)
    assert [row["state"] for row in rows] == ["COMPLETE"] * 2 + ["PRUNED"] * 2
    for row in rows[2:]:
        assert "median" in row["reason"]
        assert row["steps"] == 1
        assert row["value"] == 10.0
        assert study.trial_json(row["number"], "exit.json")["signal"] == signal.SIGTERM
    assert "being stopped: SIGTERM" in done.stderr
    assert "SIGKILL" not in done.stderr
    assert "8 of 12 reported (33% saved)" in done.stdout
    whole = study.result(4)
    assert list(whole) == ["study", "trials", "best", "steps_run", "steps_full"]
    assert (whole["study"], whole["steps_run"], whole["steps_full"]) == ("train", 8, 12)
    assert whole["best"] == min(rows[:2], key=lambda row: row["value"])


def test_sigkill_when_sigterm_is_ignored(study):
    study.write(
        "train.py", "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + PROGRAM
    )
    study.program[2] = "2"
    done = study.run(3, "--grace", "0.2")
    assert "being stopped: SIGTERM" in done.stderr
    assert "being stopped: SIGKILL" in done.stderr
    assert study.states()[2] == (2, "PRUNED")
    assert study.trial_json(2, "exit.json")["signal"] == signal.SIGKILL


def test_a_frozen_program_is_ended_too(study):
    study.write(
        "train.py", PROGRAM.replace("signal.pause()", "os.kill(os.getpid(), signal.SIGSTOP)")
    )
    study.program[2] = "2"
    assert study.table(3)[2]["state"] == "PRUNED"
    assert study.trial_json(2, "exit.json")["signal"] == signal.SIGTERM


def test_no_descendant_survives(study):
    marker = f"kajitori-marker-{os.getpid()}-{time.monotonic_ns()}"
    study.write(
        "train.py",
        f"""
        import os, subprocess, sys
        code = "import signal, sys\\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\\n" \\
               "print('up', flush=True)\\nwhile True: signal.pause()"
        for detached in (True, False):  # in a session of its own, and in our group
            child = subprocess.Popen([sys.executable, "-c", code, "{marker}"], start_new_session=detached,
                                     stdout=subprocess.PIPE)
            child.stdout.readline()
        if os.fork() == 0:  # forked twice: its parent is gone
            if os.fork() == 0:
                os.execv(sys.executable, [sys.executable, "-c", code, "{marker}"])
            os._exit(0)
        """
        + textwrap.indent(PROGRAM, " " * 8),
    )
    study.program[2] = "2"
    rows = study.table(3, "--grace", "0.2", "--jobs", "1")
    assert [row["state"] for row in rows] == ["COMPLETE", "COMPLETE", "PRUNED"]
    assert processes_with(marker) == []


def test_a_thousand_children_are_ended(study):
    marker = f"kajitori-marker-{os.getpid()}-{time.monotonic_ns()}"
    study.write(
        "train.py",
        """
        import os, signal
        print("step=0 loss=1")
        for k in range(500):
            if os.fork() == 0:
                if k % 3 == 0:
                    os.setsid()
                signal.pause()
        """,
    )
    study.program = [sys.executable, "train.py", "{x}", marker]
    assert [row["state"] for row in study.table(1)] == ["COMPLETE"]
    assert processes_with(marker) == []


DIGITS = """
import os, sys
trial = int(os.environ["KAJITORI_TRIAL"])
short = ["--epochs", "2", "--lr", "0.05"]
hopeless = ["--epochs", "1000000", "--lr", "1e-9"]
os.execv(sys.argv[1], [sys.argv[1], "--step-ms", "1", *(short if trial < int(sys.argv[2]) else hopeless), *sys.argv[4:]])
"""


def digits_study(place, first_bad):
    study = Study(place, DIGITS)
    study.metric = r"stdout:/epoch (?<step>\d+) .*val_loss=(?<value>\S+)/"
    study.program = [sys.executable, "train.py", place.digits_path, first_bad, "{x}"]
    return study


def test_a_program_with_the_channel_is_asked(place):
    study = digits_study(place, 2)
    done = study.run(3)
    assert "being stopped: channel" in done.stderr
    assert "SIGTERM" not in done.stderr
    assert study.states() == [(0, "COMPLETE"), (1, "COMPLETE"), (2, "PRUNED")]
    assert study.trial_json(2, "exit.json")["exit_code"] == 76
    assert "pruned at step" in study.trial_file(2, "output.log").read_text()
    run_id = study.trial_json(2, "trial.json")["run_id"]
    prune = next(record for record in place.journal(run_id) if record.get("verb") == "prune")
    assert prune["by"] == "pruner"
    assert "median" in prune["reason"]
    assert prune["args"]["rule"] == "median"
    assert prune["args"]["value"] > prune["args"]["threshold"]


# A run whose library is older than the verb prune.
OLD_RUN = """
import os, pathlib, sys, threading
sys.path.insert(0, sys.argv[3])
from fake_run import FakeRun
asked = threading.Event()
def command(params):
    print("asked to", params["verb"], flush=True)
    asked.set()
    return {"seq": 1, "state": "accepted", "verb": params["verb"]}
answers = {"help": RuntimeError(-9, "unknown verb prune"), "command": command}
if int(os.environ["KAJITORI_TRIAL"]) >= int(sys.argv[1]):
    FakeRun(pathlib.Path(os.environ["KAJITORI_RUNTIME_DIR"]), os.environ["KAJITORI_RUN_ID"], answers)
    print("step=0 loss=10.0", flush=True)
    asked.wait()
else:
    print("step=0 loss=" + sys.argv[2])
"""


def test_an_older_run_is_asked_to_stop(place):
    study = Study(place, OLD_RUN)
    fake_run = pathlib.Path(__file__).resolve().parent.parent / "cli"
    study.program = [sys.executable, "train.py", 2, "{x}", fake_run]
    study.run(3)
    assert study.states()[2] == (2, "PRUNED")
    assert "asked to stop" in study.trial_file(2, "output.log").read_text()


def test_stopped_by_a_person(place):
    study = digits_study(place, 0)
    tune = study.start(1, "-v")
    tune.wait_line("step 0 value")
    place.kajitori("stop", study.trial_json(0, "trial.json")["run_id"], "--by", "ann")
    assert tune.wait() == 0
    row = trials_of(tune)[0]
    assert row["state"] == "COMPLETE"
    assert row["reason"] == "stopped by ann"


@pytest.mark.parametrize(
    ("words", "state", "status", "reason"),
    [
        (["prune"], "PRUNED", 76, "pruned by ann"),
        (["abort"], "FAIL", 77, "aborted by ann"),
        (["pause", "--level", "leave"], "FAIL", 75, "left, as ann wanted; its checkpoint is "),
    ],
)
def test_ended_by_a_person_otherwise(place, words, state, status, reason):
    study = digits_study(place, 0)
    study.program += ["--checkpoints", place.tmp_path]
    tune = study.start(1, "-v")
    tune.wait_line("step 0 value")
    run_id = study.trial_json(0, "trial.json")["run_id"]
    place.kajitori(*words, "--run", run_id, "--by", "ann")
    assert tune.wait() == 0
    row = trials_of(tune)[0]
    assert row["state"] == state
    assert row["reason"].startswith(reason)
    assert study.trial_json(0, "exit.json")["exit_code"] == status


def waiting_study(study, trials=4, *more):
    """A worker whose trials 1 and 2 run and stay, after trial 0 has ended."""
    study.options = ["--pruner", "none"]
    study.program[2] = "1"
    tune = study.start(trials, "--jobs", "2", *more)
    for number in (1, 2):
        wait_text(study.trial_file(number, "output.log"), "waiting")
    return tune


def test_interrupted_once_lets_them_end(study):
    study.write(
        "train.py",
        """
        import os
        print("step=0 loss=1")
        print("waiting")
        open("go").read()
        """,
    )
    os.mkfifo(study.folder / "go")
    study.program = [sys.executable, "train.py", "{x}"]
    tune = study.start(5)
    wait_text(study.trial_file(0, "output.log"), "waiting")
    tune.popen.send_signal(signal.SIGINT)
    tune.wait_line("no new trials")
    (study.folder / "go").write_text("go")
    assert tune.wait() == 130
    assert study.states() == [(0, "COMPLETE")]
    assert trials_of(tune)[0]["state"] == "COMPLETE"


def test_interrupted_twice_stops_them_and_tries_again(study):
    tune = waiting_study(study)
    tune.popen.send_signal(signal.SIGINT)
    tune.wait_line("no new trials")
    tune.popen.send_signal(signal.SIGINT)
    assert tune.wait() == 130
    rows = trials_of(tune)
    assert [row["state"] for row in rows] == ["COMPLETE", "FAIL", "FAIL", "WAITING", "WAITING"]
    assert all("interrupted" in row["reason"] for row in rows[1:3])
    study.program[2] = "99"  # the program is well now
    again = study.table(4)
    assert [row["state"] for row in again] == ["COMPLETE", "FAIL", "FAIL"] + ["COMPLETE"] * 3
    assert sorted(again[n]["params"]["x"] for n in (3, 4)) == sorted(
        again[n]["params"]["x"] for n in (1, 2)
    )


def test_sigterm_stops_at_once(study):
    tune = waiting_study(study)
    tune.popen.send_signal(signal.SIGTERM)
    assert tune.wait() == 130
    assert [state for _, state in study.states()] == [
        "COMPLETE",
        "FAIL",
        "FAIL",
        "WAITING",
        "WAITING",
    ]


def test_interrupted_three_times_kills(study):
    study.write(
        "train.py", "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + PROGRAM
    )
    tune = waiting_study(study, 4, "--grace", "600")
    tune.popen.send_signal(signal.SIGTERM)
    tune.wait_line("SIGTERM")
    tune.popen.send_signal(signal.SIGINT)
    assert tune.wait() == 130
    assert study.trial_json(1, "exit.json")["signal"] == signal.SIGKILL
    assert study.states()[1] == (1, "FAIL")


def test_a_program_that_prints_faster_than_it_is_read(study):
    """The others go on, a person may end it, and memory stays bounded."""
    study.write(
        "train.py",
        """
        import os, sys
        if os.environ["KAJITORI_TRIAL"] != "0":
            print("step=0 loss=1")
            raise SystemExit
        step = 0
        while os.fstat(1).st_size < 200_000_000:
            sys.stdout.write("".join(f"step={k} loss=1\\n" for k in range(step, step + 10000)))
            step += 10000
        open("never").read()
        """,
    )
    os.mkfifo(study.folder / "never")
    study.program = [sys.executable, "train.py", "{x}"]
    tune = study.start(3, "--jobs", "2")
    tune.wait_line("trial 2 COMPLETE")
    until(lambda: study.trial_file(0, "output.log").stat().st_size > 20_000_000)
    status = pathlib.Path(f"/proc/{tune.popen.pid}/status").read_text()
    assert int(status.split("VmRSS:")[1].split()[0]) < 100_000
    tune.popen.send_signal(signal.SIGTERM)
    assert tune.wait() == 130
    assert trials_of(tune)[0]["state"] == "FAIL"


def test_a_killed_worker_is_taken_over(study):
    study.write(
        "train.py",
        """
        import os
        print("step=0 loss=1")
        print("waiting")
        if os.path.exists("go" + os.environ["KAJITORI_TRIAL"]):
            open("go" + os.environ["KAJITORI_TRIAL"]).read()
        print("step=1 loss=0.5")
        """,
    )
    os.mkfifo(study.folder / "go0")
    os.mkfifo(study.folder / "go1")
    study.program = [sys.executable, "train.py", "{x}"]
    study.options = ["--pruner", "none"]
    first = study.start(3, "--jobs", "2", "-v")
    first.wait_line("step 0 value")
    for number in (0, 1):
        wait_text(study.trial_file(number, "output.log"), "waiting")
    pids = [study.trial_json(number, "shim.json")["pid"] for number in (0, 1)]
    first.popen.kill()
    first.wait()
    assert all(is_alive(pid) for pid in pids)
    second = study.start(3, "--jobs", "2")
    second.wait_line("found running")
    second.wait_line("found running")
    (study.folder / "go0").write_text("go")
    (study.folder / "go1").write_text("go")
    assert second.wait() == 0, second.err
    rows = trials_of(second)
    assert [(row["number"], row["state"], row["steps"], row["value"]) for row in rows] == [
        (number, "COMPLETE", 2, 0.5) for number in range(3)
    ]
    assert pids == [study.trial_json(number, "shim.json")["pid"] for number in (0, 1)]


def test_what_ended_meanwhile_is_finished_from_disk(study):
    tune = waiting_study(study, 3)
    pid = study.trial_json(2, "shim.json")["pid"]
    tune.popen.kill()
    tune.wait()
    os.kill(pid, signal.SIGTERM)
    wait_for(study.trial_file(2, "exit.json"))
    os.kill(study.trial_json(1, "shim.json")["pid"], signal.SIGTERM)
    wait_for(study.trial_file(1, "exit.json"))
    rows = study.table(3)
    assert [(row["state"], row["steps"]) for row in rows] == [
        ("COMPLETE", 3),
        ("FAIL", 1),
        ("FAIL", 1),
    ]
    assert "signal 15" in rows[2]["reason"]


def test_a_cut_trial_stays_cut(study):
    """A worker is killed between a cut and the program's end: the next one goes on with the ladder."""
    study.write(
        "train.py", "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + PROGRAM
    )
    study.program[2] = "2"
    tune = study.start(3, "--grace", "600")
    tune.wait_line("being stopped: SIGTERM")
    tune.popen.kill()
    tune.wait()
    done = study.run(3, "--grace", "0.2")
    assert "being stopped: SIGKILL" in done.stderr
    assert study.states() == [(0, "COMPLETE"), (1, "COMPLETE"), (2, "PRUNED")]
    assert study.trial_json(2, "exit.json")["signal"] == signal.SIGKILL


def test_trials_of_others_are_left_alone(study):
    study.run(1)
    execute(study, "INSERT INTO trials (number, study_id, state) VALUES (1, 1, 'RUNNING')")
    done = study.run(2)
    assert "1 running trials were not started for" in done.stderr
    assert study.states() == [(0, "COMPLETE"), (1, "RUNNING"), (2, "COMPLETE")]


def test_a_worker_killed_before_it_made_the_folder(study):
    """Between the claim and the folder: the next worker knows the trial by its mark."""
    study.run(1)
    folder_id = json.loads((study.trials_dir / "study.json").read_text())["folder_id"]
    execute(study, "INSERT INTO trials (number, study_id, state) VALUES (1, 1, 'RUNNING')")
    execute(
        study,
        "INSERT INTO trial_user_attributes (trial_id, key, value_json) "
        f"VALUES (2, 'kajitori:folder', '\"{folder_id}\"')",
    )
    rows = study.table(2)
    assert [row["state"] for row in rows] == ["COMPLETE", "FAIL", "COMPLETE"]
    assert rows[1]["reason"].startswith("lost")


def test_the_trials_folder_is_removed(study):
    study.options = ["--pruner", "none"]
    study.write("train.py", "print('step=0 loss=1')\nopen('go').read()\n")
    os.mkfifo(study.folder / "go")
    study.program = [sys.executable, "train.py", "{x}"]
    tune = study.start(3, "-v")
    tune.wait_line("step 0 value")
    shutil.rmtree(study.trials_dir)
    (study.folder / "go").write_text("go")
    assert tune.wait() == 1
    assert "its shim could not write into kajitori-trials/train/0, which was removed" in tune.err
    assert study.states() == [(0, "FAIL"), (1, "WAITING")]
    study.write("train.py", PROGRAM)
    study.program = [sys.executable, "train.py", "99", "{x}"]
    rows = study.table(3)
    assert [row["state"] for row in rows] == ["FAIL"] + ["COMPLETE"] * 3
    assert rows[0]["params"] == rows[1]["params"]


def test_no_room_for_a_folder(study):
    """A trial that cannot have its folder is not used up, and no further one is tried."""
    study.options = ["--pruner", "none"]
    study.run(1)
    (study.trials_dir / "1").write_text("in the way")
    done = study.run(3, status=1)
    assert "kajitori-trials/train: cannot make the folder of trial 1: File exists" in done.stderr
    assert study.states() == [(0, "COMPLETE"), (1, "FAIL"), (2, "WAITING")]
    rows = study.table(3)
    assert [row["state"] for row in rows] == ["COMPLETE", "FAIL", "COMPLETE", "COMPLETE"]
    assert rows[1]["params"] == rows[2]["params"]


def test_a_killed_shim_is_a_lost_trial_and_repeated_once(study):
    marker = f"kajitori-marker-{os.getpid()}-{time.monotonic_ns()}"
    study.write(
        "train.py",
        f"""
        import os, subprocess, sys
        print("step=0 loss=1")
        if int(os.environ["KAJITORI_TRIAL"]) == 0:
            subprocess.Popen([sys.executable, "-c", "import signal\\nsignal.pause()", "{marker}"],
                             start_new_session=True)
            print("waiting")
            open("never").read()
        """,
    )
    os.mkfifo(study.folder / "never")
    study.program = [sys.executable, "train.py", "{x}"]
    tune = study.start(1)
    wait_text(study.trial_file(0, "output.log"), "waiting")
    os.kill(study.trial_json(0, "shim.json")["shim_pid"], signal.SIGKILL)
    assert tune.wait() == 0, tune.err
    rows = trials_of(tune)
    assert [row["state"] for row in rows] == ["FAIL", "COMPLETE"]
    assert rows[0]["reason"].startswith("lost")
    assert rows[0]["params"] == rows[1]["params"]
    until(lambda: processes_with(marker) == [])


def test_a_second_worker_is_refused(study):
    tune = waiting_study(study)
    done = study.run(4, status=1)
    assert f"another kajitori tune (pid {tune.popen.pid})" in done.stderr
    tune.popen.send_signal(signal.SIGTERM)
    assert tune.wait() == 130


def test_workers_in_several_folders(study):
    """Also those that begin a study at the same moment agree about it."""
    study.options = ["--pruner", "none"]
    for trials in (5, 10):
        tunes = [study.start(trials, "--trials-dir", name) for name in ("a", "b", "c")]
        assert [tune.wait() for tune in tunes] == [0, 0, 0], [tune.err for tune in tunes]
        states = study.states()
        assert trials <= len(states) < trials + 3
        assert states == [(number, "COMPLETE") for number in range(len(states))]
    folders = [set(os.listdir(study.folder / name)) for name in ("a", "b", "c")]
    numbers = sorted(int(name) for folder in folders for name in folder if name.isdigit())
    assert numbers == list(range(len(states)))


def test_lists_pruners_and_samplers(place):
    assert "n_startup_trials" in place.kajitori("tune", "--pruner", "help").stdout
    assert "random" in place.kajitori("tune", "--sampler", "help").stdout


def test_one_line_on_a_terminal(study, place):
    study.program[2] = "2"
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        [place.command, *map(str, study.words(3))],
        env=place.env,
        cwd=study.folder,
        stderr=theirs,
        stdout=theirs,
    )
    os.close(theirs)
    screen = b""
    while chunk := read_terminal(ours):
        screen += chunk
    os.close(ours)
    assert process.wait() == 0
    lines = screen.decode().split("\r")
    assert any("3/3 trials, 0 running, 1 pruned, 0 failed, best" in line for line in lines), lines
    assert not any("started" in line for line in lines)
    assert "number" in lines[-1] or "steps:" in screen.decode()


def read_terminal(fd):
    try:
        return os.read(fd, 4096)
    except OSError:  # the other side is closed
        return b""


def test_workers_killed_at_any_moment(study):
    """However often the worker is killed: no number twice, each trial ends once, nothing is left."""
    marker = f"kajitori-marker-{os.getpid()}-{time.monotonic_ns()}"
    study.write(
        "train.py",
        """
        import os, sys, time
        trial = os.environ["KAJITORI_TRIAL"]
        with open("started", "a") as file:
            file.write(trial + "\\n")
        for step in range(4):
            print(f"step={step} loss={float(sys.argv[1])}")
            time.sleep(0.01)
        """,
    )
    study.program = [sys.executable, "train.py", "{x}", marker]
    study.options = ["--pruner", "none", "--jobs", "3"]
    chance = random.Random(3)
    soak = bool(os.environ.get("KAJITORI_SOAK"))
    for _ in range(200 if soak else 12):
        tune = study.start(100000)
        tune.wait_line("study train")
        for _ in range(chance.randrange(4)):
            tune.wait_line("trial")
        time.sleep(chance.random() * 0.03)  # not to wait for something: any moment will do
        tune.popen.kill()
        tune.wait()
    finished = len(study.states())
    rows = study.table(finished + 3)
    assert [row["number"] for row in rows] == list(range(len(rows)))
    assert {row["state"] for row in rows} <= {"COMPLETE", "FAIL"}, rows
    assert all(row["reason"].startswith("lost") for row in rows if row["state"] == "FAIL")
    started = (study.folder / "started").read_text().split()
    assert len(started) == len(set(started))
    assert all(row["steps"] == 4 for row in rows if row["state"] == "COMPLETE")
    assert processes_with(marker) == []
