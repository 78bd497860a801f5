# SPDX-License-Identifier: Apache-2.0
"""What the tests of kajitori.torch share: a small training, and commands that come at a known step."""

import torch

import kajitori
from kajitori import torch as kajitori_torch

torch.set_num_threads(1)

STEPS = 10  # of an epoch
X = torch.randn(STEPS * 8, 4, generator=torch.Generator().manual_seed(0))
Y = X.sum(1, keepdim=True)


def make_loader(**options):
    return torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(X, Y), batch_size=8, **options
    )


def send(*lines):
    """Has commands accepted by the only run."""
    with kajitori.connect() as client:
        return [client.send(line, wait="accepted") for line in lines]


def refusal(line):
    """Why the only run does not take a command."""
    try:
        send(line)
    except kajitori.RejectedError as error:
        return str(error)
    raise AssertionError(f"{line} was accepted")


def settled(verb):
    """How commands of this verb ended: state, step, result or error."""
    return [
        (line["state"], line.get("step"), line.get("error") or line.get("result"))
        for line in kajitori.journal()
        if line.get("verb") == verb and line["state"] in ("done", "failed", "rejected", "expired")
    ]


def results(verb):
    return [what for state, _, what in settled(verb) if state == "done"]


class Training:
    """A model with dropout, its optimizer and what belongs to it; `body` is a step of it."""

    def __init__(self, lr=0.125, schedule=None, seed=0, **options):
        torch.manual_seed(seed)
        self.model = torch.nn.Sequential(
            torch.nn.Linear(4, 8), torch.nn.Dropout(0.25), torch.nn.Linear(8, 1)
        )
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=lr)
        self.scheduler = schedule(self.optimizer) if schedule else None
        self.lines = {}  # commands by the number of the body that sends them
        self.bodies = []  # epoch of each body that ran
        self.run = kajitori_torch.Run(
            self.optimizer, model=self.model, scheduler=self.scheduler, **options
        )

    def body(self, batch):
        lines = self.lines.pop(len(self.bodies), ())
        if lines:
            send(*([lines] if isinstance(lines, str) else lines))
        x, y = batch
        self.optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        self.bodies.append(self.run.epoch)
        return loss

    def train(self, epochs, loader=None, lines=None):
        """With the loops of `Run`; the epochs whose bodies came to their end."""
        self.lines |= lines or {}
        loader = loader or make_loader(shuffle=True)
        done = []
        for epoch in self.run.epochs(epochs):
            for batch in self.run.steps(loader):
                self.run.log(loss=self.body(batch))
            if self.scheduler is not None:
                self.scheduler.step()
            done.append(epoch)
        return done

    def weights(self):
        return {name: value.clone() for name, value in self.model.state_dict().items()}
