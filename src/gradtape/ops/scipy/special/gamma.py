"""The gamma function and related ones: logarithm, polygamma, zeta, beta, binomial coefficients."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from gradtape.errors import NotDifferentiableError
from gradtape.ir.builder import here
from gradtape.ir.graph import Value
from gradtape.ir.op import NDArray
from gradtape.kinds.elementwise import Elementwise, SciPy, elementwise, flat, resolve_ufunc
from gradtape.ops.core.elementwise.complex_parts import real
from gradtape.ops.core.elementwise.exponential import cos, exp, sin
from gradtape.ops.core.elementwise.floats import floor
from gradtape.ops.core.elementwise.inverse import log, log1p
from gradtape.ops.core.elementwise.logic import equal, greater, less, less_equal
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.core.elementwise.signs import fabs
from gradtape.ops.scipy.special.rows import special

inf, nan = np.inf, np.nan

gammaln = elementwise(
    "gammaln",
    "scipy.special:gammaln",
    body=SciPy("gammaln"),
    partials=(lambda z, x: psi(x),),
    domain=((0.3, 6.0),),
    edges=((1.0,), (2.0,), (inf,), (nan,), (1e-300,), (1e300,), (-0.5,), (-2.5,)),
    slopes=(((1.0,), (-0.5772156649015329,)), ((1e-10,), (-10000000000.577215,))),
    dtype_samples="df",
)


def _psi_slope(z: Value, x: Value) -> Value:
    return _complex_trigamma(x) if x.dtype.kind == "c" else polygamma(x, order=1)


psi: Elementwise = elementwise(
    "psi",
    "scipy.special:psi",
    body=SciPy("psi"),
    partials=(_psi_slope,),
    domain=((0.3, 6.0),),
    edges=((1.0,), (inf,), (nan,), (1e-300,), (1e300,), (-0.5,), (-2.5,)),
    slopes=(((1.0,), (math.pi**2 / 6,)), ((-0.5,), (math.pi**2 / 2 + 4,)), ((-1e-310,), (inf,))),
    dtype_samples="df",
)

BERNOULLI = (
    1 / 12,
    -1 / 720,
    1 / 30240,
    -1 / 1209600,
    1 / 47900160,
    -691 / 1307674368000,
    1 / 74724249600,
)
"""The Bernoulli numbers B(2k) divided by (2k)!, for the Euler-Maclaurin formula."""


def _polygamma(x: NDArray, *, order: int) -> NDArray:
    from scipy.special import polygamma as reference

    return np.asarray(reference(order, x)).astype(x.dtype)


def _zeta_sum(q: Value, power: int) -> Value:
    """Return the sum of (q + k)**-power over k = 0, 1, ...: ten terms, and Euler-Maclaurin from there on."""
    total: Value | float = 0.0
    for k in range(10):
        total = total + (q + float(k)) ** float(-power)
    far = q + 10.0
    inverse = 1.0 / (far * far)
    tail: Value | float = 0.0
    for k in reversed(range(len(BERNOULLI))):
        rising = math.prod(range(power, power + 2 * k + 1))
        tail = BERNOULLI[k] * rising + inverse * tail
    return total + far ** float(1 - power) * (1.0 / (power - 1) + 0.5 / far + inverse * tail)


def _cotangent_derivative(x: Value, order: int) -> Value:
    """Return a derivative of pi cot(pi x): that of a polynomial in the cotangent is one of a degree more."""
    coefficients = [0.0, math.pi]
    for _ in range(order):
        slopes = [k * c for k, c in enumerate(coefficients)][1:]
        raised = [*slopes, 0.0, 0.0]
        for k, c in enumerate(slopes):
            raised[k + 2] += c
        coefficients = [-math.pi * c for c in raised]
    cotangent = cos(math.pi * x) / sin(math.pi * x)
    total: Value | float = coefficients[-1]  # and not 0, whose product with an infinite cotangent is NaN
    for c in reversed(coefficients[:-1]):
        total = c + total * cotangent
    assert isinstance(total, Value)
    return total


def _complex_trigamma(x: Value) -> Value:
    """Return the derivative of psi at complex numbers: the zeta sum in the right half of the plane, by reflection in the left one."""
    right = greater(real(x), 0.0)
    q = where(right, x, 1.0 - x)
    total: Value | float = 0.0
    for k in range(10):
        total = total + 1.0 / ((q + float(k)) * (q + float(k)))
    inverse = 1.0 / (q + 10.0)
    square = inverse * inverse
    tail: Value | float = 0.0
    for k in reversed(range(len(BERNOULLI))):
        tail = BERNOULLI[k] * math.factorial(2 * k + 2) + square * tail
    forward = total + inverse * (1.0 + inverse * (0.5 + inverse * tail))
    sine = sin(math.pi * where(right, 0.5 + 0.0 * x, x)) / math.pi
    return where(right, forward, 1.0 / (sine * sine) - forward)


def _polygamma_body(x: Value, *, order: int) -> Value:
    """The zeta sum for x > 0, by reflection for x < 0; the poles are 0, -1, -2, ..."""
    sign = (-1.0) ** (order + 1)
    positive = greater(x, 0.0)
    forward = sign * math.factorial(order) * _zeta_sum(where(positive, x, 1.0 - x), order + 1)
    reflected = sign * -1.0 * forward - _cotangent_derivative(where(positive, 0.5, x), order)
    pole = equal(floor(x), x) & less_equal(x, 0.0)
    return where(positive, forward, where(pole, sign * inf, reflected))


polygamma: Elementwise = elementwise(
    "polygamma",
    _polygamma,
    body=_polygamma_body,
    partials=(lambda z, x, *, order: polygamma(x, order=order + 1),),
    dtypes=lambda type_, *, order: resolve_ufunc(psi.function, (type_,)),
    domain=((0.3, 6.0),),
    edges=((1.0,), (0.0,), (-1.0,), (-0.5,), (-2.3,), (nan,), (inf,), (1e-100,), (1e6,)),
    dtype_samples="df",
    params=({"order": 1}, {"order": 2}, {"order": 3}),
)


gamma = elementwise(
    "gamma",
    "scipy.special:gamma",
    body=SciPy("gamma"),
    partials=(lambda z, x: z * psi(x),),
    domain=((0.3, 6.0),),
    edges=((1.0,), (0.5,), (inf,), (nan,), (171.0,), (180.0,), (-0.5,), (-2.5,)),
    slopes=(((1.0,), (-0.5772156649015329,)), ((2.0,), (0.42278433509846713,))),
    dtype_samples="df",
)


STEPS = 10
"""Terms of a difference of digamma functions that are summed; from there on it is that of an asymptotic series."""
ASYMPTOTIC = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)
"""The Bernoulli numbers B(2k) divided by 2k."""


def _step(x: Any, step: Any, logarithm: Callable[[Any], Any]) -> Any:
    """Return psi(x + step) - psi(x) for positive x and x + step: a sum and a series that have the step as a factor."""
    total: Any = 0.0
    for k in range(1, STEPS):
        total = total + 1.0 / ((x + float(k)) * ((x + step) + float(k)))
    near, far = x + float(STEPS), (x + step) + float(STEPS)
    p, q = 1.0 / near, 1.0 / far
    # With u = p**2 and v = q**2, (u**k - v**k) / (u - v) is the sum of u**i v**(k-1-i).
    u, v = p * p, q * q
    power, quotient = u, 1.0
    series: Any = ASYMPTOTIC[0]
    for coefficient in ASYMPTOTIC[1:]:
        quotient = power + v * quotient
        power = power * u
        series = series + coefficient * quotient
    far_part = step * (total + (p * q) * (0.5 + series * (p + q))) + logarithm(step * p)
    return far_part + (step / (x + step)) / x


def _psi_step(x: NDArray, step: NDArray) -> NDArray:
    from scipy.special import psi as reference

    positive = ~np.signbit(x) & (x > 0) & (x + step > 0)
    inner, moved = np.where(positive, x, 1.0), np.where(positive, step, 1.0)
    result: NDArray = np.where(
        positive, _step(inner, moved, np.log1p), reference(x + step) - reference(x)
    ).astype(np.result_type(x, step))
    return result


def _psi_step_body(x: Value, step: Value) -> Value:
    positive = greater(x, 0.0) & greater(x + step, 0.0)
    inner, moved = where(positive, x, 1.0), where(positive, step, 1.0)
    return where(positive, _step(inner, moved, log1p), psi(x + step) - psi(x))


psi_step: Elementwise = elementwise(
    "psi_step",
    _psi_step,
    body=_psi_step_body,
    cost=100.0,
    partials=(
        lambda z, x, step: polygamma(x + step, order=1) - polygamma(x, order=1),
        lambda z, x, step: polygamma(x + step, order=1),
    ),
    dtypes=lambda x, step: resolve_ufunc(np.hypot, (x, step)),
    domain=((0.3, 6.0), (0.3, 6.0)),
    edges=((1.0, 1.0), (100.0, 200.0), (1e16, 2.0), (-0.5, 0.25), (nan, 1.0)),
    dtype_samples="df",
)
"""The difference psi(x + step) - psi(x), of which the two have no digits where the step is small beside x."""


def _share(z: Value, own: Value, other: Value) -> Value:
    return -psi_step(own, other)


betaln = elementwise(
    "betaln",
    "scipy.special:betaln",
    body=SciPy("betaln"),
    partials=(lambda z, a, b: _share(z, a, b), lambda z, a, b: _share(z, b, a)),
    domain=((0.3, 6.0), (0.3, 6.0)),
    edges=((1.0, 1.0), (0.5, 0.5), (nan, 1.0), (100.0, 200.0)),
    slopes=(((1.0, 1.0), (-1.0, -1.0)),),
    dtype_samples="df",
)
beta = elementwise(
    "beta",
    "scipy.special:beta",
    body=SciPy("beta"),
    partials=(lambda z, a, b: z * _share(z, a, b), lambda z, a, b: z * _share(z, b, a)),
    domain=((0.3, 6.0), (0.3, 6.0)),
    edges=((1.0, 1.0), (0.5, 0.5), (nan, 1.0), (100.0, 200.0)),
    slopes=(((1.0, 1.0), (-1.0, -1.0)),),
    dtype_samples="df",
)


def _is_pole(x: Value) -> Value:
    return equal(floor(x), x) & less_equal(x, 0.0)


def rgamma_slope(z: Value, x: Value) -> Value:
    """Left of 1/2 by reflection, ``sin(pi x) gamma(1 - x) / pi``: all its derivatives are right at the zeros 0, -1, -2, ... as well."""
    if x.dtype.kind == "c":
        return -psi(x) * z
    left = less(x, 0.5)
    inner, mirrored = where(left, 1.0, x), where(left, 1.0 - x, 1.0)
    return where(left, cos(math.pi * x) * gamma(mirrored) - z * psi(mirrored), -z * psi(inner))


rgamma = special(
    "rgamma",
    rgamma_slope,
    domain=((0.3, 6.0),),
    edges=((1.0,), (0.0,), (-1.0,), (nan,), (inf,), (-2.5,)),
    slopes=(((0.0,), (1.0,)), ((-1.0,), (-1.0,)), ((-2.0,), (2.0,)), ((1.0,), (0.5772156649015329,))),
    dtype_samples="df",
)
loggamma = special(
    "loggamma",
    lambda z, x: psi(x),
    domain=((0.3, 6.0),),
    edges=((1.0,), (2.0,), (inf,), (nan,), (-0.5,)),
    slopes=(((1.0,), (-0.5772156649015329,)),),
    dtype_samples="df",
)
gammasgn = special(
    "gammasgn",
    flat,
    domain=((-3.0, 3.0),),
    edges=((-0.5,), (-1.5,), (2.0,), (nan,)),
    kinks="0 at its jumps as well",
)


def _poch_in_first(z: Value, a: Value, m: Value) -> Value:
    """Where a is 0, -1, -2, ..., 1 / gamma(a) has a zero, or the symbol is a product: ``poch(a, m) = (-1)**m poch(1 - a - m, m)``."""
    pole, both = _is_pole(a), _is_pole(a) & _is_pole(a + m)
    first = where(both, 1.0 - a - m, where(pole, 1.0, a))
    last = where(both, 1.0 - a, where(pole, 1.0, a + m))
    plain = z * psi_step(first, where(both | pole, last - first, m))
    # There psi(a + m) and psi(a) cancel, and `plain` has the step as a factor.
    steady = greater(a, 0.0) & less(fabs(m), a)
    left = less(a, 0.5) & ~both & ~_is_pole(a + m) & ~steady
    inner, end = where(left, a, 0.25), where(left, a + m, 1.0)
    by_products = gamma(end) * (psi(end) * rgamma(inner) + rgamma_slope(rgamma(inner), inner))
    return where(left, by_products, where(both, -plain, plain))


poch = special(
    "poch",
    _poch_in_first,
    lambda z, a, m: where(_is_pole(a) & _is_pole(a + m), nan, z * psi(a + m)),
    domain=((0.3, 4.0), (0.3, 4.0)),
    edges=((1.0, 0.0), (2.0, 3.0), (nan, 1.0)),
    slopes=(
        ((1.0, 1.0), (1.0, 0.4227843350984671)),
        ((1e-160, 0.0), (0.0, -1e160)),
        ((-2.0, 3.0), (2.0, 0.0)),
        ((-3.0, 3.0), (11.0, nan)),
        ((0.0, 2.0), (1.0, 0.0)),
        ((-1.0, 0.5), (-math.gamma(-0.5), 0.0)),
    ),
    kinks="nan in m where a and a + m are among 0, -1, -2, ..., which is a jump",
)


def _binom_slope(z: Value, n: Value, k: Value, in_n: bool) -> Value:
    """Zeros are those of 1 / gamma(n - k + 1), for k > n, and of 1 / gamma(k + 1), for k < 0: there the factors are differentiated."""
    upper, lower = n - k + 1.0, k + 1.0
    plain = greater(upper, 0.5) & greater(lower, 0.5)
    right, left = where(plain, upper, 1.0), where(plain, 1.0, upper)
    above, below = where(plain, lower, 1.0), where(plain, 1.0, lower)
    numerator, below_factor, other = gamma(where(plain, 1.0, n + 1.0)), rgamma(below), rgamma(left)
    in_rest = numerator * below_factor * rgamma_slope(other, left)
    if in_n:
        return where(plain, z * psi_step(right, where(plain, k, 0.0)), z * psi(n + 1.0) + in_rest)
    return where(
        plain,
        z * psi_step(above, where(plain, n - 2.0 * k, 0.0)),
        numerator * other * rgamma_slope(below_factor, below) - in_rest,
    )


binom = special(
    "binom",
    lambda z, n, k: _binom_slope(z, n, k, True),
    lambda z, n, k: _binom_slope(z, n, k, False),
    domain=((2.5, 6.0), (0.3, 2.2)),
    edges=((5.0, 2.0), (3.0, 5.0), (nan, 1.0)),
    slopes=(
        ((2.0, 1.0), (1.0, 0.0)),
        ((1.0, 2.0), (0.5, -0.5)),
        ((5.0, -1.0), (0.0, 1.0 / 6.0)),
        ((5.0, -2.0), (0.0, -1.0 / 42.0)),
    ),
    accuracy=1e-12,
)


def _rising(z: Value, s: Value, power: int) -> Value:
    """Return s (s+1) ... (s+power-1) times z."""
    for k in range(power):
        z = z * (s + float(k))
    return z


def hurwitz_slope(s: Value, q: Value) -> Value:
    """Return the derivative of zeta(s, q) in s: that of twelve terms, and of Euler-Maclaurin's formula from there on."""
    total: Value | float = 0.0
    for k in range(12):
        term = log(q + float(k))
        total = total - term * exp(-s * term)
    far = q + 12.0
    level = log(far)
    decay = exp(-s * level)
    exponent = s - 1.0
    total = total - far * decay * (level / exponent + 1.0 / (exponent * exponent)) - 0.5 * level * decay
    inverse = 1.0 / far
    product, slope = s, 1.0 + 0.0 * s
    power = inverse
    for k, coefficient in enumerate(BERNOULLI):
        total = total + coefficient * power * decay * (slope - level * product)
        for step in (2.0 * k + 1.0, 2.0 * k + 2.0):
            slope = slope * (s + step) + product
            product = product * (s + step)
        power = power * inverse * inverse
    return total


