# SPDX-License-Identifier: Apache-2.0
"""Loops of kajitori.torch.Run: how they go on, when verbs act in them, and how they end."""

import copy
import multiprocessing
import pickle
import sys
import threading

import accelerate
import pytest
import torch
from torch_training import STEPS, Training, X, Y, make_loader, refusal, results, send, settled
from training import PATIENCE, applied, finish, last_json, outside

import kajitori
from kajitori import torch as kajitori_torch


def test_left_alone_the_loops_are_those_of_the_user():
    t = Training()
    assert t.train(2) == [0, 1]
    assert t.bodies == [0] * STEPS + [1] * STEPS
    assert (t.run.step, t.run.epoch, t.run.ending) == (2 * STEPS, 1, None)
    assert t.run.run.closed
    assert kajitori.runs() == []


def test_stop_now_lets_the_step_that_runs_come_to_its_end():
    t = Training()
    assert t.train(9, lines={13: "stop reason=enough"}) == [0, 1]
    assert len(t.bodies) == 14
    assert (t.run.should_stop, t.run.stop_reason, t.run.ending) == (True, "enough", "stop")


@pytest.mark.parametrize(("step", "epochs"), [(14, [0, 1]), (20, [0, 1]), (1, [0])])
def test_stop_at_a_step_runs_exactly_the_steps_before_it(step, epochs):
    """Also where it is the first of an epoch: that one does not begin."""
    t = Training()
    assert t.train(9, lines={0: f"stop at=step:{step}"}) == epochs
    assert len(t.bodies) == t.run.step == step


def test_stop_at_the_end_of_an_epoch():
    t = Training()
    assert t.train(9, lines={13: "stop at=epoch"}) == [0, 1]
    assert len(t.bodies) == 2 * STEPS


def test_a_stop_before_the_first_step_runs_nothing():
    t = Training()
    send("stop")
    assert t.train(9) == []
    assert t.bodies == []


def test_each_verb_has_its_answer_while_the_training_goes_on():
    t = Training(evaluate=lambda run: {"loss": torch.tensor(0.5), "step": run.step})
    sender = None
    for _ in t.run.epochs(10**6):
        for batch in t.run.steps(make_loader()):
            t.body(batch)
            sender = sender or outside(
                "r = [c.send(line) for line in ('set lr=0.25', 'get lr', 'evaluate', 'note hello')]\n"
                "r.append(c.status())\n"
                "c.stop()\n"
                "print(json.dumps(r, default=str))\n"
            )
    changed, got, measured, noted, status = last_json(sender)
    assert (changed["old"], changed["new"]) == ({"lr": 0.125}, {"lr": 0.25})
    assert got["result"]["params"][0]["value"] == 0.25
    assert measured["result"]["loss"] == 0.5
    assert noted["state"] == "done"
    assert (status["total_epochs"], status["phase"]) == (10**6, "train")


def test_pause_keeps_the_iterator_and_resume_goes_on():
    t = Training()

    def go_on():
        with kajitori.connect() as client:
            while client.status()["state"] != "paused":
                pass
            client.send("set lr=0.25")
            client.send("resume")

    other = threading.Thread(target=go_on)
    other.start()
    assert t.train(1, lines={3: "pause"}) == [0]
    other.join(PATIENCE)
    assert len(t.bodies) == STEPS
    assert [line["verb"] for line in applied()] == ["pause", "set", "resume"]


@pytest.mark.parametrize("persistent", [False, True])
def test_workers_of_a_loader_go_on_after_a_pause_and_are_gone_after_a_stop(persistent):
    loader = make_loader(num_workers=2, persistent_workers=persistent)
    t = Training()
    pids = []

    def workers():
        pids.append({child.pid for child in multiprocessing.active_children()})

    resumer = None
    for _ in t.run.epochs(3):
        for batch in t.run.steps(loader):
            t.lines = {3: "pause for=0.01", 15: "stop"} if resumer is None else t.lines
            resumer = True
            t.body(batch)
            workers()
    assert len(t.bodies) == 16
    assert all(len(seen) == 2 for seen in pids)
    first, last = pids[0], pids[-1]
    assert pids[:STEPS] == [first] * STEPS
    assert (first == last) is persistent
    del loader
    assert multiprocessing.active_children() == []


