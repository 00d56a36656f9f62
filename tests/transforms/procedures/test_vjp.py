"""Reverse mode of procedures: the adjoint identity with forward mode, and second derivatives against differences."""

from __future__ import annotations

import numpy as np
import pytest

from gradtape.ir.types import is_inexact
from gradtape.procedures.verifier import verify_procedure
from gradtape.transforms.procedures.jvp import jvp_procedure
from gradtape.transforms.procedures.vjp import vjp_procedure
from tests.transforms.procedures.evaluator import run_procedure
from tests.transforms.procedures.samples import SAMPLES
from tests.transforms.procedures.test_jvp import active_parameters, directions, moved


def seeded_results(procedure):
    return [is_inexact(type_.dtype) for type_ in procedure.result_types]


def pullback(procedure):
    pulled = vjp_procedure(procedure, active_parameters(procedure), seeded_results(procedure))
    verify_procedure(pulled)
    return pulled


def seeds_of(procedure, seed=3):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=type_.shape) for type_ in procedure.result_types if is_inexact(type_.dtype)]


def dot(xs, ys):
    return sum(np.sum(x * y) for x, y in zip(xs, ys, strict=True))


def check_adjoint(procedure, arguments, rtol=1e-9):
    """Compare the pullback with the tangents: <ct, J dx> = <J^T ct, dx>."""
    count = len(procedure.results)
    pulled = pullback(procedure)
    seeds, tangents = seeds_of(procedure), directions(procedure, arguments)
    results = run_procedure(pulled, [*arguments, *seeds])
    for result, expected in zip(results[:count], run_procedure(procedure, arguments), strict=True):
        np.testing.assert_array_equal(result, expected)
    pushed = jvp_procedure(procedure, active_parameters(procedure))
    verify_procedure(pushed)
    images = run_procedure(pushed, [*arguments, *tangents])[count:]
    np.testing.assert_allclose(dot(results[count:], tangents), dot(seeds, images), rtol=rtol, atol=1e-10)
    return results[count:]


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.__name__)
def test_the_pullback_is_the_transpose_of_the_tangents(sample):
    cotangents = check_adjoint(*sample())
    if sample.__name__ != "zero_trips":
        assert all(np.any(cotangent) for cotangent in cotangents)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.__name__)
def test_second_derivatives(sample):
    """The pullback of the tangents: the adjoint identity, and the part in x against differences of the pullback."""
    procedure, arguments = sample()
    pushed = jvp_procedure(procedure, active_parameters(procedure))
    tangents = directions(procedure, arguments)
    check_adjoint(pushed, [*arguments, *tangents], 1e-8)
    if not seeded_results(procedure).count(True):
        return
    seeds = seeds_of(procedure)
    zeros = [np.zeros_like(seed) for seed in seeds]
    count = len(pushed.results)
    results = run_procedure(pullback(pushed), [*arguments, *tangents, *zeros, *seeds])[count:]
    first = pullback(procedure)

    def gradient(step):
        return run_procedure(first, [*moved(procedure, arguments, tangents, step), *seeds])[
            len(procedure.results) :
        ]

    for result, ahead, behind in zip(results[: len(tangents)], gradient(1e-6), gradient(-1e-6), strict=True):
        np.testing.assert_allclose(result, (ahead - behind) / 2e-6, rtol=1e-4, atol=1e-5)
