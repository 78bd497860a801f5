# SPDX-License-Identifier: Apache-2.0
"""Trains a small network on digits with PyTorch Lightning, and can be steered while it runs.

python lightning_steered.py --fifo ctl &
kajitori status
kajitori set lr=1e-4
kajitori evaluate
kajitori extend --epochs 5
kajitori pause --level leave --at epoch
kajitori resume RUN
echo stop > ctl
"""

import argparse
import pathlib

import lightning
import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset

from kajitori.lightning import SteeringCallback

parser = argparse.ArgumentParser()
parser.add_argument("--fifo", help="take commands from a FIFO at this path too")
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--lr", type=float, default=0.001, help="learning rate of Adam")
parser.add_argument("--checkpoints", default="checkpoints", help="folder for checkpoints")
args = parser.parse_args()


class Digits(lightning.LightningModule):
    def __init__(self, lr):
        super().__init__()
        self.lr = lr
        self.net = torch.nn.Sequential(
            torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10)
        )

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = torch.nn.functional.cross_entropy(self.net(x), y)
        self.log("loss", loss, on_step=True, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.log("val_accuracy", (self.net(x).argmax(dim=1) == y).float().mean())

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=self.lr)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.epochs)
        return [optimizer], [schedule]


def load():
    path = pathlib.Path(__file__).parent / "data" / "digits.csv"
    rows = np.loadtxt(path, delimiter=",", dtype="float32")
    data = TensorDataset(torch.from_numpy(rows[:, :64] / 16), torch.from_numpy(rows[:, 64]).long())
    training, validation = torch.utils.data.random_split(data, [0.8, 0.2])
    return DataLoader(training, batch_size=32, shuffle=True), DataLoader(validation, batch_size=180)


lightning.seed_everything(0)
steering = SteeringCallback(fifo=args.fifo, checkpoint_dir=args.checkpoints)
trainer = lightning.Trainer(
    max_epochs=args.epochs,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    callbacks=[steering],
)
trainer.fit(Digits(args.lr), *load())

# The code after fit runs, whether the training was stopped or came to its end.
how = "stopped" if steering.run.should_stop else "finished"
why = f" ({steering.run.stop_reason})" if steering.run.stop_reason else ""
accuracy = trainer.callback_metrics["val_accuracy"]
print(f"{how}{why} after {steering.step} steps: val_accuracy {accuracy:.3f}")
