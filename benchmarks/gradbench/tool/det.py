"""The determinant by expansion by minors, each of which is computed anew wherever it occurs."""

import numpy as np
from gradbench import wrap

import gradtape as gt

SMALL = 7  # minors of this size are expanded as arrays, in a loop over all of them


def choices(size, rows):
    """The columns that are left for each row, one line for each choice in the rows before; then those left over."""
    left = np.arange(size)[None]
    for width in range(size, size - rows, -1):
        yield left
        others = np.array([np.delete(np.arange(width), k) for k in range(width)])
        left = left[:, others].reshape(len(left) * width, width - 1)
    yield left


def expand(rows, columns, minors):
    """The determinants of all rows by those of the rows below, from the last row to the first."""
    for row, left in zip(rows[::-1], columns[::-1], strict=True):
        signs = 1.0 - 2.0 * (np.arange(left.shape[1]) % 2)
        minors = (row[left] * minors.reshape(left.shape)) @ signs
    return minors


def determinant(matrix):
    size = len(matrix)
    large = max(size - SMALL, 0)
    *columns, left = choices(size, large)
    *small_columns, _ = choices(size - large, size - large)
    leaves = np.ones(len(small_columns[-1]))

    def small_minor(carried, chosen):
        return carried, expand(matrix[large:, chosen], small_columns, leaves)[0]

    _, minors = gt.scan(small_minor, 0.0, left)
    return expand(matrix[:large], columns, minors)[0]


value = gt.jit(determinant)
derivative = gt.grad(determinant)


def matrix(message):
    return np.array(message["A"]).reshape(message["ell"], -1)


@wrap.multiple_runs(pre=matrix, post=float)
def primal(matrix):
    return value(matrix)


@wrap.multiple_runs(pre=matrix, post=lambda result: result.ravel().tolist())
def gradient(matrix):
    return derivative(matrix)
