# SPDX-License-Identifier: Apache-2.0
"""What the tests of XGBoost and LightGBM share: data, what a journal says, trials."""

import os
import pathlib

import numpy as np
import optuna
import pytest
from sklearn.datasets import load_digits

import kajitori

optuna.logging.set_verbosity(optuna.logging.WARNING)

DIGITS, TARGET = load_digits(return_X_y=True)
X, Y = DIGITS[:400], TARGET[:400] % 2  # even or odd
X_TEST, Y_TEST = DIGITS[400:600], TARGET[400:600] % 2


def send(*lines, run=None):
    """Has commands accepted, to be carried out at the next safe point."""
    with kajitori.connect(run) as client:
        for line in lines:
            client.send(line, wait="accepted")


def refused(*lines):
    """Why each of these commands is refused."""
    reasons = {}
    with kajitori.connect() as client:
        for line in lines:
            with pytest.raises(kajitori.RejectedError) as caught:
                client.send(line, wait="accepted")
            reasons[line] = str(caught.value)
    return reasons


def settled(verb):
    """How commands of this verb ended: state, step, old, new, error."""
    return [
        tuple(line.get(key) for key in ("state", "step", "old", "new", "error"))
        for line in kajitori.journal()
        if line.get("verb") == verb and line["state"] in ("done", "applied", "failed")
    ]


def results(verb, run=None):
    return [
        line.get("result")
        for line in kajitori.journal(run)
        if line.get("verb") == verb and line["state"] == "done"
    ]


def doors():
    """Folders of runs that are open."""
    folder = pathlib.Path(os.environ["KAJITORI_RUNTIME_DIR"])
    return [path.name for path in folder.iterdir()] if folder.exists() else []


class StubTrial:
    """Prunes at a step; what was reported and how often it was asked."""

    def __init__(self, prune_at=None):
        self.prune_at, self.reported, self.asked = prune_at, [], 0

    def report(self, value, step):
        self.reported.append((step, value))

    def should_prune(self):
        self.asked += 1
        return self.reported[-1][0] == self.prune_at


def same(a, b):
    return bool(np.array_equal(a, b))


def curves(folder):
    """What event files hold: {metric: [(step, value), …]}."""
    return {
        tag: list(zip(columns.step.tolist(), columns.value.tolist(), strict=True))
        for (_, tag), columns in kajitori.read_events(folder).items()
    }
