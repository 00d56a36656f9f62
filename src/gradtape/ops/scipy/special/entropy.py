"""Entropies, losses and power transforms."""

from __future__ import annotations

import math

import numpy as np

from gradtape.ir.graph import Value
from gradtape.kinds.elementwise import elementwise
from gradtape.ops.core.elementwise.arithmetic import masked_product
from gradtape.ops.core.elementwise.exponential import exp, exp2
from gradtape.ops.core.elementwise.extrema import clip
from gradtape.ops.core.elementwise.floats import isnan
from gradtape.ops.core.elementwise.inverse import log, log1p
from gradtape.ops.core.elementwise.logic import equal, greater, greater_equal, less
from gradtape.ops.core.elementwise.power import KINKS, POWER
from gradtape.ops.core.elementwise.power import power as raised
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.core.elementwise.signs import fabs, hypot
from gradtape.ops.scipy.special.rows import special

inf, nan = np.inf, np.nan


def _times_log(x: Value, y: Value, logarithm: Value) -> Value:
    return where(equal(x, 0.0) & ~isnan(y), 0.0, x * logarithm)


def _over(x: Value, y: Value) -> Value:
    """Return x / y, and 0 where both are 0, though the derivative in x is infinite there."""
    return where(equal(x, 0.0) & equal(y, 0.0), masked_product(inf, x), x / y)


xlogy = elementwise(
    "xlogy",
    "scipy.special:xlogy",
    body=lambda x, y: _times_log(x, y, log(y)),
    partials=(lambda z, x, y: log(y), lambda z, x, y: _over(x, y)),
    domain=((-3.0, 3.0), (0.2, 4.0)),
    edges=((0.0, 0.0), (0.0, inf), (0.0, -1.0), (0.0, nan), (1.0, 0.0), (nan, 1.0), (2.0, -1.0)),
    slopes=(
        ((0.0, 0.0), (-inf, 0.0)),
        ((0.0, 2.0), (math.log(2.0), 0.0)),
        ((0.0, 5e-324), (math.log(5e-324), 0.0)),
        ((3.0, 0.0), (-inf, inf)),
    ),
    kinks="0 with respect to the second argument where both are 0",
    dtype_samples="df",
)
xlog1py = elementwise(
    "xlog1py",
    "scipy.special:xlog1py",
    body=lambda x, y: _times_log(x, y, log1p(y)),
    partials=(lambda z, x, y: log1p(y), lambda z, x, y: _over(x, 1.0 + y)),
    domain=((-3.0, 3.0), (-0.6, 4.0)),
    edges=((0.0, -1.0), (0.0, inf), (0.0, -2.0), (0.0, nan), (1.0, -1.0), (nan, 1.0), (2.0, -2.0)),
    slopes=(
        ((0.0, -1.0), (-inf, 0.0)),
        ((0.0, 1.0), (math.log(2.0), 0.0)),
        ((2.0, 1e-20), (1e-20, 2.0)),
    ),
    kinks="0 with respect to the second argument where the first is 0 and the second -1",
    dtype_samples="df",
)


def _entr_body(x: Value) -> Value:
    return where(greater(x, 0.0), -x * log(x), where(equal(x, 0.0), 0.0, where(isnan(x), x, -inf)))


entr = elementwise(
    "entr",
    "scipy.special:entr",
    body=_entr_body,
    partials=(lambda z, x: -1.0 - log(x),),
    domain=((0.1, 3.0),),
    edges=((0.0,), (-1.0,), (inf,), (nan,), (1.0,), (5e-324,)),
    slopes=(((0.0,), (inf,)), ((1.0,), (-1.0,))),
    kinks="inf at 0",
    dtype_samples="df",
)


def _log_ratio(x: Value, y: Value) -> Value:
    """Return log(x / y), to full accuracy near x = y and where the quotient over- or underflows."""
    ratio = x / y
    close = greater(ratio, 0.5) & less(ratio, 2.0)
    tame = greater(ratio, float(np.finfo(x.dtype).tiny)) & less(ratio, inf)
    return where(close, log1p((x - y) / y), where(tame, log(ratio), log(x) - log(y)))


def _rel_entr_body(x: Value, y: Value) -> Value:
    zero = equal(x, 0.0) & greater_equal(y, 0.0)
    undefined = where(isnan(x) | isnan(y), x + y, inf)
    return where(greater(x, 0.0) & greater(y, 0.0), x * _log_ratio(x, y), where(zero, 0.0, undefined))


