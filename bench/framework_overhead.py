# SPDX-License-Identifier: Apache-2.0
"""What the adapter of each framework costs a step, against a callback of that framework that does
nothing: both in one training (overhead/turns.py), in the framework's own environment.

    bench/framework_overhead.py [ADAPTER …]      KAJITORI_OVERHEAD_STEPS=2000 for a quick look
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

import kajitori

TOP = pathlib.Path(__file__).resolve().parent.parent
PROGRAMS = TOP / "bench/overhead"
TARGET_US = 5

# adapter: environment (.venv or .venv-NAME), program, what it finds in its environment
ADAPTERS = {
    "keras, tensorflow": ("", "keras_fit.py", {"KERAS_BACKEND": "tensorflow"}),
    "keras, jax": ("-backends", "keras_fit.py", {"KERAS_BACKEND": "jax"}),
    "keras, torch": ("-backends", "keras_fit.py", {"KERAS_BACKEND": "torch"}),
    "tf.keras": ("-estimator", "keras_fit.py", {}),
    "estimator": ("-estimator", "estimator_train.py", {}),
    "estimator, PruningHook": ("-estimator", "pruning_session.py", {}),
    "torch": ("-backends", "torch_loop.py", {}),
    "lightning": ("-backends", "lightning_fit.py", {}),
    "transformers": ("-backends", "transformers_train.py", {}),
    "xgboost": ("-trees", "xgboost_train.py", {}),
    "lightgbm": ("-trees", "lightgbm_train.py", {}),
}


def figures(adapter: str, package: str) -> dict[str, float]:
    environment, program, more = ADAPTERS[adapter]
    env = dict(
        os.environ,
        PYTHONPATH=package,
        TF_CPP_MIN_LOG_LEVEL="3",
        TF_ENABLE_ONEDNN_OPTS="0",
        TF_NUM_INTRAOP_THREADS="1",
        TF_NUM_INTEROP_THREADS="1",
        OMP_NUM_THREADS="1",
        CUDA_VISIBLE_DEVICES="-1",
        **more,
    )
    command = [TOP / f".venv{environment}/bin/python", PROGRAMS / program]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{adapter}: exit status {done.returncode}\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def main() -> int:
    bounds = {}
    print(f"{'us of CPU a step, paired with an empty callback':50}  median    mean  95 % bound")
    with tempfile.TemporaryDirectory() as package:
        os.symlink(kajitori.__path__[0], f"{package}/kajitori")
        for adapter in sys.argv[1:] or ADAPTERS:
            found = figures(adapter, package)
            bounds[adapter] = found["bound"]
            what = f"{adapter}: {found['pairs']} pairs of steps of {found['step']:.0f} us"
            line = f"{what:50}{found['median']:8.2f}{found['mean']:8.2f}{found['bound']:12.2f}"
            print(line, flush=True)
    missed = [adapter for adapter, bound in bounds.items() if bound > TARGET_US]
    print(f"target: at most {TARGET_US} us at the bound; missed by: {', '.join(missed) or 'none'}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
