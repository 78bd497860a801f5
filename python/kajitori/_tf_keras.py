# SPDX-License-Identifier: Apache-2.0
"""What differs between versions of Keras: here, tf.keras 2.15. `_keras3` has the same functions."""

from __future__ import annotations

from typing import Any

from kajitori._errors import UnsupportedError


def model_of(model: Any) -> Any:
    return model


def describe() -> str:
    raise UnsupportedError("SteeringCallback does not know tf.keras 2.15 yet")
