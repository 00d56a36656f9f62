"""Compression plans: which products with vectors give a sparse matrix, and where its elements stand in them."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Final, NamedTuple

import numpy as np

from gradtape.api.sparsity.colouring import Adjacency, colour_columns, colour_symmetric
from gradtape.ir.op import NDArray
from gradtape.transforms.sparsity.index_sets import IndexSets, identity_sets, picked, transposed, united

MANY_COLOURS: Final = 6
"""Colours of one direction above which products in both directions are considered."""

REVERSE_COST: Final = 1.5
"""The cost of a product in reverse mode, in forward products."""


class BlockSize(NamedTuple):
    """The blocks of some rows of a matrix, which are computed together (see `Blocks`).

    Attributes
    ----------
    rows : int
        How many blocks there are.
    height, width : int
        The rows and the columns of a block.
    by_columns : bool
        Whether a product computes a column of each block, or a row.
    """

    rows: int
    height: int
    width: int
    by_columns: bool

    @property
    def elements(self) -> int:
        """How many elements all blocks have."""
        return self.rows * self.height * self.width

    @property
    def lengths(self) -> list[int]:
        """How many elements each product computes."""
        count = self.width if self.by_columns else self.height
        return [self.elements // max(count, 1)] * count


@dataclass(frozen=True, eq=False)
class Plan:
    """How a sparse matrix is computed from products with the sums of columns, or of rows, of the same colour.

    Attributes
    ----------
    shape : tuple of int
        Of the matrix.
    indptr, indices : ndarray of int
        Its pattern, in the format of compressed rows.
    column_colours, row_colours : ndarray of int
        For each column, the number of the forward product in which it is; for each row, that of the reverse product; -1 for none.
    positions : ndarray of int
        For each element of the matrix, its position in the products, laid end to end: first those of the columns, (colours,
        rows), then those of the rows, (colours, columns), then those of the blocks.
    is_symmetric : bool
        Whether an element may be read in place of its mirror image.
    blocks : tuple of BlockSize
        The blocks of the rows, in their order, if the matrix is computed by these.
    """

    shape: tuple[int, int]
    indptr: NDArray
    indices: NDArray
    column_colours: NDArray
    row_colours: NDArray
    positions: NDArray
    is_symmetric: bool = False
    blocks: tuple[BlockSize, ...] = ()

    @property
    def products(self) -> tuple[int, int]:
        """How many products there are: of columns, and of rows."""
        return int(self.column_colours.max(initial=-1)) + 1, int(self.row_colours.max(initial=-1)) + 1

    @property
    def lengths(self) -> list[int]:
        """How many elements each product computes, in the order in which they are laid end to end."""
        (columns, rows), (m, n) = self.products, self.shape
        return [m] * columns + [n] * rows + [length for each in self.blocks for length in each.lengths]

    @property
    def kinds(self) -> str:
        """The products in words."""
        by_column = sum(len(each.lengths) for each in self.blocks if each.by_columns)
        by_row = sum(len(each.lengths) for each in self.blocks) - by_column
        counts = *self.products, by_column, by_row
        names = "columns", "rows", "columns of blocks", "rows of blocks"
        parts = [f"{count} of {name}" for count, name in zip(counts, names, strict=True) if count]
        return f"products: {' and '.join(parts) or 'none'}"

    @property
    def nnz(self) -> int:
        """The number of elements that may be different from zero."""
        return len(self.indices)

    def rows(self) -> NDArray:
        """Return the row of each element."""
        return _rows(self.indptr)

    def __repr__(self) -> str:
        m, n = self.shape
        filled = f"{100 * self.nnz / max(prod(self.shape), 1):.2g} %"
        return f"<{m} x {n}, {self.nnz} elements ({filled}), {self.kinds}>"


def fewest_products(pattern: IndexSets) -> float:
    """Return the least cost of products of columns or of rows, in products of columns: a line needs as many as it has elements."""
    columns = np.bincount(pattern.indices, minlength=pattern.shape[1])
    return float(min(np.diff(pattern.indptr).max(initial=0), REVERSE_COST * columns.max(initial=0)))


def jacobian_plan(pattern: IndexSets, mode: str) -> Plan:
    """Return a plan for a matrix with a pattern; `mode` is "fwd", "rev", "both" or "auto"."""
    rows, columns = _adjacency(pattern), _adjacency(transposed(pattern))
    m, n = pattern.shape
    none = np.full(m, -1), np.full(n, -1)
    i, j = _rows(rows.starts), rows.indices
    costs, colours = dict.fromkeys(("fwd", "rev"), np.inf), {}
    # A line needs as many colours as it has elements: what cannot be better is not tried, and lines that all others meet cost a square.
    fewest = {
        "fwd": np.diff(rows.starts).max(initial=0),
        "rev": REVERSE_COST * np.diff(columns.starts).max(initial=0),
    }
    both = None
    if mode == "both" or (mode == "auto" and min(fewest.values()) > MANY_COLOURS):
        both = _bidirectional_plan(pattern)
        if mode == "both":
            return both
    least = np.inf if both is None else both.products[0] + REVERSE_COST * both.products[1]
    for name in sorted(("fwd", "rev") if mode == "auto" else (mode,), key=lambda name: fewest[name]):
        if mode == name or fewest[name] <= min(least, *costs.values()):
            lines = (rows, columns) if name == "fwd" else (columns, rows)
            colours[name] = colour_columns(*lines)
            costs[name] = (1 if name == "fwd" else REVERSE_COST) * (colours[name].max(initial=-1) + 1)
    best = min(costs, key=lambda name: costs[name])
    if mode == "auto" and both is None and costs[best] > MANY_COLOURS and len(i):
        both = _bidirectional_plan(pattern)
        least = both.products[0] + REVERSE_COST * both.products[1]
    if both is not None and least < costs[best]:
        return both
    if best == "fwd":
        return Plan((m, n), rows.starts, j, colours["fwd"], none[0], colours["fwd"][j] * m + i)
    return Plan((m, n), rows.starts, j, none[1], colours["rev"], colours["rev"][i] * n + j)


def hessian_plan(pattern: IndexSets) -> Plan:
    """Return a plan for a symmetric matrix: a star colouring."""
    pattern = _with_mirror(pattern)
    n = pattern.shape[0]
    rows = _adjacency(pattern)
    i, j = _rows(rows.starts), rows.indices
    none = np.full(n, -1)

    def by_columns(columns: NDArray) -> Plan:
        return Plan((n, n), rows.starts, j, columns, none, columns[j] * n + i, is_symmetric=True)

    most = int(np.diff(rows.starts).max(initial=0))
    columns = None
    if n and _is_clique(rows):  # as in all blocks on a diagonal, whose columns need no more colours
        columns = colour_columns(rows, rows)
        if columns.max() + 1 == most:
            return by_columns(columns)
    off = i != j
    starts = np.concatenate([[0], np.cumsum(np.bincount(i[off], minlength=n))])
    colours = colour_symmetric(Adjacency(starts, j[off]))
    if most <= colours.max(initial=-1) + 1:  # else columns need more colours
        columns = colour_columns(rows, rows) if columns is None else columns
        if columns.max(initial=-1) <= colours.max(initial=-1):
            return by_columns(columns)
    alone = _is_alone(i, colours[j], n)
    positions = np.where(alone, colours[j] * n + i, colours[i] * n + j)
    return Plan((n, n), rows.starts, j, colours, none, positions, is_symmetric=True)


def _is_clique(rows: Adjacency) -> bool:
    """Return whether a vertex with most neighbours and these are all neighbours of each other: each has a colour of its own."""
    row = int(np.argmax(np.diff(rows.starts)))
    near = rows.indices[rows.starts[row] : rows.starts[row + 1]]
    is_near = np.zeros(len(rows.starts) - 1, bool)
    is_near[near] = True
    return all(
        np.count_nonzero(is_near[rows.indices[rows.starts[each] : rows.starts[each + 1]]]) == len(near)
        for each in near
    )


def _bidirectional_plan(pattern: IndexSets) -> Plan:
    """Return a plan in which the rows with most elements are computed by products of rows, and all others by products of columns.

    Notes
    -----
    T. F. Coleman, A. Verma, "The Efficient Computation of Sparse Jacobian Matrices Using Automatic Differentiation", 1998. Column
    products need at least as many colours as the longest row left has elements. So the number of rows is chosen that makes the
    sum of both smallest.
    """
    m, n = pattern.shape
    lengths = np.diff(pattern.indptr)
    order = np.argsort(-lengths, kind="stable")
    longest = np.append(lengths[order], 0)
    count = int(np.argmin(longest + REVERSE_COST * np.arange(m + 1)))
    is_dense = np.zeros(m, bool)
    is_dense[order[:count]] = True
    dense, rest = picked(pattern, order[:count]), picked(pattern, np.flatnonzero(~is_dense))
    columns = colour_columns(_adjacency(rest), _adjacency(transposed(rest)))
    row_colours = np.full(m, -1)
    row_colours[order[:count]] = colour_columns(_adjacency(transposed(dense)), _adjacency(dense))
    rows = _adjacency(pattern)
    i, j = _rows(rows.starts), rows.indices
    base = (int(columns.max(initial=-1)) + 1) * m
    positions = np.where(is_dense[i], base + row_colours[i] * n + j, columns[j] * m + i)
    return Plan((m, n), rows.starts, j, columns, row_colours, positions)


def _is_alone(lines: NDArray, colours: NDArray, count: int) -> NDArray:
    """Return whether an element is the only one of its line with its colour."""
    _, inverse, counts = np.unique(
        colours.astype(np.int64) * count + lines, return_inverse=True, return_counts=True
    )
    return np.asarray(counts[inverse] == 1)


def _with_mirror(pattern: IndexSets) -> IndexSets:
    """Return a pattern with all mirror images, and with its diagonal."""
    return united([pattern, transposed(pattern), identity_sets(pattern.shape[0])])


def _adjacency(pattern: IndexSets) -> Adjacency:
    return Adjacency(pattern.indptr, pattern.indices)


def _rows(starts: NDArray) -> NDArray:
    return np.repeat(np.arange(len(starts) - 1), np.diff(starts))
