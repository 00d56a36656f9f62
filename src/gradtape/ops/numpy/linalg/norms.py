"""Norms, and the square root that they and the standard deviation end in."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradtape.ir.graph import Value
from gradtape.ir.types import FLOAT64, is_inexact
from gradtape.kinds.arguments import as_array, as_int, kept_shape, lookup, one_axis
from gradtape.kinds.elementwise import Intrinsic, elementwise
from gradtape.kinds.registry import FUNCTIONS, implements, sample
from gradtape.ops.core.elementwise.cast import convert
from gradtape.ops.core.elementwise.complex_parts import imag, real
from gradtape.ops.core.elementwise.logic import equal, not_equal
from gradtape.ops.core.elementwise.power import power
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.core.elementwise.signs import absolute
from gradtape.ops.core.reductions import reduce_min, reduce_sum
from gradtape.ops.core.shape import reshape
from gradtape.ops.numpy.arrays.shape import moved
from gradtape.ops.numpy.statistics.reductions import max_, min_, reduced

root = elementwise(
    "root",
    np.sqrt,
    body=Intrinsic("llvm.sqrt"),
    partials=(lambda z, x: where(equal(z, 0), 0, 0.5 / z),),
    square_tangents=(lambda d, x: d,),
    domain=((0.1, 9.0),),
    edges=((0.0,), (np.inf,)),
    kinks="0 at 0, the minimum of norms and standard deviations",
    dtype_samples="df",
)


def squares(x: Value) -> Value:
    """Return the squares of the absolute values."""
    if x.dtype.kind != "c":
        return x * x
    re, im = real(x), imag(x)
    return re * re + im * im


def _vector_norm(x: Value, order: Any, axes: tuple[int, ...], keepdims: bool) -> Value:
    if order is None or order == 2:
        return root(reduced(reduce_sum, squares(x), axes, keepdims))
    if isinstance(order, str):
        raise ValueError(f"Invalid norm order {order!r} for vectors")
    if order == np.inf:
        return max_(absolute(x), axes, keepdims=keepdims, initial=0)
    if order == -np.inf:
        return min_(absolute(x), axes, keepdims=keepdims)
    if order == 0:
        return reduced(reduce_sum, convert(not_equal(x, 0), absolute(x).dtype), axes, keepdims)
    if order == 1:
        return reduced(reduce_sum, absolute(x), axes, keepdims)
    total = reduced(reduce_sum, power(absolute(x), order), axes, keepdims)
    if order < 0:
        return power(total, 1.0 / order)
    nothing = equal(total, 0)
    return where(nothing, 0, power(where(nothing, 1, total), 1.0 / order))


def _matrix_norm(x: Value, order: Any, rows: int, columns: int, keepdims: bool) -> Value:
    axes = tuple(sorted((rows, columns)))
    if order is None or order in ("fro", "f"):
        return root(reduced(reduce_sum, squares(x), axes, keepdims))
    if order in (1, -1, np.inf, -np.inf):
        along, across = (rows, columns) if abs(order) == 1 else (columns, rows)
        sums = reduced(reduce_sum, absolute(x), (along,), True)
        result = max_(sums, (across,), True, initial=0) if order > 0 else min_(sums, (across,), True)
        return (
            result if keepdims else reshape(result, tuple(n for k, n in enumerate(x.shape) if k not in axes))
        )
    if order not in (2, -2, "nuc"):
        raise ValueError("Invalid norm order for matrices.")
    values: Value = FUNCTIONS[np.linalg.svdvals](moved(x, (rows, columns), (x.ndim - 2, x.ndim - 1)))
    last = (values.ndim - 1,)
    if order == 2:
        result = max_(values, last, initial=0)
    else:
        result = (reduce_sum if order == "nuc" else reduce_min)(values, axes=last)
    return reshape(result, kept_shape(x.shape, axes)) if keepdims else result


VECTORS = tuple(sample((2, 4), order, 1) for order in (None, 2, 1, 0, np.inf, -np.inf, 3, -2, 0.5))
MATRICES = tuple(sample((3, 4), order) for order in ("fro", 1, -1, np.inf, -np.inf, 2, -2, "nuc"))


@implements(
    np.linalg.norm,
    samples=(
        sample((4,)),
        sample((2, 3)),
        sample((2, 3, 2)),
        sample((4,), 3),
        sample((2, 3, 4), axis=(0, 2), keepdims=True),
        sample((2, 3, 4), ord=1, axis=(2, 0)),
        sample((2, 3), axis=-1, keepdims=True),
        sample((2, 3, 4), 5),
        sample((2, 3), "what"),
        *VECTORS,
        *MATRICES,
    ),
)
def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Value:
    """Follow `numpy.linalg.norm`; the derivative of a 2-norm at zero is 0."""
    array = as_array(x)
    array = array if is_inexact(array.dtype) else convert(array, FLOAT64)
    flat = ord is None or (ord in ("f", "fro") and array.ndim == 2) or (ord == 2 and array.ndim == 1)
    if axis is None and flat:
        return root(reduced(reduce_sum, squares(array), tuple(range(array.ndim)), keepdims))
    if axis is None:
        axes = tuple(range(array.ndim))
    elif isinstance(axis, tuple):
        axes = tuple(one_axis(k, array.ndim) for k in axis)
    else:
        axes = (one_axis(as_int(axis, "axis"), array.ndim),)
    if len(axes) == 1:
        return _vector_norm(array, ord, axes, keepdims)
    if len(axes) != 2:
        raise ValueError("Improper number of dimensions to norm.")
    if axes[0] == axes[1]:
        raise ValueError("Duplicate axes given.")
    return _matrix_norm(array, ord, *axes, keepdims)


@implements(
    lookup(np.linalg, "vector_norm"),
    samples=(
        sample((2, 3)),
        sample((2, 3), axis=1, ord=1),
        sample((2, 3, 2), axis=(0, 1), keepdims=True, ord=3),
        sample((3,), ord=np.inf),
    ),
)
def vector_norm(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Value:
    """Follow `numpy.linalg.vector_norm`."""
    array = as_array(x)
    array = array if is_inexact(array.dtype) else convert(array, FLOAT64)
    axes = axis if isinstance(axis, tuple) else tuple(range(array.ndim)) if axis is None else (axis,)
    return _vector_norm(array, ord, tuple(sorted(one_axis(k, array.ndim) for k in axes)), keepdims)


@implements(
    lookup(np.linalg, "matrix_norm"),
    samples=(sample((2, 3)), sample((2, 3, 2), ord=1), sample((2, 3, 2), ord=np.inf, keepdims=True)),
)
def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Value:
    """Follow `numpy.linalg.matrix_norm`."""
    return norm(x, ord, (-2, -1), keepdims)
