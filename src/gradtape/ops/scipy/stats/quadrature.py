"""Integrals over the support of a distribution, by double exponential quadrature.

SciPy integrates with QUADPACK, which needs numbers. Here the nodes are an axis in front of the arrays, so that an integral is a sum,
with derivatives under the integral sign, of any order, also in its bounds.

References
----------
H. Takahasi and M. Mori, "Double exponential formulas for numerical integration", 1974.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from gradtape.ir.graph import Literal, Value, constant
from gradtape.ir.op import NDArray
from gradtape.kinds.arguments import as_array
from gradtape.kinds.operands import broadcast_shapes
from gradtape.kinds.registry import HOOKS, borrows
from gradtape.ops.core.elementwise.cast import stop_gradient
from gradtape.ops.core.elementwise.floats import isfinite, isinf
from gradtape.ops.core.elementwise.logic import equal, greater, not_equal
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.core.elementwise.signs import absolute
from gradtape.ops.core.indexing import getitem
from gradtape.ops.core.reductions import reduce_sum
from gradtape.ops.scipy.special.entropy import entr

STEP: Final = 1 / 64
"""The distance of the nodes before the substitution."""

TOLERANCE: Final = 1e-4
"""The largest relative difference of the sums over all nodes and over every second one: elsewhere the result is NaN. Convergence is
quadratic, so that the error is about the square of the difference."""


def _grid(last: float) -> NDArray:
    count = 2 * int(last / STEP / 2)
    return np.arange(-count, count + 1) * STEP


def _finite() -> tuple[NDArray, NDArray]:
    t = _grid(6.0)
    s = 1 / (1 + np.exp(-np.pi * np.sinh(t)))
    return s, np.pi * np.cosh(t) * s / (1 + np.exp(np.pi * np.sinh(t)))


def _half() -> tuple[NDArray, NDArray]:
    t = _grid(6.0)
    s = np.exp(0.5 * np.pi * np.sinh(t))
    return s, 0.5 * np.pi * np.cosh(t) * s


def _line() -> tuple[NDArray, NDArray]:
    t = _grid(6.0)
    u = 0.5 * np.pi * np.sinh(t)
    return np.sinh(u), 0.5 * np.pi * np.cosh(t) * np.cosh(u)


TOLERANCE_OF_VALUES: Final = 1e-8
"""The same where the integral is the value of a method, and the density may have a kink: then the error is as large as the difference,
which is 1e-4 for the statistic of Kolmogorov and Smirnov."""


def along_first_axis(numbers: NDArray, rank: int) -> Value:
    """Return numbers on an axis in front of so many others."""
    return constant(numbers.reshape(-1, *(1,) * rank))


def integral(
    function: Callable[[Value], Any], low: Any, high: Any, rank: int, tolerance: float = TOLERANCE
) -> Value:
    """Return the integrals of a function between bounds, which may be infinite.

    Parameters
    ----------
    function : callable
        Of arrays with the nodes on the first axis.
    low, high : number, array or Value
    rank : int
        The number of axes of the result.
    tolerance : float
        As `TOLERANCE`.
    """
    x, weights = _nodes(low, high, rank)
    values = as_array(function(x)) * weights
    # Far out a zero is an underflow, whose derivative may be no number. At inner nodes, and where the bounds are equal, it is a zero.
    has_no_width = equal(getitem(weights, (weights.shape[0] // 2,)), 0.0)
    counts = not_equal(values, 0.0) | _inner_nodes(values) | has_no_width
    terms = where(isfinite(values) & counts, values, 0.0)
    every_second = np.zeros(terms.shape[0])
    every_second[::2] = 2.0
    total = STEP * reduce_sum(terms, axes=(0,))
    coarse = STEP * reduce_sum(terms * along_first_axis(every_second, terms.ndim - 1), axes=(0,))
    size = STEP * reduce_sum(absolute(terms), axes=(0,))
    accurate = absolute(total - coarse) <= tolerance * size
    middle = getitem(values, (len(every_second) // 2,))  # at an inner point a function has a value
    accurate = accurate & isfinite(middle)
    return known_where(accurate, total)


def _inner_nodes(values: Value) -> Value:
    """Return which values, by the first axis, are at inner nodes: on half a line those between 0.44 and 2.3."""
    count = values.shape[0]
    inner = np.abs(np.arange(count) - count // 2) * STEP <= 0.5
    return along_first_axis(inner, values.ndim - 1)


def known_where(accurate: Value, value: Value) -> Value:
    """Return a value where it is known, and elsewhere NaN with derivatives that are NaN: those of a selection would be 0."""
    return value * where(accurate, 1.0, np.nan)


def _nodes(low: Any, high: Any, rank: int) -> tuple[Value, Value]:
    """Return the nodes and weights, of the substitution for the bounds that are infinite: traced ones are asked."""
    no_low, no_high = _is_infinite(low), _is_infinite(high)
    if no_low is True and no_high is True:
        s, w = _line()
        return along_first_axis(s, rank), along_first_axis(w, rank)
    s, w = _half()
    if no_low is True:
        return as_array(high) - along_first_axis(s, rank), along_first_axis(w, rank)
    if no_high is True:
        return as_array(low) + along_first_axis(s, rank), along_first_axis(w, rank)
    start, end = as_array(low), as_array(high)
    part, part_weights = _finite()
    x, weights = (
        start + (end - start) * along_first_axis(part, rank),
        (end - start) * along_first_axis(part_weights, rank),
    )
    for mask, far in (
        (no_low, end - along_first_axis(s, rank)),
        (no_high, start + along_first_axis(s, rank)),
    ):
        if mask is not False:
            x, weights = where(mask, far, x), where(mask, along_first_axis(w, rank), weights)
    if no_low is not False and no_high is not False:
        both = as_array(no_low) & no_high
        s, w = _line()
        x = where(both, along_first_axis(s, rank), x)
        weights = where(both, along_first_axis(w, rank), weights)
    return x, weights


def _is_infinite(bound: Any) -> Any:
    """Return whether a bound is infinite: a boolean if that is known, and the same, for all integrals."""
    if isinstance(bound, Value) and not isinstance(bound, Literal):
        return isinf(bound)
    numbers: Any = bound.data if isinstance(bound, Literal) else bound
    infinite = np.isinf(numbers)
    return bool(infinite.all()) if infinite.all() == infinite.any() else isinf(as_array(bound))


def rank_of(*operands: Any) -> int:
    """Return the rank of what operands are broadcast to."""
    return len(broadcast_shapes([x.shape if isinstance(x, Value) else np.shape(x) for x in operands]))


SUPPORTS: Final[dict[str, Callable[..., tuple[Any, Any]]]] = {}
"""Supports, as functions of the shapes, of distributions whose ``_get_support`` is larger: a density jumps inside it."""


BREAKS: Final[dict[str, Callable[..., Any]]] = {}
"""A point, as a function of the shapes, at which to divide the integral over the support of a distribution: a narrow peak, or a kink."""

NEGLIGIBLE: Final = 1e-100
"""Below this the derivatives of an integrand are left out: SciPy's formulas overflow in them before the density is zero."""


