"""Blocks: targets whose rows depend on rows that are read from the sources, as residuals of observations do.

Row o of a residual ``f(cameras[seen[:, 0]], points[seen[:, 1]])`` depends on row o of what is read alone. Its Jacobian in that consists of
small blocks, one for each row. One product computes a row, or a column, of all blocks at once, in however many rows an element of the
sources is read: the products are as many as a block has rows or columns.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any, Final, NamedTuple

import numpy as np

from gradtape.api.sparsity.plan import REVERSE_COST, BlockSize, Plan
from gradtape.ir.graph import Node, Value, extract, literal
from gradtape.ir.op import NDArray
from gradtape.kinds.index_map import IndexMap
from gradtape.ops.core.elementwise.cast import convert
from gradtape.ops.core.join import join, join_row
from gradtape.ops.core.shape import expand, pad, permute, reshape, reshape_row
from gradtape.transforms.basis import Stop
from gradtape.transforms.jvp import jvp
from gradtape.transforms.row_independence import row_axis
from gradtape.transforms.sparsity.index_sets import IndexSets
from gradtape.transforms.vjp import vjp

MOST_VALUES: Final = 64
"""Values on the way from the sources to what is read by rows that are looked at."""

MOST_PRODUCTS: Final = 16
"""Products by blocks: each is a sweep through the program of its own, which is compiled."""


class Blocks(NamedTuple):
    """An array whose row o depends on row o of each of some arrays that are read from the sources, and on nothing else of the sources.

    Attributes
    ----------
    target : Value
        The array.
    reads : tuple of Value
        What is read. Each element is an element of the sources, or zero.
    """

    target: Value
    reads: tuple[Value, ...]

    @property
    def size(self) -> BlockSize:
        """The size of the blocks."""
        rows = self.target.shape[0]
        height, width = prod(self.target.shape[1:]), sum(prod(read.shape[1:]) for read in self.reads)
        return BlockSize(rows, height, width, width <= REVERSE_COST * height)

    def products(self, stop: Stop, dtype: np.dtype[Any]) -> Value:
        """Return all blocks: the elements of all blocks at a place in the first product, at the next place, and so on.

        So what is written and what is gathered from it are few streams of numbers one after the other.
        """
        if self.size.by_columns:
            made = [
                jvp([self.target], [read], [seed], stop, constant=[seed], are_units=True)
                for read in self.reads
                for seed in _rows_of_units(read)
            ]
        else:
            made = [
                vjp([self.target], self.reads, [seed], stop, constant=[seed], are_units=True)
                for seed in _rows_of_units(self.target)
            ]
        outputs = [self.target] if self.size.by_columns else self.reads
        return join(
            [_by_place(part, x, dtype) for found in made for part, x in zip(found, outputs, strict=True)], 0
        )

    def places(self, columns: Sequence[NDArray], row: NDArray, column: NDArray) -> NDArray | None:
        """Return where the elements of a matrix stand in the products.

        Parameters
        ----------
        columns : sequence of ndarray of int
            For each of `reads` the column that each element is read from, -1 for none.
        row, column : ndarray of int
            The elements.

        Returns
        -------
        ndarray of int or None
            None where a block has two columns for an element, which is their sum, or none.
        """
        count, height, width, by_columns = self.size
        by_row = np.concatenate([each.reshape(count, -1) for each in columns], axis=1)
        order = np.argsort(by_row, axis=1, kind="stable")
        ordered = np.take_along_axis(by_row, order, axis=1)
        if np.any((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)):
            return None
        number, within = np.divmod(row, height)
        span = int(ordered.max(initial=0)) + 2
        keys = (np.arange(count)[:, None] * span + ordered + 1).reshape(-1)
        found = np.searchsorted(keys, number * span + column + 1)
        inside = np.minimum(found, keys.size - 1)
        if column.size and not (
            column.max() < span - 1 and np.all(keys[inside] == number * span + column + 1)
        ):
            return None
        at = order.reshape(-1)[inside]
        place = at * height + within if by_columns else within * width + at
        return np.asarray(place * count + number)


def blocks_of(targets: Sequence[Value], sources: Sequence[Value], stop: Stop) -> list[Blocks] | None:
    """Return blocks whose targets stand in the order of the elements of `targets`, one after the other; None if there are none."""
    found = []
    for target in targets:
        for piece in _pieces(target, sources, stop):
            if piece is None:
                return None
            found.append(piece)
    return found or None


def _pieces(value: Value, sources: Sequence[Value], stop: Stop) -> Iterator[Blocks | None]:
    """Yield the blocks of an array, or of the arrays that it was put together from in their order; None for one without."""
    reads = _rows_read(value, sources, stop)
    node = value.node
    if reads:
        yield Blocks(value, reads)
    elif node is not None and node.op is reshape_row:
        yield from _pieces(node.inputs[0], sources, stop)
    elif node is not None and node.op is join_row and node.params["axis"] == 0:
        for piece in node.inputs:
            yield from _pieces(piece, sources, stop)
    else:
        yield None


def _rows_read(target: Value, sources: Sequence[Value], stop: Stop) -> tuple[Value, ...] | None:
    """Return arrays that are read from the sources, on whose row o alone row o of the target depends; None if there are none."""
    if not target.ndim or not target.size:
        return None
    nodes, _ = extract(
        [target], sources, stop=lambda value: (stop(value) and value not in sources) or value.node is None
    )
    readers: dict[Value, list[Node]] = defaultdict(list)
    for node in nodes:
        for operand in dict.fromkeys(node.inputs):
            readers[operand].append(node)
    found: list[Value] = []
    waiting = [source for source in sources if source in readers or source is target]
    for value in waiting:
        if len(waiting) > MOST_VALUES:
            return None
        if value.ndim and value.shape[0] == target.shape[0] and row_axis(target, value, stop) == 0:
            found.append(value)
            continue
        for node in readers[value]:
            if not isinstance(node.op, IndexMap) or value in node.inputs[1:]:
                return None
            if node.out not in waiting:
                waiting.append(node.out)
    return tuple(found)


def _rows_of_units(like: Value) -> Iterator[Value]:
    """Yield arrays like this one, each with the same unit vector in every row."""
    inner = prod(like.shape[1:])
    for place in range(inner):
        column = expand(literal(1, like.dtype), (like.shape[0], 1), ())
        yield reshape(pad(column, (like.shape[0], inner), (0, place)), like.shape)


def _by_place(part: Value | None, like: Value, dtype: np.dtype[Any]) -> Value:
    """Return a product with an axis of places in a row, and one of rows."""
    rows, inner = like.shape[0], prod(like.shape[1:])
    if part is None:
        return expand(literal(0, dtype), (inner, rows), ())
    return permute(convert(reshape(part, (rows, inner)), dtype), (1, 0))


def block_plan(
    pattern: IndexSets, blocks: Sequence[Blocks], columns_of: Callable[[Value], NDArray | None]
) -> Plan | None:
    """Return a plan for a matrix with a pattern by blocks; None where they do not give each element.

    `columns_of` returns the column that each element of what is read from the sources is, -1 for none; None where that is not known.
    """
    if sum(len(each.size.lengths) for each in blocks) > MOST_PRODUCTS:
        return None
    columns: dict[Value, NDArray] = {}
    for read in dict.fromkeys(read for each in blocks for read in each.reads):
        found = columns_of(read)
        if found is None:
            return None
        columns[read] = found
    starts, indices = pattern.indptr, pattern.indices
    positions, row, base = [], 0, 0
    for each in blocks:
        ends = starts[row], starts[row + each.target.size]
        rows = np.repeat(np.arange(each.target.size), np.diff(starts[row : row + each.target.size + 1]))
        places = each.places([columns[read] for read in each.reads], rows, indices[ends[0] : ends[1]])
        if places is None:
            return None
        positions.append(base + places)
        row, base = row + each.target.size, base + each.size.elements
    m, n = pattern.shape
    sizes = tuple([each.size for each in blocks])
    return Plan(
        (m, n), starts, indices, np.full(n, -1), np.full(m, -1), np.concatenate(positions), blocks=sizes
    )
