"""Templates: the nodes that a function appends to the graph, without the values that they were computed from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from gradtape.ir.builder import emit_all, here
from gradtape.ir.graph import Literal, Value, extract, single
from gradtape.ir.op import Op
from gradtape.ir.types import Aval


class TemplateNode(NamedTuple):
    """A node of a template.

    Attributes
    ----------
    op : Op
        The op.
    select : callable or None
        Selects the node's inputs from the list of all values so far; None if they are the inputs of the template.
    params : dict
        The parameters.
    types : tuple of Aval
        The types that the op infers for the outputs.
    avals : tuple of Aval
        The types of the outputs: they may be weak where the op does not know it.
    """

    op: Op
    select: Callable[[list[Value]], tuple[Value, ...]] | None
    params: dict[str, Any]
    types: tuple[Aval, ...]
    avals: tuple[Aval, ...]


class Template:
    """A part of the graph that is applied to other values of the same types.

    Parameters
    ----------
    literals : sequence of Literal
        The literals in it.
    nodes : sequence of TemplateNode
        In topological order.
    results : sequence of int
        The positions of the results among all values: inputs, literals, outputs of the nodes.
    """

    __slots__ = ("_literals", "_nodes", "_only", "_results")

    def __init__(
        self, literals: Sequence[Literal], nodes: Sequence[TemplateNode], results: Sequence[int]
    ) -> None:
        self._literals = tuple(literals)
        self._nodes = tuple(nodes)
        self._results = tuple(results)
        single_node = len(nodes) == 1 and nodes[0].select is None and not literals
        self._only = nodes[0] if single_node else None

    def __call__(self, *inputs: Value) -> Value:
        """Return the only result, computed from these inputs."""
        if self._only is None:
            return self._values(inputs)[self._results[0]]
        op, _, params, types, avals = self._only
        return single(op, inputs, params, here.site, types, avals[0])

    def results(self, inputs: Sequence[Value]) -> list[Value]:
        """Return the results, computed from these inputs."""
        values = self._values(inputs)
        return [values[position] for position in self._results]

    def _values(self, inputs: Sequence[Value]) -> list[Value]:
        values = [*inputs, *self._literals]
        site = here.site
        for op, select, params, types, avals in self._nodes:
            operands = tuple(inputs) if select is None else select(values)
            if len(avals) == 1:
                values.append(single(op, operands, params, site, types, avals[0]))
            else:
                values += emit_all(op, operands, **params)
        return values


def placeholder(type_: Aval) -> Value:
    """Return a value of a type that has no data: reading it raises an AttributeError."""
    value = Value(type_)
    del value.data
    return value


def template_of(inputs: Sequence[Value], results: Sequence[Value]) -> Template | None:
    """Return the template of the nodes that compute `results` from `inputs`; None where they use any other array.

    Parameters
    ----------
    inputs : sequence of Value
        Placeholders, no two the same.
    results : sequence of Value
        Computed from them.
    """
    nodes, leaves = extract(results, inputs)
    if leaves:
        return None
    literals = list(
        dict.fromkeys(
            value
            for value in (*[value for node in nodes for value in node.inputs], *results)
            if isinstance(value, Literal) and value not in inputs
        )
    )
    positions = {value: position for position, value in enumerate((*inputs, *literals))}
    copies: list[TemplateNode] = []
    for node in nodes:
        outs = node.outs
        operands = [positions[value] for value in node.inputs]
        direct = not copies and not literals and operands == list(range(len(inputs))) and len(outs) == 1
        select = None if direct else _selector(operands)
        types = node.op.infer([value.aval for value in node.inputs], node.params)
        copies.append(TemplateNode(node.op, select, node.params, types, tuple([out.aval for out in outs])))
        for out in outs:
            positions[out] = len(positions)
    return Template(literals, copies, [positions[value] for value in results])


def _selector(positions: Sequence[int]) -> Callable[[list[Value]], tuple[Value, ...]]:
    if len(positions) > 1:
        return itemgetter(*positions)
    if not positions:
        return lambda values: ()
    (position,) = positions
    return lambda values: (values[position],)
