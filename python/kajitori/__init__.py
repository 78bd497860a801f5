# SPDX-License-Identifier: Apache-2.0
"""kajitori: steer, stop and prune training runs while they run.

``Run`` makes a training steerable, ``runs`` and ``connect`` reach one from outside. Adapters for
frameworks are in ``kajitori.keras``, ``kajitori.tensorflow``, ``kajitori.torch``,
``kajitori.lightning``, ``kajitori.transformers``, ``kajitori.xgboost`` and ``kajitori.lightgbm``.
Importing this package imports no framework.
"""

from kajitori._client import Client, RunInfo, connect, journal, runs
from kajitori._columns import Columns
from kajitori._errors import (
    Aborted,
    AmbiguousRunError,
    ArgumentError,
    ChannelWarning,
    DataError,
    Error,
    EventWarning,
    ExistsError,
    FailedError,
    Left,
    NoSuchRunError,
    NotFoundError,
    OutOfRangeError,
    ProtocolError,
    RejectedError,
    RunEndedError,
    StateError,
    UnsupportedError,
    WaitTimeoutError,
)
from kajitori._event_info import Damage, EventStats, FileInfo, TagInfo
from kajitori._event_writer import EventWriter
from kajitori._events import EventReader, read_events
from kajitori._ffi import ffi as _ffi
from kajitori._ffi import lib as _lib
from kajitori._pruning import TrialPruned
from kajitori._run import Run
from kajitori._values import Arg, Param

__version__: str = _ffi.string(_lib.kj_version()).decode()

__all__ = [
    "Aborted",
    "AmbiguousRunError",
    "Arg",
    "ArgumentError",
    "ChannelWarning",
    "Client",
    "Columns",
    "Damage",
    "DataError",
    "Error",
    "EventReader",
    "EventStats",
    "EventWarning",
    "EventWriter",
    "ExistsError",
    "FailedError",
    "FileInfo",
    "Left",
    "NoSuchRunError",
    "NotFoundError",
    "OutOfRangeError",
    "Param",
    "ProtocolError",
    "RejectedError",
    "Run",
    "RunEndedError",
    "RunInfo",
    "StateError",
    "TagInfo",
    "TrialPruned",
    "UnsupportedError",
    "WaitTimeoutError",
    "__version__",
    "connect",
    "journal",
    "read_events",
    "runs",
]
