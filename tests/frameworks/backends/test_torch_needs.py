# SPDX-License-Identifier: Apache-2.0
"""What goes wrong when a torch loop polls a FIFO, one test for each case that was measured, with what
should happen instead. Two ranks of which one leaves: test_torch_ranks.py."""

import os
import subprocess
import sys
import warnings

import pytest
from torch_training import STEPS, Training, make_loader
from training import PATIENCE, applied
from waiting import echo_that_waits

import kajitori
from kajitori import torch as kajitori_torch

WRITERS = {
    "echo by sh, one after the other": 'i=0; while [ $i -lt 200 ]; do echo "mark n=$i" > ctl; i=$((i+1)); done',
    "four shell writers at once": "i=0; while [ $i -lt 50 ]; do for k in 0 1 2 3; do "
    'echo "mark n=$((4*i+k))" > ctl & done; wait; i=$((i+1)); done',
    "Python's open(fifo, 'w')": "for k in range(200):\n with open('ctl', 'w') as f: f.write(f'mark n={k}\\n')",
    "O_WRONLY + O_NONBLOCK, each accepted": "import os\nfor k in range(200):\n"
    " fd = os.open('ctl', os.O_WRONLY | os.O_NONBLOCK)\n os.write(fd, b'mark n=%d\\n' % k)\n os.close(fd)",
}


@pytest.mark.parametrize("form", ["steps", "two lines"])
@pytest.mark.parametrize("writer", WRITERS)
def test_200_commands_none_lost_and_none_glued(tmp_path, monkeypatch, writer, form):
    """11 of 60 came through by sh, 59 by Python, 2 of 40 with four writers at once, 1 of 8 by O_NONBLOCK."""
    monkeypatch.chdir(tmp_path)
    seen = []
    command = (lambda run, n: seen.append(n), {"n": int})
    t = Training(fifo="ctl", commands={"mark": command})
    shell = ["sh"] if WRITERS[writer].startswith("i=") else [sys.executable]
    process = subprocess.Popen([*shell, "-c", WRITERS[writer]], stderr=subprocess.PIPE)
    if form == "steps":
        for _ in t.run.epochs(10**9):
            for batch in t.run.steps(make_loader()):
                t.body(batch)
            if process.poll() is not None and len(seen) >= 200:
                break
    else:
        batches = list(make_loader())
        with t.run as run:
            while not run.should_stop:
                t.body(batches[len(t.bodies) % STEPS])
                if process.poll() is not None and len(seen) >= 200:
                    break
    assert (process.wait(PATIENCE), process.stderr.read()) == (0, b"")
    assert sorted(seen) == list(range(200))
    if "four" not in writer:
        assert seen == sorted(seen)


def train_until_stopped(t, at):
    """Does something at some steps, until somebody stops the training."""
    for _ in t.run.epochs(10**9):
        for batch in t.run.steps(make_loader()):
            t.body(batch)
            at.pop(len(t.bodies), lambda: None)()
    assert t.run.ending == "stop"
    return len(t.bodies)


def echo(line, path):
    """As a shell's echo, that fails where it would hang: when nobody reads."""
    fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    os.write(fd, line)
    os.close(fd)


def test_a_writer_that_opens_and_stays_silent_does_not_hold_the_training(tmp_path):
    path = tmp_path / "ctl"
    t, held = Training(fifo=path), []
    steps = train_until_stopped(
        t,
        {
            3: lambda: held.append(os.open(path, os.O_WRONLY | os.O_NONBLOCK)),
            50: lambda: os.write(held[0], b"stop\n"),
        },
    )
    os.close(held[0])
    assert steps >= 50, "not one step waited for it"


def test_what_an_earlier_training_left_does_not_stop_this_one(tmp_path):
    """A trainer is killed, `echo stop` waits at its FIFO, and the next training begins: it ended at step 1."""
    path = tmp_path / "ctl"
    os.mkfifo(path)
    waiting = echo_that_waits("stop", path)
    t = Training(fifo=path)
    t.train(3)
    assert waiting.wait(PATIENCE) == 0
    assert len(t.bodies) == 3 * STEPS
    lines = kajitori.journal()
    assert [one["text"].strip() for one in lines if one.get("event") == "stale"] == ["stop"]


def test_nobody_reads_before_and_after_a_training(tmp_path):
    path = tmp_path / "ctl"
    os.mkfifo(path)
    with pytest.raises(OSError, match="No such device"):
        echo(b"stop\n", path)
    t = Training(fifo=path)
    echo(b"stop\n", path)
    assert len(t.bodies) == 0
    t.train(10**9)
    assert t.run.ending == "stop"
    with pytest.raises(OSError, match="No such device"):
        echo(b"stop\n", path)


@pytest.mark.parametrize(
    "text",
    [
        b"\xff\xfe\nstop\n",
        b"stop",
        b" STOP \r\n",
        b"\nstop\n",
        b"set lr=0.5\nstop\n",
        b"x" * 200 + b"\nstop\n",
    ],
)
def test_forms_of_a_line(tmp_path, text):
    """Bytes that are no text, no newline, other case, two lines in one write, a long unknown one."""
    path = tmp_path / "ctl"
    train_until_stopped(Training(fifo=path), {3: lambda: echo(text, path)})
    assert applied()[-1]["verb"] == "stop"


def test_a_path_that_is_deleted_while_training(tmp_path):
    path = tmp_path / "ctl"
    t = Training(fifo=path)
    os.remove(path)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in t.run.epochs(10**9):
            for batch in t.run.steps(make_loader()):
                t.body(batch)
            if caught:
                break
    assert [one.category for one in caught] == [kajitori.ChannelWarning]


def test_a_file_in_the_place_of_the_fifo(tmp_path):
    path = tmp_path / "ctl"
    path.write_text("stop\n")
    with pytest.warns(kajitori.ChannelWarning, match="ctl"):
        t = Training(fifo=path)
    t.train(1)
    assert len(t.bodies) == STEPS
    assert path.read_text() == "stop\n"


def test_during_evaluation_after_the_loops_nobody_waits(tmp_path):
    path = tmp_path / "ctl"
    os.mkfifo(path)
    run = kajitori_torch.Run(fifo=path)
    list(run.epochs(1))
    for _ in run.validate(range(3)):
        with pytest.raises(OSError, match="No such device"):
            echo(b"stop\n", path)
        with pytest.raises(kajitori.NoSuchRunError):
            kajitori.connect()


def test_two_trainings_at_one_fifo(tmp_path):
    """Each had some of the commands; now the second one is refused the FIFO, and says so."""
    path = tmp_path / "ctl"
    os.mkfifo(path)
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys, kajitori\nwith kajitori.Run(fifo=sys.argv[1]) as run:\n"
            " print('open', flush=True)\n while not run.poll(): pass",
            path,
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout.readline() == "open\n"
    with pytest.warns(kajitori.ChannelWarning, match="ctl"):
        t = Training(fifo=path)
    t.train(1)
    echo(b"stop\n", path)
    assert holder.wait(PATIENCE) == 0
    assert len(t.bodies) == STEPS
