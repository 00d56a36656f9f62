"""NumPy code in place of SciPy's compiled routines: batches, edges, and calls that no traced array reaches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.cluster.hierarchy as hierarchy
import scipy.interpolate as interpolate
import scipy.spatial as spatial
import scipy.spatial.distance as distance
from scipy.spatial.transform import Rotation

import gradtape as gt
from tests.support.differences import gradient_by_differences

X = np.array([0.0, 0.7, 1.52, 2.13, 3.0, 3.6])
Y = np.sin(X) + 0.3 * X + 0.1
POINTS = np.random.default_rng(0).uniform(size=(8, 2))

BATCHES: dict[str, Callable[[Any], Any]] = {
    "CubicSpline": lambda y: interpolate.CubicSpline(X, y)(1.1),
    "BSpline": lambda y: interpolate.make_interp_spline(X, y)(np.array([0.3, 2.2])),
    "PPoly, points": lambda q: interpolate.CubicSpline(X, Y)(q),
    "interp1d": lambda y: interpolate.interp1d(X, y)(1.1),
    "cdist": lambda y: distance.cdist(y.reshape(3, 2), POINTS),
    "Rotation": lambda y: Rotation.from_rotvec(y[:3]).apply(y[3:]),
}


@pytest.mark.parametrize("function", BATCHES.values(), ids=BATCHES)
def test_batches(function: Callable[[Any], Any]) -> None:
    batch = np.stack([Y, Y[::-1] * 0.5, Y**2])
    expected = np.stack([function(y) for y in batch])
    np.testing.assert_allclose(gt.vmap(function)(batch), expected, rtol=1e-10, atol=1e-12)


def test_points_at_the_ends_outside_and_without_elements() -> None:
    points = np.array([0.0, 3.6, -0.5, 4.0, 0.7, np.nan])
    for spline in (
        interpolate.CubicSpline(X, Y, extrapolate=False),
        interpolate.CubicSpline(X, Y),
        interpolate.BPoly(np.ones((2, 5)), X),
        interpolate.make_interp_spline(X, Y),
        interpolate.BSpline(np.arange(9.0) - 2.5, Y[:6], 2, extrapolate=False),
        interpolate.PPoly(np.ones((2, 5)), X[::-1]),
    ):
        np.testing.assert_allclose(gt.jit(spline)(points), spline(points), rtol=1e-9, atol=1e-12)
        assert gt.jit(spline)(np.zeros(0)).shape == (0,)


def test_roots_have_derivatives_on_tapes() -> None:
    def roots(y: Any) -> Any:
        return interpolate.CubicSpline(X, y - 0.8).roots(extrapolate=False)

    with gt.GradientTape(persistent=True) as tape:
        y = tape.watch(Y)
        found = roots(y)
        first = found[0]
    np.testing.assert_allclose(found, roots(Y))
    expected = gradient_by_differences(lambda y: roots(y)[0], Y)
    np.testing.assert_allclose(tape.gradient(first, y), expected, rtol=1e-5, atol=1e-8)
    with pytest.raises(gt.errors.UnsupportedFunctionError, match="solutions"):
        gt.jit(roots)(Y)


def test_a_root_where_pieces_jump_moves_with_the_breakpoint() -> None:
    pieces = np.array([[1.0, 1.0], [-0.3, -0.8], [-0.1, -0.1]])

    def roots(breaks: Any) -> Any:
        return interpolate.PPoly(pieces * 1.0, breaks).roots()

    breaks = np.array([0.0, 1.0, 2.0])
    with gt.GradientTape() as tape:
        watched = tape.watch(breaks)
        found = roots(watched)
        second = found[2]
    np.testing.assert_allclose(found, roots(breaks), rtol=1e-12)
    np.testing.assert_allclose(tape.gradient(second, watched), [0.0, 1.0, 0.0])


@pytest.mark.parametrize("kind", ["polynomial", "rational"])
def test_barycentric_interpolants_have_derivatives_at_their_nodes(kind: str) -> None:
    points = np.array([0.7, 1.0, 3.6, 3.1])

    def interpolated(x: Any, y: Any, q: Any) -> Any:
        made = (
            interpolate.BarycentricInterpolator(x, y)
            if kind == "polynomial"
            else interpolate.FloaterHormannInterpolator(x, y, d=2)
        )
        return np.sum(made(q) * np.array([1.0, 2.0, -0.7, 0.4]))

    given = (X, Y, points)
    value, slopes = gt.value_and_grad(interpolated, argnums=(0, 1, 2))(*given)
    np.testing.assert_allclose(value, interpolated(*given), rtol=1e-12)
    for k, slope in enumerate(slopes):
        expected = gradient_by_differences(
            lambda a, k=k: interpolated(*given[:k], a, *given[k + 1 :]), given[k]
        )
        np.testing.assert_allclose(slope, expected, rtol=1e-5, atol=1e-7)


def test_neighbours_and_simplices_are_constant_on_tapes() -> None:
    queries = np.array([[0.4, 0.5], [0.6, 0.3]])
    heights = POINTS[:, 0] ** 2
    functions: tuple[Callable[[Any], Any], ...] = (
        lambda q: np.sum(spatial.KDTree(POINTS).query(q, k=2)[0]),
        lambda q: np.sum(spatial.KDTree(q * 1.0).query(POINTS)[0]),
        lambda q: np.sum(interpolate.LinearNDInterpolator(POINTS, heights)(q)),
    )
    for function in functions:
        with gt.GradientTape() as tape:
            q = tape.watch(queries)
            value = function(q)
        np.testing.assert_allclose(value, function(queries))
        expected = gradient_by_differences(function, queries)
        np.testing.assert_allclose(tape.gradient(value, q), expected, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize(
    "method", ["single", "complete", "average", "weighted", "ward", "centroid", "median"]
)
def test_linkages_have_derivatives_on_tapes(method: str) -> None:
    def heights(points: Any) -> Any:
        joined = hierarchy.linkage(points, method)
        return np.sum(joined[:, 2] * np.arange(1.0, 8.0)) + np.sum(hierarchy.cophenet(joined))

    with gt.GradientTape() as tape:
        points = tape.watch(POINTS)
        value = heights(points)
    np.testing.assert_allclose(value, heights(POINTS))
    expected = gradient_by_differences(heights, POINTS)
    np.testing.assert_allclose(tape.gradient(value, points), expected, rtol=1e-5, atol=1e-7)


def test_distances_of_equal_points_have_no_infinite_derivatives() -> None:
    points = np.array([[1.0, 2.0], [1.0, 2.0], [0.0, 0.0]])
    for metric in ("euclidean", "canberra", "minkowski", "jensenshannon"):
        gradient = gt.grad(lambda p, metric=metric: np.sum(distance.cdist(p[:2], p[:2], metric)))(points)
        assert np.isfinite(gradient).all()
    with pytest.raises(gt.errors.UnsupportedFunctionError, match="metric 'jaccard'"):
        gt.jit(lambda p: distance.cdist(p, p, "jaccard"))(points)


def test_objects_of_other_numbers_are_scipys_own() -> None:
    """In a recording compiled routines get ndarrays, and the results are the same bits."""
    spline = interpolate.CubicSpline(X, Y)
    plain = spline(1.1), distance.cdist(POINTS, POINTS), Rotation.from_rotvec([0.1, 0.2, 0.3]).as_quat()
    with gt.GradientTape() as tape:
        tape.watch(1.0)
        inside = spline(1.1), distance.cdist(POINTS, POINTS), Rotation.from_rotvec([0.1, 0.2, 0.3]).as_quat()
    for one, other in zip(plain, inside, strict=True):
        np.testing.assert_array_equal(one, other)
        assert not isinstance(other, gt.Array)
