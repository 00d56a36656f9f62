"""Noncentral distributions: chi-square and F as mixtures over Poisson's distribution, Student's t as a mean over a gamma distribution."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import numpy as np

from gradtape.ir.graph import Value
from gradtape.ir.op import NDArray
from gradtape.ops.core.elementwise.cast import stop_gradient
from gradtape.ops.core.elementwise.exponential import exp, expm1
from gradtape.ops.core.elementwise.extrema import maximum
from gradtape.ops.core.elementwise.floats import floor
from gradtape.ops.core.elementwise.inverse import log
from gradtape.ops.core.elementwise.logic import less
from gradtape.ops.core.elementwise.roots import sqrt
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.scipy.special.distributions.incomplete import (
    beta_density,
    beta_in_first,
    beta_in_second,
    gamma_density,
    gamma_in_shape,
)
from gradtape.ops.scipy.special.distributions.inverses import BEYOND, SEARCHED, distribution, inverse
from gradtape.ops.scipy.special.distributions.normal import SQRT_2PI, ndtr
from gradtape.ops.scipy.special.entropy import xlogy
from gradtape.ops.scipy.special.gamma import betaln, gammaln, psi
from gradtape.ops.scipy.special.quadrature import integrate, whole_line

TERMS: Final = 128
"""Terms of a Poisson mixture: the weights outside are below 1e-16 up to a mean of 50, and below 1e-9 up to `MOST`."""

MOST: Final = 100.0


def _terms() -> tuple[NDArray, NDArray]:
    return np.arange(float(TERMS)), np.ones(TERMS)


def poisson_mixture(mean: Value, component: Callable[..., Value], *parameters: Value) -> Value:
    """Return the mean of ``component(j, *parameters)`` for Poisson's distribution of j; NaN where it has too many terms."""
    first = stop_gradient(maximum(floor(mean) - 0.5 * TERMS, 0.0))

    def term(node: Value, mean: Value, first: Value, *parameters: Value) -> Value:
        j = node + first
        weight = exp(xlogy(j, mean) - mean - gammaln(j + 1.0))
        return weight * component(j, *parameters)

    return where(less(mean, MOST), integrate(_terms(), term, mean, first, *parameters), math.nan)


def noncentral_chi_square(x: Value, df: Value, nc: Value) -> tuple[Value, ...]:
    half, a, mean = 0.5 * x, 0.5 * df, 0.5 * nc
    return (
        0.5 * poisson_mixture(mean, lambda j, a, x: gamma_density(a + j, x), a, half),
        0.5 * poisson_mixture(mean, lambda j, a, x: gamma_in_shape(a + j, x), a, half),
        -0.5 * poisson_mixture(mean, lambda j, a, x: gamma_density(a + j + 1.0, x), a, half),
    )


POSITIVE, FREEDOM, SHIFT, UNIT = (0.5, 5.0), (1.5, 5.0), (0.3, 3.0), (0.2, 0.8)
distribution("chndtr", noncentral_chi_square, (POSITIVE, FREEDOM, SHIFT), accuracy=1e-12)
inverse("chndtrix", noncentral_chi_square, 0, 0, (UNIT, FREEDOM, SHIFT), accuracy=SEARCHED)
inverse(
    "chndtridf",
    noncentral_chi_square,
    1,
    1,
    ((3.0, 6.0), (0.3, 0.5), (0.3, 1.0)),
    bounds=BEYOND,
    accuracy=SEARCHED,
)
inverse(
    "chndtrinc",
    noncentral_chi_square,
    2,
    2,
    ((3.0, 4.0), (2.0, 2.5), (0.3, 0.5)),
    bounds=BEYOND,
    accuracy=SEARCHED,
)


