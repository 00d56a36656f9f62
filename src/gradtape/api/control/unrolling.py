"""Loop unrolling: several iterations in one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gradtape.ir.body import Body
from gradtape.ir.graph import Value, extract
from gradtape.ir.types import aval
from gradtape.ops.core.indexing import parse_index
from gradtape.ops.core.join import stack
from gradtape.ops.core.shape import reshape
from gradtape.ops.numpy.arrays.join import concatenate
from gradtape.trace.jit.bodies import apply_graph
from gradtape.transforms.loops.ops import Policy, scan


def unrolled(outs: Sequence[Value], size: int) -> list[Value]:
    """Record a loop with `size` iterations unrolled into one, and the remaining iterations after it.

    Parameters
    ----------
    outs : sequence of Value
        The outputs of the loop as it is: they begin with its last carries.
    size : int
    """
    node = outs[0].node
    assert node is not None
    body, length, reverse, policy, first, count = (
        node.params[key] for key in ("body", "length", "reverse", "policy", "consts", "carries")
    )
    consts, carries, arrays = (
        node.inputs[:first],
        node.inputs[first : first + count],
        node.inputs[first + count :],
    )
    unrolled_outs = _unrolled(body, consts, carries, arrays, length, reverse, size, policy)
    return [unrolled_outs[out.index] for out in outs]


def _unrolled(
    body: Body,
    consts: Sequence[Value],
    carries: Sequence[Value],
    arrays: Sequence[Value],
    length: int,
    reverse: bool,
    size: int,
    policy: Policy,
) -> list[Value]:
    blocks, remainder = divmod(length, size)
    # The remaining iterations are the last ones: with `reverse`, those of the first elements.
    first = remainder if reverse else 0
    chain = _UnrolledIterations(body, consts, carries)
    parts: list[list[Value]] = []
    if blocks > 1:
        full_blocks = [_part(array, first, blocks * size) for array in arrays]
        folded = [reshape(array, (blocks, size, *array.shape[1:])) for array in full_blocks]
        outs = scan(
            _block(body, len(consts), len(carries), size, first, reverse),
            consts,
            carries,
            folded,
            blocks,
            reverse,
            policy,
        )
        chain.carries = list(outs[: len(carries)])
        parts.append([reshape(y, (blocks * size, *y.shape[2:])) for y in outs[len(carries) :]])
        remaining_positions = range(remainder) if reverse else range(length - remainder, length)
    else:
        remaining_positions = range(length)
    if remaining_positions:
        order = reversed(remaining_positions) if reverse else remaining_positions
        ys = {
            position: chain.append(_number(position), [_element(array, position) for array in arrays])
            for position in order
        }
        stacked = [stack(*ys) for ys in zip(*[ys[position] for position in remaining_positions], strict=True)]
        parts.insert(0 if reverse else len(parts), stacked)
    joined = [ys[0] if len(ys) == 1 else concatenate(list(ys)) for ys in zip(*parts, strict=True)]
    return [*chain.carries, *joined]


class _UnrolledIterations:
    """Iterations that are appended one after the other."""

    def __init__(self, body: Body, consts: Sequence[Value], carries: Sequence[Value]) -> None:
        self._body, self._consts, self.carries = body, consts, list(carries)

    def append(self, number: Value, elements: Sequence[Value]) -> list[Value]:
        """Append an iteration and return its elements of the stacked outputs."""
        outs = apply_graph(self._body, [number, *self._consts, *self.carries, *elements])
        count = len(self.carries)
        self.carries = outs[:count]
        return outs[count:]


def _block(body: Body, consts: int, carries: int, size: int, first: int, reverse: bool) -> Body:
    """Return the body of the loop over blocks of elements."""
    fresh = [Value(value.aval) for value in body.inputs[: 1 + consts + carries]]
    blocks = [Value(aval((size, *value.shape), value.dtype)) for value in body.inputs[1 + consts + carries :]]
    chain = _UnrolledIterations(body, fresh[1 : 1 + consts], fresh[1 + consts :])
    order = reversed(range(size)) if reverse else range(size)
    ys = {k: chain.append(fresh[0] * size + (first + k), [_element(x, k) for x in blocks]) for k in order}
    stacked = [stack(*ys) for ys in zip(*[ys[k] for k in range(size)], strict=True)]
    inputs, outputs = [*fresh, *blocks], [*chain.carries, *stacked]
    nodes, _ = extract(outputs, inputs)
    return Body(inputs, nodes, outputs, body.name)


def _element(array: Value, position: int) -> Value:
    return parse_index(array.shape, position).read(array)


def _part(array: Value, start: int, count: int) -> Value:
    return parse_index(array.shape, slice(start, start + count)).read(array)


def _number(position: int) -> Value:
    return Value(aval((), np.dtype(np.int64), True), data=np.asarray(position))
