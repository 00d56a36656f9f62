"""Lowering for lengths that vary: programs that differ in lengths are to differ in numbers alone.

For exports, which are one program for all lengths, what is only faster for some lengths is left out. Symbolic kernels keep it, since each
of their programs is compared; they leave out what costs a kernel of its own and gains next to nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

__all__ = ["code_is_shared", "is_varying", "lengths_vary", "shared_code", "varying_lengths"]


NEAR: Final = 2
"""Differences, stencils and ends make extents that are so far from a length."""


class _State(threading.local):
    vary = False
    shared = False
    extents: frozenset[int] = frozenset()


_state: Final = _State()


def lengths_vary() -> bool:
    """Return whether this thread lowers a program for lengths that vary."""
    return _state.vary


@contextmanager
def varying_lengths() -> Iterator[None]:
    """Lower programs for lengths that vary inside this context."""
    before, _state.vary = _state.vary, True
    try:
        yield
    finally:
        _state.vary = before


def code_is_shared() -> bool:
    """Return whether this thread lowers a program whose machine code other lengths may use."""
    return _state.shared or _state.vary


def is_varying(extent: int) -> bool:
    """Return whether an extent is a length that varies, or near one: whether code for this number alone would be used by few programs."""
    return extent in _state.extents


@contextmanager
def shared_code(varying: Iterable[int] = (), fixed: Iterable[int] = ()) -> Iterator[None]:
    """Lower programs of symbolic kernels inside this context.

    Parameters
    ----------
    varying, fixed : iterable of int
        The lengths of the arguments that differ from those of other programs, and the others.
    """
    before = _state.shared, _state.extents
    near = {length + step for length in varying for step in range(-NEAR, NEAR + 1)}
    _state.shared, _state.extents = True, frozenset(near.difference(fixed))
    try:
        yield
    finally:
        _state.shared, _state.extents = before
