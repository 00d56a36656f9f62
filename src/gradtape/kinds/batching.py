"""Batch rules, one per kind: a node on single elements becomes a node on many at once.

The mapped axis leads. A rule gets the node on single elements and its operands, of which those flagged by `mapped` have one
axis more in front; it returns the outputs with that axis in front. A kind registers its rule with `batch_node`; for a kind
without one the elements are taken one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch
from typing import NamedTuple

from gradtape.ir.builder import emit, emit_all
from gradtape.ir.graph import Literal, Node, Value
from gradtape.ir.op import Op
from gradtape.ir.primitives import PRIMITIVES
from gradtape.ir.types import aval
from gradtape.kinds.accumulate import Accumulate
from gradtape.kinds.contract import Contract
from gradtape.kinds.correlation import Correlation
from gradtape.kinds.cumulative import Cumulative
from gradtape.kinds.elementwise import Elementwise
from gradtape.kinds.index_map import IndexMap
from gradtape.kinds.join import Join
from gradtape.kinds.reduction import Reduction
from gradtape.kinds.routines.callback import Callback
from gradtape.kinds.routines.matrix import Matrix
from gradtape.kinds.sort import Sort

Operands = Sequence[Value]
Flags = Sequence[bool]


class Shared(NamedTuple):
    """An output of a node that does not depend on the mapped axis although other outputs do: the same for all elements."""

    value: Value


def in_front(x: Value, size: int) -> Value:
    """Return `x` repeated along a new leading axis."""
    return PRIMITIVES["expand"](x, (size, *x.shape), tuple(range(1, x.ndim + 1)))


def all_in_front(operands: Operands, mapped: Flags, size: int) -> list[Value]:
    """Return the operands with the mapped axis in front of each."""
    return [x if flag else in_front(x, size) for x, flag in zip(operands, mapped, strict=True)]


def to_front(x: Value, axis: int) -> Value:
    """Return `x` with an axis moved to the front."""
    return _permuted(x, (axis, *[k for k in range(x.ndim) if k != axis]))


def from_front(x: Value, axis: int) -> Value:
    """Return `x` with its leading axis moved to `axis`."""
    order = list(range(1, x.ndim))
    return _permuted(x, (*order[:axis], 0, *order[axis:]))


def _permuted(x: Value, axes: tuple[int, ...]) -> Value:
    return x if axes == tuple(range(x.ndim)) else PRIMITIVES["permute"](x, axes)


@singledispatch
def batch_node(
    op: Op, node: Node, operands: Operands, mapped: Flags, size: int
) -> tuple[Value | Shared, ...]:
    """Return the outputs of a node for every element of the mapped axis; here, one element after another.

    Parameters
    ----------
    op : Op
        The node's.
    node : Node
        The node on single elements.
    operands : sequence of Value
        Its inputs; those flagged by `mapped` have the mapped axis in front.
    mapped : sequence of bool
        Which operands depend on the mapped axis; at least one does.
    size : int
        The extent of the mapped axis.
    """
    if size == 0:
        zero = PRIMITIVES["zeros_like"]
        return tuple([zero(Value(aval((0, *out.shape), out.dtype))) for out in node.outs])
    single = [
        emit_all(
            op,
            [_element(x, k) if flag else x for x, flag in zip(operands, mapped, strict=True)],
            **node.params,
        )
        for k in range(size)
    ]
    return tuple([PRIMITIVES["stack"](*column) for column in zip(*single, strict=True)])


def _element(x: Value, k: int) -> Value:
    rank = x.ndim - 1
    row = PRIMITIVES["slice"](x, (k, *(0,) * rank), (1, *x.shape[1:]), (1,) * (rank + 1))
    return PRIMITIVES["reshape"](row, x.shape[1:])


@batch_node.register
def _elementwise(
    op: Elementwise, node: Node, operands: Operands, mapped: Flags, size: int
) -> tuple[Value, ...]:
    inputs = [
        x if flag or isinstance(x, Literal) else in_front(x, size)
        for x, flag in zip(operands, mapped, strict=True)
    ]
    out = emit(op, inputs, **node.params)
    if node.out.aval.weak:
        out.aval = aval(out.shape, out.dtype, True)
    return (out,)


@batch_node.register
def _index_map(op: IndexMap, node: Node, operands: Operands, mapped: Flags, size: int) -> tuple[Value, ...]:
    x, *indices = operands
    if not indices:
        return (op(x, **op.lead(size, **node.params)),)
    picked, rank = len(indices), node.inputs[1].ndim
    if not any(mapped[1:]):
        # The mapped axis steps behind those that are picked from.
        return (to_front(op(from_front(x, picked), *indices, **node.params), rank),)
    indices = all_in_front(indices, mapped[1:], size)
    if mapped[0]:
        indices = [counter(size, indices[0].shape), *indices]
    return (op(x, *indices, **node.params),)


@batch_node.register
def _accumulate(
    op: Accumulate, node: Node, operands: Operands, mapped: Flags, size: int
) -> tuple[Value, ...]:
    base, v = all_in_front(operands[:2], mapped[:2], size)
    *_, indices, starts = op.split(operands)
    if not indices:
        return (op(base, v, **op.lead(size, **node.params)),)
    picked, rank = len(indices), node.inputs[2].ndim
    if not any(mapped[2:]):
        inner = op(from_front(base, picked), from_front(v, rank), *indices, *starts, **node.params)
        return (to_front(inner, picked),)
    indices = all_in_front(indices, op.split(mapped)[2], size)
    row = op.without_starts or op
    return (row(base, v, counter(size, indices[0].shape), *indices, **node.params),)


def counter(size: int, shape: tuple[int, ...]) -> Value:
    """Return an index array that says which element of the mapped axis a position belongs to."""
    return PRIMITIVES["expand"](PRIMITIVES["count_to"](size), shape, (0,))


@batch_node.register
def _reduction(op: Reduction, node: Node, operands: Operands, mapped: Flags, size: int) -> tuple[Value, ...]:
    return (op(operands[0], axes=tuple(axis + 1 for axis in node.params["axes"])),)


@batch_node.register
def _cumulative(
    op: Cumulative, node: Node, operands: Operands, mapped: Flags, size: int
) -> tuple[Value, ...]:
    params = {**node.params, "axis": node.params["axis"] + 1}
    return (op(*all_in_front(operands, mapped, size), **params),)


@batch_node.register
def _join(op: Join, node: Node, operands: Operands, mapped: Flags, size: int) -> tuple[Value, ...]:
    return (op(*all_in_front(operands, mapped, size), axis=node.params["axis"] + 1),)


@batch_node.register
def _contract(op: Contract, node: Node, operands: Operands, mapped: Flags, size: int) -> tuple[Value, ...]:
    x, y, out = node.params["x"], node.params["y"], node.params["out"]
    new = max((*x, *y), default=-1) + 1
    first, second = [
        (new, *subscripts) if flag else subscripts for subscripts, flag in zip((x, y), mapped, strict=True)
    ]
    return (op(*operands, x=first, y=second, out=(new, *out)),)


@batch_node.register
def _correlation(
    op: Correlation, node: Node, operands: Operands, mapped: Flags, size: int
) -> tuple[Value, ...]:
    return (op(*all_in_front(operands, mapped, size), **node.params),)


@batch_node.register
def _matrix(op: Matrix, node: Node, operands: Operands, mapped: Flags, size: int) -> tuple[Value, ...]:
    return op.results(*all_in_front(operands, mapped, size), **node.params)


@batch_node.register
def _callback(op: Callback, node: Node, operands: Operands, mapped: Flags, size: int) -> tuple[Value, ...]:
    return op.results(*all_in_front(operands, mapped, size), **node.params)


@batch_node.register
def _sort(op: Sort, node: Node, operands: Operands, mapped: Flags, size: int) -> tuple[Value, ...]:
    return (op.batch_rule(*operands, mapped=mapped, size=size, **node.params),)
