"""Independent iterations: innermost loops of which LLVM's vectoriser is told that no iteration waits for another one."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from typing import Final

from gradtape.procedures.affine import distance, linear_form
from gradtape.procedures.ir import (
    Allocate,
    Apply,
    Assign,
    Content,
    For,
    Load,
    Pop,
    Procedure,
    Push,
    Statement,
    Store,
    While,
)
from gradtape.procedures.traversal import walk
from gradtape.transforms.procedures.blocks import Block, BlockTree, Place
from gradtape.transforms.procedures.dependence import Access, Dependence

MOST_PAIRS: Final = 200
"""Pairs of accesses of a loop that are compared."""


class LoopAccesses:
    """Answers questions about the accesses in innermost loops."""

    def __init__(self, procedure: Procedure) -> None:
        self._procedure = procedure

    @cached_property
    def _tree(self) -> BlockTree:
        return BlockTree(self._procedure, {})

    @cached_property
    def _dependence(self) -> Dependence:
        definitions: dict[Content, Statement] = {
            content: s for s in walk(self._procedure.body) for content in s.defines()
        }
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


def independent_loops(procedure: Procedure, streamed: Collection[For]) -> set[For]:
    """Return the innermost loops whose iterations are independent, where LLVM would not see it: indices differ by more than numbers.

    Parameters
    ----------
    procedure : Procedure
    streamed : collection of For
        The loops whose records lie in arrays.
    """
    accesses = LoopAccesses(procedure)
    found: set[For] = set()
    for loop in walk(procedure.body):
        if not isinstance(loop, For):
            continue
        inside = list(walk(loop.body))
        tape = () if loop in streamed else (Push, Pop)
        if any(isinstance(s, (For, While, Apply, Allocate, *tape)) for s in inside):
            continue
        pairs = list(_pairs(inside))
        if not pairs or len(pairs) > MOST_PAIRS:
            continue
        if all(distance(first.index, second.index) is not None for first, second in pairs):
            continue
        if not any(accesses.are_carried(loop, first, second) for first, second in pairs):
            found.add(loop)
    return found


def backward_loops(procedure: Procedure, streamed: Collection[For]) -> set[For]:
    """Return the innermost loops that walk backwards through all arrays, and whose iterations may come in the other order.

    The reverse sweep of a loop over an array is such. Vectors are loaded and stored as they are in the other order; otherwise their
    elements have to be reversed each time.
    """
    accesses = LoopAccesses(procedure)
    found: set[For] = set()
    for loop in walk(procedure.body):
        if not isinstance(loop, For) or loop.parallel:
            continue
        inside = list(walk(loop.body))
        tape = () if loop in streamed else (Push, Pop)
        if any(isinstance(s, (For, While, Apply, Allocate, Assign, *tape)) for s in inside):
            continue
        steps = [linear_form(s.index).get(loop.index, 0) for s in inside if isinstance(s, Load | Store)]
        if any(step > 0 for step in steps) or not any(step < 0 for step in steps):
            continue
        pairs = list(_pairs(inside))
        if len(pairs) <= MOST_PAIRS and not any(accesses.are_carried(loop, *pair) for pair in pairs):
            found.add(loop)
    return found


def _pairs(statements: Sequence[Statement]) -> Iterator[tuple[Load | Store, Load | Store]]:
    """Yield stores with the accesses to the same memory, themselves among them."""
    accesses = [s for s in statements if isinstance(s, Load | Store)]
    for place, first in enumerate(accesses):
        for second in accesses[place:]:
            if first.pointer.memory is second.pointer.memory and (
                isinstance(first, Store) or isinstance(second, Store)
            ):
                yield first, second
