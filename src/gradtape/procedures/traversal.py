"""Walks over procedures: the blocks of a statement, what it uses and what it defines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from gradtape.ir.graph import Value
from gradtape.procedures.ir import (
    Allocate,
    Apply,
    Assign,
    Check,
    Content,
    For,
    If,
    Load,
    Pointer,
    Pop,
    Procedure,
    Push,
    Read,
    Span,
    Statement,
    Store,
    While,
)


def blocks(statement: Statement) -> tuple[list[Statement], ...]:
    """Return the blocks of a statement, in the order in which they run."""
    if isinstance(statement, For):
        return (statement.body,)
    if isinstance(statement, While):
        return (statement.test, statement.body)
    if isinstance(statement, If):
        return (statement.then, statement.otherwise)
    return ()


def walk(statements: Sequence[Statement]) -> Iterator[Statement]:
    """Yield statements and those inside of them, each before its blocks."""
    for statement in statements:
        yield statement
        for block in blocks(statement):
            yield from walk(block)


def uses(statement: Statement) -> tuple[Content, ...]:
    """Return the values and pointers that a statement itself uses, without its blocks."""
    if isinstance(statement, Load):
        return (statement.pointer, statement.index)
    if isinstance(statement, Store):
        return (statement.pointer, statement.index, statement.value)
    if isinstance(statement, Assign):
        return (statement.value,)
    if isinstance(statement, Allocate):
        return (statement.size,)
    if isinstance(statement, Check | While | If):
        return (statement.condition,)
    if isinstance(statement, For):
        return (statement.count,)
    if isinstance(statement, Push):
        return statement.values
    if isinstance(statement, Apply):
        return (*_contents(statement.inputs), *_contents(statement.outputs))
    return ()


def site_of(statement: Statement) -> Any:
    """Return the place in the user's code for which a statement is there: its own, or that of the last value that it uses."""
    own = getattr(statement, "site", None)
    if own is not None:
        return own
    used = [content for content in uses(statement) if isinstance(content, Value) and content.is_made]
    return next((content.node.site for content in reversed(used) if content.node is not None), None)


def _contents(operands: Sequence[Value | Span]) -> Iterator[Content]:
    for operand in operands:
        if isinstance(operand, Span):
            yield operand.pointer
            yield operand.offset
        else:
            yield operand


def defines(statement: Statement) -> tuple[Content, ...]:
    """Return the leaves that a statement defines; the index of a loop is known in its body only."""
    if isinstance(statement, Load | Read | Allocate):
        return (statement.out,)
    if isinstance(statement, For):
        return (statement.index,)
    if isinstance(statement, Pop):
        return statement.outs
    return ()


def stored(statements: Sequence[Statement]) -> Iterator[Pointer]:
    """Yield the pointers through which statements, or those inside of them, write."""
    for statement in walk(statements):
        if isinstance(statement, Store):
            yield statement.pointer
        elif isinstance(statement, Apply):
            yield from (span.pointer for span in statement.outputs)


def names(procedure: Procedure) -> set[str]:
    """Return the names of pointers, memories, variables and parameters."""
    found = {content.name for content in procedure.parameters if content.name is not None}
    for statement in walk(procedure.body):
        if isinstance(statement, Read | Assign):
            found.add(statement.variable.name)
        for content in (*uses(statement), *defines(statement)):
            if isinstance(content, Pointer):
                found |= {content.name, content.memory.name}
    return found


def roots(procedure: Procedure) -> list[Value]:
    """Return the values that statements use, and the results."""
    used = [content for statement in walk(procedure.body) for content in uses(statement)]
    return [content for content in (*used, *procedure.results) if isinstance(content, Value)]
