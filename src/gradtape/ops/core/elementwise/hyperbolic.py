"""Hyperbolic functions and their inverses."""

from __future__ import annotations

import numpy as np

from gradtape.ir.graph import Value
from gradtape.kinds.elementwise import Elementwise, Libm, elementwise
from gradtape.ops.core.elementwise.power import hypot, sqrt

inf, nan = np.inf, np.nan
SPECIAL = ((0.0,), (-0.0,), (inf,), (-inf,), (nan,), (1e-200,), (30.0,), (-30.0,))
COMPLEX = "dfblD"

sinh = elementwise(
    "sinh",
    np.sinh,
    body=Libm("sinh"),
    partials=(lambda z, x: cosh(x),),
    edges=(*SPECIAL, (710.0,)),
    slopes=(((0.0,), (1.0,)),),
    dtype_samples=COMPLEX,
)
cosh: Elementwise = elementwise(
    "cosh",
    np.cosh,
    body=Libm("cosh"),
    partials=(lambda z, x: sinh(x),),
    edges=(*SPECIAL, (710.0,)),
    slopes=(((0.0,), (0.0,)), ((-inf,), (-inf,))),
    dtype_samples=COMPLEX,
)
tanh = elementwise(
    "tanh",
    np.tanh,
    body=Libm("tanh"),
    partials=(lambda z, x: 1.0 - z * z,),
    edges=SPECIAL,
    slopes=(((0.0,), (1.0,)), ((inf,), (0.0,)), ((-800.0,), (0.0,))),
    dtype_samples=COMPLEX,
)


def _unit_length(x: Value) -> Value:
    """Return sqrt(1 + x * x), for real x without overflow."""
    return sqrt(1.0 + x * x) if x.dtype.kind == "c" else hypot(1.0, x)


arcsinh = elementwise(
    "arcsinh",
    np.arcsinh,
    body=Libm("asinh"),
    partials=(lambda z, x: 1.0 / _unit_length(x),),
    edges=(*SPECIAL, (1e200,)),
    slopes=(((0.0,), (1.0,)), ((1e200,), (1e-200,)), ((-inf,), (0.0,))),
    dtype_samples=COMPLEX,
)
arccosh = elementwise(
    "arccosh",
    np.arccosh,
    body=Libm("acosh"),
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
    partials=(lambda z, x: 1.0 / ((1.0 - x) * (1.0 + x)),),
    domain=((-0.8, 0.8),),
    edges=((0.0,), (-0.0,), (1.0,), (-1.0,), (2.0,), (nan,), (1e-200,)),
    slopes=(((0.0,), (1.0,)), ((1.0,), (inf,)), ((-1.0,), (inf,))),
    kinks="inf at 1 and at -1",
    dtype_samples=COMPLEX,
)
