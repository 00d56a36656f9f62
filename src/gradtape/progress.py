"""Progress bars: those of tqdm where it is installed, a line of text otherwise."""

from __future__ import annotations

import importlib.util
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TextIO, TypeVar

from gradtape.config import config
from gradtape.locks import renewed_in_child

PATIENCE = 2.0
"""Seconds after which a bar appears."""

PAUSE = 0.2
"""Seconds between two updates."""

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
def counting(what: str, unit: str, count: Callable[[], int]) -> Iterator[None]:
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
    if not config.progress or _counting.is_set():
        yield
        return
    over = threading.Event()

    def show() -> None:
        if over.wait(PATIENCE):
            return
        bar = _bar(what, None, unit)
        done = 0
        while not over.wait(PAUSE):
            now = count()
            bar.update(now - done)
            done = now
        bar.close()

    watcher = threading.Thread(target=show, name="gradtape progress", daemon=True)
    try:  # Ctrl-C may come at any line
        _counting.set()
        watcher.start()
        yield
    finally:
        over.set()
        _counting.clear()
        if watcher.is_alive():
            watcher.join()


_counting = threading.Event()
"""Set while there is a bar: nested work is part of it."""

renewed_in_child(_counting.clear)


def _bar(what: str, total: int | None, unit: str) -> _Text | Any:
    notebook = "ipykernel.zmqshell" in sys.modules
    stream = sys.stdout if notebook else sys.stderr  # notebooks show what is on standard error as a failure
    if importlib.util.find_spec("tqdm") is None:
        return _Text(what, total, unit, stream)
    if notebook and importlib.util.find_spec("ipywidgets") is not None:
        from tqdm.auto import tqdm  # without ipywidgets it warns

        return tqdm(total=total, desc=what, unit=f" {unit}s")
    from tqdm import tqdm

    return tqdm(total=total, desc=what, unit=f" {unit}s", file=stream)


class _Text:
    """A bar of plain text."""

    __slots__ = ("_done", "_stream", "_total", "_unit", "_what")

    def __init__(self, what: str, total: int | None, unit: str, stream: TextIO) -> None:
        self._what = what
        self._stream = stream
        self._total = total
        self._unit = unit
        self._done = 0

    def update(self, count: int) -> None:
        self._done += count
        text = f"\r{self._what}: {self._done}"
        if self._total is not None:
            text += f" of {self._total} {self._unit}s ({100 * self._done // self._total} %)"
        else:
            text += f" {self._unit}s"
        print(text, end="", file=self._stream, flush=True)

    def close(self) -> None:
        print(file=self._stream, flush=True)
