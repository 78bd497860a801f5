# SPDX-License-Identifier: Apache-2.0
"""What `SteeringCallback` costs each step of a real Keras fit, against a callback that does nothing,
and beside one that opens, reads and closes a FIFO at every step.

All three sit in one fit. At the end of each batch a dispatcher lets one of them act: each block of
three steps has all three, in an order drawn by lot. The CPU time of the whole process from this moment
to the same moment of the next step belongs to the one that acted, so what it does to caches and other
threads is in it, too. Compared are the three of a block; the bounds are a bootstrap over the blocks.
What `SteeringCallback` does every so many steps or seconds it does here every three times as many, since
it sees a third of the steps.

Instructions are those of user space, counted by valgrind in a loop over each callback's body (virtual
machines often have no counters for perf). What the kernel does for the polling callback is not in them.
"""

import fcntl
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time

os.environ.update(
    TF_CPP_MIN_LOG_LEVEL="3",
    TF_ENABLE_ONEDNN_OPTS="0",
    CUDA_VISIBLE_DEVICES="-1",
    TF_NUM_INTRAOP_THREADS="1",
    TF_NUM_INTEROP_THREADS="1",
)
import keras
import numpy as np

import kajitori.keras
from kajitori import _steering

BODIES = pathlib.Path(__file__).with_name("keras_bodies.py")
TARGET_US = 5
STEPS = 241  # of an epoch
EPOCHS = 205
WARM_UP = 5
RESAMPLES = 4000
NAMES = ("empty", "steering", "polling")


class Empty(keras.callbacks.Callback):
    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        pass


class Polling(keras.callbacks.Callback):
    """Reads a command in the way that many programs do: six system calls, the training thread waits
    for a writer that is silent, and what comes behind the first read is thrown away."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        fd = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK)
        fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) & ~os.O_NONBLOCK)
        text = os.read(fd, 128)
        while os.read(fd, 128):
            pass
        os.close(fd)
        if text.strip() == b"stop":
            self.model.stop_training = True


class Dispatcher(keras.callbacks.Callback):
    """Hands everything on to all, and the end of a batch to one."""

    def __init__(self, callbacks: dict[str, keras.callbacks.Callback]) -> None:
        super().__init__()
        self.callbacks = callbacks
        self.ends = {name: callbacks[name].on_train_batch_end for name in NAMES}
        self.lots = random.Random(0)
        self.blocks: list[dict[str, float]] = []
        self.body: dict[str, list[int]] = {name: [] for name in NAMES}

    def set_model(self, model: keras.Model) -> None:
        super().set_model(model)
        for callback in self.callbacks.values():
            callback.set_model(model)

    def set_params(self, params: dict) -> None:
        super().set_params(params)
        for callback in self.callbacks.values():
            callback.set_params(params)

    def on_train_begin(self, logs: object = None) -> None:
        for callback in self.callbacks.values():
            callback.on_train_begin(logs)

    def on_train_end(self, logs: object = None) -> None:
        for callback in self.callbacks.values():
            callback.on_train_end(logs)

    def on_epoch_begin(self, epoch: int, logs: object = None) -> None:
        for callback in self.callbacks.values():
            callback.on_epoch_begin(epoch, logs)
        self.is_counted = epoch >= WARM_UP
        self.left: list[str] = []
        self.block: dict[str, float] = {}
        self.acted = ""

    def on_epoch_end(self, epoch: int, logs: object = None) -> None:
        for callback in self.callbacks.values():
            callback.on_epoch_end(epoch, logs)

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        now = time.process_time_ns()
        if self.acted:
            self.block[self.acted] += now - self.began
        if not self.left:
            if self.is_counted and self.block:
                self.blocks.append(self.block)
            self.block = dict.fromkeys(NAMES, 0)
            self.left = self.lots.sample(NAMES, len(NAMES))
        self.acted = self.left.pop()
        end = self.ends[self.acted]
        before = time.thread_time_ns()
        end(batch, logs)
        spent = time.thread_time_ns() - before
        if self.is_counted:
            self.body[self.acted].append(spent)
        self.began = now


def train(fifo: str) -> Dispatcher:
    _steering.REPORT_SECONDS *= len(NAMES)
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.Input((64,)),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    lots = np.random.default_rng(0)
    x = lots.normal(size=(STEPS * 32, 64)).astype("float32")
    y = lots.integers(10, size=STEPS * 32)
    dispatcher = Dispatcher(
        {
            "empty": Empty(),
            "steering": kajitori.keras.SteeringCallback(),
            "polling": Polling(fifo),
        }
    )
    model.fit(x, y, batch_size=32, epochs=EPOCHS, verbose=0, callbacks=[dispatcher])
    return dispatcher


def upper_bound(differences: np.ndarray) -> float:
    """Of the mean, 95 %, one-sided."""
    lots = np.random.default_rng(0)
    n = len(differences)
    means = [differences[lots.integers(n, size=n)].mean() for _ in range(RESAMPLES)]
    return float(np.quantile(means, 0.95))


def instructions(fifo: str, folder: str) -> dict[str, float] | None:
    """Per call; None without valgrind."""
    if not shutil.which("valgrind"):
        return None
    out = f"{folder}/counts"
    counted = subprocess.run(
        [
            *("valgrind", "--tool=callgrind", "--dump-before=getppid"),
            f"--callgrind-out-file={out}",
            *(sys.executable, BODIES, fifo),
        ],
        check=True,
        capture_output=True,
        text=True,
        env=dict(os.environ, PYTHONMALLOC="malloc", PYTHONDONTWRITEBYTECODE="1"),
    )
    calls = int(counted.stdout)
    counts = {}
    for number, name in enumerate(NAMES):
        part = pathlib.Path(f"{out}.{2 * number + 2}").read_text()
        total = re.search(r"^(?:summary|totals): (\d+)", part, flags=re.M)
        counts[name] = int(total.group(1)) / calls
    return counts


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["KAJITORI_RUNTIME_DIR"] = f"{folder}/runtime"
        os.environ["KAJITORI_STATE_DIR"] = f"{folder}/state"
        fifo = f"{folder}/ctl"
        os.mkfifo(fifo)
        dispatcher = train(fifo)
        counted = instructions(fifo, folder)

    cpu = {name: np.array([block[name] for block in dispatcher.blocks]) / 1000 for name in NAMES}
    step = cpu["empty"].mean()
    print(f"{len(dispatcher.blocks)} blocks of three steps; {step:.0f} us CPU a step (mean)")
    print("             us a step, paired with empty       body alone    instructions")
    print("             median    mean   95 % bound        us  x polling     a call  x polling")
    bounds = {}
    alone = {name: float(np.mean(dispatcher.body[name])) / 1000 for name in NAMES}
    for name in NAMES:
        paired = cpu[name] - cpu["empty"]
        bounds[name] = upper_bound(paired) if name != "empty" else 0
        line = f"{name:10}{np.median(paired):9.2f}{paired.mean():8.2f}{bounds[name]:13.2f}"
        line += f"{alone[name]:10.2f}{alone[name] / alone['polling']:11.3f}"
        if counted:
            line += f"{counted[name]:11.0f}{counted[name] / counted['polling']:11.3f}"
        print(line)
    print(f"steering: target <= {TARGET_US} us at the upper bound: {bounds['steering']:.2f}")
    if not counted:
        print("instructions: not counted, there is no valgrind")
    return 0 if bounds["steering"] <= TARGET_US else 1


if __name__ == "__main__":
    sys.exit(main())
