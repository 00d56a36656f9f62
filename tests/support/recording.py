"""Functions whose calls are recorded, how many Python functions run for that, and how often a traced one runs."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import gradtape as gt
from gradtape.kinds.registry import TRIALS, WRITERS
from gradtape.trace.array.array import Array
from gradtape.trace.jit.tracing import Tracer
from gradtape.trace.lazy.pending import live_arrays
from gradtape.trace.random import comparisons

FUNCTIONS = [key for key in TRIALS if not isinstance(key, tuple) and key not in WRITERS]


def calls_of(function, *args, clear=True):
    """Return how many Python functions run while `function` does, and nothing of other tests waits to be computed."""
    if clear:
        live_arrays.handles.clear()
        comparisons._recent.clear()  # what was drawn on tapes makes the first derivatives of each line look for decisions by chance
    count = 0

    def see(frame, event, argument):
        nonlocal count
        count += event == "call"

    sys.setprofile(see)
    try:
        function(*args)
    finally:
        sys.setprofile(None)
    return count - 1


class Runs(ctypes.c_long):
    """Counts the runs of a function, in memory of C: traces do not see it. A list to which it appended would be written to in each call."""

    def append(self, _: object) -> None:
        """Count a run."""
        self.value += 1

    def clear(self) -> None:
        """Start again."""
        self.value = 0

    def __len__(self) -> int:
        return self.value

    def __bool__(self) -> bool:
        return self.value > 0


def shown(result: Any) -> list[Any]:
    """Return the arrays in a result."""
    if isinstance(result, tuple | list):
        return [leaf for item in result for leaf in shown(item)]
    return [result.numpy()] if isinstance(result, Array) else []


def arrays_for(argument: Any) -> Any:
    if isinstance(argument, list):
        return [arrays_for(item) for item in argument]
    return gt.constant(argument) if isinstance(argument, np.ndarray) else argument


@contextmanager
def traces_of() -> Iterator[list[str]]:
    """Collect the names of the functions that are traced."""
    names: list[str] = []
    attempt = Tracer._attempt

    def counted(self: Any, request: Any) -> Any:
        names.append(self.name)
        return attempt(self, request)

    Tracer._attempt = counted  # type: ignore[method-assign]
    try:
        yield names
    finally:
        Tracer._attempt = attempt  # type: ignore[method-assign]
