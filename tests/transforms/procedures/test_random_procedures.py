"""Derivatives of random programs: reverse against forward, in both orders."""

from __future__ import annotations

import numpy as np
import pytest

from gradtape.ir.types import is_inexact
from gradtape.procedures.verifier import verify_procedure
from gradtape.transforms.procedures.jvp import jvp_procedure
from tests.transforms.procedures.evaluator import run_procedure
from tests.transforms.procedures.random_procedures import random_procedure
from tests.transforms.procedures.test_jvp import active_parameters
from tests.transforms.procedures.test_vjp import dot, pullback, seeded_results


def random_like(types, seed):
    rng = np.random.default_rng(seed)
    found = []
    for type_ in types:
        x = rng.normal(size=type_.shape)
        if type_.dtype.kind == "c":
            x = x + 1j * rng.normal(size=type_.shape)
        if is_inexact(type_.dtype):
            found.append(x.astype(type_.dtype))
    return found


def check(procedure, arguments, rtol):
    """Compare the pullback with the tangents by the adjoint identity, which is bilinear."""
    pulled = pullback(procedure)
    pushed = jvp_procedure(procedure, active_parameters(procedure))
    verify_procedure(pushed)
    count = len(procedure.results)
    tangents, seeds = random_like(procedure.types, 1), random_like(procedure.result_types, 2)
    results = run_procedure(pulled, [*arguments, *seeds])
    images = run_procedure(pushed, [*arguments, *tangents])
    for result, image, expected in zip(
        results[:count], images[:count], run_procedure(procedure, arguments), strict=True
    ):
        np.testing.assert_array_equal(result, expected)
        np.testing.assert_array_equal(image, expected)
    found, expected = dot(results[count:], tangents), dot(seeds, images[count:])
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=rtol * sum(np.abs(s).sum() for s in seeds))
    assert len(seeds) == seeded_results(procedure).count(True)
    return pushed, [*arguments, *tangents]


@pytest.mark.parametrize("seed", range(40))
def test_reverse_is_the_transpose_of_forward(seed):
    pushed, point = check(*random_procedure(seed), 1e-9)
    check(pushed, point, 1e-8)


@pytest.mark.parametrize("dtype", [np.float32, np.complex128])
@pytest.mark.parametrize("seed", range(100, 110))
def test_other_dtypes(seed, dtype):
    pushed, point = check(*random_procedure(seed, dtype), 1e-3 if dtype is np.float32 else 1e-9)
    if dtype is not np.float32:
        check(pushed, point, 1e-8)
