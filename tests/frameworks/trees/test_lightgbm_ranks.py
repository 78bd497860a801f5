# SPDX-License-Identifier: Apache-2.0
"""Two processes that train one model: rank 0 says that only it is steered, and stops nobody alone."""

import json
import os
import socket
import subprocess
import sys

import pytest
from training import PATIENCE

from kajitori.lightgbm import _ranks

WORKER = """
import json, sys, warnings
import boosts, kajitori, lightgbm
from boosts import X, Y
from kajitori.lightgbm import SteeringCallback
from test_lightgbm import PARAMS, Witness

seen = {"refused": {}}
def ask():
    if cb.run.rank == 0:
        seen["refused"] = boosts.refused("stop", "set lr=0.5", "pause", "checkpoint")

machines, port, rank = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
network = {"machines": machines, "num_machines": 2, "local_listen_port": port, "tree_learner": "data"}
half = slice(rank, None, 2)
cb = SteeringCallback(checkpoint_dir="c")
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    model = lightgbm.train(
        PARAMS | network | {"pre_partition": True},
        lightgbm.Dataset(X[half], Y[half]),
        6,
        callbacks=[cb, Witness(ask, at=1, order=100)],
    )
seen["warnings"] = [str(w.message) for w in caught if w.category is kajitori.ChannelWarning]
seen["rounds"] = model.num_trees()
seen["rank"], seen["world_size"], seen["dir"] = cb.run.rank, cb.run.world_size, cb.run.dir
print(json.dumps(seen))
"""


def free_ports(n):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(n)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


@pytest.fixture
def workers():
    """Two processes on the loopback; what they said, by rank."""
    ports = free_ports(2)
    machines = ",".join(f"127.0.0.1:{port}" for port in ports)
    paths = os.pathsep.join(path for path in sys.path if path)
    started = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, machines, str(port), str(rank)],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": paths},
        )
        for rank, port in enumerate(ports)
    ]
    printed = [process.communicate(timeout=PATIENCE)[0] for process in started]
    return [json.loads(text.splitlines()[-1]) for text in printed]


def test_rank_0_refuses_alone_and_the_other_is_quiet(workers):
    first, second = workers
    assert [first["world_size"], second["world_size"]] == [2, 2]
    assert (first["rank"], second["rank"]) == (0, 1)
    assert (first["rounds"], second["rounds"]) == (6, 6)
    assert set(first["refused"]) == {"stop", "set lr=0.5", "pause", "checkpoint"}
    assert all("this is rank 0 of 2" in why for why in first["refused"].values())
    assert len(first["warnings"]) == 1
    assert (second["warnings"], second["dir"]) == ([], "")


@pytest.mark.parametrize(
    ("config", "found"),
    [
        ({}, (0, 1)),
        ({"num_machines": "1", "machines": ""}, (0, 1)),
        ({"num_machines": "2", "machines": "192.0.2.1:7,127.0.0.1:7"}, (1, 2)),
        ({"num_machines": "2", "machines": "127.0.0.1:7,127.0.0.1:8"}, (0, 2)),
        ({"num_machines": "3", "machines": "", "machine_list_filename": "list.txt"}, (0, 3)),
    ],
)
def test_a_machine_finds_itself_in_the_list(config, found):
    assert _ranks(config | {"local_listen_port": "7"}) == found
