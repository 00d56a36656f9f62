"""Layered drawings of directed acyclic graphs.

Notes
-----
K. Sugiyama, S. Tagawa, M. Toda, "Methods for visual understanding of hierarchical system structures", IEEE Trans. SMC 11 (1981): layers by
longest path, stand-ins where an edge crosses a layer, orders by barycentres, then coordinates near the neighbours'.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

SWEEPS = 12
GAP = 18.0
STAND_IN_WIDTH = 6.0


@dataclass(frozen=True)
class Placed:
    """A finished layout.

    Attributes
    ----------
    x : list of float
        The centre of each box.
    layer : list of int
        The layer of each box, from 0.
    routes : list of lists of (float, int)
        Per edge, the points it passes: x and layer, ends included.
    left, right : float
        The extent.
    """

    x: list[float]
    layer: list[int]
    routes: list[list[tuple[float, int]]]
    left: float
    right: float


def layered(widths: Sequence[float], edges: Sequence[tuple[int, int]]) -> Placed:
    """Place boxes in layers.

    Parameters
    ----------
    widths : sequence of float
        Of the boxes, in topological order.
    edges : sequence of (int, int)
        From a box to a later one.

    Examples
    --------
    >>> placed = layered([40.0, 40.0, 40.0], [(0, 2), (1, 2)])
    >>> placed.layer, placed.x[2] == (placed.x[0] + placed.x[1]) / 2
    ([0, 0, 1], True)
    """
    layer = _layers(len(widths), edges)
    sizes, levels = list(widths), list(layer)
    chains = []
    for start, end in edges:
        chain = [start]
        for level in range(layer[start] + 1, layer[end]):
            sizes.append(STAND_IN_WIDTH)
            levels.append(level)
            chain.append(len(sizes) - 1)
        chains.append([*chain, end])
    links = [link for chain in chains for link in pairwise(chain)]
    above: list[list[int]] = [[] for _ in sizes]
    below: list[list[int]] = [[] for _ in sizes]
    for start, end in links:
        below[start].append(end)
        above[end].append(start)
    rows: list[list[int]] = [[] for _ in range(max(levels, default=-1) + 1)]
    for item, level in enumerate(levels):
        rows[level].append(item)
    _order(rows, above, below)
    x = _coordinates(rows, sizes, above, below)
    return Placed(
        x[: len(widths)],
        layer,
        [[(x[item], levels[item]) for item in chain] for chain in chains],
        min((x[k] - sizes[k] / 2 for k in range(len(sizes))), default=0.0),
        max((x[k] + sizes[k] / 2 for k in range(len(sizes))), default=0.0),
    )


def _layers(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """Return the layers: as few as the longest path has, and each box as near to its first successor as they allow."""
    layer = [0] * count
    followers: list[list[int]] = [[] for _ in range(count)]
    for start, end in sorted(edges):
        followers[start].append(end)
    for box in range(count):
        for follower in followers[box]:
            layer[follower] = max(layer[follower], layer[box] + 1)
    for box in reversed(range(count)):
        if followers[box]:
            layer[box] = min(layer[follower] for follower in followers[box]) - 1
    return layer


def _order(rows: list[list[int]], above: list[list[int]], below: list[list[int]]) -> None:
    """Order each row by the mean positions of the neighbours, in sweeps down and up."""
    position = {item: float(k) for row in rows for k, item in enumerate(row)}
    for sweep in range(SWEEPS):
        neighbours, order = (above, rows) if sweep % 2 == 0 else (below, rows[::-1])
        for row in order:
            centre = {
                item: fmean(position[n] for n in neighbours[item]) if neighbours[item] else position[item]
                for item in row
            }
            row.sort(key=centre.__getitem__)
            for k, item in enumerate(row):
                position[item] = float(k) - len(row) / 2


def _coordinates(
    rows: list[list[int]], sizes: Sequence[float], above: list[list[int]], below: list[list[int]]
) -> list[float]:
    x = [0.0] * len(sizes)
    for row in rows:
        _spread(row, x, sizes, [0.0] * len(row))
    for sweep in range(SWEEPS):
        neighbours, order = (above, rows) if sweep % 2 == 0 else (below, rows[::-1])
        for row in order:
            wished = [fmean(x[n] for n in neighbours[k]) if neighbours[k] else x[k] for k in row]
            _spread(row, x, sizes, wished)
    return x


def _spread(row: Sequence[int], x: list[float], sizes: Sequence[float], wished: Sequence[float]) -> None:
    """Place a row as near to the wishes (in least squares) as its order and widths allow: pool adjacent violators."""
    offsets = [0.0]
    for left, right in pairwise(row):
        offsets.append(offsets[-1] + (sizes[left] + sizes[right]) / 2 + GAP)
    blocks: list[tuple[float, int]] = []
    for wish, offset in zip(wished, offsets, strict=False):
        total, count = wish - offset, 1
        while blocks and blocks[-1][0] / blocks[-1][1] > total / count:
            before = blocks.pop()
            total, count = total + before[0], count + before[1]
        blocks.append((total, count))
    k = 0
    for total, count in blocks:
        for _ in range(count):
            x[row[k]] = total / count + offsets[k]
            k += 1
