"""Strip mining of sequential loops over long arrays whose elements do not depend on each other: the loop over strips comes outermost.

With the sequential loop outermost, each array that is carried goes through the caches in each iteration. A strip stays in the first one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gradtape.loops.affine import Affine, Atom, Position, Var, affine
from gradtape.loops.copies import Copier
from gradtape.loops.ir import (
    Buffer,
    Compute,
    ControlFlow,
    For,
    Index,
    Load,
    LoopProgram,
    SequentialFor,
    Statement,
    Store,
)

STRIP: Final = 512
"""Elements of a strip: 4 KB of each array."""

LONG: Final = 8 * STRIP
"""Elements from which a loop is cut: below, all arrays are in the second cache."""


def strip_mine(program: LoopProgram) -> LoopProgram:
    """Return the program with its sequential loops cut into strips, where each iteration is one loop over independent elements.

    The loops before them that give their carries the first elements are cut along with them, where that is possible.
    """
    body: list[Statement] = []
    since = 0
    for statement in program.body:
        nest = _nest_of(statement)
        if nest is None or not isinstance(statement, SequentialFor):
            body.append(statement)
        else:
            first = [before for before in body[since:] if isinstance(before, For) and _starts(before, nest)]
            body[since:] = [before for before in body[since:] if before not in first]
            body.extend(_strips(statement, nest, first))
        if isinstance(statement, ControlFlow) and statement.blocks():
            since = len(body)
    if body == program.body:
        return program
    return LoopProgram(program.name, program.inputs, program.outputs, program.scratch, body)


def _nest_of(statement: Statement) -> For | None:
    """Return the loop over elements that is all there is in a sequential loop, if it is worth cutting."""
    if not isinstance(statement, SequentialFor) or len(statement.body) != 1 or statement.pairs:
        return None
    (nest,) = statement.body
    if not isinstance(nest, For) or nest.var.low != 0 or nest.trip_count < LONG:
        return None
    return nest if _is_elementwise(nest) else None


def _starts(loop: For, nest: For) -> bool:
    """Whether a loop gives a carry its first elements and nothing else, of the same extent."""
    return (
        loop.initial
        and loop.var.high == nest.var.high
        and _is_elementwise(loop)
        and _stored(loop) <= _stored(nest)
    )


def _stored(nest: For) -> set[Buffer]:
    return {statement.buffer for statement in nest.body if isinstance(statement, Store)}


def _is_elementwise(nest: For) -> bool:
    """Whether each element of what a nest stores is made of elements at the same place, in this iteration and before."""
    if not all(isinstance(statement, Load | Store | Compute) for statement in nest.body):
        return False
    places: dict[Buffer, set[Position]] = {}
    for statement in nest.body:
        if isinstance(statement, Load | Store):
            places.setdefault(statement.buffer, set()).add(statement.index)
        elif isinstance(statement, Compute) and any(isinstance(arg, Index) for arg in statement.args):
            return False
    return all(
        len(places[buffer]) == 1 and all(_follows(position, nest.var) for position in places[buffer])
        for buffer in _stored(nest)
    )


def _follows(position: Position, var: Var) -> bool:
    """Whether a position moves by one with a variable, in a way that is known."""
    if not isinstance(position, Affine) or position.terms.get(var) != 1:
        return False
    return all(isinstance(atom, Var) for atom in position.terms)


def _strips(loop: SequentialFor, nest: For, first: Sequence[For]) -> list[Statement]:
    count, rest = divmod(nest.trip_count, STRIP)
    strip = Var(f"{nest.var.name}_number", 0, count - 1)
    made: list[Statement] = [
        SequentialFor(strip, _strip(loop, nest, first, affine(strip) * STRIP, STRIP, "_strip"))
    ]
    if rest:
        made.extend(_strip(loop, nest, first, count * STRIP, rest, "_rest"))
    return made


def _strip(
    loop: SequentialFor, nest: For, first: Sequence[For], start: Position, size: int, suffix: str
) -> list[Statement]:
    """Return a sequential loop and what begins its carries, for `size` elements from `start` on."""

    def part(whole: For, values: dict[Atom, Position]) -> For:
        element = Var(whole.var.name + suffix, 0, size - 1)
        values[whole.var] = start + affine(element)
        return For(element, Copier(values, {}, suffix=suffix).block(whole.body))

    var = Var(loop.var.name + suffix, loop.var.low, loop.var.high)
    inner = SequentialFor(var, [part(nest, {loop.var: affine(var)})], loop.count)
    return [*[part(fill, {}) for fill in first], inner]
