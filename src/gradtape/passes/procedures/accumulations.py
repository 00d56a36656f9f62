"""Accumulations in innermost loops: additions to elements of an array that the loop does not use otherwise may be made in any order.

The reverse sweep consists of them. Additions to one and the same element become a sum in a register. Additions to neighbouring elements get
a loop that gathers for each element what several iterations add to it, or loops of their own. There LLVM sees that iterations are
independent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from gradtape.costs import INSTRUCTION
from gradtape.ir.graph import Value, extract, literal, number_of
from gradtape.ir.types import INT64, aval
from gradtape.kinds.elementwise import Elementwise
from gradtape.ops.core.elementwise.arithmetic import add
from gradtape.ops.core.elementwise.logic import not_equal
from gradtape.passes.procedures.accesses import LoopAccesses
from gradtape.passes.procedures.splitting import piece_of
from gradtape.procedures.affine import distance, linear_form
from gradtape.procedures.builder import leaf
from gradtape.procedures.dataflow import free_sums, unsummed
from gradtape.procedures.ir import (
    Apply,
    Assign,
    Content,
    For,
    If,
    Load,
    Memory,
    Pointer,
    Pop,
    Procedure,
    Read,
    Statement,
    Store,
    Variable,
    While,
)
from gradtape.procedures.rewrite import BlockPass, Rewriter
from gradtape.procedures.traversal import assigned, leaves_of, stored
from gradtape.records import record, replaced
from gradtape.statements import walk
from gradtape.transforms.procedures.checkpoint import StatementCopy

NEIGHBOURS: Final = 64
"""Distance of elements from which on LLVM may add to several of each at a time."""

BORDER: Final = 16
"""Elements for each iteration at a border from which on a loop gathers: borders are no vectors."""

RECOMPUTED: Final = 30.0
"""Additions in the time of what a second loop computes again, at most."""


def separate_accumulations(procedure: Procedure) -> Procedure:
    """Return the procedure with accumulations in the form that can be vectorised."""
    return _Separation(procedure).rewritten(procedure)


@record
class _Accumulation:
    """``pointer[index] += term``, in a branch of the loop or in all of its iterations."""

    load: Load
    store: Store
    is_always: bool


class _Separation(BlockPass):
    """Rewrites innermost loops."""

    def __init__(self, procedure: Procedure) -> None:
        super().__init__()
        self._sums = free_sums(procedure.body)
        self._accesses = LoopAccesses(procedure)
        self._variables = 0

    def replacements(self, statement: Statement) -> list[Statement]:
        if not isinstance(statement, For) or any(
            isinstance(inner, For | While | Apply) for inner in walk(statement.body)
        ):
            return super().replacements(statement)
        return self._innermost(statement)

    def _innermost(self, loop: For) -> list[Statement]:
        by_memory = self._accumulated(loop)
        several = {
            memory: accumulations
            for memory, accumulations in by_memory.items()
            if self._are_several(loop, memory)
        }
        if not any(several.values()):
            return [loop]
        inside: set[Content] = {loop.index, *[x for s in walk(loop.body) for x in s.defines()]}
        before: list[Statement] = []
        after: list[Statement] = []
        becomes: dict[Statement, Statement | None] = {}
        further: list[list[_Accumulation]] = []
        own_loops: list[Statement] = []
        for accumulations in several.values():
            moving: list[_Accumulation] = []
            for accumulation in accumulations:
                if accumulation.store.pointer not in inside and not _depends(
                    accumulation.store.index, inside
                ):
                    self._in_register(accumulation, before, after, becomes)
                elif accumulation.is_always:
                    moving.append(accumulation)
            for neighbours in _neighbourhoods(moving):
                gathered = self._gathered(loop, neighbours)
                if gathered is not None:
                    own_loops += gathered
                    becomes.update(
                        dict.fromkeys(
                            [
                                x
                                for accumulation in neighbours
                                for x in (accumulation.load, accumulation.store)
                            ]
                        )
                    )
                    moving = [accumulation for accumulation in moving if accumulation not in neighbours]
            further += self._groups(loop, moving)[1:]
        for group in further:
            slices = self._slices(loop, group)
            if slices is None:
                continue
            becomes.update(
                dict.fromkeys([x for accumulation in group for x in (accumulation.load, accumulation.store)])
            )
            own_loops.append(_copied(loop, slices))
        self.count += 1
        first = replaced(loop, body=_replaced(loop.body, becomes))
        return [*before, *own_loops, first, *after]

    def _are_several(self, loop: For, memory: Memory) -> bool:
        """Return whether a loop uses several elements of a memory in an iteration."""
        accesses = [s for s in walk(loop.body) if isinstance(s, Load | Store)]
        return len({s.index for s in accesses if s.pointer.memory is memory}) > 1

    def _accumulated(self, loop: For) -> dict[Memory, list[_Accumulation]]:
        """Return the accumulations into elements that a loop does not use otherwise."""
        by_memory: dict[Memory, list[_Accumulation]] = {}
        used: dict[Content, int] = {}
        for statement in walk(loop.body):
            for content in leaves_of(statement):
                used[content] = used.get(content, 0) + 1
        for body in _blocks(loop.body):
            loads = {s.out: s for s in body if isinstance(s, Load)}
            for position, store in enumerate(body):
                if not isinstance(store, Store) or store.value not in self._sums:
                    continue
                load = loads.get(unsummed(store.value, self._sums)[0])
                if load is None or used[load.out] > 1 or load.index is not store.index:
                    continue
                between = body[body.index(load) : position]
                if any(pointer.memory is store.pointer.memory for pointer in stored(between)):
                    continue
                accumulation = _Accumulation(load, store, body is loop.body)
                by_memory.setdefault(store.pointer.memory, []).append(accumulation)
        for memory, accumulations in by_memory.items():
            own_accesses = {
                x for accumulation in accumulations for x in (accumulation.load, accumulation.store)
            }
            others = [
                s
                for s in walk(loop.body)
                if isinstance(s, Load | Store) and s.pointer.memory is memory and s not in own_accesses
            ]
            if (
                others
                and len(
                    {accumulation.store.index for accumulation in accumulations} | {s.index for s in others}
                )
                > 1
            ):
                accumulations[:] = [
                    accumulation
                    for accumulation in accumulations
                    if not any(self._accesses.meet(loop, accumulation.store, other) for other in others)
                ]
            elif others:
                accumulations.clear()
        return by_memory

    def _in_register(
        self,
        accumulation: _Accumulation,
        before: list[Statement],
        after: list[Statement],
        becomes: dict[Statement, Statement | None],
    ) -> None:
        """Let a loop add to a variable, and add this to the element after the loop."""
        pointer, index, dtype = (
            accumulation.store.pointer,
            accumulation.store.index,
            accumulation.store.pointer.dtype,
        )
        self._variables += 1
        variable = Variable(f"accumulated.{self._variables}", aval((), dtype))
        before.append(Assign(variable, literal(0, dtype)))
        becomes[accumulation.load] = Read(accumulation.load.out, variable)
        becomes[accumulation.store] = Assign(variable, accumulation.store.value, accumulation.store.site)
        total, element = leaf(dtype), leaf(dtype)
        # Where no iteration has added anything, the index may be wrong.
        added: list[Statement] = [Load(element, pointer, index), Store(pointer, index, add(element, total))]
        after += [Read(total, variable), If(not_equal(total, literal(0, dtype)), added)]

    def _groups(self, loop: For, accumulations: Sequence[_Accumulation]) -> list[list[_Accumulation]]:
        """Divide accumulations, so that those of a group add to the same element or to elements that are far from each other."""
        groups: list[list[_Accumulation]] = [[]]
        for accumulation in accumulations:
            for group in groups:
                if not any(_are_neighbours(accumulation.store, other.store) for other in group):
                    group.append(accumulation)
                    break
            else:
                groups.append([accumulation])
        return groups

    def _gathered(self, loop: For, accumulations: Sequence[_Accumulation]) -> list[Statement] | None:
        """Return a loop that makes all additions to an element in one iteration, and the iterations at the borders; None where it cannot.

        What iteration k adds to the element of iteration k + shift, the gathering loop adds in iteration k + shift.
        """
        trips, index = number_of(loop.count), accumulations[0].store.index
        step = linear_form(index).get(loop.index, 0)
        if trips is None or not step or loop.parallel:
            return None
        slices: list[tuple[_Accumulation, int, list[Statement]]] = []
        for accumulation in accumulations:
            offset, statements = distance(accumulation.store.index, index), self._slices(loop, [accumulation])
            if offset is None or offset % step or statements is None:
                return None
            slices.append((accumulation, offset // step, statements))
        shifts = [shift for _, shift, _ in slices]
        begin, end = max(shifts), int(trips) + min(shifts)
        width = begin - min(shifts)
        if not width or end - begin < BORDER * width:
            return None
        number, total = leaf(INT64), accumulations[0].load.out
        body: list[Statement] = []
        borders: list[Statement] = []
        for accumulation, shift, statements in slices:
            single = replaced(loop, body=statements)
            for low, high in ((0, begin - shift), (end - shift, int(trips))):
                borders += piece_of(single, low, high) if low < high else []
            others = Rewriter()
            others.becomes[loop.index] = number + literal(begin - shift, INT64)
            if accumulation is not accumulations[0]:
                others.becomes[accumulation.load.out] = total
            left = [
                s
                for s in statements
                if s is not accumulation.store
                and (s is not accumulation.load or accumulation is accumulations[0])
            ]
            copy = StatementCopy(others, {})
            body += copy.block(left)
            total = copy.value(accumulation.store.value)
            if accumulation is accumulations[0]:
                index = copy.value(index)
        body.append(Store(accumulations[0].store.pointer, index, total, accumulations[0].store.site))
        return [replaced(loop, index=number, count=literal(end - begin, INT64), body=body), *borders]

    def _changes_before(self, loop: For, load: Load) -> bool:
        """Return whether a load may find what the loop has stored."""
        for store in walk(loop.body):
            if not isinstance(store, Store) or store.pointer.memory is not load.pointer.memory:
                continue
            if not self._accesses.meet(loop, load, store):
                continue
            if store not in loop.body or loop.body.index(store) < loop.body.index(load):
                return True
            if self._accesses.are_carried(loop, load, store):
                return True
        return False

    def _slices(self, loop: For, group: Sequence[_Accumulation]) -> list[Statement] | None:
        """Return the statements of a loop that accumulations need; None where they cannot be run before it, or take too long."""
        makers = {x: s for s in walk(loop.body) for x in s.defines()}
        written = assigned(loop.body)
        needed: set[Statement] = {
            x for accumulation in group for x in (accumulation.load, accumulation.store)
        }
        pending: list[Statement] = list(needed)
        extracted: set[Value] = set()
        varying: set[Content] = {loop.index, *makers}
        cost = 0.0
        while pending:
            statement = pending.pop()
            values = [x for x in statement.uses() if isinstance(x, Value)]
            nodes, leaves = extract(values, extracted)
            extracted.update(values)
            for node in nodes:
                extracted.update(node.outs)
                if any(x in varying for x in node.inputs):
                    varying.update(node.outs)
                    cost += node.op.cost if isinstance(node.op, Elementwise) else INSTRUCTION
            contents: list[Content] = [*leaves, *[x for x in statement.uses() if isinstance(x, Pointer)]]
            for content in contents:
                maker = makers.get(content)
                if maker is None or maker in needed:
                    continue
                if maker not in loop.body or isinstance(maker, Pop):
                    return None
                if isinstance(maker, Load) and self._changes_before(loop, maker):
                    return None
                if isinstance(maker, Read) and maker.variable in written:
                    return None
                needed.add(maker)
                pending.append(maker)
        if cost > RECOMPUTED:
            return None
        return [s for s in loop.body if s in needed]


def _neighbourhoods(accumulations: Sequence[_Accumulation]) -> list[list[_Accumulation]]:
    """Divide accumulations into those that add to an element and to its neighbours."""
    neighbourhoods: list[list[_Accumulation]] = []
    for accumulation in accumulations:
        for near in neighbourhoods:
            if accumulation.store.index is near[0].store.index or _are_neighbours(
                accumulation.store, near[0].store
            ):
                near.append(accumulation)
                break
        else:
            neighbourhoods.append([accumulation])
    return neighbourhoods


def _blocks(body: list[Statement]) -> Iterator[list[Statement]]:
    """Yield the blocks of an iteration: itself, and its branches."""
    yield body
    for statement in body:
        if isinstance(statement, If):
            for block in statement.blocks():
                yield from _blocks(block)


def _replaced(body: Sequence[Statement], becomes: dict[Statement, Statement | None]) -> list[Statement]:
    """Return statements with others in place of some, or none."""
    result: list[Statement] = []
    for statement in body:
        new = becomes.get(statement, statement)
        if new is not None:
            result.append(new.with_parts(block=lambda block: _replaced(block, becomes)))
    return result


def _copied(loop: For, statements: Sequence[Statement]) -> For:
    """Return a loop of copies of statements, with leaves of its own."""
    rewriter = Rewriter()
    index = rewriter.defined(loop.index)
    body = [rewriter.statement(statement).with_parts(define=rewriter.defined) for statement in statements]
    return replaced(loop, index=index, body=body)


def _depends(value: Value, leaves: set[Content]) -> bool:
    return any(x in leaves for x in extract([value])[1])


def _are_neighbours(first: Store, second: Store) -> bool:
    """Return whether two stores reach different elements at a small known distance."""
    if first.pointer is not second.pointer:
        return False
    offset = distance(first.index, second.index)
    return offset is not None and 0 < abs(offset) < NEIGHBOURS
