# SPDX-License-Identifier: Apache-2.0
"""SteeringCallback through whole programs of the Hugging Face Trainer: one training after the other,
other callbacks, evaluation and prediction outside, exceptions, copies, ranks."""

import copy
import gc
import json
import os
import pickle
import socket
import subprocess
import sys
import textwrap

import optuna
import pytest
import transformers
from tiny_trainer import (
    EVALUATION,
    STEPS,
    Guard,
    In,
    Network,
    Send,
    journal,
    make_trainer,
    results,
    train,
)
from training import PATIENCE, finish

import kajitori
from kajitori.transformers import SteeringCallback

optuna.logging.set_verbosity(optuna.logging.ERROR)


def test_each_training_is_a_run_of_its_own(tmp_path):
    cb = SteeringCallback()
    trainer = make_trainer(tmp_path, cb, Send("stop", nth=3), num_train_epochs=1)
    trainer.train()
    first = cb.run.id
    assert (trainer.state.global_step, cb.run.ending) == (3, "stop")
    trainer.train()
    assert cb.run.id != first
    assert (trainer.state.global_step, cb.run.ending, cb.epoch) == (STEPS, None, 0)
    assert kajitori.runs() == []
    assert not {"_run_epoch", "_finalize_training", "prediction_step"} & set(vars(trainer))


def ask(line):
    with kajitori.connect() as client:
        return client.send(line, wait="accepted")


def test_a_run_of_ones_own_goes_over_two_trainings(tmp_path):
    with kajitori.Run() as run:
        cb = SteeringCallback(run=run)
        trainer = make_trainer(tmp_path, cb, Send("set lr=0.5"), num_train_epochs=1)
        trainer.train()
        assert not run.closed
        trainer.add_callback(In(lambda: ask("stop"), nth=3))
        trainer.train()
        assert (trainer.state.global_step, run.should_stop) == (4, True), "it is behind ours"
        trainer.train()
        assert trainer.state.global_step == 1, "it was stopped"
    assert len(journal("set", "done")) == 1


def test_evaluate_and_predict_outside_of_train_are_not_steered(tmp_path):
    cb = SteeringCallback()
    trainer = make_trainer(tmp_path, cb, max_steps=2)
    trainer.evaluate()
    assert cb.run is None
    trainer.train()
    trainer.evaluate()
    trainer.predict(EVALUATION)
    assert cb.run.closed
    assert kajitori.runs() == []


def test_predict_and_evaluate_inside_of_train(tmp_path):
    """By another callback, and by an own verb."""
    seen = []
    cb = SteeringCallback(commands={"look": lambda cb: cb.trainer.evaluate()["eval_loss"]})
    trainer = make_trainer(tmp_path, cb, Send("look"), max_steps=6)
    look = In(lambda: seen.append((trainer.predict(EVALUATION), cb._phase)), nth=4)
    trainer.add_callback(look)
    trainer.train()
    assert trainer.state.global_step == 6
    assert [phase for _, phase in seen] == ["train"]
    assert results("look")[0] > 0


def test_a_stop_leaves_predictions_whole(tmp_path):
    seen = []
    cb = SteeringCallback(skip_validation=True)
    trainer = make_trainer(tmp_path, Send("stop"), cb, num_train_epochs=1)
    trainer.add_callback(In(lambda: seen.append(trainer.predict(EVALUATION).predictions), nth=3))
    callbacks = trainer.callback_handler.callbacks
    callbacks.append(callbacks.pop(callbacks.index(cb)))
    trainer.train()
    assert trainer.state.global_step == 3
    assert len(seen[0]) == len(EVALUATION)
    assert "predict" not in vars(trainer)


class Fails(transformers.TrainerCallback):
    def __init__(self, hook):
        setattr(self, hook, self._fail)

    def _fail(self, *args, **kwargs):
        raise KeyError("a fault of the program")


@pytest.mark.parametrize(
    "hook", ["on_epoch_begin", "on_step_end", "on_epoch_end", "on_evaluate", "on_train_end"]
)
def test_an_exception_ends_the_run_at_once(tmp_path, hook):
    cb = SteeringCallback(fifo=tmp_path / "ctl")
    trainer = make_trainer(tmp_path, Fails(hook), cb, num_train_epochs=1, eval_strategy="epoch")
    with pytest.raises(KeyError, match="a fault of the program"):
        trainer.train()
    assert cb.run.closed
    assert kajitori.runs() == []
    assert not (tmp_path / "ctl").exists()
    assert "_run_epoch" not in vars(trainer)


def test_a_train_within_a_train_needs_a_callback_of_its_own(tmp_path):
    cb, inner, refused = SteeringCallback(), SteeringCallback(), []

    def nested():
        for one in (cb, inner):
            try:
                make_trainer(tmp_path / "inner", one, num_train_epochs=1).train()
            except kajitori.StateError as error:
                refused.append((one, str(error)))
        with kajitori.connect(cb.run.id) as client:
            client.send("stop at=step:5", wait="accepted")

    _, guard = train(tmp_path, In(nested), cb, num_train_epochs=1)
    assert refused == [(cb, "this SteeringCallback steers a train that goes on; give each its own")]
    assert (guard.steps, cb.run.ending, inner.run.closed) == (5, "stop", True)


