"""Lists that grow in loops: their items stand in arrays of the procedure."""

# ruff: noqa: PERF401 - the loops are what is tested

from __future__ import annotations

import math

import numba
import numpy as np
import pytest

import gradtape as gt
from gradtape.errors import UnsupportedCodeError
from gradtape.procedures.ir import For, While
from gradtape.statements import walk
from tests.frontend.support import check, run, translated

X = np.array([0.3, 0.5, 0.7, 0.9])


def one_each(x):
    out = []
    for i in range(100):
        out.append(math.sin(x[i % 4] * i))
    a = np.array(out)
    return np.sum(a * a)


def from_the_last(x):
    out = [1.0, x[1]]
    for i in range(100):
        out.append(out[-1] * 0.5 + out[-2] * 0.3 + out[i] + x[i % 4] * i)
    return out[-1] + max(out) + min(out) + sum(out) + len(out)


def by_condition(x):
    out = []
    for i in range(60):
        if math.sin(i * 1.0) > x[1]:
            out.append(x[i % 4] ** 2)
        elif i % 7 == 0:
            out.append(x[1])
            out.append(2.0)
    total = 0.0
    for value in out:
        total += value * value
    return total + np.sum(np.array(out)) + len(out)


def nested(x):
    out = []
    for i in range(20):
        for j in range(30):
            out.append(x[i % 4] * x[j % 4])
    table = np.array(out).reshape(20, 30)
    return np.sum(table[3] * table[17])


def triangular(x):
    out = [0.5]
    for i in range(20):
        for j in range(i):
            out.append(x[i % 4] * x[j % 4] * i)
    return np.sum(np.array(out)) + out[20]


def until(x):
    out = []
    total = 0.0
    for i in range(1000):
        total += x[i % 4]
        if total > 30.0:
            break
        out.append(total * total)
    return np.sum(np.array(out)) + out[-1]


def tuples(x):
    out = []
    for i in range(40):
        out.append((x[i % 4], x[(i + 1) % 4] * i))
    total = 0.0
    for a, b in out:
        total += a * b
    return total + np.sum(np.array(out)[:, 1])


def rows(x):
    out = []
    v = x.copy()
    for _ in range(40):
        v = v * 0.9 + 0.1 * x[::-1]
        out.append(v)
    return np.sum(np.array(out)[::7] ** 2)


def one_after_the_other(x):
    out = []
    for i in range(40):
        out.append(x[0] * i)
    for i in range(30):
        out.append(x[1] * i)
    out.append(x[2])
    out += [x[3], 1]
    b = np.array(out)
    for i in range(len(out) - 1):
        out[i + 1] = out[i] * 0.5 + out[i + 1]
    return np.sum(b * b) + out[-1] + sum(out[10:20])


def of_each_iteration(x):
    sums = []
    for k in range(30):
        row = []
        for j in range(20):
            row.append(x[j % 4] * k)
        sums.append(sum(row))
    return np.dot(np.array(sums), np.array(sums))


def popped(x):
    out = []
    for k in range(60):
        out.append(x[k % 4] * k)
        if k % 3 == 2:
            out.append(out.pop() * 0.5)
            out.pop()
    return np.sum(np.array(out)) + len(out)


def places(x):
    found = []
    for i in range(50):
        found.append((i * 7) % 4)
    total = 0.0
    for k in range(50):
        total += x[found[k]] * k
    return total


def integers_and_floats(x):
    out = []
    for i in range(50):
        if i % 2 == 0:
            out.append(1)
        else:
            out.append(x[i % 4])
    return np.sum(np.array(out))


def by_a_function(x):
    def note(found, i):
        found.append(x[i % 4] * i)

    out = []
    for i in range(50):
        note(out, i)
    return out[49] + out[2] * out[3]


PROGRAMS = (
    one_each,
    from_the_last,
    by_condition,
    nested,
    triangular,
    until,
    tuples,
    rows,
    one_after_the_other,
    of_each_iteration,
    popped,
    places,
    integers_and_floats,
    by_a_function,
)


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_growing_lists_are_translated(function):
    check(function, X)
    loops = [one for one in walk(translated(function, X).procedure.body) if isinstance(one, For | While)]
    assert loops


