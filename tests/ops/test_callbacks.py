"""Rows that Python computes: kernels call them as the interpreter does, and their derivatives are right in both modes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gradtape.ops  # noqa: F401 - the rows enter themselves
from gradtape.ir.graph import Value
from gradtape.kinds.registry import ROWS
from gradtape.kinds.routines.callback import Callback
from gradtape.transforms.batch import batch
from tests.support.graphs import check_derivatives, input_like, random_like, run
from tests.support.lowering import Compiled, graph_of

SAMPLES = [
    pytest.param(row, sample, id=f"{name}-{k}")
    for name, row in sorted(ROWS.items())
    if isinstance(row, Callback)
    for k, sample in enumerate(row.samples)
]


def _problem(row: Any, sample: Any, dtype: str) -> tuple[list[Value], list[Any], tuple[Value, ...]]:
    *shapes, params = sample
    rng = np.random.default_rng(3)
    arrays = [random_like(np.zeros(shape, dtype), rng) for shape in shapes]
    inputs = [input_like(array) for array in arrays]
    operands = inputs if row.prepare is None else row.prepare(*inputs)
    return inputs, arrays, row.results(*operands, **params)


@pytest.mark.parametrize("row, sample", SAMPLES)
def test_a_kernel_does_what_the_interpreter_does(row: Any, sample: Any) -> None:
    for dtype in row.codes:
        inputs, arrays, outs = _problem(row, sample, dtype)
        expected = run(outs, inputs, arrays)
        tolerance = 1e-10 if dtype in "dD" else 1e-3
        for actual, array in zip(Compiled(graph_of(inputs, outs))(arrays), expected, strict=True):
            np.testing.assert_allclose(actual, array, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("row, sample", SAMPLES)
def test_a_row_is_differentiated_in_both_directions(row: Any, sample: Any) -> None:
    for dtype in sorted({*row.codes} & {*"dD"}):
        inputs, arrays, outs = _problem(row, sample, dtype)
        if row.tangent is not None:
            check_derivatives(list(outs), inputs, arrays)


@pytest.mark.parametrize("row, sample", SAMPLES)
def test_a_map_is_a_loop(row: Any, sample: Any) -> None:
    inputs, arrays, outs = _problem(row, sample, "D" if "D" in row.codes else "d")
    many = [np.stack([array, 1.01 * array]) for array in arrays]
    mapped = [input_like(array) for array in many]
    found = batch(list(outs), dict(zip(inputs, mapped, strict=True)), 2, lambda value: False)
    for out, result in zip(outs, found, strict=True):
        assert result is not None
        (actual,) = run([result], mapped, many)
        for k in range(2):
            (expected,) = run([out], inputs, [array[k] for array in many])
            np.testing.assert_allclose(actual[k], expected, rtol=1e-10, atol=1e-10)
