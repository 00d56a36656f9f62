"""Legendre functions and spherical harmonics, of whole degrees n and orders m that are known.

``P(n, m, z) = (-1)**m (1 - z**2)**(m/2) (n+m)! / (2**m n!) J(n-m, m, m, z)`` with Jacobi's polynomial J, whose derivatives are
Jacobi's polynomials (DLMF 14.3.21, 18.9.15). So there is no division by ``1 - z**2``.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gradtape.errors import UnsupportedFunctionError
from gradtape.ir.builder import here
from gradtape.ir.graph import Value, constant
from gradtape.ir.op import NDArray
from gradtape.ir.types import whole_dtype
from gradtape.kinds.arguments import as_array
from gradtape.kinds.elementwise import Elementwise
from gradtape.kinds.operands import broadcast_shapes, broadcast_to
from gradtape.kinds.registry import HOOKS, borrows
from gradtape.ops.core.elementwise.cast import convert
from gradtape.ops.core.elementwise.complex_parts import from_parts
from gradtape.ops.core.elementwise.exponential import cos, sin
from gradtape.ops.core.elementwise.integer import remainder
from gradtape.ops.core.elementwise.inverse import log1p
from gradtape.ops.core.elementwise.logic import equal, less
from gradtape.ops.core.elementwise.power import power
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.core.elementwise.signs import fabs
from gradtape.ops.core.join import stack
from gradtape.ops.scipy.special.hypergeometric import hyp2f1
from gradtape.ops.scipy.special.polynomials.orthogonal import eval_jacobi
from gradtape.ops.scipy.special.rows import NO_FORMULA, refused, special

inf, nan = np.inf, np.nan


def _slope_at_one(m: Value, v: Value) -> Value:
    """Return the derivative at 1 for a whole m: ``(1 - x**2)**(m/2)`` times a polynomial whose value there is known."""
    product = v * (v + 1.0)
    orders = (
        (0.0, 0.5 * product),
        (1.0, where(equal(product, 0.0), 0.0, inf)),
        (-1.0, -inf),
        (2.0, -0.25 * product * (product - 2.0)),
        (-2.0, -0.25),
    )
    result: Value = 0.0 * product
    for order, slope in orders:
        result = where(equal(m, order), slope, result)
    return result


def _lpmv_slope(z: Value, m: Value, v: Value, x: Value) -> Value:
    """At the ends for a whole v, where the function is even or odd; for others it has no derivative at -1."""
    end = equal(fabs(x), 1.0)
    inner = where(end, 0.5, x)
    plain = (v * x * z - (v + m) * lpmv(m, v - 1.0, inner)) / (inner * inner - 1.0)
    odd = where(equal(remainder(v + m, 2.0), 0.0), -1.0, where(equal(remainder(v + m, 2.0), 1.0), 1.0, nan))
    return where(end, _slope_at_one(m, v) * where(less(x, 0.0), odd, 1.0), plain)


lpmv: Elementwise = special(
    "lpmv",
    refused("lpmv", "m", "it is a whole number"),
    refused("lpmv", "v", NO_FORMULA),
    _lpmv_slope,
    domain=((1.0, 1.0), (1.2, 4.0), (-0.8, 0.8)),
    slopes=(
        ((0.0, 3.0, 1.0), (None, None, 6.0)),
        ((0.0, 2.0, -1.0), (None, None, -3.0)),
        ((1.0, 3.0, -1.0), (None, None, -inf)),
        ((2.0, 3.0, 1.0), (None, None, -30.0)),
        ((-2.0, 3.0, 1.0), (None, None, -0.25)),
        ((3.0, 3.0, 1.0), (None, None, 0.0)),
    ),
    kinks="infinite at -1 and at 1 for the orders 1 and -1; nan at -1 for other than whole degrees",
    accuracy=1e-11,
)


def whole_number(x: Any, function: str, argument: str) -> NDArray:
    """Return whole numbers that are known.

    Raises
    ------
    UnsupportedFunctionError
        If they are traced.
    """
    numbers = HOOKS.numbers(x) if isinstance(x, Value) else np.asarray(x)
    if numbers is None:
        raise UnsupportedFunctionError(
            f"scipy.special.{function} with a traced {argument} is not supported",
            where=here.site,
            why="the formula depends on it",
            remedy="pass a number or an array of numbers that is not traced",
        )
    return np.asarray(numbers)


def _orders(function: str, n: Any, m: Any) -> tuple[NDArray, NDArray]:
    degrees, orders = whole_number(n, function, "n"), whole_number(m, function, "m")
    if np.any(degrees < 0):
        raise UnsupportedFunctionError(
            f"scipy.special.{function} of negative degrees is not supported",
            where=here.site,
            why="SciPy's documentation excludes them",
        )
    first, second = np.broadcast_arrays(degrees, orders)
    return first, second


def _factor(n: NDArray, m: NDArray, normal: float | None) -> NDArray:
    """Return the factor before ``(1 - z**2)**(abs(m)/2) J``; `normal` is 2 or 4 pi where the functions are normalised."""
    from scipy.special import gammaln

    size = np.abs(m)
    inside = size <= n
    low = np.where(inside, n - size, 0)
    level = gammaln(n + size + 1.0) - size * math.log(2.0) - gammaln(n + 1.0)
    spread = gammaln(low + 1.0) - gammaln(n + size + 1.0)
    sign_ = np.where((size % 2 == 1) & (m > 0), -1.0, 1.0)
    if normal is None:
        scale = np.exp(level + np.where(m < 0, spread, 0.0))
    else:
        scale = np.exp(level + 0.5 * spread) * np.sqrt((2.0 * n + 1.0) / normal)
    return np.where(inside, sign_ * scale, 0.0)


def _jacobi(n: NDArray, m: NDArray, z: Value, count: int) -> list[Value]:
    """Return Jacobi's polynomial of degree n - abs(m) and its first derivatives."""
    size = np.abs(m)
    derivatives = []
    for k in range(count + 1):
        degree = np.where(n - size >= k, n - size - k, 0)
        rising = np.prod([n + size + 1.0 + i for i in range(k)], axis=0) * 0.5**k
        rising = np.where(n - size >= k, rising, 0.0)
        both = (size + k) * 1.0
        derivatives.append(constant(rising) * eval_jacobi(degree.astype(np.int64), both, both, z))
    return derivatives


