"""Private methods of single continuous distributions that SciPy computes by compiled code, by loops, or with masks.

References
----------
N. L. Johnson, S. Kotz and N. Balakrishnan, "Continuous univariate distributions", 2nd edition, 1994 and 1995.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from gradtape.ir.graph import Value
from gradtape.kinds.arguments import as_array, concrete
from gradtape.kinds.registry import HOOKS, UFUNCS, borrows
from gradtape.ops.core.elementwise.cast import stop_gradient
from gradtape.ops.core.elementwise.exponential import cos, exp, expm1, sin
from gradtape.ops.core.elementwise.floats import floor
from gradtape.ops.core.elementwise.inverse import log, log1p
from gradtape.ops.core.elementwise.logic import equal, greater, greater_equal, less, less_equal
from gradtape.ops.core.elementwise.logistic import logaddexp
from gradtape.ops.core.elementwise.power import power
from gradtape.ops.core.elementwise.roots import sqrt
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.core.elementwise.signs import fabs
from gradtape.ops.core.reductions import reduce_sum
from gradtape.ops.scipy.special.distributions.normal import log_ndtr, ndtr
from gradtape.ops.scipy.stats.implicit import (
    function_of_point,
    numbers,
    probability_above,
    probability_below,
    quantile_above,
    quantile_below,
    with_derivatives,
)
from gradtape.ops.scipy.stats.quadrature import BREAKS, along_first_axis, integral, moment, rank_of

Rule = Callable[..., Any]
SQRT_2PI: Final = math.sqrt(2 * math.pi)


def private_rule(*names: str) -> Callable[[Rule], Rule]:
    """Let a function run in place of private methods, given as class and method."""
    return borrows(*[f"scipy.stats._continuous_distns.{name}" for name in names])


def special(name: str, *args: Any) -> Value:
    """Apply the row of a ufunc of `scipy.special`."""
    result: Value = UFUNCS[name](*args)
    return result


@private_rule("beta_gen._pdf", "ncx2_gen._pdf", "genhyperbolic_gen._pdf")
def exponential(self: Any, x: Any, *shapes: Any) -> Value:
    """Follow the method: the exponential of the logarithm, which has a closed form."""
    return exp(as_array(HOOKS.call(self._logpdf, x, *shapes)))


def _below(self: Any, x: Any, *shapes: Any) -> Value:
    return probability_below(self, as_array(x), shapes)


def _above(self: Any, x: Any, *shapes: Any) -> Value:
    return probability_above(self, as_array(x), shapes)


def _quantile_above(self: Any, q: Any, *shapes: Any) -> Value:
    return quantile_above(self, as_array(q), shapes)


def _quantile_below(self: Any, q: Any, *shapes: Any) -> Value:
    return quantile_below(self, as_array(q), shapes)


private_rule("genhyperbolic_gen._cdf", "geninvgauss_gen._cdf")(_below)
private_rule("genhyperbolic_gen._sf", "norminvgauss_gen._sf")(_above)
private_rule("norminvgauss_gen._isf", "invgauss_gen._isf", "landau_gen._isf")(_quantile_above)
private_rule("invgauss_gen._ppf", "landau_gen._ppf")(_quantile_below)


@private_rule("skewnorm_gen._cdf")
def skew_normal(self: Any, x: Any, a: Any) -> Value:
    """Follow the method: SciPy's value, which is more accurate in the left tail than Boost's, with the derivatives of that one."""
    point, skew = as_array(x), as_array(a)
    smooth = special("_skewnorm_cdf", point, 0.0, 1.0, skew)
    value: Value = numbers(self, "_cdf", point, skew) + (smooth - stop_gradient(smooth))
    return value


def _of_point(name: str) -> None:
    @private_rule(f"ksone_gen.{name}", f"kstwo_gen.{name}")
    def method(self: Any, x: Any, n: Any) -> Value:
        return function_of_point(self, name, x, n)


for _name in ("_pdf", "_cdf", "_sf", "_ppf", "_isf"):
    _of_point(_name)


def _spline(x: Value, order: int) -> Any:
    """Return the cardinal B-spline of an order, by the recurrence of Cox and de Boor."""
    values = [where(greater_equal(x, float(j)) & less(x, j + 1.0), 1.0, 0.0) for j in range(order)]
    for k in range(1, order):
        values = [
            ((x - j) * values[j] + (j + k + 1.0 - x) * values[j + 1]) / k for j in range(len(values) - 1)
        ]
    return values[0]


def _orders(n: Any) -> list[int]:
    return sorted({int(each) for each in concrete(n, "n").ravel() if each >= 1})


def _by_order(x: Any, n: Any, function: Callable[[Value, int], Any]) -> Value:
    """Return a function of x and of an order, one of a few."""
    x = as_array(x)
    result: Any = np.nan
    for order in _orders(n):
        result = where(equal(as_array(n), float(order)), function(x, order), result)
    return as_array(result)


def _spline_mass(x: Value, order: int) -> Any:
    return functools.reduce(operator.add, [_spline(x - float(j), order + 1) for j in range(order + 1)])


@private_rule("irwinhall_gen._pdf")
def irwinhall(self: Any, x: Any, n: Any) -> Value:
    """Follow the method: a cardinal B-spline."""
    return _by_order(x, n, _spline)


@private_rule("irwinhall_gen._cdf")
def irwinhall_below(self: Any, x: Any, n: Any) -> Value:
    """Follow the method: its integral is a sum of splines of the next order."""
    return _by_order(x, n, _spline_mass)


@private_rule("irwinhall_gen._sf")
def irwinhall_above(self: Any, x: Any, n: Any) -> Any:
    """Follow the method: the distribution is symmetric."""
    return irwinhall_below(self, as_array(n) - as_array(x), n)


@private_rule("genhyperbolic_gen._logpdf")
def genhyperbolic(self: Any, x: Any, p: Any, a: Any, b: Any) -> Any:
    """Follow the method, with exponentially scaled Bessel functions."""
    x, p, a, b = map(as_array, (x, p, a, b))
    root = sqrt(1.0 + x * x)
    delta = sqrt((a - b) * (a + b))
    norm = p * log(delta) - 0.5 * math.log(2 * math.pi) - (p - 0.5) * log(a)
    norm = norm - log(special("kve", p, delta)) + delta
    return norm + log(special("kve", p - 0.5, a * root)) - a * root + b * x + (p - 0.5) * log(root)


@private_rule("geninvgauss_gen._logpdf")
def geninvgauss(self: Any, x: Any, p: Any, b: Any) -> Any:
    """Follow the method."""
    x, p, b = map(as_array, (x, p, b))
    norm = math.log(2.0) + log(special("kve", p, b)) - b
    return (p - 1.0) * log(x) - 0.5 * b * (x + 1.0 / x) - norm


@private_rule("logistic_gen._logpdf")
def logistic(self: Any, x: Any) -> Value:
    """Follow the method, as for the generalised distribution."""
    return _log_logistic(as_array(x), 1.0)


@private_rule("genlogistic_gen._logpdf")
def generalized_logistic(self: Any, x: Any, c: Any) -> Value:
    """Follow the method without the absolute value, which hides second derivatives at 0."""
    c = as_array(c)
    return log(c) + _log_logistic(as_array(x), c)


def _log_logistic(x: Value, c: Value | float) -> Value:
    left, right = c * x - (c + 1.0) * logaddexp(0.0, x), -x - (c + 1.0) * logaddexp(0.0, -x)
    return where(less(x, 0.0), left, right)


@private_rule("gennorm_gen._cdf")
def generalized_normal_below(self: Any, x: Any, beta: Any) -> Value:
    """Follow the method, at 0 by the tangent, where the power of the absolute value hides the derivative."""
    x, beta = as_array(x), as_array(beta)
    zero, inverse = equal(x, 0.0), 1.0 / beta
    tail = 0.5 * special("gammaincc", inverse, power(where(zero, 1.0, fabs(x)), beta))
    tangent = 0.5 + 0.5 * beta * special("rgamma", inverse) * x
    return where(zero, tangent, where(less(x, 0.0), tail, 1.0 - tail))


@private_rule("gausshyper_gen._pdf")
def gausshyper(self: Any, x: Any, a: Any, b: Any, c: Any, z: Any) -> Value:
    """Follow the method; the norm is the integral, which has derivatives in all parameters."""
    a, b, c, z = map(as_array, (a, b, c, z))

    def kernel(t: Value) -> Value:
        return exp(special("xlogy", a - 1.0, t) + special("xlog1py", b - 1.0, -t) - c * log1p(z * t))

    def from_above(t: Value) -> Value:
        """Return the kernel at 1 - t, which has a power of t."""
        rising, falling = special("xlog1py", a - 1.0, -t), special("xlogy", b - 1.0, t)
        return exp(rising + falling - c * log1p(z * (1.0 - t)))

    rank = rank_of(a, b, c, z)
    norm = integral(kernel, 0.0, 0.5, rank) + integral(from_above, 0.0, 0.5, rank)
    return kernel(as_array(x)) / norm


@private_rule("gausshyper_gen._munp")
def gausshyper_moment(self: Any, n: Any, *shapes: Any) -> Value:
    """Follow the method: the integral, which has derivatives in all parameters."""
    return moment(self, n, *shapes)


BREAKS["rel_breitwigner"] = as_array
BREAKS["crystalball"] = lambda beta, m: -as_array(beta)


# The noncentral t: a normal variable over a chi variable s, of which the mixture is an integral.


def _chi(s: Value, df: Value) -> Value:
    """Return the density of a chi variable over the root of its degrees of freedom."""
    half = 0.5 * df
    norm = math.log(2.0) + half * log(half) - special("gammaln", half)
    return exp(norm + (df - 1.0) * log(s) - half * s * s)


def _noncentral_t(name: str, mixed: Callable[[Value, Value, Value], Value]) -> None:
    @private_rule(f"nct_gen._{name}")
    def method(self: Any, x: Any, df: Any, nc: Any) -> Value:
        t, freedom, shift = map(as_array, (x, df, nc))
        mixture = integral(
            lambda s: mixed(s, t, shift) * _chi(s, freedom), 0.0, np.inf, rank_of(t, freedom, shift)
        )
        return with_derivatives(numbers(self, f"_{name}", t, freedom, shift), mixture)


_noncentral_t("pdf", lambda s, t, nc: s * exp(-0.5 * (t * s - nc) * (t * s - nc)) / SQRT_2PI)
_noncentral_t("cdf", lambda s, t, nc: ndtr(t * s - nc))
_noncentral_t("sf", lambda s, t, nc: ndtr(nc - t * s))


# The noncentral F: a mixture of F variables with Poisson weights

TERMS: Final = 400
"""Terms of a Poisson mixture, around the mean: enough for means up to about 1000."""


def _noncentral_f(name: str, mixed: Callable[..., Value]) -> None:
    @private_rule(f"ncf_gen._{name}")
    def method(self: Any, x: Any, dfn: Any, dfd: Any, nc: Any) -> Value:
        point, first, second, shift = map(as_array, (x, dfn, dfd, nc))
        half = 0.5 * shift
        start = stop_gradient(floor(where(greater(half, 200.0), half - 200.0, 0.0)))
        rank = rank_of(point, first, second, shift)
        j = start + along_first_axis(np.arange(float(TERMS)), rank)
        weights = exp(special("xlogy", j, half) - half - special("gammaln", j + 1.0))
        total = first * point + second
        share, rest = first * point / total, second / total
        parts = mixed(0.5 * first + j, 0.5 * second, share, rest, point)
        mixture = reduce_sum(weights * parts, axes=(0,))
        return with_derivatives(numbers(self, f"_{name}", point, first, second, shift), mixture)


def _beta_prime(a: Value, b: Value, share: Value, rest: Value, x: Value) -> Value:
    return exp(a * log(share) + b * log(rest) - special("betaln", a, b)) / x


_noncentral_f("pdf", _beta_prime)
_noncentral_f("cdf", lambda a, b, share, rest, x: special("betainc", a, b, share))
_noncentral_f("sf", lambda a, b, share, rest, x: special("betaincc", a, b, share))


# Landau's distribution, by its characteristic function, and to the right by Landau's own integral, which does not oscillate there


def _landau(name: str, oscillation: Callable[[Value], Value], constant: float, sign: float) -> None:
    @private_rule(f"landau_gen._{name}")
    def method(self: Any, x: Any) -> Value:
        point = as_array(x)
        level = 0.5 * math.pi * point + math.log(0.5 * math.pi)
        right = greater(level, 1.0)
        low, high = where(right, 0.0, point), where(right, level, 1.0)

        def oscillating(t: Value) -> Value:
            phase = t * low + 2.0 / math.pi * t * log(t)
            value = exp(-t) * oscillation(phase)
            return value if name == "pdf" else value / t

        def decaying(u: Value) -> Value:
            value = exp(-u * (high + log(u))) * sin(math.pi * u)
            return 0.5 * value if name == "pdf" else sign * value / (math.pi * u)

        near = constant + sign / math.pi * integral(oscillating, 0.0, np.inf, point.ndim)
        far = integral(decaying, 0.0, np.inf, point.ndim)
        far = {"pdf": far, "cdf": 1.0 - far, "sf": -far}[name]
        return with_derivatives(numbers(self, f"_{name}", point), where(right, far, near))


_landau("pdf", cos, 0.0, 1.0)
_landau("cdf", sin, 0.5, 1.0)
_landau("sf", sin, 0.5, -1.0)


# Kolmogorov's distribution, by two series


@private_rule("kstwobign_gen._cdf")
def kolmogorov_below(self: Any, x: Any) -> Value:
    """Follow the method: theta functions, of which one converges fast for small x and the other one for large x."""
    x = as_array(x)
    k = along_first_axis(2.0 * np.arange(1.0, 9.0) - 1.0, x.ndim)
    small = where(greater(x, 0.0), x, 1.0)
    near = SQRT_2PI / small * reduce_sum(exp(-k * k * (math.pi**2 / 8) / (small * small)), axes=(0,))
    return where(less(x, 0.82), near, 1.0 - _kolmogorov_tail(x))


def _kolmogorov_tail(x: Value) -> Value:
    k = np.arange(1.0, 13.0)
    signs = along_first_axis(np.where(k % 2 == 1, 2.0, -2.0), x.ndim)
    squares = along_first_axis(-2.0 * k * k, x.ndim)
    return reduce_sum(signs * exp(squares * (x * x)), axes=(0,))


@private_rule("kstwobign_gen._sf")
def kolmogorov_above(self: Any, x: Any) -> Value:
    """Follow the method."""
    x = as_array(x)
    return where(less(x, 0.82), 1.0 - kolmogorov_below(self, x), _kolmogorov_tail(x))


@private_rule("kstwobign_gen._pdf")
def kolmogorov(self: Any, x: Any) -> Value:
    """Follow the method: the derivatives of the two series."""
    x = as_array(x)
    odd = 2.0 * np.arange(1.0, 9.0) - 1.0
    squares = along_first_axis(odd * odd * (math.pi**2 / 8), x.ndim)
    small = where(greater(x, 0.0), x, 1.0)
    inverse = 1.0 / (small * small)
    near = (
        SQRT_2PI * inverse * reduce_sum((2.0 * squares * inverse - 1.0) * exp(-squares * inverse), axes=(0,))
    )
    k = np.arange(1.0, 13.0)
    signs = along_first_axis(np.where(k % 2 == 1, 8.0, -8.0) * k * k, x.ndim)
    far = x * reduce_sum(signs * exp(along_first_axis(-2.0 * k * k, x.ndim) * (x * x)), axes=(0,))
    return where(less(x, 0.82), near, far)


# Von Mises


@private_rule("vonmises_gen._cdf")
def vonmises_below(self: Any, x: Any, kappa: Any) -> Value:
    """Follow the method: whole turns, and the integral of the density over the rest."""
    x, kappa = as_array(x), as_array(kappa)
    turns = stop_gradient(floor(x / (2 * math.pi) + 0.5))

    def density(t: Value) -> Value:
        return as_array(HOOKS.call(self._pdf, t, kappa))

    mass = integral(density, -math.pi, x - 2 * math.pi * turns, rank_of(x, kappa))
    return with_derivatives(numbers(self, "_cdf", x, kappa), turns + mass)


# The truncated normal


@borrows("scipy.stats._continuous_distns:_log_gauss_mass")
def log_gauss_mass(a: Any, b: Any) -> Value:
    """Follow the function: log(ndtr(b) - ndtr(a)), in the tail where that does not cancel."""
    a, b = as_array(a), as_array(b)
    right = greater(a, 0.0)
    low, high = where(right, -b, a), where(right, -a, b)
    near, far = log_ndtr(high), log_ndtr(low)
    tail = near + log(-expm1(far - near))
    centre = log1p(-ndtr(a) - ndtr(-b))
    return where(right | less_equal(b, 0.0), tail, centre)


def _times(probability: Value, bound: Value, n: int) -> Value:
    return where(equal(probability, 0.0), 0.0, probability * bound**n if n else probability)


@private_rule("truncnorm_gen._munp")
def truncnorm_moment(self: Any, n: Any, a: Any, b: Any) -> Value:
    """Follow the method: a recurrence in the order."""
    a, b = as_array(a), as_array(b)
    at_a, at_b = as_array(HOOKS.call(self._pdf, a, a, b)), as_array(HOOKS.call(self._pdf, b, a, b))
    moments: list[Any] = [0.0, 1.0]
    for k in range(1, int(n) + 1):
        ends = _times(at_a, a, k - 1) - _times(at_b, b, k - 1)
        moments.append(ends + (k - 1) * moments[-2])
    return as_array(moments[-1])


@private_rule("truncnorm_gen._stats")
def truncnorm_moments(self: Any, a: Any, b: Any, moments: str = "mv") -> tuple[Any, ...]:
    """Follow the method: the variance about the mean, which does not cancel."""
    a, b = as_array(a), as_array(b)
    at_a, at_b = as_array(HOOKS.call(self._pdf, a, a, b)), as_array(HOOKS.call(self._pdf, b, a, b))
    mean = at_a - at_b
    return mean, 1.0 + _times(at_a, a - mean, 1) - _times(at_b, b - mean, 1), None, None


# Moments


def _burr(self: Any, c: Any, d: Any) -> tuple[Any, ...]:
    c, d = as_array(c), as_array(d)
    e1, e2, e3, e4 = [d * special("beta", d + k / c, 1.0 - k / c) for k in (1.0, 2.0, 3.0, 4.0)]
    variance = e2 - e1 * e1
    third = e3 - 3.0 * e2 * e1 + 2.0 * e1 * e1 * e1
    fourth = e4 - 4.0 * e3 * e1 + 6.0 * e2 * e1 * e1 - 3.0 * e1 * e1 * e1 * e1
    found = (e1, variance, third / power(variance, 1.5), fourth / (variance * variance) - 3.0)
    return tuple([where(greater(c, float(k + 1)), moment, np.nan) for k, moment in enumerate(found)])


private_rule("burr_gen._stats")(_burr)


@private_rule("fisk_gen._stats")
def fisk_moments(self: Any, c: Any) -> tuple[Any, ...]:
    """Follow the method."""
    return _burr(self, c, 1.0)


@private_rule("pareto_gen._stats")
def pareto_moments(self: Any, b: Any, moments: str = "mv") -> tuple[Any, ...]:
    """Follow the method."""
    b = as_array(b)
    mean = where(greater(b, 1.0), b / (b - 1.0), np.inf)
    variance = where(greater(b, 2.0), b / ((b - 1.0) * (b - 1.0) * (b - 2.0)), np.inf)
    skew = 2.0 * (b + 1.0) * sqrt(b - 2.0) / ((b - 3.0) * sqrt(b))
    excess = 6.0 * (b * b * b + b * b - 6.0 * b - 2.0) / (b * (b - 3.0) * (b - 4.0))
    return (
        mean,
        variance,
        where(greater(b, 3.0), skew, np.nan),
        where(greater(b, 4.0), excess, np.nan),
    )


@private_rule("lomax_gen._stats")
def lomax_moments(self: Any, c: Any) -> tuple[Any, ...]:
    """Follow the method: Pareto's, shifted by 1."""
    mean, *others = pareto_moments(self, c)
    return mean - 1.0, *others


