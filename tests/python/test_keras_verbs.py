# SPDX-License-Identifier: Apache-2.0
"""What SteeringCallback does with checkpoint, evaluate, extend, prune, abort, leaving and resuming."""

import json
import os
import pathlib

import keras
import numpy as np
import pytest
from conftest import BACKEND
from fits import FOR_EVER, STEPS, At, Guard, X, Y, fit, make_model, steering
from test_keras_fits import Send, settled
from training import last_json

import kajitori
from kajitori.keras import SteeringCallback

pytestmark = [
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
    pytest.mark.usefixtures("fresh_keras"),
]


WEIGHTS = (
    ["model.weights.data-00000-of-00001", "model.weights.index", "checkpoint"]
    if BACKEND == "tf.keras"
    else ["model.weights.h5", "build.json"]
)


@pytest.fixture(autouse=True)
def fresh_start(monkeypatch):
    monkeypatch.delenv("KAJITORI_CHECKPOINT", raising=False)


def results(verb):
    return [
        line.get("result")
        for line in kajitori.journal()
        if line.get("verb") == verb and line["state"] == "done"
    ]


def state_of(path):
    with open(os.path.join(path, "state.json")) as file:
        return json.load(file)


@pytest.mark.parametrize(
    ("line", "place"),
    [
        ("checkpoint", {"step": 14, "epoch": 1, "batch": 4}),
        ("checkpoint at=step:20", {"step": 20, "epoch": 2, "batch": 0}),
        ("checkpoint at=epoch", {"step": 20, "epoch": 2, "batch": 0}),
    ],
)
def test_a_checkpoint_knows_its_place_in_the_training(tmp_path, line, place):
    folder = tmp_path / "checkpoints"
    fit(make_model(), SteeringCallback(checkpoint_dir=folder), Send(line, step=13), epochs=3)
    ((result,),) = [results("checkpoint")]
    assert result["path"] == str(folder / f"step-{place['step']:08d}")
    assert state_of(result["path"]) == {"format": 1} | place
    assert os.listdir(folder) == [os.path.basename(result["path"])]


def test_a_checkpoint_in_a_validation_is_one_of_the_whole_epoch(tmp_path):
    cb = SteeringCallback(checkpoint_dir=tmp_path)
    send = Send("checkpoint", hook="on_test_batch_begin", step=2)
    fit(make_model(), cb, send, epochs=1, validate=True)
    assert state_of(results("checkpoint")[0]["path"])["epoch"] == 1


def test_a_second_checkpoint_of_a_step_takes_the_place_of_the_first(tmp_path):
    cb = SteeringCallback(checkpoint_dir=tmp_path / "c")
    fit(make_model(), cb, Send("checkpoint", "checkpoint"), epochs=1)
    first, second = results("checkpoint")
    assert first == second
    assert sorted(os.listdir(first["path"])) == sorted([*WEIGHTS, "state.json"])
    assert len(os.listdir(tmp_path / "c")) == 1


