"""The normal distribution: its distribution function, the inverse, and Owen's T."""

from __future__ import annotations

import math

import numpy as np

from gradtape.ir.graph import Value
from gradtape.ir.op import NDArray
from gradtape.kinds.elementwise import SciPy, elementwise, resolve_ufunc
from gradtape.ops.core.elementwise.exponential import exp
from gradtape.ops.core.elementwise.logic import less
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.scipy.special.error_functions import TAILS, erf, erfc, erfcx, erfcx_slope
from gradtape.ops.scipy.special.rows import special

inf, nan = np.inf, np.nan
SQRT_HALF = math.sqrt(0.5)
SQRT_PI = math.sqrt(math.pi)
SQRT_2PI = math.sqrt(2.0 * math.pi)

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
    left = (0.5 * SQRT_PI) * (z * z) * erfcx_slope(erfcx(u), u)
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

ndtri_exp = special(
    "ndtri_exp",
    lambda z, y: 1.0 / inverse_mills(z),
    domain=((-5.0, -0.1),),
    edges=((-inf,), (nan,), (-1e-2,), (-1e5,)),
    slopes=(((-math.log(2.0),), (0.5 * SQRT_2PI,)),),
    kinks="",
    dtype_samples="d",
)
owens_t = special(
    "owens_t",
    lambda z, h, a: exp(-0.5 * h * h) * erf(SQRT_HALF * a * h) * (-0.5 / SQRT_2PI),
    lambda z, h, a: exp(-0.5 * h * h * (1.0 + a * a)) / (2.0 * math.pi * (1.0 + a * a)),
    domain=((-2.0, 2.0), (-2.0, 2.0)),
    edges=((0.0, 1.0), (1.0, 0.0), (1.0, inf), (nan, 1.0)),
    slopes=(((0.0, 1.0), (0.0, 0.25 / math.pi)),),
)
nrdtrimn = special(
    "nrdtrimn",
    lambda z, p, std, x: -std * SQRT_2PI * exp(0.5 * ndtri(p) ** 2.0),
    lambda z, p, std, x: -ndtri(p),
    lambda z, p, std, x: 1.0 + 0.0 * x,
    domain=((0.1, 0.9), (0.5, 2.0), (-2.0, 2.0)),
    accuracy=1e-12,
)
nrdtrisd = special(
    "nrdtrisd",
    lambda z, mn, p, x: -1.0 / ndtri(p),
    lambda z, mn, p, x: -z / ndtri(p) * SQRT_2PI * exp(0.5 * ndtri(p) ** 2.0),
    lambda z, mn, p, x: 1.0 / ndtri(p),
    domain=((-2.0, -1.0), (0.6, 0.9), (1.0, 2.0)),
    accuracy=1e-12,
)
