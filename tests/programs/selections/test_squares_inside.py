"""Squares of what loops, branches and functions read, carry or return, and do not see the kink of: second derivatives of the square."""

from __future__ import annotations

import numpy as np
import pytest

import gradtape as gt

squares_of_elements = gt.jit(lambda a: np.sum(a * a))


def cond(x):
    return np.sum(gt.cond(np.sum(x) > -1.0, lambda a: a * a, lambda a: a, np.abs(x)))


def captured_by_a_branch(x):
    a = np.abs(x)
    return np.sum(gt.switch(1, [lambda: a, lambda: a * a]))


def branch_of_equal_operands(x):
    return np.sum(gt.cond(np.sum(x) > -1.0, lambda a, b: a * b, lambda a, b: a + b, np.abs(x), np.abs(x)))


def checkpoint(x):
    return gt.checkpoint(lambda a: np.sum(a * a))(np.abs(x))


def captured_by_a_checkpoint(x):
    a = np.abs(x)
    return gt.checkpoint(lambda b: np.sum(a * a) + 0.0 * b)(x[0])


def constant_of_scan(x):
    a = np.abs(x)
    return np.sum(gt.scan(lambda c, e: (c + a * a * e, None), 0.0 * x, np.array([0.25, 0.75]))[0])


def elements_of_scan(x):
    return gt.scan(lambda c, e: (c + e * e, None), 0.0 * x[0], np.abs(x))[0]


def elements_of_an_unrolled_scan(x):
    return gt.scan(lambda c, e: (c + e * e, None), 0.0 * x[0], np.abs(x), unroll=2)[0]


def carry_of_scan(x):
    return np.sum(gt.scan(lambda c, e: (c * c * e, None), np.abs(x), np.ones(1))[0])


def carry_of_an_earlier_iteration(x):
    def step(c, e):
        return np.abs(e), c * c

    return np.sum(gt.scan(step, 0.0 * x[0], np.concatenate([x, np.zeros(1)]))[1])


def multiple_of_a_carry(x):
    def step(c, e):
        return (-2.0 * c[0], c[1] + c[0] * c[0] * e), None

    (_, total), _ = gt.scan(step, (np.abs(x), 0.0 * x), np.array([0.2, 0.2]))  # 0.2 and 0.8 of the square
    return np.sum(total)


def nested_scans(x):
    def inner(a, c):
        return gt.scan(lambda s, w: (s + a * a * w, None), c, np.array([0.5, 0.5]))[0]

    return gt.scan(lambda c, e: (inner(e, c), None), 0.0 * x[0], np.abs(x))[0]


def branch_in_a_scan(x):
    def step(c, e):
        return c + gt.cond(c > -1.0, lambda a: a * a, lambda a: a, e), None

    return gt.scan(step, 0.0 * x[0], np.abs(x))[0]


def results_of_scan(x):
    a = gt.scan(lambda c, e: (c, np.abs(e)), 0.0, x)[1]
    return gt.scan(lambda c, e: (c + e * e, None), 0.0 * x[0], a)[0]


def fori_loop(x):
    a = np.abs(x)
    return gt.fori_loop(0, len(x), lambda i, s: s + a[i] * a[i], 0.0 * x[0])


def constant_of_while_loop(x):
    a = np.abs(x)
    return np.sum(gt.while_loop(lambda k, s: k < 2, lambda k, s: (k + 1, s + 0.5 * a * a), (0, 0.0 * x))[1])


def carry_of_while_loop(x):
    def step(k, c, s):
        return k + 1, 1.0 * c, s + 0.5 * c * c

    return np.sum(gt.while_loop(lambda k, c, s: k < 2, step, (0, np.abs(x), 0.0 * x))[2])


def mapped(x):
    return np.sum(gt.map(lambda e: e * e, np.abs(x)))


def batched(x):
    return np.sum(gt.vmap(lambda e: e * e)(np.abs(x)))


def batched_scan(x):
    def of_row(row):
        return gt.scan(lambda c, e: (c + e * e, None), 0.0 * row[0], row)[0]

    return np.sum(gt.vmap(of_row)(np.abs(x)[:, None]))


def compiled(x):
    return squares_of_elements(np.abs(x))


def norms_in_a_list(x):
    lengths = [np.linalg.norm(x[i : i + 1]) for i in range(len(x))]
    total = 0.0
    for length in lengths:
        total = total + length * length
    return total


def result_of_a_branch(x):
    return np.sum(gt.cond(np.sum(x) > -1.0, np.abs, np.sin, x) ** 2)


def product_of_results(x):
    y = gt.switch(1, [np.sin, np.abs], x)
    return np.dot(y, y)


def stacked_results(x):
    y = gt.scan(lambda c, e: (c, np.abs(e)), 0.0, x)[1]
    return np.sum(0.5 * y * y + 0.5 * np.sort(y) ** 2)


def result_of_a_carry(x):
    return np.sum(gt.fori_loop(0, 2, lambda i, c: np.abs(c), x) ** 2)


def result_of_while_loop(x):
    return np.sum(gt.while_loop(lambda k, c: k < 2, lambda k, c: (k + 1, np.abs(c)), (0, x))[1] ** 2)


def result_of_a_checkpoint(x):
    return np.sum(
        0.5 * gt.checkpoint(np.abs)(x) ** 2 + 0.5 * gt.checkpoint(lambda a: np.abs(2.0 * a))(0.5 * x) ** 2
    )


def results_of_a_checkpoint(x):
    y, z, larger = gt.checkpoint(lambda a: (np.abs(a), np.exp(a) * np.fabs(a), np.maximum(a, 0.0)))(x)
    return 0.5 * np.dot(y, y) + 0.5 * np.sum((z * np.exp(-x)) ** 2) + 0.0 * np.sum(larger)


