"""Hierarchies of clusters in jitted functions: the structure is that of the numbers, and the heights are SciPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.cluster.hierarchy as hierarchy

import gradtape as gt

POINTS = np.random.default_rng(8).normal(size=(12, 3))


@pytest.mark.parametrize(
    "method", ["single", "complete", "average", "weighted", "centroid", "median", "ward"]
)
def test_linkages(method: str) -> None:
    def linked(p: Any) -> Any:
        return hierarchy.linkage(p, method)

    np.testing.assert_allclose(gt.jit(linked)(POINTS), linked(POINTS), rtol=1e-9)
    many = np.stack([POINTS, POINTS[::-1] ** 2])
    np.testing.assert_allclose(gt.vmap(linked)(many), [linked(each) for each in many], rtol=1e-9)


@pytest.mark.parametrize("depth", [1, 2, 3, 20])
def test_statistics_of_links(depth: int) -> None:
    def statistics(p: Any) -> Any:
        tree = hierarchy.linkage(p, "average")
        found = hierarchy.inconsistent(tree, depth)
        clusters = hierarchy.fcluster(tree, 1.1, "inconsistent", depth)
        return found, hierarchy.maxdists(tree), hierarchy.maxRstat(tree, found, 3), clusters

    for ours, theirs in zip(gt.jit(statistics)(POINTS), statistics(POINTS), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)


def test_jitted_functions_see_the_structure_of_each_call() -> None:
    height = gt.jit(lambda p: hierarchy.cophenet(hierarchy.linkage(p, "complete")))
    for points in (POINTS, POINTS[::-1] * [1, -3, 2], POINTS**3):
        np.testing.assert_allclose(height(points), hierarchy.cophenet(hierarchy.linkage(points, "complete")))
