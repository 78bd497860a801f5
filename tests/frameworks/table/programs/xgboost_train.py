# SPDX-License-Identifier: Apache-2.0
"""`xgboost.train`: an iteration is a step."""

import re

import numpy as np
import xgboost
from cell_driver import EPOCHS, LR, STEPS, serve

from kajitori.xgboost import SteeringCallback

X = np.random.default_rng(0).normal(size=(80, 4))
DATA = xgboost.DMatrix(X, X.sum(axis=1))
ROUNDS = EPOCHS * STEPS


class Watch(xgboost.callback.TrainingCallback):
    def __init__(self, record):
        self.record = record

    def after_iteration(self, model, epoch, evals_log):
        (rate,) = set(re.findall(r'"learning_rate":"(.*?)"', model.save_config()))
        self.record.step(rate)
        return False

    def after_training(self, model):
        self.record.end()
        return model


def train(record):
    steering = SteeringCallback(
        commands={"count": lambda cb: len(record.did["lrs"])},
        checkpoint_dir=record.folder,
        rounds=ROUNDS,
    )
    callbacks = [Watch(record), steering]
    if record.options.get("schedule"):
        schedule = xgboost.callback.LearningRateScheduler(lambda step: LR * 0.5 ** (step / STEPS))
        callbacks.append(schedule)
    xgboost.train(
        {"max_depth": 2, "learning_rate": LR, "nthread": 1},
        DATA,
        num_boost_round=2 * ROUNDS - steering.initial_iteration,
        evals=[(DATA, "train")],
        verbose_eval=False,
        callbacks=callbacks,
        xgb_model=steering.resumed_from or None,
    )
    record.did["pruned"] = steering.pruned


serve(train)
