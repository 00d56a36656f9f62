"""Objects of the user's classes among the arguments of translated functions: their attributes are parameters."""

from __future__ import annotations

import math

import numpy as np
import pytest

import gradtape as gt

ROWS = np.array([[1.0, 2.0], [0.0, 0.0], [0.0, 1.0]])


class Point:
    """Its comparison asks for numbers, so that it is translated where they are not known."""

    def __init__(self, x, y):
        self.x, self.y = x, y

    def __eq__(self, other):
        return bool(self.x == other.x and self.y == other.y)

    def is_at(self, other):
        return bool(self.x == other.x and self.y == other.y)

    __hash__ = None


class Spring:
    """Holds an array, a number, a list and an attribute with the name of that of a traced array."""

    def __init__(self, weights, stiffness):
        self.weights, self.stiffness = weights, stiffness
        self.both = [weights, 2 * weights]
        self.value = weights[0]

    def energy(self, x):
        total = 0.0
        for i in range(len(x)):
            total += math.sqrt(self.weights[i] ** 2 + x[i] ** 2) * self.stiffness
        for one in self.both:
            total += math.sin(one[0]) * self.value
        return total


def shifted(p):
    return p[0] * 1.0 if Point(*p) == Point(0.0, 0.0) else p[0] + 10


def located(p):
    return np.where(Point(*p).is_at(Point(0.0, 0.0)), p[0], p[0] + 10)


def test_comparisons_of_attributes_are_not_decided_by_their_types():
    """Once False for all rows, in silence: an attribute was compared as the type of a parameter."""
    np.testing.assert_array_equal(gt.vmap(located)(ROWS), [located(row) for row in ROWS])
    with pytest.raises(gt.errors.ConcretizationError, match="elements do not agree"):
        gt.vmap(shifted)(ROWS)


@pytest.mark.parametrize("row", ROWS)
def test_branches_on_them_follow_each_call(row):
    compiled = gt.jit(shifted)
    for other in (row, *ROWS):
        assert compiled(other) == shifted(other)


def test_methods_read_arrays_numbers_and_lists():
    def energy(x, weights):
        return Spring(weights, weights[1] + 2.0).energy(x)

    weights = np.array([0.3, 0.4])
    wanted = [energy(row, weights) for row in ROWS + 1.0]
    np.testing.assert_allclose(gt.vmap(energy, in_axes=(0, None))(ROWS + 1.0, weights), wanted)
    gradient = gt.jit(gt.grad(energy, argnums=1))
    for at in (weights, weights + 0.5):
        steps = 1e-6 * np.eye(2)
        differences = [(energy(ROWS[0], at + h) - energy(ROWS[0], at - h)) / 2e-6 for h in steps]
        np.testing.assert_allclose(gradient(ROWS[0], at), differences, rtol=1e-6)
