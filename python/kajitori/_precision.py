# SPDX-License-Identifier: Apache-2.0
"""Learning rates as people write them, and as frameworks hold them: often in single precision."""

from __future__ import annotations

from typing import Any

import numpy as np

from kajitori._errors import OutOfRangeError


def shortest(value: Any) -> float:
    """The shortest decimal that is the same number in the precision of `value`, an array of one
    number: 0.001, where a float32 widened would be 0.0010000000474974513."""
    array = np.asarray(value)
    return float(str(array[()])) if array.dtype.kind == "f" else float(array)


def check_fits(value: float, dtype: Any) -> None:
    """`OutOfRangeError` for what would be infinite, or is no number, in the type `dtype`."""
    with np.errstate(over="ignore"):
        if not np.isfinite(np.asarray(value).astype(dtype)):
            raise OutOfRangeError(f"{value} is more than {dtype} can hold")