def _associated(n: NDArray, m: NDArray, z: Value, count: int, normal: float | None) -> list[Value]:
    """Return an associated function of z and its first derivatives."""
    size, factor = np.abs(m) * 1.0, _factor(n, m, normal)
    j = _jacobi(n, m, z, count)
    square = 1.0 - z * z

    def raised(shift: float, coefficient: NDArray) -> Value:
        """Return a coefficient times ``square**(size/2 - shift)``; where the coefficient is 0, nothing is raised."""
        needed = coefficient != 0
        return constant(np.where(needed, coefficient, 0.0)) * power(
            square, np.where(needed, 0.5 * size - shift, 0.0)
        )

    unit = np.ones_like(size)
    results = [raised(0.0, unit) * j[0]]
    if count > 0:
        results.append(raised(0.0, unit) * j[1] - raised(1.0, size) * z * j[0])
    if count > 1:
        bent = raised(2.0, size * (size - 2.0)) * z * z - raised(1.0, size)
        results.append(raised(0.0, unit) * j[2] - 2.0 * raised(1.0, size) * z * j[1] + bent * j[0])
    return [constant(factor) * result for result in results]


def _spherical(n: NDArray, m: NDArray, theta: Value, count: int) -> list[Value]:
    """Return a spherical function of the angle and its first derivatives in the angle."""
    size, factor = np.abs(m) * 1.0, _factor(n, m, 4.0 * math.pi)
    # At the pole 0 it is the derivative towards positive angles, as in SciPy.
    side = where(less(sin(theta), 0.0), -1.0, 1.0)
    s, c = side * sin(theta), cos(theta)
    j = _jacobi(n, m, c, count)

    def raised(shift: float, coefficient: NDArray) -> Value:
        needed = coefficient != 0
        return constant(np.where(needed, coefficient, 0.0)) * power(s, np.where(needed, size + shift, 0.0))

    unit = np.ones_like(size)
    results = [raised(0.0, unit) * j[0]]
    if count > 0:
        results.append(side * (raised(-1.0, size) * c * j[0] - raised(1.0, unit) * j[1]))
    if count > 1:
        results.append(
            raised(-2.0, size * (size - 1.0)) * c * c * j[0]
            - raised(0.0, size) * j[0]
            - raised(0.0, 2.0 * size + 1.0) * c * j[1]
            + raised(2.0, unit) * j[2]
        )
    return [constant(factor) * result for result in results]


