"""Common-subexpression elimination."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradtape.ir.graph import Graph, Literal, Node, Value
from gradtape.passes.rewrite import rewrite


def eliminate_common_subexpressions(graph: Graph) -> Graph:
    """Return the graph in which no two nodes apply the same op with the same parameters to the same values."""
    found: dict[Any, tuple[Value, ...]] = {}
    numbers: dict[Any, Literal] = {}

    def rule(node: Node, inputs: tuple[Value, ...]) -> Sequence[Value] | None:
        operands = tuple(
            [_number(value, numbers) if isinstance(value, Literal) else value for value in inputs]
        )
        key = (node.op, operands, tuple(sorted(node.params.items())) if node.params else ())
        earlier = found.get(key)
        if earlier is not None:
            return earlier
        if operands != node.inputs:
            found[key] = outs = node.copy(operands).outs
            return outs
        found[key] = node.outs
        return None

    return rewrite(graph, rule)


def _number(value: Literal, numbers: dict[Any, Literal]) -> Literal:
    assert value.data is not None
    return numbers.setdefault((value.data.dtype, value.data.tobytes(), value.aval.weak), value)
