"""Index sets: for each element of an array the elements of a seed that it depends on, as the rows of a boolean sparse matrix.

SciPy has such matrices, but to import them takes longer than to find the pattern of a small function.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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

FEW_FLAGS: Final = 8
"""A matrix with up to so many elements for each entry is put together from flags, which takes no sorting."""


@dataclass(frozen=True, eq=False, slots=True)
class IndexSets:
    """A boolean matrix, (elements of the array, elements of the seed), in the format of compressed rows.

    Attributes
    ----------
    indices, indptr : ndarray of int
        ``indices[indptr[i]:indptr[i + 1]]`` are the columns of row i, in ascending order.
    shape : tuple of int
        Of the matrix.
    """

    indices: NDArray
    indptr: NDArray
    shape: tuple[int, int]

    @property
    def nnz(self) -> int:
        """How many elements are true."""
        return len(self.indices)

    def rows(self) -> NDArray:
        """Return the row of each element that is true."""
        return np.repeat(np.arange(self.shape[0]), np.diff(self.indptr))

    def keys(self) -> NDArray:
        """Return the position of each element that is true in the matrix laid out row by row."""
        return self.rows() * self.shape[1] + self.indices


def identity_sets(size: int) -> IndexSets:
    """Return the index sets of the seed itself."""
    return IndexSets(np.arange(size), np.arange(size + 1), (size, size))


def empty_sets(rows: int, columns: int) -> IndexSets:
    """Return index sets without elements."""
    return IndexSets(np.empty(0, np.int64), np.zeros(rows + 1, np.int64), (rows, columns))


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
        union = _united_pair(whole, other)
        # Equal sets stay one object, so that a later union is free.
        whole = whole if union.nnz == whole.nnz else other if union.nnz == other.nnz else union
    return whole


def _united_pair(one: IndexSets, other: IndexSets) -> IndexSets:
    if np.array_equal(one.indptr, other.indptr) and np.array_equal(one.indices, other.indices):
        return one
    return _from_keys(np.concatenate([one.keys(), other.keys()]), one.shape)


def picked(sets: IndexSets, positions: NDArray) -> IndexSets:
    """Return the index sets of an array whose element k is that at ``positions[k]`` of another one, zero where this is negative."""
    rows = sets.shape[0]
    if len(positions) == rows and np.array_equal(positions, np.arange(rows)):
        return sets
    inside = np.flatnonzero(positions >= 0)
    lengths = np.zeros(len(positions), np.int64)
    starts, counts = sets.indptr[:-1], np.diff(sets.indptr)
    lengths[inside] = counts[positions[inside]]
    indptr = _starts(lengths)
    check_entries(int(indptr[-1]))
    begins = np.zeros(len(positions), np.int64)
    begins[inside] = starts[positions[inside]]
    entries = np.arange(indptr[-1]) + np.repeat(begins - indptr[:-1], lengths)
    return IndexSets(sets.indices[entries], indptr, (len(positions), sets.shape[1]))


def merged(sets: IndexSets, targets: NDArray, sources: NDArray, rows: int) -> IndexSets:
    """Return, for `rows` elements, the union over all k with ``targets[k]`` being the element, of the sets at ``sources[k]``."""
    chosen = picked(sets, sources)
    lengths = np.diff(chosen.indptr)
    return _from_keys(np.repeat(targets, lengths) * sets.shape[1] + chosen.indices, (rows, sets.shape[1]))


def repeated(sets: IndexSets, rows: int) -> IndexSets:
    """Return `rows` times the union of all index sets."""
    columns = np.unique(sets.indices)
    check_entries(rows * len(columns))
    return IndexSets(np.tile(columns, rows), np.arange(rows + 1) * len(columns), (rows, sets.shape[1]))


def stacked(sets: Sequence[IndexSets]) -> IndexSets:
    """Return the index sets of arrays one after the other."""
    if len(sets) == 1:
        return sets[0]
    counts = np.concatenate([np.diff(each.indptr) for each in sets])
    shape = sum(each.shape[0] for each in sets), sets[0].shape[1]
    return IndexSets(np.concatenate([each.indices for each in sets]), _starts(counts), shape)


def restricted(sets: IndexSets, flags: NDArray) -> IndexSets:
    """Return the index sets of the flagged elements; the others depend on nothing."""
    if np.all(flags):
        return sets
    return picked(sets, np.where(flags.reshape(-1), np.arange(flags.size), -1))


def transposed(sets: IndexSets) -> IndexSets:
    """Return, for each element of the seed, the elements that depend on it."""
    rows, columns = sets.shape
    return _from_keys(sets.indices * rows + sets.rows(), (columns, rows))


def from_matrix(matrix: Any) -> IndexSets:
    """Return where a matrix of SciPy in the format of compressed rows has elements."""
    rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    return _from_keys(rows * matrix.shape[1] + matrix.indices, matrix.shape)


def rows_of(sets: IndexSets) -> list[frozenset[int]]:
    """Return index sets as Python's own."""
    indices, indptr = sets.indices.tolist(), sets.indptr.tolist()
    return [frozenset(indices[start:stop]) for start, stop in pairwise(indptr)]


def from_rows(rows: Sequence[frozenset[int]], columns: int) -> IndexSets:
    """Return index sets from Python's own."""
    counts = np.array([len(row) for row in rows], np.int64)
    indices = np.fromiter(chain.from_iterable(rows), np.int64, int(counts.sum()))
    return _from_keys(np.repeat(np.arange(len(rows)), counts) * columns + indices, (len(rows), columns))


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


def _from_keys(keys: NDArray, shape: tuple[int, int]) -> IndexSets:
    """Return the matrix that is true at these positions, of which some may be equal, in any order."""
    rows, columns = shape
    if rows * columns <= FEW_FLAGS * len(keys):
        flags = np.zeros(rows * columns, bool)
        flags[keys] = True
        keys = np.flatnonzero(flags)
    elif len(keys):
        steps = np.diff(keys)
        if steps.min(initial=1) < 0:
            keys = np.sort(keys, kind="stable")  # fast where parts of them are sorted
            steps = np.diff(keys)
        keys = keys[np.append(True, steps > 0)]
    row, indices = np.divmod(keys, max(columns, 1))
    return IndexSets(indices, _starts(np.bincount(row, minlength=rows)), shape)


def _starts(counts: NDArray) -> NDArray:
    return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