def test_without_a_folder_a_checkpoint_is_refused_with_the_reason():
    lines = ("checkpoint", "stop save=yes", "pause level=leave", "evaluate", "extend epochs=2")
    reasons = {}

    class Ask(keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            with kajitori.connect() as client:
                for line in lines:
                    with pytest.raises(kajitori.RejectedError) as caught:
                        client.send(line)
                    reasons[line] = str(caught.value)

    model = make_model()
    model.fit(X, Y, verbose=0, callbacks=[SteeringCallback(), Ask()])
    for line in lines[:3]:
        assert "no checkpoint_dir" in reasons[line]
    assert "no evaluation_data" in reasons["evaluate"]
    assert "number of epochs is fixed" in reasons["extend epochs=2"]


def test_a_checkpoint_of_ones_own(tmp_path):
    def save(cb):
        cb.model.save(tmp_path / "own.keras")
        return tmp_path / "own.keras"

    fit(make_model(), SteeringCallback(commands={"checkpoint": save}), Send("stop save=yes"))
    assert results("stop")[0]["checkpoint"]["path"] == str(tmp_path / "own.keras")
    assert (tmp_path / "own.keras").exists()


def test_a_checkpoint_that_fails_leaves_the_training_and_no_rubbish(tmp_path):
    model = make_model()

    def fail(path):
        raise OSError("the disk is full")

    model.save_weights = fail
    cb = SteeringCallback(checkpoint_dir=tmp_path / "c")
    _, guard = fit(model, cb, Send("stop save=yes"), epochs=1)
    assert guard.batches == STEPS
    assert "disk is full" in settled("stop")[0][3]
    assert os.listdir(tmp_path / "c") == []


def test_evaluate_acts_at_the_end_of_the_epoch_and_leaves_its_metrics_alone():
    def train(*lines):
        keras.utils.set_random_seed(0)
        cb = SteeringCallback(evaluation_data=(X, Y))
        return fit(make_model(), cb, Send(*lines), epochs=2, validate=True, shuffle=False)[0]

    alone, evaluated = train(), train("evaluate")
    assert alone.history == evaluated.history
    (metrics,) = results("evaluate")
    assert metrics["loss"] == pytest.approx(evaluated.history["val_loss"][0])
    (at,) = {line["at"] for line in kajitori.journal() if line.get("verb") == "evaluate"}
    assert at == "epoch"


@pytest.mark.parametrize(
    ("line", "skips", "tests", "said"),
    [
        ("stop validate=no", False, 5, "skipped"),
        ("stop validate=yes", True, STEPS, "runs to its end"),
        ("stop", True, 5, "skipped"),
        ("stop", False, STEPS, "runs to its end"),
        ("prune validate=no", False, 5, "skipped"),
    ],
)
def test_a_stop_during_the_validation_says_what_becomes_of_it(line, skips, tests, said):
    cb = SteeringCallback(skip_validation=skips)
    send = Send(line, hook="on_test_batch_begin", step=4)
    _, guard = fit(make_model(), cb, send, validate=True)
    assert (guard.batches, guard.tests) == (STEPS, tests)
    (end,) = [r for verb in ("stop", "prune") for r in results(verb)]
    assert end == {"validation": said}
    assert cb.pruned is line.startswith("prune")


def test_abort_leaves_fit_at_once_and_closes_the_run():
    cb = SteeringCallback()
    guard = Guard()
    ended = []
    last = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: ended.append(epoch))
    with pytest.raises(kajitori.Aborted) as caught:
        make_model().fit(
            X, Y, batch_size=8, epochs=9, verbose=0, callbacks=[guard, last, cb, Send("abort")]
        )
    assert caught.value.code == cb.run.exit_status == 77
    assert (guard.batches, ended) == (4, [])
    assert cb.run.closed
    assert kajitori.runs() == []
    assert kajitori.journal()[-1]["ending"] == "abort"


def test_abort_in_a_run_of_ones_own_leaves_the_run_to_its_owner():
    with kajitori.Run() as run:
        with pytest.raises(kajitori.Aborted):
            fit(make_model(), SteeringCallback(run=run), Send("abort"), epochs=2)
        assert not run.closed
        assert run.ending == "abort"


def leave(folder, line, **options):
    """A fit that leaves; the path of its checkpoint."""
    with pytest.raises(kajitori.Left):
        fit(make_model(), SteeringCallback(checkpoint_dir=folder), Send(line, step=13), **options)
    assert kajitori.runs() == []
    return kajitori.journal()[-1]["checkpoint"]["path"]


def test_leaving_and_going_on_is_the_training_that_never_left(tmp_path, monkeypatch):
    """With data in a fixed order, and at the end of an epoch, to the last bit."""
    options = {"epochs": 4, "shuffle": False}
    keras.utils.set_random_seed(0)
    whole = make_model()
    fit(whole, **options)

    keras.utils.set_random_seed(0)
    path = leave(tmp_path, "pause level=leave at=epoch", **options)
    monkeypatch.setenv("KAJITORI_CHECKPOINT", path)
    cb, model = SteeringCallback(checkpoint_dir=tmp_path), make_model()
    assert (cb.resumed_from, cb.initial_epoch) == (path, 2)
    history, guard = fit(model, cb, **options)
    assert history.epoch == [2, 3]
    assert guard.batches == 2 * STEPS
    assert cb.step == 4 * STEPS, "steps go on"
    for weights, expected in zip(model.get_weights(), whole.get_weights(), strict=True):
        np.testing.assert_array_equal(weights, expected)

    history, _ = fit(model, cb, epochs=1)
    assert history.epoch == [0], "a checkpoint is taken up once"


class Subclass(keras.Model):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = keras.layers.Dense(8), keras.layers.Dense(1)

    def call(self, inputs):
        return self.outer(self.inner(inputs))


