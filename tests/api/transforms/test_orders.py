"""Gradients of gradients of functions of one number: the values of nested sweeps, in polynomial time."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as gt
from gradtape.errors import IntegerInputError, NonScalarOutputError
from tests.support.recording import Runs

Function = Callable[[Any], Any]


def chain(function: Function, order: int) -> Any:
    """Return the derivative by gradients of gradients."""
    for _ in range(order):
        function = gt.grad(function)
    return function


def nested(function: Function, order: int) -> Any:
    """Return the derivative by gradients of functions of the user, of which none is the gradient itself."""
    for _ in range(order):
        function = gt.grad(lambda x, inner=function: inner(x))
    return function


def formula(x: Any) -> Any:
    return np.exp(-(x**2)) * np.sin(3 * x) / (1 + x**4)


def rolled_loop(x: Any) -> Any:
    y = x
    for _ in range(30):
        y = np.sin(y) * x + 0.1
    return y


def loop_from_constant(x: Any) -> Any:
    y = 0.0 * x
    for k in range(3):
        y = np.sqrt(np.array([y, 1.0])[k % 2] + 0.5) * x
    return y


def newton(x: Any) -> Any:
    y = 1.0
    while abs(y * y - x) > 1e-13:
        y = 0.5 * (y + x / y)
    return y


def branch(x: Any) -> Any:
    return gt.cond(x > 0.2, lambda: np.log(x), lambda: 0.5)


def scanned_selection(x: Any) -> Any:
    total, _ = gt.scan(lambda s, a: (np.sqrt(np.maximum(s, 0.0)) + a * x, None), 0.0, np.arange(3.0))
    return total


@gt.custom_vjp
def own_rule(x: Any) -> Any:
    return np.sin(x)


own_rule.defvjp(lambda x: (np.sin(x), x), lambda x, c: (np.cos(x) * c,))


CASES: dict[str, Function] = {
    "formula": formula,
    "cube": lambda x: x**3,
    "half powers": lambda x: x**2.5 + (1 + x) ** 0.5,
    "power of itself": lambda x: (x * x) ** x,
    "logistic": lambda x: 1 / (1 + np.exp(-x)),
    "absolute": lambda x: np.abs(x) * x**2,
    "root of a square": lambda x: np.sqrt(x**2) * x,
    "length": lambda x: np.hypot(x, 1.0) + np.linalg.norm(np.array([x, 0.0])),
    "root behind a maximum": lambda x: np.sqrt(np.maximum(x, 0.0)),
    "power behind a maximum": lambda x: np.maximum(x, 0.0) ** 1.5,
    "masked logarithm": lambda x: np.where(x > 0, np.log(x), 0.0) * x,
    "logarithm of a mask": lambda x: np.where(x > 0, np.log(np.where(x > 0, x, 1.0)), 0.0),
    "root beside a constant": lambda x: np.sum(np.sqrt(np.array([x + 2.0, 0.0]))),
    "written": lambda x: np.sum(np.sqrt(np.concatenate([np.zeros(2), np.array([x * x + 1.0])]))),
    "padded": lambda x: np.sum(np.pad(np.array([x + 2.0]), 1) ** 0.5),
    "clipped": lambda x: np.arcsin(np.clip(x, -0.5, 0.5)),
    "steps": lambda x: np.floor(x) * np.sign(x) * x + np.sin(x),
    "ties": lambda x: np.max(np.array([x, x * x, 0.3])) ** 1.5,
    "determinant": lambda x: np.linalg.det(np.array([[x, 1.0], [2.0, np.sin(x)]])),
    "solution": lambda x: np.linalg.solve(np.array([[2.0 + x, 1.0], [0.5, 3.0]]), np.array([x, 1.0]))[0],
    "sum": lambda x: np.sum(np.sin(x * np.arange(5.0)) / (1 + x * x)),
    "loop": rolled_loop,
    "loop that selects": loop_from_constant,
    "branch": branch,
    "scan that selects": scanned_selection,
    "own rule": own_rule,
    "selected branch": lambda x: np.where(x > 0, np.sqrt(x) / (1 + x), np.exp(x)) * np.sin(x),
    "quotient of a selection": lambda x: np.exp(x) / np.where(x > 0, x, 1.0),
    "selection in a loop": lambda x: gt.fori_loop(0, 3, lambda k, s: np.where(s > 0.5, np.log(s), s) * x, x),
    "root of a selection in a loop": lambda x: gt.fori_loop(
        0, 3, lambda k, s: np.sqrt(np.where(s > 0.5, s, 0.25)) * x, x
    ),
    "one of two branches": lambda x: np.sqrt(gt.cond(x > 0.2, lambda: x, lambda: 0.0)),
    "logarithm of the odds": lambda x: np.log1p(x * x) * np.arctan(x) + np.sinc(x),
    "constant": lambda x: 2.0 * x + 1.0,
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("order", [3, 4])
def test_values_are_those_of_nested_sweeps(name: str, order: int) -> None:
    ours, theirs = chain(CASES[name], order), nested(CASES[name], order)
    for x in (0.3, 0.0, 1.0, -1.0, 0.5, -0.7):
        with np.errstate(all="ignore"):
            np.testing.assert_allclose(ours(x), theirs(x), rtol=1e-9, atol=1e-9, err_msg=str(x))


@pytest.mark.parametrize(
    "name",
    ["formula", "loop", "logistic", "determinant", "solution", "sum", "masked logarithm", "selected branch"],
)
def test_high_orders_take_polynomial_time(name: str) -> None:
    """Nested sweeps have four times as many nodes for each order."""
    functions = {order: chain(CASES[name], order) for order in (5, 10)}
    for order, function in functions.items():
        expected = gt.taylor(CASES[name], 0.4, 1.0, order)[order] * math.factorial(order)
        np.testing.assert_allclose(function(0.4), expected, rtol=1e-9)
    sizes = {order: len(f.site.specialisations()[0].graph.nodes) for order, f in functions.items()}
    assert sizes[10] < 5 * sizes[5]


def test_roots_by_newtons_method() -> None:
    derivative = chain(newton, 7)
    coefficient = math.prod(0.5 - k for k in range(7))
    np.testing.assert_allclose(derivative(2.0), coefficient * 2.0**-6.5, rtol=1e-9)


def test_value_and_gradient_of_a_gradient() -> None:
    value, slope = gt.value_and_grad(chain(formula, 4))(0.3)
    np.testing.assert_allclose(value, nested(formula, 4)(0.3), rtol=1e-12)
    np.testing.assert_allclose(slope, chain(formula, 5)(0.3), rtol=1e-12)


def test_gradients_in_a_function_of_the_user() -> None:
    inner = chain(np.sin, 3)
    outer = gt.grad(lambda x: inner(x) * x)
    np.testing.assert_allclose(outer(0.4), -np.cos(0.4) + 0.4 * np.sin(0.4), rtol=1e-12)
    np.testing.assert_allclose(gt.vmap(inner)(np.array([0.1, 0.2])), -np.cos([0.1, 0.2]), rtol=1e-12)


def test_types_stay() -> None:
    assert chain(np.sin, 3)(np.float32(0.5)).dtype == np.float32
    assert type(chain(np.sin, 3)(0.5)) is type(nested(np.sin, 3)(0.5))
    assert chain(np.sin, 3)(1) == pytest.approx(-np.cos(1.0))


def test_the_function_runs_once() -> None:
    for case in (np.sin, CASES["masked logarithm"]):
        runs = Runs()

        def counted(x: Any, case: Function = case, runs: Runs = runs) -> Any:
            runs.append(x)
            return case(x)

        chain(counted, 4)(0.5)
        assert len(runs) == 1


def test_errors_are_those_of_one_gradient() -> None:
    with pytest.raises(NonScalarOutputError, match=r"array of shape \(2,\)"):
        chain(lambda x: x * np.ones(2), 3)(0.5)
    with pytest.raises(NonScalarOutputError, match=r"array of shape \(3,\)"):
        chain(lambda x: np.sum(x**4), 3)(np.ones(3))
    with pytest.raises(NonScalarOutputError, match="tuple"):
        gt.grad(gt.grad(gt.value_and_grad(np.sin)))(0.5)
    with pytest.raises(IntegerInputError):
        chain(np.sin, 3)(np.arange(3))


def test_other_arguments_and_options_are_nested_as_before() -> None:
    assert gt.grad(gt.grad(gt.grad(lambda x, y: y * x**4)))(0.5, 2.0) == pytest.approx(24.0)


@pytest.mark.parametrize("transform", [gt.grad, gt.value_and_grad])
@pytest.mark.parametrize("make", [gt.vmap, gt.checkpoint, lambda f: gt.jit(gt.vmap(f))])
def test_gradients_of_transformed_functions_are_made(transform: Any, make: Any) -> None:
    """The bodies of other transforms are objects that take no weak references."""
    made = make(np.sin)
    transform(made)
    slope = transform(lambda x: np.sum(made(x)))(np.array([1.0, 2.0]))
    np.testing.assert_allclose(slope[1] if transform is gt.value_and_grad else slope, np.cos([1.0, 2.0]))
