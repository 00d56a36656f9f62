"""Linear algebra: values and errors are NumPy's, derivatives are right to the second order, and kernels do what the interpreter does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gradtape as gt
import gradtape.ops
from gradtape.ir.graph import Value
from gradtape.kinds.registry import ROWS
from gradtape.kinds.routines.matrix import Matrix
from gradtape.ops.core.linalg.bands import band_lu
from gradtape.ops.core.matrices import lu
from tests.support.graphs import check_derivatives, input_like, run
from tests.support.lowering import Compiled, graph_of
from tests.support.programs.matrices import RNG, STACK, A, Array, B, Function, bent, definite


def takes_factors(row: Any) -> bool:
    """Whether the second and third operand of a row are the factors and pivots of the first."""
    return "pivots" in row.shapes.__code__.co_varnames


def factored(name: str, a: Value, params: dict[str, Any]) -> Any:
    """Return the factors and pivots that a row takes."""
    if name == "band_lu_solve":
        return band_lu.results(a, lower=params["lower"], upper=params["upper"])
    return lu.results(a)


@pytest.mark.parametrize("dtype", ["f", "d"])
@pytest.mark.parametrize("name", sorted(name for name, row in ROWS.items() if isinstance(row, Matrix)))
def test_the_routine_of_a_row_does_what_its_evaluation_does(name: str, dtype: str) -> None:
    row: Any = ROWS[name]
    for *shapes, params in row.samples:
        arrays = [RNG.normal(size=shape).astype(dtype) for shape in shapes]
        if not row.routine.is_rectangular:
            arrays[0] = definite(arrays[0]).astype(dtype)
        if takes_factors(row):
            a = input_like(arrays[0])
            arrays[1:3] = run(factored(name, a, params), [a], arrays[:1])
        inputs = [input_like(array) for array in arrays]
        outs = row.results(*inputs, **params)
        expected = run(outs, inputs, arrays)
        if any(0 in array.shape for array in (*expected, arrays[0])):
            continue
        tolerance = 1e-10 if dtype == "d" else 2e-4
        for actual, array in zip(Compiled(graph_of(inputs, outs))(arrays), expected, strict=True):
            assert array.dtype == dtype or array.dtype.kind == "i"
            np.testing.assert_allclose(actual, array, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", sorted(name for name, row in ROWS.items() if isinstance(row, Matrix)))
def test_results_that_nobody_reads_need_not_be_outputs(name: str) -> None:
    row: Any = ROWS[name]
    *shapes, params = row.samples[0]
    arrays = [RNG.normal(size=shape) for shape in shapes]
    if not row.routine.is_rectangular:
        arrays[0] = definite(arrays[0])
    if takes_factors(row):
        a = input_like(arrays[0])
        arrays[1:3] = run(factored(name, a, params), [a], arrays[:1])
    inputs = [input_like(array) for array in arrays]
    outs = row.results(*inputs, **params)
    for out, expected in zip(outs, run(outs, inputs, arrays), strict=True):
        (actual,) = Compiled(graph_of(inputs, [out]))(arrays)
        np.testing.assert_allclose(actual, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", sorted(name for name, row in ROWS.items() if isinstance(row, Matrix)))
def test_a_row_is_differentiated_in_both_directions(name: str) -> None:
    """Of symmetric matrices, by which rows that see one triangle are what they say in any direction that is symmetric."""
    row: Any = ROWS[name]
    if name == "pseudoinverse":  # of operands that belong together: see the programs
        return
    for *shapes, params in row.samples:
        arrays = [RNG.normal(size=shape) for shape in shapes]
        inputs = [input_like(array) for array in arrays]
        matrix = inputs[0]
        if not row.routine.is_rectangular:
            matrix = matrix + _transposed(inputs[0]) + np.broadcast_to(8 * np.eye(shapes[0][-1]), shapes[0])
        operands = [matrix, *inputs[1:]]
        if takes_factors(row):
            operands[1:3] = factored(name, matrix, params)
        if row.tangent is not None:
            check_derivatives(list(row.results(*operands, **params)), inputs, arrays)


def _transposed(x: Value) -> Value:
    return ROWS["permute"](x, axes=(*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))  # type: ignore[operator]


def test_one_factorisation_serves_a_solution_and_its_derivatives() -> None:
    def loss(a: Any, b: Any) -> Any:
        return np.sum(np.linalg.solve(a, b) ** 2)

    text = str(gt.inspect.graph(gt.value_and_grad(loss, argnums=(0, 1)), A, B, optimised=True))
    assert text.count("= lu(") == 1
    assert text.count("= lu_solve(") == 2


@pytest.mark.parametrize("way", [lambda f: f, gt.jit, lambda f: gt.grad(lambda a: np.sum(f(a)))])
@pytest.mark.parametrize(
    ("function", "bad"),
    [
        (lambda a: np.linalg.solve(a, np.ones(2)), np.array([[1.0, 2.0], [2.0, 4.0]])),
        (np.linalg.inv, np.zeros((2, 2))),
        (np.linalg.cholesky, -np.eye(2)),
        (np.linalg.inv, np.ones((2, 3))),
        (np.linalg.det, np.ones(3)),
    ],
)
def test_errors_are_numpys(way: Function, function: Function, bad: Array) -> None:
    good = 2 * np.eye(2)
    followed = way(function)
    for _ in range(2):
        with pytest.raises(np.linalg.LinAlgError):
            followed(bad)
        followed(good)


def test_a_failure_in_a_stack_or_a_loop_is_told() -> None:
    stack = np.stack([np.eye(2), np.zeros((2, 2))])
    with pytest.raises(np.linalg.LinAlgError):
        gt.jit(np.linalg.inv)(stack)

    def loop(a: Any) -> Any:
        x = np.ones(2)
        for _ in range(20):
            x = np.linalg.solve(a, x)
        return x

    compiled = gt.jit(loop)
    np.testing.assert_allclose(compiled(2 * np.eye(2)), np.full(2, 0.5**20))
    with pytest.raises(np.linalg.LinAlgError):
        compiled(np.zeros((2, 2)))


def test_the_determinant_of_a_singular_matrix_has_a_derivative() -> None:
    a = np.array([[1.0, 2.0], [2.0, 4.0]])
    np.testing.assert_allclose(gt.grad(np.linalg.det)(a), [[4.0, -2.0], [-2.0, 1.0]])
    sign, size = gt.jit(np.linalg.slogdet)(np.zeros((4, 4)))
    assert (sign, size) == (0.0, -np.inf)
    assert gt.jit(np.linalg.det)(np.zeros((4, 4))) == 0.0


def test_gradients_of_symmetric_functions_are_symmetric() -> None:
    s = definite(A)
    for function in (
        lambda a: bent(np.linalg.cholesky(a)),
        lambda a: bent(np.linalg.eigvalsh(a)),
        lambda a: bent(np.linalg.eigh(a, "U")[1] ** 2),
    ):
        slope = gt.grad(function)(s)
        np.testing.assert_allclose(slope, slope.T)


def test_equal_eigenvalues_have_finite_derivatives() -> None:
    slope = gt.grad(lambda a: np.sum(np.linalg.eigvalsh(a) ** 2))(np.eye(3))
    np.testing.assert_allclose(slope, 2 * np.eye(3), atol=1e-12)
    assert np.isfinite(gt.grad(lambda a: bent(np.linalg.eigh(a)[1]))(np.eye(3))).all()


def test_complex_matrices() -> None:
    z = A + 1j * A[::-1] / 3
    hermitian = z @ z.conj().T + np.eye(4)
    for function, x in (
        (lambda a: np.linalg.solve(a, B), z),
        (np.linalg.inv, z),
        (np.linalg.det, z),
        (np.linalg.cholesky, hermitian),
        (np.linalg.eigvalsh, hermitian),
        (lambda a: np.linalg.slogdet(a).sign, z),
        (lambda a: np.linalg.slogdet(a).logabsdet, z),
    ):
        np.testing.assert_allclose(gt.jit(function)(x), function(x), rtol=1e-9, atol=1e-10)

    def real_of(x: Any) -> Any:
        z = x + 1j * x[::-1] / 3
        h = z @ np.conj(z.T) + np.eye(4)
        parts = [
            np.linalg.inv(z),
            np.linalg.cholesky(h),
            np.linalg.eigh(h)[1] * np.conj(np.linalg.eigh(h)[1]),
        ]
        total = sum(bent(part.real) + np.sum(part.imag**2) for part in parts)
        return (
            total
            + np.linalg.det(z).imag
            + np.linalg.slogdet(z).sign.real
            + np.sum(np.linalg.eigvalsh(h) ** 2)
        )

    gt.check_grads(real_of, (A,), order=1)


def test_stacks_are_mapped() -> None:
    for function in (np.linalg.inv, np.linalg.slogdet, lambda a: np.linalg.cholesky(definite(a))):
        found, wanted = gt.vmap(function)(STACK), function(STACK)
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)


def test_the_rank_is_a_number_of_the_trace() -> None:
    b = np.arange(4.0)
    for a in (A[:, :2], A[:, [0, 0]]):
        found, wanted = gt.jit(lambda a: np.linalg.lstsq(a, b))(a), np.linalg.lstsq(a, b)
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)
    for bad in (lambda a: np.linalg.lstsq(a[0], b), lambda a: np.linalg.lstsq(a, b[:2])):
        with pytest.raises(np.linalg.LinAlgError):
            gt.jit(bad)(A)


def test_complex_factors() -> None:
    def real_of(x: Any) -> Any:
        z = x + 1j * x[::-1] / 3
        parts = [*np.linalg.qr(z), np.linalg.pinv(z[:, :2]), np.linalg.svd(z, compute_uv=False)]
        left, numbers, right = np.linalg.svd(z, full_matrices=False)
        again = (left * numbers) @ right
        return sum(bent(part.real) + np.sum(part.imag**2) for part in (*parts, again, left @ right))

    np.testing.assert_allclose(gt.jit(real_of)(A), real_of(A))
    gt.check_grads(real_of, (A,), order=1)


def test_reflections_are_refused() -> None:
    with pytest.raises(gt.errors.UnsupportedFunctionError, match="what to do"):
        gt.jit(lambda a: np.linalg.qr(a, "raw")[0])(A[:, :2])


@pytest.mark.parametrize(
    "function", [lambda a: np.linalg.svd(a)[0], lambda a: np.linalg.qr(a, "complete")[0]]
)
def test_vectors_that_complete_a_basis_move_along_the_others_only(function: Function) -> None:
    a = A[:, :2]
    step = np.ones_like(a)
    basis, moved = gt.jvp(function, (a,), (step,))
    rest = basis[:, 2:]
    np.testing.assert_allclose(basis, function(a), rtol=1e-12)
    np.testing.assert_allclose(moved.T @ basis + basis.T @ moved, 0, atol=1e-12)
    np.testing.assert_allclose(rest.T @ moved[:, 2:], 0, atol=1e-12)
