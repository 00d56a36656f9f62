"""Sparse matrices of SciPy with traced elements: SciPy's results, in jit and on tapes, and their derivatives."""

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg as spla

import gradtape as gt
from gradtape.errors import ShapeError, UnsupportedFunctionError
from tests.support.processes import words_printed

RNG = np.random.default_rng(0)
A = sp.random_array((5, 4), density=0.5, format="csr", rng=RNG)
B = sp.random_array((5, 4), density=0.4, format="csc", rng=RNG)
DENSE = RNG.random((5, 4))
D, X = A.data.copy(), RNG.random(4)
FIRST = int(A.indices[0])
MASK = np.array([True, False, True, True, False])


def made(d):
    return sp.csr_array((d, A.indices, A.indptr), shape=A.shape)


def from_coordinates(d):
    coordinates = A.tocoo()
    return sp.coo_array((d, (coordinates.row, coordinates.col)), shape=A.shape)


def repeated(d):
    return sp.coo_array((d, (np.zeros(len(d), int), np.arange(len(d)) % 3)), shape=(5, 4))


def matrix(d):
    return sp.csr_matrix((d, A.indices, A.indptr), shape=A.shape)


CASES = {
    "A @ x": lambda d, x: made(d) @ x,
    "constant @ x": lambda d, x: A @ x,
    "x @ A.T": lambda d, x: x @ made(d).T,
    "x @ constant.T": lambda d, x: x @ A.T,
    "dot": lambda d, x: made(d).dot(x),
    "A @ X": lambda d, x: made(d) @ np.outer(x, x),
    "X @ A": lambda d, x: np.ones((2, 5)) * x[0] @ made(d),
    "coo": lambda d, x: from_coordinates(d).tocsr() @ x,
    "coo @": lambda d, x: from_coordinates(d) @ x,
    "repeated": lambda d, x: repeated(d).tocsr(),
    "csc": lambda d, x: made(d).tocsc() @ x,
    "asformat": lambda d, x: made(d).asformat("csc").T @ d[:5],
    "slices": lambda d, x: made(d)[1:4, [0, 2]],
    "rows": lambda d, x: made(d)[1:2] @ x,
    "element": lambda d, x: made(d)[0, FIRST],
    "mask": lambda d, x: made(d)[MASK],
    "A + B": lambda d, x: made(d) + B,
    "B + A": lambda d, x: B + made(d),
    "B - A": lambda d, x: B - made(d),
    "kept zeros": lambda d, x: made(d * 0) + sp.csr_array((5, 4)),
    "A + dense": lambda d, x: made(d) + DENSE,
    "dense - A": lambda d, x: DENSE - made(d),
    "traced + A": lambda d, x: np.outer(np.ones(5), x) + made(d),
    "scaled": lambda d, x: made(d) * x[0] * 2,
    "A * dense": lambda d, x: made(d).multiply(DENSE),
    "A * x": lambda d, x: made(d) * x,
    "A * B": lambda d, x: made(d).multiply(B),
    "constant * x": lambda d, x: A.multiply(x),
    "A / x": lambda d, x: made(d) / x[1],
    "negative": lambda d, x: -made(d),
    "power": lambda d, x: made(d) ** 2,
    "sine": lambda d, x: made(d).sin(),
    "abs": lambda d, x: abs(made(d)),
    "sum": lambda d, x: made(d).sum(),
    "sum 0": lambda d, x: made(d).sum(axis=0),
    "sum 1": lambda d, x: made(d).sum(axis=1),
    "mean": lambda d, x: made(d).mean(axis=1),
    "tril": lambda d, x: sp.tril(made(d), -1),
    "reshaped": lambda d, x: made(d).reshape(4, 5),
    "largest": lambda d, x: made(d).max(),
    "diagonal": lambda d, x: made(d).diagonal(1),
    "trace": lambda d, x: made(d).trace(),
    "toarray": lambda d, x: made(d).toarray(),
    "A.T @ A": lambda d, x: made(d).T @ made(d),
    "B.T @ A": lambda d, x: B.T @ made(d),
    "kron": lambda d, x: sp.kron(made(d), sp.eye_array(2)),
    "hstack": lambda d, x: sp.hstack([made(d), B]),
    "vstack": lambda d, x: sp.vstack([made(d), A]),
    "block_array": lambda d, x: sp.block_array([[made(d), None], [None, B]]),
    "block_diag": lambda d, x: sp.block_diag([made(d), A]),
    "diags_array": lambda d, x: sp.diags_array([x, x[1:]], offsets=[0, 1]),
    "one diagonal": lambda d, x: sp.diags_array(x),
    "eye": lambda d, x: sp.eye_array(4) * x[0] + sp.diags_array(x),
    "matrix * x": lambda d, x: matrix(d) * x,
    "matrix ** 2": lambda d, x: (matrix(d).T * matrix(d)) ** 2,
    "copy": lambda d, x: made(d).copy() @ x,
    "dia @ x": lambda d, x: sp.dia_array((np.ones((1, 4)), [0]), shape=(4, 4)) @ x,
    "lil @ x": lambda d, x: A.tolil() @ x,
    "of dense": lambda d, x: sp.csr_array(np.outer(x, x)),
}


