# SPDX-License-Identifier: Apache-2.0
"""PruningHook: which values reach the trial, and how a training that is pruned ends. The numbers of rows
are those of the measurements that it answers."""

import copy
import functools
import inspect
import itertools
import pickle
import threading
import types
import warnings

import optuna
import pytest
import tensorflow as tf
from estimators import (
    Guard,
    eval_input,
    global_step,
    make_estimator,
    train_and_evaluate,
    train_input,
    v1,
)
from optuna_integration import TensorFlowPruningHook
from sessions import train

import kajitori
from kajitori.tensorflow import PruningHook, SteeringHook

optuna.logging.set_verbosity(optuna.logging.ERROR)


class Trial:
    """Wants to be pruned from step `at` on."""

    def __init__(self, at=float("inf")):
        self.at, self.values, self.asked = at, {}, 0

    def report(self, value, step):
        assert step not in self.values
        self.values[step] = value

    def should_prune(self):
        self.asked += 1
        return max(self.values) >= self.at


def scalar(tag, value):
    return v1.Summary.Value(tag=tag, simple_value=value)


def tensor(tag, value):
    """As `tf.summary.scalar` writes it."""
    metadata = v1.SummaryMetadata(plugin_data={"plugin_name": "scalars"})
    return v1.Summary.Value(
        tag=tag, metadata=metadata, tensor=tf.make_tensor_proto(value, tf.float32)
    )


