"""Bessel functions: cylindrical, modified, spherical, scaled; in their arguments by recurrences, in their orders by integrals."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import numpy as np

from gradtape.errors import NotDifferentiableError
from gradtape.ir.builder import here
from gradtape.ir.graph import Value
from gradtape.kinds.elementwise import Elementwise, Rule, SciPy, elementwise
from gradtape.ops.core.elementwise.exponential import cos, exp, sin
from gradtape.ops.core.elementwise.floats import trunc
from gradtape.ops.core.elementwise.logic import equal, greater, less
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.core.elementwise.signs import fabs, sign
from gradtape.ops.scipy.special.orders import ive_in_order, jv_in_order, kve_in_order, yv_in_order
from gradtape.ops.scipy.special.rows import refused, result, special

inf, nan = np.inf, np.nan
WHOLE = "the order is a whole number"


def _over_argument(z: Value, x: Value, sign: float, scale: Value | float = 1.0) -> Value:
    """Return a function of order 1 over its argument, near 0 by its power series, the derivatives of which are right there as well."""
    near = less(fabs(x), 0.02)
    inner, far = where(near, x, 0.0), where(near, 1.0, x)
    square = sign * (0.25 * inner * inner)
    series: Value | float = 0.0
    for k in reversed(range(6)):
        series = 0.5 / (math.factorial(k) * math.factorial(k + 1)) + square * series
    return where(near, scale * series, where(equal(fabs(z), inf), 0.0, z) / far)


i0 = elementwise(
    "i0",
    "scipy.special:i0",
    body=SciPy("i0"),
    partials=(lambda z, x: i1(x),),
    edges=((0.0,), (8.0,), (-30.0,), (nan,), (inf,)),
    slopes=(((0.0,), (0.0,)),),
    dtype_samples="df",
)
i1: Elementwise = elementwise(
    "i1",
    "scipy.special:i1",
    body=SciPy("i1"),
    partials=(lambda z, x: i0(x) - _over_argument(z, x, 1.0),),
    edges=((0.0,), (8.0,), (-30.0,), (nan,)),
    slopes=(((0.0,), (0.5,)), ((1e-200,), (0.5,)), ((713.0,), (inf,)), ((-713.0,), (inf,))),
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
    partials=(lambda z, x: j0(x) - _over_argument(z, x, -1.0),),
    domain=((-6.0, 6.0),),
    edges=((0.0,), (1.0,), (nan,), (30.0,)),
    slopes=(((0.0,), (0.5,)),),
    dtype_samples="df",
)
RAY = ((0.3, 6.0),)
AT = ((1.0,), (nan,), (30.0,))
k0: Elementwise = special("k0", lambda z, x: -k1(x), domain=RAY, edges=(*AT, (0.0,)), dtype_samples="df")
k1: Elementwise = special(
    "k1", lambda z, x: -k0(x) - z / x, domain=RAY, edges=(*AT, (0.0,)), dtype_samples="df"
)
y0: Elementwise = special("y0", lambda z, x: -y1(x), domain=RAY, edges=(*AT, (0.0,)), dtype_samples="df")
y1: Elementwise = special(
    "y1", lambda z, x: y0(x) - z / x, domain=RAY, edges=(*AT, (0.0,)), dtype_samples="df"
)
i0e: Elementwise = special(
    "i0e",
    lambda z, x: i1e(x) - sign(x) * z,
    domain=((0.2, 6.0),),
    edges=(*AT, (0.0,), (-1.0,)),
    kinks="0 at 0",
    dtype_samples="df",
)
i1e: Elementwise = special(
    "i1e",
    lambda z, x: i0e(x) - _over_argument(z, x, 1.0, exp(-fabs(x))) - sign(x) * z,
    domain=((0.2, 6.0),),
    edges=(*AT, (0.0,), (-1.0,)),
    slopes=(((0.0,), (0.5,)),),
    dtype_samples="df",
)
k0e: Elementwise = special(
    "k0e", lambda z, x: z - k1e(x), domain=RAY, edges=(*AT, (0.0,)), dtype_samples="df"
)
k1e: Elementwise = special(
    "k1e", lambda z, x: z - k0e(x) - z / x, domain=RAY, edges=(*AT, (0.0,)), dtype_samples="df"
)

ORDERS = ((0.2, 3.0), (0.5, 6.0))
NO_INTEGRAL = "the integrals are known here for real arguments only"


def _neighbours(row: Callable[[], Elementwise], below: float, above: float) -> Rule:
    """Return the rule of the recurrence ``f' = (below * f(v-1, x) + above * f(v+1, x)) / 2``, which needs no division by x."""
    return lambda z, v, x: 0.5 * (below * row()(v - 1.0, x) + above * row()(v + 1.0, x))


def only_real(z: Value, x: Value, name: str) -> None:
    if x.dtype.kind == "c":
        raise NotDifferentiableError(
            f"scipy.special.{name} of complex numbers has no derivative here",
            where=here.site,
            why="its scale depends on a part of the argument alone: it is not holomorphic",
        )


def _real_neighbours(name: str, row: Callable[[], Elementwise]) -> Rule:
    def rule(z: Value, v: Value, x: Value) -> Value:
        only_real(z, x, name)
        return 0.5 * (row()(v - 1.0, x) - row()(v + 1.0, x))

    return rule


