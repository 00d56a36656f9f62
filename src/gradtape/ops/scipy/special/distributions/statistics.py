"""Ufuncs of the Boost library's distributions, and a few others, that only `scipy.stats` calls: densities, upper tails, their inverses.

The distributions of SciPy's new infrastructure reach them, `scipy.stats.make_distribution` for one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import numpy as np

from gradtape.ir.graph import Value
from gradtape.kinds.elementwise import Elementwise, flat
from gradtape.kinds.registry import UFUNCS
from gradtape.ops.core.elementwise.exponential import cos, exp
from gradtape.ops.core.elementwise.inverse import log, log1p
from gradtape.ops.core.elementwise.logic import equal, greater, less, logical_and
from gradtape.ops.core.elementwise.roots import sqrt
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.core.elementwise.signs import fabs
from gradtape.ops.scipy.special.distributions.central import negative_binomial
from gradtape.ops.scipy.special.distributions.inverses import SEARCHED, distribution, inverse
from gradtape.ops.scipy.special.distributions.noncentral import (
    mean_over_chi,
    noncentral_chi_square,
    noncentral_f,
    noncentral_t,
    normal_density,
    poisson_mixture,
)
from gradtape.ops.scipy.special.distributions.normal import log_ndtr, ndtr
from gradtape.ops.scipy.special.entropy import xlog1py, xlogy
from gradtape.ops.scipy.special.exponential import kolmogorov_slope, smirnov_slope
from gradtape.ops.scipy.special.gamma import betaln, gammaln, psi
from gradtape.ops.scipy.special.rows import NO_FORMULA, refused, special

inf, nan = np.inf, np.nan
UNIT, LINE, POSITIVE = (0.2, 0.8), (-2.0, 2.0), (0.5, 4.0)
FREEDOM, SHIFT, SPREAD = (2.5, 6.0), (0.3, 2.0), (0.5, 2.0)

# Noncentral chi-square (x, k, nc)


def _chi_square_in_freedom(z: Value, x: Value, k: Value, nc: Value) -> Value:
    def component(j: Value, a: Value, x: Value) -> Value:
        level = log(x)
        return exp((a + j - 1.0) * level - x - gammaln(a + j)) * (level - psi(a + j))

    return 0.25 * poisson_mixture(0.5 * nc, component, 0.5 * k, 0.5 * x)


chi_square_density: Elementwise = special(
    "_ufuncs._ncx2_pdf",
    lambda z, x, k, nc: z * ((0.5 * k - 1.0) / x - 0.5) + 0.5 * nc / x * chi_square_density(x, k + 2.0, nc),
    _chi_square_in_freedom,
    lambda z, x, k, nc: 0.5 * (chi_square_density(x, k + 2.0, nc) - z),
    domain=(POSITIVE, FREEDOM, SHIFT),
    accuracy=1e-12,
)
distribution("_ufuncs._ncx2_sf", noncentral_chi_square, (POSITIVE, FREEDOM, SHIFT), -1.0, accuracy=1e-12)
inverse("_ufuncs._ncx2_isf", noncentral_chi_square, 0, 0, (UNIT, FREEDOM, SHIFT), -1.0, accuracy=SEARCHED)

# Noncentral F (x, v1, v2, nc)


def _f(x: Value, v1: Value, v2: Value, nc: Value) -> tuple[Value, ...]:
    in_first, in_second, in_shift, density = noncentral_f(v1, v2, nc, x)
    return density, in_first, in_second, in_shift


def _f_slopes(x: Value, v1: Value, v2: Value, nc: Value) -> tuple[Value, ...]:
    """Return the derivatives of the density, a mixture of beta densities of the share ``v1 x / (v2 + v1 x)`` with Poisson weights."""
    total = v2 + v1 * x
    share, complement = v1 * x / total, v2 / total

    def mean(factor: Callable[..., Value | float], shift: float = 0.0) -> Value:
        def component(j: Value, a: Value, b: Value, share: Value, complement: Value) -> Value:
            a = a + j + shift
            density = exp(a * log(share) + b * log(complement) - betaln(a, b))
            return density * factor(a, b, share, complement)

        return poisson_mixture(0.5 * nc, component, 0.5 * v1, 0.5 * v2, share, complement) / x

    def in_first(a: Value, b: Value, share: Value, complement: Value) -> Value:
        return 0.5 * (log(share) - psi(a) + psi(a + b))

    def in_second(a: Value, b: Value, share: Value, complement: Value) -> Value:
        return 0.5 * (log(complement) - psi(b) + psi(a + b))

    moved = mean(lambda a, b, share, complement: a * complement - b * share)
    density = mean(lambda a, b, share, complement: 1.0)
    raised = mean(lambda a, b, share, complement: 1.0, 1.0)
    return (
        (moved - density) / x,
        mean(in_first) + moved / v1,
        mean(in_second) - moved / v2,
        0.5 * (raised - density),
    )


DENOMINATOR, QUOTIENT = (3.0, 6.0), (0.5, 3.0)
special(
    "_ufuncs._ncf_pdf",
    *[lambda z, *args, k=k: _f_slopes(*args)[k] for k in range(4)],
    domain=(QUOTIENT, FREEDOM, DENOMINATOR, SHIFT),
    accuracy=1e-11,
)
distribution("_ufuncs._ncf_sf", _f, (QUOTIENT, FREEDOM, DENOMINATOR, SHIFT), -1.0, accuracy=1e-12)
inverse("_ufuncs._ncf_isf", _f, 0, 0, (UNIT, FREEDOM, DENOMINATOR, SHIFT), -1.0, accuracy=SEARCHED)

# Noncentral t (x, v, nc)


def _t(x: Value, v: Value, nc: Value) -> tuple[Value, ...]:
    in_freedom, in_shift, density = noncentral_t(v, nc, x)
    return density, in_freedom, in_shift


def _t_density(factor: Callable[..., Value]) -> Callable[..., Value]:
    """Return the mean of ``s factor(y, s, w, level)`` times the normal density at ``w = x s - nc``."""

    def integrand(y: Value, s: Value, shift: Value, x: Value, level: Value) -> Value:
        w = x * s - shift
        return s * normal_density(w) * factor(y, s, w, level)

    return lambda z, x, v, nc: mean_over_chi(v, nc, x, integrand)


special(
    "_ufuncs._nct_pdf",
    _t_density(lambda y, s, w, level: -s * w),
    _t_density(lambda y, s, w, level: 0.5 * (y + level - (s * s - 1.0))),
    _t_density(lambda y, s, w, level: w),
    domain=(LINE, FREEDOM, SHIFT),
    accuracy=1e-11,
)
distribution("_ufuncs._nct_sf", _t, (LINE, FREEDOM, SHIFT), -1.0, accuracy=1e-11)
inverse("_ufuncs._nct_isf", _t, 0, 0, (UNIT, FREEDOM, SHIFT), -1.0, accuracy=SEARCHED)

# Skew normal (x, location, scale, shape)


def _skew_normal(x: Value, loc: Value, scale: Value, a: Value) -> tuple[Value, ...]:
    u = (x - loc) / scale
    density = 2.0 * normal_density(u) * ndtr(a * u) / scale
    square = 1.0 + a * a
    return density, -density, -u * density, -exp(-0.5 * u * u * square) / (math.pi * square)


SKEW: Final = (LINE, (-0.5, 0.5), SPREAD, (0.5, 2.0))
distribution("_ufuncs._skewnorm_cdf", _skew_normal, SKEW, accuracy=1e-12)
inverse("_ufuncs._skewnorm_ppf", _skew_normal, 0, 0, (UNIT, *SKEW[1:]), accuracy=SEARCHED)
inverse("_ufuncs._skewnorm_isf", _skew_normal, 0, 0, (UNIT, *SKEW[1:]), -1.0, accuracy=SEARCHED)

# Inverse Gaussian (x, mean, scale)


def _inverse_gaussian(x: Value, mu: Value, s: Value) -> tuple[Value, ...]:
    """``F = ndtr(A) + exp(2 s / mu) ndtr(B)``, with the same density of both terms at A and at B."""
    root = sqrt(s / x)
    at_first = normal_density(root * (x / mu - 1.0))
    last = exp(2.0 * s / mu + log_ndtr(-root * (x / mu + 1.0))) * (2.0 / mu)
    return at_first * root / x, -last * s / mu, last - at_first / sqrt(s * x)


WALD: Final = (UNIT, SPREAD, SPREAD)
inverse("_ufuncs._invgauss_ppf", _inverse_gaussian, 0, 0, WALD, accuracy=SEARCHED)
inverse("_ufuncs._invgauss_isf", _inverse_gaussian, 0, 0, WALD, -1.0, accuracy=SEARCHED)

# Cauchy (probability, location, scale), cosine, beta


def _cauchy(sign: float) -> Callable[..., Value]:
    def slope(z: Value, p: Value, loc: Value, scale: Value) -> Value:
        u = (z - loc) / scale
        return sign * math.pi * scale * (1.0 + u * u)

    return slope


for _name, _sign in (("ppf", 1.0), ("isf", -1.0)):
    special(
        f"_ufuncs._cauchy_{_name}",
        _cauchy(_sign),
        lambda z, p, loc, scale: 1.0 + 0.0 * z,
        lambda z, p, loc, scale: (z - loc) / scale,
        domain=(UNIT, LINE, SPREAD),
        accuracy=1e-12,
    )


def _cosine_density(x: Value) -> Value:
    return where(less(fabs(x), math.pi), (1.0 + cos(x)) * (0.5 / math.pi), 0.0)


special(
    "_ufuncs._cosine_cdf",
    lambda z, x: _cosine_density(x),
    domain=((-3.0, 3.0),),
    edges=((4.0,), (-4.0,), (nan,)),
)
special("_ufuncs._cosine_invcdf", lambda z, p: 1.0 / _cosine_density(z), domain=(UNIT,), accuracy=1e-12)


def _beta_in_point(z: Value, x: Value, a: Value, b: Value) -> Value:
    """Without quotients by x and 1 - x, which may be 0."""

    def term(first: float, second: float, power: Value) -> Value:
        still = equal(power, 1.0)
        level = xlogy(where(still, 0.0, a - 1.0 - first), x) + xlog1py(
            where(still, 0.0, b - 1.0 - second), -x
        )
        return where(still, 0.0, (power - 1.0) * exp(level - betaln(a, b)))

    return term(1.0, 0.0, a) - term(0.0, 1.0, b)


special(
    "_ufuncs._beta_pdf",
    _beta_in_point,
    lambda z, x, a, b: xlogy(z, x) - z * (psi(a) - psi(a + b)),
    lambda z, x, a, b: xlog1py(z, -x) - z * (psi(b) - psi(a + b)),
    domain=(UNIT, (0.5, 4.0), (0.5, 4.0)),
    slopes=(((0.0, 2.0, 1.0), (2.0, 0.0, 0.0)), ((1.0, 1.0, 2.0), (-2.0, 0.0, 0.0))),
    accuracy=1e-12,
)

# Negative binomial (k, r, p), continued between whole numbers, and hypergeometric, of whole numbers

TRIALS: Final = ((1.0, 4.0), (1.0, 5.0), UNIT)
special(
    "_ufuncs._nbinom_pmf",
    lambda z, k, r, p: z * (log1p(-p) + psi(k + r) - psi(k + 1.0)),
    lambda z, k, r, p: z * (log(p) + psi(k + r) - psi(r)),
    lambda z, k, r, p: z * (r / p - k / (1.0 - p)),
    domain=TRIALS,
    accuracy=1e-12,
)
distribution("_ufuncs._nbinom_cdf", negative_binomial, TRIALS, accuracy=1e-12)
distribution("_ufuncs._nbinom_sf", negative_binomial, TRIALS, -1.0, accuracy=1e-12)
for _name in ("ppf", "isf"):
    special(
        f"_ufuncs._nbinom_{_name}",
        flat,
        flat,
        flat,
        domain=((0.27, 0.33), (4.0, 4.0), (0.5, 0.505)),
        kinks="0",
    )
for _name in ("pmf", "cdf", "sf"):
    special(
        f"_ufuncs._hypergeom_{_name}",
        *[refused("hypergeom", name, "it is a whole number") for name in ("k", "n", "N", "M")],
        domain=((2.0, 2.0), (5.0, 5.0), (4.0, 4.0), (12.0, 12.0)),
    )

# Quantiles at 0 and at 1


def _with_limits(quantile: Callable[..., Value], at_zero: float, at_one: float) -> Callable[..., Value]:
    """Return a quantile function that has its limits where Boost raises an OverflowError, which SciPy's distributions mask."""

    def limited(p: Value, *parameters: Value) -> Value:
        inside = logical_and(greater(p, 0.0), less(p, 1.0))
        limit = where(equal(p, 0.0), at_zero, where(equal(p, 1.0), at_one, nan))
        return where(inside, quantile(where(inside, p, 0.5), *parameters), limit)

    return limited