def _count(diff_n: Any, function: str) -> int:
    count = int(whole_number(diff_n, function, "diff_n"))
    if not 0 <= count <= 2:
        raise ValueError(f"diff_n is currently only implemented for orders 0, 1, and 2, received: {diff_n}.")
    return count


def _check_branch(branch_cut: Any, function: str) -> None:
    if np.any(whole_number(branch_cut, function, "branch_cut") != 2):
        raise UnsupportedFunctionError(
            f"scipy.special.{function} with branch_cut=3 is not supported",
            where=here.site,
            why="the formula is the one for -1 < z < 1",
        )


def _grid(n: Any, m: Any, rank: int) -> tuple[NDArray, NDArray]:
    """Return all degrees up to n and all orders up to m, the negative ones last, each with axes for an array of this rank."""
    size = abs(int(m))
    degrees = np.arange(int(n) + 1).reshape(-1, 1, *[1] * rank)
    orders = np.array([*range(size + 1), *range(-size, 0)]).reshape(1, -1, *[1] * rank)
    first, second = np.broadcast_arrays(degrees, orders)
    return first, second


def _floating(z: Any, argument: str) -> Value:
    x = as_array(z, argument)
    return x if x.dtype.kind == "f" else convert(x, np.dtype(float))


@borrows("scipy.special.legendre_p.__call__")
def legendre_p(n: Any, z: Any, *, diff_n: Any = 0) -> Value:
    """Return Legendre's polynomial and its derivatives along a first axis, as `scipy.special.legendre_p`."""
    degrees, orders = _orders("legendre_p", n, 0)
    return stack(*_jacobi(degrees, orders, _floating(z, "z"), _count(diff_n, "legendre_p")))


@borrows("scipy.special.legendre_p_all.__call__")
def legendre_p_all(n: Any, z: Any, *, diff_n: Any = 0) -> Value:
    """Return the polynomials of all degrees up to n, as `scipy.special.legendre_p_all`."""
    x = _floating(z, "z")
    degrees = np.arange(int(whole_number(n, "legendre_p_all", "n")) + 1).reshape(-1, *[1] * x.ndim)
    polynomials = _jacobi(degrees, np.zeros_like(degrees), x, _count(diff_n, "legendre_p_all"))
    return convert(stack(*polynomials), x.dtype)


@borrows("scipy.special.assoc_legendre_p.__call__")
def assoc_legendre_p(
    n: Any, m: Any, z: Any, *, branch_cut: Any = 2, norm: bool = False, diff_n: Any = 0
) -> Value:
    """Return an associated Legendre function of -1 < z < 1, as `scipy.special.assoc_legendre_p`."""
    _check_branch(branch_cut, "assoc_legendre_p")
    degrees, orders = _orders("assoc_legendre_p", n, m)
    count = _count(diff_n, "assoc_legendre_p")
    return stack(*_associated(degrees, orders, _floating(z, "z"), count, 2.0 if norm else None))


@borrows("scipy.special.assoc_legendre_p_all.__call__")
def assoc_legendre_p_all(
    n: Any, m: Any, z: Any, *, branch_cut: Any = 2, norm: bool = False, diff_n: Any = 0
) -> Value:
    """Return the functions of all degrees and orders, as `scipy.special.assoc_legendre_p_all`."""
    _check_branch(branch_cut, "assoc_legendre_p_all")
    x = _floating(z, "z")
    grid = _grid(
        whole_number(n, "assoc_legendre_p_all", "n"), whole_number(m, "assoc_legendre_p_all", "m"), x.ndim
    )
    return stack(*_associated(*grid, x, _count(diff_n, "assoc_legendre_p_all"), 2.0 if norm else None))


@borrows("scipy.special.sph_legendre_p.__call__")
def sph_legendre_p(n: Any, m: Any, theta: Any, *, diff_n: Any = 0) -> Value:
    """Return a spherical Legendre function, as `scipy.special.sph_legendre_p`."""
    degrees, orders = _orders("sph_legendre_p", n, m)
    return stack(*_spherical(degrees, orders, _floating(theta, "theta"), _count(diff_n, "sph_legendre_p")))


@borrows("scipy.special.sph_legendre_p_all.__call__")
def sph_legendre_p_all(n: Any, m: Any, theta: Any, *, diff_n: Any = 0) -> Value:
    """Return the functions of all degrees and orders, as `scipy.special.sph_legendre_p_all`."""
    x = _floating(theta, "theta")
    grid = _grid(
        whole_number(n, "sph_legendre_p_all", "n"), whole_number(m, "sph_legendre_p_all", "m"), x.ndim
    )
    return convert(stack(*_spherical(*grid, x, _count(diff_n, "sph_legendre_p_all"))), x.dtype)


