# SPDX-License-Identifier: Apache-2.0
"""`Trainer.train` of Hugging Face transformers."""

import torch
import transformers
from cell_driver import EPOCHS, LR, STEPS, TESTS, serve

from kajitori.transformers import SteeringCallback

torch.set_num_threads(1)
X = torch.randn(STEPS * 8, 4, generator=torch.Generator().manual_seed(0))
DATA = [{"x": x, "labels": x.sum(0, keepdim=True)} for x in X]


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def forward(self, x, labels):
        out = self.layer(x)
        return {"loss": (out - labels).square().mean(), "logits": out}


class Watch(transformers.TrainerCallback):
    def __init__(self, record):
        self.record = record
        self.lr = 0.0

    def on_pre_optimizer_step(self, args, state, control, optimizer=None, **_):
        self.lr = optimizer.param_groups[0]["lr"]

    def on_step_end(self, args, state, control, **_):
        self.record.step(self.lr)

    def on_prediction_step(self, args, state, control, **_):
        self.record.test()

    def on_epoch_end(self, args, state, control, **_):
        self.record.epoch_end()

    def on_train_end(self, args, state, control, **_):
        self.record.end()


def train(record):
    steering = SteeringCallback(commands={"count": lambda cb: len(record.did["lrs"])})
    model = Model()
    args = transformers.TrainingArguments(
        output_dir=record.folder,
        num_train_epochs=EPOCHS,
        per_device_train_batch_size=8,
        per_device_eval_batch_size=8,
        learning_rate=LR,
        lr_scheduler_type="constant",
        eval_strategy="epoch",
        logging_strategy="epoch",
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    optimizers = (None, None)
    if record.options.get("schedule"):
        optimizer = torch.optim.AdamW(model.parameters(), LR)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5 ** (step / STEPS))
        optimizers = (optimizer, schedule)
    trainer = transformers.Trainer(
        model,
        args,
        train_dataset=DATA,
        eval_dataset=DATA[: TESTS * 8],
        optimizers=optimizers,
        callbacks=[Watch(record), steering],
    )
    trainer.train(resume_from_checkpoint=steering.resumed_from or None)
    record.did["pruned"] = steering.pruned


serve(train)
