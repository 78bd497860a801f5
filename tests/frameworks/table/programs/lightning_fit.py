# SPDX-License-Identifier: Apache-2.0
"""`Trainer.fit` of PyTorch Lightning."""

import warnings

import lightning
import torch
from cell_driver import EPOCHS, LR, STEPS, TESTS, serve

from kajitori.lightning import SteeringCallback

torch.set_num_threads(1)
warnings.filterwarnings("ignore", module="lightning")
X = torch.randn(STEPS * 8, 4, generator=torch.Generator().manual_seed(0))
DATA = torch.utils.data.DataLoader(X, batch_size=8)


class Model(lightning.LightningModule):
    def __init__(self, has_schedule):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
        self.has_schedule = has_schedule
        self.lr = 0.0

    def loss(self, x):
        return (self.layer(x) - x.sum(1, keepdim=True)).square().mean()

    def training_step(self, x):
        self.lr = self.trainer.optimizers[0].param_groups[0]["lr"]
        loss = self.loss(x)
        self.log("loss", loss, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, x):
        self.log("val_loss", self.loss(x))

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), LR)
        if not self.has_schedule:
            return optimizer
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5 ** (step / STEPS))
        return [optimizer], [{"scheduler": schedule, "interval": "step"}]


class Watch(lightning.Callback):
    def __init__(self, record):
        self.record = record

    def on_train_batch_end(self, trainer, module, outputs, batch, index):
        self.record.step(module.lr)

    def on_validation_batch_end(self, *_, **__):
        self.record.test()

    def on_train_epoch_end(self, trainer, module):
        self.record.epoch_end()

    def on_train_end(self, trainer, module):
        self.record.end()


def train(record):
    steering = SteeringCallback(
        commands={"count": lambda cb: len(record.did["lrs"])}, checkpoint_dir=record.folder
    )
    trainer = lightning.Trainer(
        max_epochs=EPOCHS,
        limit_val_batches=TESTS,
        num_sanity_val_steps=0,
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[Watch(record), steering],
    )
    trainer.fit(Model(record.options.get("schedule")), DATA, DATA)
    record.did["pruned"] = steering.pruned


serve(train)
