"""Colourings of sparsity patterns: which columns or rows of a matrix are computed by one product.

The loops are those of A. H. Gebremedhin, F. Manne, A. Pothen, "What Color Is Your Jacobian? Graph Coloring for Computing
Derivatives", 2005, and A. H. Gebremedhin, A. Tarafdar, F. Manne, A. Pothen, "New Acyclic and Star Coloring Algorithms with
Application to Computing Hessians", 2007. Python runs them on lists. Numba compiles them for patterns so large that this takes longer, and
keeps the machine code on disk.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np

from gradtape.ir.op import NDArray

INTERPRETED_WORK: Final = 10_000_000
"""Steps up to which Python runs the loops: these take a second, and to compile them takes twice as long."""

STEPS_OF_STARS: Final = 16
STEPS_OF_ORDER: Final = 4
"""Steps for each place of an adjacency: of a star colouring, and of the order of smallest degrees."""

Loops = Callable[..., None]

Integers = Any
"""A list of int, or an array of int64 in compiled loops."""


class Adjacency(NamedTuple):
    """The rows of a sparse matrix: ``indices[starts[i]:starts[i + 1]]`` are the columns of row i."""

    starts: NDArray
    indices: NDArray


def distance_two(
    colours: Integers,
    order: Integers,
    starts: Integers,
    indices: Integers,
    across: Integers,
    back: Integers,
    forbidden: Integers,
) -> None:
    """Colour vertices so that two with a common neighbour have different colours.

    ``indices[starts[v]:starts[v + 1]]`` are the neighbours of vertex v, and ``back[across[w]:across[w + 1]]`` the vertices of
    neighbour w. The lists `colours` and `forbidden`, scratch memory, are filled with -1.
    """
    for v in order:
        for w in indices[starts[v] : starts[v + 1]]:
            for u in back[across[w] : across[w + 1]]:
                colour = colours[u]
                if colour >= 0:
                    forbidden[colour] = v
        chosen = 0
        while forbidden[chosen] == v:
            chosen += 1
        colours[v] = chosen


def star(
    colours: Integers,
    order: Integers,
    starts: Integers,
    indices: Integers,
    edges: Integers,
    by_vertex: tuple[Integers, ...],
    by_place: tuple[Integers, ...],
) -> None:
    """Colour vertices so that neighbours have different colours, and every path of four vertices at least three (Algorithm 4.1 of 2007).

    ``edges[p]`` numbers the edge to the neighbour ``indices[p]``; it is the same in both directions. What two colours induce are
    stars. The lists `colours` and those of `by_vertex` and `by_place`, scratch memory, are filled with -1.

    Where the algorithm goes through the neighbours of a neighbour, this goes through their colours: each vertex has a list with a
    place of the adjacency for each colour next to it. All its neighbours of a colour are in one star, and if they are several, the
    vertex is its hub. So a vertex with many neighbours costs no more than one with few.
    """
    forbidden, treated, first_vertex, first_place, last_entry = by_vertex
    star_of, hub, after, vertex, edge = by_place
    stars = 0
    entries = 0  # of the lists of all vertices: `seen` has the first one of a vertex, `vertex` the neighbours
    for v in order:
        for p in range(starts[v], starts[v + 1]):
            w = indices[p]
            colour = colours[w]
            if colour >= 0:
                forbidden[colour] = v
                if first_vertex[colour] == v:
                    q = indices[first_place[colour]]
                    if treated[q] != v:
                        e = last_entry[q]
                        while e >= 0:
                            forbidden[colours[vertex[e]]] = v
                            e = after[e]
                        treated[q] = v
                    e = last_entry[w]
                    while e >= 0:
                        forbidden[colours[vertex[e]]] = v
                        e = after[e]
                    treated[w] = v
                else:
                    first_vertex[colour] = v
                    first_place[colour] = p
                    e = last_entry[w]
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
                e = last_entry[w]
                while e >= 0:
                    if colours[vertex[e]] == chosen:
                        joined = edge[e]
                    e = after[e]
                if joined >= 0:
                    hub[star_of[joined]] = w
                    star_of[edges[p]] = star_of[joined]
                else:
                    vertex[entries], edge[entries], after[entries], last_entry[w] = (
                        v,
                        edges[p],
                        last_entry[w],
                        entries,
                    )
                    entries += 1
                    if first_vertex[colour] == v and first_place[colour] != p:
                        joined = edges[first_place[colour]]
                        hub[star_of[joined]] = v
                        star_of[edges[p]] = star_of[joined]
                    else:
                        star_of[edges[p]] = stars
                        stars += 1
                if first_place[colour] == p:
                    vertex[entries], edge[entries], after[entries], last_entry[v] = (
                        w,
                        edges[p],
                        last_entry[v],
                        entries,
                    )
                    entries += 1


def fewest_neighbours_last(
    order: Integers,
    starts: Integers,
    indices: Integers,
    degrees: Integers,
    position: Integers,
    first: Integers,
) -> None:
    """Order vertices so that each has few neighbours after it: the next one has the fewest neighbours left.

    The vertices stand in the order of their degrees, and one whose neighbour is taken away moves to the front of those of its degree
    (V. Batagelj, M. Zaversnik, "An O(m) Algorithm for Cores Decomposition of Networks", 2003). ``place[v]`` is where a vertex
    stands, ``first[degree]`` where those of a degree begin.
    """
    for step in range(len(order)):
        v = order[step]
        for w in indices[starts[v] : starts[v + 1]]:
            degree = degrees[w]
            if degree > degrees[v]:
                front = max(first[degree], step + 1)
                u = order[front]
                order[front], order[position[w]] = w, u
                position[u], position[w] = position[w], front
                first[degree] = front + 1
                degrees[w] = degree - 1


@cache
def _compiled(loops: Loops) -> Loops:
    import numba

    compiled: Loops = numba.njit(cache=True)(loops)
    return compiled


def _run(loops: Loops, work: int, result: NDArray, *arguments: Any) -> NDArray:
    """Run loops that fill `result`, compiled where that pays, and return it; what is given are arrays, and tuples of arrays."""
    if work > INTERPRETED_WORK:
        arrays = [_mapped(lambda array: array.astype(np.int64), each) for each in (result, *arguments)]
        _compiled(loops)(*arrays)
        return np.asarray(arrays[0])
    lists = [_mapped(lambda array: array.tolist(), each) for each in (result, *arguments)]
    loops(*lists)
    return np.array(lists[0], np.int64)


def _mapped(function: Callable[[NDArray], Any], arguments: Any) -> Any:
    return tuple(map(function, arguments)) if isinstance(arguments, tuple) else function(arguments)


def colour_columns(rows: Adjacency, columns: Adjacency) -> NDArray:
    """Return a colour for each column of a matrix, such that columns of a colour have no row in common."""
    counts = np.diff(rows.starts)
    work = int(np.sum(counts.astype(np.float64) ** 2))
    best: NDArray | None = None
    fewest = int(counts.max(initial=0))
    for order in _orders(columns):
        count = len(order)
        colours = _run(distance_two, work, _none(count), order, *columns, *rows, _none(count + 1))
        if best is None or colours.max(initial=0) < best.max(initial=0):
            best = colours
        if best.max(initial=-1) + 1 <= fewest:
            break
    assert best is not None
    return best


def colour_symmetric(graph: Adjacency) -> NDArray:
    """Return a star colouring of the vertices of a graph without loops; ``graph`` has each edge in both directions."""
    count, entry_count = len(graph.starts) - 1, len(graph.indices)
    work = STEPS_OF_STARS * entry_count
    edges = _edge_numbers(graph)
    by_vertex, by_place = (_none(count + 1),) * 5, (_none(entry_count + 1),) * 5
    best: NDArray | None = None
    for order in [*_orders(graph), smallest_last(graph)]:
        colours = _run(star, work, _none(count), order, *graph, edges, by_vertex, by_place)
        if best is None or colours.max(initial=0) < best.max(initial=0):
            best = colours
    assert best is not None
    return best


def _none(count: int) -> NDArray:
    return np.full(count, -1)


def smallest_last(graph: Adjacency) -> NDArray:
    """Return an order of vertices in which each has few neighbours before it."""
    degrees = np.diff(graph.starts)
    order = np.argsort(degrees, kind="stable")
    position = np.empty_like(order)
    position[order] = np.arange(len(order))
    first = np.searchsorted(degrees[order], np.arange(len(order) + 1))
    work = STEPS_OF_ORDER * len(graph.indices)
    return _run(fewest_neighbours_last, work, order, *graph, degrees, position, first)[::-1]


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
