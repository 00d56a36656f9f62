"""Sparsity patterns of loops: those of the numbers that the loop computes with, and where they are not known, never too few."""

import numpy as np
import pytest

import gradtape as gt

SIZE = 80


def _sweep(x):
    out = np.zeros(x.size)
    for k in range(1, x.size - 1):
        out[k] = x[k] ** 2 * x[k - 1] + np.sin(x[k + 1])
    return out


def _two_outputs(x):
    first, second = np.ones(x.size), np.zeros((x.size, 2))
    for k in range(2, x.size):
        first[k] = np.sin(x[k - 1])
        second[k, 0] = first[k - 1] * x[k]
        if k % 3 == 0:
            second[k, 1] = x[0]
    return first, second


def _nested(x):
    grid = x.reshape(8, -1)
    out = np.zeros_like(grid)
    for i in range(1, grid.shape[0] - 1):
        for j in range(1, grid.shape[1] - 1):
            out[i, j] = grid[i - 1, j] * grid[i + 1, j] - grid[i, j - 1] * grid[i, j + 1]
    return out


def _rows(x):
    state = x.reshape(-1, 4)
    out = np.zeros_like(state)
    for k in range(1, state.shape[0]):
        out[k] = state[k] * np.roll(state[k - 1], 1)
    return out


def _recurrences(x):
    state = x.reshape(-1, 5)
    out = np.ones_like(state)
    for i in range(state.shape[0]):
        for j in range(1, state.shape[1]):
            out[i, j] = out[i, j - 1] * state[i, j]
    return out


def _permuted(x):
    out = np.zeros(x.size)
    for k in range(x.size):
        out[ORDER[k]] += x[k] ** 2 * x[ORDER[ORDER[k]]]
    return out


def _newton(x):
    out = np.zeros(x.size)
    for k in range(x.size):
        root = x[k]
        while abs(root * root - x[k]) > 1e-10:
            root = 0.5 * (root + x[k] / root)
        out[k] = root * x[k - 1] if k > 0 else root
    return out


def _branch(x):
    out = np.zeros(x.size)
    for k in range(1, x.size):
        if x[k] > 0.5:
            factor = x[k] * 2
        else:
            factor = x[k - 1]
        out[k] = factor * x[k]
    return out


def _stopped(x):
    out = np.zeros(x.size)
    for k in range(x.size):
        if x[k] > 0.9:
            break
        out[k] = np.exp(x[k])
    return out


def _scanned(x):
    return gt.scan(lambda before, here: (here, here * before), 1.0, x)[1]


def _while_counted(x):
    def body(k, out):
        return k + 1, out * x

    return gt.while_loop(lambda k, out: k < 5, body, (0, x))[1]


def _flat(function):
    return lambda x: np.concatenate([np.ravel(part) for part in _parts(function(x))])


def _parts(result):
    return result if isinstance(result, tuple) else (result,)


ORDER = np.random.default_rng(0).permutation(SIZE)
POINT = np.random.default_rng(1).uniform(0.1, 0.8, SIZE)

EXACT = [
    _sweep,
    _two_outputs,
    _nested,
    _rows,
    _recurrences,
    _permuted,
    _newton,
    _scanned,
    _while_counted,
    _stopped,
]


@pytest.mark.parametrize("function", EXACT)
def test_a_pattern_is_that_of_the_dense_derivative(function):
    function = _flat(function)
    jacobian = gt.sparse_jacobian(function)
    found = jacobian(POINT)
    dense = np.asarray(gt.jacobian(function)(POINT))
    np.testing.assert_allclose(found.toarray(), dense, rtol=1e-12, atol=1e-14)
    np.testing.assert_array_equal(jacobian.pattern(POINT).toarray(), dense != 0)


def test_both_sides_of_an_unknown_branch_count():
    pattern = gt.sparse_jacobian(_branch).pattern(POINT).toarray()
    expected = np.eye(SIZE, dtype=bool) | np.eye(SIZE, k=-1, dtype=bool)
    expected[0] = False
    np.testing.assert_array_equal(pattern, expected)


