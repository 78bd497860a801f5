# SPDX-License-Identifier: Apache-2.0
"""`Run.poll()` with nothing to do, against `threading.Event.is_set()`, the cheapest flag of the
standard library: alone, and while a second Python thread computes. Rounds of both alternate; the
ratio is the median of the rounds' ratios. `begin_step` and a call into C are shown beside them.
"""

import statistics
import sys
import tempfile
import threading
import timeit

from kajitori._ffi import lib

import kajitori

TARGET = 1.5
CALLS = (
    2_000_000  # a round takes many times the 5 ms for which a thread keeps the interpreter's lock
)
ROUNDS = 9
SLOW_CALLS = 1_000  # of a call that gives up that lock


def round_of(timers: dict[str, tuple[timeit.Timer, int]]) -> dict[str, float]:
    """Nanoseconds per call."""
    return {name: timer.timeit(calls) / calls * 1e9 for name, (timer, calls) in timers.items()}


def measure(run: kajitori.Run, busy: bool) -> bool:
    event = threading.Event()
    names = {"run": run, "event": event, "lib": lib, "ptr": run._ptr}
    timers = {
        "Event.is_set()": (timeit.Timer("event.is_set()", globals=names), CALLS),
        "Run.poll()": (timeit.Timer("run.poll()", globals=names), CALLS),
        "Run.begin_step(n)": (timeit.Timer("run.begin_step(7)", globals=names), CALLS // 4),
        "kj_run_poll() by cffi": (
            timeit.Timer("lib.kj_run_poll(ptr)", globals=names),
            SLOW_CALLS if busy else CALLS // 4,
        ),
    }
    ended = threading.Event()

    def compute() -> None:
        while not ended.is_set():
            sum(range(1000))

    thread = threading.Thread(target=compute, daemon=True)
    if busy:
        thread.start()
    round_of(timers)
    rounds = [round_of(timers) for _ in range(ROUNDS)]
    ended.set()
    if busy:
        thread.join()

    print("beside a busy Python thread" if busy else "alone")
    base = [each["Event.is_set()"] for each in rounds]
    ratios = {}
    for name in timers:
        times = [each[name] for each in rounds]
        ratios[name] = statistics.median(t / b for t, b in zip(times, base, strict=True))
        print(f"  {name:22s} {statistics.median(times):12.1f} ns   {ratios[name]:10.2f} x")
    return ratios["Run.poll()"] <= TARGET


def main() -> int:
    with (
        tempfile.TemporaryDirectory() as folder,
        kajitori.Run(runtime_dir=f"{folder}/runtime", state_dir=f"{folder}/state") as run,
    ):
        reached = [measure(run, busy) for busy in (False, True)]
    print(f"Run.poll() within {TARGET} x of Event.is_set(): {'yes' if all(reached) else 'NO'}")
    return 0 if all(reached) else 1


if __name__ == "__main__":
    sys.exit(main())
