# SPDX-License-Identifier: Apache-2.0
"""Pruning of an Estimator by the summaries of its evaluations: `PruningHook`.

An evaluation, be it of this process or of an evaluator elsewhere, appends its metrics to the event
files of a folder. The hook follows them: a look at a folder in which nothing happened reads nothing,
and a new evaluation is read once.

In a cluster the chief decides. It says so by a variable that the tasks of the training share (on a
parameter server), which the hook of each worker fetches with its steps, and by a file in the model's
folder for the evaluator, which shares nothing but that folder.
"""

from __future__ import annotations

import contextlib
import operator
import os
import time
import warnings
from typing import Any

import tensorflow as tf

from kajitori._errors import ArgumentError, EventWarning, NotFoundError
from kajitori._event_info import TagInfo
from kajitori._events import EventReader
from kajitori._ffi import ffi
from kajitori._pruning import Pruning, Trial, TrialPruned
from kajitori._steering import NEVER
from kajitori._step_gate import StepGate
from kajitori._values import positive

_v1 = tf.compat.v1

LOOK_SECONDS = 0.05
"""Between two looks, unless the program says otherwise. An evaluation takes longer: one that this
process makes is seen before the next step."""

PRUNED = "kajitori-pruned"
"""The file that tells an evaluator."""


