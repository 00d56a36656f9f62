"""Liveness of values in procedures: how often each is used, where last, and what statements write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradtape.ir.graph import Value, extract
from gradtape.procedures.expansion import expand
from gradtape.procedures.ir import (
    Assign,
    Content,
    Memory,
    Pointer,
    Pop,
    Procedure,
    Read,
    Statement,
    Variable,
    While,
)
from gradtape.statements import walk


class Uses:
    """Where the values of a procedure are used, their formulas expanded.

    Positions count statements in the order of the text; the condition of a `While` stands after its test, and the results after all.

    Attributes
    ----------
    expanded : dict of Value to Value
        The expansions; see `gradtape.procedures.expansion.expand`.
    """

    def __init__(self, procedure: Procedure) -> None:
        self.expanded: dict[Value, Value] = {}
        self._counts: dict[Content, int] = {}
        self._last: dict[Content, int] = {}
        self._positions: dict[Statement, int] = {}
        self._written: dict[Statement, tuple[set[Memory], set[Variable]]] = {}
        self._from_variable: set[Content] = set()
        self._leaves: dict[Value, frozenset[Content]] = {}
        self._operands: list[tuple[int, Content]] = []
        self._next = 0
        self._number(procedure.body)
        self._operands.extend([(self._next, result) for result in procedure.results])
        self._count()

    def count(self, value: Content) -> int:
        """Return how many nodes and statements use a value."""
        return self._counts.get(value, 0)

    def last(self, value: Content) -> int:
        """Return the position of the last statement that uses a value, itself or through nodes."""
        return self._last.get(value, -1)

    def position(self, statement: Statement) -> int:
        return self._positions[statement]

    def may_be_plain(self, leaf: Value) -> bool:
        """Return whether a leaf was read from a variable or a tape, which may hold one of Python's own numbers."""
        return leaf in self._from_variable

    def leaves(self, value: Value) -> frozenset[Content]:
        """Return the leaves of an expression."""
        value = expand(value, self.expanded)
        found = self._leaves.get(value)
        if found is None:
            _, leaves = extract([value], stop=lambda x: x.node is None)
            found = self._leaves[value] = frozenset(leaves)
        return found

    def written(self, statement: Statement) -> tuple[set[Memory], set[Variable]]:
        """Return the memories and the variables that a statement writes, with its blocks."""
        found = self._written.get(statement)
        if found is None:
            memories: set[Memory] = set()
            variables: set[Variable] = set()
            for inner in walk([statement]):
                memories.update([pointer.memory for pointer in inner.pointers_written()])
                if isinstance(inner, Assign):
                    variables.add(inner.variable)
            found = self._written[statement] = memories, variables
        return found

    def _number(self, statements: Sequence[Statement]) -> None:
        for statement in statements:
            self._positions[statement] = self._next
            if not isinstance(statement, While):
                self._operands.extend([(self._next, content) for content in statement.uses()])
            if isinstance(statement, Read | Pop):
                self._from_variable.update(statement.defines())
            self._next += 1
            for block in statement.blocks():
                self._number(block)
                if isinstance(statement, While) and block is statement.test:
                    self._operands.append((self._next, statement.condition))
                    self._next += 1

    def _count(self) -> None:
        """Count uses from the last statement to the first: where a value is met first, it is used last."""
        for position, content in reversed(self._operands):
            stack: list[Any] = [content]
            while stack:
                top = stack.pop()
                if isinstance(top, Value):
                    top = expand(top, self.expanded)
                self._counts[top] = self._counts.get(top, 0) + 1
                if top in self._last:
                    continue
                self._last[top] = position
                if not isinstance(top, Pointer) and top.node is not None:
                    stack.extend(top.node.inputs)
