"""What a row reads from memory again and again is copied in once, before rows are put side by side.

The lanes of a vector then gather each element from their rows once, and not once for each turn of the loops that
read it: in a mixture of 25 Gaussians the points are read 25 times.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gradtape.loops.affine import Affine, Position, Var, affine, interval
from gradtape.loops.ir import Buffer, For, Load, Program, Register, Statement, Store

AGAIN: Final = 4
"""Reads of an element from which a copy pays."""

LARGEST: Final = 512
"""Elements of a row that are copied at most: a block of 32 such rows takes an eighth of the second cache."""


def copied_in(loop: For, program: Program, scratch: list[Buffer]) -> tuple[For, Program]:
    """Let a loop over rows begin by copying what each row reads repeatedly.

    Returns
    -------
    tuple of For and Program
        The loop and the program with it, the same ones where there is no such thing. `scratch` receives the copies.
    """
    copier = _Copier(loop)
    body = copier.block(loop.body, ())
    if not copier.copies:
        return loop, program
    scratch.extend(copier.copies.values())
    copying = For(loop.var, [*copier.prologue(), *body])
    statements = [copying if statement is loop else statement for statement in program.body]
    return copying, Program(program.name, program.inputs, program.outputs, scratch, statements)


class _Copier:
    """Rewrites the body of a loop over rows."""

    def __init__(self, loop: For) -> None:
        self.row = loop.var
        self.copies: dict[tuple[Buffer, int, int, int], Buffer] = {}
        self._written = _written(loop.body)

    def block(self, statements: Sequence[Statement], around: tuple[For, ...]) -> list[Statement]:
        """Return statements with repeated reads of rows turned into reads of their copies."""
        made: list[Statement] = []
        for statement in statements:
            if isinstance(statement, For):
                body = self.block(statement.body, (*around, statement))
                made.append(For(statement.var, body, statement.lanes, statement.private))
            elif isinstance(statement, Load):
                made.append(self._load(statement, around))
            else:
                made.append(statement)
        return made

    def _load(self, load: Load, around: tuple[For, ...]) -> Load:
        found = self._repeated(load, around)
        if found is None:
            return load
        within, key = found
        copy = self.copies.get(key)
        if copy is None:
            buffer, _, low, high = key
            name = f"r{len(self.copies)}_{buffer.name}_{self.row.name}"
            copy = self.copies[key] = Buffer(name, buffer.dtype, high - low + 1, "scratch")
        return Load(load.target, copy, within - key[2])

    def _repeated(
        self, load: Load, around: tuple[For, ...]
    ) -> tuple[Position, tuple[Buffer, int, int, int]] | None:
        """Return the place within its row of an element that is read again and again, and which elements of
        which rows there are."""
        index = load.index
        factor = index.terms.get(self.row, 0) if isinstance(index, Affine) else 0
        if factor <= 1 or load.buffer in self._written:
            return None
        within = index - affine(self.row) * factor
        variables = within.variables() if isinstance(within, Affine) else set()
        if not variables <= {loop.var for loop in around} or self.row in variables:
            return None
        low, high = interval(within)
        reads = 1
        for loop in around:
            reads *= loop.var.high - loop.var.low + 1
        size = high - low + 1
        if size > LARGEST or low < 0 or high >= factor or reads < AGAIN * size:
            return None
        return within, (load.buffer, factor, low, high)

    def prologue(self) -> list[Statement]:
        """Return the loops that copy."""
        made: list[Statement] = []
        for (buffer, factor, low, high), copy in self.copies.items():
            element = Var(f"{copy.name}_at", 0, high - low)
            value = Register(f"{copy.name}_in", buffer.dtype)
            place = affine(self.row) * factor + affine(element) + low
            made.append(For(element, [Load(value, buffer, place), Store(copy, affine(element), value)]))
        return made


def _written(statements: Sequence[Statement]) -> set[Buffer]:
    found: set[Buffer] = set()
    for statement in statements:
        if isinstance(statement, For):
            found |= _written(statement.body)
        elif isinstance(statement, Store):
            found.add(statement.buffer)
    return found
