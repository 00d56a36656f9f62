"""Jacobians in chunks: as many rows or columns at once as memory allows, with the same numbers."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import gradtape as gt

A = np.random.default_rng(3).normal(size=(12, 7))


def layers(x: Any) -> Any:
    return np.tanh(A @ np.sin(A.T @ np.tanh(A @ x)))[:11] * np.sum(x**2)


X = np.linspace(0.1, 0.9, 7)
WAYS = {"jacobian": gt.jacobian, "jacrev": gt.jacrev, "jacfwd": gt.jacfwd}


@pytest.mark.parametrize(
    "asked", [{"chunk_size": 1}, {"chunk_size": 4}, {"chunk_size": 99}, {"memory": 1}, {"memory": 500}]
)
@pytest.mark.parametrize("way", WAYS)
def test_chunks_are_the_jacobian(way: str, asked: dict[str, int]) -> None:
    whole = WAYS[way](layers)(X)
    # Products of matrices of another width are summed in another order on some processors.
    close = {"rtol": 1e-11, "atol": 1e-13}
    np.testing.assert_allclose(WAYS[way](layers, **asked)(X), whole, **close)
    np.testing.assert_allclose(gt.jit(WAYS[way](layers, **asked))(X), whole, **close)


@pytest.mark.parametrize("asked", [{"chunk_size": 3}, {"memory": 1}, {"memory": 300}])
def test_of_hessians_and_tapes(asked: dict[str, int]) -> None:
    def f(x: Any) -> Any:
        return np.sum(layers(x))

    np.testing.assert_allclose(gt.hessian(f, **asked)(X), gt.hessian(f)(X), rtol=1e-12)
    third = gt.jacobian(gt.hessian(f, **asked))(X)
    np.testing.assert_allclose(third, gt.jacobian(gt.hessian(f))(X), rtol=1e-11)
    with gt.GradientTape(persistent=True) as tape:
        x = tape.watch(X)
        y = layers(x)
    whole = tape.jacobian(y, x)
    np.testing.assert_allclose(tape.jacobian(y, x, **asked).numpy(), whole.numpy(), rtol=1e-13)
    with gt.GradientTape(persistent=True) as tape:
        rows = tape.watch(np.stack([X, 2 * X]))
        y = np.sin(rows @ A.T) ** 2
    whole = tape.batch_jacobian(y, rows)
    np.testing.assert_allclose(tape.batch_jacobian(y, rows, **asked).numpy(), whole.numpy(), rtol=1e-13)


W = np.random.default_rng(4).normal(size=(512, 512)) / 20


def chain(x: Any) -> Any:
    """A Jacobian of 64 by 64 whose rows go through arrays of 64 by 512, which are multiplied with matrices."""
    h = np.sin(np.outer(x, np.arange(512.0)))
    for _ in range(3):
        h = np.tanh(h @ W)
    return np.sum(h, axis=1) * np.sum(h)


def largest(function: Any, x: Any) -> int:
    """Return the elements of the largest array among a program's own."""
    sizes = [int(size) for size in re.findall(r"np\.empty\((\d+)", gt.inspect.loops(function, x))]
    return max(sizes, default=0)


def test_what_would_take_too_much_at_once_is_computed_in_chunks() -> None:
    """At once, 64 rows of 64 by 512 are 16 MB for each array; a bound of 8 MB for all of them leaves few rows to a chunk."""
    x = np.linspace(0.0, 1.0, 64)
    at_once = largest(gt.jacrev(chain), x)
    assert at_once >= 64 * 64 * 512
    with gt.config.override(jacobian_memory=2**23):
        bounded = largest(gt.jacrev(chain), x)
    assert bounded <= at_once // 8
    assert largest(gt.jacrev(chain, memory=2**23), x) == bounded
    assert largest(gt.jacfwd(chain, memory=2**23), x) <= at_once // 8
    assert largest(gt.jacrev(chain, chunk_size=1), x) <= 4 * 64 * 512


def test_the_automatic_bound_is_a_part_of_what_is_free() -> None:
    from gradtape.transforms.chunks import automatic_memory

    assert gt.config.jacobian_memory == 0
    bound = automatic_memory()
    assert bound >= 2**20
    assert bound & (bound - 1) == 0  # so that programs are found again


@pytest.mark.parametrize("way", [*WAYS.values(), gt.hessian])
def test_what_cannot_be_asked_for(way: Any) -> None:
    with pytest.raises(gt.errors.ArgumentError, match="chunk_size is 0"):
        way(layers, chunk_size=0)
    with pytest.raises(gt.errors.DtypeError, match="memory must be an int"):
        way(layers, memory=1.5)
    with pytest.raises(gt.errors.ArgumentError, match="both chunk_size and memory"):
        way(layers, chunk_size=1, memory=1)
    with gt.GradientTape() as tape:
        x = tape.watch(X)
        y = layers(x)
    with pytest.raises(gt.errors.ArgumentError, match="both parallel_iterations and chunk_size"):
        tape.jacobian(y, x, parallel_iterations=2, chunk_size=1)
