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
    "dia_array": lambda d, x: sp.dia_array((np.stack([x, 2 * x]), [1, -2]), shape=(5, 4)),
    "dia_matrix": lambda d, x: sp.dia_matrix((x, 0), shape=(4, 4)) @ x - sp.csr_matrix(np.eye(4)) @ x,
    "one diagonal": lambda d, x: sp.diags_array(x),
    "lists": lambda d, x: sp.coo_array(([x[0], x[1], 1.0], ([0, 1, 1], [2, 0, 0])), shape=(3, 3)),
    "tuples": lambda d, x: sp.csr_array((tuple(x[:2]), ((0, 1), (2, 0))), shape=(3, 3), dtype=float),
    "spdiags": lambda d, x: sp.spdiags(np.stack([x, 2 * x]), [1, -2], 5, 3),
    "eye": lambda d, x: sp.eye_array(4) * x[0] + sp.diags_array(x),
    "matrix * x": lambda d, x: matrix(d) * x,
    "matrix ** 2": lambda d, x: (matrix(d).T * matrix(d)) ** 2,
    "copy": lambda d, x: made(d).copy() @ x,
    "dia @ x": lambda d, x: sp.dia_array((np.ones((1, 4)), [0]), shape=(4, 4)) @ x,
    "lil @ x": lambda d, x: A.tolil() @ x,
    "maximum": lambda d, x: made(d).maximum(B * 0.5),
    "minimum": lambda d, x: B.minimum(made(d)),
    "clipped": lambda d, x: made(d).minimum(0.0),
    "norm": lambda d, x: spla.norm(made(d)) * spla.norm(made(d), 1) * spla.norm(made(d), np.inf),
    "norms": lambda d, x: spla.norm(made(d), axis=1) * spla.norm(made(d), 1, axis=1),
    "inv": lambda d, x: spla.inv((made(d).T @ made(d) + sp.eye_array(4)).tocsc()),
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
    "adjoint": lambda d, b: np.abs(spla.splu(square(d * (1 + 2j)).tocsc()).solve(b * (1 + 0j), "H")),
    "factorized": lambda d, b: spla.factorized(square(d).tocsc())(b),
    "cg": lambda d, b: spla.cg(square(d) @ square(d).T, b, **TIGHT)[0],
    "gmres": lambda d, b: spla.gmres(square(d), b, **TIGHT)[0],
    "of a dense matrix": lambda d, b: spla.bicgstab(square(d).toarray(), b, **TIGHT)[0],
    "of a wrapped matrix": lambda d, b: spla.gmres(spla.aslinearoperator(S), b, **TIGHT)[0],
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
        lambda d: made(d).maximum(d[0]),
        lambda d: made(d).max(axis=0),
        lambda d: made(d).setdiag(d[:4]),
        lambda d: spla.expm(square(E * d[0])),
        lambda d: spla.spilu(square(E * d[0]).tocsc()).solve(R),
        lambda d: made(d).tolil(),
        lambda d: made(d).tocoo().todia(),
        lambda d: sp.dia_array(np.diag(d)),
        lambda d: sp.bsr_array((np.reshape(d, (-1, 1, 1)), [0], [0, len(D)])),
        lambda d: made(d) / B,
        lambda d: sp.csr_array((D, (d > 0.5) * 1, A.indptr)),
        lambda d: spla.splu(square(d[:1] * np.ones(len(E))).tocsc()).L,
        lambda d: gt.vmap(lambda A: A @ X)(made(d)),
    ],
)
def test_what_is_refused(function):
    with pytest.raises(UnsupportedFunctionError, match="not supported"):
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
    with pytest.raises(IndexError, match="outside 0 to 3"):
        gt.jit(lambda x: wrong @ x)(X)


def test_index_arrays_that_are_written_to_are_seen():
    """A pattern is compared with its copy in each call, though its arrays are the same objects."""
    compiled = gt.jit(lambda matrix, x: matrix @ x)
    matrix, x = A.copy(), X.copy()
    for _ in range(3):
        np.testing.assert_allclose(compiled(matrix, x), matrix.toarray() @ x, rtol=1e-13)
    matrix.indices[:] = (matrix.indices + 1) % 4
    np.testing.assert_allclose(compiled(matrix, x), matrix.toarray() @ x, rtol=1e-13)
    (slope,) = gt.grad(lambda matrix: np.sum((matrix @ x) ** 2), argnums=(0,))(matrix)
    np.testing.assert_array_equal(slope.indices, matrix.indices)
    assert gt.jit(lambda other: other @ x)(A.tocsc()).shape == (5,)


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


T = (sp.random_array((9, 5), density=0.6, format="csr", rng=RNG) + sp.eye_array(9, 5)).tocsr()
EXACT = {"atol": 1e-14, "btol": 1e-14}
SCALED = sp.diags_array(1 / S.diagonal()).tocsr()
OPERATOR = spla.LinearOperator((N, N), matvec=lambda x: SCALED @ x, rmatvec=lambda x: SCALED @ x)


