"""Names that hold one array on some ways and two on others: writes through one reach the other, or are refused."""

from __future__ import annotations

import numpy as np
import pytest

import gradtape as gt
from gradtape.errors import UnsupportedCodeError
from gradtape.frontend.translate import translate
from gradtape.ir.types import FLOAT64, aval
from tests.frontend.support import run

X = np.array([1.0, 2.0, 3.0])
STARTS = (-1.0, 1.0, 2.5, 10.0)


def conditional_expression(x, c):
    y = x * 1.0
    w = y if c > 0.0 else y * 2.0
    w[0] = 11.0
    return y


def in_a_loop(x, c):
    y = x * 1.0
    for i in range(3):
        w = y if x[i] > c else y * 2.0
        w[0] += 11.0
    return y


def tuples(x, c):
    y = x * 1.0
    t = (y, y * 2.0) if c > 0.0 else (y * 2.0, y)
    t[0][0] = 5.0
    return y


def view_or_function(x, c):
    y = x * 1.0
    w = np.maximum(y, 0.0) if c > 0.0 else y.ravel()
    w[1] = 5.0
    return y


def chosen_by_a_function(x, c):
    def choose(a):
        return a if c > 0.0 else a * 2.0

    y = x * 1.0
    w = choose(y)
    w[0] = 4.0
    return y


def slices_of_any_length(x, c):
    s = 0.0
    for i in range(1, 3):
        w = x[:i] if x[i] > c else x[:i] * 3.0
        s += w.sum()
    return s


def rebound_if(x, c):
    y = x * 1.0
    for i in range(3):
        if x[i] > c:
            y = y + 1.0
        y[0] += 2.0
    return y


def rebound_always(x, c):
    z = x * 1.0
    y = z
    for _ in range(5):
        y = y * c
    y[0] = 1.0
    return y + z


def previous(x, c):
    y = x * 1.0
    old = y
    for _ in range(3):
        old = y
        y = y * c
        y[0] = 1.0
    return old + y


def _halved(u, c):
    k = 0
    while k < 3 and u[0] > c:
        u = u * 0.5
        k += 1
    u[0] = 7.0
    return u


def argument_that_nobody_reads(x, c):
    v = x * 1.0
    v = _halved(v, c)
    return v


def after_an_iteration(x, c):
    y = x * 1.0
    best = x * 0.0
    for i in range(3):
        best = y if x[i] > c else best * 2.0
        y[i] = 5.0
    return best


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize(
    "function",
    [
        conditional_expression,
        in_a_loop,
        tuples,
        view_or_function,
        chosen_by_a_function,
        slices_of_any_length,
        rebound_if,
        rebound_always,
        previous,
        argument_that_nobody_reads,
        after_an_iteration,
    ],
)
def test_writes_reach_what_they_reach_in_python(function, start):
    for x in (X, X[::-1].copy(), np.array([3.0, 1.0, 2.0])):
        np.testing.assert_allclose(run(function, x, start), function(x, start))


def while_loop(x, c):
    y = x * 1.0
    w = y
    k = 0
    while k < 3 and x[k] > c:
        w = w * 2.0
        k += 1
    w[0] = 11.0  # the array of y, if there was no iteration
    return y


def written_in_the_loop(x, c):
    y = x * 1.0
    w = y
    for i in range(3):
        y[i] = 9.0
        if x[i] > c:
            w = w * 2.0
    return w


def other_dtype(x, c):
    y = x * 1.0
    w = y if c > 0.0 else y.astype(np.float32)
    w[0] = 3.0
    return y


def argument_that_is_read(x, c):
    v = x * 1.0
    return v + _halved(v, c)


@pytest.mark.parametrize("function", [while_loop, written_in_the_loop, other_dtype, argument_that_is_read])
def test_what_would_be_another_copy_is_refused_and_traced(function):
    with pytest.raises(UnsupportedCodeError, match="may hold the same array") as caught:
        translate(function, (aval((3,), FLOAT64), aval((), FLOAT64, True)))
    assert caught.value.where is not None
    with gt.config.override(loops="compile"):
        for start in STARTS:
            np.testing.assert_allclose(gt.jit(function)(X.copy(), start), function(X, start))


def test_gradients_flow_through_the_array_that_is_chosen():
    def total(x, c):
        y = x * 1.0
        w = y if c > 0.0 else y * 2.0
        w[0] = w[1] ** 2
        s = 0.0
        for i in range(3):
            s += y[i] * w[i]
        return s

    with gt.config.override(loops="compile"):
        np.testing.assert_allclose(gt.grad(gt.jit(total))(X, 1.0), [0.0, 4.0 * X[1] ** 3 + 2.0 * X[1], 6.0])
        np.testing.assert_allclose(
            gt.grad(gt.jit(total))(X, -1.0), [16.0, 8.0 * X[0] * X[1] + 4.0 * X[1], 12.0]
        )
