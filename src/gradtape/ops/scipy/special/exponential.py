"""Exponential and trigonometric integrals, the dilogarithm, Lambert's W, functions of degrees, Kolmogorov's distribution."""

from __future__ import annotations

import math

import numpy as np

from gradtape.ir.graph import Value
from gradtape.kinds.elementwise import Elementwise, SciPy, elementwise, flat
from gradtape.ops.core.elementwise.exponential import cos, cosh, exp, expm1, sin, sinh
from gradtape.ops.core.elementwise.floats import trunc
from gradtape.ops.core.elementwise.inverse import log
from gradtape.ops.core.elementwise.logic import equal, greater, less
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.core.elementwise.signs import absolute
from gradtape.ops.scipy.special.rows import NO_FORMULA, refused, result, several, special

inf, nan = np.inf, np.nan
DEGREE = math.pi / 180.0

exp1 = elementwise(
    "exp1",
    "scipy.special:exp1",
    body=SciPy("exp1"),
    partials=(lambda z, x: -exp(-x) / x,),
    domain=((0.3, 6.0),),
    edges=((1.0,), (0.0,), (inf,), (nan,)),
    slopes=(((1.0,), (-math.exp(-1.0),)), ((0.0,), (-inf,))),
    kinks="-inf at 0",
    dtype_samples="df",
)
expi = elementwise(
    "expi",
    "scipy.special:expi",
    body=SciPy("expi"),
    partials=(lambda z, x: exp(x) / x,),
    domain=((0.3, 6.0),),
    edges=((1.0,), (0.0,), (inf,), (nan,), (-1.0,)),
    slopes=(((1.0,), (math.e,)), ((-1.0,), (-math.exp(-1.0),))),
    dtype_samples="df",
)


special(
    "_ufuncs._log1mexp",
    lambda z, x: -1.0 / expm1(-x),
    domain=((-5.0, -0.2),),
    edges=((0.0,), (1.0,), (-inf,), (nan,), (-1e-20,)),
    slopes=(((-math.log(2.0),), (-1.0,)),),
)


def _expn_slope(z: Value, n: Value, x: Value) -> Value:
    """``-E(n-1, x)``, which SciPy has for n >= 1 only."""
    n = trunc(n)  # as SciPy does
    low = less(n, 1)
    return where(low, -(exp(-x) + (1 - n) * z) / x, -expn(where(low, 1, n) - 1, x))


expn: Elementwise = special(
    "expn",
    refused("expn", "n", NO_FORMULA),
    _expn_slope,
    domain=((0.0, 4.0), (0.3, 4.0)),
    edges=((1.0, 0.0), (2.0, 0.0), (3.0, 60.0)),
    slopes=(),
    dtype_samples=("ld",),
    accuracy=1e-13,
)


def _over(f: Value, x: Value, limit: float) -> Value:
    zero = equal(x, 0.0)
    return where(zero, limit, f / where(zero, 1.0, x))


LINE = ((0.2, 5.0),)
si = result(
    "sici",
    0,
    "si",
    lambda z, x: _over(sin(x), x, 1.0),
    domain=LINE,
    edges=((0.0,), (inf,), (nan,), (-1.0,)),
    slopes=(((0.0,), (1.0,)),),
    dtype_samples="df",
)
ci = result(
    "sici", 1, "ci", lambda z, x: cos(x) / x, domain=LINE, edges=((0.0,), (inf,), (nan,)), dtype_samples="df"
)
shi = result(
    "shichi",
    0,
    "shi",
    lambda z, x: _over(sinh(x), x, 1.0),
    domain=LINE,
    edges=((0.0,), (nan,), (-1.0,)),
    slopes=(((0.0,), (1.0,)),),
    dtype_samples="df",
)
chi = result(
    "shichi", 1, "chi", lambda z, x: cosh(x) / x, domain=LINE, edges=((0.0,), (nan,)), dtype_samples="df"
)
several("sici", si, ci)
several("shichi", shi, chi)


def _spence_slope(x: Value) -> Value:
    """Return ``log(x) / (1 - x)``, near 1 by its power series, the derivatives of which are right there as well."""
    past = x - 1.0
    near = less(absolute(past), 0.02)
    inner = where(near, past, 0.0)
    series: Value | float = 0.0
    for k in reversed(range(10)):
        series = (-1.0) ** (k + 1) / (k + 1.0) + inner * series
    far = where(near, 2.0, x)
    return where(near, series, log(far) / (1.0 - far))


spence = special(
    "spence",
    lambda z, x: _spence_slope(x),
    domain=((0.2, 3.0),),
    edges=((0.0,), (1.0,), (-1.0,), (inf,), (nan,)),
    slopes=(((1.0,), (-1.0,)), ((0.0,), (-inf,)), ((2.0,), (-math.log(2.0),))),
    kinks="-inf at 0",
    dtype_samples="df",
)
wrightomega = special(
    "wrightomega",
    lambda z, x: z / (1.0 + z),
    domain=((-3.0, 4.0),),
    edges=((inf,), (-inf,), (nan,), (1.0,)),
    slopes=(((1.0,), (0.5,)),),
    dtype_samples="df",
)