@pytest.mark.parametrize(
    "function", [from_the_last, by_condition, rows, one_after_the_other, until], ids=lambda f: f.__name__
)
def test_growing_lists_have_derivatives(function):
    compiled = numba.njit(function)
    value, slope = gt.value_and_grad(compiled)(X)
    direction = np.array([0.3, -0.2, 0.5, 0.1])
    step = 1e-6 * direction
    np.testing.assert_allclose(value, function(X), rtol=1e-12)
    np.testing.assert_allclose(slope @ direction, (function(X + step) - function(X - step)) / 2e-6, rtol=1e-6)
    np.testing.assert_allclose(gt.jvp(compiled, (X,), (direction,))[1], slope @ direction, rtol=1e-10)


def followed_by_its_length(x, n):
    out = []
    for i in range(n):
        out.append(x[i % 4] * i)
    return np.array(out)


def test_the_length_of_an_array_of_a_growing_list_is_known():
    assert translated(followed_by_its_length, X, 50).procedure.result_types[0].shape == (50,)
    check(followed_by_its_length, X, 50)


def listed(x):
    out = []
    for i in range(30):
        out.append(x[i % 4] * i)
    return out


def test_a_list_is_returned_as_a_list():
    assert run(listed, X) == listed(X)


def from_data(x):
    out = []
    for i in range(int(x[0])):
        out.append(x[i])
    return len(out) + sum(out)


@pytest.mark.parametrize("first", [-1.0, 0.0, 3.0])
def test_a_list_may_stay_empty(first):
    x = np.array([first, 1.0, 2.0, 3.0])
    assert float(run(from_data, x)) == from_data(x)


def beyond(x):
    out = []
    for i in range(100):
        out.append(x[i % 4])
    return out[int(x[0] * 1000)]


def test_an_index_out_of_range_is_an_error():
    with pytest.raises(IndexError):
        run(beyond, X)
    check(beyond, 0.1 * X)


def of_many_kinds(x):
    out = []
    for i in range(1000):
        if i % 2:
            out.append(x)
        else:
            out.append(x[0])
    return np.sum(out[0])


@pytest.mark.parametrize("function", [of_many_kinds], ids=lambda f: f.__name__)
def test_other_growing_lists_are_refused(function):
    with pytest.raises(UnsupportedCodeError, match="write into an array"):
        translated(function, X)


COMPARED = {
    "equal": lambda x: [1, 2] == [1, 2],
    "not equal": lambda x: [1, 2] != [1, 2],
    "other lengths": lambda x: [1, 2] == [1, 2, 3],
    "a list and a tuple": lambda x: [1, 2] == (1, 2),
    "an array's item": lambda x: [x[0], 2.0] == [x[0], 2.0],
    "another item": lambda x: [x[0], 2.0] != [x[1], 2.0],
    "nested": lambda x: [[x[0]], (1, [2])] == [[x[0]], (1, [2])],
    "nested in tuples": lambda x: ([1], [x[0]]) == ([1], [x[0]]),
    "less": lambda x: [1, 2] < [1, 3],
    "not less": lambda x: [1, 3] <= [1, 2],
    "contained": lambda x: [1, x[0]] in [[2], [1, x[0]]],
    "contained in a tuple": lambda x: [1, 2] in ([2], [1, 2]),
    "not contained": lambda x: [1, 2] not in [[1, 2]],
    "classes": lambda x: [type(x), float] == [np.ndarray, float],
    "a number": lambda x: x[0] == [1.0],
}


@pytest.mark.parametrize("name", COMPARED)
def test_lists_are_compared_by_their_items(name):
    compare = COMPARED[name]

    def f(x):
        return np.sum(x * x) if compare(x) else np.sum(5.0 * x)

    check(f, X)


def grown_and_compared(x):
    one, other = [], [x[0], x[1]]
    for i in range(2):
        one.append(x[i])
    return np.sum(x * x) if one == other else np.sum(x)


def test_lists_that_grew_are_compared_by_their_items():
    check(grown_and_compared, X)
