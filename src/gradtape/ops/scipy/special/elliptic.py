"""Elliptic integrals, of Legendre's and of Carlson's kind, Jacobi's elliptic functions, and the arithmetic-geometric mean.

Derivatives in the parameter are Carlson's integrals, which do not cancel where it is 0 (DLMF 19.4, 19.18, 19.25).
"""

from __future__ import annotations

import functools
import math

import numpy as np

from gradtape.ir.graph import Value, literal
from gradtape.kinds.elementwise import Elementwise, Rule
from gradtape.ops.core.elementwise.cast import convert, stop_gradient
from gradtape.ops.core.elementwise.exponential import cos, exp, sin
from gradtape.ops.core.elementwise.extrema import maximum, minimum
from gradtape.ops.core.elementwise.floats import rint
from gradtape.ops.core.elementwise.inverse import log
from gradtape.ops.core.elementwise.logic import equal, less
from gradtape.ops.core.elementwise.power import pow_real
from gradtape.ops.core.elementwise.roots import sqrt
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.core.elementwise.signs import fabs
from gradtape.ops.scipy.special.quadrature import integrate, whole_line
from gradtape.ops.scipy.special.rows import result, several, special

inf, nan = np.inf, np.nan
POSITIVE = (0.3, 3.0)

FAR_APART = 1e-8
"""The ratio of two numbers below which the leading term of their mean has all digits."""


def _decay(*powers: tuple[Value, float]) -> Value:
    """Return the integral of the product of ``(t + x)**-power`` over t > 0, by ``t = exp(u)`` on the scale of the arguments.

    The geometric mean of the largest and the least argument is brought to 1, around which nodes are dense: the integral is homogeneous of
    degree ``1 - sum(powers)``.
    """

    def integrand(u: Value, *arguments: Value) -> Value:
        t = exp(u)
        product: Value | None = None
        for x, (_, power) in zip(arguments, powers, strict=True):
            base = t + x
            whole = int(power)
            factor = base if whole == 1 else base * base if whole == 2 else None
            if power != whole:
                root = sqrt(base)
                factor = root if factor is None else factor * root
            assert factor is not None
            product = factor if product is None else product * factor
        assert product is not None
        return t / product

    # t and the product are beyond the numbers of single precision
    dtype = np.result_type(*[x.dtype for x, _ in powers])
    wide = [convert(x, np.result_type(x.dtype, float)) for x, _ in powers]
    largest, least = functools.reduce(maximum, wide), functools.reduce(minimum, wide)
    scale = stop_gradient(sqrt(largest) * sqrt(where(equal(least, 0.0), largest, least)))
    degree = 1.0 - sum(power for _, power in powers)
    unit = integrate(whole_line(), integrand, *[x / scale for x in wide])
    at_zero = sum(
        (where(equal(x, 0.0), power, 0.0) for x, (_, power) in zip(wide, powers, strict=True)), literal(0.0)
    )
    return convert(unit * pow_real(scale, degree) * where(less(at_zero, 1.0), 1.0, inf), dtype)


elliprd: Elementwise = special(
    "elliprd",
    lambda r, x, y, z: -0.75 * _decay((x, 1.5), (y, 0.5), (z, 1.5)),
    lambda r, x, y, z: -0.75 * _decay((x, 0.5), (y, 1.5), (z, 1.5)),
    lambda r, x, y, z: -2.25 * _decay((x, 0.5), (y, 0.5), (z, 2.5)),
    domain=(POSITIVE,) * 3,
    edges=((0.0, 1.0, 1.0), (1.0, 1.0, 1.0), (nan, 1.0, 1.0)),
    slopes=(((1.0, 1.0, 1.0), (-0.3, -0.3, -0.9)),),
)
elliprf: Elementwise = special(
    "elliprf",
    lambda r, x, y, z: elliprd(y, z, x) * (-1.0 / 6.0),
    lambda r, x, y, z: elliprd(x, z, y) * (-1.0 / 6.0),
    lambda r, x, y, z: elliprd(x, y, z) * (-1.0 / 6.0),
    domain=(POSITIVE,) * 3,
    edges=((0.0, 1.0, 1.0), (1.0, 1.0, 1.0), (nan, 1.0, 1.0)),
    slopes=(((1.0, 1.0, 1.0), (-1.0 / 6.0,) * 3),),
)


