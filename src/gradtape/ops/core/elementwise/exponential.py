"""Exponential, trigonometric and hyperbolic functions, which Euler's formula makes one family."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gradtape.ir.graph import Value
from gradtape.ir.op import NDArray
from gradtape.kinds.elementwise import Elementwise, Libm, Parts, elementwise, resolve_ufunc, result_dtype
from gradtape.ops.core.elementwise.arithmetic import complex_divide, complex_scaled
from gradtape.ops.core.elementwise.logic import equal, greater, less
from gradtape.ops.core.elementwise.roots import sqrt
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.core.elementwise.signs import absolute, copysign, fabs
from gradtape.ops.core.shift_rules import Exponential

inf, nan = np.inf, np.nan
PI = math.pi
LN2 = math.log(2.0)
FLAT = 22.0
"""Real part beyond which tanh is 1 to rounding."""

RANGE = ((-5.0, 5.0),)
EXP_EDGES = ((0.0,), (-0.0,), (inf,), (-inf,), (nan,), (709.7,), (710.0,), (-745.0,), (1e-20,), (-40.0,))
ANGLES = ((0.0,), (-0.0,), (inf,), (-inf,), (nan,), (1e-200,), (1e5,))
HYPERBOLIC = ((0.0,), (-0.0,), (inf,), (-inf,), (nan,), (1e-200,), (30.0,), (-30.0,))
REAL = "dfbl"
COMPLEX = REAL + "D"


def complex_exp(x: Parts) -> Parts:
    """Half of the exponent at a time: exp(a) may overflow where exp(a) cos(b) does not."""
    a, b = x
    half = exp(a * 0.5)
    vanished = equal(a, -inf)
    real = where(vanished, 0.0, half * cos(b) * half)
    return real, where(vanished | equal(b, 0.0), copysign(0.0, b), half * sin(b) * half)


def _complex_expm1(x: Parts) -> Parts:
    a, b = x
    half = sin(b * 0.5)
    return expm1(a) * cos(b) - 2.0 * half * half, exp(a) * sin(b)


class _Growth:
    """Products with sinh(x) and cosh(x), by those of half of x: a product may be finite where they overflow.

    The other factor is a sine or cosine; its zeros win against infinity.
    """

    __slots__ = ("_cosh", "_sinh")

    def __init__(self, x: Value) -> None:
        self._sinh, self._cosh = sinh(x * 0.5), cosh(x * 0.5)

    def sinh(self, wave: Value) -> Value:
        product = (wave * self._sinh) * (2.0 * self._cosh)
        product = where(equal(self._sinh, 0.0) & ~equal(wave, wave), self._sinh, product)
        return where(equal(wave, 0.0), wave * copysign(1.0, self._sinh), product)

    def cosh(self, wave: Value) -> Value:
        return where(equal(wave, 0.0), wave, (wave * self._cosh) * (2.0 * self._cosh) - wave)


def _complex_sin(x: Parts) -> Parts:
    growth = _Growth(x[1])
    return growth.cosh(sin(x[0])), growth.sinh(cos(x[0]))


def _complex_cos(x: Parts) -> Parts:
    growth = _Growth(x[1])
    return growth.cosh(cos(x[0])), -growth.sinh(sin(x[0]))


def _complex_sinh(x: Parts) -> Parts:
    growth = _Growth(x[0])
    return growth.sinh(cos(x[1])), growth.cosh(sin(x[1]))


def _complex_cosh(x: Parts) -> Parts:
    growth = _Growth(x[0])
    return growth.cosh(cos(x[1])), growth.sinh(sin(x[1]))


def _complex_tanh(x: Parts) -> Parts:
    """By the tangent of the imaginary part, which neither overflows nor cancels (W. Kahan 1987)."""
    a, b = x
    t = tan(b)
    s = sinh(a)
    stretch = 1.0 + t * t
    below = 1.0 + stretch * s * s
    far = greater(fabs(a), FLAT)
    real = where(far, copysign(1.0, a), stretch * sqrt(1.0 + s * s) * s / below)
    flat = where(
        equal(fabs(a), inf) & ~less(fabs(b), inf),
        copysign(0.0, b),
        4.0 * sin(b) * cos(b) * exp(-2.0 * fabs(a)),
    )
    return where(equal(a, 0.0), a, real), where(far, flat, t / below)


def _complex_tan(x: Parts) -> Parts:
    real, imag = _complex_tanh((-x[1], x[0]))
    return imag, -real


exp = elementwise(
    "exp",
    np.exp,
    body=Libm("exp"),
    complex_body=complex_exp,
    partials=(lambda z, x: z,),
    domain=RANGE,
    edges=EXP_EDGES,
    slopes=(((-inf,), (0.0,)), ((0.0,), (1.0,))),
    dtype_samples=COMPLEX,
    shift=Exponential(math.e),
)


def _exp2_slope_body(x: Value) -> Value:
    """Where exp2(x) overflows the derivative is finite for another half of a unit: there by the power series."""
    top = 128.0 if x.dtype.itemsize == 4 else 1024.0
    beyond = (x - top) * LN2
    series: Value | float = 0.0
    for k in reversed(range(14)):
        series = 1.0 / math.factorial(k) + beyond * series
    value = exp2(x)
    return where(
        equal(value, inf) & less(x, top + 1.0), (2.0 ** (top - 1.0) * series) * (2.0 * LN2), LN2 * value
    )


def _exp2_slope(x: NDArray) -> NDArray:
    half = np.exp2(np.fabs(x) * np.copysign(x.dtype.type(0.5), x))
    result: NDArray = (x.dtype.type(LN2) * half) * half
    return result


exp2_slope = elementwise(
    "exp2_slope",
    _exp2_slope,
    body=_exp2_slope_body,
    partials=(lambda z, x: LN2 * z,),
    dtypes=lambda type_: resolve_ufunc(np.tanh, (type_,)),
    domain=RANGE,
    edges=((0.0,), (inf,), (-inf,), (nan,), (1024.0,), (1024.6,), (-1050.0,)),
    slopes=(((0.0,), (LN2 * LN2,)),),
    dtype_samples="df",
    shift=Exponential(2.0),
)
exp2: Elementwise = elementwise(
    "exp2",
    np.exp2,
    body=Libm("exp2"),
    complex_body=lambda x: complex_exp(complex_scaled(x, LN2)),
    partials=(lambda z, x: LN2 * z if x.dtype.kind == "c" else exp2_slope(x),),
    domain=RANGE,
    edges=EXP_EDGES,
    slopes=(((0.0,), (LN2,)), ((1024.0,), (LN2 * 2.0**1023 * 2.0,))),
    dtype_samples=COMPLEX,
    shift=Exponential(2.0),
)
expm1 = elementwise(
    "expm1",
    np.expm1,
    body=Libm("expm1"),
    complex_body=_complex_expm1,
    partials=(lambda z, x: exp(x),),
    domain=RANGE,
    edges=EXP_EDGES,
    slopes=(((-40.0,), (math.exp(-40.0),)), ((0.0,), (1.0,))),
    dtype_samples=COMPLEX,
)
sin = elementwise(
    "sin",
    np.sin,
    body=Libm("sin"),
    complex_body=_complex_sin,
    partials=(lambda z, x: cos(x),),
    finite_derivatives=True,
    twin="cos",
    edges=ANGLES,
    slopes=(((0.0,), (1.0,)),),
    dtype_samples=COMPLEX,
)
cos: Elementwise = elementwise(
    "cos",
    np.cos,
    body=Libm("cos"),
    complex_body=_complex_cos,
    partials=(lambda z, x: -sin(x),),
    finite_derivatives=True,
    twin="sin",
    edges=ANGLES,
    slopes=(((0.0,), (0.0,)), ((PI / 2,), (-1.0,))),
    dtype_samples=COMPLEX,
)
tan = elementwise(
    "tan",
    np.tan,
    body=Libm("tan"),
    complex_body=_complex_tan,
    partials=(lambda z, x: 1.0 + z * z,),
    domain=((-1.2, 1.2),),
    edges=ANGLES,
    slopes=(((0.0,), (1.0,)), ((PI / 4,), (2.0,))),
    dtype_samples=COMPLEX,
)
sinh = elementwise(
    "sinh",
    np.sinh,
    body=Libm("sinh"),
    complex_body=_complex_sinh,
    partials=(lambda z, x: cosh(x),),
    edges=(*HYPERBOLIC, (710.0,)),
    slopes=(((0.0,), (1.0,)),),
    dtype_samples=COMPLEX,
)
cosh: Elementwise = elementwise(
    "cosh",
    np.cosh,
    body=Libm("cosh"),
    complex_body=_complex_cosh,
    partials=(lambda z, x: sinh(x),),
    edges=(*HYPERBOLIC, (710.0,)),
    slopes=(((0.0,), (0.0,)), ((-inf,), (-inf,))),
    dtype_samples=COMPLEX,
)


def _sech_squared_body(x: Value) -> Value:
    """By the exponential, which keeps its digits where tanh(x) is 1 but for rounding."""
    decay = exp(-2.0 * fabs(x))
    below = 1.0 + decay
    return 4.0 * decay / (below * below)


def _sech_squared(x: NDArray) -> NDArray:
    decay = np.exp(-2.0 * np.fabs(x))
    result: NDArray = 4.0 * decay / (1.0 + decay) ** 2
    return result


sech_squared = elementwise(
    "sech_squared",
    _sech_squared,
    body=_sech_squared_body,
    cost=15.0,
    partials=(lambda z, x: -2.0 * tanh(x) * z,),
    dtypes=lambda type_: resolve_ufunc(np.tanh, (type_,)),
    finite_derivatives=True,
    edges=HYPERBOLIC,
    slopes=(((0.0,), (0.0,)), ((20.0,), (-8.0 * math.exp(-40.0),)), ((inf,), (0.0,))),
    dtype_samples="df",
)
tanh: Elementwise = elementwise(
    "tanh",
    np.tanh,
    body=Libm("tanh"),
    complex_body=_complex_tanh,
    partials=(lambda z, x: 1.0 - z * z if x.dtype.kind == "c" else sech_squared(x),),
    finite_derivatives=True,
    edges=HYPERBOLIC,
    slopes=(((0.0,), (1.0,)), ((inf,), (0.0,)), ((-800.0,), (0.0,)), ((20.0,), (4.0 * math.exp(-40.0),))),
    dtype_samples=COMPLEX,
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


def _complex_sinc(x: Parts) -> Parts:
    angle = complex_scaled(x, math.pi)
    real, imag = complex_divide(_complex_sin(angle), angle)
    zero = equal(x[0], 0.0) & equal(x[1], 0.0)
    return where(zero, 1.0, real), where(zero, 0.0, imag)


sinc = elementwise(
    "sinc",
    np.sinc,
    body=_sinc_body,
    complex_body=_complex_sinc,
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
