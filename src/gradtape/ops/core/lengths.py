"""Lengths as numbers of programs for any length: what is computed from them is computed by the program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from gradtape.ir.builder import emit
from gradtape.ir.graph import Value, constant, literal
from gradtape.ir.primitives import PRIMITIVES
from gradtape.ir.types import INT64, INTP, Shape
from gradtape.ir.varying import lengths_vary
from gradtape.kinds.elementwise import elementwise
from gradtape.ops.core.cumulative import cumsum
from gradtape.ops.core.elementwise.cast import convert, same_dtype
from gradtape.ops.core.shape import expand
from gradtape.ops.core.shift_rules import unchanged

Pattern = Callable[[Any], Any]
"""Makes elements of a matrix of the numbers of their diagonals, which are an ndarray or a value."""

length = elementwise(
    "length",
    lambda n: n,
    body=None,
    complex_body=lambda n: n,
    tangents=(lambda d, z, n: d,),
    transpose=(lambda ct, n: ct,),
    dtypes=same_dtype,
    is_opaque=True,
    finite_derivatives=True,
    cost=0.0,
    shift=unchanged,
)
"""A number that other lengths of the arguments replace by another: neither passes nor kernels fold what is computed from it."""


def as_number(count: Any) -> Any:
    """Return a number that follows from extents as an operand."""
    return emit(length, [literal(count, INT64)]) if lengths_vary() and isinstance(count, int) else count


def count_to(count: int, dtype: np.dtype[Any] = INTP) -> Value:
    """Return ``np.arange(count)``; where lengths vary, the program computes it."""
    if not lengths_vary():
        return constant(np.arange(count, dtype=dtype))
    ones = expand(literal(1, INT64), (count,), ())
    return convert(cumsum(ones, axis=0, reverse=False) - literal(1, INT64), dtype)


def by_diagonals(shape: Shape, pattern: Pattern, dtype: np.dtype[Any]) -> Value:
    """Return a matrix whose elements follow from the numbers of their diagonals: 0 for the main one, less below it."""
    rows, columns = shape
    if not lengths_vary():
        offsets = np.arange(columns) - np.arange(rows)[:, None]
        return constant(np.asarray(pattern(offsets)).astype(dtype))
    column, row = [
        expand(count_to(extent, INT64), shape, (axis,)) for axis, extent in ((1, columns), (0, rows))
    ]
    return convert(pattern(column - row), dtype)


def on_diagonal(number: int) -> Pattern:
    """Return the pattern of `numpy.eye`."""
    return lambda d: (d <= number) & (d >= number)


MAIN: Final = on_diagonal(0)


PRIMITIVES["count_to"] = count_to
