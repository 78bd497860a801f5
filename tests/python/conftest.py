# SPDX-License-Identifier: Apache-2.0
"""Each test has its own folders for doors and journals; no run of another test or user is seen."""

import importlib.metadata
import math
import os

import pytest
from event_writer import EventWriter
from isolation import isolated_places

import kajitori

__all__ = ["isolated_places"]

IS_KERAS_3 = not importlib.metadata.version("keras").startswith("2.")
BACKEND = os.environ.get("KERAS_BACKEND", "tensorflow") if IS_KERAS_3 else "tf.keras"


def pytest_collection_modifyitems(config, items):
    """Leaves out what Keras itself cannot do on this backend (or, "tf.keras", in its version 2.15), or
    what is written for another one."""

    def fits(item):
        marker = item.get_closest_marker("backends")
        return marker is None or BACKEND in marker.args

    config.hook.pytest_deselected(items=[item for item in items if not fits(item)])
    items[:] = [item for item in items if fits(item)]


@pytest.fixture
def fresh_keras():
    import keras

    keras.utils.set_random_seed(0)
    yield
    keras.backend.clear_session()


@pytest.fixture
def run():
    with kajitori.Run(name="test") as run:
        yield run


@pytest.fixture
def logs(tmp_path):
    """Event files of two runs: a step twice, infinities, a step below zero."""
    folder = tmp_path / "logs"
    train, validation = EventWriter(folder / "train"), EventWriter(folder / "validation")
    for step, value in ((0, 0.5), (1, 0.25), (1, 0.125), (3, math.inf), (4, -math.inf)):
        train.add("loss", step, value)
    validation.add("loss", 0, 2.0)
    validation.add("acc", -7, 3.0, wall_time=12.5)
    train.close()
    validation.close()
    return folder
