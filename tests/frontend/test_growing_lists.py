"""Lists that grow in loops whose iterations are not counted."""

# ruff: noqa: PERF401 - the loops are what is tested

from __future__ import annotations

import math

import numba
import numpy as np
import pytest

import gradtape as gt

X = np.array([0.3, 1.2, -0.7, 2.1, 0.9])


def until(x):
    out = []
    t = 0.0
    while t < 3.0:
        out.append(t * x[0])
        t += 0.1
    total = 0.0
    for o in out:
        total += o * o
    return total


def stack(x):
    todo = [1.0]
    total = 0.0
    n = 0
    while len(todo) > 0 and n < 40:
        v = todo.pop()
        total += v * x[0] * x[n % 5]
        n += 1
        if v < 40.0:
            todo.append(v + 1.0 * x[1] ** 2)
            todo.append(v * 2.0)
    return total


def queue(x):
    q = [0]
    seen = np.zeros(40, dtype=np.bool_)
    total = 0.0
    while q:
        n = q.pop(0)
        if n >= 40 or seen[n]:
            continue
        seen[n] = True
        total += x[n % 5] * n
        q.append(2 * n + 1)
        q.append(2 * n + 2)
    return total


def pairs(x):
    path = [(x[0], x[1])]
    while len(path) < 30:
        a, b = path[-1]
        path.append((a + 0.1 * b, b - 0.1 * math.sin(a)))
    total = 0.0
    for a, b in path:
        total += a * b
    return total


def rows(x):
    out = [x]
    while len(out) < 20:
        out.append(out[-1] * 0.9 + out[0][0])
    total = 0.0
    for row in out:
        total += row.sum() ** 2
    return total


def accepted(x):
    ts = [0.0]
    ys = [x[0]]
    h = 0.1
    while ts[-1] < 2.0:
        y = ys[-1]
        one = y - h * y * x[1]
        two = y - 0.5 * h * y * x[1]
        two = two - 0.5 * h * two * x[1]
        if abs(one - two) < 1e-2:
            ts.append(ts[-1] + h)
            ys.append(two)
            h *= 1.2
        else:
            h *= 0.5
    return ys[-1] + 0.1 * len(ys) + ys[len(ys) // 2]


def inner(x):
    out = []
    for i in range(20):
        k = 0
        while k < i:
            out.append(x[k % 5] * i)
            k += 2
    return np.sum(np.array(out) ** 2)


def mutated(x):
    out = [x[0]]
    while len(out) < 17:
        out.append(out[-1] * 1.1)
        out[0] += x[1]
    return out[0] * out[-1]


def searched(x):
    lo = [0]
    best = 0.0
    while len(lo) > 0:
        k = lo.pop()
        best += x[k] * x[k]
        if 2 * k + 1 < 5:
            lo.append(2 * k + 1)
        if 2 * k + 2 < 5:
            lo.append(2 * k + 2)
    return best


def as_an_array(x):
    out = []
    t = x[0]
    while t < 10.0:
        out.append(t)
        t = t * 1.3 + 0.1
    a = np.array(out)
    return a.mean() * a.max()


def converted(x):
    out = [0]
    while len(out) < 12:
        out.append(out[-1] + x[1])
    return out[-1] * out[3]


def two_lists(x):
    a = [x[0]]
    b = [x[1]]
    while len(a) + len(b) < 25:
        if a[-1] < b[-1]:
            a.append(b[-1] + 0.1 * x[2])
        else:
            b.append(a[-1] + 0.2 * x[3])
    return a[-1] * b[-1] + len(a)


def cleared(x):
    out = []
    total = 0.0
    k = 0
    while k < 50:
        out.append(x[k % 5])
        if len(out) > 9:
            total += sum(out) * k
            out.clear()
        k += 1
    return total


def few(x):
    out = []
    pairs = []
    for i in range(3):
        if x[i] > 0:
            out.append(x[i] * x[i])
        for j in range(2):
            if x[i] > x[j + 1]:
                pairs.append((x[i], x[j]))
    total = 1.0 * len(out)
    for v in out:
        total += v * len(pairs)
    for a, b in pairs:
        total += a * b
    return total


def by_branches(x):
    out = []
    if x[0] > 0:
        out.append(x[0])
    if x[1] > 5.0:
        out.append(x[1])
    elif x[2] > 0:
        out.append(x[3])
    else:
        out.append(x[1])
        out.append(x[2])
    total = 0.0
    for a in out:
        total += a * a
    if x[2] < 0:
        total += out.pop()
    return total + len(out) + sum(out)


def counted_inside(x):
    out = [x[0]]
    c = 0
    while c < 4 and x[1] > -5.0:
        c += 1
        for i in range(12):
            if x[i % 5] * c > 1.0:
                out.append(x[i % 5])
            if i > 9:
                break
        out.append(x[1] * c)
    total = 0.0
    for v in out:
        total = 0.9 * total + v
    return total


PROGRAMS = (
    counted_inside,
    few,
    by_branches,
    until,
    stack,
    queue,
    pairs,
    rows,
    accepted,
    inner,
    mutated,
    searched,
    as_an_array,
    converted,
    two_lists,
    cleared,
)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
@pytest.mark.parametrize("compiled", [False, True], ids=["plain", "njit"])
def test_lists_that_grow_in_while_loops(program, compiled):
    function = numba.njit(program) if compiled else program
    with gt.config.override(loops="compile"):
        value, gradient = gt.value_and_grad(function)(X)
        _, tangent = gt.jvp(function, (X,), (np.arange(5.0),))
    step = 1e-6
    differences = [(program(X + step * e) - program(X - step * e)) / (2 * step) for e in np.eye(5)]
    assert value == pytest.approx(program(X), rel=1e-12)
    np.testing.assert_allclose(gradient, differences, rtol=1e-5, atol=1e-5)
    assert tangent == pytest.approx(np.dot(gradient, np.arange(5.0)), rel=1e-10)


def test_a_pop_from_an_empty_list_is_an_error():
    @numba.njit
    def emptied(x):
        todo = [x[0]]
        while len(todo) < 20:
            todo.append(x[1])
        while True:
            todo.pop()
            if x[0] > 100.0:
                break
        return x[0]

    with pytest.raises(IndexError):
        gt.jit(emptied)(X)
