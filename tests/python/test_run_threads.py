# SPDX-License-Identifier: Apache-2.0
"""Runs among threads, forks and the ends of programs."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import warnings

import pytest
from kajitori._ffi import lib
from training import PATIENCE, ask, finish

import kajitori
from kajitori import _errors


def test_exit_handlers_may_use_a_run_that_was_closed_before_them():
    out = finish("""
        import atexit
        def late():
            print(run.begin_step(5), run.poll(), run.step, run.closed)
            run.report("loss", 5, 1.0)
            run.close()
        atexit.register(late)  # before the package's own: called after it
        import kajitori
        run = kajitori.Run()
    """)
    assert out == "False False 5 True\n"


def test_a_daemon_thread_may_poll_and_report_while_the_program_ends():
    finish("""
        import threading, kajitori
        run = kajitori.Run()
        began = threading.Event()
        def work():
            step = 0
            while True:
                run.begin_step(step)
                run.report("loss", step, 1.0)
                run.end_epoch(step)
                step += 1
                began.set()
        threading.Thread(target=work, daemon=True).start()
        began.wait()
    """)


def test_a_daemon_thread_may_be_paused_while_the_program_ends():
    finish("""
        import threading, kajitori
        run = kajitori.Run()
        def work():
            while True:
                run.poll()
        threading.Thread(target=work, daemon=True).start()
        with kajitori.connect() as client:
            client.send("pause")
    """)
    assert kajitori.runs() == []


def test_closing_while_other_threads_report_and_ask():
    for _ in range(20):
        run = kajitori.Run()
        ended, began, errors = threading.Event(), threading.Semaphore(0), []

        def use(run=run, ended=ended, began=began, errors=errors):
            step = 0
            try:
                while not ended.is_set():
                    run.begin_step(step)
                    run.report("loss", step, 1.0)
                    run.set_phase("train")
                    assert run.stop_reason == ""
                    step += 1
                    began.release()
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=use) for _ in range(3)]
        for thread in threads:
            thread.start()
        began.acquire()
        run.close()
        ended.set()
        for thread in threads:
            thread.join()
        assert errors == []
    assert kajitori.runs() == []


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_worker_processes_of_a_training(tmp_path, method):
    script = tmp_path / "train.py"
    script.write_text(
        textwrap.dedent("""
            import multiprocessing, sys, kajitori

            def work(number):
                with kajitori.Run(name="worker") as own:
                    own.begin_step(number)
                    return own.step, len(kajitori.runs()) >= 2

            if __name__ == "__main__":
                with kajitori.Run(run_id="parent") as run:
                    context = multiprocessing.get_context(sys.argv[1])
                    with context.Pool(2) as pool:
                        print(pool.map(work, range(3)))
                    print([info.id for info in kajitori.runs()], run.begin_step(1))
        """)
    )
    done = subprocess.run(
        [sys.executable, script, method], capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.stdout == "[(0, True), (1, True), (2, True)]\n['parent'] False\n", done.stderr


def test_a_fork_in_a_verb(run):
    @run.verb
    def fork():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid == 0:
            try:
                deaf = not run.begin_step(3) and not run.poll()
                run.close()
            finally:
                os._exit(0 if deaf and run.closed else 1)
        return os.waitpid(pid, 0)[1]

    assert ask(run, "fork")["result"] == 0
    assert not run.closed


def test_a_forked_child_is_deaf_and_leaves_the_doors_alone(run):
    read_end, write_end = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # fork beside threads: what is tested here
        pid = os.fork()
    if pid == 0:
        try:
            answers = [run.begin_step(99), run.poll(), run.should_stop]
            run.report("loss", 1, 1.0)
            run.close()
            os.write(write_end, json.dumps(answers).encode())
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    assert json.loads(os.read(read_end, 100)) == [False, False, False]
    os.close(read_end)
    os.close(write_end)
    assert len(kajitori.runs()) == 1
    assert ask(run, "stop")["step"] == -1
    assert run.should_stop


def test_a_forked_child_can_be_warned_while_another_thread_is():
    """Also by C code: the lock around the kept warnings is not held in the child."""
    ended = threading.Event()

    def warn():
        while not ended.is_set():
            for _ in range(100):
                lib.kj_log_write(lib.KJ_LOG_WARNING, b"parent")

    thread = threading.Thread(target=warn)
    thread.start()
    try:
        for _ in range(50):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                pid = os.fork()
            if pid == 0:
                signal.alarm(PATIENCE)  # ends a child that waits for ever
                lib.kj_log_write(lib.KJ_LOG_WARNING, b"child")
                os._exit(0)
            assert os.waitpid(pid, 0)[1] == 0
    finally:
        ended.set()
        thread.join()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _errors.warn_pending(1)


def test_polling_from_a_second_thread_is_harmless(run):
    ended = threading.Event()

    def poll():
        while not ended.is_set():
            run.poll()

    thread = threading.Thread(target=poll)
    thread.start()
    values = {"n": 0}
    run.add_param("n", int, lambda: values["n"], lambda v: values.update(n=v))
    for number in range(50):
        assert ask(run, f"set n={number}")["new"] == {"n": number}
    ended.set()
    thread.join()