def _degenerate(r: Value, x: Value, y: Value) -> tuple[Value, Value]:
    """By differences where x and y are far apart, or the integral is a principal value; else by Carlson's integral of their ratio."""
    near = less(x, 8.0 * y) & less(y, 8.0 * x)
    apart = where(near, 1.0, y - x)
    by_differences = 0.5 * (r - 1.0 / sqrt(x)) / apart, 0.5 * (sqrt(x) / apart / y - r / apart)
    base = where(near, y, 1.0)
    ratio = where(near, x, 1.0) / base
    one = 1.0 + 0.0 * base
    scale = base * sqrt(base)
    by_ratio = (
        elliprd(one, one, ratio) * (-1.0 / 6.0) / scale,
        elliprd(ratio, one, one) * (-1.0 / 3.0) / scale,
    )
    in_x, in_y = (where(near, *each) for each in zip(by_ratio, by_differences, strict=True))
    return in_x, in_y


elliprc: Elementwise = special(
    "elliprc",
    lambda r, x, y: _degenerate(r, x, y)[0],
    lambda r, x, y: _degenerate(r, x, y)[1],
    domain=(POSITIVE,) * 2,
    edges=((0.0, 1.0), (1.0, 1.0), (1.0, -1.0), (nan, 1.0)),
    slopes=(
        ((1.0, 1.0), (-1.0 / 6.0, -1.0 / 3.0)),
        ((1.0, 1e-200), (-114.97582823998226, -5e199)),
        ((1e-220, 1e-220), (-inf, -inf)),
    ),
)


def _times_third(x: Value, y: Value, z: Value) -> Value:
    """Return ``z R_D(x, y, z)``, which goes to 0 with z as its root does."""
    is_zero = equal(z, 0.0)
    inner = where(is_zero, 1.0, z)
    return where(is_zero, 0.0, inner * elliprd(x, y, inner))


elliprg: Elementwise = special(
    "elliprg",
    lambda r, x, y, z: 0.25 * elliprf(x, y, z) - _times_third(y, z, x) / 12.0,
    lambda r, x, y, z: 0.25 * elliprf(x, y, z) - _times_third(x, z, y) / 12.0,
    lambda r, x, y, z: 0.25 * elliprf(x, y, z) - _times_third(x, y, z) / 12.0,
    domain=(POSITIVE,) * 3,
    edges=((0.0, 1.0, 1.0), (1.0, 1.0, 1.0), (nan, 1.0, 1.0)),
    slopes=(((1.0, 1.0, 1.0), (1.0 / 6.0,) * 3),),
)


def _third_in(place: int) -> Rule:
    """Return the derivative of R_J in x, y or z; for p < 0, where the integral is a principal value, by partial fractions."""

    def rule(r: Value, *arguments: Value) -> Value:
        x, p = arguments[place], arguments[3]
        others = [each for k, each in enumerate(arguments[:3]) if k != place]
        negative = less(p, 0.0)
        principal = -0.5 * (r - elliprd(*others, x)) / (x - p)
        inner = where(negative, 1.0, p)
        plain = -0.75 * _decay((x, 1.5), *[(other, 0.5) for other in others], (inner, 1.0))
        return where(negative, principal, plain)

    return rule


def _third_in_p(r: Value, x: Value, y: Value, z: Value, p: Value) -> Value:
    """For p < 0 from homogeneity: ``x r_x + y r_y + z r_z + p r_p = -3 r / 2``."""
    negative = less(p, 0.0)
    inner = where(negative, 1.0, p)
    plain = -1.5 * _decay((x, 0.5), (y, 0.5), (z, 0.5), (inner, 2.0))
    below = where(negative, p, -1.0)
    others = sum((each * _third_in(k)(r, x, y, z, below) for k, each in enumerate((x, y, z))), 1.5 * r)
    return where(negative, -others / below, plain)


