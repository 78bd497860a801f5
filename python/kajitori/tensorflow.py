# SPDX-License-Identifier: Apache-2.0
"""Steering and pruning of sessions: `SteeringHook`, `PruningHook`, for `tf.estimator.Estimator` and
`tf.compat.v1.train.MonitoredTrainingSession`.

::

    from kajitori.tensorflow import SteeringHook

    estimator.train(input_fn, hooks=[SteeringHook(estimator=estimator)])

then, from any shell, ``kajitori status``, ``kajitori set lr=1e-4``, ``kajitori pause``, ``kajitori
checkpoint``, ``kajitori stop --at step:5000``. docs/frameworks/tensorflow.md says when each verb acts.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Mapping
from typing import Any

try:
    import tensorflow as tf
except ImportError as error:
    raise ImportError(
        f"kajitori.tensorflow needs TensorFlow (pip install tensorflow-cpu==2.15.1): {error}"
    ) from error

from kajitori import _tf_rate
from kajitori._errors import ArgumentError, FailedError, StateError, UnsupportedError
from kajitori._events import EventReader
from kajitori._run import Run
from kajitori._steering import NEVER, Command, Steering
from kajitori._step_gate import StepGate
from kajitori._tf_pruning import PruningHook
from kajitori._tf_rate import learning_rate
from kajitori._values import Param, positive

__all__ = ["PruningHook", "SteeringHook", "learning_rate"]

_v1 = tf.compat.v1.train
_keys = tf.compat.v1.GraphKeys

_REFUSED = {
    "checkpoint": "the program gave SteeringHook neither an estimator nor a checkpoint_dir",
    "evaluate": "the program gave SteeringHook no estimator with an evaluation_input_fn",
    "extend": "the last step is max_steps of TrainSpec or train, or StopAtStepHook's, which nobody can "
    "change; give max_steps to SteeringHook instead",
}
_NO_RATE = (
    "no learning rate was found in the graph; give SteeringHook "
    'parameters={"lr": (get, set)}, or the optimizer a kajitori.tensorflow.learning_rate(...)'
)


class SteeringHook(Steering, _v1.SessionRunHook):
    """Makes the session of a training steerable from outside: stop, pause, set and get, checkpoint,
    own verbs, ….

    All arguments are optional. `fifo`, `run`, `commands`, `parameters` and `name` are those of
    `kajitori.keras.SteeringCallback`; a function of `commands` gets this hook (with `session`, `run`,
    `step`).

    checkpoint_dir: folder for the verb `checkpoint`, and so for ``stop save=yes`` and ``pause
        level=leave``: the one from which the session restores, an Estimator's model_dir or
        MonitoredTrainingSession's checkpoint_dir [that of `estimator`].
    estimator: the `tf.estimator.Estimator` that is trained. The metrics of its evaluations are reported,
        too, as ``eval/accuracy``.
    evaluation_input_fn: its input for the verb `evaluate`.
    max_steps: the training ends before this step, and `extend` raises it. For a training that has no
        other end: neither TrainSpec, train nor StopAtStepHook gets one.
    steps_per_epoch: how many steps are an epoch, for ``at=epoch``. A session has none of its own:
        without this ``at=epoch`` is the end of a step, at most half a second later.
    metrics: ``{"loss": tensor}``, tensors or their names that are reported, at most twice a second
        [the loss of the Estimator].
    skip_validation: after a stop that does not say ``validate=yes`` no more than one batch of an
        evaluation runs that has `evaluation_hook`.

    The session ends by its own way (`request_stop`), so that other hooks get their `end`, and the
    checkpoint is written. ``pause level=leave`` and ``abort`` leave it by `kajitori.Left` and
    `kajitori.Aborted`.
    """

    _at_epoch_end = frozenset()  # a session can do everything between two steps

    def __init__(
        self,
        fifo: str | os.PathLike[str] | None = None,
        run: Run | None = None,
        commands: Mapping[str, Command] | None = None,
        parameters: Mapping[str, tuple[Any, ...]] | Iterable[Param] | None = None,
        name: str | None = None,
        checkpoint_dir: str | os.PathLike[str] | None = None,
        estimator: Any = None,
        evaluation_input_fn: Any = None,
        max_steps: int | None = None,
        steps_per_epoch: int | None = None,
        metrics: Mapping[str, Any] | None = None,
        skip_validation: bool = False,
    ) -> None:
        if estimator is not None:
            if not hasattr(estimator, "model_dir"):
                raise ArgumentError(f"estimator: {estimator!r} is no Estimator")
            checkpoint_dir = checkpoint_dir or estimator.model_dir
        if metrics is not None and not isinstance(metrics, Mapping):
            raise ArgumentError(f'metrics: {metrics!r} is no dictionary, as in {{"loss": tensor}}')
        super().__init__(fifo, run, commands, parameters, name, checkpoint_dir)
        self._estimator = estimator
        self._evaluation_input_fn = evaluation_input_fn
        self._max_steps = _positive("max_steps", max_steps)
        self._steps_per_epoch = _positive("steps_per_epoch", steps_per_epoch)
        self._metrics = metrics
        self._skip_validation = skip_validation
        self._can_skip = False
        self._forget_session()

    def _forget_session(self) -> None:
        self._session: Any = None
        self._coordinator: Any = None
        self._global_step: Any = None
        self._fetches: dict[str, Any] = {}
        self._rate: Any = None
        self._why_no_rate = _NO_RATE
        self._reader: EventReader | None = None  # of evaluations
        self._asked: Any = None  # what the next Session.run fetches and is fed with
        self._is_irregular = False  # not each Session.run is a step

    @property
    def session(self) -> Any:
        """The `tf.compat.v1.Session` of the training, for own verbs."""
        if self._session is None:
            raise StateError("no session: the training has not begun, or has ended")
        return self._session

    def evaluation_hook(self) -> Any:
        """A hook for ``EvalSpec(hooks=[…])`` of `train_and_evaluate`: commands act during an
        evaluation, too, and a stop can skip the rest of it."""
        self._can_skip = True
        return _EvaluationHook(self)

    # What a session calls. The next step begins in after_run. Nearly always there is nothing to do:
    # then StepGate.next_step returns, and before_run asks for nothing.

    def begin(self) -> None:
        if self._is_live():
            raise ArgumentError(
                "this SteeringHook is in a training; for EvalSpec there is its evaluation_hook()"
            )
        self._forget_session()
        graph = tf.compat.v1.get_default_graph()
        self._global_step = _v1.get_global_step(graph)
        if self._global_step is None:
            raise ArgumentError(
                "SteeringHook: the graph has no global step "
                "(tf.compat.v1.train.get_or_create_global_step)"
            )
        self._fetches = _metrics(graph, self._metrics)
        try:
            self._rate = _tf_rate.find(graph)
        except UnsupportedError as error:
            self._why_no_rate = str(error)

    def after_create_session(self, session: Any, coord: Any) -> None:
        goes_on = self._training and self._session is not None  # the one before was lost
        self._session, self._coordinator = session, coord
        if goes_on:
            self._count_from(self._read_step())
            return
        self._start()
        if self._begin_step(self.run.step, True):
            coord.request_stop()

    def before_run(self, run_context: Any) -> Any:
        return self._asked

    after_run = StepGate.next_step

    def end(self, session: Any) -> None:
        self._finish()

    def _finish(self) -> None:
        if self._reader is not None:
            self._report_evaluations()
            self._reader.close()
        super()._finish()
        self._forget_session()

    def _is_live(self) -> bool:
        return self._training and self._session is not None and not self._session._closed

    # Steps and epochs

    def _read_step(self) -> int:
        return int(self._session.run(self._global_step))

    def _count_from(self, step: int) -> None:
        """The next call of after_run says that the step behind `step` begins."""
        self._next_step = step + 1
        self._look_step = 0  # whether it is so is seen at the first one
        self.run._publish(step, self._epoch_of(step))

    def _epoch_of(self, step: int) -> int:
        return step // self._steps_per_epoch if self._steps_per_epoch else -1

    def _look(self, counted: int, run_context: Any, run_values: Any) -> None:
        """What StepGate calls when there is something to do."""
        step = self._read_step()
        self._is_irregular |= step != counted and self.run.rank_alone
        self._next_step = step + 1
        is_due = self._is_report_due()
        if is_due and self._reader is not None:
            self._report_evaluations()
        if self._begin_step(step, is_due):
            run_context.request_stop()
        self._report(run_values.results)
        self._plan(step, is_due and bool(self._fetches))

    def _begin_step(self, step: int, is_due: bool) -> bool:
        """The safe point before `step`. True when the training is to end before it."""
        stop = self._end_epoch(self._epoch_of(step) - 1) if self._steps_per_epoch else False
        if is_due and not self._steps_per_epoch:
            stop = self.run.end_epoch(-1)
        stop |= self.run.begin_step(step)
        return stop or (self._max_steps is not None and step >= self._max_steps)

    def _end_epoch(self, epoch: int) -> bool:
        """An epoch ends when the first step of the next one is about to begin."""
        run = self.run
        if run.epoch > epoch:
            return False
        stop = run.end_epoch(epoch)
        run._publish(run.step, epoch + 1)
        return stop

    def _plan(self, step: int, reports: bool) -> None:
        """When the next look is, and what the next run fetches."""
        self._ask(self._fetches if reports else None)
        next_look = step + 1 if reports else self.run._due
        if self._max_steps is not None:
            next_look = min(next_look, self._max_steps)
        if self._steps_per_epoch:
            next_look = min(next_look, (self._epoch_of(step) + 1) * self._steps_per_epoch)
        self._look_step = 0 if self._is_irregular else min(next_look, NEVER)

    def _ask(self, fetches: Any) -> None:
        feed = self._rate.feed if self._rate else None
        asks = fetches is not None or feed is not None
        self._asked = _v1.SessionRunArgs(fetches, feed) if asks else None

    # What `Steering` wants to know

    def _describe(self) -> str:
        return f"tensorflow {tf.__version__} (session)"

    def _run_options(self) -> dict[str, Any]:
        config = getattr(self._estimator, "config", None)
        options = {"total_steps": self._max_steps or 0, "total_epochs": 0}
        if self._steps_per_epoch:
            options["total_epochs"] = -(-options["total_steps"] // self._steps_per_epoch)
        if config is not None and config.cluster_spec:
            options["rank"] = config.global_id_in_cluster or 0
            options["world_size"] = config.num_worker_replicas
        return options

    def _prepare(self) -> None:
        step = self._read_step()
        resumed = re.search(r"-(\d+)$", self.resumed_from)
        if resumed and self._checkpoint_dir and step < int(resumed[1]):
            raise FailedError(
                f"cannot go on from the checkpoint {self.resumed_from}: the session began with step {step}"
            )
        self._count_from(step)
        if self._estimator is not None and self.run.rank == 0:
            self._begin_ns = time.time_ns()
            self._reader = EventReader(self._estimator.model_dir)

    def _abilities(self) -> dict[str, bool]:
        return {"skip_validation": self._can_skip, "by_default": self._skip_validation}

    def _verbs(self) -> dict[str, Any]:
        can = dict(_REFUSED)
        if self._checkpoint_dir is not None:
            can["checkpoint"] = self._checkpoint
        if self._estimator is not None and self._evaluation_input_fn is not None:
            can["evaluate"] = self._evaluate
        if self._max_steps is not None:
            can["extend"] = self._extend
        return can

    def _saver(self) -> Any:
        savers = self.session.graph.get_collection(_keys.SAVERS)
        if len(savers) != 1:
            raise UnsupportedError(f"the graph has {len(savers)} savers; one is needed")
        return savers[0]

    def _checkpoint(self) -> dict[str, Any]:
        """checkpoint: saves all variables where the session restores them from"""
        with self._in_phase("checkpoint"):
            saver = self._saver()
            os.makedirs(self._checkpoint_dir, exist_ok=True)
            prefix = os.path.join(self._checkpoint_dir, "model.ckpt")
            step = self._read_step()
            path = saver.save(self.session, prefix, global_step=step, write_meta_graph=False)
        return {"path": path}

    def _evaluate(self) -> dict[str, Any]:
        """evaluate: the metrics of the program's evaluation_input_fn, from a checkpoint of now"""
        path = self._checkpoint()["path"]
        with self._in_phase("evaluation"):
            metrics = self._estimator.evaluate(
                self._evaluation_input_fn, checkpoint_path=path, name="steering"
            )
        return {tag: value.item() for tag, value in metrics.items() if hasattr(value, "item")}

    def _extend(self, epochs: int | None = None, steps: int | None = None) -> dict[str, Any]:
        """extend: so many steps more, or epochs if the program has said how long one is"""
        if epochs is not None:
            if not self._steps_per_epoch:
                raise UnsupportedError(
                    "a session has no epochs; say steps=N, or give steps_per_epoch to SteeringHook"
                )
            steps = epochs * self._steps_per_epoch
        self._max_steps += steps
        return {"total_steps": self._max_steps}

    def _own_parameters(self) -> list[Param]:
        """`lr`. Where there is none to be found, to be set: it says why."""
        return [
            Param(
                name="lr",
                get=self._get_learning_rate,
                set=self._set_learning_rate,
                min=0,
                help="learning rate of the optimizer",
            )
        ]

    def _get_learning_rate(self) -> float:
        return float("nan") if self._rate is None else self._rate.get(self.session)

    def _set_learning_rate(self, value: float) -> None:
        if self._rate is None:
            raise UnsupportedError(self._why_no_rate)
        self._rate.set(self.session, value)
        self._ask(None)

    # Evaluations

    def _report_evaluations(self) -> None:
        """What evaluations have written since this training began, at their own steps: as
        TensorBoard names it, so ``eval/accuracy``."""
        columns = self._reader.read()
        while len(columns):
            for number, points in columns.by_series().items():
                series = self._reader.series(number)
                if not series.run.startswith("eval"):
                    continue
                for step, value, wall_time in zip(
                    points.step, points.value, points.wall_time, strict=True
                ):
                    if wall_time * 1e9 >= self._begin_ns:
                        self.run.report(f"{series.run}/{series.tag}", step, value)
            columns = self._reader.read()

    def __getstate__(self) -> dict[str, Any]:
        """A copy has no part in the session either."""
        copy = super().__getstate__()
        kept = SteeringHook.__new__(SteeringHook)
        kept._forget_session()
        return copy | vars(kept)


