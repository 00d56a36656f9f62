"""Algebraic simplification: identities that hold for every IEEE number, infinities and NaN included, and cheaper equivalents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Final

import numpy as np

from gradtape.ir.graph import Graph, Literal, Node, Value, literal, number_of
from gradtape.ir.op import Op
from gradtape.ir.types import Shape
from gradtape.ir.varying import code_is_shared
from gradtape.kinds.elementwise import Elementwise
from gradtape.kinds.index_map import repeated_number
from gradtape.ops.core.elementwise.arithmetic import add, divide, multiply, negative, subtract
from gradtape.ops.core.elementwise.cast import convert_row, zeros_like
from gradtape.ops.core.elementwise.logic import invert
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.core.join import join_row
from gradtape.ops.core.reductions import reduce_sum
from gradtape.ops.core.shape import expand, expand_row, pad_row, permute_row, reshape, reshape_row, slice_row
from gradtape.passes.rewrite import rewrite


def simplify_algebra(graph: Graph) -> Graph:
    """Return the graph with cheaper equivalents of single nodes."""
    return rewrite(graph, _simplify)


def _simplify(node: Node, inputs: tuple[Value, ...]) -> Sequence[Value] | None:
    op = node.op
    result = _by_facts(op, inputs) if isinstance(op, Elementwise) else None
    if result is None and op in RULES:
        result = RULES[op](node, inputs)
    if result is None or result.dtype != node.out.dtype:
        return None
    if (isinstance(result, Literal) and node.out.shape != ()) or result.shape != node.out.shape:
        return None
    return (result,)


def _by_facts(op: Elementwise, inputs: Sequence[Value]) -> Value | None:
    """Apply what the row says of itself: neutral elements, idempotence, involution."""
    if op.is_involution:
        inner = _made_by(inputs[0], op)
        return None if inner is None else inner.inputs[0]
    if op.is_idempotent and inputs[0] is inputs[1]:
        return inputs[0]
    for argument, number in reversed(list(enumerate(op.neutral))):
        if number is not None and _consists_of(inputs[argument], number):
            return inputs[1 - argument]
    return None


def _made_by(value: Value, op: Op) -> Node | None:
    """Return the node that makes a value if it applies this row."""
    node = value.node
    return node if node is not None and node.op is op else None


def _consists_of(value: Value, number: float) -> bool:
    """Return whether a value is known to be this number everywhere; zeros of floats count by their signs."""
    repeated = repeated_number(value)
    if repeated is None or repeated.data is None or repeated.data != number:
        return False
    return number != 0 or repeated.dtype.kind != "f" or bool(np.signbit(repeated.data) == np.signbit(number))


def _add(node: Node, inputs: tuple[Value, ...]) -> Value | None:
    x, y = inputs
    for term, other in ((x, y), (y, x)):
        negated = _made_by(other, negative)
        if negated is not None:
            return subtract(term, negated.inputs[0])
    return _merged_choices(x, y)


def _merged_choices(x: Value, y: Value) -> Value | None:
    """``where(c, a, 0) + where(c, 0, b)`` is ``where(c, a, b)``."""
    first, second = _made_by(x, where), _made_by(y, where)
    if first is None or second is None or first.inputs[0] is not second.inputs[0]:
        return None
    (c, a, b), (_, d, e) = first.inputs, second.inputs
    if _consists_of(b, 0.0) and _consists_of(d, 0.0):
        return where(c, a, e)
    if _consists_of(a, 0.0) and _consists_of(e, 0.0):
        return where(c, d, b)
    return None


def _subtract(node: Node, inputs: tuple[Value, ...]) -> Value | None:
    x, y = inputs
    negated = _made_by(y, negative)
    return None if negated is None else add(x, negated.inputs[0])


def _multiply(node: Node, inputs: tuple[Value, ...]) -> Value | None:
    x, y = inputs
    for number, other in ((number_of(y), x), (number_of(x), y)):
        if number == -1 and other.dtype.kind == "f":
            return negative(other)
    return None


def _divide(node: Node, inputs: tuple[Value, ...]) -> Value | None:
    x, y = inputs
    number = number_of(y)
    if isinstance(number, float) and number != 0 and np.isfinite(number) and not code_is_shared():
        mantissa, exponent = np.frexp(number)
        if abs(mantissa) == 0.5 and abs(exponent) < 100:
            return multiply(x, literal(1.0 / number, y.dtype))
    return None


def _where(node: Node, inputs: tuple[Value, ...]) -> Value | None:
    c, a, b = inputs
    if a is b:
        return a
    repeated = repeated_number(c)
    if repeated is not None and repeated.data is not None:
        return a if repeated.data else b
    padded, selected = _made_by(c, pad_row), _made_by(a, pad_row)
    if (
        padded is not None
        and selected is not None
        and padded.params == selected.params
        and padded.inputs[0].shape == selected.inputs[0].shape
        and _consists_of(b, 0.0)
    ):
        mask, x = padded.inputs[0], selected.inputs[0]
        return pad_row(where(mask, x, zeros_like(x)), **selected.params)
    inverted = _made_by(c, invert)
    if inverted is not None:
        return where(inverted.inputs[0], b, a)
    for branch, position in ((a, 1), (b, 2)):
        inner = _made_by(branch, where)
        if inner is not None and inner.inputs[0] is c:
            return where(c, inner.inputs[1], b) if position == 1 else where(c, a, inner.inputs[2])
    return None


def _convert(node: Node, inputs: tuple[Value, ...]) -> Value | None:
    return inputs[0] if inputs[0].dtype == node.out.dtype else None


def _permute(node: Node, inputs: tuple[Value, ...]) -> Value | None:
    (x,) = inputs
    axes: tuple[int, ...] = node.params["axes"]
    inner = _made_by(x, permute_row)
    if inner is not None:
        axes = tuple(inner.params["axes"][axis] for axis in axes)
        x = inner.inputs[0]
    elif axes != tuple(range(len(axes))):
        return None
    return x if axes == tuple(range(len(axes))) else permute_row(x, axes=axes)


def _reshape(node: Node, inputs: tuple[Value, ...]) -> Value | None:
    (x,) = inputs
    shape = node.params["shape"]
    if x.shape == shape and not isinstance(x, Literal):
        return x
    inner = _made_by(x, reshape_row)
    return None if inner is None else reshape(inner.inputs[0], shape)


def _sum(node: Node, inputs: tuple[Value, ...]) -> Value | None:
    """A sum over axes that a reshape made of whole axes is the sum over these, so that products behind it can be summed early."""
    inner = _made_by(inputs[0], reshape_row)
    if inner is None:
        return None
    (x,) = inner.inputs
    axes = None if x.size == 0 else _axes_before(x.shape, inputs[0].shape, node.params["axes"])
    if axes is None:
        return None
    return reshape(reduce_sum(x, axes=axes) if axes else x, node.out.shape)


def _axes_before(shape: Shape, reshaped: Shape, axes: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the axes of which a reshape makes these, and all of extent 1, so that no loop over one element is left around the sum; None
    where it divides an axis of its operand into some of these and others."""
    axes_summed = [axis for axis, extent in enumerate(shape) if extent == 1]
    before, after = ([axis for axis, extent in enumerate(s) if extent != 1] for s in (shape, reshaped))
    while before and after:  # terminates: each round takes an axis from both
        group, new_group = [before.pop(0)], [after.pop(0)]
        while (rows := prod(shape[k] for k in group)) != (others := prod(reshaped[k] for k in new_group)):
            if rows < others:
                group.append(before.pop(0))
            else:
                new_group.append(after.pop(0))
        summed = [axis in axes for axis in new_group]
        if any(summed) and not all(summed):
            return None
        axes_summed += group if summed[0] else []
    return tuple(sorted(axes_summed))


