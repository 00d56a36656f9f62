"""What code asks of the memory of an argument is a part of what a trace is valid for, and of nothing else."""

from __future__ import annotations

import numpy as np
import pytest

import gradtape as gt
from gradtape.errors import InPlaceError


def frozen(array):
    array = array.copy()
    array.flags.writeable = False
    return array


def unaligned(array):
    memory = np.empty(array.nbytes + 1, np.uint8)[1:].view(array.dtype)
    memory[:] = array
    return memory


ONES = np.ones(4)
ASK = {
    "writeable": (lambda x: x.flags.writeable, [ONES, frozen(ONES)]),
    "in brackets": (lambda x: x.flags["W"], [ONES, frozen(ONES)]),
    "of a view": (lambda x: x[1:].flags.writeable, [ONES, frozen(ONES)]),
    "of a reshaped view": (lambda x: x.reshape(2, 2).T.flags.writeable, [ONES, frozen(ONES)]),
    "of a copy": (lambda x: x.copy().flags.writeable, [ONES, frozen(ONES)]),
    "of a result": (lambda x: (x + 1).flags.writeable, [ONES, frozen(ONES)]),
    "aligned": (lambda x: x.flags.aligned, [ONES, unaligned(ONES)]),
    "owndata": (lambda x: x.flags.owndata, [ONES, np.ones(8)[:4]]),
    "strides": (lambda x: x.strides[0], [ONES, np.ones(8)[::2], np.ones(12)[::3], ONES[::-1]]),
    "strides of a view": (lambda x: x[::2].strides[0], [ONES, np.ones(8)[::2], np.ones(12)[::3]]),
    "rank 0": (lambda x: x.flags.writeable, [np.array(1.0), frozen(np.array(1.0))]),
}


@pytest.mark.parametrize("case", ASK)
def test_answers_are_those_of_each_array(case):
    ask, arrays = ASK[case]

    def scaled(x):
        return np.sum(x * (2.0 + ask(x)))

    functions = [gt.jit(scaled), gt.jit(lambda x: gt.jit(scaled)(x))]
    gradient = gt.grad(scaled)
    for _ in range(2):
        for array in arrays:
            for function in functions:
                assert function(array) == scaled(array)
            np.testing.assert_array_equal(gradient(array), np.full(array.shape, 2.0 + ask(array)))
    with gt.config.override(jit=False):
        for array in arrays:
            assert gt.jit(scaled)(array) == scaled(array)


def test_captured_arrays():
    c = np.ones(3)

    @gt.jit
    def scaled(x):
        return x * (2.0 if c.flags.writeable else 3.0)

    assert scaled(1.0) == 2.0
    c.flags.writeable = False
    assert scaled(1.0) == 3.0
    c.flags.writeable = True
    assert scaled(1.0) == 2.0


def test_functions_that_do_not_ask_have_one_trace():
    @gt.jit
    def function(x):
        return x * 2.0 if x.flags.c_contiguous and x.strides == (8,) else x

    for array in (ONES, frozen(ONES), np.ones(8)[:4], unaligned(ONES)):
        np.testing.assert_array_equal(function(array), np.full(4, 2.0))
    assert function.site.traces == 1


def test_flags_are_set_as_setflags_sets_them():
    @gt.jit
    def protected(x):
        x.flags.writeable = False
        return x * 1.0

    protected(ONES)
    assert gt.jit(lambda x: x * float(x.flags.writeable))(ONES)[0] == 1.0  # of another array of this shape
    with pytest.raises(InPlaceError, match="setflags"):
        gt.jit(lambda x: setattr(x.flags, "writeable", True))(ONES)
    with pytest.raises(AttributeError):
        gt.jit(lambda x: x.flags.no_such_flag)(ONES)
    with pytest.raises(KeyError):
        gt.jit(lambda x: x.flags["no such flag"])(ONES)


def test_flags_are_printed_as_those_of_numpy():
    with gt.GradientTape() as tape:
        x = tape.watch(np.ones((2, 3)))
        assert str(x.flags) == str(np.ones((2, 3)).flags)
        assert x.flags == np.ones((2, 3)).flags
