"""Hulls and diagrams of Qhull's: combinatorics that change from call to call, degenerate points, and errors."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.spatial as spatial
from numpy.testing import assert_allclose

import gradtape as gt
from gradtape.errors import UnsupportedFunctionError

GRID = np.array([[i, j] for i in range(3) for j in range(3)], float)
CUBE = np.array([[x, y, z] for x in (0, 1) for y in (0, 1) for z in (0, 1)], float)


def test_numbers_of_facets_change_from_call_to_call() -> None:
    rng = np.random.default_rng(0)
    volume = gt.jit(lambda p: spatial.ConvexHull(p).volume)
    counts = set()
    for _ in range(8):
        points = rng.uniform(size=(10, 2))
        hull = spatial.ConvexHull(points)
        counts.add(len(hull.simplices))
        assert_allclose(volume(points), hull.volume)
    assert len(counts) > 1


def test_regions_are_guarded_as_a_whole() -> None:
    rng = np.random.default_rng(1)

    def shared(points: np.ndarray) -> object:
        made = spatial.Voronoi(points)
        ends = [pair for pair in made.ridge_vertices if -1 not in pair]
        return sum(np.sum((made.vertices[a] - made.vertices[b]) ** 2) for a, b in ends)

    compiled = gt.jit(shared)
    for _ in range(3):
        points = rng.uniform(size=(7, 2))
        assert_allclose(compiled(points), shared(points))


def test_facets_with_more_corners_than_a_simplex() -> None:
    value, gradient = gt.value_and_grad(lambda p: spatial.ConvexHull(p).volume)(CUBE)
    assert_allclose(value, 1.0)
    assert_allclose(np.sum(gradient * CUBE), 3.0)  # a volume is homogeneous of degree 3
    equations = gt.grad(lambda p: np.sum(spatial.ConvexHull(p).equations))(CUBE)
    assert np.isfinite(equations).all()


def test_vertices_that_more_points_share() -> None:
    value, gradient = gt.value_and_grad(lambda p: np.sum(spatial.Voronoi(p).vertices))(GRID)
    assert_allclose(value, np.sum(spatial.Voronoi(GRID).vertices))
    assert_allclose(np.sum(gradient), 8.0)  # vertices move with the points: four of them, two coordinates


def test_regions_on_a_tape_are_lists() -> None:
    with gt.GradientTape() as tape:
        points = tape.watch(GRID + 0.05 * np.random.default_rng(2).normal(size=GRID.shape))
        made = spatial.Voronoi(points)
        plain = spatial.Voronoi(points.numpy())
        assert made.regions == plain.regions
        assert made.ridge_dict == plain.ridge_dict


@pytest.mark.parametrize("kind", [spatial.ConvexHull, spatial.Delaunay, spatial.Voronoi])
def test_points_that_are_added_later(kind: type) -> None:
    with pytest.raises(UnsupportedFunctionError, match="incremental=True with traced points"):
        gt.jit(lambda p: np.sum(kind(p, incremental=True).points))(GRID)


def test_a_vector_is_no_array_of_points() -> None:
    with pytest.raises(ValueError, match=r"points must be an array of rank 2.*\(5,\)"):
        gt.jit(lambda p: spatial.ConvexHull(p).volume)(np.ones(5))


def test_errors_of_qhull_are_the_users() -> None:
    with pytest.raises(ValueError, match="Points cannot contain NaN"):
        gt.jit(lambda p: spatial.ConvexHull(p).volume)(np.full((5, 2), np.nan))


def test_numbers_go_to_qhull_itself() -> None:
    hull = gt.jit(lambda x: x * spatial.ConvexHull(GRID).volume)
    assert_allclose(hull(np.array(2.0)), 8.0)
