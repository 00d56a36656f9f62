"""Min-cut rematerialisation: which values of an iteration a loop stores for its backward loop."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache
from typing import Any, Final, TypeAlias

import numpy as np

from gradtape.costs import EXPENSIVE, EXPENSIVE_STREAMED, STREAMED_SIZE
from gradtape.errors import LoweringError
from gradtape.ir.builder import at
from gradtape.ir.graph import Literal, Node, Value, extract, literal, number_of
from gradtape.ir.types import aval, part_dtype
from gradtape.kinds.accumulate import Accumulate
from gradtape.kinds.contract import Contract
from gradtape.kinds.control import Barrier, Custom, OwnPullback, Structured
from gradtape.kinds.elementwise import Elementwise
from gradtape.kinds.index_map import IndexMap
from gradtape.kinds.join import Join
from gradtape.passes.simplify.expand_formulas import expand_formula
from gradtape.transforms.kinks.extrema import compared_with_extrema

SMALL_UPDATE: Final = 256
"""Elements up to which an array with a few replaced elements is recomputed rather than stored."""

INFINITE: Final = 1 << 62


def residuals(
    inners: Collection[Value],
    reads: Iterable[Value],
    primal_nodes: Sequence[Node],
    forward: Collection[Node],
    ys: Collection[Value],
    expensive_from: float | None = None,
) -> list[Value]:
    """Return the residuals of an iteration: the values of minimum size from which all values that are read can be computed cheaply.

    Parameters
    ----------
    inners : collection of Value
        The inner carries, which exist only during the forward loop.
    reads : iterable of Value
        What the backward loop reads.
    primal_nodes : sequence of Node
        The nodes that compute these, in topological order.
    forward : collection of Node
        Those that the forward loop computes.
    ys : collection of Value
        Values that are stored in any case: the stacked outputs.
    expensive_from : float, optional
        The cost of an element from which it is not computed again; by default `EXPENSIVE` or `EXPENSIVE_STREAMED`.

    Notes
    -----
    As for a graph of arrays in H. He and S. Li, "Min-cut optimal(ish) recomputation", 2022. A node that only the backward loop needs is
    not expensive: it is computed once in either loop. What is compared with an extremum is not computed twice either.
    """
    reads = list(reads)
    compared = compared_with_extrema(primal_nodes, reads)
    computed = {(node.op.name, node.inputs) for node in forward}
    flow = _FlowNetwork()
    for value in inners:
        flow.add_edge(flow.SOURCE, (value, 0), INFINITE)
        flow.add_edge((value, 0), (value, 1), _bytes(value, value in ys, False))
    for node in primal_nodes:
        is_forward = node in forward
        expensive = (is_forward or isinstance(node.op, Structured) or _has_twin(node, computed)) and (
            is_expensive(node, expensive_from) or not compared.isdisjoint(node.outs)
        )
        for out in node.outs:
            storable = out.dtype.kind != "O"
            flow.add_edge(
                (out, 0), (out, 1), _bytes(out, out in ys, not is_forward) if storable else INFINITE
            )
            if expensive:
                flow.add_edge(flow.SOURCE, (out, 0), INFINITE)
            else:
                for operand in node.inputs:
                    flow.add_edge((operand, 1), (out, 0), INFINITE)
    for value in reads:
        flow.add_edge((value, 1), flow.SINK, INFINITE)
    return flow.min_cut()


def _has_twin(node: Node, computed: Collection[tuple[str, Sequence[Value]]]) -> bool:
    """Return whether a scalar node is computed in the latency of its twin in the forward loop; arrays have no such latency."""
    op = node.op
    twin = op.twin if isinstance(op, Elementwise) else ""
    return bool(twin) and (twin, node.inputs) in computed and node.out.shape == ()


def is_expensive(node: Node, limit: float | None = None) -> bool:
    """Return whether a node takes longer than storing and loading its result."""
    op = node.op
    if isinstance(op, Elementwise):
        return _is_expensive_row(node, op, limit)
    if isinstance(op, Structured):
        return all(out.dtype.kind != "O" for out in node.outs)
    if isinstance(op, Contract):
        return any(subscript not in node.params["out"] for subscript in node.params["x"])
    if isinstance(op, Accumulate):
        return node.outs[0].size > SMALL_UPDATE
    return not isinstance(op, IndexMap | Join | Barrier | Custom)


def _is_expensive_row(node: Node, op: Elementwise, limit: float | None) -> bool:
    if limit is None:
        limit = EXPENSIVE if node.out.size < STREAMED_SIZE else EXPENSIVE_STREAMED
    if not op.is_formula:
        return op.cost >= limit
    operands = tuple([(value.dtype, number_of(value)) for value in node.inputs])
    return _is_expensive_formula(op, operands, tuple(node.params.items()), limit)


def expensive_values(
    outputs: Sequence[Value], inputs: Sequence[Value], stop: Callable[[Value], bool]
) -> list[Value]:
    """Return the matrix products and results of loops between inputs and outputs: the residuals of a checkpointed function."""
    nodes, _ = extract(outputs, inputs, stop=stop)
    return [
        out
        for node in nodes
        if isinstance(node.op, Contract | OwnPullback) and is_expensive(node)
        for out in node.outs
    ]


@lru_cache(maxsize=1024)
def _is_expensive_formula(
    op: Elementwise,
    operands: tuple[tuple[np.dtype[Any], Any], ...],
    params: tuple[tuple[str, Any], ...],
    limit: float | None,
) -> bool:
    """Return whether anything in the formula of a row is expensive, for operands of these dtypes and with these numbers, where known."""
    inputs = tuple(
        [Value(aval((), dtype)) if number is None else literal(number, dtype) for dtype, number in operands]
    )
    with at(None):
        node = Node(op, inputs, dict(params))
        node.set_types(op.infer([value.aval for value in inputs], node.params))
        try:
            is_complex = any(dtype.kind == "c" for dtype, _ in operands)
            results = (
                _complex_formula(op, inputs, node.params)
                if is_complex
                else [expand_formula(op, inputs, node)]
            )
        except LoweringError:
            return True
    nodes, _ = extract(results)
    return any(is_expensive(inner, limit) for inner in nodes)


def _complex_formula(op: Elementwise, inputs: Sequence[Value], params: dict[str, Any]) -> Sequence[Value]:
    """Return what the formula for complex numbers makes of scalars."""
    if op.complex_body is None:
        raise LoweringError(f"{op.name} of complex numbers cannot be compiled")
    operands = [_scalar_parts(value) if value.dtype.kind == "c" else value for value in inputs]
    result = op.complex_body(*operands, **params)
    return (result,) if isinstance(result, Value) else result


def _scalar_parts(x: Value) -> tuple[Value, Value]:
    part = part_dtype(x.dtype)
    if x.data is None:
        return Value(aval((), part)), Value(aval((), part))
    return literal(x.data.real, part), literal(x.data.imag, part)


def _bytes(value: Value, is_y: bool, only_backward: bool) -> int:
    """Return the cost of storing a value; among equals, one that the forward loop computes is cheaper."""
    if is_y:
        return 1
    return 4 * value.size * value.dtype.itemsize + only_backward


Place: TypeAlias = tuple[Any, int]


class _FlowNetwork:
    """A flow network in which each value is an entrance (0) and an exit (1), and its maximum flow.

    J. Edmonds and R. M. Karp, "Theoretical improvements in algorithmic efficiency for network flow problems", 1972.
    """

    SOURCE: Final[Place] = ("source", 0)
    SINK: Final[Place] = ("sink", 0)

    def __init__(self) -> None:
        self._capacity: dict[Place, dict[Place, int]] = {}

    def add_edge(self, tail: Place, head: Place, capacity: int) -> None:
        """Add an edge with a capacity."""
        if isinstance(tail[0], Literal):
            return
        self._capacity.setdefault(tail, {})[head] = capacity
        self._capacity.setdefault(head, {}).setdefault(tail, 0)

    def min_cut(self) -> list[Value]:
        """Return the values of the minimum cut that is closest to the sink."""
        while (path := self._augmenting_path()) is not None:
            capacity = min(self._capacity[tail][head] for tail, head in path)
            for tail, head in path:
                self._capacity[tail][head] -= capacity
                self._capacity[head][tail] += capacity
        sink_side = self._sink_side()
        return [
            place[0]
            for place in self._capacity
            if place[1] == 1 and place in sink_side and self._is_cut(place[0], sink_side)
        ]

    def _is_cut(self, value: Value, sink_side: set[Place]) -> bool:
        """Return whether the entrance of a value is on the source's side."""
        return (value, 0) in self._capacity and (value, 0) not in sink_side

    def _augmenting_path(self) -> list[tuple[Place, Place]] | None:
        parent: dict[Place, Place] = {self.SOURCE: self.SOURCE}
        pending = deque([self.SOURCE])
        while pending:
            place = pending.popleft()
            for head, capacity in self._capacity.get(place, {}).items():
                if capacity > 0 and head not in parent:
                    parent[head] = place
                    if head == self.SINK:
                        return _edges_of_path(parent, head, self.SOURCE)
                    pending.append(head)
        return None

    def _sink_side(self) -> set[Place]:
        found = {self.SINK}
        pending = [self.SINK]
        while pending:
            place = pending.pop()
            for tail in self._capacity.get(place, {}):
                if tail not in found and self._capacity[tail][place] > 0:
                    found.add(tail)
                    pending.append(tail)
        return found


def _edges_of_path(parent: dict[Place, Place], head: Place, tail: Place) -> list[tuple[Place, Place]]:
    steps = []
    while head != tail:
        steps.append((parent[head], head))
        head = parent[head]
    return steps[::-1]
