"""Compiling kernels by Numba."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from gradtape.errors import LoweringError
from gradtape.ir.expressions import dtype_name
from gradtape.ir.graph import Graph, Value
from gradtape.ir.types import part_dtype
from gradtape.loops.ir import Guard
from gradtape.lower.numba.module import NumbaModule
from gradtape.lower.pipeline import schedule_of
from gradtape.passes.rewrite import closed
from gradtape.statements import walk

FILENAME: Final = "<numba kernel>"

SIGNATURE: Final = "int32(CPointer(voidptr), CPointer(voidptr), voidptr)"


class NumbaKernel:
    """A kernel that Numba has compiled.

    Attributes
    ----------
    address : int
        Of ``int32_t (void **inputs, void **outputs, void *workspace)``, valid as long as this object lives. The status is -1 where the
        program raised an error.
    source : str
        The module.
    """

    __slots__ = ("_function", "address", "source")

    def __init__(self, function: Any, source: str) -> None:
        self._function = function
        self.address: int = function.address
        self.source = source


def compile_by_numba(graph: Graph) -> NumbaKernel:
    """Compile the loops of a graph, as they are printed, by Numba.

    Raises
    ------
    LoweringError
        For routines of LAPACK, functions of SciPy, and programs that depend on values of the trace.
    """
    graph = closed(graph)
    if any(isinstance(statement, Guard) for statement in walk(schedule_of(graph).body)):
        raise LoweringError(
            f"{graph.name} cannot be compiled by Numba",
            why="its result decides which trace runs next",
        )
    module = NumbaModule()
    module.add_kernel(graph, "kernel_loops")
    module.add("kernel", _entry(graph), compiled=False)
    source = module.text()
    names: dict[str, Any] = {}
    exec(compile(source, FILENAME, "exec"), names)
    return NumbaKernel(names["kernel"], source)


def _entry(graph: Graph) -> str:
    """Return the function that has the signature of kernels."""
    inputs = _arrays("inputs", [*graph.inputs, *graph.constants()])
    outputs = _arrays("outputs", graph.outputs)
    return "\n".join(
        [
            f'@numba.cfunc("{SIGNATURE}")',
            "def kernel(inputs, outputs, workspace):",
            "    try:",
            f"        return kernel_loops({', '.join([*inputs, *outputs])})",
            "    except Exception:",
            "        return -1",
        ]
    )


def _arrays(table: str, values: Sequence[Value]) -> list[str]:
    """Return the arrays whose addresses are in a table."""
    arrays = []
    for number, value in enumerate(values):
        size, dtype = value.size, value.dtype
        if dtype.kind == "c":
            size, dtype = 2 * size, part_dtype(dtype)
        arrays.append(f"numba.carray({table}[{number}], {size}, {dtype_name(dtype)})")
    return arrays
