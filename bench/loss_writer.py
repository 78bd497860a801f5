#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A writer of `tick writer=W number=0`, 1, ... in one of the ways of Python programs. Prints how many were taken.

loss_writer.py open FIFO WRITER COUNT
loss_writer.py socket FOLDER-OF-THE-RUN WRITER COUNT
"""

import pathlib
import sys


def write_fifo(path: str, writer: int, count: int) -> int:
    taken = 0
    for k in range(count):
        try:
            with open(path, "w") as fifo:
                fifo.write(f"tick writer={writer} number={k}\n")
            taken += 1
        except BrokenPipeError:
            pass
    return taken


def write_socket(directory: str, writer: int, count: int) -> int:
    import kajitori  # only here: its import takes longer than many a FIFO writer lives

    path = pathlib.Path(directory)
    with kajitori.connect(path.name, runtime_dir=path.parent) as client:
        for k in range(count):
            client.send(f"tick writer={writer} number={k}", wait="applied", timeout=None)
    return count


if __name__ == "__main__":
    how, path, writer, count = sys.argv[1:]
    write = {"open": write_fifo, "socket": write_socket}[how]
    print(write(path, int(writer), int(count)))
