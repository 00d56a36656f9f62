"""Distributions with a shape parameter at one value of which SciPy takes the limit of their formulas (removable singularities).

SciPy selects the limit by a comparison, so that what depends on the parameter is lost there. The formulas here hold on both sides.
"""

from __future__ import annotations

import math
import sys
from functools import cache
from typing import Any, Final

import numpy as np

from gradtape.ir.graph import Value
from gradtape.ir.op import NDArray
from gradtape.kinds.arguments import as_array
from gradtape.ops.core.elementwise.exponential import exp
from gradtape.ops.core.elementwise.inverse import log, log1p
from gradtape.ops.core.elementwise.logic import equal, less
from gradtape.ops.core.elementwise.roots import sqrt
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.core.elementwise.signs import fabs
from gradtape.ops.scipy.stats.densities import private_rule, special
from gradtape.ops.scipy.stats.implicit import probability_above, probability_below
from gradtape.ops.scipy.stats.quadrature import SUPPORTS

NEAR: Final = 0.03
TERMS: Final = 14
"""Terms of a power series whose argument is at most `NEAR`: four derivatives of it are right."""


def _log_power(x: Value, c: Value) -> Value:
    """Return ``log1p(c * x) / c``, which is x at ``c = 0``: the logarithm of ``(1 + c x)**(1 / c)``."""
    z = c * x
    near = less(fabs(z), NEAR) | equal(c, 0.0)
    inner = where(near, z, 0.0)
    series: Value | float = 0.0
    for k in reversed(range(TERMS)):
        series = (-1.0) ** k / (k + 1) + inner * series
    return where(near, x * series, log1p(where(near, 0.5, z)) / where(near, 1.0, c))


def _power(x: Value, c: Value) -> Value:
    """Return ``expm1(c * x) / c``, which is x at ``c = 0``."""
    return x * special("exprel", c * x)


def _values(*parameters: Any) -> list[Value]:
    return [as_array(each) for each in parameters]


# Generalised extreme values and generalised Pareto


@private_rule("genextreme_gen._loglogcdf")
def genextreme_loglog(self: Any, x: Any, c: Any) -> Value:
    """Follow the method, also in the shape parameter at 0."""
    x, c = _values(x, c)
    return -_log_power(x, -c)


@private_rule("genextreme_gen._logpdf")
def genextreme(self: Any, x: Any, c: Any) -> Value:
    """Follow the method, also in the shape parameter at 0."""
    x, c = _values(x, c)
    end = equal(c * x, 1.0)
    inner = where(end, 0.0, x)
    level = -_log_power(inner, -c)
    return where(end, where(equal(c, 1.0), 0.0, -np.inf), level - exp(level) - log1p(-c * inner))


@private_rule("genextreme_gen._ppf")
def genextreme_quantile(self: Any, q: Any, c: Any) -> Value:
    """Follow the method, also in the shape parameter at 0."""
    q, c = _values(q, c)
    return _power(-log(-log(q)), -c)


@private_rule("genextreme_gen._isf")
def genextreme_quantile_above(self: Any, q: Any, c: Any) -> Value:
    """Follow the method, also in the shape parameter at 0."""
    q, c = _values(q, c)
    return _power(-log(-log1p(-q)), -c)


STANDARD_TERMS: Final = 18
"""Terms of the power series of the moments of extreme values, which converge for shapes below 1/4."""


def _exponential(series: NDArray) -> NDArray:
    """Return the exponential of a power series without a constant term."""
    exponential = np.zeros_like(series)
    exponential[0] = 1.0
    for n in range(1, len(series)):
        exponential[n] = sum(k * series[k] * exponential[n - k] for k in range(1, n + 1)) / n
    return exponential


def _quotient(first: NDArray, second: NDArray) -> NDArray:
    quotient = np.zeros_like(first)
    for n in range(len(first)):
        quotient[n] = (first[n] - quotient[:n] @ second[n:0:-1]) / second[0]
    return quotient


