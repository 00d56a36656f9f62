"""Programs that make an array with NumPy and write to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import gradtape as gt

Function = Callable[[Any], Any]
PROGRAMS: dict[str, Function] = {}


def program(function: Function) -> Function:
    PROGRAMS[function.__name__] = function
    return function


@program
def by_index(x):
    y = np.zeros(len(x))
    for i in range(len(x)):
        y[i] = x[i] ** 2
    y += x
    return y


@program
def recurrence(x):
    y = np.empty(len(x) + 1)
    y[0] = 1.0
    for i in range(len(x)):
        y[i + 1] = 0.5 * y[i] + np.sin(x[i])
    return y


@program
def added_to(x):
    y = np.ones(3)
    for i in range(len(x)):
        y[i % 3] += x[i]
        y[-1] *= x[i]
    return y


@program
def rows_and_columns(x):
    y = np.zeros((4, 4))
    for i in range(4):
        y[i] = x * i
        y[:, i] += x[i]
    y[1:3, ::2] -= np.cos(x[:2])
    return y


@program
def views_of_it(x):
    y = np.zeros((4, 4))
    row, corner, column = y[1], y[2:, 2:], y.T[0]
    row[2] = x[0]
    corner[0][1] = x[1] * x[2]
    column += x
    y.reshape(16)[7] = x[3]
    y.ravel()[8:10] *= x[2]
    np.reshape(y, (2, 8))[0, 3] = x[1]
    return y + np.sum(row) * np.sum(corner)


@program
def rows_one_by_one(x):
    y = np.zeros((2, 4))
    for k, row in enumerate(y):
        row[...] = x * (k + 1)
    return y


@program
def masks(x):
    y, mask = np.full(4, 2.0), np.zeros(4, bool)
    mask[1::2] = True
    y[mask] = x[:2]
    y[~mask] *= x[3]
    y[y > 100] = 0.0
    return y


@program
def functions_that_write(x):
    y, z = np.zeros(4), np.zeros((4, 4))
    np.add.at(y, [0, 2, 0], x[1:])
    np.put(y, [3], x[3])
    np.copyto(z[0], x)
    np.fill_diagonal(z, x[2])
    np.multiply(x, 3.0, out=z[3])
    z[1].fill(x[0])
    return z @ y


@program
def matrices(x):
    rotation, scale = np.eye(2), np.identity(2)
    rotation[0, 1], rotation[1, 0] = -np.sin(x[0]), np.sin(x[0])
    scale[1, 1] = x[1]
    return rotation @ scale @ np.full(2, x[2]) + np.full((2, 2), [x[3], 1.0])


@program
def like_data(x):
    times = np.linspace(0, 1, 4)
    y, z = np.zeros_like(times), np.full_like(times, 2.0)
    y[1:] = np.diff(x)
    z[0] = x[0]
    return y * z + np.ones_like(times)


@program
def lists_into_it(x):
    y = np.zeros((2, 2))
    y[0] = [x[0], x[1] * x[2]]
    y[:, 1] = [1.0, x[3]]
    return y


@program
def plain_matrix(x):
    a = np.zeros((4, 4))
    for i in range(4):
        a[i, i] = 2.0
        if i:
            a[i, i - 1] = a[i - 1, i] = -1.0
    counts = np.zeros(3, int)
    for i in (0, 2, 2):
        counts[i] += 1
    return np.linalg.inv(a) @ x * counts[2]


@program
def partly_filled(x):
    y = np.arange(4.0) + np.zeros(4)
    z = np.zeros(4)
    z[:] = y
    z[2] = 7.0
    z[0] = x[0]
    return z * x


@program
def scanned(x):
    def iterate(carry, v):
        i, y = carry
        pair = np.zeros(2)
        pair[0], pair[1] = v, v * v
        y[i] = np.sum(pair)
        return (i + 1, y), pair

    (_, y), pairs = gt.scan(iterate, (0, np.zeros(4)), x)
    return y * pairs[:, 1]


@program
def while_it_lasts(x):
    def iterate(i, y):
        factor = np.zeros(1)
        factor[0] = x[0] * i
        y[i] = factor[0] * x[1]
        return i + 1, y

    return gt.while_loop(lambda i, y: i < 4, iterate, (0, np.zeros(4)))[1]


@program
def computed_first(x):
    y, z = 0.5 * np.ones(4) + np.zeros(4), np.eye(4)[1].copy()
    y[1] = x[0]
    z[2:] -= x[:2]
    w = np.sqrt(np.full(4, 4.0))
    w[3] *= x[3]
    return y * z + w


@program
def in_columns(x):
    y = np.zeros((2, 2), order="F")
    y[0] = x[:2]
    y.ravel()[0] = 5.0
    y.T[1] += x[2:]
    return y


@program
def of_rank_0(x):
    y = np.zeros(())
    y += x[0]
    y[()] += x[1] ** 2
    return np.full(2, y)


@program
def complex_parts(x):
    y = np.zeros(4, complex)
    y[0] = x[0] * 1j
    y.real[1] = x[1]
    imaginary = y.imag
    imaginary[2:] = x[2:]
    return np.abs(y) ** 2


@program
def counted(x):
    order, y = np.zeros(4, int), np.zeros(4)
    order[:] = np.argsort(-x)
    y[order] = x
    y[order[0]] += x[1]
    return y
