"""Compilation in the background: threads compile kernels while the NumPy interpreter answers calls.

The threads end when there is nothing left to compile, and are no daemons: the process waits at its end for the module that LLVM is working
on, and leaves the others.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Generic, TypeVar

from gradtape.config import before_change
from gradtape.locks import Rank, new_lock, renewed_in_child
from gradtape.runtime.compile.engine import Abandoned, abandon_when

__all__ = ["PATIENCE", "Compilation", "compiled_by_a_thread", "finish_all"]

T = TypeVar("T")

PATIENCE: Final = 0.2
"""Seconds that a call waits for its kernel before the interpreter answers it."""

MOST_THREADS: Final = 8

_lock: Final = new_lock(Rank.LEAF)
_queue: Final[list[Compilation[Any]]] = []
_unfinished: Final[dict[str, Compilation[Any]]] = {}
_threads: Final[list[threading.Thread]] = []


class Compilation(Generic[T]):
    """A kernel in the making: it is compiled by a thread, or else by the first that cannot go on without it.

    Parameters
    ----------
    key : str
        What it is kept under.
    build : callable
        Compiles it.
    """

    __slots__ = ("_begin", "_build", "_error", "_over", "_result", "key")

    def __init__(self, key: str, build: Callable[[], T]) -> None:
        self.key = key
        self._build = build
        self._begin = time.perf_counter()
        self._over = threading.Event()
        self._result: list[T] = []
        self._error: BaseException | None = None

    @property
    def is_over(self) -> bool:
        """Whether there is a result, or an error."""
        return bool(self._result) or self._error is not None

    @property
    def seconds(self) -> float:
        """How long ago it was requested."""
        return time.perf_counter() - self._begin

    def wait(self, seconds: float) -> bool:
        """Wait for the end, and return whether it has come."""
        if not self.is_over:
            _start_thread()  # of which a forked process has none
            self._over.wait(seconds)
        return self.is_over

    def result(self) -> T:
        """Return the result, once it is there; raise the error with which the thread has ended."""
        while not self.is_over:
            with _lock:
                is_waiting = self in _queue
                if is_waiting:
                    _queue.remove(self)
            if is_waiting:
                self.run()
            else:
                self._over.wait()
        if self._error is not None:
            raise self._error
        return self._result[0]

    def run(self) -> None:
        """Compile in this thread; where that is interrupted or abandoned, the next one that needs the result begins anew."""
        try:
            self._result.append(self._build())
        except Exception as error:
            self._error = error
        except BaseException:
            over, self._over = self._over, threading.Event()
            with _lock:
                _queue.insert(0, self)
            over.set()
            raise
        with _lock:
            _unfinished.pop(self.key, None)
        self._over.set()

    def begin_anew(self) -> None:
        """Forget the thread, which a forked process does not have."""
        self._over = threading.Event()


def compiled_by_a_thread(key: str, build: Callable[[], T]) -> Compilation[T]:
    """Return the compilation of a kernel; one of the threads does it soon."""
    with _lock:
        found = _unfinished.get(key)
        if found is None:
            found = _unfinished[key] = Compilation(key, build)
            _queue.append(found)
    _start_thread()
    return found


def finish_all() -> None:
    """Wait until everything is compiled."""
    while _unfinished:
        for compilation in list(_unfinished.values()):
            with suppress(Exception):  # who wants the result gets the error
                compilation.result()


def _start_thread() -> None:
    """Start one more thread, if anything waits and there are fewer than processors."""
    with _lock:
        if _queue and len(_threads) < min(os.cpu_count() or 1, MOST_THREADS) and not _is_ending():
            thread = threading.Thread(target=_work, name="gradtape-background")
            try:
                thread.start()
            except RuntimeError:  # there can be no more threads: who needs a result compiles
                return
            _threads.append(thread)


def _work() -> None:
    abandon_when(_is_ending)
    try:
        while (compilation := _next()) is not None:
            compilation.run()
    except Abandoned:
        pass


def _next() -> Compilation[Any] | None:
    """Return what this thread compiles next; None where it ends."""
    with _lock:
        if _queue and not _is_ending():
            return _queue.pop(0)
        thread = threading.current_thread()
        if thread in _threads:
            _threads.remove(thread)
        return None


def _is_ending() -> bool:
    """Return whether the interpreter is about to end."""
    return not threading.main_thread().is_alive()


def _go_on_in_child() -> None:
    """Let what other threads were compiling wait, in a forked process that does not have them."""
    _threads.clear()
    _queue[:] = _unfinished.values()
    for compilation in _queue:
        compilation.begin_anew()


renewed_in_child(_go_on_in_child)
for _setting in ("precise_math", "compiler"):
    before_change(_setting, finish_all)  # which the compiler reads on its way
