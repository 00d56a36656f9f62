"""Running a graph three ways: by the interpreter, as printed loops under Python, and compiled."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.special

import gradtape.ops  # noqa: F401 - the rows enter themselves
from gradtape.ir.graph import Graph, Value, extract, literal
from gradtape.ir.printer import identifier
from gradtape.ir.types import aval
from gradtape.kinds.elementwise import Elementwise
from gradtape.kinds.registry import ROWS
from gradtape.lower.numba.module import print_program
from gradtape.lower.pipeline import LoweredProgram, lower
from gradtape.lower.target.symbols import addresses_of
from gradtape.runtime.compile.engine import LoadedModule, call_flat, compile_object
from gradtape.runtime.interpret import interpret
from gradtape.transforms.vjp import vjp

Array = np.ndarray[Any, Any]


def array_input(*shape: int, dtype: Any = np.float64) -> Value:
    """Return a graph input."""
    return Value(aval(shape, np.dtype(dtype)))


def inputs_like(arrays: Sequence[Array]) -> list[Value]:
    return [array_input(*array.shape, dtype=array.dtype) for array in arrays]


def graph_of(
    inputs: Sequence[Value], outputs: Sequence[Value], guards: Sequence[tuple[Value, int]] = ()
) -> Graph:
    """Return the graph between inputs and outputs."""
    wanted = [*outputs, *[value for value, _ in guards]]
    nodes, _ = extract(wanted, inputs, stop=lambda value: value.node is None)
    return Graph(inputs, nodes, outputs, guards=guards)


def with_gradient(inputs: Sequence[Value], target: Value) -> Graph:
    """Return the graph of a value and of its gradient in all inputs."""
    gradients = vjp([target], inputs, [literal(1.0, target.dtype)], lambda value: False)
    return graph_of(inputs, [target, *[g for g in gradients if g is not None]])


class Compiled:
    """A graph as machine code."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.lowered: LoweredProgram = lower(graph)
        code = compile_object(self.lowered.ir_text, "test")
        imports = addresses_of(self.lowered.symbols)
        self._loaded = LoadedModule(code, imports=imports, drain=self.lowered.drain)
        self._constants = [np.ascontiguousarray(value.data) for value in graph.constants()]
        block = np.zeros(self.lowered.workspace_bytes + 64, np.uint8)
        self._block = block
        skip = -block.ctypes.data % 64
        self.workspace = block[skip : skip + self.lowered.workspace_bytes]

    def status(self, arrays: Sequence[Array]) -> tuple[int, list[Array]]:
        """Run it and return its status and the outputs."""
        outputs = [np.full(value.shape, 77, value.dtype) for value in self.graph.outputs]
        dense = [np.ascontiguousarray(array) for array in arrays]
        return call_flat(self._loaded, [*dense, *self._constants], outputs, self.workspace), outputs

    def __call__(self, arrays: Sequence[Array]) -> list[Array]:
        status, outputs = self.status(arrays)
        assert status == 0
        return outputs


def wrap(index: Any, extent: int) -> int:
    """Return an index from memory as kernels read it."""
    place = int(index) + extent if index < 0 else int(index)
    if not 0 <= place < extent:
        raise IndexError(index)
    return place


def gemm(b: Array, a: Array, c: Array, *numbers: Any) -> None:
    """BLAS's product of matrices stored by columns."""
    first, second, wide, high, deep, ld_first, ld_second, beta, ld_out = numbers

    def matrix(flat: Array, transposed: str, rows: int, columns: int, leading: int) -> Array:
        shape = (columns, rows) if transposed == "N" else (rows, columns)
        steps = (leading * flat.itemsize, flat.itemsize)
        view = np.lib.stride_tricks.as_strided(flat, shape, steps)
        return view.T if transposed == "N" else view

    out = matrix(c, "N", wide, high, ld_out)
    product = matrix(b, first, wide, deep, ld_first) @ matrix(a, second, deep, high, ld_second)
    out[...] = product + beta * out if beta else product


def argsort(keys: Array, out: Array, spare: Array, count: int) -> None:
    """Sort positions by their keys."""
    out[:count] = np.argsort(keys[:count], stable=True)


def searchsorted(a: Array, v: Array, out: Array, count: int, wanted: int, side: Any) -> None:
    """Find where elements belong among sorted ones."""
    out[:wanted] = np.searchsorted(a[:count], v[:wanted], side=side)


def flat_parts(array: Any) -> Array:
    """Return an array as a kernel sees it: flat, complex numbers as pairs."""
    flat = np.ascontiguousarray(array).reshape(-1)
    return flat.view(flat.real.dtype) if flat.dtype.kind == "c" else flat


def run_printed(graph: Graph, arrays: Sequence[Array]) -> list[Array]:
    """Run the printed form of a program under plain Python."""
    names: dict[str, Any] = {name: row.function for name, row in ROWS.items() if isinstance(row, Elementwise)}
    names.update(
        np=np, math=math, scipy=scipy, wrap=wrap, gemm=gemm, argsort=argsort, searchsorted=searchsorted
    )
    exec(print_program(graph), names)
    outputs = [np.full(value.size, 77, value.dtype) for value in graph.outputs]
    sources = [flat_parts(array) for array in arrays]
    constants = [flat_parts(value.data) for value in graph.constants()]
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        status = names[identifier(graph.name)](*sources, *constants, *map(flat_parts, outputs))
    assert status == 0
    return [output.reshape(value.shape) for output, value in zip(outputs, graph.outputs, strict=True)]


def assert_same(actual: Sequence[Array], expected: Sequence[Array], rtol: float, what: str) -> None:
    assert len(actual) == len(expected)
    for a, b in zip(actual, expected, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape, what
        loose = rtol if b.dtype.itemsize > 4 or b.dtype.kind != "f" else 2e-5
        with np.errstate(all="ignore"):
            np.testing.assert_allclose(a, b, rtol=loose, atol=loose, err_msg=what)


def check(graph: Graph, arrays: Sequence[Array], rtol: float = 1e-11) -> Compiled:
    """Assert that the interpreter, the printed loops and the kernel agree."""
    expected = interpret(graph, arrays)
    text = print_program(graph)
    assert_same(run_printed(graph, arrays), expected, rtol, f"printed loops\n{text}")
    kernel = Compiled(graph)
    assert_same(kernel(arrays), expected, rtol, f"kernel\n{text}")
    return kernel
