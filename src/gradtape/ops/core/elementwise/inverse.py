"""Inverses of the exponential, trigonometric and hyperbolic functions: logarithms, angles and areas.

The formulas for complex numbers are those of W. Kahan, "Branch Cuts for Complex Elementary Functions", in The State of the Art in
Numerical Analysis, Oxford 1987: products of conjugate roots in place of differences, so that nothing cancels, and the sign of zero tells
the side of a cut.
"""

from __future__ import annotations

import math

import numpy as np

from gradtape.ir.graph import Value
from gradtape.kinds.elementwise import Elementwise, Libm, Parts, elementwise
from gradtape.ops.core.elementwise.arithmetic import complex_scaled
from gradtape.ops.core.elementwise.extrema import maximum, minimum
from gradtape.ops.core.elementwise.floats import isinf
from gradtape.ops.core.elementwise.logic import equal, greater, less
from gradtape.ops.core.elementwise.roots import complex_sqrt, sqrt
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.core.elementwise.signs import copysign, fabs, hypot
from gradtape.ops.core.shift_rules import Logarithm

inf, nan = np.inf, np.nan
LOG2E = 1.0 / math.log(2.0)
LOG10E = 1.0 / math.log(10.0)
POSITIVE = ((0.2, 5.0),)
LOG_EDGES = ((0.0,), (-0.0,), (inf,), (-1.0,), (nan,), (5e-324,), (1.0,), (1e-20,), (1e300,))
SPECIAL = ((0.0,), (-0.0,), (inf,), (-inf,), (nan,), (1e-200,))
UNIT = ((0.0,), (-0.0,), (1.0,), (-1.0,), (1.5,), (nan,), (1e-200,))
COMPLEX = "dfblD"


def complex_log(x: Parts) -> Parts:
    """The square of the length, less one, without the cancellation of one part near one; far from there by the larger part."""
    a, b = fabs(x[0]), fabs(x[1])
    large, small = maximum(a, b), minimum(a, b)
    near = 0.5 * log1p((large - 1.0) * (large + 1.0) + small * small)
    ratio = where(equal(large, small), 1.0, small / large)
    far = log(large) + 0.5 * log1p(ratio * ratio)
    return where(greater(large, 0.5) & less(large, 2.0), near, far), arctan2(x[1], x[0])


log = elementwise(
    "log",
    np.log,
    body=Libm("log"),
    complex_body=complex_log,
    cost=10.0,
    partials=(lambda z, x: 1.0 / x,),
    domain=POSITIVE,
    edges=LOG_EDGES,
    slopes=(((0.0,), (inf,)), ((inf,), (0.0,))),
    kinks="inf at 0",
    dtype_samples=COMPLEX,
    shift=Logarithm(math.e),
)
log2 = elementwise(
    "log2",
    np.log2,
    body=Libm("log2"),
    complex_body=lambda x: complex_scaled(complex_log(x), LOG2E),
    partials=(lambda z, x: LOG2E / x,),
    domain=POSITIVE,
    edges=(*LOG_EDGES, (8.0,)),
    slopes=(((0.0,), (inf,)), ((1.0,), (LOG2E,))),
    kinks="inf at 0",
    dtype_samples=COMPLEX,
    shift=Logarithm(2.0),
)
log10 = elementwise(
    "log10",
    np.log10,
    body=Libm("log10"),
    complex_body=lambda x: complex_scaled(complex_log(x), LOG10E),
    partials=(lambda z, x: LOG10E / x,),
    domain=POSITIVE,
    edges=(*LOG_EDGES, (1000.0,)),
    slopes=(((0.0,), (inf,)), ((1.0,), (LOG10E,))),
    kinks="inf at 0",
    dtype_samples=COMPLEX,
)
log1p = elementwise(
    "log1p",
    np.log1p,
    body=Libm("log1p"),
    complex_body=lambda x: (log(hypot(x[0] + 1.0, x[1])), arctan2(x[1], x[0] + 1.0)),
    partials=(lambda z, x: 1.0 / (1.0 + x),),
    domain=((-0.8, 5.0),),
    edges=(*LOG_EDGES, (-1e-20,), (-2.0,)),
    slopes=(((-1.0,), (inf,)), ((1e-20,), (1.0,))),
    kinks="inf at -1",
    dtype_samples=COMPLEX,
)


def _slope_of_angle(side: Value, y: Value, x: Value) -> Value:
    """Divide twice by the length, which neither overflows nor underflows where its square would."""
    length = hypot(y, x)
    return where(equal(length, 0.0) | isinf(length), 0.0, (side / length) / length)


arctan2: Elementwise = elementwise(
    "arctan2",
    np.arctan2,
    body=Libm("atan2", arity=2),
    partials=(lambda z, y, x: _slope_of_angle(x, y, x), lambda z, y, x: -_slope_of_angle(y, y, x)),
    domain=((-3.0, 3.0), (0.3, 3.0)),
    edges=(
        (0.0, 0.0),
        (-0.0, -0.0),
        (0.0, -1.0),
        (-0.0, -1.0),
        (inf, inf),
        (inf, -1.0),
        (1.0, -inf),
        (nan, 1.0),
        (1e200, 1e200),
        (-1e-200, -1e-200),
    ),
    slopes=(
        ((0.0, 0.0), (0.0, 0.0)),
        ((1.0, 0.0), (0.0, -1.0)),
        ((0.0, -2.0), (-0.5, 0.0)),
        ((1.0, -1.0), (-0.5, -0.5)),
        ((1e200, 1e200), (5e-201, -5e-201)),
        ((1e-200, 1e-200), (5e199, -5e199)),
        ((inf, 1.0), (0.0, 0.0)),
        ((1.0, -inf), (0.0, 0.0)),
        ((inf, inf), (0.0, 0.0)),
    ),
    kinks="0 in both where both are 0",
    dtype_samples="dfl",
)


