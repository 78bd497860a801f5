# SPDX-License-Identifier: Apache-2.0
"""PruningHook in a real cluster of four tasks over loopback: row 4.1 of the measurements, where the
worker trained on alone, and the evaluator waited for ever."""

import contextlib
import json
import os
import pathlib
import socket
import subprocess
import sys

import tensorflow as tf
from training import PATIENCE

FOLDER = pathlib.Path(__file__).resolve().parent
TASKS = ["ps", "chief", "worker", "evaluator"]


def free_addresses(n):
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(n)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]


def start(task, cluster, folder):
    environment = os.environ | {
        "TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": task, "index": 0}}),
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "TF_NUM_INTRAOP_THREADS": "1",
        "TF_NUM_INTEROP_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([*sys.path, str(FOLDER)]),
    }
    with open(folder / f"{task}.log", "w") as log:
        return subprocess.Popen(
            [sys.executable, FOLDER / "cluster_task.py", folder / "model"],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )


def test_a_cluster_that_is_pruned_ends_with_a_checkpoint(tmp_path):
    addresses = free_addresses(3)
    cluster = {task: [at] for task, at in zip(TASKS, addresses, strict=False)}
    tasks = {task: start(task, cluster, tmp_path) for task in TASKS}
    try:
        said = {}
        for task in TASKS[1:]:
            out, _ = tasks[task].communicate(timeout=PATIENCE)
            assert tasks[task].returncode == 0, (tmp_path / f"{task}.log").read_text()[-3000:]
            said[task] = json.loads(out)
        assert tasks["ps"].poll() is None  # has no end of its own, pruned or not
    finally:
        for process in tasks.values():
            process.kill()
            process.communicate()
    [step] = said["chief"]["steps"]  # that of step 0 is no value
    assert step > 0
    assert said["chief"]["told"].startswith(f"pruned at step {step}, with accuracy = ")
    assert {said[task]["told"] for task in ("worker", "evaluator")} == {"pruned by the chief"}
    assert all(task["pruned"] for task in said.values())
    last = tf.train.latest_checkpoint(tmp_path / "model")
    assert tf.train.load_variable(last, "global_step") >= step
