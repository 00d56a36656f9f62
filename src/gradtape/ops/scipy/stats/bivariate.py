"""The bivariate normal distribution: probabilities of quadrants."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradtape.ir.graph import Value
from gradtape.ir.op import NDArray
from gradtape.kinds.routines.callback import callback_row
from gradtape.ops.core.elementwise.exponential import exp, tanh
from gradtape.ops.core.elementwise.floats import isinf
from gradtape.ops.core.elementwise.logic import less
from gradtape.ops.core.elementwise.roots import sqrt
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.scipy.special.distributions.normal import ndtr


def _evaluate(x: NDArray, y: NDArray, r: NDArray) -> NDArray:
    import scipy.stats  # late: compiled programs without such calls do without it

    routines: Any = scipy.stats._qmvnt  # type: ignore[attr-defined] # private, and not in the stubs
    return np.asarray(routines._bvnu(float(x), float(y), float(r)), x.dtype)


def _tangent(outs: Sequence[Value], inputs: Sequence[Value], params: dict[str, Any]) -> Callable[..., Any]:
    """Return the derivatives: minus the density of one variable times the probability of the other one given it, and the density."""
    x, y, r = inputs
    rest = sqrt((1.0 - r) * (1.0 + r))

    def finite(bound: Value) -> Value:
        return where(isinf(bound), 0.0, bound)

    def of_bound(own: Value, other: Value) -> Value:
        square = finite(own) * finite(own)
        density = where(isinf(own), 0.0, exp(-0.5 * square) / math.sqrt(2 * math.pi))
        given = (r * finite(own) - finite(other)) / rest
        below = where(less(other, 0.0), 1.0, 0.0)
        return -density * where(isinf(other), below, ndtr(given))

    u, v = finite(x), finite(y)
    joint = exp(-0.5 * (u * u - 2.0 * r * u * v + v * v) / ((1.0 - r) * (1.0 + r))) / (2 * math.pi * rest)
    slopes = of_bound(x, y), of_bound(y, x), where(isinf(x) | isinf(y), 0.0, joint)

    def push(tangents: Sequence[Value | None]) -> Value | None:
        parts = [slope * part for slope, part in zip(slopes, tangents, strict=True) if part is not None]
        return None if not parts else sum(parts[1:], parts[0])

    return push


upper_quadrant = callback_row(
    "upper_quadrant",
    ranks=(0, 0, 0),
    shapes=lambda *shapes: ((),),
    evaluate=_evaluate,
    tangent=_tangent,
    samples=(((), (), (), {}),),
    prepare=lambda x, y, r: (x, y, 0.9 * tanh(r)),
    codes="d",
)
"""``P(X > x, Y > y)`` for standard normal variables with the correlation r."""
