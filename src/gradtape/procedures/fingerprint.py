"""The identity of a procedure: equal for procedures that one kernel serves, in this process and in any other."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from gradtape.ir.fingerprint import describe_parameters
from gradtape.ir.graph import Value
from gradtape.ir.types import Aval
from gradtape.procedures.ir import (
    Allocate,
    Apply,
    Assign,
    Check,
    Content,
    For,
    Memory,
    Procedure,
    Read,
    Span,
    Statement,
    Variable,
    While,
)


def procedure_digest(procedure: Procedure) -> str:
    """Return a digest of what a procedure computes: statements, types, wiring, and the messages of checks.

    Names do not count, nor do the places in the user's code.

    Examples
    --------
    >>> from gradtape.procedures.builder import ProcedureBuilder
    >>> def scaled(factor, name):
    ...     build = ProcedureBuilder(name)
    ...     return build.finish([build.scalar(name) * factor])
    >>> procedure_digest(scaled(2.0, "x")) == procedure_digest(scaled(2.0, "y"))
    True
    >>> procedure_digest(scaled(2.0, "x")) == procedure_digest(scaled(3.0, "x"))
    False
    """
    writer = Writer()
    for parameter, type_ in zip(procedure.parameters, procedure.types, strict=True):
        writer.define(parameter)
        writer.parts.append(_type(type_))
    writer.block(procedure.body)
    results = [writer.content(result) for result in procedure.results]
    writer.parts.append(f"->{','.join(results)}:{','.join(map(_type, procedure.result_types))}")
    digest: str = hashlib.blake2b("\n".join(writer.parts).encode(), digest_size=20).hexdigest()
    return digest


class Writer:
    """Writes a procedure in a canonical form: everything has a number in the order in which it is met.

    Parameters
    ----------
    known : mapping, optional
        The names of leaves, variables and memories that have one already.

    Attributes
    ----------
    parts : list of str
        What is written.
    names : dict
        The names, in the order in which they were given.
    """

    def __init__(self, known: Mapping[Content | Variable | Memory, str] | None = None) -> None:
        self.parts: list[str] = []
        self.names: dict[Content | Variable | Memory, str] = dict(known or {})
        self._count = 0

    def _next(self, letter: str) -> str:
        self._count += 1
        return f"{letter}{self._count}"

    def define(self, content: Content) -> str:
        """Return the new name of a leaf, with its dtype; that of a pointer also says what memory it points into."""
        name = self.names[content] = self._next("x")
        if isinstance(content, Value):
            return f"{name}:{content.dtype.str}"
        return f"{name}:{content.dtype.str}@{self._named(content.memory)}"

    def _named(self, thing: Variable | Memory) -> str:
        found = self.names.get(thing)
        if found is None:
            found = self.names[thing] = self._next("m")
        return found

    def content(self, content: Content) -> str:
        """Return the name of a value or pointer; the nodes that make it are written first, each once."""
        found = self.names.get(content)
        if found is not None or not isinstance(content, Value):
            return found if found is not None else self.define(content)
        stack = [content]
        while stack:
            value = stack[-1]
            node = value.node
            if value in self.names:
                stack.pop()
            elif node is None:
                stack.pop()
                data = value.data
                self.names[value] = "?" if data is None else data.dtype.str + data.tobytes().hex()
            else:
                waiting = [operand for operand in node.inputs if operand not in self.names]
                if waiting:
                    stack.extend(reversed(waiting))
                    continue
                stack.pop()
                wiring = ",".join([self.names[operand] for operand in node.inputs])
                name = self._next("x")
                self.parts.append(f"{name}={node.op.name}({wiring}){describe_parameters(node.params)}")
                self.names[value] = name
        return self.names[content]

    def block(self, statements: Sequence[Statement]) -> None:
        """Write the statements of a block."""
        self.parts.append("{")
        for statement in statements:
            self._statement(statement)
        self.parts.append("}")

    def _statement(self, statement: Statement) -> None:
        line: list[Any] = [type(statement).__name__, *_facts(statement)]
        if isinstance(statement, Read | Assign):
            line.append(self._named(statement.variable))
        if not isinstance(statement, While):
            line += map(self.content, statement.uses())
        line += map(self.define, statement.defines())
        self.parts.append(" ".join(map(str, line)))
        for block in statement.blocks():
            self.block(block)
            if isinstance(statement, While) and block is statement.test:
                self.parts.append(self.content(statement.condition))


def _facts(statement: Statement) -> Sequence[Any]:
    """Return what a statement is beside its operands and blocks."""
    if isinstance(statement, Allocate):
        return (statement.zero,)
    if isinstance(statement, Check):
        return statement.error, repr(statement.message)
    if isinstance(statement, For):
        return (statement.parallel,)
    if not isinstance(statement, Apply):
        return ()
    constants = [x.data for x in statement.graph.constants()]  # they are part of the program
    digests = [hashlib.blake2b(x.tobytes(), digest_size=20).hexdigest() for x in constants if x is not None]
    spans = [_type(x.aval) if isinstance(x, Span) else "" for x in (*statement.inputs, *statement.outputs)]
    return statement.graph.digest, *digests, *spans


def _type(type_: Aval) -> str:
    return f"{type_.dtype.str}{type_.shape}"
