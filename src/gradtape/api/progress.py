"""A progress bar for what takes long: tqdm's where it is installed, a line of text otherwise."""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from ..config import config

PATIENCE = 2.0
"""Seconds after which a bar appears."""

T = TypeVar("T")


def progress(items: Sequence[T], what: str, weights: Sequence[int], unit: str) -> Iterator[T]:
    """Yield the items, and show how far it has come once that takes longer than two seconds.

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


def _bar(what: str, total: int, unit: str) -> _Text | Any:
    if importlib.util.find_spec("tqdm") is None:
        return _Text(what, total, unit)
    from tqdm.auto import tqdm

    return tqdm(total=total, desc=what, unit=unit)


class _Text:
    """A bar of plain text on standard error."""

    __slots__ = ("_done", "_total", "_unit", "_what")

    def __init__(self, what: str, total: int, unit: str) -> None:
        self._what = what
        self._total = total
        self._unit = unit
        self._done = 0

    def update(self, count: int) -> None:
        self._done += count
        share = 100 * self._done // self._total
        text = f"\r{self._what}: {self._done} of {self._total} {self._unit}s ({share} %)"
        print(text, end="", file=sys.stderr, flush=True)

    def close(self) -> None:
        print(file=sys.stderr, flush=True)
