"""Runs by programs that are kept from earlier calls: value, derivative and all that switches compare, in one program.

The program is that of functions of one code (`sharing`), and is traced anew where a change of what the function reads, or another way of
Python through it, needs another one. What only some calls ask for, such as the gradient of one difference, has a program of its own, made
of the same nodes when it is first asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

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
from gradtape.api.debug.unrolled import UnrolledLoops, compute_op_by_op, in_place_of_loops
from gradtape.api.transforms.jit import Jitted
from gradtape.api.transforms.recording import Recording
from gradtape.api.transforms.residual_programs import traced_number
from gradtape.api.transforms.sharing import MOST_BYTES, NOT_SHARED, SharedSite, program_of_calls
from gradtape.config import config
from gradtape.errors import ArgumentError
from gradtape.ir.body import make_body
from gradtape.ir.builder import here
from gradtape.ir.graph import Graph, Node, Value, extract, literal
from gradtape.ir.op import NDArray
from gradtape.ir.types import is_inexact
from gradtape.kinds.operands import broadcast_to
from gradtape.ops.core.elementwise.cast import convert_row
from gradtape.ops.core.elementwise.floats import trunc
from gradtape.runtime.compile.background import patient
from gradtape.trace.array.array import Array
from gradtape.trace.array.handle import Handle
from gradtape.trace.jit.guards import Guard, Trace
from gradtape.trace.jit.signature import StaticArguments
from gradtape.trace.lazy.force import force
from gradtape.trace.lazy.gradient_cache import LazyProgram
from gradtape.trace.source.contexts import compiled_trace
from gradtape.trees import TreeSpec, unflatten

MOST_NODES: Final = 2000
"""The size of functions, with all loops unrolled, of which programs are kept."""


_PLAIN: Final = (int, bool, str, type(None))
"""Arguments that are part of a program, as they are constants of a run op by op."""


class NotKept(Exception):
    """Raised where no program answers: the function runs op by op."""


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
        decided = [*loops.conditions, *loops.counts]
        compute_op_by_op(decided)
        for condition in decided:
            if trace in condition.tags:
                trace.guard(condition, int(np.asarray(condition.data)), here.site)
        ends = [*targets, *asked, *loops.conditions]
        nodes, leaves = extract(ends, recording.sources, stop=lambda value: trace not in value.tags)
        force([leaf for leaf in leaves if leaf.node is not None])
        fixed = [leaf.data for leaf in leaves if trace not in leaf.tags and leaf.data is not None]
        if (
            len(nodes) > MOST_NODES
            or recording.has_units
            or loops.reads_stacks
            or sum(data.nbytes for data in fixed) > MOST_BYTES
        ):
            raise ArgumentError("gt.debug: the program is not kept")
        _drop_numbers(nodes, trace)
        self.result_spec = recording.result_spec
        self.shapes = [target.shape for target in targets]
        self.is_number = [(target.size, target.dtype.kind) for target in targets] == [(1, "f")]
        self._frame = [leaf for leaf in leaves if trace in leaf.tags]
        switches = switches_of(nodes, independent(nodes, leaves, recording.sources), asked, loops)
        read = [value for one in switches for value in (*one.node.inputs, *one.node.outs)]
        self._read = list(dict.fromkeys(value for value in read if trace in value.tags))
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


def _drop_numbers(nodes: Sequence[Node], trace: Trace) -> None:
    """Forget the numbers that unrolling has computed: the program computes its own."""
    for node in nodes:
        for out in node.outs:
            if trace in out.tags:
                out.data = None


def _as_part(guard: Guard) -> Value:
    """Return what a guard has looked at; the integer part of a number, if it is that."""
    node = guard.value.node
    if node is not None and node.op is convert_row and is_inexact(node.inputs[0].dtype):
        here.site = guard.site
        return trunc(node.inputs[0])
    return guard.value


class _Traces:
    """The traces of functions of one code, by the numbers that their programs return."""

    __slots__ = ("made",)

    def __init__(self) -> None:
        self.made: list[_Traced] = []

    def add(self, traced: _Traced) -> int:
        """Add a trace, and return its number."""
        self.made.append(traced)
        return len(self.made) - 1


class _Unrolled(SharedSite):
    """Traces in which all loops of Python are unrolled, so that each has the nodes of its calls."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.translates = ""

    def _trace_translated(self, *_: Any) -> None:
        return None

    def _trace_dynamic(self, *_: Any) -> None:
        return None


