"""Methods of discrete distributions, for all distributions: `scipy.stats.rv_discrete`.

The points are integers, and quantiles too: there is a derivative in shape parameters only, that of probabilities.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from gradtape.ir.graph import Value
from gradtape.ir.types import FLOAT64
from gradtape.kinds.arguments import as_array, concrete
from gradtape.kinds.registry import HOOKS, borrows
from gradtape.ops.core.elementwise.cast import convert, stop_gradient
from gradtape.ops.core.elementwise.floats import floor, isnan
from gradtape.ops.core.elementwise.logic import equal, greater, greater_equal, less, less_equal
from gradtape.ops.core.elementwise.power import power
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.core.elementwise.signs import absolute
from gradtape.ops.core.indexing import getitem
from gradtape.ops.core.reductions import reduce_sum
from gradtape.ops.scipy.special.entropy import entr
from gradtape.ops.scipy.stats import quadrature
from gradtape.ops.scipy.stats.implicit import numbers, of_whole_numbers
from gradtape.ops.scipy.stats.parameters import Parameters, finish, is_number, parameters
from gradtape.ops.scipy.stats.quadrature import along_first_axis, known_where, rank_of


def _point(k: Any, given: Parameters) -> Value:
    point = stop_gradient(as_array(k, "k"))
    return point if is_number(given.loc, 0) else point - stop_gradient(given.loc)


def _clipped(result: Any) -> Value:
    """Return probabilities, which rounding errors may have moved, in [0, 1]."""
    value = as_array(result)
    return where(less(value, 0.0), 0.0, where(greater(value, 1.0), 1.0, value))


def _of_mass(name: str, outside: float, is_probability: bool) -> None:
    @borrows(f"scipy.stats.rv_discrete.{name}")
    def method(self: Any, k: Any, *args: Any, **kwds: Any) -> Value:
        given = parameters(self, args, kwds)
        point = _point(k, given)
        result = HOOKS.call(getattr(self, f"_{name}"), point, *given.shapes)
        result = _clipped(result) if is_probability else result
        inside = greater_equal(point, given.low) & less_equal(point, given.high)
        integral = HOOKS.call(self._nonzero, point, *given.shapes)
        result = where(inside & as_array(integral), result, outside)
        return finish(where(_is_nan(point), np.nan, result), given, point)


_of_mass("pmf", 0.0, True)
_of_mass("logpmf", -np.inf, False)


def _is_nan(point: Value) -> Any:
    return isnan(point) if point.dtype.kind == "f" else as_array(False)


def _of_probability(name: str, at_low: float, at_high: float) -> None:
    @borrows(f"scipy.stats.rv_discrete.{name}")
    def method(self: Any, k: Any, *args: Any, **kwds: Any) -> Value:
        given = parameters(self, args, kwds)
        point = _point(k, given)
        result = as_array(HOOKS.call(getattr(self, f"_{name}"), point, *given.shapes))
        result = result if name.startswith("log") else _clipped(result)
        result = where(less(point, given.low), at_low, result)
        result = where(greater_equal(point, given.high), at_high, result)
        return finish(where(_is_nan(point), np.nan, result), given, point)


_of_probability("cdf", 0.0, 1.0)
_of_probability("logcdf", -np.inf, 0.0)
_of_probability("sf", 1.0, 0.0)
_of_probability("logsf", 0.0, -np.inf)


def _of_quantile(name: str, at_zero: str, at_one: str) -> None:
    @borrows(f"scipy.stats.rv_discrete.{name}")
    def method(self: Any, q: Any, *args: Any, **kwds: Any) -> Value:
        given = parameters(self, args, kwds)
        level = stop_gradient(as_array(q, "q"))
        shapes = [stop_gradient(as_array(shape)) for shape in given.shapes]
        ends = {"low": as_array(given.low) - 1.0, "high": as_array(given.high)}
        result = where(greater(level, 0) & less(level, 1), numbers(self, f"_{name}", level, *shapes), np.nan)
        result = where(equal(level, 0), stop_gradient(ends[at_zero]), result)
        result = where(equal(level, 1), stop_gradient(ends[at_one]), result)
        return finish(result + given.loc, given, level)


_of_quantile("ppf", "low", "high")
_of_quantile("isf", "high", "low")


@borrows("scipy.stats.rv_discrete._cdf")
def cdf(self: Any, k: Any, *shapes: Any) -> Value:
    """Follow the private method: the sum of the probabilities up to k, over as many as the largest k needs."""
    point = floor(convert(as_array(k), FLOAT64))
    low, high = HOOKS.call(self._get_support, *shapes)
    ends = concrete(point, "k")
    finite = ends[np.isfinite(ends)]
    first = float(np.min(concrete(low, "the lower end of the support")))
    points = np.arange(first, np.max(finite, initial=first) + 1)
    terms = along_first_axis(points, rank_of(point, *shapes))
    inside = less_equal(terms, point) & greater_equal(terms, low) & less_equal(terms, high)
    masses = where(inside, HOOKS.call(self._pmf, terms, *shapes), 0.0)
    return where(equal(point, np.inf), 1.0, reduce_sum(masses, axes=(0,)))


REACH: Final = 1000
"""How many integers a sum over the support extends to either side of the median, as SciPy's does."""


def total(self: Any, function: Callable[[Value, Value], Value], shapes: tuple[Any, ...]) -> Value:
    """Return the sum of a function of the points and their probabilities: NaN where the last terms are not small."""
    low, high = HOOKS.call(self._get_support, *shapes)
    rank = rank_of(low, high, *shapes)
    centre = numbers(self, "_ppf", 0.5, *[stop_gradient(as_array(shape)) for shape in shapes])
    points = centre + along_first_axis(np.arange(-REACH, REACH + 1.0), rank)
    inside = greater_equal(points, low) & less_equal(points, high)
    safe = where(inside, points, centre)
    terms = where(inside, function(safe, as_array(HOOKS.call(self._pmf, safe, *shapes))), 0.0)
    result = reduce_sum(terms, axes=(0,))
    size = reduce_sum(absolute(terms), axes=(0,))
    ends = absolute(getitem(terms, (0,))) + absolute(getitem(terms, (2 * REACH,)))
    return known_where(ends <= 1e-10 * size, result)


@borrows("scipy.stats._distn_infrastructure.rv_generic._munp")
def moment(self: Any, n: Any, *shapes: Any) -> Value:
    """Follow the private method: a sum, or the integral for continuous distributions."""
    if not isinstance(self, sys.modules["scipy.stats"].rv_discrete):
        constant = of_whole_numbers(self)
        return numbers(self, "_munp", float(n), *shapes) if constant else quadrature.moment(self, n, *shapes)
    return total(self, lambda k, mass: power(k, float(n)) * mass, shapes)


@borrows("scipy.stats.rv_discrete._entropy", "scipy.stats._discrete_distns.binom_gen._entropy")
def entropy(self: Any, *shapes: Any) -> Value:
    """Follow the private method: the sum of -p log p."""

    def term(k: Value, mass: Value) -> Value:
        some = greater(mass, quadrature.NEGLIGIBLE)  # the second derivative of p log p is 1 / p
        return where(some, entr(where(some, mass, 1.0)), 0.0)

    return total(self, term, shapes)
