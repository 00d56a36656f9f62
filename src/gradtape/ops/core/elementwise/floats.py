"""Floating-point numbers: rounding, classes, neighbours, exponents and fractions."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradtape.ir.graph import Value, literal
from gradtape.ir.op import NDArray
from gradtape.kinds.elementwise import Elementwise, Intrinsic, Libm, Parts, elementwise, flat, resolve_ufunc
from gradtape.kinds.operands import as_value
from gradtape.kinds.registry import UFUNCS
from gradtape.ops.core.elementwise.cast import convert
from gradtape.ops.core.elementwise.logic import equal, less, not_equal
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.core.elementwise.signs import copysign, fabs

inf, nan = np.inf, np.nan
PAIR = ((-3.0, 3.0), (-3.0, 3.0))
TINY = 5e-324
SPECIAL = ((0.0,), (-0.0,), (inf,), (-inf,), (nan,), (TINY,), (-1.7976931348623157e308,))
CLASSES = "dfblBQ?"
HALVES = ((0.5,), (-0.5,), (1.5,), (2.5,), (-0.0,), (4503599627370497.5,), (inf,), (-inf,), (nan,))
ROUNDING: dict[str, Any] = {
    "partials": (flat,),
    "domain": ((-9.0, 9.0),),
    "edges": HALVES,
    "slopes": (((0.5,), (0.0,)), ((2.0,), (0.0,))),
}


def _kept_for_integers(name: str) -> Elementwise:
    """Enter a rounding that leaves integers as they are (NumPy gives them no floating result)."""
    primitive = elementwise(f"{name}_real", getattr(np, name), body=Intrinsic(f"llvm.{name}"), **ROUNDING)

    def body(x: Value) -> Value:
        return primitive(x) if x.dtype.kind == "f" else x

    return elementwise(
        name, getattr(np, name), body=body, kinks="0 everywhere", dtype_samples="dfblBQ?", **ROUNDING
    )


floor = _kept_for_integers("floor")
ceil = _kept_for_integers("ceil")
trunc = _kept_for_integers("trunc")
rint: Elementwise = elementwise(
    "rint",
    np.rint,
    body=Intrinsic("llvm.rint"),
    complex_body=lambda x: (rint(x[0]), rint(x[1])),
    kinks="0 everywhere",
    dtype_samples="dfl",
    **ROUNDING,
)


def complex_isnan(x: Parts) -> Value:
    return isnan(x[0]) | isnan(x[1])


isnan: Elementwise = elementwise(
    "isnan",
    np.isnan,
    body=lambda x: not_equal(x, x),
    complex_body=complex_isnan,
    edges=SPECIAL,
    dtype_samples=CLASSES + "D",
)
isfinite: Elementwise = elementwise(
    "isfinite",
    np.isfinite,
    body=lambda x: less(fabs(x), inf) if x.dtype.kind == "f" else equal(x, x),
    complex_body=lambda x: isfinite(x[0]) & isfinite(x[1]),
    edges=SPECIAL,
    dtype_samples=CLASSES,
)
isinf: Elementwise = elementwise(
    "isinf",
    np.isinf,
    body=lambda x: equal(fabs(x), inf) if x.dtype.kind == "f" else not_equal(x, x),
    complex_body=lambda x: isinf(x[0]) | isinf(x[1]),
    edges=SPECIAL,
    dtype_samples=CLASSES,
)

nextafter = elementwise(
    "nextafter",
    np.nextafter,
    body=Libm("nextafter", arity=2),
    partials=(lambda z, x, y: literal(1.0), flat),
    domain=PAIR,
    edges=((0.0, 1.0), (0.0, -1.0), (1.0, 1.0), (inf, 0.0), (1.0, nan), (-1.7976931348623157e308, -inf)),
    kinks="1 with respect to the first argument, 0 with respect to the second",
    dtype_samples="df",
)
spacing = elementwise(
    "spacing",
    np.spacing,
    body=lambda x: nextafter(x, where(less(x, 0.0), literal(-inf, x.dtype), literal(inf, x.dtype))) - x,
    partials=(flat,),
    edges=SPECIAL,
    kinks="0 everywhere",
    dtype_samples="df",
)

scale_by_power = elementwise(
    "scale_by_power",
    np.ldexp,
    body=Libm("ldexp", arity=2),
    domain=((-3.0, 3.0), (-6.0, 6.0)),
    dtype_samples=("di", "fi"),
)


def _ldexp_body(x: Value, exponent: Value) -> Value:
    """Exponents beyond 32 bits are far outside the range of every float: clipping them changes nothing."""
    if exponent.dtype.itemsize > 4:
        far = 2**31 - 1
        low = where(less(exponent, -far), -far, exponent)
        exponent = where(less(far, low), far, low)
    return scale_by_power(x, convert(exponent, np.dtype(np.int32)))


ldexp: Elementwise = elementwise(
    "ldexp",
    np.ldexp,
    body=_ldexp_body,
    tangents=(lambda d, z, x, exponent: ldexp(d, exponent), None),
    transpose=(lambda ct, x, exponent: ldexp(ct, exponent), None),
    domain=((-3.0, 3.0), (-6.0, 6.0)),
    edges=((1.0, 5000), (1.0, -5000), (0.0, 3), (inf, -3), (nan, 1), (TINY, 1074)),
    dtype_samples=("di", "dl", "fi", "fl"),
)


def _exponent_of(x: NDArray) -> NDArray:
    """Return the exponent of the leading bit: -inf for zero, inf for infinities."""
    _, exponent = np.frexp(x)
    ordinary = (exponent - 1).astype(x.dtype)
    return np.where(x == 0, -np.inf, np.where(np.isfinite(x), ordinary, np.abs(x))).astype(x.dtype)


def _frexp_dtypes(output: int) -> Any:
    return lambda type_: resolve_ufunc(np.frexp, (type_,), output)


def _frexp_exponent_body(x: Value) -> Value:
    ordinary = isfinite(x) & not_equal(x, 0.0)
    exponent = convert(leading_bit(where(ordinary, x, 1.0)), np.dtype(np.int32)) + 1
    return where(ordinary, exponent, 0)


leading_bit = elementwise(
    "leading_bit",
    _exponent_of,
    body=Libm("logb"),
    dtypes=_frexp_dtypes(0),
    edges=SPECIAL,
    dtype_samples="df",
)
frexp_exponent = elementwise(
    "frexp_exponent",
    lambda x: np.frexp(x)[1],
    body=_frexp_exponent_body,
    dtypes=_frexp_dtypes(1),
    edges=((0.0,), (-0.0,), (TINY,), (-0.75,), (1.0,)),
    dtype_samples="df",
)
frexp_mantissa = elementwise(
    "frexp_mantissa",
    lambda x: np.frexp(x)[0],
    body=lambda x: ldexp(x, -frexp_exponent(x)),
    tangents=(lambda d, z, x: ldexp(d, -frexp_exponent(x)),),
    dtypes=_frexp_dtypes(0),
    domain=((1.1, 1.9),),
    edges=SPECIAL,
    slopes=(((1.0,), (0.5,)), ((3.0,), (0.25,)), ((0.0,), (1.0,))),
    kinks="at powers of 2, that of the piece that begins there",
    dtype_samples="df",
)


def frexp(x: Any) -> tuple[Value, Value]:
    """Stand in for np.frexp: mantissa and exponent."""
    return frexp_mantissa(x), frexp_exponent(x)


def _modf_dtypes(type_: Any) -> Any:
    return resolve_ufunc(np.modf, (type_,))


def _modf_fraction_body(x: Value) -> Value:
    return copysign(where(isinf(x), 0.0, x - trunc(x)), x)


modf_fraction = elementwise(
    "modf_fraction",
    lambda x: np.modf(x)[0],
    body=_modf_fraction_body,
    tangents=(lambda d, z, x: d,),
    dtypes=_modf_dtypes,
    domain=((1.1, 1.9),),
    edges=SPECIAL,
    slopes=(((2.0,), (1.0,)),),
    kinks="1 everywhere",
    dtype_samples="df",
)


def modf(x: Any) -> tuple[Value, Value]:
    """Stand in for np.modf: fraction and whole part, both floats."""
    fraction = modf_fraction(x)
    return fraction, trunc(convert(as_value(x), fraction.dtype))


UFUNCS["frexp"] = frexp
UFUNCS["modf"] = modf
