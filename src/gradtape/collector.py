"""Pauses of Python's cycle collector, during imports, traces and compilations: it would traverse all new objects again and again."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from gradtape.locks import renewed_in_child

_depths: Final[dict[int, int]] = {}
"""How many pauses each thread is inside of, by its identifier."""


class _State:
    """Whether the collector is off because of pauses, and not because the user has disabled it."""

    __slots__ = ("paused",)

    def __init__(self) -> None:
        self.paused = False


_state: Final = _State()


@contextmanager
def collector_paused() -> Iterator[None]:
    """Disable the cycle collector until the last pause, of any thread, has ended.

    In a young process one collection takes 5 ms, and compiling would cause several; collections take half of the time of a long trace.

    Examples
    --------
    >>> with collector_paused():
    ...     with collector_paused():
    ...         pass
    ...     inside = gc.isenabled()
    >>> inside, gc.isenabled()
    (False, True)
    """
    thread = threading.get_ident()
    depth = _depths.get(thread, 0)
    try:
        _depths[thread] = depth + 1
        if gc.isenabled():
            _state.paused = True
            gc.disable()
        yield
    finally:
        # No call stands before the last one: Ctrl-C can come in between only after a call.
        if depth:
            _depths[thread] = depth
        elif thread in _depths:
            del _depths[thread]
        if not _depths and _state.paused:
            _state.paused = False
            gc.enable()


def _forget_other_threads() -> None:
    """End the pauses of threads that a forked process does not have."""
    thread = threading.get_ident()
    for other in _depths.keys() - {thread}:
        del _depths[other]
    if not _depths and _state.paused:
        _state.paused = False
        gc.enable()


renewed_in_child(_forget_other_threads)
