# SPDX-License-Identifier: Apache-2.0
"""SteeringCallback on real Keras: the commands come from other processes, the training is `fit`."""

import os
import shlex
import subprocess
import sys
import textwrap
import time

import keras
import pytest
from conftest import BACKEND
from fits import FOR_EVER, STEPS, At, Guard, X, Y, fit, make_model, shell, steering
from training import PATIENCE, applied, last_json

import kajitori
from kajitori.keras import SteeringCallback

pytestmark = [
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
    pytest.mark.usefixtures("fresh_keras"),
]


def ask_meanwhile(run, sender):
    """What the other process got, while this one polls."""
    deadline = time.monotonic() + PATIENCE
    while sender.process.poll() is None:
        run.poll()
        assert time.monotonic() < deadline
    return last_json(sender.process)


def test_echo_stop_into_a_fifo_made_by_mkfifo(tmp_path):
    path = tmp_path / "ctl"
    subprocess.run(["mkfifo", "-m", "622", path], check=True)
    cb = SteeringCallback(fifo=path)
    echo = At(shell(f"echo stop > {shlex.quote(str(path))}"))
    history, guard = fit(make_model(), cb, echo)
    assert echo.process.wait() == 0
    assert cb.run.should_stop
    assert cb.run.closed
    assert kajitori.runs() == []
    assert path.exists()
    # history is whole: one entry for each epoch begun, also for the last, partial one
    assert len(history.history["loss"]) == guard.epochs == history.epoch[-1] + 1
    (stop,) = applied()
    assert stop["door"] == "fifo"
    assert stop["step"] == guard.batches == cb.step


def test_echo_stop_into_a_fifo_that_was_not_there(tmp_path):
    path = tmp_path / "ctl"
    cb = SteeringCallback(fifo=str(path))
    fit(make_model(), cb, At(shell(f"printf STOP > {shlex.quote(str(path))}")))
    assert cb.run.should_stop
    assert not path.exists()


def test_stop_over_the_socket_says_at_which_step_and_keeps_the_reason():
    cb = SteeringCallback()
    sender = At(steering("print(json.dumps(c.send('stop reason=\"seen enough\"')))"))
    _, guard = fit(make_model(), cb, sender)
    record = last_json(sender.process)
    assert record["state"] in ("applied", "done")
    assert record["step"] == guard.batches
    assert record["epoch"] == guard.epochs - 1
    assert cb.run.stop_reason == "seen enough"


def test_stop_at_the_end_of_the_epoch():
    sender = At(steering("print(json.dumps(c.send('stop at=epoch', wait='accepted')))"))
    _, guard = fit(make_model(), SteeringCallback(), sender, validate=True)
    last_json(sender.process)
    assert guard.batches == guard.epochs * STEPS
    assert guard.tests == guard.epochs * STEPS, "its validation ran, too"


