# SPDX-License-Identifier: Apache-2.0
"""Other readers of event files, one function for each: the peers of events_bench.py.

events_peers.py MODE DIR: prints seconds, processor seconds, values and greatest resident size of one load as JSON. Imports are
not counted. TensorBoard's loaders run as where TensorFlow is not installed (with its Python reader) or, with -tf, with
TensorFlow's C++ reader.
"""

from __future__ import annotations

import json
import logging
import os
import pathlib
import re
import resource
import subprocess
import sys
import tempfile
import time
import types
import warnings
from collections.abc import Callable

UNITS = {"ns": 1e-9, "µs": 1e-6, "us": 1e-6, "ms": 1e-3, "s": 1.0}


def data_server(folder: str, checksums: bool, one_thread: bool = True) -> dict:
    """TensorBoard's data server (rustboard): one load of everything, by its own log; processor time and memory from /proc."""
    import tensorboard_data_server

    port = tempfile.mktemp()
    command = [tensorboard_data_server.server_binary(), "--logdir", folder, "--port", "0", "-vv"]
    command += ["--port-file", port, "--reload", "once", "--samples-per-plugin", "scalars=all"]
    command += ["--checksum"] if checksums else []
    environment = os.environ | ({"RAYON_NUM_THREADS": "1"} if one_thread else {})
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as server:
        found = None
        for line in server.stderr or ():
            found = re.search(r"Finished load cycle \(([0-9.]+)(ns|µs|us|ms|s)\)", line)
            if found:
                break
        if not found:
            raise SystemExit("events_peers.py: the data server ended without a load")
        fields = pathlib.Path(f"/proc/{server.pid}/stat").read_text().rsplit(")", 1)[1].split()
        status = pathlib.Path(f"/proc/{server.pid}/status").read_text()
        server.kill()
    return {
        "seconds": float(found[1]) * UNITS[found[2]],
        "cpu": (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"),
        "rss_kb": int(re.search(r"VmHWM:\s+(\d+)", status)[1]),
    }


def tensorboard_loader(folder: str) -> int:
    """What TensorBoard's Python server does to read: the file loader alone, with its migrations."""
    from tensorboard.backend.event_processing import event_file_loader

    file = next(pathlib.Path(folder).glob("*tfevents*"))
    return sum(1 for _ in event_file_loader.EventFileLoader(str(file)).Load()) - 1


def tensorboard_accumulator(folder: str) -> int:
    """The same into its accumulator, all values kept, not decoded."""
    from tensorboard.backend.event_processing import plugin_event_accumulator as module

    accumulator = module.EventAccumulator(
        folder, size_guidance={module.TENSORS: 0}, tensor_size_guidance={"scalars": 0}
    )
    accumulator.Reload()
    return sum(len(accumulator.Tensors(tag)) for tag in accumulator.Tags()["tensors"])


def tensorboard_server(folder: str) -> int:
    """The server's whole path in Python, as with ``tensorboard --load_fast=false``: multiplexer, and the
    data provider, which only then decodes the values. All are kept, and all are wanted."""
    from tensorboard import context
    from tensorboard.backend.event_processing import data_provider
    from tensorboard.backend.event_processing import plugin_event_multiplexer as module

    multiplexer = module.EventMultiplexer(
        size_guidance={module.event_accumulator.TENSORS: 0}, tensor_size_guidance={"scalars": 0}
    )
    multiplexer.AddRunsFromDirectory(folder)
    multiplexer.Reload()
    provider = data_provider.MultiplexerDataProvider(multiplexer, folder)
    runs = provider.read_scalars(
        context.RequestContext(), experiment_id="", plugin_name="scalars", downsample=2**31
    )
    return sum(len(points) for tags in runs.values() for points in tags.values())


def summary_iterator(folder: str) -> int:
    """TensorFlow's C++ reader with Python protocol buffers."""
    import tensorflow as tf

    file = next(pathlib.Path(folder).glob("*tfevents*"))
    return sum(len(event.summary.value) for event in tf.compat.v1.train.summary_iterator(str(file)))


def without_tensorflow() -> None:
    """TensorBoard looks for this module to do without TensorFlow though it is installed."""
    sys.modules["tensorboard.compat.notf"] = types.ModuleType("tensorboard.compat.notf")


def timed(read: Callable[[str], int], folder: str, warm: str) -> dict:
    read(warm)  # imports and first-time work
    cpu, start = time.process_time(), time.perf_counter()
    values = read(folder)
    return {
        "seconds": time.perf_counter() - start,
        "cpu": time.process_time() - cpu,
        "events": values,
        "rss_kb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
    }


PYTHON = {
    "loader": tensorboard_loader,
    "accumulator": tensorboard_accumulator,
    "python-server": tensorboard_server,
    "loader-tf": tensorboard_loader,
    "accumulator-tf": tensorboard_accumulator,
    "summary_iterator": summary_iterator,
}


def main() -> int:
    mode, folder, warm = sys.argv[1:4]
    warnings.filterwarnings("ignore")
    logging.disable(logging.CRITICAL)
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    if mode in ("loader", "accumulator", "python-server"):
        without_tensorflow()
    if mode.startswith("server"):
        result = data_server(folder, mode == "server-checksums")
    else:
        result = timed(PYTHON[mode], folder, warm)
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
