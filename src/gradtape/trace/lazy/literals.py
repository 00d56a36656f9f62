"""Literals that become inputs: the numbers in which regions of one structure have differed.

Python computes on a tape, too: the rate of a step that decays, the values of a table that it fills cell by cell. Such numbers are literals
of the graph. As long as they are the same in all regions with one structural key they are part of the program, where the compiler folds
them. A literal that has differed is an input of the program, as an array is, so that another number needs no other program.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from gradtape.ir.graph import Literal, Node, Value
from gradtape.ir.types import aval
from gradtape.kinds.operands import broadcast_to
from gradtape.lru import LRU
from gradtape.ops.core.elementwise.arithmetic import add, divide, multiply, subtract
from gradtape.ops.core.elementwise.logic import (
    equal,
    greater,
    greater_equal,
    less,
    less_equal,
    not_equal,
)
from gradtape.trace.lazy.region import Region

ARITHMETIC: Final = frozenset(
    {add, subtract, multiply, divide, less, less_equal, greater, greater_equal, equal, not_equal}
)
"""Ops whose results and derivatives are those of any other number: the exponent 2 is a square, and 3 is not."""

MAX_INPUTS: Final = 64
"""Numbers that become inputs at most: a region that differs in more is like data, and is interpreted."""

OperandIndex = tuple[Node, int]
"""A node, and the position of one of its inputs."""


class Numbers(NamedTuple):
    """The literals of a region.

    Attributes
    ----------
    key : tuple of bytes and int
        The number of each literal; for one that is an input, the position of the first one that is equal.
    inputs : tuple of int
        The positions of the literals that are inputs, each number once.
    """

    key: tuple[bytes | int, ...]
    inputs: tuple[int, ...]


class Structure:
    """The literals in which regions with one structural key have differed."""

    __slots__ = ("_last", "_varying")

    def __init__(self) -> None:
        self._last: tuple[bytes, ...] | None = None
        self._varying: frozenset[int] = frozenset()

    def numbers(self, region: Region) -> Numbers:
        """Return the numbers of a region of this structure."""
        literals = region.literals
        numbers = tuple([literal.data.tobytes() for literal in literals])  # type: ignore[union-attr]
        if numbers != self._last:
            if self._last is not None:
                pairs = enumerate(zip(numbers, self._last, strict=True))
                differing = {position for position, (number, before) in pairs if number != before}
                if not differing <= self._varying:
                    self._varying |= differing & _possible_inputs(region)
            self._last = numbers
        varying = self._varying
        if not varying:
            return Numbers(numbers, ())
        firsts: dict[Any, int] = {}
        key = [
            firsts.setdefault((literals[position].aval, number), position) if position in varying else number
            for position, number in enumerate(numbers)
        ]
        if len(firsts) > MAX_INPUTS:
            return Numbers(numbers, ())
        return Numbers(tuple(key), tuple(firsts.values()))


class StructureTable(LRU[Any, Structure]):
    """Structures by structural keys: what is kept for regions stands in tables by their structure and the key of their numbers."""

    __slots__ = ()

    def of(self, key: Any) -> Structure | None:
        """Return the structure with a key, a new one the first time; None for a key without a hash: a parameter is an array."""
        try:
            entry = self._entries.get(key)
        except TypeError:
            return None
        if entry is None:
            self[key] = new = Structure()
            return new
        entry[1] = next(self._clock)
        structure: Structure = entry[0]
        return structure


def _operands_of_literals(region: Region) -> Iterator[OperandIndex | None]:
    """Yield where each literal of a region stands; None for one that is an end."""
    operands = [
        (node, position)
        for value in region.computed
        if (node := value.node) is not None
        for position, operand in enumerate(node.inputs)
        if type(operand) is Literal
    ]
    yield from [None] * (len(region.literals) - len(operands))
    yield from operands


def _possible_inputs(region: Region) -> set[int]:
    return {
        position
        for position, (literal, operand) in enumerate(
            zip(region.literals, _operands_of_literals(region), strict=True)
        )
        if operand is not None and operand[0].op in ARITHMETIC and literal.dtype.kind in "fc"
    }


def operands_that_are_inputs(region: Region, numbers: Numbers) -> dict[OperandIndex, int]:
    """Return which input each literal is that is one, by the position of the first literal that is equal."""
    return {
        operand: entry
        for operand, entry in zip(_operands_of_literals(region), numbers.key, strict=True)
        if type(entry) is int and operand is not None
    }


def numbers_at(region: Region, inputs: Mapping[OperandIndex, int]) -> tuple[Numbers, tuple[int, ...]]:
    """Return the numbers of a part of a region whose inputs are known, and which input of the whole each input of the part is."""
    firsts: dict[int, int] = {}
    key: list[bytes | int] = []
    for position, (literal, operand) in enumerate(
        zip(region.literals, _operands_of_literals(region), strict=True)
    ):
        entry = None if operand is None else inputs.get(operand)
        if entry is None:
            key.append(literal.data.tobytes())  # type: ignore[union-attr]
        else:
            key.append(firsts.setdefault(entry, position))
    return Numbers(tuple(key), tuple(firsts.values())), tuple(firsts)


def input_values(region: Region, numbers: Numbers) -> dict[int, Value]:
    """Return a placeholder for each literal that is an input."""
    return {position: Value(aval((), region.literals[position].dtype)) for position in numbers.inputs}


def copy_with_inputs(
    nodes: Sequence[Node],
    becomes: dict[Value, Value],
    inputs: Mapping[OperandIndex, int],
    values: Mapping[int, Value],
) -> tuple[list[Node], Collection[Value]]:
    """Return copies of nodes in which literals are inputs, and the outputs of those that are no expansions of inputs.

    Parameters
    ----------
    nodes : sequence of Node
        In topological order.
    becomes : dict
        What stands for a value in the copies; the outputs of the nodes are entered.
    inputs : mapping
        Which input a literal is.
    values : mapping
        What stands for an input.
    """
    copies: list[Node] = []
    computed: list[Value] = []
    for node in nodes:
        operands = [becomes.get(value, value) for value in node.inputs]
        for position in range(len(operands) if inputs else 0):
            number = inputs.get((node, position))
            if number is not None:
                expanded = broadcast_to(values[number], node.types[0].shape)
                operands[position] = expanded
                if expanded.node is not None:
                    copies.append(expanded.node)
        copy = node.copy(tuple(operands))
        for out, copy_out in zip(node.outs, copy.outs, strict=True):
            copy_out.aval = out.aval
            becomes[out] = copy_out
            computed.append(copy_out)
        copies.append(copy)
    return copies, computed
