"""Squares, roots and reciprocals."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from gradtape.ir.graph import Value, literal
from gradtape.kinds.elementwise import Intrinsic, Libm, Parts, elementwise
from gradtape.ops.core.elementwise.arithmetic import complex_square
from gradtape.ops.core.elementwise.extrema import maximum
from gradtape.ops.core.elementwise.floats import isinf, isnan
from gradtape.ops.core.elementwise.logic import equal, greater_equal, less
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.core.elementwise.signs import copysign, fabs, hypot
from gradtape.ops.core.shift_rules import Power

inf, nan = np.inf, np.nan
SPECIAL = ((0.0,), (-0.0,), (inf,), (-inf,), (nan,), (1e200,), (1e-200,))
FLOATS = "dfbl"


def complex_sqrt(x: Parts) -> Parts:
    """The part that does not cancel first; of a sixteenth or of sixteen times x, so that the length stays in range (W. Kahan 1987)."""
    low = less(maximum(fabs(x[0]), fabs(x[1])), 1.0)
    scale = where(low, literal(16.0, x[0].dtype), literal(0.0625, x[0].dtype))
    a, b = x[0] * scale, x[1] * scale
    back = where(low, literal(0.25, a.dtype), literal(4.0, a.dtype))
    long = sqrt(fabs(a) * 0.5 + hypot(a, b) * 0.5)
    short = where(equal(long, 0.0), fabs(b), fabs(b) * 0.5 / long)
    right = greater_equal(a, 0.0)
    real = where(right, long, short) * back
    imag = copysign(where(right, short, long), b) * back
    endless = isinf(b)
    return where(endless, inf, real), where(endless | isnan(b), b, imag)


def _squared_root_tangent(d: Value, x: Value) -> Value:
    """Of ``sqrt(x)**2``: that of x, where the root is a number."""
    return d if x.dtype.kind == "c" else d * where(greater_equal(x, 0.0), 1.0, literal(nan, d.dtype))


square = elementwise(
    "square",
    np.square,
    body=lambda x: x * x,
    complex_body=complex_square,
    square_of=lambda x: x,
    partials=(lambda z, x: 2.0 * x,),
    finite=True,
    edges=SPECIAL,
    slopes=(((0.0,), (0.0,)), ((3.0,), (6.0,))),
    dtype_samples="dfblBQ?D",
    shift=Power(Fraction(2)),
)
sqrt = elementwise(
    "sqrt",
    np.sqrt,
    body=Intrinsic("llvm.sqrt"),
    complex_body=complex_sqrt,
    partials=(lambda z, x: 0.5 / z,),
    square_tangents=(_squared_root_tangent,),
    domain=((0.2, 4.0),),
    edges=(*SPECIAL, (-1.0,)),
    slopes=(((0.0,), (inf,)), ((inf,), (0.0,)), ((4.0,), (0.25,))),
    kinks="inf at 0; 0 where it is the root of a sum of squares",
    dtype_samples=FLOATS + "D",
    shift=Power(Fraction(1, 2)),
)
cbrt = elementwise(
    "cbrt",
    np.cbrt,
    body=Libm("cbrt"),
    partials=(lambda z, x: (1.0 / 3.0) / (z * z),),
    finite=True,
    domain=((0.2, 4.0),),
    edges=(*SPECIAL, (-8.0,)),
    slopes=(((0.0,), (inf,)), ((-8.0,), (1.0 / 12.0,)), ((-inf,), (0.0,))),
    kinks="inf at 0",
    dtype_samples=FLOATS,
)


def _reciprocal_body(x: Value) -> Value:
    """Of integers only 1 and -1 have a reciprocal but 0; that of 0 is what the machine makes of inf."""
    if x.dtype.kind == "f":
        return literal(1, x.dtype) / x
    zero = np.iinfo(x.dtype).min if x.dtype.kind == "i" and x.dtype.itemsize >= 4 else 0
    units = equal(x, 1) | equal(x, -1) if x.dtype.kind == "i" else equal(x, 1)
    return where(equal(x, 0), literal(zero, x.dtype), where(units, x, literal(0, x.dtype)))


def complex_reciprocal(x: Parts) -> Parts:
    a, b = x
    wide = greater_equal(fabs(a), fabs(b))
    large, small = where(wide, a, b), where(wide, b, a)
    ratio = small / large
    length = large + small * ratio
    return where(wide, 1.0, ratio) / length, -where(wide, ratio, 1.0) / length


reciprocal = elementwise(
    "reciprocal",
    np.reciprocal,
    body=_reciprocal_body,
    complex_body=complex_reciprocal,
    partials=(lambda z, x: -(z * z),),
    domain=((0.4, 3.0),),
    edges=SPECIAL,
    slopes=(((0.0,), (-inf,)), ((inf,), (0.0,)), ((-2.0,), (-0.25,))),
    kinks="-inf at 0",
    dtype_samples="dfbhlBHD",
    shift=Power(Fraction(-1)),
)
