"""The reductions: one row per monoid."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gradtape.ir.graph import Value
from gradtape.ir.primitives import PRIMITIVES
from gradtape.kinds.reduction import Reduction, reduction
from gradtape.ops.core.cumulative import exclusive_product
from gradtape.ops.core.elementwise.cast import convert
from gradtape.ops.core.elementwise.floats import isnan
from gradtape.ops.core.elementwise.logic import equal, greater
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.core.shape import permute, reshape, spread
from gradtape.ops.core.shift_rules import reduced_extremum, reduced_sum

Linear = Callable[[Value], Value]

reduce_sum = reduction(
    "reduce_sum",
    monoid="add",
    evaluate=lambda x, axis: np.sum(x, axis=axis),
    identity=0,
    transpose=lambda ct, node: spread(ct, node.inputs[0].shape, node.params["axes"]),
    shift=reduced_sum,
    finite_derivatives=True,
)


def _product_tangent(z: Value, x: Value, axes: tuple[int, ...]) -> Linear:
    """Each element's factor is the product of all others: products from the left times products from the
    right, so that zeros do no harm."""
    kept = tuple(axis for axis in range(x.ndim) if axis not in axes)
    front = permute(x, (*kept, *axes))
    flat = reshape(front, (*[x.shape[axis] for axis in kept], int(np.prod([x.shape[axis] for axis in axes]))))
    last = flat.ndim - 1
    others = exclusive_product(flat, last, False) * exclusive_product(flat, last, True)
    # Another element that is 0 makes products that overflow 0.
    zeros = convert(equal(flat, 0.0), flat.dtype)
    count = reduce_sum(zeros + flat * 0.0, axes=(last,))
    vanish = greater(spread(count, flat.shape, (last,)) - zeros, 0.0) & ~equal(others, others)
    others = where(vanish, 0.0, others)
    factors = permute(reshape(others, front.shape), tuple(int(k) for k in np.argsort((*kept, *axes))))
    return lambda dx: reduce_sum(factors * dx, axes=axes)


reduce_prod = reduction(
    "reduce_prod",
    monoid="multiply",
    evaluate=lambda x, axis: np.prod(x, axis=axis),
    identity=1,
    tangent=_product_tangent,
)


def _extremum_tangent(z: Value, x: Value, axes: tuple[int, ...]) -> Linear:
    """Elements that tie share equally."""
    hit = equal(x, spread(z, x.shape, axes))
    ties = reduce_sum(convert(hit, x.dtype), axes=axes)
    return lambda dx: reduce_sum(where(hit, dx, 0.0), axes=axes) / ties


reduce_max = reduction(
    "reduce_max",
    monoid="maximum",
    evaluate=lambda x, axis: np.max(x, axis=axis),
    identity=None,
    tangent=_extremum_tangent,
    kinks="elements that tie share equally",
    shift=reduced_extremum,
)
reduce_min = reduction(
    "reduce_min",
    monoid="minimum",
    evaluate=lambda x, axis: np.min(x, axis=axis),
    identity=None,
    tangent=_extremum_tangent,
    kinks="elements that tie share equally",
    shift=reduced_extremum,
)
reduce_any = reduction(
    "reduce_any", monoid="or", evaluate=lambda x, axis: np.any(x, axis=axis), identity=False
)
reduce_all = reduction(
    "reduce_all", monoid="and", evaluate=lambda x, axis: np.all(x, axis=axis), identity=True
)


def _place_of_extremum(row: Reduction, x: Value, axes: tuple[int, ...]) -> Value:
    """Return where the first element is that equals the extremum, or the first NaN."""
    chosen = spread(row(x, axes=axes), x.shape, axes)
    hit = where(isnan(chosen), isnan(x), equal(x, chosen))
    return argmax(convert(hit, np.dtype(np.int8)), axes=axes)


_SINGLE = (((2, 3), {"axes": (1,)}), ((4,), {"axes": (0,)}), ((2, 3, 2), {"axes": (1,)}))
argmax: Reduction = reduction(
    "argmax",
    monoid="argmax",
    evaluate=lambda x, axis: np.argmax(x, axis=axis),
    identity=None,
    of_complex=lambda x, axes: _place_of_extremum(reduce_max, x, axes),
    samples=_SINGLE,
)
argmin = reduction(
    "argmin",
    monoid="argmin",
    evaluate=lambda x, axis: np.argmin(x, axis=axis),
    identity=None,
    of_complex=lambda x, axes: _place_of_extremum(reduce_min, x, axes),
    samples=_SINGLE,
)

PRIMITIVES["reduce_sum"] = reduce_sum
