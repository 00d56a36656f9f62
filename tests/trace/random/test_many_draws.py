"""Many draws of one type are elements of one input: loops are found, and the numbers are NumPy's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as gt

COUNT = 40


def walk(x: Any, rng: Any) -> Any:
    for _ in range(COUNT):
        x = 0.9 * x + rng.normal() * rng.random()
    return x


def single(x: Any, rng: Any) -> Any:
    x = x.astype(np.float32)
    for _ in range(COUNT):
        x = x * rng.random()
    return x


def vectors(x: Any, rng: Any) -> Any:
    for _ in range(COUNT):
        x = x + np.sum(rng.standard_normal(3)) * rng.integers(0, 9)
    return x


def parameters(x: Any, rng: Any) -> Any:
    total = 0.0 * x
    for k in range(COUNT):
        total = total + rng.normal(x, 1.0)
        if k % 8 == 0:
            total = total + rng.gamma(2.0 + total * total)
    return total + rng.poisson(3.0)


def branches(x: Any, rng: Any) -> Any:
    for _ in range(20):
        x = x + rng.random()
    return x * 2 if x > 11.0 else x


def returned(x: Any, rng: Any) -> Any:
    drawn = [rng.random() for _ in range(COUNT)]
    return x, drawn, drawn[3] + drawn[5]


FUNCTIONS: list[Callable[..., Any]] = [walk, single, vectors, parameters, branches, returned]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_numbers_are_those_of_numpy(function: Callable[..., Any]) -> None:
    rng, plain = np.random.default_rng(3), np.random.default_rng(3)
    compiled = gt.jit(function)
    x = np.float64(1.5)
    for _ in range(6):
        found, wanted = compiled(x, rng), function(x, plain)
        for one, other in zip(*map(flat, (found, wanted)), strict=True):
            assert np.asarray(one).dtype == np.asarray(other).dtype
            np.testing.assert_allclose(one, other, rtol=1e-5 if one.dtype == np.float32 else 1e-12)
        assert rng.bit_generator.state == plain.bit_generator.state


def flat(result: Any) -> list[Any]:
    parts = result if isinstance(result, tuple | list) else [result]
    return [leaf for part in parts for leaf in (flat(part) if isinstance(part, list) else [np.asarray(part)])]


def test_derivatives_and_tapes() -> None:
    rng, plain = np.random.default_rng(3), np.random.default_rng(3)
    slope = gt.grad(lambda x: walk(x, rng) ** 2)
    for _ in range(3):
        np.testing.assert_allclose(slope(2.0), 2 * walk(2.0, plain) * 0.9**COUNT, rtol=1e-12)
    compiled = gt.jit(lambda x: parameters(x, rng))
    for _ in range(3):
        with gt.GradientTape() as tape:
            x = tape.watch(np.array(2.0))
            y = compiled(x)
        np.testing.assert_allclose(y, parameters(np.float64(2.0), plain), rtol=1e-12)
        assert tape.gradient(y, x) is not None


def test_loops_are_found() -> None:
    rng = np.random.default_rng(3)
    compiled = gt.jit(lambda x: walk(x, rng))
    compiled(1.0)
    assert "for " in str(gt.inspect.graph(compiled, 1.0))