def test_break_and_continue_in_the_body():
    run = kajitori_torch.Run()
    seen = []
    for epoch in run.epochs(3):
        for k in run.steps(range(STEPS)):
            if k == 1:
                continue
            if k == 4:
                break
            seen.append((epoch, run.step))
    assert seen == [(e, 5 * e + k) for e in range(3) for k in (0, 2, 3)]
    assert run.step == 15, "each batch that was given is a step"


@pytest.mark.parametrize("with_epochs", [True, False])
def test_an_exception_out_of_the_loops_leaves_no_door_behind(with_epochs):
    run = kajitori_torch.Run()

    def train():
        for k in run.steps(range(STEPS)):
            1 / (3 - k)

    def program():
        if not with_epochs:
            with run:
                train()
        for _ in run.epochs(1):
            train()

    with pytest.raises(ZeroDivisionError):
        program()
    assert run.run.closed
    assert run.step == 4
    assert kajitori.runs() == []


def test_keyboard_interrupt_while_paused_leaves_the_loop():
    out = finish(
        """
        import os, signal, threading, kajitori, kajitori.torch

        def interrupt():
            with kajitori.connect() as client:
                while client.status()["state"] != "paused":
                    pass
            os.kill(os.getpid(), signal.SIGINT)

        run = kajitori.torch.Run()
        try:
            with run:
                for k in run.steps(range(5)):
                    if k == 1:
                        with kajitori.connect() as client:
                            client.send("pause", wait="accepted")
                        threading.Thread(target=interrupt).start()
        except KeyboardInterrupt:
            print("interrupted in step", run.step, run.run.closed)
        """
    )
    assert out == "interrupted in step 2 True\n"


def test_lengths_and_loaders_without_one():
    run = kajitori_torch.Run()
    assert (len(run.epochs(3)), len(run.steps(make_loader())), len(run.validate([1]))) == (
        3,
        STEPS,
        1,
    )
    with pytest.raises(TypeError):
        len(run.steps(iter([1])))
    with run:
        assert list(run.steps(iter([1, 2]))) == [1, 2]
        assert list(zip(run.steps("ab"), "cd", strict=True)) == [("a", "c"), ("b", "d")]
    assert run.step == 4


def test_several_loaders_in_an_epoch_and_one_in_another():
    run = kajitori_torch.Run()
    seen = []
    for epoch in run.epochs(5):
        for a in run.steps("ab"):
            for b in run.steps("xy"):
                seen.append((epoch, a, b, run.step))
                if (epoch, a, b) == (1, "a", "x"):
                    send("stop")
    assert seen[4:] == [(1, "a", "x", 6)]
    assert run.step == 8, "the outer step, too"


def test_a_loop_without_epochs_is_an_epoch():
    run = kajitori_torch.Run()
    seen = []
    with run:
        for _ in range(5):
            if run.should_stop:
                break
            for _ in run.steps(range(3)):
                seen.append(run.epoch)
                if run.step == 4:
                    send("stop at=epoch")
    assert seen == [0, 0, 0, 1, 1, 1]


def test_accumulated_gradients_are_one_step():
    run = kajitori_torch.Run()
    seen = []
    for _ in run.epochs(2):
        for _ in run.steps(range(10), accumulate=4):
            seen.append(run.step)
            if len(seen) == 12:
                send("stop")
    assert seen == [0] * 4 + [1] * 4 + [2] * 2 + [3] * 4, (
        "the last batches of an epoch are one, too"
    )


