"""Probabilities and quantiles whose derivatives follow from the density, where SciPy's own formula is not supported.

The value is SciPy's. The derivative of a probability is an integral of the derivative of the density; that of a quantile follows from the
implicit function theorem, as that of Newton's iteration at its fixed point.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from gradtape.errors import ConcretizationError, NotDifferentiableError, UnsupportedFunctionError
from gradtape.ir.builder import here
from gradtape.ir.graph import Value
from gradtape.ir.op import NDArray
from gradtape.ir.types import FLOAT64
from gradtape.kinds.arguments import as_array
from gradtape.kinds.operands import broadcast_shapes, broadcast_to
from gradtape.kinds.registry import HOOKS
from gradtape.kinds.routines.callback import Callback, callback_row
from gradtape.ops.core.elementwise.cast import convert, stop_gradient
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.core.elementwise.signs import absolute
from gradtape.ops.core.shape import reshape
from gradtape.ops.scipy.stats.quadrature import integral, known_where, rank_of, support

UNSUPPORTED: Final = (UnsupportedFunctionError, ConcretizationError)
"""Errors of private methods that call compiled code without a rule."""

AGREEMENT: Final = 1e-6
"""The largest relative difference of a probability of SciPy's from the integral of the density."""

MOST_SHAPES: Final = 5
"""The largest number of shape parameters of a distribution of SciPy's."""


def _evaluate(*arrays: NDArray, distribution: str, method: str) -> NDArray:
    import scipy.stats  # late: compiled programs without such calls do without it

    numbers = getattr(getattr(scipy.stats, distribution), method)
    with np.errstate(all="ignore"):
        if method not in INVERSE_SLOPES:
            return np.asarray(numbers(*arrays), np.float64)
        # At 0 and 1 searches do not end, or raise errors as Boost's quantiles do; SciPy's methods do not ask for them.
        inside = (arrays[0] > 0.0) & (arrays[0] < 1.0)
        found = np.full(arrays[0].shape, np.nan)
        found[inside] = numbers(*[array[inside] for array in arrays])
        return found


def _row(count: int) -> Callback:
    return callback_row(
        f"distribution_{count}",
        ranks=(1,) * (count + 1),
        shapes=lambda *shapes, **params: (shapes[0],),
        evaluate=_evaluate,
        tangent=None,
        samples=(),
    )


SLOPES: Final = {"_cdf": 1.0, "_sf": -1.0}
"""Methods whose derivatives in the point are the density, times these."""

INVERSE_SLOPES: Final = {"_ppf": 1.0, "_isf": -1.0}
"""Methods whose derivatives in the level are these, over the density."""


def _slope(outs: Sequence[Value], inputs: Sequence[Value], params: dict[str, Any]) -> Callable[..., Any]:
    distribution, method = params["distribution"], params["method"]

    def push(tangents: Sequence[Value | None]) -> Value | None:
        place = next(k for k, tangent in reversed(list(enumerate(tangents))) if tangent is not None)
        known = method in SLOPES or method in INVERSE_SLOPES
        if place or not known:
            raise NotDifferentiableError(
                f"scipy.stats.{distribution}.{method[1:]} has no derivative in "
                f"{'its shape parameters' if place else 'its point'} here",
                where=here.site,
                why="SciPy computes it by a search, a recurrence or an integral without a rule",
                remedy="hold it fixed: gt.stop_gradient(...)",
            )
        assert tangents[0] is not None
        x = inputs[0] if method in SLOPES else outs[0]
        density = _SLOPED[len(inputs) - 1](x, *inputs[1:], distribution=distribution, method="_pdf")
        if method in SLOPES:
            return tangents[0] * density * SLOPES[method]
        return tangents[0] / density * INVERSE_SLOPES[method]

    return push


def _sloped_row(count: int) -> Callback:
    return callback_row(
        f"distribution_function_{count}",
        ranks=(1,) * (count + 1),
        shapes=lambda *shapes, **params: (shapes[0],),
        evaluate=_evaluate,
        tangent=_slope,
        samples=(),
    )


_SLOPED: Final = [_sloped_row(count) for count in range(MOST_SHAPES + 1)]
_ROWS: Final = [_row(count) for count in range(MOST_SHAPES + 1)]


def numbers(distribution: Any, method: str, *operands: Any) -> Value:
    """Return what a private method of a distribution in `scipy.stats` returns, as constants for derivatives."""
    return _called(_ROWS, distribution, method, operands)


