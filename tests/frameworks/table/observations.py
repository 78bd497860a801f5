# SPDX-License-Identifier: Apache-2.0
"""The rows of the table: each function starts a training (`start`), steers it, and returns what was
observed, as names of phrases in cells.toml and literal words. What it cannot tell, it returns, too, and
no cell has it."""

import os
import re

from steered_program import Refused
from waiting import until

EPOCHS, STEPS, TESTS = 3, 10, 5  # as in programs/cell_driver.py
GATE = 14  # the step that runs when a command comes: the fourth of the second epoch
WHOLE = EPOCHS * STEPS
LR, NEW_LR = 0.125, 0.5


def when(steps):
    """The moment at which something acted, by the number of steps that had run."""
    names = {GATE: "now", 2 * STEPS: "epoch-end", WHOLE: "never"}
    return names.get(steps, f"after {steps} steps")


def validation(tests, has_begun=False):
    """What became of the validation of the second epoch. Frameworks that have no notion of one say
    nothing."""
    names = {0: [], 2 * TESTS: ["validated"], TESTS: ["no-validation"], TESTS + 1: ["one-batch"]}
    if has_begun:
        names = {2 * TESTS: ["rest-runs"], TESTS + 2: ["rest-skipped"]}
    return names.get(tests, [f"{tests} batches of validation"])


def leaving(did):
    """How the training ended, where it is not by its own way."""
    ending = [] if did["ending"] == "returned" else [f"raises-{did['ending']}"]
    return ending + ([] if did["end_hooks"] in (None, 1) else [f"end-hooks-{did['end_hooks']}"])


def do(training, *words):
    """Sends a command at the gate and lets the training go on to its end."""
    try:
        training.send(*words)
    except Refused:
        training.go()
        assert len(training.end()["lrs"]) == WHOLE, "what is refused changes nothing"
        raise
    training.go()
    return training.end()


def names(tags):
    """Of metrics, as the page shows them."""
    told = sorted({tag for tag in tags if not re.search(r"runtime|per_second|flos", tag)})
    return ["`" + "`, `".join(told) + "`"] + ([] if len(told) == len(set(tags)) else ["speeds"])


def observe_status(start):
    training = start()
    status = training.kajitori("status")
    training.go()
    training.end()
    return [
        "at-once" if (status["step"], status["state"]) == (GATE - 1, "running") else str(status)
    ]


def observe_metrics(start):
    """What `kajitori watch` shows, from the gate to the end of the run, and what came before: of steps,
    only those of so many a second are reported."""
    training = start()
    with training.connect() as client:
        events = client.events(kinds=["metric"])
        seen = client.status()["metrics"]
        training.go()
        seen += events
    training.end()
    return names([metric["tag"] for metric in seen])


def stopped(did):
    return [when(len(did["lrs"])), *validation(did["tests"]), *leaving(did)]


def observe_stop(start):
    return stopped(do(start(), "stop"))


def observe_stop_at_epoch(start):
    return stopped(do(start(), "stop", "at=epoch"))


def observe_stop_at_step(start):
    did = do(start(), "stop", "at=step:17")
    steps = len(did["lrs"])
    return ["exact" if steps == 17 else when(steps), *validation(did["tests"]), *leaving(did)]


def observe_stop_in_validation(start):
    did = do(start(gate=("test", TESTS + 2)), "stop")
    return [*validation(did["tests"], has_begun=True), *leaving(did)]


def observe_stop_without_validation(start):
    return stopped(do(start(), "stop", "validate=no"))


def observe_pause(start):
    training = start()
    training.send("pause")
    training.go()
    until(lambda: training.kajitori("status")["state"] == "paused")
    status = training.kajitori("status")
    counted = training.kajitori("send", "count")["result"]
    training.kajitori("resume")
    did = training.end()
    assert len(did["lrs"]) == WHOLE, "it goes on to its end"
    assert status["step"] in (counted, counted - 1), status
    return [when(counted), "paused-answers", *leaving(did)]


