"""Loop simplification: loops of no or one iteration and branches with a known index are inlined; loops with a policy get their chunks."""

from __future__ import annotations

from collections.abc import Sequence

from gradtape.ir.graph import Graph, Node, Value, literal, number_of
from gradtape.ir.types import INT64
from gradtape.kinds.operands import broadcast_to
from gradtape.ops.core.shape import expand, reshape
from gradtape.passes.rewrite import rewrite
from gradtape.transforms.call import inlined
from gradtape.transforms.loops.checkpoint import (
    chunk_length,
    has_chunk_policy,
    scan_in_chunks,
    while_in_chunks,
)
from gradtape.transforms.loops.ops import Scan, Switch, While


def simplify_loops(graph: Graph) -> Graph:
    """Return the graph without scans of no or one iteration, and without branches whose index is known."""
    return rewrite(graph, _simplified)


def _simplified(node: Node, inputs: tuple[Value, ...]) -> Sequence[Value] | None:
    if isinstance(node.op, Scan):
        length, policy = node.params["length"], node.params["policy"]
        chunk = chunk_length(length, policy)
        if chunk is not None:
            return node.op.outs(scan_in_chunks(node.op.open_draft(node.copy(inputs)), chunk))
        return _unrolled(node, inputs) if length == 0 or (length == 1 and policy is None) else None
    if isinstance(node.op, While):
        draft = node.op.open_draft(node.copy(inputs))
        return node.op.outs(while_in_chunks(draft)) if has_chunk_policy(draft) else None
    if isinstance(node.op, Switch):
        number = number_of(inputs[0])
        if number is not None:
            branches = node.params["branches"]
            branch = branches[min(max(int(number), 0), len(branches) - 1)]
            outs = inlined(branch, inputs[1:])
            return [broadcast_to(out, old.shape) for out, old in zip(outs, node.outs, strict=True)]
    return None


def _unrolled(node: Node, inputs: tuple[Value, ...]) -> Sequence[Value]:
    params = node.params
    first, second = params["consts"], params["consts"] + params["carries"]
    if params["length"] == 0:
        empty = [_empty(out) for out in node.outs[params["carries"] :]]
        return [*inputs[first:second], *empty]
    elements = [reshape(array, array.shape[1:]) for array in inputs[second:]]
    results = inlined(params["body"], [literal(0, INT64), *inputs[:second], *elements])
    carries, ys = results[: params["carries"]], results[params["carries"] :]
    stacks = [
        expand(out, whole.shape, tuple(range(1, out.ndim + 1)))
        for out, whole in zip(ys, node.outs[params["carries"] :], strict=True)
    ]
    return [*carries, *stacks]


def _empty(stack: Value) -> Value:
    return expand(literal(0, stack.dtype), stack.shape, ())
