"""Walks over procedures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from gradtape.ir.graph import Value, extract, number_of
from gradtape.procedures.ir import Allocate, Assign, Content, Pointer, Procedure, Read, Statement, Variable
from gradtape.statements import walk


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


def assigned(statements: Iterable[Statement]) -> set[Variable]:
    """Return the variables that statements, or those inside them, assign."""
    return {statement.variable for statement in walk(statements) if isinstance(statement, Assign)}


def reads(statements: Iterable[Statement]) -> Counter[Variable]:
    """Return how many statements, those inside them included, read each variable."""
    return Counter(statement.variable for statement in walk(statements) if isinstance(statement, Read))


def outer_leaves(contents: Iterable[Content], inside: Iterable[Statement]) -> list[Content]:
    """Return the leaves of contents that none of the statements `inside` defines, values before pointers."""
    contents = list(contents)
    _, leaves = extract([x for x in contents if isinstance(x, Value)], stop=lambda x: not x.is_made)
    values: list[Content] = [x for x in leaves if x.data is None]
    own = {x for statement in inside for x in statement.defines()}
    used = dict.fromkeys([*values, *[x for x in contents if isinstance(x, Pointer)]])
    return [x for x in used if x not in own]


def array_sizes(procedure: Procedure) -> dict[Pointer, int]:
    """Return the number of elements of the arrays that have as many in each run: parameters and allocations."""
    sizes = {
        parameter: type_.size
        for parameter, type_ in zip(procedure.parameters, procedure.types, strict=True)
        if isinstance(parameter, Pointer)
    }
    for statement in walk(procedure.body):
        if isinstance(statement, Allocate) and (size := number_of(statement.size)) is not None:
            sizes[statement.out] = int(size)
    return sizes


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
