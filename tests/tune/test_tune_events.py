# SPDX-License-Identifier: Apache-2.0
"""kajitori tune with the metric in TensorBoard event files."""

import json
import os
import sys

from studies import wait_for

EVENT_WRITER = """
import os, struct, sys, time

TABLE = []
for n in range(256):
    for _ in range(8):
        n = n >> 1 ^ 0x82F63B78 if n & 1 else n >> 1
    TABLE.append(n)

def masked(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = TABLE[(crc ^ byte) & 255] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)

def field(number, data):
    return bytes([number << 3 | 2, len(data)]) + data

def event(tag, step, value):
    scalar = field(1, tag.encode()) + bytes([2 << 3 | 5]) + struct.pack("<f", value)
    return bytes([1 << 3 | 1]) + struct.pack("<d", time.time()) + bytes([2 << 3, step]) + field(5, field(1, scalar))

class Writer:
    def __init__(self, folder):
        os.makedirs(folder, exist_ok=True)
        self.file = open(folder + f"/events.out.tfevents.{int(time.time())}.host.{os.getpid()}", "ab", buffering=0)
        self.add(bytes([1 << 3 | 1]) + struct.pack("<d", time.time()) + field(3, b"brain.Event:2"))

    def add(self, data):
        size = struct.pack("<Q", len(data))
        self.file.write(size + masked(size) + data + masked(data))

    def scalar(self, tag, step, value):
        self.add(event(tag, step, value))
"""


def test_the_metric_from_event_files(study):
    study.write("eventwriter.py", EVENT_WRITER)
    study.write(
        "train.py",
        """
        import signal, sys
        from eventwriter import Writer
        trial, x = int(sys.argv[1]), float(sys.argv[2])
        train, validation = Writer(f"logs/{trial}/train"), Writer(f"logs/{trial}/validation")
        for step in range(3):
            train.scalar("epoch_loss", step, 0.0)
            validation.scalar("epoch_loss", step, 1.0 if trial < 2 else 9.0)
            while trial >= 2:
                signal.pause()
        """,
    )
    study.metric = "events:logs/{trial}:validation/epoch_loss"
    study.program = [sys.executable, "train.py", "{trial}", "{x}"]
    rows = study.table(3)
    assert [(row["state"], row["value"], row["steps"]) for row in rows] == [
        ("COMPLETE", 1.0, 3),
        ("COMPLETE", 1.0, 3),
        ("PRUNED", 9.0, 1),
    ]


def test_a_tag_in_two_runs_is_one_metric(study):
    """The first one counts, also for the worker that takes the trial over."""
    study.write("eventwriter.py", EVENT_WRITER)
    study.write(
        "train.py",
        """
        import sys
        from eventwriter import Writer
        second = Writer("logs/0/b")
        second.scalar("loss", 0, 2.0)
        open("go").read()
        first = Writer("logs/0/a")
        for step in range(4):
            first.scalar("loss", step, 1.0)
            second.scalar("loss", step, 2.0)
        """,
    )
    os.mkfifo(study.folder / "go")
    study.metric = "events:logs/{trial}:loss"
    study.program = [sys.executable, "train.py", "{x}"]
    tune = study.start(1, "-v")
    tune.wait_line("step 0 value 2")
    tune.popen.kill()
    tune.wait()
    (study.folder / "go").write_text("go")
    wait_for(study.trial_file(0, "exit.json"))
    done = study.run(1, "--format", "json")
    row = json.loads(done.stdout)["trials"][0]
    assert (row["state"], row["value"], row["steps"]) == ("COMPLETE", 2.0, 4)
    assert 'written in two places, "b" and "a"; only the first counts' in done.stderr


def test_a_tag_that_never_appears(study):
    study.write("eventwriter.py", EVENT_WRITER)
    study.write(
        "train.py",
        """
        import sys
        from eventwriter import Writer
        Writer(f"logs/{sys.argv[1]}/validation").scalar("epoch_accuracy", 0, 1.0)
        """,
    )
    study.metric = "events:logs/{trial}:validation/epoch_loss"
    study.program = [sys.executable, "train.py", "{trial}", "{x}"]
    done = study.run(1, status=1)
    assert "never appeared" in done.stderr
    assert "validation/epoch_accuracy" in done.stderr


def test_old_values_are_not_the_trials(study):
    study.write("eventwriter.py", EVENT_WRITER)
    study.write(
        "train.py",
        """
        import sys
        from eventwriter import Writer
        Writer(f"logs/{sys.argv[1]}").scalar("loss", 0, 1.0)
        """,
    )
    study.program = [sys.executable, "train.py", "{trial}", "{x}"]
    study.metric = "events:logs/{trial}:loss"
    study.run(1)
    study.write("train.py", "print('writes nothing')")
    done = study.run(1, "--study", "other", status=1)
    assert "values from before this trial" in done.stderr
    assert "ended without a value" in done.stderr
