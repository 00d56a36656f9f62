"""`vjp` and `linearize` as two programs each: one computes values and residuals, and the other one the linear map from the residuals.

The first is the program that functions of one code share (`sharing`): in its trace the linear map is applied to seeds without numbers, and
what it needs of the forward sweep becomes results. The other one takes these residuals, and the seeds. Both are compiled once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from gradtape.api.operands import fitted
from gradtape.api.transforms.jit import Jitted, jit_of
from gradtape.api.transforms.recording import Recording
from gradtape.api.transforms.sharing import MOST_BYTES, NOT_SHARED, program_of_calls
from gradtape.config import within_memory
from gradtape.errors import ArgumentError
from gradtape.ir.builder import emit, here
from gradtape.ir.graph import Graph, Value, extract, literal
from gradtape.ir.types import Aval, aval
from gradtape.ops.core.elementwise.cast import identity
from gradtape.trace.array.array import Array
from gradtape.trace.array.handle import Handle
from gradtape.trace.jit.guards import InBody
from gradtape.trace.jit.signature import EVERYTHING_TRACED
from gradtape.trace.lazy.force import force
from gradtape.transforms.call import recorded
from gradtape.transforms.loops.residuals import expensive_values
from gradtape.trees import TreeSpec, flatten_up_to, unflatten


class MapProgram(NamedTuple):
    """The program of a linear map.

    Attributes
    ----------
    apply, apply_recorded : Jitted
        Takes the residuals and the seeds; the second is for seeds in which somebody differentiates.
    seeds, results : TreeSpec
        The structures of what the map takes and returns.
    avals : list of Aval
        The types of the seeds.
    """

    apply: Jitted[..., Any]
    apply_recorded: Jitted[..., Any]
    seeds: TreeSpec
    results: TreeSpec
    avals: list[Aval]

    def specimen(self) -> Any:
        """Return seeds with values in place of arrays."""
        return unflatten(self.seeds, [Value(each) for each in self.avals])


class MapPrograms:
    """The programs of linear maps, by the numbers that the traces which belong to them return."""

    __slots__ = ("made",)

    def __init__(self) -> None:
        self.made: list[MapProgram] = []

    def add(self, program: MapProgram) -> int:
        """Add a program, and return its number."""
        self.made.append(program)
        return len(self.made) - 1


class Applied(NamedTuple):
    """The results of the first program: those of the function, the residuals, and what it gave besides."""

    result: Any
    residuals: Sequence[Any]
    aux: Any
    program: MapProgram

    def __call__(self, seeds: Any, description: str, structure: str, of: str, its: str) -> Any:
        """Return what the linear map makes of seeds."""
        program = self.program
        parts = flatten_up_to(program.seeds, seeds, description, structure, here.site)
        arrays = [_fitted(*pair, of, its) for pair in zip(parts, program.avals, strict=True)]
        if any(isinstance(part, Handle) for part in parts):
            recorded_parts = [Array(part) if isinstance(part, Value) else part for part in arrays]
            return unflatten(program.results, program.apply_recorded(*self.residuals, *recorded_parts))
        numbers = [force([part])[0] if isinstance(part, Value) else part for part in arrays]
        return unflatten(program.results, program.apply(*self.residuals, *numbers))


def _fitted(part: Any, expected: Aval, of: str, its: str) -> Any:
    """Return a seed as an array of the type that is expected, or as a value of it."""
    kind = type(part)
    if kind is np.ndarray and part.dtype == expected.dtype and part.shape == expected.shape:
        return part
    if (kind is float or kind is np.float64) and expected.dtype == np.float64 and not expected.shape:
        return np.array(part)
    return fitted(part, Value(expected), of, its)


def applied(
    caller: str,
    function: Callable[..., Any],
    primals: tuple[Any, ...],
    has_aux: bool,
    converted: Callable[[Value], Value],
    limit: str | None = None,
) -> Applied | None:
    """Return what programs compute of a function that was called before; None where it is to be recorded.

    Parameters
    ----------
    caller : {"vjp", "linearize"}
        The transform.
    function : callable
        The user's.
    primals : tuple
        Its arguments.
    has_aux : bool
        Whether it returns a pair.
    converted : callable
        Converts cotangents from the convention of the caller, and to it.
    limit : str, optional
        What the records of reversed loops may take.
    """
    programs = MapPrograms()

    def run(shared: Callable[..., Any], *arguments: Any) -> Any:
        recording = Recording(caller, arguments)
        with within_memory(limit):
            aux = recording.run(shared, has_aux)
            if recording.has_units:  # what a map returns has units that depend on what it takes
                raise ArgumentError(f"{caller}: the program has quantities, and is not kept")
            program, residuals = _linear_map(recording, caller == "vjp", converted)
        number = traced_number(programs.add(program), recording.sources)
        return recording.result(), residuals, number, aux

    options = caller, bool(has_aux), converted, limit
    program = program_of_calls(options, function, run, Jitted, programs)
    if program is None or not primals:
        return None
    compiled, programs = program
    results = compiled(function, *primals)
    if results is NOT_SHARED:
        return None
    result, residuals, number, aux = results
    return Applied(result, residuals, aux, programs.made[int(number)])


def traced_number(number: int, sources: Sequence[Value]) -> Array:
    """Return a number as a result that depends on the arguments: machine code returns arrays alone."""
    value = emit(identity, [literal(number, np.dtype(np.int64))])
    value.tags = sources[0].tags
    return Array(value)


def _linear_map(
    recording: Recording, is_reverse: bool, converted: Callable[[Value], Value]
) -> tuple[MapProgram, list[Array]]:
    """Return the program of the linear map that a recording ends with, and its residuals."""
    targets, sources = recording.targets, recording.sources
    entries, ends = (targets, sources) if is_reverse else (sources, targets)
    residual_values = {*sources, *expensive_values(targets, sources, recording.is_outside)}
    graphs, leaves = [], {}
    for is_constant in (True, False):
        tag = InBody(f"the linear map of {recording.caller}")
        seeds = [Value(aval(each.shape, each.dtype), tags=(tag,)) for each in entries]
        constant = set(seeds) if is_constant else set()
        if is_reverse:
            pulled = recording.pull(list(map(converted, seeds)), constant)
            outputs = list(map(converted, pulled))
        else:
            outputs = recording.push(seeds, constant)
        nodes, leaves_of_map = extract(outputs, seeds, stop=lambda value: value in residual_values)
        tag.finish()
        graphs.append((seeds, nodes, outputs))
        leaves.update(dict.fromkeys(leaves_of_map))
    residuals = [leaf for leaf in leaves if leaf.tags]
    if sum(leaf.data.nbytes for leaf in leaves if not leaf.tags and leaf.data is not None) > MOST_BYTES:
        raise ArgumentError(f"{recording.caller}: the program holds large constants, and is not kept")
    first, second = (
        _applied_to(Graph([*residuals, *seeds], nodes, outputs, recording.caller))
        for seeds, nodes, outputs in graphs
    )
    structures = recording.result_spec, recording.spec
    takes, returns = structures if is_reverse else structures[::-1]
    types = [aval(each.shape, each.dtype) for each in entries]
    assert len(ends) == returns.num_leaves
    return MapProgram(first, second, takes, returns, types), list(map(Array, residuals))


def _applied_to(graph: Graph) -> Jitted[..., Any]:
    """Return the compiled function of a graph."""

    def apply(*arrays: Any) -> Any:
        values = [
            array.value if isinstance(array, Handle) else Value(aval(array.shape, array.dtype), data=array)
            for array in arrays
        ]
        return [Array(value) for value in recorded(graph, values)[0]]

    apply.__name__ = graph.name
    return jit_of(apply, apply, EVERYTHING_TRACED)
