"""Tangents that are zero by selection, through matrix products, decompositions and sums: forward mode agrees with reverse mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as gt

X = np.array([0.3, 0.7, 1.2, 0.9])
A = np.vander(np.linspace(0.0, 3.0, 4), 2)
B = np.array([1.0, 3.0, 2.0, 5.0])


def _weighted_fit(p: Any) -> Any:
    return np.polyfit(A[:, 0], B, 1, w=p)


def _scaled_least_squares(p: Any) -> Any:
    return np.linalg.lstsq(A * p[:, None], B * p, rcond=1e-12)[0] / p[:2]


def _scaled_columns(p: Any) -> Any:
    weighted = A * p[:, None]
    scale = np.sqrt((weighted * weighted).sum(axis=0))
    return np.linalg.pinv(weighted / scale) @ B / scale


def _solution_over_a_root(p: Any) -> Any:
    return np.linalg.solve(np.outer(p[:2], p[2:]) + np.eye(2), np.sqrt(p[:2])) / np.sqrt(p[2:])


def _chain_of_products(p: Any) -> Any:
    m = np.sqrt(np.outer(p, p))
    return -(m @ (m @ np.sqrt(p) - p)) + np.cumsum(np.sqrt(p))


def _sums_and_joins(p: Any) -> Any:
    parts = np.concatenate([np.sqrt(p[:2]), -np.sqrt(p[1:]).sum(keepdims=True)])
    return (parts[:, None] * parts).sum(axis=0) / np.sqrt(p[:3])


def _eigenvalues(p: Any) -> Any:
    return np.linalg.eigvalsh(np.outer(np.sqrt(p), np.sqrt(p)) + np.diag(np.arange(4.0))) * np.sqrt(p)


def _recurrence(p: Any) -> Any:
    state = np.sqrt(p[:2])
    for k in range(20):
        state = np.sqrt(state) * p[k % 2] - 0.1 * (A[:2] @ state) + p[2:]
        state = np.abs(state) + 0.1
    return state


@pytest.mark.parametrize("loops", ["trace", "compile"])
@pytest.mark.parametrize(
    "function",
    [
        _weighted_fit,
        _scaled_least_squares,
        _scaled_columns,
        _solution_over_a_root,
        _chain_of_products,
        _sums_and_joins,
        _eigenvalues,
        _recurrence,
    ],
)
def test_forward_mode_agrees_with_reverse_mode(function: Callable[[Any], Any], loops: Any) -> None:
    with gt.config.override(loops=loops):
        reverse = gt.jacrev(function)(X)
        step = 1e-6
        differences = [(function(X + step * e) - function(X - step * e)) / (2 * step) for e in np.eye(4)]
        np.testing.assert_allclose(reverse, np.stack(differences, axis=-1), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(gt.jacfwd(function)(X), reverse, rtol=1e-9, atol=1e-9)
        columns = [gt.jvp(function, (X,), (e,))[1] for e in np.eye(4)]
        np.testing.assert_allclose(np.stack(columns, axis=-1), reverse, rtol=1e-9, atol=1e-9)


SQUARES: dict[str, Callable[[Any], Any]] = {
    "x * x": lambda x: x * x,
    "a cube": lambda x: x * x * x,
    "dot": lambda x: np.dot(x, x),
    "matmul": lambda x: x @ x,
    "inner": lambda x: np.inner(x, x),
    "vdot": lambda x: np.vdot(x, x),
    "einsum": lambda x: np.einsum("i,i->", x, x),
    "a sum of squares": lambda x: np.sum(x * x),
}


@pytest.mark.parametrize("name", list(SQUARES))
def test_columns_of_jacobians_do_not_multiply_zeros_by_infinities(name: str) -> None:
    x = np.array([1.0, np.inf, -3.0])
    with np.errstate(all="ignore"):
        backward, forward = (gt.jacobian(SQUARES[name], mode=mode)(x) for mode in ("rev", "fwd"))
    assert not np.isnan(backward).any()
    np.testing.assert_array_equal(forward, backward)
