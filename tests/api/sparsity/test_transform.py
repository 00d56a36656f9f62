"""Sparse Jacobians and Hessians: they equal the dense ones, and their patterns are not larger than they must be."""

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse

import gradtape as gt
from gradtape.errors import ArgumentError, DtypeError, NonScalarOutputError, ShapeError

RNG = np.random.default_rng(1)
X = RNG.random(12) + 0.1
INDEX = RNG.integers(0, 12, 20)
BAND = np.diag(np.ones(11), 1) - np.eye(12)
KERNEL = np.array([1.0, -2.0, 1.0])


def scattered(x):
    y = np.zeros(5) * x[0]
    np.add.at(y, INDEX[:12] % 5, x**2)
    return y


def written(x):
    y = x * 1.0
    y[2:8:2] = x[:3] ** 2
    y[np.array([1, 9])] = 3.0
    return y


def python_loop(x):
    for _ in range(3):
        x = x + 0.1 * np.roll(x, 1) * x
    return x


def native_loop(x):
    return gt.fori_loop(0, 3, lambda i, y: y + 0.1 * np.roll(y, 1) * y, x)


def native_scan(x):
    return gt.scan(lambda c, e: (c, e * c[0]), x[:2], x[2:])[1]


def branches(x):
    return gt.cond(x[0] > 0, lambda x: x[:6] ** 2, lambda x: x[6:] ** 2, x)


@gt.custom_vjp
def rounded(x):
    return np.round(x)


rounded.defvjp(lambda x: (np.round(x), None), lambda _, ct: (2.0 * ct,))


FUNCTIONS = {
    "neighbours": (lambda x: x[1:] * x[:-1], 22),
    "gather": (lambda x: x[INDEX] ** 2, 20),
    "scatter": (scattered, 12),
    "write": (written, 10),
    "matmul": (lambda x: np.sin(x).reshape(3, 4) @ np.ones((4, 2)), 24),
    "sparse factor": (lambda x: BAND @ x**2, 23),
    "stack": (lambda x: np.stack([x[:4], x[4:8]]).T * x[8:].reshape(4, 1), 16),
    "reduction": (lambda x: np.max(x.reshape(3, 4), axis=1) + np.prod(x.reshape(4, 3), axis=0), 18),
    "cumulative": (np.cumsum, 78),
    "backwards": (lambda x: np.cumprod(x[::-1].reshape(3, 4), axis=1), 30),
    "where": (lambda x: np.where(x > 0.5, x**2, x[::-1]), 24),
    "sort": (np.sort, 144),
    "solve": (lambda x: np.linalg.solve(2 * np.eye(3) + x[:9].reshape(3, 3), x[9:]), 36),
    "convolve": (lambda x: np.convolve(x, KERNEL, mode="valid"), 30),
    "arrow": (lambda x: x[0] * x + x**2 + np.eye(12)[0] * np.sum(x), 34),
    "python loop": (python_loop, 48),
    "native loop": (native_loop, 48),
    "scan": (native_scan, 20),
    "branches": (branches, 12),
    "no derivative": (lambda x: x**2 + np.floor(np.sum(x)) + np.argmax(x), 12),
    "custom": (lambda x: rounded(x) * x, 12),
    "pad": (lambda x: np.pad(x[:3], 2) * x[:7], 10),
}


CASES = [(name, "auto") for name in FUNCTIONS] + [
    (name, ("rev", "both")[k % 2]) for k, name in enumerate(FUNCTIONS) if k % 2 == 0 or k % 3 == 0
]


@pytest.mark.parametrize(("name", "mode"), CASES)
def test_sparse_jacobian_is_the_dense_one(name, mode):
    function, count = FUNCTIONS[name]
    jac = gt.sparse_jacobian(function, mode=mode)
    found = jac(X)
    assert isinstance(found, scipy.sparse.csr_array) and found.has_canonical_format
    dense = gt.jacobian(function)(X)
    np.testing.assert_allclose(found.toarray(), dense.reshape(found.shape), rtol=1e-12, atol=1e-12)
    assert found.nnz == count
    if mode != "auto":
        return
    again = jac(X + 0.3)
    np.testing.assert_allclose(
        again.toarray(), gt.jacobian(function)(X + 0.3).reshape(found.shape), rtol=1e-12, atol=1e-12
    )


def defects_in_a_list(x):
    made = []
    for k in range(len(x) - 1):
        made += [x[k + 1] - x[k] - 0.1 * np.sin(x[k + 1])]
    return np.stack(made)


