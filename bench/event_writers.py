# SPDX-License-Identifier: Apache-2.0
"""What a scalar costs its writer, this library's beside others, in one run.

event_writers.py [--events N] [--folder DIR] [--bench PROGRAM]: the same N scalars of ten tags by the C library (event-writer-bench),
kajitori.EventWriter, TensorBoard's EventFileWriter (as where TensorFlow is not installed) and tf.summary. Each is a process of its
own; imports are not counted; the best of three rounds. Processor time holds that of the writer's own threads, too.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

TAGS = [
    *("loss", "accuracy", "val/loss", "val/accuracy", "lr"),
    *("grad/norm", "epoch_loss", "epoch_accuracy", "step_time", "throughput/examples_per_second"),
]
BENCH = pathlib.Path(__file__).resolve().parent.parent / "build/bench/event-writer-bench"


def write_kajitori(folder: str, n: int, buffer: bool) -> None:
    import kajitori

    with kajitori.EventWriter(folder, buffer=buffer) as writer:
        for k in range(n):
            writer.add_scalar(TAGS[k % 10], k, k * 1e-3, 1.7e9 + k * 1e-3)


def write_tensorboard(folder: str, n: int) -> None:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(folder)
    for k in range(n):
        value = Summary.Value(tag=TAGS[k % 10], simple_value=k * 1e-3)
        writer.add_event(Event(wall_time=1.7e9 + k * 1e-3, step=k, summary=Summary(value=[value])))
    writer.close()


def write_tensorflow(folder: str, n: int) -> None:
    import tensorflow as tf

    writer = tf.summary.create_file_writer(folder)
    with writer.as_default():
        for k in range(n):
            tf.summary.scalar(TAGS[k % 10], k * 1e-3, step=k)
    writer.close()


PEERS = {
    "kajitori": lambda folder, n: write_kajitori(folder, n, False),
    "kajitori-buffer": lambda folder, n: write_kajitori(folder, n, True),
    "tensorboard": write_tensorboard,
    "tensorflow": write_tensorflow,
}


def measure(peer: str, folder: str, n: int) -> tuple[float, float]:
    """Nanoseconds a scalar, of time and of processor, of the best round."""
    if peer == "tensorboard":
        sys.modules["tensorboard.compat.notf"] = type(sys)("notf")  # as without TensorFlow
    PEERS[peer](folder, 100)  # imports, first calls
    rounds = []
    for number in range(3):
        begin, cpu = time.perf_counter(), time.process_time()
        PEERS[peer](f"{folder}/{number}", n)
        rounds.append((time.perf_counter() - begin, time.process_time() - cpu))
    return tuple(1e9 * min(times) / n for times in zip(*rounds, strict=True))


def run_program(mode: str, n: int, folder: str, bench: pathlib.Path) -> tuple[float, float]:
    done = subprocess.run(
        [bench, mode, str(n), folder, "3"], check=True, capture_output=True, text=True
    )
    first, second = done.stdout.split()
    return float(first), float(second)


def run_peer(peer: str, n: int, folder: str) -> tuple[float, float]:
    done = subprocess.run(
        [sys.executable, __file__, "--peer", peer, "--events", str(n), "--folder", folder],
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    return tuple(json.loads(done.stdout))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--folder", help="where the files go (default: a temporary one)")
    parser.add_argument("--bench", type=pathlib.Path, default=BENCH)
    parser.add_argument("--peer", choices=PEERS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    folder = tempfile.mkdtemp(dir=options.folder)
    try:
        if options.peer:
            print(json.dumps(measure(options.peer, folder, options.events)))
            return
        print(f"{options.events} scalars, nanoseconds each: time, processor")
        for mode in ("buffer", "double", "direct", "append", "text"):
            figures = run_program(mode, options.events, folder, options.bench)
            print(f"  {'C, ' + mode:<24}{figures[0]:12.0f}{figures[1]:12.0f}", flush=True)
        for peer in PEERS:
            figures = run_peer(peer, options.events, folder)
            print(f"  {peer:<24}{figures[0]:12.0f}{figures[1]:12.0f}", flush=True)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