elliprj: Elementwise = special(
    "elliprj",
    _third_in(0),
    _third_in(1),
    _third_in(2),
    _third_in_p,
    domain=(POSITIVE,) * 4,
    edges=((1.0, 1.0, 1.0, 1.0), (nan, 1.0, 1.0, 1.0), (1.0, 2.0, 3.0, -1.0)),
    slopes=(((1.0, 1.0, 1.0, 1.0), (-0.3, -0.3, -0.3, -0.6)),),
)


def _second(m: Value) -> Value:
    """Return D(m) = (K(m) - E(m)) / m."""
    return elliprd(0.0, 1.0 - m, 1.0) * (1.0 / 3.0)


ellipk: Elementwise = special(
    "ellipk",
    lambda z, m: (z - _second(m)) / (2.0 * (1.0 - m)),
    domain=((-1.0, 0.8),),
    edges=((0.0,), (1.0,), (2.0,), (-10.0,), (nan,)),
    slopes=(((0.0,), (math.pi / 8.0,)),),
    dtype_samples="df",
)
ellipkm1: Elementwise = special(
    "ellipkm1",
    lambda z, p: (elliprd(0.0, p, 1.0) * (1.0 / 3.0) - z) / (2.0 * p),
    domain=((0.2, 2.0),),
    edges=((0.0,), (1.0,), (-1.0,), (nan,), (1e-20,)),
    slopes=(((1.0,), (-math.pi / 8.0,)),),
    dtype_samples="df",
)
ellipe: Elementwise = special(
    "ellipe",
    lambda z, m: -0.5 * _second(m),
    domain=((-1.0, 0.8),),
    edges=((0.0,), (1.0,), (2.0,), (-10.0,), (nan,)),
    slopes=(((0.0,), (-math.pi / 8.0,)),),
    dtype_samples="df",
)


def _incomplete(phi: Value, m: Value, cubed: bool) -> Value:
    """Return the integral of ``sin**2 / d`` (or of ``sin**2 / d**3``) from 0 to phi, where ``d**2 = 1 - m sin**2``."""
    turns = rint(phi / math.pi)
    rest = phi - math.pi * turns
    s, c = sin(rest), cos(rest)
    square = 1.0 - m * s * s
    part = elliprd(c * c, 1.0, square) if cubed else elliprd(c * c, square, 1.0)
    still = equal(turns, 0.0)
    inner = where(still, 0.0, m)
    quarter = elliprd(0.0, 1.0, 1.0 - inner) if cubed else elliprd(0.0, 1.0 - inner, 1.0)
    return (s * s * s * part + where(still, 0.0, 2.0 * turns * quarter)) * (1.0 / 3.0)


AMPLITUDE = ((-4.0, 4.0), (-1.0, 0.8))
ellipkinc: Elementwise = special(
    "ellipkinc",
    lambda z, phi, m: 1.0 / sqrt(1.0 - m * sin(phi) * sin(phi)),
    lambda z, phi, m: 0.5 * _incomplete(phi, m, True),
    domain=AMPLITUDE,
    edges=((0.0, 0.5), (1.0, 0.0), (nan, 0.5), (1.0, 1.0)),
    slopes=(((0.0, 0.5), (1.0, 0.0)), ((0.5 * math.pi, 0.0), (1.0, math.pi / 8.0))),
)
ellipeinc: Elementwise = special(
    "ellipeinc",
    lambda z, phi, m: sqrt(1.0 - m * sin(phi) * sin(phi)),
    lambda z, phi, m: -0.5 * _incomplete(phi, m, False),
    domain=AMPLITUDE,
    edges=((0.0, 0.5), (1.0, 0.0), (nan, 0.5), (1.0, 1.0)),
    slopes=(((0.0, 0.5), (1.0, 0.0)), ((0.5 * math.pi, 0.0), (1.0, -math.pi / 8.0))),
)

