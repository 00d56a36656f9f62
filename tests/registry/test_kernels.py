"""Every row of the registry: the interpreter, the printed loops and the compiled kernel agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gradtape.errors import LoweringError
from gradtape.ir.graph import Value
from gradtape.kinds.accumulate import Accumulate
from gradtape.kinds.contract import Contract
from gradtape.kinds.correlation import Correlation
from gradtape.kinds.cumulative import Cumulative
from gradtape.kinds.index_map import IndexMap
from gradtape.kinds.join import Join
from gradtape.kinds.reduction import Reduction
from gradtape.kinds.registry import ROWS
from tests.support.lowering import array_input, check, graph_of, inputs_like, with_gradient
from tests.support.registry_cases import cases

REAL = "?bhilqBHILQfd"


INTERPRETED = ("gcd", "lcm")
"""Rows that run on the interpreter."""


def elementwise_cases() -> list[str]:
    names = {case.row.name for case in cases() if set(case.codes) <= set(REAL)}
    return sorted(names.difference(INTERPRETED))


@pytest.mark.parametrize("name", elementwise_cases())
def test_elementwise_row(name: str) -> None:
    chosen = [case for case in cases() if case.row.name == name and set(case.codes) <= set(REAL)]
    inputs: list[Value] = []
    outputs: list[Value] = []
    arrays: list[np.ndarray[Any, Any]] = []
    for case in chosen:
        for operands in (case.arrays((19,)), case.edges()):
            own = inputs_like(operands)
            result = case.apply(*own)
            if result.dtype.char not in REAL:
                continue
            inputs += own
            arrays += operands
            outputs.append(result)
    if outputs:
        check(graph_of(inputs, outputs), arrays, rtol=1e-10)


def structural_cases() -> list[Any]:
    found = []
    for name, row in ROWS.items():
        if isinstance(row, IndexMap | Reduction | Cumulative | Accumulate | Contract | Correlation | Join):
            found += [pytest.param(row, sample, id=f"{name}-{k}") for k, sample in enumerate(row.samples)]
    return found


def operands_of(row: Any, sample: Any) -> tuple[list[Any], dict[str, Any]]:
    """Return random arrays and the parameters of a sample."""
    rng = np.random.default_rng(7)
    indices: list[Any] = []
    if isinstance(row, Cumulative | Join):
        shapes, params = sample
    elif isinstance(row, Contract | Correlation):
        shapes, params = sample[:2], sample[2]
    elif isinstance(row, Accumulate):
        shapes, indices, params = sample[:2], sample[2], sample[3]
    else:
        shapes, params = [sample[0]], sample[-1]
        indices = sample[1] if len(sample) == 3 else []
    arrays = [rng.standard_normal(shape) for shape in shapes]
    if isinstance(row, Reduction) and row.monoid in ("or", "and"):
        arrays = [array > 0 for array in arrays]
    return [*arrays, *map(np.asarray, indices)], params


@pytest.mark.parametrize("row, sample", structural_cases())
def test_structural_row(row: Any, sample: Any) -> None:
    arrays, params = operands_of(row, sample)
    inputs = inputs_like(arrays)
    out = row(*inputs, **params)
    check(graph_of(inputs, [out]), arrays)


@pytest.mark.parametrize("row, sample", structural_cases())
def test_structural_row_among_others(row: Any, sample: Any) -> None:
    """Costly operands, a use that differs from the result, and the gradient of it all."""
    arrays, params = operands_of(row, sample)
    inputs = inputs_like(arrays)
    floats = [value for value in inputs if value.dtype.kind == "f"]
    if not floats:
        return
    costly = [ROWS["exp"](value) * 0.5 if value.dtype.kind == "f" else value for value in inputs]
    out = row(*costly, **params)
    if out.dtype.kind != "f":
        check(graph_of(inputs, [out]), arrays)
        return
    bent = ROWS["tanh"](out) + 1.0
    total = ROWS["reduce_sum"](bent * bent, axes=tuple(range(bent.ndim))) if bent.ndim else bent * bent
    check(graph_of(inputs, [bent, total]), arrays)
    graph = with_gradient(floats, total)
    check(graph_of(inputs, graph.outputs), arrays, rtol=1e-9)


@pytest.mark.parametrize("code", REAL)
@pytest.mark.parametrize(
    "name", ("reduce_sum", "reduce_prod", "reduce_max", "reduce_min", "argmax", "argmin")
)
def test_reductions_in_every_dtype(name: str, code: str) -> None:
    row = ROWS[name]
    assert isinstance(row, Reduction)
    rng = np.random.default_rng(3)
    x = (
        rng.integers(0, 2, (5, 33)).astype(code)
        if code == "?"
        else rng.integers(0, 100, (5, 33)).astype(code)
    )
    value = array_input(5, 33, dtype=x.dtype)
    check(graph_of([value], [row(value, axes=(axis,)) for axis in (0, 1)]), [x])


@pytest.mark.parametrize("special", (np.nan, np.inf, -np.inf, -0.0))
def test_reductions_of_special_numbers(special: float) -> None:
    x = np.linspace(-1.0, 1.0, 70).reshape(2, 35)
    x[1, 20] = special
    value = array_input(2, 35)
    names = ("reduce_sum", "reduce_prod", "reduce_max", "reduce_min", "argmax", "argmin")
    rows: list[Any] = [ROWS[name] for name in names]
    check(graph_of([value], [row(value, axes=(1,)) for row in rows]), [x])


def test_unknown_dtype_is_named() -> None:
    x = array_input(3, dtype=np.float16)
    with pytest.raises(LoweringError, match="float16"):
        check(graph_of([x], [x * 2.0]), [np.zeros(3, np.float16)])
