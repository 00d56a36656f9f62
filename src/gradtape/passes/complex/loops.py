"""Products, extrema and running results of complex numbers: loops that carry a complex number from element to element."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from gradtape.ir.graph import Node, Value, literal
from gradtape.ir.types import INT64, aval
from gradtape.kinds.cumulative import Cumulative
from gradtape.kinds.operands import broadcast_to
from gradtape.kinds.reduction import Reduction
from gradtape.kinds.registry import ROWS
from gradtape.ops.core.join import join
from gradtape.ops.core.shape import inverse_permutation, permute, reshape, slice_
from gradtape.transforms.loops.draft import make_body
from gradtape.transforms.loops.ops import scan

Step = Callable[..., Value]


def reduced(node: Node) -> Value:
    """Return what a reduction comes to, as a loop over the elements after the first one."""
    op, (x,), axes = node.op, node.inputs, node.params["axes"]
    assert isinstance(op, Reduction)
    kept = tuple([axis for axis in range(x.ndim) if axis not in axes])
    length = prod([x.shape[axis] for axis in axes])
    if length == 0:
        return broadcast_to(literal(op.identity or 0, x.dtype), node.out.shape)
    elements = reshape(permute(x, (*axes, *kept)), (length, *node.out.shape))
    step: Step = ROWS[op.monoid]  # type: ignore[assignment]
    return _run(step, _part(elements, 0, 1), [_part(elements, 1, length)], is_running=False)


def accumulated(node: Node) -> Value:
    """Return running results, as a loop."""
    op, axis, reverse = node.op, node.params["axis"], node.params["reverse"]
    assert isinstance(op, Cumulative)
    length = node.out.shape[axis]
    if length == 0:
        return node.inputs[-1]
    order = (axis, *[k for k in range(node.out.ndim) if k != axis])
    inputs = [permute(x, order) for x in node.inputs]
    begin, (low, high) = (length - 1, (0, length - 1)) if reverse else (0, (1, length))
    first = op.first(*[_part(x, begin, begin + 1) for x in inputs])
    rest = _run(op.step, first, [_part(x, low, high) for x in inputs], is_running=True, reverse=reverse)
    return permute(join([rest, first] if reverse else [first, rest], 0), inverse_permutation(order))


def _run(
    step: Step, first: Value, elements: Sequence[Value], *, is_running: bool, reverse: bool = False
) -> Value:
    """Return the last result of ``step(previous, *elements)``, or all of them; `first` has an axis of extent 1 in front."""
    length, *shape = elements[0].shape
    first = reshape(first, tuple(shape)) if length or not is_running else first
    if length == 0:
        return elements[0] if is_running else first
    inputs = [Value(aval(tuple(shape), x.dtype)) for x in (first, *elements)]
    result = step(*inputs)
    body = make_body([Value(aval((), INT64)), *inputs], [result, result] if is_running else [result])
    return scan(body, (), [first], elements, length, reverse)[-1]


def _part(x: Value, start: int, stop: int) -> Value:
    """Return the elements of a range along the first axis."""
    inner = x.shape[1:]
    starts = (start, *[0 for _ in inner])
    return slice_(x, starts, (stop - start, *inner), (1,) * x.ndim)
