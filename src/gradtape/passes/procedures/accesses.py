"""Accesses to elements in loops: which may be to the same one, and loops whose iterations are independent.

LLVM's vectoriser is told of the innermost of these that no iteration waits for another one.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Sequence
from functools import cached_property
from typing import Final, TypeAlias

from gradtape.ir.graph import Value, number_of
from gradtape.procedures.affine import difference, distance, linear_form
from gradtape.procedures.dataflow import total_chain
from gradtape.procedures.ir import (
    Allocate,
    Apply,
    Assign,
    For,
    If,
    Load,
    Memory,
    Pointer,
    Pop,
    Procedure,
    Push,
    Statement,
    Store,
    While,
)
from gradtape.statements import walk
from gradtape.transforms.procedures.blocks import Block, BlockTree, Place
from gradtape.transforms.procedures.dependence import Access, Dependence

Around: TypeAlias = Sequence[tuple[Statement, bool]]
"""The statements around a block, the outermost first, each with whether it is in the first block of it."""

MOST_PAIRS: Final = 200
"""Pairs of accesses of a loop that are compared by the bounds of all loops around them."""

MOST_DISTANCES: Final = 4000
"""Pairs of accesses of a loop whose distances are computed: two microseconds each."""


class LoopAccesses:
    """Answers questions about the accesses in the loops of a procedure."""

    def __init__(self, procedure: Procedure) -> None:
        self._procedure = procedure

    @classmethod
    def around(cls, loop: For, around: Around) -> LoopAccesses:
        """Return the accesses in a loop that may not be part of a procedure yet, in the statements around it."""
        body: list[Statement] = [loop]
        for holder, is_first in reversed(around):
            if isinstance(holder, For):
                body = [For(holder.index, holder.count, body)]
            elif isinstance(holder, If):
                body = [If(holder.condition, body, []) if is_first else If(holder.condition, [], body)]
        own = {content for s in walk(body) for content in s.defines()}
        free = {x for s in walk(body) for x in s.uses() if isinstance(x, Pointer) and x not in own}
        return cls(Procedure("loop", list(free), [], body, [], []))

    @cached_property
    def _tree(self) -> BlockTree:
        return BlockTree(self._procedure, {})

    @cached_property
    def _dependence(self) -> Dependence:
        definitions = {content: s for s in walk(self._procedure.body) for content in s.defines()}
        return Dependence(self._tree, definitions)

    @cached_property
    def _places(self) -> dict[Statement, Place]:
        return {s: Place(block, k) for block in self._tree.blocks for k, s in enumerate(block.statements)}

    @cached_property
    def _blocks(self) -> dict[Statement, Block]:
        return {block.holder: block for block in self._tree.blocks if isinstance(block.holder, For)}

    def _access(self, statement: Load | Store) -> Access:
        return Access(statement.pointer, statement.index, self._places[statement])

    def meet(self, loop: For, first: Load | Store, second: Load | Store) -> bool:
        """Return whether two accesses in a loop may be to the same element while it runs."""
        return self._dependence.meet_in(self._blocks[loop], self._access(first), self._access(second))

    def are_carried(self, loop: For, first: Load | Store, second: Load | Store) -> bool:
        """Return whether two accesses in a loop may be to the same element in different iterations."""
        return self._dependence.is_carried_by(self._blocks[loop], self._access(first), self._access(second))

    def keeps_apart(self, loop: For, pairs: Sequence[tuple[Load | Store, Load | Store]]) -> bool:
        """Return whether no two accesses among pairs in a loop are to the same element in different iterations."""
        if len(pairs) > MOST_DISTANCES:
            return False
        count, own = number_of(loop.count), {x for s in walk(loop.body) for x in s.defines()}
        forms = {s: linear_form(s.index) for s in dict.fromkeys([s for pair in pairs for s in pair])}
        undecided = []
        for first, second in pairs:
            form = forms[first]
            step = form.get(loop.index, 0)
            if first.pointer is not second.pointer or not step or not own.isdisjoint(form):
                undecided.append((first, second))
                continue
            apart = difference(form, forms[second])
            if apart is None:
                undecided.append((first, second))
            elif apart % step == 0 and apart and (count is None or abs(apart // step) < count):
                return False
        return len(undecided) <= MOST_PAIRS and not any(self.are_carried(loop, *pair) for pair in undecided)

    def precedes(self, loop: For, first: Load | Store, second: Load | Store) -> bool:
        """Return whether the second access, in a later iteration of a loop, may be to the element of the first one."""
        return self._dependence.precedes_in(self._blocks[loop], self._access(first), self._access(second))

    def may_reach(self, store: Store, load: Load) -> bool:
        """Return whether a load may be of the element that a store has written before."""
        return self._dependence.may_reach(self._access(store), self._access(load))


def conflicts(
    first: Sequence[Statement], second: Sequence[Statement]
) -> Iterator[tuple[Load | Store | Apply, Load | Store | Apply]]:
    """Yield accesses of two lists of statements, with the blocks in them, to the same memory, one of them a store."""
    by_memory: dict[Memory, list[Load | Store | Apply]] = {}
    for statement in walk(second):
        if isinstance(statement, Load | Store | Apply):
            for memory in statement.memories():
                by_memory.setdefault(memory, []).append(statement)
    for one in walk(first):
        if isinstance(one, Load | Store | Apply):
            for memory in one.memories():
                for other in by_memory.get(memory, ()):
                    if not isinstance(one, Load) or not isinstance(other, Load):
                        yield one, other


def independent_loops(procedure: Procedure, streamed: Collection[For]) -> list[For]:
    """Return the innermost loops whose iterations are independent, where LLVM would not see it: indices differ by more than numbers.

    Parameters
    ----------
    procedure : Procedure
    streamed : collection of For
        The loops whose records lie in arrays.
    """
    accesses = LoopAccesses(procedure)

    def are_independent(loop: For, inside: Sequence[Statement]) -> bool:
        pairs = list(_pairs(inside))
        return (
            0 < len(pairs) <= MOST_PAIRS
            and any(distance(first.index, second.index) is None for first, second in pairs)
            and accesses.keeps_apart(loop, pairs)
        )

    return [loop for loop, inside in _straight_loops(procedure, streamed) if are_independent(loop, inside)]


def backward_loops(procedure: Procedure, streamed: Collection[For], sums: Container[Value] = ()) -> set[For]:
    """Return the innermost loops that walk backwards through all arrays, and whose iterations may come in the other order.

    The reverse sweep of a loop over an array is such. Vectors are loaded and stored as they are in the other order; otherwise their
    elements have to be reversed each time.

    Parameters
    ----------
    procedure : Procedure
    streamed : collection of For
        The loops whose records lie in arrays.
    sums : container of Value
        The sums whose terms may be added in any order.
    """
    accesses = LoopAccesses(procedure)

    def is_backward(loop: For, inside: Sequence[Statement]) -> bool:
        if loop.parallel or not all(_is_free(s, inside, sums) for s in inside if isinstance(s, Assign)):
            return False
        steps = [linear_form(s.index).get(loop.index, 0) for s in inside if isinstance(s, Load | Store)]
        if any(step > 0 for step in steps) or not any(step < 0 for step in steps):
            return False
        return accesses.keeps_apart(loop, list(_pairs(inside)))

    return {loop for loop, inside in _straight_loops(procedure, streamed) if is_backward(loop, inside)}


def _is_free(statement: Assign, inside: Sequence[Statement], sums: Container[Value]) -> bool:
    """Return whether an assignment of a loop adds to a variable that the loop only adds to, in any order."""
    return statement.value in sums and total_chain(statement.variable, inside, ()) is not None


def _straight_loops(procedure: Procedure, streamed: Collection[For]) -> Iterator[tuple[For, list[Statement]]]:
    """Yield the innermost counted loops that allocate nothing and whose records, if any, lie in arrays, with their statements."""
    for loop in walk(procedure.body):
        if isinstance(loop, For):
            inside = list(walk(loop.body))
            tape = () if loop in streamed else (Push, Pop)
            if not any(isinstance(s, (For, While, Apply, Allocate, *tape)) for s in inside):
                yield loop, inside


def _pairs(statements: Sequence[Statement]) -> Iterator[tuple[Load | Store, Load | Store]]:
    """Yield stores with the accesses to the same memory, themselves among them."""
    accesses = [s for s in statements if isinstance(s, Load | Store)]
    for place, first in enumerate(accesses):
        for second in accesses[place:]:
            if first.pointer.memory is second.pointer.memory and (
                isinstance(first, Store) or isinstance(second, Store)
            ):
                yield first, second
