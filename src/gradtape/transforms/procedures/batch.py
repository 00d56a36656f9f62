"""Batches of procedures: a loop over the elements of a mapped axis around the body."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from gradtape.ir.graph import Value
from gradtape.ir.types import Aval, aval
from gradtape.procedures.builder import ProcedureBuilder, integer
from gradtape.procedures.ir import (
    Allocate,
    Apply,
    Assign,
    Content,
    Load,
    Pointer,
    Procedure,
    Span,
    Statement,
    Store,
)
from gradtape.procedures.traversal import names
from gradtape.statements import walk

Part: TypeAlias = tuple[Pointer, Value]
"""Where the array of one element begins in that of all elements: a pointer and an offset."""


def batch_procedure(procedure: Procedure, size: int, batched: Sequence[bool]) -> Procedure:
    """Return the procedure for all elements of a mapped axis.

    Parameters
    ----------
    procedure : Procedure
        For one element; without statements of the tape.
    size : int
        The extent of the mapped axis.
    batched : sequence of bool
        By parameter: whether it differs between elements. Then it has the mapped axis in front, as all results have.

    Examples
    --------
    >>> from gradtape.procedures.builder import ProcedureBuilder
    >>> build = ProcedureBuilder("square")
    >>> x = build.scalar("x")
    >>> batch_procedure(build.finish([x * x]), 3, [True]).result_types
    (f64[3],)
    """
    build = ProcedureBuilder(procedure.name, names(procedure))
    copied = _held_by_variables(procedure)
    inputs: list[tuple[Content, Aval, Pointer]] = []
    for parameter, type_, flag in zip(procedure.parameters, procedure.types, batched, strict=True):
        if flag:
            name = parameter.name or "x"
            inputs.append((parameter, type_, build.array(f"{name}_all", (size, *type_.shape), type_.dtype)))
        else:
            build.parameters.append(parameter)
            build.types.append(type_)
    outputs = []
    owned = {statement.out: statement for statement in procedure.body if isinstance(statement, Allocate)}
    for number, (result, type_) in enumerate(zip(procedure.results, procedure.result_types, strict=True)):
        zero = isinstance(result, Pointer) and owned[result].zero
        name = f"all_{result.name or number}"
        outputs.append((result, type_, build.allocate(name, size * type_.size, type_.dtype, zero)))
    with build.loop(size) as element:
        parts: dict[Pointer, Part] = {}
        for content, type_, batched_pointer in (*inputs, *outputs):
            if isinstance(content, Pointer) and content not in copied:
                parts[content] = batched_pointer, element * type_.size
        for content, type_, batched_pointer in inputs:
            if isinstance(content, Value):
                build.append(Load(content, batched_pointer, element))
            elif content not in parts:
                _take(build, content, batched_pointer, element, type_.size)
        for statement in procedure.body:
            if not (isinstance(statement, Allocate) and statement.out in parts):
                build.append(_moved(statement, parts))
        for content, type_, batched_pointer in outputs:
            if isinstance(content, Value):
                build.store(batched_pointer, element, content)
            elif content not in parts:
                with build.loop(type_.size) as position:
                    build.store(
                        batched_pointer, element * type_.size + position, build.load(content, position)
                    )
    types = [aval((size, *type_.shape), type_.dtype) for type_ in procedure.result_types]
    return build.finish([batched_pointer for _, _, batched_pointer in outputs], types)


def _held_by_variables(procedure: Procedure) -> set[Pointer]:
    """Return the pointers that variables hold: what is read from these has no offset."""
    return {
        statement.value
        for statement in walk(procedure.body)
        if isinstance(statement, Assign) and isinstance(statement.value, Pointer)
    }


def _take(build: ProcedureBuilder, pointer: Pointer, batch: Pointer, element: Value, size: int) -> None:
    """Append a copy of one element's array, at a pointer of its own."""
    build.append(Allocate(pointer, integer(size)))
    with build.loop(size) as position:
        build.store(pointer, position, build.load(batch, element * size + position))


def _moved(statement: Statement, parts: dict[Pointer, Part]) -> Statement:
    """Return a statement that reaches the arrays of one element in those of all elements."""
    if isinstance(statement, Load) and statement.pointer in parts:
        batch, offset = parts[statement.pointer]
        return Load(statement.out, batch, offset + statement.index, statement.site)
    if isinstance(statement, Store) and statement.pointer in parts:
        batch, offset = parts[statement.pointer]
        return Store(batch, offset + statement.index, statement.value, statement.site)
    if isinstance(statement, Apply):
        inputs = tuple([_moved_span(x, parts) if isinstance(x, Span) else x for x in statement.inputs])
        outputs = tuple([_moved_span(span, parts) for span in statement.outputs])
        return Apply(statement.graph, inputs, outputs)
    return statement.with_parts(block=lambda body: [_moved(inner, parts) for inner in body])


def _moved_span(span: Span, parts: dict[Pointer, Part]) -> Span:
    if span.pointer not in parts:
        return span
    batch, offset = parts[span.pointer]
    return Span(batch, offset + span.offset, span.aval)
