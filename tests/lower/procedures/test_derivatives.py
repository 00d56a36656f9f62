"""Derivatives of procedures as machine code, against the evaluator of the tests."""

import numpy as np
import pytest

from gradtape.transforms.procedures.jvp import jvp_procedure
from tests.lower.procedures.standalone import compile_procedure
from tests.transforms.procedures.evaluator import run_procedure
from tests.transforms.procedures.samples import SAMPLES
from tests.transforms.procedures.test_jvp import active_parameters, directions
from tests.transforms.procedures.test_vjp import pullback, seeds_of


def check(procedure, arguments):
    for expected, found in zip(
        run_procedure(procedure, arguments), compile_procedure(procedure)(*arguments), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.__name__)
def test_primal_and_gradient(sample):
    procedure, arguments = sample()
    check(procedure, arguments)
    check(pullback(procedure), [*arguments, *seeds_of(procedure)])


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.__name__)
def test_tangents_and_their_gradient(sample):
    procedure, arguments = sample()
    pushed = jvp_procedure(procedure, active_parameters(procedure))
    given = [*arguments, *directions(procedure, arguments)]
    check(pushed, given)
    check(pullback(pushed), [*given, *seeds_of(pushed)])
