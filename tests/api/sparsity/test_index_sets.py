"""Index sets against the boolean matrices of SciPy."""

import itertools

import numpy as np
import pytest
import scipy.sparse

from gradtape.transforms.sparsity import index_sets

RNG = np.random.default_rng(0)
SHAPES = (1, 1), (1, 40), (40, 1), (5, 7), (60, 50), (0, 3), (3, 0)


def random_sets(shape, density):
    dense = RNG.random(shape) < density
    return index_sets.from_matrix(scipy.sparse.csr_array(dense)), dense


def dense_of(sets):
    assert all(np.all(np.diff(sets.indices[a:b]) > 0) for a, b in itertools.pairwise(sets.indptr))
    ones = np.ones(sets.nnz, bool)
    return scipy.sparse.csr_array((ones, sets.indices, sets.indptr), shape=sets.shape).toarray()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("density", [0.0, 0.01, 0.3, 1.0])
def test_index_sets_are_boolean_matrices(shape, density):
    (one, first), (other, second) = (random_sets(shape, density) for _ in range(2))
    rows, columns = shape
    np.testing.assert_array_equal(dense_of(one), first)
    np.testing.assert_array_equal(dense_of(index_sets.united([one, other])), first | second)
    np.testing.assert_array_equal(dense_of(index_sets.transposed(one)), first.T)
    np.testing.assert_array_equal(
        dense_of(index_sets.stacked([one, other, one])), np.vstack([first, second, first])
    )
    np.testing.assert_array_equal(dense_of(index_sets.repeated(one, 3)), np.tile(first.any(axis=0), (3, 1)))
    np.testing.assert_array_equal(dense_of(index_sets.from_rows(index_sets.rows_of(one), columns)), first)
    sources = RNG.integers(0, rows, 2 * rows)
    targets = RNG.integers(0, 4, 2 * rows)
    expected = np.zeros((4, columns), bool)
    np.logical_or.at(expected, targets, first[sources])
    np.testing.assert_array_equal(dense_of(index_sets.merged(one, targets, sources, 4)), expected)


def test_equal_sets_stay_one_object():
    one, dense = random_sets((9, 8), 0.4)
    same = index_sets.from_matrix(scipy.sparse.csr_array(dense))
    part = index_sets.restricted(one, np.arange(9) > 3)
    assert index_sets.united([one, same, part]) is one
    assert index_sets.united([part, one]) is one


def test_index_sets_of_picked_elements():
    dense = np.array([[1, 0], [0, 1], [1, 1], [0, 0]], bool)
    sets = index_sets.from_matrix(scipy.sparse.csr_array(dense))
    for positions in itertools.product([-1, 0, 1, 2, 3], repeat=2):
        places = np.array(positions)
        expected = np.where((places >= 0)[:, None], dense[places], False)
        np.testing.assert_array_equal(
            dense_of(index_sets.picked(sets, places)), expected, err_msg=str(positions)
        )
    np.testing.assert_array_equal(dense_of(index_sets.picked(sets, np.arange(4))), dense)
    order = np.array([3, 2, 1, 0, 2])
    np.testing.assert_array_equal(dense_of(index_sets.picked(sets, order)), dense[order])


def test_elements_that_a_matrix_has_twice_or_in_disorder_count_once():
    parts = np.ones(4), np.array([2, 0, 2, 1]), np.array([0, 3, 4])
    sets = index_sets.from_matrix(scipy.sparse.csr_array(parts, shape=(2, 3)))
    np.testing.assert_array_equal(dense_of(sets), [[True, False, True], [False, True, False]])