@pytest.mark.parametrize("at", [5, STEPS, 2 * STEPS + 3])
def test_stop_at_a_step_runs_exactly_so_many_steps(tmp_path, at):
    """Sent by an own verb's way: from the first batch on, so that the step is not past yet."""
    path = tmp_path / "ctl"
    os.mkfifo(path)
    cb = SteeringCallback(fifo=path)

    class Write(keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            with kajitori.connect() as client:
                client.send(f"stop at=step:{at}", wait="accepted")

    guard = Guard()
    model = make_model()
    model.fit(X, Y, batch_size=8, epochs=100, verbose=0, callbacks=[cb, Write(), guard])
    assert guard.batches == at
    assert int(model.optimizer.iterations) == at
    assert applied()[0]["step"] == at


def test_a_stop_between_two_epochs_is_applied_where_keras_obeys_it():
    """That is after the first batch of the next one, and so says the reply."""

    class Send(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 1:
                with kajitori.connect() as client:
                    client.send("stop", wait="accepted")

    _, guard = fit(make_model(), SteeringCallback(), Send())
    assert guard.batches == STEPS + 1
    assert [(line["step"], line["epoch"]) for line in applied()] == [(STEPS + 1, 1)]


def test_a_stop_during_validation_acts_at_the_end_of_the_epoch():
    sender = At(
        steering("print(json.dumps([c.status()['phase'], c.send('stop')]))"),
        hook="on_test_batch_end",
    )

    class Slow(keras.callbacks.Callback):
        """The validation does not end before the stop was applied."""

        def on_test_end(self, logs=None):
            deadline = time.monotonic() + PATIENCE
            while not cb.run.poll():
                assert time.monotonic() < deadline

    cb = SteeringCallback()
    history, guard = fit(make_model(), cb, sender, Slow(), validate=True)
    phase, record = last_json(sender.process)
    assert phase == "validation"
    assert record["epoch"] == 0
    assert (guard.epochs, guard.batches, guard.tests) == (1, STEPS, STEPS)
    assert len(history.history["val_loss"]) == 1


def test_commands_act_between_two_batches_of_a_validation():
    seen = []

    def send_and_wait():
        process = steering("print(json.dumps(c.send('mark', wait='accepted')))")()
        process.wait(PATIENCE)
        return process

    class End(keras.callbacks.Callback):
        def on_test_end(self, logs=None):
            seen.append("end of the validation")

    cb = SteeringCallback(commands={"mark": lambda cb: seen.append("mark")})
    sender = At(send_and_wait, hook="on_test_batch_end")
    fit(make_model(), cb, sender, End(), epochs=1, validate=True)
    assert last_json(sender.process)["state"] == "accepted"
    assert seen == ["mark", "end of the validation"]


def test_the_code_after_fit_runs_and_the_next_fit_is_whole(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        textwrap.dedent("""
        import subprocess
        import keras, numpy as np
        from kajitori.keras import SteeringCallback

        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        x, y = np.ones((16, 2)), np.ones((16, 1))
        echo = keras.callbacks.LambdaCallback(
            on_epoch_end=lambda epoch, logs: epoch == 2 and subprocess.Popen("echo stop > ctl", shell=True)
        )
        model.fit(x, y, epochs=1000000, verbose=0, callbacks=[SteeringCallback(fifo="ctl"), echo])
        model.save("model.keras")
        history = model.fit(x, y, epochs=3, verbose=0, callbacks=[SteeringCallback(fifo="ctl")])
        print("the end", len(history.history["loss"]))
        """)
    )
    done = subprocess.run(
        [sys.executable, script], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.stdout == "the end 3\n", done.stderr
    assert done.returncode == 0
    assert (tmp_path / "model.keras").exists()
    assert not (tmp_path / "ctl").exists()


def test_set_lr_replies_with_old_and_new_value_read_back():
    model = make_model(learning_rate=0.001)
    sender = At(steering("print(json.dumps([c.send('set lr=1e-4'), c.send('stop')]))"))
    _, guard = fit(model, SteeringCallback(), sender)
    record, _ = last_json(sender.process)
    assert (record["old"], record["new"]) == ({"lr": 0.001}, {"lr": 0.0001})
    assert 3 <= record["step"] <= guard.batches
    assert float(model.optimizer.learning_rate) == pytest.approx(1e-4)


@pytest.mark.parametrize("value", ["-1", "nan", "fast"])
def test_a_wrong_lr_is_rejected_and_training_goes_on(value):
    code = f"""
try:
    c.send("set lr={value}")
except kajitori.RejectedError as error:
    print(json.dumps(str(error)))
c.send("stop")"""
    model = make_model()
    sender = At(steering(code.strip()))
    fit(model, SteeringCallback(), sender)
    assert "lr" in last_json(sender.process)
    assert float(model.optimizer.learning_rate) == 0.125


def test_pause_and_resume():
    code = """
paused = c.send("pause")
states = [c.status(), c.status()]
resumed = c.send("resume")
c.send("stop")
print(json.dumps([paused, states, resumed]))"""
    sender = At(steering(code.strip()))
    fit(make_model(), SteeringCallback(), sender)
    paused, states, resumed = last_json(sender.process)
    assert [state["state"] for state in states] == ["paused", "paused"]
    assert states[0]["step"] == states[1]["step"] == paused["step"] == resumed["step"]


def test_status_shows_place_metrics_and_parameters():
    code = """
status = c.status()
while "val_mae" not in [m["tag"] for m in status["metrics"]]:
    status = c.status()
c.send("stop")
print(json.dumps(status))"""
    sender = At(steering(code.strip()))
    history, _ = fit(make_model(), SteeringCallback(), sender, validate=True)
    status = last_json(sender.process)
    metrics = {metric["tag"]: metric for metric in status["metrics"]}
    assert set(metrics) == {"loss", "mae", "val_loss", "val_mae"}
    epoch = metrics["val_mae"]["step"] // STEPS - 1
    assert metrics["val_mae"]["value"] == pytest.approx(history.history["val_mae"][epoch])
    assert status["params"] == {"lr": 0.125}
    assert status["total_epochs"] == FOR_EVER
    assert status["total_steps"] == FOR_EVER * STEPS
    (info,) = [kajitori.journal()[0]["run"]]
    framework = {"tf.keras": f"tf.keras {keras.__version__}"}
    assert info["framework"] == framework.get(BACKEND, f"keras {keras.__version__} ({BACKEND})")


def test_status_is_answered_while_a_callback_holds_the_interpreter():
    """As in test_run.py, inside of fit."""
    import ctypes

    read_end, write_end = os.pipe()
    code = f"""
status = c.status()
os_write({write_end}, b"x")
c.send("stop")
print(json.dumps(status))"""
    prelude = "import os; os_write = os.write\n"

    def start():
        text = f"{prelude}import json, kajitori\nwith kajitori.connect() as c:\n"
        text += "".join(f"    {line}\n" for line in code.strip().splitlines())
        child = subprocess.Popen(
            [sys.executable, "-c", text], stdout=subprocess.PIPE, text=True, pass_fds=[write_end]
        )
        buffer = ctypes.create_string_buffer(1)
        # holds the interpreter's lock until the other process has its answer
        assert ctypes.PyDLL(None).read(read_end, buffer, 1) == 1
        return child

    sender = At(start)
    fit(make_model(), SteeringCallback(), sender)
    assert last_json(sender.process)["step"] == 2
    os.close(read_end)
    os.close(write_end)


def test_own_verbs_get_the_callback_and_their_arguments(tmp_path):
    def freeze(cb, count):
        """Freezes the first layers."""
        for layer in cb.model.layers[:count]:
            layer.trainable = False
        return {"step": cb.step, "epoch": cb.epoch}

    model = make_model()
    path = tmp_path / "now.keras"
    cb = SteeringCallback(
        commands={
            "save": lambda cb: cb.model.save(path),
            "freeze": (freeze, {"count": kajitori.Arg(type=int, min=1)}),
            "broken": lambda cb: 1 / 0,
        }
    )
    code = """
def reason(line):
    try:
        return c.send(line)
    except kajitori.Error as error:
        return [type(error).__name__, str(error)]
lines = ["save", "freeze count=1", "freeze", "freeze count=0", "broken", "fly", "stop"]
verbs = {v["name"]: v for v in c.call("help")["verbs"]}
print(json.dumps([[reason(line) for line in lines], verbs["freeze"]["help"]]))"""
    sender = At(steering(code.strip()))
    fit(model, cb, sender)
    answers, help_text = last_json(sender.process)
    saved, frozen, missing, small, broken, unknown, stopped = answers
    assert saved["state"] == "done" or saved["state"] == "applied"
    assert path.exists()
    if keras.backend.backend() == "jax":
        reason = "on JAX no layer's `trainable` can change during a fit"
        assert frozen == ["FailedError", reason]
        assert model.layers[0].trainable
    else:
        assert frozen["result"] == {"step": frozen["step"], "epoch": frozen["epoch"]}
        assert not model.layers[0].trainable
    assert missing[0] == small[0] == unknown[0] == "RejectedError"
    assert broken == ["FailedError", "ZeroDivisionError: division by zero"]
    assert stopped["step"] >= saved["step"]
    assert help_text == "Freezes the first layers."


def test_own_parameters():
    values = {"dropout": 0.5, "augment": True, "lr": 7}
    cb = SteeringCallback(
        parameters={
            "dropout": (lambda: values["dropout"], lambda v: values.update(dropout=v), 0, 0.9),
            "augment": (lambda: values["augment"], lambda v: values.update(augment=v)),
            "lr": (lambda: values["lr"], None),
        }
    )
    code = """
c.send("set dropout=0.25 augment=false")
try:
    c.send("set dropout=0.95")
except kajitori.RejectedError as error:
    print(json.dumps([str(error), c.status()["params"]]))
c.send("stop")"""
    sender = At(steering(code.strip()))
    fit(make_model(), cb, sender)
    message, params = last_json(sender.process)
    assert "0.9" in message
    assert params == {"dropout": 0.25, "augment": False, "lr": 7}
    assert values == {"dropout": 0.25, "augment": False, "lr": 7}


def test_parameters_as_a_list():
    param = kajitori.Param(name="beta", get=lambda: 0.9, help="momentum")
    seen = []
    cb = SteeringCallback(parameters=[param], commands={"look": lambda cb: seen.append(cb.run.id)})
    fit(make_model(), cb, epochs=1)
    assert seen == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"commands": {"x": 3}}, "command x"),
        ({"commands": {"x": (print, 5)}}, "command x: neither a function nor a pair"),
        ({"commands": {"x": (print, {}, 5)}}, "command x: neither a function nor a pair"),
        ({"commands": {"x": (print, {"n": list})}}, "none of float, int, bool, str"),
        ({"parameters": {"x": (1, 2)}}, "parameter x"),
        ({"parameters": {"x": lambda: 1}}, "parameter x"),
    ],
)
def test_wrong_arguments_are_refused(arguments, message):
    with pytest.raises(kajitori.ArgumentError, match=message):
        fit(make_model(), SteeringCallback(**arguments), epochs=1)