def test_what_is_asked_for_wrongly():
    run = kajitori_torch.Run()
    with pytest.raises(kajitori.ArgumentError, match="accumulate"):
        run.steps([], accumulate=0)
    with pytest.raises(kajitori.ArgumentError, match="is no whole number"):
        run.epochs("3")
    with pytest.raises(kajitori.ArgumentError, match="model: int has no state_dict"):
        kajitori_torch.Run(model=3)
    with pytest.raises(kajitori.ArgumentError, match="neither epoch nor step"):
        run.prune_with(None, "loss", per="batch")
    message = r"metric loss: one number is wanted, not Tensor of shape \(3,\)"
    with pytest.raises(kajitori.ArgumentError, match=message):
        run.report(loss=torch.ones(3))
    with pytest.raises(kajitori.ArgumentError, match="metric loss: one number is wanted, not None"):
        run.report(loss=None)
    run.close()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"optimizer": torch.nn.Linear(1, 1)}, "optimizer: Linear is no torch.optim.Optimizer"),
        ({"optimizer": [None]}, "optimizer: NoneType is no torch.optim.Optimizer"),
        ({"evaluate": "loss"}, "evaluate: str is no function"),
        ({"state": [torch.nn.Linear(1, 1)]}, "state: list is no dict"),
        ({"state": {"a/b": torch.nn.Linear(1, 1)}}, "state: 'a/b' cannot name a file"),
        ({"state": {"random": torch.nn.Linear(1, 1)}}, "state: the name 'random' is taken"),
        (
            {"model": torch.nn.Linear(1, 1), "state": {"model": torch.nn.Linear(1, 1)}},
            "state: the name 'model' is taken",
        ),
        ({"run": 3}, "run: int is no kajitori.Run"),
        ({"checkpoint_dir": 3}, "checkpoint_dir: 3 is no path"),
        ({"commands": [print]}, "commands: list is no dict"),
        ({"parameters": 3}, "parameters: 3 is no kajitori.Param"),
        ({"parameters": ["lr"]}, "parameters: 'lr' is no kajitori.Param"),
    ],
)
def test_wrong_arguments_are_refused_and_leave_no_run_open(arguments, message):
    with pytest.raises(kajitori.ArgumentError, match=message):
        kajitori_torch.Run(**arguments)
    assert kajitori.runs() == []


def test_an_empty_list_of_optimizers_is_none():
    run = kajitori_torch.Run([])
    assert refusal("set lr=1").startswith('no parameter "lr"')
    run.close()


# The two-line form


def loop_with_two_lines(t, lines, end=30):
    t.lines = lines
    batches = list(make_loader())
    for k in range(end):
        t.body(batches[k % STEPS])
        if t.run.should_stop:
            break
    return len(t.bodies)


@pytest.mark.parametrize(
    ("line", "steps"),
    [("stop", 14), ("stop at=step:14", 14), ("stop at=step:20", 20), ("stop at=epoch", 14)],
)
def test_two_lines_stop(line, steps):
    """A step is one of the optimizer; where nothing says what an epoch is, its end is that of the step."""
    t = Training()
    assert loop_with_two_lines(t, {13: line}) == t.run.step == steps
    assert [line["step"] for line in applied()] == [steps]
    t.run.close()


def test_two_lines_and_the_loop_looks_before_its_step():
    t = Training()
    while not t.run.should_stop:
        t.lines |= {4: "stop at=step:7"} if len(t.bodies) < 5 else {}
        t.body((X, Y))
    assert len(t.bodies) == 7
    t.run.close()


def test_two_lines_pause_and_set_where_the_loop_never_looks():
    t = Training()
    t.lines = {3: ("set lr=0.25", "pause for=0.01")}
    with t.run:
        for _ in range(9):
            t.body((X, Y))
    assert [(line["verb"], line["step"]) for line in applied()] == [("set", 4), ("pause", 4)]
    assert t.optimizer.param_groups[0]["lr"] == 0.25


