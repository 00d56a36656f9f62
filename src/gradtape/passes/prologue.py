"""The split of a graph into a prologue, which reads inputs that stay equal from call to call, and the main program.

The nodes that depend on these inputs and on constants alone may be in either part: in the prologue they cost nothing while its results are
kept, but what the main program needs of them is read from memory, and the inputs are compared with copies in each call. The cheapest
assignment is a minimum cut: cheap elementwise work stays fused with what reads it, and a large result of cheap work is computed again.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from gradtape import costs
from gradtape.ir.body import bodies_of
from gradtape.ir.graph import Graph, Literal, Node, Value, extract
from gradtape.kinds.contract import Contract
from gradtape.kinds.control import Barrier, Structured
from gradtape.kinds.elementwise import Elementwise
from gradtape.kinds.index_map import IndexMap
from gradtape.kinds.reduction import Reduction
from gradtape.kinds.routines.callback import Callback, PythonCall, calls_locally, multiplications
from gradtape.kinds.routines.matrix import Matrix
from gradtape.passes.rewrite import closed

_INFINITE: Final = 2**30
"""The capacity of what must not be cut; all others together have half of it at most, in the integers that SciPy's algorithm takes."""


class Split(NamedTuple):
    """A graph in two parts.

    Attributes
    ----------
    prologue : Graph
        From the inputs that it reads to the results that are kept.
    main : Graph
        From all inputs, and then the results of the prologue, to the outputs.
    inputs : tuple of int
        The positions of the inputs that the prologue reads.
    """

    prologue: Graph
    main: Graph
    inputs: tuple[int, ...]


def invariant_nodes(graph: Graph, stable: Collection[int]) -> list[Node]:
    """Return the nodes that depend on constants and on the inputs at these positions alone.

    A function that only this process has, which may have side effects, is called in each call.
    """
    varying = {value for number, value in enumerate(graph.inputs) if number not in stable}
    invariant = []
    for node in graph.nodes:
        if not varying.isdisjoint(node.inputs) or _calls_local_function(node):
            varying.update(node.outs)
        else:
            invariant.append(node)
    return invariant


def _calls_local_function(node: Node) -> bool:
    return (
        calls_locally(node)
        or isinstance(node.op, Barrier)
        or any(_calls_local_function(inner) for body in bodies_of(node) for inner in body.nodes)
    )


def work_of(node: Node) -> float:
    """Return what a node costs, in additions, without the loads of its operands.

    Examples
    --------
    >>> from gradtape.ops.core.elementwise.exponential import exp
    >>> from gradtape.ir.types import aval
    >>> work_of(exp(Value(aval((1000,), np.dtype(float)))).node)
    10000.0
    """
    size = sum(out.size for out in node.outs)
    op = node.op
    if isinstance(op, Elementwise):
        return float(op.cost * size)
    if isinstance(op, IndexMap):
        return 0.0 if len(node.inputs) == 1 else costs.GATHER * size
    if isinstance(op, Reduction):
        return costs.INSTRUCTION * float(sum(value.size for value in node.inputs))
    if isinstance(op, Contract):
        # Two matrices of m by k and k by n: the root of mk, kn and mn is mkn, and the same holds for vectors.
        return math.sqrt(math.prod(value.size for value in node.inputs) * size)
    if isinstance(op, Callback | PythonCall | Matrix):
        return float(multiplications(node))
    inner = sum(work_of(each) for body in bodies_of(node) for each in body.nodes)
    if isinstance(op, Structured) and "branches" not in node.params:
        return float(size + inner * node.params.get("length", costs.UNKNOWN_TRIP_COUNT))
    if inner:
        return size + inner
    return costs.MOVE * (size + sum(value.size for value in node.inputs))


def _reading(value: Value) -> float:
    """Return what it costs to read a value from memory, in additions."""
    words = value.size * value.dtype.itemsize / 8
    return words * (costs.LOAD if 8 * words <= costs.NEAR_MEMORY else costs.FAR_LOAD)


def may_pay(graph: Graph, stable: Collection[int]) -> bool:
    """Return whether the work that depends on these inputs alone may be worth a prologue: a guess that takes one walk over the nodes."""
    return sum(map(work_of, invariant_nodes(graph, stable))) >= costs.WORTH_KEEPING


