"""Finding out which rows depend on which, with random numbers, where the structure of a graph does not tell."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..errors import ArgumentError
from ..ir.builder import here
from ..ir.graph import Graph, Value, extract
from ..ir.op import NDArray
from ..runtime.interpret import interpret
from ..transforms.basis import LinearMap

SHOWN = 5
"""Rows that an error lists."""


def check_rows(linear: LinearMap, caller: str) -> None:
    """Raise ArgumentError where row r of the source influences another row of the target.

    Any two rows differ in a binary digit of their numbers. So for each digit the rows that have it are given random
    cotangents, and then those that do not; the cotangent of every other row of the source must be zero.

    Parameters
    ----------
    linear : LinearMap
        The pullback from the target to the source.
    caller : str
        Who asks, for the error.
    """
    probe = _Probe(linear)
    rows = np.arange(probe.rows)
    for digit in range(max(probe.rows - 1, 0).bit_length()):
        for chosen in ((rows >> digit) & 1 == 1, (rows >> digit) & 1 == 0):
            if (probe.reached(chosen) & ~chosen).any():
                raise _mixed(probe, caller)


class _Probe:
    """The pullback as a function of ndarrays; what has no numbers yet (inside of a map) is random."""

    def __init__(self, linear: LinearMap) -> None:
        (out,) = linear.outs
        assert out is not None
        self.rows = linear.seed.shape[0]
        self._rng = np.random.default_rng(0)
        nodes, leaves = extract(
            [out], [linear.seed], stop=lambda value: value.node is None or value.data is not None
        )
        self._given: list[NDArray] = [self._numbers(leaf) for leaf in leaves]
        self._graph = Graph([linear.seed, *leaves], nodes, [out], "probe")

    def _numbers(self, value: Value) -> NDArray:
        if value.data is not None:
            return value.data
        return np.asarray(self._rng.uniform(0.5, 1.5, value.shape)).astype(value.dtype)

    def reached(self, chosen: NDArray) -> NDArray:
        """Return which rows of the source have a cotangent when the chosen rows of the target have one."""
        seed = self._graph.inputs[0]
        numbers = np.zeros(seed.shape, seed.dtype)
        numbers[chosen] = self._rng.uniform(0.5, 1.5, numbers[chosen].shape)
        (found,) = interpret(self._graph, [numbers, *self._given])
        # A NaN tells nothing of what depends on what.
        touched = (found != 0) & ~np.isnan(found)
        return np.asarray(touched.reshape(self.rows, -1).any(axis=1))


def _mixed(probe: _Probe, caller: str) -> ArgumentError:
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
    shown = ", ".join(map(str, rows[:SHOWN]))
    more = f" and {len(rows) - SHOWN} more" if len(rows) > SHOWN else ""
    return f"row{'s' if len(rows) > 1 else ''} {shown}{more}"
