"""Removal of dead statements: what no result, no check and no other living statement needs, and arrays that are zeroed to be added to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gradtape.ir.graph import Value, literal, number_of
from gradtape.procedures.affine import linear_form
from gradtape.procedures.ir import (
    Allocate,
    Assign,
    Check,
    Content,
    For,
    Load,
    Memory,
    Pointer,
    Pop,
    Procedure,
    Push,
    Read,
    Statement,
    Store,
    Variable,
)
from gradtape.procedures.rewrite import Rewriter
from gradtape.procedures.tape import match_tape
from gradtape.records import replaced
from gradtape.statements import walk


def remove_dead_statements(procedure: Procedure) -> Procedure:
    """Return the procedure without allocations, loads, stores and assignments that nothing needs.

    A memory or a variable is needed as a whole or not at all. A loop without statements is removed, even one that might not end.
    """
    living = _Living(procedure)
    body = living.kept(procedure.body)
    return replaced(procedure, body=body)


def remove_resets(procedure: Procedure) -> Procedure:
    """Return the procedure without arrays that are zero whenever an iteration begins, because the last loop in it zeroes them all.

    The first loop of the next iteration adds to each element, and assigns it then. Adjoints of arrays that an iteration overwrites are
    such.
    """
    resets = _Resets(procedure)
    return resets.rewritten(procedure) if resets.dropped else procedure


class _Resets(Rewriter):
    """Drops the loads that find zeros, and the stores of zeros.

    Attributes
    ----------
    dropped : set of Statement
        These loads and stores.
    """

    def __init__(self, procedure: Procedure) -> None:
        super().__init__()
        self.dropped: set[Statement] = set()
        self._users: dict[Pointer, list[Statement]] = {}
        self._holders: dict[Statement, tuple[Statement, ...]] = {}
        self._enter(procedure.body, ())
        self._results = set(procedure.results)
        self._unzeroed: set[Statement] = set()
        for statement in walk(procedure.body):
            if isinstance(statement, Allocate) and statement.zero:
                self._array(statement)

    def _enter(self, body: Sequence[Statement], around: tuple[Statement, ...]) -> None:
        for statement in body:
            self._holders[statement] = around
            for content in {*statement.uses(), *statement.pointers_read(), *statement.pointers_written()}:
                if isinstance(content, Pointer):
                    self._users.setdefault(content, []).append(statement)
            for block in statement.blocks():
                self._enter(block, (*around, statement))

    def _array(self, allocation: Allocate) -> None:
        """Note the statements that are dropped with an array."""
        pointer, size = allocation.out, number_of(allocation.size)
        every = self._users.get(pointer, [])
        users = [s for s in every if isinstance(s, Load | Store)]
        if size is None or pointer in self._results or len(users) < len(every):
            return
        levels = zip(*[self._holders[user] for user in users], strict=False)
        around = tuple([level[0] for level in levels if len(set(level)) == 1])
        if not around or not isinstance(around[-1], For) or len(self._holders[allocation]) >= len(around):
            return
        nests: dict[tuple[Statement, ...], list[Load | Store]] = {}
        for user in users:
            nests.setdefault(self._holders[user][len(around) :], []).append(user)
        if () in nests or len({nest[0] for nest in nests}) < 2:
            return
        (first, assigned), *others, (last, zeroed) = nests.items()
        if any(nest[0] in (first[0], last[0]) for nest, _ in others):
            return
        match assigned, [s for s in zeroed if isinstance(s, Store)]:
            case [Load() as load, Store() as store], [reset]:
                if (
                    load.index is store.index
                    and _are_all_elements(first, store.index, int(size))
                    and reset.value.data is not None
                    and not any(reset.value.data.tobytes())
                    and _are_all_elements(last, reset.index, int(size))
                    and all(s.index is reset.index for s in zeroed)
                    and reset is zeroed[-1]
                ):
                    self.dropped |= {load, reset}
                    self.becomes[load.out] = literal(0, load.out.dtype)
                    self._unzeroed.add(allocation)

    def block(self, statements: Sequence[Statement]) -> list[Statement]:
        return [self.statement(s) for s in statements if s not in self.dropped]

    def statement(self, statement: Statement) -> Statement:
        if isinstance(statement, Allocate) and statement in self._unzeroed:
            return replaced(statement, size=self.value(statement.size), zero=False)
        return super().statement(statement)


def _are_all_elements(nest: Sequence[Statement], index: Value, size: int) -> bool:
    """Return whether an index takes the place of each element once in nested loops, in any order."""
    form = linear_form(index)
    begin, reach = form.pop(None, 0), 1
    loops = [loop for loop in nest if isinstance(loop, For) and not loop.parallel]
    for loop in sorted(loops, key=lambda loop: abs(form.get(loop.index, 0))):
        step, count = form.pop(loop.index, 0), number_of(loop.count)
        if count is None or abs(step) != reach:
            return False
        begin += min(step, 0) * (int(count) - 1)
        reach *= int(count)
    return len(loops) == len(nest) and begin == 0 and reach == size and not any(form.values())


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
