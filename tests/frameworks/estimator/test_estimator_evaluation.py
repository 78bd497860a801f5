# SPDX-License-Identifier: Apache-2.0
"""SteeringHook in train_and_evaluate, and as one of several tasks."""

import json
import types
import warnings

import pytest
from estimators import Guard, Send, make_estimator, train_and_evaluate, v1
from sessions import train

import kajitori
from kajitori import _steering
from kajitori.tensorflow import SteeringHook


class Batches(v1.train.SessionRunHook):
    """Sends in the second batch of the first evaluation; how many batches each evaluation had."""

    def __init__(self, *lines):
        self.send, self.counts = Send(*lines, runs=2), []

    def begin(self):
        self.counts.append(0)

    def after_run(self, run_context, run_values):
        self.counts[-1] += 1
        self.send.after_run(run_context, run_values)


@pytest.mark.parametrize(
    ("line", "batches"), [("stop", [4]), ("stop validate=no", [2]), ("stop validate=yes", [4])]
)
def test_a_stop_during_an_evaluation(tmp_path, line, batches):
    estimator = make_estimator(tmp_path / "model", every=20)
    steering, counts, guard = SteeringHook(), Batches("status", line), Guard()
    train_and_evaluate(
        estimator,
        guard,
        steering,
        max_steps=1000,
        eval_hooks=[counts, steering.evaluation_hook()],
    )
    assert counts.send.replies[0]["result"]["phase"] == "evaluation"
    assert (counts.counts, guard.steps) == (batches, [20])


def test_the_last_evaluation_after_a_stop_can_be_skipped(tmp_path):
    estimator = make_estimator(tmp_path / "model", every=20)
    steering, counts = SteeringHook(skip_validation=True), Batches()
    train_and_evaluate(
        estimator,
        Send("stop at=step:30"),
        steering,
        max_steps=1000,
        eval_hooks=[counts, steering.evaluation_hook()],
    )
    assert counts.counts == [4, 1]


def test_the_hook_of_the_training_is_none_for_its_evaluation(tmp_path):
    estimator = make_estimator(tmp_path / "model", every=20)
    steering = SteeringHook()
    with pytest.raises(kajitori.ArgumentError, match="evaluation_hook"):
        train_and_evaluate(estimator, steering, max_steps=1000, eval_hooks=[steering])


def test_metrics_of_evaluations_are_reported_at_their_own_steps(tmp_path):
    estimator = make_estimator(tmp_path / "model", every=20)
    train_and_evaluate(estimator, max_steps=20)  # is no evaluation of the training that follows
    with kajitori.Run(name="mine", events_dir=tmp_path / "events") as run:
        train_and_evaluate(estimator, SteeringHook(run=run, estimator=estimator), max_steps=50)
    found = kajitori.read_events(tmp_path / "events")
    steps = {tag: list(columns.step) for (_, tag), columns in found.items() if "eval" in tag}
    assert steps == {"eval/accuracy": [40, 50], "eval/loss": [40, 50]}


CLUSTER = {"chief": ["127.0.0.1:1"], "worker": ["127.0.0.1:2"], "ps": ["127.0.0.1:3"]}
ALL_DO = ("stop", "set lr=0.5", "pause", "abort", "prune", "checkpoint")


def config(rank):
    return types.SimpleNamespace(
        model_dir="/nowhere",
        config=types.SimpleNamespace(
            cluster_spec=CLUSTER, global_id_in_cluster=rank, num_worker_replicas=2
        ),
    )


@pytest.mark.parametrize("says", ["environment", "estimator"])
def test_the_chief_of_a_cluster_refuses_what_all_would_have_to_do(monkeypatch, tmp_path, says):
    _steering._warn_of_ranks.cache_clear()
    if says == "environment":
        task = {"cluster": CLUSTER, "task": {"type": "chief", "index": 0}}
        monkeypatch.setenv("TF_CONFIG", json.dumps(task))
        steering = SteeringHook(max_steps=6, checkpoint_dir=tmp_path)
    else:
        steering = SteeringHook(max_steps=6, checkpoint_dir=tmp_path, estimator=config(0))
    sender = Send(*ALL_DO, "status")
    with pytest.warns(kajitori.ChannelWarning, match="rank 0 of [23], and only it is"):
        assert train(sender, steering).steps == [6]
    assert tuple(sender.refused) == ALL_DO
    assert all("this is rank 0 of " in why for why in sender.refused.values())
    assert sender.replies[-1]["result"]["step"] == 2


def test_a_worker_is_quiet(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error", kajitori.ChannelWarning)
        steering = SteeringHook(max_steps=6, estimator=config(1), fifo=tmp_path / "ctl")
        assert train(steering).steps == [6]
    assert (steering.run.rank, steering.run.world_size, steering.run.dir) == (1, 2, "")
    assert not (tmp_path / "ctl").exists()