def _compiled(
    run: Callable[..., Any], wrapped: Callable[..., Any], static: StaticArguments, _: Any
) -> Jitted[..., Any]:
    return Jitted(run, wrapped, static, _Unrolled)


def _recorder(traces: _Traces, parts: Sequence[Any], spec: TreeSpec) -> Callable[..., Any]:
    """Return what is compiled of functions, which adds its traces: of calls with parts of a structure, some of which are given."""
    places = [place for place, part in enumerate(parts) if part is None]

    def run(function: Callable[..., Any], *leaves: Any) -> Any:
        given, directions = leaves[: len(places)], leaves[len(places) :]
        arguments: list[Any] = [part if part is None else part[1] for part in parts]
        for place, leaf in zip(places, given, strict=True):
            arguments[place] = leaf
        moving = [
            place
            for place in places
            if isinstance(arguments[place], Handle) and arguments[place].dtype.kind == "f"
        ]

        def of_floats(*floats: Any) -> Any:
            moved = list(arguments)
            for place, value in zip(moving, floats, strict=True):
                moved[place] = value
            return function(*unflatten(spec, moved))

        with config.override(loops="trace", reroll=False):
            recording = Recording("gt.debug.kinks", tuple([arguments[place] for place in moving]))
            traced = _Traced(recording, of_floats)
        number = traced_number(traces.add(traced), recording.sources)
        derivatives = _derivatives(recording, directions, traced.is_number)
        return (number, *derivatives, *[Array(value) for value in traced.outputs])

    return run


def _derivatives(recording: Recording, directions: Sequence[Any], is_number: bool) -> list[Array]:
    """Return the gradient, or where the result is not one number its derivatives along a direction."""
    if is_number:
        (target,) = recording.targets
        seed = broadcast_to(literal(1.0, target.dtype), target.shape)
        return [Array(part) for part in recording.pull([seed])]
    tangents, _ = recording.directions(tuple(directions))
    return [Array(part) for part in recording.push(tangents)]


class Kept(Run):
    """A run by a kept program.

    Raises
    ------
    NotKept
        Where there is none.
    """

    def __init__(self, point: Point) -> None:
        super().__init__(point)
        if any(isinstance(leaf, Handle) for leaf in point.leaves):
            raise NotKept
        parts = tuple([(type(leaf), leaf) if type(leaf) in _PLAIN else None for leaf in point.leaves])
        traces = _Traces()
        run = _recorder(traces, parts, point.spec)
        program = program_of_calls(("kinks", parts, point.spec), point.function, run, _compiled, traces)
        if program is None:
            raise NotKept
        self._program, self._traces = program
        places = [place for place, part in enumerate(parts) if part is None]
        self._leaves = [point.leaves[place] for place in places]
        self._moving = [places.index(place) for place in point.moving]
        self._resting = [np.zeros_like(array)[()] for array in point.floats]
        self._traced, here, arrays = self._called(point.vector, None)
        if here.gradient is not None:
            self._sides[point.vector.tobytes(), b""] = here
        self.results = here.value
        self._numbers, self._frame = self._traced.split(arrays)
        self.switches = self._traced.switches

    def _called(self, vector: NDArray, direction: NDArray | None) -> tuple[_Traced, Side, Sequence[NDArray]]:
        point = self.point
        leaves = list(self._leaves)
        for k, value in zip(self._moving, point.arrays(vector), strict=True):
            leaves[k] = value
        directions = self._resting if direction is None else point.arrays(direction)
        with patient:
            found = self._program(point.function, *leaves, *directions)
        if found is NOT_SHARED:
            raise NotKept
        traced = self._traces.made[int(found[0])]
        end = 1 + (len(directions) if traced.is_number else traced.count)
        derivative, arrays = vector_of(found[1:end]), found[end:]
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