def split(graph: Graph, stable: Collection[int], most_bytes: int) -> Split | None:
    """Return a graph in two parts; None where a prologue saves too little, or takes more bytes with the copies of its inputs."""
    graph = closed(graph)
    nodes = invariant_nodes(graph, stable)
    if sum(map(work_of, nodes)) < costs.WORTH_KEEPING:
        return None
    first = _cheapest_prologue(graph, nodes, [graph.inputs[number] for number in sorted(stable)])
    if first is None:
        return None
    values_of_prologue = {value for node in first for value in node.outs}
    main_nodes = [node for node in graph.nodes if node not in first]
    ends = [*graph.outputs, *[value for value, _ in graph.guards]]
    needed = [*[value for node in main_nodes for value in node.inputs], *ends]
    kept_values = [value for value in dict.fromkeys(needed) if value in values_of_prologue]
    before, _ = extract(kept_values, graph.inputs)
    reads = {value for node in before for value in node.inputs}
    inputs = tuple([number for number, value in enumerate(graph.inputs) if value in reads])
    copied = [graph.inputs[number] for number in inputs]
    if sum(value.size * value.dtype.itemsize for value in (*kept_values, *copied)) > most_bytes:
        return None
    prologue = closed(Graph(copied, before, kept_values, f"{graph.name}, prologue"))
    nodes, _ = extract(ends, [*graph.inputs, *kept_values])
    main = closed(Graph([*graph.inputs, *kept_values], nodes, graph.outputs, graph.name, graph.guards))
    return Split(prologue, main, inputs)


def _cheapest_prologue(graph: Graph, nodes: Sequence[Node], stable: Sequence[Value]) -> set[Node] | None:
    """Return the nodes of the best prologue; None where it is not worth it.

    The source of the network is the prologue, the sink the main program. A node on the side of the sink cuts the edge of its work. A value
    of the prologue that a node of the other side reads cuts the edge of its load. An input of a node of the prologue cuts the edge of its
    comparison, several times, for so much a prologue must save.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_flow

    inside = set(nodes)
    readers: dict[Value, list[Node | None]] = {}
    for node in graph.nodes:
        for value in dict.fromkeys(node.inputs):
            readers.setdefault(value, []).append(node if node in inside else None)
    for value in (*graph.outputs, *[value for value, _ in graph.guards]):
        readers.setdefault(value, []).append(None)
    source, sink = 0, 1
    number_of: dict[Node | Value, int] = {}
    edges: list[tuple[int, int, float | None]] = []

    def number(node_or_value: Node | Value) -> int:
        return number_of.setdefault(node_or_value, 2 + len(number_of))

    def add_read(value: Value, maker: int) -> None:
        edges.append((maker, number(value), _reading(value)))
        for reader in readers.get(value, ()):
            edges.append((number(value), sink if reader is None else number(reader), None))

    computed = {value for node in nodes for value in node.outs}
    read = [value for node in nodes for value in node.inputs]
    leaves = dict.fromkeys(
        value for value in read if value not in computed and not isinstance(value, Literal)
    )
    compared: dict[Value, int] = {}
    extra = len(nodes) + len(computed) + len(leaves) + 2
    for vertex, value in enumerate([value for value in stable if value in leaves]):
        compared[value] = extra + vertex
        edges.append(
            (extra + vertex, sink, costs.SAVING * costs.COMPARISON * value.size * value.dtype.itemsize / 8)
        )
    for node in nodes:
        edges.append((source, number(node), work_of(node)))
        edges += [
            (number(node), compared[value], None) for value in dict.fromkeys(node.inputs) if value in compared
        ]
        edges += [(number(node), number(m), None) for m in _makers(node, inside)]
        for value in node.outs:
            add_read(value, number(node))
    for value in leaves:
        add_read(value, source)
    finite = sum(cost for *_, cost in edges if cost is not None)
    scale = min(1.0, _INFINITE / 2 / max(finite, 1.0))
    merged: dict[tuple[int, int], int] = {}
    for a, b, cost in edges:
        capacity = _INFINITE if cost is None else int(cost * scale)
        merged[a, b] = min(merged.get((a, b), 0) + capacity, _INFINITE)
    size = extra + len(compared)
    rows, columns = zip(*merged, strict=True)
    network = csr_array((np.array(list(merged.values()), np.int32), (rows, columns)), shape=(size, size))
    prologue = maximum_flow(network, source, sink)
    uncut = sum(work_of(node) for node in nodes) + sum(map(_reading, leaves))
    if uncut - prologue.flow_value / scale < costs.WORTH_KEEPING:
        return None
    residual: Any = network - prologue.flow
    residual = residual.tocsr()
    reached, pending = {source}, [source]
    while pending:
        vertex = pending.pop()
        row = slice(residual.indptr[vertex], residual.indptr[vertex + 1])
        for other, left in zip(residual.indices[row].tolist(), residual.data[row].tolist(), strict=True):
            if left > 0 and other not in reached:
                reached.add(other)
                pending.append(other)
    return {node for node in nodes if number_of[node] in reached}


def _makers(node: Node, inside: Collection[Node]) -> list[Node]:
    """Return the nodes among these that make the inputs of a node."""
    makers = [value.node for value in node.inputs if value.node is not None]
    return [maker for maker in dict.fromkeys(makers) if maker in inside]