def test_a_short_loop_and_a_long_one_have_the_same_pattern():
    short = gt.sparse_jacobian(_sweep).pattern(POINT[:12]).toarray()
    np.testing.assert_array_equal(gt.sparse_jacobian(_sweep).pattern(POINT).toarray()[:11, :12], short[:11])


def test_what_reads_anywhere_depends_on_everything():
    def picked(x):
        return gt.scan(lambda carry, here: (carry, x[np.floor(here * 50).astype(int)]), 0, x)[1]

    assert gt.sparse_jacobian(picked).pattern(POINT).toarray().all()


def test_a_loop_that_ends_at_an_unknown_place_has_the_index_sets_of_all_of_them():
    def last(x):
        value, k = x[0], 0
        while value < 0.7 and k < x.size - 1:
            value = x[k] * 2
            k += 1
        return np.stack([value, x[3]])

    found = gt.sparse_jacobian(lambda x: gt.jit(last)(x)).pattern(POINT).toarray()
    assert not found[1, 4:].any() and found[1, 3]
    dense = gt.jacobian(last)(POINT) != 0
    assert (found >= dense).all()


def test_sweeps_of_unknown_number_depend_on_everything():
    def relaxed(x):
        u = x.copy()
        while np.abs(u[0]) > 1e-3:
            for k in range(u.size - 1):
                u[k] = 0.25 * (u[k] + u[k + 1])
        return u

    pattern = gt.sparse_jacobian(relaxed).pattern(POINT[:70]).toarray()
    np.testing.assert_array_equal(pattern, np.triu(np.ones((70, 70), bool)))


def test_a_hessian_through_loops_is_sparse():
    def energy(x):
        inner = np.zeros(x.size)
        for k in range(1, x.size):
            inner[k] = np.sin(x[k]) * x[k - 1]
        total = 0.0
        for k in range(x.size):
            total += inner[k] ** 2
        return total

    hessian = gt.sparse_hessian(energy)
    assert hessian.plan(POINT).products == (3, 0)
    np.testing.assert_allclose(hessian(POINT).toarray(), gt.hessian(energy)(POINT), rtol=1e-10, atol=1e-12)


def test_a_hessian_through_a_loop_that_carries_a_number_keeps_its_blocks():
    def energy(x):
        total = 0.0
        for i in range(x.shape[0]):
            state = 1.0
            for j in range(x.shape[1]):
                state = np.tanh(state * x[i, j])
            total += state
        return total

    x = POINT.reshape(-1, 5)
    hessian = gt.sparse_hessian(energy)
    expected = gt.hessian(energy)(x).reshape(SIZE, SIZE)
    np.testing.assert_allclose(hessian(x).toarray(), expected, rtol=1e-10, atol=1e-12)
    assert hessian.plan(x).products == (5, 0)


def test_products_of_matrices_in_loops_keep_their_blocks():
    matrix = np.array([[1.0, 2.0], [0.5, 0.0]])

    def steps(x):
        state = x.reshape(-1, 2)
        out = np.zeros_like(state)
        for k in range(1, state.shape[0]):
            out[k] = np.tanh(matrix @ state[k - 1]) + state[k]
        return out

    found = gt.sparse_jacobian(steps)
    dense = gt.jacobian(steps)(POINT).reshape(SIZE, SIZE)
    np.testing.assert_allclose(found(POINT).toarray(), dense, rtol=1e-12, atol=1e-14)
    assert found.plan(POINT).products[0] <= 4


def test_large_loops_have_few_products():
    assert gt.sparse_jacobian(_sweep).plan(np.linspace(0.1, 0.8, 5000)).products == (3, 0)


@pytest.mark.parametrize("size", [1, 5, SIZE])
def test_positions_may_be_an_argument_that_changes(size):
    def scattered(x, order):
        out = np.zeros(x.size)
        for k in range(x.size):
            out[order[k]] += x[k] ** 2
        return out

    x = np.linspace(1.0, 2.0, size)
    sparse = gt.sparse_jacobian(scattered)
    for order in (np.arange(size)[::-1], np.roll(np.arange(size), 2)):
        np.testing.assert_array_equal(sparse(x, order).toarray(), gt.jacobian(scattered)(x, order))
