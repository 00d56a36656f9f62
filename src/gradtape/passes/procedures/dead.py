"""Removal of dead statements: what no result, no check and no other living statement needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gradtape.ir.graph import Value
from gradtape.procedures.ir import (
    Assign,
    Check,
    Content,
    Memory,
    Pointer,
    Pop,
    Procedure,
    Push,
    Read,
    Statement,
    Variable,
)
from gradtape.procedures.tape import match_tape
from gradtape.records import replaced


def remove_dead_statements(procedure: Procedure) -> Procedure:
    """Return the procedure without allocations, loads, stores and assignments that nothing needs.

    A memory or a variable is needed as a whole or not at all. A loop without statements is removed, even one that might not end.
    """
    living = _Living(procedure)
    body = living.kept(procedure.body)
    return replaced(procedure, body=body)


class _Living:
    """Finds the living statements, from the results backwards."""

    def __init__(self, procedure: Procedure) -> None:
        self.statements: set[Statement] = set()
        self.entries: set[tuple[Push | Pop, int]] = set()
        self._seen: set[Value] = set()
        self._parents: dict[Statement, Statement | None] = {}
        self._makers: dict[Content, tuple[Statement, int]] = {}
        self._writers: dict[Memory | Variable, list[Statement]] = {}
        self._pending: list[Statement] = []
        tape = match_tape(procedure.body)
        self.tape: dict[Pop, Push] = {} if tape is None else {pop: push for push, pop in tape.items()}
        self.matched = tape is not None
        checks = self._enter(procedure.body, None)
        for check in checks:
            self._statement(check)
        for result in procedure.results:
            self._content(result)
            if isinstance(result, Pointer):
                self._storage(result.memory)
        while self._pending:
            self._operands(self._pending.pop())

    def _enter(self, body: Sequence[Statement], parent: Statement | None) -> list[Statement]:
        """Take note of what statements define and write; return the checks among them, and a tape that cannot be cut."""
        found: list[Statement] = []
        for statement in body:
            self._parents[statement] = parent
            for number, out in enumerate(statement.defines()):
                self._makers[out] = (statement, number)
            if isinstance(statement, Assign):
                self._writers.setdefault(statement.variable, []).append(statement)
            for pointer in statement.pointers_written():
                self._writers.setdefault(pointer.memory, []).append(statement)
            if isinstance(statement, Check) or (isinstance(statement, Push | Pop) and not self.matched):
                found.append(statement)
            for block in statement.blocks():
                found += self._enter(block, statement)
        return found

    def _statement(self, statement: Statement | None) -> None:
        """Let a statement live, and those around it."""
        while statement is not None and statement not in self.statements:
            self.statements.add(statement)
            self._pending.append(statement)
            statement = self._parents[statement]

    def _operands(self, statement: Statement) -> None:
        """Let live what a living statement needs."""
        if isinstance(statement, Push | Pop) and self.matched:
            return
        for content in statement.uses():
            self._content(content)
        for pointer in statement.pointers_read():
            self._storage(pointer.memory)
        if isinstance(statement, Read):
            self._storage(statement.variable)

    def _storage(self, storage: Memory | Variable) -> None:
        for writer in self._writers.pop(storage, ()):
            self._statement(writer)

    def _content(self, content: Content) -> None:
        if isinstance(content, Pointer):
            self._leaf(content)
            return
        pending = [content]
        while pending:
            value = pending.pop()
            if value in self._seen:
                continue
            self._seen.add(value)
            made = value.maker() if value.data is None else None
            if made is None:
                self._leaf(value)
            else:
                pending.extend(made[1])

    def _leaf(self, leaf: Content) -> None:
        made = self._makers.pop(leaf, None)
        if made is None:
            return
        statement, number = made
        self._statement(statement)
        if isinstance(statement, Pop) and self.matched:
            push = self.tape[statement]
            self.entries |= {(statement, number), (push, number)}
            self._statement(push)
            self._content(push.values[number])

    def kept(self, body: Sequence[Statement]) -> list[Statement]:
        """Return the living statements of a block."""
        return list(self._kept(body))

    def _kept(self, body: Sequence[Statement]) -> Iterator[Statement]:
        for statement in body:
            if statement not in self.statements:
                continue
            if isinstance(statement, Push) and self.matched:
                yield Push(
                    tuple([x for k, x in enumerate(statement.values) if (statement, k) in self.entries])
                )
            elif isinstance(statement, Pop) and self.matched:
                yield Pop(tuple([x for k, x in enumerate(statement.outs) if (statement, k) in self.entries]))
            else:
                yield statement.with_parts(block=self.kept)
