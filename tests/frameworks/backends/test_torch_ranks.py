# SPDX-License-Identifier: Apache-2.0
"""kajitori.torch.Run in a training of two processes: what happens today when rank 0 leaves alone (it
exits, saves on, waits at a barrier: the other one fails after a while, or both hang) does not, since it
is refused."""

import json
import os
import subprocess
import sys
import textwrap

from training import PATIENCE

PROGRAM = """
import json, os, sys, warnings
import torch
import torch.distributed as dist
import kajitori, kajitori.torch

rank = int(sys.argv[1])
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=rank, world_size=2)
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.125)

def own(run):
    return {"rank": run.run.rank}

def answers(run, *lines):
    with kajitori.connect() as client:
        for line in lines:
            try:
                yield line, client.send(line, wait="accepted")["state"]
            except kajitori.RejectedError as error:
                yield line, str(error)

said = {"refused": {}}
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    run = kajitori.torch.Run(optimizer, model, commands={"own": own}, evaluate=own, checkpoint_dir="c")
said["warnings"] = [str(one.message) for one in caught if issubclass(one.category, kajitori.ChannelWarning)]
try:
    run.prune_with(type("T", (), {"report": print, "should_prune": print})(), "loss")
except kajitori.UnsupportedError as error:
    said["trial"] = str(error)
for epoch in run.epochs(2):
    for k in run.steps(range(100)):
        if rank == 0 and run.step == 100:
            said["refused"] = dict(answers(run, *json.loads(sys.argv[3])))
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
    run.report(loss=1.0)
dist.barrier()  # the usual "wait for all before saving"
said |= {"step": run.step, "ranks": [run.run.rank, run.run.world_size], "door": run.run.dir != ""}
print(json.dumps(said))
dist.destroy_process_group()
"""

REFUSED = ("stop", "stop at=epoch", "prune", "abort", "pause", "pause level=leave", "checkpoint")
SET = ("set lr=0.5", "evaluate", "extend epochs=1")
TAKEN = ("own", "note hello", "get lr", "status")


def test_rank_0_refuses_to_leave_alone_and_nobody_hangs(tmp_path):
    """Not "exits", nor "stays alive", nor "enters a barrier": both ranks run all steps and meet there."""
    environment = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE")}
    environment["GLOO_SOCKET_IFNAME"] = "lo"
    lines = json.dumps(REFUSED + SET + TAKEN)
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(PROGRAM), str(rank), tmp_path / "meet", lines],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]
    said = []
    for process in ranks:
        out, err = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, err
        said.append(json.loads(out))
    first, second = said
    assert (first["step"], second["step"]) == (200, 200)
    assert (first["ranks"], second["ranks"]) == ([0, 2], [1, 2])
    assert (first["door"], second["door"]) == (True, False)
    assert len(first["warnings"]) == 1
    assert "rank 0 of 2, and only it is steered" in first["warnings"][0]
    assert second["warnings"] == []
    for line in REFUSED + SET:
        assert "this is rank 0 of 2" in first["refused"][line], line
    assert [first["refused"][line] for line in TAKEN] == ["accepted", "done", "done", "done"]
    for rank, one in enumerate(said):
        assert f"this is rank {rank} of 2: a trial that ends one rank alone" in one["trial"]
    assert not (tmp_path / "c").exists()


def test_ranks_of_which_none_waits_for_another_are_runs_of_their_own(tmp_path):
    """KAJITORI_RANK_ALONE=1; the model in DistributedDataParallel of one process, whose checkpoint has the
    names of the bare model."""
    program = """
    import json, os, sys
    import torch
    import torch.distributed as dist
    import kajitori, kajitori.torch

    store = "file://" + sys.argv[1]
    dist.init_process_group("gloo", init_method=store, rank=0, world_size=1)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.125)
    with kajitori.torch.Run(optimizer, model, checkpoint_dir="c") as run:
        for k in run.steps(range(9)):
            if k == 3:
                with kajitori.connect() as client:
                    client.send("stop save=yes", wait="accepted")
    path = os.path.join("c", os.listdir("c")[0])
    names = list(torch.load(os.path.join(path, "model.pt")))
    os.environ["KAJITORI_CHECKPOINT"] = os.path.abspath(path)
    with kajitori.torch.Run(optimizer, model, checkpoint_dir="c") as again:
        place = again.step
    print(json.dumps([run.step, run.run.rank_alone, names, place]))
    dist.destroy_process_group()
    """
    environment = dict(os.environ, GLOO_SOCKET_IFNAME="lo", RANK="1", WORLD_SIZE="2")
    environment["KAJITORI_RANK_ALONE"] = "1"
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), tmp_path / "meet"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [4, True, ["weight", "bias"], 4]
