# SPDX-License-Identifier: Apache-2.0
"""SteeringCallback of Lightning: where a stop acts and who is told, what is reported, whose fits are
steered."""

import copy
import importlib
import itertools
import pickle
import sys

import lightning.pytorch as pl
import pytest
import pytorch_lightning
import torch
from lightning_fits import (
    BATCHES,
    VALIDATION,
    Model,
    Send,
    Witness,
    fit,
    loader,
    send,
    settled,
    trainer_of,
)

import kajitori
from kajitori.lightning import SteeringCallback

ENDS = ["train_epoch_end", "train_end", "fit_end", "teardown"]


def test_stop_now_ends_fit_by_lightnings_own_way():
    cb = SteeringCallback()
    trainer, _, witness = fit(cb, Send("stop reason=enough", step=3))
    assert witness.batches == 4
    assert witness.hooks == ["train_start", "validation_end", *ENDS]
    assert witness.validated == VALIDATION
    assert (cb.run.ending, cb.run.stop_reason, cb.run.closed) == ("stop", "enough", True)
    assert trainer.state.status == "finished"


def test_a_line_into_a_fifo_stops(tmp_path):
    class Echo(pl.Callback):
        def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
            if batch_idx == 3:
                (tmp_path / "ctl").write_text("stop validate=no\n")
                while not any(line.get("verb") == "stop" for line in kajitori.journal()):
                    pass

    _, _, witness = fit(SteeringCallback(fifo=tmp_path / "ctl"), Echo())
    assert (witness.batches, witness.validated) == (4, 0)
    assert not (tmp_path / "ctl").exists()


@pytest.mark.parametrize(
    ("line", "batches", "validations"),
    [
        ("stop validate=no", 4, 0),
        ("stop validate=yes", 4, 1),
        ("stop at=step:8", 8, 2),
        (f"stop at=step:{2 * BATCHES}", 2 * BATCHES, 2),
        ("stop at=epoch", BATCHES, 1),
        ("stop at=epoch:1", 2 * BATCHES, 2),
        ("prune", 4, 1),
    ],
)
def test_a_stop_acts_exactly_where_it_was_asked_for(line, batches, validations):
    cb = SteeringCallback()
    _, _, witness = fit(cb, Send(line, step=3))
    assert (witness.batches, witness.hooks.count("validation_end")) == (batches, validations)
    assert witness.hooks[-3:] == ENDS[1:]
    assert cb.pruned == (line == "prune")


def test_skip_validation_is_the_default_for_stops_that_say_nothing():
    _, _, witness = fit(SteeringCallback(skip_validation=True), Send("stop", step=3))
    assert (witness.batches, witness.validated) == (4, 0)
    _, _, witness = fit(SteeringCallback(skip_validation=True), Send("stop validate=yes", step=3))
    assert (witness.batches, witness.validated) == (4, VALIDATION)


def test_a_stop_goes_before_min_epochs_and_min_steps():
    trainer, _, witness = fit(
        SteeringCallback(), Send("stop", step=3), min_epochs=2, min_steps=9, max_epochs=4
    )
    assert witness.batches == 4
    assert (trainer.min_epochs, trainer.min_steps) == (2, 9)


def test_a_stop_of_another_callback_is_held_back_by_min_epochs_as_always():
    class Stop(pl.Callback):
        def on_train_batch_end(self, trainer, *args):
            trainer.should_stop = True

    _, _, witness = fit(SteeringCallback(), Stop(), min_epochs=2, max_epochs=4)
    assert witness.batches == 2 * BATCHES


@pytest.mark.parametrize(
    ("line", "validated", "rest"),
    [("stop", VALIDATION, "runs to its end"), ("stop validate=no", 2, "skipped")],
)
def test_a_stop_in_a_validation_is_applied_at_its_batch(line, validated, rest):
    cb = SteeringCallback()
    sender = Send(line, step=1, hook="on_validation_batch_start")
    trainer, _, witness = fit(cb, sender)
    assert (witness.batches, witness.validated) == (BATCHES, validated)
    assert witness.hooks == ["train_start", "validation_end", *ENDS]
    assert rest in str(kajitori.journal())
    assert trainer.callback_metrics["val_loss"] > 0