def result_of_a_checkpoint_in_a_loop(x):
    of_one = gt.checkpoint(abs)
    return gt.scan(lambda c, e: (c + of_one(e) ** 2, None), 0.0 * x[0], x)[0]


def result_in_a_branch(x):
    y = gt.map(np.abs, x)
    return gt.cond(np.sum(x) > -1.0, lambda a: np.sum(a * a), np.sum, y)


def magnitudes_of_magnitudes(x):
    total = 0.0
    for i in range(len(x)):
        v = x[i]
        for _ in range(3):
            v = abs(v)
        total = total + v * v
    return total


def copied_signs(x):
    return np.sum(np.copysign(np.abs(x), -1.0) ** 2)


def larger_of_opposites(x):
    y = 2.0 * x
    larger, smaller = np.maximum(y, -y), np.minimum(x - y, y - x)
    return np.sum(0.125 * larger**2 + 0.25 * smaller**2 + 0.25 * np.fmax(-x, x) ** 2)


def diagonal_of_products(x):
    y, total = np.abs(x), 0.0
    for i in range(len(x)):
        for j in range(len(x)):
            if i == j:
                total += 0.5 * y[i] * y[j]
            if j == i:
                total += 0.5 * y[i] * y[j]
    return total


def diagonal_in_other_words(x):
    y, total = np.abs(x), 0.0
    for i in range(len(x)):
        for j in range(len(x)):
            if i == j and j < 2:
                total += y[i] * y[j]
            if i == j == 2:
                total += 0.5 * y[i] * y[j]
            if i != j or j < 2:
                continue
            total += 0.5 * y[i] * y[j] if not (j > 2 or i != j) else y[i] * y[j]
    return total


def magnitudes_in_a_loop(x):
    total = 0.0
    for _ in range(20):
        for i in range(len(x)):
            total += abs(x[i]) * abs(x[i]) / 20.0
    return total


def one_place_in_two_words(x):
    y, total, last = np.abs(x), 0.0, len(x) - 1
    for i in range(len(x)):
        if i != last:
            total += y[i] ** 2
        elif i == last:
            total += y[i] * y[last]
    return total


def gathered(x):
    y = np.abs(x).reshape(1, -1)
    total = 0.0 * x[0]
    for _ in range(40):
        for j in range(y.shape[1]):
            total = total + y[0, j] * y[0, j] / 40.0
    return total


PROGRAMS = (
    cond,
    captured_by_a_branch,
    branch_of_equal_operands,
    checkpoint,
    captured_by_a_checkpoint,
    constant_of_scan,
    elements_of_scan,
    elements_of_an_unrolled_scan,
    carry_of_scan,
    carry_of_an_earlier_iteration,
    multiple_of_a_carry,
    nested_scans,
    branch_in_a_scan,
    results_of_scan,
    fori_loop,
    constant_of_while_loop,
    carry_of_while_loop,
    mapped,
    batched,
    batched_scan,
    compiled,
    norms_in_a_list,
    result_of_a_branch,
    product_of_results,
    stacked_results,
    result_of_a_carry,
    result_of_while_loop,
    result_of_a_checkpoint,
    results_of_a_checkpoint,
    diagonal_of_products,
    diagonal_in_other_words,
    magnitudes_in_a_loop,
    one_place_in_two_words,
    result_of_a_checkpoint_in_a_loop,
    result_in_a_branch,
    magnitudes_of_magnitudes,
    copied_signs,
    larger_of_opposites,
    gathered,
)
"""Each is the sum of the squares of x."""


def hessian_on_tapes(function, x):
    with gt.GradientTape() as outer:
        watched = outer.watch(x)
        with gt.GradientTape() as inner:
            inner.watch(watched)
            y = function(watched)
        slope = inner.gradient(y, watched)
    return outer.jacobian(slope, watched)


WAYS = {
    "hessian": lambda function, x: gt.hessian(function)(x),
    "forward twice": lambda function, x: gt.jacfwd(gt.jacfwd(function))(x),
    "mapped": lambda function, x: gt.vmap(gt.hessian(function))(np.stack([x, x]))[1],
    "tapes": hessian_on_tapes,
    "tapes around a compiled function": lambda function, x: hessian_on_tapes(gt.jit(function), x),
}


@pytest.mark.parametrize("loops", ["trace", "compile"])
@pytest.mark.parametrize("function", PROGRAMS, ids=lambda function: function.__name__)
def test_second_derivatives(function, loops):
    x = np.array([0.0, 1.5, -0.5])
    with gt.config.override(loops=loops):
        np.testing.assert_allclose(gt.jit(function)(x), x @ x, rtol=1e-15)
        np.testing.assert_allclose(gt.grad(function)(x), 2.0 * x, rtol=1e-14)
        for way in WAYS if loops == "trace" else ("hessian", "forward twice", "tapes"):
            np.testing.assert_allclose(WAYS[way](function, x), 2.0 * np.eye(3), atol=1e-14, err_msg=way)


@pytest.mark.parametrize(
    "function",
    [result_of_a_branch, stacked_results, result_of_a_carry],
    ids=lambda function: function.__name__,
)
def test_series(function):
    x = np.array([0.0, 1.5, -0.5])
    np.testing.assert_allclose(gt.hessian_diagonal(function)(x), [2.0, 2.0, 2.0], atol=1e-14)


@pytest.mark.parametrize("function", [norms_in_a_list, fori_loop, carry_of_scan], ids=lambda f: f.__name__)
def test_many_elements(function):
    direction = np.arange(40.0)
    np.testing.assert_allclose(gt.hvp(function, (np.zeros(40),), (direction,)), 2.0 * direction)
