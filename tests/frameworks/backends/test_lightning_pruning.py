# SPDX-License-Identifier: Apache-2.0
"""PruningCallback of Lightning, with a stub trial and with Optuna's."""

import lightning.pytorch as pl
import optuna
import pytest
import torch
from lightning_fits import BATCHES, Model, Send, Witness, fit, loader, trainer_of

import kajitori
from kajitori.lightning import PruningCallback, SteeringCallback

optuna.logging.set_verbosity(optuna.logging.ERROR)
END = ["train_end", "fit_end", "teardown", "exception"]


class Trial:
    """Prunes at a step; keeps what it was told, and how often it was asked."""

    def __init__(self, at=None):
        self.at, self.values, self.asked = at, {}, 0

    def report(self, value, step):
        assert step not in self.values
        self.values[step] = value

    def should_prune(self):
        self.asked += 1
        return self.at is not None and max(self.values) >= self.at


@pytest.mark.parametrize("place", [0, 1, 2])
def test_every_other_callback_is_told_of_the_end_and_then_the_caller(place):
    witnesses = [Witness(), Witness()]
    trial = Trial(at=1)
    callbacks = list(witnesses)
    callbacks.insert(place, PruningCallback(trial, "val_loss"))
    steering = SteeringCallback()
    trainer = trainer_of(*callbacks, steering, max_epochs=9, min_epochs=4, num_sanity_val_steps=2)
    model = Model()
    with pytest.raises(kajitori.TrialPruned, match=r"^pruned at step 1, with val_loss = "):
        trainer.fit(model, loader(), loader(2))
    for witness in witnesses:
        assert witness.hooks[-4:] == END
        assert witness.batches == 2 * BATCHES
    assert (sorted(trial.values), trial.asked) == ([0, 1], 2)
    assert steering.run.closed
    assert (trainer.should_stop, trainer.min_epochs) == (True, 4)
    assert (trainer.state.status, trainer.state.stage) == ("interrupted", None)
    trainer.callbacks = []
    trainer.validate(model, loader(), verbose=False)


def test_a_stop_and_a_prune_of_one_training_leave_its_minimum_as_it_was():
    callbacks = [PruningCallback(Trial(at=0), "val_loss"), SteeringCallback(), Send("stop")]
    trainer = trainer_of(*callbacks, min_epochs=2)
    with pytest.raises(kajitori.TrialPruned):
        trainer.fit(Model(), loader(), loader(2))
    assert trainer.min_epochs == 2


def test_the_modules_teardown_and_the_loggers_come_first(tmp_path):
    class Torn(Model):
        torn = 0

        def teardown(self, stage):
            self.torn += 1

    logger = pl.loggers.CSVLogger(tmp_path, name="", version="log")
    model = Torn()
    with pytest.raises(kajitori.TrialPruned):
        fit(PruningCallback(Trial(at=0), "val_loss"), model=model, logger=logger)
    assert model.torn == 1
    assert "val_loss" in (tmp_path / "log" / "metrics.csv").read_text()


def test_each_validation_is_reported_at_its_own_step():
    trial = Trial()
    fit(PruningCallback(trial, "val_loss"), val_check_interval=3, max_epochs=2)
    assert list(trial.values) == [3, 6, 9, 12]
    trial = Trial()
    fit(PruningCallback(trial, "val_loss"), check_val_every_n_epoch=2, max_epochs=4)
    assert list(trial.values) == [1, 3]


def test_a_metric_of_the_training_is_reported_at_the_end_of_epochs():
    trial = Trial(at=1)
    with pytest.raises(kajitori.TrialPruned):
        fit(PruningCallback(trial, "loss_epoch"), validate=False)
    assert list(trial.values) == [0, 1]


def test_a_metric_that_nobody_logs_is_named():
    trial = Trial(at=0)
    with pytest.warns(UserWarning, match=r"no metric 'accuracy'.*its metrics: .*val_loss"):
        fit(PruningCallback(trial, "accuracy"), max_epochs=1)
    assert trial.values == {}


def test_what_is_no_trial_is_refused():
    with pytest.raises(kajitori.ArgumentError, match="no report and should_prune"):
        PruningCallback("trial", "val_loss")


def test_a_mid_epoch_prune_ends_there():
    trial = Trial(at=3)
    witness = Witness()
    with pytest.raises(kajitori.TrialPruned):
        fit(witness, PruningCallback(trial, "val_loss"), val_check_interval=3)
    assert witness.batches == 3


def test_pruning_and_an_evaluation_at_the_same_end_of_an_epoch():
    trial = Trial()
    sender = Send("evaluate at=epoch:0", "set lr=0.5 at=epoch:0", step=0)
    _, _, witness = fit(
        PruningCallback(trial, "val_loss"), SteeringCallback(), sender, max_epochs=2
    )
    assert list(trial.values) == [0, 1]
    assert witness.hooks.count("validation_end") == 3


def test_optunas_study_knows_a_pruned_trial():
    storage = optuna.storages.InMemoryStorage()
    study = optuna.create_study(
        storage=storage, pruner=optuna.pruners.MedianPruner(n_startup_trials=1, n_warmup_steps=0)
    )
    endings, rates = [], iter([0.125, 1e-6, 0.25])

    def objective(trial):
        witness = Witness()
        callback = PruningCallback(trial, monitor="val_loss")
        endings.append(witness)
        rate = next(rates)
        model = Model(lambda parameters: torch.optim.SGD(parameters, lr=rate))
        trainer, _, _ = fit(witness, callback, model=model)
        callback.check_pruned()
        return trainer.callback_metrics["val_loss"].item()

    study.optimize(objective, n_trials=3)
    states = [trial.state.name for trial in study.trials]
    assert states[:2] == ["COMPLETE", "PRUNED"]
    assert list(study.trials[0].intermediate_values) == [0, 1, 2]
    assert list(study.trials[1].intermediate_values) == [0]
    assert all("train_end" in witness.hooks and "teardown" in witness.hooks for witness in endings)
