"""Special functions of SciPy: error functions, gamma and beta, exponential integrals, Bessel functions, entropies."""

from __future__ import annotations

import math

import numpy as np

from gradtape.errors import NotDifferentiableError
from gradtape.ir.builder import here
from gradtape.ir.graph import Value
from gradtape.ir.op import NDArray
from gradtape.kinds.elementwise import Elementwise, Libm, SciPy, elementwise, resolve_ufunc
from gradtape.ops.core.elementwise.exponential import cos, exp, sin
from gradtape.ops.core.elementwise.floats import floor, isnan
from gradtape.ops.core.elementwise.inverse import log, log1p
from gradtape.ops.core.elementwise.logic import equal, greater, greater_equal, less, less_equal
from gradtape.ops.core.elementwise.select import where

inf, nan = np.inf, np.nan
SQRT_HALF = math.sqrt(0.5)
SQRT_PI = math.sqrt(math.pi)
SQRT_2PI = math.sqrt(2.0 * math.pi)
TAILS = ((0.0,), (inf,), (-inf,), (nan,), (5.0,), (-5.0,), (26.0,), (-26.0,))

erf = elementwise(
    "erf",
    "scipy.special:erf",
    body=Libm("erf"),
    partials=(lambda z, x: 2.0 / SQRT_PI * exp(-(x * x)),),
    edges=TAILS,
    slopes=(((0.0,), (2.0 / SQRT_PI,)), ((inf,), (0.0,))),
    dtype_samples="df",
)
erfc = elementwise(
    "erfc",
    "scipy.special:erfc",
    body=Libm("erfc"),
    partials=(lambda z, x: -2.0 / SQRT_PI * exp(-(x * x)),),
    edges=TAILS,
    slopes=(((0.0,), (-2.0 / SQRT_PI,)), ((26.0,), (-2.9470349932662695e-294,)), ((-inf,), (0.0,))),
    dtype_samples="df",
)


def _erfcx_slope(z: Value, x: Value) -> Value:
    """Far to the right 2 x z and 2 / sqrt(pi) cancel; there the asymptotic series takes over (to 1e-14)."""
    inverse = 0.5 / (x * x)
    series: Value | float = 1.0
    for odd in (11.0, 9.0, 7.0, 5.0, 3.0):
        series = 1.0 - odd * inverse * series
    far = (-2.0 / SQRT_PI) * inverse * series
    return where(greater(x, 50.0), far, 2.0 * x * z - 2.0 / SQRT_PI)


erfcx = elementwise(
    "erfcx",
    "scipy.special:erfcx",
    body=SciPy("erfcx"),
    partials=(_erfcx_slope,),
    edges=((0.0,), (inf,), (-inf,), (nan,), (-26.0,), (1e5,)),
    slopes=(
        ((0.0,), (-2.0 / SQRT_PI,)),
        ((51.0,), (-2.1678759208511815e-4,)),
        ((1e5,), (-5.641895834631e-11,)),
        ((inf,), (0.0,)),
    ),
    dtype_samples="df",
)
erfinv = elementwise(
    "erfinv",
    "scipy.special:erfinv",
    body=SciPy("erfinv"),
    partials=(lambda z, x: 0.5 * SQRT_PI * exp(z * z),),
    domain=((-0.8, 0.8),),
    edges=((0.0,), (1.0,), (-1.0,), (2.0,), (nan,), (1e-300,)),
    slopes=(((0.0,), (0.5 * SQRT_PI,)), ((1.0,), (inf,)), ((-1.0,), (inf,))),
    kinks="inf at 1 and at -1",
    dtype_samples="df",
)
erfcinv = elementwise(
    "erfcinv",
    "scipy.special:erfcinv",
    body=SciPy("erfcinv"),
    partials=(lambda z, x: -0.5 * SQRT_PI * exp(z * z),),
    domain=((0.2, 1.8),),
    edges=((0.0,), (2.0,), (1.0,), (3.0,), (nan,), (1e-300,)),
    slopes=(((1.0,), (-0.5 * SQRT_PI,)), ((2.0,), (-inf,))),
    kinks="-inf at 0 and at 2",
    dtype_samples="df",
)
ndtr = elementwise(
    "ndtr",
    "scipy.special:ndtr",
    body=lambda x: 0.5 * erfc(-SQRT_HALF * x),
    partials=(lambda z, x: exp(-0.5 * (x * x)) * (1.0 / SQRT_2PI),),
    edges=TAILS,
    slopes=(((0.0,), (1.0 / SQRT_2PI,)), ((-inf,), (0.0,))),
    dtype_samples="df",
)


def _inverse_mills(x: NDArray) -> NDArray:
    from scipy.special import erfcx as reference

    return np.asarray(2.0 / SQRT_2PI / reference(-SQRT_HALF * x))


def _inverse_mills_slope(z: Value, x: Value) -> Value:
    """To the right erfcx overflows and -z (z + x) does not; to the left that cancels, its slope serves."""
    u = -SQRT_HALF * x
    left = (0.5 * SQRT_PI) * (z * z) * _erfcx_slope(erfcx(u), u)
    return where(less(x, 0.0), left, -z * (z + x))


