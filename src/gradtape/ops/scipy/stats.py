"""The normal distribution as `scipy.stats` has it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from gradtape.ir.graph import Value
from gradtape.kinds.arguments import as_array
from gradtape.kinds.registry import borrows
from gradtape.ops.core.elementwise.exponential import exp
from gradtape.ops.core.elementwise.inverse import log
from gradtape.ops.scipy.special import log_ndtr, ndtr, ndtri

_HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)


def _standard(x: Any, loc: Any, scale: Any) -> tuple[Value, Value]:
    spread = as_array(scale, "scale") * 1.0
    return (as_array(x, "x") - as_array(loc, "loc")) / spread, spread


@borrows("scipy.stats.norm.logpdf")
def logpdf(x: Any, loc: Any = 0, scale: Any = 1) -> Value:
    """Follow the method of `scipy.stats.norm`."""
    z, spread = _standard(x, loc, scale)
    return z * z * -0.5 - _HALF_LOG_TWO_PI - log(spread)


@borrows("scipy.stats.norm.pdf")
def pdf(x: Any, loc: Any = 0, scale: Any = 1) -> Value:
    """Follow the method of `scipy.stats.norm`."""
    z, spread = _standard(x, loc, scale)
    return exp(z * z * -0.5) / (spread * math.sqrt(2 * math.pi))


def _of_standard(name: str, function: Callable[[Value], Value]) -> None:
    @borrows(f"scipy.stats.norm.{name}")
    def method(x: Any, loc: Any = 0, scale: Any = 1) -> Value:
        return function(_standard(x, loc, scale)[0])


_of_standard("cdf", ndtr)
_of_standard("logcdf", log_ndtr)
_of_standard("sf", lambda z: ndtr(-z))
_of_standard("logsf", lambda z: log_ndtr(-z))


@borrows("scipy.stats.norm.ppf")
def ppf(q: Any, loc: Any = 0, scale: Any = 1) -> Value:
    """Follow the method of `scipy.stats.norm`."""
    return ndtri(as_array(q, "q")) * as_array(scale, "scale") + as_array(loc, "loc")
