"""Colourings of sparsity patterns: which columns or rows of a matrix are computed by one product.

The loops are those of A. H. Gebremedhin, F. Manne, A. Pothen, "What Color Is Your Jacobian? Graph Coloring for Computing
Derivatives", 2005, and A. H. Gebremedhin, A. Tarafdar, F. Manne, A. Pothen, "New Acyclic and Star Coloring Algorithms with
Application to Computing Hessians", 2007. They are compiled by Numba for large patterns, and the machine code is kept on disk.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Final, NamedTuple

import numpy as np

from gradtape.ir.op import NDArray

INTERPRETED_WORK: Final = 50_000
"""Steps up to which Python runs the loops: to compile them takes as long."""

Loops = Callable[..., NDArray]


class Adjacency(NamedTuple):
    """The rows of a sparse matrix: ``indices[starts[i]:starts[i + 1]]`` are the columns of row i."""

    starts: NDArray
    indices: NDArray


def distance_two(
    order: NDArray, starts: NDArray, indices: NDArray, across: NDArray, back: NDArray
) -> NDArray:
    """Colour vertices so that two with a common neighbour have different colours.

    ``indices[starts[v]:starts[v + 1]]`` are the neighbours of vertex v, and ``back[across[w]:across[w + 1]]`` the vertices of
    neighbour w.
    """
    colours = np.full(len(order), -1)
    forbidden = np.full(len(order) + 1, -1)
    for step in range(len(order)):
        v = order[step]
        for p in range(starts[v], starts[v + 1]):
            w = indices[p]
            for q in range(across[w], across[w + 1]):
                colour = colours[back[q]]
                if colour >= 0:
                    forbidden[colour] = v
        chosen = 0
        while forbidden[chosen] == v:
            chosen += 1
        colours[v] = chosen
    return colours


def star(order: NDArray, starts: NDArray, indices: NDArray, edges: NDArray) -> NDArray:
    """Colour vertices so that neighbours have different colours, and every path of four vertices at least three (Algorithm 4.1 of 2007).

    ``edges[p]`` numbers the edge to the neighbour ``indices[p]``; it is the same in both directions. What two colours induce are
    stars.

    Where the algorithm goes through the neighbours of a neighbour, this goes through their colours: each vertex has a list with a
    place of the adjacency for each colour next to it. All its neighbours of a colour are in one star, and if they are several, the
    vertex is its hub. So a vertex with many neighbours costs no more than one with few.
    """
    colours = np.full(len(order), -1)
    forbidden = np.full(len(order) + 1, -1)
    treated = np.full(len(order), -1)
    first_vertex = np.full(len(order) + 1, -1)
    first_place = np.full(len(order) + 1, -1)
    star_of = np.full(len(indices), -1)
    hub = np.full(len(indices) + 1, -1)
    stars = 0
    seen = np.full(len(order), -1)  # the first entry of a vertex's list
    after = np.full(len(indices) + 1, -1)
    vertex = np.full(len(indices) + 1, -1)  # the neighbour
    edge = np.full(len(indices) + 1, -1)
    entries = 0
    for step in range(len(order)):
        v = order[step]
        for p in range(starts[v], starts[v + 1]):
            w = indices[p]
            colour = colours[w]
            if colour >= 0:
                forbidden[colour] = v
                if first_vertex[colour] == v:
                    q = indices[first_place[colour]]
                    if treated[q] != v:
                        e = seen[q]
                        while e >= 0:
                            forbidden[colours[vertex[e]]] = v
                            e = after[e]
                        treated[q] = v
                    e = seen[w]
                    while e >= 0:
                        forbidden[colours[vertex[e]]] = v
                        e = after[e]
                    treated[w] = v
                else:
                    first_vertex[colour] = v
                    first_place[colour] = p
                    e = seen[w]
                    while e >= 0:
                        if hub[star_of[edge[e]]] == vertex[e]:
                            forbidden[colours[vertex[e]]] = v
                        e = after[e]
        chosen = 0
        while forbidden[chosen] == v:
            chosen += 1
        colours[v] = chosen
        for p in range(starts[v], starts[v + 1]):
            w = indices[p]
            colour = colours[w]
            if colour >= 0:
                joined = -1
                e = seen[w]
                while e >= 0:
                    if colours[vertex[e]] == chosen:
                        joined = edge[e]
                    e = after[e]
                if joined >= 0:
                    hub[star_of[joined]] = w
                    star_of[edges[p]] = star_of[joined]
                else:
                    vertex[entries], edge[entries], after[entries], seen[w] = v, edges[p], seen[w], entries
                    entries += 1
                    if first_vertex[colour] == v and first_place[colour] != p:
                        joined = edges[first_place[colour]]
                        hub[star_of[joined]] = v
                        star_of[edges[p]] = star_of[joined]
                    else:
                        star_of[edges[p]] = stars
                        stars += 1
                if first_place[colour] == p:
                    vertex[entries], edge[entries], after[entries], seen[v] = w, edges[p], seen[v], entries
                    entries += 1
    return colours


def smallest_last(starts: NDArray, indices: NDArray) -> NDArray:
    """Return an order of vertices in which each has few neighbours before it: the one with the fewest neighbours left comes last.

    The vertices stand in the order of their degrees, and one whose neighbour is taken away moves to the front of those of its degree
    (V. Batagelj, M. Zaversnik, "An O(m) Algorithm for Cores Decomposition of Networks", 2003).
    """
    count = len(starts) - 1
    degrees = starts[1:] - starts[:-1]
    order = np.argsort(degrees, kind="mergesort")
    place = np.empty(count, np.int64)
    place[order] = np.arange(count)
    first = np.searchsorted(degrees[order], np.arange(count + 1))
    for step in range(count):
        v = order[step]
        for p in range(starts[v], starts[v + 1]):
            w = indices[p]
            degree = degrees[w]
            if degree > degrees[v]:
                front = max(first[degree], step + 1)
                u = order[front]
                order[front], order[place[w]] = w, u
                place[u], place[w] = place[w], front
                first[degree] = front + 1
                degrees[w] = degree - 1
    return order[::-1].copy()


@cache
def _compiled(loops: Loops) -> Loops:
    import numba

    compiled: Loops = numba.njit(cache=True)(loops)
    return compiled


def _run(loops: Loops, work: int, *arrays: NDArray) -> NDArray:
    """Run loops over the vertices, compiled where that pays."""
    chosen = loops if work <= INTERPRETED_WORK else _compiled(loops)
    return np.asarray(chosen(*arrays))


def colour_columns(rows: Adjacency, columns: Adjacency) -> NDArray:
    """Return a colour for each column of a matrix, such that columns of a colour have no row in common."""
    counts = np.diff(rows.starts)
    work = int(np.sum(counts.astype(np.float64) ** 2))
    best: NDArray | None = None
    fewest = int(counts.max(initial=0))
    for order in _orders(columns):
        found = _run(distance_two, work, order, columns.starts, columns.indices, rows.starts, rows.indices)
        if best is None or found.max(initial=0) < best.max(initial=0):
            best = found
        if best.max(initial=-1) + 1 <= fewest:
            break
    assert best is not None
    return best


def colour_symmetric(graph: Adjacency) -> NDArray:
    """Return a star colouring of the vertices of a graph without loops; ``graph`` has each edge in both directions."""
    work = 4 * len(graph.indices)
    edges = _edge_numbers(graph)
    best: NDArray | None = None
    for order in [*_orders(graph), _run(smallest_last, work, graph.starts, graph.indices)]:
        found = _run(star, work, order, graph.starts, graph.indices, edges)
        if best is None or found.max(initial=0) < best.max(initial=0):
            best = found
    assert best is not None
    return best


def _edge_numbers(graph: Adjacency) -> NDArray:
    """Return the number of the edge at each place of the adjacency."""
    count = len(graph.starts) - 1
    sources = np.repeat(np.arange(count), np.diff(graph.starts))
    low, high = np.minimum(sources, graph.indices), np.maximum(sources, graph.indices)
    _, numbers = np.unique(low * count + high, return_inverse=True)
    return numbers.astype(np.int64)


def _orders(graph: Adjacency) -> list[NDArray]:
    """Return the orders in which vertices are coloured: as they are numbered, and those with most neighbours first.

    The first is optimal for banded matrices, the second for those with some dense columns.
    """
    counts = np.diff(graph.starts)
    natural = np.arange(len(counts))
    largest = np.argsort(-counts, kind="stable")
    return [natural] if np.array_equal(natural, largest) else [natural, largest]
