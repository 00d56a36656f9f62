"""Walks over procedures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from gradtape.ir.graph import Value, extract
from gradtape.procedures.ir import Assign, Content, Pointer, Procedure, Read, Statement


def walk(statements: Sequence[Statement]) -> Iterator[Statement]:
    """Yield statements and those inside them, each before its blocks."""
    for statement in statements:
        yield statement
        for block in statement.blocks():
            yield from walk(block)


def site_of(statement: Statement) -> Any:
    """Return the place in the user's code for which a statement is there: its own, or that of the last value that it uses."""
    own = getattr(statement, "site", None)
    if own is not None:
        return own
    used = [content for content in statement.uses() if isinstance(content, Value) and content.is_made]
    return next((content.node.site for content in reversed(used) if content.node is not None), None)


def leaves_of(statement: Statement) -> list[Content]:
    """Return the leaves of what a statement itself uses, each as often as that has it."""
    found: list[Content] = []
    for content in statement.uses():
        found += [content] if isinstance(content, Pointer) else extract([content])[1]
    return found


def stored(statements: Sequence[Statement]) -> Iterator[Pointer]:
    """Yield the pointers through which statements, or those inside them, write."""
    for statement in walk(statements):
        yield from statement.pointers_written()


def names(procedure: Procedure) -> set[str]:
    """Return the names of pointers, memories, variables and parameters."""
    found = {content.name for content in procedure.parameters if content.name is not None}
    for statement in walk(procedure.body):
        if isinstance(statement, Read | Assign):
            found.add(statement.variable.name)
        for content in (*statement.uses(), *statement.defines()):
            if isinstance(content, Pointer):
                found |= {content.name, content.memory.name}
    return found


def add_name(base: str, taken: set[str]) -> str:
    """Add a name to those that are taken: the base, or the base with a number."""
    name, number = base, 0
    while name in taken:
        number += 1
        name = f"{base}.{number}"
    taken.add(name)
    return name


def roots(procedure: Procedure) -> list[Value]:
    """Return the values that statements use, and the results."""
    used = [content for statement in walk(procedure.body) for content in statement.uses()]
    return [content for content in (*used, *procedure.results) if isinstance(content, Value)]
