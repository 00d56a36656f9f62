"""Integrals of SciPy's have derivatives by Leibniz' rule: in limits and parameters, on tapes and in compiled functions, of any order."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.integrate as si

import gradtape as gt
from gradtape.errors import DtypeError, ShapeError, UnsupportedFunctionError
from gradtape.kinds.routines.host import FUNCTIONS

CASES: dict[str, tuple[Callable[[Any], Any], float]] = {
    "an argument": (lambda p: si.quad(lambda x, p: np.exp(-p * x**2), 0, 2, args=(p,))[0], 0.7),
    "a closure and a limit": (lambda p: si.quad(lambda x: np.exp(-p * x**2), p**2, p)[0], 0.7),
    "infinite limits": (
        lambda p: si.quad(lambda x: np.exp(-p * x**2) * np.cos(x), -np.inf, np.inf)[0],
        0.7,
    ),
    "math": (lambda p: si.quad(lambda x: math.exp(-p * x**2), 0, 1)[0], 0.7),
    "a branch": (lambda p: si.quad(lambda x: p * x if x < 0.5 else p**2, 0, 1, points=[0.5])[0], 0.7),
    "a kink": (lambda p: si.quad(lambda x: np.abs(x - 0.3) ** p, 0, 1, points=[0.3])[0], 0.7),
    "a weight with traced limits": (
        lambda p: si.quad(lambda x: np.exp(-p * x), 0, 2 * p, weight="cos", wvar=3.0)[0],
        0.7,
    ),
    "a weight of powers": (
        lambda p: si.quad(lambda x: np.exp(-p * x), 0, 2, weight="alg", wvar=(-0.5, 0.2))[0],
        0.7,
    ),
    "a weight of powers with traced limits": (
        lambda p: si.quad(lambda x: np.exp(-p * x), 0.1 * p, 2 * p, weight="alg-log", wvar=(-0.5, 0.2))[0],
        0.7,
    ),
    "a traced frequency": (
        lambda p: si.quad(lambda x: np.exp(-p * x), -0.1, 2 * p, weight="sin", wvar=-3 * p)[0],
        0.7,
    ),
    "a traced frequency without end": (
        lambda p: si.quad(lambda x: np.exp(-x * p), 0, np.inf, weight="cos", wvar=p)[0],
        0.7,
    ),
    "a traced pole": (lambda p: si.quad(lambda x: np.exp(-p * x), 0, 2, weight="cauchy", wvar=p)[0], 0.7),
    "jumps at traced points": (
        lambda p: si.quad(lambda x: x if x < p else (p * x + 3 if x < 2 * p else 7), 0, 2, points=[p, 2 * p])[
            0
        ],
        0.7,
    ),
    "complex numbers": (
        lambda p: np.abs(si.quad(lambda x: np.exp(1j * p * x) * x**p, 0, p, complex_func=True)[0]),
        0.7,
    ),
    "quad_vec": (
        lambda p: np.sum(si.quad_vec(lambda x: np.array([np.exp(-p * x), x**p]), 0, p)[0] ** 2),
        0.7,
    ),
    "dblquad": (
        lambda p: si.dblquad(lambda y, x: np.exp(-p * x * y), 0, p, lambda x: 0, lambda x: x * p)[0],
        0.7,
    ),
    "nquad": (
        lambda p: si.nquad(lambda x, y, q: np.exp(-p * x * y * q), [lambda y, q: (0, y), [0, p]], args=(p,))[
            0
        ],
        0.7,
    ),
    "tanhsinh": (lambda p: si.tanhsinh(lambda x: np.exp(-p * x), 0, p).integral, 0.7),
    "nsum": (lambda p: si.nsum(lambda k: 1 / k**p, 1, np.inf).sum, 2.7),
}


@pytest.mark.parametrize("name", CASES)
def test_values_and_derivatives(name: str) -> None:
    function, p = CASES[name]
    h = 1e-4
    low, value, high = (function(p + step) for step in (-h, 0, h))
    slope, curvature = (high - low) / (2 * h), (high - 2 * value + low) / h**2
    found, gradient = gt.value_and_grad(function)(p)
    np.testing.assert_allclose(found, value, rtol=1e-12)
    np.testing.assert_allclose(gradient, slope, rtol=1e-5)
    np.testing.assert_allclose(gt.grad(gt.grad(function))(p), curvature, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(gt.jvp(function, (p,), (1.0,))[1], gradient, rtol=1e-10)
    with gt.GradientTape() as tape:
        watched = tape.watch(np.array(p))
        result = function(watched)
    np.testing.assert_allclose(result.numpy(), value, rtol=1e-12)
    np.testing.assert_allclose(tape.gradient(result, watched), gradient, rtol=1e-12)
    np.testing.assert_allclose(gt.vmap(function)(np.array([p, p + h])), [value, high], rtol=1e-12)


def test_arrays_that_the_integrand_reads() -> None:
    def moment(weights: Any) -> Any:
        return si.quad(lambda x: np.sum(weights * x ** np.arange(3)) ** 2, 0, 1)[0]

    gt.check_grads(moment, (np.array([1.0, -2.0, 0.5]),), order=2)
    value, gradient = gt.value_and_grad(lambda w: si.quad(lambda x: np.sum(w * x), 0, 1)[0])(np.ones(0))
    assert value == 0
    assert gradient.shape == (0,)


def test_tanhsinh_of_arrays() -> None:
    def areas(rate: Any, end: Any) -> Any:
        return si.tanhsinh(lambda x, r: np.exp(-r * x), 0, end, args=(rate,)).integral

    rate, end = np.array([0.5, 1.0, 2.0]), np.array([[1.0], [2.0]])
    np.testing.assert_allclose(gt.jit(areas)(rate, end), areas(rate, end), rtol=1e-13)
    slopes = gt.grad(lambda r, e: np.sum(areas(r, e)), argnums=1)(rate, end)
    np.testing.assert_allclose(slopes, np.exp(-rate * end).sum(1, keepdims=True), rtol=1e-12)


def test_variables() -> None:
    rate = gt.Variable(2.0)
    with gt.GradientTape() as tape:
        value = si.quad(lambda x: rate * rate * x, 0, 1)[0]
    np.testing.assert_allclose(tape.gradient(value, rate), 2.0)


def test_an_infinite_limit_and_a_nan() -> None:
    value, slope = gt.value_and_grad(lambda b: si.quad(lambda x: np.exp(-x), 0, b)[0])(np.inf)
    np.testing.assert_allclose(value, 1.0)
    assert slope == 0
    with pytest.warns(si.IntegrationWarning):
        nan = gt.jit(lambda p: si.quad(lambda x: p * x, 0, 1)[0])(np.nan)
    assert np.isnan(nan)


@pytest.mark.filterwarnings("ignore::scipy.integrate.IntegrationWarning")
@pytest.mark.parametrize(
    "area",
    [
        lambda end, p: si.quad(lambda x: p * x, 0, end)[0],
        lambda end, p: si.quad(lambda x: 1.0, end, np.inf)[0] * p,
        lambda end, p: si.quad(lambda x: p * x, 0, end, weight="cos", wvar=2.0)[0],
        lambda end, p: si.quad(lambda x: p * x, 0, 1.0, weight="cos", wvar=end)[0],
        lambda end, p: si.dblquad(lambda y, x: p * x * y, 0, 1, 0, end)[0],
        lambda end, p: si.tanhsinh(lambda x: p * x, 0, end).integral,
    ],
)
def test_a_limit_that_is_nan(area: Any) -> None:
    """QUADPACK returns 0 for it."""
    assert np.isnan(gt.jit(area)(np.nan, 1.0))
    assert np.isnan(gt.grad(area, argnums=(0, 1))(np.nan, 1.0)).all()
    assert np.isnan(gt.jvp(area, (np.nan, 1.0), (1.0, 0.0))[1])


def test_a_tape_in_a_loop_finds_what_it_has_compiled() -> None:
    def step(p: float) -> Any:
        with gt.GradientTape() as tape:
            watched = tape.watch(np.array(p))
            value = si.quad(lambda x: np.sin(watched * x), 0, watched)[0]
        return tape.gradient(value, watched).numpy()

    step(0.3)
    before = len(FUNCTIONS)
    step(0.4)
    assert len(FUNCTIONS) == before


@pytest.mark.parametrize(
    ("function", "error", "match"),
    [
        (
            lambda p: si.quad(lambda x: x, 0, p, weight="alg", wvar=(p, 1))[0],
            UnsupportedFunctionError,
            "traced wvar",
        ),
        (lambda p: si.quad(lambda x: p * x, 0, 1, full_output=1)[0], UnsupportedFunctionError, "full_output"),
        (lambda p: si.quad(lambda x: np.array([p, x]), 0, 1)[0], ShapeError, r"shape \(2,\)"),
        (lambda p: si.quad(lambda x: 1j * p * x, 0, 1)[0], DtypeError, "complex"),
        (lambda p: si.nsum(lambda k: p / k**2, p, np.inf).sum, UnsupportedFunctionError, "traced limits"),
    ],
)
def test_what_is_refused(function: Callable[[Any], Any], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        gt.grad(function)(2.0)


def test_errors_and_warnings_are_those_of_the_user() -> None:
    with pytest.raises(TypeError, match="positional argument"):
        gt.jit(lambda p: si.quad(lambda x, y: p * x, 0, 1)[0])(2.0)
    with pytest.warns(si.IntegrationWarning):
        gt.jit(lambda p: si.quad(lambda x: p / x, 0, 1)[0])(2.0)


def test_limits_in_single_precision() -> None:
    """The integrand gets points in double precision, at the limits too."""

    def volume(c: Any) -> Any:
        return si.tplquad(lambda z, y, x: c * x * y + z**2, 0, c, 0, lambda x: x, 0, lambda x, y: x * y * c)[
            0
        ]

    value, slope = gt.value_and_grad(volume)(np.float32(0.9))
    expected, expected_slope = gt.value_and_grad(volume)(0.9)
    np.testing.assert_allclose([value, slope], [expected, expected_slope], rtol=1e-6)


def test_integrals_that_do_not_converge_say_so() -> None:
    def of_power(c: Any, **options: Any) -> Any:
        return si.tanhsinh(lambda x, c: x ** (-1 - c), 1, np.inf, args=(c,), **options)

    for c, options in (
        (2.0, {}),
        (0.02, {}),
        (0.02, {"rtol": 1e-3}),
        (0.02, {"atol": 1.0}),
        (0.02, {"maxlevel": 2}),
    ):
        expected = of_power(c, **options)
        success, status = gt.jit(lambda c, o=options: (of_power(c, **o).success, of_power(c, **o).status))(c)
        assert (success, status) == (expected.success, expected.status)
