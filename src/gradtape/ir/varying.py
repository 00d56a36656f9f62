"""Lowering for lengths that vary: what is only faster for some lengths is left out, so that programs differ in numbers alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

__all__ = ["lengths_vary", "varying_lengths"]


class _State(threading.local):
    vary = False


_state: Final = _State()


def lengths_vary() -> bool:
    """Return whether this thread lowers a program for lengths that vary."""
    return _state.vary


@contextmanager
def varying_lengths() -> Iterator[None]:
    """Lower programs for lengths that vary inside of this context."""
    before, _state.vary = _state.vary, True
    try:
        yield
    finally:
        _state.vary = before
