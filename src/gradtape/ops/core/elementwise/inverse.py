"""Inverses of the exponential, trigonometric and hyperbolic functions: logarithms, angles and areas.

The formulas for complex numbers are those of W. Kahan, "Branch Cuts for Complex Elementary Functions", in The State of the Art in
Numerical Analysis, Oxford 1987: products of conjugate roots in place of differences, so that nothing cancels, and the sign of zero tells
the side of a cut.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gradtape.ir.graph import Value, literal
from gradtape.ir.op import NDArray
from gradtape.kinds.elementwise import Elementwise, Libm, Parts, elementwise, resolve_ufunc
from gradtape.ops.core.elementwise.arithmetic import complex_multiply, complex_scaled
from gradtape.ops.core.elementwise.extrema import maximum, minimum
from gradtape.ops.core.elementwise.floats import isinf
from gradtape.ops.core.elementwise.logic import equal, greater, less
from gradtape.ops.core.elementwise.roots import complex_sqrt, sqrt
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.core.elementwise.signs import copysign, cosine_of_sides, fabs, hypot, sine_of_sides
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
    return where(equal(length, 0.0) | isinf(length), 0.0, side / length)


arctan2: Elementwise = elementwise(
    "arctan2",
    np.arctan2,
    body=Libm("atan2", arity=2),
    partials=(
        lambda z, y, x: _slope_of_angle(sine_of_sides(y, x), y, x),
        lambda z, y, x: -_slope_of_angle(cosine_of_sides(y, x), y, x),
    ),
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
    kinks="0 with respect to both where both are 0",
    dtype_samples="dfl",
)


def _as_arctan(type_: Any) -> tuple[tuple[np.dtype[Any], ...], np.dtype[Any]]:
    return resolve_ufunc(np.arctan, (type_,))


def _roots(x: Parts) -> tuple[Parts, Parts]:
    """Return the roots of 1 - x and of 1 + x."""
    a, b = x
    return complex_sqrt((1.0 - a, -b)), complex_sqrt((1.0 + a, b))


def _across(x: Parts, y: Parts) -> Value:
    """Return the imaginary part of conj(x) y."""
    return x[0] * y[1] - x[1] * y[0]


def _complex_arcsin(x: Parts) -> Parts:
    a, b = x
    minus, plus = _roots(x)
    along = minus[0] * plus[0] - minus[1] * plus[1]
    endless = copysign(where(isinf(b), literal(0.25 * math.pi, a.dtype), 0.5 * math.pi), a)
    angle = where(isinf(a) & equal(b, b), endless, arctan2(a, along))
    return angle, arcsinh(_across(minus, plus))


def _angle_at_infinity(x: Parts, angle: Value) -> Value:
    """Return the angle of an arc cosine; where both parts are infinite, that of a diagonal."""
    diagonal = where(less(x[0], 0.0), literal(0.75 * math.pi, angle.dtype), 0.25 * math.pi)
    return where(isinf(x[0]) & isinf(x[1]), diagonal, angle)


def _complex_arccos(x: Parts) -> Parts:
    minus, plus = _roots(x)
    return _angle_at_infinity(x, 2.0 * arctan2(minus[0], plus[0])), arcsinh(_across(plus, minus))


def _complex_arctan(x: Parts) -> Parts:
    real, imag = _complex_arctanh((-x[1], x[0]))
    return imag, -real


def _complex_arcsinh(x: Parts) -> Parts:
    real, imag = _complex_arcsin((-x[1], x[0]))
    return imag, -real


def _complex_arccosh(x: Parts) -> Parts:
    a, b = x
    minus, plus = complex_sqrt((a - 1.0, b)), complex_sqrt((a + 1.0, b))
    size = _angle_at_infinity(x, fabs(2.0 * arctan2(minus[1], plus[0])))
    return arcsinh(minus[0] * plus[0] + minus[1] * plus[1]), copysign(size, b)


def _complex_arctanh(x: Parts) -> Parts:
    """Half the logarithm of (1 + x) / (1 - x), divided by one length at a time: their square may leave the range."""
    right, b = fabs(x[0]), x[1]
    near, far = hypot(1.0 - right, b), hypot(1.0 + right, b)
    pole = equal(near, 0.0)
    growth = where(less(near, 0.5), (log(far) - log(near)) * 0.5, log1p(4.0 * (right / near) / near) * 0.25)
    along = ((1.0 - right) / near) * ((1.0 + right) / far) - (b / near) * (b / far)
    angle = arctan2(2.0 * (b / near) / far, along) * 0.5
    endless = isinf(x[0]) | isinf(b)
    growth = where(endless, 0.0, growth)
    angle = where(endless & equal(b, b), copysign(0.5 * math.pi, b), angle)
    return copysign(growth, x[0]), where(pole, b, angle)


one_minus_square: Elementwise = elementwise(
    "one_minus_square",
    lambda x: (1 - x) * (1 + x),
    body=lambda x: (1.0 - x) * (1.0 + x),
    complex_body=lambda x: complex_multiply((1.0 - x[0], -x[1]), (1.0 + x[0], x[1])),
    partials=(lambda z, x: -2.0 * x,),
    dtypes=_as_arctan,
    finite_derivatives=True,
    slopes=(((0.0,), (0.0,)), ((1e-200,), (-2e-200,))),
    dtype_samples="dfD",
)
"""Without the cancellation near 1, and with a derivative that does not cancel near 0."""


def _half_circle(x: Value) -> Value:
    """Return sqrt(1 - x * x)."""
    return sqrt(one_minus_square(x))


def _inverse_of_square(x: NDArray) -> NDArray:
    result: NDArray = 1 / (1 + np.fabs(x) ** 2)
    return result


inverse_of_one_plus_square: Elementwise = elementwise(
    "inverse_of_one_plus_square",
    _inverse_of_square,
    body=lambda x: 1.0 / (1.0 + x * x),
    partials=(lambda z, x: where(isinf(x), 0.0, -2.0 * ((x * z) * z)),),
    dtypes=_as_arctan,
    finite_derivatives=True,
    edges=(*SPECIAL, (1e5,), (1e155,)),
    slopes=(((inf,), (0.0,)), ((1e200,), (0.0,)), ((1.0,), (-0.5,))),
    dtype_samples="df",
)


def _arctan_slope(z: Value, x: Value) -> Value:
    return 1.0 / (1.0 + x * x) if x.dtype.kind == "c" else inverse_of_one_plus_square(x)


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
    partials=(_arctan_slope,),
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
    finite=True,
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
    partials=(lambda z, x: 1.0 / one_minus_square(x),),
    domain=((-0.8, 0.8),),
    edges=((0.0,), (-0.0,), (1.0,), (-1.0,), (2.0,), (nan,), (1e-200,)),
    slopes=(((0.0,), (1.0,)), ((1.0,), (inf,)), ((-1.0,), (inf,))),
    kinks="inf at 1 and at -1",
    dtype_samples=COMPLEX,
)
