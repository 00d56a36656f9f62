"""Where the arrays of a procedure are: in a result, in the frame of the call, or in arenas that loops rewind after each iteration."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from gradtape.ir.graph import number_of
from gradtape.procedures.dataflow import escaping_allocations
from gradtape.procedures.ir import (
    Allocate,
    Apply,
    For,
    Pointer,
    Procedure,
    Statement,
    While,
)
from gradtape.records import record
from gradtape.statements import walk

IN_FRAME: Final = 4096
"""Bytes of an array of a known size up to which it is in the frame of the call."""

LARGEST_FRAME: Final = 2**16
"""Bytes of all arrays in the frame."""


@record
class Allocations:
    """Where the arrays are.

    Attributes
    ----------
    results : dict of Allocate to int
        The allocations that are results, and their numbers.
    in_frame : dict of Allocate to int
        Those in the frame, and their bytes.
    rewound : set of For or While
        The loops after whose iterations all is freed that they allocated in the arena.
    in_arena : set of Allocate
        The others.
    in_scratch : set of Allocate
        Those of them that do not outlive an iteration of a loop in which others do: they are in a second arena.
    scratches : set of For or While
        The loops after whose iterations these are freed.
    """

    results: dict[Allocate, int]
    in_frame: dict[Allocate, int]
    rewound: set[Statement]
    in_arena: set[Allocate]
    in_scratch: set[Allocate]
    scratches: set[Statement]


def plan_allocations(procedure: Procedure) -> Allocations:
    """Decide where the arrays of a procedure are."""
    numbers = {result: k for k, result in enumerate(procedure.results) if isinstance(result, Pointer)}
    results: dict[Allocate, int] = {}
    in_frame: dict[Allocate, int] = {}
    used = 0
    rest: set[Statement] = set()
    innermost: dict[Statement, Statement] = {}
    escaping = escaping_allocations(procedure.body)
    for statement, loops in _with_loops(procedure.body, ()):
        if loops:
            innermost[statement] = loops[-1]
        if isinstance(statement, Apply):
            rest.add(statement)
        elif statement.out in numbers:
            results[statement] = numbers[statement.out]
        else:
            size = number_of(statement.size)
            bytes_ = None if size is None else max(int(size), 1) * statement.out.dtype.itemsize
            stays = not loops or statement not in escaping.get(loops[-1], ())
            if bytes_ is not None and bytes_ <= IN_FRAME and used + bytes_ <= LARGEST_FRAME and stays:
                in_frame[statement] = bytes_
                used += bytes_
            else:
                rest.add(statement)
    rewound: set[Statement] = set()
    in_scratch: set[Allocate] = set()
    for loop, leaving in escaping.items():
        inside = rest.intersection(walk([loop]))
        if not inside & leaving:
            rewound.update([loop] if any(isinstance(x, Allocate) for x in inside) else [])
            continue
        own = {x for x in inside if isinstance(x, Allocate) and innermost[x] is loop}
        in_scratch |= own - leaving
    in_arena = {x for x in rest if isinstance(x, Allocate)}
    return Allocations(results, in_frame, rewound, in_arena, in_scratch, {innermost[x] for x in in_scratch})


def _with_loops(
    body: Sequence[Statement], loops: tuple[Statement, ...]
) -> Iterator[tuple[Allocate | Apply, tuple[Statement, ...]]]:
    """Yield what needs memory, with the loops around it."""
    for statement in body:
        if isinstance(statement, Allocate | Apply):
            yield statement, loops
        inner = (*loops, statement) if isinstance(statement, For | While) else loops
        for block in statement.blocks():
            yield from _with_loops(block, inner)