def test_a_stop_in_the_sanity_check_trains_nothing():
    class Ask(Send):
        def on_validation_batch_start(self, trainer, *args):
            send("stop")

    cb = SteeringCallback()
    _, _, witness = fit(cb, Ask(step=-1), num_sanity_val_steps=2)
    assert (witness.batches, witness.hooks) == (0, ["fit_end", "teardown"])
    assert (cb.run.ending, cb.run.closed) == ("stop", True)


def test_at_step_0_nothing_is_trained(tmp_path, monkeypatch):
    plan = tmp_path / "plan"
    plan.write_text("stop at=step:0\n")
    monkeypatch.setenv("KAJITORI_SCHEDULE", str(plan))
    _, _, witness = fit(SteeringCallback())
    assert (witness.batches, witness.hooks) == (0, ["train_start", *ENDS[1:]])


def test_metrics_have_lightnings_names_and_steps():
    seen = []

    class Watch(SteeringCallback):
        def _report(self, metrics):
            super()._report(metrics)
            seen.append((self.step, self.epoch, {k: float(v) for k, v in metrics.items()}))

    trainer, _, _ = fit(Watch(), max_epochs=2, num_sanity_val_steps=2)
    epochs = [row for row in seen if "loss_epoch" in row[2]]
    validations = [row for row in seen if "val_loss" in row[2]]
    assert [row[:2] for row in epochs] == [(BATCHES, 0), (2 * BATCHES, 1)]
    assert [row[:2] for row in validations] == [(BATCHES, 0), (2 * BATCHES, 1)]
    assert set(seen[0][2]) == {"loss", "loss_step"}
    assert seen[0][0] == 1
    assert validations[-1][2] == {
        "val_loss": pytest.approx(trainer.callback_metrics["val_loss"].item())
    }
    assert all("val_loss" not in row[2] for row in seen if row not in validations)


def test_metrics_reach_the_stream():
    told = []

    def look(cb):
        with kajitori.connect() as client:
            told.extend(metric["tag"] for metric in client.status()["metrics"])

    fit(SteeringCallback(commands={"look": look}), Send("look", step=BATCHES + 1))
    assert {"loss", "loss_step", "loss_epoch", "val_loss"} <= set(told)


def test_status_knows_the_place_and_the_length():
    told = []

    def look(cb):
        with kajitori.connect() as client:
            told.append(client.status() | kajitori.runs()[0].json)

    sender = Send("look", step=BATCHES + 1)
    fit(SteeringCallback(commands={"look": look}), sender, num_sanity_val_steps=1)
    status = told[0]
    assert (status["step"], status["epoch"], status["phase"]) == (BATCHES + 2, 1, "train")
    assert (status["total_steps"], status["total_epochs"]) == (3 * BATCHES, 3)
    assert status["framework"].startswith("lightning.pytorch 2.")


def test_a_second_fit_is_a_run_of_its_own():
    cb = SteeringCallback()
    witness = Witness()
    trainer = trainer_of(witness, cb, Send("stop", step=3))
    model = Model()
    trainer.fit(model, loader(), loader(VALIDATION))
    first = cb.run.id
    trainer.fit(model, loader(), loader(VALIDATION))
    assert cb.run.id != first
    assert witness.batches > 4
    assert "Last" not in [type(one).__name__ for one in trainer.callbacks]


def test_a_run_of_ones_own_serves_several_fits():
    with kajitori.Run(name="two") as run:
        cb = SteeringCallback(run=run)
        fit(cb, max_epochs=1)
        assert (run.step, run.closed) == (BATCHES, False)
        _, _, witness = fit(cb, Send(f"stop at=step:{BATCHES + 2}", step=0), max_epochs=1)
        assert (witness.batches, run.step) == (2, BATCHES + 2)


def test_validate_test_and_predict_are_not_steered(tmp_path):
    cb = SteeringCallback()
    trainer, model, _ = fit(cb, max_epochs=1)
    run = cb.run
    model.test_step = model.validation_step
    model.predict_step = lambda batch, batch_idx: model.layer(batch[0])
    trainer.validate(model, loader(), verbose=False)
    trainer.predict(model, loader())
    assert cb.run is run
    fresh = SteeringCallback()
    trainer_of(fresh).validate(model, loader(), verbose=False)
    assert fresh.run is None


