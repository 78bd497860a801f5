# SPDX-License-Identifier: Apache-2.0
"""`tf.estimator.train_and_evaluate`: an evaluation at each checkpoint, which is made every STEPS
steps."""

import numpy as np
import tensorflow as tf
from cell_driver import EPOCHS, LR, STEPS, TESTS, serve

from kajitori.tensorflow import SteeringHook

v1 = tf.compat.v1
v1.logging.set_verbosity(v1.logging.ERROR)
X = np.random.default_rng(0).normal(size=(STEPS * 8, 4)).astype("float32")
Y = X.sum(axis=1, keepdims=True)


def train_input():
    return tf.data.Dataset.from_tensor_slices((X, Y)).repeat().batch(8)


def eval_input():
    return tf.data.Dataset.from_tensor_slices((X, Y)).batch(8).take(TESTS)


def model_fn(features, labels, mode, params):
    loss = tf.reduce_mean(tf.square(features @ v1.get_variable("weights", [4, 1]) - labels))
    if mode == tf.estimator.ModeKeys.EVAL:
        return tf.estimator.EstimatorSpec(mode, loss=loss)
    step = v1.train.get_or_create_global_step()
    lr = tf.constant(LR)
    if params["schedule"]:
        lr = v1.train.exponential_decay(LR, step, STEPS, 0.5)
    lr = v1.identity(lr, "used_lr")
    train_op = v1.train.AdamOptimizer(lr).minimize(loss, global_step=step)
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


class Watch(v1.train.SessionRunHook):
    def __init__(self, record):
        self.record = record

    def before_run(self, run_context):
        adam = next(
            op
            for op in run_context.session.graph.get_operations()
            if op.type == "ResourceApplyAdam"
        )
        return v1.train.SessionRunArgs(adam.inputs[5])

    def after_run(self, run_context, run_values):
        self.record.step(run_values.results)

    def end(self, session):
        self.record.end()


class WatchEvaluation(v1.train.SessionRunHook):
    def __init__(self, record):
        self.record = record

    def after_run(self, run_context, run_values):
        self.record.test()


def train(record):
    config = tf.estimator.RunConfig(
        model_dir=f"{record.folder}/model",
        save_checkpoints_steps=STEPS,
        log_step_count_steps=None,
        session_config=v1.ConfigProto(
            intra_op_parallelism_threads=1, inter_op_parallelism_threads=1
        ),
    )
    params = {"schedule": record.options.get("schedule")}
    estimator = tf.estimator.Estimator(model_fn, params=params, config=config)
    steering = SteeringHook(
        commands={"count": lambda hook: len(record.did["lrs"])},
        estimator=estimator,
        evaluation_input_fn=eval_input,
        max_steps=EPOCHS * STEPS,
        steps_per_epoch=STEPS,
    )
    tf.estimator.train_and_evaluate(
        estimator,
        tf.estimator.TrainSpec(train_input, hooks=[Watch(record), steering]),
        tf.estimator.EvalSpec(
            eval_input,
            steps=None,
            throttle_secs=0,
            start_delay_secs=0,
            hooks=[WatchEvaluation(record), steering.evaluation_hook()],
        ),
    )
    record.did["pruned"] = steering.pruned


serve(train)
