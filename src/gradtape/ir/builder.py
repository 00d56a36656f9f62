"""Appending nodes to the graph."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from .graph import Mark, Node, Value
from .op import Op


class _Here(threading.local):
    """The place in the user's code that nodes made now belong to."""

    site: Any = None


here = _Here()


@contextmanager
def at(site: Any) -> Iterator[None]:
    """Let the nodes made inside belong to `site`."""
    before, here.site = here.site, site
    try:
        yield
    finally:
        here.site = before


def emit_all(op: Op, inputs: Sequence[Value], **params: Any) -> tuple[Value, ...]:
    """Append a node and return its outputs.

    Raises
    ------
    ShapeError, DtypeError
        Where the op cannot take such inputs.
    """
    operands = tuple(inputs)
    types = op.infer([operand.aval for operand in operands], params)
    node = Node(op, operands, params, here.site)
    marks = merge_marks(operands)
    if len(types) == 1:
        out = Value(types[0], node, 0, None, marks)
        node.set_out(out)
        return (out,)
    node.outs = outs = tuple([Value(type_, node, index, None, marks) for index, type_ in enumerate(types)])
    return outs


def emit(op: Op, inputs: Sequence[Value], **params: Any) -> Value:
    """Append a node with one output and return it (see `emit_all`)."""
    return emit_all(op, inputs, **params)[0]


def merge_marks(values: Sequence[Value]) -> tuple[Mark, ...]:
    """Return the marks that a node with these inputs hands on: those that are recording."""
    marks: tuple[Mark, ...] = ()
    for value in values:
        for mark in value.marks:
            if mark.recording and mark not in marks:
                marks = (*marks, mark)
    return marks
