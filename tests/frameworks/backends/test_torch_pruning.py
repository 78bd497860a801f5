# SPDX-License-Identifier: Apache-2.0
"""Trials that end a torch loop: Optuna's own, and any that reports and answers."""

import optuna
import pytest
import torch
from sklearn.datasets import load_digits
from torch_training import STEPS, Training, make_loader, send

import kajitori
from kajitori import torch as kajitori_torch

optuna.logging.set_verbosity(optuna.logging.WARNING)


class Trial:
    """Prunes at a step; keeps what it was told and asked."""

    def __init__(self, at=None):
        self.at = at
        self.calls = []

    def report(self, value, step):
        self.calls.append((step, value))

    def should_prune(self):
        self.calls.append("?")
        return self.at is not None and self.calls[-2][0] >= self.at


def train(run, epochs=5, steps=STEPS):
    """What ran: the number of the epoch for each step, and where an epoch came to its end."""
    seen = []
    for epoch in run.epochs(epochs):
        for k in run.steps(range(steps)):
            seen.append(epoch)
            run.report(loss=k)
        run.report(val_loss=10 - epoch)
        run.report(val_loss=99)
        seen.append(f"end of {epoch}")
    return seen


def test_each_new_value_is_reported_at_its_own_epoch_and_asked_for_once():
    trial, run = Trial(), kajitori_torch.Run()
    run.prune_with(trial, "val_loss")
    train(run)
    assert trial.calls == [what for epoch in range(5) for what in ((epoch, 10 - epoch), "?")]
    assert not run.pruned


def test_pruned_behind_the_epoch_with_its_end_and_the_run_closed():
    trial, run = Trial(at=2), kajitori_torch.Run()
    run.prune_with(trial, "val_loss")
    seen = []

    def program():
        for epoch in run.epochs(5):
            run.report(val_loss=10 - epoch)
            seen.append(epoch)

    with pytest.raises(kajitori.TrialPruned, match=r"^pruned at step 2, with val_loss = 8$"):
        program()
    assert seen == [0, 1, 2], "what stands behind the report runs"
    assert (run.pruned, run.should_stop, run.run.closed) == (True, True, True)
    assert trial.calls[-2:] == [(2, 8.0), "?"]
    assert "the trial: pruned at step 2, with val_loss = 8" in str(kajitori.journal())


def test_pruned_within_an_epoch_ends_its_steps():
    trial, run = Trial(at=STEPS + 3), kajitori_torch.Run()
    run.prune_with(trial, "loss", per="step")
    seen = []

    def program():
        for epoch in run.epochs(5):
            for k in run.steps(range(STEPS)):
                run.report(loss=k)
                seen.append(epoch)
            seen.append("end")

    with pytest.raises(kajitori.TrialPruned):
        program()
    assert seen == [0] * STEPS + ["end"] + [1] * 4 + ["end"]


def test_pruned_in_a_loop_of_two_lines():
    trial, t = Trial(at=6), Training()
    t.run.prune_with(trial, "loss", per="step")

    def program():
        with t.run as run:
            for batch in list(make_loader()) * 9:
                run.report(loss=t.body(batch))
                if run.should_stop:
                    break

    with pytest.raises(kajitori.TrialPruned, match="at step 6"):
        program()
    assert len(t.bodies) == 6
    with pytest.raises(kajitori.TrialPruned):
        t.run.raise_if_pruned()


def test_an_exception_of_the_user_is_not_replaced():
    run = kajitori_torch.Run()
    run.prune_with(Trial(at=0), "loss", per="step")

    def program():
        with run:
            run.report(loss=1.0)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        program()


def test_a_stop_of_ones_own_is_no_pruned_trial():
    run = kajitori_torch.Run()
    run.prune_with(Trial(), "loss")
    for _ in run.epochs(5):
        for _ in run.steps(range(STEPS)):
            if run.step == 3:
                send("stop")
        run.report(loss=1.0)
    run.raise_if_pruned()
    assert run.ending == "stop"


def test_a_metric_per_epoch_without_epochs_says_what_to_do():
    with kajitori_torch.Run() as run:
        run.prune_with(Trial(), "loss")
        with pytest.raises(kajitori.StateError, match="no epoch yet; say per"):
            run.report(loss=1.0)
        with pytest.raises(kajitori.ArgumentError, match="has no report and should_prune"):
            run.prune_with(3, "loss")


def test_optuna_prunes_trainings_on_digits():
    """The pruner sees each epoch of each trial; those that it cuts are PRUNED, with the code behind the
    report run."""
    digits = load_digits()
    x = torch.tensor(digits.data[:600] / 16, dtype=torch.float32)
    y = torch.tensor(digits.target[:600])
    ended = []

    def objective(trial):
        torch.manual_seed(0)
        model = torch.nn.Sequential(
            torch.nn.Linear(64, 16), torch.nn.ReLU(), torch.nn.Linear(16, 10)
        )
        optimizer = torch.optim.SGD(
            model.parameters(), trial.suggest_float("lr", 1e-4, 1, log=True)
        )
        run = kajitori_torch.Run(optimizer)
        run.prune_with(trial, "accuracy")
        for _ in run.epochs(6):
            for k in run.steps(range(0, 500, 50)):
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(model(x[k : k + 50]), y[k : k + 50]).backward()
                optimizer.step()
            with torch.no_grad():
                accuracy = (model(x[500:]).argmax(1) == y[500:]).float().mean()
            run.report(accuracy=accuracy)
            ended.append(trial.number)
        return float(accuracy)

    study = optuna.create_study(
        direction="maximize",
        sampler=optuna.samplers.RandomSampler(seed=1),
        pruner=optuna.pruners.MedianPruner(n_startup_trials=2, n_warmup_steps=1),
    )
    study.optimize(objective, n_trials=10)
    states = [trial.state.name for trial in study.trials]
    assert set(states) == {"COMPLETE", "PRUNED"}
    for trial in study.trials:
        epochs = ended.count(trial.number)
        assert list(trial.intermediate_values) == list(range(epochs))
        assert (epochs == 6) or trial.state.name == "PRUNED"
    assert kajitori.runs() == []