def dense(result):
    return result.toarray() if sp.issparse(result) else result


@pytest.mark.parametrize("name", CASES)
def test_operations_are_scipys_and_differentiated(name):
    def function(d, x):
        return dense(CASES[name](d, x))

    expected = function(D, X)
    np.testing.assert_allclose(gt.jit(function)(D, X), expected, rtol=1e-12)
    with gt.GradientTape() as tape:
        d, x = tape.watch(D), tape.watch(X)
        result = function(d, x)
        cost = np.sum(result**2)
    np.testing.assert_allclose(result, expected, rtol=1e-12)
    found = tape.gradient(cost, (d, x), unconnected_gradients="zero")
    compiled = gt.grad(lambda d, x: np.sum(function(d, x) ** 2), argnums=(0, 1))(D, X)
    for one, other in zip(found, compiled, strict=True):
        np.testing.assert_allclose(one.numpy(), other, rtol=1e-10, atol=1e-14)
    step = 1e-6
    for k, one in enumerate(compiled):
        for j in range(len(one)):
            costs = []
            for sign in (1, -1):
                moved = [D.copy(), X.copy()]
                moved[k][j] += sign * step
                costs.append(np.sum(function(*moved) ** 2))
            np.testing.assert_allclose(one[j], (costs[0] - costs[1]) / (2 * step), rtol=1e-6, atol=1e-7)


N = 6
S = (sp.random_array((N, N), density=0.3, format="csr", rng=RNG) + 3 * sp.eye_array(N)).tocsr()
E, R = S.data.copy(), RNG.random(N)
TIGHT = {"rtol": 1e-13}


def square(d):
    return sp.csr_array((d, S.indices, S.indptr), shape=S.shape)


SYSTEMS = {
    "spsolve": lambda d, b: spla.spsolve(square(d), b),
    "several columns": lambda d, b: spla.spsolve(square(d).tocsc(), np.outer(b, b)),
    "constant matrix": lambda d, b: spla.spsolve(S, b),
    "splu": lambda d, b: spla.splu(square(d).tocsc()).solve(b),
    "splu of a constant": lambda d, b: spla.splu(S.tocsc()).solve(b),
    "transposed": lambda d, b: spla.splu(square(d).tocsc()).solve(b, "T"),
    "factorized": lambda d, b: spla.factorized(square(d).tocsc())(b),
    "cg": lambda d, b: spla.cg(square(d) @ square(d).T, b, **TIGHT)[0],
    "gmres": lambda d, b: spla.gmres(square(d), b, **TIGHT)[0],
}


@pytest.mark.parametrize("name", SYSTEMS)
def test_systems_are_solved_and_differentiated(name):
    function = SYSTEMS[name]
    expected = function(E, R)
    np.testing.assert_allclose(gt.jit(function)(E, R), expected, rtol=1e-9)
    gt.check_grads(function, (E, R), order=2 if name in ("spsolve", "transposed") else 1)
    with gt.GradientTape() as tape:
        d, b = tape.watch(E), tape.watch(R)
        cost = np.sum(function(d, b) ** 2)
    found = tape.gradient(cost, (d, b), unconnected_gradients="zero")
    compiled = gt.grad(lambda d, b: np.sum(function(d, b) ** 2), argnums=(0, 1))(E, R)
    for one, other in zip(found, compiled, strict=True):
        np.testing.assert_allclose(one.numpy(), other, rtol=1e-8, atol=1e-12)
    rows = RNG.random((3, N))
    np.testing.assert_allclose(
        gt.vmap(function, in_axes=(None, 0))(E, rows), [function(E, b) for b in rows], rtol=1e-9
    )


def test_convergence_is_said():
    assert gt.jit(lambda b: spla.cg(S @ S.T, b)[1])(R) == 0
    with pytest.warns(gt.errors.GradtapeWarning, match="cg has not converged: the residual is"):
        info = gt.jit(lambda b: spla.cg(S @ S.T, b, maxiter=1)[1])(R)
    assert info == 1


