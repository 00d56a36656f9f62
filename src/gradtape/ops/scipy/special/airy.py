"""Airy, Kelvin and Struve functions, and integrals of Bessel and Airy functions."""

from __future__ import annotations

import math

import numpy as np

from gradtape.ir.graph import Value
from gradtape.kinds.elementwise import Elementwise
from gradtape.ops.core.elementwise.cast import zeros_like
from gradtape.ops.core.elementwise.exponential import exp
from gradtape.ops.core.elementwise.inverse import log
from gradtape.ops.core.elementwise.logic import equal, greater, less
from gradtape.ops.core.elementwise.power import power
from gradtape.ops.core.elementwise.roots import sqrt
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.core.elementwise.signs import fabs
from gradtape.ops.scipy.special.bessel import i0, j0, jv, k0, only_real, y0
from gradtape.ops.scipy.special.gamma import rgamma
from gradtape.ops.scipy.special.quadrature import integrate, unit_interval
from gradtape.ops.scipy.special.rows import NO_FORMULA, joined, refused, result, several, special

inf, nan = np.inf, np.nan
LINE = ((-4.0, 3.0),)
RAY = ((0.3, 5.0),)
SAMPLES = "df"
AT = ((0.0,), (nan,), (1.0,), (-5.0,))

airy_ai: Elementwise = result(
    "airy", 0, "airy_ai", lambda z, x: airy_aip(x), domain=LINE, edges=AT, dtype_samples=SAMPLES
)
airy_aip: Elementwise = result(
    "airy", 1, "airy_aip", lambda z, x: x * airy_ai(x), domain=LINE, edges=AT, dtype_samples=SAMPLES
)
airy_bi: Elementwise = result(
    "airy", 2, "airy_bi", lambda z, x: airy_bip(x), domain=LINE, edges=AT, dtype_samples=SAMPLES
)
airy_bip: Elementwise = result(
    "airy", 3, "airy_bip", lambda z, x: x * airy_bi(x), domain=LINE, edges=AT, dtype_samples=SAMPLES
)
several("airy", airy_ai, airy_aip, airy_bi, airy_bip)


def _root(x: Value) -> Value:
    """Return the derivative of the exponent of the scale of Bi: it is not scaled for x < 0."""
    only_real(x, x, "airye")
    positive = greater(x, 0.0)
    return where(positive, sqrt(where(positive, x, 1.0)), 0.0)


airye_ai: Elementwise = result("airye", 0, "airye_ai", lambda z, x: airye_aip(x) + sqrt(x) * z, domain=RAY)
airye_aip: Elementwise = result(
    "airye", 1, "airye_aip", lambda z, x: x * airye_ai(x) + sqrt(x) * z, domain=RAY
)
airye_bi: Elementwise = result("airye", 2, "airye_bi", lambda z, x: airye_bip(x) - _root(x) * z, domain=LINE)
airye_bip: Elementwise = result(
    "airye", 3, "airye_bip", lambda z, x: x * airye_bi(x) - _root(x) * z, domain=LINE
)
several("airye", airye_ai, airye_aip, airye_bi, airye_bip)

SERIES = 1e-6
"""The accuracy of SciPy's series and approximations for integrals."""

itairy_ai = result("itairy", 0, "itairy_ai", lambda z, x: airy_ai(x), domain=RAY, accuracy=SERIES)
itairy_bi = result("itairy", 1, "itairy_bi", lambda z, x: airy_bi(x), domain=RAY, accuracy=SERIES)
itairy_ai_negative = result(
    "itairy", 2, "itairy_ai_negative", lambda z, x: airy_ai(-x), domain=RAY, accuracy=SERIES
)
itairy_bi_negative = result(
    "itairy", 3, "itairy_bi_negative", lambda z, x: airy_bi(-x), domain=RAY, accuracy=SERIES
)
several("itairy", itairy_ai, itairy_bi, itairy_ai_negative, itairy_bi_negative)

several(
    "itj0y0",
    result("itj0y0", 0, "itj0", lambda z, x: j0(x), domain=RAY, accuracy=SERIES),
    result("itj0y0", 1, "ity0", lambda z, x: y0(x), domain=RAY, accuracy=SERIES),
)
several(
    "iti0k0",
    result("iti0k0", 0, "iti0", lambda z, x: i0(x), domain=RAY, accuracy=SERIES),
    result("iti0k0", 1, "itk0", lambda z, x: k0(x), domain=RAY, accuracy=SERIES),
)


def _less_one(row: Elementwise, x: Value, sign: float) -> Value:
    """Return ``sign * (f(x) - 1) / x`` for J0 (sign -1) and I0, by the power series near zero."""
    near = less(fabs(x), 0.5)
    inner = where(near, x, 0.0)
    small = 0.25 * inner * (1.0 + _rest(0.25 * sign * inner * inner))
    far = where(near, 1.0, x)
    return where(near, small, sign * (row(far) - 1.0) / far)


