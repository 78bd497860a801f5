# SPDX-License-Identifier: Apache-2.0
"""MonitoredTrainingSession of TensorFlow 2.15 with PruningHook, where nothing is evaluated."""

import numpy as np
import tensorflow as tf
from turns import STEPS, measure

from kajitori.tensorflow import PruningHook

v1 = tf.compat.v1


class Trial:
    """Takes what it is given."""

    def report(self, value, step):
        pass

    def should_prune(self):
        return False


class Empty(v1.train.SessionRunHook):
    def before_run(self, run_context):
        return None

    def after_run(self, run_context, run_values):
        pass


class Dispatcher(v1.train.SessionRunHook):
    """Hands everything on to the hook, and each step to one of both."""

    def __init__(self, turns, hook):
        self.turns, self.hook = turns, hook
        self.hooks = {"empty": Empty(), "steering": hook}

    def begin(self):
        self.hook.begin()

    def after_create_session(self, session, coord):
        self.hook.after_create_session(session, coord)

    def before_run(self, run_context):
        self.turns.next()
        return self.hooks[self.turns.name].before_run(run_context)

    def after_run(self, run_context, run_values):
        self.hooks[self.turns.name].after_run(run_context, run_values)

    def end(self, session):
        self.hook.end(session)


def train(turns):
    lots = np.random.default_rng(0)
    x = lots.normal(size=(512, 64)).astype("float32")
    with tf.Graph().as_default():
        step = v1.train.get_or_create_global_step()
        hidden = tf.nn.relu(tf.constant(x) @ v1.get_variable("first", [64, 64]))
        loss = tf.reduce_mean(tf.square(hidden @ v1.get_variable("second", [64, 10])))
        train_op = v1.train.AdamOptimizer(1e-3).minimize(loss, step)
        hooks = [
            Dispatcher(turns, PruningHook(Trial(), "eval", "accuracy")),
            v1.train.StopAtStepHook(STEPS),
        ]
        with v1.train.MonitoredTrainingSession(hooks=hooks, log_step_count_steps=None) as session:
            while not session.should_stop():
                session.run(train_op)


measure(train)
