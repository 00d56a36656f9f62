"""Sparse Jacobians by blocks: residuals of observations, which read their arguments by rows."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import gradtape as gt
from gradtape.errors import ArgumentError

CAMERAS, POINTS, COUNT = 4, 30, 60
RNG = np.random.default_rng(0)
SEEN = np.stack([np.arange(COUNT) % CAMERAS, np.arange(COUNT) % POINTS], axis=1)
CAMERA, POINT, WEIGHT = RNG.random((CAMERAS, 5)) + 0.5, RNG.random((POINTS, 3)) + 1, RNG.random(COUNT)


def residuals(unknowns: Any, seen: Any = SEEN) -> Any:
    cameras, points, weights = unknowns
    camera, point = cameras[seen[:, 0]], points[seen[:, 1]]
    moved = np.sqrt(np.abs(point * camera[:, 3:4] - camera[:, :3]))
    flat = moved[:, :2] / (1 + moved[:, 2:] ** 2) * np.exp(camera[:, 4:])
    return weights[:, None] * flat, 1 - weights**2


def joined(unknowns: Any) -> Any:
    first, second = residuals(unknowns)
    return np.concatenate([first.ravel(), second])


UNKNOWNS = CAMERA, POINT, WEIGHT


def dense(function: Any, unknowns: Any) -> Any:
    """Return the matrix by reverse mode, row by row of all results."""

    def flat(unknowns: Any) -> Any:
        found = function(unknowns)
        return np.concatenate([np.ravel(each) for each in (found if isinstance(found, tuple) else (found,))])

    parts = gt.jacobian(flat)(unknowns)
    return np.concatenate([part.reshape(part.shape[0], -1) for part in parts], axis=1)


@pytest.mark.parametrize("function", [residuals, joined])
def test_blocks_have_the_values_of_dense_matrices(function: Any) -> None:
    jac = gt.sparse_jacobian(function)
    found = jac(UNKNOWNS)
    assert repr(jac.plan(UNKNOWNS)).endswith("products: 1 of columns of blocks and 2 of rows of blocks>")
    np.testing.assert_allclose(found.toarray(), dense(function, UNKNOWNS), rtol=1e-12, atol=1e-14)
    coloured = gt.sparse_jacobian(function, mode="fwd")(UNKNOWNS)
    assert np.array_equal(found.indices, coloured.indices) and np.array_equal(found.indptr, coloured.indptr)


def test_each_array_of_results_has_blocks_of_its_own() -> None:
    def mixed(unknowns: Any) -> Any:
        cameras, points, weights = unknowns
        camera, point = cameras[SEEN[:, 0]], points[SEEN[:, 1]]
        powers = np.exp(-weights[:, None] * np.arange(1.0, 5.0))
        return np.tanh(camera @ np.ones((5, 2))) * np.sum(point, axis=1)[:, None], powers

    jac = gt.sparse_jacobian(mixed)
    plan = jac.plan(UNKNOWNS)
    assert repr(plan).endswith("products: 1 of columns of blocks and 2 of rows of blocks>")
    np.testing.assert_allclose(jac(UNKNOWNS).toarray(), dense(mixed, UNKNOWNS), rtol=1e-12, atol=1e-14)
    rows = plan.rows()
    expected = np.where(rows < 2 * COUNT, rows % 2, 2)
    assert np.array_equal(gt.inspect.sparsity(jac, UNKNOWNS).colours, expected)


def test_index_arrays_that_change_have_patterns_of_their_own() -> None:
    jac = gt.sparse_jacobian(residuals)
    for seen in (SEEN, SEEN[::-1].copy(), SEEN):
        expected = dense(lambda unknowns, seen=seen: residuals(unknowns, seen), UNKNOWNS)
        np.testing.assert_allclose(jac(UNKNOWNS, seen).toarray(), expected, rtol=1e-12, atol=1e-14)


def test_a_row_that_reads_an_element_twice() -> None:
    """Its derivative is a sum, which is not read from one place."""
    ends = np.stack([np.arange(40) % 20, (np.arange(40) * 7) % 20], axis=1)
    assert np.any(ends[:, 0] == ends[:, 1])

    def springs(x: Any) -> Any:
        a, b = x[ends[:, 0]], x[ends[:, 1]]
        return np.sum((a - 2 * b) ** 2 * np.arange(1.0, 5.0), axis=1)

    x = RNG.random((20, 4))
    np.testing.assert_allclose(
        gt.sparse_jacobian(springs)(x).toarray(), gt.jacobian(springs)(x).reshape(40, -1), rtol=1e-12
    )


def test_zeros_of_seeds_are_zero_by_selection() -> None:
    """Slopes that are infinite where another row or column is meant are not multiplied by zero."""
    point = POINT.copy()
    camera = CAMERA.copy()
    camera[0, :3], point[0] = 0.0, 0.0  # np.sqrt(0) in row 0

    def rooted(unknowns: Any) -> Any:
        cameras, points = unknowns
        c, p = cameras[SEEN[:, 0]], points[SEEN[:, 1]]
        root = np.sqrt(np.sum(c[:, :3], axis=1) + np.sum(p, axis=1)) * c[:, 4]
        return np.stack([root, np.sum(c, axis=1) * np.sum(p, axis=1)], axis=1)

    with np.errstate(all="ignore"):
        found = gt.sparse_jacobian(rooted)((camera, point))
        rows = gt.sparse_jacobian(rooted, mode="rev")((camera, point))
    assert "of blocks" in repr(gt.sparse_jacobian(rooted).plan((camera, point)))
    assert np.isinf(found.data).any() and not np.isnan(found.data).any()
    np.testing.assert_array_equal(found.toarray(), rows.toarray())


def test_second_derivatives_of_elements() -> None:
    jac = gt.sparse_jacobian(residuals)

    def size(unknowns: Any) -> Any:
        return np.sum(jac.elements(unknowns) ** 2)

    coloured = gt.sparse_jacobian(residuals, mode="fwd")
    expected = gt.grad(lambda unknowns: np.sum(coloured.elements(unknowns) ** 2))(UNKNOWNS)
    for found in (gt.grad(size)(UNKNOWNS), gt.jit(gt.grad(size))(UNKNOWNS)):
        for mine, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(mine, other, rtol=1e-10)
    with gt.GradientTape() as tape:
        weights = tape.watch(WEIGHT)
        target = size((CAMERA, POINT, weights))
    np.testing.assert_allclose(tape.gradient(target, weights), expected[2], rtol=1e-10)
    pushed = gt.jvp(size, (UNKNOWNS,), (UNKNOWNS,))[1]
    np.testing.assert_allclose(
        pushed, sum(np.sum(g * x) for g, x in zip(expected, UNKNOWNS, strict=True)), rtol=1e-10
    )


def test_batches_of_unknowns() -> None:
    jac = gt.sparse_jacobian(residuals)
    weights = np.stack([WEIGHT, 2 * WEIGHT])
    found = gt.vmap(lambda weights: jac.elements((CAMERA, POINT, weights)))(weights)
    for row, each in zip(found, weights, strict=True):
        np.testing.assert_allclose(row, jac((CAMERA, POINT, each)).data, rtol=1e-12)


def test_single_precision_and_several_arguments() -> None:
    jac = gt.sparse_jacobian(lambda c, p, w: residuals((c, p, w)), argnums=(0, 1, 2))
    single = [each.astype(np.float32) for each in UNKNOWNS]
    expected = dense(residuals, UNKNOWNS)
    at = np.cumsum([0, CAMERA.size, POINT.size, WEIGHT.size])
    for k, found in enumerate(jac(*single)):
        assert found.dtype == np.float32
        np.testing.assert_allclose(found.toarray(), expected[:, at[k] : at[k + 1]], rtol=2e-4, atol=1e-4)


def test_plans_by_blocks_are_pickled() -> None:
    plan = pickle.loads(pickle.dumps(gt.sparse_jacobian(residuals).plan(UNKNOWNS)))
    again = gt.sparse_jacobian(lambda unknowns: tuple(3 * each for each in residuals(unknowns)), pattern=plan)
    np.testing.assert_allclose(
        again(UNKNOWNS).toarray(), 3 * dense(residuals, UNKNOWNS), rtol=1e-12, atol=1e-14
    )
    mixed = gt.sparse_jacobian(
        lambda unknowns: tuple(np.cumsum(each, axis=0) for each in residuals(unknowns)), pattern=plan
    )
    with pytest.raises(ArgumentError, match="plan by blocks"):
        mixed(UNKNOWNS)
