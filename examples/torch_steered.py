# SPDX-License-Identifier: Apache-2.0
"""A torch loop on scikit-learn's digits that can be steered while it runs.

python torch_steered.py --fifo ctl &
kajitori status
kajitori set lr=0.01
kajitori evaluate
kajitori checkpoint
kajitori extend epochs=5
kajitori pause --level leave
kajitori resume RUN
echo stop > ctl
"""

import argparse

import torch
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

import kajitori.torch

parser = argparse.ArgumentParser()
parser.add_argument("--fifo", help="take commands from a FIFO at this path too")
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--lr", type=float, default=0.1, help="learning rate at the beginning")
parser.add_argument("--checkpoints", default="checkpoints", help="folder for checkpoints")
args = parser.parse_args()

torch.manual_seed(0)
torch.set_num_threads(1)
digits = load_digits()
x = torch.tensor(digits.data / 16, dtype=torch.float32)
y = torch.tensor(digits.target)
training = DataLoader(TensorDataset(x[:1400], y[:1400]), batch_size=32, shuffle=True)
validation = DataLoader(TensorDataset(x[1400:], y[1400:]), batch_size=128)

model = torch.nn.Sequential(
    torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(64, 10)
)
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs)


def accuracy_over(batches):
    model.eval()
    hits = seen = 0
    with torch.no_grad():
        for inputs, labels in batches:
            hits += int((model(inputs).argmax(1) == labels).sum())
            seen += len(labels)
    model.train()
    return hits / seen


run = kajitori.torch.Run(
    optimizer,
    model,
    scheduler,
    fifo=args.fifo,
    checkpoint_dir=args.checkpoints,
    evaluate=lambda run: {"accuracy": accuracy_over(validation)},
)
if run.resumed_from:
    print(f"goes on from {run.resumed_from} in epoch {run.initial_epoch}", flush=True)

for _ in run.epochs(args.epochs):
    for inputs, labels in run.steps(training):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
        run.log(loss=loss)
    scheduler.step()
    accuracy = accuracy_over(run.validate(validation))
    run.report(val_accuracy=accuracy)

# The code behind the loop runs, whether the training was stopped or came to its end.
how = "stopped" if run.should_stop else "finished"
why = f" ({run.stop_reason})" if run.stop_reason else ""
print(f"{how}{why} after {run.step} steps: val_accuracy {accuracy_over(validation):.3f}")
