"""Distribution functions and their inverses, in all of their arguments; most are incomplete gamma and beta functions."""

from __future__ import annotations

import numpy as np

from gradtape.ir.graph import Value
from gradtape.kinds.elementwise import Elementwise, flat
from gradtape.ops.core.elementwise.exponential import exp
from gradtape.ops.core.elementwise.extrema import maximum, minimum
from gradtape.ops.core.elementwise.floats import floor
from gradtape.ops.core.elementwise.inverse import log, log1p
from gradtape.ops.core.elementwise.logic import equal, greater, less
from gradtape.ops.core.elementwise.roots import sqrt
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.core.elementwise.signs import sign
from gradtape.ops.scipy.special.distributions.incomplete import (
    beta_density,
    beta_in_first,
    beta_in_second,
    gamma_density,
    gamma_in_shape,
)
from gradtape.ops.scipy.special.distributions.inverses import (
    BEYOND,
    FROM_ZERO,
    SEARCHED,
    distribution,
    inverse,
)
from gradtape.ops.scipy.special.gamma import beta, psi
from gradtape.ops.scipy.special.rows import special

inf, nan = np.inf, np.nan
UNIT = (0.15, 0.85)
# Gamma, chi-square, Poisson


def _gamma(a: Value, b: Value, x: Value) -> tuple[Value, ...]:
    density = gamma_density(b, a * x)
    return x * density, gamma_in_shape(b, a * x), a * density


RATE, SHAPE, POSITIVE = (0.5, 2.0), (0.6, 4.0), (0.3, 4.0)
distribution("gdtr", _gamma, (RATE, SHAPE, POSITIVE), edges=((1.0, 2.0, 0.0), (nan, 1.0, 1.0)))
distribution("gdtrc", _gamma, (RATE, SHAPE, POSITIVE), -1.0, edges=((1.0, 2.0, 0.0), (nan, 1.0, 1.0)))
inverse("gdtria", _gamma, 0, 0, (UNIT, SHAPE, POSITIVE), accuracy=SEARCHED)
inverse("gdtrib", _gamma, 1, 1, (RATE, UNIT, POSITIVE), accuracy=SEARCHED)
inverse("gdtrix", _gamma, 2, 2, (RATE, SHAPE, UNIT), accuracy=SEARCHED)


def _chi_square(v: Value, x: Value) -> tuple[Value, ...]:
    return 0.5 * gamma_in_shape(0.5 * v, 0.5 * x), 0.5 * gamma_density(0.5 * v, 0.5 * x)


distribution("chdtr", _chi_square, ((1.0, 6.0), (0.5, 8.0)), edges=((2.0, 0.0), (nan, 1.0)))
distribution("chdtrc", _chi_square, ((1.0, 6.0), (0.5, 8.0)), -1.0, edges=((2.0, 0.0), (nan, 1.0)))
inverse("chdtri", _chi_square, 1, 1, ((1.2, 6.0), UNIT), -1.0)
inverse("chdtriv", _chi_square, 0, 0, (UNIT, (0.5, 8.0)), accuracy=SEARCHED)


def _poisson(k: Value, m: Value) -> tuple[Value, ...]:
    """The derivatives of what is the distribution function at whole numbers k."""
    return -gamma_in_shape(k + 1.0, m), -gamma_density(k + 1.0, m)


special(
    "pdtr",
    flat,
    lambda z, k, m: -gamma_density(floor(k) + 1.0, m),
    domain=((0.2, 5.0), (0.3, 6.0)),
    edges=((2.0, 0.0), (nan, 1.0)),
    kinks="0 in k",
)
special(
    "pdtrc",
    flat,
    lambda z, k, m: gamma_density(floor(k) + 1.0, m),
    domain=((0.2, 5.0), (0.3, 6.0)),
    edges=((2.0, 0.0), (nan, 1.0)),
    kinks="0 in k",
)
special(
    "pdtri",
    flat,
    lambda z, k, y: -1.0 / gamma_density(floor(k) + 1.0, z),
    domain=((1.0, 4.0), UNIT),
    dtype_samples=("ld",),
)
inverse("pdtrik", _poisson, 0, 0, (UNIT, (2.5, 6.0)), bounds=FROM_ZERO, accuracy=SEARCHED)

# Beta, binomial, negative binomial, F, Student's t


def _beta(a: Value, b: Value, x: Value) -> tuple[Value, ...]:
    return beta_in_first(a, b, x), beta_in_second(a, b, x), beta_density(a, b, x)


