# SPDX-License-Identifier: Apache-2.0
"""PruningCallback of the Hugging Face Trainer: what it reports, and how a pruned training ends."""

import copy
import itertools
import pickle

import optuna
import pytest
import transformers
from tiny_trainer import EVALUATION, STEPS, Guard, Send, make_trainer, train

import kajitori
from kajitori.transformers import PruningCallback, SteeringCallback

optuna.logging.set_verbosity(optuna.logging.ERROR)
OPTIONS = {"eval_strategy": "steps", "eval_steps": 4}


class Trial:
    """Prunes at a step; keeps what it was told and asked."""

    def __init__(self, at=None):
        self.at, self.calls = at, []

    def report(self, value, step):
        self.calls.append((step, value))

    def should_prune(self):
        self.calls.append("?")
        return self.at is not None and self.calls[-2][0] >= self.at


def test_each_evaluation_is_reported_once_at_its_step_and_asked_for_once(tmp_path):
    trial = Trial()
    trainer, guard = train(tmp_path, PruningCallback(trial), num_train_epochs=1, **OPTIONS)
    assert guard.steps == STEPS
    values = [
        (entry["step"], entry["eval_loss"])
        for entry in trainer.state.log_history
        if "eval_loss" in entry
    ]
    assert [step for step, _ in values] == [4, 8, 10]
    assert trial.calls == list(itertools.chain.from_iterable((value, "?") for value in values))


@pytest.mark.parametrize("strategy", ["steps", "epoch"])
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_a_pruned_training_ends_for_all_callbacks_whatever_their_order(tmp_path, order, strategy):
    guard, cb = Guard(), SteeringCallback()
    pruning = PruningCallback(Trial(at=8), "loss")
    callbacks = [pruning, guard, cb]
    options = {"eval_strategy": strategy, "eval_steps": 4, "logging_steps": 2}
    trainer = make_trainer(tmp_path, num_train_epochs=9, **options)
    for k in order:
        trainer.add_callback(callbacks[k])
    with pytest.raises(kajitori.TrialPruned, match=r"^pruned at step \d+, with eval_loss = "):
        trainer.train()
    steps = 8 if strategy == "steps" else STEPS
    assert (guard.steps, guard.ends, len(guard.epochs)) == (steps, 1, 1)
    assert guard.evaluations == (2 if strategy == "steps" else 1)
    assert pruning.pruned
    assert "train_runtime" in trainer.state.log_history[-1]
    assert cb.run.closed
    assert not trainer.is_in_train
    assert not {"_run_epoch", "_finalize_training"} & set(vars(trainer))


def test_a_study_of_optuna(tmp_path):
    """On real trainings: trials whose rate is too small are pruned, and the study knows it."""
    guard = Guard()

    def objective(trial):
        rate = trial.suggest_float("rate", 0.0, 1.0)
        trainer = make_trainer(
            tmp_path,
            guard,
            PruningCallback(trial),
            learning_rate=rate,
            num_train_epochs=2,
            **OPTIONS,
        )
        trainer.train()
        return trainer.evaluate()["eval_loss"]

    study = optuna.create_study(
        pruner=optuna.pruners.MedianPruner(n_startup_trials=1, n_warmup_steps=5)
    )
    study.enqueue_trial({"rate": 0.125})
    study.enqueue_trial({"rate": 0.0})
    study.optimize(objective, n_trials=2)
    states = {trial.params["rate"]: trial for trial in study.trials}
    assert states[0.125].state.name == "COMPLETE"
    assert list(states[0.125].intermediate_values) == [4, 8, 12, 16, 20]
    assert states[0.0].state.name == "PRUNED"
    assert list(states[0.0].intermediate_values) == [4, 8]
    assert guard.ends == 2


def test_a_metric_that_never_comes_is_said_with_those_that_do(tmp_path):
    trial = Trial()
    with pytest.warns(
        kajitori.ChannelWarning, match="no evaluation had eval_acc; there are .*eval_loss"
    ):
        train(tmp_path, PruningCallback(trial, "acc"), num_train_epochs=1, **OPTIONS)
    assert trial.calls == []


def test_one_of_several_data_sets(tmp_path):
    trial = Trial()
    trainer = make_trainer(
        tmp_path, PruningCallback(trial, "eval_b_loss"), num_train_epochs=1, eval_strategy="epoch"
    )
    trainer.eval_dataset = {"a": EVALUATION, "b": EVALUATION}
    trainer.train()
    assert [call[0] for call in trial.calls] == [10, "?"]


def test_an_evaluation_that_a_sender_asked_for_is_not_reported(tmp_path):
    trial = Trial()
    train(
        tmp_path,
        PruningCallback(trial),
        SteeringCallback(),
        Send("evaluate"),
        num_train_epochs=1,
        **OPTIONS,
    )
    assert [call[0] for call in trial.calls[::2]] == [4, 8, 10]


def test_evaluations_outside_of_a_pruned_training(tmp_path):
    """They go on as always, and the next training is not pruned by the last one's word."""
    trainer = make_trainer(tmp_path, PruningCallback(Trial(at=4)), num_train_epochs=1, **OPTIONS)
    with pytest.raises(kajitori.TrialPruned):
        trainer.train()
    assert trainer.evaluate()["eval_loss"] > 0
    trainer.remove_callback(PruningCallback)
    assert trainer.train().global_step == STEPS


def test_a_copy_can_be_pickled():
    original = PruningCallback(Trial(at=3))
    assert pickle.loads(pickle.dumps(original)).metric == copy.deepcopy(original).metric


def test_what_is_no_trial_is_refused():
    with pytest.raises(kajitori.ArgumentError, match=r"^trial: int has no report"):
        PruningCallback(3)
    assert issubclass(PruningCallback, transformers.TrainerCallback)
