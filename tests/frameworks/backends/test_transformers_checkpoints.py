# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of the Hugging Face Trainer on request: whole, where the Trainer looks for them, and
enough to go on as if nothing had happened."""

import json
import os
import subprocess

import pytest
import torch
import transformers
from tiny_trainer import STEPS, Guard, Send, journal, make_trainer, results, train
from training import PATIENCE

import kajitori
from kajitori.transformers import SteeringCallback


@pytest.fixture(autouse=True)
def fresh_start(monkeypatch):
    monkeypatch.delenv("KAJITORI_CHECKPOINT", raising=False)


def checkpoints(folder):
    return sorted(os.listdir(folder))


def same(one, other):
    pairs = zip(one.model.state_dict().values(), other.model.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize(
    ("line", "step"), [("checkpoint", 3), ("checkpoint at=step:7", 7), ("checkpoint at=epoch", 10)]
)
def test_a_checkpoint_is_the_trainers_own(tmp_path, line, step):
    cb = SteeringCallback()
    options = {"num_train_epochs": 1, "save_only_model": True}
    trainer, guard = train(tmp_path / "out", cb, Send(line), **options)
    path = tmp_path / "out" / f"checkpoint-{step}"
    assert results("checkpoint") == [{"path": str(path)}]
    files = {"optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json"}
    assert files <= set(checkpoints(path))
    assert checkpoints(tmp_path / "out") == [path.name]
    assert (guard.steps, guard.saves) == (STEPS, 1)
    assert trainer.args.save_only_model


def test_what_the_trainer_saves_and_logs_at_that_step_it_does_all_the_same(tmp_path):
    options = {"num_train_epochs": 1, "save_strategy": "steps", "save_steps": 4}
    options |= {"logging_steps": 4, "eval_strategy": "steps", "eval_steps": 4}
    out = tmp_path / "out"
    send = Send("checkpoint", "evaluate", nth=4)
    trainer, guard = train(out, SteeringCallback(), send, **options)
    assert checkpoints(out) == ["checkpoint-10", "checkpoint-4", "checkpoint-8"]
    assert guard.saves == 4
    logged = [entry["step"] for entry in trainer.state.log_history if "loss" in entry]
    evaluated = [entry["step"] for entry in trainer.state.log_history if "eval_loss" in entry]
    assert (logged, evaluated) == ([4, 8], [4, 4, 8, 10])


def test_a_folder_of_ones_own_is_not_swept_by_the_trainer(tmp_path):
    cb = SteeringCallback(checkpoint_dir=tmp_path / "own")
    options = {"num_train_epochs": 1, "save_strategy": "steps", "save_steps": 2}
    train(tmp_path / "out", cb, Send("checkpoint", "checkpoint"), save_total_limit=1, **options)
    assert checkpoints(tmp_path / "own") == ["checkpoint-3"]
    assert checkpoints(tmp_path / "out") == ["checkpoint-10"]


def best_model(**options):
    return {
        "load_best_model_at_end": True,
        "metric_for_best_model": "eval_loss",
        "eval_strategy": "steps",
        "save_strategy": "steps",
        "eval_steps": 2,
        "save_steps": 2,
    } | options


class Worse(transformers.TrainerCallback):
    """Has the first evaluation be the best."""

    def on_step_end(self, args, state, control, model=None, **kwargs):
        if state.global_step > 2:
            with torch.no_grad():
                model.last.bias += 10


def test_after_a_stop_the_best_model_is_loaded_and_the_checkpoint_of_the_stop_is_kept(tmp_path):
    options = best_model(save_total_limit=1)
    trainer, guard = train(
        tmp_path, Worse(), SteeringCallback(), Send("stop save=yes", nth=5), **options
    )
    assert (guard.steps, guard.ends) == (5, 1)
    assert {"checkpoint-2", "checkpoint-5"} <= set(checkpoints(tmp_path))
    assert trainer.state.best_model_checkpoint == str(tmp_path / "checkpoint-2")
    assert trainer.model.last.bias.abs() < 5, "the best model"
    assert trainer.args.save_total_limit == 1
    told = {line["remark"] for line in journal("stop", "accepted", "applied", "done")}
    assert told == {"at the end of train the best model is loaded (load_best_model_at_end)"}


def test_a_checkpoint_that_fails_leaves_the_training_and_no_rubbish(tmp_path):
    out = tmp_path / "out"
    trainer = make_trainer(out, SteeringCallback(), Send("stop save=yes"), num_train_epochs=1)

    def fail(*args, **kwargs):
        raise OSError("the disk is full")

    trainer._save_optimizer_and_scheduler = fail
    trainer.train()
    assert trainer.state.global_step == STEPS
    assert "disk is full" in journal("stop", "failed")[0]["error"]
    assert checkpoints(out) == []
    assert trainer.args.output_dir == str(out)


def test_a_checkpoint_of_ones_own(tmp_path):
    def save(cb):
        cb.trainer.save_model(tmp_path / "own")
        return tmp_path / "own"

    train(tmp_path / "out", SteeringCallback(commands={"checkpoint": save}), Send("stop save=yes"))
    assert results("stop")[0]["checkpoint"]["path"] == str(tmp_path / "own")


@pytest.mark.parametrize(
    ("line", "options"),
    [
        ("pause level=leave", {}),
        ("pause level=leave at=epoch", {}),
        ("pause level=leave", {"gradient_accumulation_steps": 3}),
    ],
)
def test_leaving_and_going_on_is_the_training_that_never_left(tmp_path, monkeypatch, line, options):
    """To the last bit, with its schedule as it was steered, and its log."""
    options |= {"num_train_epochs": 3, "logging_steps": 1, "lr_scheduler_type": "linear"}
    whole, _ = train(tmp_path, SteeringCallback(), Send("set lr=0.0625", nth=2), **options)

    cb = SteeringCallback(checkpoint_dir=tmp_path / "own")
    with pytest.raises(kajitori.Left) as caught:
        train(tmp_path, cb, Send("set lr=0.0625", nth=2), Send(line, nth=3), **options)
    assert caught.value.code == 75
    assert kajitori.runs() == []
    path = kajitori.journal(cb.run.id)[-1]["checkpoint"]["path"]
    monkeypatch.setenv("KAJITORI_CHECKPOINT", path)
    again, guard = SteeringCallback(checkpoint_dir=tmp_path / "own"), Guard()
    assert again.resumed_from == path
    trainer = make_trainer(tmp_path, guard, again, **options)
    trainer.train(resume_from_checkpoint=again.resumed_from or None)
    assert trainer.state.global_step == whole.state.global_step == again.step
    assert guard.steps == trainer.state.global_step - int(path.rpartition("-")[2])
    assert same(trainer, whole)
    history = [entry for entry in whole.state.log_history if "loss" in entry]
    assert [entry for entry in trainer.state.log_history if "loss" in entry] == history
    assert again.epoch == 2


def test_leaving_during_an_evaluation_goes_on_with_the_next_step(tmp_path, monkeypatch):
    options = {"num_train_epochs": 2, "eval_strategy": "epoch"}
    whole, _ = train(tmp_path, **options)
    cb = SteeringCallback()
    send = Send("pause level=leave", nth=2, hook="on_prediction_step")
    with pytest.raises(kajitori.Left):
        train(tmp_path, cb, send, **options)
    path = kajitori.journal(cb.run.id)[-1]["checkpoint"]["path"]
    assert path == str(tmp_path / "checkpoint-10")
    guard = Guard()
    trainer = make_trainer(tmp_path, guard, SteeringCallback(), **options)
    trainer.train(resume_from_checkpoint=path)
    assert (guard.steps, guard.evaluations) == (STEPS, 1)
    assert same(trainer, whole)


def test_a_checkpoint_that_is_gone_is_an_error_and_no_fresh_start(tmp_path, monkeypatch):
    monkeypatch.setenv("KAJITORI_CHECKPOINT", str(tmp_path / "checkpoint-7"))
    cb = SteeringCallback()
    trainer = make_trainer(tmp_path, cb, num_train_epochs=1)
    with pytest.raises((OSError, ValueError), match="checkpoint-7"):
        trainer.train(resume_from_checkpoint=cb.resumed_from or None)
    assert kajitori.runs() == []


def points(spec):
    """What `kajitori events` prints of a source."""
    done = subprocess.run(
        [os.environ.get("KAJITORI_BIN", "kajitori"), "events", spec, "--format", "jsonl"],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    return [(row["tag"], row["step"], row["value"]) for row in rows]


def test_the_log_of_a_real_trainer_as_a_source_of_metrics(tmp_path):
    """`kajitori events trainer:DIR` gives what its state says, of its own saves and of ours."""
    options = best_model(num_train_epochs=1, logging_steps=3, save_total_limit=2)
    trainer, _ = train(tmp_path, SteeringCallback(), Send("checkpoint", nth=9), **options)
    assert points(f"trainer:{tmp_path}")[-1][1] == 10, "before the whole state is there"
    trainer.save_state()
    expected = [
        (tag, entry["step"], value)
        for entry in trainer.state.log_history
        for tag, value in entry.items()
        if tag != "step"
    ]
    assert sorted(points(f"trainer:{tmp_path}")) == sorted(expected)
    evaluations = [point for point in expected if point[0] == "eval_loss"]
    assert points(f"trainer:{tmp_path}:eval/loss") == evaluations
    assert [point[1] for point in evaluations] == [2, 4, 6, 8, 10]