@pytest.mark.parametrize(
    "make", [Subclass, lambda: keras.Sequential([keras.layers.Dense(8), keras.layers.Dense(1)])]
)
def test_a_model_that_its_first_batch_builds_goes_on_exactly(tmp_path, monkeypatch, make):
    """Without an `Input` there are no variables when `fit` begins."""

    def train(*callbacks):
        keras.utils.set_random_seed(0)
        model = make()
        model.compile("adam", loss="mse")
        history, _ = fit(model, *callbacks, epochs=4, shuffle=False)
        return model, history

    whole, _ = train()
    with pytest.raises(kajitori.Left):
        train(
            SteeringCallback(checkpoint_dir=tmp_path), Send("pause level=leave at=epoch", step=13)
        )
    monkeypatch.setenv("KAJITORI_CHECKPOINT", kajitori.journal()[-1]["checkpoint"]["path"])
    model, history = train(SteeringCallback(checkpoint_dir=tmp_path))
    assert history.epoch == [2, 3]
    for weights, expected in zip(model.get_weights(), whole.get_weights(), strict=True):
        np.testing.assert_array_equal(weights, expected)


@pytest.mark.parametrize("steps_per_execution", [1, 4])
def test_leaving_in_the_middle_of_an_epoch_goes_on_behind_its_batches(
    tmp_path, monkeypatch, steps_per_execution
):
    """Exactly, with data in a fixed order; what comes to the callbacks meanwhile has no metrics."""
    if steps_per_execution > 1 and keras.backend.backend() == "torch":
        steps_per_execution = 1  # Keras has no other there

    def make():
        return make_model(steps_per_execution=steps_per_execution)

    options = {"epochs": 4, "shuffle": False}
    keras.utils.set_random_seed(0)
    whole = make()
    fit(whole, **options)

    keras.utils.set_random_seed(0)
    cb = SteeringCallback(checkpoint_dir=tmp_path)
    with pytest.raises(kajitori.Left):
        fit(make(), cb, Send("pause level=leave at=step:13", step=0), **options)
    path = kajitori.journal()[-1]["checkpoint"]["path"]
    batch = 3 if steps_per_execution == 1 else 4
    assert state_of(path) == {"format": 1, "step": 10 + batch, "epoch": 1, "batch": batch}

    monkeypatch.setenv("KAJITORI_CHECKPOINT", path)
    seen = []
    watch = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: seen.append((cb.step, bool(logs)))
    )
    cb, model = SteeringCallback(checkpoint_dir=tmp_path), make()
    history, _ = fit(model, cb, watch, **options)
    assert history.epoch == [1, 2, 3]
    assert [step for step, has_metrics in seen if not has_metrics] == [10 + batch] * (
        batch // steps_per_execution
    )
    assert cb.step == int(model.optimizer.iterations) == 4 * STEPS
    for weights, expected in zip(model.get_weights(), whole.get_weights(), strict=True):
        np.testing.assert_array_equal(weights, expected)


def test_a_checkpoint_of_more_batches_than_there_are(tmp_path, monkeypatch):
    path = leave(tmp_path, "pause level=leave", epochs=4)
    monkeypatch.setenv("KAJITORI_CHECKPOINT", path)
    cb = SteeringCallback(checkpoint_dir=tmp_path)
    with pytest.raises(kajitori.FailedError, match="behind batch 4 of an epoch: this one has 2"):
        make_model().fit(X[:16], Y[:16], batch_size=8, epochs=4, verbose=0, callbacks=[cb])
    cb.run.close()


def test_extend_goes_on_with_everything_as_it_is():
    """The same fit: the other callbacks and the history are one of all epochs."""
    cb, model = SteeringCallback(epochs=2), make_model()
    early = keras.callbacks.EarlyStopping("loss", mode="max", patience=50)
    history, guard = fit(model, cb, early, Send("extend epochs=3", step=STEPS + 2), epochs=9)
    assert history.epoch == [0, 1, 2, 3, 4]
    assert guard.batches == 5 * STEPS
    assert early.wait == 4, "counts on"
    assert results("extend") == [{"total_epochs": 5}]
    assert (cb.run.ending, cb.run.should_stop) == (None, False)
    assert not kajitori.journal()[-1]["stopped"]


def test_extend_in_the_last_moment_and_what_it_says_of_the_schedule():
    schedule = keras.optimizers.schedules.CosineDecay(0.1, 20)
    model = make_model(optimizer=keras.optimizers.SGD(schedule))
    scheduler = keras.callbacks.LearningRateScheduler(lambda epoch, lr: lr)
    scheduler.on_epoch_begin = lambda epoch, logs=None: None
    cb = SteeringCallback(epochs=1)
    history, _ = fit(model, cb, scheduler, Send("extend epochs=1 at=epoch", step=2), epochs=9)
    assert history.epoch == [0, 1]
    told = [line["remark"] for line in kajitori.journal() if line.get("verb") == "extend"]
    assert told[0] == (
        "LearningRateScheduler is asked for each epoch more; "
        "lr follows CosineDecay with decay_steps=20, which does not change with it"
    )


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("extend epochs=9", "fit was given epochs=4, and cannot go on to 11"),
        ("extend steps=5", "in epochs only: extend epochs=N"),
    ],
)
def test_extend_beyond_what_fit_was_given(line, why):
    history, _ = fit(make_model(), SteeringCallback(epochs=2), Send(line), epochs=4)
    assert history.epoch == [0, 1]
    assert settled("extend")[-1][3] == why
    with pytest.raises(kajitori.ArgumentError, match="epochs: 0 is no number"):
        SteeringCallback(epochs=0)


