"""Loops over time on long arrays whose elements have nothing to do with each other: strip by strip through all turns.

Turn by turn, each array that is carried goes through the caches in each turn. A strip stays in the first one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from gradtape.loops.affine import Affine, Atom, Position, Var, affine
from gradtape.loops.control import Turns
from gradtape.loops.copies import Copier
from gradtape.loops.ir import Buffer, Compute, For, Index, Load, Statement, Store

if TYPE_CHECKING:
    from gradtape.lower.building.builder import Builder

STRIP: Final = 512
"""Elements of a strip: 4 KB of each array."""

LONG: Final = 8 * STRIP
"""Elements from which a loop is cut: below, all arrays are in the second cache."""


def by_strips(builder: Builder, loop: Turns, fills: Sequence[Statement]) -> list[Statement]:
    """Return a loop over time cut into strips, if its turns are one loop over elements that stay apart.

    Those of `fills`, which give the carries their first elements, that can be cut as well go along, and leave the builder's program.
    """
    if len(loop.body) != 1 or loop.pairs:
        return [loop]
    (nest,) = loop.body
    if not isinstance(nest, For) or nest.var.low != 0 or nest.var.high + 1 < LONG or not _apart(nest):
        return [loop]
    first = [
        fill for fill in fills if isinstance(fill, For) and fill.var.high == nest.var.high and _apart(fill)
    ]
    program = builder.scopes[-1].statements
    program[:] = [statement for statement in program if statement not in first]
    strips, rest = divmod(nest.var.high + 1, STRIP)
    strip = Var(builder.fresh("i_"), 0, strips - 1)
    made: list[Statement] = [Turns(strip, _cut(builder, loop, first, affine(strip) * STRIP, STRIP, "_strip"))]
    if rest:
        made.extend(_cut(builder, loop, first, strips * STRIP, rest, "_rest"))
    return made


def _apart(nest: For) -> bool:
    """Whether each element of what a nest stores is made of elements at the same place, in this turn and before."""
    places: dict[Buffer, set[Position]] = {}
    stored: set[Buffer] = set()
    for statement in nest.body:
        if not isinstance(statement, Load | Store | Compute):
            return False
        if isinstance(statement, Compute):
            if any(isinstance(arg, Index) for arg in statement.args):
                return False
            continue
        places.setdefault(statement.buffer, set()).add(statement.index)
        if isinstance(statement, Store):
            stored.add(statement.buffer)
    return all(
        len(places[buffer]) == 1 and all(_follows(position, nest.var) for position in places[buffer])
        for buffer in stored
    )


def _follows(position: Position, var: Var) -> bool:
    if not isinstance(position, Affine) or position.terms.get(var) != 1:
        return False
    return all(isinstance(atom, Var) for atom in position.terms)


def _cut(
    builder: Builder, loop: Turns, fills: Sequence[For], start: Position, size: int, suffix: str
) -> list[Statement]:
    def part(nest: For, values: dict[Atom, Position]) -> For:
        element = Var(builder.fresh("i_"), 0, size - 1)
        values[nest.var] = start + affine(element)
        return For(element, Copier(values, {}, suffix=suffix).block(nest.body))

    (nest,) = loop.body
    assert isinstance(nest, For)
    turn = Var(builder.fresh("i_"), loop.var.low, loop.var.high)
    inner = Turns(turn, [part(nest, {loop.var: affine(turn)})], loop.count)
    return [*[part(fill, {}) for fill in fills], inner]