def test_two_lines_count_steps_of_the_optimizer():
    """With accumulated gradients fewer than batches; those that a GradScaler leaves out are none."""
    t = Training()
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    with t.run:
        for k in range(12):
            loss = torch.nn.functional.mse_loss(t.model(X), Y) / (0 if k == 7 else 1)
            scaler.scale(loss).backward()
            if k % 2:
                scaler.step(t.optimizer)
                scaler.update()
                t.optimizer.zero_grad()
    assert t.run.step == 5


def test_two_lines_act_behind_the_schedule():
    """The place that the reply names is the one at which the loop looks."""
    t = Training(schedule=lambda o: torch.optim.lr_scheduler.ExponentialLR(o, 0.5))
    t.lines = {1: "set lr=0.5"}
    for _ in range(4):
        t.body((X, Y))
        t.scheduler.step()
        if t.run.should_stop:
            break
    ((change,),) = [[line for line in applied() if line["verb"] == "set"]]
    assert (change["old"], change["new"]) == ({"lr": 0.03125}, {"lr": 0.5})
    assert t.optimizer.param_groups[0]["lr"] == 0.125
    t.run.close()


def test_a_compiled_step_is_counted_and_its_rate_set():
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=torch.tensor(0.0))
    run = kajitori_torch.Run(optimizer)
    step = torch.compile(optimizer.step, backend="eager")
    seen = []
    with run:
        for k in range(6):
            torch.nn.functional.mse_loss(model(X), Y).backward()
            before = model.bias.detach().clone()
            step()
            seen.append(bool((model.bias != before).any()))
            if k == 2:
                send("set lr=0.25")
            assert not run.should_stop
    assert seen == [False] * 3 + [True] * 3
    assert run.step == 6


def test_an_optimizer_that_a_library_has_wrapped():
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.125)
    wrapped = accelerate.Accelerator(cpu=True).prepare(optimizer)
    with kajitori_torch.Run(wrapped) as run:
        for k in range(3):
            model(X).sum().backward()
            wrapped.step()
            if k == 0:
                send("set lr=0.5")
            assert not run.should_stop
    assert (run.step, optimizer.param_groups[0]["lr"]) == (3, 0.5)


# Validation


def validated(line, at, skip=None, epochs=3):
    run = kajitori_torch.Run(skip_validation=skip)
    trained, tested = [], []
    for epoch in run.epochs(epochs):
        for k in run.steps(range(STEPS)):
            trained.append(epoch)
            if at == ("train", epoch, k):
                send(line)
        for k in run.validate(range(STEPS)):
            tested.append(epoch)
            if at == ("validation", epoch, k):
                send(line)
    return len(trained), len(tested), run


@pytest.mark.parametrize(
    ("line", "skip", "tested", "said"),
    [
        ("stop", None, STEPS, "runs to its end"),
        ("stop", True, 4, "skipped"),
        ("stop validate=no", None, 4, "skipped"),
        ("stop validate=yes", True, STEPS, "runs to its end"),
        ("prune validate=no", None, 4, "skipped"),
    ],
)
def test_a_stop_within_a_validation_acts_at_its_batch(line, skip, tested, said):
    trained, seen, run = validated(line, ("validation", 0, 3), skip)
    assert (trained, seen) == (STEPS, tested)
    assert results(line.split()[0]) == [{"validation": said}]
    assert run.pruned is line.startswith("prune")


@pytest.mark.parametrize(
    ("line", "skip", "tested"),
    [("stop", False, STEPS), ("stop validate=no", False, 1), ("stop", True, 1)],
)
def test_a_stop_before_a_validation_leaves_one_batch_of_it_or_all(line, skip, tested):
    """One, so that what divides by their number goes on working."""
    trained, seen, run = validated(line, ("train", 0, 2), skip)
    assert (trained, seen) == (3, tested)
    assert run.skips_validation is (tested == 1)