for _name, _low, _ends in (
    ("nct", -inf, ("isf",)),
    ("ncx2", 0.0, ("isf",)),
    ("ncf", 0.0, ("isf",)),
    ("cauchy", -inf, ("ppf", "isf")),
    ("skewnorm", -inf, ("ppf", "isf")),
    ("invgauss", 0.0, ("ppf", "isf")),
    ("nbinom", 0.0, ("ppf", "isf")),
):
    for _end in _ends:
        _limits = (_low, inf) if _end == "ppf" else (inf, _low)
        UFUNCS[f"_{_name}_{_end}"] = _with_limits(UFUNCS[f"_{_name}_{_end}"], *_limits)

# Moments in closed form


def _moments(name: str, **formulas: Callable[..., Value]) -> None:
    for moment, formula in formulas.items():
        UFUNCS[f"_{name}_{moment}"] = formula


_moments(
    "nbinom",
    mean=lambda r, p: r * (1.0 - p) / p,
    variance=lambda r, p: r * (1.0 - p) / (p * p),
    skewness=lambda r, p: (2.0 - p) / sqrt(r * (1.0 - p)),
    kurtosis_excess=lambda r, p: (6.0 - 6.0 * p + p * p) / (r * (1.0 - p)),
)


def _from_raw(
    raw: Callable[..., list[Value]], order: int, last: float, position: int, normal: float = 3.0
) -> Callable[..., Value]:
    """Return mean, variance, skewness or kurtosis less `normal` from raw moments; they are finite for degrees of freedom above `last`."""

    def moment(*parameters: Value) -> Value:
        freedom = parameters[position]
        exists = greater(freedom, last)
        m = raw(*parameters[:position], where(exists, freedom, last + 1.0), *parameters[position + 1 :])
        spread = m[1] - m[0] * m[0]
        third = m[2] - 3.0 * m[0] * m[1] + 2.0 * m[0] * m[0] * m[0]
        fourth = m[3] - 4.0 * m[0] * m[2] + 6.0 * m[0] * m[0] * m[1] - 3.0 * m[0] * m[0] * m[0] * m[0]
        moments = (m[0], spread, third / (spread * sqrt(spread)), fourth / (spread * spread) - normal)
        return where(exists, moments[order - 1], nan)

    return moment


