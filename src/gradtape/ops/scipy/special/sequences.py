"""Functions of `scipy.special` that are Python: combinations, sequences of orders or degrees, and functions with cases.

Most others that are written in Python are traced unchanged.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from gradtape.errors import UnsupportedFunctionError
from gradtape.ir.builder import here
from gradtape.ir.graph import Value, constant
from gradtape.kinds.arguments import as_array
from gradtape.kinds.elementwise import Elementwise
from gradtape.kinds.registry import borrows
from gradtape.ops.core.elementwise.cast import convert
from gradtape.ops.core.elementwise.exponential import exp, sin
from gradtape.ops.core.elementwise.floats import rint
from gradtape.ops.core.elementwise.integer import remainder
from gradtape.ops.core.elementwise.logic import equal, greater_equal, less
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.core.elementwise.signs import fabs
from gradtape.ops.core.join import stack
from gradtape.ops.scipy.special.bessel import SPHERICAL
from gradtape.ops.scipy.special.gamma import gamma, hurwitz_zeta, polygamma, psi
from gradtape.ops.scipy.special.hypergeometric import hyp0f1
from gradtape.ops.scipy.special.polynomials.legendre import whole_number
from gradtape.ops.scipy.special.wave_functions import SLOPES, VALUES, obl_cv, pro_cv


def _floating(x: Any, argument: str) -> Value:
    found = as_array(x, argument)
    return found if found.dtype.kind in "fc" else convert(found, np.dtype(float))


def _scalar(x: Any, argument: str) -> Value:
    found = _floating(x, argument)
    if found.ndim:
        raise ValueError("arguments must be scalars.")
    return found


def _known(x: Any, function: str, argument: str) -> float:
    return float(whole_number(x, function, argument))


def _spherical(name: str, even: float) -> None:
    """Enter the rule of a spherical function: that of -z is the one of z times `even`, or times its negative for odd orders."""

    @borrows(f"scipy.special.{name}")
    def rule(n: Any, z: Any, derivative: bool = False) -> Value:
        row = SPHERICAL[f"_{name}_d" if derivative else f"_{name}"]
        orders, x = as_array(n, "n"), _floating(z, "z")
        orders = convert(orders, np.dtype(np.int64))
        if x.dtype.kind == "c":
            return row(orders, x)
        positive = greater_equal(x, 0.0)
        size = where(positive, x, -x)  # fabs has the slope 0 at 0, where these functions are smooth
        value = row(orders, size)
        flip = -1.0 if derivative else 1.0
        if name == "spherical_kn":
            # DLMF 10.47.11, 10.47.16: k(n, -z) = (-1)**(n+1) k(n, z) - pi i(n, z)
            other = SPHERICAL["_spherical_in_d" if derivative else "_spherical_in"](orders, size)
            mirrored = flip * (where(equal(remainder(orders, 2), 0), -1.0, 1.0) * value - math.pi * other)
        else:
            mirrored = flip * where(equal(remainder(orders, 2), 0), even, -even) * value
        found = where(positive, value, mirrored)
        return convert(found, x.dtype) if name == "spherical_kn" else found


_spherical("spherical_jn", 1.0)
_spherical("spherical_yn", -1.0)
_spherical("spherical_in", 1.0)
_spherical("spherical_kn", -1.0)


def _riccati(name: str, kind: str) -> None:
    @borrows(f"scipy.special.{name}")
    def rule(n: Any, x: Any) -> tuple[Value, Value]:
        """Return x times the spherical functions of orders 0 to n, and the derivatives of these."""
        z = _scalar(x, "x")
        orders = np.arange(int(_known(n, name, "n")) + 1)
        value, slope = (
            SPHERICAL[f"_spherical_{kind}"](orders, z),
            SPHERICAL[f"_spherical_{kind}_d"](orders, z),
        )
        return z * value, value + z * slope


_riccati("riccati_jn", "jn")
_riccati("riccati_yn", "yn")


@borrows("scipy.special.lmbda")
def lmbda(v: Any, x: Any) -> tuple[Value, Value]:
    """Return Jahnke and Emde's functions, ``gamma(v+1) J(v, x) / (x/2)**v = 0F1(v+1, -x**2/4)``, as `scipy.special.lmbda`."""
    z, top = _scalar(x, "x"), _known(v, "lmbda", "v")
    if top < 0:
        raise ValueError("argument must be > 0.")
    orders = top - int(top) + np.arange(int(top) + 1)
    square = -0.25 * z * z
    return hyp0f1(orders + 1.0, square), -0.5 * z * constant(1.0 / (orders + 1.0)) * hyp0f1(
        orders + 2.0, square
    )


def _parabolic(name: str) -> None:
    @borrows(f"scipy.special.{name}_seq")
    def rule(v: Any, x: Any) -> tuple[Value, Value]:
        """Return the functions of the orders from the fractional part of v to v, and their derivatives."""
        z, top = _scalar(x, "x"), _known(v, f"{name}_seq", "v")
        whole = int(top)
        if whole < 0:
            raise UnsupportedFunctionError(
                f"scipy.special.{name}_seq of negative orders is not supported",
                where=here.site,
                why="the order of its results differs",
            )
        orders = top - whole + np.arange(max(whole, 1) + 1)
        return VALUES[name](orders, z), SLOPES[name](orders, z)


