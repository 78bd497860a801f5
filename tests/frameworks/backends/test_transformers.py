# SPDX-License-Identifier: Apache-2.0
"""SteeringCallback of the Hugging Face Trainer: when each verb acts, and what it leaves alone."""

import math

import pytest
import torch
import transformers
from tiny_trainer import (
    DATA,
    EVALUATIONS,
    STEPS,
    In,
    Network,
    Send,
    journal,
    make_trainer,
    results,
    train,
)
from training import applied

import kajitori
from kajitori.transformers import SteeringCallback

AT_EPOCHS = {"eval_strategy": "epoch"}


def test_stop_ends_the_training_and_the_code_behind_it_runs(tmp_path):
    cb = SteeringCallback()
    trainer, guard = train(tmp_path, cb, Send("stop reason=enough"), logging_steps=1)
    assert (guard.steps, guard.epochs, guard.ends) == (3, [0.3], 1)
    assert cb.run.closed
    assert (cb.run.ending, cb.run.stop_reason, cb.step) == ("stop", "enough", 3)
    assert [entry["step"] for entry in trainer.state.log_history] == [1, 2, 3, 3]
    assert "train_runtime" in trainer.state.log_history[-1]
    assert kajitori.runs() == []


@pytest.mark.parametrize(
    ("line", "steps", "epoch"),
    [("stop at=step:17", 17, 1), ("stop at=epoch", STEPS, 0), ("stop at=epoch:1", 2 * STEPS, 1)],
)
def test_a_stop_acts_where_it_is_told_to(tmp_path, line, steps, epoch):
    _, guard = train(tmp_path, SteeringCallback(), Send(line))
    assert guard.steps == steps
    assert [(at["step"], at["epoch"]) for at in applied()] == [(steps, epoch)]


def test_a_stop_between_accumulated_batches_lets_the_step_be_done_whole(tmp_path):
    cb = SteeringCallback()
    send = Send("stop", nth=3, hook="on_substep_end")
    trainer, guard = train(tmp_path, cb, send, gradient_accumulation_steps=3)
    assert (guard.steps, trainer.state.global_step) == (2, 2)
    assert [at["step"] for at in applied()] == [1]


def test_between_accumulated_batches_what_needs_no_whole_step_acts(tmp_path):
    seen = []
    cb = SteeringCallback(commands={"own": lambda cb: seen.append(cb.state.global_step)})
    lines = ("pause", "own", "set lr=0.5", "resume")
    send = Send(*lines, nth=1, hook="on_substep_end")
    trainer, _ = train(tmp_path, cb, send, gradient_accumulation_steps=5, max_steps=1)
    assert seen == [0]
    assert [line["verb"] for line in applied()] == ["pause", "own", "set", "resume"]
    assert trainer.optimizer.param_groups[0]["lr"] == 0.5


def test_a_stop_before_the_first_step_ends_after_it(tmp_path):
    send = Send("stop", nth=1, hook="on_epoch_begin")
    _, guard = train(tmp_path, SteeringCallback(), send)
    assert guard.steps == 1


@pytest.mark.parametrize(
    ("line", "skips", "predicted", "said"),
    [
        ("stop", False, EVALUATIONS, "runs to its end"),
        ("stop validate=no", False, 2, "skipped"),
        ("stop", True, 2, "skipped"),
        ("stop validate=yes", True, EVALUATIONS, "runs to its end"),
        ("prune validate=no", False, 2, "skipped"),
    ],
)
def test_a_stop_during_the_validation_says_what_becomes_of_it(
    tmp_path, line, skips, predicted, said
):
    cb = SteeringCallback(skip_validation=skips)
    send = Send(line, nth=2, hook="on_prediction_step")
    trainer, guard = train(tmp_path, cb, send, eval_accumulation_steps=1, **AT_EPOCHS)
    assert (guard.steps, guard.evaluations, trainer.model.predicted) == (STEPS, 1, predicted)
    assert results(line.split()[0]) == [{"validation": said}]
    assert applied()[-1]["phase"] == "validation"
    assert math.isfinite(trainer.state.log_history[-2]["eval_loss"])
    assert cb.pruned is line.startswith("prune")
    trainer.evaluate()
    assert trainer.model.predicted == predicted + EVALUATIONS, "the next one is whole"


