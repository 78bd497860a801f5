# SPDX-License-Identifier: Apache-2.0
"""The command of another user (a real one, by setuid) against our runs. As root only: a test user
cannot become another one."""

import os
import pathlib
import shutil
import subprocess

import pytest

SOMEBODY = 60000 + os.getpid() % 5000  # two suites at once do not meet in /tmp/kajitori-UID
VERBS = (
    ["ps"],
    ["status", "{run}"],
    ["watch", "{run}"],
    ["stop", "{run}"],
    ["pause", "{run}"],
    ["set", "{run}", "lr=1"],
    ["get", "{run}", "lr"],
    ["send", "{run}", "help"],
    ["log", "{run}"],
)

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")


@pytest.fixture
def somebody(place):
    """Runs the command as another user, who can reach the program and the path of our folders."""
    tools = pathlib.Path("/tmp") / f"kajitori-tools-{os.getpid()}"
    tools.mkdir(mode=0o755)
    command = shutil.copy(place.command, tools / "kajitori")
    library = pathlib.Path(place.command).parent / "src"
    for name in ("libkajitori.so.0", "libkajitori-engine.so.0"):
        shutil.copy(library / name, tools / name)
    for folder in (place.tmp_path, *place.tmp_path.parents):
        if folder != pathlib.Path("/tmp") and folder.is_relative_to("/tmp"):
            folder.chmod(0o755)

    def run(*words, env=None):
        return subprocess.run(
            [command, *words],
            env={**place.env, "LD_LIBRARY_PATH": str(tools), **(env or {})},
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            user=SOMEBODY,
            group=SOMEBODY,
            extra_groups=[],
        )

    yield run
    shutil.rmtree(tools)


@pytest.fixture
def trap():
    """What /tmp/kajitori-UID of the other user is; removed at the end."""
    path = pathlib.Path(f"/tmp/kajitori-{SOMEBODY}")
    yield path
    if path.is_symlink():
        path.unlink()
    shutil.rmtree(path, ignore_errors=True)


def test_another_user_neither_sees_nor_steers_a_run(place, somebody):
    run_id = place.digits().run_id
    before = place.journal(run_id)
    for verb in VERBS:
        done = somebody(*(word.format(run=run_id) for word in verb))
        assert done.returncode != 0, verb
        assert "ermission denied" in done.stderr, (verb, done)
        assert done.stdout == ""
    assert place.journal(run_id) == before
    assert place.json("status")["state"] == "running"


def test_another_user_is_refused_where_the_folders_were_opened(place, somebody):
    """Somebody ran chmod on them: the command refuses, and so does the run."""
    run_id = place.digits().run_id
    for path in (place.runtime, place.runtime / run_id):
        path.chmod(0o755)
    (place.runtime / run_id / "sock").chmod(0o666)
    done = somebody("stop", run_id)
    assert done.returncode == 1
    assert "must be a folder of ours with mode 700" in done.stderr
    done = place.kajitori("ps", status=1)  # and to ourselves it is said, too
    assert "must be a folder of ours with mode 700" in done.stderr
    assert place.journal(run_id)[-1]["n"] == 1


def test_a_fallback_folder_that_was_put_there_before(place, somebody, trap):
    """/tmp/kajitori-UID of another user, made by us: nothing of it is listed, asked or removed."""
    trap.mkdir()
    trap.chmod(0o777)
    (trap / "trap").mkdir()
    (trap / "trap" / "lock").touch()
    env = {"KAJITORI_RUNTIME_DIR": "", "XDG_RUNTIME_DIR": ""}
    for words in (["ps"], ["stop"]):
        done = somebody(*words, env=env)
        assert done.returncode == 1
        assert "must be a folder of ours with mode 700" in done.stderr
    assert (trap / "trap" / "lock").exists()
    shutil.rmtree(trap)
    place.digits()
    trap.symlink_to(place.runtime)
    done = somebody("ps", env=env)
    assert done.returncode == 1


def test_a_journal_is_for_its_owner(place, somebody):
    run_id = place.digits(epochs=1).run_id
    place.kajitori("log", run_id)
    mode = (place.state / "runs" / run_id).stat().st_mode & 0o777
    assert mode == 0o700
    assert (place.state / "runs" / run_id / "journal.jsonl").stat().st_mode & 0o777 == 0o600
    done = somebody("log", run_id)
    assert done.returncode != 0
    assert done.stdout == ""
