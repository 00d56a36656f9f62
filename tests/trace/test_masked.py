"""Elements that a traced mask selects: what does not depend on how many they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as gt
from gradtape import errors

X = np.array([0.3, 0.7, -0.4, 1.2, 0.9])
Function = Callable[..., Any]


def scaled(x: Any) -> Any:
    x = x.copy()
    x[x > 0.5] *= 3.0
    x[x < 0] -= 0.25
    x[x > 0.1] /= 2.0 + np.exp(x[0])
    return np.sum(x**2)


def moved(x: Any) -> Any:
    y = np.zeros(len(x))
    m = x > 0.5
    y[m] = np.sqrt(x[m]) + 1.0 / x[m]
    y[~m] = np.where(x[~m] > 0, 2.0, -x[~m])
    return np.sum(x * y)


def reduced(x: Any) -> Any:
    m = x > 0.2
    parts = (
        np.sum(x[m]),
        x[m].mean(),
        np.max(x[m]),
        x[m].std(),
        np.min(x[x > 0]),
        np.prod(x[m]),
        x[x < 0].sum(),
    )
    return sum(part * (k + 1) for k, part in enumerate(parts)) / np.size(x[m]) + np.mean(np.log(x[m]) ** 2)


def bodies(x: Any) -> Any:
    """Pairs of bodies that are not too near, as a simulation has them."""
    apart = x[:, None] - x[None, :]
    squared = apart**2
    near = squared < 0.05
    force = np.zeros((len(x), len(x)))
    force[~near] = apart[~near] / squared[~near] ** 1.5
    force[near] = 0.0
    return np.sum(np.sin(force.sum(axis=1)))


def rows(x: Any) -> Any:
    m = np.stack([x, 2 * x, x - 1.0])
    keep = m[:, 0] > 0.0
    m[keep] *= np.arange(1.0, 6.0)
    return np.sum(m[keep].sum(axis=0) ** 2) + np.sum(m)


PROGRAMS = (scaled, moved, reduced, bodies, rows)


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda function: function.__name__)
def test_selections(function: Function) -> None:
    step = 1e-6
    expected = function(X)
    slope = [(function(X + step * e) - function(X - step * e)) / (2 * step) for e in np.eye(5)]
    compiled = gt.jit(function)
    for x in (X, X * 1.1, X[::-1].copy()):
        np.testing.assert_allclose(compiled(x), function(x), rtol=1e-12)
    assert repr(compiled).endswith(": 1 trace>")
    np.testing.assert_allclose(gt.jit(gt.grad(function))(X), slope, atol=1e-5, rtol=1e-5)
    np.testing.assert_allclose(
        gt.vmap(function)(np.stack([X, X * 1.1])), [expected, function(X * 1.1)], rtol=1e-12
    )
    with gt.GradientTape() as tape:
        x = tape.watch(X)
        y = function(x)
    np.testing.assert_allclose(tape.gradient(y, x).numpy(), slope, atol=1e-5, rtol=1e-5)


def test_what_is_not_selected_reaches_no_derivative() -> None:
    def root(x: Any) -> Any:
        x = x.copy()
        x[x > 0] = np.sqrt(x[x > 0])
        return np.sum(x)

    assert np.array_equal(gt.jit(gt.grad(root))(np.array([4.0, -1.0, 0.0])), [0.25, 1.0, 1.0])


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x[x > 0],
        lambda x: len(x[x > 0]),
        lambda x: x[x > 0].shape,
        lambda x: np.sort(x[x > 0]),
        lambda x: x[x > 0] + x,
        lambda x: x[x > 0] * x[x > 1],
        lambda x: x[x > 0][0],
        lambda x: list(x[x > 0]),
        lambda x: np.asarray(x[x > 0]),
        lambda x: np.linalg.norm(x[x > 0]),
    ],
)
def test_what_depends_on_how_many_they_are_is_refused(function: Function) -> None:
    with pytest.raises(errors.UnsupportedFunctionError, match="traced mask"):
        gt.jit(function)(X)


def test_arrays_are_ndarrays_to_isinstance() -> None:
    seen = []

    def checked(x: Any) -> Any:
        y = np.zeros(2)
        seen.append([isinstance(v, np.ndarray) for v in (x, x[0], y)])
        y[0] = x[0]
        seen.append([isinstance(y, np.ndarray), isinstance(y, gt.Array), type(y) is gt.Array])
        if not isinstance(x, np.ndarray):
            x = np.array(x)
        return np.sum(x * y[0])

    np.testing.assert_allclose(gt.jit(checked)(X), checked(X))
    assert seen[:2] == [[True] * 3, [True] * 3]
    assert isinstance(gt.constant(X), np.ndarray) and not isinstance(gt.constant(X), list | float)


@pytest.mark.parametrize(
    "combine",
    [
        lambda c, s: c * s,
        lambda c, s: c / s,
        lambda c, s: c - s,
        lambda c, s: s * c + c,
        lambda c, s: c**s,
        lambda c, s: (c > s) * s,
        lambda c, s: np.multiply(c, s) + np.arctan2(c, s),
        lambda c, s: np.where(s > c, c, s),
    ],
)
def test_traced_numbers_stand_on_either_side_of_what_a_mask_selects(combine: Function) -> None:
    def f(x: Any, c: Any) -> Any:
        m = x > 0.5
        y = np.zeros_like(x)
        y[m] = combine(c, x[m])
        return np.sum(y * x)

    jitted, gradient = gt.jit(f), gt.grad(f, argnums=1)
    for c in (0.8, 1.7):
        np.testing.assert_allclose(jitted(X, c), f(X, c))
        np.testing.assert_allclose(gradient(X, c), (f(X, c + 1e-6) - f(X, c - 1e-6)) / 2e-6, atol=1e-7)
        held = gt.jit(lambda x, c=c: f(x, c))
        np.testing.assert_allclose(held(X), f(X, c))
        assert held.site.traces == 1
