"""Assignments by `scipy.optimize.linear_sum_assignment`: constants, with derivatives of what is read by them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

import gradtape as gt
from gradtape.errors import DtypeError, ShapeError

RNG = np.random.default_rng(0)


def cost(c: Any, maximize: bool) -> Any:
    return np.sum(c[linear_sum_assignment(c, maximize=maximize)] ** 2)


@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("shape", [(4, 4), (3, 5), (5, 3)])
def test_values_and_derivatives(shape: tuple[int, int], maximize: bool) -> None:
    c = RNG.random(shape)
    expected = np.zeros(shape)
    places = linear_sum_assignment(c, maximize)
    expected[places] = 2 * c[places]
    np.testing.assert_allclose(gt.jit(gt.grad(lambda c: cost(c, maximize)))(c), expected)
    with gt.GradientTape() as tape:
        watched = tape.watch(c)
        result = cost(watched, maximize)
    np.testing.assert_allclose(tape.gradient(result, watched), expected)
    several = np.stack([c, c[::-1], 1 - c])
    found = gt.vmap(lambda c: cost(c, maximize))(several)
    np.testing.assert_allclose(found, [cost(each, maximize) for each in several])
    gt.check_grads(lambda c: cost(c, maximize), (c,), order=2)


def test_each_call_of_a_compiled_function_finds_its_own() -> None:
    columns = gt.jit(lambda c: linear_sum_assignment(c)[1])
    for _ in range(3):
        c = RNG.random((5, 5))
        np.testing.assert_array_equal(columns(c), linear_sum_assignment(c)[1])


def test_what_is_refused() -> None:
    compiled = gt.jit(lambda c: linear_sum_assignment(c)[1])
    with pytest.raises(ShapeError, match=r"shape \(3,\)"):
        compiled(np.ones(3))
    with pytest.raises(DtypeError, match="complex"):
        compiled(np.ones((2, 2), complex))
    with pytest.raises(ValueError, match="invalid"):
        compiled(np.full((2, 2), np.nan))
