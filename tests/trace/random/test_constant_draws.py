"""Draws that a trace takes as numbers: those of generators that a body makes with a seed, as in NumPy. Raw numbers are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gradtape as gt


def step(x: Any) -> Any:
    rng = np.random.default_rng(5)
    return x * (0.5 + rng.random()) + rng.normal(size=3)[int(rng.integers(3))]


def test_numbers_are_those_of_numpy() -> None:
    expected = step(step(2.0))
    loop = gt.jit(lambda x: gt.fori_loop(0, 2, lambda _, c: step(c), x))
    np.testing.assert_allclose(loop(2.0), expected, rtol=1e-14)
    np.testing.assert_allclose(gt.grad(loop)(2.0), (0.5 + np.random.default_rng(5).random()) ** 2, rtol=1e-14)


@pytest.mark.parametrize("seed", [None, "outside"])
def test_numbers_that_differ_are_refused(seed: Any) -> None:
    outside = np.random.default_rng(3)

    def body(_: Any, c: Any) -> Any:
        return c + (np.random.default_rng() if seed is None else outside).random()

    with pytest.raises(gt.errors.UnsupportedFunctionError, match="one draw would stand for all"):
        gt.while_loop(lambda _, c: c < 9.0, lambda k, c: (k + 1, body(k, c)), (0, 1.0))


def test_raw_numbers_are_refused_in_compiled_functions() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(
        gt.errors.UnsupportedFunctionError, match=r"(?s)random_raw is not supported.*rng\.integers"
    ):
        gt.jit(lambda x: x + rng.bit_generator.random_raw())(1.0)
    with gt.GradientTape():
        assert rng.bit_generator.random_raw() == np.random.default_rng(0).bit_generator.random_raw()


@pytest.mark.parametrize("method", ["random", "standard_normal", "standard_exponential"])
@pytest.mark.parametrize("by_name", [False, True])
def test_sizes_may_be_traced_integers(method: str, by_name: bool) -> None:
    def total(scale: Any, n: Any) -> Any:
        draw = getattr(np.random.default_rng(1), method)
        return scale * np.sum(draw(size=(n, 2)) if by_name else draw((n, 2)))

    expected = total(1.0, 5)
    np.testing.assert_allclose([gt.grad(total)(1.0, 5), gt.jit(total)(1.0, 5)], expected)
    np.testing.assert_allclose(gt.jit(total)(1.0, 7), total(1.0, 7))
    with pytest.raises(gt.errors.UnsupportedFunctionError, match="has no rule for traced arguments"):
        gt.grad(lambda x: np.sum(getattr(np.random.default_rng(1), method)(x)))(1.0)
