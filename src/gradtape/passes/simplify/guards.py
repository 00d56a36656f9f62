"""Guarded numbers: where a guard says what an integer is, the rest of the graph need not compute with it."""

from __future__ import annotations

from gradtape.ir.body import bodies_of
from gradtape.ir.graph import Graph, Value, extract, literal
from gradtape.passes.simplify.fold import fold_constants


def substitute_guarded_numbers(graph: Graph) -> Graph:
    """Return the graph with literals for the integers and truth values that guards check, and for what follows from these alone.

    A guard itself goes on checking what was computed; if that is another number, nothing that the graph has computed is used. But it has
    to come to an end: loops that Python's guards lead keep what they compute, because they end where a guard of theirs does not hold.

    Constants become inputs after the others, in the order in which their arrays are passed: what is left uses them in another order.

    Examples
    --------
    >>> from gradtape.ir.types import FLOAT64, INT64, aval
    >>> n, x = Value(aval((), INT64)), Value(aval((3,), FLOAT64))
    >>> scaled = x * (n * n)
    >>> nodes, _ = extract([scaled], [n, x])
    >>> graph = substitute_guarded_numbers(Graph([n, x], nodes, [scaled], "scaled", [(n, 3)]))
    >>> print(graph.outputs[0].node.inputs[1].data)
    9.0
    """
    known = {
        value: literal(expected, value.dtype)
        for value, expected in graph.guards
        if value.shape == () and value.dtype.kind in "iub"
    }
    if not known:
        return graph
    used: dict[Value, Value] = dict(known)
    made: dict[Value, Value] = {}
    for node in graph.nodes:
        inputs = node.inputs if bodies_of(node) else tuple([used.get(value, value) for value in node.inputs])
        outs = node.outs if inputs == node.inputs else node.copy(inputs).outs
        for out, new in zip(node.outs, outs, strict=True):
            made[out] = new
            used.setdefault(out, new)
    outputs = [used.get(value, value) for value in graph.outputs]
    guards = [(made.get(value, value), expected) for value, expected in graph.guards]
    inputs = (*graph.inputs, *graph.constants())
    nodes, _ = extract([*outputs, *[value for value, _ in guards]], inputs, stop=set(inputs).__contains__)
    return fold_constants(Graph(inputs, nodes, outputs, graph.name, guards))
