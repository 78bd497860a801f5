# SPDX-License-Identifier: Apache-2.0
"""What goes wrong when a callback polls a FIFO, one test for each case that was measured, with what
should happen instead. Those that are not here have a test of this kind elsewhere:

a stop to which fit returns, the code behind it, the next fit: test_keras.py
a stop at an exact step, steps_per_execution, data of unknown length: test_keras.py
a missing, deleted or regular file in the FIFO's place, bad bytes, unknown commands: test_keras.py
a writer that opens the FIFO and stays silent, gradient accumulation: test_keras_fits.py
what a stop does to other callbacks, BackupAndRestore, EarlyStopping: test_keras_partial.py, test_keras_fits.py
a stop during a validation, and what becomes of it: test_keras_verbs.py
"""

import os
import subprocess
import sys
import textwrap
import threading

import keras
import pytest
from fits import FOR_EVER, STEPS, At, Guard, X, Y, fit, make_model
from test_keras_fits import Send, settled
from training import PATIENCE, applied
from waiting import echo_that_waits

import kajitori
from kajitori.keras import SteeringCallback

pytestmark = [
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
    pytest.mark.usefixtures("fresh_keras"),
]


def echo(line, path):
    """As a shell's echo, that fails where it would hang: when nobody reads."""
    fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    os.write(fd, line.encode() + b"\n")
    os.close(fd)


class In(keras.callbacks.Callback):
    """Does something once in a hook."""

    def __init__(self, hook, action, after=0):
        super().__init__()
        self.action, self.left = action, after
        setattr(self, hook, self._act)

    def _act(self, *args, logs=None):
        if self.left == 0:
            self.action()
        self.left -= 1


def ask(line):
    with kajitori.connect() as client:
        return client.send(line, wait="accepted")


def test_a_stop_during_validation_is_answered_at_once():
    """Not after the rest of it, and one more validation."""
    answers = []
    send = In("on_test_batch_begin", lambda: answers.append(ask("stop")), after=3)
    _, guard = fit(make_model(), SteeringCallback(skip_validation=True), send, validate=True)
    assert answers[0]["state"] == "accepted"
    assert (guard.batches, guard.tests) == (STEPS, 4)
    (stop,) = applied()
    assert stop["phase"] == "validation"


def test_a_stop_before_the_first_step(tmp_path):
    """From before the imports on a writer would wait; here it is told at once that nobody is there,
    and once fit has begun the stop ends it after the first step."""
    path = tmp_path / "ctl"
    os.mkfifo(path)
    with pytest.raises(OSError, match="No such device"):
        echo("stop", path)
    begun = In("on_train_begin", lambda: echo("stop", path))
    guard = Guard()
    callbacks = [SteeringCallback(fifo=path), begun, guard]
    make_model().fit(X, Y, batch_size=8, epochs=FOR_EVER, verbose=0, callbacks=callbacks)
    assert guard.batches == 1


