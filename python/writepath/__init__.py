"""Writepath: the Linux write path, from a system call to the flash page.

    >>> import writepath as wp
    >>> run = wp.run(fs="ext4,era=3.4", workload="fsync-last,n=10,case=extend")
    >>> run.plot()

Every function is a verb of the command `writepath`, with the same words, defaults, results and
errors. Arguments that are left out (None) have the command's defaults. Times are virtual and in
nanoseconds (names end with ``_ns``), sizes in bytes (``_bytes``), sectors have 512 bytes.
"""

from __future__ import annotations

import sys as _sys

from writepath import _native

_native.is_library(_native.__file__, [_sys.executable, "-m", "writepath"])

from writepath.errors import (  # noqa: E402
    BugError,
    Error,
    HostIOError,
    Interrupted,
    NegativeAnswer,
    NotSameError,
    SimulatedError,
    UnsupportedError,
    UsageError,
)
from writepath.results import (  # noqa: E402
    Crash,
    Experiment,
    Explanation,
    Reproduction,
    Result,
    Run,
    load,
)
from writepath.sweeps import sweep  # noqa: E402
from writepath.units import Metrics  # noqa: E402
from writepath.verbs import (  # noqa: E402
    calibrate,
    crash,
    devices,
    diff,
    explain,
    file_systems,
    fsck,
    inspect,
    listing,
    replay,
    report,
    reproduce,
    run,
    workloads,
)

__version__ = _native.__version__

__all__ = [
    "BugError",
    "Crash",
    "Error",
    "Experiment",
    "Explanation",
    "HostIOError",
    "Interrupted",
    "Metrics",
    "NegativeAnswer",
    "NotSameError",
    "Reproduction",
    "Result",
    "Run",
    "SimulatedError",
    "UnsupportedError",
    "UsageError",
    "__version__",
    "calibrate",
    "crash",
    "devices",
    "diff",
    "explain",
    "file_systems",
    "fsck",
    "inspect",
    "listing",
    "load",
    "replay",
    "report",
    "reproduce",
    "run",
    "sweep",
    "workloads",
]
