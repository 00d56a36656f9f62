"""Two nested loops that walk memory as one become one, with a longer run for the vectoriser."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gradtape.loops.affine import Atom, Position, Var, affine, substitute
from gradtape.loops.ir import (
    Assign,
    Compute,
    Declare,
    For,
    Guard,
    Index,
    Load,
    Number,
    Statement,
    Store,
    Wrap,
)


def collapse(statements: list[Statement]) -> None:
    """Merge nested loops in place, innermost first."""
    for place, statement in enumerate(statements):
        if isinstance(statement, For):
            collapse(statement.body)
            statements[place] = _collapsed(statement)


def _collapsed(outer: For) -> For:
    if len(outer.body) != 1 or not isinstance(outer.body[0], For):
        return outer
    inner = outer.body[0]
    slow, fast = outer.var, inner.var
    extent = fast.high + 1
    if fast.low != 0 or any(isinstance(statement, For) for statement in inner.body):
        return outer
    if not all(_contiguous(position, slow, fast, extent) for position in _positions(inner.body)):
        return outer
    whole = Var(fast.name, slow.low * extent, slow.high * extent + extent - 1)
    values: dict[Atom, Position] = {slow: 0, fast: affine(whole)}
    body = [_substituted(statement, values) for statement in inner.body]
    return For(whole, body) if all(statement is not None for statement in body) else outer  # type: ignore[arg-type]


def _contiguous(position: Position, slow: Var, fast: Var, extent: int) -> bool:
    if isinstance(position, int):
        return True
    for atom in position.terms:
        if not isinstance(atom, Var) and {slow, fast} & atom.whole.variables():
            return False
    return position.terms.get(slow, 0) == position.terms.get(fast, 0) * extent


def _positions(statements: Sequence[Statement]) -> Iterator[Position]:
    """Return the positions in straight-line statements; an uncommon statement yields one that never
    merges."""
    for statement in statements:
        if isinstance(statement, Load | Store):
            yield statement.index
        if isinstance(statement, Store | Assign | Declare | Wrap | Guard):
            yield from _positions_of((statement.value,))
        elif isinstance(statement, Compute):
            yield from _positions_of(statement.args)


def _positions_of(numbers: Sequence[Number]) -> Iterator[Position]:
    for number in numbers:
        if isinstance(number, Index):
            yield number.position


def _substituted(statement: Statement, values: dict[Atom, Position]) -> Statement | None:
    def number(old: Number) -> Number:
        return Index(substitute(old.position, values)) if isinstance(old, Index) else old

    if isinstance(statement, Load):
        return Load(statement.target, statement.buffer, substitute(statement.index, values))
    if isinstance(statement, Store):
        return Store(statement.buffer, substitute(statement.index, values), number(statement.value))
    if isinstance(statement, Compute):
        args = tuple([number(arg) for arg in statement.args])
        return Compute(statement.target, statement.function, statement.body, args, statement.reassociate)
    if isinstance(statement, Assign):
        return Assign(statement.target, number(statement.value))
    if isinstance(statement, Declare):
        return Declare(statement.target, number(statement.value))
    return None