@pytest.mark.parametrize("then", ["train", "collect"])
def test_an_exception_that_no_one_is_told_of(tmp_path, then):
    """The run ends with the next training, or with the Trainer."""
    cb = SteeringCallback()
    trainer = make_trainer(tmp_path, cb, num_train_epochs=1)
    trainer.add_callback(Fails("on_train_begin"))
    with pytest.raises(KeyError):
        trainer.train()
    (left,) = kajitori.runs()
    if then == "train":
        trainer.remove_callback(Fails)
        trainer.train()
        assert cb.run.id != left.id
    else:
        del trainer, cb
        gc.collect()
    assert kajitori.runs() == []


def test_copies_and_pickles_have_no_part_in_the_run(tmp_path):
    original = SteeringCallback(checkpoint_dir=tmp_path)
    copies = []

    def make():
        for way in (copy.copy, copy.deepcopy, lambda cb: pickle.loads(pickle.dumps(cb))):
            copies.append(way(original))

    train(tmp_path, original, In(make), max_steps=5)
    assert [(one.run, one.trainer, one.model) for one in copies] == [(None, None, None)] * 3
    _, guard = train(tmp_path, copies[-1], Send("stop"))
    assert guard.steps == 3


def test_own_verbs_and_parameters(tmp_path):
    def freeze(cb, count):
        """Freezes the first layers."""
        for layer in list(cb.model.children())[:count]:
            layer.requires_grad_(False)
        return [cb.state.global_step, cb.args.max_steps, cb.step]

    def fail(cb):
        raise RuntimeError("no")

    model = Network()
    cb = SteeringCallback(
        commands={"freeze": (freeze, {"count": int}), "fail": fail},
        parameters={"dropout": (lambda: model.drop.p, lambda p: setattr(model.drop, "p", p), 0, 1)},
    )
    lines = ("freeze count=1", "fail", "set dropout=0.5")
    trainer, guard = train(tmp_path, cb, Send(*lines), model=model, max_steps=5)
    assert guard.steps == 5
    assert results("freeze") == [[3, 5, 3]]
    assert not trainer.model.first.weight.requires_grad
    assert model.drop.p == 0.5
    assert "no" in journal("fail", "failed")[0]["error"]


def test_early_stopping_and_ours(tmp_path):
    """It ends the training as always; a stop of ours is none of its own."""
    options = {
        "load_best_model_at_end": True,
        "metric_for_best_model": "eval_loss",
        "eval_strategy": "epoch",
        "save_strategy": "epoch",
        "learning_rate": 0.0,
    }
    early = transformers.EarlyStoppingCallback(2)
    cb = SteeringCallback()
    trainer, guard = train(tmp_path, cb, early, **options)
    assert (guard.steps, cb.run.ending, guard.ends) == (3 * STEPS, None, 1)
    early = transformers.EarlyStoppingCallback(2)
    cb = SteeringCallback()
    trainer, guard = train(tmp_path, cb, early, Send("stop", nth=13), **options)
    assert (guard.steps, cb.run.ending, guard.ends) == (13, "stop", 1)
    assert early.early_stopping_patience_counter == 1
    assert trainer.state.best_model_checkpoint == str(tmp_path / "checkpoint-10")


def test_bfloat16(tmp_path):
    trainer, guard = train(tmp_path, SteeringCallback(), Send("set lr=0.5", "stop"), bf16=True)
    assert guard.steps == 3
    assert trainer.optimizer.param_groups[0]["lr"] == 0.5


class AllButTheFirst(optuna.pruners.BasePruner):
    def prune(self, study, trial):
        return trial.number > 0


def test_a_hyperparameter_search_prunes_by_itself_and_each_trial_is_a_run(tmp_path):
    ids = []
    cb, guard = SteeringCallback(), Guard()
    options = {"num_train_epochs": 2, "eval_strategy": "epoch"}
    trainer = make_trainer(tmp_path, guard, cb, **options)
    trainer.model_init = Network
    begin = transformers.TrainerCallback()
    begin.on_train_begin = lambda *args, **kwargs: ids.append(cb.run.id)
    trainer.add_callback(begin)
    trainer.hyperparameter_search(
        hp_space=lambda trial: {"learning_rate": trial.suggest_float("learning_rate", 0.1, 0.2)},
        backend="optuna",
        n_trials=2,
        direction="minimize",
        pruner=AllButTheFirst(),
    )
    assert (guard.steps, guard.ends) == (2 * STEPS + STEPS, 2)
    assert len(set(ids)) == 2
    assert cb.run.closed
    assert kajitori.runs() == []
    assert "_run_epoch" not in vars(trainer)


