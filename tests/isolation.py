# SPDX-License-Identifier: Apache-2.0
"""Tests that run a training in their own process: each has its own folders for doors and journals,
so that no run of another test or user is seen. A conftest.py imports the fixture."""

import os

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")


@pytest.fixture(autouse=True)
def isolated_places(tmp_path, monkeypatch):
    monkeypatch.setenv("KAJITORI_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setenv("KAJITORI_STATE_DIR", str(tmp_path / "state"))
    for name in ("KAJITORI_RUN_ID", "KAJITORI_STUDY", "KAJITORI_TRIAL", "KAJITORI_EVENTS_DIR"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path