inverse("_ufuncs._beta_ppf", _beta, 2, 0, (UNIT, SHAPE, SHAPE))
inverse("btdtria", _beta, 0, 0, (UNIT, SHAPE, UNIT), accuracy=SEARCHED)
inverse("btdtrib", _beta, 1, 1, (SHAPE, UNIT, UNIT), accuracy=SEARCHED)


def _binomial(k: Value, n: Value, p: Value) -> tuple[Value, ...]:
    """The derivatives of what is the distribution function at whole numbers k and n."""
    a, b = n - k, k + 1.0
    first, second = beta_in_first(a, b, 1.0 - p, p), beta_in_second(a, b, 1.0 - p, p)
    return second - first, first, -beta_density(a, b, 1.0 - p, p)


def _in_probability(k: Value, n: Value, p: Value) -> Value:
    k, n = floor(k), floor(n)
    last = equal(k, n)
    return where(last, 0.0, -beta_density(where(last, 1.0, n - k), k + 1.0, 1.0 - p, p))


COUNTS = ((0.2, 3.0), (4.0, 6.0), UNIT)
special(
    "bdtr",
    flat,
    flat,
    lambda z, k, n, p: _in_probability(k, n, p),
    domain=COUNTS,
    dtype_samples=("dld",),
    edges=((1.0, 3.0, 0.0), (3.0, 3.0, 0.5), (nan, 3.0, 0.5)),
    kinks="0 in k and n",
)
special(
    "bdtrc",
    flat,
    flat,
    lambda z, k, n, p: -_in_probability(k, n, p),
    domain=COUNTS,
    dtype_samples=("dld",),
    edges=((1.0, 3.0, 0.0), (3.0, 3.0, 0.5), (nan, 3.0, 0.5)),
    kinks="0 in k and n",
)
special(
    "bdtri",
    flat,
    flat,
    lambda z, k, n, y: 1.0 / _in_probability(k, n, z),
    domain=COUNTS,
    dtype_samples=("dld",),
    kinks="0 in k and n",
)


def _binomial_mass_slope(z: Value, k: Value, n: Value, p: Value) -> Value:
    """``z (k / p - (n - k) / (1 - p))``, by the masses of one trial less where a quotient would be 0 / 0."""
    end = equal(p, 0.0) | equal(p, 1.0)
    inner = where(end, 0.5, p)
    below = where(greater(k, 0.0), binomial_mass(maximum(k - 1.0, 0.0), n - 1.0, p), 0.0)
    same = where(less(k, n), binomial_mass(minimum(k, n - 1.0), n - 1.0, p), 0.0)
    return where(end, n * (below - same), z * (k / inner - (n - k) / (1.0 - inner)))


# The binomial distribution of SciPy's new distributions, which is continued between whole numbers

binomial_mass: Elementwise = special(
    "_ufuncs._binom_pmf",
    lambda z, k, n, p: z * (log(p) - log1p(-p) - psi(k + 1.0) + psi(n - k + 1.0)),
    lambda z, k, n, p: z * (psi(n + 1.0) - psi(n - k + 1.0) + log1p(-p)),
    _binomial_mass_slope,
    domain=COUNTS,
    edges=((0.0, 3.0, 0.0), (3.0, 3.0, 0.5), (nan, 3.0, 0.5)),
    accuracy=1e-12,
)


def _tail_slope(k: Value, n: Value, p: Value) -> Value:
    last = equal(k, n)
    return where(last, 0.0, -beta_density(where(last, 1.0, n - k), k + 1.0, 1.0 - p, p))


for _name, _sign in (("cdf", 1.0), ("sf", -1.0)):
    special(
        f"_ufuncs._binom_{_name}",
        lambda z, k, n, p, sign=_sign: sign * _binomial(k, n, p)[0],
        lambda z, k, n, p, sign=_sign: sign * _binomial(k, n, p)[1],
        lambda z, k, n, p, sign=_sign: sign * _tail_slope(k, n, p),
        domain=COUNTS,
        edges=((1.0, 3.0, 0.0), (3.0, 3.0, 0.5), (nan, 3.0, 0.5)),
    )
for _name in ("ppf", "isf"):
    special(
        f"_ufuncs._binom_{_name}", flat, flat, flat, domain=((0.3, 0.4), (4.0, 4.0), (0.5, 0.52)), kinks="0"
    )
inverse("bdtrik", _binomial, 0, 0, (UNIT, (6.0, 9.0), (0.4, 0.7)), bounds=FROM_ZERO, accuracy=SEARCHED)
inverse("bdtrin", _binomial, 1, 1, ((1.0, 3.0), UNIT, (0.3, 0.7)), bounds=BEYOND, accuracy=SEARCHED)