class Evaluations(v1.train.SessionRunHook):
    """Writes an evaluation after so many steps each, as an evaluator elsewhere would."""

    def __init__(self, folder, every=1, encode=scalar, tag="accuracy", files=1):
        self.folder, self.every, self.encode, self.tag, self.files = (
            folder,
            every,
            encode,
            tag,
            files,
        )
        self.step = 0

    def after_run(self, run_context, run_values):
        self.step += 1
        if self.step % self.every == 0:
            self.write(self.step)

    @functools.cached_property
    def writers(self):
        with tf.Graph().as_default():
            return [
                v1.summary.FileWriter(str(self.folder), filename_suffix=f".{k}")
                for k in range(self.files)
            ]

    def write(self, step):
        with tf.Graph().as_default():
            writer = self.writers[step * self.files // 100 % self.files]
            writer.add_summary(v1.Summary(value=[self.encode(self.tag, step / 4)]), step)
            writer.flush()


def test_every_evaluation_is_reported_once_the_last_one_too(tmp_path):
    """Rows 3.1 and 3.2: a complete trial holds all its evaluations, and the pruner is asked once for each."""
    estimator, trial = make_estimator(tmp_path / "model"), Trial()
    with PruningHook(trial, estimator, "accuracy") as hook:
        metrics, _ = train_and_evaluate(estimator, hook, max_steps=230)
    assert list(trial.values) == [50, 100, 150, 200, 230]
    assert trial.values[230] == pytest.approx(metrics["accuracy"])
    assert trial.asked == 5
    assert not hook.pruned


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_pruned_training_ends_cleanly_and_its_caller_is_told(tmp_path, place):
    """Row 3.2: an exception out of the session left out the checkpoint and the `end` of all hooks."""
    estimator, trial = make_estimator(tmp_path / "model"), Trial(at=100)
    guards = [Guard(), Guard()]
    hook = PruningHook(trial, estimator, "accuracy")
    hooks = [*guards[:place], hook, *guards[place:]]
    with pytest.raises(kajitori.TrialPruned, match=r"pruned at step 100, with accuracy = 0\."):
        train_and_evaluate(estimator, *hooks, max_steps=1000)
    assert [guard.ends for guard in guards] == [1, 1]
    assert [guard.steps for guard in guards] == [[100], [100]]
    assert global_step(estimator) == 100
    assert (list(trial.values), trial.asked, hook.pruned) == ([50, 100], 2, True)


def objective(folder, rates, trial):
    estimator = make_estimator(
        folder / str(trial.number), lambda: v1.train.GradientDescentOptimizer(rates[trial.number])
    )
    with PruningHook(trial, estimator, "accuracy", 10) as hook:
        metrics, _ = train_and_evaluate(estimator, hook, max_steps=200)
    return metrics["accuracy"]


def test_a_study_of_optuna_warms_up_and_prunes(tmp_path):
    """Row 3.2: all cuts came at the first report. When the first may come is the pruner's to say."""
    study = optuna.create_study(
        direction="maximize", pruner=optuna.pruners.MedianPruner(1, n_warmup_steps=60)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)  # what is deprecated in Optuna
        study.optimize(functools.partial(objective, tmp_path, [0.5, 1e-6]), n_trials=2)
    good, bad = study.trials
    assert good.state == optuna.trial.TrialState.COMPLETE
    assert list(good.intermediate_values) == [50, 100, 150, 200]
    assert good.value == pytest.approx(good.intermediate_values[200])
    assert bad.state == optuna.trial.TrialState.PRUNED
    assert list(bad.intermediate_values) == [50, 100]


def test_the_arguments_are_those_of_the_hook_that_it_replaces():
    theirs = list(inspect.signature(TensorFlowPruningHook.__init__).parameters)
    ours = list(inspect.signature(PruningHook.__init__).parameters)
    assert (
        ours[: len(theirs)] == theirs == ["self", "trial", "estimator", "metric", "run_every_steps"]
    )


def test_a_look_costs_the_same_however_many_evaluations_there_are(tmp_path):
    """Row 3.4: each look read everything again. Counted in records, each of which is read once."""
    records = []

    class Count(v1.train.SessionRunHook):
        def after_run(self, run_context, run_values):
            records.append(hook._reader.stats().records)

    trial = Trial()
    hook = PruningHook(trial, tmp_path / "eval", "accuracy", run_every_steps=1)
    train(Evaluations(tmp_path / "eval"), hook, Count(), SteeringHook(max_steps=300))
    looks = {after - before for before, after in itertools.pairwise(records)}
    assert looks == {1}
    assert list(trial.values) == list(range(1, 301))
    assert hook._reader is None


def test_a_look_at_nothing_new_reads_nothing(tmp_path):
    hook = PruningHook(Trial(), tmp_path / "eval", "accuracy", run_every_steps=1)
    seen = []

    class Count(v1.train.SessionRunHook):
        def after_run(self, run_context, run_values):
            seen.append(hook._reader.stats().records)

    train(Evaluations(tmp_path / "eval", every=50), hook, Count(), SteeringHook(max_steps=99))
    assert len(set(seen)) == 2
    assert seen[48] < seen[49] == seen[-1]


@pytest.mark.parametrize("encode", [scalar, tensor])
def test_both_encodings_in_many_files(tmp_path, encode):
    """Row 3.4: a run that is resumed adds a file each time. Values of many files, in both forms."""
    trial = Trial()
    evaluations = Evaluations(tmp_path / "eval", encode=encode, files=10)
    hook = PruningHook(trial, tmp_path / "eval", "accuracy")
    train(evaluations, hook, SteeringHook(max_steps=100))
    assert trial.values == {step: step / 4 for step in range(1, 101)}


@pytest.mark.parametrize(
    ("options", "looks"),
    [({"run_every_steps": 20}, [1, 21, 41]), ({"run_every_secs": 3600}, [1])],
)
def test_looks_are_as_rare_as_the_program_says(tmp_path, options, looks):
    seen = []

    class Newest(v1.train.SessionRunHook):
        def after_run(self, run_context, run_values):
            seen.append(max(trial.values, default=0))

    trial = Trial()
    hook = PruningHook(trial, tmp_path / "eval", "accuracy", **options)
    train(Evaluations(tmp_path / "eval"), hook, Newest(), SteeringHook(max_steps=50))
    assert sorted(set(seen)) == looks
    assert list(trial.values) == list(range(1, 51))


def test_a_metric_that_no_evaluation_has_is_said_with_those_there_are(tmp_path):
    guard = Guard()
    evaluations = Evaluations(tmp_path / "eval", every=10, tag="acc")
    with pytest.raises(
        kajitori.NotFoundError, match="no evaluation has 'accuracy'; there is: 'acc'"
    ):
        train(evaluations, PruningHook(Trial(), tmp_path / "eval", "accuracy", 1), guard)
    assert (guard.ends, guard.steps) == (1, [20])
    only_one = Evaluations(tmp_path / "one", every=10, tag="acc")
    with pytest.raises(kajitori.NotFoundError):
        train(
            only_one, PruningHook(Trial(), tmp_path / "one", "accuracy"), SteeringHook(max_steps=15)
        )


@pytest.mark.parametrize("untrained", [False, True])
def test_the_evaluation_of_an_untrained_network(tmp_path, untrained):
    """Row 4.1: in a cluster the first report was that of an untrained network."""
    evaluations = Evaluations(tmp_path / "eval", every=10)
    evaluations.write(0)
    trial = Trial()
    hook = PruningHook(trial, tmp_path / "eval", "accuracy", report_untrained=untrained)
    train(evaluations, hook, SteeringHook(max_steps=20))
    assert list(trial.values) == ([0, 10, 20] if untrained else [10, 20])


def test_finish_waits_for_the_evaluation_of_the_last_step(tmp_path):
    evaluations, trial = Evaluations(tmp_path / "eval", every=10), Trial()
    hook = PruningHook(trial, tmp_path / "eval", "accuracy")
    train(evaluations, hook, SteeringHook(max_steps=25))
    with pytest.warns(kajitori.EventWarning, match="no 'accuracy' of step 25, the last one"):
        assert not hook.finish()
    late = threading.Timer(0.05, evaluations.write, [25])
    late.start()
    assert hook.finish(timeout=60)
    late.join()
    assert list(trial.values) == [10, 20, 25]


def test_what_the_last_evaluation_says_counts(tmp_path):
    evaluations = Evaluations(tmp_path / "eval", every=10)

    def optimize():
        with PruningHook(Trial(at=25), tmp_path / "eval", "accuracy") as hook:
            train(evaluations, hook, SteeringHook(max_steps=25))
            evaluations.write(25)

    with pytest.raises(kajitori.TrialPruned, match="pruned at step 25"):
        optimize()


def test_train_and_evaluate_by_turns(tmp_path):
    estimator, trial = make_estimator(tmp_path / "model", every=1000), Trial(at=60)

    def optimize():
        with PruningHook(trial, estimator, "accuracy") as hook:
            for _ in range(5):
                estimator.train(train_input, hooks=[hook], steps=20)
                estimator.evaluate(eval_input)

    with pytest.raises(kajitori.TrialPruned, match="step 60"):
        optimize()
    assert list(trial.values) == [20, 40, 60]


def test_an_evaluation_with_a_name_is_a_folder(tmp_path):
    estimator, trial = make_estimator(tmp_path / "model"), Trial()
    hook = PruningHook(trial, estimator.eval_dir("test"), "accuracy")
    train_and_evaluate(estimator, hook, max_steps=60, name="test")
    assert list(trial.values) == [50, 60]


def test_a_copy_goes_on_where_it_was_copied(tmp_path):
    evaluations = Evaluations(tmp_path / "eval", every=10)
    hook = PruningHook(optuna.trial.FixedTrial({}), tmp_path / "eval", "accuracy")
    train(evaluations, hook, SteeringHook(max_steps=20))
    evaluations.write(30)
    for other in copy.copy(hook), pickle.loads(pickle.dumps(hook)):
        other._pruning = copy.copy(hook._pruning)
        other._pruning.trial = Trial()
        assert other.finish()
        assert list(other._pruning.trial.values) == [30]


def test_arguments_that_cannot_be(tmp_path):
    with pytest.raises(kajitori.ArgumentError, match="no report and should_prune"):
        PruningHook(object(), tmp_path, "accuracy")
    with pytest.raises(kajitori.ArgumentError, match="NoneType has no report"):
        PruningHook(None, tmp_path, "accuracy")
    with pytest.raises(kajitori.ArgumentError, match="folders of this machine"):
        PruningHook(Trial(), "gs://bucket/eval", "accuracy")


@pytest.mark.parametrize(
    "options",
    [
        {"estimator": None},
        {"estimator": b"/eval"},
        {"estimator": ""},
        {"metric": None},
        {"metric": ""},
        {"run_every_steps": 0},
        {"run_every_steps": "x"},
        {"run_every_steps": 1.5},
        {"run_every_secs": -1},
        {"run_every_secs": "x"},
        {"run_every_secs": float("nan")},
    ],
)
def test_an_argument_that_cannot_be_is_named(tmp_path, options):
    with pytest.raises(kajitori.ArgumentError, match=f"^{next(iter(options))}: "):
        PruningHook(Trial(), **{"estimator": tmp_path, "metric": "accuracy"} | options)


def test_no_looks_by_the_clock(tmp_path):
    trial = Trial()
    hook = PruningHook(trial, tmp_path / "eval", "accuracy", run_every_secs=float("inf"))
    train(Evaluations(tmp_path / "eval"), hook, SteeringHook(max_steps=5))
    assert list(trial.values) == [1, 2, 3, 4, 5]


def test_the_folder_of_the_model_is_none_of_evaluations(tmp_path):
    evaluations = Evaluations(tmp_path / "eval", every=2)
    with pytest.raises(
        kajitori.NotFoundError, match="no evaluation has 'accuracy'; there is: 'eval/accuracy'"
    ):
        train(evaluations, PruningHook(Trial(), tmp_path, "accuracy", 1))


def test_all_hooks_get_their_end_when_the_input_has_ended_the_session(tmp_path):
    """A coordinator that was stopped takes no exception any more."""

    class Queue(v1.train.SessionRunHook):
        """As a QueueRunner whose input ends."""

        def after_create_session(self, session, coord):
            self.coord = coord

        def after_run(self, run_context, run_values):
            if len(trial.values) == 2:
                self.coord.request_stop()

    trial, last = Trial(at=3), Guard()
    hooks = [PruningHook(each, tmp_path / "eval", "accuracy", 1) for each in (trial, Trial(at=3))]
    with pytest.raises(kajitori.TrialPruned, match="step 3"):
        train(Evaluations(tmp_path / "eval"), Queue(), *hooks, last)
    assert last.ends == 1


def in_cluster(folder, is_chief, ps=1):
    """What an Estimator of a cluster of two says about itself."""
    config = types.SimpleNamespace(
        cluster_spec={"chief": ["127.0.0.1:1"], "worker": ["127.0.0.1:2"]},
        is_chief=is_chief,
        num_worker_replicas=2,
        num_ps_replicas=ps,
    )
    return types.SimpleNamespace(config=config, eval_dir=lambda: str(folder / "eval"))


def test_workers_that_reduce_together_are_refused(tmp_path):
    """Row 4.2: one that stops alone is a crash or a hang of the others."""
    with pytest.raises(kajitori.ArgumentError, match="would have to stop at the same step"):
        PruningHook(Trial(), in_cluster(tmp_path, True, ps=0), "accuracy")


def test_a_worker_leaves_when_the_chief_has_said_so(tmp_path):
    class Chief(v1.train.SessionRunHook):
        """Sets what the tasks share."""

        def __init__(self):
            self.runs = 0

        def after_run(self, run_context, run_values):
            self.runs += 1
            if self.runs == 5:
                run_context.session.run("kajitori/pruned/Assign", {"kajitori/Const:0": True})

    hook = PruningHook(None, in_cluster(tmp_path, False), "accuracy")
    guard = Guard()
    with pytest.raises(kajitori.TrialPruned, match="pruned by the chief"):
        train(hook, Chief(), guard)
    assert (guard.ends, guard.steps) == (1, [6])
    assert hook.pruned
    assert hook.finish()


def test_the_chief_tells_the_others_and_takes_back_what_an_earlier_training_said(tmp_path):
    told = []

    class Told(v1.train.SessionRunHook):
        def after_run(self, run_context, run_values):
            value = run_context.session.run("kajitori/pruned/Read/ReadVariableOp:0")
            told.append((bool(value), (tmp_path / "kajitori-pruned").exists()))

    (tmp_path / "kajitori-pruned").touch()
    trial = Trial(at=10)
    hook = PruningHook(trial, in_cluster(tmp_path, True), "accuracy", 1)
    with pytest.raises(kajitori.TrialPruned):
        train(Evaluations(tmp_path / "eval", every=5), hook, Told())
    assert told == [(False, False)] * 9 + [(True, True)]