def noncentral_f(dfn: Value, dfd: Value, nc: Value, f: Value) -> tuple[Value, ...]:
    total = dfd + dfn * f
    share, rest = dfn * f / total, dfd / total
    a, b, mean = 0.5 * dfn, 0.5 * dfd, 0.5 * nc
    density = (
        poisson_mixture(mean, lambda j, a, b, x, y: beta_density(a + j, b, x, y), a, b, share, rest)
        * share
        * rest
    )
    in_a = poisson_mixture(mean, lambda j, a, b, x, y: beta_in_first(a + j, b, x, y), a, b, share, rest)
    in_b = poisson_mixture(mean, lambda j, a, b, x, y: beta_in_second(a + j, b, x, y), a, b, share, rest)

    def step(j: Value, a: Value, b: Value, x: Value, y: Value) -> Value:
        """Return I(a + j, b) - I(a + j + 1, b)."""
        return exp((a + j) * log(x) + b * log(y) - betaln(a + j, b)) / (a + j)

    in_mean = -poisson_mixture(mean, step, a, b, share, rest)
    return 0.5 * in_a + density / dfn, 0.5 * in_b - density / dfd, 0.5 * in_mean, density / f


ROUGH: Final = 1e-6
"""The accuracy of the inverses for which SciPy stops the sum of the mixture early."""

DENOMINATOR, QUOTIENT = (3.0, 6.0), (0.5, 3.0)
distribution("ncfdtr", noncentral_f, (FREEDOM, DENOMINATOR, SHIFT, QUOTIENT), accuracy=1e-12)
inverse("ncfdtri", noncentral_f, 3, 3, (FREEDOM, DENOMINATOR, SHIFT, UNIT), accuracy=SEARCHED)
inverse(
    "ncfdtridfn",
    noncentral_f,
    0,
    0,
    ((0.5, 0.55), (3.0, 4.0), (0.3, 0.5), (0.9, 1.1)),
    bounds=BEYOND,
    accuracy=ROUGH,
)
inverse(
    "ncfdtridfd",
    noncentral_f,
    1,
    1,
    ((3.0, 4.0), (0.4, 0.45), (0.3, 0.5), (0.9, 1.1)),
    bounds=BEYOND,
    accuracy=ROUGH,
)
inverse(
    "ncfdtrinc",
    noncentral_f,
    2,
    2,
    ((3.0, 4.0), (4.0, 5.0), (0.3, 0.4), (1.2, 1.5)),
    bounds=BEYOND,
    accuracy=ROUGH,
)


def mean_over_chi(df: Value, nc: Value, t: Value, integrand: Callable[..., Value]) -> Value:
    """Return the mean of ``integrand(y, s, nc, t, level)`` where ``df s**2`` has the chi-square distribution and ``s = exp(y/2)``.

    The derivative of the logarithm of the density of y in df is ``(y - expm1(y) + level) / 2``.
    """
    a = 0.5 * df
    front = exp(a * log(a) - a - gammaln(a))
    scale = stop_gradient(1.0 / sqrt(a))
    level = log(a) - psi(a)

    def weighted(v: Value, a: Value, scale: Value, nc: Value, t: Value, level: Value) -> Value:
        y = scale * v
        return exp(a * (y - expm1(y))) * integrand(y, exp(0.5 * y), nc, t, level)

    return front * scale * integrate(whole_line(), weighted, a, scale, nc, t, level)


def normal_density(z: Value) -> Value:
    return exp(-0.5 * z * z) * (1.0 / SQRT_2PI)


def noncentral_t(df: Value, nc: Value, t: Value) -> tuple[Value, ...]:
    """``F = E[ndtr(t s - nc)]`` over the chi variable s of `mean_over_chi`."""
    in_t = mean_over_chi(df, nc, t, lambda y, s, nc, t, level: s * normal_density(t * s - nc))
    in_nc = mean_over_chi(df, nc, t, lambda y, s, nc, t, level: -normal_density(t * s - nc))
    in_shape = mean_over_chi(df, nc, t, lambda y, s, nc, t, level: ndtr(t * s - nc) * (y + level))
    return 0.5 * in_shape - 0.5 * t / df * in_t, in_nc, in_t


LINE = (-2.0, 3.0)
distribution("nctdtr", noncentral_t, ((2.0, 6.0), SHIFT, LINE), accuracy=1e-11)
inverse("nctdtrit", noncentral_t, 2, 2, ((2.0, 6.0), SHIFT, UNIT), accuracy=SEARCHED)
inverse(
    "nctdtridf", noncentral_t, 0, 0, ((0.6, 0.65), (0.9, 1.0), (1.5, 1.9)), bounds=BEYOND, accuracy=SEARCHED
)
inverse("nctdtrinc", noncentral_t, 1, 1, ((2.0, 6.0), UNIT, (1.0, 2.0)), accuracy=SEARCHED)
