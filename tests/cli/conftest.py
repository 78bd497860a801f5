# SPDX-License-Identifier: Apache-2.0
import pytest
from fake_run import FakeRun


@pytest.fixture
def fake(place):
    """Starts fake runs, which end with the test."""
    runs = []

    def start(run_id="digits-1", answers=None, info=None):
        runs.append(FakeRun(place.runtime, run_id, answers, info))
        return runs[-1]

    yield start
    for run in runs:
        run.close()