inverse_mills = elementwise(
    "inverse_mills",
    _inverse_mills,
    body=lambda x: (2.0 / SQRT_2PI) / erfcx(-SQRT_HALF * x),
    partials=(_inverse_mills_slope,),
    dtypes=lambda type_: resolve_ufunc(erfcx.function, (type_,)),
    edges=(*TAILS, (-40.0,), (40.0,), (-1e5,)),
    slopes=(
        ((0.0,), (-2.0 / math.pi,)),
        ((40.0,), (0.0,)),
        ((-40.0,), (-0.9993773316214086,)),
        ((-1e5,), (-0.9999999999,)),
    ),
    dtype_samples="df",
)
log_ndtr = elementwise(
    "log_ndtr",
    "scipy.special:log_ndtr",
    body=SciPy("log_ndtr"),
    partials=(lambda z, x: inverse_mills(x),),
    edges=(*TAILS, (-40.0,), (40.0,), (-1e5,)),
    slopes=(
        ((0.0,), (2.0 / SQRT_2PI,)),
        ((-40.0,), (40.02496884720726,)),
        ((-1e5,), (100000.00000999999,)),
        ((40.0,), (0.0,)),
        ((inf,), (0.0,)),
    ),
    dtype_samples="df",
)
ndtri = elementwise(
    "ndtri",
    "scipy.special:ndtri",
    body=SciPy("ndtri"),
    partials=(lambda z, x: SQRT_2PI * exp(0.5 * (z * z)),),
    domain=((0.1, 0.9),),
    edges=((0.0,), (1.0,), (0.5,), (2.0,), (nan,)),
    slopes=(((0.5,), (SQRT_2PI,)), ((0.0,), (inf,))),
    kinks="inf at 0 and at 1",
    dtype_samples="df",
)

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
    if x.dtype.kind == "c":
        raise NotDifferentiableError(
            "scipy.special.psi of complex numbers has no derivative here",
            where=here.site,
            why="it is the trigamma function, which SciPy has for real numbers only",
        )
    return polygamma(x, order=1)


psi: Elementwise = elementwise(
    "psi",
    "scipy.special:psi",
    body=SciPy("psi"),
    partials=(_psi_slope,),
    domain=((0.3, 6.0),),
    edges=((1.0,), (inf,), (nan,), (1e-300,), (1e300,), (-0.5,), (-2.5,)),
    slopes=(((1.0,), (math.pi**2 / 6,)), ((-0.5,), (math.pi**2 / 2 + 4,))),
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
    total: Value | float = 0.0
    for c in reversed(coefficients):
        total = c + total * cotangent
    assert isinstance(total, Value)
    return total


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


def _times_log(x: Value, y: Value, logarithm: Value) -> Value:
    return where(equal(x, 0.0) & ~isnan(y), 0.0, x * logarithm)


xlogy = elementwise(
    "xlogy",
    "scipy.special:xlogy",
    body=lambda x, y: _times_log(x, y, log(y)),
    partials=(lambda z, x, y: log(y), lambda z, x, y: where(equal(x, 0.0) & equal(y, 0.0), 0.0, x / y)),
    domain=((-3.0, 3.0), (0.2, 4.0)),
    edges=((0.0, 0.0), (0.0, inf), (0.0, -1.0), (0.0, nan), (1.0, 0.0), (nan, 1.0), (2.0, -1.0)),
    slopes=(
        ((0.0, 0.0), (-inf, 0.0)),
        ((0.0, 2.0), (math.log(2.0), 0.0)),
        ((0.0, 5e-324), (math.log(5e-324), 0.0)),
        ((3.0, 0.0), (-inf, inf)),
    ),
    kinks="0 in the second argument where both are 0",
    dtype_samples="df",
)
xlog1py = elementwise(
    "xlog1py",
    "scipy.special:xlog1py",
    body=lambda x, y: _times_log(x, y, log1p(y)),
    partials=(
        lambda z, x, y: log1p(y),
        lambda z, x, y: where(equal(x, 0.0) & equal(y, -1.0), 0.0, x / (1.0 + y)),
    ),
    domain=((-3.0, 3.0), (-0.6, 4.0)),
    edges=((0.0, -1.0), (0.0, inf), (0.0, -2.0), (0.0, nan), (1.0, -1.0), (nan, 1.0), (2.0, -2.0)),
    slopes=(
        ((0.0, -1.0), (-inf, 0.0)),
        ((0.0, 1.0), (math.log(2.0), 0.0)),
        ((2.0, 1e-20), (1e-20, 2.0)),
    ),
    kinks="0 in the second argument where the first is 0 and the second -1",
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
    kinks="0 in both where both are 0; -inf in the first where it alone is 0",
    dtype_samples="df",
)

i0 = elementwise(
    "i0",
    "scipy.special:i0",
    body=SciPy("i0"),
    partials=(lambda z, x: i1(x),),
    edges=((0.0,), (8.0,), (-30.0,), (nan,), (inf,)),
    slopes=(((0.0,), (0.0,)),),
    dtype_samples="df",
)
i1: Elementwise = elementwise(
    "i1",
    "scipy.special:i1",
    body=SciPy("i1"),
    partials=(lambda z, x: where(equal(x, 0.0), 0.5, i0(x) - z / x),),
    edges=((0.0,), (8.0,), (-30.0,), (nan,)),
    slopes=(((0.0,), (0.5,)), ((1e-200,), (0.5,))),
    dtype_samples="df",
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


def _share(z: Value, own: Value, other: Value) -> Value:
    return psi(own) - psi(own + other)


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

j0: Elementwise = elementwise(
    "j0",
    "scipy.special:j0",
    body=SciPy("j0"),
    partials=(lambda z, x: -j1(x),),
    domain=((-6.0, 6.0),),
    edges=((0.0,), (1.0,), (nan,), (30.0,)),
    slopes=(((0.0,), (0.0,)),),
    dtype_samples="df",
)
j1: Elementwise = elementwise(
    "j1",
    "scipy.special:j1",
    body=SciPy("j1"),
    partials=(lambda z, x: where(equal(x, 0.0), 0.5, j0(x) - z / where(equal(x, 0.0), 1.0, x)),),
    domain=((-6.0, 6.0),),
    edges=((0.0,), (1.0,), (nan,), (30.0,)),
    slopes=(((0.0,), (0.5,)),),
    dtype_samples="df",
)
