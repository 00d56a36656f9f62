"""Test cases made from the registry: what the rows say of themselves, crossed with shapes and dtypes."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import gradtape.ops  # noqa: F401 - the rows enter themselves
from gradtape.ir.graph import Graph, Value, constant, extract
from gradtape.ir.types import aval
from gradtape.kinds.accumulate import Accumulate
from gradtape.kinds.contract import Contract
from gradtape.kinds.correlation import Correlation
from gradtape.kinds.cumulative import Cumulative
from gradtape.kinds.elementwise import Elementwise, Refused
from gradtape.kinds.join import Join
from gradtape.kinds.registry import ROWS
from gradtape.kinds.routines.callback import Callback
from gradtape.kinds.routines.matrix import Matrix
from gradtape.kinds.sort import Sort
from gradtape.runtime.interpret import interpret

SHAPES = ((), (3,), (2, 3), (0,))


@dataclass(frozen=True)
class Case:
    """A row, the dtypes of its operands, and its parameters."""

    row: Elementwise
    codes: str
    params: dict[str, Any]

    def __str__(self) -> str:
        options = "".join(f",{name}={value}" for name, value in self.params.items())
        return f"{self.row.name}-{self.codes}{options}"

    @property
    def dtypes(self) -> list[np.dtype[Any]]:
        return [np.dtype(code) for code in self.codes]

    def arrays(self, shape: tuple[int, ...]) -> list[np.ndarray[Any, Any]]:
        """Return random operands, well inside the row's domain."""
        rng = np.random.default_rng(zlib.crc32(str(self).encode()))
        return [
            draw(rng, dtype, bounds, shape)
            for dtype, bounds in zip(self.dtypes, self.row.domain, strict=True)
        ]

    def edges(self) -> list[np.ndarray[Any, Any]]:
        """Return the row's edge cases as operands; those that an integer dtype cannot hold are left out."""
        kept = [edge for edge in self.row.edges if all(map(fits, edge, self.dtypes))]
        columns = list(zip(*kept, strict=True)) or [()] * self.row.arity
        with np.errstate(over="ignore"):
            return [
                np.array(column).astype(dtype) for column, dtype in zip(columns, self.dtypes, strict=True)
            ]

    def numpy(self, arrays: Sequence[Any]) -> np.ndarray[Any, Any]:
        """Return what NumPy (or SciPy) says."""
        with np.errstate(all="ignore"):
            return np.asarray(self.row.function(*arrays, **self.params))

    def apply(self, *operands: Any) -> Value:
        return self.row(*operands, **self.params)

    def rule(self, position: int) -> Any:
        """Return the partial derivative in an argument, if the row has such."""
        return self.row.partials[position] if self.row.partials is not None else None

    def smooth_positions(self) -> list[int]:
        """Return the arguments in which there is a derivative."""
        return [
            k for k, code in enumerate(self.codes) if code in "dD" and not isinstance(self.rule(k), Refused)
        ]


def draw(
    rng: np.random.Generator, dtype: np.dtype[Any], bounds: tuple[float, float], shape: tuple[int, ...]
) -> np.ndarray[Any, Any]:
    low, high = bounds
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return rng.integers(
            max(int(np.ceil(low)), limits.min), min(int(high), limits.max), shape, endpoint=True
        ).astype(dtype)
    drawn = np.asarray(rng.uniform(low, high, shape))
    if dtype.kind == "c":
        drawn = drawn + 1j * rng.uniform(-0.5, 0.5, shape)
    return drawn.astype(dtype)


def fits(number: Any, dtype: np.dtype[Any]) -> bool:
    if dtype.kind in "fc":
        return True
    if not np.isfinite(number) or number != int(number):
        return False
    limits = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    return limits[0] <= number <= limits[1]


def elementwise_rows() -> list[Elementwise]:
    return [row for row in ROWS.values() if isinstance(row, Elementwise)]


def cases() -> list[Case]:
    """Return every elementwise row in each of its dtypes, with each of its parameters."""
    return [
        Case(row, codes * (row.arity if len(codes) == 1 else 1), params)
        for row in elementwise_rows()
        for codes in row.dtype_samples
        for params in row.params
    ]


def smooth_cases() -> list[Case]:
    """Return the cases that have a derivative in float64."""
    return [
        case
        for case in cases()
        if case.row.differentiable and "d" in case.codes and set(case.codes) <= set("dil?")
        if case.apply(*inputs_like(case.arrays(()))).dtype == np.float64
    ]


def inputs_like(arrays: Sequence[np.ndarray[Any, Any]]) -> list[Value]:
    return [Value(aval(array.shape, array.dtype)) for array in arrays]


def evaluate(
    outputs: Sequence[Value], inputs: Sequence[Value], arrays: Sequence[np.ndarray[Any, Any]]
) -> list[np.ndarray[Any, Any]]:
    """Compute values from their inputs with NumPy."""
    return interpret(graph_of(outputs, inputs), arrays)


def graph_of(outputs: Sequence[Value], inputs: Sequence[Value]) -> Graph:
    nodes, _ = extract(outputs, inputs, stop=lambda value: value.node is None)
    return Graph(inputs, nodes, outputs)


def or_zeros(values: Sequence[Value | None], like: Sequence[Value]) -> list[Value]:
    return [
        constant(np.zeros(source.shape, source.dtype)) if value is None else value
        for value, source in zip(values, like, strict=True)
    ]


def samples_of(row: Any) -> list[tuple[list[tuple[int, ...]], list[np.ndarray[Any, Any]], dict[str, Any]]]:
    """Return (shapes, index arrays, parameters) for each of a row's samples."""
    if isinstance(row, Cumulative | Join):
        return [(list(shapes), [], params) for shapes, params in row.samples]
    if isinstance(row, Contract | Correlation | Matrix | Sort):
        return [(list(sample[:-1]), [], sample[-1]) for sample in row.samples]
    if isinstance(row, Accumulate):
        return [([base, v], indices, params) for base, v, indices, params in row.samples]
    return [([sample[0]], sample[1] if len(sample) == 3 else [], sample[-1]) for sample in row.samples]


def structural_samples() -> list[Any]:
    """Return each sample of each row that is not elementwise, as parameters of a test; callbacks have a test of their own."""
    return [
        pytest.param(row, sample, id=f"{name}-{k}")
        for name, row in ROWS.items()
        if not isinstance(row, Elementwise | Callback)
        for k, sample in enumerate(samples_of(row))
    ]