def of_whole_numbers(distribution: Any) -> bool:
    """Return whether all shape parameters are whole numbers: what depends on them alone has no derivatives."""
    shapes = distribution._shape_info()
    return bool(shapes) and all(shape.integrality for shape in shapes)


def function_of_point(distribution: Any, method: str, *operands: Any) -> Value:
    """Return what a private method of a distribution returns; a probability has a derivative in its point, the density, and a quantile in
    its level; others have none: to ask for them is an error."""
    return _called(_SLOPED, distribution, method, operands)


def _called(rows: Sequence[Callback], distribution: Any, method: str, operands: Sequence[Any]) -> Value:
    known: Any = getattr(sys.modules["scipy.stats"], str(distribution.name), None)
    if known is not distribution:
        raise UnsupportedFunctionError(
            f"{type(distribution).__name__}.{method} is not supported by gradtape",
            where=here.site,
            why="the distribution is not one of scipy.stats",
            remedy=f"write {method} with functions that have rules",
        )
    arrays = [as_array(operand) for operand in operands]
    shape = broadcast_shapes([array.shape for array in arrays])
    flat = [reshape(broadcast_to(convert(array, FLOAT64), shape), (math.prod(shape),)) for array in arrays]
    return reshape(rows[len(arrays) - 1](*flat, distribution=distribution.name, method=method), shape)


def private(distribution: Any, method: str, x: Any, shapes: tuple[Any, ...]) -> Value:
    """Return the result of a private method, or if it calls compiled code without a rule, SciPy's value with its derivative."""
    try:
        return as_array(HOOKS.call(getattr(distribution, method), x, *shapes))
    except UNSUPPORTED:
        rule = _RULES.get(method)
        if rule is None:
            return function_of_point(distribution, method, x, *shapes)
    try:
        return rule(distribution, as_array(x), shapes)
    except UNSUPPORTED:  # neither is the density
        return function_of_point(distribution, method, x, *shapes)


def with_derivatives(value: Value, mass: Value) -> Value:
    """Return SciPy's value with the derivatives of the integral, and NaN where the two differ."""
    same = absolute(mass - value) <= AGREEMENT * (value + mass)
    return known_where(same, stop_gradient(value) + (mass - stop_gradient(mass)))


def probability_below(distribution: Any, x: Value, shapes: tuple[Any, ...]) -> Value:
    """Return the probability up to x: SciPy's value, with the derivatives of the integral of the density."""
    low, high = support(distribution, shapes)
    value = numbers(distribution, "_cdf", x, *shapes)
    inside = where(x > low, where(x < high, x, high), low)
    return with_derivatives(value, _mass(distribution, low, inside, shapes))


def probability_above(distribution: Any, x: Value, shapes: tuple[Any, ...]) -> Value:
    """Return the probability from x on, as `probability_below`."""
    low, high = support(distribution, shapes)
    value = numbers(distribution, "_sf", x, *shapes)
    inside = where(x > low, where(x < high, x, high), low)
    return with_derivatives(value, _mass(distribution, inside, high, shapes))


def _mass(distribution: Any, low: Any, high: Any, shapes: tuple[Any, ...]) -> Value:
    """Return the integral of the density: in two parts if 0, where densities may have a cusp, can lie inside."""

    def density(t: Value) -> Value:
        return as_array(HOOKS.call(distribution._pdf, t, *shapes))

    rank = rank_of(low, high, *shapes)
    if distribution.a >= 0 or distribution.b <= 0:
        return integral(density, low, high, rank)
    # An end that is 0 itself is the middle, which then moves with it.
    middle = where(as_array(low) >= 0.0, low, where(as_array(high) <= 0.0, high, 0.0))
    return integral(density, low, middle, rank) + integral(density, middle, high, rank)


def _quantile(method: str, probability: str, sign: float) -> Callable[..., Value]:
    def rule(distribution: Any, q: Value, shapes: tuple[Any, ...]) -> Value:
        x: Value = numbers(distribution, method, q, *shapes)
        for _ in range(2):  # Newton's iteration doubles the order to which derivatives are exact: here 3
            missing = q - private(distribution, probability, x, shapes)
            x = x + sign * missing / private(distribution, "_pdf", x, shapes)
        return x

    return rule


quantile_below: Final = _quantile("_ppf", "_cdf", 1.0)
quantile_above: Final = _quantile("_isf", "_sf", -1.0)

_RULES: Final[dict[str, Callable[..., Value]]] = {
    "_cdf": probability_below,
    "_sf": probability_above,
    "_ppf": quantile_below,
    "_isf": quantile_above,
}
