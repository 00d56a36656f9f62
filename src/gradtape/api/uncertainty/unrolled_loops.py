"""Loops in a function of one sample whose bodies decide by chance, unrolled: then each iteration has decisions of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gradtape.api.control.unrolling import unrolled
from gradtape.api.uncertainty.decisions import deciding_in_bodies
from gradtape.ir.builder import here, keep_names
from gradtape.ir.graph import Node, Value, merge_tags
from gradtape.ops.core.indexing import gather_row, parse_index
from gradtape.trace.jit.guards import trace_of
from gradtape.trace.lazy.force import force
from gradtape.trace.random.lanes import Lanes
from gradtape.transforms.loops.ops import Scan

MOST_ITERATIONS: Final = 100
"""Iterations that are unrolled in all: more take long to compile."""


def unroll_deciding(nodes: Sequence[Node], lanes: Lanes) -> dict[Value, Value]:
    """Record nodes once more without the loops whose bodies decide by chance, and return what values become; empty if there are none.

    Loops in these bodies remain, and elements at places that are known now: both are replaced in the next call.
    """
    left = MOST_ITERATIONS
    loops = set()
    for node in deciding_in_bodies(nodes, lanes):
        if isinstance(node.op, Scan) and node.params["length"] <= left:
            left -= node.params["length"]
            loops.add(node)
    becomes: dict[Value, Value] = {}
    for node in nodes:
        operands = tuple([becomes.get(value, value) for value in node.inputs])
        place = _known_place(node)
        if place is not None:
            outs: Sequence[Value] = [parse_index(operands[0].shape, place).read(operands[0])]
        elif operands == node.inputs and node not in loops:
            continue
        else:
            copy = Node(node.op, operands, node.params, node.site)
            outs = copy.make_outs(tuple([out.aval for out in node.outs]), merge_tags(operands))
            keep_names(node.outs, outs)
        if node in loops:
            here.site = node.site
            outs = unrolled(outs, node.params["length"])
        becomes.update(zip(node.outs, outs, strict=True))
    return becomes


def _known_place(node: Node) -> int | None:
    """Return where an element is read, if that depends on constants alone."""
    if node.op is not gather_row or len(node.inputs) != 2:
        return None
    source, index = node.inputs
    if index.ndim or index.tags or trace_of(index) is not None:
        return None
    place = int(force([index])[0])
    return place if 0 <= place < source.shape[0] else None
