"""Running graphs with NumPy, and their derivatives, for the tests of rows and functions."""

from __future__ import annotations

import cProfile
import pstats
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradtape.ir.graph import Value, extract
from gradtape.ir.types import aval, is_inexact
from gradtape.transforms.jvp import jvp
from gradtape.transforms.vjp import vjp

Array = np.ndarray[Any, Any]


def input_like(array: Array) -> Value:
    """Return a graph input for an array."""
    return Value(aval(array.shape, array.dtype))


def run(outputs: Sequence[Value], inputs: Sequence[Value], arrays: Sequence[Array]) -> list[Array]:
    """Evaluate a graph node by node; every node must keep what it promised of shape and dtype."""
    known: dict[Value, Array] = dict(zip(inputs, arrays, strict=True))
    nodes, leaves = extract(outputs, inputs, stop=lambda value: value.node is None)
    for leaf in leaves:
        assert leaf.data is not None, f"{leaf} is neither an input nor a constant"

    def array_of(value: Value) -> Array:
        found = known.get(value, value.data)
        assert found is not None
        return found

    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for node in nodes:
            results = node.op.evaluate([array_of(operand) for operand in node.inputs], node.params)
            for out, result in zip(node.outs, results, strict=True):
                assert isinstance(result, np.ndarray), (
                    f"{node.op.name} evaluates to a {type(result).__name__}"
                )
                assert (result.shape, result.dtype) == (out.shape, out.dtype), (
                    f"{node.op.name} promised {out.aval} and gave {result.dtype}{list(result.shape)}"
                )
                known[out] = result
    return [array_of(output) for output in outputs]


def random_like(array: Array, rng: np.random.Generator) -> Array:
    """Return random numbers of an array's shape and dtype."""
    if array.dtype.kind == "c":
        return (rng.normal(size=array.shape) + 1j * rng.normal(size=array.shape)).astype(array.dtype)
    return rng.normal(size=array.shape).astype(array.dtype)


def direction(array: Array, rng: np.random.Generator) -> Array:
    """Return a direction to move an array in: infinities and NaN do not move."""
    return np.where(np.isfinite(array), random_like(array, rng), 0).astype(array.dtype)


def inner(a: Sequence[Array], b: Sequence[Array]) -> float:
    """Return the sum of the products of all elements."""
    return float(sum(np.sum(x * y) for x, y in zip(a, b, strict=True)).real)


class Differentiated:
    """A graph with its derivatives in the float inputs, to be run at any point.

    Parameters
    ----------
    outputs, inputs : sequence of Value
        The graph; only outputs and inputs that are floats count.
    """

    def __init__(self, outputs: Sequence[Value], inputs: Sequence[Value]) -> None:
        self.inputs = list(inputs)
        self.outputs = [output for output in outputs if is_inexact(output.dtype)]
        self.active = [k for k, value in enumerate(inputs) if is_inexact(value.dtype)]
        sources = [inputs[k] for k in self.active]
        self.tangents = [Value(value.aval) for value in sources]
        self.cotangents = [Value(output.aval) for output in self.outputs]
        self.pushed = jvp(self.outputs, sources, self.tangents, lambda value: False)
        self.pulled = vjp(self.outputs, sources, self.cotangents, lambda value: False)

    @property
    def wide(self) -> bool:
        """Whether differences can be trusted: all is in double precision."""
        return all(value.dtype.char in "dD" for value in (*self.tangents, *self.cotangents))

    def values(self, arrays: Sequence[Array]) -> list[Array]:
        return run(self.outputs, self.inputs, arrays)

    def push(self, arrays: Sequence[Array], tangents: Sequence[Array]) -> list[Array]:
        """Return the tangents of the outputs."""
        found = [value for value in self.pushed if value is not None]
        results = iter(run(found, [*self.inputs, *self.tangents], [*arrays, *tangents]))
        zeros = [np.zeros(output.shape, output.dtype) for output in self.outputs]
        return [
            zero if value is None else next(results) for value, zero in zip(self.pushed, zeros, strict=True)
        ]

    def pull(self, arrays: Sequence[Array], cotangents: Sequence[Array]) -> list[Array]:
        """Return the cotangents of the float inputs."""
        found = [value for value in self.pulled if value is not None]
        results = iter(run(found, [*self.inputs, *self.cotangents], [*arrays, *cotangents]))
        zeros = [np.zeros(value.shape, value.dtype) for value in self.tangents]
        return [
            zero if value is None else next(results) for value, zero in zip(self.pulled, zeros, strict=True)
        ]

    def moved(self, arrays: Sequence[Array], tangents: Sequence[Array], step: float) -> list[Array]:
        """Return the inputs, moved along the tangents."""
        moved = list(arrays)
        for k, tangent in zip(self.active, tangents, strict=True):
            moved[k] = arrays[k] + step * tangent
        return moved