def _harmonics(n: NDArray, m: NDArray, theta: Value, phi: Value, count: int) -> Any:
    along = _spherical(n, m, theta, count)
    angle = constant(m * 1.0) * phi
    c, s = cos(angle), sin(angle)

    def turned(function: Value, quarter_turns: int) -> Value:
        """Return a function of theta times a derivative in phi of ``exp(i m phi)``."""
        scaled = constant(m.astype(float) ** quarter_turns) * function
        parts = ((c, s), (-s, c), (-c, -s))[quarter_turns]
        return from_parts(scaled * parts[0], scaled * parts[1])

    value = turned(along[0], 0)
    if count == 0:
        return value
    gradient = _last(turned(along[1], 0), turned(along[0], 1))
    if count == 1:
        return value, gradient
    mixed = turned(along[1], 1)
    return (
        value,
        gradient,
        _last(_last(turned(along[2], 0), mixed), _last(mixed, turned(along[0], 2)), axis=-2),
    )


def _last(*parts: Value, axis: int = -1) -> Value:
    return stack(*parts, axis=axis)


@borrows("scipy.special.sph_harm_y.__call__")
def sph_harm_y(n: Any, m: Any, theta: Any, phi: Any, *, diff_n: Any = 0) -> Any:
    """Return a spherical harmonic, and its derivatives, as `scipy.special.sph_harm_y`."""
    degrees, orders = _orders("sph_harm_y", n, m)
    return _harmonics(degrees, orders, *_angles(theta, phi), _count(diff_n, "sph_harm_y"))


@borrows("scipy.special.sph_harm_y_all.__call__")
def sph_harm_y_all(n: Any, m: Any, theta: Any, phi: Any, *, diff_n: Any = 0) -> Any:
    """Return the harmonics of all degrees and orders, as `scipy.special.sph_harm_y_all`."""
    angles = _angles(theta, phi)
    grid = _grid(
        whole_number(n, "sph_harm_y_all", "n"), whole_number(m, "sph_harm_y_all", "m"), angles[0].ndim
    )
    harmonics = _harmonics(*grid, *angles, _count(diff_n, "sph_harm_y_all"))
    dtype = whole_dtype(np.result_type(*[angle.dtype for angle in angles]))
    return (
        tuple([convert(part, dtype) for part in harmonics])
        if isinstance(harmonics, tuple)
        else convert(harmonics, dtype)
    )


def _angles(theta: Any, phi: Any) -> tuple[Value, Value]:
    first, second = _floating(theta, "theta"), _floating(phi, "phi")
    shape = broadcast_shapes([first.shape, second.shape])
    return broadcast_to(first, shape), broadcast_to(second, shape)


@borrows("scipy.special.lqn")
def lqn(n: Any, z: Any) -> tuple[Value, Value]:
    """Return Legendre's functions of the second kind up to degree n and their derivatives, as `scipy.special.lqn`."""
    top, x = int(whole_number(n, "lqn", "n")), _floating(z, "z")
    values = [_second_kind(k, x) for k in range(top + 1)]
    slopes = [1.0 / (1.0 - x * x)]
    slopes += [k * (x * values[k] - values[k - 1]) / (x * x - 1.0) for k in range(1, top + 1)]
    return stack(*values), stack(*slopes)


def _second_kind(n: int, x: Value) -> Value:
    """By the recurrence between -1 and 1, by a hypergeometric function outside (DLMF 14.3.7)."""
    inside = less(fabs(x), 1.0)
    near, far = where(inside, x, 0.5), where(inside, 2.0, x)
    before, value = 0.0 * near, 0.5 * (log1p(near) - log1p(-near))
    for k in range(n):
        above = near * value - 1.0 if k == 0 else ((2 * k + 1) * near * value - k * before) / (k + 1)
        before, value = value, above
    front = math.sqrt(math.pi) * math.gamma(n + 1.0) / math.gamma(n + 1.5)
    series = hyp2f1(0.5 * n + 1.0, 0.5 * n + 0.5, n + 1.5, 1.0 / (far * far))
    return where(inside, value, front * power(2.0 * far, -float(n + 1)) * series)