def symmetric(d):
    return (square(d) + square(d).T + sp.diags_array(2.0 * np.arange(N))) / 2


def tall(d):
    return sp.csr_array((d, T.indices, T.indptr), shape=T.shape)


def low_rank(d, b):
    u, s, vh = spla.svds(tall(d), k=2, v0=np.ones(5))
    return u * s @ vh


ITERATIONS: list[int] = []

FUNCTIONS = {
    "eigsh": (lambda d, b: spla.eigsh(symmetric(d), k=2, v0=np.ones(N))[0], E, R),
    "eigenvectors": (lambda d, b: spla.eigsh(symmetric(d), 2, v0=np.ones(N))[1] ** 2, E, R),
    **{
        f"eigsh, {which}": (
            lambda d, b, which=which: spla.eigsh(
                symmetric(d), 3, which=which, v0=np.ones(N), return_eigenvectors=False
            ),
            E,
            R,
        )
        for which in ("SM", "SA")
    },
    "near sigma": (
        lambda d, b: spla.eigsh(symmetric(d), 3, sigma=0.1, v0=np.ones(N), return_eigenvectors=False),
        E,
        R,
    ),
    "svds": (lambda d, b: spla.svds(tall(d), k=2, v0=np.ones(5), return_singular_vectors=False), T.data, R),
    "low rank": (low_rank, T.data, R),
    "spsolve_triangular": (lambda d, b: spla.spsolve_triangular(sp.tril(square(d)).tocsr(), b), E, R),
    "unit diagonal": (
        lambda d, b: spla.spsolve_triangular(sp.triu(square(d)).tocsr(), b, lower=False, unit_diagonal=True),
        E,
        R,
    ),
    "lsqr": (lambda d, b: spla.lsqr(tall(d), b, **EXACT)[0], T.data, RNG.random(9)),
    "residual": (lambda d, b: spla.lsqr(tall(d), b, **EXACT)[3], T.data, RNG.random(9)),
    "lsmr": (lambda d, b: spla.lsmr(tall(d), b, 0.5, **EXACT)[0], T.data, RNG.random(9)),
    "start and callback": (
        lambda d, b: spla.cg(
            square(d) @ square(d).T, b, x0=np.ones(N), callback=lambda x: ITERATIONS.append(1), **TIGHT
        )[0],
        E,
        R,
    ),
    "preconditioner": (lambda d, b: spla.gmres(square(d), b, M=SCALED, **TIGHT)[0], E, R),
    "operator": (lambda d, b: spla.bicgstab(square(d), b, M=OPERATOR, **TIGHT)[0], E, R),
    "expm_multiply": (lambda d, b: spla.expm_multiply(-square(d), np.outer(b, b)), E, R),
    "times": (lambda d, b: spla.expm_multiply(square(d) / 9, b, start=b[0], stop=2.0, num=4), E, R),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_sparse_matrices_are_differentiated(name):
    function, d, b = FUNCTIONS[name]
    expected = function(d, b)
    np.testing.assert_allclose(gt.jit(function)(d, b), expected, rtol=1e-8, atol=1e-10)
    gt.check_grads(function, (d, b), order=2 if name in ("eigsh", "lsqr", "expm_multiply") else 1)
    mapped = gt.vmap(function, in_axes=(0, None))(np.stack([d, 1.1 * d]), b)
    np.testing.assert_allclose(mapped[1], function(1.1 * d, b), rtol=1e-8, atol=1e-10)
    with gt.GradientTape() as tape:
        watched = tape.watch(d)
        cost = np.sum(function(watched, b) ** 2)
    compiled = gt.grad(lambda d: np.sum(function(d, b) ** 2))(d)
    np.testing.assert_allclose(tape.gradient(cost, watched).numpy(), compiled, rtol=1e-6, atol=1e-9)


def test_callbacks_of_krylov_methods_are_called():
    function, d, b = FUNCTIONS["start and callback"]
    ITERATIONS.clear()
    gt.jit(function)(d, b)
    assert len(ITERATIONS) > 2


@pytest.mark.parametrize(
    ("function", "match"),
    [
        (lambda d, b: spla.eigsh(symmetric(d), k=2, M=sp.eye_array(N))[0], "M="),
        (lambda d, b: spla.eigsh(symmetric(d), k=N)[0], "6 pairs"),
        (lambda d, b: spla.lsqr(square(d)[:3], b[:3])[0], "3 equations with 6 unknowns"),
        (lambda d, b: spla.lsmr(square(d), b, d[0])[0], "damp="),
        (lambda d, b: spla.svds(square(d), k=2, rng=np.random.default_rng(0))[1], "rng="),
        (lambda d, b: spla.cg(square(d), b, M=square(d))[0], "M="),
        (lambda d, b: spla.cg(square(E), b, x0=d[:N])[0], "x0="),
    ],
)
def test_functions_that_are_refused(function, match):
    with pytest.raises(UnsupportedFunctionError, match=match):
        gt.jit(function)(E, R)
