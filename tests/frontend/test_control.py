"""Control flow: loops, branches, jumps out of them, and what names hold after them."""

from __future__ import annotations

import math

import numba
import numpy as np
import pytest

from gradtape.procedures.ir import Allocate, Assign, For, If
from gradtape.statements import walk
from tests.frontend.support import check, run, translated

X = np.array([0.5, -1.5, 2.0, 3.0, -0.25])


def while_and(x):
    k = 0
    while k < len(x) and x[k] < 2.5:
        k += 1
    return k


def while_or_continue(x):
    k = 0
    total = 0.0
    while k < 3 or total < 4.0:
        k += 1
        if k % 2 == 0:
            continue
        total += x[k % 5] + 2.0
    return total, k


def break_in_for(x):
    total = 0.0
    for v in x:
        if v > 1.9:
            break
        total += v
    return total


def for_else(x):
    found = -1
    for i in range(len(x)):
        if x[i] > 100.0:
            found = i
            break
    else:
        found = 7
    return found + 0.5 * x[0]


def while_else(x):
    k = 0
    while k < 3:
        if x[k] > 10.0:
            break
        k += 1
    else:
        k = 10
    return k * x[1]


def early_return(x):
    for i in range(len(x)):
        if x[i] < -1.0:
            return x[i] * i
    return 5.0


def nested_return(x):
    for i in range(len(x)):
        for j in range(i):
            if x[i] + x[j] > 1.4:
                return x[i] * 10 + j
    return -1.0


def return_tuples(x):
    if x[0] > 0.0:
        return x[0], 1.0
    return 2.0, x[1]


def break_two_levels(x):
    total = 0.0
    for i in range(len(x)):
        done = False
        for j in range(len(x)):
            if x[i] * x[j] > 4.0:
                done = True
                break
            total += x[j]
        if done:
            break
    return total


def continue_in_nested(x):
    total = 0.0
    for i in range(len(x)):
        if x[i] < 0.0:
            continue
        for j in range(i, len(x)):
            if x[j] < 0.0:
                continue
            total += x[i] * x[j]
    return total


def short_circuits(x):
    total = 0.0
    for i in range(len(x)):
        if x[i] > 1.0 or (i > 0 and x[i - 1] > 0.0):
            total += 1.0 + x[i]
        elif not (x[i] > 0.0 and i < 2):
            total -= 0.5
    return total


def ternaries(x):
    total = 0.0
    for v in x:
        total += math.sqrt(v) if v > 0 else -math.sqrt(-v)
        total = total if total < 3.0 else 0.5 * total
    return total


def chained(x):
    count = 0
    for v in x:
        if -1.0 < v <= 2.0:
            count += 1
    return count


def name_after_loop(x):
    for i in range(len(x)):
        last = x[i] + i
    return last


def assigned_in_branch(x):
    if x[0] > 0.0:
        y = x[0]
    else:
        z = x[1]
        y = z * 2.0
    return y


def promoted(x):
    s = 0
    for v in x:
        if v > 0:
            s += v
        else:
            s += 1
    return s


def reversed_ranges(x):
    total = 0.0
    for i in range(len(x) - 1, 0, -2):
        total = total * 0.5 + x[i]
    for i in reversed(range(1, 4)):
        total = total * 0.5 + x[i]
    return total


def dynamic_step(x):
    total = 0.0
    step = 1
    for i in range(len(x)):
        if x[i] < 0:
            step = 2
    for i in range(0, len(x), step):
        total = total * 0.5 + x[i]
    return total


def enumerate_and_zip(x):
    total = 0.0
    for i, (a, b) in enumerate(zip(x, x[::-1], strict=True), 2):
        total += i * a * b
    return total


def rows(x):
    m = np.outer(x, x) if False else x.reshape(5, 1) * x
    total = 0.0
    for row in m:
        for v in row:
            total = 0.9 * total + v
    return total


def newton(x):
    y = 1.0
    while True:
        step = (y * y - 2.0 - x[0]) / (2.0 * y)
        y -= step
        if abs(step) < 1e-12:
            break
    return y


def two_exits(x):
    k = 0
    y = 0.0
    while True:
        y += x[k]
        if y > 3.0:
            y = 10.0 * y
            break
        k += 1
        if k == len(x):
            y = -y
            break
    return y + k


def return_in_endless(x):
    k = 0
    while True:
        if x[k] > 1.0:
            return x[k]
        if k == 4:
            return -1.0
        k += 1


def collatz(x):
    n = int(x[3] * 4)
    count = 0
    while n != 1:
        if n % 2 == 0:
            n //= 2
        else:
            n = 3 * n + 1
        count += 1
    return count


def triangular(x):
    total = 0.0
    for i in range(len(x)):
        for j in range(i + 1):
            for k in range(j, i):
                total += x[i] * x[j] - x[k]
    return total


def empty_loops(x):
    total = x[0]
    for i in range(0):
        total += x[i]
    for i in range(3, 1):
        total += x[i]
    for i in range(len(x)):
        for j in range(2, i):
            total += x[j]
    return total


