"""Operations that fail for numbers that the code does not let through to them: a guard of a loop stands behind them in the program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as gt

Array = Any


def last_positions(v: Array) -> Array:
    """The number of true elements is guarded in each iteration, and a position behind the last one is out of bounds."""
    total = v
    for _ in range(20):
        places = np.nonzero(total > 0.3)[0]
        total = total + 0.01 * total[places[-1]]
    return total


def shifted_inverses(v: Array) -> Array:
    """A matrix that is close to singular is shifted before it is inverted."""
    m = np.eye(2) * v[0]
    for _ in range(20):
        if np.max(np.abs(m)) < 0.3:
            m = m + np.eye(2)
        m = m - 0.005 * np.linalg.inv(m)
    return m


PROGRAMS: dict[Callable[[Array], Array], list[Array]] = {
    last_positions: [
        np.array([0.5, 0.1, 0.4, 0.2]),
        np.array([0.5, 0.6, 0.7, 0.8]),
        np.array([0.4, 0, 0, 0]),
    ],
    shifted_inverses: [np.array([2.0]), np.array([0.1]), np.array([0.0])],
}
everywhere = pytest.mark.parametrize("function", PROGRAMS, ids=lambda function: function.__name__)


@everywhere
@pytest.mark.parametrize("setting", [{}, {"loops": "trace"}, {"compile": "background"}], ids=str)
def test_calls_with_other_numbers_are_answered(
    function: Callable[[Array], Array], setting: dict[str, Any]
) -> None:
    points = PROGRAMS[function]
    with gt.config.override(**setting):
        jitted, gradient = gt.jit(function), gt.grad(lambda v: np.sum(function(v)))
        for v in points * 2:
            np.testing.assert_allclose(jitted(v), function(v), rtol=1e-12)
            np.testing.assert_allclose(np.sum(gradient(v)), slope(function, v), rtol=1e-5, atol=1e-5)


@everywhere
def test_on_a_tape(function: Callable[[Array], Array]) -> None:
    jitted = gt.jit(function)
    for v in PROGRAMS[function] * 2:
        with gt.GradientTape() as tape:
            watched = tape.watch(v)
            y = np.sum(jitted(watched))
        gradient = tape.gradient(y, watched)
        np.testing.assert_allclose(np.sum(np.asarray(gradient)), slope(function, v), rtol=1e-5, atol=1e-5)


def slope(function: Callable[[Array], Array], v: Array, h: float = 1e-6) -> Any:
    """Return the difference along the direction of ones."""
    return np.sum(function(v + h) - function(v - h)) / (2 * h)


def test_a_position_that_is_out_of_bounds_is_still_an_error() -> None:
    @gt.jit
    def taken(x: Array, place: Array) -> Array:
        for _ in range(20):
            if np.sum(x) > 100:
                x = x * 0.1
            x = x + np.take(x, place)
        return x

    x = np.ones(3)
    taken(x, np.array([1]))
    taken(99 * x, np.array([2]))
    for place in (7, -4):
        with pytest.raises(IndexError, match=f"index {place} is out of bounds for axis 0 with size 3"):
            taken(x, np.array([place]))
