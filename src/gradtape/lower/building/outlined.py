"""Loops as kernels of their own, for any number of turns.

The number of turns and the lengths of the arrays are no part of such a kernel: it is found again, in memory and on disk, when a
program differs in these alone, and only what is around the loop is compiled anew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from gradtape.ir.builder import at, emit_all
from gradtape.ir.graph import Graph, Literal, Node, Value, extract
from gradtape.ir.types import INT64, aval
from gradtape.loops.ir import Buffer, Dtype, Load, Register, RoutineCall, Store
from gradtape.lower.building.calls import COMPARISONS
from gradtape.lower.schedule.nests import Root
from gradtape.transforms.loops.ops import Scan

if TYPE_CHECKING:
    from gradtape.lower.building.builder import Builder

LoopKernels: TypeAlias = Callable[[Graph], tuple[str, int]]
"""Returns the symbol of the kernel of a loop's graph, and the bytes of workspace that it needs."""

COUNT = Buffer("turns", INT64, 1, "input")
"""The last input of a loop's kernel: how many turns it makes."""

FEWEST = 2
"""SequentialFor from which a loop is a kernel of its own."""


def stands_apart(node: Node) -> bool:
    """Return whether a node is a loop whose kernel serves any number of turns."""
    return isinstance(node.op, Scan) and bool(node.params["length"] >= FEWEST)


def outside_of(node: Node) -> list[Value]:
    """Return what a loop apart is given: all but what is made of numbers in the program text alone."""
    first = node.params["consts"] + node.params["carries"]
    return [value for place, value in enumerate(node.inputs) if place >= first or not _is_text(value)]


def loop_graph(node: Node, results: list[int]) -> tuple[Graph, list[Value]]:
    """Return the graph of a loop alone, as if it made one turn, and the values that are its inputs.

    What is made of numbers in the program text alone belongs to it.
    """
    first = node.params["consts"] + node.params["carries"]
    inputs: list[Value] = []
    outside: list[Value] = []
    operands: list[Value] = []
    for place, value in enumerate(node.inputs):
        if place < first and _is_text(value):
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


def _is_text(value: Value) -> bool:
    return isinstance(value, Literal) or (
        value.node is not None
        and value.node.op.name == "expand"
        and all(isinstance(operand, Literal) for operand in value.node.inputs)
    )


def emit_apart(builder: Builder, root: Root, kernels: LoopKernels) -> None:
    """Emit the call of a loop's kernel."""
    node = root.node
    assert node is not None
    used = [k for k, result in enumerate(root.results) if result.shape == () or result.storage is not None]
    graph, values = loop_graph(node, used)
    symbol, workspace = kernels(graph)
    operands: list[tuple[Buffer, int]] = []
    for value in values:
        if value.shape == ():
            number = _scratch(builder, value.dtype)
            builder.emit(Store(number, 0, builder.element(value, ())))
            operands.append((number, 0))
        elif value.size == 0:  # nothing makes it
            operands.append((_scratch(builder, value.dtype), 0))
        else:
            operands.append(builder.place_of(value))
    numbers: list[tuple[Root, Buffer]] = []
    for k in used:
        result = root.results[k]
        if result.shape == ():
            numbers.append((result, _scratch(builder, result.value.dtype)))
            operands.append((numbers[-1][1], 0))
        else:
            assert result.storage is not None
            operands.append((result.storage, 0))
    room = Buffer(builder.fresh("m"), np.dtype(np.uint8), max(workspace, 1), "scratch")
    builder.scratch.append(room)
    operands.append((room, 0))
    builder.notes.append(
        f"loop over {node.params['length']} turns: a kernel of its own, for any number of turns"
    )
    told = (symbol, len(values), node.params["length"])
    builder.emit(RoutineCall("loop", tuple(operands), told, "gradtape", COMPARISONS * operands[0][0].size))
    for result, buffer in numbers:
        number_ = Register(builder.fresh("t"), buffer.dtype)
        builder.emit(Load(number_, buffer, 0))
        builder.made_number(result, number_)


def _scratch(builder: Builder, dtype: Dtype) -> Buffer:
    buffer = Buffer(builder.fresh("m"), dtype, 1, "scratch")
    builder.scratch.append(buffer)
    return buffer
