# SPDX-License-Identifier: Apache-2.0

import json
import os
import signal

import pytest
from studies import Study, processes_with


@pytest.fixture
def study(place):
    return Study(place)


@pytest.fixture(autouse=True)
def no_trial_is_left(tmp_path):
    """Trials outlive their worker, so also a test that failed must end them."""
    yield
    for path in tmp_path.rglob("shim.json"):
        pid = json.loads(path.read_text())["shim_pid"]
        if pid in processes_with(str(path.parent.relative_to(tmp_path / "work"))):
            os.kill(pid, signal.SIGUSR1)
