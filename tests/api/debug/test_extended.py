"""Linear algebra in extended precision, against NumPy and against rational arithmetic."""

from fractions import Fraction

import numpy as np
import pytest

import gradtape as gt
from gradtape.api.debug.linalg import evaluate_extended
from gradtape.api.debug.precision import EXTENDED, HAS_EXTENDED
from gradtape.kinds.registry import ROWS

pytestmark = pytest.mark.skipif(not HAS_EXTENDED, reason="long double is double on this machine")

SIDES = {"transposed": (False, True)}
TRIANGLES = {**SIDES, "lower": (False, True), "unit": (False, True)}


def options(names):
    """Yield all choices of options."""
    if not names:
        yield {}
        return
    (name, values), *rest = names.items()
    for value in values:
        for others in options(dict(rest)):
            yield {name: value, **others}


def extended(name, operands, params, seed=0):
    wide = [x.astype(np.clongdouble if x.dtype.kind == "c" else EXTENDED) for x in operands]
    return evaluate_extended(name, wide, params, np.random.default_rng(seed))


@pytest.mark.parametrize("complex_", [False, True])
@pytest.mark.parametrize("lead", [(), (2,), (2, 3)])
@pytest.mark.parametrize(
    ("name", "choices"),
    [
        ("lu_solve", SIDES),
        ("triangular_solve", TRIANGLES),
        ("determinant", {}),
        ("log_det", {}),
        ("adjugate", {}),
        ("cholesky", {}),
    ],
)
def test_results_are_those_of_the_row(name, choices, lead, complex_):
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(*lead, 4, 4)) + 3.0 * np.eye(4), rng.normal(size=(*lead, 4, 2))
    if complex_:
        a, b = a + 0.3j * rng.normal(size=a.shape), b + 1j * rng.normal(size=b.shape)
    if name == "cholesky":
        a = a @ np.swapaxes(a, -1, -2).conj()
    if name == "log_det" and complex_:
        pytest.skip("logarithms of complex determinants are not computed in extended precision")
    factors, pivots = ROWS["lu"].numpy(a)
    operands = {"triangular_solve": [a, b], "cholesky": [a], "lu_solve": [a, factors, pivots, b]}
    for params in options(choices):
        given = operands.get(name, [a, factors, pivots])
        (found,) = extended(name, given, params)
        assert found.dtype.itemsize > a.dtype.itemsize
        assert np.allclose(found.astype(a.dtype), ROWS[name].numpy(*given, **params), rtol=1e-11, atol=1e-12)


def test_solutions_have_more_digits_than_those_of_lapack():
    n = 7
    a = np.array([[1.0 / (i + j + 1) for j in range(n)] for i in range(n)])
    rows = [[Fraction(x) for x in row] + [Fraction(1)] for row in a]
    for k in range(n):
        for i in range(n):
            if i != k:
                factor = rows[i][k] / rows[k][k]
                rows[i] = [x - factor * y for x, y in zip(rows[i], rows[k], strict=True)]
    exact = np.array([float(rows[k][n] / rows[k][k]) for k in range(n)])
    b = np.ones((n, 1))
    found = [extended("lu_solve", [a, a, np.zeros(n), b], {"transposed": False}, seed)[0] for seed in (1, 2)]
    errors = [float(np.max(np.abs(x[:, 0] / exact - 1.0))) for x in found]
    assert max(errors) < 1e-9  # the condition number times 1e-19; 1e-8 in double precision
    assert not np.array_equal(*found)


@pytest.mark.parametrize("name", ["lu_solve", "determinant", "cholesky"])
def test_singular_and_large_matrices_are_left_to_derivatives(name):
    for a in (np.zeros((2, 2)), np.eye(300)):
        extra = [a, np.zeros(len(a)), a][: {"lu_solve": 3, "determinant": 2, "cholesky": 0}[name]]
        params = {"transposed": False} if name == "lu_solve" else {}
        assert extended(name, [a, *extra], params) is None


def test_a_solution_that_is_better_than_its_condition_has_its_digits():
    """Of a matrix of powers of two that has the condition number 1e12 all results are exact."""
    a = np.array([[1.0, 0.0], [0.0, 2.0**-40]])
    found = gt.debug.digits(lambda b: np.linalg.solve(a, b), np.array([1.0, 3.0]))
    assert found.value > 15.0 and found.derivative > 15.0 and not found.losses
