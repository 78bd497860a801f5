# SPDX-License-Identifier: Apache-2.0
"""How long an answer takes while the training thread is in a call of 5 s that holds the
interpreter's lock (a compile, an evaluation, a careless extension).

Asked are `kajitori`'s status and, for comparison, a server in a Python thread of the same process,
which has to wait for the lock.
"""

import ctypes
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import kajitori

TARGET_MS = 10
ASKS = 50
SECONDS = 5


def train() -> None:
    """The training process."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            connection, _ = listener.accept()
            with connection:
                connection.recv(100)
                connection.sendall(b"running\n")

    threading.Thread(target=serve, daemon=True).start()
    with kajitori.Run() as run:
        run.begin_step(0)
        print(run.id, listener.getsockname()[1], flush=True)
        for _ in range(2):
            sys.stdin.readline()
            print("blocked", flush=True)
            ctypes.PyDLL(None).sleep(SECONDS)  # PyDLL: the interpreter's lock stays held
            print("free", flush=True)


def timed(ask: object) -> float:
    began = time.perf_counter()
    ask()
    return (time.perf_counter() - began) * 1000


def ask_python_server(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(b"status\n")
        assert connection.recv(100)


def ask_once(run_id: str) -> None:
    with kajitori.connect(run_id) as client:
        client.status()


def block(child: subprocess.Popen) -> None:
    child.stdin.write("\n")
    child.stdin.flush()
    assert child.stdout.readline() == "blocked\n"


def line_of(name: str, times: list[float]) -> None:
    ordered = sorted(times)
    p95 = ordered[int(len(ordered) * 0.95)] if len(ordered) > 1 else ordered[0]
    print(
        f"  {name:34s} asks {len(times):3d}   median {statistics.median(times):8.2f} ms   "
        f"95 % {p95:8.2f} ms   worst {ordered[-1]:8.2f} ms"
    )


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["KAJITORI_RUNTIME_DIR"] = f"{folder}/runtime"
        os.environ["KAJITORI_STATE_DIR"] = f"{folder}/state"
        child = subprocess.Popen(
            [sys.executable, __file__, "--train"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        run_id, port = child.stdout.readline().split()
        with kajitori.connect(run_id) as client:
            block(child)
            began = time.monotonic()
            one = [timed(client.status) for _ in range(ASKS)]
            new = [timed(lambda: ask_once(run_id)) for _ in range(ASKS)]
            during = time.monotonic() - began
            assert child.stdout.readline() == "free\n"
        if during >= SECONDS:
            print(f"the {2 * ASKS} asks took {during:.1f} s, longer than the block: no figure")
            return 1
        block(child)
        python = [timed(lambda: ask_python_server(int(port)))]
        child.stdin.close()
        child.wait()
    print(f"while the training thread holds the interpreter's lock for {SECONDS} s")
    line_of("kajitori status, one connection", one)
    line_of("kajitori status, each its own", new)
    line_of("a Python thread's server", python)
    print(f"median against the Python server: 1/{python[0] / statistics.median(one):.0f}")
    reached = max(one + new) < TARGET_MS
    print(f"every status under {TARGET_MS} ms: {'yes' if reached else 'NO'}")
    return 0 if reached else 1


if __name__ == "__main__":
    sys.exit(train() if "--train" in sys.argv[1:] else main())
