"""Progress bars: those of tqdm where it is installed, a line of text otherwise; in files a few lines."""

from __future__ import annotations

import importlib.util
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, TextIO, TypeVar

from gradtape.config import config
from gradtape.errors import is_users
from gradtape.locks import ended_before_fork, renewed_in_child

PATIENCE = 2.0
"""Seconds after which a bar appears."""

PAUSE = 0.2
"""Seconds between two updates."""

LOOKS = 25
"""How often the watcher finds nothing to watch before it ends."""

T = TypeVar("T")


def progress(items: Sequence[T], what: str, weights: Sequence[int], unit: str) -> Iterator[T]:
    """Yield the items, with a progress bar after two seconds.

    Parameters
    ----------
    items : sequence
        What is worked through.
    what : str
        What the bar is called.
    weights : sequence of int
        How many units each item stands for.
    unit : str
        What is counted.
    """
    begin = time.perf_counter()
    bar: _Text | Any = None
    total, done = sum(weights), 0
    try:
        for item, weight in zip(items, weights, strict=True):
            yield item
            done += weight
            late = config.progress and time.perf_counter() - begin > PATIENCE and done < total
            if bar is None and late:
                bar = _bar(what, total, unit)
                bar.update(done)
            elif bar is not None:
                bar.update(weight)
    finally:
        if bar is not None:
            bar.close()


@contextmanager
def counting(description: str, unit: str, count: Callable[[], int]) -> Iterator[None]:
    """Show a progress bar if the code inside takes longer than two seconds.

    Parameters
    ----------
    what : str
        What the bar is called.
    unit : str
        What is counted.
    count : callable
        Returns how many units are done; a thread calls it, so that the work itself need not report.
    """
    global _work
    if not config.progress or _work is not None:  # nested work is part of the bar that there is
        yield
        return
    work = _Work(description, unit, count)
    try:  # Ctrl-C may come at any line
        _work = work
        _watch()
        yield
    finally:
        _work = None
        work.end()


_loop: _Text | Any = None
"""The bar of a loop of machine code, while it is shown."""

_iterations = 0
"""How many iterations this bar shows."""


def show_iterations(done: int, total: int) -> None:
    """Show how many iterations of a loop of machine code are done; machine code calls it, from time to time.

    Parameters
    ----------
    done : int
        The number of iterations; -1 when the loop is over.
    total : int
        Of how many; -1 if that is not known. When the loop is over, 0 if it was interrupted.
    """
    global _iterations, _loop
    bar = _loop
    try:
        if bar is None:
            if done < 0 or not config.progress or _work is not None:
                return
            bar = _loop = _bar(f"loop of line {_user_line()}", None if total < 0 else total, "iteration")
        now = max(done, total) if done < 0 else done
        if now > 0:
            bar.update(now - _iterations)
            _iterations = now
        if done < 0:
            bar.close()
    except (OSError, ValueError):  # the output is closed: the loop goes on
        done = -1
    finally:
        if done < 0:
            _loop, _iterations = None, 0


