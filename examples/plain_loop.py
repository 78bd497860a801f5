# SPDX-License-Identifier: Apache-2.0
"""A training loop without a framework: softmax regression by NumPy on scikit-learn's digits.

python plain_loop.py --epochs 1000 &
kajitori set lr=0.5
kajitori send 'shuffle seed=7'
kajitori stop --at epoch
"""

import argparse

import numpy as np
from sklearn.datasets import load_digits

import kajitori

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=20)
parser.add_argument("--lr", type=float, default=0.1, help="learning rate")
parser.add_argument("--batch", type=int, default=32)
args = parser.parse_args()

digits = load_digits()
x, y = digits.data / 16, np.eye(10)[digits.target]
rng = np.random.default_rng(0)
weights = np.zeros((64, 10))
settings = {"lr": args.lr}


def probabilities(inputs):
    scores = inputs @ weights
    scores = np.exp(scores - scores.max(axis=1, keepdims=True))
    return scores / scores.sum(axis=1, keepdims=True)


steps = len(x) // args.batch
with kajitori.Run(total_epochs=args.epochs, total_steps=args.epochs * steps) as run:
    run.add_param(
        "lr",
        float,
        get=lambda: settings["lr"],
        set=lambda value: settings.update(lr=value),
        min=0,
        max=10,
        help="learning rate",
    )

    @run.verb(args={"seed": int})
    def shuffle(seed):
        """Begins the order of the samples anew."""
        global rng
        rng = np.random.default_rng(seed)

    step = 0
    for epoch in range(args.epochs):
        run.begin_epoch(epoch)
        for batch in np.array_split(rng.permutation(len(x)), steps):
            if run.begin_step(step):
                break
            gradient = x[batch].T @ (probabilities(x[batch]) - y[batch]) / len(batch)
            weights -= settings["lr"] * gradient
            step += 1
        loss = -np.mean(np.log((probabilities(x) * y).sum(axis=1)))
        run.report("loss", step, loss)
        if run.end_epoch(epoch):
            break

how = "stopped" if run.should_stop else "finished"
print(f"{how} after {step} steps: loss {loss:.4f}")
