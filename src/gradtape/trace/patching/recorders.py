"""Recorders: while there is one, on any thread, hooked functions call their handlers."""

from __future__ import annotations

import atexit
import sys
import threading
from collections.abc import Callable
from typing import Final

from gradtape.locks import Rank, new_lock

RECORDERS: Final[set[int]] = set()
"""The ids of tapes, traces and accumulators that record. The native code of the hooks reads its size.

To enter and to leave are one operation of a set each: a finaliser, a signal or another thread may come before or after, not in between.
"""

COUNT: Final = id(RECORDERS) + object.__basicsize__ + 8
"""The address of the number of recorders, which CPython keeps in the set."""

_first: Final[list[Callable[[], None]]] = []


_last: Final[list[Callable[[], None]]] = []


def before_recording(work: Callable[[], None], *, last: bool = False) -> None:
    """Call a function once, before the first recording of this process; one with `last` is called again after later additions."""
    (_last if last else _first).append(work)


_after_growth: Final[list[Callable[[], bool]]] = []
_sizes = 0, 0


def after_growth(work: Callable[[], bool]) -> None:
    """Call a function before a recording, if modules were imported, or the main module has new names, since it has returned True."""
    _after_growth.append(work)


def enter(recorder: object) -> None:
    """Let hooked functions call their handlers until the recorder leaves."""
    global _sizes
    if _first and not _install_hooks():
        return
    sizes = len(sys.modules), len(sys.modules["__main__"].__dict__)
    if sizes != _sizes:
        are_complete = [work() for work in _after_growth]
        _sizes = sizes if all(are_complete) else (0, 0)
    RECORDERS.add(id(recorder))


def install_hooks() -> bool:
    """Install the hooks that are not installed yet, and return whether recording is possible."""
    return not _first or _install_hooks()


def leave(recorder: object) -> None:
    """Remove a recorder; to leave twice does no harm."""
    RECORDERS.discard(id(recorder))


_lock: Final = new_lock(Rank.PATCHES)


_is_shut_down = False


@atexit.register
def _shut_down() -> None:
    """End all recordings: while Python clears its modules, handlers cannot run, and finalisers still call NumPy."""
    global _is_shut_down
    _is_shut_down = True
    _first.append(_shut_down)
    RECORDERS.clear()


def _install_hooks() -> bool:
    """Install the hooks, on another thread, which Ctrl-C does not interrupt. Return whether recording is possible."""
    if _is_shut_down:
        return False

    def work() -> None:
        with _lock:
            done = 0
            while done < len(_first):
                _first[done]()
                done += 1
            for finish in _last:
                finish()
            del _first[:done]

    failed: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)

    if threading.current_thread() is not threading.main_thread():
        work()
        return True
    worker = threading.Thread(target=run, name="gradtape-hooks")
    try:
        worker.start()
    except RuntimeError:  # a system without threads, such as a browser
        work()
        return True
    worker.join()
    if failed:
        raise failed[0]
    return True
