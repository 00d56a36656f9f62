"""Runs by programs that are kept from earlier calls: value, derivative and all operands of switches, in one program.

What only some calls need, such as the gradient of one difference, has a program of its own, made of the same nodes when it is first needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from gradtape.api.debug.nonsmooth.recording import (
    Point,
    Run,
    Side,
    independent,
    pulled_to,
    slope_along,
    switches_of,
    vector_of,
)
from gradtape.api.debug.programs import KnownCalls, closed, depends_on_trace, guard_ways
from gradtape.api.debug.unrolled import UnrolledLoops, in_place_of_loops
from gradtape.api.transforms.recording import Recording
from gradtape.ir.body import make_body
from gradtape.ir.builder import here
from gradtape.ir.graph import Graph, Node, Value, extract, literal
from gradtape.ir.op import NDArray
from gradtape.ir.types import is_inexact
from gradtape.kinds.operands import broadcast_to
from gradtape.ops.core.elementwise.cast import convert_row
from gradtape.ops.core.elementwise.floats import trunc
from gradtape.runtime.compile.background import patient
from gradtape.trace.jit.guards import Guard
from gradtape.trace.lazy.gradient_cache import LazyProgram
from gradtape.trace.source.contexts import compiled_trace


class _Traced:
    """What belongs to one trace of a function: its nodes with all loops unrolled, and programs made of them.

    Attributes
    ----------
    switches : sequence of Switch
    """

    def __init__(self, recording: Recording, function: Callable[..., Any]) -> None:
        trace = compiled_trace()
        assert trace is not None
        before = len(trace.guards)
        recording.run(function)
        asked = [_as_part(guard) for guard in trace.guards[before:]]
        loops = UnrolledLoops()
        targets = in_place_of_loops(recording.targets, loops)
        guard_ways(loops)
        ends = [*targets, *asked, *loops.conditions]
        nodes, leaves = closed(recording, ends, loops)
        self.result_spec = recording.result_spec
        self.shapes = [target.shape for target in targets]
        self.is_number = [(target.size, target.dtype.kind) for target in targets] == [(1, "f")]
        self._frame = list(filter(depends_on_trace, leaves))
        switches = switches_of(nodes, independent(nodes, leaves, recording.sources), asked, loops)
        read = [value for one in switches for value in (*one.node.inputs, *one.node.outs)]
        self._read = list(dict.fromkeys(filter(depends_on_trace, read)))
        self.outputs = [*targets, *self._read, *self._frame]
        self.count = len(targets)
        inputs = [*recording.sources, *self._frame]
        self._body = make_body(inputs, [*self.outputs, *ends])
        copies = dict(zip(extract([*self.outputs, *ends], inputs)[0], self._body.nodes, strict=True))
        self.switches = [one._replace(node=copies[one.node]) for one in switches]
        self._read = [self._body.outputs[self.count + k] for k in range(len(self._read))]
        self._sources = self._body.inputs[: len(recording.sources)]
        rest = extract(self._body.outputs, self._body.inputs)[1]
        constants = [*self._body.inputs[len(self._sources) :], *rest]
        self._constants = independent(self._body.nodes, constants, self._sources)
        self._programs: dict[Any, LazyProgram] = {}

    def split(self, arrays: Sequence[NDArray]) -> tuple[dict[Value, NDArray], Sequence[NDArray]]:
        """Return the numbers of what switches read, and those of the frame: the inputs of further programs."""
        end = self.count + len(self._read)
        return dict(zip(self._read, arrays[self.count : end], strict=True)), arrays[end:]

    def gradient(self, seeded: Sequence[Value]) -> LazyProgram:
        """Return the program of the cotangents of the sources; it takes these, the frame, and the seeds."""

        def make() -> tuple[list[Value], list[Value]]:
            seeds = [Value(value.aval) for value in seeded]
            return seeds, pulled_to(seeded, self._sources, seeds, self._constants)

        return self._program(("gradient", *seeded), make)

    def results_and(self, outs: Sequence[Value]) -> LazyProgram:
        """Return the program of the results and of further values; it takes the sources and the frame."""
        return self._program(("run", *outs), lambda: ([], [*self._targets, *outs]))

    def results_with(self, outs: Sequence[Value]) -> LazyProgram:
        """Return the program of the results where some values are given; it takes the sources, the frame, and these."""
        return self._program(("forced", *outs), lambda: (list(outs), self._targets))

    @property
    def _targets(self) -> list[Value]:
        return list(self._body.outputs[: self.count])

    def _program(self, key: Any, make: Callable[[], tuple[list[Value], list[Value]]]) -> LazyProgram:
        if key not in self._programs:
            further, outputs = make()
            inputs = [*self._body.inputs, *further]
            graph = Graph(inputs, extract(outputs, inputs)[0], outputs, "gt.debug")
            self._programs[key] = LazyProgram(graph)
        return self._programs[key]


def _as_part(guard: Guard) -> Value:
    """Return what a guard has looked at; the integer part of a number, if it is that."""
    node = guard.value.node
    if node is not None and node.op is convert_row and is_inexact(node.inputs[0].dtype):
        here.site = guard.site
        return trunc(node.inputs[0])
    return guard.value


def _analysed(
    recording: Recording, function: Callable[..., Any], directions: Sequence[Any]
) -> tuple[_Traced, list[Value]]:
    traced = _Traced(recording, function)
    return traced, [*_derivatives(recording, directions, traced.is_number), *traced.outputs]


def _derivatives(recording: Recording, directions: Sequence[Any], is_number: bool) -> list[Value]:
    """Return the gradient, or where the result is not one number its derivatives along a direction."""
    if is_number:
        (target,) = recording.targets
        seed = broadcast_to(literal(1.0, target.dtype), target.shape)
        return recording.pull([seed])
    tangents, _ = recording.directions(tuple(directions))
    return recording.push(tangents)


class Kept(Run):
    """A run by a kept program.

    Raises
    ------
    NotKept
        Where there is none.
    """

    def __init__(self, point: Point) -> None:
        super().__init__(point)
        self._calls = KnownCalls(point, _analysed)
        self._resting = [np.zeros_like(array)[()] for array in point.floats]
        self._traced, here, arrays = self._called(point.vector, None)
        if here.gradient is not None:
            self._sides[point.vector.tobytes(), b""] = here
        self.results = here.value
        self._numbers, self._frame = self._traced.split(arrays)
        self.switches = self._traced.switches

    def _called(self, vector: NDArray, direction: NDArray | None) -> tuple[_Traced, Side, Sequence[NDArray]]:
        point = self.point
        directions = self._resting if direction is None else point.arrays(direction)
        traced, found = self._calls(point.arrays(vector), directions)
        end = len(directions) if traced.is_number else traced.count
        derivative, arrays = vector_of(found[:end]), found[end:]
        results = arrays[: traced.count]
        value, of_results = vector_of(results), (traced.shapes, traced.result_spec)
        if not traced.is_number:
            return traced, Side(*of_results, value, derivative, None), arrays
        slope = derivative if direction is None else slope_along(derivative, direction)
        return traced, Side(*of_results, value, slope, derivative), arrays

    def numbers(self, value: Value) -> Any:
        found = self._numbers.get(value)
        return value.data if found is None else found

    def gradient(self, node: Node, seeds: dict[Value, NDArray]) -> NDArray:
        return vector_of(self._run(self._traced.gradient(tuple(seeds)), self.point.floats, seeds.values()))

    def other_side(self, vector: NDArray, direction: NDArray) -> Side:
        return self._called(vector, direction)[1]

    def computed_at(self, vector: NDArray, outs: Sequence[Value]) -> tuple[NDArray, dict[Value, NDArray]]:
        arrays = self._run(self._traced.results_and(outs), self.point.arrays(vector))
        count = self._traced.count
        return vector_of(arrays[:count]), dict(zip(outs, arrays[count:], strict=True))

    def results_with(self, vector: NDArray, forced: dict[Value, NDArray]) -> NDArray:
        program = self._traced.results_with(tuple(forced))
        return vector_of(self._run(program, self.point.arrays(vector), forced.values()))

    def _run(
        self, program: LazyProgram, floats: Sequence[Any], further: Iterable[NDArray] = ()
    ) -> Sequence[NDArray]:
        with patient:
            return program.run(list(map(np.asarray, [*floats, *self._frame, *further])))
