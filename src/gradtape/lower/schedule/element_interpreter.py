"""The element interpreter: follows one element of a value through the nodes that compute it.

Access analysis interprets elements as costs, and building as numbers of the loop IR.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Final, Generic, TypeAlias, TypeVar

from gradtape.errors import InternalError
from gradtape.ir.graph import Literal, Node, Value
from gradtape.ir.types import Shape
from gradtape.kinds.elementwise import Elementwise
from gradtape.kinds.index_map import IndexMap
from gradtape.kinds.join import Join, starts
from gradtape.loops.affine import Affine, Position, Var, affine, clamp, interval
from gradtape.lower.schedule.nests import LoopNest

T = TypeVar("T")
Where: TypeAlias = tuple[Position, ...]
"""A position for each axis of a value."""

Test: TypeAlias = tuple[Affine, int, int]
"""A position, and the range in which it must be: from the first number to below the second."""

_UNKNOWN: Final = 2**62


class ElementInterpreter(ABC, Generic[T]):
    """Interprets elementwise nodes, index maps and joins; elements of nests, inputs and numbers are what it begins with."""

    def __init__(self, nests: Mapping[Value, LoopNest]) -> None:
        self.nests = nests

    @abstractmethod
    def lookup(self, value: Value, index: Where) -> T | None:
        """Return the cached result for this element."""

    @abstractmethod
    def memoise(self, value: Value, index: Where, element: T) -> None:
        """Keep an element for later."""

    @abstractmethod
    def number(self, value: Literal) -> T:
        """Return a number."""

    @abstractmethod
    def zero(self, value: Value) -> T:
        """Return zero in the dtype of a value."""

    @abstractmethod
    def read_nest(self, nest: LoopNest, index: Where) -> T:
        """Return an element of what a nest computes."""

    @abstractmethod
    def read_input(self, value: Value, index: Where) -> T:
        """Return an element of an input or constant."""

    @abstractmethod
    def apply(self, node: Node, args: list[T], index: Where) -> T:
        """Return an elementwise function of elements."""

    @abstractmethod
    def wrapped(self, element: T, extent: int, is_checked: bool) -> Position:
        """Return an integer element as a checked position."""

    @abstractmethod
    def select(self, tests: Sequence[Test], element: T, value: Value) -> T:
        """Return the element where all tests hold, else zero."""

    @abstractmethod
    def gathered(self, node: Node, element: T, index: Where) -> T:
        """Take note of an element whose place was not known before the program runs."""

    @abstractmethod
    def choose(self, test: Test, element: T, other: T, value: Value) -> T:
        """Return the element where the test holds, else the other."""

    @abstractmethod
    def splits(self, test: Test) -> bool:
        """Return whether loops will be split so that the test is always true where its element is used."""

    def element(self, value: Value, index: Where) -> T:
        """Return the element of a value at a position."""
        if isinstance(value, Literal):
            return self.number(value)
        known = self.lookup(value, index)
        if known is not None:
            return known
        nest = self.nests.get(value)
        if nest is not None:
            found = self.read_nest(nest, index)
        elif value.node is None:
            found = self.read_input(value, index)
        else:
            found = self.compute(value.node, index)
        self.memoise(value, index, found)
        return found

    def compute(self, node: Node, index: Where) -> T:
        """Return the element that a node makes at a position, from its operands."""
        op = node.op
        if isinstance(op, Elementwise):
            return self.apply(node, [self.element(value, index) for value in node.inputs], index)
        if isinstance(op, IndexMap):
            return self._indexed(node, op, index)
        if isinstance(op, Join):
            return self._joined(node, index)
        raise InternalError(f"{op.name} cannot be computed element by element", where=node.site)

    def _indexed(self, node: Node, op: IndexMap, index: Where) -> T:
        x = node.inputs[0]
        tests: list[Test] = []
        if op.inside is not None:
            for expression, low, high in op.inside(index, x.shape, **node.params):
                least, greatest = interval(expression)
                if greatest < low or least >= high:
                    return self.zero(node.out)
                if least < low or greatest >= high:
                    assert isinstance(expression, Affine)
                    tests.append((expression, low, high))
        position = self.positions(op.source, index, x.shape, node.inputs[1:], node.params)
        unsplit = [test for test in tests if not self.splits(test)]
        if unsplit:
            if x.size == 0:
                return self.zero(node.out)
            position = tuple([clamp(p, 0, extent - 1) for p, extent in zip(position, x.shape, strict=True)])
            return self.gathered(node, self.select(unsplit, self.element(x, position), node.out), index)
        element = self.element(x, position)
        return self.gathered(node, element, index) if len(node.inputs) > 1 else element

    def _joined(self, node: Node, index: Where) -> T:
        """Take the element from the piece in which it lies; the last piece needs no test."""
        axis = node.params["axis"]
        place = index[axis]
        least, greatest = interval(place)
        chosen: T | None = None
        for start, piece in reversed(list(zip(starts(node), node.inputs, strict=True))):
            stop = start + piece.shape[axis]
            if greatest < start or least >= stop:
                continue
            inside = start <= least and greatest < stop
            within: Position = place - start
            if not inside:
                assert isinstance(place, Affine)
                if not self.splits((place, start, stop)):
                    within = clamp(within, 0, piece.shape[axis] - 1)
            element = self.element(piece, tuple([within if k == axis else p for k, p in enumerate(index)]))
            if chosen is None or inside:
                chosen = element
            else:
                assert isinstance(place, Affine)
                chosen = self.choose((place, start, stop), element, chosen, node.out)
        assert chosen is not None
        return chosen

    def positions(
        self, rule: Any, index: Where, shape: Shape, readers: Sequence[Value], params: dict[str, Any]
    ) -> Where:
        """Return the position that a `source` or `target` rule names, with integers from memory wrapped
        and checked."""
        raw: dict[Var, T] = {}

        def reader(value: Value) -> Any:
            def read(at: Where) -> Affine:
                var = Var(f"index{len(raw)}", -_UNKNOWN, _UNKNOWN)
                raw[var] = self.element(value, tuple(at))
                return affine(var)

            return read

        position = rule(index, shape, *[reader(value) for value in readers], **params)
        if not raw:
            return tuple(position)
        checked: list[Position] = []
        for place, extent in zip(position, shape, strict=True):
            if isinstance(place, Affine) and len(place.terms) == 1 and not place.offset:
                ((atom, factor),) = place.terms.items()
                if factor == 1 and isinstance(atom, Var) and atom in raw:
                    checked.append(self.wrapped(raw[atom], extent, not params.get("in_bounds")))
                    continue
            checked.append(place)
        return tuple(checked)