rel_entr = elementwise(
    "rel_entr",
    "scipy.special:rel_entr",
    body=_rel_entr_body,
    partials=(
        lambda z, x, y: where(equal(x, 0.0) & equal(y, 0.0), 0.0, 1.0 + _log_ratio(x, y)),
        lambda z, x, y: where(equal(x, 0.0) & equal(y, 0.0), 0.0, -x / y),
    ),
    domain=((0.2, 4.0), (0.2, 4.0)),
    edges=(
        (0.0, 0.0),
        (0.0, 1.0),
        (1.0, 0.0),
        (1.0, -1.0),
        (-1.0, 1.0),
        (nan, 1.0),
        (1.0, nan),
        (1.0, 1.0),
        (1e300, 1e-300),
        (1.0, 1.0000001),
    ),
    slopes=(
        ((0.0, 1.0), (-inf, 0.0)),
        ((0.0, 0.0), (0.0, 0.0)),
        ((2.0, 2.0), (1.0, -1.0)),
        ((1e300, 1e-300), (1.0 + 600 * math.log(10.0), -inf)),
    ),
    kinks="0 with respect to both where both are 0; -inf with respect to the first where it alone is 0",
    dtype_samples="df",
)


def _less_ratio(x: Value, y: Value) -> Value:
    """Return 1 - x / y, without rounding the quotient near 1."""
    close = less(fabs(y - x), 0.5 * y)
    return where(close, (y - x) / y, 1.0 - where(equal(x, 0.0) & equal(y, 0.0), 0.0, x / y))


kl_div = special(
    "kl_div",
    lambda z, x, y: where(equal(x, 0.0) & equal(y, 0.0), 0.0, _log_ratio(x, y)),
    lambda z, x, y: _less_ratio(x, y),
    domain=((0.2, 4.0), (0.2, 4.0)),
    edges=((0.0, 0.0), (0.0, 1.0), (1.0, 0.0), (1.0, -1.0), (nan, 1.0), (1.0, 1.0)),
    slopes=(((0.0, 1.0), (-inf, 1.0)), ((2.0, 2.0), (0.0, 0.0))),
    kinks="0 and 1 where both are 0; -inf with respect to the first where it alone is 0",
)


def _huber_in_delta(z: Value, delta: Value, r: Value) -> Value:
    return where(greater(fabs(r), delta), fabs(r) - delta, 0.0)


huber = special(
    "huber",
    _huber_in_delta,
    lambda z, delta, r: clip(r, -delta, delta),
    domain=((0.5, 1.5), (-3.0, 3.0)),
    edges=((1.0, 0.0), (-1.0, 1.0), (1.0, inf), (nan, 1.0)),
    slopes=(((1.0, 0.5), (0.0, 0.5)), ((1.0, -3.0), (2.0, -1.0)), ((1.0, 1.0), (0.0, 1.0))),
)
pseudo_huber = special(
    "pseudo_huber",
    lambda z, delta, r: _excess(delta, r),
    lambda z, delta, r: delta * (r / _length(delta, r)),
    domain=((0.5, 1.5), (-3.0, 3.0)),
    edges=((1.0, 0.0), (-1.0, 1.0), (nan, 1.0)),
    slopes=(
        ((1.0, 0.0), (0.0, 0.0)),
        ((0.0, 0.0), (0.0, 0.0)),
        ((1.0, 1e200), (1e200, 1.0)),
        ((1e-200, 1.0), (1.0, 1e-200)),
    ),
)


def _length(delta: Value, r: Value) -> Value:
    """Return the length of both, and 1 where it is 0: products with it are 0 there."""
    h = hypot(delta, r)
    return where(equal(h, 0.0), 1.0, h)


def _excess(delta: Value, r: Value) -> Value:
    """Return ``(h - delta)**2 / h`` for the length h of both, which squares and subtracts nothing."""
    h = _length(delta, r)
    excess = r * (r / (h + delta))
    return excess * (excess / h)


def _exprel_slope(z: Value, x: Value) -> Value:
    """Near zero the terms of the quotient cancel, and the power series takes over: ``sum((k+1) / (k+2)! x**k)``."""
    near = less(fabs(x), 1.0)
    inner = where(near, x, 0.0)
    series: Value | float = 0.0
    for k in reversed(range(18)):
        series = (k + 1.0) / math.factorial(k + 2) + inner * series
    far = where(near, 1.0, x)
    rate = 1.0 / far
    return where(near, series, (exp(far) * rate) * (1.0 - rate) + rate * rate)


exprel = special(
    "exprel",
    _exprel_slope,
    domain=((-3.0, 3.0),),
    edges=((0.0,), (inf,), (-inf,), (nan,), (1e-20,), (-800.0,)),
    slopes=(((0.0,), (0.5,)), ((1e-3,), (0.5003334583666736,))),
    dtype_samples="df",
)


def _transform_in_power(level: Value, power: Value) -> Value:
    """Return the derivative in the power of ``(exp(power * level) - 1) / power``, which is ``-1 / power`` far below."""
    exponent = power * level
    low, endless = less(exponent, -750.0), equal(fabs(level), inf)
    inner = where(low | endless, 0.0, level)
    rest = inner * inner * _exprel_slope(exprel(power * inner), power * inner)
    return where(low, 1.0 / (power * power), where(endless, inf, rest))


