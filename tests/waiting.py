# SPDX-License-Identifier: Apache-2.0
"""Waiting for what has no event to wait for: files and states of another program."""

import pathlib
import subprocess
import time

PATIENCE_S = 60


def until(condition, timeout=PATIENCE_S):
    """What `condition` returns, once it is true."""
    end = time.monotonic() + timeout
    while not (value := condition()):
        assert time.monotonic() < end, condition
        time.sleep(0.001)
    return value


def echo_that_waits(line, path):
    """A shell's ``echo LINE > PATH`` that is held in its open, since nobody reads this FIFO yet."""
    shell = subprocess.Popen(["sh", "-c", f"echo {line} > {path}"])
    until(lambda: pathlib.Path(f"/proc/{shell.pid}/wchan").read_text() == "wait_for_partner")
    return shell
