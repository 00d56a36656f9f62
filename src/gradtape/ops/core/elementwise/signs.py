"""Magnitude and sign."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gradtape.errors import NotDifferentiableError
from gradtape.ir.builder import here
from gradtape.ir.graph import Value
from gradtape.ir.op import NDArray
from gradtape.ir.primitives import PRIMITIVES
from gradtape.kinds.elementwise import Elementwise, Intrinsic, Libm, Parts, elementwise, flat, resolve_ufunc
from gradtape.ops.core.elementwise.cast import convert
from gradtape.ops.core.elementwise.complex_parts import conjugate, from_parts, imag, real
from gradtape.ops.core.elementwise.logic import equal, less
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.core.shift_rules import magnitude

inf, nan = np.inf, np.nan
PAIR = ((-3.0, 3.0), (-3.0, 3.0))
SPECIAL = ((0.0,), (-0.0,), (inf,), (-inf,), (nan,))
NUMBERS = "dfblBQ"


def signed_by(d: Value, x: Value) -> Value:
    """Return the tangent of abs(x), where d is that of x."""
    return where(equal(x, 0.0), 0.0, copysign(1.0, x) * d)


def _absolute_body(x: Value) -> Value:
    if x.dtype.kind in "ub":
        return x
    return fabs(x) if x.dtype.kind == "f" else where(less(x, 0), -x, x)


def _absolute_tangent(d: Value, z: Value, x: Value) -> Value:
    if x.dtype.kind != "c":
        return signed_by(d, x)
    a, b = real(x), imag(x)
    unit = from_parts(cosine_of_sides(a, b), sine_of_sides(a, b))
    return real(conjugate(unit) * d)


def _side(own: Value, other: Value, length: Value) -> Value:
    """Return a side over the length of both; an infinite side alone has the direction."""
    endless, far = equal(fabs(own), inf), equal(fabs(other), inf)
    direction = copysign(where(far, math.sqrt(0.5), 1.0), own)
    along = where(endless, direction, where(far, where(equal(own, own), 0.0, own), own / length))
    return where(equal(length, 0.0), 0.0, along)


def _share(own: NDArray, other: NDArray) -> NDArray:
    length = np.hypot(own, other)
    with np.errstate(all="ignore"):
        direction = np.copysign(np.where(np.isinf(other), math.sqrt(0.5), 1.0), own)
        beside = np.where(np.isinf(other) & ~np.isnan(own), 0.0, own / length)
    along = np.where(np.isinf(own), direction, beside)
    result: NDArray = np.where(length == 0, 0.0, along).astype(length.dtype)
    return result


def _over_length(numerator: Value, x: Value, y: Value) -> Value:
    length = hypot(x, y)
    return where(equal(length, 0.0), 0.0, numerator / length)


# The derivatives of a length are the sides of a triangle divided by it, and their derivatives are products: a difference of two nearly
# equal quotients would have no digits where one side is much longer.
def _square_tangent(d: Value, x: Value) -> Value:
    return 2.0 * real(conjugate(x) * d) if x.dtype.kind == "c" else (2.0 * x) * d


hypot = elementwise(
    "hypot",
    np.hypot,
    body=Libm("hypot", arity=2),
    partials=(lambda z, x, y: cosine_of_sides(x, y), lambda z, x, y: sine_of_sides(x, y)),
    finite=True,
    squares_add=True,
    domain=((-3.0, 3.0), (0.5, 3.0)),
    edges=(
        (0.0, 0.0),
        (0.0, -2.0),
        (1e200, 1e200),
        (1e-200, 1e-200),
        (5e-324, 0.0),
        (inf, nan),
        (-inf, 1.0),
        (nan, 1.0),
    ),
    slopes=(
        ((0.0, 0.0), (0.0, 0.0)),
        ((3e200, 4e200), (0.6, 0.8)),
        ((3e-200, -4e-200), (0.6, -0.8)),
        ((-5e-324, 0.0), (-1.0, 0.0)),
        ((inf, 0.0), (1.0, 0.0)),
        ((2.0, -inf), (0.0, -1.0)),
        ((inf, inf), (math.sqrt(0.5), math.sqrt(0.5))),
    ),
    kinks="0 with respect to both where both are 0",
    dtype_samples="dfl",
)
SIDES: dict[str, Any] = {
    "dtypes": lambda x, y: resolve_ufunc(np.hypot, (x, y)),
    "cost": 19.0,
    "finite_derivatives": False,
    "domain": ((-3.0, 3.0), (0.5, 3.0)),
    "edges": ((0.0, 0.0), (0.0, -2.0), (1e200, 1e200), (-inf, 1.0), (1.0, inf), (inf, -inf), (nan, 1.0)),
    "dtype_samples": "df",
}
cosine_of_sides: Elementwise = elementwise(
    "cosine_of_sides",
    _share,
    body=lambda x, y: _side(x, y, hypot(x, y)),
    partials=(
        lambda z, x, y: _over_length(sine_of_sides(x, y) * sine_of_sides(x, y), x, y),
        lambda z, x, y: _over_length(-(z * sine_of_sides(x, y)), x, y),
    ),
    **SIDES,
    slopes=(((0.0, 0.0), (0.0, 0.0)), ((1e100, 1.0), (1e-300, -1e-200)), ((0.0, 2.0), (0.5, 0.0))),
)
sine_of_sides: Elementwise = elementwise(
    "sine_of_sides",
    lambda x, y: _share(y, x),
    body=lambda x, y: _side(y, x, hypot(x, y)),
    partials=(
        lambda z, x, y: _over_length(-(z * cosine_of_sides(x, y)), x, y),
        lambda z, x, y: _over_length(cosine_of_sides(x, y) * cosine_of_sides(x, y), x, y),
    ),
    **SIDES,
    slopes=(((0.0, 0.0), (0.0, 0.0)), ((1.0, 1e100), (-1e-200, 1e-300)), ((2.0, 0.0), (0.0, 0.5))),
)
copysign: Elementwise = elementwise(
    "copysign",
    np.copysign,
    body=Intrinsic("llvm.copysign"),
    partials=(lambda z, x, y: where(equal(x, 0.0), 0.0, copysign(1.0, x) * copysign(1.0, y)), flat),
    finite=True,
    magnitude_of=lambda x, y: x,
    domain=PAIR,
    edges=((0.0, -1.0), (inf, -0.0), (nan, -1.0), (-2.0, nan)),
    slopes=(((0.0, -1.0), (0.0, 0.0)), ((-2.0, -1.0), (1.0, 0.0)), ((2.0, -0.0), (-1.0, 0.0))),
    kinks="0 with respect to the first argument where it is 0; 0 with respect to the second",
    dtype_samples="df",
)
signbit = elementwise(
    "signbit",
    np.signbit,
    body=lambda x: less(copysign(1.0, x), 0.0),
    edges=SPECIAL,
    dtype_samples="df",
)
fabs = elementwise(
    "fabs",
    np.fabs,
    body=Intrinsic("llvm.fabs"),
    tangents=(lambda d, z, x: signed_by(d, x),),
    finite=True,
    magnitude_of=lambda x: x,
    edges=SPECIAL,
    slopes=(((0.0,), (0.0,)), ((-inf,), (-1.0,))),
    kinks="0 at 0",
    dtype_samples="dfl",
)
absolute = elementwise(
    "absolute",
    np.absolute,
    body=_absolute_body,
    complex_body=lambda x: hypot(x[0], x[1]),
    tangents=(_absolute_tangent,),
    square_tangents=(_square_tangent,),
    magnitude_of=lambda x: x,
    finite_derivatives=True,
    edges=SPECIAL,
    slopes=(((0.0,), (0.0,)), ((-0.0,), (0.0,)), ((inf,), (1.0,))),
    kinks="0 at 0",
    dtype_samples=NUMBERS + "?D",
    shift=magnitude,
)


def _sign_body(x: Value) -> Value:
    at_most = x if x.dtype.kind == "u" else where(less(x, 0), -1, x)
    return where(less(0, x), 1, at_most)


def _sign_slope(z: Value, x: Value) -> Value:
    if x.dtype.kind == "c":
        raise NotDifferentiableError(
            "np.sign of complex numbers has no derivative here",
            where=here.site,
            remedy="write it as x / abs(x)",
        )
    return flat(z, x)


def _complex_sign(x: Parts) -> Parts:
    length = hypot(x[0], x[1])
    zero = equal(length, 0.0)
    endless = [equal(fabs(part), inf) for part in x]

    def along(part: Value, own: Value, other: Value) -> Value:
        found = where(own & ~other, copysign(1.0, part), part / length)
        return where(zero | (other & ~own), 0.0, found)

    return along(x[0], *endless), along(x[1], *reversed(endless))


sign = elementwise(
    "sign",
    np.sign,
    body=_sign_body,
    complex_body=_complex_sign,
    partials=(_sign_slope,),
    finite=True,
    edges=SPECIAL,
    slopes=(((0.0,), (0.0,)), ((2.0,), (0.0,))),
    kinks="0 everywhere",
    dtype_samples=NUMBERS,
)
heaviside = elementwise(
    "heaviside",
    np.heaviside,
    body=lambda x, y: where(less(x, 0.0), 0.0, where(less(0.0, x), 1.0, where(equal(x, 0.0), y, x))),
    partials=(flat, lambda z, x, y: convert(equal(x, 0.0), y.dtype)),
    domain=PAIR,
    edges=((0.0, 0.25), (-0.0, nan), (nan, 1.0), (-1.0, nan), (inf, nan)),
    slopes=(((0.0, 0.25), (0.0, 1.0)), ((1.0, 0.25), (0.0, 0.0))),
    kinks="0 with respect to the first argument everywhere",
    dtype_samples="df",
)

PRIMITIVES["absolute"] = absolute