def _roots(x: Parts) -> tuple[Parts, Parts]:
    """Return the roots of 1 - x and of 1 + x."""
    a, b = x
    return complex_sqrt((1.0 - a, -b)), complex_sqrt((1.0 + a, b))


def _across(x: Parts, y: Parts) -> Value:
    """Return the imaginary part of conj(x) y."""
    return x[0] * y[1] - x[1] * y[0]


def _complex_arcsin(x: Parts) -> Parts:
    minus, plus = _roots(x)
    along = minus[0] * plus[0] - minus[1] * plus[1]
    return arctan2(x[0], along), arcsinh(_across(minus, plus))


def _complex_arccos(x: Parts) -> Parts:
    minus, plus = _roots(x)
    return 2.0 * arctan2(minus[0], plus[0]), arcsinh(_across(plus, minus))


def _complex_arctan(x: Parts) -> Parts:
    real, imag = _complex_arctanh((-x[1], x[0]))
    return imag, -real


def _complex_arcsinh(x: Parts) -> Parts:
    real, imag = _complex_arcsin((-x[1], x[0]))
    return imag, -real


def _complex_arccosh(x: Parts) -> Parts:
    a, b = x
    minus, plus = complex_sqrt((a - 1.0, b)), complex_sqrt((a + 1.0, b))
    return arcsinh(minus[0] * plus[0] + minus[1] * plus[1]), 2.0 * arctan2(minus[1], plus[0])


def _complex_arctanh(x: Parts) -> Parts:
    """Half the logarithm of (1 + x) / (1 - x), divided by one length at a time: their square may leave the range."""
    right, b = fabs(x[0]), x[1]
    near, far = hypot(1.0 - right, b), hypot(1.0 + right, b)
    pole = equal(near, 0.0)
    growth = where(less(near, 0.5), (log(far) - log(near)) * 0.5, log1p(4.0 * (right / near) / near) * 0.25)
    along = ((1.0 - right) / near) * ((1.0 + right) / far) - (b / near) * (b / far)
    angle = arctan2(2.0 * (b / near) / far, along) * 0.5
    return copysign(growth, x[0]), where(pole, b, angle)


def _half_circle(x: Value) -> Value:
    """Return sqrt(1 - x * x) without the cancellation near 1."""
    return sqrt((1.0 - x) * (1.0 + x))


arcsin = elementwise(
    "arcsin",
    np.arcsin,
    body=Libm("asin"),
    complex_body=_complex_arcsin,
    partials=(lambda z, x: 1.0 / _half_circle(x),),
    domain=((-0.8, 0.8),),
    edges=UNIT,
    slopes=(((0.0,), (1.0,)), ((1.0,), (inf,)), ((-1.0,), (inf,))),
    kinks="inf at 1 and at -1",
    dtype_samples=COMPLEX,
)
arccos = elementwise(
    "arccos",
    np.arccos,
    body=Libm("acos"),
    complex_body=_complex_arccos,
    partials=(lambda z, x: -1.0 / _half_circle(x),),
    domain=((-0.8, 0.8),),
    edges=UNIT,
    slopes=(((0.0,), (-1.0,)), ((1.0,), (-inf,)), ((-1.0,), (-inf,))),
    kinks="-inf at 1 and at -1",
    dtype_samples=COMPLEX,
)
arctan = elementwise(
    "arctan",
    np.arctan,
    body=Libm("atan"),
    complex_body=_complex_arctan,
    partials=(lambda z, x: 1.0 / (1.0 + x * x),),
    finite_derivatives=True,
    edges=(*SPECIAL, (1e5,), (1e200,)),
    slopes=(((inf,), (0.0,)), ((1e200,), (0.0,)), ((1.0,), (0.5,))),
    dtype_samples=COMPLEX,
)


def _unit_length(x: Value) -> Value:
    """Return sqrt(1 + x * x), for real x without overflow."""
    return sqrt(1.0 + x * x) if x.dtype.kind == "c" else hypot(1.0, x)


arcsinh = elementwise(
    "arcsinh",
    np.arcsinh,
    body=Libm("asinh"),
    complex_body=_complex_arcsinh,
    partials=(lambda z, x: 1.0 / _unit_length(x),),
    edges=(*SPECIAL, (30.0,), (-30.0,), (1e200,)),
    slopes=(((0.0,), (1.0,)), ((1e200,), (1e-200,)), ((-inf,), (0.0,))),
    dtype_samples=COMPLEX,
)
arccosh = elementwise(
    "arccosh",
    np.arccosh,
    body=Libm("acosh"),
    complex_body=_complex_arccosh,
    partials=(lambda z, x: 1.0 / (sqrt(x - 1.0) * sqrt(x + 1.0)),),
    domain=((1.2, 4.0),),
    edges=((1.0,), (0.5,), (inf,), (nan,), (1e200,), (-2.0,)),
    slopes=(((1.0,), (inf,)), ((1e200,), (1e-200,)), ((inf,), (0.0,))),
    kinks="inf at 1",
    dtype_samples=COMPLEX,
)
arctanh = elementwise(
    "arctanh",
    np.arctanh,
    body=Libm("atanh"),
    complex_body=_complex_arctanh,
    partials=(lambda z, x: 1.0 / ((1.0 - x) * (1.0 + x)),),
    domain=((-0.8, 0.8),),
    edges=((0.0,), (-0.0,), (1.0,), (-1.0,), (2.0,), (nan,), (1e-200,)),
    slopes=(((0.0,), (1.0,)), ((1.0,), (inf,)), ((-1.0,), (inf,))),
    kinks="inf at 1 and at -1",
    dtype_samples=COMPLEX,
)
