"""Who records: while there is anybody, on any thread, hooked functions ask their handlers."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable
from typing import Final

from gradtape.locks import held_at_fork

RECORDERS: Final[set[int]] = set()
"""The ids of tapes, traces and accumulators that record. The native code of the hooks reads its size.

To enter and to leave are one operation of a set each: a finaliser, a signal or another thread may come before or after, not in between.
"""

COUNT: Final = id(RECORDERS) + object.__basicsize__ + 8
"""The address of the number of recorders, which CPython keeps in the set."""

_first: Final[list[Callable[[], None]]] = []


_last: Final[list[Callable[[], None]]] = []


def before_recording(work: Callable[[], None], *, last: bool = False) -> None:
    """Do something once, before the first recording of this process; what comes last is done again whenever there was more to do."""
    (_last if last else _first).append(work)


def enter(recorder: object) -> None:
    """Let hooked functions ask their handlers, until the recorder leaves."""
    if _first and not _install_hooks():
        return
    RECORDERS.add(id(recorder))


def leave(recorder: object) -> None:
    """End what `enter` began; to leave twice does no harm."""
    RECORDERS.discard(id(recorder))


_lock: Final = threading.RLock()


_is_shut_down = False


@atexit.register
def _shut_down() -> None:
    """Let nobody record any more: while Python takes its modules down, handlers cannot run, and finalisers still call NumPy."""
    global _over
    _is_shut_down = True
    _first.append(_shut_down)
    RECORDERS.clear()


def _install_hooks() -> bool:
    """Install the hooks: on another thread, where Ctrl-C does not come. Return whether somebody may record."""
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
    worker.start()
    worker.join()
    if failed:
        raise failed[0]
    return True


held_at_fork(5, lambda: _lock)