def test_an_extension_is_in_the_checkpoint(tmp_path, monkeypatch):
    lines = ("extend epochs=2", "pause level=leave at=epoch")
    cb = SteeringCallback(checkpoint_dir=tmp_path, epochs=1)
    with pytest.raises(kajitori.Left):
        fit(make_model(), cb, Send(*lines), epochs=9)
    monkeypatch.setenv("KAJITORI_CHECKPOINT", kajitori.journal()[-1]["checkpoint"]["path"])
    history, _ = fit(make_model(), SteeringCallback(checkpoint_dir=tmp_path, epochs=1), epochs=9)
    assert history.epoch == [1, 2]


def test_a_checkpoint_of_another_folder_is_not_ours(tmp_path, monkeypatch):
    path = leave(tmp_path / "a", "pause level=leave", epochs=4)
    monkeypatch.setenv("KAJITORI_CHECKPOINT", path)
    cb = SteeringCallback(checkpoint_dir=tmp_path / "b")
    assert (cb.resumed_from, cb.initial_epoch) == ("", 0)
    history, _ = fit(make_model(), cb, epochs=1)
    assert history.epoch == [0]


def test_a_checkpoint_that_is_gone_is_an_error_and_no_fresh_start(tmp_path, monkeypatch):
    monkeypatch.setenv("KAJITORI_CHECKPOINT", str(tmp_path / "step-00000007"))
    with pytest.raises(
        kajitori.FailedError, match=r"cannot go on from the checkpoint .*step-00000007"
    ):
        fit(make_model(), SteeringCallback(checkpoint_dir=tmp_path), epochs=1)
    assert kajitori.runs() == []


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("state.json", '{"format": 1, "epo'),
        ("state.json", "[]"),
        ("state.json", '{"format": 1}'),
        ("state.json", '{"format": 1, "epoch": -1}'),
        ("state.json", None),
        (WEIGHTS[0], "torn"),
        (WEIGHTS[0], None),
    ],
)
def test_a_damaged_checkpoint_is_an_error_and_no_fresh_start(tmp_path, monkeypatch, file, content):
    path = pathlib.Path(leave(tmp_path, "pause level=leave", epochs=4))
    monkeypatch.setenv("KAJITORI_CHECKPOINT", str(path))
    (path / file).unlink()
    if content is not None:
        (path / file).write_text(content)
    with pytest.raises(kajitori.FailedError, match=r"cannot go on from the checkpoint .*step-"):
        fit(make_model(), SteeringCallback(checkpoint_dir=tmp_path), epochs=1)
    assert kajitori.runs() == []


def test_a_cell_whose_fit_was_interrupted_is_executed_again(tmp_path):
    path = tmp_path / "ctl"
    os.mkfifo(path)

    def interrupt(batch, logs):
        raise KeyboardInterrupt

    first = SteeringCallback(fifo=path)
    with pytest.raises(KeyboardInterrupt):
        fit(make_model(), first, keras.callbacks.LambdaCallback(on_train_batch_end=interrupt))
    assert not first.run.closed, "fit does not tell callbacks of exceptions"

    def echo():
        with open(path, "w") as fifo:
            fifo.write("stop\n")

    second = SteeringCallback(fifo=path)
    fit(make_model(), second, At(echo), epochs=FOR_EVER)
    assert first.run.closed
    assert second.run.should_stop


def test_the_methods_of_a_client(tmp_path):
    code = """
saved = c.checkpoint()["result"]["path"]
metrics = c.evaluate()["result"]
c.set({"lr": 0.5}, at="epoch")
ended = c.prune(rule="median", value=3.0, threshold=1.0, validate=False)
print(json.dumps([saved, metrics, ended["args"]["rule"]]))"""
    sender = At(steering(code.strip()))
    cb = SteeringCallback(checkpoint_dir=tmp_path, evaluation_data=(X, Y))
    fit(make_model(), cb, sender)
    saved, metrics, rule = last_json(sender.process)
    assert os.path.dirname(saved) == str(tmp_path)
    assert set(metrics) == {"loss", "mae"}
    assert rule == "median"
    assert cb.pruned
    assert cb.run.exit_status == 76
