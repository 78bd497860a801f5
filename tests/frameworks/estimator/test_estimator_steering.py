# SPDX-License-Identifier: Apache-2.0
"""SteeringHook: what each verb does to a session of TensorFlow."""

import copy
import pickle
import subprocess
import sys
import threading

import pytest
import tensorflow as tf
from estimators import Send, eval_input, global_step, make_estimator, train_input, v1
from kajitori._step_gate import StepGate
from sessions import WEIGHT, Weight, train
from training import applied

import kajitori
from kajitori.tensorflow import SteeringHook, learning_rate


def results(verb):
    """How commands of this verb ended: state, step, result or error."""
    return [
        (line["state"], line["step"], line.get("result") or line.get("error"))
        for line in kajitori.journal()
        if line.get("verb") == verb and line["state"] in ("done", "failed")
    ]


def test_without_tensorflow_the_module_says_what_to_install():
    code = "import sys; sys.modules['tensorflow'] = None\nimport kajitori.tensorflow"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (
        "kajitori.tensorflow needs TensorFlow (pip install tensorflow-cpu==2.15.1)" in done.stderr
    )


def test_idle_is_a_call_into_c_and_nothing_fetched():
    class Asked(v1.train.SessionRunHook):
        def before_run(self, run_context):
            asked.append(steering.before_run(run_context))

    asked, steering = [], SteeringHook(max_steps=3000)
    assert SteeringHook.after_run is StepGate.next_step
    assert train(Asked(), steering).steps == [3000]
    assert asked.count(None) > 2900


@pytest.mark.parametrize(("line", "step"), [("stop", 3), ("stop at=step:20", 20), ("prune", 3)])
def test_a_stop_ends_the_session_by_its_own_way(line, step):
    steering = SteeringHook()
    guard = train(Send(line), steering)
    assert (guard.runs, guard.ends, guard.steps) == (step, 1, [step])
    assert steering.run.ending == ("prune" if line == "prune" else "stop")
    assert steering.pruned == (line == "prune")
    assert steering.run.closed


def test_an_epoch_is_as_long_as_the_program_says():
    steering = SteeringHook(steps_per_epoch=7, max_steps=1000)
    sender = Send("stop at=epoch", "status", runs=16)
    assert train(sender, steering).steps == [21]
    status = sender.replies[1]["result"]
    assert (status["step"], status["epoch"], status["total_epochs"]) == (15, 2, 143)
    assert train(Send("stop at=epoch:2"), SteeringHook(steps_per_epoch=5)).steps == [15]


def test_without_epochs_a_command_for_their_end_acts_between_two_steps():
    guard = train(Send("stop at=epoch"), SteeringHook())
    assert guard.ends == 1
    assert [line["place"] for line in applied()] == ["epoch"]


def test_pause_holds_the_training_between_two_steps():
    weight, seen = Weight(), {}

    def outside():
        with kajitori.connect() as client:
            client.send("pause")
            seen["before"] = len(weight.values)
            client.send("set lr=0")
            seen["state"] = client.status()["state"]
            seen["after"] = len(weight.values)
            client.send("resume")
            client.send("stop")

    class Start(v1.train.SessionRunHook):
        def after_create_session(self, session, coord):
            self.thread = threading.Thread(target=outside, daemon=True)
            self.thread.start()

    start = Start()
    train(weight, SteeringHook(), start)
    start.thread.join()
    assert (seen["state"], seen["after"]) == ("paused", seen["before"])


def test_a_checkpoint_is_what_the_session_goes_on_from(tmp_path):
    folder = tmp_path / "model"
    weight = Weight()
    with pytest.raises(kajitori.Aborted):  # the session writes none of its own then
        train(
            Send("checkpoint", "abort at=step:9", runs=5),
            weight,
            SteeringHook(checkpoint_dir=folder),
            folder=folder,
        )
    assert len(weight.values) == 9
    assert results("checkpoint") == [("done", 5, {"path": str(folder / "model.ckpt-5")})]
    again = Weight()
    assert train(again, SteeringHook(max_steps=6), folder=folder).runs == 1
    assert again.values == [weight.values[5]]


def test_leaving_and_going_on(tmp_path, monkeypatch):
    folder = tmp_path / "model"
    with pytest.raises(kajitori.Left) as left:
        train(Send("pause level=leave"), SteeringHook(checkpoint_dir=folder), folder=folder)
    assert left.value.code == 75
    saved = str(folder / "model.ckpt-3")
    assert applied()[-1]["result"]["checkpoint"]["path"] == saved
    monkeypatch.setenv("KAJITORI_CHECKPOINT", saved)
    steering = SteeringHook(checkpoint_dir=folder, max_steps=5)
    guard = train(steering, folder=folder)
    assert (guard.runs, guard.steps, steering.resumed_from) == (2, [5], saved)
    with pytest.raises(kajitori.FailedError, match="the session began with step 0"):
        train(SteeringHook(checkpoint_dir=folder))
    assert kajitori.runs() == []


