# SPDX-License-Identifier: Apache-2.0
"""What happens to machines and processes around a training: it goes on, and what it can still do it does."""

import json
import os
import pathlib
import signal
import struct
import subprocess
import sys

import pytest

DAY_S = 86400

# Shifts the wall clock of the program that it is loaded into by the seconds that the file $CLOCK_SHIFT holds. The monotonic
# clock goes on as it is, as on a machine whose clock is set.
SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>

static const volatile int64_t *shift;

__attribute__((constructor)) static void start(void)
{
    int fd = open(getenv("CLOCK_SHIFT"), O_RDONLY | O_CLOEXEC);
    shift = mmap(NULL, sizeof *shift, PROT_READ, MAP_SHARED, fd, 0);
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    static int (*real)(clockid_t, struct timespec *);
    if (!real)
        real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int r = real(clock, now);
    if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)
        now->tv_sec += *shift;
    return r;
}

time_t time(time_t *ret)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (ret)
        *ret = now.tv_sec;
    return now.tv_sec;
}

int gettimeofday(struct timeval *now, void *zone)
{
    struct timespec exact;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}
"""


class WallClock:
    """Of every program that is started with `env`."""

    def __init__(self, folder):
        source, library = folder / "clock.c", folder / "clock.so"
        source.write_text(SHIM)
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
        self.file = folder / "shift"
        self.set(0)
        self.env = {"LD_PRELOAD": str(library), "CLOCK_SHIFT": str(self.file)}

    def set(self, seconds):
        with self.file.open("r+b" if self.file.exists() else "wb") as file:
            file.write(struct.pack("=q", seconds))


@pytest.fixture
def clock(tmp_path):
    return WallClock(tmp_path)


def digits_with(place, clock, *options):
    place.env.update(clock.env)
    process = place.digits(*options, run_id="digits-one")
    for name in clock.env:
        del place.env[name]
    return process


@pytest.mark.parametrize("seconds", [-DAY_S, -20 * 365 * DAY_S, DAY_S])
def test_the_clock_is_set(place, clock, tmp_path, seconds):
    """Backwards by a day, to 2006, and forward: times in the journal are what the clock says, and nothing waits for one."""
    digits = digits_with(place, clock, "--fifo", tmp_path / "fifo")
    place.kajitori("set", "lr=0.25")
    clock.set(seconds)
    place.kajitori("set", "lr=0.125", "--at", "epoch")
    (tmp_path / "fifo").write_text("set lr=0.0625\n")
    digits.wait_line("epoch ", "stdout")
    place.kajitori("pause")
    status = place.json("status")
    assert status["state"] == "paused"
    assert status["idle_s"] == 0
    place.kajitori("resume")
    flood = place.start("sh", "-c", f"exec yes nonsense > '{place.runtime}/digits-one/ctl'")
    following = place.start_kajitori("log", "--follow")
    following.wait_line("flood")
    flood.kill()
    assert len(place.json("ps")) == 1
    place.kajitori("stop")
    assert digits.wait() == 0
    assert digits.err == ""
    journal = place.journal("digits-one")
    assert [line["n"] for line in journal] == list(range(1, len(journal) + 1))
    first = [line["time"] for line in journal if line.get("args", {}).get("lr") == 0.25]
    second = [line["time"] for line in journal if line.get("args", {}).get("lr") == 0.125]
    assert seconds - 1 < second[0] - first[-1] < seconds + 600
    assert len([line for line in journal if line.get("event") == "flood"]) >= 1


def test_a_run_of_the_future_is_dead_like_any_other(place, clock):
    """The clock was a day ahead when it began: whoever lists removes it all the same, and its id is free."""
    clock.set(DAY_S)
    digits = digits_with(place, clock)
    digits.popen.kill()
    digits.wait()
    assert place.json("ps") == []
    assert list(place.runtime.iterdir()) == []
    again = place.digits(run_id="digits-one")
    assert again.run_id == "digits-one"
    place.kajitori("stop")
    assert again.wait() == 0
    numbers = [line["n"] for line in place.journal("digits-one")]
    assert numbers == list(range(1, len(numbers) + 1))


def test_a_limit_of_file_sizes_makes_more_files_of_the_journal(place):
    """The kernel sends SIGXFSZ, which ends a process, to who writes beyond it."""
    digits = place.start(
        "sh",
        "-c",
        f"ulimit -f 16; exec '{place.digits_path}' --epochs 1000000 --step-ms 1",
        env={"KAJITORI_RUN_ID": "digits-one"},
    )
    digits.wait_line("run ", "stdout")
    for _ in range(40):
        place.kajitori("set", "lr=0.25")
    place.kajitori("stop", "--reason", "enough")
    assert digits.wait() == 0
    assert digits.out.endswith(": enough")
    assert digits.err == ""
    files = list((place.state / "runs" / "digits-one").glob("journal*.jsonl"))
    assert len(files) > 1
    assert max(file.stat().st_size for file in files) <= 16 * 1024
    lines = [
        json.loads(line) for line in place.kajitori("log", "--format", "json").stdout.splitlines()
    ]
    assert [line["n"] for line in lines] == list(range(1, len(lines) + 1))


@pytest.mark.parametrize("length", [107, 108, 200, 1000])
def test_long_paths(place, tmp_path, length):
    """A socket's path has at most 107 bytes in the kernel."""
    folder = tmp_path
    while len(str(folder)) < length:
        folder /= "x" * max(1, min(200, length - len(str(folder)) - 1))
    folder.mkdir(parents=True, exist_ok=True)
    fifo = folder / "fifo"
    os.mkfifo(fifo)
    place.runtime = folder / "rt"
    place.env["KAJITORI_RUNTIME_DIR"] = str(place.runtime)
    digits = place.digits("--fifo", fifo, run_id="digits-one")
    assert digits.err == ""
    place.kajitori("set", "lr=0.25")
    (place.runtime / "digits-one" / "ctl").write_text("set lr=0.5\n")
    fifo.write_text("stop reason=far\n")
    assert digits.wait() == 0
    assert digits.out.endswith(": far")
    sets = [line["new"] for line in place.journal("digits-one") if line.get("new")]
    assert {"lr": 0.25} in sets
    assert {"lr": 0.5} in sets