class PruningHook(StepGate, _v1.train.SessionRunHook):
    """Reports each evaluation of an Estimator to a trial, and ends the training that is pruned.

    trial: one of kajitori or of Optuna, anything with ``report(value, step)`` and ``should_prune()``.
        Of a cluster only the chief's counts; the other tasks give None.
    estimator: the `tf.estimator.Estimator`, or the folder of its evaluations
        (``estimator.eval_dir("name")`` with ``EvalSpec(name="name")``).
    metric: name of the metric, as in ``"accuracy"``.
    run_every_steps, run_every_secs: look no more often than that [every 50 ms]. A look that finds
        nothing new reads nothing.
    report_untrained: the evaluation of step 0, which an evaluator of a cluster makes, is a value, too.

    Each new value is reported once, at its own step, and the pruner is asked once for it. A training
    that is pruned ends by `request_stop`: the checkpoint is written, other hooks get their `end`, then
    `optuna.TrialPruned` (for another trial `kajitori.TrialPruned`) reaches the caller of `train` or
    `train_and_evaluate`. `finish`, or leaving a ``with`` block of the hook, reports what was evaluated
    since.

    It takes the place of Optuna's TensorFlowPruningHook, with the same arguments.
    """

    def __init__(
        self,
        trial: Trial | None,
        estimator: Any,
        metric: str,
        run_every_steps: int | None = None,
        run_every_secs: float | None = None,
        *,
        report_untrained: bool = False,
    ) -> None:
        is_folder = isinstance(estimator, str | os.PathLike)
        if not is_folder and not hasattr(estimator, "eval_dir"):
            raise ArgumentError(f"estimator: {estimator!r} is neither an Estimator nor a folder")
        if not isinstance(metric, str) or not metric:
            raise ArgumentError(f"metric: {metric!r} is no name of a metric")
        self._folder = _local(os.fspath(estimator) if is_folder else estimator.eval_dir())
        self._is_chief, self._is_cluster = _place(_environment() if is_folder else estimator.config)
        self._pruning = Pruning(trial, metric) if self._is_chief else None
        self._metric = metric
        self._run_every_steps = (
            None if run_every_steps is None else positive("run_every_steps", run_every_steps)
        )
        self._run_every_ns = _nanoseconds(
            LOOK_SECONDS if run_every_secs is None else run_every_secs
        )
        self._report_untrained = report_untrained
        self._reader: EventReader | None = None
        self._cursor: str | None = None  # where the reader before it was
        self._coordinator: Any = None
        self._stop_variable: Any = None
        self._last_step: int | None = None  # that was trained
        self._has_seen_metric = False
        self._is_pruned = False
        self._error: Exception | None = None

    @property
    def pruned(self) -> bool:
        """Whether the training was pruned; in each task of a cluster."""
        return self._is_pruned

    def evaluation_hook(self) -> Any:
        """A hook for ``EvalSpec(hooks=[…])`` of a cluster: `TrialPruned` reaches the caller of
        `train_and_evaluate` in the evaluator, too, which would wait for ever."""
        return _EvaluatorHook(self)

    # What a session calls

    def begin(self) -> None:
        self._open_gate(bytearray(ffi.sizeof("kj_run_cell")))  # of no run: only counts and waits
        self._next_step, self._look_step, self._look_ns = 1, 0, 0
        self._stop_variable = _stop_variable() if self._is_cluster else None

    def after_create_session(self, session: Any, coord: Any) -> None:
        self._coordinator = coord
        if self._is_cluster and self._is_chief:
            self._tell_others(session, self._is_pruned)

    def before_run(self, run_context: Any) -> Any:
        return None if self._is_chief else _v1.train.SessionRunArgs(self._stop_variable)

    after_run = StepGate.next_step

    def _look(self, run: int, run_context: Any, run_values: Any) -> None:
        """What StepGate calls when it is time: in a worker after each run."""
        if self._is_chief:
            self._read()
            self._plan(run)
            if self._is_cluster and self._is_pruned:
                self._tell_others(run_context.session, True)
        else:
            self._is_pruned |= bool(run_values.results)
        if self._is_pruned or self._error:
            run_context.request_stop()

    def _plan(self, run: int) -> None:
        """When the next look is."""
        steps = self._run_every_steps
        self._look_step = NEVER if steps is None else run + steps
        self._look_ns = NEVER if steps is not None else time.monotonic_ns() + self._run_every_ns

    def end(self, session: Any) -> None:
        self._last_step = int(session.run(_v1.train.get_global_step(session.graph)))
        if self._is_chief:
            self._read_all()
            self._close()
        error = self._error or (self.exception() if self._is_pruned else None)
        if error is not None:
            _leave(self._coordinator, error)

    def exception(self) -> Exception:
        """What the caller of a training gets that was pruned."""
        pruning = self._pruning
        return TrialPruned("pruned by the chief") if pruning is None else pruning.exception()

    def _tell_others(self, session: Any, is_pruned: bool) -> None:
        """The workers, which look with each step, and the evaluator, which looks at each evaluation."""
        initializer = self._stop_variable.initializer
        session.run(initializer, {initializer.inputs[1]: is_pruned})
        if is_pruned:
            open(self._mark(), "w").close()
        else:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._mark())

    def _mark(self) -> str:
        return os.path.join(os.path.dirname(self._folder), PRUNED)

    # Reading

    def _open(self) -> EventReader:
        if self._reader is None:
            self._reader = EventReader(self._folder, tag=self._metric, run=".", cursor=self._cursor)
        return self._reader

    def _close(self) -> None:
        """Between trainings no descriptors are held."""
        if self._reader is not None:
            self._cursor = self._reader.cursor
            self._reader.close()
            self._reader = None

    def _read(self, timeout: float = 0.0) -> None:
        """Reports what is new. What is there must not be `_metric`; then, which there are."""
        reader, points = self._open(), []
        columns = reader.read(timeout)
        while len(columns):
            for some in columns.by_series().values():
                points += zip(some.step, some.value, strict=True)
            columns = reader.read()
        self._report(points)
        if not self._has_seen_metric:
            self._check_tags(reader.tags(), is_last=False)

    def _read_all(self) -> None:
        """The same with a new reader, which looks into each file, whoever may have told of it."""
        self._close()
        self._read()
        if not self._has_seen_metric:
            self._check_tags(self._open().tags(), is_last=True)

    def _report(self, points: list[tuple[int, float]]) -> None:
        """By steps, though they may be from several files."""
        self._has_seen_metric |= bool(points)
        for step, value in sorted(points, key=operator.itemgetter(0)):
            if step > 0 or self._report_untrained:
                self._is_pruned |= self._pruning.look(value, step)

    def _check_tags(self, tags: list[TagInfo], is_last: bool) -> None:
        """Others write into the folder, too, and the metric may come behind them: it is missing when
        a second evaluation has begun, or no more will come."""
        if tags and (is_last or any(info.first_step < info.last_step for info in tags)):
            self._error = NotFoundError(
                f"{self._folder}: no evaluation has {self._metric!r}; there is: "
                f"{', '.join(sorted({repr(_place_of(info)) for info in tags}))}"
            )

    # After the training

    def finish(self, timeout: float = 0.0) -> bool:
        """Reports what was evaluated since the training has ended, and raises if it is pruned by
        that. An evaluator elsewhere takes its time: waits for the evaluation of the last step, at most
        `timeout` seconds. Whether it was reported, and a warning if not; in tasks that report nothing
        always True."""
        if not self._is_chief:
            return True
        deadline = time.monotonic() + timeout
        try:
            self._read_all()
            while not self._is_complete() and (left := deadline - time.monotonic()) > 0:
                self._read(left)
        finally:
            self._close()
        if self._error or self._is_pruned:
            raise self._error or self.exception()
        if not self._is_complete():
            warnings.warn(
                f"{self._folder}: no {self._metric!r} of step {self._last_step}, the last one",
                EventWarning,
                stacklevel=2,
            )
        return self._is_complete()

    def _is_complete(self) -> bool:
        step = self._pruning.step
        return self._is_pruned or (step is not None and step >= (self._last_step or 0))

    def __enter__(self) -> PruningHook:
        return self

    def __exit__(self, kind: Any, *rest: object) -> None:
        if kind is None:
            self.finish()
        else:
            self._close()

    def __getstate__(self) -> dict[str, Any]:
        """A copy reads on from the same place, with a reader and a session of its own."""
        cursor = self._cursor if self._reader is None else self._reader.cursor
        own = {"_reader": None, "_coordinator": None, "_stop_variable": None, "_cursor": cursor}
        return vars(self) | own