TRANSFORM = ((0.3, 3.0), (-2.0, 2.0))
boxcox = special(
    "boxcox",
    lambda z, x, power: raised(x, power - 1.0),
    lambda z, x, power: _transform_in_power(log(x), power),
    domain=TRANSFORM,
    edges=((1.0, 0.0), (2.0, 0.0), (0.0, 1.0), (nan, 1.0), (-1.0, 1.0)),
    slopes=(
        ((2.0, 0.0), (0.5, 0.5 * math.log(2.0) ** 2)),
        ((1.0, 3.0), (1.0, 0.0)),
        ((0.0, 2.0), (0.0, 0.25)),
        ((0.0, 0.0), (inf, inf)),
        ((0.0, 1.0), (1.0, 1.0)),
    ),
)
boxcox1p = special(
    "boxcox1p",
    lambda z, x, power: raised(1.0 + x, power - 1.0),
    lambda z, x, power: _transform_in_power(log1p(x), power),
    domain=TRANSFORM,
    edges=((0.0, 0.0), (1.0, 0.0), (nan, 1.0), (1e-20, 2.0)),
    slopes=(((1.0, 0.0), (0.5, 0.5 * math.log(2.0) ** 2)), ((-1.0, 1.0), (1.0, 1.0))),
)


def _from_power(y: Value, power: Value) -> Value:
    """Return the logarithm of the inverse transform, ``log(1 + power * y) / power``.

    For small products by the power series: its derivatives are right where the power is 0, too.
    """
    product = power * y
    near = less(fabs(product), 0.02)
    inner, divisor = where(near, product, 0.0), where(near, 1.0, power)
    series: Value | float = 0.0
    for k in reversed(range(10)):
        series = (-1.0) ** k / (k + 1.0) + inner * series
    return where(near, y * series, log1p(divisor * where(near, 0.0, y)) / divisor)


TRANSFORMED = ((0.1, 2.0), (0.1, 1.5))
inv_boxcox = special(
    "inv_boxcox",
    lambda z, y, power: z / (1.0 + power * y),
    lambda z, y, power: -z * _transform_in_power(_from_power(y, power), power) / (1.0 + power * y),
    domain=TRANSFORMED,
    edges=((0.0, 1.0), (1.0, 0.0), (nan, 1.0)),
    slopes=(((1.0, 0.0), (math.e, -0.5 * math.e)),),
)
inv_boxcox1p = special(
    "inv_boxcox1p",
    lambda z, y, power: (1.0 + z) / (1.0 + power * y),
    lambda z, y, power: -(1.0 + z) * _transform_in_power(_from_power(y, power), power) / (1.0 + power * y),
    domain=TRANSFORMED,
    edges=((0.0, 1.0), (1.0, 0.0), (nan, 1.0)),
    slopes=(((1.0, 0.0), (math.e, -0.5 * math.e)),),
)
in_base, in_exponent = POWER["partials"]
powm1 = special(
    "powm1",
    lambda z, x, y: in_base(raised(x, y), x, y),
    lambda z, x, y: in_exponent(raised(x, y), x, y),
    domain=((0.3, 3.0), (-2.0, 2.0)),
    edges=((1.0, 2.0), (2.0, 0.0), (nan, 1.0)),
    slopes=(((1.0, 2.0), (2.0, 0.0)), ((0.0, 2.0), (0.0, 0.0)), ((0.0, 0.0), (0.0, 0.0))),
    kinks=KINKS,
)
tklmbda = special(
    "tklmbda",
    lambda z, x, power: _tukey(z, power)[0],
    lambda z, x, power: where(less(fabs(x), 1e-6), _tukey_in_middle(x, power), _tukey(z, power)[1]),
    domain=((-0.4, 0.4), (-0.5, 1.5)),
    edges=((5.0, 1.0), (-5.0, 1.0), (0.0, 0.5), (nan, 1.0)),
    slopes=(
        ((5.0, 2.0), (0.0, 0.0)),
        ((0.0, 0.5), (0.35355339059327379, 0.0)),
        ((1e-160, 0.0), (0.25, 0.25e-160 * math.log(2.0))),
    ),
    kinks="0 at the ends of the support",
    accuracy=1e-9,
)


def _tukey(z: Value, power: Value) -> tuple[Value, Value]:
    """Return the derivatives of Tukey's lambda distribution, whose quantile is ``(z**power - (1-z)**power) / power``."""
    inside = greater(z, 0.0) & less(z, 1.0)
    p = where(inside, z, 0.5)
    low, high = log(p), log1p(-p)
    rate = exp((power - 1.0) * low) + exp((power - 1.0) * high)
    bent = _transform_in_power(low, power) - _transform_in_power(high, power)
    return where(inside, 1.0 / rate, 0.0), where(inside, -bent / rate, 0.0)


def _tukey_in_middle(x: Value, power: Value) -> Value:
    """Return the derivative in the power where ``z - 1/2`` has no digits, of ``z = 1/2 + x 2**(power-2)``, up to the cube of x."""
    return math.log(2.0) * x * exp2(power - 2.0)
