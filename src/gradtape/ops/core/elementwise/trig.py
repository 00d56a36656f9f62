"""Trigonometric functions and their inverses."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gradtape.ir.graph import Value
from gradtape.kinds.elementwise import Elementwise, Libm, elementwise, result_dtype
from gradtape.ops.core.elementwise.floats import isinf
from gradtape.ops.core.elementwise.logic import equal, less
from gradtape.ops.core.elementwise.power import hypot, sqrt
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.core.elementwise.signs import absolute

inf, nan = np.inf, np.nan
PI = math.pi
ANGLES = ((0.0,), (-0.0,), (inf,), (-inf,), (nan,), (1e-200,), (1e5,))
INVERSE = ((0.0,), (-0.0,), (1.0,), (-1.0,), (1.5,), (nan,), (1e-200,))
REAL = "dfbl"
COMPLEX = REAL + "D"

sin = elementwise(
    "sin",
    np.sin,
    body=Libm("sin"),
    partials=(lambda z, x: cos(x),),
    edges=ANGLES,
    slopes=(((0.0,), (1.0,)),),
    dtype_samples=COMPLEX,
)
cos: Elementwise = elementwise(
    "cos",
    np.cos,
    body=Libm("cos"),
    partials=(lambda z, x: -sin(x),),
    edges=ANGLES,
    slopes=(((0.0,), (0.0,)), ((PI / 2,), (-1.0,))),
    dtype_samples=COMPLEX,
)
tan = elementwise(
    "tan",
    np.tan,
    body=Libm("tan"),
    partials=(lambda z, x: 1.0 + z * z,),
    domain=((-1.2, 1.2),),
    edges=ANGLES,
    slopes=(((0.0,), (1.0,)), ((PI / 4,), (2.0,))),
    dtype_samples=COMPLEX,
)


def _half_circle(x: Value) -> Value:
    """Return sqrt(1 - x * x) without the cancellation near 1."""
    return sqrt((1.0 - x) * (1.0 + x))


arcsin = elementwise(
    "arcsin",
    np.arcsin,
    body=Libm("asin"),
    partials=(lambda z, x: 1.0 / _half_circle(x),),
    domain=((-0.8, 0.8),),
    edges=INVERSE,
    slopes=(((0.0,), (1.0,)), ((1.0,), (inf,)), ((-1.0,), (inf,))),
    kinks="inf at 1 and at -1",
    dtype_samples=COMPLEX,
)
arccos = elementwise(
    "arccos",
    np.arccos,
    body=Libm("acos"),
    partials=(lambda z, x: -1.0 / _half_circle(x),),
    domain=((-0.8, 0.8),),
    edges=INVERSE,
    slopes=(((0.0,), (-1.0,)), ((1.0,), (-inf,)), ((-1.0,), (-inf,))),
    kinks="-inf at 1 and at -1",
    dtype_samples=COMPLEX,
)
arctan = elementwise(
    "arctan",
    np.arctan,
    body=Libm("atan"),
    partials=(lambda z, x: 1.0 / (1.0 + x * x),),
    edges=(*ANGLES, (1e200,)),
    slopes=(((inf,), (0.0,)), ((1e200,), (0.0,)), ((1.0,), (0.5,))),
    dtype_samples=COMPLEX,
)


def _slope_of_angle(side: Value, y: Value, x: Value) -> Value:
    """Divide twice by the length, which neither overflows nor underflows where its square would."""
    length = hypot(y, x)
    return where(equal(length, 0.0) | isinf(length), 0.0, (side / length) / length)


arctan2 = elementwise(
    "arctan2",
    np.arctan2,
    body=Libm("atan2"),
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


def _scaling(name: str, factor: float) -> None:
    elementwise(
        name,
        getattr(np, name),
        body=lambda x: x * factor,
        tangents=(lambda d, z, x: d * factor,),
        transpose=(lambda ct, x: ct * factor,),
        edges=((0.0,), (inf,), (nan,)),
        slopes=(((0.0,), (factor,)),),
        dtype_samples=REAL,
    )


_scaling("degrees", 180.0 / PI)
_scaling("rad2deg", 180.0 / PI)
_scaling("radians", PI / 180.0)
_scaling("deg2rad", PI / 180.0)


def _sinc_body(x: Value) -> Value:
    angle = PI * x
    return where(equal(x, 0.0), 1.0, sin(angle) / angle)


def _sinc_slope(z: Value, x: Value) -> Value:
    """Near 0 the difference cos(pi x) - z cancels; there the Taylor series takes over (to 1e-17)."""
    square = (PI * x) * (PI * x)
    series: Value | float = 0.0
    for k in range(7, 0, -1):
        series = (-1.0) ** k * 2 * k / math.factorial(2 * k + 1) + series * square
    near = PI * PI * x * series
    far = (cos(PI * x) - z) / x
    return where(less(absolute(x), 0.1), near, far)


def _sinc_dtypes(type_: Any) -> tuple[tuple[np.dtype[Any], ...], np.dtype[Any]]:
    out = result_dtype(type_, float)
    return (out,), out


sinc = elementwise(
    "sinc",
    np.sinc,
    body=_sinc_body,
    partials=(_sinc_slope,),
    dtypes=_sinc_dtypes,
    edges=((0.0,), (-0.0,), (1.0,), (-2.0,), (1e-9,), (1e-3,), (0.1,), (0.0999,), (nan,)),
    slopes=(
        ((0.0,), (0.0,)),
        ((1e-9,), (-1e-9 * PI * PI / 3,)),
        ((1e-160,), (-1e-160 * PI * PI / 3,)),
        ((1.0,), (-1.0,)),
        ((0.05,), (-0.16408789296847296,)),
    ),
    kinks="0 at 0",
    dtype_samples="dfblD",
)
