"""The logistic function, its kin, and sums of exponentials by their logarithms."""

from __future__ import annotations

import math

import numpy as np

from gradtape.ir.graph import Value
from gradtape.ir.op import NDArray
from gradtape.kinds.elementwise import Elementwise, elementwise, resolve_ufunc
from gradtape.ops.core.elementwise.exponential import LN2, exp, exp2, tanh
from gradtape.ops.core.elementwise.extrema import maximum, minimum
from gradtape.ops.core.elementwise.floats import isinf
from gradtape.ops.core.elementwise.inverse import LOG2E, log, log1p
from gradtape.ops.core.elementwise.logic import equal, greater_equal
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.core.elementwise.signs import fabs
from gradtape.ops.core.shift_rules import log_sum

inf, nan = np.inf, np.nan
RANGE = ((-5.0, 5.0),)
PAIR = ((-5.0, 5.0), (-5.0, 5.0))


def _expit_body(x: Value) -> Value:
    """The exponential never overflows, and is that of expit(-x) as well, which the derivative needs."""
    decay = exp(-fabs(x))
    return where(greater_equal(x, 0.0), 1.0, decay) / (1.0 + decay)


def _expit_slope(x: NDArray) -> NDArray:
    decay = np.exp(-np.fabs(x))
    result: NDArray = decay / (1.0 + decay) ** 2
    return result


expit_slope = elementwise(
    "expit_slope",
    _expit_slope,
    body=lambda x: expit(x) * expit(-x),
    partials=(lambda z, x: -tanh(0.5 * x) * z,),
    dtypes=lambda type_: resolve_ufunc(np.tanh, (type_,)),
    finite_derivatives=True,
    domain=RANGE,
    edges=((0.0,), (inf,), (-inf,), (nan,), (800.0,), (-40.0,)),
    slopes=(((0.0,), (0.0,)), ((1e-20,), (-1.25e-21,)), ((-inf,), (0.0,))),
    dtype_samples="df",
)
expit: Elementwise = elementwise(
    "expit",
    "scipy.special:expit",
    body=_expit_body,
    partials=(lambda z, x: expit_slope(x),),
    finite=True,
    domain=RANGE,
    edges=((0.0,), (inf,), (-inf,), (nan,), (800.0,), (-800.0,), (40.0,), (-40.0,)),
    slopes=(
        ((0.0,), (0.25,)),
        ((800.0,), (0.0,)),
        ((-800.0,), (0.0,)),
        ((40.0,), (math.exp(-40.0),)),
        ((-40.0,), (math.exp(-40.0),)),
        ((inf,), (0.0,)),
    ),
    dtype_samples="df",
)


def _share(x: Value, y: Value) -> Value:
    """Return exp(x - logaddexp(x, y)): never an overflow, and one half on ties, even at infinity.

    At finite ties it is a function of the difference as elsewhere, which second derivatives need.
    """
    return where(equal(x, y) & isinf(x) & isinf(y), 0.5, expit(x - y))


def _logaddexp_body(x: Value, y: Value) -> Value:
    return where(equal(x, y), x + LN2, maximum(x, y) + log1p(exp(-fabs(x - y))))


logaddexp = elementwise(
    "logaddexp",
    np.logaddexp,
    body=_logaddexp_body,
    partials=(lambda z, x, y: _share(x, y), lambda z, x, y: _share(y, x)),
    finite=True,
    domain=PAIR,
    edges=(
        (inf, inf),
        (-inf, -inf),
        (-inf, 0.0),
        (0.0, inf),
        (inf, -inf),
        (700.0, -700.0),
        (-1e300, 1e300),
        (0.0, 0.0),
        (nan, 1.0),
        (1.0, nan),
    ),
    slopes=(
        ((0.0, 0.0), (0.5, 0.5)),
        ((inf, inf), (0.5, 0.5)),
        ((-inf, -inf), (0.5, 0.5)),
        ((-inf, 0.0), (0.0, 1.0)),
        ((700.0, -700.0), (1.0, 0.0)),
        ((-700.0, 700.0), (0.0, 1.0)),
        ((-30.0, 0.0), (9.357622968839299e-14, 0.9999999999999064)),
    ),
    kinks="0.5 each where both are infinite and equal",
    dtype_samples="dfl",
    shift=log_sum,
)


def _share2(x: Value, y: Value) -> Value:
    return where(equal(x, y) & isinf(x) & isinf(y), 0.5, expit(LN2 * (x - y)))


def _logaddexp2_body(x: Value, y: Value) -> Value:
    return where(equal(x, y), x + 1.0, maximum(x, y) + LOG2E * log1p(exp2(-fabs(x - y))))


logaddexp2 = elementwise(
    "logaddexp2",
    np.logaddexp2,
    body=_logaddexp2_body,
    partials=(lambda z, x, y: _share2(x, y), lambda z, x, y: _share2(y, x)),
    domain=PAIR,
    edges=(
        (inf, inf),
        (-inf, -inf),
        (-inf, 0.0),
        (inf, -inf),
        (1e4, -1e4),
        (0.0, 0.0),
        (nan, 1.0),
        (1.0, nan),
    ),
    slopes=(
        ((0.0, 0.0), (0.5, 0.5)),
        ((inf, inf), (0.5, 0.5)),
        ((-inf, 0.0), (0.0, 1.0)),
        ((1e4, -1e4), (1.0, 0.0)),
        ((-1.0, 0.0), (1.0 / 3.0, 2.0 / 3.0)),
    ),
    kinks="0.5 each where both are infinite and equal",
    dtype_samples="dfl",
)
log_expit = elementwise(
    "log_expit",
    "scipy.special:log_expit",
    body=lambda x: minimum(x, 0.0) - log1p(exp(-fabs(x))),
    partials=(lambda z, x: expit(-x),),
    domain=RANGE,
    edges=((0.0,), (inf,), (-inf,), (nan,), (800.0,), (-800.0,), (40.0,)),
    slopes=(
        ((0.0,), (0.5,)),
        ((800.0,), (0.0,)),
        ((-800.0,), (1.0,)),
        ((-inf,), (1.0,)),
        ((40.0,), (math.exp(-40.0),)),
    ),
    dtype_samples="df",
)


def _logit_body(x: Value) -> Value:
    """Near one half the quotient would lose what the two logarithms keep."""
    near = 2.0 * (x - 0.5)
    return where(
        greater_equal(x, 0.3) & greater_equal(0.65, x), log1p(near) - log1p(-near), log(x / (1.0 - x))
    )


odds_gap = elementwise(
    "odds_gap",
    lambda x: x * (1 - x),
    body=lambda x: x * (1.0 - x),
    partials=(lambda z, x: 1.0 - 2.0 * x,),
    dtypes=lambda type_: resolve_ufunc(np.tanh, (type_,)),
    domain=((0.05, 0.95),),
    slopes=(((0.5,), (0.0,)), ((0.75,), (-0.5,))),
    dtype_samples="df",
)
logit = elementwise(
    "logit",
    "scipy.special:logit",
    body=_logit_body,
    partials=(lambda z, x: 1.0 / odds_gap(x),),
    domain=((0.05, 0.95),),
    edges=((0.0,), (1.0,), (-1.0,), (2.0,), (nan,), (0.5,), (1e-300,), (0.3,), (0.65,), (0.5000001,)),
    slopes=(((0.0,), (inf,)), ((1.0,), (inf,)), ((0.5,), (4.0,))),
    kinks="inf at 0 and at 1",
    dtype_samples="df",
)