def _expand(node: Node, inputs: tuple[Value, ...]) -> Value | None:
    (x,) = inputs
    axes: tuple[int, ...] = node.params["axes"]
    inner = _made_by(x, expand_row)
    if inner is not None:
        composed = tuple(axes[axis] for axis in inner.params["axes"])
        return expand(inner.inputs[0], node.out.shape, composed)
    return x if x.shape == node.out.shape and not isinstance(x, Literal) else None


def _slice(node: Node, inputs: tuple[Value, ...]) -> Value | None:
    """A slice of a slice is a slice."""
    inner = _made_by(inputs[0], slice_row)
    return None if inner is None else slice_row(inner.inputs[0], **_composed(node, inner, inner))


def _pad(node: Node, inputs: tuple[Value, ...]) -> Value | None:
    """What is put into zeros, and that into zeros, is put there at once."""
    inner = _made_by(inputs[0], pad_row)
    return None if inner is None else pad_row(inner.inputs[0], **_composed(node, inner, node))


def _composed(outer: Node, inner: Node, scaling: Node) -> dict[str, tuple[int, ...]]:
    """Return the parameters of a map that takes two steps at once; `scaling` is the step whose strides scale the other's places."""
    other = inner if scaling is outer else outer
    starts, strides = scaling.params["starts"], scaling.params["strides"]
    moved = zip(starts, strides, other.params["starts"], strict=True)
    scaled = zip(strides, other.params["strides"], strict=True)
    return {
        "shape": outer.params["shape"],
        "starts": tuple(start + stride * further for start, stride, further in moved),
        "strides": tuple(stride * further for stride, further in scaled),
    }


def _join(node: Node, inputs: tuple[Value, ...]) -> Value | None:
    """Slices laid end to end in the order in which they were cut are what they were cut from."""
    axis: int = node.params["axis"]
    source: Value | None = None
    reached = 0
    for piece in inputs:
        cut = _made_by(piece, slice_row)
        if cut is None or (source is not None and cut.inputs[0] is not source):
            return None
        source = cut.inputs[0]
        starts = tuple(reached if k == axis else 0 for k in range(piece.ndim))
        if cut.params["starts"] != starts or any(stride != 1 for stride in cut.params["strides"]):
            return None
        reached += piece.shape[axis]
    return source


RULES: Final[dict[Op, Callable[[Node, tuple[Value, ...]], Value | None]]] = {
    add: _add,
    subtract: _subtract,
    multiply: _multiply,
    divide: _divide,
    where: _where,
    convert_row: _convert,
    permute_row: _permute,
    reshape_row: _reshape,
    reduce_sum: _sum,
    expand_row: _expand,
    slice_row: _slice,
    pad_row: _pad,
    join_row: _join,
}
"""By row, an equivalent that costs less, or None."""
