# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of kajitori.torch.Run: what is in them, and that a training which left and goes on is the one
that never left, to the bit."""

import json
import os
import random

import numpy as np
import pytest
import torch
from torch_training import STEPS, Training, X, Y, make_loader, refusal, results, send, settled

import kajitori
from kajitori import _steering
from kajitori import torch as kajitori_torch


@pytest.fixture(autouse=True)
def fresh_start(monkeypatch):
    monkeypatch.delenv("KAJITORI_CHECKPOINT", raising=False)
    _steering._taken_up.clear()


def cosine(optimizer):
    return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 4)


def state_of(path):
    with open(os.path.join(path, "state.json")) as file:
        return json.load(file)


class Noisy(torch.utils.data.Dataset):
    """Draws random numbers for each sample, of each generator."""

    def __len__(self):
        return len(X)

    def __getitem__(self, k):
        noise = torch.rand(1).item() + random.random() + np.random.random()
        return X[k] + noise / 8, Y[k]


def noisy_loader(**options):
    return torch.utils.data.DataLoader(Noisy(), batch_size=8, shuffle=True, **options)


@pytest.mark.parametrize(
    ("line", "place"),
    [
        ("checkpoint", {"step": 14, "epoch": 1, "loop": 0, "batch": 4}),
        ("checkpoint at=step:20", {"step": 20, "epoch": 1, "loop": 0, "batch": 10}),
        ("checkpoint at=epoch", {"step": 20, "epoch": 2, "loop": 0, "batch": 0}),
    ],
)
def test_a_checkpoint_knows_its_place_in_the_training(tmp_path, line, place):
    folder = tmp_path / "checkpoints"
    t = Training(schedule=cosine, checkpoint_dir=folder)
    t.train(3, lines={13: line})
    ((result,),) = [results("checkpoint")]
    assert result["path"] == str(folder / f"step-{place['step']:08d}")
    parts = ["model", "optimizer", "scheduler"]
    assert state_of(result["path"]) == {"format": 1, "extended": 0, "parts": parts} | place
    assert os.listdir(folder) == [os.path.basename(result["path"])]
    assert sorted(os.listdir(result["path"])) == [
        *(f"{part}.pt" for part in ("model", "optimizer", "random", "scheduler")),
        "state.json",
    ]


def test_a_second_checkpoint_of_a_step_takes_the_place_of_the_first(tmp_path):
    t = Training(checkpoint_dir=tmp_path / "c")
    t.train(1, lines={3: ("checkpoint", "checkpoint")})
    first, second = results("checkpoint")
    assert first == second
    assert len(os.listdir(tmp_path / "c")) == 1
    assert len(os.listdir(first["path"])) == 4


def test_a_checkpoint_that_fails_leaves_the_training_and_no_rubbish(tmp_path):
    class Ema:
        def state_dict(self):
            return {"folder": tmp_path}

    t = Training(checkpoint_dir=tmp_path / "c", state={"ema": Ema()})
    t.train(1, lines={3: "stop save=yes"})
    assert len(t.bodies) == STEPS
    ((state, _, error),) = settled("stop")
    assert state == "failed"
    assert "state of ema could not be loaded again" in error, "found when saved, not when needed"
    assert "GLOBAL pathlib" in error
    assert os.listdir(tmp_path / "c") == []


def test_numbers_of_numpy_in_a_learning_rate_are_saved_as_pythons(tmp_path, monkeypatch):
    def schedule(optimizer):
        return torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=np.float64(0.5))

    rate = np.logspace(-1, -3, 3)[0]
    t = Training(rate, schedule, checkpoint_dir=tmp_path)
    t.train(2, lines={STEPS + 3: "checkpoint", STEPS + 4: "stop"})
    ((result,),) = [results("checkpoint")]
    monkeypatch.setenv("KAJITORI_CHECKPOINT", result["path"])
    again = Training(rate, schedule, checkpoint_dir=tmp_path)
    assert again.optimizer.param_groups[0]["lr"] == rate / 2
    assert again.run.initial_epoch == 1
    again.run.close()


def test_a_model_whose_state_cannot_be_loaded_again_is_told_when_it_is_saved(tmp_path):
    class Keeps(torch.nn.Dropout):
        def get_extra_state(self):
            return tmp_path

    t = Training(checkpoint_dir=tmp_path)
    t.model[1].__class__ = Keeps
    t.train(1, lines={3: "checkpoint"})
    ((state, _, error),) = settled("checkpoint")
    assert state == "failed"
    assert "state of model could not be loaded again" in error


def test_what_cannot_be_saved_whole_is_refused(tmp_path):
    with kajitori_torch.Run(checkpoint_dir=tmp_path):
        assert "no model and optimizer to save" in refusal("checkpoint")
    t = Training(checkpoint_dir=tmp_path / "c")
    schedule = cosine(t.optimizer)
    t.train(1, lines={3: "checkpoint"})
    assert "has a schedule (CosineAnnealingLR)" in settled("checkpoint")[0][2]
    assert schedule.optimizer is t.optimizer
    assert not (tmp_path / "c").exists()


def test_a_checkpoint_of_ones_own(tmp_path):
    def save(run):
        torch.save({"step": run.step}, tmp_path / "own.pt")
        return tmp_path / "own.pt"

    t = Training(commands={"checkpoint": save})
    t.train(1, lines={3: "stop save=yes"})
    assert results("stop")[0]["checkpoint"]["path"] == str(tmp_path / "own.pt")
    assert torch.load(tmp_path / "own.pt") == {"step": 4}


def leave(folder, line, body=13, **options):
    """A training that leaves; the path of its checkpoint."""
    t = Training(schedule=cosine, checkpoint_dir=folder)
    with pytest.raises(kajitori.Left) as caught:
        t.train(4, lines={body: line}, **options)
    assert caught.value.code == 75
    assert t.run.run.closed
    return kajitori.journal()[-1]["checkpoint"]["path"]


def go_on(monkeypatch, folder, path, epochs=4, seed=7, **options):
    """The training that `kajitori resume` starts, to its end."""
    monkeypatch.setenv("KAJITORI_CHECKPOINT", path)
    t = Training(schedule=cosine, checkpoint_dir=folder, seed=seed)
    random.seed(seed)
    np.random.seed(seed)
    assert t.run.initial_epoch == t.run.epoch == state_of(path)["epoch"]
    t.train(epochs, **options)
    return t


def alone(**options):
    random.seed(0)
    np.random.seed(0)
    t = Training(schedule=cosine)
    t.train(4, **options)
    return t


LOADERS = {
    "noisy": noisy_loader,
    "noisy, two workers": lambda: noisy_loader(num_workers=2),
    "in order": make_loader,
}


@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize(
    ("line", "epoch"), [("pause level=leave at=epoch", 2), ("pause level=leave", 1)]
)
def test_leaving_and_going_on_is_the_training_that_never_left(
    tmp_path, monkeypatch, loader, line, epoch
):
    """Model, optimizer, schedule, order of the batches, dropout and noise, also from the middle of an
    epoch."""
    whole = alone(loader=LOADERS[loader]())
    random.seed(0)
    np.random.seed(0)
    path = leave(tmp_path, line, loader=LOADERS[loader]())
    t = go_on(monkeypatch, tmp_path, path, loader=LOADERS[loader]())
    assert t.bodies[0] == epoch
    assert t.run.step == whole.run.step == 4 * STEPS
    assert len(t.bodies) == 4 * STEPS - state_of(path)["step"]
    torch.testing.assert_close(t.weights(), whole.weights(), rtol=0, atol=0)
    torch.testing.assert_close(
        t.optimizer.state_dict(), whole.optimizer.state_dict(), rtol=0, atol=0
    )


def test_leaving_again_before_a_step(tmp_path, monkeypatch):
    """The place that was still to be got to is that of the new checkpoint, too."""
    whole = alone(loader=noisy_loader())
    random.seed(0)
    np.random.seed(0)
    path = leave(tmp_path, "pause level=leave", loader=noisy_loader())
    place = state_of(path)
    monkeypatch.setenv("KAJITORI_CHECKPOINT", path)
    t = Training(schedule=cosine, checkpoint_dir=tmp_path, seed=3)
    send("pause level=leave")
    with pytest.raises(kajitori.Left):
        t.train(4, loader=noisy_loader())
    assert t.bodies == []
    assert state_of(path) == place
    _steering._taken_up.clear()
    t = go_on(monkeypatch, tmp_path, path, loader=noisy_loader())
    torch.testing.assert_close(t.weights(), whole.weights(), rtol=0, atol=0)


def test_a_rate_that_was_set_and_epochs_that_were_added_go_on(tmp_path, monkeypatch):
    path = leave(tmp_path, ("set lr=0.5", "extend epochs=1", "pause level=leave at=epoch"))
    t = go_on(monkeypatch, tmp_path, path)
    assert t.bodies[-1] == 4
    assert t.scheduler.T_max == 5
    assert t.scheduler.base_lrs[0] > 0.4


def program(folder, lines=(), seed=0, epochs=3):
    """Two loops in an epoch, a validation and a schedule behind them."""
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(4, 1), torch.nn.Dropout(0.25))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.03125)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    run = kajitori_torch.Run(optimizer, model, schedule, checkpoint_dir=folder)
    first, second = make_loader(shuffle=True), make_loader(shuffle=True)
    place, seen = [0, 0, 0], []

    def step(epoch, loop, batch, k):
        if lines and (epoch, loop, k) == lines[0]:
            send(lines[1])
        place[:] = epoch, loop, k
        seen.append(tuple(place))
        if loop < 2:
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(batch[0]), batch[1]).backward()
            optimizer.step()

    for epoch in run.epochs(epochs):
        for k, batch in enumerate(run.steps(first)):
            step(epoch, 0, batch, k)
        for k, batch in enumerate(run.steps(second)):
            step(epoch, 1, batch, k)
        for k, batch in enumerate(run.validate(first)):
            step(epoch, 2, batch, k)
        schedule.step()
    return model.state_dict(), optimizer.state_dict(), seen


@pytest.mark.parametrize(
    ("where", "first"),
    [
        ((1, 0, 3), (1, 0, 0)),
        ((1, 1, 3), (1, 1, 0)),
        ((1, 2, 3), (1, 2, 0)),
        ((1, 1, 9), (1, 2, 0)),
    ],
)
def test_going_on_within_several_loops_and_a_validation(tmp_path, monkeypatch, where, first):
    """A validation that was left is made anew."""
    *states, _ = program(None)
    with pytest.raises(kajitori.Left):
        program(tmp_path, (where, "pause level=leave"))
    monkeypatch.setenv("KAJITORI_CHECKPOINT", kajitori.journal()[-1]["checkpoint"]["path"])
    *others, seen = program(tmp_path, seed=7)
    assert seen[0] == first
    torch.testing.assert_close(others, states, rtol=0, atol=0)


def test_a_loop_without_epochs_begins_with_the_one_of_the_checkpoint(tmp_path, monkeypatch):
    def train(run, lines=None):
        seen = []
        with run:
            for epoch in range(run.initial_epoch, 4):
                for k in run.steps(range(5)):
                    seen.append((epoch, k))
                    if (epoch, k) == lines:
                        send("pause level=leave")
        return seen

    def make():
        model = torch.nn.Linear(1, 1)
        return kajitori_torch.Run(
            torch.optim.SGD(model.parameters()), model, checkpoint_dir=tmp_path
        )

    with pytest.raises(kajitori.Left):
        train(make(), (2, 1))
    path = kajitori.journal()[-1]["checkpoint"]["path"]
    monkeypatch.setenv("KAJITORI_CHECKPOINT", path)
    run = make()
    assert train(run) == [(2, 2), (2, 3), (2, 4), *((3, k) for k in range(5))]
    assert run.step == 20


def test_two_lines_save_behind_what_the_loop_does_after_its_step(tmp_path):
    t = Training(schedule=cosine, checkpoint_dir=tmp_path)
    t.lines = {4: "stop save=yes"}
    while True:
        t.body((X, Y))
        t.scheduler.step()
        if t.run.should_stop:
            break
    path = results("stop")[0]["checkpoint"]["path"]
    assert state_of(path)["step"] == 5
    assert torch.load(os.path.join(path, "scheduler.pt"))["last_epoch"] == 5
    t.run.close()


@pytest.mark.parametrize("wrapped", [torch.nn.DataParallel, torch.compile])
def test_a_checkpoint_has_the_names_of_the_bare_model(tmp_path, wrapped, monkeypatch):
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters())
    outer = wrapped(model)
    with kajitori_torch.Run(optimizer, outer, checkpoint_dir=tmp_path) as run:
        send("checkpoint")
        run.run.poll()
    path = results("checkpoint")[0]["path"]
    assert list(torch.load(os.path.join(path, "model.pt"))) == ["weight", "bias"]
    torch.nn.init.zeros_(model.weight)
    monkeypatch.setenv("KAJITORI_CHECKPOINT", path)
    with kajitori_torch.Run(optimizer, outer, checkpoint_dir=tmp_path):
        assert model.weight.any()


def test_several_models_and_optimizers_a_scaler_and_more(tmp_path, monkeypatch):
    def make(scale):
        models = {"generator": torch.nn.Linear(1, 1), "critic": torch.nn.Linear(1, 1)}
        optimizers = {
            name: torch.optim.Adam(model.parameters(), 0.125) for name, model in models.items()
        }
        scaler = torch.amp.GradScaler("cpu", init_scale=scale)
        scaler.scale(torch.ones(1))
        average = torch.optim.swa_utils.AveragedModel(models["critic"])
        run = kajitori_torch.Run(
            optimizers, models, scaler=scaler, state={"ema": average}, checkpoint_dir=tmp_path
        )
        return run, models, optimizers, scaler

    run, models, *_ = make(4.0)
    send("set lr.critic=0.5", "checkpoint")
    with run:
        run.run.poll()
    path = results("checkpoint")[0]["path"]
    assert sorted(os.listdir(path)) == [
        *("ema.pt", "model.critic.pt", "model.generator.pt", "optimizer.critic.pt"),
        *("optimizer.generator.pt", "random.pt", "scaler.pt", "state.json"),
    ]
    monkeypatch.setenv("KAJITORI_CHECKPOINT", path)
    run, others, optimizers, scaler = make(1.0)
    run.close()
    assert scaler.get_scale() == 4.0
    assert [optimizer.param_groups[0]["lr"] for optimizer in optimizers.values()] == [0.125, 0.5]
    for name, model in models.items():
        torch.testing.assert_close(others[name].state_dict(), model.state_dict(), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: os.remove(path / "model.pt"), "FileNotFoundError"),
        (lambda path: (path / "state.json").write_text("{"), "JSONDecodeError"),
        (lambda path: (path / "state.json").write_text('{"format": 1, "step": -3}'), "step -3"),
        (lambda path: torch.save({"weight": torch.ones(3)}, path / "model.pt"), "RuntimeError"),
        (
            lambda path: (path / "state.json").write_text('{"format": 9}'),
            "a checkpoint of format 9",
        ),
    ],
)
def test_a_checkpoint_that_cannot_be_loaded_is_an_error_never_a_fresh_start(
    tmp_path, monkeypatch, damage, message
):
    path = leave(tmp_path, "pause level=leave")
    damage(type(tmp_path)(path))
    monkeypatch.setenv("KAJITORI_CHECKPOINT", path)
    with pytest.raises(kajitori.Error, match=message):
        Training(schedule=cosine, checkpoint_dir=tmp_path)
    assert kajitori.runs() == []


def test_a_checkpoint_is_taken_up_once_and_only_from_its_own_folder(tmp_path, monkeypatch):
    path = leave(tmp_path / "one", "pause level=leave at=epoch")
    monkeypatch.setenv("KAJITORI_CHECKPOINT", path)
    other = Training(schedule=cosine, checkpoint_dir=tmp_path / "other")
    assert (other.run.resumed_from, other.run.initial_epoch) == ("", 0)
    other.run.close()
    first = Training(schedule=cosine, checkpoint_dir=tmp_path / "one")
    assert (first.run.resumed_from, first.run.initial_epoch) == (path, 2)
    first.run.close()
    second = Training(schedule=cosine, checkpoint_dir=tmp_path / "one")
    assert second.run.initial_epoch == 0
    second.run.close()
