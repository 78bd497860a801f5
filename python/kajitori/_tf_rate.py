# SPDX-License-Identifier: Apache-2.0
"""The learning rate of a TensorFlow graph: where the optimizers get it from, and how it is changed in
a graph that is finished.

Each operation that applies gradients says which of its inputs is the rate. Followed back through
copies it is a variable, which can be assigned, or any other tensor (a constant, a decay), which can
be fed in each `Session.run`: TensorFlow then leaves out what would have computed it. To look at it must
change nothing, so a constant is read from the graph, and a tensor is run only if nothing else comes along.
"""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf

from kajitori._errors import OutOfRangeError, UnsupportedError

_v1 = tf.compat.v1

_COPIES = {"Identity", "Cast", "Enter", "ReadVariableOp"}
_VARIABLES = {"VarHandleOp", "VariableV2", "Variable"}
_READS = {*_VARIABLES, "ReadVariableOp", "Assert"}  # stateful, and change nothing
_INPUTS = {"lr", "alpha"}  # what the operations call the rate
_NAMES = {"learning_rate", "lr"}  # what optimizers call it that have operations of another kind


def learning_rate(value: float, name: str = "learning_rate") -> Any:
    """A learning rate for an optimizer of `tf.compat.v1.train`, as a variable of the graph: what `set
    lr` gives it is in the checkpoints, so that a training that goes on from one goes on with it."""
    return _v1.get_variable(
        name, initializer=tf.constant(value, tf.float32), trainable=False, use_resource=True
    )


def _origin(tensor: Any) -> Any:
    """The tensor of which `tensor` is a copy; of a variable, its handle."""
    while tensor.op.type in _COPIES:
        tensor = tensor.op.inputs[0]
    return tensor


def _applied(operation: Any) -> Any:
    """The rate by which this operation applies gradients, or None."""
    if "Apply" not in operation.type or operation.op_def is None:
        return None
    for argument, tensor in zip(operation.op_def.input_arg, operation.inputs, strict=False):
        if argument.name in _INPUTS:
            return _origin(tensor)
    return None


def _origins(graph: Any) -> dict[str, Any]:
    """Of all rates in the graph, by name."""
    operations = graph.get_operations()
    found = [_applied(operation) for operation in operations]
    if not any(tensor is not None for tensor in found):
        found = [
            operation.outputs[0]
            for operation in operations
            if operation.name.split("/")[-1] in _NAMES and operation.type in {"Const", *_VARIABLES}
        ]
    return {tensor.op.name: tensor for tensor in found if tensor is not None}


class Rate:
    """The learning rate of `graph`; `find` makes one."""

    def __init__(self, graph: Any, origin: Any) -> None:
        self._origin = origin
        self._variable = next(
            (var for var in graph.get_collection("variables") if _handle(var) is origin.op), None
        )
        is_constant = origin.op.type == "Const"  # tf.get_static_value would forbid to feed it
        self._constant = tf.make_ndarray(origin.op.get_attr("value")) if is_constant else None
        self._is_pure = self._variable is not None or _is_pure(origin.op)
        self.fed: Any = None

    @property
    def feed(self) -> dict[Any, Any] | None:
        """What each run of the training is to be fed with."""
        return None if self.fed is None else {self._origin: self.fed}

    def get(self, session: Any) -> float:
        """As the next step has it, in the fewest digits that are this number in its precision; NaN
        when only a step can tell."""
        if self.fed is not None:
            value = self._origin.dtype.as_numpy_dtype(self.fed)
        elif self._constant is not None:
            value = self._constant[()]
        elif self._is_pure:
            value = session.run(self._origin if self._variable is None else self._variable)
        else:
            return math.nan
        return float(str(value))

    def set(self, session: Any, value: float) -> None:
        variable = self._variable
        dtype = (self._origin if variable is None else variable).dtype.base_dtype
        if not math.isfinite(value) or abs(value) > dtype.max:
            raise OutOfRangeError(f"{value} is more than {dtype.name} can hold")
        if variable is not None:
            session.run(variable.initializer, {variable.initializer.inputs[1]: value})
        elif self._origin.graph.is_feedable(self._origin):
            self.fed = value
        else:
            raise UnsupportedError(
                f"{self._origin.name} cannot be fed; give the optimizer a "
                "kajitori.tensorflow.learning_rate(...)"
            )


def _is_pure(operation: Any) -> bool:
    """Whether it can be run for itself. What is built under `control_dependencies` takes these along:
    updates of batch normalization, which take a batch of the input."""
    seen, left = set(), [operation]
    while left:
        found = left.pop()
        if found.name in seen:
            continue
        if found.op_def is not None and found.op_def.is_stateful and found.type not in _READS:
            return False
        seen.add(found.name)
        left += [tensor.op for tensor in found.inputs]
        left += found.control_inputs
    return True


def _handle(variable: Any) -> Any:
    """The operation that a variable of either kind is read from."""
    return getattr(variable, "handle", variable).op


def find(graph: Any) -> Rate | None:
    """The one learning rate of a graph; None when there is none. `UnsupportedError`: more than one."""
    origins = _origins(graph)
    if len(origins) > 1:
        raise UnsupportedError(
            f"this training has {len(origins)} learning rates ({', '.join(sorted(origins))}); give "
            'SteeringHook parameters={"lr": (get, set)} for the one that is meant'
        )
    return next((Rate(graph, origin) for origin in origins.values()), None)
