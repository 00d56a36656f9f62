"""Loop simplification: loops of no or one iteration and branches with a known index are inlined; loops with a policy get their chunks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradtape.ir.graph import Graph, Node, Value, literal, number_of
from gradtape.ir.types import INT64
from gradtape.kinds.operands import broadcast_to
from gradtape.ops.core.shape import expand, reshape
from gradtape.passes.rewrite import rewrite
from gradtape.transforms.call import inlined
from gradtape.transforms.loops.checkpoint import (
    CARRIES_ONLY,
    chunk_length,
    has_chunk_policy,
    is_in_file,
    scan_in_chunks,
    stores_carries,
    while_in_chunks,
)
from gradtape.transforms.loops.ops import Scan, Switch, While


def simplify_loops(graph: Graph) -> Graph:
    """Return the graph without scans of no or one iteration, and without branches whose index is known."""
    chunked = [
        node
        for node in graph.nodes
        if isinstance(node.op, Scan | While) and stores_carries(node.params["policy"])
    ]

    def simplified(node: Node, inputs: tuple[Value, ...]) -> Sequence[Value] | None:
        return _simplified(_like_its_pullback(node, chunked), inputs)

    return rewrite(graph, simplified)


def _like_its_pullback(node: Node, chunked: Sequence[Node]) -> Node:
    """Return a loop with the policy with which the memory budget lets its pullback run it; then both are fused, and it runs once."""
    if not chunked or not isinstance(node.op, Scan | While) or node.params["policy"] is not None:
        return node
    inits = _inits(node)
    for other in chunked:
        if other.op is not node.op or not inits or _inits(other)[: len(inits)] != inits:
            continue
        policy: Any = "sqrt"
        if isinstance(node.op, Scan):
            length = node.params["length"]
            inner = [inside.params["length"] for inside in other.params["body"].nodes if inside.op is node.op]
            same = [chunk for chunk in inner if length // max(chunk, 1) == other.params["length"]]
            if not same or node.params["reverse"] != other.params["reverse"] or same[0] <= CARRIES_ONLY:
                continue
            policy = ("file", same[0]) if is_in_file(other.params["policy"]) else same[0]
        copy = node.copy(node.inputs)
        copy.params = {**node.params, "policy": policy}
        return copy
    return node


def _inits(node: Node) -> tuple[Value, ...]:
    """Return the initial carries of a loop."""
    first = node.params["consts"]
    return node.inputs[first : first + node.params["carries"]]


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
