"""Every row of the registry by a second compiler: the loops of its kernel, as they are printed, compiled by Numba.

Compiling takes a second for each; ``--exhaustive`` runs all of them.
"""

from __future__ import annotations

from typing import Any

import pytest

from gradtape.errors import LoweringError
from gradtape.ir.graph import Graph
from gradtape.kinds.registry import ROWS
from tests.registry.test_kernels import operands_of, structural_cases
from tests.support.lowering import assert_same, graph_of, inputs_like, interpret, with_gradient
from tests.support.other_kernels import run_by_numba
from tests.support.registry_cases import smooth_cases

STRUCTURAL = structural_cases()
SMOOTH = [case for case in smooth_cases() if case.codes == "d" * case.row.arity]
STEP = 24
"""Of so many cases one runs where time matters."""


def compare(graph: Graph, arrays: Any) -> None:
    try:
        actual = run_by_numba(graph, arrays)
    except LoweringError as error:
        assert "Numba" in str(error)
        return
    assert_same(actual, interpret(graph, arrays), 1e-10, "Numba")


@pytest.mark.parametrize("number", range(len(STRUCTURAL)), ids=[case.id for case in STRUCTURAL])
def test_structural_row(number: int, exhaustive: bool) -> None:
    if number % STEP and not exhaustive:
        pytest.skip("runs with --exhaustive")
    row, sample = STRUCTURAL[number].values
    arrays, params = operands_of(row, sample)
    inputs = inputs_like(arrays)
    out = row(*inputs, **params)
    compare(graph_of(inputs, [out]), arrays)
    if exhaustive and out.dtype.kind == "f" and row.name not in ("reduce_prod", "cumprod"):
        bent = ROWS["tanh"](out)
        total = ROWS["reduce_sum"](bent, axes=tuple(range(bent.ndim))) if bent.ndim else bent
        floats = [value for value in inputs if value.dtype.kind == "f"]
        compare(graph_of(inputs, with_gradient(floats, total).outputs), arrays)


@pytest.mark.parametrize("number", range(len(SMOOTH)), ids=[str(case) for case in SMOOTH])
def test_gradients_of_elementwise_rows(number: int, exhaustive: bool) -> None:
    if number % STEP and not exhaustive:
        pytest.skip("runs with --exhaustive")
    case = SMOOTH[number]
    arrays = case.arrays((5,))
    inputs = inputs_like(arrays)
    total = ROWS["reduce_sum"](case.apply(*inputs), axes=(0,))
    compare(
        graph_of(inputs, with_gradient([inputs[k] for k in case.smooth_positions()], total).outputs), arrays
    )
