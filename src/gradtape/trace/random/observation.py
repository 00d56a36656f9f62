"""Calls of random number generators that are gradtape's own, or that a generator makes of its own methods: the hooks let them pass."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final


class _Own(threading.local):
    """Whether the calls of this thread are such calls now, and the record that is written or read."""

    active = False
    record: Record | None = None


class Record:
    """What generators have drawn in a call of a function that is called again for its derivatives."""

    __slots__ = ("_next", "_writes", "results")

    def __init__(self) -> None:
        self.results: list[Any] = []
        self._next = 0
        self._writes = True

    @contextmanager
    def written(self) -> Iterator[None]:
        """Record what is drawn in the block."""
        with self._active(True):
            yield

    @contextmanager
    def read(self) -> Iterator[None]:
        """Return the same numbers again in the block."""
        with self._active(False):
            yield

    @contextmanager
    def _active(self, writes: bool) -> Iterator[None]:
        before = OWN.record
        self._writes, self._next = writes, 0
        OWN.record = self
        try:
            yield
        finally:
            OWN.record = before

    def drawn(self, draw: Callable[[], Any]) -> Any:
        """Return what a call draws, or has drawn."""
        if self._writes:
            self.results.append(draw())
            return self.results[-1]
        self._next += 1
        return self.results[self._next - 1] if self._next <= len(self.results) else draw()


def record_around() -> Record | None:
    """Return the record of the innermost such function around."""
    return OWN.record


OWN: Final = _Own()
"""Set by `own_calls`, and directly where a context manager would cost."""


@contextmanager
def own_calls() -> Iterator[None]:
    """Let calls of generators pass unobserved."""
    before = OWN.active
    OWN.active = True
    try:
        yield
    finally:
        OWN.active = before


def is_own_call() -> bool:
    """Return whether calls pass unobserved now."""
    return OWN.active
