"""Calls of random number generators that are gradtape's own, or that a generator makes of its own methods: the hooks let them pass."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final


class _Own(threading.local):
    """Whether the calls of this thread are such calls now."""

    active = False


_own: Final = _Own()


@contextmanager
def own_calls() -> Iterator[None]:
    """Let calls of generators pass unobserved."""
    before = _own.active
    _own.active = True
    try:
        yield
    finally:
        _own.active = before


def is_own_call() -> bool:
    """Return whether calls pass unobserved now."""
    return _own.active
