"""The incomplete gamma and beta functions, their inverses, and derivatives in their parameters.

The derivatives in the parameters are those of Moore (Algorithm AS 187, 1982) and of Boik and Robison-Cox (1998), computed by quadrature:
``dP/da = E[(log t - psi(a)) [t < x]]`` under the density, likewise for the beta function. The inverses follow by the implicit function
theorem.
"""

from __future__ import annotations

import math

import numpy as np

from gradtape.ir.graph import Value
from gradtape.ops.core.elementwise.exponential import exp
from gradtape.ops.core.elementwise.inverse import log
from gradtape.ops.core.elementwise.logic import equal, greater, less, less_equal
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.scipy.special.entropy import xlog1py, xlogy
from gradtape.ops.scipy.special.exponential import exp1
from gradtape.ops.scipy.special.gamma import betaln, gammaln, psi
from gradtape.ops.scipy.special.quadrature import beta_tail, gamma_tail
from gradtape.ops.scipy.special.rows import special

inf, nan = np.inf, np.nan


def gamma_density(a: Value, x: Value) -> Value:
    """Return the derivative of the incomplete gamma function in x: ``x**(a-1) exp(-x) / gamma(a)``."""
    return where(less(x, inf), exp(xlogy(a - 1.0, x) - x - gammaln(a)), 0.0)


def gamma_in_shape(a: Value, x: Value) -> Value:
    """Return the derivative of the incomplete gamma function in a; near 0, where the function is 1, it is that from the right."""
    inside = greater(x, 0.0) & less(x, inf)
    x = where(inside, x, 1.0)
    steep = less_equal(0.0, a) & less(a, STEEP) & less(x, STEEP_UP_TO)
    start = less_equal(0.0, a) & less(a, 1e-290) & ~steep
    a = where(start, 1.0, a)
    slope = exp(a * log(x) - x - gammaln(a)) * gamma_tail(where(steep, 1.0, a), x, psi(a))
    slope = where(steep, _gamma_series(where(steep, a, STEEP), where(steep, x, 0.5)), slope)
    return where(inside, where(start, -exp1(x), slope), 0.0)


STEEP, STEEP_UP_TO, BETA_UP_TO = 0.1, 0.8, 0.25
"""For smaller parameters and arguments nearly all of a density is near 0. ``log(t) - psi(a)`` has a mean of nearly 0, which a quadrature
loses: the integrals of the powers of t are written out instead, and ``1 / a`` cancels in ``psi(a + 1) = psi(a) + 1 / a``."""


def _gamma_series(a: Value, x: Value) -> Value:
    """Return the derivative of the incomplete gamma function in a, by the power series of ``exp(-t)``."""
    level = log(x) - psi(a + 1.0)
    total: Value | float = 0.0
    for n in reversed(range(1, 18)):
        share = 1.0 / (a + float(n))
        total = (-x / float(n)) * (share * (a * level + n * share) + total)
    return exp(a * log(x) - gammaln(a + 1.0)) * (level + total)


def beta_density(a: Value, b: Value, x: Value, y: Value | None = None) -> Value:
    """Return the derivative of the incomplete beta function in x; y is 1 - x where that is known better."""
    rest = xlog1py(b - 1.0, -x) if y is None else xlogy(b - 1.0, y)
    return exp(xlogy(a - 1.0, x) + rest - betaln(a, b))


def beta_in_first(a: Value, b: Value, x: Value, y: Value | None = None) -> Value:
    """Return the derivative of the incomplete beta function in a; that in b is its negative with a and b, x and y exchanged."""
    y = 1.0 - x if y is None else y
    inside = greater(x, 0.0) & greater(y, 0.0)
    x, y = where(inside, x, 0.5), where(inside, y, 0.5)
    steep = less(a, STEEP) & less(x * (b + 1.0), BETA_UP_TO)
    inner = where(steep, 1.0, a)
    front = exp(inner * log(x) + b * log(y) - betaln(inner, b))
    slope = front * beta_tail(inner, b, x, y, psi(inner) - psi(inner + b))
    series = _beta_series(where(steep, a, STEEP), where(steep, b, 1.0), where(steep, x, 0.1))
    return where(inside, where(steep, series, slope), 0.0)


def _beta_series(a: Value, b: Value, x: Value) -> Value:
    """Return the derivative of the incomplete beta function in a, by the power series of ``(1-t)**(b-1)``."""
    level = log(x) - psi(a + 1.0) + psi(a + b)
    total: Value | float = 0.0
    for n in reversed(range(1, 26)):
        share = 1.0 / (a + float(n))
        total = x * (1.0 - b / float(n)) * (share * (a * level + n * share) + total)
    return exp(a * log(x) - betaln(a + 1.0, b)) / (a + b) * (level + total)


