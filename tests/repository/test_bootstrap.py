# SPDX-License-Identifier: Apache-2.0
"""What `tools/bootstrap` and `tools/build` say and do, with stand-ins for what would change the machine."""

import os
import pathlib
import shutil
import subprocess

import pytest

TOP = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture
def stand_ins(tmp_path):
    """Makes programs that come before the real ones; each call of one is a line in `calls`."""
    folder = tmp_path / "bin"
    folder.mkdir()

    def make(**scripts):
        for name, script in scripts.items():
            path = folder / name.replace("_", "-")
            path.write_text(f'#!/bin/sh\necho "{path.name} $*" >>{tmp_path}/calls\n{script}\n')
            path.chmod(0o755)
        return dict(os.environ, PATH=f"{folder}:{os.environ['PATH']}")

    return make


def calls(tmp_path):
    path = tmp_path / "calls"
    return path.read_text().splitlines() if path.exists() else []


def bootstrap(top, level, env):
    return subprocess.run(
        [top / "tools/bootstrap", level], env=env, capture_output=True, text=True, timeout=300
    )


@pytest.mark.parametrize("level", ["build", "demo", "test"])
def test_without_root_it_says_what_to_install(tmp_path, stand_ins, level):
    shutil.copytree(TOP / "tools", tmp_path / "tools")
    env = stand_ins(dpkg_query="exit 1", apt_get="exit 9", id="echo 1000", sudo="exit 1")
    done = bootstrap(tmp_path, level, env)
    assert done.returncode == 1
    assert "these packages are missing and we are not root" in done.stderr
    assert "apt-get install gcc " in done.stderr
    assert "libjson-c-dev" in done.stderr
    assert ("libclang" in done.stderr or "clang" in done.stderr) == (level == "test")
    assert not any(call.startswith("apt-get") for call in calls(tmp_path))
    assert not (tmp_path / ".venv").exists()


def test_sudo_without_a_password_is_used(tmp_path, stand_ins):
    shutil.copytree(TOP / "tools", tmp_path / "tools")
    env = stand_ins(
        dpkg_query="exit 1", apt_get="exit 9", id="echo 1000", sudo='[ "$2" = true ] || exit 7'
    )
    done = bootstrap(tmp_path, "build", env)
    assert done.returncode == 7
    assert "bootstrap: installing by apt: gcc " in done.stdout
    assert "sudo -n apt-get update -qq" in calls(tmp_path)


def test_a_second_call_only_looks(tmp_path, stand_ins):
    """Everything is here, since these tests run: nothing is installed or built."""
    env = stand_ins(apt_get="exit 9", sudo="exit 9", gcc="exit 9", cc="exit 9")
    library = TOP / "build/src/libkajitori.so.0"
    before = library.stat().st_mtime_ns
    done = bootstrap(TOP, "build", env)
    assert done.stdout == "bootstrap: ready (build)\n", done.stderr
    done = subprocess.run(
        [TOP / "tools/build"], env=env, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("build: build/kajitori ")
    assert library.stat().st_mtime_ns == before
    assert calls(tmp_path) == []


def test_an_unknown_level_is_refused(tmp_path):
    done = bootstrap(TOP, "all", os.environ)
    assert done.returncode == 1
    assert done.stderr == "bootstrap: unknown level 'all': build, demo or test\n"
