"""Forward mode of procedures, against central differences."""

from __future__ import annotations

import numpy as np
import pytest

from gradtape.ir.types import is_inexact
from gradtape.procedures.verifier import verify_procedure
from gradtape.transforms.procedures.jvp import jvp_procedure
from tests.transforms.procedures.evaluator import run_procedure
from tests.transforms.procedures.samples import SAMPLES, cholesky, soft_dtw


def active_parameters(procedure):
    return [is_inexact(type_.dtype) for type_ in procedure.types]


def directions(procedure, arguments, seed=1):
    """Return random tangents of the inexact arguments."""
    rng = np.random.default_rng(seed)
    return [rng.normal(size=np.shape(x)) for x in arguments if is_inexact(np.asarray(x).dtype)]


def moved(procedure, arguments, tangents, step):
    """Return arguments that are moved along tangents."""
    tangents = iter(tangents)
    return [
        x + step * next(tangents) if flag else x
        for x, flag in zip(arguments, active_parameters(procedure), strict=True)
    ]


def difference(procedure, arguments, tangents, step=1e-6):
    """Return central differences of the inexact results along tangents."""
    ahead = run_procedure(procedure, moved(procedure, arguments, tangents, step))
    behind = run_procedure(procedure, moved(procedure, arguments, tangents, -step))
    return [(a - b) / (2 * step) for a, b in zip(ahead, behind, strict=True) if is_inexact(a.dtype)]


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.__name__)
def test_tangents_are_those_of_differences(sample):
    procedure, arguments = sample()
    pushed = jvp_procedure(procedure, active_parameters(procedure))
    verify_procedure(pushed)
    tangents = directions(procedure, arguments)
    results = run_procedure(pushed, [*arguments, *tangents])
    count = len(procedure.results)
    primal = run_procedure(procedure, arguments)
    for result, expected in zip(results[:count], primal, strict=True):
        np.testing.assert_array_equal(result, expected)
    expected = difference(procedure, arguments, tangents)
    assert len(expected) == len(results) - count
    for result, tangent in zip(results[count:], expected, strict=True):
        np.testing.assert_allclose(result, tangent, rtol=1e-6, atol=1e-6)
    if sample.__name__ != "zero_trips":
        assert any(np.any(tangent) for tangent in results[count:])


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.__name__)
def test_second_tangents_are_those_of_differences(sample):
    procedure, arguments = sample()
    pushed = jvp_procedure(procedure, active_parameters(procedure))
    twice = jvp_procedure(pushed, active_parameters(pushed))
    point = [*arguments, *directions(procedure, arguments, 2)]
    tangents = directions(pushed, point)
    results = run_procedure(twice, [*point, *tangents])[len(pushed.results) :]
    for result, tangent in zip(results, difference(pushed, point, tangents), strict=True):
        np.testing.assert_allclose(result, tangent, rtol=2e-5, atol=1e-5)


def test_what_is_not_active_has_no_tangent():
    procedure, arguments = soft_dtw()
    pushed = jvp_procedure(procedure, [True, False, False])
    assert len(pushed.parameters) == 4
    tangent = np.ones(np.shape(arguments[0]))
    zeros = np.zeros(np.shape(arguments[1]))
    (expected,) = difference(procedure, arguments, [tangent, zeros, 0.0])
    np.testing.assert_allclose(run_procedure(pushed, [*arguments, tangent])[1], expected, rtol=1e-6)


def test_a_result_without_a_path_has_a_tangent_of_zeros():
    procedure, arguments = cholesky()
    pushed = jvp_procedure(procedure, [False])
    assert not run_procedure(pushed, arguments)[1].any()
