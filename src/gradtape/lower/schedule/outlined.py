"""Outlined loops: kernels of their own, for any trip count.

The trip count and the lengths of the arrays are no part of such a kernel: it is found again, in memory and on disk, when a program differs
in these alone, and only what is around the loop is compiled anew.
"""

from __future__ import annotations

from typing import Final

from gradtape.ir.builder import at, emit_all
from gradtape.ir.graph import Graph, Node, Value, extract
from gradtape.ir.types import INT64, aval
from gradtape.kinds.index_map import repeated_number
from gradtape.loops.ir import Buffer
from gradtape.transforms.loops.ops import Scan

TRIP_COUNT: Final = Buffer("trip_count", INT64, 1, "input")
"""The last input of an outlined loop's kernel."""

FEWEST: Final = 2
"""Iterations from which a loop is outlined."""


def is_outlined(node: Node) -> bool:
    """Return whether a node is a loop whose kernel serves any trip count."""
    return isinstance(node.op, Scan) and bool(node.params["length"] >= FEWEST)


def outlined_operands(node: Node) -> list[Value]:
    """Return what an outlined loop is given: all but what is made of numbers in the program text alone."""
    first = node.params["consts"] + node.params["carries"]
    return [
        value for place, value in enumerate(node.inputs) if place >= first or repeated_number(value) is None
    ]


def outlined_graph(node: Node, results: list[int]) -> tuple[Graph, list[Value]]:
    """Return the graph of a loop alone, as if it made one iteration, and the values that are its inputs.

    What is made of numbers in the program text alone belongs to it.

    Parameters
    ----------
    node : Node
        The loop.
    results : list of int
        Which of its outputs are wanted.
    """
    first = node.params["consts"] + node.params["carries"]
    inputs: list[Value] = []
    outside: list[Value] = []
    operands: list[Value] = []
    for place, value in enumerate(node.inputs):
        if place < first and repeated_number(value) is not None:
            operands.append(value)
            continue
        shape = value.shape if place < first else (1, *value.shape[1:])
        inputs.append(Value(aval(shape, value.dtype)))
        outside.append(value)
        operands.append(inputs[-1])
    with at(None):
        outs = emit_all(node.op, operands, **{**node.params, "length": 1})
    outputs = [outs[place] for place in results]
    nodes, _ = extract(outputs, inputs)
    return Graph(inputs, nodes, outputs, "loop"), outside
