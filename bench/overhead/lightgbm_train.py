# SPDX-License-Identifier: Apache-2.0
"""`lightgbm.train`."""

import lightgbm
import numpy as np
from turns import STEPS, both, measure

from kajitori.lightgbm import SteeringCallback

X = np.random.default_rng(0).normal(size=(2000, 8))


def train(turns):
    callback = both(SteeringCallback, "__call__", turns)()
    params = {"learning_rate": 0.01, "num_threads": 1, "verbose": -1}
    data = lightgbm.Dataset(X, X.sum(axis=1), params={"verbose": -1})
    lightgbm.train(params, data, num_boost_round=STEPS // 2, callbacks=[callback])


measure(train)
