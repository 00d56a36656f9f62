"""Declared shapes: which lengths a jitted function takes, and what it says of others."""

import numpy as np
import pytest

import gradtape as gt

n, few = gt.Dim("n", min=2), gt.Dim("k", min=2, max=4)


@pytest.mark.parametrize(
    ("dimension", "text"),
    [
        (gt.Dim("n"), "gt.Dim('n')"),
        (gt.Dim("n", min=1), "gt.Dim('n', min=1)"),
        (gt.Dim("n", max=3), "gt.Dim('n', max=3)"),
        (few, "gt.Dim('k', min=2, max=4)"),
    ],
)
def test_dimensions_are_printed_as_they_are_written(dimension, text):
    assert repr(dimension) == text


@pytest.mark.parametrize(
    ("bounds", "text"),
    [
        ({"min": -1}, "min"),
        ({"min": 3, "max": 2}, "max"),
        ({"max": True}, "max must be a whole number"),
        ({"min": 1.0}, "min must be a whole number"),
    ],
)
def test_bounds_without_a_length_are_refused(bounds, text):
    with pytest.raises(gt.errors.ArgumentError, match=text):
        gt.Dim("n", **bounds)
    assert gt.Dim("n", min=3, max=3).max == 3


@pytest.mark.parametrize(
    ("x", "y", "wrong"),
    [
        (np.ones((2, 3)), np.ones(2), None),
        (np.ones((4, 3)), np.ones(4), None),
        (
            np.ones((1, 3)),
            np.ones(1),
            r"argument 'x' has shape \(1, 3\), which is not \(k, 3\): k must be at least 2",
        ),
        (np.ones((5, 3)), np.ones(5), r"k must be at most 4"),
        (
            np.ones((3, 3)),
            np.ones(4),
            r"argument 'y' has shape \(4,\), which is not \(k,\): k is 3 in this call",
        ),
        (np.ones((3, 2)), np.ones(3), "2 is not 3"),
        (np.ones(3), np.ones(3), "it has 1 axes"),
        (np.ones((3, 3)), [1.0, 1.0, 1.0], r"argument 'y' has list, which is not \(k,\): it is no array"),
    ],
)
@pytest.mark.parametrize("by_keyword", [False, True])
def test_lengths_within_the_bounds_are_taken(x, y, wrong, by_keyword):
    @gt.jit(shapes={"x": (few, 3), "y": (few,), "z": None})
    def total(x, y, z=1.0):
        return np.sum(x * y[:, None]) * z

    def call():
        return total(x, y=y, z=2.0) if by_keyword else total(x, y)

    if wrong is None:
        assert call() == np.sum(x) * (2.0 if by_keyword else 1.0)
    else:
        with pytest.raises(gt.errors.ShapeError, match=wrong):
            call()


def test_shapes_by_position():
    f = gt.jit(lambda x, y: np.sum(x) + np.sum(y), shapes=((n, 2), None))
    assert f(np.ones((2, 2)), np.ones(7)) == 11.0
    with pytest.raises(gt.errors.ShapeError, match=r"argument 0 has shape \(1, 2\), which is not \(n, 2\)"):
        f(np.ones((1, 2)), np.ones(7))
