# SPDX-License-Identifier: Apache-2.0
"""`xgboost.train`."""

import numpy as np
import xgboost
from turns import STEPS, both, measure

from kajitori.xgboost import SteeringCallback

X = np.random.default_rng(0).normal(size=(2000, 8))


def train(turns):
    # a callback of before_iteration that ends nothing says False
    callback = both(SteeringCallback, "before_iteration", turns, answer=False)()
    params = {"max_depth": 3, "learning_rate": 0.01, "nthread": 1}
    data = xgboost.DMatrix(X, X.sum(axis=1))
    xgboost.train(params, data, num_boost_round=STEPS // 2, callbacks=[callback])


measure(train)