def negative_binomial(k: Value, n: Value, p: Value) -> tuple[Value, ...]:
    b = k + 1.0
    return beta_in_second(n, b, p), beta_in_first(n, b, p), beta_density(n, b, p)


TRIALS = ((1.0, 4.0), (1.0, 5.0), UNIT)
special(
    "nbdtr",
    flat,
    flat,
    lambda z, k, n, p: beta_density(floor(n), floor(k) + 1.0, p),
    domain=TRIALS,
    dtype_samples=("lld",),
    kinks="0 in k and n",
)
special(
    "nbdtrc",
    flat,
    flat,
    lambda z, k, n, p: -beta_density(floor(n), floor(k) + 1.0, p),
    domain=TRIALS,
    dtype_samples=("lld",),
    kinks="0 in k and n",
)
special(
    "nbdtri",
    flat,
    flat,
    lambda z, k, n, y: 1.0 / beta_density(floor(n), floor(k) + 1.0, z),
    domain=TRIALS,
    dtype_samples=("lld",),
    kinks="0 in k and n",
)
inverse(
    "nbdtrik", negative_binomial, 0, 0, (UNIT, (3.0, 6.0), (0.2, 0.5)), bounds=FROM_ZERO, accuracy=SEARCHED
)
inverse("nbdtrin", negative_binomial, 1, 1, ((1.0, 4.0), UNIT, (0.2, 0.7)), bounds=BEYOND, accuracy=SEARCHED)


def _f(dfn: Value, dfd: Value, x: Value) -> tuple[Value, ...]:
    total = dfd + dfn * x
    share, rest = dfn * x / total, dfd / total
    a, b = 0.5 * dfn, 0.5 * dfd
    density = beta_density(a, b, share, rest) * share * rest
    return (
        0.5 * beta_in_first(a, b, share, rest) + density / dfn,
        0.5 * beta_in_second(a, b, share, rest) - density / dfd,
        beta_density(a, b, share, rest) * rest * dfn / total,
    )


FREEDOM = (1.5, 6.0)
distribution("fdtr", _f, (FREEDOM, FREEDOM, POSITIVE), edges=((2.0, 3.0, 0.0), (nan, 1.0, 1.0)))
distribution("fdtrc", _f, (FREEDOM, FREEDOM, POSITIVE), -1.0, edges=((2.0, 3.0, 0.0), (nan, 1.0, 1.0)))
inverse("fdtri", _f, 2, 2, (FREEDOM, FREEDOM, UNIT), accuracy=1e-12)
inverse("fdtridfd", _f, 1, 1, ((2.0, 4.0), (0.45, 0.55), (0.9, 1.1)), bounds=BEYOND, accuracy=SEARCHED)


def _student(df: Value, t: Value) -> tuple[Value, ...]:
    """``F(t) = 1/2 + sign(t) I(1/2, df/2; t**2 / (df + t**2)) / 2``."""
    total = df + t * t
    share, rest = t * t / total, df / total
    # 1 / B(df/2, 1/2), divided by df, which is a number for the least df
    inverse = 1.0 / ((df + 1.0) * beta(0.5 * df + 1.0, 0.5 + 0.0 * df))
    small_share = less(share, 0.5)
    decay = where(small_share, log1p(-where(small_share, share, 0.0)), log(rest))
    slope = inverse * exp(0.5 * df * decay) / sqrt(total)
    # Near 0 the power series, whose derivatives are right at 0 too, where the share is the square of t.
    near = less(share, 1e-8)
    highest = sqrt(df) * inverse
    growth = 0.5 * (psi(0.5 * (df + 1.0)) - psi(0.5 * df + 1.0) + 1.0 / df)
    small = where(near, t, 0.0)
    bend = (1.0 / (df * df) - (df + 1.0) / df * growth) / 6.0
    series = highest * small * (growth + bend * (small * small))
    far = where(near, 0.5, share), where(near, 0.5, rest)
    in_df = 0.25 * sign(t) * beta_in_second(0.5 + 0.0 * df, 0.5 * df, *far) - 0.5 * t * slope
    return where(near, series, in_df), df * slope


distribution(
    "stdtr", _student, (FREEDOM, (-3.0, 3.0)), edges=((2.0, 0.0), (nan, 1.0), (3.0, inf), (3.0, -inf))
)
inverse("stdtrit", _student, 1, 1, (FREEDOM, UNIT), accuracy=1e-12)
inverse("stdtridf", _student, 0, 0, ((0.8, 0.82), (1.0, 1.1)), bounds=BEYOND, accuracy=SEARCHED)
