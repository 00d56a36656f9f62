"""Functions of NumPy on arrays whose extents are known when the code runs."""

import numpy as np
import pytest

from gradtape.errors import UnsupportedFunctionError
from tests.support.array_programs import check, procedure_of

X = np.random.default_rng(4).normal(size=9)
A = np.random.default_rng(5).normal(size=(7, 8))


@pytest.mark.parametrize("n", [1, 2, 6])
@pytest.mark.parametrize(
    "call",
    [
        lambda x, n: x[:n].sum() + x[-n:].mean() + np.prod(x[n:]) + x[:n].var(),
        lambda x, n: np.max(x[:n]) + np.min(x[n:]) + np.argmax(x[:n]) + np.argmin(x[n:]),
        lambda x, n: np.sum(np.cumsum(x[:n]) * np.cumprod(x[:n])),
        lambda x, n: np.dot(x[:n], x[1 : n + 1]) + np.vdot(x[:n], x[:n]) + np.linalg.norm(x[n:]),
        lambda x, n: np.sum(np.outer(x[:n], x) ** 2),
        lambda x, n: np.sum(np.concatenate((x[:n], x[n:], x[:n])) * np.concatenate((x[n:], x[:n], x[:n]))),
        lambda x, n: np.sum(np.flip(x[:n]) * x[:n]) + np.sum(np.roll(x[:n], 1) * x[:n]),
        lambda x, n: np.sum(np.roll(x, n) * np.arange(9.0)),
        lambda x, n: np.sum(np.repeat(x, n) ** 2) + np.sum(np.diff(x[:n]) ** 2),
        lambda x, n: np.sum(np.tile(x[:n], 2) ** 3),
        lambda x, n: np.sum(np.where(x[:n] > 0, x[:n], 0.0)) + np.clip(x[:n], -0.5, 0.5).sum(),
        lambda x, n: np.einsum("i,i->", x[:n], x[:n]) + np.any(x[:n] > 1) + np.all(x[:n] > -3),
        lambda x, n: np.sum(x[:n][::-1] * x[:n]) + x[n - 1] + x[-n],
        lambda x, n: np.sum(x[: n + 2].reshape(1, -1) @ x[: n + 2].reshape(-1, 1)),
    ],
)
def test_vectors(call, n):
    check(call, X, n)


@pytest.mark.parametrize("n", [1, 3, 7])
@pytest.mark.parametrize(
    "call",
    [
        lambda a, n: np.sum(a[:n, :n] @ a[:n, 1 : n + 1]),
        lambda a, n: np.sum((a[:n].T @ a[:n, 0]) ** 2) + np.sum((a[:n] @ a[0]) ** 2),
        lambda a, n: np.sum(np.triu(a[:n, :n], 1) * 2 + np.tril(a[:n, :n])),
        lambda a, n: np.trace(a[:n, :n]) + np.sum(np.diagonal(a[:, :n], 1)),
        lambda a, n: np.sum(a[:n].max(axis=0) * a[:n].mean(axis=0)) + np.sum(a[:n].sum(axis=1) ** 2),
        lambda a, n: np.sum(np.stack([a[0, :n], a[1, :n]]) ** 2),
        lambda a, n: np.sum(a[n - 1 :: -1, ::2] ** 3),
        lambda a, n: np.sum(np.einsum("ij,kj->ik", a[:n], a[:n])),
        lambda a, n: np.sum(np.hstack((a[:, :n], a[:, n:])) * np.vstack((a[:n], a[n:]))),
    ],
)
def test_matrices(call, n):
    check(call, A, n)


def test_what_needs_a_static_shape_says_so():
    with pytest.raises(UnsupportedFunctionError, match="largest size"):
        procedure_of(lambda build, x, n: np.sort(x[:n]), X, 3)
