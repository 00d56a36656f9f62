"""Expansion of correlations: sums of shifted products, in the form that the shapes ask for.

A small kernel is written out: an element of the result is a sum over the kernel's elements, vectors run along the result. A small
result is written out the other way, each element as a sum over the kernel. Where both are large, parts of the kernel's rows are written
out, and loops over the parts add them to the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import product
from math import prod
from typing import Final

from gradtape.ir.graph import Graph, Node, Value
from gradtape.ir.types import Shape
from gradtape.kinds.correlation import Correlation
from gradtape.ops.core.elementwise.arithmetic import add, multiply
from gradtape.ops.core.join import stack
from gradtape.ops.core.reductions import reduce_sum
from gradtape.ops.core.shape import expand, reshape, slice_, windows
from gradtape.passes.rewrite import rewrite

WRITTEN: Final = 24
"""Products that one element is written out as."""

PART: Final = 16
"""Elements of a kernel's row that are written out where not all of them are."""


def expand_correlations(graph: Graph) -> Graph:
    """Return the graph without correlations."""
    return rewrite(graph, _expand)


def _expand(node: Node, inputs: tuple[Value, ...]) -> Sequence[Value] | None:
    if not isinstance(node.op, Correlation):
        return None
    x, w = inputs
    lead = x.ndim - node.params["rank"]
    shape = node.out.shape
    if prod(w.shape[lead:]) <= WRITTEN:
        return (_over_kernel(x, w, shape, lead),)
    if prod(shape[lead:]) <= WRITTEN:
        return (_over_result(x, w, shape, lead),)
    return (_in_parts(x, w, shape, lead),)


def _over_kernel(x: Value, w: Value, shape: Shape, lead: int) -> Value:
    """Write out the sum over the kernel."""
    terms = [
        multiply(_part(x, offsets, shape, lead), _weight(w, offsets, shape, lead))
        for offsets in product(*map(range, w.shape[lead:]))
    ]
    return reduce(add, terms)


def _over_result(x: Value, w: Value, shape: Shape, lead: int) -> Value:
    """Write out the elements of the result, sums over the kernel."""
    axes = tuple(range(lead, x.ndim))
    sums = [
        reduce_sum(multiply(_part(x, offsets, w.shape, lead), w), axes=axes)
        for offsets in product(*map(range, shape[lead:]))
    ]
    return reshape(sums[0] if len(sums) == 1 else stack(*sums, axis=lead), shape)


def _in_parts(x: Value, w: Value, shape: Shape, lead: int) -> Value:
    """Add up the products with parts of the kernel's rows."""
    full_parts, remainder = divmod(w.shape[-1], PART)
    parts = []
    if full_parts:
        parts.append(_rows(x, w, shape, lead, 0, full_parts, PART))
    if remainder:
        parts.append(_rows(x, w, shape, lead, full_parts * PART, 1, remainder))
    return reduce(add, parts)


def _rows(x: Value, w: Value, shape: Shape, lead: int, first: int, count: int, size: int) -> Value:
    """Return the sum over so many parts of each row of the kernel, from its element `first` on."""
    rank = x.ndim - lead
    extents = (*w.shape[lead:-1], count)
    steps = (*[1] * (rank - 1), size)
    target_shape = (*shape[:lead], *extents, *shape[lead:])
    terms = []
    for k in range(size):
        read = windows(x, extents, steps, shape[lead:], (*[0] * (rank - 1), first + k))
        picked = slice_(
            w, (*[0] * (w.ndim - 1), first + k), (*w.shape[:-1], count), (*[1] * (w.ndim - 1), size)
        )
        terms.append(multiply(read, expand(picked, target_shape, tuple(range(w.ndim)))))
    return reduce_sum(reduce(add, terms), axes=tuple(range(lead, x.ndim)))


def _part(x: Value, offsets: Shape, shape: Shape, lead: int) -> Value:
    """Return the part of an array with this shape that begins at a place."""
    return slice_(x, (*[0] * lead, *offsets), shape, (1,) * x.ndim)


def _weight(w: Value, offsets: Shape, shape: Shape, lead: int) -> Value:
    """Return an element of the kernel, repeated along the result."""
    single = slice_(w, (*[0] * lead, *offsets), (*w.shape[:lead], *[1] * len(offsets)), (1,) * w.ndim)
    return expand(reshape(single, w.shape[:lead]), shape, tuple(range(lead)))
