# SPDX-License-Identifier: Apache-2.0
"""What SteeringCallback of Lightning does with set lr, checkpoint and going on, extend, evaluate, own
verbs, leave and abort."""

import lightning.pytorch as pl
import pytest
import torch
from lightning_fits import (
    BATCHES,
    VALIDATION,
    Model,
    Send,
    Witness,
    fit,
    loader,
    result_of,
    send,
    settled,
    trainer_of,
)
from torch.optim import lr_scheduler

import kajitori
from kajitori import _steering
from kajitori.lightning import SteeringCallback


@pytest.fixture(autouse=True)
def fresh_start(monkeypatch):
    monkeypatch.delenv("KAJITORI_CHECKPOINT", raising=False)
    _steering._taken_up.clear()


def scheduled(make, interval="epoch", **more):
    """configure_optimizers with SGD of rate 0.125 and this schedule."""

    def configure(parameters):
        optimizer = torch.optim.SGD(parameters, lr=0.125)
        config = {"scheduler": make(optimizer), "interval": interval} | more
        return {"optimizer": optimizer, "lr_scheduler": config}

    return configure


def test_set_lr_is_read_back_and_used_by_the_next_batch():
    _, _, witness = fit(SteeringCallback(), Send("set lr=0.5", step=2), max_epochs=1)
    assert witness.rates == [0.125] * 3 + [0.5] * 3
    assert settled("set") == [("applied", {"lr": 0.125}, {"lr": 0.5}, None)]


def test_set_lr_reaches_all_groups():
    def configure(parameters):
        weight, bias = parameters
        groups = [{"params": [weight]}, {"params": [bias], "lr": 0.25}]
        return torch.optim.SGD(groups, lr=0.125)

    model = Model(configure)
    _, _, witness = fit(SteeringCallback(), Send("set lr=0.5", step=2), model=model, max_epochs=1)
    assert witness.rates[-2:] == [0.5, 1.0]


