# SPDX-License-Identifier: Apache-2.0
"""What the programs of bench/ share: a training (loss-target) in folders of its own, its journal, its steps."""

from __future__ import annotations

import fcntl
import json
import os
import pathlib
import subprocess
import termios
import time
from typing import Any

import kajitori

TOP = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.get("KAJITORI_BIN", TOP / "build/kajitori")).parent / "bench"


class Training:
    """loss-target in `folder`: doors and journal below it, a FIFO of the user's own when `fifo` is given."""

    def __init__(
        self, folder: pathlib.Path, name: str, step_us: int, fifo: pathlib.Path | None = None
    ) -> None:
        self.saw_path = folder / f"{name}.saw"
        self.journal_folder = folder / "state" / "runs" / name
        self.errors = (folder / f"{name}.err").open("w+")
        env = dict(
            os.environ,
            KAJITORI_RUNTIME_DIR=str(folder / "runtime"),
            KAJITORI_STATE_DIR=str(folder / "state"),
            KAJITORI_RUN_ID=name,
        )
        argv = [BUILD / "loss-target", self.saw_path, str(step_us), *([fifo] if fifo else [])]
        self.process = subprocess.Popen(
            argv, env=env, stdout=subprocess.PIPE, stderr=self.errors, text=True
        )
        self.dir = pathlib.Path(self.process.stdout.readline().rstrip("\n"))
        self.fifo = fifo

    def connect(self) -> kajitori.Client:
        return kajitori.connect(self.dir.name, runtime_dir=self.dir.parent)

    def stop(self) -> None:
        """Ends it after all that was written: the stop is carried out behind what came before it."""
        for fifo in (self.dir / "ctl", self.fifo):
            if fifo:
                wait_until_read(fifo)
        with self.connect() as client:
            client.send("stop", timeout=None)
        self.process.wait()
        self.process.stdout.close()

    def longest_gap(self) -> dict[str, Any]:
        """The longest time between two steps since the last call, and the step that it is at."""
        with self.connect() as client:
            return client.send("gap", timeout=None)["result"]

    def warnings(self) -> str:
        self.errors.seek(0)
        return self.errors.read()

    def saw(self) -> list[tuple[int, int]]:
        """(writer, number) of all that it carried out."""
        return [(int(w), int(n)) for w, n in (line.split() for line in self.saw_path.open())]

    def journal(self) -> list[dict[str, Any]]:
        """All lines that are still there."""
        return [
            json.loads(line) for file in journal_files(self.journal_folder) for line in file.open()
        ]


def wait_until_read(fifo: pathlib.Path) -> None:
    """Until nothing is left in the FIFO; whoever has taken it out goes on with it before anything else."""
    unread = bytearray(4)
    try:
        fd = os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:  # its reader has ended
        return
    while not fcntl.ioctl(fd, termios.FIONREAD, unread) and any(unread):
        time.sleep(0.001)
    os.close(fd)


def journal_files(folder: pathlib.Path) -> list[pathlib.Path]:
    """Oldest first."""
    return [*sorted(folder.glob("journal-*.jsonl")), folder / "journal.jsonl"]
