"""Watches of traces: a loop of Python that goes on for long ends a trace, so that the function is translated instead."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

from gradtape.ir.graph import next_serial
from gradtape.trace.patching.bytecode import is_in_loop
from gradtape.trace.source.sites import CLOCK, is_user_file, site_of

LONG: Final = 4096
"""Operations of a trace from which a loop of Python is taken for a long one. To trace them takes about 50 milliseconds."""

OFTEN: Final = 256
"""Recorded sites between two looks at the number of operations."""


class TranslationWanted(BaseException):
    """Raised to end a trace that goes on for long; no handler of the user's catches it.

    Parameters
    ----------
    reason : str
        Why the function is to be translated.
    frame : frame
        The frame that executes the loop.
    """

    def __init__(self, reason: str, frame: FrameType) -> None:
        super().__init__(reason)
        self.reason = reason
        self.frame = frame


class _Watched(type(CLOCK)):  # type: ignore[misc]
    """The clock during a watch: each recorded operation reads it. When nobody watches it is a plain object, and costs nothing."""

    __slots__ = ()

    @property
    def ticks(self) -> int:
        _look()
        return _TICKS.__get__(self)  # type: ignore[no-any-return]

    @ticks.setter
    def ticks(self, ticks: int) -> None:
        _TICKS.__set__(self, ticks)


_PLAIN: Final = type(CLOCK)
_TICKS: Final[Any] = vars(_PLAIN)["ticks"]


class _State(threading.local):
    """The watch of this thread."""

    first = 0
    limit = 0
    reads = 0


_state: Final = _State()
_watches: Final[set[int]] = set()


@contextmanager
def watched() -> Iterator[None]:
    """Raise `TranslationWanted` if the code inside records many operations in a loop of the user's."""
    before = _state.first, _state.limit
    key = id(before)
    _state.first, _state.limit, _state.reads = next_serial(), LONG, 0
    _watches.add(key)
    CLOCK.__class__ = _Watched
    try:
        yield
    finally:
        _state.first, _state.limit = before
        _watches.discard(key)
        if not _watches:
            CLOCK.__class__ = _PLAIN


def _look() -> None:
    """Count a recorded operation."""
    if not _state.limit:
        return
    _state.reads += 1
    if _state.reads < OFTEN:
        return
    _state.reads = 0
    count = next_serial() - _state.first
    if count < _state.limit:
        return
    loop = _loop_around()
    if loop is None:
        _state.limit = 2 * count
        return
    _state.limit = 0
    raise TranslationWanted(
        f"the loop at {site_of(loop)!r} had recorded {count} operations, and went on", loop
    )


def _loop_around() -> FrameType | None:
    """Return the innermost frame of user code that executes a loop."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        if is_user_file(frame.f_code.co_filename) and is_in_loop(frame):
            return frame
        frame = frame.f_back
    return None