class _EvaluationHook(_v1.SessionRunHook):
    """Safe points in the evaluations of a training that is steered."""

    def __init__(self, steering: SteeringHook) -> None:
        self._steering = steering

    def _set_phase(self, phase: str) -> None:
        if self._steering._training:
            self._steering._set_phase(phase)

    def begin(self) -> None:
        self._set_phase("evaluation")

    def after_run(self, run_context: Any, run_values: Any) -> None:
        steering = self._steering
        if steering._training and steering.run.poll() and steering._skips_validation():
            run_context.request_stop()

    def end(self, session: Any) -> None:
        self._set_phase("train")


def _positive(name: str, value: int | None) -> int | None:
    return None if value is None else positive(name, value)


def _metrics(graph: Any, metrics: Mapping[str, Any] | None) -> dict[str, Any]:
    """What is reported of a step. An Estimator puts its loss behind those of the model_fn."""
    if metrics is None:
        losses = graph.get_collection(_keys.LOSSES)
        return {"loss": losses[-1]} if losses else {}
    names = {tag: t if hasattr(t, "graph") else _tensor_name(t) for tag, t in metrics.items()}
    return {tag: graph.as_graph_element(tensor) for tag, tensor in names.items()}


def _tensor_name(name: str) -> str:
    return name if ":" in name else f"{name}:0"
