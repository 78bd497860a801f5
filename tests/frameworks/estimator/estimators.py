# SPDX-License-Identifier: Apache-2.0
"""What the tests of SteeringHook and PruningHook share: an Estimator on digits, and hooks that act
inside of its training."""

import functools
import time

import tensorflow as tf
from sklearn.datasets import load_digits
from training import PATIENCE

import kajitori

v1 = tf.compat.v1

FOR_EVER = 1_000_000

v1.logging.set_verbosity(v1.logging.ERROR)


@functools.cache
def digits():
    x, y = load_digits(return_X_y=True)
    return (x / 16).astype("float32"), y.astype("int64")


def train_input(size=256):
    x, y = digits()
    return tf.data.Dataset.from_tensor_slices((x[:size], y[:size])).repeat().batch(32)


def eval_input(batches=4):
    x, y = digits()
    return tf.data.Dataset.from_tensor_slices((x[-32 * batches :], y[-32 * batches :])).batch(32)


def model_fn(features, labels, mode, params):
    """Softmax regression; `params["optimizer"]` makes the optimizer."""
    weights = v1.get_variable("weights", [64, 10])
    logits = features @ weights
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
    if mode == tf.estimator.ModeKeys.EVAL:
        accuracy = v1.metrics.accuracy(labels, tf.argmax(logits, 1))
        return tf.estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops={"accuracy": accuracy})
    step = v1.train.get_or_create_global_step()
    optimizer = params["optimizer"]()
    train_op = optimizer.minimize(loss, global_step=step)
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


def make_estimator(folder, optimizer=None, every=50, **config):
    """One that saves, and so evaluates, every so many steps."""
    config.setdefault(
        "session_config",
        v1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1),
    )
    config = tf.estimator.RunConfig(
        model_dir=str(folder),
        tf_random_seed=1,
        save_checkpoints_steps=every,
        save_summary_steps=FOR_EVER,
        log_step_count_steps=None,
        **config,
    )
    optimizer = optimizer or (lambda: v1.train.GradientDescentOptimizer(0.5))
    return tf.estimator.Estimator(model_fn, params={"optimizer": optimizer}, config=config)


def train_and_evaluate(estimator, *hooks, max_steps, eval_hooks=(), name=None, throttle_secs=0):
    return tf.estimator.train_and_evaluate(
        estimator,
        tf.estimator.TrainSpec(train_input, max_steps=max_steps, hooks=hooks),
        tf.estimator.EvalSpec(
            eval_input,
            steps=None,
            throttle_secs=throttle_secs,
            start_delay_secs=0,
            hooks=eval_hooks,
            name=name,
        ),
    )


class Guard(v1.train.SessionRunHook):
    """Counts what the session did, and ends a training that nothing ends."""

    def __init__(self):
        self.runs = self.ends = 0
        self.steps = []
        self.deadline = time.monotonic() + PATIENCE

    def before_run(self, run_context):
        return v1.train.SessionRunArgs(v1.train.get_global_step())

    def after_run(self, run_context, run_values):
        self.runs += 1
        assert time.monotonic() < self.deadline, "no command came through"

    def end(self, session):
        self.ends += 1
        self.steps.append(int(session.run(v1.train.get_global_step())))


class Send(v1.train.SessionRunHook):
    """Sends commands when so many runs of the session are behind it. `replies`: their records, "accepted"
    ones; `refused`: what was refused, and why."""

    def __init__(self, *lines, runs=3, wait="accepted"):
        self.lines, self.runs, self.wait = lines, runs, wait
        self.replies, self.refused = [], {}

    def after_run(self, run_context, run_values):
        self.runs -= 1
        if self.runs == 0:
            self.send()

    def send(self):
        with kajitori.connect() as client:
            for line in self.lines:
                try:
                    self.replies.append(client.send(line, wait=self.wait))
                except kajitori.RejectedError as error:
                    self.refused[line] = str(error)


def global_step(estimator):
    return int(estimator.get_variable_value("global_step"))
