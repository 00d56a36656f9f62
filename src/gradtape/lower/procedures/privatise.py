"""Privatisation: which variables and arrays of a parallel loop its blocks have for themselves, and which they share.

After R. Allen and K. Kennedy, "Optimizing Compilers for Modern Architectures", Morgan Kaufmann 2001, sections 5.3 and 5.4.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import Final

from gradtape.ir.graph import Literal, Value, extract, number_of
from gradtape.ir.types import Aval
from gradtape.lower.procedures.independence import LoopAccesses
from gradtape.procedures.dataflow import (
    depend_on,
    exposed_variables,
    last_number,
    live_after_loops,
    same_number,
    total_chain,
    totals,
)
from gradtape.procedures.ir import (
    Allocate,
    Apply,
    Assign,
    Content,
    For,
    Load,
    Memory,
    Pointer,
    Procedure,
    Read,
    Statement,
    Store,
    Variable,
)
from gradtape.procedures.traversal import stored, walk
from gradtape.records import record

MOST_PAIRS: Final = 200
"""Pairs of accesses to an array that are compared."""


@record
class Sharing:
    """What the blocks of a parallel loop share.

    Attributes
    ----------
    totals : list of Variable
        The variables in which iterations are summed.
    resets : dict of Variable to Literal
        The variables that each iteration leaves at a known number.
    kept : list of Variable
        The variables that each iteration leaves as it found them.
    sums : dict of Pointer to int
        The arrays to whose elements iterations only add, and their sizes: each block has sums of its own.
    """

    totals: list[Variable] = field(default_factory=list)
    resets: dict[Variable, Literal] = field(default_factory=dict)
    kept: list[Variable] = field(default_factory=list)
    sums: dict[Pointer, int] = field(default_factory=dict)


class Privatisation:
    """Finds what the blocks of loops share, for one procedure."""

    def __init__(self, procedure: Procedure) -> None:
        self._accesses = LoopAccesses(procedure)
        self._live = live_after_loops(procedure.body)
        self._sizes: dict[Pointer, int] = {}
        self._assigned: dict[Variable, list[Assign]] = {}
        for parameter, type_ in zip(procedure.parameters, procedure.types, strict=True):
            if isinstance(parameter, Pointer):
                self._sizes[parameter] = type_.size
        for statement in walk(procedure.body):
            if isinstance(statement, Allocate):
                size = number_of(statement.size)
                if size is not None:
                    self._sizes[statement.out] = int(size)
            elif isinstance(statement, Assign):
                self._assigned.setdefault(statement.variable, []).append(statement)

    def sharing(self, loop: For) -> Sharing | None:
        """Return what the blocks of a loop share; None where its iterations cannot run at the same time.

        Iterations of the loop do not conflict but for sums: see `gradtape.procedures.ir.For`.
        """
        found = Sharing()
        inside = list(walk(loop.body))
        if not self._find_variables(loop, inside, found):
            return None
        for memory in dict.fromkeys([pointer.memory for pointer in stored(loop.body)]):
            if not self._find_sums(loop, inside, memory, found):
                return None
        return found

    # Variables

    def _find_variables(self, loop: For, inside: Sequence[Statement], found: Sharing) -> bool:
        """Enter the variables that iterations share; return whether blocks can have parts of them."""
        exposed, live = exposed_variables(loop), self._live[loop]
        for variable in dict.fromkeys([s.variable for s in inside if isinstance(s, Assign)]):
            if variable not in exposed and variable not in live:
                continue
            if not isinstance(variable.type, Aval):
                return False
            if variable in exposed and total_chain(variable, inside, exposed | live):
                found.totals.append(variable)
                continue
            if _is_kept(variable, loop.body):
                found.kept.append(variable)
                continue
            number = self._reset(variable, loop, inside)
            if number is None:
                return False
            found.resets[variable] = number
        return True

    def _reset(self, variable: Variable, loop: For, inside: Sequence[Statement]) -> Literal | None:
        """Return the number that a variable holds at the end of each iteration."""
        number, is_certain = last_number(loop.body, variable)
        if number is None or is_certain:
            return number
        own = {s for s in inside if isinstance(s, Assign)}
        others = [s for s in self._assigned[variable] if s not in own]
        return number if others and all(same_number(s.value, number) for s in others) else None

    # Arrays

    def _find_sums(self, loop: For, inside: Sequence[Statement], memory: Memory, found: Sharing) -> bool:
        """Enter an array to which iterations add; return whether iterations can store into it at the same time."""
        accesses = [s for s in inside if isinstance(s, Load | Store) and s.pointer.memory is memory]
        if any(memory in s.memories() for s in inside if isinstance(s, Apply)):
            return True
        stores = [s for s in accesses if isinstance(s, Store)]
        if any(isinstance(s, Allocate) and s.out.memory is memory for s in inside):
            return True
        if not _are_accumulations(loop, inside, accesses):
            return True
        if len(stores) * len(stores) <= MOST_PAIRS and not any(
            self._accesses.are_carried(loop, first, second)
            for place, first in enumerate(stores)
            for second in stores[place:]
        ):
            return True
        pointers = {s.pointer for s in accesses}
        if len(pointers) > 1 or not pointers <= self._sizes.keys():
            return False
        (pointer,) = pointers
        found.sums[pointer] = self._sizes[pointer]
        return True


def _is_kept(variable: Variable, body: Sequence[Statement]) -> bool:
    """Return whether statements read a variable first and assign what they have read last."""
    at_first: set[Content] = set()
    is_assigned, last = False, None
    for statement in body:
        if isinstance(statement, Read) and statement.variable is variable and not is_assigned:
            at_first.add(statement.out)
        elif isinstance(statement, Assign) and statement.variable is variable:
            is_assigned, last = True, statement.value
        elif any(isinstance(s, Assign) and s.variable is variable for s in walk([statement])):
            is_assigned, last = True, None
    return last in at_first


def _are_accumulations(loop: For, inside: Sequence[Statement], accesses: Sequence[Load | Store]) -> bool:
    """Return whether all accesses to an array in a loop are of additions to its elements."""
    used: dict[Value, int] = {}
    for statement in inside:
        for value in statement.uses():
            if isinstance(value, Value):
                for one in extract([value])[1]:
                    used[one] = used.get(one, 0) + 1
    left = set(accesses)
    for body in _all_blocks(loop.body):
        loads = {s.out: (place, s) for place, s in enumerate(body) if isinstance(s, Load) and s in left}
        for place, store in enumerate(body):
            if not isinstance(store, Store) or store not in left:
                continue
            for begin, terms in totals(store):
                start, load = loads.get(begin, (place, None))
                if load is None or start > place or not _is_same_element(load, store):
                    continue
                if used[begin] > 1 or depend_on(terms, {begin}):
                    continue
                between = [pointer.memory for pointer in stored(body[start:place])]
                if store.pointer.memory not in between:
                    left -= {load, store}
                break
    return not left


def _is_same_element(load: Load, store: Store) -> bool:
    if load.pointer is not store.pointer:
        return False
    x, y = load.index, store.index
    return x is y or (isinstance(x, Literal) and same_number(y, x))


def _all_blocks(body: Sequence[Statement]) -> Iterator[Sequence[Statement]]:
    """Yield a block and all blocks in it."""
    yield body
    for statement in body:
        for block in statement.blocks():
            yield from _all_blocks(block)
