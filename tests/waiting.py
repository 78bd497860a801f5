# SPDX-License-Identifier: Apache-2.0
"""Waiting for what has no event to wait for: files and states of another program."""

import time

PATIENCE_S = 60


def until(condition, timeout=PATIENCE_S):
    """What `condition` returns, once it is true."""
    end = time.monotonic() + timeout
    while not (value := condition()):
        assert time.monotonic() < end, condition
        time.sleep(0.001)
    return value
