"""What a loop keeps of each turn for the way back: a minimum cut between what is dear to compute again and what is read."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache
from typing import Any, Final, TypeAlias

import numpy as np

from gradtape.ir.builder import at
from gradtape.ir.graph import Literal, Node, Value, extract, number_of
from gradtape.ir.types import aval
from gradtape.kinds.accumulate import Accumulate
from gradtape.kinds.contract import Contract
from gradtape.kinds.control import Barrier, Custom, Structured
from gradtape.kinds.elementwise import Elementwise, Instruction, Intrinsic
from gradtape.kinds.index_map import IndexMap
from gradtape.kinds.join import Join
from gradtape.passes.simplify.expand_composites import PRIMITIVE, expand_formula

TWINS: Final = {"sin": "cos", "cos": "sin"}
"""What is kept of each turn rather than its operand, where the way forward computes the other one."""

SMALL: Final = 256
"""Elements up to which an array with a few elements replaced is made again rather than kept."""

SLOW: Final = frozenset({"fdiv", "frem", "sdiv", "udiv", "srem", "urem"})
"""Instructions that take longer than a store and a load."""

STREAMED: Final = 4096
"""Elements from which a turn's results do not stay in the first cache: a vector of quotients takes less time than its way to memory and
back."""

QUICK_POWERS: Final = (1, 2, 3, 4, -1)
"""Exponents that are products."""

QUICK_COMPLEX: Final = frozenset({"conjugate", "real", "imag", "identity", "square"})
"""Formulas on complex numbers that are a few products at most."""

ENDLESS: Final = 1 << 62


def kept(
    entries: Collection[Value],
    reads: Iterable[Value],
    early: Sequence[Node],
    forward: Collection[Node],
    left: Collection[Value],
) -> list[Value]:
    """Return the values of a turn that are kept: the fewest bytes from which all else is cheap to compute.

    Parameters
    ----------
    entries : collection of Value
        What is there when the turn begins and nowhere afterwards: the carries.
    reads : iterable of Value
        What the way back reads.
    early : sequence of Node
        What computes these, in order.
    forward : collection of Node
        Those of them that the way forward computes.
    left : collection of Value
        What is kept anyway.

    Notes
    -----
    As for a graph of arrays in H. He and S. Li, "Min-cut optimal(ish) recomputation", 2022. A node that only the way back needs is not
    dear: it is computed once wherever that is.
    """
    computed = {(node.op.name, node.inputs) for node in forward}
    flow = _Flow()
    for value in entries:
        flow.join(flow.SOURCE, (value, 0), ENDLESS)
        flow.join((value, 0), (value, 1), _bytes(value, value in left, False))
    for node in early:
        ours = node in forward
        dear = (ours or isinstance(node.op, Structured) or _has_twin(node, computed)) and is_dear(node)
        for out in node.outs:
            storable = out.dtype.kind != "O"
            flow.join((out, 0), (out, 1), _bytes(out, out in left, not ours) if storable else ENDLESS)
            if dear:
                flow.join(flow.SOURCE, (out, 0), ENDLESS)
            else:
                for operand in node.inputs:
                    flow.join((operand, 1), (out, 0), ENDLESS)
    for value in reads:
        flow.join((value, 1), flow.SINK, ENDLESS)
    return flow.cut()


def _has_twin(node: Node, computed: Collection[tuple[str, Sequence[Value]]]) -> bool:
    """Return whether a node is computed at no cost while the way forward waits for its twin: of arrays nobody waits for one element."""
    return (TWINS.get(node.op.name), node.inputs) in computed and node.outs[0].shape == ()


def is_dear(node: Node) -> bool:
    """Return whether a node takes longer than storing and loading its result."""
    op = node.op
    if isinstance(op, Elementwise):
        return _is_dear_row(node, op)
    if isinstance(op, Structured):
        return all(out.dtype.kind != "O" for out in node.outs)
    if isinstance(op, Contract):
        return any(letter not in node.params["out"] for letter in node.params["x"])
    if isinstance(op, Accumulate):
        return node.outs[0].size > SMALL
    return not isinstance(op, IndexMap | Join | Barrier | Custom)


def _is_dear_row(node: Node, op: Elementwise) -> bool:
    if op.name == "power":
        number = number_of(node.inputs[1])
        return number not in QUICK_POWERS
    if op.name == "divide" and node.outs[0].size >= STREAMED:
        return False
    return _is_dear_elementwise(op, tuple(value.dtype for value in node.inputs), tuple(node.params.items()))


def dearest(outputs: Sequence[Value], inputs: Sequence[Value], stop: Callable[[Value], bool]) -> list[Value]:
    """Return the products of matrices and the results of loops on the way from inputs to outputs: what to keep for the way back."""
    nodes, _ = extract(outputs, inputs, stop=stop)
    return [
        out
        for node in nodes
        if isinstance(node.op, Contract | Structured) and is_dear(node)
        for out in node.outs
    ]


@lru_cache(maxsize=1024)
def _is_dear_elementwise(op: Elementwise, dtypes: tuple[np.dtype[Any], ...], params: tuple[Any, ...]) -> bool:
    body = op.body
    if isinstance(body, Instruction):
        return not {body.real, body.signed}.isdisjoint(SLOW)
    if isinstance(body, Intrinsic):
        return body.real == "llvm.sqrt"
    if isinstance(body, PRIMITIVE):
        return True
    if any(dtype.kind == "c" for dtype in dtypes):
        return op.name not in QUICK_COMPLEX
    inputs = tuple([Value(aval((), dtype)) for dtype in dtypes])
    with at(None):
        node = Node(op, inputs, dict(params))
        node.set_types(op.infer([value.aval for value in inputs], node.params))
        result = expand_formula(op, inputs, node)
    return any(is_dear(inner) for inner in _between(result, inputs))


def _between(result: Value, inputs: Sequence[Value]) -> list[Node]:
    found: list[Node] = []
    pending = [result]
    while pending:
        node = pending.pop().node
        if node is not None and node not in found:
            found.append(node)
            pending.extend([value for value in node.inputs if value not in inputs])
    return found


def _bytes(value: Value, is_left: bool, backward: bool) -> int:
    """Return what it costs to keep a value; among equals, one that the way forward computes."""
    if is_left:
        return 1
    return 4 * value.size * value.dtype.itemsize + backward


Place: TypeAlias = tuple[Any, int]


class _Flow:
    """A network of values, each with an entrance (0) and an exit (1), and the greatest flow through it.

    J. Edmonds and R. M. Karp, "Theoretical improvements in algorithmic efficiency for network flow problems", 1972.
    """

    SOURCE: Final[Place] = ("source", 0)
    SINK: Final[Place] = ("sink", 0)

    def __init__(self) -> None:
        self._room: dict[Place, dict[Place, int]] = {}

    def join(self, start: Place, end: Place, room: int) -> None:
        """Let this much flow from one place to another."""
        if isinstance(start[0], Literal):
            return
        self._room.setdefault(start, {})[end] = room
        self._room.setdefault(end, {}).setdefault(start, 0)

    def cut(self) -> list[Value]:
        """Return the values that part source and sink, as close to the sink as can be."""
        while (path := self._path()) is not None:
            room = min(self._room[start][end] for start, end in path)
            for start, end in path:
                self._room[start][end] -= room
                self._room[end][start] += room
        behind = self._before_sink()
        return [
            place[0]
            for place in self._room
            if place[1] == 1 and place in behind and self._is_parted(place[0], behind)
        ]

    def _is_parted(self, value: Value, behind: set[Place]) -> bool:
        """Return whether a value has an entrance, and it is on the side of the source."""
        return (value, 0) in self._room and (value, 0) not in behind

    def _path(self) -> list[tuple[Place, Place]] | None:
        came: dict[Place, Place] = {self.SOURCE: self.SOURCE}
        pending = deque([self.SOURCE])
        while pending:
            place = pending.popleft()
            for end, room in self._room.get(place, {}).items():
                if room > 0 and end not in came:
                    came[end] = place
                    if end == self.SINK:
                        return _steps(came, end, self.SOURCE)
                    pending.append(end)
        return None

    def _before_sink(self) -> set[Place]:
        found = {self.SINK}
        pending = [self.SINK]
        while pending:
            place = pending.pop()
            for start in self._room.get(place, {}):
                if start not in found and self._room[start][place] > 0:
                    found.add(start)
                    pending.append(start)
        return found


def _steps(came: dict[Place, Place], end: Place, start: Place) -> list[tuple[Place, Place]]:
    steps = []
    while end != start:
        steps.append((came[end], end))
        end = came[end]
    return steps[::-1]
