"""Random functions with loops: what is compiled from their code gives Python's values, and derivatives that agree with each other."""

from __future__ import annotations

import linecache
import math
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import pytest

import gradtape as gt
from tests.programs.loops.random_sources import random_source

SEEDS = range(24)


def function_of(seed: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Return a random function and its arguments."""
    text = random_source(seed)
    name = f"random_loops_{seed}.py"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    namespace: dict[str, Any] = {"np": np, "math": math, "__name__": "random_loops"}
    exec(compile(text, name, "exec"), namespace)
    random = np.random.default_rng(seed)
    n = int(random.integers(3, 5))
    return namespace["f"], (random.standard_normal(n), random.standard_normal((n, n)), 0.7)


def moved(args: tuple[Any, ...], along: tuple[Any, ...], h: float) -> tuple[Any, ...]:
    return tuple([x + h * d for x, d in zip(args, along, strict=True)])


def slope(function: Callable[..., float], args: tuple[Any, ...], along: tuple[Any, ...]) -> float | None:
    """Return the derivative along a direction by differences; None where two steps disagree, as near a kink."""
    found = [
        (function(*moved(args, along, h)) - function(*moved(args, along, -h))) / (2 * h) for h in (1e-6, 2e-6)
    ]
    return found[0] if abs(found[0] - found[1]) < 1e-6 * (1.0 + abs(found[0])) else None


def product(gradient: Any, along: tuple[Any, ...]) -> float:
    return float(sum(np.sum(g * d) for g, d in zip(gradient, along, strict=True)))


def check(seed: int) -> None:
    """Compare all ways of one function."""
    function, args = function_of(seed)
    value = function(*args)
    random = np.random.default_rng(1)
    along = tuple([random.standard_normal(np.shape(x)) for x in args])
    compiled = numba.njit(function)
    places = (0, 1, 2)
    assert gt.jit(compiled)(*args) == pytest.approx(value, rel=1e-11, abs=1e-12)
    found, gradient = gt.value_and_grad(compiled, argnums=places)(*args)
    assert found == pytest.approx(value, rel=1e-11, abs=1e-12)
    expected = slope(function, args, along)
    reverse = product(gradient, along)
    forward = gt.jvp(compiled, args, along)[1]
    assert forward == pytest.approx(reverse, rel=1e-9, abs=1e-10)
    if expected is not None:
        assert reverse == pytest.approx(expected, rel=2e-6, abs=2e-6)
    with gt.GradientTape() as tape:
        watched = [tape.watch(np.asarray(x)) for x in args]
        y = compiled(*watched)
    for one, other in zip(tape.gradient(y, watched), gradient, strict=True):
        np.testing.assert_allclose(0.0 if one is None else one, other, rtol=1e-10, atol=1e-12)
    batch = [np.stack([np.asarray(x), 1.01 * np.asarray(x)]) for x in args]
    rows = gt.vmap(gt.grad(compiled, argnums=places))(*batch)
    for row, whole in zip(rows, gradient, strict=True):
        np.testing.assert_allclose(row[0], whole, rtol=1e-10, atol=1e-12)
    check_second(compiled, args, along)


def check_second(compiled: Callable[..., Any], args: tuple[Any, ...], along: tuple[Any, ...]) -> None:
    """Compare forward over reverse with differences of gradients."""
    of_gradient = gt.grad(compiled, argnums=(0, 1, 2))
    hessian = product(gt.jvp(of_gradient, args, along)[1], along)
    expected = slope(lambda *at: product(of_gradient(*at), along), args, along)
    if expected is not None:
        assert hessian == pytest.approx(expected, rel=2e-5, abs=2e-5)


@pytest.mark.parametrize("seed", SEEDS)
def test_all_ways_agree(seed: int) -> None:
    check(seed)
