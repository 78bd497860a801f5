# SPDX-License-Identifier: Apache-2.0
"""What a steered stop means to other callbacks and loggers of Lightning, and kinds of trainings."""

import csv

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.loggers import CSVLogger
from lightning_fits import BATCHES, VALIDATION, Model, Send, Witness, fit, loader, trainer_of

from kajitori.lightning import SteeringCallback


def rows_of(folder):
    with open(folder / "metrics.csv", newline="") as file:
        return list(csv.DictReader(file))


def values(rows, name):
    return [(int(row["epoch"]), float(row[name])) for row in rows if row.get(name)]


@pytest.mark.parametrize(
    ("line", "epochs", "validated"),
    [
        ("stop", [0, 1], [0, 1]),
        ("stop at=epoch", [0, 1], [0, 1]),
        ("stop validate=no", [0, 1], [0]),
    ],
)
def test_a_csv_logger_is_written_whole(tmp_path, line, epochs, validated):
    logger = CSVLogger(tmp_path, name="", version="log", flush_logs_every_n_steps=1000)
    sender = Send(line, step=BATCHES + 2)
    _, model, _ = fit(SteeringCallback(), sender, logger=logger, log_every_n_steps=1)
    rows = rows_of(tmp_path / "log")
    steps = values(rows, "loss_step")
    assert [value for _, value in steps] == pytest.approx(model.losses)
    assert [epoch for epoch, _ in values(rows, "loss_epoch")] == epochs
    assert [epoch for epoch, _ in values(rows, "val_loss")] == validated


def test_a_learning_rate_monitor_sees_what_was_set(tmp_path):
    logger = CSVLogger(tmp_path, name="", version="log")
    monitor = pl.callbacks.LearningRateMonitor("step")
    fit(SteeringCallback(), Send("set lr=0.5", step=2), monitor, logger=logger, log_every_n_steps=1)
    rows = rows_of(tmp_path / "log")
    rates = [float(row["lr-SGD"]) for row in rows if row.get("lr-SGD")]
    assert rates == [0.125] * 3 + [0.5] * (3 * BATCHES - 3)


def checkpoints(folder, line, **options):
    saver = pl.callbacks.ModelCheckpoint(folder, filename="{epoch}-{step}", **options)
    _, model, _ = fit(
        SteeringCallback(), saver, Send(line, step=BATCHES + 2), enable_checkpointing=True
    )
    return saver, model, sorted(path.name for path in folder.glob("*.ckpt"))


def test_model_checkpoint_saves_the_last_state_after_a_stop(tmp_path):
    saver, model, names = checkpoints(
        tmp_path, "stop", save_last=True, monitor="val_loss", save_top_k=-1
    )
    assert names == [
        f"epoch=0-step={BATCHES}.ckpt",
        f"epoch=1-step={BATCHES + 3}.ckpt",
        "last.ckpt",
    ]
    last = torch.load(saver.last_model_path, weights_only=False)
    assert torch.equal(last["state_dict"]["layer.weight"], model.layer.weight)
    assert last["global_step"] == BATCHES + 3


def test_model_checkpoint_by_steps_counts_on(tmp_path):
    _, _, names = checkpoints(
        tmp_path, "stop validate=no", every_n_train_steps=4, save_top_k=-1, monitor=None
    )
    assert names == ["epoch=0-step=4.ckpt", "epoch=1-step=8.ckpt"]


def test_early_stopping_is_asked_as_always_and_does_not_claim_the_stop():
    stopping = pl.callbacks.EarlyStopping("val_loss", patience=50)
    fit(SteeringCallback(), stopping, Send("stop", step=BATCHES + 2))
    assert (stopping.stopped_epoch, stopping.wait_count <= 1) == (0, True)
    own = pl.callbacks.EarlyStopping("val_loss", patience=1, min_delta=1e9)
    cb = SteeringCallback()
    _, _, witness = fit(cb, own)
    assert (own.stopped_epoch, witness.batches) == (1, 2 * BATCHES)
    assert (cb.run.ending, cb.run.should_stop) == (None, False)


@pytest.mark.parametrize(("step", "validated"), [(2, 1), (BATCHES + 2, VALIDATION)])
def test_early_stopping_that_wants_a_metric_does_not_break_a_stop(step, validated):
    stopping = pl.callbacks.EarlyStopping("val_loss")
    trainer, _, witness = fit(SteeringCallback(), stopping, Send("stop validate=no", step=step))
    assert (witness.batches, witness.validated) == (step + 1, validated)
    assert trainer.state.status == "finished"


def test_a_plateau_that_wants_a_metric_does_not_break_a_stop():
    def configure(parameters):
        optimizer = torch.optim.SGD(parameters, lr=0.125)
        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": plateau, "monitor": "val_loss"},
        }

    sender = Send("stop validate=no", step=BATCHES - 1)
    _, _, witness = fit(SteeringCallback(), sender, model=Model(configure))
    assert (witness.batches, witness.validated) == (BATCHES, 1)


def test_a_model_without_an_optimizer():
    cb = SteeringCallback()
    sender = Send("set lr=0.5", "stop validate=no", step=2)
    _, _, witness = fit(cb, sender, model=Model(lambda parameters: None))
    assert witness.batches == 3
    assert "lr" in sender.refused["set lr=0.5"]


@pytest.mark.parametrize(
    ("options", "batches"),
    [
        ({"precision": "bf16-mixed"}, 3),
        ({"accumulate_grad_batches": 2}, 3),
        ({"overfit_batches": 2, "max_epochs": 9}, 3),
        ({"val_check_interval": 2}, 3),
        ({"check_val_every_n_epoch": 2}, 3),
        ({"limit_train_batches": 2, "max_epochs": 9}, 3),
        ({"reload_dataloaders_every_n_epochs": 1}, 3),
    ],
)
def test_kinds_of_trainings_are_stopped_at_their_batch(options, batches):
    sender = Send("set lr=0.5", "stop validate=no", step=batches - 1)
    _, _, witness = fit(SteeringCallback(), sender, **options)
    assert witness.batches == batches


def test_fast_dev_run():
    cb = SteeringCallback()
    _, _, witness = fit(cb, Send("set lr=0.5", step=0), fast_dev_run=2)
    assert (witness.batches, witness.rates) == (2, [0.125, 0.5])


def test_a_mid_epoch_validation_that_is_stopped():
    sender = Send("stop validate=no", step=0, hook="on_validation_batch_start")
    _, _, witness = fit(SteeringCallback(), sender, val_check_interval=2)
    assert (witness.batches, witness.validated) == (2, 1)


def test_several_validation_loaders_are_cut():
    class Two(Model):
        def validation_step(self, batch, batch_idx, dataloader_idx=0):
            super().validation_step(batch, batch_idx)

        def val_dataloader(self):
            return [loader(VALIDATION), loader(VALIDATION)]

    witness = Witness()
    sender = Send("stop validate=no", step=0, hook="on_validation_batch_start")
    trainer = trainer_of(witness, SteeringCallback(), sender)
    trainer.fit(Two(), loader())
    assert (witness.batches, witness.validated) == (BATCHES, 1)
    assert witness.hooks[-3:] == ["train_end", "fit_end", "teardown"]