@private_rule("argus_gen._stats")
def argus_moments(self: Any, chi: Any) -> tuple[Any, ...]:
    """Follow the method: a Taylor series of the second moment for small chi."""
    chi = as_array(chi)
    square = chi * chi
    phi = 0.5 * special("gammainc", as_array(1.5), 0.5 * square)
    mean = math.sqrt(math.pi / 8) * chi * special("ive", as_array(1.0), square / 4.0) / phi
    large = 1.0 - 3.0 / square + chi * exp(-0.5 * square) / SQRT_2PI / phi
    small: Any = 0.0
    for coefficient in (-358 / 65690625, 0.0, -94 / 1010625, 0.0, 2 / 2625, 0.0, 6 / 175, 0.0, 0.4):
        small = small * chi + coefficient
    return mean, where(greater(chi, 0.1), large, small) - mean * mean, None, None


@private_rule("dpareto_lognorm_gen._munp")
def dpareto_lognorm_moment(self: Any, n: Any, u: Any, s: Any, a: Any, b: Any) -> Value:
    """Follow the method."""
    u, s, a, b = map(as_array, (u, s, a, b))
    k = float(n)
    moment = a * b / ((a - k) * (b + k)) * exp(k * u + k**2 * s * s / 2.0)
    return where(less_equal(a, k), np.nan, moment)