@pytest.mark.parametrize(
    ("line", "strategy", "evaluations"),
    [
        ("stop", "epoch", 1),
        ("stop", "no", 0),
        ("stop validate=no", "epoch", 0),
        ("stop validate=yes", "epoch", 1),
        ("stop validate=yes", "steps", 1),
        ("stop validate=yes", "no", 1),
        ("stop validate=yes at=epoch", "epoch", 1),
        ("stop validate=yes at=epoch", "no", 1),
    ],
)
def test_whether_a_stop_is_followed_by_a_validation(tmp_path, line, strategy, evaluations):
    options = {"eval_strategy": strategy, "eval_steps": 7}
    _, guard = train(tmp_path, SteeringCallback(), Send(line), **options)
    assert guard.evaluations == evaluations
    assert guard.steps == (STEPS if "epoch" in line else 3)


def test_where_validation_cannot_be_chosen_the_choice_is_refused(tmp_path):
    send = Send("stop validate=no", "evaluate")
    trainer = make_trainer(tmp_path, SteeringCallback(), send, max_steps=4)
    trainer.eval_dataset = None
    trainer.train()
    assert "cannot choose whether it validates" in send.refused["stop validate=no"]
    assert "no eval_dataset" in send.refused["evaluate"]


def test_evaluate_answers_and_leaves_the_training_alone(tmp_path):
    """To the last bit, with the same log, and nobody who counts evaluations is told."""
    early = transformers.EarlyStoppingCallback(1)
    options = AT_EPOCHS | {"logging_steps": 4, "num_train_epochs": 2}
    options |= {"metric_for_best_model": "eval_loss"}
    alone, _ = train(tmp_path, SteeringCallback(), **options)
    asked, guard = train(
        tmp_path, SteeringCallback(), early, Send("evaluate", "evaluate", nth=4), **options
    )
    first, second = results("evaluate")
    assert first["eval_loss"] == second["eval_loss"]
    assert [at["step"] for at in applied()] == [4, 4]
    assert guard.evaluations == 4
    assert early.early_stopping_patience_counter == 0
    for one, other in zip(alone.model.parameters(), asked.model.parameters(), strict=True):
        assert torch.equal(one, other)
    steps = [entry["step"] for entry in asked.state.log_history if "loss" in entry]
    assert steps == [4, 8, 12, 16, 20]


def test_set_lr_is_read_back_and_acts_on_every_group(tmp_path):
    cb = SteeringCallback()
    trainer, _ = train(tmp_path, cb, Send("set lr=0.5"), max_steps=5)
    assert [(line["old"], line["new"]) for line in applied()] == [({"lr": 0.125}, {"lr": 0.5})]
    groups = trainer.optimizer.param_groups
    assert [group["lr"] for group in groups] == [0.5, 0.5]
    trainer, _ = train(tmp_path, cb, Send("set lr.1=0.25"), max_steps=5)
    assert [group["lr"] for group in trainer.optimizer.param_groups] == [0.125, 0.25]


@pytest.mark.parametrize(
    "kind", ["linear", "cosine", "constant_with_warmup", "reduce_lr_on_plateau"]
)
def test_set_lr_goes_through_the_schedule(tmp_path, kind):
    """From then on it gives what it would have given, in proportion."""
    options = {"lr_scheduler_type": kind, "max_steps": 8, "logging_steps": 1, "warmup_steps": 2}
    options |= AT_EPOCHS | {"metric_for_best_model": "eval_loss"}
    alone, _ = train(tmp_path, **options)
    steered, _ = train(tmp_path, SteeringCallback(), Send("set lr=0.5", nth=4), **options)
    rates = [
        [entry["learning_rate"] for entry in trainer.state.log_history if "loss" in entry]
        for trainer in (alone, steered)
    ]
    before = rates[0][:4] + [rate * (0.5 / rates[0][4]) for rate in rates[0][4:]]
    assert rates[1] == pytest.approx(before)


@pytest.mark.parametrize("kind", ["linear", "cosine", "polynomial", "warmup_stable_decay"])
def test_extend_is_the_longer_training_from_then_on(tmp_path, kind):
    options = {"lr_scheduler_type": kind, "logging_steps": 1, "warmup_steps": 2}
    if kind == "warmup_stable_decay":
        options["lr_scheduler_kwargs"] = {"num_decay_steps": 4}
    longer, _ = train(tmp_path, num_train_epochs=3, **options)
    cb = SteeringCallback()
    steered, guard = train(tmp_path, cb, Send("extend epochs=2"), num_train_epochs=1, **options)
    assert (guard.steps, guard.epochs) == (30, [1, 2, 3])
    assert results("extend") == [{"total_steps": 30, "total_epochs": 3, "schedule": "told"}]
    rates = [
        [entry["learning_rate"] for entry in trainer.state.log_history if "loss" in entry]
        for trainer in (longer, steered)
    ]
    assert rates[1][3:] == pytest.approx(rates[0][3:])


