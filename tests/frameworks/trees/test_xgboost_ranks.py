# SPDX-License-Identifier: Apache-2.0
"""Two processes that train one model: rank 0 says that only it is steered, and stops nobody alone."""

import json
import os
import subprocess
import sys

import pytest
from training import PATIENCE
from xgboost.tracker import RabitTracker

WORKER = """
import json, sys, warnings
import boosts, kajitori, xgboost
from boosts import X, Y
from xgboost import collective
from kajitori.xgboost import SteeringCallback
from test_xgboost import PARAMS, Witness

seen = {"refused": {}}
def ask():
    if collective.get_rank() == 0:
        seen["refused"] = boosts.refused("stop", "set lr=0.5", "pause", "checkpoint")

with collective.CommunicatorContext(**json.loads(sys.argv[1])):
    half = slice(collective.get_rank(), None, 2)
    cb = SteeringCallback(checkpoint_dir="c")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = xgboost.train(
            PARAMS, xgboost.DMatrix(X[half], Y[half], nthread=1), 6, callbacks=[Witness(ask), cb]
        )
    seen["warnings"] = [str(w.message) for w in caught if w.category is kajitori.ChannelWarning]
    seen["rounds"] = model.num_boosted_rounds()
    seen["rank"], seen["world_size"], seen["dir"] = cb.run.rank, cb.run.world_size, cb.run.dir
    print(json.dumps(seen))
"""


@pytest.fixture
def workers():
    """Two processes that a tracker on the loopback brings together; what they said, by rank."""
    tracker = RabitTracker(n_workers=2, host_ip="127.0.0.1", timeout=PATIENCE)
    tracker.start()
    arguments = json.dumps(tracker.worker_args())
    paths = os.pathsep.join(path for path in sys.path if path)
    started = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, arguments],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": paths},
        )
        for _ in range(2)
    ]
    printed = [process.communicate(timeout=PATIENCE)[0] for process in started]
    said = [json.loads(text.splitlines()[-1]) for text in printed]  # behind XGBoost's own lines
    tracker.wait_for()
    return sorted(said, key=lambda one: one["rank"])


def test_rank_0_refuses_alone_and_the_other_is_quiet(workers):
    first, second = workers
    assert [first["world_size"], second["world_size"]] == [2, 2]
    assert (first["rank"], second["rank"]) == (0, 1)
    assert (first["rounds"], second["rounds"]) == (6, 6)
    assert set(first["refused"]) == {"stop", "set lr=0.5", "pause", "checkpoint"}
    assert all("this is rank 0 of 2" in why for why in first["refused"].values())
    assert len(first["warnings"]) == 1
    assert (second["warnings"], second["dir"]) == ([], "")
