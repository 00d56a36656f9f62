"""Chunks of a mapped axis: rows or columns of Jacobians, as many at once as memory allows, and elements of `vmap`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

import numpy as np

from gradtape.config import config
from gradtape.ir.body import Body
from gradtape.ir.graph import Graph, Node, TraceTag, Value, constant, extract, literal
from gradtape.ir.types import INT64, INTP, aval
from gradtape.ir.varying import lengths_vary
from gradtape.kinds.index_map import IndexMap
from gradtape.ops.core.join import join_row
from gradtape.ops.core.shape import expand, reshape, slice_
from gradtape.transforms.basis import (
    LinearMap,
    Stop,
    is_array,
    pullback,
    pushforward,
    unit_vectors,
    unit_vectors_at,
)
from gradtape.transforms.batch import batch
from gradtape.transforms.call import without_data
from gradtape.transforms.jvp import jvp
from gradtape.transforms.loops.checkpoint import CARRIES_ONLY
from gradtape.transforms.loops.ops import scan
from gradtape.transforms.one_hot import OneHot
from gradtape.transforms.vjp import vjp

SeedsAt: TypeAlias = Callable[[Value], Value | OneHot]
"""``(positions) -> seeds`` at these positions of a basis."""

UNKNOWN_MEMORY = 2**32
"""Bytes that are assumed to be free on systems that do not report them."""

MEMORY_FRACTION = 4
"""The automatic bound is the free memory divided by this, rounded down to a power of two."""


@dataclass(frozen=True)
class Bound:
    """The maximum size of a chunk: rows or columns that are computed at once.

    Attributes
    ----------
    chunk_size : int or None
        Their number.
    memory : int or None
        The bytes of their intermediate values; None for `gt.config.jacobian_memory`.
    """

    chunk_size: int | None = None
    memory: int | None = None

    def size(self, linear: LinearMap, count: int) -> int:
        """Return the number of rows of a chunk for a linear map and a basis of `count`; chunks are of about the same size.

        Where lengths vary, the memory of this process says nothing: all rows are computed at once.
        """
        if self.chunk_size is not None:
            return max(min(self.chunk_size, count), 1)
        if self.memory is None and lengths_vary():
            return max(count, 1)
        memory = self.memory or config.jacobian_memory or automatic_memory()
        most = max(memory // max(bytes_of_row(linear), 1), 1)
        if most >= count:
            return max(count, 1)
        chunks = -(-count // most)
        return -(-count // chunks)


@cache
def automatic_memory() -> int:
    """Return the bytes of the intermediate values of a Jacobian: a part of the memory that was free at the first call."""
    try:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        free = UNKNOWN_MEMORY
    return max(1 << (max(free // MEMORY_FRACTION, 1).bit_length() - 1), 1 << 20)


def bytes_of_row(linear: LinearMap) -> int:
    """Return the bytes of all intermediate values of one row, without views and results."""
    nodes, _ = linear.nodes_between()
    results = set(linear.outs)
    return sum(
        out.size * out.dtype.itemsize
        for node in nodes
        if not isinstance(node.op, IndexMap)
        for out in node.outs
        if out not in results and is_array(out)
    )


def applied_in_chunks(
    linear: LinearMap, seeds_at: SeedsAt, count: int, bound: Bound
) -> list[Value | None] | None:
    """Return the map of all vectors of a basis, by a loop over chunks; None if one chunk is enough."""
    if all(out is None for out in linear.outs) or not count:
        return None
    size = bound.size(linear, count)
    return None if size >= count else in_loop(linear, seeds_at, count, size)


@dataclass(frozen=True)
class Chunk:
    """The map of some vectors of a basis.

    Attributes
    ----------
    rows : Value
        A placeholder for their positions, int of shape (size,).
    shared : list of Value
        Values that do not depend on these.
    nodes : list of Node
        The nodes that depend on these.
    outs : list of Value
        The results, stacked along a leading axis, without those that are zero.
    """

    rows: Value
    shared: list[Value]
    nodes: list[Node]
    outs: list[Value]


def chunk_of_rows(linear: LinearMap, seeds_at: SeedsAt, size: int) -> Chunk:
    rows = Value(aval((size,), INTP), tags=(TraceTag(),))
    outs = [out for out in linear.outs if out is not None]
    single, _ = extract(outs, [linear.seed], stop=lambda value: value.node is None)
    before = {out for node in single for out in node.outs if is_array(out)}
    batched = [out for out in linear.apply(seeds_at(rows)) if out is not None]
    nodes, shared = extract(
        batched,
        [rows],
        stop=lambda value: (
            value in before or value.node is None or (value.data is not None and is_array(value))
        ),
    )
    return Chunk(rows, shared, nodes, batched)


def in_loop(linear: LinearMap, seeds_at: SeedsAt, count: int, size: int) -> list[Value | None]:
    """Append a loop over chunks of `size` rows; the last chunk is padded with its last row."""
    length = -(-count // size)
    chunk = chunk_of_rows(linear, seeds_at, size)
    index = Value(aval((), INT64, True))
    body = without_data(Graph([index, *chunk.shared, chunk.rows], chunk.nodes, chunk.outs, "jacobian"))
    positions = np.minimum(np.arange(length * size, dtype=INTP), count - 1).reshape(-1, size)
    stacks = scan(
        Body(body.inputs, body.nodes, body.outputs, body.name),
        chunk.shared,
        [],
        [constant(positions)],
        length,
        policy=CARRIES_ONLY,
    )
    pieces = iter(stacks)
    return [None if out is None else _concatenated(next(pieces), count) for out in linear.outs]


def _concatenated(stack: Value, count: int) -> Value:
    """Return the rows of all chunks, from (chunks, size, ...) to (count, ...)."""
    chunks, size, *inner = stack.shape
    return _between(reshape(stack, (chunks * size, *inner)), 0, count)


def batched_in_chunks(
    outputs: Sequence[Value],
    mapped: Mapping[Value, Value],
    size: int,
    chunk_size: int,
    stop: Callable[[Value], bool],
) -> list[Value | None]:
    """Do what `batch` does, by a loop over chunks of `chunk_size` elements; the elements that are left over are batched after it.

    The loop keeps no intermediate values for its derivatives: these compute a chunk again.
    """
    count = size // chunk_size
    if count < 2:
        return batch(outputs, mapped, size, stop)
    whole = count * chunk_size
    tag = TraceTag()
    elements = {
        single: Value(aval((chunk_size, *array.shape[1:]), array.dtype, array.aval.weak), tags=(tag,))
        for single, array in mapped.items()
    }
    batched = batch(outputs, elements, chunk_size, stop)
    outs = [out for out in batched if out is not None]
    nodes, shared = extract(outs, elements.values(), stop=lambda value: tag not in value.tags)
    index = Value(aval((), INT64, True))
    body = without_data(Graph([index, *shared, *elements.values()], nodes, outs, "vmap"))
    stacks = scan(
        Body(body.inputs, body.nodes, body.outputs, body.name),
        shared,
        [],
        [
            reshape(_between(array, 0, whole), (count, chunk_size, *array.shape[1:]))
            for array in mapped.values()
        ],
        count,
        policy=CARRIES_ONLY,
    )
    pieces = iter(stacks)
    found = [None if out is None else _concatenated(next(pieces), whole) for out in batched]
    if whole == size:
        return found
    left = {single: _between(array, whole, size) for single, array in mapped.items()}
    rest = batch(outputs, left, size - whole, stop)
    return [
        None if first is None or last is None else join_row(first, last, axis=0)
        for first, last in zip(found, rest, strict=True)
    ]


def _between(array: Value, first: int, last: int) -> Value:
    """Return the elements of an array from one position of its leading axis to another."""
    inner = array.shape[1:]
    if (first, last) == (0, array.shape[0]):
        return array
    return slice_(array, (first, *[0] * len(inner)), (last - first, *inner), (1,) * array.ndim)


def rows(
    target: Value, sources: Sequence[Value], stop: Stop, tag: TraceTag, bound: Bound
) -> list[Value | None]:
    """Return the Jacobian of `target` in each source by reverse mode: its rows along a leading axis, which is missing for one row."""
    if target.size == 1:
        return vjp([target], sources, [_one(target)], stop)
    return _all(pullback(target, sources, stop, tag), target, bound)


def columns(
    targets: Sequence[Value], source: Value, stop: Stop, tag: TraceTag, bound: Bound
) -> list[Value | None]:
    """Return the Jacobian of each target in `source` by forward mode: its columns along a leading axis."""
    if source.size == 1:
        return [_as_column(part) for part in jvp(targets, [source], [_one(source)], stop)]
    return _all(pushforward(targets, source, stop, tag), source, bound)


def _all(linear: LinearMap, like: Value, bound: Bound) -> list[Value | None]:
    """Return the map of all unit vectors."""
    found = applied_in_chunks(linear, lambda positions: unit_vectors_at(like, positions), like.size, bound)
    return linear.apply(unit_vectors(like)) if found is None else found


def _one(like: Value) -> Value:
    one = literal(1, like.dtype)
    return one if like.ndim == 0 else expand(one, like.shape, ())


def _as_column(part: Value | None) -> Value | None:
    return None if part is None else reshape(part, (1, *part.shape))
