"""Logarithms of densities that SciPy takes of the density: written out they cost fewer functions, and do not underflow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from gradtape.ir.graph import Value
from gradtape.kinds.arguments import as_array
from gradtape.ops.core.elementwise.exponential import exp
from gradtape.ops.core.elementwise.inverse import arcsinh, log, log1p
from gradtape.ops.core.elementwise.logic import equal, greater, less
from gradtape.ops.core.elementwise.power import power
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.core.elementwise.signs import absolute
from gradtape.ops.scipy.stats.densities import Rule, private_rule, special
from gradtape.ops.scipy.stats.implicit import private

LOG_2: Final = math.log(2.0)
LOG_PI: Final = math.log(math.pi)
LOG_ROOT: Final = 0.5 * math.log(2 * math.pi)


class _Formula(NamedTuple):
    """The logarithm of a density.

    Attributes
    ----------
    rule : callable
        Of the point and the shape parameters.
    zeros : sequence of float
        Where the density is zero, but the formula the difference of infinities.
    """

    rule: Rule
    zeros: Sequence[float]

    def __call__(self, x: Value, shapes: Sequence[Any]) -> Value:
        hits = [equal(x, zero) for zero in self.zeros]
        for hit in hits:
            x = where(hit, 0.5, x)
        result = as_array(self.rule(x, *map(as_array, shapes)))
        for hit in hits:
            result = where(hit, -np.inf, result)
        return result


_FORMULAS: Final[dict[str, _Formula]] = {}
"""Formulas by the names of classes."""


def _logarithm(name: str, rule: Rule, zeros: Sequence[float] = ()) -> None:
    _FORMULAS[f"{name}_gen"] = _Formula(rule, zeros)


@private_rule("cauchy_gen._logpdf", "lognorm_gen._logpdf", "rv_continuous._logpdf")
def log_density(self: Any, x: Any, *shapes: Any) -> Value:
    """Follow the private method, which most distributions inherit: a formula of theirs, or the logarithm of the density."""
    point, kind = as_array(x), type(self)
    formula = _FORMULAS.get(kind.__name__) if kind.__module__ == "scipy.stats._continuous_distns" else None
    return log(private(self, "_pdf", point, shapes)) if formula is None else formula(point, shapes)


def _log_of_one_and_square(x: Value) -> Value:
    """Return ``log(1 + x * x)``, by one logarithm, where the square overflows too."""
    far = greater(absolute(x), 2.0**400)
    near = where(far, x * 2.0**-256, x)
    square = near * near
    return where(far, 512 * LOG_2, 0.0) + log1p(where(far, square - 1.0, square))


def _levy(x: Value) -> Value:
    return -LOG_ROOT - 1.5 * log(x) - 0.5 / x


def _loglaplace(x: Value, c: Value) -> Value:
    return log(0.5 * c) + special("xlogy", where(less(x, 1.0), c, -c) - 1.0, x)


def _johnsonsu(x: Value, a: Value, b: Value) -> Value:
    normal = a + b * arcsinh(x)
    return log(b) - 0.5 * _log_of_one_and_square(x) - 0.5 * normal * normal - LOG_ROOT


def _johnsonsb(x: Value, a: Value, b: Value) -> Value:
    first, second = log(x), log1p(-x)
    normal = a + b * (first - second)
    return log(b) - first - second - 0.5 * normal * normal - LOG_ROOT


def _invweibull(x: Value, c: Value) -> Value:
    logarithm = log(x)
    return log(c) - (c + 1.0) * logarithm - exp(-c * logarithm)


def _lognorm(x: Value, s: Value) -> Value:
    logarithm = log(x)
    return -0.5 * (logarithm / s) * (logarithm / s) - log(s) - logarithm - LOG_ROOT


def _rice(x: Value, b: Value) -> Value:
    away = x - b
    return log(x) - 0.5 * away * away + log(special("i0e", x * b))


def _skewcauchy(x: Value, a: Value) -> Value:
    side = where(less(x, 0.0), 1.0 - a, 1.0 + a)
    return -LOG_PI - _log_of_one_and_square(x / side)


_logarithm("cauchy", lambda x: -LOG_PI - _log_of_one_and_square(x))
_logarithm("skewcauchy", _skewcauchy)
_logarithm("laplace", lambda x: -LOG_2 - absolute(x))
_logarithm("loglaplace", _loglaplace)
_logarithm("pareto", lambda x, b: log(b) - (b + 1.0) * log(x))
_logarithm("lognorm", _lognorm, (0.0,))
_logarithm("levy", _levy, (0.0,))
_logarithm("levy_l", lambda x: _levy(absolute(x)), (0.0,))
_logarithm("moyal", lambda x: -LOG_ROOT - 0.5 * (x + exp(-x)))
_logarithm("invweibull", _invweibull, (0.0,))
_logarithm("johnsonsu", _johnsonsu)
_logarithm("johnsonsb", _johnsonsb, (0.0, 1.0))
_logarithm("rice", _rice)
_logarithm("bradford", lambda x, c: log(c) - log1p(c * x) - log(log1p(c)))
_logarithm("kappa3", lambda x, a: log(a) - (1.0 / a + 1.0) * log(a + power(x, a)))
