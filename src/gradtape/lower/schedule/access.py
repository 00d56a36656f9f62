"""Access analysis: what each nest reads, and what it computes where.

Elements are interpreted as costs, at one symbolic position for each nest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Final

from gradtape.costs import GATHER, LOAD
from gradtape.ir.budget import spend
from gradtape.ir.graph import Literal, Node, Value
from gradtape.kinds.accumulate import Accumulate
from gradtape.kinds.elementwise import Elementwise
from gradtape.kinds.routines.matrix import Matrix
from gradtape.loops.affine import Affine, Position, Var, affine, interval
from gradtape.lower.schedule.costs import (
    REPEATED,
    calls_vector_function,
    cost_of,
    is_around_long_loop,
)
from gradtape.lower.schedule.element_interpreter import ElementInterpreter, Test, Where
from gradtape.lower.schedule.nests import LoopNest
from gradtape.records import record

SEGMENTS: Final = 16
"""More pieces of one loop than this cost more code than their tests cost time."""


@record
class Access:
    """The reads and computations of a nest.

    Attributes
    ----------
    reads : dict of LoopNest to set of tuple of Position
        The nests that it reads, and at which positions.
    sources : set of Value
        The inputs and constants that it reads.
    breaks : dict of int to set of int
        For each loop, the iterations before which it is cut, so that tests of positions come out the same in each piece.
    sites : dict of Value to list of tuple of Position
        Costly values that are computed inside it, and at which positions.
    functions : list of str
        The ops that call functions of the C library for several elements at a time.
    around : dict of Value to int
        What is computed around a long loop, and in which loop.
    base_index, target : tuple of Position
        Where a scatter reads what it is added to, and where it writes.
    """

    reads: dict[LoopNest, set[Where]] = field(default_factory=dict)
    sources: set[Value] = field(default_factory=set)
    breaks: dict[int, set[int]] = field(default_factory=dict)
    sites: dict[Value, list[Where]] = field(default_factory=dict)
    functions: list[str] = field(default_factory=list)
    around: dict[Value, int] = field(default_factory=dict)
    base_index: Where = ()
    target: Where = ()


Accesses = Mapping[LoopNest, Access]


def analyse_accesses(
    nests: Sequence[LoopNest], by_value: Mapping[Value, LoopNest]
) -> tuple[dict[LoopNest, Access], dict[Value, float]]:
    """Return what each nest reads and computes, and what an element of each costly value costs."""
    analysis = _Analysis(by_value)
    return {nest: analysis.access_of(nest) for nest in nests}, analysis.costs


def readers_of(accesses: Accesses) -> dict[LoopNest, list[LoopNest]]:
    """Return for each nest the nests that read it."""
    readers: dict[LoopNest, list[LoopNest]] = {}
    for nest, access in accesses.items():
        for read in access.reads:
            readers.setdefault(read, []).append(nest)
    return readers


@record
class _Elements:
    """What elements cost at one position of a nest.

    Attributes
    ----------
    level : int
        The innermost loop that the position follows; -1 for none.
    is_around_long_loop : bool
        Whether there is a long loop inside that.
    known : dict of Value to float
        The costs.
    """

    level: int
    is_around_long_loop: bool
    known: dict[Value, float] = field(default_factory=dict)


class _Analysis(ElementInterpreter[float]):
    """Interprets the elements of one nest after the other."""

    def __init__(self, nests: Mapping[Value, LoopNest]) -> None:
        super().__init__(nests)
        self.costs: dict[Value, float] = {}
        self._known: dict[Where, _Elements] = {}
        self._here: Where | None = None
        self._elements: _Elements
        self._nest: LoopNest
        self._access = Access()
        self._splits = True
        self._levels: dict[Var, int] = {}
        self._facts: dict[Node, tuple[Value, float, bool]] = {}
        self._gathers = 0

    def access_of(self, nest: LoopNest) -> Access:
        """Return what a nest reads and computes."""
        access = self._analysed(nest, splits=True)
        if any(len(breaks) >= SEGMENTS for breaks in access.breaks.values()):
            access = self._analysed(nest, splits=False)
        return access

    def _analysed(self, nest: LoopNest, splits: bool) -> Access:
        self._nest, self._splits = nest, splits
        self._known, self._here, self._levels = {}, None, {}
        for level, variable in enumerate(nest.variables):
            if not isinstance(variable, int):
                ((atom, _),) = variable.terms.items()
                assert isinstance(atom, Var)
                self._levels[atom] = level
        self._access = access = Access()
        self._visit(nest, access)
        return access

    def _visit(self, nest: LoopNest, access: Access) -> None:
        """Interpret the operands of a nest."""
        node = nest.node
        if any(axis.extent == 0 for axis in nest.axes) and nest.kind != "scatter":
            return
        index = nest.operand_index(nest.variables)
        if nest.kind in ("elementwise", "guard"):
            if node is not None and self.nests.get(nest.value) is nest:
                self.compute(node, nest.result_index(nest.variables))
            else:
                self.element(nest.value, nest.result_index(nest.variables))
            return
        if nest.kind == "carry":
            return
        if nest.maker is not None:
            access.reads[nest.maker] = set()
            return
        assert node is not None
        if nest.kind in ("reduce", "argreduce"):
            self.element(node.inputs[0], index)
        elif nest.kind == "cumulative":
            for value in node.inputs:
                self.element(value, index)
            axis = node.params["axis"]
            if nest.axes[axis].extent > 1:
                access.breaks[axis] = {1}
        elif nest.kind in ("contract", "product"):
            for value, subscripts in zip(node.inputs, (node.params["x"], node.params["y"]), strict=True):
                anywhere = whole(value)
                levels = [nest.subscript_levels.get(subscript) for subscript in subscripts]
                position = [
                    anywhere[k] if level is None else nest.variables[level] for k, level in enumerate(levels)
                ]
                self.element(value, tuple(position))
        elif nest.kind == "scatter":
            op = node.op
            assert isinstance(op, Accumulate)
            base, v, indices, starts = op.split(node.inputs)
            access.base_index = whole(base)
            self._whole((base, *starts))
            if v.size:
                access.target = self.positions(op.target, index, base.shape, indices, node.params)
                self.element(v, index)
        elif isinstance(node.op, Matrix):
            self._whole([node.inputs[place] for place in node.op.reads])
        else:
            self._whole(node.inputs)

    def _whole(self, values: Iterable[Value]) -> None:
        """Interpret values that are read at any position."""
        for value in values:
            if value.size:
                self.element(value, whole(value))

    def element(self, value: Value, index: Where) -> float:
        """Return what an element costs: most are elementwise functions of others at the same position, which are looked up here."""
        elements = self._elements if index is self._here else self._at(index)
        known = elements.known
        cost = known.get(value)
        if cost is not None:
            return cost
        node = value.node
        if node is None or value in self.nests or not isinstance(node.op, Elementwise):
            return super().element(value, index)
        total = 0.0
        for operand in node.inputs:
            cost = known.get(operand)
            total += self.element(operand, index) if cost is None else cost
        known[value] = cost = self._applied(node, total, elements, index)
        spend(1)
        return cost

    def lookup(self, value: Value, index: Where) -> float | None:
        return self._at(index).known.get(value)

    def memoise(self, value: Value, index: Where, element: float) -> None:
        spend(1)
        self._at(index).known[value] = element

    def _at(self, index: Where) -> _Elements:
        """Return what is known at a position: most operands are read at that of their result, which is hashed once."""
        if index is not self._here:
            elements = self._known.get(index)
            if elements is None:
                level = self._level(index)
                elements = self._known[index] = _Elements(level, is_around_long_loop(self._nest, level))
            self._here, self._elements = index, elements
        return self._elements

    def number(self, value: Literal) -> float:
        return 0.0

    def zero(self, value: Value) -> float:
        return 0.0

    def read_nest(self, nest: LoopNest, index: Where) -> float:
        self._access.reads.setdefault(nest, set()).add(index)
        return LOAD if index else 0.0

    def read_input(self, value: Value, index: Where) -> float:
        self._access.sources.add(value)
        return LOAD if index else 0.0

    def apply(self, node: Node, args: list[float], index: Where) -> float:
        return self._applied(node, sum(args), self._at(index), index)

    def _applied(self, node: Node, operands: float, elements: _Elements, index: Where) -> float:
        """Return what an elementwise function costs with its operands, at a position of which the elements are known."""
        facts = self._facts.get(node)
        if facts is None:
            facts = self._facts[node] = node.out, cost_of(node), calls_vector_function(node)
        out, cost, calls = facts
        if elements.is_around_long_loop:
            self._access.around[out] = elements.level
        elif calls:
            self._access.functions.append(node.op.name)
        return self._noted(out, cost + operands, index)

    def _level(self, index: Where) -> int:
        """Return the innermost loop that a position follows; -1 for none."""
        variables = [
            var for position in index if isinstance(position, Affine) for var in position.variables()
        ]
        return max([self._levels.get(var, len(self._levels)) for var in variables], default=-1)

    def _noted(self, value: Value, cost: float, index: Where) -> float:
        if cost > REPEATED and index:
            self._access.sites.setdefault(value, []).append(index)
            if cost > self.costs.get(value, 0.0):
                self.costs[value] = cost
        return cost

    def gathered(self, node: Node, element: float, index: Where) -> float:
        return self._noted(node.out, element + GATHER, index)

    def wrapped(self, element: float, extent: int, is_checked: bool) -> Position:
        self._gathers += 1
        return affine(Var(f"gather{self._gathers}", 0, max(extent - 1, 1)))

    def select(self, tests: Sequence[Test], element: float, value: Value) -> float:
        return element + 1.0

    def choose(self, test: Test, element: float, other: float, value: Value) -> float:
        return element + other

    def splits(self, test: Test) -> bool:
        if not self._splits:
            return False
        expression, low, high = test
        if len(expression.terms) != 1:
            return False
        ((atom, factor),) = expression.terms.items()
        level = self._levels.get(atom) if isinstance(atom, Var) else None
        if level is None or abs(factor) != 1:
            return False
        ends = [low - expression.offset, high - expression.offset]
        if factor == -1:
            ends = [expression.offset - low + 1, expression.offset - high + 1]
        least, greatest = interval(self._nest.variables[level])
        inner = {end for end in ends if least < end <= greatest}
        self._access.breaks.setdefault(level, set()).update(inner)
        return True


def whole(value: Value) -> Where:
    """Return a position that may be any in a value, and is in step with no loop."""
    return tuple([affine(Var(f"w{k}", 0, max(extent - 1, 1))) for k, extent in enumerate(value.shape)])
