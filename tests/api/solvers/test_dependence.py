"""Solutions whose active constraints depend on each other: the derivatives are those of the program without the dependent ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.optimize as so
import scipy.sparse

import gradtape as gt
from gradtape.api.nlp import ipopt
from gradtape.api.solvers.dependence import without_dependence
from gradtape.errors import GradtapeWarning

needs_ipopt = pytest.mark.skipif(
    ipopt.library() is None, reason="IPOPT is not installed (pip install gradtape[ipopt])"
)
follows = pytest.mark.filterwarnings("ignore:gt.nlp. constraint .* follows:gradtape.errors.GradtapeWarning")


@pytest.mark.parametrize("kind", [np.asarray, scipy.sparse.csr_array])
@pytest.mark.parametrize(
    ("count", "width", "rank"), [(6, 9, 6), (9, 6, 6), (8, 12, 5), (40, 60, 25), (3, 2, 0), (3, 0, 0)]
)
def test_rows_that_follow_from_others(kind: Any, count: int, width: int, rank: int) -> None:
    random = np.random.default_rng(count)
    rows = random.normal(size=(count, rank)) @ random.normal(size=(rank, width))
    stays = np.arange(count) < rank
    multipliers = random.normal(size=count)
    left, shortest = without_dependence(kind(rows), multipliers, stays)
    assert np.count_nonzero(left) == count - rank
    assert not (left & stays).any()
    assert np.linalg.matrix_rank(rows[~left]) == rank
    np.testing.assert_allclose(rows.T @ shortest, rows.T @ multipliers, atol=1e-9)
    norms = np.maximum(np.linalg.norm(rows, axis=1), float(rank == 0))
    expected = np.linalg.lstsq((rows / norms[:, None]).T, rows.T @ multipliers, rcond=1e-10)[0] / norms
    np.testing.assert_allclose(shortest, expected, atol=1e-8)


def test_long_chains_of_independent_rows_stay() -> None:
    """The smallest singular value of differences falls with their number."""
    count = 3000
    rows = scipy.sparse.diags_array(
        [np.ones(count), -np.ones(count)], offsets=[0, 1], shape=(count, count + 1)
    ).tocsr()
    assert not without_dependence(rows, np.ones(count), np.ones(count, bool))[0].any()
    doubled = scipy.sparse.vstack([rows, 3 * rows[:40]]).tocsr()
    left, _ = without_dependence(doubled, np.ones(count + 40), np.ones(count + 40, bool))
    assert np.count_nonzero(left) == 40


def nearest(p: Any, doubled: bool) -> Any:
    """The nearest point to the parameters on a circle and a plane; doubled: each as two equations."""

    def equations(x: Any) -> Any:
        circle, plane = x[0] ** 2 + x[1] ** 2 - p[0], x[0] + x[2] - 0.3 * p[1]
        rows = [circle, plane, circle * (2 + x[1]), np.exp(plane) - 1]
        return np.stack(rows if doubled else rows[:2])

    return gt.nlp(
        lambda x: np.sum((x[:3] - p) ** 2) + np.sin(x[0] * x[1]) + np.sum((x[3:] - x[0] * x[1]) ** 2),
        np.array([1.0, 1.0, 0.0, 0.0, 0.0]),
        constraints={"type": "eq", "fun": equations},
        solver="ipopt",
        tol=1e-10,
    )


WAYS: dict[str, Callable[..., Any]] = {
    "reverse": gt.jacrev,
    "forward": gt.jacfwd,
    "compiled": lambda f: gt.jit(gt.jacobian(f)),
    "second order": lambda f: gt.jacfwd(gt.jacrev(f)),
    "mapped": lambda f: lambda p: gt.vmap(gt.jacobian(f))(np.stack([p, 1.1 * p])),
}


@needs_ipopt
@follows
@pytest.mark.parametrize("way", WAYS)
def test_equations_that_are_given_twice(way: str) -> None:
    at = np.array([2.0, 1.0, 0.4])
    derivative = WAYS[way]
    found = derivative(lambda p: nearest(p, doubled=True).x)(at)
    expected = derivative(lambda p: nearest(p, doubled=False).x)(at)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7)
    assert np.max(np.abs(expected)) > 0.1


@needs_ipopt
def test_dependent_constraints_are_named() -> None:
    with pytest.warns(GradtapeWarning, match=r"element \d \(and 1 more\) follows") as caught:
        gt.jacobian(lambda p: nearest(p, doubled=True).x)(np.array([2.0, 1.0, 0.4]))
    assert "multipliers are not unique" in str(caught[0].message)


@needs_ipopt
@follows
def test_a_sparse_program_with_equations_that_are_given_twice() -> None:
    count = 300

    def total(p: Any, doubled: bool) -> Any:
        def steps(x: Any) -> Any:
            rows = x[1:] - x[:-1] - p * np.cos(x[:-1]) / count
            first = x[:1] - 0.1 * p
            return np.concatenate([rows, first, *([2 * rows[3:9] + rows[:6], first] if doubled else [])])

        rows = {"type": "eq", "fun": lambda x: steps(x[:count])}

        def cost(x: Any) -> Any:
            return np.sum(x**2) + np.sum((x[count:] - x[20:40]) ** 2)

        return np.sum(gt.nlp(cost, np.zeros(count + 20), constraints=rows, solver="ipopt").x)

    for derivative in (gt.grad, lambda f: gt.grad(gt.grad(f))):
        found, expected = [
            derivative(lambda p, doubled=doubled: total(p, doubled))(0.7) for doubled in (True, False)
        ]
        np.testing.assert_allclose(found, expected, rtol=1e-6)


@needs_ipopt
@follows
def test_a_constraint_that_repeats_a_bound() -> None:
    def best(p: Any) -> Any:
        beside = {"type": "ineq", "fun": lambda x: np.stack([2 * p - 2 * x[0], p + 5 - x[1]])}
        return gt.nlp(
            lambda x: np.sum((x - 3.0) ** 2) + x[0] * x[1],
            np.zeros(2),
            constraints=beside,
            bounds=(-10.0, np.stack([p, 10.0])),
            solver="ipopt",
            tol=1e-10,
        ).x

    np.testing.assert_allclose(gt.jacobian(best)(0.5), [1.0, -0.5], rtol=1e-6)


def test_repeated_constraints_of_scipy() -> None:
    def best(p: Any) -> Any:
        rows = {"type": "ineq", "fun": lambda x: np.stack([p - x[0] - x[1], 2 * p - 2 * x[0] - 2 * x[1]])}
        return so.minimize(
            lambda x: np.sum((x - 3.0) ** 2 * np.array([1.0, 2.0])),
            np.zeros(2),
            constraints=rows,
            method="SLSQP",
        ).x

    np.testing.assert_allclose(gt.jacobian(best)(0.5), [2 / 3, 1 / 3], rtol=1e-5)
    np.testing.assert_allclose(gt.jit(gt.jacobian(best))(0.5), [2 / 3, 1 / 3], rtol=1e-5)


@needs_ipopt
def test_solutions_that_are_not_unique_have_no_derivative() -> None:
    def best(p: Any) -> Any:
        rows = {"type": "eq", "fun": lambda x: x[0] + x[1] - p}
        return gt.nlp(lambda x: (x[0] + x[1]) ** 2, np.ones(2), constraints=rows, solver="ipopt").x

    with pytest.raises(gt.errors.SingularJacobianError, match="singular at the solution"):
        gt.jacobian(best)(0.5)
