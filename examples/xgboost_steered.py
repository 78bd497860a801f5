# SPDX-License-Identifier: Apache-2.0
"""Trains trees on digits with XGBoost, and can be steered while it runs.

python xgboost_steered.py --fifo ctl &
kajitori status
kajitori set lr=0.05
kajitori extend --epochs 100
kajitori pause --level leave
kajitori resume RUN
echo stop > ctl
"""

import argparse
import pathlib

import numpy as np
import xgboost

from kajitori.xgboost import SteeringCallback

parser = argparse.ArgumentParser()
parser.add_argument("--fifo", help="take commands from a FIFO at this path too")
parser.add_argument("--rounds", type=int, default=100, help="iterations")
parser.add_argument("--lr", type=float, default=0.3, help="learning rate")
parser.add_argument("--checkpoints", default="checkpoints", help="folder for checkpoints")
args = parser.parse_args()

rows = np.loadtxt(pathlib.Path(__file__).parent / "data" / "digits.csv", delimiter=",")
data = [xgboost.DMatrix(part[:, :64], part[:, 64]) for part in np.split(rows, [-360])]
params = {
    "objective": "multi:softprob",
    "num_class": 10,
    "max_depth": 2,
    "learning_rate": args.lr,
    "nthread": 1,
}

steering = SteeringCallback(fifo=args.fifo, checkpoint_dir=args.checkpoints, rounds=args.rounds)
history = {}
model = xgboost.train(
    params,
    data[0],
    num_boost_round=100_000,  # the most that `extend` may ask for
    evals=[(data[1], "test")],
    evals_result=history,
    verbose_eval=False,
    xgb_model=steering.resumed_from or None,
    callbacks=[steering],
)

# The code after train runs, whether the training was stopped or came to its end.
how = "stopped" if steering.run.should_stop else "finished"
why = f" ({steering.run.stop_reason})" if steering.run.stop_reason else ""
loss = history["test"]["mlogloss"][-1]
print(f"{how}{why} with {model.num_boosted_rounds()} iterations: test-mlogloss {loss:.3f}")
