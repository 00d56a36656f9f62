"""Squares of values with a kink have the right second derivative at the kink, however the square is written and whatever runs the code."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as gt

Function = Callable[[Any], Any]
WEIGHTS = np.array([1.0, 2.0, 0.5])


def _root_of_a_product(x: Any) -> Any:
    return np.sqrt(x @ x) ** 2


def _product_of_roots(x: Any) -> Any:
    length = np.sqrt(np.sum(x**2))
    return length * length


def _half_of_a_norm(x: Any) -> Any:
    length = np.linalg.norm(x)
    return 0.5 * length * length


def _with_factors(x: Any) -> Any:
    size = np.abs(x)
    return np.sum(size * WEIGHTS * 0.5 * size)


WHOLE: dict[Function, Any] = {
    _root_of_a_product: 2.0,
    _product_of_roots: 2.0,
    _half_of_a_norm: 1.0,
    _with_factors: WEIGHTS,
}


def _magnitude(a: Any, b: Any) -> Any:
    size = abs(a)
    return size * size


def _length(a: Any, b: Any) -> Any:
    return np.hypot(a, b) ** 2


def _length_by_math(a: Any, b: Any) -> Any:
    length = math.hypot(a, b)
    return length * length


def _root_by_math(a: Any, b: Any) -> Any:
    length = math.sqrt(a**2 + b**2)
    return length * length


def _huber(a: Any, b: Any) -> Any:
    size = abs(a)
    return 0.5 * size * size if size < 1 else size - 0.5


def _huber_by_math(a: Any, b: Any) -> Any:
    size = math.fabs(a)
    return 0.5 * size**2 if size < 1 else size - 0.5


TERMS: dict[Callable[[Any, Any], Any], float] = {
    _magnitude: 2.0,
    _length: 4.0,
    _length_by_math: 4.0,
    _root_by_math: 4.0,
    _huber: 1.0,
    _huber_by_math: 1.0,
}
"""Terms of a sum over neighbours, and the second derivatives of the sum."""


def _summed(term: Callable[[Any, Any], Any]) -> Function:
    def total(x: Any) -> Any:
        result = 0.0
        for i in range(len(x)):
            result += term(x[i], x[i - 1])
        return result

    return total


def _hessians(function: Function, x: np.ndarray[Any, Any]) -> list[Any]:
    with gt.GradientTape() as outer:
        a = outer.watch(x)
        with gt.GradientTape() as inner:
            inner.watch(a)
            y = function(a)
        slope = inner.gradient(y, a)
    return [
        gt.hessian(function)(x),
        gt.jacfwd(gt.grad(function))(x),
        gt.jacrev(gt.grad(function))(x),
        outer.jacobian(slope, a).numpy(),
    ]


@pytest.mark.parametrize("function", WHOLE)
def test_squares_of_whole_arrays(function: Function) -> None:
    for found in _hessians(function, np.zeros(3)):
        np.testing.assert_allclose(found, WHOLE[function] * np.eye(3))


@pytest.mark.parametrize("loops", ["trace", "compile"])
@pytest.mark.parametrize("count", [3, 24])
@pytest.mark.parametrize("term", TERMS)
def test_squares_in_loops(term: Callable[[Any, Any], Any], count: int, loops: Any) -> None:
    with gt.config.override(loops=loops):
        for found in _hessians(_summed(term), np.zeros(count)):
            np.testing.assert_allclose(found, TERMS[term] * np.eye(count))


@pytest.mark.parametrize("function", [*WHOLE, *map(_summed, TERMS)])
def test_away_from_the_kink_derivatives_are_those_of_the_chain_rule(function: Function) -> None:
    x = np.array([0.3, -0.7, 1.4])
    step = 1e-6
    for k, row in enumerate(gt.hessian(function)(x)):
        shift = step * np.eye(3)[k]
        slopes = (gt.grad(function)(x + shift) - gt.grad(function)(x - shift)) / (2 * step)
        np.testing.assert_allclose(row, slopes, rtol=1e-5, atol=1e-7)


def test_the_square_of_a_root_has_no_derivative_where_the_root_is_no_number() -> None:
    with np.errstate(invalid="ignore"):
        assert np.isnan(gt.grad(lambda x: np.sqrt(x) ** 2)(-1.0))
    assert gt.grad(lambda x: np.sqrt(x) ** 2)(0.0) == 1.0
    assert gt.grad(gt.grad(lambda x: np.sqrt(x) ** 2))(0.0) == 0.0