def files(path):
    """A checkpoint as the page shows it, with N for its step: a folder, a file, or several of one name."""
    name = re.sub(r"\d+", "N", os.path.basename(path))
    if os.path.exists(path):
        return f"`{name}/`" if os.path.isdir(path) else f"`{name}`"
    folder, start = os.path.split(path)
    found = [one for one in os.listdir(folder) if one.startswith(f"{start}.")]
    assert found, path
    return f"`{name}.*`"


def observe_checkpoint(start):
    training = start()
    did = do(training, "checkpoint")
    record = training.settled("checkpoint")
    assert len(did["lrs"]) == WHOLE, "it goes on to its end"
    return [when(record["step"]), files(record["result"]["path"]), *leaving(did)]


def observe_leave(start):
    training = start()
    did = do(training, "pause", "level=leave")
    left = training.settled("pause")
    path = left["result"]["checkpoint"]["path"]
    assert files(path)
    again = start(gate=("step", 0), checkpoint=path)
    went_on = {WHOLE - GATE: "goes-on-exactly", WHOLE - STEPS: "epoch-anew"}
    steps = len(again.gate["lrs"])
    return [
        when(len(did["lrs"])),
        *leaving(did),
        went_on.get(steps, f"goes on with {steps} steps"),
    ]


def set_lr(start, **options):
    training = start(**options)
    did = do(training, "set", f"lr={NEW_LR}")
    record = training.settled("set")
    before, after = did["lrs"][:GATE], did["lrs"][GATE:]
    assert len(did["lrs"]) == WHOLE, "it goes on to its end"
    assert abs(record["old"]["lr"] - before[-1]) < 0.02, record
    assert abs(record["new"]["lr"] - NEW_LR) < 0.02, record
    return before, after


def observe_set_lr(start):
    before, after = set_lr(start)
    if set(before) == {LR} and set(after) == {NEW_LR}:
        return ["next-step"]
    return [f"{before} then {after}"]


def observe_set_scheduled_lr(start):
    """The schedule halves the learning rate in each epoch, step by step."""
    before, after = set_lr(start, schedule=True)
    assert before[0] > before[-1] > LR / 4, before
    if set(after) == {NEW_LR}:
        return ["next-step", "schedule-off"]
    scaled = [NEW_LR * 0.5 ** (step / STEPS) for step in range(len(after))]
    if all(abs(one - other) < 0.04 for one, other in zip(after, scaled, strict=True)):
        return ["next-step", "schedule-scaled"]
    return [f"{before} then {after}"]


def observe_extend(start):
    training = start()
    did = do(training, "extend", "epochs=1")
    training.settled("extend")
    added = {WHOLE + STEPS: "one-more-epoch", WHOLE + 1: "one-more-iteration"}
    steps = len(did["lrs"])
    return [added.get(steps, f"{steps} steps in all"), *leaving(did)]


def observe_evaluate(start):
    training = start()
    did = do(training, "evaluate")
    record = training.settled("evaluate")
    assert len(did["lrs"]) == WHOLE, "it goes on to its end"
    return [when(record["step"]), *names(record["result"])]


def observe_own_verb(start):
    training = start()
    did = do(training, "send", "count")
    assert len(did["lrs"]) == WHOLE, "it goes on to its end"
    return [when(training.settled("count")["result"])]


def observe_prune(start):
    did = do(start(), "prune", "rule=median")
    return stopped(did) + ([] if did["pruned"] else ["not-pruned"])


def observe_abort(start):
    return stopped(do(start(), "abort"))


# The rows in the order of the page.
ROWS = {
    "status": observe_status,
    "metrics": observe_metrics,
    "stop": observe_stop,
    "stop-epoch": observe_stop_at_epoch,
    "stop-step": observe_stop_at_step,
    "stop-in-validation": observe_stop_in_validation,
    "stop-no-validation": observe_stop_without_validation,
    "prune": observe_prune,
    "abort": observe_abort,
    "pause": observe_pause,
    "leave": observe_leave,
    "checkpoint": observe_checkpoint,
    "evaluate": observe_evaluate,
    "set-lr": observe_set_lr,
    "set-scheduled-lr": observe_set_scheduled_lr,
    "extend": observe_extend,
    "own-verb": observe_own_verb,
}
