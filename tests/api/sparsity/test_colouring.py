"""Colourings: what they promise, on random patterns, interpreted and compiled."""

import numpy as np
import pytest
import scipy.sparse

from gradtape.api.sparsity import colouring, plan
from gradtape.api.sparsity.colouring import Adjacency, colour_columns, colour_symmetric, smallest_last
from gradtape.transforms.sparsity.index_sets import from_matrix

RNG = np.random.default_rng(0)


def jacobian_plan(matrix, mode):
    return plan.jacobian_plan(from_matrix(matrix), mode)


def hessian_plan(matrix):
    return plan.hessian_plan(from_matrix(matrix))


def random_pattern(m, n, density):
    return scipy.sparse.csr_array(RNG.random((m, n)) < density)


def adjacency(matrix):
    matrix = matrix.tocsr()
    matrix.sort_indices()
    return Adjacency(matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64))


def read_by(made, matrix):
    """Return the elements that a plan reads from the products of a dense matrix."""
    columns, rows = made.products
    forward = [matrix @ (made.column_colours == c) for c in range(columns)]
    reverse = [(made.row_colours == c) @ matrix for c in range(rows)]
    flat = np.concatenate([np.ravel(part) for part in (forward, reverse)])
    found = np.zeros_like(matrix)
    found[made.rows(), made.indices] = flat[made.positions]
    return found


@pytest.mark.parametrize("mode", ["fwd", "rev", "both", "auto"])
def test_products_determine_a_jacobian(mode):
    for _ in range(20):
        pattern = random_pattern(*RNG.integers(1, 20, 2), 0.2)
        matrix = pattern.toarray() * RNG.random(pattern.shape)
        np.testing.assert_array_equal(read_by(jacobian_plan(pattern, mode), matrix), matrix)


def test_products_determine_a_hessian():
    for _ in range(40):
        n = int(RNG.integers(1, 20))
        half = random_pattern(n, n, 0.1).toarray()
        pattern = scipy.sparse.csr_array(half | half.T)
        matrix = pattern.toarray() * RNG.random((n, n))
        matrix = matrix + matrix.T
        np.testing.assert_allclose(read_by(hessian_plan(pattern), matrix), matrix)


def test_four_vertices_of_a_path_have_three_colours():
    for _ in range(40):
        n = int(RNG.integers(2, 16))
        edges = np.triu(RNG.random((n, n)) < 0.25, 1)
        edges |= edges.T
        colours = colour_symmetric(adjacency(scipy.sparse.csr_array(edges)))
        for a, b in zip(*np.nonzero(edges), strict=True):
            assert colours[a] != colours[b]
            for c in np.flatnonzero(edges[b]):
                for d in np.flatnonzero(edges[c]):
                    if len({a, b, c, d}) == 4:
                        assert len({colours[a], colours[b], colours[c], colours[d]}) > 2


def test_compiled_loops_find_the_same_colours(monkeypatch):
    pattern = random_pattern(60, 50, 0.05)
    square = random_pattern(60, 60, 0.03).toarray()
    np.fill_diagonal(square, False)
    graph = adjacency(scipy.sparse.csr_array(square | square.T))
    rows, columns = adjacency(pattern), adjacency(pattern.T)
    interpreted = colour_columns(rows, columns), colour_symmetric(graph)
    monkeypatch.setattr(colouring, "INTERPRETED_WORK", -1)
    np.testing.assert_array_equal(colour_columns(rows, columns), interpreted[0])
    np.testing.assert_array_equal(colour_symmetric(graph), interpreted[1])


def test_the_order_of_smallest_degrees():
    for _ in range(20):
        n = int(RNG.integers(1, 30))
        edges = np.triu(RNG.random((n, n)) < 0.2, 1)
        edges |= edges.T
        order = smallest_last(adjacency(scipy.sparse.csr_array(edges)))
        assert sorted(order) == list(range(n))
        core = 0  # neighbours before a vertex are no more than the largest of the smallest degrees so far
        for step in range(n - 1, -1, -1):
            left = edges[np.ix_(order[: step + 1], order[: step + 1])].sum(axis=0)
            core = max(core, left.min())
            assert left[-1] <= core


def test_normal_equations_of_cameras_and_points():
    """In the order of the numbers, or of the degrees alone, there are 70 products."""
    rng = np.random.default_rng(0)
    count = np.arange(250)
    cameras = scipy.sparse.coo_array((np.ones(250), (count, count % 12)), shape=(250, 12))
    points = scipy.sparse.coo_array((np.ones(250), (count, rng.integers(0, 100, 250))), shape=(250, 100))
    jacobian = scipy.sparse.hstack(
        [scipy.sparse.kron(cameras, np.ones((1, 4))), scipy.sparse.kron(points, np.ones((1, 3)))]
    )
    pattern = scipy.sparse.csr_array((jacobian.T @ jacobian).astype(bool))
    assert hessian_plan(pattern).products[0] <= 40


def test_known_numbers_of_products():
    n = 40
    tridiagonal = scipy.sparse.diags_array([np.ones(n)] * 3, offsets=(-1, 0, 1), shape=(n, n), format="csr")
    arrow = scipy.sparse.eye_array(n, format="lil")
    arrow[0, :] = arrow[:, 0] = 1
    assert jacobian_plan(tridiagonal.astype(bool), "auto").products == (3, 0)
    assert jacobian_plan(arrow.tocsr().astype(bool), "auto").products == (2, 1)
    assert hessian_plan(arrow.tocsr().astype(bool)).products == (2, 0)  # a star
    blocks = scipy.sparse.kron(np.ones((3, 3)), scipy.sparse.eye_array(n))
    assert hessian_plan(scipy.sparse.csr_array(blocks).astype(bool)).products == (3, 0)
    more = scipy.sparse.block_diag([blocks, arrow])  # a clique decides nothing where other lines are longer
    assert hessian_plan(scipy.sparse.csr_array(more).astype(bool)).products == (3, 0)


def test_lines_that_all_others_meet():
    """Python runs the loops, which go through the neighbours of a vertex but not through those of each neighbour."""
    n = 5000
    arrow = scipy.sparse.diags_array(np.arange(1.0, n + 1)).tolil()
    arrow[-1, :-1] = arrow[:-1, -1] = 0.5
    arrow = scipy.sparse.csr_array(arrow)
    assert sum(hessian_plan(arrow != 0).products) == 2
    assert jacobian_plan(arrow != 0, "auto").products == (2, 1)
    assert jacobian_plan((arrow != 0)[[n - 1, 0]], "auto").products == (0, 2)
