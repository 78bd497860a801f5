# SPDX-License-Identifier: Apache-2.0
"""What the programs of the table share: `serve` reads trainings from standard input, one JSON object a
line, and has the framework's function `train` do each of them. All are of the same size: EPOCHS epochs
(where there are any) of STEPS batches, and TESTS batches of validation after each epoch.

Where the training says what it does (`Record`), it waits at one place, the gate, until whoever steers
it from outside has sent what he wants to send. So each cell of the table knows at which step its
command came, and what the training did afterwards is counted here, by nobody's callback but our own.
"""

import json
import os
import sys

EPOCHS = 3
STEPS = 10
TESTS = 5
LR = 0.125


class Record:
    """One training: what is asked of it, and what it did."""

    def __init__(self, wanted, say):
        self.gate = wanted["gate"]  # "step" or "test", and how many of them have begun before it
        self.options = wanted.get("options", {})
        self.folder = wanted["folder"]
        self.did = {"lrs": [], "tests": 0, "epochs": 0, "end_hooks": 0, "results": {}}
        self._say = say

    def step(self, lr):
        """A batch is trained, with this learning rate."""
        self.did["lrs"].append(float(lr))
        self._wait("step", len(self.did["lrs"]))

    def test(self):
        """A batch of a validation."""
        self.did["tests"] += 1
        self._wait("test", self.did["tests"])

    def epoch_end(self):
        """Another callback was told of the end of an epoch."""
        self.did["epochs"] += 1

    def end(self):
        """Another callback was told of the end of the training."""
        self.did["end_hooks"] += 1

    def _wait(self, hook, number):
        if self.gate == [hook, number]:
            self._say({"at": self.gate})
            sys.stdin.readline()


def run(train, wanted, say):
    """Does one training; how it ended stands beside what it did."""
    record = Record(wanted, say)
    os.environ.pop("KAJITORI_CHECKPOINT", None)
    if wanted.get("checkpoint"):
        os.environ["KAJITORI_CHECKPOINT"] = wanted["checkpoint"]
    try:
        train(record)
        record.did["ending"] = "returned"
    except SystemExit as ending:
        record.did["ending"] = type(ending).__name__
    say(record.did)


def serve(train):
    """The program: one training after the other, until standard input ends. What the framework prints
    goes to standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(what):
        answers.write(json.dumps(what) + "\n")
        answers.flush()

    for line in iter(sys.stdin.readline, ""):
        run(train, json.loads(line), say)
