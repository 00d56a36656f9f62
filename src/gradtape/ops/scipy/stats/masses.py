"""Private methods of single discrete distributions that SciPy computes by compiled code.

References
----------
N. L. Johnson, A. W. Kemp and S. Kotz, "Univariate discrete distributions", 3rd edition, 2005.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gradtape.ir.graph import Value
from gradtape.kinds.arguments import as_array, concrete
from gradtape.kinds.registry import HOOKS, borrows
from gradtape.ops.core.elementwise.exponential import exp
from gradtape.ops.core.elementwise.floats import floor
from gradtape.ops.core.elementwise.inverse import log
from gradtape.ops.core.elementwise.logic import greater, greater_equal, less_equal
from gradtape.ops.core.elementwise.power import power
from gradtape.ops.core.elementwise.roots import sqrt
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.core.elementwise.signs import absolute
from gradtape.ops.core.reductions import reduce_sum
from gradtape.ops.scipy.stats.densities import special
from gradtape.ops.scipy.stats.discrete import REACH
from gradtape.ops.scipy.stats.implicit import numbers
from gradtape.ops.scipy.stats.quadrature import along_first_axis, integral, rank_of

Rule = Callable[..., Any]


def private_rule(*names: str) -> Callable[[Rule], Rule]:
    """Let a function run in place of private methods, given as class and method."""
    return borrows(*[f"scipy.stats._discrete_distns.{name}" for name in names])


@private_rule("binom_gen._pmf", "nbinom_gen._pmf", "hypergeom_gen._pmf")
def exponential(self: Any, k: Any, *shapes: Any) -> Value:
    """Follow the method: the exponential of the logarithm, which has a closed form."""
    return exp(as_array(HOOKS.call(self._logpmf, k, *shapes)))


def _hypergeometric(name: str) -> None:
    @private_rule(f"hypergeom_gen.{name}")
    def method(self: Any, k: Any, M: Any, n: Any, N: Any) -> Value:
        """Return SciPy's value: all parameters are integers, without derivatives."""
        return numbers(self, name, k, M, n, N)


for _name in ("_cdf", "_sf", "_logcdf", "_logsf"):
    _hypergeometric(_name)


def _binomial(name: str, ufunc: str, at_last: float) -> None:
    @private_rule(f"binom_gen.{name}")
    def method(self: Any, k: Any, n: Any, p: Any) -> Value:
        k, n, p = floor(as_array(k)), as_array(n), as_array(p)
        rest = where(greater(n, k), n - k, 1.0)
        return where(greater(n, k), special(ufunc, rest, k + 1.0, 1.0 - p), at_last)


_binomial("_cdf", "betainc", 1.0)
_binomial("_sf", "betaincc", 0.0)


def _negative_binomial(name: str, ufunc: str) -> None:
    @private_rule(f"nbinom_gen.{name}")
    def method(self: Any, k: Any, n: Any, p: Any) -> Value:
        return special(ufunc, as_array(n), floor(as_array(k)) + 1.0, as_array(p))


_negative_binomial("_cdf", "betainc")
_negative_binomial("_sf", "betaincc")


@private_rule("nbinom_gen._logcdf")
def nbinom_log_below(self: Any, k: Any, n: Any, p: Any) -> Value:
    """Follow the method."""
    return log(as_array(HOOKS.call(self._cdf, k, n, p)))


@private_rule("nbinom_gen._stats")
def nbinom_moments(self: Any, n: Any, p: Any) -> tuple[Any, ...]:
    """Follow the method."""
    n, p = as_array(n), as_array(p)
    q = 1.0 - p
    return n * q / p, n * q / (p * p), (2.0 - p) / sqrt(n * q), (6.0 + p * p / q) / n


def _skellam(k: Value, first: Value, second: Value) -> Value:
    """Return the probability of k: a Bessel function of the order k."""
    order, root = absolute(k), 2.0 * sqrt(first * second)
    scaled = exp(0.5 * k * (log(first) - log(second)) - first - second + root)
    return scaled * special("ive", order, root)


@private_rule("skellam_gen._pmf")
def skellam(self: Any, k: Any, mu1: Any, mu2: Any) -> Value:
    """Follow the method."""
    return _skellam(as_array(k) * 1.0, as_array(mu1), as_array(mu2))


@private_rule("skellam_gen._cdf")
def skellam_below(self: Any, k: Any, mu1: Any, mu2: Any) -> Value:
    """Follow the method: a sum of probabilities, of which those far from the mean vanish."""
    k, first, second = floor(as_array(k) * 1.0), as_array(mu1), as_array(mu2)
    steps = along_first_axis(np.arange(REACH + 1.0), rank_of(k, first, second))
    return reduce_sum(_skellam(k - steps, first, second), axes=(0,))


def _harmonic(n: Any, exponent: Value) -> Callable[[Any, Any], Value]:
    """Return the function for the sums of k**-exponent from one integer up to another one."""
    last = float(np.max(concrete(n, "n")))
    points = along_first_axis(np.arange(1.0, last + 1), rank_of(exponent, n))

    def total(low: Any, high: Any) -> Value:
        inside = greater_equal(points, low) & less_equal(points, high)
        return reduce_sum(where(inside, power(points, -exponent), 0.0), axes=(0,))

    return total


