# SPDX-License-Identifier: Apache-2.0
"""One task of a cluster ($TF_CONFIG says which): trains or evaluates until it is pruned at its first
evaluation, and prints what came of it. Arguments: the model's folder."""

import json
import sys

from estimators import FOR_EVER, make_estimator, train_and_evaluate

import kajitori
from kajitori.tensorflow import PruningHook


class Trial:
    """Is bad from its first value on."""

    def __init__(self):
        self.steps = []

    def report(self, value, step):
        self.steps.append(step)

    def should_prune(self):
        return True


def main(folder):
    estimator = make_estimator(
        folder, every=200, session_config=None, experimental_max_worker_delay_secs=0
    )
    trial = Trial() if estimator.config.is_chief else None
    hook = PruningHook(trial, estimator, "accuracy")
    told = "nothing"
    try:
        train_and_evaluate(
            estimator,
            hook,
            max_steps=FOR_EVER,
            eval_hooks=[hook.evaluation_hook()],
            throttle_secs=1,
        )
    except kajitori.TrialPruned as pruned:
        told = str(pruned)
    print(json.dumps({"told": told, "pruned": hook.pruned, "steps": trial and trial.steps}))


main(sys.argv[1])
