"""The series of the solution of a differential equation: each coefficient follows from the right-hand side's one before."""

from __future__ import annotations

from collections.abc import Callable

from gradtape.ir.graph import Value, literal
from gradtape.ir.primitives import PRIMITIVES
from gradtape.kinds.operands import broadcast_to
from gradtape.ops.core.elementwise.cast import convert
from gradtape.transforms.taylor import control as control  # enters the rules of loops and branches
from gradtape.transforms.taylor.series import Coefficient, Expansion


def flow(slope: Value, t: Value, y: Value, order: int, stop: Callable[[Value], bool]) -> list[Value]:
    """Append the coefficients of the solution of ``y' = slope(t, y)``.

    Parameters
    ----------
    slope : Value
        The right-hand side, of the shape and dtype of `y`.
    t, y : Value
        Time and state, from which it is computed.
    order : int
        The highest order.
    stop : callable
        Predicate on values: those that count as constants.

    Returns
    -------
    list of Value
        Coefficients 0, ..., `order`.

    Notes
    -----
    A. Jorba, M. Zou, "A software package for the numerical integration of ODEs by means of high-order Taylor methods", Experimental
    Mathematics 14, 2005, section 2.
    """
    known: list[
        Coefficient
    ] = []  # grows: coefficient k of the right-hand side needs no other one than the first k of y
    series = Expansion({t: (literal(1, t.dtype),), y: known}, stop)
    for k in range(order):
        part = series.coefficient(slope, k)
        known.append(None if part is None else PRIMITIVES["divide"](part, literal(float(k + 1))))
    return [y, *[_fitted(part, y) for part in known]]


def _fitted(part: Coefficient, y: Value) -> Value:
    """Return a coefficient as an array of the shape and dtype of the state."""
    value = literal(0, y.dtype) if part is None else part if part.dtype == y.dtype else convert(part, y.dtype)
    return broadcast_to(value, y.shape)