@private_rule("zipfian_gen._pmf")
def zipfian(self: Any, k: Any, a: Any, n: Any) -> Value:
    """Follow the method."""
    k, a = as_array(k) * 1.0, as_array(a)
    return power(k, -a) / _harmonic(n, a)(1.0, n)


def _zipfian_sum(name: str) -> None:
    @private_rule(f"zipfian_gen.{name}")
    def method(self: Any, k: Any, a: Any, n: Any) -> Value:
        k, a = floor(as_array(k) * 1.0), as_array(a)
        count = as_array(n)
        total = _harmonic(n, a + 0.0 * k)
        ends = (1.0, k) if name == "_cdf" else (k + 1.0, count)
        return total(*ends) / total(1.0, count)


_zipfian_sum("_cdf")
_zipfian_sum("_sf")


@private_rule("zipfian_gen._stats")
def zipfian_moments(self: Any, a: Any, n: Any) -> tuple[Any, ...]:
    """Follow the method."""
    a, count = as_array(a), as_array(n)
    sums = [_harmonic(n, a - float(order))(1.0, count) for order in range(5)]
    m1, m2, m3, m4 = [each / sums[0] for each in sums[1:]]
    variance = m2 - m1 * m1
    third = m3 - 3.0 * m1 * m2 + 2.0 * m1 * m1 * m1
    fourth = m4 - 4.0 * m1 * m3 + 6.0 * m1 * m1 * m2 - 3.0 * m1 * m1 * m1 * m1
    return m1, variance, third / power(variance, 1.5), fourth / (variance * variance) - 3.0


# Noncentral hypergeometric distributions, with weights that sum to 1 over the support


def _choose(n: Any, k: Any) -> Value:
    n, k = as_array(n) * 1.0, as_array(k) * 1.0
    return special("gammaln", n + 1.0) - special("gammaln", k + 1.0) - special("gammaln", n - k + 1.0)


def _support(total: Any, good: Any, drawn: Any, rank: int) -> tuple[Value, Value]:
    """Return the possible numbers of good ones on an axis in front, and which of them are possible."""
    points = along_first_axis(np.arange(float(np.max(concrete(good, "n"))) + 1.0), rank)
    rest = as_array(total) - good
    possible = less_equal(points, drawn) & less_equal(points, good) & less_equal(drawn - points, rest)
    return points, possible


def _fisher(x: Value, total: Any, good: Any, drawn: Any, odds: Value) -> Value:
    rest = as_array(total) - good
    return _choose(good, x) + _choose(rest, as_array(drawn) - x) + x * log(odds)


def _fisher_mass(x: Value, M: Any, n: Any, N: Any, odds: Value) -> Value:
    points, possible = _support(M, n, N, rank_of(x, odds, M, n, N))
    own = _fisher(x, M, n, N, odds)
    others = _fisher(where(possible, points, x), M, n, N, odds)
    return 1.0 / reduce_sum(where(possible, exp(others - own), 0.0), axes=(0,))


def _wallenius(x: Value, total: Any, good: Any, drawn: Any, odds: Value) -> Value:
    left = as_array(drawn) - x
    rest = as_array(total) - good
    scale = odds * (good - x) + (rest - left)

    def integrand(t: Value) -> Value:
        logarithm = log(t)
        first = x * log(-_expm1(odds / scale * logarithm))
        return exp(first + left * log(-_expm1(logarithm / scale)))

    return exp(_choose(good, x) + _choose(rest, left)) * integral(
        integrand, 0.0, 1.0, rank_of(x, total, good, drawn, odds)
    )


def _expm1(x: Value) -> Value:
    return special("expm1", x)


@private_rule("_nchypergeom_gen._pmf")
def noncentral(self: Any, x: Any, M: Any, n: Any, N: Any, odds: Any) -> Value:
    """Follow the method: Fisher's weights divided by their sum, or Wallenius' integral."""
    mass = _fisher_mass if self.name == "nchypergeom_fisher" else _wallenius
    return mass(as_array(x) * 1.0, *map(as_array, (M, n, N, odds)))


@private_rule("_nchypergeom_gen._stats")
def noncentral_moments(self: Any, M: Any, n: Any, N: Any, odds: Any, moments: str = "mv") -> tuple[Any, ...]:
    """Follow the method: sums over the support."""
    points, possible = _support(M, n, N, rank_of(M, n, N, odds))
    safe = where(possible, points, as_array(HOOKS.call(self._get_support, M, n, N, odds)[0]) * 1.0)
    masses = where(possible, as_array(HOOKS.call(self._pmf, safe, M, n, N, odds)), 0.0)
    mean = reduce_sum(masses * points, axes=(0,))
    away = points - mean
    return mean, reduce_sum(masses * away * away, axes=(0,)), None, None
