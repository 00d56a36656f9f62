"""Mathieu, spheroidal and parabolic cylinder functions: SciPy returns their first derivatives, their equations give the others."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from gradtape.ir.graph import Value
from gradtape.kinds.elementwise import Elementwise
from gradtape.ops.core.elementwise.exponential import cos, cosh
from gradtape.ops.core.elementwise.logic import less
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.scipy.special.quadrature import integrate, period, unit_interval
from gradtape.ops.scipy.special.rows import Box, refused, result, several, special

DEGREE = math.pi / 180.0
WHOLE = "it is a whole number"
NO_INTEGRAL = "it would take the derivative of a boundary value problem"
APPROXIMATE = 1e-5
"""The accuracy of SciPy's expansions."""

Second = Callable[..., Value]


def _pair(
    ufunc: str,
    names: tuple[str, ...],
    second: Second,
    domain: Box,
    whole: int,
    unit: float = 1.0,
    accuracy: float = APPROXIMATE,
) -> None:
    """Enter the rows of a function f and of its derivative f' in the last argument.

    Parameters
    ----------
    ufunc : str
    names : tuple of str
        Of the arguments but the last.
    second : callable
        The second derivative, of ``(f, f', *arguments)``.
    domain : tuple of (low, high)
    whole : int
        The number of first arguments that are whole numbers.
    unit : float
        The last argument in which f' is the derivative, per unit of the one that the user gives.
    accuracy : float
    """
    refusals = [
        refused(ufunc, name, WHOLE if position < whole else NO_INTEGRAL)
        for position, name in enumerate(names)
    ]
    value: Elementwise = result(
        ufunc,
        0,
        f"{ufunc}_value",
        *refusals,
        lambda z, *args: unit * slope(*args),
        domain=domain,
        accuracy=accuracy,
    )
    slope: Elementwise = result(
        ufunc,
        1,
        f"{ufunc}_slope",
        *refusals,
        lambda z, *args: unit * second(value(*args), z, *args),
        domain=domain,
        accuracy=accuracy,
    )
    VALUES[ufunc], SLOPES[ufunc] = value, slope
    several(ufunc, value, slope)


VALUES: Final[dict[str, Elementwise]] = {}
"""The rows of the functions themselves, by their ufuncs."""

SLOPES: Final[dict[str, Elementwise]] = {}
"""The rows of their derivatives."""

# Mathieu


def _mean_of_squares(ufunc: str) -> Callable[[Value, Value, Value], Value]:
    """Return the derivative of a characteristic value in q: twice the mean of ``cos(2 x)``, weighted with the square of the function."""

    def slope(z: Value, m: Value, q: Value) -> Value:
        def square(node: Value, m: Value, q: Value) -> Value:
            value = VALUES[ufunc](m, q, 360.0 * node)
            return 4.0 * cos(4.0 * math.pi * node) * value * value

        return integrate(period(64), square, m, q)

    return slope


MATHIEU: Box = ((1.0, 4.0), (0.3, 4.0))


def _mathieu(kind: str, even: bool) -> None:
    name = "mathieu_a" if even else "mathieu_b"
    ufunc = f"mathieu_{kind}em"
    number: Elementwise = special(
        name,
        refused(name, "m", WHOLE),
        _mean_of_squares(ufunc),
        domain=MATHIEU,
        accuracy=1e-9,
        dtype_samples=("dd",),
    )
    _pair(
        ufunc,
        ("m", "q"),
        lambda f, slope, m, q, x: -(number(m, q) - 2.0 * q * cos(2.0 * DEGREE * x)) * f,
        (*MATHIEU, (0.0, 90.0)),
        1,
        unit=DEGREE,
    )
    for radial in ("1", "2"):
        _pair(
            f"mathieu_mod{kind}em{radial}",
            ("m", "q"),
            lambda f, slope, m, q, x: (number(m, q) - 2.0 * q * cosh(2.0 * x)) * f,
            (*MATHIEU, (0.2, 1.2)),
            1,
        )


