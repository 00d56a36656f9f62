"""What a selection did not take never reaches the result, whatever moves or adds up elements in between: 0 * inf does not arise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as gt

X = np.array([1.0, 0.0, 4.0, 0.0])
PICK = np.array([2, 1, 0, 3, 2, 1])
WEIGHTS = np.arange(1.0, 5.0)


def root(x: Any) -> Any:
    return np.sqrt(x) * WEIGHTS


def chosen(x: Any, moved: Callable[[Any], Any]) -> Any:
    """Return the sum of what is moved of the root where the same of x is positive."""
    return np.sum(np.where(moved(x) > 0, moved(root(x)), 0.0))


MOVES: dict[str, Callable[[Any], Any]] = {
    "nothing": lambda x: x,
    "reshape": lambda x: x.reshape(2, 2),
    "reshape there and back": lambda x: x.reshape(4, 1).reshape(4),
    "reshape twice": lambda x: x.reshape(2, 2).reshape(1, 4),
    "transpose": lambda x: x.reshape(2, 2).T,
    "reverse": lambda x: x[::-1],
    "slice": lambda x: x[1:],
    "every other": lambda x: x[::2],
    "one": lambda x: x[1],
    "new axis": lambda x: x[:, None],
    "broadcast": lambda x: x * np.ones((3, 1)),
    "broadcast of a column": lambda x: x[:, None] * np.ones(3),
    "stack": lambda x: np.stack([x, x]),
    "concatenate": lambda x: np.concatenate([x, x[1:]]),
    "roll": lambda x: np.roll(x, 1),
    "repeat": lambda x: np.repeat(x, 2),
    "tile": lambda x: np.tile(x, 2),
    "pad": lambda x: np.pad(x, 1),
    "gather": lambda x: x[PICK],
    "rows": lambda x: x.reshape(2, 2)[np.array([1, 0, 1])],
    "split": lambda x: np.concatenate(np.split(x, 2)[::-1]),
    "loop": lambda x: np.stack([x[k] for k in range(4)]),
}


@pytest.mark.parametrize("jit", [True, False])
@pytest.mark.parametrize("name", MOVES)
def test_a_mask_moves_with_its_elements(name: str, jit: bool) -> None:
    moved = MOVES[name]
    with gt.config.override(jit=jit):
        found = gt.grad(lambda x: chosen(x, moved))(X)
    counts = np.bincount(np.ravel(moved(np.arange(1.0, 5.0))).astype(int), minlength=5)[1:]
    slopes = np.divide(WEIGHTS, 2 * np.sqrt(X), out=np.zeros(4), where=X > 0)
    np.testing.assert_allclose(found, counts * slopes)


@pytest.mark.parametrize("name", ["reshape", "broadcast", "gather", "slice"])
def test_derivatives_of_any_kind_are_cut(name: str) -> None:
    moved = MOVES[name]

    def f(x: Any) -> Any:
        return chosen(x, moved)

    slope = gt.grad(f)(X)
    assert np.isfinite(slope).all()
    np.testing.assert_allclose(gt.jacfwd(f)(X), slope)
    curvature = gt.hessian(f)(X)
    assert np.isfinite(curvature).all()
    np.testing.assert_allclose(np.diag(curvature)[[0, 2]], -slope[[0, 2]] / (2 * X[[0, 2]]))
    rows = gt.vmap(gt.grad(f))(np.stack([X, X[::-1]]))
    np.testing.assert_allclose(rows, [slope, gt.grad(f)(X[::-1])])
    with gt.GradientTape() as tape:
        x = tape.watch(X)
        y = f(x)
    np.testing.assert_allclose(tape.gradient(y, x).numpy(), slope)


def test_a_sum_that_is_not_chosen() -> None:
    f = gt.grad(lambda x: np.where(np.min(x) > 0, np.sum(root(x)), 2.0 * x[0]))
    np.testing.assert_array_equal(f(X), [2.0, 0.0, 0.0, 0.0])
    g = gt.grad(lambda x: np.sum(np.where(x > 0, np.mean(np.sqrt(x * X)), 0.0) * 0.0))
    assert np.isfinite(g(X)[[0, 2]]).all()


def test_what_is_chosen_somewhere_counts() -> None:
    """Where one of the elements that are added up was chosen, an infinite slope is infinite."""
    f = gt.grad(lambda x: np.sum(np.where(np.array([[False], [True]]), np.sqrt(x) * np.ones((2, 1)), 0.0)))
    np.testing.assert_array_equal(f(X), [0.5, np.inf, 0.25, np.inf])
    g = gt.grad(lambda x: np.sum(np.where(np.arange(6) > 2, np.sqrt(x)[PICK], 0.0)))
    np.testing.assert_array_equal(g(X), [0.0, np.inf, 0.25, np.inf])


def test_a_zero_that_is_no_selection_stays_an_ordinary_zero() -> None:
    """Otherwise second derivatives at a minimum would vanish."""

    def f(x: Any) -> Any:
        return np.sum((np.where(x > 0, x, 0.0).reshape(2, 2) - np.array([[1.0, 0.0], [4.0, 0.0]])) ** 2)

    np.testing.assert_array_equal(gt.grad(f)(X), np.zeros(4))
    np.testing.assert_array_equal(gt.hessian(f)(X), np.diag([2.0, 0.0, 2.0, 0.0]))


def test_masks_of_what_is_added_up_cost_nothing_where_nobody_asks() -> None:
    """The bias of a layer is broadcast: its gradient is a sum of what a selection cut, and no mask is added up for it."""

    def layer(w: Any, b: Any, x: Any) -> Any:
        return np.sum(np.maximum(x @ w + b, 0.0) ** 2)

    text = str(gt.inspect.graph(gt.grad(layer, argnums=(0, 1)), np.ones((3, 4)), np.ones(4), np.ones((5, 3))))
    assert "reduce_sum" in text
    assert "reduce_any" not in text
