"""Functions that return views: what is written to their results is written to the array, in compiled loops as in NumPy."""

import numba
import numpy as np
import pytest

import gradtape as gt

VIEWS = {
    "split": lambda y: np.split(y, [1, 3], axis=1)[1],
    "array_split": lambda y: np.array_split(y, 3)[2],
    "hsplit": lambda y: np.hsplit(y, 2)[0],
    "vsplit": lambda y: np.vsplit(y, 2)[1],
    "dsplit": lambda y: np.dsplit(y.reshape(2, 2, 4), 2)[0],
    "unstack": lambda y: np.unstack(y, axis=-1)[2],
    "rollaxis": lambda y: np.rollaxis(y.reshape(2, 2, 4), 0, 3),
    "rot90": lambda y: np.rot90(y),
    "rot270": lambda y: np.rot90(y.reshape(2, 2, 4), -1, (1, 2)),
    "matrix_transpose": lambda y: np.matrix_transpose(y),
    "atleast_3d": lambda y: np.atleast_3d(y[1]),
    "real": lambda y: np.real(y),
    "real attribute": lambda y: y.real,
    "nan_to_num": lambda y: np.nan_to_num(y, copy=False),
}


@pytest.mark.parametrize("name", VIEWS)
def test_writes_to_views_in_compiled_code(name):
    view = VIEWS[name]
    weights = np.arange(24.0).reshape(4, 3, 2)

    def scaled(x):
        y = x * 1.0
        part = view(y)
        part[...] = part * np.resize(weights, np.shape(part))
        return y + 0.0

    x = np.random.default_rng(0).normal(size=(4, 4))
    with gt.config.override(loops="compile"):
        compiled = gt.jit(scaled)
        np.testing.assert_allclose(compiled(x), scaled(x))


def test_the_diagonal_is_read_only():
    def written(x):
        y = x * 1.0
        np.diagonal(y)[...] = 1.0
        return y

    with (
        gt.config.override(loops="compile"),
        pytest.raises((ValueError, gt.errors.GradtapeError), match="read-only"),
    ):
        gt.jit(written)(np.ones((2, 2)))


def test_vmap_of_a_function_with_a_loop_by_value_that_writes_to_a_part():
    def function(x):
        y = np.diff(x)
        size = np.abs(np.sum(x))
        while size > 1.0:
            size = size * 0.4
        np.array_split(y, 2)[0][...] = size
        return y

    x = 2.0 * np.random.default_rng(0).normal(size=(3, 4))
    np.testing.assert_allclose(gt.vmap(function)(x), [function(row) for row in x])


def test_grids_are_copies():
    def function(x):
        y = x * 1.0
        columns, _ = np.meshgrid(y, y)
        y[0] = 9.0
        return columns[1] + y

    x = np.array([1.0, 2.0])
    with gt.config.override(loops="compile"):
        np.testing.assert_allclose(gt.jit(function)(x), function(x))


def gathered(x):
    y = x * 1.0
    y[np.argsort(x)[1:3]] *= x[0]
    y[y > 0.5] += 1.0
    k = np.argsort(y)[y < 3.0]
    y[k] -= 2.0 * x[1]
    return np.sum(y**2)


def test_augmented_assignment_to_gathered_elements():
    x = np.array([0.3, 1.2, -0.7, 2.1, 0.9])
    with gt.config.override(loops="compile"):
        value, gradient = gt.value_and_grad(numba.njit(gathered))(x)
    differences = [(gathered(x + 1e-6 * e) - gathered(x - 1e-6 * e)) / 2e-6 for e in np.eye(5)]
    assert value == pytest.approx(gathered(x), rel=1e-12)
    np.testing.assert_allclose(gradient, differences, rtol=1e-6)