@private_rule("dpareto_lognorm_gen._logcdf")
def dpareto_lognorm_below(self: Any, x: Any, u: Any, s: Any, a: Any, b: Any) -> Value:
    """Follow the method: equation 2 of SciPy's reference, whose second term may have either sign."""
    x, u, s, a, b = map(as_array, (x, u, s, a, b))
    z = (log(x) - u) / s

    def mills(t: Value) -> Any:
        """Return the logarithm of (1 - Phi(t)) / phi(t)."""
        return log_ndtr(-t) + 0.5 * t * t + 0.5 * math.log(2 * math.pi)

    difference = b * exp(mills(a * s - z)) - a * exp(mills(b * s + z))
    density = exp(-0.5 * z * z) / SQRT_2PI
    return where(equal(x, 0.0), -np.inf, log(ndtr(z) - density * difference / (a + b)))


@private_rule("dpareto_lognorm_gen._logsf")
def dpareto_lognorm_above(self: Any, x: Any, *shapes: Any) -> Value:
    """Follow the method."""
    return log(-expm1(dpareto_lognorm_below(self, x, *shapes)))


@private_rule("tukeylambda_gen._entropy")
def tukeylambda_entropy(self: Any, lam: Any) -> Value:
    """Follow the method: the mean of the logarithm of the quantile's derivative."""
    lam = as_array(lam)

    def integrand(p: Value) -> Value:
        return log(power(p, lam - 1.0) + power(1.0 - p, lam - 1.0))

    return integral(integrand, 0.0, 1.0, rank_of(lam))


def _scaled_exponential_integral(c: Value) -> Value:
    """Return c exp(c) E1(c): by its continued fraction where the exponential integral is small."""
    tail: Any = 0.0
    for k in range(80, 0, -1):
        tail = k / (1.0 + k / (c + tail))
    return where(less_equal(c, 1.25), c * exp(c) * special("exp1", c), c / (c + tail))


@private_rule("gompertz_gen._entropy")
def gompertz_entropy(self: Any, c: Any) -> Any:
    """Follow the method."""
    c = as_array(c)
    return 1.0 - log(c) - _scaled_exponential_integral(c) / c


@private_rule("invgauss_gen._entropy")
def invgauss_entropy(self: Any, mu: Any) -> Any:
    """Follow the method."""
    mu = as_array(mu)
    ratio = 2.0 / mu
    scaled = _scaled_exponential_integral(ratio) / ratio
    return 0.5 * (math.log(2 * math.pi) + 1.0 + 3.0 * log(mu)) - 1.5 * scaled
