"""Running sums, products and extrema, and the linear recurrence that carries their derivatives."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradtape.ir.graph import Node, Value, literal
from gradtape.ir.op import NDArray
from gradtape.kinds.cumulative import Cumulative, cumulative
from gradtape.kinds.elementwise import Elementwise
from gradtape.kinds.operands import broadcast_to
from gradtape.ops.core.elementwise.cast import zeros_like
from gradtape.ops.core.elementwise.exponential import exp
from gradtape.ops.core.elementwise.extrema import maximum, minimum
from gradtape.ops.core.elementwise.logic import equal, greater, less
from gradtape.ops.core.elementwise.logistic import logaddexp
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.core.shape import pad_row, slice_

Tangents = Sequence[Value | None]
Push = Callable[[Tangents], Value | None]


def shifted(x: Value, axis: int, reverse: bool, fill: float) -> Value:
    """Return `x` moved one step in the direction of the run, with `fill` where it starts."""
    extent = x.shape[axis]
    if extent == 0:
        return x
    inner = tuple(n - 1 if k == axis else n for k, n in enumerate(x.shape))
    zeros = (0,) * x.ndim
    step = tuple(1 if k == axis else 0 for k in range(x.ndim))
    kept = slice_(x, step if reverse else zeros, inner, (1,) * x.ndim)
    moved = pad_row(kept, shape=x.shape, starts=zeros if reverse else step, strides=(1,) * x.ndim)
    if fill == 0:
        return moved
    first = pad_row(
        broadcast_to(literal(fill, x.dtype), tuple(1 if k == axis else n for k, n in enumerate(x.shape))),
        shape=x.shape,
        starts=tuple((extent - 1 if reverse else 0) if k == axis else 0 for k in range(x.ndim)),
        strides=(1,) * x.ndim,
    )
    return moved + first


def _recurrence(a: NDArray, b: NDArray, *, axis: int) -> NDArray:
    out = np.array(b, copy=True)
    moved, factors = np.moveaxis(out, axis, 0), np.moveaxis(a, axis, 0)
    for k in range(1, len(moved)):
        moved[k] += factors[k] * moved[k - 1]
    return out


def _recurrence_tangent(
    z: Value, inputs: Sequence[Value], params: dict[str, Any], *, gated: bool = False
) -> Push:
    a = inputs[0]
    row = gated_recurrence if gated else recurrence

    def push(tangents: Tangents) -> Value | None:
        da, db = tangents
        source = db
        if da is not None:
            moved = da * shifted(z, params["axis"], params["reverse"], 0)
            source = moved if source is None else source + moved
        return None if source is None else row(a, source, **params)

    return push


def _recurrence_transpose(ct: Value, node: Node) -> tuple[Value | None, ...]:
    """The adjoint runs the other way, each factor one step earlier: c[k] = ct[k] + a[k+1] c[k+1]."""
    axis, reverse = node.params["axis"], node.params["reverse"]
    later = shifted(node.inputs[0], axis, not reverse, 0)
    return (None, recurrence(later, ct, axis=axis, reverse=not reverse))


recurrence: Cumulative = cumulative(
    "recurrence",
    step=lambda previous, a, b: a * previous + b,
    first=lambda a, b: b,
    evaluate=_recurrence,
    tangent=_recurrence_tangent,
    transpose=_recurrence_transpose,
    arity=2,
)


def _gated(a: NDArray, b: NDArray, *, axis: int) -> NDArray:
    out = np.array(b, copy=True)
    moved, factors = np.moveaxis(out, axis, 0), np.moveaxis(a, axis, 0)
    for k in range(1, len(moved)):
        through = factors[k] != 0
        moved[k] += np.where(through, factors[k], 0) * np.where(through, moved[k - 1], 0)
    return out


def _gated_transpose(ct: Value, node: Node) -> tuple[Value | None, ...]:
    axis, reverse = node.params["axis"], node.params["reverse"]
    later = shifted(node.inputs[0], axis, not reverse, 0)
    return (None, gated_recurrence(later, ct, axis=axis, reverse=not reverse))


gated_recurrence: Cumulative = cumulative(
    "gated_recurrence",
    step=lambda previous, a, b: where(equal(a, 0.0), b, a * previous + b),
    first=lambda a, b: b,
    evaluate=_gated,
    tangent=functools.partial(_recurrence_tangent, gated=True),
    transpose=_gated_transpose,
    arity=2,
)
"""A recurrence whose factors select: 0 lets nothing through, also nothing infinite."""


def _linear_tangent(z: Value, inputs: Sequence[Value], params: dict[str, Any]) -> Push:
    return lambda tangents: None if tangents[0] is None else cumsum(tangents[0], **params)


cumsum: Cumulative = cumulative(
    "cumsum",
    step=lambda previous, x: previous + x,
    first=lambda x: x,
    evaluate=lambda x, *, axis: np.cumsum(x, axis=axis, dtype=x.dtype),
    tangent=_linear_tangent,
    transpose=lambda ct, node: (cumsum(ct, axis=node.params["axis"], reverse=not node.params["reverse"]),),
)


def _by_recurrence(
    factors: Callable[[Value, Value, Value], tuple[Value, Value]], start: float
) -> Callable[..., Push]:
    """The tangent of z[k] = step(z[k-1], x[k]) is dz[k] = p[k] dz[k-1] + q[k] dx[k]: a linear recurrence."""

    def tangent(z: Value, inputs: Sequence[Value], params: dict[str, Any]) -> Push:
        (x,) = inputs
        p, q = factors(z, shifted(z, params["axis"], params["reverse"], start), x)
        return lambda tangents: None if tangents[0] is None else recurrence(p, q * tangents[0], **params)

    return tangent


cumprod = cumulative(
    "cumprod",
    step=lambda previous, x: previous * x,
    first=lambda x: x,
    evaluate=lambda x, *, axis: np.cumprod(x, axis=axis, dtype=x.dtype),
    tangent=_by_recurrence(lambda z, before, x: (x, before), 1.0),
)


def _by_selection(compare: Elementwise, start: float) -> Callable[..., Push]:
    """The tangent of a running extremum is that of the element which it is, by selection."""

    def tangent(z: Value, inputs: Sequence[Value], params: dict[str, Any]) -> Push:
        (x,) = inputs
        before = shifted(z, params["axis"], params["reverse"], start)
        tie = equal(before, x)
        one = literal(1, z.dtype)
        kept = where(tie, 0.5, where(compare(x, before), 0.0, one))
        taken = where(tie, 0.5, where(compare(before, x), 0.0, one))

        def push(tangents: Tangents) -> Value | None:
            (dx,) = tangents
            if dx is None:
                return None
            own = where(equal(taken, 0.0), zeros_like(dx), taken * dx)
            return gated_recurrence(kept, own, **params)

        return push

    return tangent


cummax = cumulative(
    "cummax",
    step=lambda previous, x: maximum(previous, x),
    first=lambda x: x,
    evaluate=lambda x, *, axis: np.maximum.accumulate(x, axis=axis),
    tangent=_by_selection(greater, -np.inf),
    kinks="ties 0.5 each",
)
cummin = cumulative(
    "cummin",
    step=lambda previous, x: minimum(previous, x),
    first=lambda x: x,
    evaluate=lambda x, *, axis: np.minimum.accumulate(x, axis=axis),
    tangent=_by_selection(less, np.inf),
    kinks="ties 0.5 each",
)
cumlogaddexp = cumulative(
    "cumlogaddexp",
    step=lambda previous, x: logaddexp(previous, x),
    first=lambda x: x,
    evaluate=lambda x, *, axis: np.logaddexp.accumulate(x, axis=axis),
    tangent=_by_recurrence(lambda z, before, x: (exp(before - z), exp(x - z)), -np.inf),
)


def exclusive_product(x: Value, axis: int, reverse: bool) -> Value:
    """Return the running product without the element itself."""
    return cumprod(shifted(x, axis, reverse, 1.0), axis=axis, reverse=reverse)