def flags(x):
    seen = False
    total = 0.0
    for v in x:
        if v < 0.0:
            seen = True
        if seen:
            total += v
    return total if seen else -1.0


def index_after_break(x):
    for i in range(len(x)):
        if x[i] > 1.0:
            break
    for _ in range(2):
        for k in range(3):  # noqa: B007 - it is used later
            pass
    return i + 10 * k


def loops_in_branches(x):
    total = 0.0
    if x[0] > 0.0:
        for v in x:
            total += v
    else:
        for v in x:
            total -= v
    return total


def conditional_expression_of_none(x, y):
    if y is None:
        y = x[0]
    return y * 2.0


def walrus(x):
    t, i = 0.0, 0
    while (y := x[i] * 2.0) > -2.0:
        t += y * y
        i += 1
        if i == len(x):
            break
    if (n := len(x)) > 2 and (z := x[0] + n) > 0.0:
        t += z
    return t, y, n


def starred_targets(x):
    a, *b = x
    first, *middle, last = (x[0], 2.0, x[1], 3.0)
    *most, end = range(4)
    (c, *d), e = (x[:3], 1.0)
    t = a * last + end + c * e
    for one in b:
        t = t * 0.5 + one
    for one in middle:
        t += one * first
    return t, len(most), d[1]


def shapes_assigned(x):
    y = np.zeros((2, len(x)))
    z = y
    for i in range(2):
        for j in range(len(x)):
            y[i, j] = x[j] * (i + 1)
    y.shape = (2 * len(x),)
    t = 0.0
    for k in range(2 * len(x)):
        t += y[k] * (k + 1)
    y.shape = -1, 2
    return t, z, y[1]


def walrus_in_a_test(x):
    i, t = 0, 0.0
    while (y := x[i] * 2.0) > 0.5 and i < 3:
        t += y
        i += 1
    return t + y


def conditions_that_differ_in_a_name(x):
    """The test before a loop and the one at its end are not one: they assign to different names."""
    i, t, z = 0, 0.0, 7.0
    if (y := x[i] * 2.0) < 1.5:
        while True:
            t += y
            i += 1
            if not ((z := x[i] * 2.0) < 1.5):
                break
    return t + y + z


@pytest.mark.parametrize(
    "function",
    [
        walrus,
        walrus_in_a_test,
        conditions_that_differ_in_a_name,
        starred_targets,
        pytest.param(shapes_assigned, marks=pytest.mark.filterwarnings("ignore:Setting the shape")),
        while_and,
        while_or_continue,
        break_in_for,
        for_else,
        while_else,
        early_return,
        nested_return,
        return_tuples,
        break_two_levels,
        continue_in_nested,
        short_circuits,
        ternaries,
        chained,
        name_after_loop,
        assigned_in_branch,
        promoted,
        reversed_ranges,
        dynamic_step,
        enumerate_and_zip,
        rows,
        newton,
        two_exits,
        return_in_endless,
        collatz,
        triangular,
        empty_loops,
        flags,
        loops_in_branches,
        index_after_break,
    ],
    ids=lambda f: f.__name__,
)
def test_control_flow_is_pythons(function):
    check(function, X)
    check(function, -X[::-1].copy())
    check(function, np.abs(X))


@pytest.mark.parametrize("y", [None, 3.0])
def test_none_is_known(y):
    check(conditional_expression_of_none, X, y)


def parallel_elements(x):
    y = np.zeros(len(x))
    for i in numba.prange(len(x)):
        y[i] = x[i] * x[i]
    return y


def parallel_sum(x):
    total = 0.0
    for i in numba.prange(len(x)):
        total += x[i]
    return total


def parallel_temporaries(x):
    y = np.zeros(len(x))
    for i in numba.prange(len(x)):
        z = x * x[i]
        y[i] = z[0]
    return y


@pytest.mark.parametrize("function", [parallel_elements, parallel_sum, parallel_temporaries])
def test_iterations_of_prange_are_parallel_and_have_temporary_arrays_of_their_own(function):
    body = translated(function, X).procedure.body
    (loop,) = [one for one in walk(body) if isinstance(one, For) and one.parallel]
    is_own = any(isinstance(one, Allocate) for one in walk(loop.body))
    assert is_own == (function is parallel_temporaries)
    np.testing.assert_allclose(run(function, X), function(X))


def test_variables_that_a_branch_changes_are_in_the_order_of_the_program():
    """Not in that of a set of names, which another process has in another order: the code of equal programs is equal."""

    def f(x):
        a = b = c = d = e = g = x[0]
        for i in range(len(x)):
            if x[i] > 0.5:
                a = a + x[i]
                b = b * np.exp(a)
                c = c - np.exp(b)
                d = d * np.exp(c)
                e = e + np.exp(d)
                g = g * np.exp(e)
        return a + b + c + d + e + g

    body = translated(f, np.linspace(0.1, 0.9, 4)).procedure.body
    branch = next(s for s in walk(body) if isinstance(s, If))
    for block in branch.blocks():
        assert "".join(s.variable.name[0] for s in block if isinstance(s, Assign)) == "abcdeg"
