"""Residuals of array computations: what their pullbacks would compute again at some cost becomes a result of the forward sweep.

So a system of equations is factorised once, and a product of matrices computed once, where the adjoint needs factors or products too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gradtape.ir.graph import Value, extract, literal, number_of
from gradtape.ir.types import INT64, is_inexact
from gradtape.kinds.elementwise import Elementwise
from gradtape.procedures.ir import Allocate, Apply, For, Memory, Pointer, Procedure, Span, Statement, While
from gradtape.procedures.traversal import add_name, names
from gradtape.transforms.loops.draft import make_body, never_stop, placeholder
from gradtape.transforms.loops.residuals import is_expensive
from gradtape.transforms.vjp import reverse_sweep

MOST_BYTES: Final = 2**26
"""The memory limit of the residuals of one array computation over all iterations."""


def keep_residuals(procedure: Procedure) -> None:
    """Let the array computations of a procedure store their residuals, in arrays that are allocated just before them.

    The blocks are changed in place. An array computation in a loop whose trip count is not known stores none.
    """
    taken = names(procedure)
    _keep(procedure.body, 1, taken)


def expensive_values(statement: Apply) -> set[Value]:
    """Return what an array computation computes at some cost."""
    return {
        out
        for node in statement.graph.nodes
        if not isinstance(node.op, Elementwise) and is_expensive(node)
        for out in node.outs
    }


def _keep(body: list[Statement], trips: int | None, taken: set[str]) -> None:
    found: list[Statement] = []
    for statement in body:
        if isinstance(statement, Apply) and trips is not None:
            values = _residuals(statement)
            size = sum(value.size * value.dtype.itemsize for value in values)
            if values and trips * size <= MOST_BYTES:
                found += _with_results(statement, values, taken)
                continue
        inner = trips
        if isinstance(statement, For) and trips is not None:
            count = number_of(statement.count)
            inner = None if count is None else trips * int(count)
        elif isinstance(statement, While):
            inner = None
        for block in statement.blocks():
            _keep(block, inner, taken)
        found.append(statement)
    body[:] = found


def _residuals(statement: Apply) -> list[Value]:
    """Return the expensive values that the pullback of an array computation uses, and that are no results yet."""
    body, expensive = statement.graph, expensive_values(statement)
    if not expensive:
        return []
    outputs = [x for x in body.outputs if is_inexact(x.dtype)]
    inputs = [x for x in body.inputs if is_inexact(x.dtype)]
    seeds = [placeholder(x) for x in outputs]
    parts = reverse_sweep(outputs, inputs, seeds, never_stop).results
    pulled = [x for x in parts if x is not None]
    leaves = extract(pulled, stop=lambda x: not x.is_made or x in expensive)[1]
    return [x for x in leaves if x in expensive and x not in body.outputs]


def _with_results(statement: Apply, values: Sequence[Value], taken: set[str]) -> list[Statement]:
    """Return an array computation that also stores some of its values, and the allocation of their arrays."""
    body = statement.graph
    found: list[Statement] = []
    spans = list(statement.outputs)
    for value in values:
        name = add_name("residual", taken)
        pointer = Pointer(name, Memory(name, value.dtype))
        found.append(Allocate(pointer, literal(value.size, INT64)))
        spans.append(Span(pointer, literal(0, INT64), value.aval))
    graph = make_body(list(body.inputs), [*body.outputs, *values], body.name)
    return [*found, Apply(graph, statement.inputs, tuple(spans))]
