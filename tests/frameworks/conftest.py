# SPDX-License-Identifier: Apache-2.0
"""Each test has its own folders for doors and journals, and finds what tests/python shares
(`training`, and `fits` for Keras 3)."""

import pathlib
import sys

from isolation import isolated_places

__all__ = ["isolated_places"]

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "python"))