POINTS = ((0.0, 1.0), (1.0, 2.0), (2.5, 30.0), (nan, 1.0))
jv: Elementwise = special(
    "jv",
    lambda z, v, x: jv_in_order(v, x),
    _neighbours(lambda: jv, 1.0, -1.0),
    domain=ORDERS,
    edges=(*POINTS, (0.0, 0.0)),
    slopes=(((0.0, 1.0), (0.5 * math.pi * 0.08825696421567698, -0.44005058574493355)),),
)
yv: Elementwise = special(
    "yv", lambda z, v, x: yv_in_order(v, x), _neighbours(lambda: yv, 1.0, -1.0), domain=ORDERS, edges=POINTS
)
jve: Elementwise = special(
    "jve",
    lambda z, v, x: jv_in_order(v, x),
    _real_neighbours("jve", lambda: jve),
    domain=ORDERS,
    edges=POINTS,
)
yve: Elementwise = special(
    "yve",
    lambda z, v, x: yv_in_order(v, x),
    _real_neighbours("yve", lambda: yve),
    domain=ORDERS,
    edges=POINTS,
)


def _ive_in_order(v: Value, x: Value) -> Value:
    """For negative orders by ``I(-v) = I(v) + 2 / pi sin(pi v) K(v)``."""
    negative = less(v, 0.0)
    size = where(negative, -v, v)  # the absolute value has no slope at 0, where that of positive orders holds
    turn = math.pi * size
    decaying = cos(turn) * kve(size, x) + sin(turn) * kve_in_order(size, x) / math.pi
    slope = ive_in_order(size, x)
    return where(negative, -slope - 2.0 * exp(-2.0 * x) * decaying, slope)


iv: Elementwise = special(
    "iv",
    lambda z, v, x: exp(x) * _ive_in_order(v, x),
    _neighbours(lambda: iv, 1.0, 1.0),
    domain=ORDERS,
    edges=(*POINTS, (0.0, 0.0)),
)
kv: Elementwise = special(
    "kv",
    lambda z, v, x: exp(-x) * kve_in_order(v, x),
    _neighbours(lambda: kv, -1.0, -1.0),
    domain=ORDERS,
    edges=POINTS,
)


def _ive_slope(z: Value, v: Value, x: Value) -> Value:
    only_real(z, x, "ive")
    return 0.5 * (ive(v - 1.0, x) + ive(v + 1.0, x)) - sign(x) * z


ive: Elementwise = special(
    "ive",
    lambda z, v, x: _ive_in_order(v, x),
    _ive_slope,
    domain=ORDERS,
    edges=POINTS,
    kinks="in x as that of -abs(x)",
)
kve: Elementwise = special(
    "kve",
    lambda z, v, x: kve_in_order(v, x),
    lambda z, v, x: z - 0.5 * (kve(v - 1.0, x) + kve(v + 1.0, x)),
    domain=ORDERS,
    edges=POINTS,
)
WHOLE_ORDERS = ((0.0, 4.0), (0.5, 6.0))
kn: Elementwise = special(
    "kn",
    refused("kn", "n", WHOLE),
    lambda z, n, x: -0.5 * (kn(trunc(n) - 1, x) + kn(trunc(n) + 1, x)),
    domain=WHOLE_ORDERS,
    dtype_samples=("ld",),
)
yn: Elementwise = special(
    "yn",
    refused("yn", "n", WHOLE),
    lambda z, n, x: 0.5 * (yn(trunc(n) - 1, x) - yn(trunc(n) + 1, x)),
    domain=WHOLE_ORDERS,
    dtype_samples=("ld",),
)


def _hankel(name: str, factor: complex) -> Elementwise:
    """Enter a Hankel function; `factor` is the derivative of the logarithm of its scale."""

    def slope(z: Value, v: Value, x: Value) -> Value:
        change = 0.5 * (row(v - 1.0, x) - row(v + 1.0, x))
        return change if factor == 0 else change + factor * z

    parts = [
        result(
            name,
            None,
            f"{name}_{part}",
            part=part,
            loop="dD->D",
            domain=((0.2, 3.0), (0.5, 6.0), (-0.5, 0.5)),
        )
        for part in ("real", "imag")
    ]
    row: Elementwise = elementwise(
        name,
        f"scipy.special:{name}",
        body=SciPy(name),
        complex_body=lambda v, z: (parts[0](v, *z), parts[1](v, *z)),
        partials=(refused(name, "v", NO_INTEGRAL), slope),
        domain=ORDERS,
        dtype_samples=("dD",),
    )
    return row


hankel1 = _hankel("hankel1", 0)
hankel2 = _hankel("hankel2", 0)
hankel1e = _hankel("hankel1e", -1j)
hankel2e = _hankel("hankel2e", 1j)


def _spherical(kind: str, below: float, above: float) -> None:
    """Enter a spherical Bessel function and its derivative: ``(2n+1) f' = below * n f(n-1) + above * (n+1) f(n+1)``."""
    for name in (f"_spherical_{kind}", f"_spherical_{kind}_d"):
        _spherical_row(name, below, above)


SPHERICAL: Final[dict[str, Elementwise]] = {}
"""The rows of the spherical functions and of their derivatives, by the names of SciPy's ufuncs."""


def _spherical_row(name: str, below: float, above: float) -> None:
    def slope(z: Value, n: Value, x: Value) -> Value:
        lower = row(where(greater(n, 0), n - 1, 0), x)
        return (below * n * lower + above * (n + 1) * row(n + 1, x)) / (2 * n + 1)

    row: Elementwise = special(
        f"_ufuncs.{name}",
        refused(name.strip("_"), "n", WHOLE),
        slope,
        domain=WHOLE_ORDERS,
        dtype_samples=("ld",),
    )
    SPHERICAL[name] = row


_spherical("jn", 1.0, -1.0)
_spherical("yn", 1.0, -1.0)
_spherical("in", 1.0, 1.0)
_spherical("kn", -1.0, -1.0)
