"""What a function does at a point and near it, with all its switches: by a run op by op, or by programs kept from earlier calls."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any, NamedTuple

import numpy as np

from gradtape.api.debug.call import Call
from gradtape.api.debug.nonsmooth.switches import SWITCHES, comparisons, conditions
from gradtape.api.debug.unrolled import Iterations, UnrolledLoops, compute_op_by_op, in_place_of_loops
from gradtape.api.tape.tape import GradientTape
from gradtape.api.transforms.gradient import jvp
from gradtape.api.transforms.jit import running_recorded
from gradtape.api.transforms.recording import Recording, recordable_body
from gradtape.config import config
from gradtape.ir.builder import here
from gradtape.ir.graph import Literal, Node, Value, extract, literal
from gradtape.ir.op import NDArray
from gradtape.ir.types import is_inexact
from gradtape.kinds.operands import broadcast_to
from gradtape.ops.core.elementwise.floats import trunc
from gradtape.trace.array.handle import Handle
from gradtape.trace.lazy.instruments import CHECKS, MADE
from gradtape.transforms.vjp import vjp as pulled
from gradtape.trees import TreeSpec, flatten, unflatten


class Point(Call):
    """A function of its floating arguments, as one vector, at a point."""

    def __init__(self, function: Callable[..., Any], args: Sequence[Any]) -> None:
        super().__init__("kinks", function, args, "f")
        self.floats = [np.asarray(self.leaves[k]) for k in self.moving]
        ends = [0, *itertools.accumulate(array.size for array in self.floats)]
        self._places = list(map(slice, ends, ends[1:]))
        self.vector = vector_of(self.floats)
        self.size = max(1.0, float(np.max(np.abs(self.vector), initial=0.0)))

    def arrays(self, vector: NDArray) -> list[Any]:
        """Return a vector as floats."""
        return [
            vector[place].reshape(array.shape).astype(array.dtype)[()]
            for place, array in zip(self._places, self.floats, strict=True)
        ]

    def nest_of(self, vector: NDArray) -> Any:
        """Return a vector in the containers of the arguments."""
        return self.nest(self.arrays(vector))


class Switch(NamedTuple):
    """A node that depends on the arguments and switches.

    Attributes
    ----------
    node : Node
    is_asked : bool
        Whether Python's or a loop's way depends on it, so that the other side may run other ops.
    iterations : tuple
        Those that it is in.
    """

    node: Node
    is_asked: bool
    iterations: Iterations


class Side(NamedTuple):
    """What the function does on one side of a switch, or at it.

    Attributes
    ----------
    shapes, spec
        Of the results.
    value, slope, gradient : ndarray
        The results, their derivatives along a direction, and the gradient of one number.
    """

    shapes: Sequence[tuple[int, ...]]
    spec: TreeSpec
    value: NDArray
    slope: NDArray
    gradient: NDArray | None

    def nest(self, vector: NDArray) -> Any:
        """Return a vector in the containers of the results."""
        ends = [0, *itertools.accumulate(map(prod, self.shapes))]
        parts = [
            vector[place].reshape(shape)[()]
            for place, shape in zip(map(slice, ends, ends[1:]), self.shapes, strict=False)
        ]
        return unflatten(self.spec, parts)


class Run(ABC):
    """A run of a function.

    Attributes
    ----------
    point : Point
    switches : sequence of Switch
    results : ndarray
        As a vector.
    """

    point: Point
    switches: Sequence[Switch]
    results: NDArray

    @abstractmethod
    def numbers(self, value: Value) -> Any:
        """Return the numbers of an operand or result of a switch."""

    @abstractmethod
    def gradient(self, node: Node, seeds: dict[Value, NDArray]) -> NDArray:
        """Return the gradient of a sum of products of the operands of a switch with seeds, as a vector."""

    def __init__(self, point: Point) -> None:
        self.point = point
        self._sides: dict[tuple[bytes, bytes], Side] = {}

    def side(self, vector: NDArray, direction: NDArray) -> Side:
        """Return what the function is at another point, by whatever ops it has there. Several switches may be in one place."""
        place, along = vector.tobytes(), direction.tobytes()
        known = self._sides.get((place, b"")) or self._sides.get((place, along))
        if known is None:
            known = self.other_side(vector, direction)
            self._sides[place, along if known.gradient is None else b""] = known
        elif known.gradient is not None:
            return known._replace(slope=slope_along(known.gradient, direction))
        return known

    @abstractmethod
    def other_side(self, vector: NDArray, direction: NDArray) -> Side:
        """Run the function at another point."""

    @abstractmethod
    def computed_at(self, vector: NDArray, outs: Sequence[Value]) -> tuple[NDArray, dict[Value, NDArray]]:
        """Return the results, as a vector, and results of switches, which the same ops compute at another point."""

    @abstractmethod
    def results_with(self, vector: NDArray, forced: dict[Value, NDArray]) -> NDArray:
        """Return the results at another point if some nodes had these results."""


@contextmanager
def op_by_op() -> Iterator[None]:
    """Run everything op by op, with loops unrolled, in the block."""
    with config.override(loops="trace"), running_recorded():
        yield


def run_checked(
    recording: Recording, function: Callable[..., Any], check: Callable[[Sequence[Value]], None]
) -> None:
    """Run a function under a recording, with loops unrolled as they are recorded, and with a check of the values that Python looks at."""
    CHECKS.append(check)
    try:
        recording.run(function)
    finally:
        CHECKS.remove(check)
        if not CHECKS:
            MADE.clear()


class Recorded(Run):
    """A run op by op, with all loops unrolled."""

    def __init__(self, point: Point) -> None:
        super().__init__(point)
        asked: list[Value] = []

        def note(values: Sequence[Value]) -> None:
            asked.extend(value for value in values if not is_inexact(value.dtype))

        recording = Recording("gt.debug.kinks", tuple(point.floats))
        run_checked(recording, point, note)
        asked += _integer_parts(recording)
        loops = UnrolledLoops()
        self._targets, self._sources = in_place_of_loops(recording.targets, loops), recording.sources
        ends = [*self._targets, *asked, *loops.conditions]
        compute_op_by_op(ends, all_ancestors=True)
        self._nodes, leaves = extract(ends, self._sources, stop=lambda value: False)
        self._constants = independent(self._nodes, leaves, self._sources)
        self.switches = switches_of(self._nodes, self._constants, asked, loops)
        self.results = self._results({})

    def numbers(self, value: Value) -> Any:
        return value.data

    def gradient(self, node: Node, seeds: dict[Value, NDArray]) -> NDArray:
        constants = [Value(value.aval, data=seed) for value, seed in seeds.items()]
        parts = pulled_to(list(seeds), self._sources, constants, self._constants)
        compute_op_by_op(parts)
        return vector_of([np.asarray(part.data) for part in parts])

    def other_side(self, vector: NDArray, direction: NDArray) -> Side:
        point, arrays = self.point, self.point.arrays(vector)
        with GradientTape() as tape:
            watched = [tape.watch(array) for array in arrays]
            result = recordable_body(point)(*watched)
        leaves, spec = flatten(result)
        leaves = [leaf if isinstance(leaf, Handle) else np.asarray(leaf) for leaf in leaves]
        shapes = [leaf.shape for leaf in leaves]
        if [(leaf.size, leaf.dtype.kind) for leaf in leaves] == [(1, "f")]:
            (one,) = leaves
            parts = [0.0] * len(arrays)
            if isinstance(one, Handle):
                parts = tape.gradient(one, watched, unconnected_gradients="zero")
            gradient = vector_of(
                [np.broadcast_to(part, np.shape(x)) for part, x in zip(parts, arrays, strict=True)]
            )
            return Side(shapes, spec, vector_of(leaves), slope_along(gradient, direction), gradient)
        result, tangent = jvp(point, tuple(arrays), tuple(point.arrays(direction)))
        return Side(shapes, spec, vector_of(flatten(result)[0]), vector_of(flatten(tangent)[0]), None)

    def computed_at(self, vector: NDArray, outs: Sequence[Value]) -> tuple[NDArray, dict[Value, NDArray]]:
        data = self._at(vector, {})
        return self._results(data), {out: np.asarray(data.get(out, out.data)) for out in outs}

    def results_with(self, vector: NDArray, forced: dict[Value, NDArray]) -> NDArray:
        return self._results(self._at(vector, forced))

    def _at(self, vector: NDArray, forced: dict[Value, NDArray]) -> dict[Value, Any]:
        """Return all values that depend on the sources, for other sources, with some outputs of nodes replaced."""
        arrays = map(np.asarray, self.point.arrays(vector))
        data: dict[Value, Any] = dict(zip(self._sources, arrays, strict=True))
        for node in self._nodes:
            if self._constants.issuperset(node.outs):
                continue
            operands: list[Any] = [data.get(x, x.data) for x in node.inputs]
            results = node.op.evaluate(operands, node.params)
            data.update(
                (out, forced.get(out, result)) for out, result in zip(node.outs, results, strict=True)
            )
        return data

    def _results(self, data: dict[Value, Any]) -> NDArray:
        return vector_of([data.get(target, target.data) for target in self._targets])


def _integer_parts(recording: Recording) -> list[Value]:
    """Return the integer parts that Python has asked for by ``int(x)``."""
    log, parts = recording.tag.log, []
    for exit_ in [] if log is None else log.exits:
        value = exit_.value()
        if exit_.what == "int(x)" and value is not None and is_inexact(value.dtype):
            here.site = exit_.site
            parts.append(trunc(value))
    return parts


def switches_of(
    nodes: Sequence[Node], constants: set[Value], asked: Sequence[Value], loops: UnrolledLoops
) -> list[Switch]:
    """Return the nodes that switch."""
    steering = comparisons([*asked, *loops.conditions])
    decisive = {**comparisons(conditions(nodes)), **steering}
    steers = set(asked)
    return [
        Switch(
            node,
            node in steering or not steers.isdisjoint(node.outs),
            loops.iterations.get(node, ()),
        )
        for node in nodes
        if (node.op in SWITCHES or node in decisive) and not constants.issuperset(node.outs)
    ]


def independent(nodes: Sequence[Node], leaves: Sequence[Value], sources: Sequence[Value]) -> set[Value]:
    """Return the values that do not depend on the sources."""
    constants = set(leaves)
    for node in nodes:
        if all(operand in constants or isinstance(operand, Literal) for operand in node.inputs):
            constants.update(node.outs)
    return constants - set(sources)


def pulled_to(
    targets: Sequence[Value], sources: Sequence[Value], seeds: Sequence[Value], constants: set[Value]
) -> list[Value]:
    """Return the cotangents of sources."""
    pairs = [pair for pair in zip(targets, seeds, strict=True) if is_inexact(pair[0].dtype)]
    inexact, given = [target for target, _ in pairs], [seed for _, seed in pairs]
    parts = pulled(inexact, sources, given, lambda value: value in constants, constant=set(given))
    return [
        broadcast_to(literal(0.0, source.dtype) if part is None else part, source.shape)
        for part, source in zip(parts, sources, strict=True)
    ]


def slope_along(gradient: NDArray, direction: NDArray) -> NDArray:
    """Return the derivative along a direction, in which numbers that do not move count as nothing, whatever their derivative is."""
    moving = direction != 0.0
    return np.array([gradient[moving] @ direction[moving]])


def vector_of(arrays: Sequence[Any]) -> NDArray:
    """Return the numbers of arrays as one vector of floats or complex numbers."""
    flat = [np.asarray(array).reshape(-1) for array in arrays]
    if not flat:
        return np.zeros(0)
    whole = np.concatenate(flat) if len(flat) > 1 else flat[0]
    return whole.astype(complex if whole.dtype.kind == "c" else float)