def _user_line() -> str:
    """Return the line of the user's that calls machine code."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not is_users(frame):
        frame = frame.f_back
    return "" if frame is None else f"{frame.f_lineno} of {os.path.basename(frame.f_code.co_filename)}"


class _Work:
    """A count, and its bar, which the watcher shows."""

    __slots__ = ("_begin", "_closed", "_count", "_late", "_over", "_unit", "_what")

    def __init__(self, description: str, unit: str, count: Callable[[], int]) -> None:
        self._what = description
        self._unit = unit
        self._count = count
        self._begin = time.perf_counter()
        self._late = False
        self._over = threading.Event()
        self._closed = threading.Event()

    def end(self) -> None:
        """End the work, and wait until its bar is closed, if it has one."""
        self._over.set()
        # The watcher sets `_late` before it checks whether the work is over, so that neither misses the other.
        if self._late:
            self._closed.wait()

    def show(self) -> None:
        """Show a bar to the end of the work if this takes long."""
        if time.perf_counter() - self._begin < PATIENCE:
            return
        self._late = True
        try:
            if not self._over.is_set():
                self._show()
        finally:
            self._closed.set()

    def _show(self) -> None:
        bar = _bar(self._what, None, self._unit)
        done = 0
        while not self._over.wait(PAUSE):
            now = self._count()
            bar.update(now - done)
            done = now
        bar.close()


_work: _Work | None = None
_watcher: threading.Thread | None = None


def _watch() -> None:
    """Have a thread look at the work from time to time.

    It outlives the work by some seconds: a program that traces many functions starts one thread for all of them, not one for each, which
    took longer than tracing a short function.
    """
    global _watcher
    if _watcher is None or not _watcher.is_alive():
        _watcher = threading.Thread(target=_look, name="gradtape progress", daemon=True)
        _watcher.start()


def _look() -> None:
    idle = 0
    while idle < LOOKS:
        _wake.wait(PAUSE)
        if _watcher is not threading.current_thread():  # it is to end, or two threads have started one each
            return
        work = _work
        idle = idle + 1 if work is None else 0
        if work is not None:
            work.show()


_wake = threading.Event()
"""Set to have a watcher that rests see that it is to end."""


def _end_watcher() -> None:
    global _watcher
    if _work is None and (watcher := _watcher) is not None:
        _watcher = None
        _wake.set()
        watcher.join()
        _wake.clear()


def _forget() -> None:
    global _iterations, _loop, _work
    _work = _loop = None
    _iterations = 0


ended_before_fork(_end_watcher)
renewed_in_child(_forget)


def _bar(description: str, total: int | None, unit: str) -> _Text | Any:
    notebook = "ipykernel.zmqshell" in sys.modules
    stream = sys.stdout if notebook else sys.stderr  # notebooks show what is on standard error as a failure
    if not notebook and not _is_terminal(stream):
        return _Lines(description, total, unit, stream)
    if importlib.util.find_spec("tqdm") is None:
        return _Text(description, total, unit, stream)
    if notebook and importlib.util.find_spec("ipywidgets") is not None:
        from tqdm.auto import tqdm  # without ipywidgets it warns

        return tqdm(total=total, desc=description, unit=f" {unit}s")
    from tqdm import tqdm

    return tqdm(total=total, desc=description, unit=f" {unit}s", file=stream)


def _is_terminal(stream: Any) -> bool:
    return bool(getattr(stream, "isatty", bool)())


class _Text:
    """A bar of plain text."""

    __slots__ = ("_done", "_stream", "_total", "_unit", "_what")

    def __init__(self, description: str, total: int | None, unit: str, stream: TextIO) -> None:
        self._what = description
        self._stream = stream
        self._total = total
        self._unit = unit
        self._done = 0

    def update(self, count: int) -> None:
        self._done += count
        print(f"\r{self._text()}", end="", file=self._stream, flush=True)

    def close(self) -> None:
        print(file=self._stream, flush=True)

    def _text(self) -> str:
        if self._total is None:
            return f"{self._what}: {self._done} {self._unit}s"
        return (
            f"{self._what}: {self._done} of {self._total} {self._unit}s ({100 * self._done // self._total} %)"
        )


class _Lines(_Text):
    """Progress in a file: a line now and then, and fewer of them the longer it takes."""

    __slots__ = ("_due", "_pause", "_shown")

    def __init__(self, description: str, total: int | None, unit: str, stream: TextIO) -> None:
        super().__init__(description, total, unit, stream)
        self._due = 0.0
        self._pause = PATIENCE
        self._shown = -1

    def update(self, count: int) -> None:
        self._done += count
        now = time.perf_counter()
        if now >= self._due:
            self._pause *= 2
            self._due = now + self._pause
            self._show()

    def close(self) -> None:
        if self._shown != self._done:
            self._show()

    def _show(self) -> None:
        self._shown = self._done
        print(self._text(), file=self._stream, flush=True)
