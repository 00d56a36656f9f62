"""Row independence tested with random cotangents, where the structure of a graph does not decide it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gradtape.errors import ArgumentError
from gradtape.ir.builder import here
from gradtape.ir.graph import Graph, Value, constant, extract
from gradtape.ir.op import NDArray
from gradtape.ir.types import is_inexact
from gradtape.ops.core.elementwise.logic import bitwise_and, equal, not_equal
from gradtape.ops.core.reductions import reduce_any
from gradtape.runtime.interpret import interpret
from gradtape.trace.jit.guards import abstract_of, trace_of
from gradtape.trace.lazy.force import force
from gradtape.trace.random.observation import own_calls
from gradtape.transforms.basis import LinearMap

SHOWN = 5
"""Rows that an error lists."""

DRAWS = 3
"""How often numbers are drawn for what has none: positive ones, negative ones, and both."""


@own_calls()  # the numbers of probes are no draws of the user's
def check_rows(linear: LinearMap, caller: str) -> None:
    """Raise ArgumentError where row r of the source influences another row of the target.

    Any two rows differ in a binary digit of their numbers. So for each digit the rows that have it are given random
    cotangents, and then those that do not; the cotangent of every other row of the source must be zero.

    What is traced holds for other numbers too: there it becomes a guard.

    Parameters
    ----------
    linear : LinearMap
        The pullback from the target to the source.
    caller : str
        Who asks, for the error.
    """
    (out,) = linear.outs
    assert out is not None
    rows = np.arange(linear.seed.shape[0])
    digits = [(rows >> digit) & 1 == 1 for digit in range(max(len(rows) - 1, 0).bit_length())]
    choices = [chosen for digit in digits for chosen in (digit, ~digit)]
    for draw in range(DRAWS if abstract_of(out) else 1):
        probe = _Probe(linear, draw)
        if any((probe.reached(chosen) & ~chosen).any() for chosen in choices):
            raise _dependent_rows(probe, caller)
    trace = trace_of(out)
    if trace is not None and choices and not abstract_of(out):
        trace.guard(_row_dependence(linear, np.stack(choices)), 0, here.site)


def _row_dependence(linear: LinearMap, choices: NDArray) -> Value:
    """Return whether the cotangent of a row that was not chosen is another number than zero, as a value."""
    shape = (*choices.shape, *[1] * (linear.seed.ndim - 1))
    drawn = np.random.default_rng(0).uniform(0.5, 1.5, (1, *linear.seed.shape))
    seeds = np.where(choices.reshape(shape), drawn, 0.0).astype(linear.seed.dtype)
    (found,) = linear.apply(constant(seeds))
    assert found is not None
    others = constant(np.broadcast_to(~choices.reshape(*choices.shape, *[1] * (found.ndim - 2)), found.shape))
    known = bitwise_and(equal(found, found), not_equal(found, 0))
    return reduce_any(bitwise_and(known, others), axes=tuple(range(found.ndim)))


class _Probe:
    """The pullback as a function of ndarrays; what has no numbers yet (inside a map) is random, in every draw of other signs."""

    def __init__(self, linear: LinearMap, draw: int) -> None:
        (out,) = linear.outs
        assert out is not None
        self.rows = linear.seed.shape[0]
        self._rng = np.random.default_rng(draw)
        self._draw = draw
        self._given: list[NDArray]
        if abstract_of(out):
            nodes, leaves = extract(
                [out], [linear.seed], stop=lambda value: value.node is None or value.data is not None
            )
            self._given = [self._numbers(leaf) for leaf in leaves]
        else:
            nodes, leaves = linear.nodes_between()
            self._given = force(leaves)
        self._graph = Graph([linear.seed, *leaves], nodes, [out], "probe")

    def _numbers(self, value: Value) -> NDArray:
        if value.data is not None:
            return value.data
        if not is_inexact(value.dtype):
            return self._rng.integers(0, 2, value.shape).astype(value.dtype)
        signs = (1.0, -1.0, self._rng.choice((-1.0, 1.0), value.shape))[self._draw]
        return np.asarray(self._rng.uniform(0.5, 1.5, value.shape) * signs).astype(value.dtype)

    def reached(self, chosen: NDArray) -> NDArray:
        """Return which rows of the source have a cotangent when the chosen rows of the target have one."""
        seed = self._graph.inputs[0]
        numbers = np.zeros(seed.shape, seed.dtype)
        numbers[chosen] = self._rng.uniform(0.5, 1.5, numbers[chosen].shape)
        (found,) = interpret(self._graph, [numbers, *self._given])
        # A NaN tells nothing of what depends on what.
        touched = (found != 0) & ~np.isnan(found)
        return np.asarray(touched.reshape(self.rows, -1).any(axis=1))


def _dependent_rows(probe: _Probe, caller: str) -> ArgumentError:
    listed: list[str] = []
    for row in range(probe.rows):
        chosen = np.arange(probe.rows) == row
        others = np.flatnonzero(probe.reached(chosen) & ~chosen)
        if len(others):
            listed.append(f"row {row} of the target depends on {_counted(others.tolist())} of the source")
        if len(listed) == SHOWN:
            break
    return ArgumentError(
        f"{caller}: the rows of the target depend on other rows of the source",
        where=here.site,
        why="; ".join(listed),
        remedy="use jacobian, which has a block for every pair of rows, or keep the rows apart",
    )


def _counted(rows: Sequence[int]) -> str:
    as_results = ", ".join(map(str, rows[:SHOWN]))
    more = f" and {len(rows) - SHOWN} more" if len(rows) > SHOWN else ""
    return f"row{'s' if len(rows) > 1 else ''} {as_results}{more}"