BRANCH = "Dld->D"
lambertw_real = result(
    "_ufuncs._lambertw",
    None,
    "lambertw_real",
    part="real",
    loop=BRANCH,
    domain=((0.2, 3.0), (-1.0, 1.0), (0.0, 1.0), (1e-8, 1e-8)),
    dtype_samples=("ddld",),
)
lambertw_imag = result(
    "_ufuncs._lambertw",
    None,
    "lambertw_imag",
    part="imag",
    loop=BRANCH,
    domain=((0.2, 3.0), (-1.0, 1.0), (0.0, 1.0), (1e-8, 1e-8)),
    dtype_samples=("ddld",),
)
lambertw = elementwise(
    "_lambertw",
    "scipy.special._ufuncs:_lambertw",
    body=SciPy("_ufuncs._lambertw"),
    complex_body=lambda z, k, tol: (lambertw_real(*z, k, tol), lambertw_imag(*z, k, tol)),
    partials=(lambda w, z, k, tol: exp(-w) / (1.0 + w), flat, flat),
    domain=((0.2, 3.0), (0.0, 1.0), (1e-8, 1e-8)),
    dtype_samples=("Dld",),
)

TURN = ((-300.0, 300.0),)
sindg: Elementwise = special(
    "sindg",
    lambda z, x: DEGREE * cosdg(x),
    domain=TURN,
    edges=((0.0,), (30.0,), (nan,)),
    slopes=(((90.0,), (0.0,)),),
    dtype_samples="df",
)
cosdg: Elementwise = special(
    "cosdg",
    lambda z, x: -DEGREE * sindg(x),
    domain=TURN,
    edges=((0.0,), (60.0,), (nan,)),
    slopes=(((180.0,), (0.0,)),),
    dtype_samples="df",
)
tandg: Elementwise = special(
    "tandg",
    lambda z, x: DEGREE * (1.0 + z * z),
    domain=((-80.0, 80.0),),
    edges=((0.0,), (45.0,), (nan,)),
    dtype_samples="df",
)
cotdg: Elementwise = special(
    "cotdg",
    lambda z, x: -DEGREE * (1.0 + z * z),
    domain=((20.0, 160.0),),
    edges=((45.0,), (90.0,), (nan,)),
    dtype_samples="df",
)
cosm1 = special(
    "cosm1",
    lambda z, x: -sin(x),
    domain=((-3.0, 3.0),),
    edges=((0.0,), (1e-9,), (nan,), (100.0,)),
    dtype_samples="df",
)
exp10: Elementwise = special(
    "exp10",
    lambda z, x: math.log(10.0) * z,
    domain=((-2.0, 2.0),),
    edges=((0.0,), (400.0,), (-400.0,), (nan,)),
    dtype_samples="df",
)
radian = special(
    "radian",
    lambda z, d, m, s: DEGREE + 0.0 * d,
    lambda z, d, m, s: DEGREE / 60.0 + 0.0 * m,
    lambda z, d, m, s: DEGREE / 3600.0 + 0.0 * s,
    domain=((-90.0, 90.0), (0.0, 60.0), (0.0, 60.0)),
)
round_ = special(
    "round",
    flat,
    domain=((-3.0, 3.0),),
    edges=((0.5,), (1.5,), (nan,), (inf,)),
    dtype_samples="df",
)

CYCLES = 6


def kolmogorov_slope(x: Value) -> Value:
    """Return the derivative, of the series of ``exp(-2 k**2 x**2)`` for large x and of its theta transform for small ones."""
    positive = greater(x, 0.03) & less(x, inf)  # elsewhere it underflows
    x = where(positive, x, 1.0)
    large = greater(x, 0.8)
    far, near = where(large, x, 1.0), where(large, 0.8, x)
    tail: Value | float = 0.0
    for k in range(1, CYCLES):
        tail = tail + (-1.0) ** k * 8.0 * k * k * far * exp(-2.0 * k * k * far * far)
    head: Value | float = 0.0
    for k in range(1, CYCLES):
        rate = (2 * k - 1) ** 2 * math.pi**2 / 8.0
        inverse = 1.0 / (near * near)
        head = head - math.sqrt(2.0 * math.pi) * inverse * (2.0 * rate * inverse - 1.0) * exp(-rate * inverse)
    return where(positive, where(large, tail, head), 0.0)


kolmogorov = special(
    "kolmogorov",
    lambda z, x: kolmogorov_slope(x),
    domain=((0.5, 1.6),),
    edges=((0.0,), (-1.0,), (5.0,), (nan,)),
    slopes=(((0.0,), (0.0,)),),
)
kolmogi = special(
    "kolmogi",
    lambda z, p: where(equal(kolmogorov_slope(z), 0.0), -inf, 1.0 / kolmogorov_slope(z)),
    domain=((0.1, 0.9),),
    edges=((1.0,), (nan,), (0.5,), (0.0,)),
    slopes=(((0.0,), (-inf,)), ((1.0,), (-inf,))),
)
TWICE = "the sum that it is has terms which depend on n and x"
smirnov_slope = special(
    "_ufuncs._smirnovp",
    refused("smirnov", "n", "it is a whole number"),
    refused("the derivative of smirnov", "x", TWICE),
    domain=((3.0, 8.0), (0.1, 0.6)),
    dtype_samples=("ld",),
)
smirnov: Elementwise = special(
    "smirnov",
    refused("smirnov", "n", "it is a whole number"),
    lambda z, n, x: smirnov_slope(n, x),
    domain=((3.0, 8.0), (0.1, 0.6)),
    dtype_samples=("ld",),
    edges=((3.0, 0.0), (3.0, 1.0)),
)
smirnovi = special(
    "smirnovi",
    refused("smirnovi", "n", "it is a whole number"),
    lambda z, n, p: 1.0 / smirnov_slope(n, z),
    domain=((3.0, 8.0), (0.1, 0.9)),
    dtype_samples=("ld",),
)
