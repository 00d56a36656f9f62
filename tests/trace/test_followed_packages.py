"""Functions of SciPy and of `numpy.polynomial` that are written in Python are traced as user code is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.interpolate
import scipy.signal
import scipy.special
import scipy.stats

import gradtape as gt
from tests.support.differences import gradient_by_differences

X = np.linspace(0.3, 1.4, 12)

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "zscore": lambda x: (scipy.stats.zscore(x) ** 3).sum(),
    "skew": lambda x: scipy.stats.skew(x**2),
    "gmean": lambda x: scipy.stats.gmean(x),
    "fftconvolve": lambda x: (scipy.signal.fftconvolve(x, x[::-1]) ** 2).sum(),
    "multigammaln": lambda x: scipy.special.multigammaln(x[0] + 5, 2),
    "butter, which converts by float(x)": lambda x: sum(c.sum() for c in scipy.signal.butter(3, 0.1 + x[0])),
    "chirp": lambda x: (scipy.signal.chirp(np.linspace(0, 1, 5), x[0], 1.0, 3 * x[1]) ** 2).sum(),
    "polyval": lambda x: np.polynomial.polynomial.polyval(0.3, x),
    "Polynomial": lambda x: np.polynomial.Polynomial(x)(0.3) ** 2,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_written_in_python_are_followed(name: str) -> None:
    function = FUNCTIONS[name]
    expected = gradient_by_differences(function, X)
    np.testing.assert_allclose(gt.grad(function)(X), expected, rtol=1e-6, atol=1e-7)
    with gt.GradientTape() as tape:
        x = tape.watch(X)
        y = function(x)
    np.testing.assert_allclose(y, function(X), atol=1e-12)
    np.testing.assert_allclose(tape.gradient(y, x), expected, rtol=1e-6, atol=1e-7)


def test_arrays_that_a_package_allocates_for_other_numbers_stay_ndarrays() -> None:
    """Compiled code of SciPy takes ndarrays only: a spline of constants is made by it."""
    knots = np.arange(12.0)

    def at(x: Any) -> Any:
        spline = scipy.interpolate.CubicSpline(knots, knots**2)
        assert type(spline.c) is np.ndarray
        return (x * spline(3.0)).sum()

    np.testing.assert_allclose(gt.grad(at)(X), np.full(12, 9.0))


def test_what_the_array_api_asks_of_arrays() -> None:
    x = gt.constant(np.ones((3, 2))).T
    assert x.device == "cpu" and x.to_device("cpu") is x
    assert x.__array_namespace__() is gt.array_api
    assert x.flags.f_contiguous and x.strides == (8, 16)
    with pytest.raises(gt.errors.ArgumentError, match="cuda"):
        x.to_device("cuda")


def test_a_program_that_misses_a_guard_of_its_own_trace_gives_no_error() -> None:
    """The call runs as recorded instead."""

    def sections(a: Any) -> Any:
        return scipy.signal.tf2sos(a, np.array([1.0, 0.3, 0.2])).sum()

    a = np.array([1.0, 0.5, 0.25])
    value, slope = gt.value_and_grad(sections)(a)
    np.testing.assert_allclose(value, sections(a))
    np.testing.assert_allclose(slope, gradient_by_differences(sections, a), atol=1e-7)
