"""The surroundings of a loop: dependences between accesses in it, with the bounds and conditions of the blocks around it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from gradtape.procedures.ir import Apply, For, If, Load, Memory, Pointer, Procedure, Statement, Store
from gradtape.procedures.traversal import walk
from gradtape.transforms.procedures.blocks import BlockTree, Place
from gradtape.transforms.procedures.dependence import Access, Dependence

Around: TypeAlias = Sequence[tuple[Statement, bool]]
"""The statements around a block, the outermost first, each with whether it is in the first block of it."""


class LoopSurroundings:
    """Answers questions about the accesses in a loop that may not be part of a procedure yet.

    Parameters
    ----------
    loop : For
    around : sequence of (statement, bool)
        What it stands in.
    """

    def __init__(self, loop: For, around: Around) -> None:
        body: list[Statement] = [loop]
        for holder, is_first in reversed(around):
            if isinstance(holder, For):
                body = [For(holder.index, holder.count, body)]
            elif isinstance(holder, If):
                body = [If(holder.condition, body, []) if is_first else If(holder.condition, [], body)]
        own = {content: s for s in walk(body) for content in s.defines()}
        free = {x for s in walk(body) for x in s.uses() if isinstance(x, Pointer) and x not in own}
        tree = BlockTree(Procedure("loop", list(free), [], body, [], []), {})
        (self._block,) = [block for block in tree.blocks if block.holder is loop]
        self._dependence = Dependence(tree, own)
        self._places = {s: Place(block, k) for block in tree.blocks for k, s in enumerate(block.statements)}

    def precedes(self, first: Load | Store, second: Load | Store) -> bool:
        """Return whether the second access, in a later iteration of the loop, may be to the element of the first one."""
        one, other = (Access(s.pointer, s.index, self._places[s]) for s in (first, second))
        return self._dependence.precedes_in(self._block, one, other)


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
