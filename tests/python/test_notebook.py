# SPDX-License-Identifier: Apache-2.0
"""Several runs in one process, as a notebook has them: a cell that was interrupted and is executed
again, two runs side by side, a kernel that is started again, and children by fork."""

import os
import threading
import time

import pytest
from jupyter_client.manager import start_new_kernel
from training import PATIENCE, ask

import kajitori


def notes(run_id):
    return [line["text"] for line in kajitori.journal(run_id) if line.get("event") == "note"]


def echo(line, path):
    fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK)  # fails when nobody reads
    os.write(fd, line.encode() + b"\n")
    os.close(fd)


def test_a_cell_that_is_executed_again_gets_its_fifo(tmp_path):
    path = tmp_path / "ctl"
    os.mkfifo(path)
    first = kajitori.Run(fifo=path)
    with kajitori.Run(fifo=str(path)) as second:
        assert first.closed
        assert [info.id for info in kajitori.runs()] == [second.id]
        echo("stop", path)
        while not second.poll():
            pass
    assert notes(first.id) == ["closed: a newer run of this thread takes its place"]
    assert notes(second.id) == [
        f"takes the place of run {first.id}, which was still open in this thread"
    ]


def test_a_cell_that_is_executed_again_gets_its_id():
    first = kajitori.Run(run_id="mine")
    with kajitori.Run(run_id="mine") as second:
        assert first.closed
        assert second.id == "mine"
        ask(second, "stop")
    assert len([line for line in kajitori.journal("mine") if line.get("event") == "note"]) == 2


def test_notebook_kernel_with_two_runs_in_one_process(tmp_path):
    """Other FIFOs, other runs: neither closes or hears the other."""
    paths = tmp_path / "a", tmp_path / "b"
    with kajitori.Run(fifo=paths[0]) as a, kajitori.Run(fifo=paths[1]) as b:
        echo("stop", paths[1])
        while not b.poll():
            pass
        assert not a.poll()
        assert not a.closed
        echo("stop", paths[0])
        while not a.poll():
            pass


def test_a_run_of_another_thread_keeps_its_fifo(tmp_path):
    path = tmp_path / "ctl"
    with kajitori.Run(fifo=path) as first:

        def open_second():
            with pytest.warns(kajitori.ChannelWarning, match="ctl"):
                kajitori.Run(fifo=path).close()

        thread = threading.Thread(target=open_second)
        thread.start()
        thread.join()
        assert not first.closed
        echo("stop", path)
        while not first.poll():
            pass


def test_a_run_that_is_inside_of_its_own_callback_is_left_alone(tmp_path):
    path = tmp_path / "ctl"
    with kajitori.Run(fifo=path) as run:

        @run.verb
        def nest():
            with pytest.warns(kajitori.ChannelWarning, match="ctl"):
                kajitori.Run(fifo=path).close()

        assert ask(run, "nest")["state"] == "done"
        assert not run.closed


def test_fork_in_a_callback(tmp_path):
    """The child opens a run of its own with the parent's FIFO and id: it gets neither, and the parent
    keeps both."""
    path = tmp_path / "ctl"
    with kajitori.Run(run_id="parent", fifo=path) as run:

        @run.verb
        def fork():
            pid = os.fork()
            if pid == 0:
                status = 1
                try:
                    with pytest.warns(kajitori.ChannelWarning, match="ctl"):
                        child = kajitori.Run(run_id="parent", fifo=path)
                    status = 0 if child.id != "parent" and not run.closed else 2
                    child.close()
                finally:
                    os._exit(status)
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

        assert ask(run, "fork")["result"] == 0
        echo("stop", path)
        while not run.poll():
            pass
    assert notes("parent") == []


CELL = """
run = kajitori.Run(fifo="ctl")
step = 0
while not run.begin_step(step):
    step += 1
"""


class Notebook:
    """A real kernel. `run` starts a cell, `answer` waits for its end."""

    def __init__(self, folder):
        self.manager, self.client = start_new_kernel(cwd=str(folder))
        self.run("import kajitori")
        assert self.answer() == "ok"

    def run(self, code):
        self.cell = self.client.execute(code)

    def answer(self):
        deadline = time.monotonic() + PATIENCE
        while True:
            reply = self.client.get_shell_msg(timeout=deadline - time.monotonic())
            if reply["parent_header"].get("msg_id") == self.cell:
                return reply["content"].get("ename", reply["content"]["status"])

    def restart(self):
        self.manager.restart_kernel(now=True)
        self.client.wait_for_ready(timeout=PATIENCE)

    def close(self):
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


@pytest.fixture
def notebook(tmp_path):
    notebook = Notebook(tmp_path)
    yield notebook
    notebook.close()


def training_run(*others):
    """The run that trains now, and is none of `others`."""
    deadline = time.monotonic() + PATIENCE
    while True:
        assert time.monotonic() < deadline
        for info in kajitori.runs():
            if info.id in others:
                continue
            with kajitori.connect(info.id) as client:
                if client.status()["step"] > 0:
                    return info.id


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_real_kernel_interrupted_executed_again_and_restarted(tmp_path, notebook):
    os.mkfifo(tmp_path / "ctl")
    notebook.run(CELL)
    first = training_run()
    notebook.manager.interrupt_kernel()
    assert notebook.answer() == "KeyboardInterrupt"

    notebook.run(CELL)
    second = training_run(first)
    echo("stop", tmp_path / "ctl")
    assert notebook.answer() == "ok"
    assert notes(first) == ["closed: a newer run of this thread takes its place"]

    notebook.run("run.close()\n" + CELL)
    third = training_run(first, second)
    notebook.restart()
    assert kajitori.runs() == [], "nothing of the killed kernel is left"
    notebook.run("import kajitori\n" + CELL)
    training_run(third)
    echo("stop", tmp_path / "ctl")
    assert notebook.answer() == "ok"
    assert notes(third) == []
