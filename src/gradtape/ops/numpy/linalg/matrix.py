"""Matrices as a whole: chains and powers of products, diagonals and traces, Kronecker and cross products."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from gradtape.errors import ArgumentError, ShapeError
from gradtape.ir.builder import here
from gradtape.ir.graph import Value
from gradtape.kinds.arguments import as_array, as_int, lookup, one_axis, promoted
from gradtape.kinds.contract import Subscripts
from gradtape.kinds.registry import implements, sample
from gradtape.ops.core.elementwise.arithmetic import add
from gradtape.ops.core.elementwise.cast import convert, zeros_like
from gradtape.ops.core.indexing import getitem
from gradtape.ops.core.join import stack
from gradtape.ops.core.lengths import MAIN, by_diagonals
from gradtape.ops.core.reductions import reduce_sum
from gradtape.ops.core.shape import diagonal_of, reshape
from gradtape.ops.numpy.arrays.join import items_of
from gradtape.ops.numpy.arrays.shape import moved
from gradtape.ops.numpy.linalg.einsum import contract_all
from gradtape.ops.numpy.linalg.products import check_inner, dot, matmul
from gradtape.ops.numpy.linalg.solve import inv
from gradtape.ops.numpy.statistics.reductions import sum_dtype


@implements(
    np.linalg.multi_dot,
    samples=(
        sample([(2, 3), (3, 4), (4, 2)]),
        sample([(3,), (3, 4), (4,)]),
        sample([(2, 3), (3,)]),
        sample([(2, 3)]),
        sample((3, 2, 2)),
    ),
)
def multi_dot(arrays: Any) -> Value:
    """Follow `numpy.linalg.multi_dot`. An array stands for the list of its items."""
    given = items_of(arrays)
    if len(given) < 2:
        raise ArgumentError(
            f"Expecting at least two arrays, got {len(given)}.",
            where=here.site,
            remedy="pass the factors as one list: np.linalg.multi_dot([a, b, c])",
        )
    operands = promoted(*given)
    if len(operands) == 2:
        return dot(*operands)
    ends = (0, len(operands) - 1)
    for place, operand in enumerate(operands):
        if operand.ndim != 2 and not (operand.ndim == 1 and place in ends):
            raise np.linalg.LinAlgError(
                f"{operand.ndim}-dimensional array given. Array must be two-dimensional (factor {place} of {len(operands)} has the shape "
                f"{operand.shape}; only the first and the last may be vectors)"
            )
    terms: list[Subscripts] = []
    for place, operand in enumerate(operands):
        both = (place, place + 1)
        terms.append(both if operand.ndim == 2 else both[1:] if place == 0 else both[:1])
    for place in range(len(operands) - 1):
        check_inner(operands[place], operands[place].ndim - 1, operands[place + 1], 0, "not aligned")
    out = (*terms[0][:-1], *terms[-1][1:])
    return contract_all(operands, terms, out)


@implements(
    np.linalg.matrix_power,
    samples=(
        sample((3, 3), 0),
        sample((3, 3), 1),
        sample((3, 3), 3),
        sample((2, 3, 3), 6),
        sample((2, 3), 2),
        sample((2, 3, 3), -2),
    ),
)
def matrix_power(a: Any, n: Any) -> Value:
    """Follow `numpy.linalg.matrix_power`."""
    x = as_array(a)
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise np.linalg.LinAlgError("Last 2 dimensions of the array must be square")
    times = as_int(n, "exponent")
    if times < 0:
        x, times = inv(x), -times
    if times == 0:
        return add(zeros_like(x), by_diagonals((x.shape[-1], x.shape[-1]), MAIN, x.dtype))
    result: Value | None = None
    while times:
        if times & 1:
            result = x if result is None else matmul(result, x)
        times >>= 1
        x = matmul(x, x) if times else x
    assert result is not None
    return result


@implements(
    np.kron,
    samples=(
        sample((2,), (3,)),
        sample((2, 3), (3, 2)),
        sample((2, 3), (2,)),
        sample((2, 2), ()),
        sample((3,), (2, 2)),
    ),
)
def kron(a: Any, b: Any) -> Value:
    """Follow `numpy.kron`."""
    left, right = promoted(a, b)
    rank = max(left.ndim, right.ndim)
    n = (1,) * (rank - left.ndim) + left.shape
    m = (1,) * (rank - right.ndim) + right.shape
    blocks = reshape(left, tuple(e for k in n for e in (k, 1))) * reshape(
        right, tuple(e for k in m for e in (1, k))
    )
    return reshape(blocks, tuple(i * j for i, j in zip(n, m, strict=True)))


@implements(
    np.diagonal,
    samples=(
        sample((3, 4)),
        sample((3, 4), 1),
        sample((3, 4), offset=-2),
        sample((2, 3, 4), 0, 1, -1),
        sample((3,)),
    ),
)
def diagonal(a: Any, offset: Any = 0, axis1: Any = 0, axis2: Any = 1) -> Value:
    """Follow `numpy.diagonal`."""
    x = as_array(a)
    if x.ndim < 2:
        raise ValueError("diag requires an array of at least two dimensions")
    first, second = one_axis(axis1, x.ndim), one_axis(axis2, x.ndim)
    if first == second:
        raise ValueError("axis1 and axis2 cannot be the same")
    return diagonal_of(x, first, second, as_int(offset, "offset"))


@implements(
    np.trace,
    samples=(
        sample((3, 4)),
        sample((3, 4), 1),
        sample((2, 3, 4), 0, 1, 2),
        sample((3, 3), dtype="f4"),
        sample((3,)),
    ),
)
def trace(a: Any, offset: Any = 0, axis1: Any = 0, axis2: Any = 1, dtype: Any = None) -> Value:
    """Follow `numpy.trace`."""
    picked = diagonal(a, offset, axis1, axis2)
    picked = convert(picked, sum_dtype(picked.dtype) if dtype is None else np.dtype(dtype))
    return reduce_sum(picked, axes=(picked.ndim - 1,))


@implements(lookup(np.linalg, "diagonal"), samples=(sample((2, 3, 4)), sample((3, 4), offset=1)))
def linalg_diagonal(x: Any, /, *, offset: Any = 0) -> Value:
    """Follow `numpy.linalg.diagonal`."""
    return diagonal(x, offset, -2, -1)


@implements(lookup(np.linalg, "trace"), samples=(sample((2, 3, 4)), sample((3, 4), offset=1, dtype="f4")))
def linalg_trace(x: Any, /, *, offset: Any = 0, dtype: Any = None) -> Value:
    """Follow `numpy.linalg.trace`."""
    return trace(x, offset, -2, -1, dtype)


def component(x: Value, k: int) -> Value:
    """Return ``x[..., k]``, zero beyond the last."""
    inside = k < x.shape[-1]
    picked = getitem(x, (Ellipsis, k if inside else 0))
    return picked if inside else zeros_like(picked)


CROSSED: Final = frozenset({2, 3} if np.lib.NumpyVersion(np.__version__) < "2.5.0" else {3})
"""The lengths of vectors that NumPy multiplies."""


@implements(
    np.cross,
    samples=(
        sample((3,), (3,)),
        sample((2, 3), (3,)),
        sample((2, 3), (2, 3)),
        sample((3, 2), (3, 2), axis=0),
        sample((3, 2), (2, 3), axisa=0, axisc=0),
        *((sample((2, 2), (2, 2)), sample((4, 2), (4, 3))) if 2 in CROSSED else ()),
    ),
)
def cross(a: Any, b: Any, axisa: Any = -1, axisb: Any = -1, axisc: Any = -1, axis: Any = None) -> Value:
    """Follow `numpy.cross`."""
    if axis is not None:
        axisa = axisb = axisc = axis
    left, right = promoted(a, b)
    if left.ndim < 1 or right.ndim < 1:
        raise ValueError("At least one array has zero dimension")
    left = moved(left, (one_axis(axisa, left.ndim),), (left.ndim - 1,))
    right = moved(right, (one_axis(axisb, right.ndim),), (right.ndim - 1,))
    counts = left.shape[-1], right.shape[-1]
    if not set(counts) <= CROSSED:
        raise ShapeError(
            f"incompatible dimensions for cross product (dimension must be {' or '.join(map(str, sorted(CROSSED)))}): "
            f"{counts[0]} and {counts[1]}",
            where=here.site,
            remedy="name the axis of the components with axis=, axisa= or axisb=",
        )
    (a0, a1, a2), (b0, b1, b2) = ([component(v, k) for k in range(3)] for v in (left, right))
    if counts == (2, 2):
        return a0 * b1 - a1 * b0
    result = stack(a1 * b2 - a2 * b1, a2 * b0 - a0 * b2, a0 * b1 - a1 * b0, axis=-1)
    return moved(result, (result.ndim - 1,), (one_axis(axisc, result.ndim),))


@implements(lookup(np.linalg, "cross"), samples=(sample((2, 3), (2, 3)), sample((2,), (2,))))
def linalg_cross(x1: Any, x2: Any, /, *, axis: Any = -1) -> Value:
    """Follow `numpy.linalg.cross`."""
    left, right = as_array(x1), as_array(x2)
    if 2 not in CROSSED:
        axis = -1 if axis is None else axis
        if not (left.ndim and right.ndim):
            raise ValueError("At least one array has zero dimension")
    if left.shape[axis] != 3 or right.shape[axis] != 3:
        raise ValueError(
            f"Both input arrays must be 3-dimensional vectors, but they have {left.shape[axis]} and "
            f"{right.shape[axis]} components"
        )
    return cross(left, right, axis=axis)
