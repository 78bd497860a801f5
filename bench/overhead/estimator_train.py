# SPDX-License-Identifier: Apache-2.0
"""`tf.estimator.Estimator.train` of TensorFlow 2.15."""

import numpy as np
import tensorflow as tf
from turns import STEPS, both, measure

from kajitori.tensorflow import SteeringHook

v1 = tf.compat.v1
v1.logging.set_verbosity(v1.logging.ERROR)
X = np.random.default_rng(0).normal(size=(64, 64)).astype("float32")


def train_input():
    return tf.data.Dataset.from_tensors((X, X[:, :1])).repeat()


def model_fn(features, labels, mode):
    loss = tf.reduce_mean(tf.square(features @ v1.get_variable("weights", [64, 1]) - labels))
    step = v1.train.get_or_create_global_step()
    train_op = v1.train.GradientDescentOptimizer(0.001).minimize(loss, global_step=step)
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


def train(turns):
    config = tf.estimator.RunConfig(
        model_dir="model", log_step_count_steps=None, save_summary_steps=None
    )
    hook = both(SteeringHook, "after_run", turns)()
    tf.estimator.Estimator(model_fn, config=config).train(train_input, [hook], max_steps=STEPS)


measure(train)
