"""Factorisations and linear operators that were made outside a traced function, and Laplacians of graphs."""

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.sparse.csgraph as graphs
import scipy.sparse.linalg as spla

import gradtape as gt
from gradtape.errors import UnsupportedFunctionError

A = sp.csc_array([[4.0, 1.0, 0.0], [1.0, 3.0, 1.0], [0.0, 2.0, 5.0]])
SYMMETRIC = (A + A.T).tocsc()
COMPLEX = (A + 1j * A.T).tocsc()
X = np.array([1.0, 2.0, 3.0])
SOLVE = spla.factorized(A)
EXACTLY = {"rtol": 1e-12}


def operator(matrix, *, transposed=True):
    given = {"rmatvec": lambda x: matrix.T @ x} if transposed else {}
    return spla.LinearOperator(matrix.shape, matvec=lambda x: matrix @ x, **given)


def agree(function, *arrays):
    want = function(*arrays)
    on_tape = [gt.vjp(function, *arrays)[0]] if arrays[0].dtype.kind in "fc" else []
    for found in (gt.jit(function)(*arrays), *on_tape):
        np.testing.assert_allclose(found, want, rtol=1e-6 if want.dtype.itemsize == 4 else 1e-12, atol=1e-14)
        assert found.dtype == want.dtype


@pytest.mark.parametrize("make", [spla.splu, spla.spilu])
@pytest.mark.parametrize("trans", "NTH")
def test_factorisation_made_outside(make, trans):
    real, imaginary = make(A), make(COMPLEX)
    for right in (X, np.outer(X, X), X.astype(np.float32), np.array([1, 2, 3])):
        agree(lambda x: real.solve(x, trans), right)
    agree(lambda x: imaginary.solve(x, trans), X + 1j)
    gt.check_grads(lambda x: real.solve(x, trans) ** 2, (X,))
    gt.check_grads(lambda x: imaginary.solve(x, trans), (X + 1j,))


def test_factorisation_is_that_of_the_call():
    holder = {"lu": spla.splu(A)}
    solve = gt.jit(lambda x: holder["lu"].solve(x))
    np.testing.assert_allclose(solve(X), spla.spsolve(A, X))
    holder["lu"] = spla.splu(SYMMETRIC)
    np.testing.assert_allclose(solve(X), spla.spsolve(SYMMETRIC, X))


def test_factorised_function_made_outside():
    agree(lambda x: SOLVE(x), X)
    np.testing.assert_allclose(gt.jacobian(lambda x: SOLVE(x))(X), np.linalg.inv(A.toarray()))
    np.testing.assert_allclose(gt.vmap(lambda x: SOLVE(x))(np.stack([X, 2 * X])), [SOLVE(X), SOLVE(2 * X)])


def test_factorisation_refuses_what_scipy_refuses():
    lu = spla.splu(A)
    with pytest.raises(TypeError, match="complex128"):
        gt.jit(lambda x: lu.solve(x))(X + 1j)
    with pytest.raises(ValueError, match="incompatible"):
        gt.jit(lambda x: lu.solve(x))(X[:2])


@pytest.mark.parametrize(
    "function",
    [
        lambda x: spla.aslinearoperator(A).matvec(x),
        lambda x: spla.aslinearoperator(A).rmatvec(x),
        lambda x: spla.aslinearoperator(A).H @ np.outer(x, x),
        lambda x: spla.aslinearoperator(sp.csc_array((x, A.indices[:3], [0, 1, 2, 3]))).matvec(X),
        lambda x: operator(A).matvec(x),
        lambda x: (2 * operator(A) + operator(SYMMETRIC)) @ x,
        lambda x: operator(A).matmat(np.outer(x, x)),
    ],
)
def test_products_with_operators(function):
    agree(function, X)
    gt.check_grads(function, (X,))