def assert_slopes(
    function: Callable[[float], Sequence[Array]],
    slopes: Sequence[Array],
    step: float = 1e-5,
    rtol: float = 2e-5,
) -> int:
    """Compare derivatives along a line with central differences, wherever the differences to either side
    agree.

    Returns
    -------
    int
        How many elements were compared (the others lie on a kink).
    """
    points = [function(k * step) for k in (0, 1, -1, 2, -2)]
    compared = 0
    with np.errstate(all="ignore"):
        for *values, slope in zip(*points, slopes, strict=True):
            f, f_ahead, f_behind, f_far, f_back = values
            right, left, wide = (f_ahead - f) / step, (f - f_behind) / step, (f_far - f_back) / (4 * step)
            central = (f_ahead - f_behind) / (2 * step)
            scale = 1.0 + np.abs(right) + np.abs(left)
            smooth = (np.abs(right - left) < 1e-3 * scale) & (np.abs(wide - central) < 1e-3 * scale)
            far = smooth & ~(np.abs(central - slope) <= rtol * scale)
            assert not far.any(), f"derivative {slope[far][:3]}, differences {central[far][:3]}"
            compared += int(smooth.sum())
    return compared


def check_derivatives(
    outputs: Sequence[Value], inputs: Sequence[Value], arrays: Sequence[Array], second: bool = True
) -> None:
    """Check that the reverse mode is the adjoint of the forward mode, and both orders against differences."""
    graph = Differentiated(outputs, inputs)
    if not graph.outputs or not graph.active:
        return
    rng = np.random.default_rng(7)
    tangents = [direction(arrays[k], rng) for k in graph.active]
    cotangents = [random_like(np.zeros(output.shape, output.dtype), rng) for output in graph.outputs]
    pushed, pulled = graph.push(arrays, tangents), graph.pull(arrays, cotangents)
    finite = all(np.isfinite(array).all() for array in (*pushed, *pulled))
    if finite:
        tolerance = 1e-9 if graph.wide else 1e-4
        np.testing.assert_allclose(
            inner(pulled, tangents), inner(cotangents, pushed), rtol=tolerance, atol=tolerance
        )
    if not graph.wide:
        return
    assert_slopes(lambda step: graph.values(graph.moved(arrays, tangents, step)), pushed)
    if second:
        found = [value for value in graph.pulled if value is not None]
        bent = Differentiated(found, [*graph.inputs, *graph.cotangents])
        points = [*arrays, *cotangents]
        directions = [direction(points[k], rng) for k in bent.active]
        if bent.outputs:
            assert_slopes(
                lambda step: bent.values(bent.moved(points, directions, step)), bent.push(points, directions)
            )


def calls(work: Callable[[], object]) -> int:
    """Return how many function calls a piece of work makes: what it costs, on any machine."""
    profile = cProfile.Profile()
    profile.runcall(work)
    return pstats.Stats(profile).total_calls