@cache
def _moment_series() -> NDArray:
    """Return mean, variance, skewness and excess kurtosis of extreme values as power series in the shape parameter c.

    With g(k) = gamma(1 + k c), the mean is (1 - g(1)) / c, and the central moments are those of -g / c; log g(k) has the coefficients
    zeta(j) (-k)**j / j.
    """
    zeta: Any = sys.modules["scipy.special"].zeta
    size = STANDARD_TERMS + 4
    j = np.arange(2, size)
    logarithms = np.zeros((5, size))
    for k in range(1, 5):
        logarithms[k, 2:] = zeta(j) * (-float(k)) ** j / j
        logarithms[k, 1] = -np.euler_gamma * k
    # Divided by powers of g(1), so that the linear terms cancel exactly.
    ratios = [_exponential(logarithms[k] - k * logarithms[1]) for k in range(5)]
    first_moment = _exponential(logarithms[1])
    count = STANDARD_TERMS
    mean = -first_moment[1 : count + 1]
    second = (ratios[2] - ratios[0])[2 : count + 2]
    third = -(ratios[3] - 3 * ratios[2] + 2 * ratios[0])[3 : count + 3]
    fourth = (ratios[4] - 4 * ratios[3] + 6 * ratios[2] - 3 * ratios[0])[4 : count + 4]
    scale = second[0]
    logarithm = _logarithm(second / scale)
    skew = np.convolve(third, _exponential(-1.5 * logarithm))[:count] / scale**1.5
    excess = _quotient(fourth, np.convolve(second, second)[:count])
    excess[0] -= 3.0
    variance = np.convolve(second, np.convolve(first_moment[:count], first_moment[:count])[:count])[:count]
    return np.stack([mean, variance, skew, excess])


def _logarithm(series: NDArray) -> NDArray:
    """Return the logarithm of a power series that begins with 1."""
    logarithm = np.zeros_like(series)
    for n in range(1, len(series)):
        logarithm[n] = series[n] - sum(k * logarithm[k] * series[n - k] for k in range(1, n)) / n
    return logarithm


@private_rule("genextreme_gen._stats")
def genextreme_stats(self: Any, c: Any) -> tuple[Value, ...]:
    """Follow the method, also in the shape parameter at 0."""
    (c,) = _values(c)
    near = less(fabs(c), NEAR)
    inner, outer = where(near, c, 0.0), where(near, 0.5, c)
    g: list[Any] = [1.0, *[special("gamma", k * outer + 1.0) for k in range(1, 5)]]
    spread = g[2] - g[1] * g[1]
    signs = where(less(outer, 0.0), -1.0, 1.0)
    far = (
        (1.0 - g[1]) / outer,
        spread / (outer * outer),
        signs * (-g[3] + (g[2] + 2.0 * spread) * g[1]) / (spread * sqrt(spread)),
        (g[4] + (-4.0 * g[3] + 3.0 * (g[2] + spread) * g[1]) * g[1]) / (spread * spread) - 3.0,
    )
    statistics = []
    for k, (coefficients, formula) in enumerate(zip(_moment_series(), far, strict=True)):
        series: Value | float = 0.0
        for coefficient in coefficients[::-1]:
            series = float(coefficient) + inner * series
        last = -1.0 / (k + 1)
        formula = where(equal(outer, last), np.inf, where(less(outer, last), np.nan, formula))
        statistics.append(where(near, series, formula))
    return tuple(statistics)


@private_rule("genpareto_gen._logpdf")
def genpareto(self: Any, x: Any, c: Any) -> Value:
    """Follow the method, also in the shape parameter at 0."""
    x, c = _values(x, c)
    end = equal(c, -1.0) & equal(x, 1.0)
    return where(end, 0.0, -(c + 1.0) * _log_power(where(end, 0.0, x), c))


@private_rule("genpareto_gen._logsf")
def genpareto_logsf(self: Any, x: Any, c: Any) -> Value:
    """Follow the method, also in the shape parameter at 0."""
    return -_log_power(*_values(x, c))


# The kappa distribution with four parameters: F = (1 - h u)**(1/h), where u = (1 - k x)**(1/k)


def _log_slope(x: Value, c: Value) -> Value:
    """Return ``(1 / c - 1) * log1p(-c * x)``, which is 0 for ``c = 1``."""
    end = equal(c, 1.0) & equal(x, 1.0)
    inner = where(end, 0.0, x)
    return where(end, 0.0, -_log_power(inner, -c) - log1p(-c * inner))


def _outer(x: Value, k: Value) -> Value:
    return exp(-_log_power(x, -k))


@private_rule("kappa4_gen._get_support")
def kappa4_support(self: Any, h: Any, k: Any) -> tuple[Value, Value]:
    """Follow the method: the ends are those of u in [0, 1 / h], where that is bounded."""
    h, k = _values(h, k)
    positive = less(0.0, h)
    bounded = _power(log(where(positive, h, 1.0)), -k)
    end = 1.0 / where(equal(k, 0.0), 1.0, k)
    low = where(positive, bounded, where(less(k, 0.0), end, -np.inf))
    return low, where(less(0.0, k), end, np.inf)


@private_rule("kappa4_gen._logpdf")
def kappa4(self: Any, x: Any, h: Any, k: Any) -> Value:
    """Follow the method, also in the shape parameters at 0."""
    x, h, k = _values(x, h, k)
    return _log_slope(x, k) + _log_slope(_outer(x, k), h)