def test_a_trainer_that_is_none_of_transformers(tmp_path):
    """Something that calls callbacks as the Trainer does: what needs only the flags works."""
    trainer = make_trainer(tmp_path, max_steps=1)
    cb, send = SteeringCallback(), Send("checkpoint", "extend steps=1", "stop")
    args, state, control = trainer.args, trainer.state, trainer.control
    state.global_step = 0
    cb.on_train_begin(args, state, control)
    while not control.should_training_stop:
        state.global_step += 1
        send.on_step_end(args, state, control)
        cb.on_step_end(args, state, control)
    cb.on_train_end(args, state, control)
    assert state.global_step == 3
    assert "no transformers.Trainer" in send.refused["checkpoint"]


class Loop(transformers.Trainer):
    """With a loop of its own, which leaves things out."""

    def _maybe_log_save_evaluate(self, *args, **kwargs):
        raise AssertionError("not called")

    def train(self):
        handler, state, control = self.callback_handler, self.state, self.control
        state.max_steps = 50
        handler.on_train_begin(self.args, state, control)
        while state.global_step < 50 and not control.should_training_stop:
            state.global_step += 1
            handler.on_step_end(self.args, state, control)
        handler.on_train_end(self.args, state, control)


def test_a_subclass_with_a_loop_of_its_own(tmp_path):
    trainer = make_trainer(tmp_path, SteeringCallback(), Send("stop at=step:9"), kind=Loop)
    trainer.train()
    assert trainer.state.global_step == 9


def test_a_callback_inside_of_another_one(tmp_path):
    """As programs do that bundle their callbacks: the Trainer is found all the same."""
    inner = SteeringCallback()

    class Bundle(transformers.TrainerCallback):
        def on_train_begin(self, *args, **kwargs):
            inner.on_train_begin(*args, **kwargs)

        def on_step_end(self, *args, **kwargs):
            inner.on_step_end(*args, **kwargs)

        def on_train_end(self, *args, **kwargs):
            inner.on_train_end(*args, **kwargs)

    train(tmp_path, Send("checkpoint", "stop"), Bundle())
    assert results("checkpoint") == [{"path": str(tmp_path / "checkpoint-3")}]


def test_without_the_framework_one_line_says_what_to_install():
    code = """
        import sys
        sys.modules["transformers"] = None
        import kajitori
        try:
            import kajitori.transformers
        except ImportError as error:
            print(str(error).partition(":")[0])
        print("torch" in sys.modules)
    """
    assert finish(code).splitlines() == [
        "kajitori.transformers needs transformers, torch and accelerate "
        "(pip install transformers torch accelerate)",
        "False",
    ]


RANK = """
    import json, sys, warnings
    sys.path[:0] = sys.argv[1:3]
    import kajitori
    from tiny_trainer import Guard, Send, make_trainer
    from kajitori.transformers import PruningCallback, SteeringCallback

    class Trial:
        told = []
        def report(self, value, step):
            self.told.append(step)
        def should_prune(self):
            return True

    lines = ("stop", "set lr=0.5", "checkpoint", "pause", "evaluate", "note hello", "status")
    guard, cb, send = Guard(), SteeringCallback(), Send(*lines)
    pruning = PruningCallback(Trial())
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", kajitori.ChannelWarning)
        trainer = make_trainer(sys.argv[3], guard, cb, pruning, num_train_epochs=2,
                               eval_strategy="epoch", ddp_backend="gloo")
        if trainer.args.process_index == 0:
            trainer.add_callback(send)
        trainer.train()
    print(json.dumps({
        "rank": cb.run.rank, "world_size": cb.run.world_size, "door": cb.run.dir,
        "steps": guard.steps, "ends": guard.ends, "refused": send.refused, "told": Trial.told,
        "warned": [str(one.message) for one in warned
                   if issubclass(one.category, kajitori.ChannelWarning)],
    }))
"""


def test_of_two_ranks_none_does_alone_what_both_would_have_to_do(tmp_path):
    """A real training of two processes with gloo: rank 0 refuses, the other one is quiet."""
    here = os.path.dirname(__file__)
    places = [here, os.path.join(here, "..", "..", "python"), str(tmp_path)]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    env = os.environ | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(RANK), *places],
            env=env | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    said = []
    for rank in ranks:
        out, _ = rank.communicate(timeout=PATIENCE)
        assert rank.returncode == 0
        said.append(json.loads(out.splitlines()[-1]))
    first, second = said
    assert (first["rank"], first["world_size"], second["rank"]) == (0, 2, 1)
    assert (first["steps"], second["steps"]) == (10, 10)
    assert (first["ends"], second["ends"]) == (1, 1)
    assert set(first["refused"]) == {"stop", "set lr=0.5", "checkpoint", "pause", "evaluate"}
    assert all("this is rank 0 of 2" in why for why in first["refused"].values())
    assert len(first["warned"]) == 2
    assert (second["warned"], second["door"], second["told"]) == ([], "", [])
    assert first["told"] == [5, 10]