def _rest(square: Value) -> Value:
    """Return the sum of ``square**k / ((k+1)!)**2`` over k > 0."""
    total: Value | float = 0.0
    for k in reversed(range(2, 9)):
        total = (1.0 + total) * square / (k * k)
    assert isinstance(total, Value)
    return total


several(
    "it2j0y0",
    result("it2j0y0", 0, "it2j0", lambda z, x: _less_one(j0, x, -1.0), domain=RAY, accuracy=SERIES),
    result("it2j0y0", 1, "it2y0", lambda z, x: -y0(x) / x, domain=RAY, accuracy=SERIES),
)
several(
    "it2i0k0",
    result("it2i0k0", 0, "it2i0", lambda z, x: _less_one(i0, x, 1.0), domain=RAY, accuracy=SERIES),
    result("it2i0k0", 1, "it2k0", lambda z, x: -k0(x) / x, domain=RAY, accuracy=SERIES),
)

ber: Elementwise = special("ber", lambda z, x: berp(x), domain=RAY, edges=AT)
bei: Elementwise = special("bei", lambda z, x: beip(x), domain=RAY, edges=AT)
ker: Elementwise = special("ker", lambda z, x: kerp(x), domain=RAY, edges=((nan,), (1.0,), (12.0,)))
kei: Elementwise = special("kei", lambda z, x: keip(x), domain=RAY, edges=((nan,), (1.0,), (12.0,)))


def _over(f: Value, x: Value, limit: float) -> Value:
    zero = equal(x, 0.0)
    return where(zero, limit, f / where(zero, 1.0, x))


berp: Elementwise = special(
    "berp", lambda z, x: -_over(z, x, 0.0) - bei(x), domain=RAY, edges=AT, slopes=(((0.0,), (0.0,)),)
)
beip: Elementwise = special(
    "beip", lambda z, x: ber(x) - _over(z, x, 0.5), domain=RAY, edges=AT, slopes=(((0.0,), (0.5,)),)
)
kerp: Elementwise = special("kerp", lambda z, x: -z / x - kei(x), domain=RAY, edges=((nan,), (1.0,), (12.0,)))
keip: Elementwise = special("keip", lambda z, x: ker(x) - z / x, domain=RAY, edges=((nan,), (1.0,), (12.0,)))
several("kelvin", joined(ber, bei), joined(ker, kei), joined(berp, beip), joined(kerp, keip))


def _struve_term(v: Value, x: Value) -> Value:
    return power(0.5 * x, v) * rgamma(v + 1.5) * (1.0 / math.sqrt(math.pi))


STRUVE = ((0.0, 3.0), (0.5, 6.0))
struve: Elementwise = special(
    "struve",
    refused("struve", "v", NO_FORMULA),
    lambda z, v, x: 0.5 * (struve(v - 1.0, x) - struve(v + 1.0, x) + _struve_term(v, x)),
    domain=STRUVE,
    edges=((0.0, 0.0), (nan, 1.0), (1.0, 30.0)),
    accuracy=1e-12,
)
modstruve: Elementwise = special(
    "modstruve",
    refused("modstruve", "v", NO_FORMULA),
    lambda z, v, x: 0.5 * (modstruve(v - 1.0, x) + modstruve(v + 1.0, x) + _struve_term(v, x)),
    domain=STRUVE,
    edges=((0.0, 0.0), (nan, 1.0), (1.0, 30.0)),
    accuracy=1e-12,
)
special("itstruve0", lambda z, x: struve(zeros_like(x), x), domain=RAY, accuracy=SERIES)
special("itmodstruve0", lambda z, x: modstruve(zeros_like(x), x), domain=RAY, accuracy=SERIES)


def _struve_over(z: Value, x: Value) -> Value:
    zero = equal(x, 0.0)
    return where(zero, -2.0 / math.pi, -struve(zeros_like(x), x) / where(zero, 1.0, x))


special("it2struve0", _struve_over, domain=RAY, accuracy=SERIES, slopes=(((0.0,), (-2.0 / math.pi,)),))


def _in_power(z: Value, a: Value, lmb: Value, nu: Value) -> Value:
    """Return the integral of ``x**lmb log(x) J(nu, 2 a x)`` from 0 to 1; ``x = t**4`` smooths the power at 0."""

    def integrand(t: Value, a: Value, lmb: Value, nu: Value) -> Value:
        x = t * t * t * t
        return 16.0 * t * t * t * exp(lmb * 4.0 * log(t)) * log(t) * jv(nu, 2.0 * a * x)

    return integrate(unit_interval(128), integrand, a, lmb, nu)


besselpoly: Elementwise = special(
    "besselpoly",
    lambda z, a, lmb, nu: besselpoly(a, lmb + 1.0, nu - 1.0) - besselpoly(a, lmb + 1.0, nu + 1.0),
    _in_power,
    refused("besselpoly", "nu", NO_FORMULA),
    domain=((0.4, 3.0), (0.5, 2.0), (0.5, 2.0)),
    accuracy=1e-9,
)
