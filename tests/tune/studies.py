# SPDX-License-Identifier: Apache-2.0
"""What the tests of tune share: a study in a folder of its own, and ways to wait."""

import json
import pathlib
import sqlite3
import sys
import textwrap

from waiting import until

STDOUT_METRIC = r"stdout:/step=(?<step>\d+) loss=(?<value>\S+)/"

# Trials below FIRST_BAD end at once with a small loss; the others say a great one and stay.
PROGRAM = """
import os, signal, sys
trial = int(os.environ["KAJITORI_TRIAL"])
first_bad = int(sys.argv[1])
x = float(sys.argv[2])
bad = trial >= first_bad
for step in range(1 if bad else 3):
    print(f"step={step} loss={10.0 if bad else x}")
if bad:
    print("waiting")
    while True:
        signal.pause()
"""


class Study:
    """A folder with a program in it, and a command line."""

    def __init__(self, place, program=PROGRAM, name="train.py"):
        self.place = place
        self.folder = place.tmp_path / "work"
        self.folder.mkdir()
        self.write(name, program)
        self.name = pathlib.Path(name).stem
        self.trials_dir = self.folder / "kajitori-trials" / self.name
        self.params = ["x=0..1"]
        self.metric = STDOUT_METRIC
        self.options = ["--pruner", "median:n_startup_trials=2"]
        self.program = [sys.executable, name, "99", "{x}"]

    def write(self, name, text):
        (self.folder / name).write_text(textwrap.dedent(text))

    def words(self, trials, *more):
        words = ["tune", "--metric", self.metric, "--trials", trials, *self.options, *more]
        for param in self.params:
            words += ["--param", param]
        return [*words, "--", *self.program]

    def run(self, trials, *more, status=0):
        return self.place.kajitori(*self.words(trials, *more), status=status, cwd=self.folder)

    def result(self, trials, *more, status=0):
        return json.loads(self.run(trials, "--format", "json", *more, status=status).stdout)

    def table(self, trials, *more, status=0):
        return self.result(trials, *more, status=status)["trials"]

    def start(self, trials, *more):
        return self.place.start_kajitori(
            *self.words(trials, "--format", "json", *more), cwd=self.folder
        )

    def trial_file(self, number, name):
        return self.trials_dir / str(number) / name

    def trial_json(self, number, name):
        return json.loads(wait_for(self.trial_file(number, name)).read_text())

    def states(self):
        db = sqlite3.connect(self.folder / "kajitori.db")
        rows = db.execute("SELECT number, state FROM trials ORDER BY number").fetchall()
        db.close()
        return rows


def trials_of(tune):
    return json.loads(tune.out)["trials"]


def wait_for(path):
    until(path.exists)
    return path


def wait_text(path, text):
    until(lambda: path.exists() and text in path.read_text())


def processes_with(marker):
    """Pids whose command line has this word."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if marker.encode() in (folder / "cmdline").read_bytes().split(b"\0"):
                found.append(int(folder.name))
        except OSError:
            pass
    return found


def is_alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def execute(study, sql):
    db = sqlite3.connect(study.folder / "kajitori.db", isolation_level=None)
    db.execute(sql)
    db.close()
