"""Running a graph with NumPy, node by node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gradtape.ir.graph import Graph, Value
from gradtape.ir.op import NDArray


def compute_values(graph: Graph, arrays: Sequence[NDArray]) -> dict[Value, NDArray]:
    """Return what each value of the graph comes to."""
    computed: dict[Value, NDArray] = dict(zip(graph.inputs, arrays, strict=True))
    with np.errstate(all="ignore"):
        for node in graph.nodes:
            operands: list[Any] = [computed.get(v, v.data) for v in node.inputs]
            for out, array in zip(node.outs, node.op.evaluate(operands, node.params), strict=True):
                computed[out] = array if array.dtype == out.dtype else array.astype(out.dtype)
    return computed


def compute_outputs(graph: Graph, arrays: Sequence[NDArray]) -> list[NDArray]:
    """Return the outputs of a graph; they may share memory with its inputs."""
    computed = compute_values(graph, arrays)
    return [np.asarray(computed.get(value, value.data)) for value in graph.outputs]