def defects_of_a_while(x):
    k, made = 0, []
    while k < len(x) - 1:
        made += [x[k + 1] - x[k] - 0.1 * np.sin(x[k + 1])]
        k += 1
    return np.array(made)


def defects_of_a_scan(x):
    return gt.scan(lambda last, now: (now, now - last - 0.1 * np.sin(now)), x[0], x[1:])[1]


@pytest.mark.parametrize("function", [defects_in_a_list, defects_of_a_while, defects_of_a_scan])
def test_steps_in_a_loop_have_the_pattern_of_slices(function):
    x = np.linspace(0.0, 1.0, 90)
    found = gt.sparse_jacobian(function)(x)
    expected = gt.sparse_jacobian(lambda x: x[1:] - x[:-1] - 0.1 * np.sin(x[1:]))(x)
    np.testing.assert_array_equal(found.indices, expected.indices)
    np.testing.assert_allclose(found.data, expected.data, rtol=1e-12)


def test_elements_alone_are_those_of_the_matrix():
    jac = gt.sparse_jacobian(lambda x, y: x[1:] * x[:-1] * y, argnums=(0, 1))
    for elements, matrix in zip(jac.elements(X, 2.0), jac(X, 2.0), strict=True):
        np.testing.assert_array_equal(elements, matrix.data)
    np.testing.assert_array_equal(gt.sparse_hessian(np.prod).elements(X), gt.sparse_hessian(np.prod)(X).data)


HESSIANS = {
    "chain": (lambda x: np.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2), 34),
    "separable": (lambda x: np.sum(np.exp(x) * x), 12),
    "arrow": (lambda x: np.sum(x[0] * x**3), 34),
    "grid": (
        lambda x: np.sum(np.diff(x.reshape(3, 4), axis=0) ** 4) + np.sum(np.diff(x.reshape(3, 4)) ** 4),
        46,
    ),
    "dense": (lambda x: np.log(np.sum(np.exp(x))), 144),
    "linear": (np.sum, 12),
    "loop": (lambda x: np.sum(python_loop(x) ** 2), 84),
}


@pytest.mark.parametrize("name", HESSIANS)
def test_sparse_hessian_is_the_dense_one(name):
    function, count = HESSIANS[name]
    found = gt.sparse_hessian(function)(X)
    np.testing.assert_allclose(found.toarray(), gt.hessian(function)(X), rtol=1e-12, atol=1e-12)
    assert found.nnz == count


def test_changed_index_arrays_have_other_patterns():
    jac = gt.sparse_jacobian(lambda x, k: x[k] ** 2)
    for k in ([0, 1], [5, 5], [0, 1]):
        np.testing.assert_array_equal(jac(X, np.array(k)).indices, k)
    captured = np.array([3, 4])
    jac = gt.sparse_jacobian(lambda x: x[captured] ** 2)
    jac(X)
    captured[0] = 7
    np.testing.assert_array_equal(jac(X).indices, [7, 4])


def test_local_patterns_hold_for_their_call():
    def function(x):
        return np.where(x > 0.5, x**2, 0.0) + np.sort(x)

    assert gt.sparse_jacobian(function)(X).nnz == 144
    jac = gt.sparse_jacobian(function, pattern="local")
    for x in (X, X[::-1].copy(), X + 1):
        found = jac(x)
        np.testing.assert_allclose(found.toarray(), gt.jacobian(function)(x))
        assert found.nnz <= 24


def test_given_patterns():
    pattern = scipy.sparse.eye_array(12, format="coo")
    np.testing.assert_allclose(gt.sparse_jacobian(np.sin, pattern=pattern)(X).diagonal(), np.cos(X))
    with pytest.raises(ShapeError, match="pattern"):
        gt.sparse_jacobian(np.sin, pattern=np.eye(3))(X)


def test_nested_arguments_results_and_aux():
    def function(p, scale):
        return {"a": p["u"] * p["v"][0], "b": np.sum(p["v"]) * scale}, {"twice": 2 * p["u"]}

    p = {"u": np.arange(1.0, 4.0), "v": np.array([2.0, 3.0])}
    found, aux = gt.sparse_jacobian(function, has_aux=True)(p, 2.0)
    np.testing.assert_array_equal(aux["twice"], [2.0, 4.0, 6.0])
    expected = [[2, 0, 0, 1, 0], [0, 2, 0, 2, 0], [0, 0, 2, 3, 0], [0, 0, 0, 2, 2]]
    np.testing.assert_array_equal(found.toarray(), expected)
    first, second = gt.sparse_jacobian(lambda x, y: x[:2] * y, argnums=(0, 1))(X, np.array([3.0, 4.0]))
    assert first.shape == (2, 12) and second.shape == (2, 2)
    np.testing.assert_array_equal(first.toarray()[:, :2], [[3, 0], [0, 4]])
    np.testing.assert_array_equal(second.toarray(), np.diag(X[:2]))
    both = gt.sparse_hessian(lambda x, y: np.sum(x * y), argnums=(0, 1))(X[:2], X[:2])
    np.testing.assert_array_equal(both.toarray(), np.kron([[0, 1], [1, 0]], np.eye(2)))


