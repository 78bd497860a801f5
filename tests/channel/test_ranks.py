# SPDX-License-Identifier: Apache-2.0
"""A training of several processes that wait for each other at each step: none is left alone."""

import os
import pathlib
import signal
import subprocess

import pytest

PYTHON = os.environ.get("KAJITORI_PYTHON", "python3")
PROGRAM = pathlib.Path(__file__).with_name("ranks.py")
REJECTED = 5
STEPS = 20  # after the line that tells rank 0 to come to an end


def start(place, world_size=2, offset=5, **env):
    folder = place.tmp_path / "pipes"
    folder.mkdir()
    for a in range(world_size):
        for b in range(world_size):
            os.mkfifo(folder / f"{a}-{b}")
    return [
        place.start(
            *(PYTHON, PROGRAM, folder, STEPS, offset),
            env={"RANK": str(rank), "WORLD_SIZE": str(world_size), **env},
            stdin=subprocess.PIPE,
        )
        for rank in range(world_size)
    ]


def finish(ranks):
    ranks[0].popen.stdin.write("end\n")
    ranks[0].popen.stdin.flush()
    for rank in ranks:
        assert rank.wait() == 0, rank.err
    return [int(rank.out.split()[-1]) for rank in ranks]


@pytest.mark.parametrize("offset", [0, 5])
def test_a_stop_of_one_rank_is_refused_and_all_finish(place, offset):
    ranks = start(place, offset=offset)
    lines = [rank.wait_line("run") for rank in ranks]
    run_id = lines[0].split()[1]
    assert lines[1].endswith("1 2 no doors")
    assert [row["id"] for row in place.json("ps")] == [run_id]
    for words in (
        ["stop", run_id],
        ["stop", run_id, "--at", "step:1000000"],
        ["pause", run_id],
        ["abort", run_id],
        ["prune", run_id],
        ["checkpoint", run_id],
    ):
        refused = place.kajitori(*words, status=REJECTED)
        assert "this is rank 0 of 2 (by RANK and WORLD_SIZE)" in refused.stderr
        assert "KAJITORI_RANK_ALONE=1" in refused.stderr
    assert place.json("status", run_id)["state"] == "running"
    assert len(set(finish(ranks))) == 1
    assert not any("stopped" in rank.out for rank in ranks)


def test_a_rank_that_never_answers_holds_nobody_who_asks(place):
    """Rank 1 never begins: rank 0 waits in its first step, is asked, and refuses at once."""
    ranks = start(place)
    run_id = ranks[0].wait_line("run").split()[1]
    ranks[1].wait_line("run")
    ranks[1].popen.send_signal(signal.SIGSTOP)
    assert place.json("status", run_id)["world_size"] == 2
    refused = place.kajitori("stop", run_id, "--wait", "done", status=REJECTED)
    assert "this is rank 0 of 2" in refused.stderr
    ranks[1].popen.send_signal(signal.SIGCONT)
    assert len(set(finish(ranks))) == 1


def test_ps_and_status_name_the_rank(place):
    ranks = start(place, world_size=3)
    run_id = ranks[0].wait_line("run").split()[1]
    [row] = place.json("ps")
    assert (row["rank"], row["world_size"]) == (0, 3)
    assert "rank        0 of 3" in place.kajitori("status", run_id).stdout
    started = place.journal(run_id)[0]["run"]
    assert (started["rank"], started["world_size"]) == (0, 3)
    finish(ranks)


def test_each_rank_alone_where_the_user_says_so(place):
    ranks = start(place, KAJITORI_RANK_ALONE="1")
    ids = [rank.wait_line("run").split()[1] for rank in ranks]
    assert sorted(row["rank"] for row in place.json("ps")) == [0, 1]
    for run_id in ids:
        place.kajitori("stop", run_id, "--dry-run")
    finish(ranks)