def test_fifo_and_run_together_are_refused():
    with kajitori.Run() as run, pytest.raises(kajitori.ArgumentError, match="fifo"):
        SteeringCallback(fifo="x", run=run)


def test_bad_bytes_and_unknown_commands_do_not_end_the_training(tmp_path):
    path = tmp_path / "ctl"
    os.mkfifo(path)
    line = f"printf '\\377\\376\\nfly\\n\\nset lr=x\\nstop\\n' > {shlex.quote(str(path))}"
    fit(make_model(), SteeringCallback(fifo=path), At(shell(line)))
    lines = kajitori.journal()
    assert [record["state"] for record in lines if record.get("state") == "rejected"] == [
        "rejected"
    ] * 3
    assert [record["verb"] for record in lines if record.get("state") == "applied"] == ["stop"]


def test_a_fifo_that_is_deleted_does_not_end_the_training(tmp_path):
    path = tmp_path / "ctl"
    os.mkfifo(path)
    line = f"rm {shlex.quote(str(path))}"
    remove, sender = At(shell(line)), At(steering("c.send('stop'); print('null')"), batches=5)
    fit(make_model(), SteeringCallback(fifo=path), remove, sender)
    last_json(sender.process)


def test_a_regular_file_in_place_of_the_fifo_is_one_warning(tmp_path):
    path = tmp_path / "ctl"
    path.write_text("stop\n")
    with pytest.warns(kajitori.ChannelWarning, match="ctl") as caught:
        _, guard = fit(make_model(), SteeringCallback(fifo=path), epochs=2)
    assert len([w for w in caught if w.category is kajitori.ChannelWarning]) == 1
    assert guard.batches == 2 * STEPS
    assert path.read_text() == "stop\n"


