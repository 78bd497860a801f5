# SPDX-License-Identifier: Apache-2.0
"""One rank of a training in which all wait for each other at each step, as in an all-reduce.

ranks.py FOLDER STEPS OFFSET    RANK and WORLD_SIZE as a launcher sets them

The ranks meet at pipes in FOLDER: each writes a byte to every other one and reads one from every other
one. Their counters are OFFSET * RANK apart. A line from stdin tells rank 0 how long it goes on: until
then it trains, so a test never has to be quick.
"""

import os
import pathlib
import select
import sys

import kajitori

folder, steps, offset = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
others = [other for other in range(world_size) if other != rank]
# open for both: neither end waits for the other to come
ends = {
    (a, b): os.open(folder / f"{a}-{b}", os.O_RDWR)
    for other in others
    for a, b in ((rank, other), (other, rank))
}


def all_reduce(value):
    """The largest value; waits for all."""
    for other in others:
        os.write(ends[rank, other], bytes([value]))
    return max(value, *(os.read(ends[other, rank], 1)[0] for other in others))


left = steps
with kajitori.Run(name=f"rank-{rank}") as run:
    count = 0
    print("run", run.id, run.rank, run.world_size, run.dir or "no doors", flush=True)
    while left:
        if run.begin_step(offset * rank + count):
            print("stopped at", count, flush=True)
            break
        goes_on = rank == 0 and not select.select([sys.stdin], [], [], 0)[0]
        if not all_reduce(int(goes_on)):
            left -= 1
        count += 1
print("trained", count, flush=True)