@pytest.mark.parametrize(("steps", "nth"), [(15, 3), (15, 15), (20, 20)])
def test_extend_steps_also_at_the_last_step(tmp_path, steps, nth):
    cb = SteeringCallback()
    send = Send("pause", "resume", "extend steps=12", "pause", "resume", nth=nth)
    trainer, guard = train(tmp_path, cb, send, max_steps=steps)
    assert (guard.steps, guard.ends) == (steps + 12, 1)
    assert trainer.state.epoch == pytest.approx((steps + 12) / STEPS)
    assert results("extend")[0]["schedule"] == "does not depend on the length"
    remarks = [line.get("remark", "") for line in journal("pause", "done")]
    assert [remark.endswith("without extend") for remark in remarks] == [False, True]


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter(DATA)


def test_data_without_length(tmp_path):
    options = {"data": Stream(), "max_steps": 15}
    send = Send("extend steps=12", "extend epochs=1", "stop at=step:24")
    _, guard = train(tmp_path, SteeringCallback(), send, **options)
    assert guard.steps == 24
    (done, refused) = journal("extend")
    assert done["result"]["total_steps"] == 27
    assert "no length" in refused["error"]


def test_extend_with_a_schedule_of_ones_own_is_refused(tmp_path):
    model = Network()
    optimizer = torch.optim.SGD(model.parameters(), 0.125)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.5, total_steps=10)
    send = Send("extend epochs=1", nth=2)
    _, guard = train(
        tmp_path,
        SteeringCallback(),
        send,
        model=model,
        optimizers=(optimizer, schedule),
        num_train_epochs=1,
    )
    assert guard.steps == STEPS
    assert "schedule of the program's own (OneCycleLR)" in journal("extend", "failed")[0]["error"]


def test_extend_of_a_training_that_others_end_is_refused(tmp_path):
    class Ends(transformers.TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            control.should_training_stop = state.global_step == 3

    _, guard = train(tmp_path, Ends(), Send("extend epochs=1"), SteeringCallback())
    assert guard.steps == 3
    assert "ending already" in journal("extend", "failed")[0]["error"]


def test_metrics_have_the_names_of_the_trainer(tmp_path):
    seen, frameworks = {}, []

    def look():
        with kajitori.connect() as client:
            status = client.status()
        seen.update({metric["tag"]: metric for metric in status["metrics"]})
        seen["status"] = status
        frameworks.extend(run.framework for run in kajitori.runs())

    cb = SteeringCallback()
    trainer, _ = train(
        tmp_path, cb, In(look, nth=15), logging_steps=4, num_train_epochs=2, **AT_EPOCHS
    )
    status = seen.pop("status")
    assert {"loss", "grad_norm", "learning_rate", "eval_loss"} <= set(seen)
    assert "epoch" not in seen
    history = {entry["step"]: entry for entry in trainer.state.log_history if "loss" in entry}
    assert (seen["loss"]["step"], seen["loss"]["value"]) == (12, history[12]["loss"])
    assert seen["eval_loss"]["step"] == 10
    assert (status["step"], status["epoch"], status["phase"]) == (14, 1, "train")
    assert (status["total_steps"], status["total_epochs"]) == (20, 2)
    (run,) = frameworks
    assert run == f"transformers {transformers.__version__}"


def test_the_phase_is_that_of_the_loop(tmp_path):
    phases = []

    def look():
        with kajitori.connect() as client:
            phases.append(client.status()["phase"])

    send = Send("status", nth=2, hook="on_prediction_step")
    options = {"num_train_epochs": 2} | AT_EPOCHS
    train(
        tmp_path,
        SteeringCallback(),
        send,
        In(look, 3, "on_prediction_step"),
        In(look, 11),
        **options,
    )
    assert phases == ["validation", "train"]


def test_pause_and_resume_with_the_workers_of_a_loader(tmp_path):
    """All rows once, in order."""
    seen = []
    model = Network()
    model.register_forward_pre_hook(
        lambda module, args, kwargs: seen.append(kwargs["x"][0, 0].item()), with_kwargs=True
    )
    _, guard = train(
        tmp_path,
        SteeringCallback(),
        Send("pause", "resume"),
        model=model,
        num_train_epochs=1,
        dataloader_num_workers=1,
    )
    assert guard.steps == STEPS
    assert sorted(seen) == sorted(set(seen))
    assert [line["verb"] for line in applied()] == ["pause", "resume"]


def test_abort_leaves_train_at_once_and_closes_the_run(tmp_path):
    cb = SteeringCallback()
    with pytest.raises(kajitori.Aborted) as caught:
        train(tmp_path, cb, Send("abort"))
    assert caught.value.code == cb.run.exit_status == 77
    assert cb.run.closed
    assert kajitori.runs() == []
