"""Methods of continuous distributions, for all distributions: `scipy.stats.rv_continuous`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from gradtape.ir.graph import Value
from gradtape.kinds.arguments import as_array
from gradtape.kinds.registry import borrows
from gradtape.ops.core.elementwise.floats import isnan
from gradtape.ops.core.elementwise.inverse import log, log1p
from gradtape.ops.core.elementwise.logic import equal, greater, greater_equal, less, less_equal
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.scipy.stats import quadrature
from gradtape.ops.scipy.stats.implicit import numbers, of_whole_numbers, private, quantile_below
from gradtape.ops.scipy.stats.parameters import (
    Parameters,
    finish,
    is_infinite,
    is_number,
    parameters,
    standard,
)


def _density(self: Any, x: Value, parameters_of_call: Parameters, inside: Any, outside: float) -> Value:
    result = inside = as_array(inside)
    everywhere: Any = sys.modules["scipy.stats"].rv_continuous
    is_open = type(self)._support_mask is everywhere._open_support_mask
    beyond_low, beyond_high = (less_equal, greater_equal) if is_open else (less, greater)
    for bound, beyond in ((parameters_of_call.low, beyond_low), (parameters_of_call.high, beyond_high)):
        if is_open or not is_infinite(bound):
            result = where(beyond(x, bound), outside, result)
    if result is not inside:
        result = where(isnan(x), np.nan, result)
    return finish(result, parameters_of_call, x)


@borrows("scipy.stats.rv_continuous.pdf")
def pdf(self: Any, x: Any, *args: Any, **kwds: Any) -> Value:
    """Follow the method of `scipy.stats.rv_continuous`."""
    parameters_of_call = parameters(self, args, kwds)
    z = standard(x, parameters_of_call)
    inside = private(self, "_pdf", z, parameters_of_call.shapes)
    return _density(
        self,
        z,
        parameters_of_call,
        inside if is_number(parameters_of_call.scale, 1) else inside / parameters_of_call.scale,
        0.0,
    )


@borrows("scipy.stats.rv_continuous.logpdf")
def logpdf(self: Any, x: Any, *args: Any, **kwds: Any) -> Value:
    """Follow the method of `scipy.stats.rv_continuous`."""
    parameters_of_call = parameters(self, args, kwds)
    z = standard(x, parameters_of_call)
    inside = private(self, "_logpdf", z, parameters_of_call.shapes)
    return _density(
        self,
        z,
        parameters_of_call,
        inside if is_number(parameters_of_call.scale, 1) else inside - log(parameters_of_call.scale),
        -np.inf,
    )


def _of_probability(name: str, at_low: float, at_high: float) -> Callable[..., Value]:
    @borrows(f"scipy.stats.rv_continuous.{name}")
    def method(self: Any, x: Any, *args: Any, **kwds: Any) -> Value:
        parameters_of_call = parameters(self, args, kwds)
        z = standard(x, parameters_of_call)
        result = private(self, f"_{name}", z, parameters_of_call.shapes)
        result = where(less_equal(z, parameters_of_call.low), at_low, result)
        result = where(greater_equal(z, parameters_of_call.high), at_high, result)
        return finish(where(isnan(z), np.nan, result), parameters_of_call, z)

    return method


cdf = _of_probability("cdf", 0.0, 1.0)
_of_probability("logcdf", -np.inf, 0.0)
_of_probability("sf", 1.0, 0.0)
_of_probability("logsf", 0.0, -np.inf)


def _of_quantile(name: str, zero: str, one: str) -> None:
    @borrows(f"scipy.stats.rv_continuous.{name}")
    def method(self: Any, q: Any, *args: Any, **kwds: Any) -> Value:
        parameters_of_call = parameters(self, args, kwds)
        level = as_array(q, "q")
        inside = private(self, f"_{name}", level, parameters_of_call.shapes)
        result = where(greater(level, 0) & less(level, 1), inside, np.nan)
        result = where(equal(level, 0), getattr(parameters_of_call, zero), result)
        result = where(equal(level, 1), getattr(parameters_of_call, one), result)
        if not is_number(parameters_of_call.scale, 1):
            result = result * parameters_of_call.scale
        return finish(
            result if is_number(parameters_of_call.loc, 0) else result + parameters_of_call.loc,
            parameters_of_call,
            level,
        )


_of_quantile("ppf", "low", "high")
_of_quantile("isf", "high", "low")


def _logarithm(name: str, direct: str, other: str) -> None:
    @borrows(f"scipy.stats.rv_continuous.{name}")
    def method(self: Any, x: Any, *shapes: Any) -> Value:
        """SciPy compares x with the median, the 0.5 quantile; the value says the same."""
        z = as_array(x)
        near = private(self, direct, z, shapes)
        if type(self)._sf is sys.modules["scipy.stats"].rv_continuous._sf:
            return log(near)
        return where(less(near, 0.5), log(near), log1p(-private(self, other, z, shapes)))


_logarithm("_logcdf", "_cdf", "_sf")
_logarithm("_logsf", "_sf", "_cdf")


@borrows("scipy.stats.rv_continuous._entropy")
def entropy(self: Any, *shapes: Any) -> Value:
    """Follow the private method, an integral; that of a statistic of Kolmogorov and Smirnov has no derivatives but a density with kinks."""
    return (
        numbers(self, "vecentropy", *shapes) if of_whole_numbers(self) else quadrature.entropy(self, *shapes)
    )


@borrows("scipy.stats._distn_infrastructure.rv_generic._ppf")
def quantile(self: Any, q: Any, *shapes: Any) -> Value:
    """Follow the private method, which searches; quantiles of discrete distributions are constants."""
    if isinstance(self, sys.modules["scipy.stats"].rv_discrete):
        return numbers(self, "_ppf", q, *shapes)
    return quantile_below(self, as_array(q), shapes)
