"""Products of vectors and matrices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..errors import ShapeError, UnsupportedFunctionError
from ..ir.builder import here
from ..ir.graph import OPERATORS, Value
from ..kinds.arguments import as_array, as_int, lookup, one_axis, promoted, some_axes
from ..kinds.contract import Letters
from ..kinds.registry import FUNCTIONS, TRIALS, UFUNCS, Sample, Trial, implements, sample
from .cast import convert
from .indexing import getitem
from .join import stack
from .np_einsum import contract_all, product
from .np_reductions import sum_dtype
from .np_shape import moved
from .reductions import reduce_sum
from .shape import diagonal_of, reshape


@implements(
    np.dot,
    samples=(
        sample((3,), (3,)),
        sample((2, 3), (3,)),
        sample((3,), (3, 2)),
        sample((2, 3), (3, 4)),
        sample((2, 2, 3), (4, 3, 2)),
        sample((2, 3), ()),
        sample((), 2.0),
        sample((2, 3), (2, 3)),
    ),
)
def dot(a: Any, b: Any) -> Value:
    """Follow `numpy.dot`."""
    left, right = promoted(a, b)
    if left.ndim == 0 or right.ndim == 0:
        return left * right
    x = tuple(range(left.ndim))
    y = tuple(range(left.ndim, left.ndim + right.ndim))
    met = max(right.ndim - 2, 0)
    _check_inner(left, left.ndim - 1, right, met, "not aligned")
    out = (*x[:-1], *y[:met], *y[met + 1 :])
    return product(left, x, right, (*y[:met], x[-1], *y[met + 1 :]), out)


def _check_inner(a: Value, axis: int, b: Value, other: int, problem: str) -> None:
    if a.shape[axis] != b.shape[other]:
        raise ShapeError(
            f"shapes {a.shape} and {b.shape} {problem}: {a.shape[axis]} (dim {axis}) != {b.shape[other]} (dim {other})",
            where=here.site,
            remedy="transpose an operand, or check which axes meet",
        )


@implements(
    np.inner, samples=(sample((3,), (3,)), sample((2, 3), (4, 3)), sample((2, 3), ()), sample((2,), (3,)))
)
def inner(a: Any, b: Any, /) -> Value:
    """Follow `numpy.inner`."""
    left, right = promoted(a, b)
    if left.ndim == 0 or right.ndim == 0:
        return left * right
    _check_inner(left, left.ndim - 1, right, right.ndim - 1, "not aligned")
    x = tuple(range(left.ndim))
    y = tuple(range(left.ndim, left.ndim + right.ndim - 1))
    return product(left, x, right, (*y, x[-1]), (*x[:-1], *y))


@implements(np.outer, samples=(sample((3,), (2,)), sample((2, 2), (3,)), sample((), (3,))))
def outer(a: Any, b: Any) -> Value:
    """Follow `numpy.outer`."""
    left, right = promoted(a, b)
    return reshape(left, (left.size, 1)) * reshape(right, (1, right.size))


@implements(lookup(np.linalg, "outer"), samples=(sample((3,), (2,)), sample((2, 2), (3,))))
def linalg_outer(x1: Any, x2: Any, /) -> Value:
    """Follow `numpy.linalg.outer`."""
    left, right = as_array(x1), as_array(x2)
    if left.ndim != 1 or right.ndim != 1:
        raise ValueError(
            f"Input arrays must be one-dimensional, but they are {left.ndim=} and {right.ndim=}."
        )
    return outer(left, right)


@implements(np.vdot, samples=(sample((3,), (3,)), sample((2, 3), (3, 2)), sample((), ())))
def vdot(a: Any, b: Any, /) -> Value:
    """Follow `numpy.vdot`."""
    left, right = promoted(a, b)
    return dot(conjugated(reshape(left, (left.size,))), reshape(right, (right.size,)))


def conjugated(x: Value) -> Value:
    """Return the complex conjugate; a real array is its own."""
    return UFUNCS["conjugate"](x) if x.dtype.kind == "c" else x


@implements(
    np.tensordot,
    lookup(np.linalg, "tensordot"),
    samples=(
        sample((2, 3, 4), (3, 4, 2)),
        sample((2, 3), (4, 2), axes=([0], [1])),
        sample((2, 3), (3, 2), axes=1),
        sample((2,), (3,), axes=0),
        sample((2, 3), (3, 2), axes=(1, 0)),
        sample((2, 3), (2, 3), axes=1),
    ),
)
def tensordot(a: Any, b: Any, axes: Any = 2) -> Value:
    """Follow `numpy.tensordot`."""
    left, right = promoted(a, b)
    if isinstance(axes, tuple | list):
        first, second = (tuple(each) if isinstance(each, tuple | list) else (each,) for each in axes)
    else:
        count = as_int(axes, "axes")
        first, second = tuple(range(-count, 0)), tuple(range(count))
    if any(not -v.ndim <= k < v.ndim for v, each in ((left, first), (right, second)) for k in each):
        raise IndexError("tuple index out of range")
    first, second = some_axes(first, left.ndim), some_axes(second, right.ndim)
    if len(first) != len(second) or [left.shape[k] for k in first] != [right.shape[k] for k in second]:
        raise ShapeError(
            f"shape-mismatch for sum: axes {first} of shape {left.shape} against axes {second} of shape {right.shape}",
            where=here.site,
            remedy="the axes that meet must be as many and as long",
        )
    x = tuple(range(left.ndim))
    y = tuple(first[second.index(k)] if k in second else left.ndim + k for k in range(right.ndim))
    return product(left, x, right, y, tuple(k for k in (*x, *y) if k not in first))


def _core(name: str, a: Value, b: Value, ranks: tuple[int, int]) -> None:
    for place, (operand, rank) in enumerate(zip((a, b), ranks, strict=True)):
        if operand.ndim < rank:
            raise ShapeError(
                f"{name}: Input operand {place} does not have enough dimensions (has {operand.ndim}, needs {rank})",
                where=here.site,
                remedy="use * for products with numbers, or x[None] to add an axis",
            )


def _stacked(a: Value, b: Value, x: Letters, y: Letters, out: Letters) -> Value:
    """Multiply along the trailing axes, which have letters, and broadcast over the leading ones."""
    lead_a, lead_b = a.ndim - len(x), b.ndim - len(y)
    lead = max(lead_a, lead_b)
    letters = tuple(range(10, 10 + lead))
    np.broadcast_shapes(a.shape[:lead_a], b.shape[:lead_b])
    if [n for n, k in zip(a.shape[lead_a:], x, strict=True) if k == 1] != [
        n for n, k in zip(b.shape[lead_b:], y, strict=True) if k == 1
    ]:
        raise ShapeError(
            f"matmul: Input operand 1 has a mismatch in its core dimension 0: shapes {a.shape} and {b.shape} do not fit",
            where=here.site,
            remedy="the last axis of the first operand meets the last but one of the second (the last, of a vector)",
        )
    return product(a, (*letters[lead - lead_a :], *x), b, (*letters[lead - lead_b :], *y), (*letters, *out))


Product = Callable[[Value, Value], Value]


def _matmul(a: Value, b: Value) -> Value:
    _core("matmul", a, b, (1, 1))
    x, y = (0, 1)[-a.ndim :] if a.ndim > 1 else (1,), (1, 2) if b.ndim > 1 else (1,)
    return _stacked(a, b, x, y, tuple(k for k in (0, 2) if k in (*x, *y)))


def _vecdot(a: Value, b: Value) -> Value:
    _core("vecdot", a, b, (1, 1))
    return _stacked(conjugated(a), b, (1,), (1,), ())


def _matvec(a: Value, b: Value) -> Value:
    _core("matvec", a, b, (2, 1))
    return _stacked(a, b, (0, 1), (1,), (0,))


def _vecmat(a: Value, b: Value) -> Value:
    _core("vecmat", a, b, (1, 2))
    return _stacked(conjugated(a), b, (1,), (1, 2), (2,))


def generalised(
    name: str, multiply: Product, ranks: tuple[int, int, int], samples: Sequence[Sample]
) -> Callable[..., Value]:
    """Return what runs in place of a generalised ufunc: operands brought to one dtype, ``axis`` and ``axes`` moved to the end and back."""

    def follow(
        a: Any,
        b: Any,
        *,
        axis: Any = None,
        axes: Any = None,
        dtype: Any = None,
        casting: Any = None,
        **rest: Any,
    ) -> Value:
        if any(value is not None and value is not True and value != "K" for value in rest.values()):
            raise UnsupportedFunctionError(
                f"np.{name} with {', '.join(rest)} is not followed",
                where=here.site,
                remedy="leave these arguments out",
            )
        left, right = promoted(a, b)
        if dtype is not None:
            left, right = convert(left, np.dtype(dtype)), convert(right, np.dtype(dtype))
        if axis is not None:
            axes = [(as_int(axis, "axis"),)] * 2
        if axes is None:
            return multiply(left, right)
        places = [(each,) if isinstance(each, int) else tuple(each) for each in axes]
        ends = [tuple(range(v.ndim - rank, v.ndim)) for v, rank in ((left, ranks[0]), (right, ranks[1]))]
        left = moved(left, some_axes(places[0], left.ndim), ends[0])
        right = moved(right, some_axes(places[1], right.ndim), ends[1])
        result = multiply(left, right)
        if not ranks[2]:
            return result
        return moved(
            result, tuple(range(result.ndim - ranks[2], result.ndim)), some_axes(places[2], result.ndim)
        )

    UFUNCS[name] = follow
    TRIALS[name, "__call__"] = Trial(samples, "?bBqfFD", True)
    return follow


matmul = generalised(
    "matmul",
    _matmul,
    (2, 2, 2),
    (
        sample((2, 3), (3, 4)),
        sample((3,), (3,)),
        sample((2, 3), (3,)),
        sample((3,), (3, 2)),
        sample((4, 2, 3), (3, 2)),
        sample((4, 1, 2, 3), (5, 3, 2)),
        sample((3,), (4, 3, 2)),
        sample((4, 2, 3), (3,)),
        sample((3, 2), (2, 3), axes=[(1, 0), (1, 0), (1, 0)]),
        sample((2, 3), (2, 3)),
        sample((2, 3), ()),
        sample((1, 3), (3, 1), dtype="f4", casting="unsafe"),
    ),
)
vecdot = generalised(
    "vecdot",
    _vecdot,
    (1, 1, 0),
    (sample((2, 3), (2, 3)), sample((2, 3), (3,)), sample((3, 2), (3, 1), axis=0), sample((2,), (3,))),
)
matvec = generalised(
    "matvec", _matvec, (2, 1, 1), (sample((2, 3), (3,)), sample((4, 2, 3), (4, 3)), sample((2, 3), (2,)))
)
vecmat = generalised(
    "vecmat", _vecmat, (1, 2, 1), (sample((2,), (2, 3)), sample((4, 2), (4, 2, 3)), sample((2, 3), (2,)))
)


@implements(lookup(np.linalg, "matmul"), samples=(sample((2, 3), (3, 2)), sample((4, 2, 3), (3,))))
def linalg_matmul(x1: Any, x2: Any, /) -> Value:
    """Follow `numpy.linalg.matmul`."""
    return matmul(x1, x2)


@implements(lookup(np.linalg, "vecdot"), samples=(sample((2, 3), (2, 3)), sample((2, 3), (2, 3), axis=0)))
def linalg_vecdot(x1: Any, x2: Any, /, *, axis: Any = -1) -> Value:
    """Follow `numpy.linalg.vecdot`."""
    return vecdot(x1, x2, axis=axis)


@implements(
    np.linalg.multi_dot,
    samples=(
        sample([(2, 3), (3, 4), (4, 2)]),
        sample([(3,), (3, 4), (4,)]),
        sample([(2, 3), (3,)]),
        sample([(2, 3)]),
    ),
)
def multi_dot(arrays: Any) -> Value:
    """Follow `numpy.linalg.multi_dot`."""
    operands = promoted(*arrays)
    if len(operands) < 2:
        raise ValueError("Expecting at least two arrays.")
    if len(operands) == 2:
        return dot(*operands)
    ends = (0, len(operands) - 1)
    for place, operand in enumerate(operands):
        if operand.ndim != 2 and not (operand.ndim == 1 and place in ends):
            raise np.linalg.LinAlgError(
                f"{operand.ndim}-dimensional array given. Array must be two-dimensional"
            )
    terms: list[Letters] = []
    for place, operand in enumerate(operands):
        both = (place, place + 1)
        terms.append(both if operand.ndim == 2 else both[1:] if place == 0 else both[:1])
    for place in range(len(operands) - 1):
        _check_inner(operands[place], operands[place].ndim - 1, operands[place + 1], 0, "not aligned")
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
    ),
)
def matrix_power(a: Any, n: Any) -> Value:
    """Follow `numpy.linalg.matrix_power`."""
    x = as_array(a)
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise np.linalg.LinAlgError("Last 2 dimensions of the array must be square")
    times = as_int(n, "exponent")
    if times < 0:
        inverse = FUNCTIONS.get(np.linalg.inv)
        if inverse is None:
            raise UnsupportedFunctionError(
                "np.linalg.matrix_power with a negative exponent is not followed",
                where=here.site,
                remedy="pass the inverse itself",
            )
        x, times = inverse(x), -times
    if times == 0:
        return OPERATORS["add"](OPERATORS["zeros_like"](x), np.eye(x.shape[-1], dtype=x.dtype))
    result: Value | None = None
    while times:
        if times & 1:
            result = x if result is None else matmul(result, x)
        times >>= 1
        x = matmul(x, x) if times else x
    assert result is not None
    return result


@implements(
    np.kron, samples=(sample((2,), (3,)), sample((2, 3), (3, 2)), sample((2, 3), (2,)), sample((2, 2), ()))
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
    return picked if inside else OPERATORS["zeros_like"](picked)


@implements(
    np.cross,
    samples=(
        sample((3,), (3,)),
        sample((2, 3), (3,)),
        sample((2, 3), (2, 3)),
        sample((3, 2), (3, 2), axis=0),
        sample((3, 2), (2, 3), axisa=0, axisc=0),
        sample((2, 2), (2, 2)),
        sample((4, 2), (4, 3)),
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
    if not set(counts) <= {2, 3}:
        raise ShapeError(
            f"incompatible dimensions for cross product (dimension must be 2 or 3): {counts[0]} and {counts[1]}",
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
    if left.shape[axis] != 3 or right.shape[axis] != 3:
        raise ValueError(
            f"Both input arrays must be 3-dimensional vectors, but they have {left.shape[axis]} and {right.shape[axis]} components"
        )
    return cross(left, right, axis=axis)
