"""Contractions of complex numbers as contractions of real ones."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Final

from gradtape.ir.builder import emit
from gradtape.ir.graph import Node, Value
from gradtape.ir.types import Shape
from gradtape.ir.varying import lengths_vary
from gradtape.kinds.contract import Subscripts, extents_of, groups_of
from gradtape.kinds.elementwise import Parts
from gradtape.ops.core.elementwise.arithmetic import add, subtract
from gradtape.ops.core.join import join
from gradtape.ops.core.shape import reshape, slice_
from gradtape.passes.layout.contract_transposes import LARGE

SHORTEST: Final = 8
"""Extent of rows, columns and sums from which one product of matrices of twice the size is faster than four products (measured)."""


def contracted(node: Node, x: Parts, y: Parts) -> Parts:
    """Return the parts of a contraction: by one large product of matrices, or by four that are fused with what surrounds them."""
    a, b, out = node.params["x"], node.params["y"], node.params["out"]
    extents = extents_of(node)
    _, *groups = groups_of(node.params)
    sizes = [prod(extents[s] for s in group) for group in groups]
    if min(sizes) >= SHORTEST and prod(sizes) >= LARGE and not lengths_vary():
        if sizes[0] < sizes[1]:
            return _as_one(node, y, b, x, a, out)
        return _as_one(node, x, a, y, b, out)
    return four_products(node, x, y)


def four_products(node: Node, x: Parts, y: Parts) -> Parts:
    """Return the parts of a bilinear op of complex numbers, from those of its operands."""

    def product(first: Value, second: Value) -> Value:
        return emit(node.op, [first, second], **node.params)

    return (
        subtract(product(x[0], y[0]), product(x[1], y[1])),
        add(product(x[0], y[1]), product(x[1], y[0])),
    )


def _as_one(node: Node, x: Parts, a: Subscripts, y: Parts, b: Subscripts, out: Subscripts) -> Parts:
    """Multiply with [re im; -im re]: a subscript p joins those that are summed, a subscript q those that y gives to the result.

    Each follows the subscripts of its group, so that BLAS can take the two together; x is read as complex numbers lie in memory.
    """
    p = max(*a, *b, *out) + 1
    q = p + 1
    first = _behind(a, lambda s: s not in out, p)
    second = _behind(_behind(b, lambda s: s not in out, p), lambda s: s in out and s not in a, q)
    result = _behind(out, lambda s: s in b and s not in a, q)
    left = join([_with_ones(part, first, (p,)) for part in x], first.index(p))
    rows = [(y[0], y[1]), (-y[1], y[0])]
    right = join(
        [join([_with_ones(part, second, (p, q)) for part in row], second.index(q)) for row in rows],
        second.index(p),
    )
    product = emit(node.op, [left, right], x=first, y=second, out=result)
    return _one_of(product, result.index(q), 0), _one_of(product, result.index(q), 1)


def _behind(subscripts: Subscripts, belongs: Callable[[int], bool], subscript: int) -> Subscripts:
    """Return the subscripts with another right behind the last that belongs to its group."""
    place = max(k for k, s in enumerate(subscripts) if belongs(s)) + 1
    return (*subscripts[:place], subscript, *subscripts[place:])


def _with_ones(part: Value, subscripts: Subscripts, new: Subscripts) -> Value:
    """Return a part with an axis of extent 1 for each new subscript."""
    extents = iter(part.shape)
    shape: Shape = tuple([1 if subscript in new else next(extents) for subscript in subscripts])
    return reshape(part, shape)


def _one_of(x: Value, axis: int, which: int) -> Value:
    """Return one of the elements along an axis."""
    shape = tuple([1 if k == axis else extent for k, extent in enumerate(x.shape)])
    starts = tuple([which if k == axis else 0 for k in range(x.ndim)])
    return reshape(slice_(x, starts, shape, (1,) * x.ndim), (*shape[:axis], *shape[axis + 1 :]))
