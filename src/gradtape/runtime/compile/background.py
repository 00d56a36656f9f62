"""Compilation in the background: threads compile kernels while the NumPy interpreter answers calls.

A kernel that may never pay is requested late: a program that is called once need not be compiled, and one that is called a thousand times
should not lose much. So the interpreter first takes a part of the time that compiling is expected to take, and from the request on the same
part of the time that passes; calls wait where it has had more.

The threads end when there is nothing left to compile, and are no daemons: the process waits at its end for the module that LLVM is working
on, and leaves the others.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import ContextDecorator, suppress
from typing import Any, Final, Generic, NamedTuple, TypeVar
from weakref import WeakValueDictionary

from gradtape.config import before_change, config
from gradtape.locks import Rank, new_lock, renewed_in_child
from gradtape.lru import LRU
from gradtape.runtime.compile.engine import Abandoned, abandon_when

__all__ = [
    "PATIENCE",
    "Compilation",
    "Patience",
    "Share",
    "compilation_of",
    "finish_all",
    "patient",
    "share_of_interpreter",
    "solving",
]

T = TypeVar("T")

PATIENCE: Final = 0.2
"""Seconds that a call waits for its kernel at most, while the interpreter could answer it."""

SLICE: Final = 0.02
"""Seconds that the interpreter may be ahead of its share before a call waits: the shorter, the more often threads take turns."""

SHARE: Final = 0.1
"""The part of the time for compiling that the interpreter may take before, and meanwhile, when the threads need Python as well."""

PATIENT_SHARE: Final = 2.0
"""The same for programs of autograd's names, which are small: compiling takes up to 2 ms for each node there."""

SOLVER_SHARE: Final = 0.5
"""The same for the functions of a solver: a solution is interpreted, and the functions of the next ones are compiled."""

SECONDS_PER_NODE: Final = 5e-4
"""What it takes to compile a graph, for each of its nodes."""

MOST_THREADS: Final = 8


class Share(NamedTuple):
    """What the interpreter may take.

    Attributes
    ----------
    part : float
        The part of the time for compiling; 0 where calls wait for their kernels.
    is_counted : bool
        Whether nodes are counted, and a call compiles; else time is measured, and threads compile.
    """

    part: float
    is_counted: bool


class _Thread(threading.local):
    """The patience of the blocks in force on a thread, the innermost one last."""

    def __init__(self) -> None:
        self.parts: list[float] = []


_thread: Final = _Thread()


class Patience(ContextDecorator):
    """Lets the interpreter take a part of the time for compiling, for programs that are made in a block; it can be entered again.

    Parameters
    ----------
    part : float
        The part.
    """

    def __init__(self, part: float) -> None:
        self.part = part

    def __enter__(self) -> None:
        _thread.parts.append(self.part)

    def __exit__(self, *_: object) -> None:
        _thread.parts.pop()


patient: Final = Patience(PATIENT_SHARE)
solving: Final = Patience(SOLVER_SHARE)


def share_of_interpreter() -> Share:
    """Return what the interpreter may take for a program that is made now."""
    if _thread.parts:
        return Share(_thread.parts[-1], config.compile != "background")
    return Share(SHARE if config.compile == "background" else 0.0, False)


_lock: Final = new_lock(Rank.LEAF)


class _Account:
    """Seconds that the interpreter has taken for calls of the programs of a kernel, also of those that are gone."""

    __slots__ = ("seconds",)

    def __init__(self) -> None:
        self.seconds = 0.0


_accounts: Final[LRU[str, _Account]] = LRU(lambda: config.memory_cache)
_queue: Final[list[Compilation[Any]]] = []
_unfinished: Final[WeakValueDictionary[str, Compilation[Any]]] = WeakValueDictionary()
_threads: Final[list[threading.Thread]] = []


