"""Derivatives of Bessel functions in their order, by Schlaefli's integrals and by power series.

They are accurate to about 1e-10 of the function's scale, or NaN: for ``x + abs(v)`` above 300, and for modified functions of the first
kind of an order so large that they vanish beside ``exp(x)``.

References
----------
DLMF 10.2.2, 10.9.6, 10.9.7, 10.25.2, 10.32.4, 10.32.9.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from gradtape.errors import NotDifferentiableError
from gradtape.ir.builder import here
from gradtape.ir.graph import Value
from gradtape.ir.op import NDArray
from gradtape.ops.core.elementwise.cast import stop_gradient
from gradtape.ops.core.elementwise.exponential import cos, cosh, exp, sin, sinh
from gradtape.ops.core.elementwise.inverse import arccosh, arcsinh, log
from gradtape.ops.core.elementwise.logic import equal, greater, greater_equal, less
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.core.elementwise.signs import fabs
from gradtape.ops.scipy.special.gamma import gammaln, psi
from gradtape.ops.scipy.special.quadrature import integrate, unit_interval

ANGLES: Final = 200
"""Nodes on half a turn: the phase may run through 300 radians."""

TERMS: Final = 200
"""Terms of the power series."""

FAR: Final = 300.0


def refuse_complex_order(x: Value, name: str) -> None:
    """Raise an error for the derivative in the order where the argument is complex."""
    if x.dtype.kind == "c":
        raise NotDifferentiableError(
            f"scipy.special.{name} of complex numbers has no derivative in its order here",
            where=here.site,
            why="the formulas are those for positive arguments",
            remedy="hold the order fixed: gt.stop_gradient(v)",
        )


def _terms() -> tuple[NDArray, NDArray]:
    return np.arange(float(TERMS)), np.ones(TERMS)


def _series(v: Value, x: Value, sign: float, shift: Value | float) -> Value:
    """Return ``sum(sign**k (x/2)**(2k+v) / (k! gamma(k+v+1)) (log(x/2) - psi(k+v+1))) exp(-shift)`` over k."""
    level = log(0.5 * x)

    def term(k: Value, v: Value, level: Value, shift: Value) -> Value:
        size = exp((2.0 * k + v) * level - gammaln(k + 1.0) - gammaln(k + v + 1.0) - shift)
        return size * (level - psi(k + v + 1.0))

    alternating = np.where(np.arange(TERMS) % 2, sign, 1.0)
    return integrate((_terms()[0], alternating), term, v, level, shift + 0.0 * v)


def _reach(v: Value, x: Value) -> Value:
    """Return where ``exp(abs(v) t - x sinh(t))`` has fallen below 1e-20."""
    size = fabs(v)
    first = arcsinh((46.0 + 10.0 * size) / x)
    return stop_gradient(arcsinh((46.0 + size * first) / x))


def _tails(v: Value, x: Value) -> tuple[Value, Value]:
    """Return the integrals of ``exp(-x sinh t - v t)`` and of t times that over t > 0."""
    reach = _reach(v, x)

    def integrand(node: Value, v: Value, x: Value, reach: Value) -> Value:
        t = node * reach
        return exp(-x * sinh(t) - v * t)

    plain = reach * integrate(unit_interval(128), integrand, v, x, reach)
    weighted = reach * integrate(
        unit_interval(128), lambda node, v, x, reach: node * reach * integrand(node, v, x, reach), v, x, reach
    )
    return plain, weighted


def jv_in_order(v: Value, x: Value) -> Value:
    """Return the derivative of J in its order, for x > 0."""
    refuse_complex_order(x, "jv")
    early = less(x * x, 32.0 * (v + 1.0)) & greater_equal(v, 0.0)
    zero = equal(x, 0.0) & greater(v, 0.0)
    series = _series(where(early, v, 1.0), where(early & ~zero, x, 1.0), -1.0, 0.0)
    series = where(zero, 0.0, series)
    v, x = where(early, 1.0, v), where(early, 1.0, x)

    def around(node: Value, v: Value, x: Value) -> Value:
        angle = math.pi * node
        return angle * sin(v * angle - x * sin(angle))

    plain, weighted = _tails(v, x)
    turn = math.pi * v
    whole = (
        -integrate(unit_interval(ANGLES), around, v, x) - cos(turn) * plain + sin(turn) / math.pi * weighted
    )
    return where(early, series, where(less(x + fabs(v), FAR), whole, math.nan))


def yv_in_order(v: Value, x: Value) -> Value:
    """Return the derivative of Y in its order, for x > 0."""
    refuse_complex_order(x, "yv")

    def around(node: Value, v: Value, x: Value) -> Value:
        angle = math.pi * node
        return angle * cos(x * sin(angle) - v * angle)

    turn = math.pi * v
    plain, weighted = _tails(v, x)
    growing = _tails(-v, x)[1]
    beyond = growing / math.pi - cos(turn) / math.pi * weighted - sin(turn) * plain
    whole = -integrate(unit_interval(ANGLES), around, v, x) - beyond
    return where(less(x + fabs(v), FAR), whole, math.nan)


def ive_in_order(v: Value, x: Value) -> Value:
    """Return the derivative of ``exp(-x) I`` in its order, for x > 0 and orders that are not negative."""
    refuse_complex_order(x, "iv")
    early = less(0.25 * x * x, 100.0 * (100.0 + v))
    zero = equal(x, 0.0) & greater(v, 0.0)
    inner = where(early & ~zero, x, 1.0)
    series = where(zero, 0.0, _series(where(early, v, 1.0), inner, 1.0, inner))
    lossy = greater(v * v, 16.0 * x) | greater(x + fabs(v), 2000.0)
    v, x = where(early | lossy, 1.0, v), where(early | lossy, 1.0, x)

    def around(node: Value, v: Value, x: Value) -> Value:
        # The integrand is a peak of width 1 / sqrt(x) at 0.
        angle = math.pi * node * node
        half = sin(0.5 * angle)
        return 2.0 * math.pi * node * angle * exp(-2.0 * x * half * half) * sin(v * angle)

    reach = stop_gradient(arccosh(1.0 + (46.0 + fabs(v)) / x))

    def beyond(node: Value, v: Value, x: Value, reach: Value) -> Value:
        t = node * reach
        turn = math.pi * v
        return (cos(turn) - t * sin(turn) / math.pi) * exp(-x * (cosh(t) + 1.0) - v * t)

    around_ = integrate(unit_interval(ANGLES), around, v, x) / math.pi
    whole = -around_ - reach * integrate(unit_interval(128), beyond, v, x, reach)
    return where(early, series, where(lossy, math.nan, whole))


def kve_in_order(v: Value, x: Value) -> Value:
    """Return the derivative of ``exp(x) K`` in its order, for x > 0."""
    refuse_complex_order(x, "kv")
    size = fabs(v)
    first = arccosh(1.0 + (46.0 + 10.0 * size) / x)
    reach = stop_gradient(arccosh(1.0 + (46.0 + size * first) / x))

    def integrand(node: Value, v: Value, x: Value, reach: Value) -> Value:
        t = node * reach
        half = sinh(0.5 * t)
        decay = -2.0 * x * half * half
        return 0.5 * t * (exp(decay + v * t) - exp(decay - v * t))

    return reach * integrate(unit_interval(128), integrand, v, x, reach)
