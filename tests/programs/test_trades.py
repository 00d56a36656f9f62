"""Programs of several trades: NumPy's values, and derivatives that agree with differences and with each other, also in a second call."""

from __future__ import annotations

from typing import Any

import numpy as np
import optree
import pytest

import gradtape as gt
from tests.support.programs.trades import PROGRAMS, TradeProgram

everywhere = pytest.mark.parametrize("program", PROGRAMS.values(), ids=list(PROGRAMS))
STEP = 1e-5


def weighted(results: Any) -> Any:
    """Return a sum of all results with weights of which no two are equal."""
    total = 0.0
    for k, leaf in enumerate(optree.tree_leaves(results)):
        weights = 1.0 + 0.1 * k + 0.05 * np.arange(np.size(leaf)).reshape(np.shape(leaf))
        total = total + np.sum(weights * leaf)
    return total


def direction(args: Any) -> Any:
    """Return a direction in which each number changes by its own size."""
    return optree.tree_map(
        lambda leaf: leaf * (1.0 + 0.3 * np.cos(np.arange(np.size(leaf)))).reshape(np.shape(leaf)), args
    )


def difference(program: TradeProgram, args: Any) -> Any:
    """Return the difference of the weighted sum along `direction`, of fourth order."""

    def value(step: float) -> Any:
        return weighted(
            program.function(*optree.tree_map(lambda leaf, by: leaf + step * by, args, direction(args)))
        )

    near, far = value(STEP) - value(-STEP), value(2 * STEP) - value(-2 * STEP)
    return (8 * near - far) / (12 * STEP)


def dot(a: Any, b: Any) -> Any:
    return sum(
        np.sum(np.asarray(x) * y) for x, y in zip(optree.tree_leaves(a), optree.tree_leaves(b), strict=True)
    )


@everywhere
def test_values(program: TradeProgram) -> None:
    compiled = gt.jit(program.function)
    for args in (program.first, program.second, program.first):
        for got, expected in zip(
            optree.tree_leaves(compiled(*args)), optree.tree_leaves(program.function(*args)), strict=True
        ):
            np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-12)


@everywhere
def test_gradients(program: TradeProgram) -> None:
    gradient = gt.grad(
        lambda *args: weighted(program.function(*args)), argnums=tuple(range(len(program.first)))
    )
    for args in (program.first, program.second, program.first):
        slope = dot(gradient(*args), direction(args))
        np.testing.assert_allclose(slope, difference(program, args), rtol=1e-6, atol=1e-7)


@everywhere
def test_forward_mode_and_tapes(program: TradeProgram) -> None:
    for args in (program.first, program.second):
        expected = difference(program, args)
        forward = gt.jvp(lambda *args: weighted(program.function(*args)), args, direction(args))[1]
        np.testing.assert_allclose(forward, expected, rtol=1e-6, atol=1e-7)
        with gt.GradientTape() as tape:
            watched = tape.watch(args)
            y = weighted(program.function(*watched))
        slopes = tape.gradient(y, optree.tree_leaves(watched), unconnected_gradients="zero")
        np.testing.assert_allclose(dot(slopes, direction(args)), expected, rtol=1e-6, atol=1e-7)
