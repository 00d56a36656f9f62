"""Packing of rows for row blocking: what a row reads from memory again and again is copied once, before rows are blocked.

The lanes of a vector then gather each element from their rows once, and not once for each iteration of the loops that read it: in a
mixture of 25 Gaussians the points are read 25 times.
"""

from __future__ import annotations

from typing import Final

from gradtape.loops.affine import Affine, Position, Var, affine, interval
from gradtape.loops.copies import Copier
from gradtape.loops.ir import Buffer, For, Load, LoopProgram, Register, Statement, Store
from gradtape.statements import walk

AGAIN: Final = 4
"""Reads of an element from which a copy pays."""

LARGEST: Final = 512
"""Elements of a row that are copied at most: a block of 32 such rows takes an eighth of the second cache."""


def copied_in(loop: For, program: LoopProgram, scratch: list[Buffer]) -> tuple[For, LoopProgram]:
    """Let a loop over rows begin by copying what each row reads repeatedly.

    Returns
    -------
    tuple of For and LoopProgram
        The loop and the program with it, the same ones where there is no such thing. `scratch` receives the copies.
    """
    copier = _RowCopier(loop)
    body = copier.block(loop.body)
    if not copier.copies:
        return loop, program
    scratch.extend(copier.copies.values())
    copying = For(loop.var, [*copier.prologue(), *body])
    statements = [copying if statement is loop else statement for statement in program.body]
    return copying, LoopProgram(program.name, program.inputs, program.outputs, scratch, statements)


class _RowCopier(Copier):
    """Copies the body of a loop over rows, with reads of copies in place of repeated reads of rows."""

    def __init__(self, loop: For) -> None:
        super().__init__({}, {})
        self.row = loop.var
        self.copies: dict[tuple[Buffer, int, int, int], Buffer] = {}
        self._around: list[For] = []
        self._written = {s.buffer for s in walk(loop.body) if isinstance(s, Store)}

    def _for(self, loop: For) -> For | None:
        self._around.append(loop)
        copy = super()._for(loop)
        self._around.pop()
        return copy

    def _load(self, load: Load) -> Load:
        found = self._repeated(load)
        if found is None:
            return load
        within, key = found
        copy = self.copies.get(key)
        if copy is None:
            buffer, _, low, high = key
            name = f"r{len(self.copies)}_{buffer.name}_{self.row.name}"
            copy = self.copies[key] = Buffer(name, buffer.dtype, high - low + 1, "scratch")
        return Load(load.target, copy, within - key[2])

    def _repeated(self, load: Load) -> tuple[Position, tuple[Buffer, int, int, int]] | None:
        """Return the place within its row of an element that is read again and again, and which elements of
        which rows there are."""
        index = load.index
        factor = index.terms.get(self.row, 0) if isinstance(index, Affine) else 0
        if factor <= 1 or load.buffer in self._written:
            return None
        within = index - affine(self.row) * factor
        variables = within.variables() if isinstance(within, Affine) else set()
        if not variables <= {loop.var for loop in self._around} or self.row in variables:
            return None
        low, high = interval(within)
        reads = 1
        for loop in self._around:
            reads *= loop.trip_count
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
