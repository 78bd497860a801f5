# SPDX-License-Identifier: Apache-2.0
"""What the programs of framework_overhead.py share. In one training the steps are handed in turn to an
empty callback and to the adapter, in an order drawn by lot for each pair of steps. The CPU time of the
whole process from such a moment to the next belongs to the one whose turn it is."""

import json
import os
import random
import tempfile
import time

import numpy as np

STEPS = int(os.environ.get("KAJITORI_OVERHEAD_STEPS", "24000"))
WARM_UP = 400
RESAMPLES = 2000
NAMES = ("empty", "steering")


class Turns:
    """Whose turn it is: `next` at the first hook of each step, `name` in all of them."""

    def __init__(self):
        self.name = ""
        self.steps = 0
        self._lots = random.Random(0)
        self._left = []
        self._pair = {}
        self._pairs = []

    def next(self):
        now = time.process_time_ns()
        if self.name:
            self._pair[self.name] = now - self._began
        if not self._left:
            if self.steps > WARM_UP:
                self._pairs.append(self._pair)
            self._pair = {}
            self._left = self._lots.sample(NAMES, len(NAMES))
        self.name = self._left.pop()
        self.steps += 1
        self._began = time.process_time_ns()

    def result(self):
        """One line of JSON: pairs, us of CPU a step, and of the difference median, mean, and its upper
        bound (95 %, one-sided, by bootstrap)."""
        cpu = {name: np.array([pair[name] for pair in self._pairs]) / 1000 for name in NAMES}
        paired = cpu["steering"] - cpu["empty"]
        lots = np.random.default_rng(0)
        means = [lots.choice(paired, len(paired)).mean() for _ in range(RESAMPLES)]
        return json.dumps(
            {
                "pairs": len(paired),
                "step": cpu["empty"].mean(),
                "median": np.median(paired),
                "mean": paired.mean(),
                "bound": np.quantile(means, 0.95),
            }
        )


def both(adapter, hook, turns, answer=None):
    """The class of an adapter whose `hook`, which the framework calls at each step, is in turn its own
    and that of a callback that does nothing."""
    steering = getattr(adapter, hook)

    def empty(*args, **kwargs):
        return answer

    def take_turns(self, *args, **kwargs):
        turns.next()
        if turns.name == "empty":
            self.passed_over += 1
            return empty(self, *args, **kwargs)
        self._next_step += self.passed_over  # it knows each step
        self.passed_over = 0
        return steering(self, *args, **kwargs)

    return type("Both", (adapter,), {hook: take_turns, "passed_over": 0})


def measure(train):
    """`train(turns)` is the training; its figures are the last line of the output."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["KAJITORI_RUNTIME_DIR"] = f"{folder}/runtime"
        os.environ["KAJITORI_STATE_DIR"] = f"{folder}/state"
        os.chdir(folder)
        turns = Turns()
        train(turns)
    print(turns.result())
