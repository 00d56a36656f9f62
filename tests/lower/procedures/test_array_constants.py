"""Array computations whose graphs hold arrays."""

import numpy as np

from gradtape.procedures.fingerprint import procedure_digest
from gradtape.transforms.procedures.vjp import vjp_procedure
from tests.lower.procedures.standalone import compile_procedure
from tests.support.array_programs import procedure_of, run

RNG = np.random.default_rng(0)


def positive(n):
    """Return a positive definite matrix."""
    factor = RNG.normal(size=(n, n))
    return factor @ factor.T + n * np.eye(n)


def test_the_identity_of_an_inverse_is_part_of_the_program():
    matrix = positive(80)
    procedure = procedure_of(lambda build, a: np.linalg.inv(a), matrix)
    np.testing.assert_allclose(compile_procedure(procedure)(matrix)[0], np.linalg.inv(matrix), atol=1e-12)


def test_the_pullback_of_a_factor_has_a_constant():
    matrix, direction, seed = positive(20), RNG.normal(size=(20, 20)), RNG.normal(size=(20, 20))
    primal = procedure_of(lambda build, a: np.linalg.cholesky(a), matrix)
    pullback = vjp_procedure(primal, [True], [True])
    (value, cotangent), (interpreted, expected) = (
        compile_procedure(pullback)(matrix, seed),
        run(pullback, matrix, seed),
    )
    np.testing.assert_allclose(value, interpreted, atol=1e-12)
    np.testing.assert_allclose(cotangent, expected, atol=1e-12)
    step = 1e-6 * (direction + direction.T)
    change = np.linalg.cholesky(matrix + step) - np.linalg.cholesky(matrix - step)
    np.testing.assert_allclose(np.sum(seed * change) / 2e-6, np.sum(cotangent * step) / 1e-6, rtol=1e-6)


def test_the_numbers_of_a_constant_count():
    def shifted(number):
        return procedure_of(lambda build, a: np.convolve(a, np.full(3, number)), np.ones(8))

    shifted(0.0)  # what is recorded a second time is recorded in another form
    first, second, again = (procedure_digest(shifted(number)) for number in (1.0, 2.0, 1.0))
    assert first == again != second