JACOBI = ((-3.0, 3.0), (0.1, 0.9))


def _turned(u: Value, m: Value) -> Value:
    """Return the derivative of the amplitude in the parameter m."""
    return -0.5 * ellipj_dn(u, m) * _incomplete(ellipj_ph(u, m), m, True)


ellipj_sn: Elementwise = result(
    "ellipj",
    0,
    "ellipj_sn",
    lambda z, u, m: ellipj_cn(u, m) * ellipj_dn(u, m),
    lambda z, u, m: ellipj_cn(u, m) * _turned(u, m),
    domain=JACOBI,
    edges=((0.0, 0.5), (1.0, 0.0), (nan, 0.5)),
)
ellipj_cn: Elementwise = result(
    "ellipj",
    1,
    "ellipj_cn",
    lambda z, u, m: -ellipj_sn(u, m) * ellipj_dn(u, m),
    lambda z, u, m: -ellipj_sn(u, m) * _turned(u, m),
    domain=JACOBI,
    edges=((0.0, 0.5), (1.0, 0.0), (nan, 0.5)),
)
ellipj_dn: Elementwise = result(
    "ellipj",
    2,
    "ellipj_dn",
    lambda z, u, m: -m * ellipj_sn(u, m) * ellipj_cn(u, m),
    lambda z, u, m: -ellipj_sn(u, m) * (0.5 * ellipj_sn(u, m) + m * ellipj_cn(u, m) * _turned(u, m)) / z,
    domain=JACOBI,
    edges=((0.0, 0.5), (1.0, 0.0), (nan, 0.5)),
)
ellipj_ph: Elementwise = result(
    "ellipj",
    3,
    "ellipj_ph",
    lambda z, u, m: ellipj_dn(u, m),
    lambda z, u, m: _turned(u, m),
    domain=JACOBI,
    edges=((0.0, 0.5), (1.0, 0.0), (nan, 0.5)),
)
several("ellipj", ellipj_sn, ellipj_cn, ellipj_dn, ellipj_ph)


def _mean_slopes(z: Value, a: Value, b: Value) -> tuple[Value, Value]:
    """``agm(a, b) = pi a / (2 K(1 - b**2 / a**2))`` for a larger a, and it is homogeneous: ``a z_a + b z_b = z``."""
    turned = less(fabs(a), fabs(b))
    large, small = where(turned, b, a), where(turned, a, b)
    far = less(small / large, FAR_APART)
    ratio = where(far, 1.0, small / large)
    square = ratio * ratio
    integral = ellipkm1(square)
    k = where(far, math.log(4.0) + (log(fabs(large)) - log(fabs(small))), integral)
    # K' = (K - D) / (2 ratio**2)
    share = where(far, 1.0, integral - elliprd(0.0, square, 1.0) * (1.0 / 3.0)) / k
    mean = z / large
    in_small, in_large = mean * share / (small / large), mean * (1.0 - share)
    in_a, in_b = where(turned, in_small, in_large), where(turned, in_large, in_small)
    first, second = equal(a, 0.0) & ~equal(b, 0.0), equal(b, 0.0) & ~equal(a, 0.0)
    return where(first, inf, where(second, 0.0, in_a)), where(second, inf, where(first, 0.0, in_b))


agm = special(
    "agm",
    lambda z, a, b: _mean_slopes(z, a, b)[0],
    lambda z, a, b: _mean_slopes(z, a, b)[1],
    domain=((0.3, 3.0), (0.3, 3.0)),
    edges=((1.0, 1.0), (0.0, 1.0), (nan, 1.0), (-1.0, -2.0)),
    slopes=(
        ((1.0, 1.0), (0.5, 0.5)),
        ((0.0, 1.0), (inf, 0.0)),
        ((2.0, 0.0), (0.0, inf)),
        ((-2.0, -2.0), (0.5, 0.5)),
        ((1.0, 1e-200), (0.0033933413748530668, 7.36237141161119e194)),
    ),
    kinks="inf with respect to an argument that alone is 0",
)