@pytest.mark.backends("tensorflow", "jax", "tf.keras")
@pytest.mark.parametrize("at", [None, 14, 19])
def test_steps_per_execution(at):
    """Batches come in fours, the last of an epoch is cut: 4, 8, 10."""
    model = make_model(steps_per_execution=4)
    cb = SteeringCallback()
    steps = []

    class Watch(keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            if at:
                with kajitori.connect() as client:
                    client.send(f"stop at=step:{at}", wait="accepted")

        def on_train_batch_end(self, batch, logs=None):
            steps.append(cb.step)

    model.fit(X, Y, batch_size=8, epochs=3, verbose=0, callbacks=[cb, Watch()])
    whole = [4, 8, 10, 14, 18, 20, 24, 28, 30]
    expected = {None: whole, 14: whole[:4], 19: whole[:6]}[at]
    assert steps == expected
    assert int(model.optimizer.iterations) == expected[-1]


@pytest.mark.parametrize(
    "steps_per_execution",
    [
        pytest.param(1, marks=pytest.mark.backends("tensorflow", "tf.keras")),  # its tf.data
        pytest.param(3, marks=pytest.mark.backends("tensorflow")),
    ],
)
def test_data_of_unknown_length(steps_per_execution):
    import tensorflow as tf

    def batches():
        for _ in range(7):
            yield X[:8], Y[:8]

    shape = tf.TensorSpec((None, 4)), tf.TensorSpec((None, 1))
    data = tf.data.Dataset.from_generator(batches, output_signature=shape)
    cb = SteeringCallback()
    steps = []
    watch = keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda epoch, logs: steps.append(cb._first)
    )
    model = make_model(steps_per_execution=steps_per_execution)
    model.fit(data, epochs=3, verbose=0, callbacks=[cb, watch])
    assert steps == [0, 7, 14]