def beta_in_second(a: Value, b: Value, x: Value, y: Value | None = None) -> Value:
    """Return the derivative of the incomplete beta function in b."""
    return -beta_in_first(b, a, 1.0 - x if y is None else y, x)


def _held(slope: Value, density: Value) -> Value:
    """Return the derivative of a quantile in a parameter: the ends of the support, where the density may be 0 or infinite, stay."""
    still = equal(slope, 0.0)
    return where(still, 0.0, -slope / where(still, 1.0, density))


SHAPE = ((0.4, 5.0), (0.3, 6.0))
gammainc = special(
    "gammainc",
    lambda z, a, x: gamma_in_shape(a, x),
    lambda z, a, x: gamma_density(a, x),
    domain=SHAPE,
    edges=((1.0, 0.0), (2.0, inf), (nan, 1.0), (1.0, -1.0), (1e3, 990.0)),
    slopes=(
        ((1.0, 0.0), (0.0, 1.0)),
        ((2.0, inf), (0.0, 0.0)),
        ((1.0, 1.0), (-0.43172971063489896, math.exp(-1.0))),
        ((0.0, 1.0), (-0.21938393439552029, 0.0)),
        ((1e-310, 1.0), (-0.21938393439552029, 0.0)),
    ),
    dtype_samples="df",
)
gammaincc = special(
    "gammaincc",
    lambda z, a, x: -gamma_in_shape(a, x),
    lambda z, a, x: -gamma_density(a, x),
    domain=SHAPE,
    edges=((1.0, 0.0), (2.0, inf), (nan, 1.0), (1.0, -1.0), (1e3, 990.0)),
    slopes=(((1.0, 0.0), (0.0, -1.0)), ((2.0, inf), (0.0, 0.0))),
    dtype_samples="df",
)
QUANTILE = ((0.6, 5.0), (0.1, 0.9))
gammaincinv = special(
    "gammaincinv",
    lambda z, a, y: _held(gamma_in_shape(a, z), gamma_density(a, z)),
    lambda z, a, y: 1.0 / gamma_density(a, z),
    domain=QUANTILE,
    edges=((1.0, 0.0), (2.0, 1.0), (nan, 0.5), (1.0, 2.0)),
    kinks="inf in y at 0 for a > 1 and at 1",
)
gammainccinv = special(
    "gammainccinv",
    lambda z, a, y: _held(gamma_in_shape(a, z), gamma_density(a, z)),
    lambda z, a, y: -1.0 / gamma_density(a, z),
    domain=QUANTILE,
    edges=((1.0, 0.0), (2.0, 1.0), (nan, 0.5), (1.0, 2.0)),
    kinks="-inf in y at 1 for a > 1 and at 0",
)

SHARE = ((0.4, 4.0), (0.4, 4.0), (0.1, 0.9))
EDGES = ((1.0, 2.0, 0.0), (2.0, 3.0, 1.0), (nan, 1.0, 0.5), (1.0, 1.0, 1.5), (200.0, 300.0, 0.4))
betainc = special(
    "betainc",
    lambda z, a, b, x: beta_in_first(a, b, x),
    lambda z, a, b, x: beta_in_second(a, b, x),
    lambda z, a, b, x: beta_density(a, b, x),
    domain=SHARE,
    edges=EDGES,
    slopes=(
        ((1.0, 1.0, 0.5), (-0.34657359027997264, 0.34657359027997264, 1.0)),
        ((1.0, 2.0, 0.0), (0.0, 0.0, 2.0)),
    ),
)
betaincc = special(
    "betaincc",
    lambda z, a, b, x: -beta_in_first(a, b, x),
    lambda z, a, b, x: -beta_in_second(a, b, x),
    lambda z, a, b, x: -beta_density(a, b, x),
    domain=SHARE,
    edges=EDGES,
)
betaincinv = special(
    "betaincinv",
    lambda z, a, b, y: _held(beta_in_first(a, b, z), beta_density(a, b, z)),
    lambda z, a, b, y: _held(beta_in_second(a, b, z), beta_density(a, b, z)),
    lambda z, a, b, y: 1.0 / beta_density(a, b, z),
    domain=((0.6, 4.0), (0.6, 4.0), (0.1, 0.9)),
    edges=((1.0, 2.0, 0.0), (2.0, 3.0, 1.0), (nan, 1.0, 0.5)),
)
betainccinv = special(
    "betainccinv",
    lambda z, a, b, y: _held(beta_in_first(a, b, z), beta_density(a, b, z)),
    lambda z, a, b, y: _held(beta_in_second(a, b, z), beta_density(a, b, z)),
    lambda z, a, b, y: -1.0 / beta_density(a, b, z),
    domain=((0.6, 4.0), (0.6, 4.0), (0.1, 0.9)),
    edges=((1.0, 2.0, 0.0), (2.0, 3.0, 1.0), (nan, 1.0, 0.5)),
)
