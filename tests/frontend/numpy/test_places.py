"""Loops over the places of arrays, translated: `numpy.ndindex` and `numpy.ndenumerate`."""

import numpy as np
import pytest

from tests.frontend.support import check

X = np.arange(12.0).reshape(3, 4) * 0.5 - 1.0


def of_a_shape(x):
    out = np.zeros(x.shape)
    for i, j in np.ndindex(x.shape):
        out[i, j] = x[i, j] * (i + 2 * j)
    return out


def of_extents(x):
    out = np.zeros(x.shape)
    for i, j in np.ndindex(*x.shape):
        out[i, j] = x[i, j] * (i - j)
    return out


def as_an_index(x):
    out = np.zeros(x.shape)
    for place in np.ndindex(x.shape):
        out[place] = x[place] * 2 + place[0]
    return out


def of_one_axis(x):
    total = 0.0
    for (i,) in np.ndindex(len(x)):
        total += x[i, 0] * i
    return total


def of_no_axes(x):
    total = 0.0
    for _ in np.ndindex():
        total += x[0, 0]
    for _ in np.ndindex(()):
        total += x[0, 1]
    return total


def of_no_places(x):
    total = 1.0
    for i, j in np.ndindex(0, 3):
        total += x[i, j]
    for i, j in np.ndindex(3, 0):
        total += x[i, j]
    return total


def of_extents_that_change(x):
    total = 0.0
    for n in range(3):
        for i, j in np.ndindex(n, n + 1):
            total += x[i, j] * (n + 1)
    return total


def counted(x):
    total = 0.0
    for n, (i, j) in enumerate(np.ndindex(x.shape)):
        total += x[i, j] * n
    return total


def with_others(x):
    total = 0.0
    for (i, j), y in zip(np.ndindex(x.shape), x.ravel(), strict=True):
        total += x[i, j] * y
    return total


def with_elements(x):
    total = 0.0
    for (i, j), y in np.ndenumerate(x.T):
        total += y * (i + 10 * j)
    return total


def with_elements_of_an_expression(x):
    total = 0.0
    for place, y in np.ndenumerate(x + 1.0):
        total += y * place[0]
    return total


def with_elements_that_the_loop_writes(x):
    y = x.copy()
    for (i, j), value in np.ndenumerate(y):
        if i + 1 < y.shape[0]:
            y[i + 1, j] += value
    return y


@pytest.mark.parametrize(
    "function",
    [
        of_a_shape,
        of_extents,
        as_an_index,
        of_one_axis,
        of_no_axes,
        of_no_places,
        of_extents_that_change,
        counted,
        with_others,
        with_elements,
        with_elements_of_an_expression,
        with_elements_that_the_loop_writes,
    ],
)
def test_places_are_those_of_numpy(function):
    check(function, X)