def _raw_f(v1: Value, v2: Value, nc: Value) -> list[Value]:
    first, two, three, four = (v1 + k * nc for k in (1.0, 2.0, 3.0, 4.0))
    square = first * first
    chi = (
        first,
        square + 2.0 * two,
        first * (square + 6.0 * two) + 8.0 * three,
        square * (square + 12.0 * two)
        + 4.0 * (11.0 * v1 * v1 + 44.0 * v1 * nc + 36.0 * nc * nc)
        + 48.0 * four,
    )
    raw_moments, factor = [], 1.0 + 0.0 * v2
    for k, each in enumerate(chi):
        factor = factor * (v2 / v1) / (v2 - 2.0 * (k + 1.0))
        raw_moments.append(factor * each)
    return raw_moments


def _raw_t(v: Value, nc: Value) -> list[Value]:
    square = nc * nc
    normal = (nc, 1.0 + square, nc * (square + 3.0), square * (square + 6.0) + 3.0)
    level = gammaln(0.5 * v)
    return [
        exp(0.5 * k * log(0.5 * v) + gammaln(0.5 * (v - k)) - level) * each
        for k, each in zip((1.0, 2.0, 3.0, 4.0), normal, strict=True)
    ]


MOMENTS: Final = ("mean", "variance", "skewness", "kurtosis_excess")
# Boost's excess of F is the kurtosis itself, and SciPy knows
_moments("ncf", **{each: _from_raw(_raw_f, k, 2.0 * k, 1, 0.0) for k, each in enumerate(MOMENTS, 1)})
_moments("nct", **{each: _from_raw(_raw_t, k, float(k), 0) for k, each in enumerate(MOMENTS, 1)})

