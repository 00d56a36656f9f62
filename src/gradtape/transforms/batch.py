"""Batching: what is recorded for one element, done for all elements of a mapped axis at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ..ir.builder import at
from ..ir.graph import Node, Value, extract
from ..kinds.batching import batch_node, in_front
from . import one_hot
from .call import Call, inlined
from .one_hot import OneHot


def batch(
    outputs: Sequence[Value],
    mapped: Mapping[Value, Value | OneHot],
    size: int,
    stop: Callable[[Value], bool],
) -> list[Value | None]:
    """Append the nodes that compute `outputs` for every element of a mapped axis.

    Parameters
    ----------
    outputs : sequence of Value
        What was recorded for one element.
    mapped : mapping of Value to Value or OneHot
        For each value that stands for one element, all elements: of its shape with the mapped axis in front.
    size : int
        The extent of the mapped axis.
    stop : callable
        Predicate on values: those that do not depend on the mapped axis for certain.

    Returns
    -------
    list of Value or None
        For each output, all of its elements, the mapped axis in front; None where it does not depend on the mapped axis.

    Notes
    -----
    Nodes that do not depend on the mapped axis are used as they are, so what they compute is computed once. A. Agarwal and I. Ganichev,
    "Auto-Vectorizing TensorFlow Graphs: Jacobians, Auto-Batching and Beyond", 2019.
    """
    found: dict[Value, Value | OneHot] = dict(mapped)
    nodes, _ = extract(outputs, mapped, stop=lambda value: stop(value) or value.node is None)
    for node in nodes:
        flags = [operand in found for operand in node.inputs]
        if any(flags):
            operands = [found.get(operand, operand) for operand in node.inputs]
            with at(node.site):
                found.update(zip(node.outs, _outputs(node, operands, flags, size), strict=True))
    return [_array(found[output]) if output in found else None for output in outputs]


def _outputs(
    node: Node, operands: Sequence[Value | OneHot], flags: Sequence[bool], size: int
) -> tuple[Value | OneHot, ...]:
    if any(isinstance(operand, OneHot) for operand in operands):
        out = one_hot.apply(node, operands, flags)
        if out is not None:
            return (out,)
    return batch_node(node.op, node, [_array(operand) for operand in operands], flags, size)


def _array(operand: Value | OneHot) -> Value:
    return operand.dense() if isinstance(operand, OneHot) else operand


@batch_node.register
def _call(
    op: Call, node: Node, operands: Sequence[Value], mapped: Sequence[bool], size: int
) -> tuple[Value, ...]:
    pairs = list(zip(node.inputs, operands, mapped, strict=True))
    shared = {single for single, _, flag in pairs if not flag}
    outs = inlined(op.graph, node.inputs)
    found = batch(outs, {single: x for single, x, flag in pairs if flag}, size, shared.__contains__)
    return tuple([in_front(out, size) if x is None else x for out, x in zip(outs, found, strict=True)])