def test_without_a_folder_there_is_no_checkpoint():
    sender = Send("checkpoint", "pause level=leave", "evaluate", "extend steps=1", "stop")
    train(sender, SteeringHook())
    assert "neither an estimator nor a checkpoint_dir" in sender.refused["checkpoint"]
    assert "neither an estimator nor a checkpoint_dir" in sender.refused["pause level=leave"]
    assert "no estimator with an evaluation_input_fn" in sender.refused["evaluate"]
    assert "give max_steps to SteeringHook" in sender.refused["extend steps=1"]


def constant(loss, step):
    return v1.train.AdamOptimizer(0.125).minimize(loss, step)


def decayed(loss, step):
    rate = v1.train.exponential_decay(0.125, step, 1000, 1.0)
    return v1.train.MomentumOptimizer(rate, 0.0).minimize(loss, step)


def variable(loss, step):
    return v1.train.RMSPropOptimizer(learning_rate(0.125)).minimize(loss, step)


def keras_optimizer(loss, step):
    optimizer = tf.keras.optimizers.legacy.Adam(0.125)
    optimizer.iterations = step
    return optimizer.get_updates(loss, v1.trainable_variables())[0]


@pytest.mark.parametrize("minimize", [constant, decayed, variable, keras_optimizer])
def test_the_learning_rate_of_each_kind_of_optimizer(minimize, tmp_path):
    weight, folder = Weight(), tmp_path / "model"
    sender = Send("set lr=0", "set lr=1e39", "stop at=step:8")
    train(sender, weight, SteeringHook(), minimize=minimize, folder=folder)
    changed = next(line for line in applied() if line["verb"] == "set")
    assert (changed["old"], changed["new"]) == ({"lr": 0.125}, {"lr": 0.0})
    assert ("failed", 3, "lr: 1e+39 is more than float32 can hold") in results("set")
    assert len(set(weight.values[:3])) == 3
    assert len(set(weight.values[2:])) == 1
    # only what is a variable is in the checkpoint
    again = Weight()
    train(again, SteeringHook(max_steps=10), minimize=minimize, folder=folder)
    assert (again.values[0] == weight.values[-1]) == (minimize in (variable, keras_optimizer))


def test_two_learning_rates_are_refused_with_their_names():
    def minimize(loss, step):
        first = v1.train.AdamOptimizer(0.125).minimize(loss, step)
        second = v1.train.MomentumOptimizer(0.5, 0.0).minimize(loss)
        return tf.group(first, second)

    train(Send("set lr=1", "stop"), SteeringHook(), minimize=minimize)
    [(state, _, why)] = results("set")
    assert state == "failed"
    assert "2 learning rates (Adam/learning_rate, Momentum/learning_rate)" in why


@pytest.mark.parametrize(("rate", "old"), [(0.125, 0.125), (None, "NaN")])
def test_to_look_at_the_learning_rate_runs_nothing_of_the_training(rate, old):
    """As batch normalization is written: the optimizer under the dependency on its updates."""

    def minimize(loss, step):
        update = v1.get_variable("updates", initializer=0, trainable=False).assign_add(1)
        with tf.control_dependencies([update]):
            decayed = v1.train.exponential_decay(0.125, step, 1000, 1.0)
            optimizer = v1.train.GradientDescentOptimizer(rate or decayed)
            return optimizer.minimize(loss, step)

    def updates(hook):
        return int(hook.session.run("updates/Read/ReadVariableOp:0"))

    train(
        Send("get lr", "set lr=0.5", "updates", "stop"),
        SteeringHook(commands={"updates": updates}),
        minimize=minimize,
    )
    changed = next(line for line in applied() if line["verb"] == "set")
    assert (changed["old"], changed["new"]) == ({"lr": old}, {"lr": 0.5})
    assert results("updates") == [("done", 3, 3)]


def test_no_learning_rate_to_be_found():
    def minimize(loss, step):
        return step.assign_add(1)

    train(Send("set lr=1", "stop"), SteeringHook(), minimize=minimize)
    [(state, _, why)] = results("set")
    assert state == "failed"
    assert "no learning rate was found" in why


def test_extend_raises_the_last_step():
    steering = SteeringHook(max_steps=10, steps_per_epoch=4)
    assert train(Send("extend steps=3", "extend epochs=2"), steering).steps == [21]
    assert [line[2] for line in results("extend")] == [{"total_steps": 13}, {"total_steps": 21}]
    train(Send("extend epochs=1"), SteeringHook(max_steps=5))
    assert "a session has no epochs" in results("extend")[0][2]


def test_own_verbs_have_the_session():
    def weight(hook, add):
        """Adds to the weight."""
        return float(hook.session.run(WEIGHT)) + add

    steering = SteeringHook(commands={"weight": (weight, {"add": float})}, max_steps=5)
    train(Send("weight add=0.5"), steering)
    assert results("weight") == [("done", 3, 8 * 0.75**3 + 0.5)]
    with pytest.raises(kajitori.StateError, match="no session"):
        _ = steering.session