def test_a_stop_during_the_first_compilation_is_answered_meanwhile():
    """The thread that sends it has its answer while the training is in train_step's tracing."""
    answers = []

    class Traced(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = keras.layers.Dense(1)

        def call(self, x, training=None):
            if training and kajitori.runs() and not answers:
                sender = threading.Thread(target=lambda: answers.append(ask("stop")))
                sender.start()
                sender.join(PATIENCE)
            return self.dense(x)

    model = Traced()
    model.compile("sgd", "mse")
    _, guard = fit(model, SteeringCallback())
    assert [answer["state"] for answer in answers] == ["accepted"]
    assert guard.batches == 1


@pytest.mark.backends("tensorflow", "jax", "tf.keras")
@pytest.mark.parametrize(("sent", "seen"), [(5, 20), (25, 40), (41, 45)])
def test_steps_per_execution_20_in_an_epoch_of_45(sent, seen):
    """Acts at the next of the steps at which Keras lets anybody in, and knows its true number."""
    model = make_model(steps_per_execution=20)
    x = X[:45]
    cb, guard = SteeringCallback(), Guard()
    told = In("on_train_batch_begin", lambda: ask("stop"), after=sent // 20)
    callbacks = [cb, told, guard]
    model.fit(x, Y[:45], batch_size=1, epochs=9, verbose=0, callbacks=callbacks)
    assert int(model.optimizer.iterations) == cb.step == seen
    assert [line["step"] for line in applied()] == [seen]


@pytest.mark.parametrize("what", ["evaluate", "predict"])
def test_during_evaluate_and_predict_after_fit_nobody_waits(tmp_path, what):
    """The run is over: a writer is told so, and does not hang."""
    path = tmp_path / "ctl"
    os.mkfifo(path)
    cb, model = SteeringCallback(fifo=path), make_model()
    fit(model, cb, epochs=1)

    def command():
        with pytest.raises(OSError, match="No such device"):
            echo("stop", path)
        with pytest.raises(kajitori.NoSuchRunError):
            kajitori.connect()

    hook = "on_test_batch_end" if what == "evaluate" else "on_predict_batch_end"
    if what == "evaluate":
        model.evaluate(X, Y, verbose=0, callbacks=[cb, In(hook, command)])
    else:
        model.predict(X, verbose=0, callbacks=[cb, In(hook, command)])


def test_a_stop_while_paused():
    def pause_and_stop():
        ask("pause")
        ask("stop")

    _, guard = fit(make_model(), SteeringCallback(), In("on_train_batch_begin", pause_and_stop))
    assert guard.batches == 1
    assert [line["verb"] for line in applied()] == ["pause", "stop"]


def test_two_stops():
    _, guard = fit(make_model(), SteeringCallback(), Send("stop", "stop at=epoch", "stop", step=0))
    assert guard.batches == 1
    ends = {line["seq"]: line["state"] for line in kajitori.journal() if "seq" in line}
    assert ends == {1: "done", 2: "expired", 3: "done"}, "one that acts later is replaced"


@pytest.mark.parametrize("value", ["nan", "NaN", "inf", "-inf"])
def test_set_of_nan(value):
    model = make_model()
    refused = []

    def send():
        with pytest.raises(kajitori.RejectedError) as caught:
            ask(f"set lr={value}")
        refused.append(str(caught.value))

    fit(model, SteeringCallback(), In("on_train_batch_begin", send), epochs=1)
    assert "lr" in refused[0]
    assert float(model.optimizer.learning_rate) == 0.125


def test_set_of_a_scheduled_lr():
    """Takes the schedule's place, and says so (what it does to the training: test_keras_rates.py)."""
    schedule = keras.optimizers.schedules.CosineDecay(0.1, 100)
    model = make_model(optimizer=keras.optimizers.SGD(schedule))
    fit(model, SteeringCallback(), Send("set lr=0.5"), epochs=1)
    ((state, old, new, _),) = settled("set")
    assert (state, new) == ("applied", {"lr": 0.5})
    assert old["lr"] < 0.1
    told = [line["remark"] for line in kajitori.journal() if line.get("verb") == "set"]
    assert "lr follows CosineDecay with decay_steps=100" in told[0]


@pytest.mark.parametrize("line", ["stop", " stop", "stop ", "STOP", "stop\r", "set lr=0.5\nstop"])
def test_forms_of_a_line(tmp_path, line):
    path = tmp_path / "ctl"
    os.mkfifo(path)
    fit(make_model(), SteeringCallback(fifo=path), At(lambda: echo(line, path)))
    assert applied()[-1]["verb"] == "stop"


def test_what_an_earlier_training_left_does_not_stop_this_one(tmp_path):
    """A trainer is killed, `echo stop` waits at its FIFO, and the next training begins."""
    path = tmp_path / "ctl"
    os.mkfifo(path)
    waiting = echo_that_waits("stop", path)
    _, guard = fit(make_model(), SteeringCallback(fifo=path), epochs=3)
    assert waiting.wait(PATIENCE) == 0
    assert guard.batches == 3 * STEPS
    assert [
        line["text"].strip() for line in kajitori.journal() if line.get("event") == "stale"
    ] == ["stop"]


def test_a_command_in_two_writes(tmp_path):
    path = tmp_path / "ctl"
    os.mkfifo(path)

    class Slow(keras.callbacks.Callback):
        """Writes the second half ten steps later: the training goes on meanwhile."""

        batches = 0

        def on_train_batch_end(self, batch, logs=None):
            self.batches += 1
            if self.batches == 1:
                self.fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
                os.write(self.fd, b"st")
            if self.batches == 11:
                os.write(self.fd, b"op\n")

    slow = Slow()
    fit(make_model(), SteeringCallback(fifo=path), slow)
    os.close(slow.fd)
    assert slow.batches >= 11
    assert [line["verb"] for line in applied()] == ["stop"]


def test_a_program_that_left_goes_on_where_it_was(tmp_path):
    """Two processes: `pause level=leave` in the first, the second is what `resume` starts."""
    script = tmp_path / "train.py"
    script.write_text(
        textwrap.dedent("""
        import keras, numpy as np
        from kajitori.keras import SteeringCallback

        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        model.compile("adam", "mse")
        steering = SteeringCallback(checkpoint_dir="checkpoints")
        seen = keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: print(epoch, flush=True))
        x, y = np.ones((16, 2)), np.ones((16, 1))
        model.fit(x, y, batch_size=8, epochs=100000, verbose=0, callbacks=[steering, seen])
        print("fit returned", steering.pruned, steering.run.ending)
        """)
    )

    def start(**more):
        return subprocess.Popen(
            [sys.executable, script],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | more,
        )

    process = start()
    assert process.stdout.readline() == "0\n"
    ask("pause level=leave at=epoch")
    epochs, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 75
    assert "fit returned" not in epochs
    path = kajitori.journal()[-1]["checkpoint"]["path"]

    process = start(KAJITORI_CHECKPOINT=path)
    first = process.stdout.readline()
    ask("prune rule=test")
    out, _ = process.communicate(timeout=PATIENCE)
    assert int(first) == int(epochs.split()[-1] if epochs else 0) + 1
    assert out.endswith("fit returned True prune\n")
    assert process.returncode == 0
