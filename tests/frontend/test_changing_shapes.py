"""Arrays that loops and branches leave with other shapes: each is a new array, and views of it are views."""

from __future__ import annotations

import numba
import numpy as np
import pytest

import gradtape as gt
from gradtape.frontend.translate import translate
from gradtape.ir.types import FLOAT64, aval
from gradtape.procedures.ir import Allocate, While
from gradtape.statements import walk

X = np.array([0.3, 1.2, -0.7, 2.1, 0.9])


def alias_tail(x):
    z = x.copy()
    y = z
    while len(y) > 1:
        y = y[1:]
        y[0] *= z[0] + 2
    return z.sum() + y[0]


def alias_keep(x):
    y = x.copy()
    old = y
    for i in range(3):
        old = y
        y = y[y > -10 + i] * 1.5
        y = y[1:]
        old[0] = 100.0 * x[0]
    return y.sum() + old.sum() * x[1]


def grow_mix(x):
    y = np.zeros(0)
    for i in range(6):
        if i % 2:
            y = np.concatenate((y, x[:i]))
        else:
            y = y[y > 0]
    return (y**2).sum()


def dtype_change(x):
    y = np.arange(3)
    s = 0.0
    for i in range(3):
        s += y.sum() * x[i]
        y = np.concatenate((y, x[:1]))
    return s


def two_d(x):
    A = np.outer(x, x)
    s = 0.0
    while A.shape[0] > 1:
        A = A[1:, 1:] - np.outer(A[1:, 0], A[0, 1:]) / (A[0, 0] + 3)
        s += A[0, 0]
    return s


def branch_shape(x):
    s = 0.0
    for i in range(4):
        if x[i] > 0.5:
            y = x[:2] * 2
        else:
            y = np.concatenate((x, x))
        s += y.sum() * (i + 1)
    return s


def fft_like(x):
    y = np.concatenate((x, x[:3]))
    s = 0.0
    while y.size > 1:
        y = (y[::2] + y[1::2]) * 0.5
        s = s + y[0] ** 2
    return s


def swap_sizes(x):
    a = x[:2] * 1.0
    b = x * 2.0
    for _i in range(3):
        a, b = b, a
        a = np.append(a, b[0])
    return a.sum() * 2 + b.sum()


def carried_slice(x):
    hi = len(x)
    y = x
    s = 0.0
    for i in range(2):
        y = x[i + 1 : hi]
        hi -= 1
        s += y.sum() * y[0]
    return s + y[-1]


def fn_shape(x):
    def half(v):
        return v[: len(v) // 2 + 1] * 0.9

    y = np.concatenate((x, x, x))
    while len(y) > 2:
        y = half(y)
    return y.sum()


def sieve(x):
    n = np.arange(2, 30)
    s = 0.0
    while len(n) > 0:
        p = n[0]
        s += x[p % 5] * p
        n = n[n % p != 0]
    return s


def merge_sort_like(x):
    y = np.sort(x)
    acc = np.zeros(1)
    for i in range(5):
        acc = np.concatenate((acc[: i + 1] * 1.1, y[i : i + 1]))
    return (acc * np.arange(len(acc))).sum()


def inplace_after(x):
    y = x.copy()
    for i in range(3):
        y = y[: len(y) - 1]
        y += i * x[: len(y)]
        y[-1] = 0.0
    return y.sum()


def nested_shape(x):
    s = 0.0
    for j in range(3):
        y = x[j:]
        while len(y) > 1:
            y = y[1:] * y[:-1]
        s += y[0]
    return s


def empty_sum(x):
    y = x
    s = 0.0
    for _i in range(8):
        s += np.sum(y)
        y = y[1:]
    return s


def selected_again(x):
    y = np.concatenate((x, -x, x * 2))
    total = 0.0
    for k in range(4):
        y = y[y > 0.1 * k] * 0.9
        total += y.sum()
    return total


PROGRAMS = (
    alias_tail,
    alias_keep,
    grow_mix,
    dtype_change,
    two_d,
    branch_shape,
    fft_like,
    swap_sizes,
    carried_slice,
    sieve,
    merge_sort_like,
    inplace_after,
    nested_shape,
    empty_sum,
    fn_shape,
    selected_again,
)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
@pytest.mark.parametrize("compiled", [False, True], ids=["plain", "njit"])
def test_arrays_that_change_their_shape(program, compiled):
    function = numba.njit(program) if compiled else program
    with gt.config.override(loops="compile"):
        value, gradient = gt.value_and_grad(function)(X)
    step = 1e-6
    differences = [(program(X + step * e) - program(X - step * e)) / (2 * step) for e in np.eye(5)]
    assert value == pytest.approx(program(X), rel=1e-12)
    np.testing.assert_allclose(gradient, differences, rtol=1e-6, atol=1e-6)


def test_an_array_that_keeps_its_shape_has_one_place():
    def same_shape(x):
        y = x * 2.0
        while y[0] < 100.0:
            y = y * 2.0
        return y

    procedure = translate(same_shape, [aval((5,), FLOAT64)]).procedure
    loop = next(s for s in procedure.body if isinstance(s, While))
    assert not any(isinstance(s, Allocate) for s in walk([loop]))
