"""Iterables of abstract values, as sequences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradtape.frontend.interpreter import Interpreter, get_item, in_memory
from gradtape.frontend.loops.growing_lists import (
    item_at,
)
from gradtape.frontend.operators import counted
from gradtape.frontend.values import (
    Enumerated,
    Places,
    RangeValue,
    Reversed,
    Unrolled,
    Zipped,
    refuse,
    shown,
)
from gradtape.procedures.arrays import index_arithmetic as ix
from gradtape.procedures.arrays.view import Expression, Loads
from gradtape.records import record


@record
class Sequence:
    """A sequence that a loop runs over.

    Attributes
    ----------
    count : int or Value
        The number of items.
    item : callable
        Returns the item at an index, which is in range.
    is_static : bool
        Whether items may have different types, so that the loop is unrolled.
    parallel : bool
        Whether iterations may run at the same time.
    """

    count: Any
    item: Callable[[Any], Any]
    is_static: bool = False
    parallel: bool = False


def sequence(self: Interpreter, iterable: Any) -> Sequence:
    """Return an iterable as a sequence."""
    if isinstance(iterable, range):
        iterable = RangeValue(iterable.start, iterable.stop, iterable.step)
    if isinstance(iterable, RangeValue):
        start, step = iterable.start, iterable.step
        return Sequence(
            counted(self.build, iterable),
            lambda k: ix.add(start, ix.multiply(k, step)),
            parallel=iterable.parallel,
        )
    if isinstance(iterable, Enumerated):
        inner, first = sequence(self, iterable.iterable), iterable.start
        return Sequence(inner.count, lambda k: (ix.add(first, k), inner.item(k)), inner.is_static)
    if isinstance(iterable, Zipped):
        parts = [sequence(self, one) for one in iterable.iterables]
        count = parts[0].count if parts else 0
        for part in parts[1:]:
            count = ix.minimum(count, part.count, self.build.counts)
        static = any(part.is_static for part in parts)
        return Sequence(count, lambda k: tuple([part.item(k) for part in parts]), static)
    if isinstance(iterable, Reversed):
        inner = sequence(self, iterable.iterable)
        last = ix.subtract(inner.count, 1)
        return Sequence(inner.count, lambda k: inner.item(ix.subtract(last, k)), inner.is_static)
    if isinstance(iterable, Unrolled):
        inner = sequence(self, iterable.iterable)
        return Sequence(inner.count, inner.item, True)
    if isinstance(iterable, Places):
        return _places(iterable)
    if isinstance(iterable, Expression):
        if not iterable.ndim:
            refuse("iteration over a 0-d array")
        return Sequence(iterable.shape[0], lambda k: get_item(self, iterable, k))
    grown = self.growing(iterable)
    if grown is not None:
        content = grown
        return Sequence(content.length, lambda k: item_at(content, k))
    items = self.items(iterable)
    if items is None:
        refuse(f"iteration over {shown(iterable)}")
    return Sequence(len(items), lambda k: items[k], True)


def stored_arrays(iterable: Any) -> Any:
    """Return an iterable whose arrays are in memory."""
    if isinstance(iterable, Enumerated):
        return Enumerated(stored_arrays(iterable.iterable), iterable.start)
    if isinstance(iterable, Zipped):
        return Zipped(tuple(map(stored_arrays, iterable.iterables)))
    if isinstance(iterable, Reversed):
        return Reversed(stored_arrays(iterable.iterable))
    return in_memory(iterable)


def _places(places: Places) -> Sequence:
    def indices(k: Any) -> tuple[Any, ...]:
        found: list[Any] = []
        for extent in reversed(places.shape):
            rest = ix.floor_divide(k, extent)
            found.append(ix.subtract(k, ix.multiply(rest, extent)))
            k = rest
        return tuple(reversed(found))

    def item(k: Any) -> Any:
        found = indices(k)
        return found if places.array is None else (found, places.array.element(found, Loads()))

    return Sequence(ix.product(places.shape), item)
