"""Watches of traces: a loop of Python that goes on for long ends a trace, so that the function is translated instead."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from types import CodeType, FrameType
from typing import Any, Final

import numpy as np

from gradtape.config import config
from gradtape.ir.graph import next_serial
from gradtape.trace.array.handle import Handle
from gradtape.trace.patching.bytecode import is_in_loop
from gradtape.trace.source.sites import CLOCK, is_program_file, site_of
from gradtape.transforms.reroll.recording import nodes_since
from gradtape.transforms.reroll.roll import rolled

LONG: Final = 4096
"""Operations of a trace from which a loop of Python is taken for a long one. To trace them takes about 50 milliseconds."""

LARGE: Final = 1 << 15
"""Elements of arrays whose loops are traced for longer, if what is recorded becomes a loop of the graph. Reversed (300 explicit steps of a
diffusion), that takes a third of the time of a procedure for 10^6 elements, half of it for 2 * 10^5, and as long for 2 * 10^4."""

AS_LONG: Final = 1 << 13
"""Elements on which an operation takes as long as its trace, 10 us."""

LONGEST: Final = 16
"""Times `LONG` that such a loop is traced at most: for about a second, in a first call that computes for longer."""

STORED: Final = 64
"""Operations as which an element counts that a loop of Python stores: what is traced copies the array, or has to prove that it need not."""

BRANCHES: Final = 16
"""Times that a loop of Python takes a branch from which on the order may be irregular."""

CHANGES: Final = 8
"""Times that a branch goes the other way than before, from which on the order is irregular. A loop that has converged has one."""

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
    """The clock during a watch: each recorded operation reads it. Without a watch it is a plain object, and costs nothing."""

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
    stores = 0
    is_marked = False
    base: CodeType | None = None
    consent: Callable[[], bool] | None = None


_state: Final = _State()
_watches: Final[set[int]] = set()


@contextmanager
def watched(base: CodeType, consent: Callable[[], bool] | None = None) -> Iterator[None]:
    """Raise `TranslationWanted` if the code inside records many operations in a loop of the user's.

    Parameters
    ----------
    base : code
        The code of the function that has called this: loops around it do not count.
    consent : callable, optional
        Asked before; if it returns False, the loop goes on to its end.
    """
    before = _state.first, _state.limit, _state.base, _state.consent, _state.stores, _state.is_marked
    key = id(before)
    _state.first, _state.limit, _state.reads, _state.stores = next_serial(), LONG, 0, 0
    _state.base, _state.consent, _state.is_marked = base, consent, False
    _watches.add(key)
    CLOCK.__class__ = _Watched
    try:
        yield
    finally:
        _state.first, _state.limit, _state.base, _state.consent, _state.stores, _state.is_marked = before
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
    count, stores = next_serial() - _state.first, _state.stores
    effort = count + STORED * stores
    if effort < _state.limit // 2:
        return
    if not _state.is_marked:
        _state.is_marked = True
        _mark_loops()
    if effort < _state.limit:
        return
    loop = _loop_around(_is_marked)
    if loop is None:
        _state.limit, _state.is_marked = 2 * effort, False
        return
    recorded = f"{count} operations" + (f" and stored {stores} elements" if stores else "")
    if _state.limit == LONG and not stores and (times := _times_as_long(loop)) > 1:
        _state.limit, _state.is_marked = times * LONG, False
        return
    _end(f"the loop at {site_of(loop)!r} had recorded {recorded}, and went on", loop)


def _times_as_long(loop: FrameType) -> int:
    """Return how many times `LONG` a loop may record: several if it computes large arrays and becomes a loop of the graph."""
    # The current value of the variable: reading a view whose base has changed records a read, or raises an error.
    values = [local._current for local in loop.f_locals.values() if isinstance(local, Handle)]
    computed = [value for value in values if value.node is not None and value.node.serial >= _state.first]
    size = max([value.size for value in computed], default=0)
    if size < LARGE or not config.reroll:
        return 1
    nodes = nodes_since(computed, (), _state.first)
    found = rolled(nodes, computed)
    return min(size // AS_LONG, LONGEST) if found is not None and len(found.nodes) < len(nodes) // 4 else 1


def watch_store(key: Any, rank: int) -> None:
    """Count the store of an element of an array, ``x[i, j] = v``, in a watched trace.

    Parameters
    ----------
    key : object
        The index.
    rank : int
        The number of axes of the array.
    """
    if not _watches or not rank:
        return
    if type(key) is tuple:
        is_element = len(key) == rank and all(map(is_index, key))
    else:
        is_element = rank == 1 and is_index(key)
    if is_element:
        _state.stores += 1


def is_index(key: Any) -> bool:
    """Return whether an index is that of one row."""
    return issubclass(type(key), int | np.integer)


def _end(reason: str, loop: FrameType) -> None:
    """End the trace, unless who watches does not consent: then it is watched no more."""
    _state.limit = 0
    if _state.consent is None or _state.consent():
        raise TranslationWanted(reason, loop)


def watch_branch(found: Sequence[bool], site: Any) -> None:
    """End a watched trace whose loop takes a branch in an irregular order.

    What is recorded would have as many branches as the loop has iterations, and serve no call in which one of them is taken otherwise.

    Parameters
    ----------
    found : sequence of bool
        What Python has found so far at one site.
    site : Site or None
    """
    if not _state.limit or len(found) < BRANCHES:
        return
    if sum(one != other for one, other in pairwise(found)) < CHANGES:
        return
    loop = _loop_around()
    if loop is not None:
        _end(f"the branch at {site!r} goes both ways, in no order", loop)


def _loops_around() -> Iterator[FrameType]:
    """Yield the frames of user code inside the watch that execute loops, the innermost first."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code is not _state.base:
        if is_program_file(frame.f_code.co_filename) and is_in_loop(frame):
            yield frame
        frame = frame.f_back


def _loop_around(has_run_long: Callable[[FrameType], bool] = lambda _: True) -> FrameType | None:
    """Return the innermost frame of user code inside the watch that executes a loop, of those that have run for long."""
    return next(filter(has_run_long, _loops_around()), None)


def _mark_loops() -> None:
    """Mark the loops that run now: those that run when twice as many operations are recorded are the long ones.

    A short loop in a function that a long loop calls is not to blame. A frame takes no weak references, and a strong one would keep
    its arrays alive; its trace function, which is not called while there is no debugger, goes when it goes.
    """
    if sys.gettrace() is None:
        for frame in _loops_around():
            frame.f_trace = _mark


def _mark(frame: FrameType, event: str, argument: Any) -> None:
    """Do nothing, where a debugger begins in between."""


def _is_marked(frame: FrameType) -> bool:
    return frame.f_trace is _mark or sys.gettrace() is not None
