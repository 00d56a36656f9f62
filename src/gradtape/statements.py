"""Statements, which the two IRs of loops have in common. A statement is a record that uses operands, defines others, and holds blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar, TypeVar

from gradtape.records import replaced

S = TypeVar("S", bound="StatementBase")


class Compound:
    """Operands that belong together, such as a pointer and an offset."""

    __slots__ = ()

    def contents(self) -> tuple[Any, ...]:
        """Return the operands."""
        raise NotImplementedError

    def with_contents(self, content: Callable[[Any], Any]) -> Any:
        """Return such operands with what a function makes of each."""
        raise NotImplementedError


class StatementBase:
    """The parts of a statement, for all that walks over statements or rewrites them.

    A class of statements names the fields with its operands and blocks in `parts`, in the order in which it uses and runs them, and the
    field with what it defines, one thing or several, in `defined`. A list is a block; a tuple holds operands, or blocks.
    """

    __slots__ = ()

    parts: ClassVar[tuple[str, ...]] = ()
    defined: ClassVar[str] = ""

    def blocks(self) -> tuple[list[Any], ...]:
        """Return the blocks, in the order in which they run."""
        return ()

    def uses(self) -> tuple[Any, ...]:
        """Return the operands that the statement itself uses, without its blocks."""
        used: list[Any] = []
        for name in self.parts:
            part = getattr(self, name)
            if part is None or _holds_blocks(part):
                continue
            for operand in part if isinstance(part, tuple) else (part,):
                used += operand.contents() if isinstance(operand, Compound) else (operand,)
        return tuple(used)

    def defines(self) -> tuple[Any, ...]:
        """Return what the statement defines; the index of a loop is known in its body only."""
        if not self.defined:
            return ()
        new = getattr(self, self.defined)
        return new if isinstance(new, tuple) else (new,)

    def with_parts(
        self: S,
        content: Callable[[Any], Any] | None = None,
        block: Callable[[list[Any]], list[Any]] | None = None,
        define: Callable[[Any], Any] | None = None,
    ) -> S:
        """Return the statement with what functions make of its operands, its blocks, and what it defines."""
        changed: dict[str, Any] = {}
        for name in self.parts:
            part = getattr(self, name)
            function = block if _holds_blocks(part) else content
            if function is not None and part is not None:
                changed[name] = _mapped(part, function)
        if define is not None and self.defined:
            changed[self.defined] = _mapped(getattr(self, self.defined), define)
        return replaced(self, **changed) if changed else self


def _holds_blocks(part: Any) -> bool:
    return isinstance(part, list) or (isinstance(part, tuple) and bool(part) and isinstance(part[0], list))


def _mapped(part: Any, function: Callable[[Any], Any]) -> Any:
    if isinstance(part, tuple):
        return tuple([_mapped(each, function) for each in part])
    return part.with_contents(function) if isinstance(part, Compound) else function(part)


def walk(statements: Iterable[S]) -> Iterator[S]:
    """Yield statements and those inside them, each before its blocks."""
    for statement in statements:
        yield statement
        for block in statement.blocks():
            yield from walk(block)
