# SPDX-License-Identifier: Apache-2.0
"""A program of two ranks that Lightning's own launcher starts, for test_lightning_ranks.py: each rank
writes what it saw to FOLDER/rank-N.json."""

import json
import pathlib
import sys
import warnings

from lightning_fits import Model, Send, Witness, loader, trainer_of

import kajitori
from kajitori.lightning import PruningCallback, SteeringCallback

ALL_DO = ("stop", "set lr=0.5", "pause", "checkpoint", "evaluate", "extend epochs=1", "abort")


class Trial:
    def report(self, value, step):
        self.step = step

    def should_prune(self):
        return self.step >= 1


class Ask(Send):
    """Only where there is a door."""

    def _count(self, trainer, *args, **kwargs):
        if trainer.global_rank == 0:
            super()._count(trainer, *args, **kwargs)


def train(folder):
    seen = []
    cb = SteeringCallback(commands={"own": lambda cb: seen.append(cb.run.rank)})
    ask, witness = Ask(*ALL_DO, "own", "note hello", step=2), Witness()
    trainer = trainer_of(
        cb, ask, witness, PruningCallback(Trial(), "val_loss"), devices=2, strategy="ddp"
    )
    pruned = ""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            trainer.fit(Model(), loader(), loader(4))
        except kajitori.TrialPruned as error:
            pruned = str(error)
    told = {
        "rank": [cb.run.rank, cb.run.world_size, cb.run.rank_alone],
        "has_door": cb.run.dir != "",
        "refused": ask.refused,
        "own": seen,
        "batches": witness.batches,
        "said": [str(one.message) for one in said if one.category is kajitori.ChannelWarning],
        "pruned": pruned,
        "hooks": witness.hooks,
    }
    (folder / f"rank-{trainer.global_rank}.json").write_text(json.dumps(told))


if __name__ == "__main__":
    train(pathlib.Path(sys.argv[1]))
