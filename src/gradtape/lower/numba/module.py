"""Graphs as Python modules of functions that Numba compiles: the loops of the kernel, and the procedures and routines that they call."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np

from gradtape.errors import LoweringError
from gradtape.ir.expressions import dtype_name
from gradtape.ir.graph import Graph, Value
from gradtape.ir.op import NDArray
from gradtape.ir.printer import identifier
from gradtape.ir.types import Aval, part_dtype
from gradtape.loops.ir import RoutineCall, Wrap
from gradtape.loops.printer import print_loops, routine_name
from gradtape.lower.numba.routines import ROUTINES, WRAP
from gradtape.lower.pipeline import schedule_of
from gradtape.procedures.printer import Source, source_of
from gradtape.records import value_record
from gradtape.statements import walk

DECORATOR: Final = '@numba.njit(error_model="numpy")'

HEAD: Final = "import math\n\nimport numba\nimport numpy as np\n"

MOST_CONSTANTS: Final = 10_000
"""Elements of captured arrays that a module spells out."""


def module_text(parts: Iterable[str]) -> str:
    """Return the source of a module with these functions and constants."""
    return "\n\n\n".join([HEAD.rstrip(), *parts]) + "\n"


class NumbaModule:
    """A Python module under construction: functions by name, each after those that it calls.

    Parameters
    ----------
    runs : bool
        Whether Numba compiles it; otherwise it is for readers, without routines and decorators.
    """

    def __init__(self, runs: bool = True) -> None:
        self._parts: dict[str, str] = {}
        self._runs = runs

    def text(self) -> str:
        """Return the source of the module."""
        return module_text(self._parts.values())

    @property
    def parts(self) -> dict[str, str]:
        """The texts of the functions and constants, by name."""
        return self._parts

    def add(self, name: str, text: str, compiled: bool = True) -> None:
        """Add a function or a constant, if there is none of this name."""
        if not self._runs:
            self._parts.setdefault(name, text)
            return
        if "scipy." in text:
            raise LoweringError(
                f"{name} cannot be compiled by Numba",
                why=f"it calls {text[text.index('scipy.') :].partition('(')[0]}, and Numba does not support SciPy functions",
                remedy='keep gt.config.compiler = "llvm"',
            )
        self._parts.setdefault(name, f"{DECORATOR}\n{text}" if compiled else text)

    def add_kernel(self, graph: Graph, name: str) -> None:
        """Add the kernel of a graph: a function of flat arrays, inputs, constants and outputs, that returns a status.

        Complex arrays are passed as their parts, one after the other.
        """
        program = schedule_of(graph)
        for statement in walk(program.body):
            if isinstance(statement, Wrap) and self._runs:
                self.add("wrap", WRAP)
            elif isinstance(statement, RoutineCall):
                self._add_routine(statement)
        self.add(name, re.sub(r"^def \w+", f"def {name}", print_loops(program)))

    def add_entry(self, entry: EntryPoint) -> None:
        """Add a function that users call, after what it needs."""
        captured = [value.data for value in entry.graph.constants() if value.data is not None]
        constants = self.add_constants([*entry.hidden, *captured])
        self.add_kernel(entry.graph, f"{entry.name}_loops")
        self.add(entry.name, entry.source(f"{entry.name}_loops", constants))

    def _add_routine(self, call: RoutineCall) -> None:
        name = routine_name(call)
        if call.library == "procedure":
            self._add_procedure(name, call.numbers[0])
        elif not self._runs:
            return
        elif name in ROUTINES:
            self.add(name, ROUTINES[name])
        else:
            raise LoweringError(
                f"{name} cannot be compiled by Numba",
                why="it is a routine of LAPACK, which Numba reaches through SciPy alone",
                remedy='keep gt.config.compiler = "llvm"',
            )

    def _add_procedure(self, name: str, reference: Any) -> None:
        """Add a procedure, and the function that passes it the arrays of a kernel and stores its results."""
        if name in self._parts:
            return
        source = source_of(reference.procedure, f"{name}_body", self._parts)
        for function, graph in source.graphs.items():
            self.add_kernel(graph, f"{function}_loops")
            self.add(function, _adapter(function, f"{function}_loops", graph))
        self.add(source.name, source.text)
        self.add(name, _caller(name, source, reference.types, reference.result_types))

    def add_constants(self, arrays: Sequence[NDArray]) -> list[str]:
        """Add captured arrays, flat; return their names."""
        names = []
        for array in arrays:
            if array.size > MOST_CONSTANTS:
                raise LoweringError(
                    f"a captured array of {array.size} elements would have to be spelled out",
                    remedy="make it an argument",
                )
            name = f"CONSTANT_{len(self._parts)}"
            flat = as_parts(np.ascontiguousarray(array).reshape(-1))
            numbers = ", ".join([_spelled(number) for number in flat.tolist()])
            self.add(name, f"{name} = np.array([{numbers}], {dtype_name(flat.dtype)})", compiled=False)
            names.append(name)
        return names


def as_parts(flat: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return complex numbers as their parts, others as they are."""
    return flat.view(part_dtype(flat.dtype)) if flat.dtype.kind == "c" else flat


