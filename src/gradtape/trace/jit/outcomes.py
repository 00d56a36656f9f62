"""Outcomes that Python code looks at: ``try: np.linalg.cholesky(a)`` with a handler for the error.

Results are pending, and a matrix that cannot be factored would be found out when somebody looks at the numbers, outside of the handler. So
where the code is prepared for an error the result is computed at once. A trace is made of one outcome: with a program that was traced
where nothing failed, an error is a guard that missed, and the call runs as Python has it.
"""

from __future__ import annotations

from types import FrameType
from typing import Any, Final

import numpy as np

from gradtape.errors import LIBRARIES
from gradtape.trace.array.handle import Handle
from gradtape.trace.jit.guards import abstract_of, trace_of
from gradtape.trace.lazy.force import force
from gradtape.trace.patching.bytecode import handles_error
from gradtape.trace.source.sites import PACKAGE

MAY_FAIL: Final = frozenset(
    {
        np.linalg.cholesky,
        np.linalg.eigh,
        np.linalg.eigvalsh,
        np.linalg.inv,
        np.linalg.lstsq,
        np.linalg.matrix_power,
        np.linalg.pinv,
        np.linalg.solve,
        np.linalg.svd,
        np.linalg.svdvals,
        np.linalg.tensorinv,
        np.linalg.tensorsolve,
    }
)
"""Functions that raise LinAlgError for some matrices of the right shape."""


class OutcomeFailed(BaseException):
    """Ends a trace in which an operation failed that the code is prepared for."""


def is_handled(frame: FrameType) -> bool:
    """Return whether the user's code, which calls from this frame, is prepared for an error, up to the function that gradtape runs."""
    if frame.f_code is call_now.__code__:
        return False
    current: FrameType | None = frame
    users = False
    while current is not None:
        package = str(current.f_globals.get("__name__", "")).partition(".")[0]
        if package not in LIBRARIES:
            users = True
            if handles_error(current):
                return True
        elif users and package == PACKAGE:
            return False
        current = current.f_back
    return False


def call_now(array: Any, function: Any, types: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Return what a function returns for arrays, computed; raise the error that NumPy raises."""
    return compute_now(array.__array_function__(function, types, args, kwargs))


def compute_now(made: Any) -> Any:
    """Compute what was made where the code is prepared for an error; a trace is told how it went."""
    values = [
        item.value for item in (made if isinstance(made, tuple) else (made,)) if isinstance(item, Handle)
    ]
    traces = [trace for value in values if (trace := trace_of(value)) is not None]
    if any(abstract_of(value) is not None for value in values):
        return made
    try:
        force(values)
    except np.linalg.LinAlgError:
        for trace in traces:
            trace.outcome = False
        raise
    for trace in traces:
        if trace.outcome is None:
            trace.outcome = True
    return made
