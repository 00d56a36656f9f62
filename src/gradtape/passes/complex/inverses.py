"""Inverse functions of complex numbers as formulas of real and imaginary parts.

W. Kahan, "Branch Cuts for Complex Elementary Functions", in The State of the Art in Numerical Analysis, Oxford 1987: products of
conjugate roots in place of differences, so that nothing cancels, and the sign of zero tells the side of a cut.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gradtape.ir.graph import Value
from gradtape.ops.core.elementwise.exp_log import log, log1p
from gradtape.ops.core.elementwise.hyperbolic import arcsinh
from gradtape.ops.core.elementwise.logic import equal, less
from gradtape.ops.core.elementwise.power import hypot
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.core.elementwise.signs import copysign, fabs
from gradtape.ops.core.elementwise.trig import arctan2
from gradtape.passes.complex.formulas import Parts, root


def _roots(x: Parts) -> tuple[Parts, Parts]:
    """Return the roots of 1 - x and of 1 + x."""
    a, b = x
    return root((1.0 - a, -b)), root((1.0 + a, b))


def _across(x: Parts, y: Parts) -> Value:
    """Return the imaginary part of conj(x) y."""
    return x[0] * y[1] - x[1] * y[0]


def arc_sine(x: Parts) -> Parts:
    minus, plus = _roots(x)
    along = minus[0] * plus[0] - minus[1] * plus[1]
    return arctan2(x[0], along), arcsinh(_across(minus, plus))


def arc_cosine(x: Parts) -> Parts:
    minus, plus = _roots(x)
    return 2.0 * arctan2(minus[0], plus[0]), arcsinh(_across(plus, minus))


def hyperbolic_arc_sine(x: Parts) -> Parts:
    real, imag = arc_sine((-x[1], x[0]))
    return imag, -real


def hyperbolic_arc_cosine(x: Parts) -> Parts:
    a, b = x
    minus, plus = root((a - 1.0, b)), root((a + 1.0, b))
    return arcsinh(minus[0] * plus[0] + minus[1] * plus[1]), 2.0 * arctan2(minus[1], plus[0])


def hyperbolic_arc_tangent(x: Parts) -> Parts:
    """Half the logarithm of (1 + x) / (1 - x), divided by one length at a time: their square may leave the range."""
    right, b = fabs(x[0]), x[1]
    near, far = hypot(1.0 - right, b), hypot(1.0 + right, b)
    pole = equal(near, 0.0)
    growth = where(less(near, 0.5), (log(far) - log(near)) * 0.5, log1p(4.0 * (right / near) / near) * 0.25)
    along = ((1.0 - right) / near) * ((1.0 + right) / far) - (b / near) * (b / far)
    angle = arctan2(2.0 * (b / near) / far, along) * 0.5
    return copysign(growth, x[0]), where(pole, b, angle)


def arc_tangent(x: Parts) -> Parts:
    real, imag = hyperbolic_arc_tangent((-x[1], x[0]))
    return imag, -real


INVERSES: Final[dict[str, Callable[[Parts], Parts]]] = {
    "arccos": arc_cosine,
    "arccosh": hyperbolic_arc_cosine,
    "arcsin": arc_sine,
    "arcsinh": hyperbolic_arc_sine,
    "arctan": arc_tangent,
    "arctanh": hyperbolic_arc_tangent,
}
"""By row, the formula."""
