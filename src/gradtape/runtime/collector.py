"""Compiling without Python's search for cycles: in a young process a look takes 5 ms, and compiling would cause several."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from gradtape.locks import renewed_in_child

__all__ = ["uncollected"]

_stopped_by: Final[list[int]] = []
"""The thread that has stopped the collector."""


@contextmanager
def uncollected() -> Iterator[None]:
    """Keep Python from looking for cycles inside.

    Examples
    --------
    >>> with uncollected():
    ...     inside = gc.isenabled()
    >>> inside, gc.isenabled()
    (False, True)
    """
    if not gc.isenabled():
        yield
        return
    thread = threading.get_ident()
    try:
        gc.disable()
        _stopped_by.append(thread)
        yield
    finally:
        gc.enable()
        _stopped_by.clear()


def _resume() -> None:
    """Let a forked process collect, where the thread that was to go on with it is left behind."""
    if _stopped_by and threading.get_ident() not in _stopped_by:
        _stopped_by.clear()
        gc.enable()


renewed_in_child(_resume)
