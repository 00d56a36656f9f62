"""Seeds of a Jacobian that are carried as positions and numbers are worth what they are as arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gradtape.ir.graph import Value, constant
from gradtape.ir.types import INTP
from gradtape.kinds.registry import ROWS
from gradtape.kinds.routines.matrix import Matrix
from gradtape.transforms.batch import batch
from gradtape.transforms.one_hot import OneHot
from tests.support.graphs import input_like, run
from tests.support.registry_cases import cases, structural_samples

RNG = np.random.default_rng(5)


def seeds(like: Value, whole: bool) -> OneHot:
    size = like.size
    rows = np.arange(size) if whole else np.array([size - 1, 0, size // 2])
    return OneHot(like.shape, like.dtype, constant(rows.astype(INTP)), whole)


def compare(row: Any, inputs: list[Value], arrays: list[Any], params: dict[str, Any]) -> int:
    """Batch a row over one-hot seeds and over the same seeds as arrays, for each of its float operands."""
    compared = 0
    for place, active in enumerate(inputs):
        if active.dtype != np.float64 or not active.size:
            continue
        if isinstance(row, Matrix) and place != row.linear_in:  # there is no factor of a matrix of zeros
            continue
        out = row(*inputs, **params)
        twice = out * 3.0 if out.dtype == np.float64 else out
        for whole in (True, False):
            hot = seeds(active, whole)
            (sparse,) = batch([twice], {active: hot}, hot.count, lambda value: False)
            (dense,) = batch([twice], {active: hot.dense()}, hot.count, lambda value: False)
            assert sparse is not None and dense is not None
            try:
                a, b = run([sparse, dense], inputs, arrays)
            except OverflowError:  # the seeds 0 and 1 are no numbers of Boost's quantiles
                if not row.name.endswith(("_ppf", "_isf")):
                    raise
                continue
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)
            compared += 1
    return compared


@pytest.mark.parametrize("row, sample", structural_samples())
def test_structural_row(row: Any, sample: Any) -> None:
    shapes, indices, params = sample
    if row.name in ("reduce_any", "reduce_all"):
        return
    arrays = [np.sort(RNG.standard_normal(shape)) if shape else RNG.standard_normal() for shape in shapes]
    if isinstance(row, Matrix):
        arrays[0] = arrays[0] + 10 * np.eye(*shapes[0][-2:])
    arrays += [np.asarray(index) for index in indices]
    compare(row, [input_like(np.asarray(array)) for array in arrays], list(map(np.asarray, arrays)), params)


@pytest.mark.parametrize("name", sorted({case.row.name for case in cases() if set(case.codes) <= set("d?")}))
def test_elementwise_row(name: str) -> None:
    case = next(case for case in cases() if case.row.name == name and set(case.codes) <= set("d?"))
    for shape in ((), (2, 3)):
        arrays = case.arrays(shape)
        compared = compare(case.row, [input_like(array) for array in arrays], arrays, case.params)
        assert compared or "d" not in case.codes


def test_a_product_with_the_identity_is_the_matrix() -> None:
    """Neither the identity nor a sum is left, so the first layer from behind costs nothing."""
    w, ct = input_like(np.zeros((3, 4))), Value(input_like(np.zeros(3)).aval)
    out = ROWS["contract"](ct, w, x=(0,), y=(0, 1), out=(1,))  # type: ignore[operator]
    (rows,) = batch([out], {ct: seeds(ct, True)}, 3, lambda value: False)
    assert rows is w


def test_a_selection_that_is_zero_elsewhere_stays_one_hot() -> None:
    mask, ct = input_like(np.zeros(3, bool)), Value(input_like(np.zeros(3)).aval)
    out = ROWS["where"](mask, ct, 0.0)  # type: ignore[operator]
    total = ROWS["reduce_sum"](out, axes=(0,))  # type: ignore[operator]
    (numbers,) = batch([total], {ct: seeds(ct, True)}, 3, lambda value: False)
    assert numbers is not None
    (found,) = run([numbers], [mask], [np.array([True, False, True])])
    assert found.tolist() == [1.0, 0.0, 1.0]


def test_two_uses_of_one_seed_add_up() -> None:
    x, ct = input_like(np.zeros(3)), Value(input_like(np.zeros(3)).aval)
    (rows,) = batch([ct * x - ct * 2.0], {ct: seeds(ct, True)}, 3, lambda value: False)
    assert rows is not None
    (found,) = run([rows], [x], [np.array([1.0, 2.0, 5.0])])
    np.testing.assert_array_equal(found, np.diag([-1.0, 0.0, 3.0]))


def test_infinite_factors_off_the_positions_do_no_harm() -> None:
    x, ct = input_like(np.zeros(2)), Value(input_like(np.zeros(2)).aval)
    (rows,) = batch([ct * x], {ct: seeds(ct, True)}, 2, lambda value: False)
    assert rows is not None
    (found,) = run([rows], [x], [np.array([np.inf, 2.0])])
    np.testing.assert_array_equal(found, [[np.inf, 0.0], [0.0, 2.0]])
