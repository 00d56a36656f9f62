"""Further special functions of SciPy: gamma and beta, exponential integrals, Bessel functions of the first kind."""

from __future__ import annotations

import math

import numpy as np

from gradtape.ir.graph import Value
from gradtape.kinds.elementwise import Elementwise, SciPy, elementwise
from gradtape.ops.core.elementwise.exponential import exp
from gradtape.ops.core.elementwise.logic import equal
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.scipy.special import psi

inf, nan = np.inf, np.nan

gamma = elementwise(
    "gamma",
    "scipy.special:gamma",
    body=SciPy("gamma"),
    partials=(lambda z, x: z * psi(x),),
    domain=((0.3, 6.0),),
    edges=((1.0,), (0.5,), (inf,), (nan,), (171.0,), (180.0,), (-0.5,), (-2.5,)),
    slopes=(((1.0,), (-0.5772156649015329,)), ((2.0,), (0.42278433509846713,))),
    dtype_samples="df",
)


def _share(z: Value, own: Value, other: Value) -> Value:
    return psi(own) - psi(own + other)


betaln = elementwise(
    "betaln",
    "scipy.special:betaln",
    body=SciPy("betaln"),
    partials=(lambda z, a, b: _share(z, a, b), lambda z, a, b: _share(z, b, a)),
    domain=((0.3, 6.0), (0.3, 6.0)),
    edges=((1.0, 1.0), (0.5, 0.5), (nan, 1.0), (100.0, 200.0)),
    slopes=(((1.0, 1.0), (-1.0, -1.0)),),
    dtype_samples="df",
)
beta = elementwise(
    "beta",
    "scipy.special:beta",
    body=SciPy("beta"),
    partials=(lambda z, a, b: z * _share(z, a, b), lambda z, a, b: z * _share(z, b, a)),
    domain=((0.3, 6.0), (0.3, 6.0)),
    edges=((1.0, 1.0), (0.5, 0.5), (nan, 1.0), (100.0, 200.0)),
    slopes=(((1.0, 1.0), (-1.0, -1.0)),),
    dtype_samples="df",
)

exp1 = elementwise(
    "exp1",
    "scipy.special:exp1",
    body=SciPy("exp1"),
    partials=(lambda z, x: -exp(-x) / x,),
    domain=((0.3, 6.0),),
    edges=((1.0,), (0.0,), (inf,), (nan,)),
    slopes=(((1.0,), (-math.exp(-1.0),)), ((0.0,), (-inf,))),
    kinks="-inf at 0",
    dtype_samples="df",
)
expi = elementwise(
    "expi",
    "scipy.special:expi",
    body=SciPy("expi"),
    partials=(lambda z, x: exp(x) / x,),
    domain=((0.3, 6.0),),
    edges=((1.0,), (0.0,), (inf,), (nan,), (-1.0,)),
    slopes=(((1.0,), (math.e,)), ((-1.0,), (-math.exp(-1.0),))),
    dtype_samples="df",
)

j0: Elementwise = elementwise(
    "j0",
    "scipy.special:j0",
    body=SciPy("j0"),
    partials=(lambda z, x: -j1(x),),
    domain=((-6.0, 6.0),),
    edges=((0.0,), (1.0,), (nan,), (30.0,)),
    slopes=(((0.0,), (0.0,)),),
    dtype_samples="df",
)
j1: Elementwise = elementwise(
    "j1",
    "scipy.special:j1",
    body=SciPy("j1"),
    partials=(lambda z, x: where(equal(x, 0.0), 0.5, j0(x) - z / where(equal(x, 0.0), 1.0, x)),),
    domain=((-6.0, 6.0),),
    edges=((0.0,), (1.0,), (nan,), (30.0,)),
    slopes=(((0.0,), (0.5,)),),
    dtype_samples="df",
)