@pytest.mark.parametrize(
    ("make", "interval"),
    [
        (lambda o: lr_scheduler.LambdaLR(o, lambda k: 0.5**k), "epoch"),
        (lambda o: lr_scheduler.StepLR(o, step_size=1, gamma=0.5), "epoch"),
        (lambda o: lr_scheduler.LambdaLR(o, lambda k: 0.5 ** (k // BATCHES)), "step"),
    ],
)
def test_set_lr_moves_a_schedule(make, interval):
    model = Model(scheduled(make, interval))
    _, _, witness = fit(SteeringCallback(), Send("set lr=1.0", step=2), model=model)
    assert witness.rates == [0.125] * 3 + [1.0] * 3 + [0.5] * BATCHES + [0.25] * BATCHES


def test_set_lr_and_reduce_on_plateau():
    make = lambda o: lr_scheduler.ReduceLROnPlateau(o, factor=0.5, patience=0, threshold=1e9)  # noqa: E731
    model = Model(scheduled(make, monitor="val_loss"))
    _, _, witness = fit(SteeringCallback(), Send("set lr=1.0", step=2), model=model)
    assert witness.rates == [0.125] * 3 + [1.0] * 3 + [0.5] * BATCHES + [0.25] * BATCHES


def manual(model):
    """Two optimizers by hand, both stepped in each batch."""
    model.automatic_optimization = False

    def step(batch, batch_idx):
        loss = torch.nn.functional.mse_loss(model.layer(batch[0]), batch[1])
        for optimizer in model.optimizers():
            optimizer.zero_grad()
        model.manual_backward(loss)
        for optimizer in model.optimizers():
            optimizer.step()

    model.training_step = step
    model.optimizers_of = lambda p: [torch.optim.SGD([one], 0.125) for one in p]
    return model


def test_manual_optimization_with_several_optimizers():
    cb = SteeringCallback()
    sender = Send("set lr.1=0.5", "get global_step", "stop at=step:4", step=2)
    trainer, _, witness = fit(cb, sender, model=manual(Model()))
    assert witness.batches == 4
    assert trainer.global_step == 8
    assert witness.rates[-2:] == [0.125, 0.5]


def test_a_step_is_a_batch_when_gradients_are_accumulated():
    trainer, _, witness = fit(
        SteeringCallback(), Send("stop at=step:4 validate=no", step=1), accumulate_grad_batches=3
    )
    assert (witness.batches, trainer.global_step) == (4, 1)


def test_extend_epochs():
    trainer, _, witness = fit(SteeringCallback(), Send("extend epochs=2", step=2), max_epochs=1)
    assert (witness.batches, trainer.max_epochs) == (3 * BATCHES, 3)
    result = result_of("extend")
    assert (result["total_epochs"], result["total_steps"]) == (3, 3 * BATCHES)


def test_extend_at_the_last_moment():
    sender = Send("extend epochs=1 at=epoch", step=0)
    _, _, witness = fit(SteeringCallback(), sender, max_epochs=1)
    assert witness.batches == 2 * BATCHES


def test_extend_steps():
    trainer, _, witness = fit(
        SteeringCallback(), Send("extend steps=4", step=2), max_epochs=-1, max_steps=5
    )
    assert (witness.batches, trainer.max_steps) == (9, 9)
    assert result_of("extend")["total_steps"] == 9


def test_extend_tells_the_schedule():
    one_cycle = lambda o: lr_scheduler.OneCycleLR(o, max_lr=1.0, total_steps=2 * BATCHES)  # noqa: E731
    model = Model(scheduled(one_cycle, "step"))
    _, _, witness = fit(
        SteeringCallback(), Send("extend epochs=1", step=2), model=model, max_epochs=2
    )
    assert witness.batches == 3 * BATCHES
    assert result_of("extend")["schedules"] == {
        "OneCycleLR": f"total_steps {2 * BATCHES} -> {3 * BATCHES}"
    }


@pytest.mark.parametrize(
    ("line", "options", "reason"),
    [
        ("extend steps=5", {}, "no max_steps; extend epochs"),
        ("extend epochs=5", {"max_epochs": -1, "max_steps": 8}, "no max_epochs; extend steps"),
        ("extend epochs=5", {"max_epochs": 2, "max_steps": 8}, "max_steps=8 may end this training"),
        (
            "extend steps=5",
            {"max_epochs": -1, "max_steps": 8, "accumulate_grad_batches": 2},
            "counts steps of optimizers",
        ),
    ],
)
def test_what_cannot_be_extended_says_why(line, options, reason):
    fit(SteeringCallback(), Send(line, step=1), validate=False, **options)
    state, _, _, error = settled("extend")[-1]
    assert state == "failed"
    assert reason in str(error)


def test_evaluate_is_a_validation_in_between():
    model, plain = Model(), Model()
    _, _, witness = fit(SteeringCallback(), Send("evaluate", step=2), model=model)
    fit(model=plain)
    assert witness.hooks.count("validation_end") == 4
    assert result_of("evaluate")["val_loss"] > 0
    assert model.losses == plain.losses
    assert all(one.training for one in model.modules())


def test_evaluate_at_the_end_of_an_epoch():
    model, plain = Model(), Model()
    _, _, witness = fit(SteeringCallback(), Send("evaluate at=epoch", step=2), model=model)
    fit(model=plain)
    assert witness.hooks.count("validation_end") == 4
    assert model.losses == plain.losses


def test_evaluate_in_a_validation_and_without_one_is_refused():
    fit(SteeringCallback(), Send("evaluate", step=1, hook="on_validation_batch_start"))
    state, _, _, error = settled("evaluate")[-1]
    assert (state, "a validation is going on" in str(error)) == ("failed", True)
    sender = Send("evaluate", step=1)
    fit(SteeringCallback(), sender, validate=False)
    assert "this training has no validation" in sender.refused["evaluate"]


def test_a_validation_that_breaks_is_the_senders_failure():
    class Broken(Model):
        def validation_step(self, batch, batch_idx):
            if self.trainer.fit_loop.epoch_loop.batch_idx < BATCHES - 1:
                raise ValueError("broken")
            return super().validation_step(batch, batch_idx)

    model = Broken()
    _, _, witness = fit(SteeringCallback(), Send("evaluate", step=2), model=model, max_epochs=1)
    assert "broken" in str(settled("evaluate"))
    assert witness.batches == BATCHES
    assert all(one.training for one in model.modules())


def test_own_verbs_and_parameters():
    def look(cb, count):
        """Tells where it is."""
        return [count, type(cb.model).__name__, cb.trainer.global_step, cb.step, cb.epoch]

    settings = {"alpha": 0.5}
    cb = SteeringCallback(
        commands={"look": (look, {"count": int})},
        parameters={"alpha": (lambda: settings["alpha"], lambda v: settings.update(alpha=v), 0, 1)},
    )
    fit(cb, Send("look count=3", "set alpha=0.25", step=3))
    assert result_of("look") == [3, "Model", 4, 4, 0]
    assert settings == {"alpha": 0.25}


def test_without_a_folder_a_checkpoint_is_refused_with_the_reason():
    lines = ("checkpoint", "stop save=yes", "pause level=leave")
    sender = Send(*lines, step=1)
    fit(SteeringCallback(), sender, max_epochs=1)
    assert tuple(sender.refused) == lines
    assert all("no checkpoint_dir" in why for why in sender.refused.values())


# Leaving and going on.


class Progress(pl.Callback):
    """What the training saw: batches, validations, ends of epochs."""

    def __init__(self):
        self.events = []

    def on_train_batch_end(self, trainer, *args):
        self.events.append(("batch", trainer.current_epoch, trainer.global_step))

    def on_validation_end(self, trainer, *args):
        if not trainer.sanity_checking:
            self.events.append(("validation", trainer.current_epoch))

    def on_train_epoch_end(self, trainer, *args):
        self.events.append(("epoch", trainer.current_epoch))


def adam(parameters):
    optimizer = torch.optim.Adam(parameters, lr=0.125)
    return [optimizer], [{"scheduler": lr_scheduler.StepLR(optimizer, 1, 0.5), "interval": "epoch"}]


def whole(**options):
    progress = Progress()
    stopping = pl.callbacks.EarlyStopping("val_loss", patience=50)
    trainer, model, _ = fit(progress, stopping, model=Model(adam), **options)
    return progress.events, model, stopping, trainer


def leave(folder, line="pause level=leave", step=3, hook="on_train_batch_start", **options):
    progress = Progress()
    stopping = pl.callbacks.EarlyStopping("val_loss", patience=50)
    cb = SteeringCallback(checkpoint_dir=folder)
    with pytest.raises(kajitori.Left):
        fit(cb, progress, stopping, Send(line, step=step, hook=hook), model=Model(adam), **options)
    return progress.events, result_of("checkpoint" if "checkpoint" in line else "pause")


def go_on(monkeypatch, path, folder=None, given=None, **options):
    monkeypatch.setenv("KAJITORI_CHECKPOINT", str(path))
    progress = Progress()
    stopping = pl.callbacks.EarlyStopping("val_loss", patience=50)
    cb = SteeringCallback(checkpoint_dir=folder or path.parent)
    assert cb.resumed_from == str(path)
    trainer, model, _ = fit(
        cb,
        progress,
        stopping,
        model=Model(adam),
        ckpt_path=given,
        num_sanity_val_steps=2,
        **options,
    )
    return progress.events, model, stopping, trainer


@pytest.mark.parametrize("is_given", [False, True])
@pytest.mark.parametrize("options", [{}, {"max_epochs": -1, "max_steps": 3 * BATCHES}])
def test_leaving_at_the_end_of_an_epoch_and_going_on_is_exact(
    tmp_path, monkeypatch, options, is_given
):
    expected, plain, plain_stopping, _ = whole(**options)
    before, _ = leave(tmp_path, "pause level=leave at=epoch", **options)
    (path,) = tmp_path.glob("*.ckpt")
    assert path.name == f"step-{BATCHES:08d}.ckpt"
    leave_again(monkeypatch, path, **options)
    given = str(path) if is_given else None
    after, model, stopping, trainer = go_on(monkeypatch, path, given=given, **options)
    assert before + after == expected
    assert all(map(torch.equal, model.parameters(), plain.parameters()))
    assert stopping.state_dict() == plain_stopping.state_dict()
    assert trainer.lr_scheduler_configs[0].scheduler.last_epoch == 3


@pytest.mark.parametrize(
    ("step", "hook"),
    [
        (2, "on_train_batch_start"),
        (BATCHES - 1, "on_train_batch_start"),
        (1, "on_validation_batch_start"),
        (VALIDATION - 1, "on_validation_batch_start"),
    ],
)
@pytest.mark.parametrize("options", [{}, {"max_epochs": -1, "max_steps": 3 * BATCHES}])
def test_going_on_from_elsewhere_leaves_nothing_out(tmp_path, monkeypatch, step, hook, options):
    expected, _, _, _ = whole(**options)
    before, _ = leave(tmp_path, step=step, hook=hook, **options)
    (path,) = tmp_path.glob("*.ckpt")
    leave_again(monkeypatch, path, **options)
    after, _, _, _ = go_on(monkeypatch, path, **options)
    assert before + after == expected


def leave_again(monkeypatch, path, **options):
    """A training that goes on, and leaves before its first step, saves the same place."""
    plan = path.parent / "plan"
    plan.write_text("pause level=leave at=step:0\n")
    with monkeypatch.context() as context:
        context.setenv("KAJITORI_SCHEDULE", str(plan))
        with pytest.raises(kajitori.Left):
            go_on(context, path, **options)
    assert list(path.parent.glob("*.ckpt")) == [path]
    _steering._taken_up.clear()


def test_steps_are_counted_on_in_an_epoch_that_is_gone_on_with(tmp_path, monkeypatch):
    leave(tmp_path, step=2)
    (path,) = tmp_path.glob("*.ckpt")
    monkeypatch.setenv("KAJITORI_CHECKPOINT", str(path))
    plan = tmp_path / "plan"
    plan.write_text("stop at=step:5 validate=no\n")
    monkeypatch.setenv("KAJITORI_SCHEDULE", str(plan))
    cb = SteeringCallback(checkpoint_dir=tmp_path)
    _, _, witness = fit(cb, model=Model(adam))
    assert (path.name, witness.batches) == ("step-00000003.ckpt", 2)
    assert (cb.step, cb.epoch) == (5, 0)


def test_a_checkpoint_of_the_sanity_check_is_one_of_the_beginning(tmp_path, monkeypatch):
    class Ask(pl.Callback):
        def on_validation_batch_start(self, trainer, pl_module, batch, batch_idx):
            if trainer.sanity_checking and batch_idx == 0:
                send("checkpoint")

    expected, _, _, _ = whole()
    cb = SteeringCallback(checkpoint_dir=tmp_path)
    fit(cb, Ask(), model=Model(adam), num_sanity_val_steps=2)
    (path,) = tmp_path.glob("*.ckpt")
    assert path.name == "step-00000000.ckpt"
    after, _, _, _ = go_on(monkeypatch, path)
    assert after == expected


def test_a_checkpoint_before_the_first_step(tmp_path, monkeypatch):
    plan = tmp_path / "plan"
    plan.write_text("checkpoint at=step:0\n")
    options = {"max_epochs": -1, "max_steps": 2 * BATCHES}
    with monkeypatch.context() as context:
        context.setenv("KAJITORI_SCHEDULE", str(plan))
        fit(SteeringCallback(checkpoint_dir=tmp_path), model=Model(adam), **options)
    (path,) = tmp_path.glob("*.ckpt")
    expected, _, _, _ = whole(**options)
    after, _, _, _ = go_on(monkeypatch, path, **options)
    assert after == expected


def test_a_checkpoint_does_not_disturb_the_training(tmp_path):
    model, plain = Model(adam), Model(adam)
    lines = ("checkpoint", "checkpoint at=epoch", "checkpoint at=step:9")
    fit(SteeringCallback(checkpoint_dir=tmp_path), Send(*lines, step=2), model=model)
    fit(model=plain)
    assert model.losses == plain.losses
    assert len(list(tmp_path.glob("*.ckpt"))) == 3


def test_extended_and_left_goes_on_to_the_new_end(tmp_path, monkeypatch):
    cb = SteeringCallback(checkpoint_dir=tmp_path)
    sender = Send("extend epochs=2", "pause level=leave at=epoch", step=2)
    with pytest.raises(kajitori.Left):
        fit(cb, sender, model=Model(adam), max_epochs=1)
    (path,) = tmp_path.glob("*.ckpt")
    events, _, _, trainer = go_on(monkeypatch, path, max_epochs=1)
    assert (trainer.max_epochs, events[-1]) == (3, ("epoch", 2))


def test_a_damaged_checkpoint_is_an_exception(tmp_path, monkeypatch):
    path = tmp_path / "step-00000004.ckpt"
    path.write_bytes(b"no checkpoint")
    with pytest.raises(kajitori.FailedError, match="cannot go on from the checkpoint"):
        go_on(monkeypatch, path)


def test_the_checkpoint_of_another_folder_is_not_taken(tmp_path, monkeypatch):
    monkeypatch.setenv("KAJITORI_CHECKPOINT", str(tmp_path / "elsewhere" / "step-00000004.ckpt"))
    cb = SteeringCallback(checkpoint_dir=tmp_path / "here")
    _, _, witness = fit(cb, max_epochs=1)
    assert (cb.resumed_from, witness.batches) == ("", BATCHES)


@pytest.mark.parametrize(("line", "error"), [("abort", kajitori.Aborted)])
def test_abort_leaves_fit_and_others_are_told(line, error):
    cb = SteeringCallback()
    witness = Witness()
    trainer = trainer_of(witness, cb, Send(line, step=3))
    with pytest.raises(error):
        trainer.fit(Model(), loader(), loader(VALIDATION))
    assert (witness.batches, witness.hooks) == (4, ["train_start", "exception"])
    assert cb.run.closed
