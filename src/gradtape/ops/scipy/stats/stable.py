"""Stable distributions, by their characteristic function: `scipy.stats.levy_stable`.

The value is SciPy's; it is NaN where the quadrature does not find it again, so that derivatives would not be right.

References
----------
J. P. Nolan, "Univariate stable distributions", 2020.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from gradtape.ir.graph import Value
from gradtape.kinds.arguments import as_array
from gradtape.kinds.registry import borrows
from gradtape.ops.core.elementwise.exponential import cos, exp, sin, tan
from gradtape.ops.core.elementwise.inverse import log
from gradtape.ops.core.elementwise.logic import equal
from gradtape.ops.core.elementwise.power import power
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.scipy.stats import continuous
from gradtape.ops.scipy.stats.implicit import numbers, with_derivatives
from gradtape.ops.scipy.stats.quadrature import integral, rank_of

METHODS: Final = {"pdf": continuous.pdf, "cdf": continuous.cdf}


def _stable_phase(self: Any, t: Value, x: Value, alpha: Value, beta: Value) -> tuple[Value, Value]:
    """Return the exponent of the absolute value of ``exp(-i t x)`` times the characteristic function at t, and minus its angle."""
    single = equal(alpha, 1.0)
    skew = beta * tan(0.5 * math.pi * where(single, 1.5, alpha))
    power_of_t = power(t, alpha)
    shift = t - power_of_t if self.parameterization == "S0" else -power_of_t
    return -power_of_t, t * x + where(single, 2.0 / math.pi * beta * t * log(t), skew * shift)


def _stable(name: str) -> None:
    @borrows(f"scipy.stats._levy_stable.levy_stable_gen._{name}")
    def method(self: Any, x: Any, alpha: Any, beta: Any) -> Value:
        point, first, second = map(as_array, (x, alpha, beta))

        def integrand(t: Value) -> Value:
            size, angle = _stable_phase(self, t, point, first, second)
            return exp(size) * cos(angle) if name == "pdf" else exp(size) * sin(angle) / t

        total = integral(integrand, 0.0, np.inf, rank_of(point, first, second)) / math.pi
        transform = total if name == "pdf" else 0.5 + total
        return with_derivatives(numbers(self, f"_{name}", point, first, second), transform)

    @borrows(f"scipy.stats._levy_stable.levy_stable_gen.{name}")
    def public(self: Any, x: Any, *args: Any, **kwds: Any) -> Value:
        """Follow the method: for alpha = 1 the scale moves the location."""
        (alpha, beta), loc, scale = self._parse_args(*args, **kwds)
        alpha, beta, loc, scale = map(as_array, (alpha, beta, loc, scale))
        if self.parameterization == "S1":
            loc = loc + where(equal(alpha, 1.0), 2.0 / math.pi * beta * scale * log(scale), 0.0)
        return as_array(METHODS[name](self, x, alpha, beta, loc, scale))


_stable("pdf")
_stable("cdf")