WORKER = """
import os, signal, sys, time
import kajitori
run = kajitori.Run(fifo=sys.argv[1])
run.begin_step(0)
if os.fork() == 0:
    print("ready", flush=True)
    signal.pause()  # a worker that outlives its training
while not run.poll():
    time.sleep(0.001)  # a step
"""


def test_a_forked_worker_that_outlives_the_training_holds_no_door(place, tmp_path):
    """A write would go through, and vanish, if the worker still held the read end."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    training = place.start(sys.executable, "-c", WORKER, fifo)
    training.wait_line("ready", "stdout")
    children = pathlib.Path(f"/proc/{training.popen.pid}/task/{training.popen.pid}/children")
    worker = int(children.read_text().split()[0])
    try:
        training.popen.kill()
        training.popen.wait()
        with pytest.raises(OSError, match="No such device or address"):
            os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
        assert place.json("ps") == []
        assert list(place.runtime.iterdir()) == []
        digits = place.digits("--fifo", fifo)
        fifo.write_text("stop\n")
        assert digits.wait() == 0
        assert digits.err == ""
    finally:
        os.kill(worker, signal.SIGKILL)


def test_the_training_is_suspended_for_a_while(place, tmp_path):
    """SIGSTOP and SIGCONT: what was written meanwhile is not lost."""
    fifo = tmp_path / "fifo"
    digits = place.digits("--fifo", fifo, run_id="digits-one")
    digits.popen.send_signal(signal.SIGSTOP)
    fifo.write_text("set lr=0.25\n")
    (place.runtime / "digits-one" / "ctl").write_text("set lr=0.5\n")
    digits.popen.send_signal(signal.SIGCONT)
    digits.wait_line("epoch ", "stdout")
    place.kajitori("stop")
    assert digits.wait() == 0
    journal = place.journal("digits-one")
    done = [line["new"]["lr"] for line in journal if line.get("state") == "done" and "new" in line]
    assert sorted(done) == [0.25, 0.5]
