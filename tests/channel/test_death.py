# SPDX-License-Identifier: Apache-2.0
"""A training that is killed at any moment leaves a journal that can be read, and nothing else that
the next run would stumble over."""

import contextlib
import os
import random
import threading

ROUNDS = 200 if os.environ.get("KAJITORI_SOAK") else 12


def steer(place, paths, over):
    """Commands by both FIFOs and the socket until `over`."""
    while not over.is_set():
        for path in paths:
            with contextlib.suppress(OSError):
                fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
                with contextlib.suppress(OSError):
                    os.write(fd, b"set lr=0.25\nshake scale=0 at=epoch\nbogus\n")
                os.close(fd)
        over.wait(0.001)


def test_killed_at_random_moments(place, tmp_path):
    moments = random.Random(1)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    paths = [fifo, place.runtime / "digits-one" / "ctl"]
    over = threading.Event()
    writer = threading.Thread(target=steer, args=(place, paths, over))
    writer.start()
    try:
        for _ in range(ROUNDS):
            process = place.digits("--fifo", fifo, run_id="digits-one", step_ms=0)
            assert process.run_id == "digits-one"  # the dead one's folder has been swept
            for _ in range(moments.randrange(4)):
                process.wait_line("epoch ", "stdout")
            over.wait(moments.random() / 50)
            process.popen.kill()
            process.wait()
            assert process.err == ""  # neither FIFO nor journal nor id was taken
            place.kajitori("log")
            numbers = [line["n"] for line in place.journal("digits-one")]
            assert numbers == list(range(1, len(numbers) + 1))
    finally:
        over.set()
        writer.join()
    assert place.json("ps") == []
    assert not (place.runtime / "digits-one").exists()
    assert list(place.runtime.iterdir()) == []


def test_the_runtime_folder_is_deleted_under_a_training(place):
    digits = place.digits(run_id="digits-one")
    folder = place.runtime / "digits-one"
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    place.runtime.rmdir()
    assert "was deleted" in digits.wait_line("was deleted", "stderr")
    digits.wait_line("epoch 1 ", "stdout")
    place.kajitori("stop", status=3)
    other = place.digits(run_id="digits-one")  # the name is free, and the journal is not shared
    assert "a live run of this id" in other.wait_line("journal", "stderr")
    place.kajitori("stop")
    assert other.wait() == 0
    assert digits.popen.poll() is None
