"""Distances of 0, written as the root of a sum of squares, have the derivative 0, however they are written and whatever runs the code."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import pytest

import gradtape as gt
from gradtape.ir.graph import Value
from gradtape.ir.types import FLOAT64, aval
from gradtape.ops.core.elementwise.roots import sqrt
from gradtape.transforms.kinks.roots import DEEPEST, EXAMINED_NODES, flat_root
from gradtape.transforms.loops.draft import never_stop

Function = Callable[[Any], Any]


def _pairs(x: Any) -> Any:
    return np.sum(np.sqrt(np.sum((x[:, None, None] - x[None, :, None]) ** 2, axis=-1)))


def _of_parts(x: Any) -> Any:
    z = x[0] + 1j * x[1]
    return np.sqrt(np.real(z * np.conj(z)))


def _written(x: Any) -> Any:
    y = np.zeros(3)
    y[:2] = x**2
    return np.sqrt(np.sum(y))


def _of_a_rolled_loop(x: Any) -> Any:
    total = 0.0
    for k in range(300):
        total += x[k % 2] ** 2
    return np.sqrt(total)


def _in_a_rolled_loop(x: Any) -> Any:
    total, length = 0.0, 0.0
    for k in range(100):
        total += x[k % 2] ** 2
        length += np.sqrt(total)
    return length


DISTANCES: dict[str, Function] = {
    "sum of squares": lambda x: np.sqrt(np.sum(x**2)),
    "power of a sum": lambda x: np.sum(np.square(x)) ** 0.5,
    "product of a vector with itself": lambda x: np.sqrt(x @ x),
    "einsum": lambda x: np.sqrt(np.einsum("i,i->", x, x)),
    "two squares": lambda x: math.sqrt(x[0] * x[0] + x[1] ** 2),
    "pairs": _pairs,
    "parts of a complex number": _of_parts,
    "mean of squares": lambda x: 3.0 * np.sqrt(np.mean(x**2) / 2.0),
    "variance": lambda x: np.sqrt(np.var(x)),
    "scales": lambda x: np.sqrt(np.sum((x / 2.0) ** 2 / (1.0 + x) ** 2)),
    "weights that are positive": lambda x: np.sqrt(np.sum(np.exp(x) * x**2)),
    "norm of norms": lambda x: np.sqrt(np.sqrt(x @ x) ** 2 + np.linalg.norm(x) ** 2),
    "sum of cubes": lambda x: np.sum(np.abs(x) ** 3) ** (1 / 3),
    "without a kink": lambda x: (x @ x) ** 0.75,
    "what is not negative": lambda x: np.sqrt(np.maximum(np.sum(x**2), 0.0)),
    "selected": lambda x: np.sqrt(np.sum(np.where(x > 1.0, 0.0, x**2))),
    "written": _written,
    "terms of a loop": lambda x: np.sqrt(sum([(x[k % 2] * k) ** 2 for k in range(60)])),
    "rolled loop": _of_a_rolled_loop,
    "in a rolled loop": _in_a_rolled_loop,
}


@pytest.mark.parametrize("name", DISTANCES)
def test_the_derivative_at_zero_is_zero(name: str) -> None:
    f, zero = DISTANCES[name], np.zeros(2)
    assert np.array_equal(gt.grad(f)(zero), zero)
    assert np.array_equal(gt.jacfwd(f)(zero), zero)
    assert gt.jvp(f, (zero,), (np.ones(2),))[1] == 0
    with gt.GradientTape() as tape:
        x = tape.watch(zero)
        y = f(x)
    assert np.array_equal(tape.gradient(y, x), zero)


@pytest.mark.parametrize("name", DISTANCES)
def test_elsewhere_nothing_changes(name: str) -> None:
    f, x = DISTANCES[name], np.array([0.3, -0.4])
    gt.check_grads(f, (x,))


@pytest.mark.parametrize(
    "name", ["sum of squares", "product of a vector with itself", "two squares", "pairs"]
)
def test_second_derivatives_are_those_of_a_norm(name: str) -> None:
    f = DISTANCES[name]
    assert np.array_equal(gt.hessian(f)(np.zeros(2)), np.zeros((2, 2)))
    squared = gt.hessian(lambda x: np.sqrt(np.sum(x**2)) ** 2)(np.zeros(2))
    assert np.array_equal(squared, 2 * np.eye(2))


def test_rows_of_which_some_are_zero() -> None:
    x = np.array([[0.0, 0.0], [3.0, 4.0]])

    def lengths(rows):
        return np.sum(np.sqrt(np.sum(rows**2, axis=1)))

    expected = np.array([[0.0, 0.0], [0.6, 0.8]])
    np.testing.assert_allclose(gt.grad(lengths)(x), expected)
    each = gt.vmap(gt.grad(lambda row: np.sqrt(row @ row)))
    np.testing.assert_allclose(each(x), expected)
    empty = gt.grad(lambda row: np.sqrt(np.sum(row**2)))(np.zeros(0))
    assert empty.shape == (0,)
    single = gt.grad(lambda row: np.sqrt(np.sum(row**2)))(np.zeros(2, np.float32))
    assert single.dtype == np.float32 and not single.any()


KEPT: dict[str, tuple[Function, Any]] = {
    "root": (np.sqrt, 0.0),
    "root of a difference": (lambda x: np.sqrt(x**2 - 1.0), 1.0),
    "light cone": (lambda x: np.sqrt(np.sum(np.array([-1.0, 1.0]) * x**2)), np.ones(2)),
    "difference of squares": (lambda x: np.sqrt(x[0] ** 2 - x[1] ** 2), np.ones(2)),
    "root of the square of a root": (lambda x: np.sqrt(np.sqrt(x) ** 2), 0.0),
    "root of a multiple of a root": (lambda x: np.sqrt((2.0 * np.sqrt(x)) ** 2), 0.0),
    "fourth root of a square": (lambda x: (x**2) ** 0.25, 0.0),
}


@pytest.mark.parametrize("name", KEPT)
def test_roots_of_what_is_no_sum_of_squares_keep_their_slope(name: str) -> None:
    f, at = KEPT[name]
    for derivative in (gt.grad(f)(at), gt.jacfwd(f)(at)):
        assert not np.any(np.isfinite(derivative))


def test_where_derivatives_end_at_the_sum_its_root_has_an_infinite_slope() -> None:
    with gt.GradientTape() as tape:
        x = tape.watch(np.zeros(2))
        total = np.sum(x**2)
        y = np.sqrt(total)
    assert tape.gradient(y, total) == np.inf


def _distance_in_a_loop(x):
    total = 0.0
    for k in range(len(x)):
        total += x[k] * x[k]
    return math.sqrt(total)


def _distances_in_a_loop(x):
    length = 0.0
    for k in range(len(x)):
        gap = x - x[k]
        length += np.sqrt(np.sum(gap**2))
    return length


def _distances_of_what_is_stored(x):
    squares, length = np.zeros(len(x)), 0.0
    for k in range(len(x)):
        squares[k] = (x[k] - x[0]) ** 2
    for k in range(len(x)):
        length += squares[k] ** 0.5
    return length


def _roots_of_differences(x):
    total = 0.0
    for k in range(len(x)):
        total += x[k] * x[k]
        total -= 1.0
    return math.sqrt(total)


@pytest.mark.parametrize("f", [_distance_in_a_loop, _distances_in_a_loop, _distances_of_what_is_stored])
def test_loops_from_code_find_the_squares_that_they_have_summed(f: Function) -> None:
    compiled, zero = numba.njit(f), np.zeros(4)
    for derivative in (gt.grad(compiled), gt.jacfwd(compiled), gt.grad(f)):
        assert np.array_equal(derivative(zero), zero)
    assert np.array_equal(gt.hessian(compiled)(zero), np.zeros((4, 4)))
    x = np.array([0.3, -0.4, 0.3, 1.0])
    np.testing.assert_allclose(gt.grad(compiled)(x), gt.grad(f)(x), atol=1e-15)


def test_loops_from_code_keep_the_slope_of_other_roots() -> None:
    assert not np.any(np.isfinite(gt.grad(numba.njit(_roots_of_differences))(np.ones(4))))


def test_the_search_for_squares_ends() -> None:
    value = x = Value(aval((), FLOAT64))
    for _ in range(2 * EXAMINED_NODES):
        value = value + x * x
    root = sqrt(value).node
    assert root is not None
    assert flat_root(root, never_stop) is None
    deep = x * x
    for _ in range(2 * DEEPEST):
        deep = 2.0 * (deep * deep)
    assert flat_root(sqrt(deep).node, never_stop) is None  # type: ignore[arg-type]
    short = sqrt(x * x + x * x).node
    assert short is not None
    assert flat_root(short, never_stop) is not None
    assert flat_root(short, lambda value: value is short.inputs[0]) is None
