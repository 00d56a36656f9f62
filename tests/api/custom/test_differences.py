"""Derivatives of callbacks by differences and by complex steps, against the derivatives of the same function in NumPy."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import gradtape as gt
from gradtape.errors import (
    ArgumentError,
    ConcretizationError,
    DtypeError,
    GradtapeWarning,
    NotDifferentiableError,
    ShapeError,
)

pytestmark = pytest.mark.filterwarnings("ignore:callback. derivatives of:gradtape.errors.GradtapeWarning")

POINT = np.array([0.5, 3.0, -2.0])
LIKE = {"a": np.zeros(3), "b": 0.0}


def simulated(x: Any, n: Any) -> Any:
    parts = [math.exp(x[0]) * x[1] ** 2, x[0] * n, math.sin(x[2]) * x[0]]
    return {"a": np.array(parts), "b": np.float64(x[0] * x[2])}


def written(x: Any, n: Any) -> Any:
    return {"a": np.stack([np.exp(x[0]) * x[1] ** 2, x[0] * n, np.sin(x[2]) * x[0]]), "b": x[0] * x[2]}


def by_differences(x: Any, n: Any) -> Any:
    return gt.callback(simulated, LIKE, x, n, derivative="differences")


def learned(x: Any, n: Any) -> Any:
    return gt.callback(simulated, None, x, n, derivative="differences")


def loss_of(model: Callable[..., Any]) -> Callable[..., Any]:
    def loss(x: Any, n: Any) -> Any:
        results = model(x, n)
        return np.sum(results["a"] ** 2) * results["b"]

    return loss


def same(actual: Any, expected: Any, rtol: float = 1e-8) -> None:
    np.testing.assert_allclose(actual, expected, rtol=rtol, atol=rtol * np.max(np.abs(expected)))


@pytest.mark.parametrize("model", [by_differences, learned])
def test_derivatives_in_all_ways(model: Callable[..., Any]) -> None:
    loss, expected = loss_of(model), loss_of(written)
    same(gt.grad(loss)(POINT, 2), gt.grad(expected)(POINT, 2))
    same(gt.grad(loss, argnums=1)(POINT, 2.0), gt.grad(expected, argnums=1)(POINT, 2.0))
    direction = np.array([1.0, -1.0, 0.5])
    same(
        gt.jvp(lambda x: loss(x, 2), (POINT,), (direction,))[1],
        gt.jvp(lambda x: expected(x, 2), (POINT,), (direction,))[1],
    )
    with gt.GradientTape() as tape:
        x = tape.watch(POINT)
        value = loss(x, 2)
    same(tape.gradient(value, x), gt.grad(expected)(POINT, 2))
    for jacobian in (gt.jacrev, gt.jacfwd):
        found, known = (jacobian(lambda x, f=f: f(x, 2)["a"])(POINT) for f in (model, written))
        same(found, known)


def test_the_second_derivative_is_a_difference_of_differences() -> None:
    same(gt.hessian(loss_of(by_differences))(POINT, 2), gt.hessian(loss_of(written))(POINT, 2), 1e-6)


def test_a_map_calls_the_function_for_each_element() -> None:
    points = np.stack([POINT, POINT + 1])
    found, known = (
        gt.vmap(gt.grad(lambda x, f=f: loss_of(f)(x, 2)))(points) for f in (by_differences, written)
    )
    same(found, known)


def test_the_value_is_computed_without_differences() -> None:
    calls: list[int] = []

    def counted(x: Any) -> Any:
        calls.append(1)
        return x * x

    assert gt.callback(counted, 0.0, 3.0, derivative="differences") == 9.0
    assert gt.jit(lambda x: gt.callback(counted, 0.0, x, derivative="differences"))(3.0) == 9.0
    assert len(calls) == 2


counted, factor = 0, 2.0


def scaled(x: Any) -> Any:
    global counted
    counted += 1
    return x * factor


def test_a_callback_reads_and_writes_what_is_outside_in_each_call() -> None:
    global factor, counted
    counted, factor = 0, 2.0
    jitted = gt.jit(lambda x: gt.callback(scaled, 0.0, x) + 1)
    mapped = gt.vmap(lambda x: gt.callback(scaled, 0.0, x))
    slope = gt.grad(lambda x: gt.callback(scaled, 0.0, x, derivative="differences"))
    for number, factor in enumerate((2.0, 5.0, 7.0), 1):
        assert jitted(1.0) == factor + 1
        assert counted == number
    assert mapped(np.ones(3)).tolist() == [7.0] * 3
    assert counted == 6
    for factor in (3.0, 4.0):
        same(slope(2.0), factor)
    with gt.GradientTape():
        assert gt.callback(scaled, 0.0, gt.constant(2.0)) == 8.0


def test_complex_steps_have_all_digits() -> None:
    def analytic(x: Any) -> Any:
        return np.array([np.exp(x[0]) * x[1], x[1] ** 3])

    found = gt.jacobian(lambda x: gt.callback(analytic, np.zeros(2), x, derivative="complex-step"))(POINT)
    expected = [[3 * math.exp(0.5), math.exp(0.5), 0], [0, 27, 0]]
    np.testing.assert_allclose(found, expected, rtol=1e-15)


@pytest.mark.parametrize("function", [lambda x: math.sin(x), lambda x: np.real(x)])
def test_complex_steps_need_a_function_of_complex_numbers(function: Callable[..., Any]) -> None:
    with pytest.raises(
        NotDifferentiableError, match=r"does not compute with complex numbers[\s\S]*differences"
    ):
        gt.grad(lambda x: gt.callback(function, 0.0, x, derivative="complex-step"))(0.3)


@pytest.mark.parametrize("pack", [np.asarray, scipy.sparse.csr_array, scipy.sparse.coo_array])
def test_columns_without_a_common_row_are_computed_together(pack: Callable[..., Any]) -> None:
    calls: list[int] = []

    def neighbours(x: Any) -> Any:
        calls.append(1)
        return x**2 * np.roll(x, 1)

    n = 60
    pattern = pack((np.eye(n) + np.roll(np.eye(n), -1, 1)).astype(bool))
    point = np.linspace(0.1, 1.0, n)

    def model(x: Any) -> Any:
        return gt.callback(neighbours, np.zeros(n), x, derivative="differences", sparsity=pattern)

    same(gt.jacobian(model)(point), gt.jacobian(lambda x: x**2 * np.roll(x, 1))(point))
    assert len(calls) <= 40  # two or three colours, and not sixty columns
    with pytest.raises(ShapeError, match=r"sparsity has the shape \(60, 60\)"):
        gt.jacobian(lambda x: model(x[:-1]))(np.append(point, 1.0)[:60])


@pytest.mark.parametrize("point, expected", [(1e-3, 1e3), (1e-12, 1e12), (250.0, 1 / 250)])
def test_steps_suit_the_size_of_the_point(point: float, expected: float) -> None:
    found = gt.grad(lambda x: gt.callback(np.log, None, x, derivative="differences"))(point)
    same(found, expected)


def test_steps_stay_where_the_function_is_finite() -> None:
    with np.errstate(invalid="ignore"):
        found = gt.grad(lambda x: gt.callback(lambda x: np.sqrt(1 - x), 0.0, x, derivative="differences"))(
            0.999
        )
    same(found, -0.5 / math.sqrt(0.001))


def test_a_zero_moves_by_one_part_of_one() -> None:
    same(gt.grad(lambda x: gt.callback(math.sin, 0.0, x, derivative="differences"))(0.0), 1.0)


def test_results_and_arguments_of_other_dtypes() -> None:
    def single(x: Any, k: Any) -> Any:
        return np.asarray(x, np.float32) ** 2 * k

    x = np.array([1.0, 2.0], np.float32)
    like = np.zeros(2, np.float32)
    found = gt.grad(lambda x, k: np.sum(gt.callback(single, like, x, k, derivative="differences")))(x, 3)
    assert found.dtype == np.float32
    same(found, [6.0, 12.0], 1e-3)


def test_an_empty_argument_has_an_empty_derivative() -> None:
    found = gt.grad(lambda x: gt.callback(lambda x: np.float64(np.sum(x)), 0.0, x, derivative="differences"))(
        np.zeros(0)
    )
    assert found.shape == (0,)


def test_a_noisy_function_is_said() -> None:
    def noisy(x: Any) -> Any:
        return np.float64(np.sin(x) + 1e-4 * np.sin(1e6 * x))

    with pytest.warns(GradtapeWarning, match="differences of noisy give no digit of its derivative"):
        gt.grad(lambda x: gt.callback(noisy, 0.0, x, derivative="differences"))(1.0)


def test_the_first_derivative_says_that_it_is_a_difference() -> None:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        gt.hessian(lambda x: gt.callback(math.sin, 0.0, x, derivative="differences"))(0.3)
    texts = [str(warning.message) for warning in said]
    assert texts and all("derivatives of sin are computed by differences" in text for text in texts)


def test_check_grads_says_that_it_compares_differences() -> None:
    with pytest.warns(GradtapeWarning, match="check_grads: derivatives of sin are differences themselves"):
        gt.check_grads(lambda x: gt.callback(math.sin, 0.0, x, derivative="differences"), (0.3,), order=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gt.check_grads(lambda x: gt.callback(np.sin, None, x, derivative="complex-step"), (0.3,), order=1)


def test_shapes_are_learned_where_numbers_are_known() -> None:
    assert gt.jit(lambda x: gt.callback(np.cumsum, None, x))(np.ones(3)).tolist() == [1.0, 2.0, 3.0]
    with pytest.raises(ConcretizationError, match=r"cannot be determined by calling it[\s\S]*result_like"):
        gt.vmap(lambda x: gt.callback(np.cumsum, None, x))(np.ones((2, 3)))


def around(pattern: Any) -> dict[str, Any]:
    """A pattern of another form than a matrix."""
    return {"derivative": "differences", "sparsity": pattern}


@pytest.mark.parametrize(
    "keywords, error, message",
    [
        ({"derivative": "difference"}, ArgumentError, "unknown derivative 'difference'"),
        ({"sparsity": np.eye(1)}, ArgumentError, "sparsity needs a derivative"),
        (around([np.eye(1)]), ArgumentError, r"sparsity is an array of shape \(1, 1, 1\)[\s\S]*one matrix"),
        (around([scipy.sparse.eye_array(1)]), ArgumentError, "sparsity is a list of length 1"),
        (around([[1], [1, 0]]), ArgumentError, "sparsity is a list of length 2"),
        (around(np.ones(1)), ArgumentError, r"sparsity is an array of shape \(1,\)"),
        (around("dense"), ArgumentError, "sparsity is a str"),
        (around({"a": 1}), ArgumentError, "sparsity is a dict"),
    ],
)
def test_mistakes(keywords: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        gt.callback(np.sin, 0.0, 1.0, **keywords)


def test_a_pattern_in_a_container_of_captured_arrays() -> None:
    row = np.array([1.0, 0.0])

    @gt.jit
    def slopes(x: Any) -> Any:
        return gt.jacobian(
            lambda x: gt.callback(np.square, x, x, derivative="differences", sparsity=[row, row[::-1]])
        )(x)

    with warnings.catch_warnings(action="ignore"):
        np.testing.assert_allclose(slopes(np.array([1.0, 2.0])), np.diag([2.0, 4.0]), rtol=1e-9)


def test_complex_arguments_are_refused() -> None:
    with pytest.raises(DtypeError, match="the real and the imaginary part"):
        gt.grad(lambda x: np.real(gt.callback(np.sin, 0j, x * 1j, derivative="differences")))(1.0)
