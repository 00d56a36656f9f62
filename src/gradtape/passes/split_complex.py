"""Complex numbers as pairs of real ones: kernels compute with these."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from ..errors import LoweringError
from ..ir.body import Body
from ..ir.builder import at, emit, emit_all
from ..ir.graph import Graph, Literal, Node, Value, extract, literal
from ..ir.types import aval
from ..kinds.accumulate import Accumulate
from ..kinds.contract import Contract
from ..kinds.control import Barrier, Structured, barrier, bodies_of
from ..kinds.elementwise import Elementwise
from ..kinds.index_map import IndexMap
from ..kinds.join import Join
from ..kinds.operands import broadcast_to
from ..ops.join import join
from ..ops.shape import reshape, slice_
from .complex_formulas import FORMULAS, Parts, part_dtype
from .complex_inverses import INVERSES
from .complex_products import contracted
from .control import open_custom_calls
from .inline_calls import inline_calls

BY_ROW: Final = {**FORMULAS, **INVERSES}
"""What complex rows are in parts."""

LINEAR: Final = ("reduce_sum", "cumsum")
"""Reductions and runs that do to each part what they do to the whole."""


def split_complex(graph: Graph) -> Graph:
    """Return the graph with real numbers only.

    An input or output of complex numbers becomes one of floats with a last axis of real and imaginary part, which is how it lies in memory.
    Constants become inputs after the others, in the order in which their arrays are passed: formulas may use them in another.

    Raises
    ------
    LoweringError
        For what has no formula in parts.
    """
    whole = open_custom_calls(inline_calls(graph))
    if not _has_complex(whole):
        return graph
    split = _Split()
    inputs = [split.source(value) for value in (*graph.inputs, *graph.constants())]
    for node in whole.nodes:
        with at(node.site):
            split.node(node)
    outputs = [split.output(value) for value in whole.outputs]
    guards = [(split.value(value), expected) for value, expected in whole.guards]
    nodes, _ = extract(
        [*outputs, *[value for value, _ in guards]], inputs, stop=lambda value: value.node is None
    )
    return Graph(inputs, nodes, outputs, graph.name, guards)


def _has_complex(graph: Graph) -> bool:
    """Return whether complex numbers occur in a graph, or in a graph that one of its nodes holds."""
    made = [value for node in graph.nodes for value in node.outs]
    if any(map(is_complex, (*graph.inputs, *graph.constants(), *made, *graph.outputs))):
        return True
    return any(
        _has_complex(body)
        for node in graph.nodes
        if isinstance(node.op, Structured)
        for body in bodies_of(node)
    )


def is_complex(value: Value) -> bool:
    """Return whether a value holds complex numbers."""
    return value.dtype.kind == "c"


class _Split:
    """What the values of the old graph are in the new one."""

    __slots__ = ("_becomes", "_parts")

    def __init__(self) -> None:
        self._becomes: dict[Value, Value] = {}
        self._parts: dict[Value, Parts] = {}

    def source(self, value: Value) -> Value:
        """Return the new input for an input or a constant."""
        if not is_complex(value):
            return value
        data = None
        if value.data is not None:
            data = np.ascontiguousarray(value.data).reshape((*value.shape, 1)).view(part_dtype(value.dtype))
        flat = Value(aval((*value.shape, 2), part_dtype(value.dtype)), data=data)
        self._parts[value] = (_part(flat, 0), _part(flat, 1))
        return flat

    def value(self, value: Value) -> Value:
        return self._becomes.get(value, value)

    def parts(self, value: Value) -> Parts:
        if isinstance(value, Literal):
            assert value.data is not None
            part = part_dtype(value.dtype)
            return literal(value.data.real, part), literal(value.data.imag, part)
        return self._parts[value]

    def output(self, value: Value) -> Value:
        if not is_complex(value):
            return self.value(value)
        columns = [reshape(broadcast_to(part, value.shape), (*value.shape, 1)) for part in self.parts(value)]
        return join(columns, value.ndim)

    def node(self, node: Node) -> None:
        """Enter what the outputs of a node become."""
        if isinstance(node.op, Structured):
            self._structured(node)
            return
        if not any(map(is_complex, (*node.inputs, *node.outs))):
            inputs = tuple([self.value(value) for value in node.inputs])
            if inputs != node.inputs:
                self._becomes.update(zip(node.outs, node.copy(inputs).outs, strict=True))
            return
        if isinstance(node.op, Barrier):
            self._barrier(node)
            return
        out = node.out
        result = self._result(node)
        if isinstance(result, Value):
            self._becomes[out] = _shaped(result, out)
        else:
            self._parts[out] = (_shaped(result[0], out), _shaped(result[1], out))

    def _structured(self, node: Node) -> None:
        """Split the bodies: their inputs and outputs are in parts as those of a graph are."""
        inputs = [self.output(value) for value in node.inputs]
        params = {name: _split_bodies(param) for name, param in node.params.items()}
        for out, made in zip(node.outs, emit_all(node.op, inputs, **params), strict=True):
            if is_complex(out):
                self._parts[out] = (_part(made, 0), _part(made, 1))
            else:
                self._becomes[out] = made

    def _barrier(self, node: Node) -> None:
        kept: int = node.params["kept"]
        groups = [self.parts(value) if is_complex(value) else (self.value(value),) for value in node.inputs]
        values = [value for group in groups[:kept] for value in group]
        after = [value for group in groups[kept:] for value in group]
        held = iter(barrier(values, after))
        for out in node.outs:
            if is_complex(out):
                self._parts[out] = (next(held), next(held))
            else:
                self._becomes[out] = next(held)

    def _result(self, node: Node) -> Value | Parts:
        op = node.op
        if isinstance(op, Elementwise) and op.name in BY_ROW:
            operands = [
                self.parts(value) if is_complex(value) else self.value(value) for value in node.inputs
            ]
            return BY_ROW[op.name](*operands, **node.params)
        if isinstance(op, Contract):
            x, y = map(self.parts, node.inputs)
            return contracted(node, x, y)
        if isinstance(op, IndexMap | Join | Accumulate) or op.name in LINEAR:
            return self._one_part(node, 0), self._one_part(node, 1)
        raise LoweringError(
            f"{op.name} of complex numbers cannot be compiled",
            where=node.site,
            why="it has no formula in real and imaginary parts",
            remedy="nothing need be done: the interpreter runs it",
        )

    def _one_part(self, node: Node, which: int) -> Value:
        inputs = [
            self.parts(value)[which] if is_complex(value) else self.value(value) for value in node.inputs
        ]
        return emit(node.op, inputs, **node.params)


def _split_bodies(param: Any) -> Any:
    """Return a parameter of a loop or branch with its graphs in real numbers."""
    if isinstance(param, Body):
        split = split_complex(param)
        return param if split is param else Body(split.inputs, split.nodes, split.outputs, split.name)
    return tuple(map(_split_bodies, param)) if isinstance(param, tuple) else param


def _part(flat: Value, which: int) -> Value:
    """Return the real or the imaginary parts of an array with both on its last axis."""
    shape: Sequence[int] = flat.shape[:-1]
    starts = (*[0 for _ in shape], which)
    return reshape(slice_(flat, starts, (*shape, 1), (1,) * flat.ndim), tuple(shape))


def _shaped(value: Value, like: Value) -> Value:
    return broadcast_to(value, like.shape) if value.shape != like.shape else value