def _spelled(number: Any) -> str:
    if isinstance(number, float) and not np.isfinite(number):
        return "np.nan" if np.isnan(number) else "np.inf" if number > 0 else "-np.inf"
    return repr(number)


def _adapter(name: str, kernel: str, graph: Graph) -> str:
    """Return the function through which a procedure calls an array computation."""
    values = [*graph.inputs, *graph.outputs]
    names = [f"x{k}" for k in range(len(values))]
    parts = [
        f"{operand}.view({dtype_name(part_dtype(value.dtype))})" if value.dtype.kind == "c" else operand
        for operand, value in zip(names, values, strict=True)
    ]
    return f"def {name}({', '.join(names)}):\n    {kernel}({', '.join(parts)})"


def _caller(name: str, source: Source, types: Sequence[Aval], results: Sequence[Aval]) -> str:
    """Return the function through which a kernel calls a procedure: with arrays for arguments and results."""
    inputs = [f"x{k}" for k in range(len(types))]
    outputs = [f"y{k}" for k in range(len(results))]
    arguments = [_operand(x, type_) for x, type_ in zip(inputs, types, strict=True)]
    returned = [f"r{k}" for k in range(len(results))]
    call = f"{source.name}({', '.join(arguments)})"
    lines = [
        f"def {name}({', '.join([*inputs, *outputs])}):",
        f"    {', '.join(returned)} = {call}" if returned else call,
    ]
    lines += [_landing(y, r, type_) for y, r, type_ in zip(outputs, returned, results, strict=True)]
    return "\n".join(lines)


def _whole(name: str, type_: Aval) -> str:
    if type_.dtype.kind == "c":
        return f"{name}[: {2 * type_.size}].view({dtype_name(type_.dtype)})"
    return f"{name}[: {type_.size}]"


def _operand(name: str, type_: Aval) -> str:
    array_text = _whole(name, type_)
    return array_text if type_.ndim else f"{array_text}[0]"


def _landing(name: str, result: str, type_: Aval) -> str:
    return (
        f"    {_whole(name, type_)}[:] = {result}"
        if type_.ndim
        else f"    {_whole(name, type_)}[0] = {result}"
    )


@value_record
class EntryPoint:
    """A function of a module that users call.

    Attributes
    ----------
    name : str
    graph : Graph
    results : tuple of int
        Which outputs of the graph it returns.
    hidden : tuple of ndarray
        The last inputs of the graph, which are not parameters: the arrays that the function captures.
    """

    name: str
    graph: Graph
    results: tuple[int, ...]
    hidden: tuple[NDArray, ...] = ()

    @property
    def parameters(self) -> Sequence[Value]:
        """The inputs of the graph that are parameters."""
        return self.graph.inputs[: len(self.graph.inputs) - len(self.hidden)]

    def source(self, kernel: str, constants: Sequence[str]) -> str:
        """Return the function: it takes arrays and numbers, and returns results in a tuple, or the only one."""
        graph = self.graph
        parameters = list(_names(self.parameters))
        inputs, lines = [], []
        for parameter, value in zip(parameters, self.parameters, strict=True):
            dtype = dtype_name(value.dtype)
            flat = f"np.ascontiguousarray({parameter}).reshape(-1)"
            flat = flat if value.ndim else f"np.full(1, {parameter}, {dtype})"
            inputs.append(f"{parameter}_flat")
            lines.append(f"    {parameter}_flat = {_parts_of(flat, value.dtype)}")
        targets = []
        for k, value in enumerate(graph.outputs):
            lines.append(f"    out{k} = np.empty({value.size}, {dtype_name(value.dtype)})")
            targets.append(_parts_of(f"out{k}", value.dtype))
        lines.append(f"    status = {kernel}({', '.join([*inputs, *constants, *targets])})")
        lines.append("    if status != 0:")
        lines.append('        raise ValueError("these numbers take another branch of the function")')
        results = []
        for k in self.results:
            shape = graph.outputs[k].shape
            results.append(f"out{k}.reshape({shape!r})" if shape else f"out{k}[0]")
        lines.append(f"    return {', '.join(results)}")
        return "\n".join([f"def {self.name}({', '.join(parameters)}):", *lines])


def _parts_of(text: str, dtype: np.dtype[Any]) -> str:
    return f"{text}.view({dtype_name(part_dtype(dtype))})" if dtype.kind == "c" else text


def _names(inputs: Sequence[Value]) -> Iterator[str]:
    """Yield the names of parameters: those that the user gave, where they are different names of Python."""
    used: set[str] = set()
    for count, value in enumerate(inputs):
        name = value.name or ""
        if not name.isidentifier() or name in used or name.startswith(("out", "status", "np")):
            name = f"x{count}"
        used.add(name)
        yield name


def print_module(entries: Sequence[EntryPoint]) -> str:
    """Return a module with functions that users call."""
    module = NumbaModule()
    for entry in entries:
        module.add_entry(entry)
    return module.text()


def print_program(graph: Graph) -> str:
    """Return the loops of a graph, with the procedures that they call before them; see `gradtape.loops.printer.print_loops`."""
    module = NumbaModule(runs=False)
    module.add_kernel(graph, identifier(graph.name))
    return "\n\n\n".join(module.parts.values())
