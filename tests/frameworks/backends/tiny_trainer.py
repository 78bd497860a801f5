# SPDX-License-Identifier: Apache-2.0
"""What the tests of `kajitori.transformers` share: a Trainer of a tiny network, and callbacks that
count what it does and send commands at a given place."""

import time

import torch
import transformers
from training import PATIENCE

import kajitori
from kajitori.transformers import SteeringCallback

STEPS = 10  # of an epoch
EVALUATIONS = 5  # batches of an evaluation
FOR_EVER = 100_000

torch.set_num_threads(1)


class Network(torch.nn.Module):
    """Draws random numbers in training, so that two trainings are the same only if all is."""

    def __init__(self):
        super().__init__()
        self.predicted = 0  # batches
        self.first = torch.nn.Linear(4, 8)
        self.drop = torch.nn.Dropout(0.25)
        self.last = torch.nn.Linear(8, 1)

    def forward(self, x, labels=None):
        self.predicted += not self.training
        logits = self.last(self.drop(torch.relu(self.first(x))))
        return {"loss": torch.nn.functional.mse_loss(logits, labels), "logits": logits}


def _rows(count, seed):
    x = torch.randn(count, 4, generator=torch.Generator().manual_seed(seed))
    return [{"x": row, "labels": row.sum(0, keepdim=True)} for row in x]


DATA, EVALUATION = _rows(STEPS * 8, 0), _rows(EVALUATIONS * 8, 1)


class Guard(transformers.TrainerCallback):
    """Counts what the Trainer did, and ends a training that nothing ends."""

    def __init__(self):
        self.steps = self.evaluations = self.saves = self.ends = 0
        self.epochs = []
        self.deadline = time.monotonic() + PATIENCE

    def on_step_end(self, args, state, control, **kwargs):
        self.steps += 1
        assert time.monotonic() < self.deadline, "no command came through"

    def on_epoch_end(self, args, state, control, **kwargs):
        self.epochs.append(state.epoch)

    def on_evaluate(self, args, state, control, **kwargs):
        self.evaluations += 1

    def on_save(self, args, state, control, **kwargs):
        self.saves += 1

    def on_train_end(self, args, state, control, **kwargs):
        self.ends += 1


class In(transformers.TrainerCallback):
    """Does something once, when a hook is called for the N-th time (from 1)."""

    def __init__(self, action, nth=3, hook="on_step_end"):
        self.action, self.left = action, nth
        setattr(self, hook, self._count)

    def _count(self, args, state, control, **kwargs):
        self.left -= 1
        if self.left == 0:
            self.action()


class Send(In):
    """Has commands accepted at the end of step `nth`, before the steering callback looks."""

    def __init__(self, *lines, nth=3, hook="on_step_end"):
        super().__init__(self._send, nth, hook)
        self.lines, self.refused = lines, {}

    def _send(self):
        with kajitori.connect() as client:
            for line in self.lines:
                try:
                    client.send(line, wait="accepted")
                except kajitori.RejectedError as error:
                    self.refused[line] = str(error)


def make_trainer(
    folder,
    *callbacks,
    model=None,
    optimizers=(None, None),
    data=DATA,
    kind=transformers.Trainer,
    **options,
):
    """`Send` sees a step before the steering callback does."""
    order = sorted(callbacks, key=lambda callback: isinstance(callback, SteeringCallback))
    if not {"max_steps", "num_train_epochs"} & set(options):
        options["num_train_epochs"] = FOR_EVER
    torch.manual_seed(0)
    args = transformers.TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=8,
        per_device_eval_batch_size=8,
        use_cpu=True,
        disable_tqdm=True,
        **{
            "report_to": "none",
            "save_strategy": "no",
            "learning_rate": 0.125,
            "lr_scheduler_type": "constant",
            "optim": "sgd",
        }
        | options,
    )
    return kind(
        model or Network(),
        args,
        train_dataset=data,
        eval_dataset=EVALUATION,
        callbacks=order,
        optimizers=optimizers,
    )


def train(folder, *callbacks, **options):
    """The Trainer and what a Guard has counted, after the training."""
    guard = Guard()
    trainer = make_trainer(folder, guard, *callbacks, **options)
    trainer.train()
    return trainer, guard


def journal(verb, *states):
    """The lines of a verb in these states."""
    return [
        line
        for line in kajitori.journal()
        if line.get("verb") == verb and line["state"] in (states or ("done", "failed", "rejected"))
    ]


def results(verb):
    return [line.get("result") for line in journal(verb, "done")]
