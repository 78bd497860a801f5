# SPDX-License-Identifier: Apache-2.0
"""A training in the least that TensorFlow can train, MonitoredTrainingSession over one weight: for what
needs no Estimator."""

import tensorflow as tf
from estimators import Guard, v1


def gradient_descent(rate=0.125):
    return lambda loss, step: v1.train.GradientDescentOptimizer(rate).minimize(loss, step)


WEIGHT = "weight/Read/ReadVariableOp:0"


class Weight(v1.train.SessionRunHook):
    """The weight behind each run of the session."""

    def __init__(self):
        self.values = []

    def after_run(self, run_context, run_values):
        self.values.append(float(run_context.session.run(WEIGHT)))


def train(*hooks, minimize=None, folder=None, each=None, begin=None):
    """Trains until a hook ends it; the Guard. `each(session, train_op)` is what the loop does, `begin` is
    called with the graph being built."""
    guard = Guard()
    with tf.Graph().as_default():
        step = v1.train.get_or_create_global_step()
        weight = v1.get_variable("weight", initializer=8.0, use_resource=True)
        train_op = (minimize or gradient_descent())(tf.square(weight), step)
        for function in begin or ():
            function()
        with v1.train.MonitoredTrainingSession(
            checkpoint_dir=None if folder is None else str(folder),
            hooks=[guard, *hooks],
            save_summaries_steps=None,
            save_summaries_secs=None,
            log_step_count_steps=None,
        ) as session:
            while not session.should_stop():
                each(session, train_op) if each else session.run(train_op)
    return guard
