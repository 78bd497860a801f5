# SPDX-License-Identifier: Apache-2.0
"""What the tests of kajitori.lightning share: a tiny model, a trainer, senders of commands, a witness."""

import logging
import warnings

import lightning.pytorch as pl
import torch
from torch.utils.data import DataLoader, TensorDataset

import kajitori

torch.set_num_threads(1)
for _name in ("lightning.pytorch", "pytorch_lightning"):
    logging.getLogger(_name).setLevel(logging.ERROR)
warnings.filterwarnings("ignore", ".*does not have many workers.*")

BATCHES = 6  # of an epoch
VALIDATION = 3  # batches of a validation

X = torch.arange(BATCHES * 4 * 4, dtype=torch.float32).reshape(-1, 4) / 50 - 1
DATA = TensorDataset(X, X.sum(dim=1, keepdim=True))


def loader(batches=BATCHES, **options):
    return DataLoader(TensorDataset(*DATA[: batches * 4]), batch_size=4, **options)


class Model(pl.LightningModule):
    """Logs `loss` and `val_loss`; keeps which batches it has seen."""

    def __init__(self, optimizers=None):
        super().__init__()
        torch.manual_seed(7)
        self.layer = torch.nn.Linear(4, 1)
        self.optimizers_of = optimizers or (lambda p: torch.optim.SGD(p, lr=0.125))
        self.losses = []

    def training_step(self, batch, batch_idx):
        loss = torch.nn.functional.mse_loss(self.layer(batch[0]), batch[1])
        self.log("loss", loss, on_step=True, on_epoch=True, sync_dist=True)
        self.losses.append(loss.item())
        return loss

    def validation_step(self, batch, batch_idx):
        loss = torch.nn.functional.mse_loss(self.layer(batch[0]), batch[1])
        self.log("val_loss", loss, sync_dist=True)

    def configure_optimizers(self):
        return self.optimizers_of(self.layer.parameters())


class Witness(pl.Callback):
    """Which hooks were called, in order, without those of single batches, which are counted."""

    def __init__(self):
        self.hooks, self.batches, self.validated, self.rates = [], 0, 0, []

    def on_train_batch_start(self, trainer, *args):
        self.rates += [group["lr"] for one in trainer.optimizers for group in one.param_groups]

    def on_train_batch_end(self, *args):
        self.batches += 1

    def on_validation_batch_end(self, trainer, *args):
        self.validated += 0 if trainer.sanity_checking else 1


def _note(name):
    def hook(self, trainer, *args, **kwargs):
        if not trainer.sanity_checking:
            self.hooks.append(name)

    return hook


for _name in (
    "train_start",
    "train_epoch_end",
    "validation_end",
    "train_end",
    "fit_end",
    "exception",
):
    setattr(Witness, "on_" + _name, _note(_name))
Witness.teardown = _note("teardown")


class Send(pl.Callback):
    """Has commands accepted when `hook` is called for the `step`-th time (from 0). Refusals are kept."""

    def __init__(self, *lines, step=3, hook="on_train_batch_start", run=None):
        self.lines, self.left, self.run, self.refused = lines, step, run, {}
        setattr(self, hook, self._count)

    def _count(self, trainer, *args, **kwargs):
        if trainer.sanity_checking:
            return
        if self.left == 0:
            send(*self.lines, run=self.run, refused=self.refused)
        self.left -= 1


def send(*lines, run=None, refused=None):
    with kajitori.connect(run) as client:
        for line in lines:
            try:
                client.send(line, wait="accepted")
            except kajitori.RejectedError as error:
                if refused is None:
                    raise
                refused[line] = str(error)


def trainer_of(*callbacks, validate=True, package=pl, **options):
    settings = {
        "max_epochs": 3,
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "accelerator": "cpu",
        "devices": 1,
        "num_sanity_val_steps": 0,
    }
    if not validate:
        settings["limit_val_batches"] = 0
    return package.Trainer(callbacks=list(callbacks), **settings | options)


def fit(*callbacks, model=None, ckpt_path=None, data=None, **options):
    """A training; the trainer, its model and its witness."""
    witness = Witness()
    trainer = trainer_of(witness, *callbacks, **options)
    model = model or Model()
    trainer.fit(model, loader() if data is None else data, loader(VALIDATION), ckpt_path=ckpt_path)
    return trainer, model, witness


def settled(verb, run=None):
    """How commands of this verb ended: state, old, new, error."""
    return [
        tuple(line.get(key) for key in ("state", "old", "new", "error"))
        for line in kajitori.journal(run)
        if line.get("verb") == verb and line["state"] in ("applied", "failed", "rejected")
    ]


def result_of(verb):
    """The result of the newest command of this verb."""
    found = [
        line
        for line in kajitori.journal()
        if line.get("verb") == verb and line["state"] in ("done", "failed")
    ]
    assert found[-1]["state"] == "done", found[-1]
    return found[-1].get("result")