def test_a_second_fit_of_one_model_goes_on_counting():
    cb, model = SteeringCallback(), make_model()
    fit(model, cb, epochs=1)
    fit(model, cb, epochs=1)
    assert cb.step == 2 * STEPS


def test_several_fits_in_one_process_are_several_runs():
    cb = SteeringCallback()
    ids = []
    for epochs in (1, 2):
        model = make_model()
        fit(model, cb, epochs=epochs)
        ids.append(cb.run.id)
        assert cb.run.closed
    assert len(set(ids)) == 2
    ends = [kajitori.journal(run_id)[-1] for run_id in ids]
    assert [(end["event"], end["step"]) for end in ends] == [("run_ended", 10), ("run_ended", 20)]


def test_several_fits_of_one_run_go_on_counting():
    seen = []
    with kajitori.Run() as run:
        for number in (1, 2):
            model = make_model(learning_rate=0.5**number)
            # on a run that has them from the fit before, lr and verb are those of this fit
            cb = SteeringCallback(run=run, commands={"which": lambda cb, n=number: n})
            code = "print(json.dumps([c.send('which')['result'], c.send('set lr=1')['old']['lr']]))"
            sender = At(steering(code))

            def wait(epoch, logs, sender=sender):
                seen.append(ask_meanwhile(run, sender))

            fit(model, cb, sender, keras.callbacks.LambdaCallback(on_epoch_end=wait), epochs=1)
            assert float(model.optimizer.learning_rate) == 1
            assert not run.closed
            assert run.step == number * STEPS
    assert seen == [[1, 0.5], [2, 0.25]]
    assert kajitori.runs() == []


def test_a_run_that_was_stopped_ends_each_later_fit_after_a_batch():
    with kajitori.Run() as run:
        sender = At(steering("c.send('stop'); print('null')"))
        fit(make_model(), SteeringCallback(run=run), sender)
        last_json(sender.process)
        _, guard = fit(make_model(), SteeringCallback(run=run))
        assert guard.batches == 1


def test_an_exception_in_fit_and_then_another_fit():
    cb = SteeringCallback()

    def fail(batch, logs):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fit(make_model(), cb, keras.callbacks.LambdaCallback(on_train_batch_end=fail))
    first = cb.run.id
    fit(make_model(), cb, epochs=1)
    assert kajitori.runs() == []
    assert kajitori.journal(first)[-1]["event"] == "run_ended"


def test_evaluate_and_predict_outside_of_fit():
    cb = SteeringCallback()
    model = make_model()
    model.evaluate(X, Y, verbose=0, callbacks=[cb])
    model.predict(X, verbose=0, callbacks=[cb])
    assert cb.run is None
    fit(model, cb, epochs=1)
    model.evaluate(X, Y, verbose=0, callbacks=[cb])
    model.predict(X, verbose=0, callbacks=[cb])
    assert cb.run.closed


@pytest.mark.backends("tensorflow", "torch", "tf.keras")  # on JAX Keras wants one
def test_a_model_without_an_optimizer_of_its_own():
    class Loop(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = keras.layers.Dense(1)

        def call(self, x):
            return self.dense(x)

        def train_step(self, data):
            return {"loss": 0.5}

    model = Loop()
    model.compile()
    model.optimizer = None
    cb = SteeringCallback()
    steps = []
    watch = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: steps.append(cb.step))
    model.fit(X, Y, batch_size=8, epochs=3, verbose=0, callbacks=[cb, watch])
    assert steps == [10, 20, 30]


def test_the_callback_steers_its_own_fit_when_two_trainings_run(tmp_path):
    """A command for one run does not reach the other."""
    other = kajitori.Run(run_id="other")
    cb = SteeringCallback(name="fit")
    code = "with kajitori.connect('fit') as f:\n    f.send('stop')\nprint('null')"
    text = f"import kajitori\n{code}"
    sender = At(
        lambda: subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True)
    )
    fit(make_model(), cb, sender)
    last_json(sender.process)
    assert cb.run.should_stop
    assert other.poll() is False
    other.close()
