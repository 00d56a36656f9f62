"""Transpose propagation: transposes move from the inputs of elementwise code to its result, which BLAS reads transposed for nothing."""

from __future__ import annotations

from collections.abc import Sequence

from gradtape.ir.graph import Graph, Literal, Node, Value
from gradtape.ir.types import aval
from gradtape.kinds.contract import Contract
from gradtape.kinds.elementwise import Elementwise
from gradtape.ops.core.shape import expand, expand_row, permute_row
from gradtape.passes.layout.contract_transposes import copy_packed, is_large
from gradtape.passes.rewrite import rewrite


def propagate_transposes(graph: Graph) -> Graph:
    """Return the graph in which ``(d * x.T) @ y`` of large matrices is ``(d[:, None] * x).T @ y``.

    The scaled copy is then written in the order in which `x` is read. `fold_transposes` removes the transpose that is left.
    """
    users: dict[Value, set[Node | None]] = {}
    for node in graph.nodes:
        for value in node.inputs:
            users.setdefault(value, set()).add(node)
    for value in (*graph.outputs, *[guard for guard, _ in graph.guards]):
        users.setdefault(value, set()).add(None)
    return rewrite(graph, lambda node, inputs: _propagated(node, inputs, users))


def _propagated(
    node: Node, inputs: tuple[Value, ...], users: dict[Value, set[Node | None]]
) -> Sequence[Value] | None:
    if not isinstance(node.op, Contract) or not is_large(node):
        return None
    operands = [
        copy_packed(_transposed(new, {}), (1, 0)) if _is_transposed(old, node, users) else new
        for old, new in zip(node.inputs, inputs, strict=True)
    ]
    return None if tuple(operands) == inputs else node.copy(tuple(operands)).outs


def _is_transposed(value: Value, reader: Node, users: dict[Value, set[Node | None]]) -> bool:
    """Return whether an operand is computed from transposed matrices and repeated vectors, and read by nothing else."""
    if value.ndim != 2 or value.node is None or not isinstance(value.node.op, Elementwise):
        return False
    found = {value: value.node}
    pending = [value.node]
    nodes: set[Node | None] = {reader}
    has_transpose = False
    while pending:
        node = pending.pop()
        if not isinstance(node.op, Elementwise):
            if node.op not in (permute_row, expand_row) or node.params["axes"] == (0, 1):
                return False
            has_transpose |= node.op is permute_row
            continue
        nodes.add(node)
        for operand in node.inputs:
            if isinstance(operand, Literal) or operand in found:
                continue
            if operand.node is None:
                return False
            found[operand] = operand.node
            pending.append(operand.node)
    return has_transpose and all(users[inner] <= nodes for inner, node in found.items() if node in nodes)


def _transposed(value: Value, known: dict[Value, Value]) -> Value:
    """Return the transpose of such an operand."""
    if isinstance(value, Literal):
        return value
    if value not in known:
        node = value.node
        assert node is not None
        shape = value.shape[::-1]
        if node.op is permute_row:
            known[value] = node.inputs[0]
        elif node.op is expand_row:
            axes = tuple(1 - axis for axis in node.params["axes"])
            known[value] = expand(node.inputs[0], shape, axes)
        else:
            operands = tuple([_transposed(operand, known) for operand in node.inputs])
            copy = Node(node.op, operands, node.params, node.site)
            known[value] = out = Value(aval(shape, value.dtype, value.aval.weak), copy)
            copy.outs = (out,)
    return known[value]
