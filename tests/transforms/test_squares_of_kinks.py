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


def _product_of_a_vector_with_itself(x: Any) -> Any:
    return np.dot(np.abs(x), np.abs(x))


def _sums_of_products_by_rows(x: Any) -> Any:
    rows = np.abs(np.stack([x, 2 * x]))
    return np.sum(np.einsum("ij,ij->i", rows, rows))


def _selected(x: Any) -> Any:
    return np.sum(np.where(x < 0.5, np.abs(x), x) ** 2)


def _selected_by_a_branch_of_two_kinks(x: Any) -> Any:
    chosen = np.where(WEIGHTS > 0.7, np.abs(x), np.hypot(x, x))
    return np.sum(chosen * chosen)


def _in_order(x: Any) -> Any:
    return np.sum(np.sort(np.abs(x)) ** 2)


def _joined(x: Any) -> Any:
    y = np.concatenate([np.abs(x[:1]), x[1:2], np.abs(x[2:])])
    return np.sum(0.5 * y * y)


def _moved(x: Any) -> Any:
    return np.sum(np.roll(np.pad(np.abs(x), 1), 2)[::-1] ** 2)


def _stored_in_part(x: Any) -> Any:
    y = 1.0 * x
    y[1:] = np.abs(x[1:])
    return np.sum(y**2)


def _stored_one_by_one(x: Any) -> Any:
    y = np.zeros(3)
    for j in range(3):
        y[j] = abs(x[j])
    return y @ y


MOVED: dict[Function, Any] = {
    _product_of_a_vector_with_itself: 2.0,
    _sums_of_products_by_rows: 10.0,
    _selected: 2.0,
    _selected_by_a_branch_of_two_kinks: np.array([2.0, 2.0, 4.0]),
    _in_order: 2.0,
    _joined: 1.0,
    _moved: 2.0,
    _stored_in_part: 2.0,
    _stored_one_by_one: 2.0,
}
"""Squares of arrays whose elements were put together after the row with the kink."""

WHOLE: dict[Function, Any] = {
    **MOVED,
    _root_of_a_product: 2.0,
    _product_of_roots: 2.0,
    _half_of_a_norm: 1.0,
    _with_factors: WEIGHTS,
}


def _magnitude(a: Any, b: Any) -> Any:
    size = abs(a)
    return size * size


def _magnitude_computed_twice(a: Any, b: Any) -> Any:
    return abs(a) * abs(a)


def _length_of_magnitudes(a: Any, b: Any) -> Any:
    return np.hypot(np.abs(a), np.copysign(b, 1.0)) ** 2


def _length_of_a_length(a: Any, b: Any) -> Any:
    return 0.5 * np.hypot(np.hypot(a, np.abs(b)), a) ** 2


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
    _magnitude_computed_twice: 2.0,
    _length_of_magnitudes: 4.0,
    _length_of_a_length: 3.0,
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


@pytest.mark.parametrize("function", [function for function in MOVED if function not in (_in_order, _moved)])
def test_squares_of_moved_elements_in_compiled_code(function: Function) -> None:
    with gt.config.override(loops="compile"):
        for found in _hessians(function, np.zeros(3)):
            np.testing.assert_allclose(found, MOVED[function] * np.eye(3))


@pytest.mark.parametrize("size", [1, 300])
def test_squares_of_moved_elements_of_any_number(size: int) -> None:
    x = np.zeros(size)
    for function in (_product_of_a_vector_with_itself, _selected, _in_order, _moved, _stored_in_part):
        np.testing.assert_allclose(gt.hessian(function)(x), 2 * np.eye(size))
        along = gt.jvp(gt.grad(function), (x,), (np.ones(size),))[1]
        np.testing.assert_allclose(along, np.full(size, 2.0))


def test_derivatives_that_end_at_what_is_squared_are_those_of_a_square() -> None:
    with gt.GradientTape(persistent=True) as tape:
        x = tape.watch(np.array([0.0, -2.0, 3.0]))
        size = np.where(WEIGHTS > 0.7, np.abs(x), x)
        y = np.sum(size**2)
    np.testing.assert_array_equal(tape.gradient(y, size), [0.0, 4.0, 6.0])
    np.testing.assert_array_equal(tape.gradient(y, x), [0.0, -4.0, 6.0])


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


def _rolled(x):
    y, s = np.sort(np.abs(x)), 0.0
    for i in range(len(y)):
        s += y[i] * y[i]
    return s


def _rolled_in_part(x):
    y, s = np.abs(x), 0.0
    for i in range(len(y)):
        s += 0.5 * y[i] * y[i] * 2.0
    return s


def _scanned(x):
    return gt.scan(lambda s, e: (s + e**2, None), 0.0, np.abs(x))[0]


def _scanned_from_outside(x):
    y = np.abs(x)
    return gt.scan(lambda s, i: (s + y[i] * y[i], None), 0.0, np.arange(len(x)))[0]


def _scanned_rows(x):
    y = np.abs(x)
    return gt.scan(lambda s, row: (s + row @ row, None), 0.0, np.stack([y, y]))[0] / 2


def _counted(x):
    y = np.abs(x)
    return gt.fori_loop(0, len(x), lambda i, s: s + y[i] * y[i], 0.0)


def _unrolled_in_part(x):
    return gt.scan(lambda s, e: (s + e * e, None), 0.0, np.abs(x), unroll=2)[0]


@pytest.mark.parametrize(
    "function",
    [_rolled, _rolled_in_part, _scanned, _scanned_from_outside, _scanned_rows, _counted, _unrolled_in_part],
)
@pytest.mark.parametrize("jit", [True, False])
def test_loops_know_the_squares_of_what_they_read(function, jit):
    """They read numbers from outside, whose kink they did not see: the second derivative at 0 had been 0."""
    with gt.config.override(jit=jit):
        for n in (1, 3, 10, 40):
            np.testing.assert_allclose(gt.hessian(function)(np.zeros(n)), 2 * np.eye(n))
        x = np.array([0.5, -0.25, 0.0, 2.0])
        value, gradient = gt.value_and_grad(function)(x)
        np.testing.assert_allclose(value, np.sum(x**2))
        np.testing.assert_allclose(gradient, 2 * x)
        np.testing.assert_allclose(gt.jacfwd(gt.grad(function))(x), 2 * np.eye(4), atol=1e-15)