# Trigonometric functions of pi x, logarithms and the exponential integral, without cancellation

sinpi: Elementwise = special(
    "_ufuncs._sinpi", lambda z, x: math.pi * cospi(x), domain=(LINE,), edges=((1.0,), (0.5,), (nan,))
)
cospi: Elementwise = special(
    "_ufuncs._cospi", lambda z, x: -math.pi * sinpi(x), domain=(LINE,), edges=((1.0,), (0.5,), (nan,))
)
special("_ufuncs._lgam1p", lambda z, x: psi(1.0 + x), domain=((-0.5, 2.0),), edges=((0.0,), (nan,)))
special(
    "_ufuncs._log1pmx",
    lambda z, x: -x / (1.0 + x),
    domain=((-0.4, 2.0),),
    edges=((0.0,), (nan,)),
    accuracy=1e-12,
)
special("_ufuncs._factorial", lambda z, x: z * psi(1.0 + x), domain=((0.2, 5.0),), edges=((0.0,), (nan,)))
special(
    "_ufuncs._igam_fac",
    lambda z, a, x: z * (log(x) - psi(a)),
    lambda z, a, x: z * (a / x - 1.0),
    domain=((0.5, 5.0), (0.3, 5.0)),
    accuracy=1e-12,
)
special(
    "_ufuncs._scaled_exp1",
    lambda z, x: z / x + z - 1.0,
    domain=((0.3, 6.0),),
    edges=((inf,), (nan,)),
    accuracy=1e-12,
)
for _name, _sign in (("_iv_ratio", 1.0), ("_iv_ratio_c", -1.0)):

    def _ratio_slope(z: Value, v: Value, x: Value, sign: float = _sign) -> Value:
        """``R' = 1 - R**2 - (2 v - 1) R / x`` of ``R = I(v, x) / I(v - 1, x)``."""
        ratio = z if sign > 0 else 1.0 - z
        return sign * (1.0 - ratio * ratio - (2.0 * v - 1.0) * ratio / x)

    special(
        f"_ufuncs.{_name}",
        refused(_name, "v", NO_FORMULA),
        _ratio_slope,
        domain=((1.0, 3.0), (0.3, 4.0)),
        accuracy=1e-11,
    )

# Kolmogorov's and Smirnov's distributions

UFUNCS["_kolmogp"] = kolmogorov_slope
special("_ufuncs._kolmogc", lambda z, x: -kolmogorov_slope(x), domain=((0.5, 1.6),), edges=((0.0,), (nan,)))
special("_ufuncs._kolmogci", lambda z, p: -1.0 / kolmogorov_slope(z), domain=((0.1, 0.9),), edges=((nan,),))
special(
    "_ufuncs._smirnovc",
    refused("smirnov", "n", "it is a whole number"),
    lambda z, n, x: -smirnov_slope(n, x),
    domain=((3.0, 8.0), (0.1, 0.6)),
    dtype_samples=("ld",),
)
special(
    "_ufuncs._smirnovci",
    refused("smirnovi", "n", "it is a whole number"),
    lambda z, n, p: -1.0 / smirnov_slope(n, z),
    domain=((3.0, 8.0), (0.1, 0.9)),
    dtype_samples=("ld",),
)