@private_rule("kappa4_gen._logcdf")
def kappa4_logcdf(self: Any, x: Any, h: Any, k: Any) -> Value:
    """Follow the method, also in the shape parameters at 0."""
    x, h, k = _values(x, h, k)
    return -_log_power(_outer(x, k), -h)


@private_rule("kappa4_gen._ppf")
def kappa4_quantile(self: Any, q: Any, h: Any, k: Any) -> Value:
    """Follow the method, also in the shape parameters at 0."""
    q, h, k = _values(q, h, k)
    return _power(-log(-_power(log(q), h)), -k)


# Von Mises: exp(-kappa) I0(kappa) has a kink at the end of the domain


def _log_scaled_bessel(kappa: Value) -> Value:
    small = less(kappa, 1.0)
    near = log(special("i0", where(small, kappa, 0.0))) - kappa
    return where(small, near, log(special("i0e", where(small, 1.0, kappa))))


@private_rule("vonmises_gen._logpdf")
def vonmises(self: Any, x: Any, kappa: Any) -> Value:
    """Follow the method, also in the concentration at 0."""
    x, kappa = _values(x, kappa)
    result: Value = kappa * special("cosm1", x) - math.log(2 * math.pi) - _log_scaled_bessel(kappa)
    return result


@private_rule("vonmises_gen._pdf")
def vonmises_density(self: Any, x: Any, kappa: Any) -> Value:
    """Follow the method, also in the concentration at 0."""
    return exp(as_array(vonmises(self, x, kappa)))


@private_rule("vonmises_gen._entropy")
def vonmises_entropy(self: Any, kappa: Any) -> Value:
    """Follow the method, also in the concentration at 0."""
    kappa = as_array(kappa)
    ratio = special("i1e", kappa) / special("i0e", kappa)
    result: Value = -kappa * ratio + math.log(2 * math.pi) + _log_scaled_bessel(kappa) + kappa
    return result


# Pearson's type III: a shifted gamma distribution; SciPy takes the normal one for skews below a limit

SKEW: Final = 0.000016
UNDERFLOW: Final = 40.0
"""Standard deviations beyond which the normal density is zero in double precision."""


@private_rule("pearson3_gen._logpdf")
def pearson3(self: Any, x: Any, skew: Any) -> Value:
    """Follow the method; near the normal distribution by Edgeworth's series in the skew."""
    x, skew = _values(x, skew)
    near = less(fabs(skew), SKEW)
    beta = 2.0 / where(near, 1.0, skew)
    alpha = beta * beta
    z = beta * x + alpha
    inside = less(0.0, z)
    far = log(fabs(beta)) + (alpha - 1.0) * log(where(inside, z, 1.0)) - z - special("gammaln", alpha)
    small = where(near, skew, 0.0)
    inner = where(less(fabs(x), UNDERFLOW), x, 0.0)
    square = inner * inner
    third = inner * (square - 3.0) / 6.0
    fourth = square * (2.0 - square) / 16.0 - 1.0 / 48.0
    series = -0.5 * x * x - 0.5 * math.log(2 * math.pi) + small * third + small * small * fourth
    return where(near, series, where(inside, far, -np.inf))


def _pearson3_support(skew: Any) -> tuple[Value, Value]:
    skew = as_array(skew)
    near = less(fabs(skew), SKEW)
    end = -2.0 / where(near, 1.0, skew)
    return where(near | less(skew, 0.0), -np.inf, end), where(near | less(0.0, skew), np.inf, end)


SUPPORTS["pearson3"] = _pearson3_support


@private_rule("pearson3_gen._ppf")
def pearson3_quantile(self: Any, q: Any, skew: Any) -> Value:
    """Follow the method; near the normal distribution by Cornish and Fisher's series in the skew."""
    q, skew = _values(q, skew)
    near = less(fabs(skew), SKEW)
    beta = 2.0 / where(near, 1.0, skew)
    level = where(less(beta, 0.0), 1.0 - q, q)
    far = special("gammaincinv", beta * beta, level) / beta - beta
    z = special("ndtri", q)
    small = where(near, skew, 0.0)
    series = z + small * (z * z - 1.0) / 6.0 + small * small * (z * z * z - 7.0 * z) / 144.0
    return where(near, series, far)


@private_rule("pearson3_gen._cdf")
def pearson3_below(self: Any, x: Any, skew: Any) -> Any:
    """Follow the method: the integral of the density, whose derivatives are right near the normal distribution too."""
    return probability_below(self, as_array(x), (skew,))


@private_rule("pearson3_gen._sf")
def pearson3_above(self: Any, x: Any, skew: Any) -> Any:
    """Follow the method, as the one for the probability below."""
    return probability_above(self, as_array(x), (skew,))
