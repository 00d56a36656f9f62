"""Hierarchies of clusters: `scipy.cluster.hierarchy`. Which clusters are joined has no derivative; the heights at which they are have one.

References
----------
G. N. Lance and W. T. Williams, "A general theory of classificatory sorting strategies", 1967.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from gradtape.trace.routines.distances import pdist, root, squareform
from gradtape.trace.routines.registry import computed, known_numbers, lookup, stands_for

_UPDATES: Final[dict[str, Callable[..., Any]]] = {
    "single": lambda a, b, h, na, nb, n: np.minimum(a, b),
    "complete": lambda a, b, h, na, nb, n: np.maximum(a, b),
    "average": lambda a, b, h, na, nb, n: (na * a + nb * b) / (na + nb),
    "weighted": lambda a, b, h, na, nb, n: (a + b) / 2,
    "centroid": lambda a, b, h, na, nb, n: root(
        (na * a**2 + nb * b**2 - na * nb * h**2 / (na + nb)) / (na + nb)
    ),
    "median": lambda a, b, h, na, nb, n: root(a**2 / 2 + b**2 / 2 - h**2 / 4),
    "ward": lambda a, b, h, na, nb, n: root(((n + na) * a**2 + (n + nb) * b**2 - n * h**2) / (n + na + nb)),
}
"""The distances of a cluster to two others that are joined: the recurrences of Lance and Williams (1967)."""


def _plain(name: str) -> Any:
    return getattr(sys.modules["scipy.cluster.hierarchy"], name)


@stands_for("scipy.cluster.hierarchy.linkage")
def linkage(y: Any, method: str = "single", metric: Any = "euclidean", optimal_ordering: bool = False) -> Any:
    """Follow `scipy.cluster.hierarchy.linkage`: the distances of the clusters that are joined, from those of their parts."""
    y = np.asarray(y)
    distances = y if y.ndim == 1 else pdist(y, metric)
    if method not in _UPDATES:
        raise ValueError(f"Invalid method: {method}")
    table = squareform(distances)
    count = table.shape[0]

    def structure(numbers: Any) -> tuple[Any, ...]:
        joined = _plain("linkage")(numbers, method, optimal_ordering=optimal_ordering)
        return joined, *_slots(joined)

    steps = count - 1
    like = (np.zeros((steps, 4)), np.zeros((steps, 2), int), np.zeros((steps, 2)), np.zeros((steps, count)))
    joined, slots, own_sizes, sizes = computed(structure, like, distances)
    rows = np.arange(count)
    heights = []
    for step in range(steps):
        kept_row, removed_row = slots[step, 0], slots[step, 1]
        first, second = lookup(table, kept_row), lookup(table, removed_row)
        height = lookup(first, removed_row)
        heights.append(height)
        merged = _UPDATES[method](first, second, height, own_sizes[step, 0], own_sizes[step, 1], sizes[step])
        here = rows == kept_row
        merged = np.where(here, 0.0, merged)
        table = np.where(here[:, None], merged, np.where(here, merged[:, None], table))
    return np.stack([joined[:, 0], joined[:, 1], np.stack(heights), joined[:, 3]], axis=1)


def _slots(joined: Any) -> tuple[Any, Any, Any]:
    """Return the row of a table of distances in which each cluster that is joined stands, their sizes, and the sizes of all rows."""
    count = joined.shape[0] + 1
    rows = list(range(count))
    sizes = np.ones(count)
    slots, pair_sizes, all_sizes = [], [], []
    for a, b in joined[:, :2].astype(int):
        kept_row, removed_row = rows[a], rows[b]
        slots.append((kept_row, removed_row))
        pair_sizes.append((sizes[kept_row], sizes[removed_row]))
        all_sizes.append(sizes.copy())
        sizes[kept_row] += sizes[removed_row]
        rows.append(kept_row)
    return np.array(slots), np.array(pair_sizes), np.array(all_sizes)


@stands_for("scipy.cluster.hierarchy._hierarchy.cophenetic_distances")
def cophenetic_distances(Z: Any, d: Any, n: int) -> None:
    """Write the height at which each pair of observations is joined."""

    def steps_of(joined: Any) -> Any:
        members = {number: [number] for number in range(n)}
        step_of_pair = np.zeros((n, n), int)
        for step, (a, b) in enumerate(joined.astype(int)):
            step_of_pair[np.ix_(members[a], members[b])] = step
            step_of_pair[np.ix_(members[b], members[a])] = step
            members[n + step] = members[a] + members[b]
        return step_of_pair[np.triu_indices(n, 1)]

    d[...] = lookup(Z[:, 2], computed(steps_of, np.zeros(n * (n - 1) // 2, int), Z[:, :2]))


def _below(Z: Any, n: int, depth: int) -> Any:
    """Return which links (columns) are, within a depth, at or below each link (rows)."""

    def reach(joined: Any) -> Any:
        reached = np.eye(n - 1)
        children = np.zeros((n - 1, n - 1))
        for step, pair in enumerate(joined.astype(int)):
            children[step, [number - n for number in pair if number >= n]] = 1
        level = reached
        for _ in range(min(depth, n) - 1):
            level = level @ children
            reached = reached + level
        return reached

    return computed(reach, np.zeros((n - 1, n - 1)), Z[:, :2])


@stands_for("scipy.cluster.hierarchy._hierarchy.inconsistent")
def inconsistent(Z: Any, R: Any, n: int, d: int) -> None:
    """Write mean, standard deviation and number of the heights below each link, and how far its own is from the mean."""
    below = _below(Z, n, max(int(d), 1))
    heights = Z[:, 2]
    counts = np.sum(below, axis=1)
    mean = below @ heights / counts
    squares = np.sum(below * (heights - mean[:, None]) ** 2, axis=1)
    deviation = root(squares / np.maximum(counts - 1, 1))
    flat = deviation == 0
    R[:, 0], R[:, 1], R[:, 2] = mean, deviation, counts
    R[:, 3] = np.where(flat, 0.0, (heights - mean) / np.where(flat, 1.0, deviation))


def _write_largest(Z: Any, numbers: Any, target: Any, n: int) -> None:
    below = _below(Z, n, n)
    target[...] = np.max(np.where(below > 0, numbers, -np.inf), axis=1)


@stands_for("scipy.cluster.hierarchy._hierarchy.get_max_dist_for_each_cluster")
def largest_heights(Z: Any, MD: Any, n: int) -> None:
    """Write the largest height below each link."""
    _write_largest(Z, Z[:, 2], MD, n)


@stands_for("scipy.cluster.hierarchy._hierarchy.get_max_Rfield_for_each_cluster")
def largest_statistics(Z: Any, R: Any, max_rfs: Any, n: int, rf: int) -> None:
    """Write the largest of a column of statistics below each link."""
    _write_largest(Z, R[:, rf], max_rfs, n)


@stands_for("scipy.cluster.hierarchy.optimal_leaf_ordering")
def optimal_leaf_ordering(Z: Any, y: Any, metric: Any = "euclidean") -> Any:
    """Follow `scipy.cluster.hierarchy.optimal_leaf_ordering`: the heights stay."""
    Z, y = np.asarray(Z), np.asarray(y)
    ordered = computed(lambda *a: _plain("optimal_leaf_ordering")(*a, metric), np.zeros(Z.shape), Z, y)
    return np.stack([ordered[:, 0], ordered[:, 1], Z[:, 2], Z[:, 3]], axis=1)


# What has no derivative


@stands_for("scipy.cluster.hierarchy.fcluster")
def fcluster(
    Z: Any, t: Any, criterion: str = "inconsistent", depth: int = 2, R: Any = None, monocrit: Any = None
) -> Any:
    """Follow `scipy.cluster.hierarchy.fcluster`, whose clusters are numbered."""
    arrays = [array for array in (R, monocrit) if array is not None]

    def clusters(Z: Any, t: Any, *others: Any) -> Any:
        remaining = list(others)
        named = {
            name: remaining.pop(0) for name, array in (("R", R), ("monocrit", monocrit)) if array is not None
        }
        return _plain("fcluster")(Z, t.item(), criterion, depth, **named)

    return computed(clusters, np.zeros(Z.shape[0] + 1, np.int32), Z, t, *arrays)


@stands_for("scipy.cluster.hierarchy.leaves_list")
def leaves_list(Z: Any) -> Any:
    """Follow `scipy.cluster.hierarchy.leaves_list`."""
    return computed(_plain("leaves_list"), np.zeros(Z.shape[0] + 1, np.int32), Z)


@stands_for("scipy.cluster.hierarchy._hierarchy.calculate_cluster_sizes")
def cluster_sizes(Z: Any, CS: Any, n: int) -> None:
    """Write how many observations each link joins."""

    def sizes_of(joined: Any) -> Any:
        slots = _slots(joined)[1]
        return slots.sum(axis=1)

    CS[...] = computed(sizes_of, np.zeros(n - 1), Z[:, :2])


@stands_for("scipy.cluster.hierarchy.leaders")
def leaders(Z: Any, T: Any) -> Any:
    """Follow `scipy.cluster.hierarchy.leaders`: how many there are depends on the clusters."""
    numbers = known_numbers(T, "the leaders of clusters")
    like = np.zeros(len(np.unique(numbers)), np.int32)
    return computed(lambda links: _plain("leaders")(links, numbers), (like, like), Z)
