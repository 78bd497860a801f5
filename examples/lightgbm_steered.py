# SPDX-License-Identifier: Apache-2.0
"""Trains trees on digits with LightGBM, and can be steered while it runs.

python lightgbm_steered.py --fifo ctl &
kajitori status
kajitori set lr=0.05
kajitori extend --epochs 100
kajitori pause --level leave
kajitori resume RUN
echo stop > ctl
"""

import argparse
import pathlib

import lightgbm
import numpy as np

from kajitori.lightgbm import SteeringCallback

parser = argparse.ArgumentParser()
parser.add_argument("--fifo", help="take commands from a FIFO at this path too")
parser.add_argument("--rounds", type=int, default=100, help="iterations")
parser.add_argument("--lr", type=float, default=0.1, help="learning rate")
parser.add_argument("--checkpoints", default="checkpoints", help="folder for checkpoints")
args = parser.parse_args()

rows = np.loadtxt(pathlib.Path(__file__).parent / "data" / "digits.csv", delimiter=",")
train, test = np.split(rows, [-360])
data = lightgbm.Dataset(train[:, :64], train[:, 64], free_raw_data=False)
params = {
    "objective": "multiclass",
    "num_class": 10,
    "num_leaves": 4,
    "learning_rate": args.lr,
    "num_threads": 1,
    "verbosity": -1,
}

steering = SteeringCallback(fifo=args.fifo, checkpoint_dir=args.checkpoints, rounds=args.rounds)
model = lightgbm.train(
    params | steering.resumed_params,
    data,
    num_boost_round=100_000,  # the most that `extend` may ask for
    valid_sets=[lightgbm.Dataset(test[:, :64], test[:, 64], reference=data)],
    init_model=steering.resumed_from or None,
    callbacks=[steering],
)

# The code after train runs, whether the training was stopped or came to its end.
how = "stopped" if steering.run.should_stop else "finished"
why = f" ({steering.run.stop_reason})" if steering.run.stop_reason else ""
loss = model.best_score["valid_0"]["multi_logloss"]
print(f"{how}{why} with {model.current_iteration()} iterations: multi_logloss {loss:.3f}")