def test_without_a_validation_of_ours_nobody_promises_to_skip_it():
    with kajitori_torch.Run() as run:
        assert "cannot choose" in refusal("stop validate=no")
        list(run.validate("a"))
        send("stop validate=no")


def test_pause_within_a_validation():
    trained, seen, _ = validated("pause for=0.01", ("validation", 0, 3), epochs=1)
    assert (trained, seen) == (STEPS, STEPS)
    assert [line["phase"] for line in applied()] == ["validation"]


def test_a_validation_after_the_run_is_a_plain_loop():
    run = kajitori_torch.Run()
    list(run.epochs(1))
    assert list(run.validate("abc")) == ["a", "b", "c"]


# Metrics, own verbs, endings


def test_metrics_reach_the_stream_with_step_and_epoch():
    t = Training()
    seen = None
    for epoch in t.run.epochs(2):
        for batch in t.run.steps(make_loader()):
            t.run.log(loss=t.body(batch))
        t.run.report({"val/loss": 0.5 - epoch}, accuracy=torch.tensor(0.75))
        with kajitori.connect() as client:
            seen = {point["tag"]: point for point in client.status()["metrics"]}
    assert list(seen) == ["loss", "val/loss", "accuracy"]
    assert seen["accuracy"]["value"] == 0.75
    assert (seen["val/loss"]["value"], seen["val/loss"]["step"]) == (-0.5, 2 * STEPS)


def test_own_verbs_and_parameters_get_the_run():
    dropout = {"p": 0.5}
    t = Training(
        commands={"where": lambda run, plus: {"step": run.step + plus}},
        parameters={"dropout": (lambda: dropout["p"], lambda p: dropout.update(p=p), 0, 1)},
    )
    t.run.close()
    t = Training(
        commands={
            "where": (lambda run, plus: {"step": run.step + plus}, {"plus": int}),
            "fail": lambda run: 1 / 0,
        },
        parameters={"dropout": (lambda: dropout["p"], lambda p: dropout.update(p=p), 0, 1)},
    )
    t.train(1, lines={3: ("where plus=100", "set dropout=0.25", "fail")})
    assert results("where") == [{"step": 104}]
    assert dropout == {"p": 0.25}
    assert settled("fail")[0][2] == "ZeroDivisionError: division by zero"
    assert len(t.bodies) == STEPS


def test_prune_is_a_stop_that_says_so():
    t = Training()
    assert t.train(9, lines={13: "prune rule=median"}) == [0, 1]
    assert (t.run.pruned, t.run.ending, t.run.run.exit_status) == (True, "prune", 76)


@pytest.mark.parametrize("line", ["abort", "abort reason=bad"])
def test_abort_leaves_the_loops_and_closes_the_run(line):
    t = Training()
    with pytest.raises(kajitori.Aborted) as caught:
        t.train(9, lines={13: line})
    assert caught.value.code == 77
    assert len(t.bodies) == 14
    assert t.run.run.closed
    assert kajitori.runs() == []


def test_extend_within_the_last_epoch_and_the_schedule_told():
    t = Training(schedule=lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 2))
    assert t.train(2, lines={13: "extend epochs=2"}) == [0, 1, 2, 3]
    told = {"total_epochs": 4, "schedules": {"CosineAnnealingLR": "T_max 2 -> 4"}}
    assert results("extend") == [told]
    assert t.optimizer.param_groups[0]["lr"] == pytest.approx(0)


def test_extend_at_the_end_of_the_last_epoch():
    assert Training().train(2, lines={13: "extend epochs=1 at=epoch"}) == [0, 1, 2]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("extend steps=5", "no number of steps"),
        ("extend epochs=1", "OneCycleLR ends the training by an exception after its 25 steps"),
    ],
)
def test_extend_is_refused_where_it_cannot_be(line, reason):
    t = Training(schedule=lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.1, total_steps=25))
    assert t.train(2, lines={3: line}) == [0, 1]
    ((state, _, error),) = settled("extend")
    assert state == "failed"
    assert reason in error