def test_a_fit_inside_of_a_fit_is_a_run_of_its_own():
    inner = SteeringCallback(name="inner")
    told = []

    class Nested(pl.Callback):
        def on_train_epoch_start(self, trainer, pl_module):
            if not told:
                told.append(fit(inner, max_epochs=1, validate=False)[2].batches)

    outer = SteeringCallback(name="outer")
    sender = Send("stop", step=3, run=lambda: None)
    sender.run = None
    _, _, witness = fit(outer, Nested(), Send("stop at=step:9", step=8))
    assert (told, witness.batches) == ([BATCHES], 9)
    assert inner.run.id != outer.run.id
    assert inner.run.ending is None


def test_one_callback_cannot_steer_two_fits_at_once():
    cb = SteeringCallback()

    class Nested(pl.Callback):
        def on_train_epoch_start(self, trainer, pl_module):
            fit(cb, max_epochs=1)

    with pytest.raises(kajitori.StateError, match="give each its own"):
        fit(cb, Nested())
    assert cb.run.closed


def test_an_exception_closes_the_run():
    class Broken(Model):
        def training_step(self, batch, batch_idx):
            if batch_idx == 2:
                raise ValueError("broken")
            return super().training_step(batch, batch_idx)

    cb = SteeringCallback()
    with pytest.raises(ValueError, match="broken"):
        fit(cb, model=Broken())
    assert cb.run.closed
    assert kajitori.runs() == []
    _, _, witness = fit(cb, max_epochs=1)
    assert witness.batches == BATCHES


def test_ctrl_c_closes_the_run():
    class Interrupt(pl.Callback):
        def on_train_batch_end(self, trainer, *args):
            raise KeyboardInterrupt

    cb = SteeringCallback()
    with pytest.raises(SystemExit) as ended:
        fit(cb, Interrupt())
    assert ended.value.code == 1
    assert cb.run.closed


def test_copies_and_pickles_have_no_part_in_the_run():
    copies = []

    class Copy(pl.Callback):
        def on_train_batch_start(self, trainer, *args):
            if not copies:
                copies.extend([copy.copy(cb), copy.deepcopy(trainer.callbacks[-1])])

    cb = SteeringCallback()
    fit(cb, Copy(), max_epochs=1)
    assert [(one.run, one.trainer) for one in copies] == [(None, None)] * 2
    assert pickle.loads(pickle.dumps(cb)).run is None
    _, _, witness = fit(copies[0], Send("stop", step=2), max_epochs=1)
    assert witness.batches == 3


def test_a_trainer_of_the_other_package():
    class Other(pytorch_lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch, batch_idx):
            return self.layer(batch[0]).mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.125)

    cb = SteeringCallback()
    trainer = trainer_of(cb, package=pytorch_lightning)
    batches = []

    class Count(pytorch_lightning.Callback):
        def on_train_batch_end(self, *args):
            batches.append(len(batches))
            if len(batches) == 3:
                send("stop at=epoch")

    trainer.callbacks.append(Count())
    trainer.fit(Other(), loader())
    assert len(batches) == BATCHES
    assert cb.run.ending == "stop"


def test_without_lightning_it_says_what_to_install(monkeypatch):
    for name in ("lightning.pytorch", "pytorch_lightning"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "kajitori.lightning")
    with pytest.raises(ImportError, match=r"needs PyTorch Lightning \(pip install lightning\)"):
        importlib.import_module("kajitori.lightning")


def endless():
    for k in itertools.count():
        torch.manual_seed(k)
        x = torch.rand(4)
        yield x, x.sum(dim=0, keepdim=True)


class Endless(torch.utils.data.IterableDataset):
    def __iter__(self):
        return endless()


def test_data_without_a_length():
    data = torch.utils.data.DataLoader(Endless(), batch_size=4)
    _, _, witness = fit(SteeringCallback(), Send("stop validate=no", step=7), data=data)
    assert (witness.batches, witness.validated) == (8, 0)


def test_workers_of_a_loader_go_on_after_a_pause():
    import threading

    def resume():
        with kajitori.connect() as client:
            while client.status()["state"] != "paused":
                pass
            client.resume()

    class Resume(pl.Callback):
        def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
            if batch_idx == 2:
                send("pause")
                threading.Thread(target=resume, daemon=True).start()

    model = Model()
    data = loader(num_workers=1, persistent_workers=True)
    _, _, witness = fit(SteeringCallback(), Resume(), model=model, data=data, max_epochs=1)
    plain = Model()
    fit(model=plain, max_epochs=1)
    assert witness.batches == BATCHES
    assert model.losses == plain.losses
    assert [state for state, *_ in settled("pause")] == ["applied"]
