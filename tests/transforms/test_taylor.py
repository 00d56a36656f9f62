"""Series of every row: order 1 is its tangent, twice order 2 the tangent of the tangent."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gradtape.errors import NotDifferentiableError
from gradtape.ir.graph import Value
from gradtape.ir.types import is_inexact
from gradtape.kinds.routines.matrix import Matrix
from gradtape.kinds.sort import Sort
from gradtape.transforms.jvp import jvp
from gradtape.transforms.taylor.sweep import taylor
from tests.support.graphs import input_like
from tests.support.registry_cases import (
    Case,
    evaluate,
    inputs_like,
    or_zeros,
    smooth_cases,
    structural_samples,
)

FIRST_ONLY = {"smirnov", "smirnovi", "_smirnovc", "_smirnovci", "mathieu_a", "mathieu_b", "pro_cv", "obl_cv"}
"""Rows whose first derivatives have none."""


def nowhere(value: Value) -> bool:
    return False


def check_two_orders(outs: list[Value], inputs: list[Value], arrays: list[Any], moving: list[int]) -> None:
    """Compare the first two orders with tangents of tangents, on the path x + v t + w t**2."""
    rng = np.random.default_rng(3)
    drawn = [[rng.standard_normal(arrays[k].shape).astype(arrays[k].dtype) for k in moving] for _ in range(2)]
    sources = [inputs[k] for k in moving]
    first, second = [[input_like(array) for array in parts] for parts in drawn]
    values = [*arrays, *drawn[0], *drawn[1]]
    expected_values = [or_zeros(jvp(outs, sources, first, nowhere), outs)]
    try:
        doubled = [w * 2.0 for w in second]
        pushed = jvp(expected_values[0], [*sources, *first], [*first, *doubled], nowhere)
        expected_values.append(or_zeros(pushed, outs))
    except NotDifferentiableError:
        assert outs[0].node is not None and outs[0].node.op.name in FIRST_ONLY
    series = taylor(outs, sources, list(zip(first, second, strict=True)), len(expected_values), nowhere)
    with np.errstate(all="ignore"):
        expected = evaluate(
            [part for order in expected_values for part in order], [*inputs, *first, *second], values
        )
        actual = evaluate(
            [part for order in zip(*series, strict=True) for part in or_zeros(order, outs)],
            [*inputs, *first, *second],
            values,
        )
    for k, (mine, theirs) in enumerate(zip(actual, expected, strict=True)):
        scale = 1 if k < len(outs) else 2
        size = np.max(np.abs(theirs[np.isfinite(theirs)]), initial=1.0)
        np.testing.assert_allclose(mine * scale, theirs, rtol=1e-9, atol=1e-11 * size)
        assert mine.dtype == theirs.dtype and mine.shape == theirs.shape


@pytest.mark.parametrize("case", [c for c in smooth_cases() if not c.row.is_sample], ids=str)
def test_elementwise_rows(case: Case) -> None:
    arrays = case.arrays((3,))
    inputs = inputs_like(arrays)
    check_two_orders([case.apply(*inputs)], inputs, arrays, case.smooth_positions())


@pytest.mark.parametrize("row, sample", structural_samples())
def test_other_rows(row: Any, sample: Any) -> None:
    shapes, indices, params = sample
    rng = np.random.default_rng(2)
    arrays: list[Any] = [np.asarray(rng.standard_normal(shape)) for shape in shapes]
    if isinstance(row, Matrix):
        arrays[0] = arrays[0] + 10 * np.eye(*shapes[0][-2:])
        if shapes[0][-1] == shapes[0][-2]:
            arrays[0] = arrays[0] + np.swapaxes(arrays[0], -1, -2)
    arrays += [np.asarray(index) for index in indices]
    inputs = [input_like(array) for array in arrays]
    outs = (
        row.results(*inputs, **params)
        if isinstance(row, Matrix | Sort) and hasattr(row, "results")
        else (row(*inputs, **params),)
    )
    if row.name in ("reduce_any", "reduce_all"):
        return
    outs = [out for out in outs if is_inexact(out.dtype)]
    if outs:
        check_two_orders(outs, inputs, arrays, list(range(len(shapes))))
