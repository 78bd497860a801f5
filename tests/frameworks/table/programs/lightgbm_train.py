# SPDX-License-Identifier: Apache-2.0
"""`lightgbm.train`: an iteration is a step. Its learning rate is what its tree was shrunk by."""

import re

import lightgbm
import numpy as np
from cell_driver import EPOCHS, LR, STEPS, serve

from kajitori.lightgbm import SteeringCallback

X = np.random.default_rng(0).normal(size=(80, 4))
ROUNDS = EPOCHS * STEPS
PARAMS = {
    "objective": "regression",
    "learning_rate": LR,
    "min_data_in_leaf": 2,
    "boost_from_average": False,
    "num_threads": 1,
    "verbose": -1,
}


def train(record):
    record.did["end_hooks"] = None  # callbacks are told of no end

    def watch(env):
        tree = env.model.model_to_string(start_iteration=env.iteration, num_iteration=1)
        record.step(re.findall(r"^shrinkage=(.*)$", tree, flags=re.M)[-1])

    steering = SteeringCallback(
        commands={"count": lambda cb: len(record.did["lrs"])},
        checkpoint_dir=record.folder,
        rounds=ROUNDS,
    )
    callbacks = [watch, steering]
    if record.options.get("schedule"):
        rates = lightgbm.reset_parameter(learning_rate=lambda step: LR * 0.5 ** (step / STEPS))
        callbacks.append(rates)
    data = lightgbm.Dataset(X, X.sum(axis=1), params={"verbose": -1})
    lightgbm.train(
        PARAMS | steering.resumed_params,
        data,
        num_boost_round=2 * ROUNDS - steering.initial_iteration,
        valid_sets=[data],
        valid_names=["train"],
        init_model=steering.resumed_from or None,
        callbacks=callbacks,
    )
    record.did["pruned"] = steering.pruned


serve(train)
