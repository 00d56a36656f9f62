"""Products of vectors and matrices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradtape.errors import ShapeError, UnsupportedFunctionError
from gradtape.ir.builder import here
from gradtape.ir.graph import Value
from gradtape.kinds.arguments import as_array, as_int, listed, lookup, promoted, some_axes
from gradtape.kinds.contract import Subscripts
from gradtape.kinds.registry import TRIALS, UFUNCS, Sample, Trial, implements, sample
from gradtape.ops.core.contract import contract_row
from gradtape.ops.core.elementwise.cast import convert
from gradtape.ops.core.shape import expand, reshape
from gradtape.ops.numpy.arrays.shape import moved
from gradtape.ops.numpy.linalg.einsum import product

SMALL: dict[tuple[int, int], dict[str, Subscripts]] = {
    (1, 1): {"x": (0,), "y": (0,), "out": ()},
    (2, 1): {"x": (0, 1), "y": (1,), "out": (0,)},
    (1, 2): {"x": (0,), "y": (0, 1), "out": (1,)},
    (2, 2): {"x": (0, 1), "y": (1, 2), "out": (0, 2)},
}
"""The subscripts of products of vectors and matrices, by rank."""


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
    small = SMALL.get((left.ndim, right.ndim))
    if small is not None:
        return contract_row(left, right, **small)
    x = tuple(range(left.ndim))
    y = tuple(range(left.ndim, left.ndim + right.ndim))
    met = max(right.ndim - 2, 0)
    check_inner(left, left.ndim - 1, right, met, "not aligned")
    out = (*x[:-1], *y[:met], *y[met + 1 :])
    return product(left, x, right, (*y[:met], x[-1], *y[met + 1 :]), out)


def check_inner(a: Value, axis: int, b: Value, other: int, problem: str) -> None:
    if a.shape[axis] != b.shape[other]:
        raise ShapeError(
            f"shapes {a.shape} and {b.shape} {problem}: {a.shape[axis]} (dim {axis}) != "
            f"{b.shape[other]} (dim {other})",
            where=here.site,
            remedy="transpose an operand, or check which axes are contracted",
        )


@implements(
    np.inner, samples=(sample((3,), (3,)), sample((2, 3), (4, 3)), sample((2, 3), ()), sample((2,), (3,)))
)
def inner(a: Any, b: Any, /) -> Value:
    """Follow `numpy.inner`."""
    left, right = promoted(a, b)
    if left.ndim == 0 or right.ndim == 0:
        return left * right
    check_inner(left, left.ndim - 1, right, right.ndim - 1, "not aligned")
    x = tuple(range(left.ndim))
    y = tuple(range(left.ndim, left.ndim + right.ndim - 1))
    return product(left, x, right, (*y, x[-1]), (*x[:-1], *y))


@implements(np.outer, samples=(sample((3,), (2,)), sample((2, 2), (3,)), sample((), (3,))))
def outer(a: Any, b: Any) -> Value:
    """Follow `numpy.outer`."""
    left, right = promoted(a, b)
    shape = (left.size, right.size)
    column, row = reshape(left, (left.size,)), reshape(right, (right.size,))
    return expand(column, shape, (0,)) * expand(row, shape, (1,))


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
    axes = listed(axes)
    if isinstance(axes, tuple | list):
        pairs = map(listed, axes)
        first, second = (tuple(each) if isinstance(each, tuple | list) else (each,) for each in pairs)
    else:
        count = as_int(axes, "axes")
        first, second = tuple(range(-count, 0)), tuple(range(count))
    if any(not -v.ndim <= k < v.ndim for v, each in ((left, first), (right, second)) for k in each):
        raise IndexError("tuple index out of range")
    first, second = some_axes(first, left.ndim), some_axes(second, right.ndim)
    if len(first) != len(second) or [left.shape[k] for k in first] != [right.shape[k] for k in second]:
        raise ShapeError(
            f"shape-mismatch for sum: axes {first} of shape {left.shape} against axes {second} of "
            f"shape {right.shape}",
            where=here.site,
            remedy="the contracted axes must agree in number and length",
        )
    x = tuple(range(left.ndim))
    y = tuple(first[second.index(k)] if k in second else left.ndim + k for k in range(right.ndim))
    return product(left, x, right, y, tuple(k for k in (*x, *y) if k not in first))


def _core(name: str, a: Value, b: Value, ranks: tuple[int, int]) -> None:
    for place, (operand, rank) in enumerate(zip((a, b), ranks, strict=True)):
        if operand.ndim < rank:
            raise ShapeError(
                f"{name}: Input operand {place} does not have enough dimensions (has {operand.ndim}, "
                f"needs {rank})",
                where=here.site,
                remedy="use * for products with numbers, or x[None] to add an axis",
            )


def _stacked(a: Value, b: Value, x: Subscripts, y: Subscripts, out: Subscripts) -> Value:
    """Multiply along the trailing axes, which have subscripts, and broadcast over the leading ones."""
    lead_a, lead_b = a.ndim - len(x), b.ndim - len(y)
    lead = max(lead_a, lead_b)
    subscripts = tuple(range(10, 10 + lead))
    np.broadcast_shapes(a.shape[:lead_a], b.shape[:lead_b])
    if [n for n, k in zip(a.shape[lead_a:], x, strict=True) if k == 1] != [
        n for n, k in zip(b.shape[lead_b:], y, strict=True) if k == 1
    ]:
        raise ShapeError(
            f"matmul: Input operand 1 has a mismatch in its core dimension 0: shapes {a.shape} and "
            f"{b.shape} do not fit",
            where=here.site,
            remedy="the last axis of the first operand is contracted with the second-to-last axis of the second "
            "(or the axis of a vector)",
        )
    return product(
        a, (*subscripts[lead - lead_a :], *x), b, (*subscripts[lead - lead_b :], *y), (*subscripts, *out)
    )


Product = Callable[[Value, Value], Value]


def _matmul(a: Value, b: Value) -> Value:
    _core("matmul", a, b, (1, 1))
    small = SMALL.get((a.ndim, b.ndim))
    if small is not None:
        return contract_row(a, b, **small)
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
    """Return what runs in place of a generalised ufunc: operands brought to one dtype, ``axis`` and
    ``axes`` moved to the end and back."""

    def traced(
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
                f"np.{name} with {', '.join(rest)} is not supported",
                where=here.site,
                remedy="omit these arguments",
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

    UFUNCS[name] = traced
    TRIALS[name, "__call__"] = Trial(samples, "?bBqfFD", True)
    return traced


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
        sample((3, 2), (3, 4), axes=[(1, 0), (0, 1), (1, 0)]),
        sample((2, 3, 5), (5, 2, 4), axes=[(0, 1), (1, 2), (2, 0)]),
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
    "matvec",
    _matvec,
    (2, 1, 1),
    (
        sample((3, 2), (3, 4), axes=[(1, 0), (0,), (1,)]),
        sample((2, 3), (3,)),
        sample((4, 2, 3), (4, 3)),
        sample((2, 3), (2,)),
    ),
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
