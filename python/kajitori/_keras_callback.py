# SPDX-License-Identifier: Apache-2.0
"""A callback for Keras 3 and for tf.keras 2.15.

It derives from neither package's `Callback`, so that importing it imports none of them: a list of
callbacks of either version asks for no type, only for the methods and attributes that are here. Which
version it is in, its model tells.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Mapping
from types import MappingProxyType, ModuleType
from typing import Any

from kajitori._errors import ArgumentError

PACKAGES = ("keras", "tf_keras")


def backend_of(model: Any) -> ModuleType:
    """The module that knows the version of Keras that a model's class is of: `_keras3` or
    `_tf_keras`."""
    for base in type(model).__mro__:
        package = base.__module__.partition(".")[0]
        if package not in PACKAGES:
            continue
        if int(sys.modules[package].__version__.split(".")[0]) >= 3:
            from kajitori import _keras3

            return _keras3
        from kajitori import _tf_keras

        return _tf_keras
    if hasattr(model, "module"):  # torch's DistributedDataParallel
        return backend_of(model.module)
    raise ArgumentError(
        f"{type(model).__module__}.{type(model).__qualname__} is no model of Keras 3 or tf.keras 2.15"
    )


def is_of_keras(callback: Any, name: str) -> bool:
    """Whether it is one of Keras' own callbacks of this name, or derived from it."""
    return any(
        base.__name__ == name and base.__module__.partition(".")[0] in PACKAGES
        for base in type(callback).__mro__
    )


def callbacks_beside(callback: Callback) -> list[Any]:
    """The list of callbacks that `callback` is called from, with itself in it, as the caller has it; an
    empty one when nobody calls. To be asked in a hook: neither version tells a callback of its list,
    but in both a method of the list calls the hook."""
    member: Any = callback
    found: list[Any] = []
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name.lstrip("_").startswith("on_"):
            owner = frame.f_locals.get("self")
            callbacks = getattr(owner, "callbacks", None)
            if isinstance(callbacks, list) and any(other is member for other in callbacks):
                member, found = owner, callbacks  # which may be in a list itself
        frame = frame.f_back
    return found


def after_all_others(callback: Callback, action: Callable[..., None], *args: Any) -> None:
    """In an on_train_begin or on_train_end: calls `action` when all other callbacks have had theirs.
    Every such action is called, also when one before it raises."""
    beside = callbacks_beside(callback)
    if not beside:
        action(*args)
        return
    if not isinstance(beside[-1], _Last):
        beside.append(_Last(beside))  # it is being gone through, and so comes to it
    beside[-1].actions.callback(action, *args)


class Callback:
    """What a list of callbacks asks of each. The hooks do nothing."""

    params: Mapping[str, Any] = MappingProxyType({})  # a loop of the user's own may set none
    _model: Any = None
    _chief_worker_only = None  # tf.keras: wanted on every worker
    _supports_tf_logs = True  # tf.keras: metrics may come as tensors, which nobody waits for

    @property
    def _backend(self) -> ModuleType:
        return backend_of(self._model)

    @property
    def model(self) -> Any:
        """The model of the newest `fit`, `evaluate` or `predict`."""
        return None if self._model is None else self._backend.model_of(self._model)

    def set_model(self, model: Any) -> None:
        self._model = model

    def set_params(self, params: dict[str, Any]) -> None:
        self.params = params or {}

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None: ...

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None: ...

    def on_batch_begin(self, batch: int, logs: Any = None) -> None: ...

    def on_batch_end(self, batch: int, logs: Any = None) -> None: ...

    def on_train_begin(self, logs: Any = None) -> None: ...

    def on_train_end(self, logs: Any = None) -> None: ...

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None: ...

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None: ...

    def on_test_begin(self, logs: Any = None) -> None: ...

    def on_test_end(self, logs: Any = None) -> None: ...

    def on_test_batch_begin(self, batch: int, logs: Any = None) -> None: ...

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None: ...

    def on_predict_begin(self, logs: Any = None) -> None: ...

    def on_predict_end(self, logs: Any = None) -> None: ...

    def on_predict_batch_begin(self, batch: int, logs: Any = None) -> None: ...

    def on_predict_batch_end(self, batch: int, logs: Any = None) -> None: ...

    # tf.keras calls the hooks of batches only where a callback of the list has some.

    def _implements_train_batch_hooks(self) -> bool:
        return type(self).on_train_batch_end is not Callback.on_train_batch_end

    def _implements_test_batch_hooks(self) -> bool:
        return type(self).on_test_batch_end is not Callback.on_test_batch_end

    def _implements_predict_batch_hooks(self) -> bool:
        return False


class _Last(Callback):
    """Behind all others, for one on_train_begin or on_train_end."""

    def __init__(self, beside: list[Any]) -> None:
        self._beside, self.actions = beside, contextlib.ExitStack()

    def on_train_begin(self, logs: Any = None) -> None:
        self._beside.remove(self)
        self.actions.close()

    on_train_end = on_train_begin


# Keras 3 runs hooks of batches in threads where all of the list are marked in this way as doing nothing.
for _hook in ("batch", "train_batch", "test_batch", "predict_batch"):
    getattr(Callback, f"on_{_hook}_end")._is_default = True
