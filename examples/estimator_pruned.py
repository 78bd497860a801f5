# SPDX-License-Identifier: Apache-2.0
"""A study of Optuna over a tf.estimator.Estimator on scikit-learn's digits: each trial is pruned by
the summaries of its evaluations, and steered while it trains (TensorFlow 2.15, the last one with
Estimators).

    python estimator_pruned.py --trials 10 --steps 300 --folder trials
"""

import argparse
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
os.environ.setdefault("TF_NUM_INTEROP_THREADS", "1")

import optuna
import tensorflow as tf
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from kajitori.tensorflow import PruningHook, SteeringHook

parser = argparse.ArgumentParser()
parser.add_argument("--trials", type=int, default=10)
parser.add_argument("--steps", type=int, default=300, help="of each trial")
parser.add_argument("--folder", default="trials", help="folder of the models, one for each trial")
args = parser.parse_args()

tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.ERROR)
x, y = load_digits(return_X_y=True)
x_train, x_test, y_train, y_test = train_test_split(
    (x / 16).astype("float32"), y, test_size=0.2, random_state=0
)


def train_input():
    data = tf.data.Dataset.from_tensor_slices((x_train, y_train))
    return data.shuffle(len(x_train), seed=0).repeat().batch(32)


def test_input():
    return tf.data.Dataset.from_tensor_slices((x_test, y_test)).batch(360)


def model_fn(features, labels, mode, params):
    hidden = tf.compat.v1.layers.dense(features, params["units"], tf.nn.relu)
    logits = tf.compat.v1.layers.dense(hidden, 10)
    loss = tf.compat.v1.losses.sparse_softmax_cross_entropy(labels, logits)
    if mode == tf.estimator.ModeKeys.EVAL:
        accuracy = tf.compat.v1.metrics.accuracy(labels, tf.argmax(logits, 1))
        return tf.estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops={"accuracy": accuracy})
    optimizer = tf.compat.v1.train.GradientDescentOptimizer(params["lr"])
    step = tf.compat.v1.train.get_global_step()
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=optimizer.minimize(loss, step))


def objective(trial):
    params = {
        "lr": trial.suggest_float("lr", 1e-3, 1.0, log=True),
        "units": trial.suggest_int("units", 16, 64),
    }
    config = tf.estimator.RunConfig(
        model_dir=os.path.join(args.folder, str(trial.number)),
        tf_random_seed=0,
        save_checkpoints_steps=50,
        log_step_count_steps=None,
    )
    estimator = tf.estimator.Estimator(model_fn, params=params, config=config)
    steering = SteeringHook(name=f"trial-{trial.number}", estimator=estimator)
    with PruningHook(trial, estimator, "accuracy") as pruning:
        metrics, _ = tf.estimator.train_and_evaluate(
            estimator,
            tf.estimator.TrainSpec(train_input, max_steps=args.steps, hooks=[pruning, steering]),
            tf.estimator.EvalSpec(test_input, steps=None, start_delay_secs=0, throttle_secs=0),
        )
    return metrics["accuracy"]


study = optuna.create_study(
    direction="maximize",
    sampler=optuna.samplers.RandomSampler(seed=0),
    pruner=optuna.pruners.MedianPruner(n_startup_trials=2, n_warmup_steps=50),
)
study.optimize(objective, n_trials=args.trials)
states = [trial.state.name for trial in study.trials]
print(f"{states.count('COMPLETE')} complete, {states.count('PRUNED')} pruned")
print(f"best accuracy {study.best_value:.4f} with {study.best_params}")
