"""Checks of indices: none where bounds of loops and conditions tell that an index is in range, and an error where it is not."""

from __future__ import annotations

import numpy as np
import pytest

from gradtape.procedures.ir import Check, Procedure
from gradtape.statements import walk
from tests.frontend.support import check, run, translated

X = np.array([0.5, -1.5, 2.0, 3.0, -0.25, 1.0])


def checks(procedure: Procedure) -> int:
    return sum(isinstance(statement, Check) for statement in walk(procedure.body))


def neighbours(x):
    total = 0.0
    for i in range(1, len(x) - 1):
        total += x[i - 1] - 2.0 * x[i] + x[i + 1]
    return total


def backwards(x):
    total = 0.0
    for i in range(len(x) - 2, -1, -1):
        total = 0.5 * total + x[i + 1]
    return total


def strided(x):
    total = 0.0
    for i in range(0, len(x) - 1, 2):
        total += x[i] * x[i + 1]
    return total


def triangle(x):
    total = 0.0
    for i in range(len(x)):
        for j in range(i):
            for k in range(i - j):
                total += x[i] * x[j + k]
    return total


def guarded(x):
    total = 0.0
    for i in range(len(x)):
        if i > 0:
            total += x[i - 1]
        if i + 1 < len(x) and x[i + 1] > 0.0:
            total -= x[i + 1]
    return total


def counting_while(x):
    k = 0
    total = 0.0
    while k < len(x):
        total += x[k]
        k += 1
    return total


def insertion_sort(x):
    y = x.copy()
    for i in range(1, len(y)):
        v = y[i]
        j = i
        while j > 0 and y[j - 1] > v:
            y[j] = y[j - 1]
            j -= 1
        y[j] = v
    return y


def largest(x):
    where = 0
    for i in range(1, len(x)):
        if x[i] > x[where]:
            where = i
    return x[where] + where


def circular(x):
    n = len(x)
    total = 0.0
    for i in range(n):
        total += x[(i + 1) % n] * x[i - 1]
    return total


def halves(x):
    total = 0.0
    for i in range(len(x)):
        total += x[i // 2]
    return total


IN_RANGE = [
    neighbours,
    backwards,
    strided,
    triangle,
    guarded,
    counting_while,
    insertion_sort,
    largest,
    circular,
    halves,
]


@pytest.mark.parametrize("function", IN_RANGE, ids=lambda f: f.__name__)
def test_indices_that_are_in_range_are_not_checked(function):
    assert checks(translated(function, X).procedure) == 0
    check(function, X)


def unguarded(x):
    total = 0.0
    for i in range(len(x)):
        total += x[i + 1]
    return total


def growing(x):
    k = 0
    total = 0.0
    while total < 100.0:
        total += abs(x[k])
        k += 1
    return total


def raised(x):
    k = int(x[3]) + 100
    if k >= len(x):
        raise IndexError("too far")
    return x[k]


@pytest.mark.parametrize("function", [unguarded, growing, raised], ids=lambda f: f.__name__)
def test_an_index_out_of_range_is_an_error(function):
    assert checks(translated(function, X).procedure) > 0
    with pytest.raises(IndexError):
        function(X)
    with pytest.raises(IndexError):
        run(function, X)


def negative(x, places):
    total = 0.0
    for i in range(len(places)):
        total += x[places[i]] * (i + 1)
    return total


def test_indices_that_follow_from_data_may_be_negative():
    check(negative, X, np.array([0, -1, 5, -6]))
    with pytest.raises(IndexError):
        run(negative, X, np.array([0, -7]))