_parabolic("pbdv")
_parabolic("pbvv")


@borrows("scipy.special.pbdn_seq")
def pbdn_seq(n: Any, z: Any) -> tuple[Value, Value]:
    """Return the parabolic cylinder functions D of orders 0 to n by their recurrence, as `scipy.special.pbdn_seq`."""
    x, top = _scalar(z, "z"), int(_known(n, "pbdn_seq", "n"))
    if top < 0:
        raise UnsupportedFunctionError(
            "scipy.special.pbdn_seq of negative orders is not supported",
            where=here.site,
            why="the recurrence is not stable there",
        )
    x = convert(x, np.dtype(complex))
    values = [exp(-0.25 * x * x)]
    values.append(x * values[0])
    for k in range(1, max(top, 1) + 1):
        values.append(x * values[k] - float(k) * values[k - 1])
    slopes = [0.5 * x * values[k] - values[k + 1] for k in range(max(top, 1) + 1)]
    return stack(*values[:-1]), stack(*slopes)


def _characteristic(name: str, row: Elementwise) -> None:
    @borrows(f"scipy.special.{name}")
    def rule(m: Any, n: Any, c: Any) -> Value:
        """Return the characteristic values of modes m to n."""
        low, high = _known(m, name, "m"), _known(n, name, "n")
        return row(low, np.arange(low, high + 1.0), _scalar(c, "c"))


_characteristic("pro_cv_seq", pro_cv)
_characteristic("obl_cv_seq", obl_cv)


@borrows("scipy.special.factorial")
def factorial(n: Any, exact: bool = False, extend: str = "zero") -> Value:
    """Return ``gamma(n + 1)``, and 0 for negative numbers unless `extend` is "complex", as `scipy.special.factorial`."""
    if exact:
        raise UnsupportedFunctionError(
            "scipy.special.factorial of traced numbers with exact=True is not supported",
            where=here.site,
            why="its results are Python's integers of any size",
            remedy="leave exact=True away",
        )
    x = _floating(n, "n")
    value = gamma(x + 1.0)
    return value if extend == "complex" else where(less(x, 0.0), 0.0, value)


@borrows("scipy.special.polygamma")
def polygamma_function(n: Any, x: Any) -> Value:
    """Return the derivatives of the digamma function, as `scipy.special.polygamma`."""
    orders, z = as_array(n, "n"), _floating(x, "x")
    number = orders.data if orders.ndim == 0 and orders.data is not None else None
    if z.dtype.kind == "f":
        z = convert(z, np.dtype(float))  # as SciPy's zeta(n + 1, x), whose n is a whole number
    if number is not None and float(number) == int(number) >= 0:
        return polygamma(z, order=int(number)) if int(number) else psi(z)
    orders = convert(orders, np.dtype(float))
    sign = where(equal(remainder(orders, 2.0), 0.0), -1.0, 1.0)
    return where(equal(orders, 0.0), psi(z), sign * gamma(orders + 1.0) * hurwitz_zeta(orders + 1.0, z))


@borrows("scipy.special.diric")
def diric(x: Any, n: Any) -> Value:
    """Return ``sin(n x / 2) / (n sin(x / 2))``, as `scipy.special.diric`; near a multiple of 2 pi by two terms of its series."""
    orders, angle = convert(as_array(n, "n"), np.dtype(float)), _floating(x, "x")
    half = 0.5 * angle
    below = sin(half)
    near = less(fabs(below), 1e-5)
    turns = rint(half / math.pi)
    rest = half - math.pi * turns
    even = equal(remainder(turns * (orders - 1.0), 2.0), 0.0)
    close = where(even, 1.0, -1.0) * (1.0 - (orders * orders - 1.0) * rest * rest / 6.0)
    plain = sin(orders * half) / (orders * where(near, 1.0, below))
    defined = greater_equal(orders, 1.0) & equal(rint(orders), orders)
    return where(defined, where(near, close, plain), math.nan)


def _refuse(names: str, why: str) -> None:
    """Enter functions that are not supported, with the reason."""
    for name in names.split():
        borrows(f"scipy.special.{name}")(_refusal(name, why))


def _refusal(name: str, why: str) -> Callable[..., Value]:
    def rule(*args: Any, **kwargs: Any) -> Value:
        raise UnsupportedFunctionError(
            f"scipy.special.{name} of traced numbers is not supported",
            where=here.site,
            why=why,
            remedy="call it with numbers that are not traced",
        )

    return rule


_refuse("ellip_harm ellip_harm_2 ellip_normal", "Lame functions are the solutions of an eigenvalue problem")
_refuse(
    "mathieu_even_coef mathieu_odd_coef",
    "the coefficients are those of a recurrence that SciPy computes in compiled code",
)
_refuse("lqmn", "its results are a table of two recurrences that SciPy computes in compiled code")
