# SPDX-License-Identifier: Apache-2.0
"""One adapter's program, in its own environment, and the trainings that it does for the cells of the
table. Each is steered from outside by the real command."""

import json
import os
import pathlib
import subprocess
import threading

import kajitori

TOP = pathlib.Path(__file__).resolve().parents[3]
PROGRAMS = pathlib.Path(__file__).parent / "programs"
COMMAND = os.environ.get("KAJITORI_BIN", str(TOP / "build/kajitori"))
PATIENCE_S = 120  # until a training that says nothing is a failure

# adapter: environment (.venv or .venv-NAME), program, what it finds in its environment
ADAPTERS = {
    "keras-tensorflow": ("", "keras3.py", {"KERAS_BACKEND": "tensorflow"}),
    "keras-jax": ("-backends", "keras3.py", {"KERAS_BACKEND": "jax"}),
    "keras-torch": ("-backends", "keras3.py", {"KERAS_BACKEND": "torch"}),
    "tf-keras": ("-estimator", "tf_keras_fit.py", {}),
    "estimator": ("-estimator", "estimator_train.py", {}),
    "lightning": ("-backends", "lightning_fit.py", {}),
    "transformers": ("-backends", "transformers_train.py", {}),
    "torch": ("-backends", "torch_loop.py", {}),
    "xgboost": ("-trees", "xgboost_train.py", {}),
    "lightgbm": ("-trees", "lightgbm_train.py", {}),
}


class Refused(Exception):
    """The run does not take the command; the reason."""


class Program:
    """The process of an adapter. It imports its framework once."""

    def __init__(self, adapter, folder):
        environment, script, more = ADAPTERS[adapter]
        self.folder = folder
        package = folder / "package"  # shows ours, and nothing else of this environment
        package.mkdir()
        (package / "kajitori").symlink_to(kajitori.__path__[0])
        self.env = dict(
            os.environ,
            KAJITORI_RUNTIME_DIR=str(folder / "runtime"),
            KAJITORI_STATE_DIR=str(folder / "state"),
            PYTHONPATH=str(package),
            TF_CPP_MIN_LOG_LEVEL="3",
            TF_ENABLE_ONEDNN_OPTS="0",
            TF_NUM_INTRAOP_THREADS="1",
            OMP_NUM_THREADS="1",
            CUDA_VISIBLE_DEVICES="-1",
            **more,
        )
        self.errors = (folder / "stderr").open("w+")
        self.process = subprocess.Popen(
            [TOP / f".venv{environment}/bin/python", PROGRAMS / script],
            env=self.env,
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
        )

    def write(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def read(self):
        """The next thing that the program says."""
        watchdog = threading.Timer(PATIENCE_S, self.process.kill)
        watchdog.start()
        line = self.process.stdout.readline()
        watchdog.cancel()
        if not line:
            self.errors.seek(0)
            raise AssertionError(f"the program has ended: {self.errors.read()[-3000:]}")
        return json.loads(line)

    def is_alive(self):
        return self.process.poll() is None

    def close(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()
        self.errors.close()


class Training:
    """One training of a program, from its beginning to the gate, where it waits for `go`."""

    def __init__(self, program, folder, gate=("step", 14), checkpoint="", **options):
        self.program = program
        self.did = {}
        wanted = {"gate": gate, "options": options, "folder": str(folder), "checkpoint": checkpoint}
        program.write(json.dumps(wanted))
        self.gate = program.read()

    @property
    def is_at_gate(self):
        return self.gate.get("at") is not None

    def kajitori(self, *words):
        """What the command says, or `Refused`."""
        done = subprocess.run(
            [COMMAND, *words, "--format", "json"],
            env=self.program.env,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        if done.returncode != 0:
            raise Refused(done.stderr.strip() or done.stdout.strip())
        return json.loads(done.stdout)

    def send(self, *words):
        """Has a command accepted. What the run refuses later is in the journal."""
        return self.kajitori(*words, "--wait", "accepted")

    def connect(self):
        """A client of the Python package."""
        return kajitori.connect(runtime_dir=self.program.folder / "runtime")

    def go(self):
        self.program.write("go")

    def end(self):
        """What the training did, once it has ended."""
        self.did = self.program.read()
        return self.did

    def settled(self, verb):
        """How the newest command of this verb ended: its last record in the journal, or `Refused`."""
        lines = kajitori.journal(state_dir=self.program.folder / "state")
        last = [line for line in lines if line.get("verb") == verb][-1]
        if last["state"] in ("failed", "rejected"):
            raise Refused(last.get("error", ""))
        return last
