# SPDX-License-Identifier: Apache-2.0
"""A loop of one's own in torch, in the long form."""

import torch
from cell_driver import EPOCHS, LR, STEPS, TESTS, serve

import kajitori.torch

torch.set_num_threads(1)
X = torch.randn(STEPS, 8, 4, generator=torch.Generator().manual_seed(0))


def train(record):
    record.did["end_hooks"] = None  # there are no callbacks
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.Adam(model.parameters(), LR)
    scheduler = None
    if record.options.get("schedule"):
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5 ** (step / STEPS))
    run = kajitori.torch.Run(
        optimizer,
        model=model,
        scheduler=scheduler,
        evaluate=lambda run: {"val_loss": float(model(X[0]).square().mean())},
        commands={"count": lambda run: len(record.did["lrs"])},
        checkpoint_dir=record.folder,
    )
    for _ in run.epochs(EPOCHS):
        for x in run.steps(X):
            loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            record.step(optimizer.param_groups[0]["lr"])
            if scheduler:
                scheduler.step()
        for _ in run.validate(X[:TESTS]):
            record.test()
        run.report(loss=loss, val_loss=loss)
    record.did["pruned"] = run.pruned


serve(train)