def _over_support(distribution: Any, function: Callable[[Value], Any], shapes: tuple[Any, ...]) -> Value:
    """Return the integral of a function over the support."""
    low, high = support(distribution, shapes)
    if distribution.name == "vonmises":
        low, high = -np.pi, np.pi
    at = BREAKS.get(distribution.name)
    ends = [low, high] if at is None else [low, at(*shapes), high]
    parts = [
        integral(_without_zeros(function), start, end, rank_of(*shapes), TOLERANCE_OF_VALUES)
        for start, end in itertools.pairwise(ends)
    ]
    return sum(parts[1:], parts[0])


def support(distribution: Any, shapes: tuple[Any, ...]) -> tuple[Any, Any]:
    """Return where the density of a standard distribution is positive."""
    own = SUPPORTS.get(distribution.name)
    low, high = HOOKS.call(distribution._get_support, *shapes) if own is None else own(*shapes)
    return low, high


def _without_zeros(function: Callable[[Value], Any]) -> Callable[[Value], Value]:
    """Return the function, without derivatives where it is negligible or infinite: where powers overflow, those are no numbers."""

    def guarded(x: Value) -> Value:
        values = as_array(function(x))
        inner = isfinite(values) & greater(absolute(values), NEGLIGIBLE)
        middle = getitem(x, (x.shape[0] // 2,))
        return where(inner, as_array(function(where(inner, x, middle))), stop_gradient(values))

    return guarded


def entropy(self: Any, *shapes: Any) -> Value:
    """Return the expectation of -log p."""

    def integrand(x: Value) -> Value:
        return entr(as_array(HOOKS.call(self._pdf, x, *shapes)))

    return _over_support(self, integrand, shapes)


def moment(self: Any, n: Any, *shapes: Any) -> Value:
    """Return the expectation of x**n."""

    def integrand(x: Value) -> Value:
        return x ** int(n) * as_array(HOOKS.call(self._pdf, x, *shapes))

    return _over_support(self, integrand, shapes)


@borrows("scipy.stats.rv_continuous._cdf")
def cdf(self: Any, x: Any, *shapes: Any) -> Value:
    """Follow the private method: the integral of the density."""

    def integrand(t: Value) -> Value:
        return as_array(HOOKS.call(self._pdf, t, *shapes))

    low, _ = support(self, shapes)
    return integral(integrand, low, as_array(x), rank_of(x, low, *shapes), TOLERANCE_OF_VALUES)