@pytest.mark.parametrize("method", ["cg", "minres", "gmres", "bicgstab", "qmr"])
def test_systems_with_operators(method):
    solver, symmetric = getattr(spla, method), method in ("cg", "minres")
    matrix = SYMMETRIC if symmetric else A
    given = operator(matrix, transposed=not symmetric)
    agree(lambda b: solver(given, b, **EXACTLY)[0], X)
    found = gt.jit(gt.jacobian(lambda b: solver(given, b, **EXACTLY)[0]))(X)
    np.testing.assert_allclose(found, np.linalg.inv(matrix.toarray()), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("make", [operator, spla.aslinearoperator, lambda A: 2 * operator(A)])
def test_operators_are_those_of_the_call(make):
    matrix = A.copy()
    holder = {"operator": make(matrix)}
    product = gt.jit(lambda x: holder["operator"] @ x)
    solve = gt.jit(lambda x: spla.gmres(holder["operator"], x, **EXACTLY)[0])
    for change in (
        lambda: None,
        lambda: matrix.data.__imul__(3),
        lambda: holder.update(operator=make(SYMMETRIC)),
    ):
        change()
        np.testing.assert_allclose(product(X), holder["operator"] @ X)
        np.testing.assert_allclose(holder["operator"] @ solve(X), X, rtol=1e-9)


def test_systems_with_operators_that_are_not_followed():
    one_way = operator(A, transposed=False)
    agree(lambda b: spla.gmres(one_way, b, **EXACTLY)[0], X)
    with pytest.raises(UnsupportedFunctionError, match="without rmatvec"):
        gt.grad(lambda b: spla.gmres(one_way, b)[0].sum())(X)
    with pytest.raises(UnsupportedFunctionError, match="csr_array"):
        gt.grad(lambda b: spla.gmres(operator(A * b[0]), b)[0].sum())(X)


WEIGHTS = np.array([0.5, 2.0, 0.7, 1.5, 0.9])
ROWS, COLUMNS = np.array([0, 1, 2, 2, 0]), np.array([1, 3, 0, 2, 3])


@pytest.mark.parametrize("kind", [sp.csr_array, sp.coo_matrix, None])
@pytest.mark.parametrize("normed", [False, True])
@pytest.mark.parametrize("options", [{}, {"use_out_degree": True}, {"symmetrized": True}])
def test_laplacian(kind, normed, options):
    def found(weights):
        if kind is None:
            graph = np.zeros((4, 4))
            graph[ROWS, COLUMNS] = weights
        else:
            graph = kind((weights, (ROWS, COLUMNS)), shape=(4, 4))
        made, ends = graphs.laplacian(graph, normed, return_diag=True, **options)
        return (made if kind is None else made.toarray()), ends

    for place in (0, 1):
        agree(lambda weights: found(weights)[place], WEIGHTS)  # noqa: B023
    gt.check_grads(lambda weights: (found(weights)[0] ** 2).sum() + found(weights)[1].sum(), (WEIGHTS,))
    if kind is not None:
        graph = kind((WEIGHTS, (ROWS, COLUMNS)), shape=(4, 4))
        made = gt.jit(lambda w: graphs.laplacian(kind((w, (ROWS, COLUMNS)), shape=(4, 4)), normed))(WEIGHTS)
        assert type(made) is type(graphs.laplacian(graph, normed))
    with pytest.raises(UnsupportedFunctionError, match="form='array'"):
        gt.jit(lambda w: graphs.laplacian(np.outer(w, w), form="lo") @ w)(WEIGHTS)


@pytest.mark.parametrize("method", ["gmres", "cg"])
def test_gradients_with_a_preconditioner(method):
    matrix = SYMMETRIC if method == "cg" else A
    factors = spla.spilu(matrix)

    def total(b, **options):
        M = spla.LinearOperator(matrix.shape, matvec=factors.solve, **options)
        return getattr(spla, method)(matrix, b, M=M, **EXACTLY)[0].sum()

    want = np.linalg.solve(matrix.toarray().T, np.ones(3))
    found = gt.grad(lambda b: total(b, rmatvec=lambda x: factors.solve(x, "H")))(X)
    np.testing.assert_allclose(found, want, rtol=1e-8)
    if method == "cg":
        np.testing.assert_allclose(gt.grad(total)(X), want, rtol=1e-8)
    else:
        with pytest.raises(UnsupportedFunctionError, match=r"lu\.solve\(x, 'H'\)"):
            gt.grad(total)(X)
