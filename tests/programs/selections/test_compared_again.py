"""What a loop computes a second time, to compare it with what an earlier loop has selected, is the same number to the last bit.

LLVM fuses ``x * y + z`` in one loop and not in another one, sums in another order where it makes vectors, and calls functions for vectors,
which round otherwise. ``if x[i] * x[i] + y[i] >= best`` was false everywhere.
"""

import numba
import numpy as np
import pytest

import gradtape as gt

ELEMENTS = {
    "a sum of products": lambda x, y: x * x + y,
    "a difference": lambda x, y: 1.3 * y - x * y,
    "a magnitude": lambda x, y: abs(x * y + y),
    "a function": lambda x, y: np.exp(x * y),
    "a sine": lambda x, y: np.sin(3.0 * x + y) + y,
    "a quotient": lambda x, y: (x * y + 1.0) / (x * x + 2.0),
}
OTHERS = {"product": lambda x, y: (x * x) ** 3 + x * y, "sine": lambda x, y: np.sin(x * x) + np.exp(x * y)}


def two_loops(element, first, second):
    """Loop twice over elements; `first` and `second` are what each loop computes besides."""

    def program(x, y):
        best, total, count = -np.inf, 0.0, 0.0
        for i in range(len(x)):
            best = max(best, element(x[i], y[i]))
            total += first(x[i], y[i])
        for i in range(len(x)):
            total += second(x[i], y[i])
            if element(x[i], y[i]) >= best:
                count += 1.0
                total += x[i] * y[i]
        return count, total

    return program


def first_one(element, first, second):
    """Take the first element before the loop, which finds the others that are equal to it."""

    def program(x, y):
        best = element(x[0], y[0])
        total, count = second(x[0], y[0]), 0.0
        for i in range(len(x)):
            total += first(x[i], y[i])
            if element(x[i % 3], y[i % 3]) == best:
                count += 1.0
        return count, total

    return program


def of_products(element, first, second):
    """Store a part of the elements before the second loop, and read it there."""

    def program(x, y):
        parts, best, total, count = np.zeros(len(x)), -np.inf, 0.0, 0.0
        for i in range(len(x)):
            parts[i] = x[i] * x[i]
            total += second(x[i], y[i])
        for i in range(len(x)):
            best = max(best, x[i] * x[i] + element(x[i], y[i]))
        for i in range(len(x)):
            total += first(x[i], y[i])
            if parts[i] + element(x[i], y[i]) >= best:
                count += 1.0
        return count, total

    return program


def of_lines(element, first, second):
    """Compare sums over lines."""

    def program(x, y):
        best, total, count = -np.inf, 0.0, 0.0
        for i in range(len(x)):
            line = 0.0
            for j in range(len(y)):
                line += element(x[i], y[j]) * y[j]
            best = max(best, line)
        for i in range(len(x)):
            line = 0.0
            for j in range(len(y)):
                line += element(x[i], y[j]) * y[j]
                total += second(x[i], y[j])
            if line >= best:
                count += 1.0
        return count, total + first(x[0], y[0])

    return program


def of_arrays(element, first, second):
    """Select by a function of NumPy, and compare in a loop."""

    def program(x, y):
        values = element(x, y)
        best, total, count = np.max(values), np.sum(first(x, y)), 0.0
        for i in range(len(x)):
            total += second(x[i], y[i])
            if element(x[i], y[i]) >= best:
                count += 1.0
        return count, total

    return program


PROGRAMS = (two_loops, first_one, of_products, of_lines, of_arrays)


def points(dtype):
    rng = np.random.default_rng(0)
    for size in (7, 64):
        for _ in range(6):
            yield rng.normal(size=size).astype(dtype), rng.normal(size=size).astype(dtype)


@pytest.mark.parametrize("make", PROGRAMS)
@pytest.mark.parametrize("element", ELEMENTS)
def test_an_element_is_equal_to_itself(element, make):
    with gt.config.override(loops="compile"):
        for first, second in [("product", "sine"), ("sine", "product")]:
            program = make(ELEMENTS[element], OTHERS[first], OTHERS[second])
            compiled = gt.jit(program)
            derived = gt.jit(gt.value_and_grad(lambda x, y, f=program: f(x, y)[::-1], has_aux=True))
            for x, y in points(float):
                count, total = program(x, y)
                found = compiled(x, y)
                assert found[0] == count
                assert found[1] == pytest.approx(total, rel=1e-9, abs=1e-9)
                assert derived(x, y)[0][1] == count


@pytest.mark.parametrize("element", ["a sum of products", "a function"])
def test_in_single_precision_and_in_functions_of_numba(element):
    with gt.config.override(loops="compile"):
        compute, other = numba.njit(ELEMENTS[element]), numba.njit(OTHERS["product"])
        of_numba = gt.jit(numba.njit(two_loops(compute, other, other)))
        plain = gt.jit(two_loops(ELEMENTS[element], OTHERS["product"], OTHERS["sine"]))
        for x, y in points(float):
            assert of_numba(x, y)[0] == 1.0
        for x, y in points(np.float32):
            assert plain(x, y)[0] == 1.0


def roots_below(element, first, second):
    """Take the roots of the distances to the largest element."""

    def program(x, y):
        best, total = -np.inf, 0.0
        for i in range(len(x)):
            best = max(best, element(x[i], y[i]))
            total += first(x[i], y[i])
        for i in range(len(x)):
            total += second(x[i], y[i]) + np.sqrt(best - element(x[i], y[i]))
        return total

    return program


def logarithms_above(element, first, second):
    """Take logarithms of what the elements after a first one are above the smallest, by way of an array."""

    def program(x, y):
        least, total = element(x[0], y[0]), second(x[0], y[0])
        above = np.zeros(len(x))
        for i in range(1, len(x)):
            if element(x[i], y[i]) < least:
                least = element(x[i], y[i])
            total += first(x[i], y[i])
        for i in range(len(x)):
            above[i] = 2.0 * (element(x[i], y[i]) - least)
            total += second(x[i], y[i])
        for i in range(len(x)):
            total += (above[i] / 3.0) ** 0.5 + np.arccosh(1.0 + above[i])
        return total

    return program


@pytest.mark.parametrize("make", [roots_below, logarithms_above])
@pytest.mark.parametrize("element", ELEMENTS)
def test_distances_to_an_extremum_are_not_negative(element, make):
    with gt.config.override(loops="compile"):
        for first, second in [("product", "sine"), ("sine", "product")]:
            program = make(ELEMENTS[element], OTHERS[first], OTHERS[second])
            compiled, derived = gt.jit(program), gt.jit(gt.value_and_grad(program))
            for x, y in points(float):
                total = pytest.approx(program(x, y), rel=1e-6, abs=1e-6)
                assert compiled(x, y) == total
                assert derived(x, y)[0] == total