def riemann_slope(z: Value, s: Value) -> Value:
    """To the left of -0.5 by the functional equation ``zeta(s) = 2 (2 pi)**(s-1) sin(pi s/2) gamma(1-s) zeta(1-s)``."""
    if s.dtype.kind == "c":
        raise NotDifferentiableError(
            "scipy.special.zeta of complex numbers has no derivative here",
            where=here.site,
            why="it is known for real numbers only",
        )
    left = less(s, -0.5)
    mirrored = where(left, 1.0 - s, s)
    slope = hurwitz_slope(mirrored, 1.0 + 0.0 * s)
    base = where(left, 1.0 - s, 2.0)
    value = riemann_zeta(base)
    angle = 0.5 * math.pi * s
    factor = 2.0 * exp((s - 1.0) * math.log(2.0 * math.pi)) * gamma(base)
    by_sine = sin(angle) * ((math.log(2.0 * math.pi) - psi(base)) * value - slope)
    return where(left, factor * (by_sine + 0.5 * math.pi * cos(angle) * value), slope)


riemann_zeta: Elementwise = special(
    "_ufuncs._riemann_zeta",
    riemann_slope,
    domain=((1.5, 6.0),),
    edges=((0.0,), (1.0,), (-2.0,), (nan,)),
    slopes=(
        ((0.0,), (-0.9189385332046727,)),
        ((-2.0,), (-0.03044845705839327,)),
        ((2.0,), (-0.9375482543158438,)),
    ),
)
zetac = special(
    "zetac",
    riemann_slope,
    domain=((1.5, 6.0),),
    edges=((0.0,), (1.0,), (-2.0,), (nan,), (60.0,)),
    slopes=(((0.0,), (-0.9189385332046727,)), ((2.0,), (-0.9375482543158438,))),
)
hurwitz_zeta: Elementwise = special(
    "_ufuncs._zeta",
    lambda z, s, q: hurwitz_slope(s, q),
    lambda z, s, q: -s * hurwitz_zeta(s + 1.0, q),
    domain=((1.5, 6.0), (0.4, 4.0)),
    edges=((2.0, 1.0), (nan, 1.0)),
    slopes=(((2.0, 1.0), (-0.9375482543158438, -2.4041138063191885)),),
)
