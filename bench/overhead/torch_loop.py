# SPDX-License-Identifier: Apache-2.0
"""A torch loop over `run.steps(batches)`, against one over `batches`."""

import torch
from turns import STEPS, measure

import kajitori.torch

torch.set_num_threads(1)


def batches():
    x = torch.randn(64, 64)
    while True:
        yield x


def plain(loader):
    yield from loader


def train(turns):
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1))
    optimizer = torch.optim.Adam(model.parameters())
    run = kajitori.torch.Run(optimizer)
    loops = {"empty": plain(batches()), "steering": iter(run.steps(batches()))}
    for _ in range(STEPS):
        turns.next()
        loss = model(next(loops[turns.name])).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    run.close()


measure(train)