def test_chunks_float32_and_empty_arrays():
    function = FUNCTIONS["native loop"][0]
    whole = gt.sparse_jacobian(function)(X)
    parts = gt.sparse_jacobian(function, chunk_size=2)(X)
    np.testing.assert_array_equal(whole.toarray(), parts.toarray())
    assert gt.sparse_jacobian(np.sin)(X.astype(np.float32)).dtype == np.float32
    assert gt.sparse_jacobian(np.sin)(np.ones(0)).shape == (0, 0)
    assert gt.sparse_jacobian(lambda x: x[:0])(X).shape == (0, 12)
    assert gt.sparse_jacobian(lambda x: 3.0)(X).nnz == 0
    assert gt.sparse_hessian(lambda x: 3.0)(X).nnz == 12


def test_results_do_not_share_their_pattern():
    jac = gt.sparse_jacobian(lambda x: x**2)
    first = jac(np.zeros(3))
    first.eliminate_zeros()
    assert jac(np.ones(3)).nnz == 3


def test_values_that_are_not_numbers_stay_in_their_elements():
    found = gt.sparse_jacobian(lambda x: np.sqrt(x[1:]) * x[:-1])(np.array([1.0, 0.0, 1.0, 1.0]))
    assert np.isinf(found[0, 1]) and np.isfinite(found.toarray()[1:]).all()


@pytest.mark.parametrize(
    ("make", "kind", "words"),
    [
        (lambda: gt.sparse_jacobian(np.sin, mode="x"), ArgumentError, "mode is 'x'"),
        (lambda: gt.sparse_jacobian(np.sin, pattern="x"), ArgumentError, "pattern is 'x'"),
        (lambda: gt.sparse_jacobian(np.sin, pattern=3), DtypeError, "pattern is an int"),
        (lambda: gt.sparse_jacobian(lambda x: x * 1j)(X), DtypeError, "complex128"),
        (lambda: gt.sparse_jacobian(lambda x: x.astype(int))(X), DtypeError, "int64"),
        (lambda: gt.sparse_hessian(np.sin)(X), NonScalarOutputError, "shape"),
        (lambda: gt.sparse_jacobian(lambda x: x * np.sum(x))(np.ones(20_000)), ArgumentError, "entries"),
    ],
)
def test_errors_name_what_is_wrong(make, kind, words):
    with pytest.raises(kind, match=words):
        make()


def test_solvers_take_the_functions():
    def residuals(x):
        return np.concatenate([10 * (x[1:] - x[:-1] ** 2), 1 - x[:-1]])

    def cost(x):
        return 0.5 * np.sum(residuals(x) ** 2)

    start = np.full(8, 0.5)
    jac, hess = gt.sparse_jacobian(residuals), gt.sparse_hessian(cost)
    found = scipy.optimize.least_squares(residuals, start, jac=jac, tr_solver="lsmr")
    np.testing.assert_allclose(found.x, 1.0, rtol=1e-6)
    found = scipy.optimize.least_squares(residuals, start, jac_sparsity=jac.pattern(start))
    np.testing.assert_allclose(found.x, 1.0, rtol=1e-6)
    found = scipy.optimize.minimize(cost, start, jac=gt.grad(cost), hess=hess, method="trust-constr")
    np.testing.assert_allclose(found.x, 1.0, rtol=1e-4)


def test_picture():
    shown = gt.inspect.sparsity(FUNCTIONS["neighbours"][0], X)
    assert repr(shown).splitlines()[1:3] == ["ab..........", ".ba........."]
    assert shown.pattern.nnz == len(shown.colours) == 22
    import matplotlib as mpl

    mpl.use("agg")
    axes = shown.plot()
    assert "2 of columns" in axes.get_title()
    assert "#" in repr(gt.inspect.sparsity(FUNCTIONS["neighbours"][0], np.ones(1000)))