class Compilation(Generic[T]):
    """A kernel in the making: it is compiled by a thread, or else by the first that cannot go on without it.

    Parameters
    ----------
    key : str
        What it is kept under.
    build : callable
        Compiles it.
    expected : float
        Seconds that this is expected to take.
    share : float
        The part of them that the interpreter may take.
    may_stop : bool
        Whether the interpreter may be stopped, and what it has computed be computed again.
    per_step : float
        Seconds that the interpreter is expected to take for a node, where a call compiles and no thread: nodes are counted and no time is
        measured, so that each run of a script with the same kernels on the disk computes the same digits.
    """

    __slots__ = (
        "__weakref__",
        "_account",
        "_begin",
        "_build",
        "_error",
        "_expected",
        "_over",
        "_result",
        "_share",
        "key",
        "may_stop",
        "per_step",
    )

    def __init__(
        self,
        key: str,
        build: Callable[[], T],
        expected: float = 0.0,
        share: float = SHARE,
        may_stop: bool = True,
        per_step: float = 0.0,
    ) -> None:
        self.key = key
        self.per_step = per_step
        self.may_stop = may_stop
        self._share = share
        self._build = build
        self._expected = expected
        self._account = _accounts.get(key) or _Account()
        _accounts[key] = self._account
        self._begin: float | None = None
        self._over = threading.Event()
        self._result: list[T] = []
        self._error: BaseException | None = None

    @property
    def is_over(self) -> bool:
        """Whether there is a result, or an error."""
        return bool(self._result) or self._error is not None

    @property
    def is_requested(self) -> bool:
        """Whether it is to be compiled whatever comes."""
        return self._begin is not None

    @property
    def seconds(self) -> float:
        """How long ago it was requested."""
        return 0.0 if self._begin is None else time.perf_counter() - self._begin

    def request(self) -> None:
        """Let one of the threads compile it soon."""
        with _lock:
            if self._begin is None:
                self._begin = time.perf_counter()
                _queue.append(self)
        _start_thread()

    def wait(self, seconds: float) -> bool:
        """Wait for the end, and return whether it has come."""
        if not self.is_over:
            self.request()
            self._over.wait(seconds)
        return self.is_over

    def note_interpreting(self, seconds: float) -> None:
        """Take note of seconds in the interpreter, and request the kernel once these are its share of what is expected."""
        self._account.seconds += seconds
        if self._begin is None and self._ahead() > 0.0:
            self.request()

    def steps_left(self) -> float:
        """Return how many nodes the interpreter may compute before the kernel is there."""
        return (self._expected * self._share - self._account.seconds) / self.per_step

    def note_steps(self, steps: int) -> None:
        """Take note of nodes that the interpreter has computed."""
        self._account.seconds += steps * self.per_step

    def wait_for_share(self, most: float) -> bool:
        """Wait while the interpreter has had more than its share, up to so many seconds, and return whether the end has come."""
        ahead = self._ahead()
        if ahead > SLICE:
            return self.wait(min(ahead, most))
        return self.is_over

    def _ahead(self) -> float:
        """Return for how long there should be no interpretation."""
        return self._account.seconds / self._share - self._expected - self.seconds

    def result(self) -> T:
        """Return the result, once it is there; raise the error with which the thread has ended."""
        while not self.is_over:
            with _lock:
                is_waiting = self in _queue
                if is_waiting:
                    _queue.remove(self)
                elif self._begin is None:
                    self._begin, is_waiting = time.perf_counter(), True
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
        """Forget the request, and the thread, which a forked process does not have."""
        self._begin = None
        self._over = threading.Event()


def compilation_of(key: str, build: Callable[[], T], **options: Any) -> Compilation[T]:
    """Return the compilation of a kernel, which somebody has to request; the options are those of `Compilation`."""
    with _lock:
        found = _unfinished.get(key)
        if found is None:
            found = _unfinished[key] = Compilation(key, build, **options)
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
    """Forget what other threads were to compile, in a forked process that does not have them."""
    _threads.clear()
    _queue.clear()
    for compilation in list(_unfinished.values()):
        compilation.begin_anew()


renewed_in_child(_go_on_in_child)
for _setting in ("precise_math", "compiler"):
    before_change(_setting, finish_all)  # which the compiler reads on its way
