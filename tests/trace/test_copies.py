"""Copies of arrays: equal, and their own."""

import copy

import numpy as np
import pytest

import gradtape as gt

COPIES = [
    lambda x: x.copy(),
    lambda x: x.astype(float),
    copy.copy,
    np.real,
    np.positive,
    np.squeeze,
]


@pytest.mark.parametrize("make", COPIES)
@pytest.mark.parametrize("alive", [True, False])
def test_a_captured_array_is_seen_to_change_whatever_was_made_of_it(make, alive):
    x = gt.constant([1.0, 2.0])
    f = gt.jit(lambda a: a * x)
    made = make(x)
    assert made.tolist() == [1.0, 2.0]
    if not alive:
        del made
    assert f(1.0).tolist() == [1.0, 2.0]
    x[0] = 5.0
    assert f(1.0).tolist() == [5.0, 2.0]


def test_a_captured_array_is_seen_to_change_after_it_was_written_to_another():
    x, y = gt.constant([1.0, 2.0]), gt.constant([0.0, 0.0])
    f = gt.jit(lambda a: a * x)
    y[...] = x
    assert f(1.0).tolist() == [1.0, 2.0]
    x[0] = 5.0
    assert f(1.0).tolist() == [5.0, 2.0]
    assert y.tolist() == [1.0, 2.0]


def test_watching_an_array_does_not_watch_its_copies():
    x = gt.constant([1.0, 2.0])
    y = x.copy()
    with gt.GradientTape() as tape:
        tape.watch(x)
        z = np.sum(x * y)
    slopes = tape.gradient(z, [x, y])
    assert slopes[0].tolist() == [1.0, 2.0] and slopes[1] is None


def test_copies_are_followed():
    with gt.GradientTape() as tape:
        x = tape.watch(np.array([1.0, 2.0]))
        z = np.sum(x.copy() ** 2)
    assert tape.gradient(z, x).tolist() == [2.0, 4.0]
