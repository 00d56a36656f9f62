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


QUERIES = np.array([[0.4, 0.5], [0.6, 0.3]])
HEIGHTS = POINTS[:, 0] ** 2


@pytest.mark.parametrize(
    "function",
    [
        lambda q: spatial.KDTree(POINTS).query(q, k=2)[0],
        lambda q: spatial.KDTree(POINTS).query(q[0], k=[1, 3], p=1)[0],
        lambda q: spatial.KDTree(q * 1.0).query(POINTS)[0],
        lambda q: interpolate.LinearNDInterpolator(POINTS, HEIGHTS)(q),
        lambda q: interpolate.griddata(POINTS, HEIGHTS, q, rescale=True) * q[:, 0],
        lambda q: interpolate.NearestNDInterpolator(POINTS, np.stack([HEIGHTS * q[0, 0], HEIGHTS], 1))(q),
        lambda q: interpolate.NearestNDInterpolator(q, q[:, 1], rescale=True)(POINTS),
        lambda q: interpolate.griddata(POINTS, HEIGHTS * q[0, 0], q, method="nearest"),
    ],
)
def test_neighbours_and_simplices_are_constant(function: Callable[[Any], Any]) -> None:
    def total(q: Any) -> Any:
        return np.sum(
            function(q) * np.cos(np.arange(np.size(function(QUERIES))).reshape(np.shape(function(QUERIES))))
        )

    with gt.GradientTape() as tape:
        q = tape.watch(QUERIES)
        value = total(q)
    expected = gradient_by_differences(total, QUERIES)
    for found, gradient in ((value, tape.gradient(value, q)), gt.value_and_grad(total)(QUERIES)):
        np.testing.assert_allclose(found, total(QUERIES))
        np.testing.assert_allclose(gradient, expected, rtol=1e-5, atol=1e-8)
    moved = QUERIES[::-1] * 1.1  # other neighbours
    np.testing.assert_allclose(gt.jit(total)(moved), total(moved))


def test_neighbours_within_a_distance() -> None:
    def found(q: Any) -> Any:
        return interpolate.NearestNDInterpolator(POINTS, HEIGHTS)(q, distance_upper_bound=0.1)

    near = np.concatenate([POINTS[:2] + 0.01, POINTS[:1] + 9.0])
    np.testing.assert_array_equal(gt.jit(found)(near), found(near))
    assert np.isnan(found(near)[2])


def test_counts_of_trees() -> None:
    def counts(q: Any) -> Any:
        tree, other = spatial.KDTree(q * 1.0), spatial.KDTree(POINTS)
        return [
            tree.count_neighbors(other, 0.5),
            len(tree.query_pairs(0.5)),
            len(other.query_ball_point(q[0], 0.5)),
        ]

    with gt.GradientTape() as tape:
        assert counts(tape.watch(QUERIES)) == counts(QUERIES)
        with pytest.raises(gt.errors.UnsupportedFunctionError, match="sparse_distance_matrix"):
            spatial.KDTree(tape.watch(QUERIES)).sparse_distance_matrix(spatial.KDTree(POINTS), 1.0)
    with pytest.raises(
        gt.errors.UnsupportedFunctionError, match="count_neighbors of a tree of traced arrays"
    ):
        gt.jit(counts)(QUERIES)


def test_code_that_cython_compiled_takes_no_arrays() -> None:
    for function in (
        lambda q: spatial.cKDTree(POINTS).query(q)[0],
        lambda q: spatial.cKDTree(q).query(POINTS)[0],
    ):
        with pytest.raises(gt.errors.UnsupportedFunctionError, match="KDTree in place of cKDTree") as raised:
            gt.jit(function)(QUERIES)
        assert __file__ in str(raised.value)


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


@pytest.mark.parametrize(("dx", "dy"), [(1, 0), (2, 1), (0, 0)])
def test_partial_derivatives_of_surfaces(dx: int, dy: int) -> None:
    grid, heights = np.array([0.0, 0.4, 1.0, 1.7, 2.0]), np.random.default_rng(2).normal(size=(5, 5))

    def slopes(z: Any) -> Any:
        surface = interpolate.RectBivariateSpline(grid, grid, z, kx=4).partial_derivative(dx, dy)
        return surface([0.3, 1.9], [0.1, 0.9])

    np.testing.assert_allclose(gt.jit(slopes)(heights), slopes(heights), rtol=1e-9)
    np.testing.assert_allclose(
        gt.grad(lambda z: np.sum(slopes(z)[0]))(heights),
        gradient_by_differences(lambda z: np.sum(slopes(z)[0]), heights),
        rtol=1e-5,
        atol=1e-7,
    )
    with pytest.raises(ValueError, match="less than"):
        gt.jit(lambda z: interpolate.RectBivariateSpline(grid, grid, z).partial_derivative(3, 0)(0.1, 0.2))(
            heights
        )


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


class Polynomials(interpolate.PPoly):  # type: ignore[misc]
    """Is a class of its own, whose slots are those of SciPy's."""


def test_subclasses_of_scipys_classes_are_traced_on_tapes() -> None:
    knots, points = np.arange(4.0), np.array([0.3, 1.7, 2.2])
    c = np.cos(np.arange(12.0)).reshape(4, 3)

    def total(c: Any, kind: Any = Polynomials) -> Any:
        return np.sum(kind.construct_fast(c, knots)(points) ** 2)

    with gt.GradientTape() as tape:
        x = tape.watch(c)
        y = total(x)
    np.testing.assert_allclose(tape.gradient(y, x), gt.grad(total)(c))
    np.testing.assert_allclose(gt.grad(total)(c), gradient_by_differences(total, c), rtol=1e-6, atol=1e-8)
