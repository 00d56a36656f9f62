"""Unroll and jam: a loop around a short loop over lanes makes two of its iterations at once, which load what both read a single time.

A product of small matrices, with a row of vectors in the lanes, loads a vector for each multiplication. Two rows of the result at once load
one for every two.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from gradtape.loops.affine import Affine, Atom, Position, Var, affine, interval
from gradtape.loops.copies import Copier
from gradtape.loops.ir import Buffer, Compute, For, Load, LoopProgram, Place, Statement, Store
from gradtape.loops.traversal import replace_loops, touched_outside
from gradtape.records import replaced
from gradtape.statements import walk

JAM: Final = 2
"""Iterations at once: their sums, with what they read, are in registers."""


def unroll_and_jam(program: LoopProgram) -> LoopProgram:
    """Return the program with iterations of loops around loops over lanes made together, where they share loads."""

    def jammed(loop: For, scratch: list[Buffer]) -> list[Statement] | None:
        new = _inside(loop, program, scratch)
        return None if new is loop else [new]

    return replace_loops(program, jammed, everywhere=True)


def _inside(loop: For, program: LoopProgram, scratch: list[Buffer]) -> For:
    """Return a loop with the loops in it jammed; the same one where there is none."""
    if loop.lanes:
        return loop
    jammed = _jammed(loop, program, scratch)
    if jammed is not None:
        return jammed
    body = [_inside(s, program, scratch) if isinstance(s, For) else s for s in loop.body]
    if all(new is old for new, old in zip(body, loop.body, strict=True)):
        return loop
    return replaced(loop, body=body)


def _jammed(loop: For, program: LoopProgram, scratch: list[Buffer]) -> For | None:
    """Return a loop that makes its iterations in pairs: what stands before the nest, the nest, and what stands behind, each for both."""
    nests = [nest_position for nest_position, s in enumerate(loop.body) if isinstance(s, For) and not s.lanes]
    if len(nests) != 1 or loop.trip_count % JAM or loop.var.low or loop.private is not None or loop.initial:
        return None
    (nest_position,) = nests
    nest = loop.body[nest_position]
    assert isinstance(nest, For)
    before, after = loop.body[:nest_position], loop.body[nest_position + 1 :]
    if not all(isinstance(s, For | Load | Compute | Store) for s in walk(loop.body)) or not _shares(
        loop, nest
    ):
        return None
    own_buffers = _own(loop, touched_outside(program, [loop]))
    if not _independent(loop, [before, [nest], after], own_buffers):
        return None
    rows = Var(f"{loop.var.name}_rows", 0, loop.trip_count // JAM - 1)
    column = Var(f"{nest.var.name}_both", nest.var.low, nest.var.high)
    copiers: list[Copier] = []
    for number in range(JAM):
        moved: dict[Buffer, Place] = {}
        for buffer in own_buffers if number else ():
            copy = Buffer(f"{buffer.name}_row{number}", buffer.dtype, buffer.size, buffer.role)
            scratch.append(copy)
            moved[buffer] = (copy, 0)
        values: dict[Atom, Position] = {loop.var: affine(rows) * JAM + number, nest.var: affine(column)}
        copiers.append(Copier(values, moved, suffix=f"_row{number}"))
    body = [s for copier in copiers for s in copier.block(before)]
    body.append(For(column, [s for copier in copiers for s in copier.block(nest.body)]))
    body.extend(s for copier in copiers for s in copier.block(after))
    return For(rows, body)


def _shares(loop: For, nest: For) -> bool:
    """Whether the nest is a loop around lanes alone, which load vectors that do not follow the outer loop."""
    inner = [s for s in nest.body if isinstance(s, For)]
    if not inner or not all(s.lanes for s in inner):
        return False
    stored = {s.buffer for s in walk(loop.body) if isinstance(s, Store)}
    return any(
        isinstance(s, Load) and s.buffer not in stored and loop.var not in _variables(s.index)
        for lanes in inner
        for s in lanes.body
    )


def _own(loop: For, elsewhere: set[Buffer]) -> list[Buffer]:
    """Return the scratch that each iteration fills before it reads it."""
    own_buffers: list[Buffer] = []
    met: set[Buffer] = set()
    for statement in loop.body:
        inside = [statement, *walk([statement])]
        accesses = [s for s in inside if isinstance(s, Load | Store)]
        for access in accesses:
            buffer = access.buffer
            if buffer in met:
                continue
            met.add(buffer)
            if (
                isinstance(access, Store)
                and isinstance(statement, For)
                and statement.lanes
                and access in statement.body
                and access.index == affine(statement.var)
                and statement.trip_count == buffer.size
                and buffer.role == "scratch"
                and buffer not in elsewhere
            ):
                own_buffers.append(buffer)
    return own_buffers


def _independent(loop: For, sections: list[list[Statement]], own_buffers: list[Buffer]) -> bool:
    """Whether the statements of an iteration may run before those of the one before it that stand further on."""
    accesses: dict[Buffer, list[tuple[int, Load | Store]]] = {}
    for number, section in enumerate(sections):
        for statement in walk(section):
            if isinstance(statement, Load | Store) and statement.buffer not in own_buffers:
                accesses.setdefault(statement.buffer, []).append((number, statement))
    for buffer_accesses in accesses.values():
        if not any(isinstance(access, Store) for _, access in buffer_accesses):
            continue
        numbers = {number for number, _ in buffer_accesses}
        if len(numbers) == 1 and numbers != {1}:
            continue  # in the order in which they were
        if not _apart(loop, [access.index for _, access in buffer_accesses]):
            return False
    return True


def _apart(loop: For, positions: list[Position]) -> bool:
    """Whether different iterations of a loop touch different elements at these positions."""
    inside = {s.var for s in walk(loop.body) if isinstance(s, For)}
    factors: set[int] = set()
    outer: set[frozenset[tuple[Atom, int]]] = set()
    lows: list[int] = []
    highs: list[int] = []
    for position in positions:
        if not isinstance(position, Affine) or not all(isinstance(atom, Var) for atom in position.terms):
            return False
        factors.add(position.terms.get(loop.var, 0))
        outer.add(frozenset((a, n) for a, n in position.terms.items() if a not in inside and a != loop.var))
        remainder: Position = position.offset
        for atom, factor in position.terms.items():
            if atom in inside:
                assert isinstance(atom, Var)
                remainder = remainder + affine(atom) * factor
        low, high = interval(remainder)
        lows.append(low)
        highs.append(high)
    if len(factors) != 1 or len(outer) != 1:
        return False
    (factor,) = factors
    return abs(factor) > max(highs) - min(lows)


def _variables(position: Position) -> Iterable[Var]:
    return position.variables() if isinstance(position, Affine) else ()
