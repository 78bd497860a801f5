# SPDX-License-Identifier: Apache-2.0
"""`Trainer.train` of Hugging Face transformers."""

import torch
import transformers
from turns import STEPS, both, measure

from kajitori.transformers import SteeringCallback

torch.set_num_threads(1)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(64, 1)

    def forward(self, x, labels):
        out = self.layer(x)
        return {"loss": (out - labels).square().mean(), "logits": out}


def train(turns):
    args = transformers.TrainingArguments(
        output_dir="out",
        max_steps=STEPS,
        per_device_train_batch_size=8,
        learning_rate=0.001,
        lr_scheduler_type="constant",
        logging_strategy="no",
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    data = [{"x": x, "labels": x[:1]} for x in torch.randn(8 * 240, 64)]
    callback = both(SteeringCallback, "on_step_end", turns)()
    transformers.Trainer(Model(), args, train_dataset=data, callbacks=[callback]).train()


measure(train)