def test_metrics_are_reported_with_their_step():
    sender = Send("status", runs=50)
    tensors = {"weight": "weight/Read/ReadVariableOp", "loss": "Square:0"}
    train(sender, SteeringHook(max_steps=60, metrics=tensors))
    metrics = {metric["tag"]: metric for metric in sender.replies[0]["result"]["metrics"]}
    assert metrics.keys() == {"weight", "loss"}
    step = metrics["loss"]["step"]
    assert 1 <= step <= 50
    assert metrics["loss"]["value"] == pytest.approx((8 * 0.75 ** (step - 1)) ** 2, rel=1e-3)


def test_runs_that_are_no_steps():
    def each(session, train_op):
        session.run(WEIGHT)
        session.run(train_op)

    sender = Send("stop at=step:20", "status", runs=9)
    assert train(sender, SteeringHook(), each=each).steps == [20]
    assert sender.replies[1]["result"]["step"] == 4


def test_runs_of_several_steps():
    def minimize(loss, step):
        with tf.control_dependencies([step.assign_add(2)]):
            return v1.train.GradientDescentOptimizer(0.125).minimize(loss, step)

    sender = Send("stop at=step:20", "status", runs=5)
    assert train(sender, SteeringHook(), minimize=minimize).steps == [21]
    assert sender.replies[1]["result"]["step"] == 12


def test_a_hook_serves_one_training_after_the_other():
    steering = SteeringHook(max_steps=4)
    ids = set()
    for _ in range(2):
        assert train(steering).steps == [4]
        ids.add(steering.run.id)
    assert len(ids) == 2


def test_a_training_that_failed_leaves_the_hook_usable():
    def fail(session, train_op):
        raise ValueError("of the program")

    steering = SteeringHook(max_steps=4)
    with pytest.raises(ValueError, match="of the program"):
        train(steering, each=fail)
    failed = steering.run
    assert train(steering).steps == [4]
    assert failed.closed


def test_a_session_that_is_lost_and_made_anew_is_the_same_run():
    """As when a parameter server was preempted; here nothing was saved, so the steps begin anew."""

    class Lose(v1.train.SessionRunHook):
        def after_run(self, run_context, run_values):
            ids.append(steering.run.id)
            if len(ids) == 5:
                raise tf.errors.AbortedError(None, None, "preempted")

    ids, steering = [], SteeringHook()
    sender = Send("stop at=step:7", "status", runs=7)  # the third run of the second session
    guard = train(Lose(), sender, steering)
    assert (guard.runs, guard.steps) == (12, [7])
    assert sender.replies[1]["result"]["step"] == 2
    assert set(ids) == {sender.replies[1]["result"]["id"]}


def test_a_run_of_ones_own_that_was_stopped_trains_no_more():
    with kajitori.Run(name="mine") as run:
        assert train(Send("stop"), SteeringHook(run=run)).steps == [3]
        assert train(SteeringHook(run=run)).steps == [0]
        assert not run.closed


def test_a_stop_that_comes_before_the_first_step(tmp_path, monkeypatch):
    schedule = tmp_path / "schedule"
    schedule.write_text("stop at=step:0\n")
    monkeypatch.setenv("KAJITORI_SCHEDULE", str(schedule))
    guard = train(SteeringHook())
    assert (guard.runs, guard.ends) == (0, 1)


def test_a_graph_without_a_global_step():
    with (
        tf.Graph().as_default(),
        pytest.raises(kajitori.ArgumentError, match="no global step"),
        v1.train.MonitoredSession(hooks=[SteeringHook()]),
    ):
        pass


def test_copies_have_no_part_in_the_training():
    copies = []

    class Copy(v1.train.SessionRunHook):
        def after_run(self, run_context, run_values):
            copies.extend([copy.copy(steering), pickle.loads(pickle.dumps(steering))])

    steering = SteeringHook(name="original", max_steps=2)
    train(Copy(), steering)
    for other in copies:
        assert other.run is None
        assert train(other).steps == [2]


def test_estimator_with_evaluation_and_loss(tmp_path):
    estimator = make_estimator(tmp_path / "model")
    steering = SteeringHook(estimator=estimator, evaluation_input_fn=eval_input)
    sender, status = Send("evaluate", "stop at=step:30"), Send("status", runs=20)
    estimator.train(train_input, hooks=[sender, status, steering], max_steps=1000)
    assert global_step(estimator) == 30
    [(state, step, metrics)] = results("evaluate")
    assert (state, step, metrics.keys()) == ("done", 3, {"accuracy", "loss", "global_step"})
    assert metrics["global_step"] == 3
    tags = {metric["tag"] for metric in status.replies[0]["result"]["metrics"]}
    assert "loss" in tags
    assert tags <= {"loss", "eval_steering/loss", "eval_steering/accuracy"}
    estimator.train(train_input, max_steps=31)
    assert global_step(estimator) == 31