def test_extend_and_others_are_refused_with_the_reason():
    run = kajitori_torch.Run()
    assert "no checkpoint_dir" in refusal("checkpoint")
    assert "no checkpoint_dir" in refusal("pause level=leave")
    assert "no function evaluate" in refusal("evaluate")
    list(run.steps([1]))
    send("extend epochs=1")
    list(run.steps([1]))
    assert "not one over run.epochs" in settled("extend")[0][2]
    run.close()


def test_evaluate_leaves_the_training_as_it_was():
    def measure(run):
        assert not torch.is_grad_enabled()
        return {"training": t.model.training, "x": float(torch.rand(1))}

    alone = Training()
    alone.train(2)
    t = Training(evaluate=measure)
    t.model[1].eval()  # as some do with parts of a model
    t.model[1].train()
    t.train(2, lines={3: "evaluate", 5: "evaluate at=epoch"})
    assert [what["training"] for what in results("evaluate")] == [False, False]
    assert [step for _, step, _ in settled("evaluate")] == [4, STEPS]
    assert t.model.training
    torch.testing.assert_close(t.weights(), alone.weights(), rtol=0, atol=0)


def test_several_trainings_with_one_run():
    with kajitori.Run() as run:
        first = Training(run=run)
        first.train(1)
        assert not run.closed
        second = Training(run=run)
        assert second.run.step == STEPS
        second.train(1, lines={3: ("set lr=0.5", "stop")})
        assert run.step == STEPS + 4
        assert (first.optimizer.param_groups[0]["lr"], second.optimizer.param_groups[0]["lr"]) == (
            0.125,
            0.5,
        )
        assert second.train(1) == [], "a run that was stopped stays stopped"


def test_a_loop_after_the_end_is_a_run_of_its_own():
    t = Training()
    t.train(9, lines={3: "stop"})
    first = t.run.run.id
    assert t.train(1) == [0]
    assert t.run.run.id != first
    assert len(t.bodies) == 4 + STEPS


def test_a_loop_within_with_is_one_of_several():
    with Training().run as run:
        list(run.epochs(2))
        assert not run.run.closed
        list(run.epochs(1))
    assert run.run.closed


def test_a_break_out_of_the_epochs_ends_the_run():
    run = kajitori_torch.Run()
    for _ in run.epochs(3):
        for _ in run.steps(range(3)):
            break
        break
    assert (run.run.closed, run.step, run.ending) == (True, 1, None)


def test_nothing_of_it_can_be_copied():
    with kajitori_torch.Run() as run:
        for act in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(kajitori.UnsupportedError, match="belongs to its training"):
                act(run)


def test_the_optimizer_forgets_a_run_that_has_ended_and_can_be_copied_before():
    t = Training()
    copy.deepcopy(t.optimizer)
    t.run.close()
    t.body((X, Y))
    assert t.run.step == 0


def test_commands_through_a_fifo(tmp_path):
    t = Training(fifo=tmp_path / "ctl")
    for _ in t.run.epochs(10**6):
        for batch in t.run.steps(make_loader()):
            t.body(batch)
            if len(t.bodies) == 5:
                (tmp_path / "ctl").write_text("stop\n")
    assert t.run.ending == "stop"
    assert not (tmp_path / "ctl").exists()


def test_importing_the_package_imports_no_torch_and_without_it_says_what_to_install():
    out = finish(
        """
        import sys, kajitori
        assert "torch" not in sys.modules
        sys.modules["torch"] = None
        try:
            import kajitori.torch
        except ImportError as error:
            print(error)
        """
    )
    assert out.startswith("kajitori.torch needs PyTorch (pip install torch): ")
    assert len(out.splitlines()) == 1
    assert "torch" in sys.modules