class _EvaluatorHook(_v1.train.SessionRunHook):
    """Ends an evaluator's loop after the evaluation of a training that was pruned."""

    def __init__(self, pruning: PruningHook) -> None:
        self._pruning = pruning
        self._coordinator: Any = None

    def after_create_session(self, session: Any, coord: Any) -> None:
        self._coordinator = coord

    def end(self, session: Any) -> None:
        pruning = self._pruning
        if not pruning._is_chief and os.path.exists(pruning._mark()):
            pruning._is_pruned = True
            _leave(self._coordinator, pruning.exception())


def _nanoseconds(seconds: float) -> int:
    """No more than a clock can say, of a program that wants no looks at all."""
    if not isinstance(seconds, int | float) or not seconds >= 0:
        raise ArgumentError(f"run_every_secs: {seconds!r} is no number of seconds")
    return int(1e9 * min(seconds, NEVER / 1e10))


def _local(folder: str) -> str:
    if not folder:
        raise ArgumentError("estimator: the path of the folder is empty")
    if "://" in folder:
        raise ArgumentError(f"{folder}: evaluations are read from folders of this machine only")
    return os.path.abspath(folder)


def _place_of(info: TagInfo) -> str:
    """Evaluations of a folder within show that the folder of the model was given."""
    return info.tag if info.run in ("", ".") else f"{info.run}/{info.tag}"


def _environment() -> Any:
    """What $TF_CONFIG says; None where TensorFlow has no Estimator any more."""
    return tf.estimator.RunConfig() if hasattr(tf, "estimator") else None


def _place(config: Any) -> tuple[bool, bool]:
    """Whether this task is the chief of its training, and whether that has others."""
    if config is None:
        return True, False
    others = bool(config.cluster_spec) and config.num_worker_replicas > 1
    if others and config.num_ps_replicas == 0:
        raise ArgumentError(
            "workers that reduce their gradients together (MultiWorkerMirroredStrategy) cannot be "
            "pruned yet: they would have to stop at the same step"
        )
    return config.is_chief, bool(config.cluster_spec)


def _stop_variable() -> Any:
    with _v1.variable_scope("kajitori", reuse=_v1.AUTO_REUSE):
        return _v1.get_variable("pruned", initializer=tf.constant(False), trainable=False)


def _leave(coordinator: Any, error: Exception) -> None:
    """Has the session raise `error` when it is closed, so when every hook has had its `end`."""
    try:
        coordinator.raise_requested_exception()
    except Exception:
        return  # that one is raised then
    coordinator.clear_stop()  # one that was stopped, as by a queue of input that ends, takes none
    coordinator.request_stop((type(error), error, error.__traceback__))
