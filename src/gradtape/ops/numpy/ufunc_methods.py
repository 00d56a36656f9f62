"""Methods of ufuncs that work alike for many: ``outer``, ``at``, ``reduceat``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gradtape.errors import UnsupportedFunctionError
from gradtape.ir.builder import here
from gradtape.ir.graph import Value
from gradtape.kinds.arguments import as_array, concrete, one_axis
from gradtape.kinds.operands import as_value
from gradtape.kinds.registry import (
    GENERIC_METHODS,
    TRIALS,
    UFUNC_METHODS,
    WRITERS,
    Trial,
    implements_method,
    sample,
)
from gradtape.ops.core.elementwise.arithmetic import add, negative
from gradtape.ops.core.elementwise.cast import convert
from gradtape.ops.core.indexing import Advanced, Basic, fit_for_write, parse_index
from gradtape.ops.core.join import join
from gradtape.ops.core.shape import reshape
from gradtape.ops.numpy.arrays.shape import cut


def outer(row: Any, a: Any, b: Any, **kwargs: Any) -> Any:
    """Apply a ufunc to all pairs of elements."""
    left, right = as_array(a), as_array(b)
    if right.ndim and left.ndim:
        left = reshape(left, (*left.shape, *[1] * right.ndim))
    return row(left, right, **kwargs)


def _place(base: Value, indices: Any) -> Basic | Advanced:
    if isinstance(indices, list):
        indices = np.asarray(indices)
    return parse_index(base.shape, indices)


def at(row: Any, a: Any, indices: Any, b: Any = None) -> Value:
    """Return `a` after a ufunc has changed the elements at `indices`, none of which may repeat."""
    base = as_array(a)
    place = _place(base, indices)
    if isinstance(place, Advanced) and not place.distinct(base.shape):
        raise UnsupportedFunctionError(
            f"np.{row.name}.at with indices that may repeat is not followed",
            where=here.site,
            why="the elements would have to be changed one after the other",
            remedy="use np.add.at or np.subtract.at, or make the indices unique and known",
        )
    read = place.read(base)
    changed = row(read) if b is None else row(read, as_value(b))
    return place.write(base, fit_for_write(changed, base.dtype, read.shape))


GENERIC_METHODS["outer"] = outer
GENERIC_METHODS["at"] = at


def _accumulating(sign: Callable[[Value], Value]) -> Callable[..., Value]:
    def at_repeated(a: Any, indices: Any, b: Any) -> Value:
        base = as_array(a)
        place = _place(base, indices)
        shape = place.result
        change = as_value(b)
        if isinstance(place, Basic):
            changed = add(place.read(base), sign(change))
            return place.write(base, fit_for_write(changed, base.dtype, shape))
        return place.accumulate(base, fit_for_write(sign(change), base.dtype, shape))

    return at_repeated


REPEATED = (
    sample(np.arange(4.0), np.array([0, 2, 2, -1]), (4,)),
    sample((3, 2), [1, 1], (2,)),
    sample((3, 2), (np.array([0, 0]), np.array([1, 1])), 2.0),
    sample((4,), slice(1, 3), (2,)),
    sample((4,), 1, 5.0),
    sample((4,), [9], 1.0),
    sample(np.arange(4), [1, 1], (2,)),
)
implements_method("add", "at", samples=REPEATED, dtypes="qf", writes=True)(_accumulating(lambda v: v))
implements_method("subtract", "at", samples=REPEATED, dtypes="qf", writes=True)(_accumulating(negative))


def _reduceat(name: str) -> Callable[..., Value]:
    def reduceat(array: Any, indices: Any, axis: Any = 0, dtype: Any = None) -> Value:
        x = as_array(array)
        if x.ndim == 0 and axis in (0, -1, None):
            raise TypeError("cannot reduceat on a scalar")
        if axis is None:
            if x.ndim > 1:
                raise ValueError("reduceat does not allow multiple axes")
            axis = 0
        place = one_axis(axis, x.ndim)
        extent = x.shape[place]
        starts = [int(k) for k in concrete(indices, "indices")]
        for start in starts:
            if not 0 <= start < extent:
                raise IndexError(f"index {start} out-of-bounds in {name}.reduceat [0, {extent})")
        pieces = []
        for start, stop in zip(starts, [*starts[1:], extent], strict=True):
            piece = cut(x, place, start, max(stop, start + 1))
            pieces.append(UFUNC_METHODS[name, "reduce"](piece, place, dtype, True))
        if not pieces:
            return convert(cut(x, place, 0, 0), x.dtype)
        return join(pieces, place)

    return reduceat


SEGMENTS = (sample((6,), [0, 2, 3]), sample((2, 6), [0, 4, 1, 3], axis=1), sample((3,), [5]))
for _name in ("add", "multiply", "maximum", "minimum", "logical_and", "logical_or"):
    implements_method(_name, "reduceat", samples=SEGMENTS)(_reduceat(_name))

PAIRS = (sample((2,), (3,)), sample((2, 2), (3,)), sample((), (3,)), sample((3,), 2.0))
CHANGES = (sample((4,), [0, 2, -1], (3,)), sample((3, 2), [1], 2.0), sample((4,), slice(1, 3), (2,)))
for _name in ("add", "multiply", "maximum", "less", "arctan2"):
    TRIALS[_name, "outer"] = Trial(PAIRS, "qf", True)
for _name in ("multiply", "maximum"):
    TRIALS[_name, "at"] = Trial(CHANGES, "qf", True)
    WRITERS.add((_name, "at"))
