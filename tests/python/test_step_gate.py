# SPDX-License-Identifier: Apache-2.0
"""The idle path of a callback in C: what it lets pass, what it hands on, and that it keeps no run alive."""

import copy
import gc
import os
import pickle
import threading

import pytest
from kajitori._step_gate import StepGate
from training import PATIENCE

import kajitori

FAR = 2**62


class Gate(StepGate):
    def __init__(self):
        self.looks = []

    def _look(self, step, logs):
        self.looks.append((step, logs))
        return "looked"

    def __getstate__(self):
        return vars(self)


def open_gate(run, look_step=FAR, look_ns=FAR):
    gate = Gate()
    run._open_gate(gate)
    gate._look_step, gate._look_ns = look_step, look_ns
    return gate


def test_while_nothing_is_to_be_done_the_step_is_published(run):
    gate = open_gate(run)
    gate._gate_offset = 100
    assert gate.on_train_batch_end(7, logs={"loss": 1.0}) is None
    assert run.step == 107
    assert gate.looks == []


def test_what_is_pending_is_looked_at(run):
    gate = open_gate(run)
    sent = threading.Event()

    def send():
        with kajitori.connect(run.id) as client:
            client.send("stop", wait="accepted")
        sent.set()

    threading.Thread(target=send, daemon=True).start()
    assert sent.wait(PATIENCE)
    assert gate.on_train_batch_end(3, logs="L") == "looked"
    assert gate.looks == [(3, "L")]
    assert run.step == -1


@pytest.mark.parametrize(("step", "ns", "n_looks"), [(5, FAR, 2), (FAR, 0, 7), (0, FAR, 7)])
def test_the_step_and_the_time_that_were_told(run, step, ns, n_looks):
    gate = open_gate(run, step, ns)
    for batch in range(7):
        gate.on_train_batch_end(batch)
    assert len(gate.looks) == n_looks


def test_without_a_run_and_after_its_end_each_step_is_looked_at(run):
    assert Gate().on_train_batch_end(0) == "looked"
    gate = open_gate(run)
    run.close()
    assert gate.on_train_batch_end(0) == "looked"
    assert run.step == -1


def test_a_gate_does_not_keep_a_run_open(run):
    gates = [open_gate(run), open_gate(run)]
    folder = run.dir
    run.close()
    assert not os.path.exists(folder)
    assert [gate.on_train_batch_end(0) for gate in gates] == ["looked", "looked"]


def test_a_gate_that_is_forgotten_does_not_either(run):
    open_gate(run)
    gc.collect()
    folder = run.dir
    run.close()
    assert not os.path.exists(folder)


@pytest.mark.parametrize(
    ("args", "kwargs", "seen"),
    [
        ((3,), {}, (3, None)),
        ((3, "L"), {}, (3, "L")),
        ((3,), {"logs": "L"}, (3, "L")),
        ((), {"logs": "L", "batch": 3}, (3, "L")),
    ],
)
def test_arguments_by_place_and_by_name(args, kwargs, seen):
    gate = Gate()
    gate.on_train_batch_end(*args, **kwargs)
    assert gate.looks == [seen]


@pytest.mark.parametrize(
    ("args", "kwargs", "error"),
    [
        ((), {}, TypeError),
        ((1, 2, 3), {}, TypeError),
        ((1,), {"other": 1}, TypeError),
        ((1,), {"batch": 1}, TypeError),
        (("x",), {}, TypeError),
        ((2**70,), {}, OverflowError),
    ],
)
def test_arguments_that_cannot_be_meant(args, kwargs, error):
    gate = Gate()
    with pytest.raises(error):
        gate.on_train_batch_end(*args, **kwargs)
    assert gate.looks == []


def test_an_exception_in_the_slow_way_comes_through():
    class Broken(StepGate):
        def _look(self, step, logs):
            raise KeyError(step)

    with pytest.raises(KeyError):
        Broken().on_train_batch_end(0)


def test_memory_that_is_no_cell():
    gate = Gate()
    with pytest.raises(ValueError, match="3 bytes"):
        gate._open_gate(bytearray(3))
    with pytest.raises((TypeError, BufferError)):
        gate._open_gate(b"read only and long enough to be a cell of it")
    assert gate.on_train_batch_end(0) == "looked"


def test_a_copy_is_closed(run):
    gate = open_gate(run)
    for other in (copy.copy(gate), copy.deepcopy(gate), pickle.loads(pickle.dumps(gate))):
        assert other.on_train_batch_end(1) == "looked"


class Counter(StepGate):
    """As an adapter of a framework that says no number: its hook is next_step by another name."""

    after_iteration = StepGate.next_step

    def __init__(self):
        self.looks = []

    def _look(self, step, *args, **kwargs):
        self.looks.append((step, args, kwargs))
        return "looked"


def test_next_step_counts_its_calls_and_takes_any_arguments(run):
    counter = Counter()
    run._open_gate(counter)
    counter._look_step, counter._look_ns, counter._next_step = FAR, FAR, 40
    assert [counter.after_iteration(*range(k), key=k) for k in range(4)] == [None] * 4
    assert run.step == 43
    assert counter.looks == []
    counter._look_step = 45
    assert counter.next_step("model") is None
    assert counter.after_iteration("model", 7, log={}) == "looked"
    assert counter.looks == [(45, ("model", 7), {"log": {}})]
    assert run.step == 44


def test_an_exception_of_a_look_is_the_hook_s(run):
    counter = Counter()
    counter._look = lambda step: 1 / 0
    with pytest.raises(ZeroDivisionError):
        counter.next_step()
    with pytest.raises(TypeError):
        counter.next_step("more than it takes")


def test_what_is_kept_for_a_later_look_and_a_step_that_is_an_epoch_too(run):
    counter = Counter()
    run._open_gate(counter)
    counter._look_step, counter._look_ns, counter._next_step = FAR, FAR, 7
    counter._counts_epochs, counter._kept, counter._kept_name = True, [], "real"
    assert [counter.next_step(number, 0) for number in (1.5, 2, True)] == [None] * 3
    assert counter._kept == [1.5, 2, 1]
    with pytest.raises(AttributeError):
        counter.next_step("d")
    assert (run.step, run.epoch) == (9, 9)
    counter._counts_epochs, counter._kept = False, None
    assert counter.next_step("d") is None
    assert (run.step, run.epoch) == (11, 9)


def test_what_belongs_to_another_training_is_looked_at_and_not_kept(run):
    counter, looks = Counter(), []
    counter._look = lambda step, number: looks.append((step, number))
    run._open_gate(counter)
    counter._look_step, counter._look_ns, counter._next_step = FAR, FAR, 7
    counter._kept, counter._kept_name = [], "real"
    counter._owner, counter._owner_name = int, "__class__"
    for number in (1, 1.5, 2):
        counter.next_step(number)
    assert (looks, counter._kept) == ([(8, 1.5)], [1, 2])
    counter._owner_name = "none"
    with pytest.raises(AttributeError):
        counter.next_step(3)
