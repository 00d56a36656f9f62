"""Traversal of loops: what statements hold, define, use and touch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from gradtape.loops.affine import Position
from gradtape.loops.ir import (
    Assign,
    Buffer,
    Compute,
    ControlFlow,
    Declare,
    For,
    Index,
    Load,
    LoopProgram,
    Number,
    Register,
    Statement,
    Store,
)
from gradtape.statements import walk


def positions_of(statement: Statement) -> Iterator[Position]:
    """Yield the positions at which a statement loads and stores, and those that it uses as numbers."""
    if isinstance(statement, Load | Store):
        yield statement.index
    for number in statement.uses():
        if isinstance(number, Index):
            yield number.position


def replace_loops(
    program: LoopProgram,
    replacement: Callable[[For, list[Buffer]], Sequence[Statement] | None],
    everywhere: bool = False,
) -> LoopProgram:
    """Return the program with outermost loops replaced by statements; the same one where none is.

    Parameters
    ----------
    program : LoopProgram
        The program.
    replacement : callable
        Returns what replaces a loop, or None; it gets the scratch buffers, which it may change.
    everywhere : bool
        Whether the outermost ones in sequential loops and branches are replaced too.
    """
    scratch = list(program.scratch)

    def block(statements: list[Statement]) -> list[Statement]:
        body: list[Statement] = []
        for statement in statements:
            made = replacement(statement, scratch) if isinstance(statement, For) else None
            if made is None:
                body.append(with_blocks(statement, block) if everywhere else statement)
            else:
                body.extend(made)
        return statements if body == statements else body

    body = block(program.body)
    if body is program.body:
        return program
    return LoopProgram(program.name, program.inputs, program.outputs, scratch, body)


def with_blocks(statement: Statement, changed: Callable[[list[Statement]], list[Statement]]) -> Statement:
    """Return a sequential loop or a branch with its blocks changed; the same one where no block is another one, and other statements."""
    if not isinstance(statement, ControlFlow):
        return statement
    new = statement.with_parts(block=changed)
    is_same = all(one is other for one, other in zip(new.blocks(), statement.blocks(), strict=True))
    return statement if is_same else new


class Definitions:
    """The statements of a block and of those inside it that define its registers, by name.

    Attributes
    ----------
    loads, computes, declares : dict of str to statement
        What defines each register.
    assigns : dict of str to Assign
        The last assignment to each accumulator.
    uses : Counter of str
        How often each register is used.
    """

    def __init__(self, inside: Sequence[Statement]) -> None:
        self.loads = {s.target.name: s for s in inside if isinstance(s, Load)}
        self.computes = {s.target.name: s for s in inside if isinstance(s, Compute)}
        self.declares = {s.target.name: s for s in inside if isinstance(s, Declare)}
        self.assigns = {s.target.name: s for s in inside if isinstance(s, Assign)}
        self.uses = Counter(n.name for s in inside for n in s.uses() if isinstance(n, Register))

    def computed(self, number: Number) -> Compute | None:
        """Return what computes a number, if an instruction does."""
        return self.computes.get(number.name) if isinstance(number, Register) else None

    def loaded(self, number: Number) -> Load | None:
        """Return what loads a number, if it is loaded."""
        return self.loads.get(number.name) if isinstance(number, Register) else None


def touched(statements: Iterable[Statement]) -> set[Buffer]:
    """Return the buffers that statements and what they hold read and write."""
    return {buffer for statement in walk(statements) for buffer, _ in statement.places()}


def touched_outside(program: LoopProgram, inside: Iterable[Statement]) -> set[Buffer]:
    """Return the buffers that a program touches outside some of its statements, wherever these are."""
    left_out = {id(statement) for statement in inside}
    found: set[Buffer] = set()

    def visit(statements: Iterable[Statement]) -> None:
        for statement in statements:
            if id(statement) not in left_out:
                found.update(buffer for buffer, _ in statement.places())
                for block in statement.blocks():
                    visit(block)

    visit(program.body)
    return found
