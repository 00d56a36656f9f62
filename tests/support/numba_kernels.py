"""Running graphs by kernels that Numba has compiled."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from gradtape.ir.graph import Graph
from gradtape.lower.numba.compile import compile_by_numba
from gradtape.runtime.compile.loader import call_flat

_KERNEL = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_void_p)


class NumbaFailed(ArithmeticError):
    """The kernel returned a status other than zero."""


class _Code:
    def __init__(self, address: int) -> None:
        self._call = _KERNEL(address)


def run_by_numba(graph: Graph, arrays: Sequence[Any]) -> list[np.ndarray[Any, Any]]:
    """Return the outputs of a graph, by Numba."""
    kernel = compile_by_numba(graph)
    inputs = [
        np.ascontiguousarray(array, value.dtype) for array, value in zip(arrays, graph.inputs, strict=True)
    ]
    constants = [np.ascontiguousarray(value.data) for value in graph.constants()]
    outputs = [np.full(value.shape, 77, value.dtype) for value in graph.outputs]
    if call_flat(_Code(kernel.address), [*inputs, *constants], outputs):
        raise NumbaFailed(kernel.source)
    return outputs
