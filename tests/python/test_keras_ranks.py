# SPDX-License-Identifier: Apache-2.0
"""SteeringCallback in one of several ranks: it says so once, and nothing is done by one rank alone."""

import warnings

import keras
import pytest
from fits import STEPS, fit, make_model
from test_keras_fits import Send

import kajitori
from kajitori import _steering
from kajitori.keras import SteeringCallback

pytestmark = pytest.mark.usefixtures("fresh_keras")


@pytest.fixture(autouse=True)
def nothing_said():
    _steering._warn_of_ranks.cache_clear()


def launch(monkeypatch, rank, world_size):
    monkeypatch.setenv("RANK", str(rank))
    monkeypatch.setenv("WORLD_SIZE", str(world_size))


class Try(keras.callbacks.Callback):
    """Sends commands before the third batch; which of them were refused, and why."""

    def __init__(self, *lines):
        super().__init__()
        self.lines, self.refused = lines, {}

    def on_train_batch_begin(self, batch, logs=None):
        if batch != 2:
            return
        with kajitori.connect() as client:
            for line in self.lines:
                try:
                    client.send(line, wait="accepted")
                except kajitori.RejectedError as error:
                    self.refused[line] = str(error)


def test_rank_0_says_once_that_only_it_is_steered(monkeypatch):
    launch(monkeypatch, 0, 4)
    seen = []
    cb = SteeringCallback(commands={"own": lambda cb: seen.append(cb.run.rank)})
    all_do = ("stop", "set lr=0.5", "pause", "abort", "prune", "evaluate", "checkpoint")
    sender = Try(*all_do, "note hello", "own", "status", "get lr")
    with pytest.warns(kajitori.ChannelWarning, match="rank 0 of 4, and only it is steered"):
        _, guard = fit(make_model(), cb, sender, epochs=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error", kajitori.ChannelWarning)
        fit(make_model(), SteeringCallback(), epochs=1)
    assert tuple(sender.refused) == all_do
    assert all("this is rank 0 of 4" in why for why in sender.refused.values())
    assert guard.batches == STEPS
    assert seen == [0]


def test_another_rank_is_quiet(monkeypatch, tmp_path):
    launch(monkeypatch, 3, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("error", kajitori.ChannelWarning)
        cb = SteeringCallback(fifo=tmp_path / "ctl")
        _, guard = fit(make_model(), cb, epochs=1)
    assert guard.batches == STEPS
    assert (cb.run.rank, cb.run.world_size, cb.run.rank_alone, cb.run.dir) == (3, 4, False, "")
    assert not (tmp_path / "ctl").exists()
    assert not (tmp_path / "runtime").exists()


def test_a_rank_that_may_act_alone_stops(monkeypatch):
    launch(monkeypatch, 1, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error", kajitori.ChannelWarning)
        with kajitori.Run(rank_alone=True) as run:
            _, guard = fit(make_model(), SteeringCallback(run=run), Send("stop", step=3), epochs=1)
            assert (run.rank, run.rank_alone, run.should_stop) == (1, True, True)
    assert guard.batches == 4
