"""Appending nodes to the graph."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from gradtape.ir.graph import Node, Value, merge_tags, single
from gradtape.ir.op import Op
from gradtape.ir.tags import here as here


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
    if len(types) == 1:
        return (single(op, operands, params, here.site, types, types[0]),)
    node = Node(op, operands, params, here.site)
    return tuple(node.make_outs(types, merge_tags(operands)))


def emit(op: Op, inputs: Sequence[Value], **params: Any) -> Value:
    """Append a node with one output and return it (see `emit_all`)."""
    return emit_all(op, inputs, **params)[0]


def keep_names(values: Iterable[Value], copies: Iterable[Value]) -> None:
    """Let copies have the names of what they are copies of."""
    for value, copy in zip(values, copies, strict=True):
        if value.name is not None:
            copy.name = value.name
