# SPDX-License-Identifier: Apache-2.0
"""`Trainer.fit` of PyTorch Lightning."""

import logging
import warnings

import lightning
import torch
from turns import STEPS, both, measure

from kajitori.lightning import SteeringCallback

torch.set_num_threads(1)
warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(64, 1)

    def training_step(self, x):
        return self.layer(x).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.001)


def train(turns):
    trainer = lightning.Trainer(
        max_steps=STEPS,
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[both(SteeringCallback, "on_train_batch_end", turns)()],
    )
    trainer.fit(Model(), torch.utils.data.DataLoader(torch.randn(8 * 240, 64), batch_size=8))


measure(train)
