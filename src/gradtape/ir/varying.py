"""Lowering for lengths that vary: programs that differ in lengths are to differ in numbers alone.

For exports, which are one program for all lengths, what is only faster for some lengths is left out. Symbolic kernels keep it, since each of
their programs is compared; they leave out what costs a kernel of its own and gains next to nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

__all__ = ["code_is_shared", "lengths_vary", "shared_code", "varying_lengths"]


class _State(threading.local):
    vary = False
    shared = False


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


def code_is_shared() -> bool:
    """Return whether this thread lowers a program whose machine code other lengths may use."""
    return _state.shared or _state.vary


@contextmanager
def shared_code() -> Iterator[None]:
    """Lower programs of symbolic kernels inside of this context."""
    before, _state.shared = _state.shared, True
    try:
        yield
    finally:
        _state.shared = before
