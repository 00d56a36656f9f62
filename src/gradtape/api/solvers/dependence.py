"""Which active constraints follow from others: they do not take part in the derivative of a solution."""

from __future__ import annotations

import importlib
from typing import Any, Final

import numpy as np

ZERO: Final = 1e-8
"""Singular values up to which rows of length one are dependent: a solver meets nonlinear constraints to about this."""

SHIFT: Final = 1e-12
ROUNDS: Final = 5
"""Of the inverse iteration; each multiplies what belongs to a singular value s by ``1 / (s**2 + SHIFT)``."""

APART: Final = 1e-5
"""Singular values from which on the inverse iteration tells those of independent rows from zero."""

FIRST: Final = 1e3
"""By how much rows are more likely to be left out than those that should stay."""


def without_dependence(rows: Any, multipliers: Any, stays: Any) -> tuple[Any, Any]:
    """Return which rows of a matrix follow from its other rows, and the shortest multipliers that have the same product with it.

    Parameters
    ----------
    rows : array or sparse matrix, m times n
        The gradients of constraints.
    multipliers : array, m
        Of the rows. A solver may return large ones that cancel each other.
    stays : array of bool, m
        Rows that are left in where there is a choice.

    Returns
    -------
    array of bool, m
        The rows without which the others are independent and span the same space.
    array, m
        The multipliers, shortest where rows have length one.

    Examples
    --------
    >>> rows, stays = np.array([[1.0, 1.0], [2.0, 2.0], [0.0, 1.0]]), np.array([False, True, True])
    >>> left, multipliers = without_dependence(rows, np.array([201.0, -100.0, 5.0]), stays)
    >>> print(left, multipliers.round(3))
    [ True False False] [0.5  0.25 5.  ]
    """
    left = np.zeros(rows.shape[0], bool)
    is_dense = isinstance(rows, np.ndarray)
    norms = np.linalg.norm(rows, axis=1) if is_dense else np.sqrt((rows * rows).sum(axis=1))
    norms = np.where(norms > 0, norms, 1.0)
    combinations = _dense(rows / norms[:, None])[0] if is_dense else _sparse(rows, norms)
    if len(combinations):
        linalg: Any = importlib.import_module("scipy.linalg")
        weighed = combinations * np.where(stays, 1.0, FIRST)
        left[linalg.qr(weighed, mode="r", pivoting=True)[1][: len(combinations)]] = True
        scaled = multipliers * norms
        multipliers = (scaled - combinations.T @ (combinations @ scaled)) / norms
    return left, multipliers


def _dense(rows: Any) -> tuple[Any, float]:
    """Return the orthogonal combinations of rows that are zero, and the largest singular value."""
    _, sizes, turns = np.linalg.svd(np.linalg.qr(rows.T, mode="r"))
    return turns[np.pad(sizes, (0, len(rows) - len(sizes))) <= ZERO], float(np.max(sizes, initial=0.0))


def _sparse(rows: Any, norms: Any) -> Any:
    """Return the orthogonal combinations of rows over norms that are zero, by inverse iteration with ``A @ A.T``, which is not formed."""
    sparse: Any = importlib.import_module("scipy.sparse")
    linalg: Any = importlib.import_module("scipy.sparse.linalg")
    count, width = rows.shape
    scaled = sparse.diags_array(1 / norms) @ rows
    identity = sparse.eye_array
    whole = sparse.block_array([[identity(width), scaled.T], [scaled, -SHIFT * identity(count)]])
    factors = linalg.splu(whole.tocsc())
    random = np.random.default_rng(0)
    tried = 4
    while True:
        tried = min(tried, count)
        basis = random.normal(size=(count, tried))
        for _ in range(ROUNDS):
            padded = np.concatenate([np.zeros((width, tried)), np.linalg.qr(basis)[0]])
            basis = factors.solve(padded)[width:]
        basis = np.linalg.qr(basis)[0].T
        found, largest = _dense(basis @ scaled)
        if largest > APART or tried == count:
            return found @ basis
        tried *= 4
