"""Loop collapsing: two nested loops with contiguous accesses become one, with a longer run for the vectoriser."""

from __future__ import annotations

from gradtape.loops.affine import Position, Var, affine
from gradtape.loops.copies import Copier
from gradtape.loops.ir import Assign, Compute, Declare, For, Load, LoopProgram, Statement, Store
from gradtape.loops.traversal import positions_of, with_blocks


def collapse_loops(program: LoopProgram) -> LoopProgram:
    """Return the program, in which nested loops have been merged, innermost first."""
    body = _collapsed_block(program.body)
    if body is program.body:
        return program
    return LoopProgram(program.name, program.inputs, program.outputs, program.scratch, body)


def _collapsed_block(statements: list[Statement]) -> list[Statement]:
    made = [
        _collapsed(statement) if isinstance(statement, For) else with_blocks(statement, _collapsed_block)
        for statement in statements
    ]
    return made if any(new is not old for new, old in zip(made, statements, strict=True)) else statements


def _collapsed(outer: For) -> For:
    body = _collapsed_block(outer.body)
    if body is not outer.body:
        outer = For(outer.var, body)
    if len(body) != 1 or not isinstance(body[0], For):
        return outer
    inner = body[0]
    slow, fast = outer.var, inner.var
    extent = fast.high + 1
    if fast.low != 0 or not all(isinstance(s, Load | Store | Compute | Declare | Assign) for s in inner.body):
        return outer
    positions = [position for statement in inner.body for position in positions_of(statement)]
    if not all(_contiguous(position, slow, fast, extent) for position in positions):
        return outer
    whole = Var(fast.name, slow.low * extent, slow.high * extent + extent - 1)
    return For(whole, Copier({slow: 0, fast: affine(whole)}, {}).block(inner.body))


def _contiguous(position: Position, slow: Var, fast: Var, extent: int) -> bool:
    """Whether a step of the slow loop moves a position as far as the whole fast loop does."""
    if isinstance(position, int):
        return True
    for atom in position.terms:
        if not isinstance(atom, Var) and {slow, fast} & atom.whole.variables():
            return False
    return position.terms.get(slow, 0) == position.terms.get(fast, 0) * extent
