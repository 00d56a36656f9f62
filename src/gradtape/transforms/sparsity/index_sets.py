"""Index sets: for each element of an array the elements of a seed that it depends on, as the rows of a boolean sparse matrix."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, pairwise
from math import prod
from typing import Any, Final

import numpy as np

from gradtape.errors import ArgumentError
from gradtape.ir.builder import here
from gradtape.ir.op import NDArray
from gradtape.ir.types import Shape

MOST_ENTRIES: Final = 2**28
"""Entries of the index sets of one array; the result would not be sparse."""

IndexSets = Any
"""A `scipy.sparse.csr_array` of booleans, (elements of the array, elements of the seed), all stored entries true, columns sorted."""


def identity_sets(size: int) -> IndexSets:
    """Return the index sets of the seed itself."""
    return _matrix(np.arange(size), np.arange(size + 1), (size, size))


def empty_sets(rows: int, columns: int) -> IndexSets:
    """Return index sets without elements."""
    return _matrix(np.empty(0, np.int64), np.zeros(rows + 1, np.int64), (rows, columns))


def united(sets: Sequence[IndexSets]) -> IndexSets:
    """Return the unions of the index sets of arrays of the same shape."""
    whole = sets[0]
    for other in sets[1:]:
        if other is whole or not other.nnz:
            continue
        if not whole.nnz:
            whole = other
            continue
        check_entries(max(whole.nnz, other.nnz))
        union = whole + other
        # Equal sets stay one object, so that a later union is free.
        whole = whole if union.nnz == whole.nnz else other if union.nnz == other.nnz else union
    return whole


def picked(sets: IndexSets, positions: NDArray) -> IndexSets:
    """Return the index sets of an array whose element k is that at ``positions[k]`` of another one, zero where this is negative."""
    rows = sets.shape[0]
    if len(positions) == rows and np.array_equal(positions, np.arange(rows)):
        return sets
    inside = np.flatnonzero(positions >= 0)
    lengths = np.zeros(len(positions), np.int64)
    starts = sets.indptr[:-1].astype(np.int64)
    counts = np.diff(sets.indptr).astype(np.int64)
    lengths[inside] = counts[positions[inside]]
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    check_entries(int(indptr[-1]))
    begins = np.zeros(len(positions), np.int64)
    begins[inside] = starts[positions[inside]]
    entries = np.arange(indptr[-1]) + np.repeat(begins - indptr[:-1], lengths)
    return _matrix(sets.indices[entries], indptr, (len(positions), sets.shape[1]))


def merged(sets: IndexSets, targets: NDArray, sources: NDArray, rows: int) -> IndexSets:
    """Return, for `rows` elements, the union over all k with ``targets[k]`` being the element, of the sets at ``sources[k]``."""
    import scipy.sparse

    check_entries(int(np.diff(sets.indptr)[sources].sum()) if sources.size else 0)
    ones = np.ones(len(targets), bool)
    links = scipy.sparse.csr_array((ones, (targets, sources)), shape=(rows, sets.shape[0]))
    product = links @ sets
    product.sort_indices()
    return product


def repeated(sets: IndexSets, rows: int) -> IndexSets:
    """Return `rows` times the union of all index sets."""
    columns = np.unique(sets.indices)
    check_entries(rows * len(columns))
    return _matrix(np.tile(columns, rows), np.arange(rows + 1) * len(columns), (rows, sets.shape[1]))


def stacked(sets: Sequence[IndexSets]) -> IndexSets:
    """Return the index sets of arrays one after the other."""
    import scipy.sparse

    return scipy.sparse.vstack(sets, format="csr") if len(sets) > 1 else sets[0]


def restricted(sets: IndexSets, flags: NDArray) -> IndexSets:
    """Return the index sets of the flagged elements; the others depend on nothing."""
    if np.all(flags):
        return sets
    return picked(sets, np.where(flags.reshape(-1), np.arange(flags.size), -1))


def transposed(sets: IndexSets) -> IndexSets:
    """Return, for each element of the seed, the elements that depend on it."""
    turned = sets.T.tocsr()
    turned.sort_indices()
    return turned


def rows_of(sets: IndexSets) -> list[frozenset[int]]:
    """Return index sets as Python's own."""
    indices, indptr = sets.indices.tolist(), sets.indptr.tolist()
    return [frozenset(indices[start:stop]) for start, stop in pairwise(indptr)]


def from_rows(rows: Sequence[frozenset[int]], columns: int) -> IndexSets:
    """Return index sets from Python's own."""
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows], dtype=np.int64)])
    indices = np.fromiter(chain.from_iterable(rows), np.int64, int(indptr[-1]))
    found = _matrix(indices, indptr, (len(rows), columns))
    found.has_sorted_indices = False
    found.sort_indices()
    return found


def coordinates(shape: Shape) -> tuple[NDArray, ...]:
    """Return the coordinates of the elements of an array, one flat array per axis."""
    return tuple(np.indices(shape, np.int64).reshape(len(shape), prod(shape)))


def check_entries(count: int) -> None:
    """Raise ArgumentError for index sets that are too large."""
    if count > MOST_ENTRIES:
        raise ArgumentError(
            f"the sparsity pattern needs about {count:.1e} entries on the way",
            where=here.site,
            why="a value on the way depends on most of the arguments: a sum that is used everywhere, a solve, a loop that mixes elements",
            remedy="gt.jacobian or gt.hessian for a dense matrix, or pattern=... with the pattern of the result as a sparse matrix",
        )


def _matrix(indices: NDArray, indptr: NDArray, shape: tuple[int, int]) -> IndexSets:
    import scipy.sparse

    found = scipy.sparse.csr_array((np.ones(len(indices), bool), indices, indptr), shape=shape)
    found.has_canonical_format = True
    return found