_mathieu("c", even=True)
_mathieu("s", even=False)

# Spheroidal


def _spheroidal(kind: str, sign: float) -> Elementwise:
    """Enter prolate (sign 1) or oblate (sign -1) functions: ``((1 - x**2) f')' + (cv - sign c**2 x**2 - m**2 / (1 - x**2)) f = 0``.

    For oblate radial functions x is imaginary: there the equation has the signs of x**2 changed. SciPy's radial functions of the second
    kind are wrong where c * x is small: the second result is not the derivative of the first there.
    """
    number_name, angle = f"{kind}_cv", f"{kind}_ang1"

    def in_c(z: Value, m: Value, n: Value, c: Value) -> Value:
        def moment(power: int) -> Value:
            def integrand(x: Value, m: Value, n: Value, c: Value) -> Value:
                value = VALUES[angle](m, n, c, x)
                return value * value * (x * x if power else 1.0)

            return integrate(unit_interval(48), integrand, m, n, c)

        # SciPy's value for c < 0 is that for 0
        return where(less(c, 0.0), 0.0, sign * 2.0 * c * moment(2) / moment(0))

    number: Elementwise = special(
        number_name,
        refused(number_name, "m", WHOLE),
        refused(number_name, "n", WHOLE),
        in_c,
        domain=((1.0, 1.0), (2.0, 2.0), (0.5, 2.0)),
        slopes=(((1.0, 2.0, 0.0), (None, None, 0.0)), ((1.0, 2.0, -1.2), (None, None, 0.0))),
        accuracy=1e-8,
    )

    def second(turned: float) -> Callable[..., Value]:
        """Return the second derivative with a given characteristic value."""

        def equation(f: Value, slope: Value, m: Value, c: Value, cv: Value, x: Value) -> Value:
            # With y = turned * x**2: (1 - y) f'' = 2 turned x f' - turned (cv - sign c**2 y - m**2 / (1 - y)) f.
            square = turned * x * x
            rest = 1.0 - square
            factor = turned * (cv - sign * c * c * square - m * m / rest)
            return (2.0 * turned * x * slope - factor * f) / rest

        return equation

    for name, range_, turned in (
        ("ang1", (0.1, 0.8), 1.0),
        ("rad1", (2.0, 4.0), sign),
        ("rad2", (2.0, 4.0), sign),
    ):
        ufunc, equation = f"{kind}_{name}", second(turned)
        whole = ((1.0, 1.0), (2.0, 2.0))
        _pair(
            ufunc,
            ("m", "n", "c"),
            lambda f, slope, m, n, c, x, equation=equation: equation(f, slope, m, c, number(m, n, c), x),
            (*whole, (2.0, 3.0), range_),
            2,
        )
        _pair(
            f"{ufunc}_cv",
            ("m", "n", "c", "cv"),
            lambda f, slope, m, n, c, cv, x, equation=equation: equation(f, slope, m, c, cv, x),
            (*whole, (2.0, 2.0), (AT_TWO[kind],) * 2, range_),
            2,
        )
    return number


AT_TWO: Final = {"pro": 7.653149562003566, "obl": 4.222747333357613}
"""The characteristic values for m = 1, n = 2, c = 2."""

pro_cv = _spheroidal("pro", 1.0)
obl_cv = _spheroidal("obl", -1.0)

# Parabolic cylinders

_pair("pbdv", ("v",), lambda f, slope, v, x: (0.25 * x * x - v - 0.5) * f, ((0.3, 3.0), (0.3, 3.0)), 0)
_pair("pbvv", ("v",), lambda f, slope, v, x: (0.25 * x * x - v - 0.5) * f, ((0.3, 3.0), (0.3, 3.0)), 0)
_pair("pbwa", ("a",), lambda f, slope, a, x: (a - 0.25 * x * x) * f, ((0.3, 3.0), (0.3, 3.0)), 0)