def test_singular_matrices_are_said():
    with pytest.warns(spla.MatrixRankWarning):
        found = gt.jit(lambda b: spla.spsolve(sp.csc_array((2, 2)) * b[0] + sp.diags_array(0 * b), b))(
            np.ones(2)
        )
    assert np.isnan(found).all()


def test_matrices_are_containers():
    gradient = gt.grad(lambda A, x: np.sum((A @ x) ** 2))(A, X)
    assert isinstance(gradient, sp.csr_array)
    np.testing.assert_allclose(gradient.toarray(), np.where(A.toarray() != 0, np.outer(2 * (A @ X), X), 0))
    with gt.GradientTape() as tape:
        watched = tape.watch(A)
        cost = np.sum((watched @ X) ** 2)
    np.testing.assert_allclose(tape.gradient(cost, watched).toarray(), gradient.toarray())
    scaled = gt.jit(lambda A: A * 2)
    for pattern in (A, B.tocsr(), A):
        np.testing.assert_allclose(scaled(pattern).toarray(), 2 * pattern.toarray())
    changed = A.copy()
    double = gt.jit(lambda x: changed @ x)
    double(X)
    changed.data *= 3
    np.testing.assert_allclose(double(X), 3 * (A @ X))


def test_matrices_are_arguments_of_the_first_function_of_a_process():
    program = (
        "import numpy as np, scipy.sparse as sp, gradtape as gt\n"
        "A = sp.csr_array(np.array([[1.0, 2.0], [0.0, 3.0]]))\n"
        "print(gt.grad(lambda A: np.sum((A @ np.ones(2)) ** 2))(A).data.tolist())"
    )
    assert words_printed(program) == ["[6.0,", "6.0,", "6.0]"]


def test_sparse_derivatives_inside_of_traced_functions():
    def residuals(x):
        return x**2 + 3 * np.roll(x, 1)

    x = np.arange(1.0, 6.0)
    jac = gt.sparse_jacobian(residuals)
    step = gt.jit(lambda x: x - spla.spsolve(jac(x).tocsc(), residuals(x)))(x)
    np.testing.assert_allclose(step, x - np.linalg.solve(gt.jacobian(residuals)(x), residuals(x)))
    found = gt.grad(lambda x: np.sum((jac(x) @ x) ** 2))(x)
    np.testing.assert_allclose(found, gt.grad(lambda x: np.sum((gt.jacobian(residuals)(x) @ x) ** 2))(x))


@pytest.mark.parametrize(
    "function",
    [
        lambda d: made(d).maximum(B),
        lambda d: made(d).tolil(),
        lambda d: made(d) / B,
        lambda d: sp.csr_array((D, (d > 0.5) * 1, A.indptr)),
        lambda d: spla.splu(square(d[:1] * np.ones(len(E))).tocsc()).L,
        lambda d: spla.cg(square(E), R, x0=d[:N]),
        lambda d: gt.vmap(lambda A: A @ X)(made(d)),
    ],
)
def test_what_is_refused(function):
    with pytest.raises(UnsupportedFunctionError, match="not followed"):
        gt.jit(lambda d: dense(function(d)))(D)


def test_stacks_and_jacobians_in_matrices_are_refused():
    for function in (
        lambda: gt.vmap(lambda x: A * x[0])(np.ones((3, 4))),
        lambda: gt.jacobian(lambda A: A @ X)(A),
    ):
        with pytest.raises(ShapeError, match="cannot hold elements of shape"):
            function()


def test_wrong_index_arrays_of_scipys_own_are_refused():
    wrong = A.copy()
    wrong.indices = wrong.indices + 3
    with pytest.raises(IndexError, match="outside of 0 to 3"):
        gt.jit(lambda x: wrong @ x)(X)


def test_rows_that_are_empty_or_begin_late():
    for dense_ in ([[0.0, 0], [1, 2], [0, 0]], [[3.0, 4], [0, 0], [5, 0]], np.zeros((3, 2))):
        part = sp.csr_array(np.asarray(dense_))
        np.testing.assert_array_equal(gt.jit(lambda x, part=part: part @ x)(X[:2]), part @ X[:2])
        single = part.astype(np.float32)
        found = gt.jit(lambda x, single=single: single @ x)(X[:2].astype(np.float32))
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, single @ X[:2].astype(np.float32), rtol=1e-6)


def test_shapes_that_do_not_fit():
    for function in (
        lambda x: A @ x[:3],
        lambda x: A + B.T * x[0],
        lambda x: sp.csr_array((x[:2], A.indices, A.indptr), shape=A.shape),
        lambda x: spla.spsolve(S, x),
    ):
        with pytest.raises(ValueError, match=r"shape|dimension|length"):
            gt.jit(lambda x, f=function: dense(f(x)))(X)
