"""Loops that make no turn or one, and branches that are known, without a loop or a branch; and what is kept of a loop by a policy."""

from __future__ import annotations

from collections.abc import Sequence

from gradtape.ir.graph import Graph, Node, Value, literal, number_of
from gradtape.ir.primitives import PRIMITIVES
from gradtape.ir.types import INT64
from gradtape.kinds.operands import broadcast_to
from gradtape.passes.rewrite import rewrite
from gradtape.transforms.call import inlined
from gradtape.transforms.loops.checkpoint import chunk_of, goes_in_chunks, in_chunks, until_in_chunks
from gradtape.transforms.loops.ops import Scan, Switch, While


def reform_loops(graph: Graph) -> Graph:
    """Return the graph without loops of no turn or one, and without branches that are known."""
    return rewrite(graph, _reformed)


def _reformed(node: Node, inputs: tuple[Value, ...]) -> Sequence[Value] | None:
    if isinstance(node.op, Scan):
        length, policy = node.params["length"], node.params["policy"]
        chunk = chunk_of(length, policy)
        if chunk is not None:
            return node.op.outs(in_chunks(node.op.opened(node.copy(inputs)), chunk))
        return _few_turns(node, inputs) if length == 0 or (length == 1 and policy is None) else None
    if isinstance(node.op, While):
        draft = node.op.opened(node.copy(inputs))
        return node.op.outs(until_in_chunks(draft)) if goes_in_chunks(draft) else None
    if isinstance(node.op, Switch):
        number = number_of(inputs[0])
        if number is not None:
            branches = node.params["branches"]
            branch = branches[min(max(int(number), 0), len(branches) - 1)]
            outs = inlined(branch, inputs[1:])
            return [broadcast_to(out, old.shape) for out, old in zip(outs, node.outs, strict=True)]
    return None


def _few_turns(node: Node, inputs: tuple[Value, ...]) -> Sequence[Value]:
    params = node.params
    first, second = params["consts"], params["consts"] + params["carries"]
    if params["length"] == 0:
        empty = [_empty(out) for out in node.outs[params["carries"] :]]
        return [*inputs[first:second], *empty]
    elements = [PRIMITIVES["reshape"](array, array.shape[1:]) for array in inputs[second:]]
    results = inlined(params["body"], [literal(0, INT64), *inputs[:second], *elements])
    carries, left = results[: params["carries"]], results[params["carries"] :]
    stacks = [
        PRIMITIVES["expand"](out, whole.shape, tuple(range(1, out.ndim + 1)))
        for out, whole in zip(left, node.outs[params["carries"] :], strict=True)
    ]
    return [*carries, *stacks]


def _empty(stack: Value) -> Value:
    return PRIMITIVES["expand"](literal(0, stack.dtype), stack.shape, ())
