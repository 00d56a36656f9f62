"""Python loops, and what they are given: each computes the same rolled and unrolled."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import gradtape as gt
from gradtape.ir.evaluate import compute_values
from gradtape.ir.graph import Graph
from gradtape.trace.jit.lookup import CaptureSet
from gradtape.trace.jit.signature import CallArguments
from gradtape.transforms.reroll.roll import Rolled, rolled_graph


class Case(NamedTuple):
    """A function of a trip count that returns a function, its arguments, and how many nodes may be left."""

    name: str
    make: Callable[[int], Callable[..., Any]]
    args: Callable[[int], tuple[Any, ...]]
    most: int


CASES: list[Case] = []


def case(most: int, *args: Callable[[np.random.Generator, int], Any]) -> Callable[..., Any]:
    """Enter a loop; an argument is made from a generator and the trip count."""

    def enter(make: Callable[[int], Callable[..., Any]]) -> Callable[[int], Callable[..., Any]]:
        def given(trips: int) -> tuple[Any, ...]:
            numbers = np.random.default_rng(7)
            return tuple(one(numbers, trips) for one in args)

        CASES.append(Case(make.__name__, make, given, most))
        return make

    return enter


def scalar(numbers, trips):
    return np.float64(0.3)


def vector(numbers, trips):
    return numbers.normal(size=4)


def square(numbers, trips):
    return numbers.normal(size=(4, 4)) * 0.3


def rows(numbers, trips):
    return numbers.normal(size=(trips, 4))


def line(numbers, trips):
    return numbers.normal(size=trips)


def positive(numbers, trips):
    return numbers.uniform(0.5, 1.5, size=(trips, 4))


@case(4, scalar, scalar)
def runge_kutta(trips):
    def slope(angle, speed):
        return speed, -9.81 * np.sin(angle)

    def f(angle, speed, h=0.01):
        for _ in range(trips):
            a1, s1 = slope(angle, speed)
            a2, s2 = slope(angle + h / 2 * a1, speed + h / 2 * s1)
            a3, s3 = slope(angle + h / 2 * a2, speed + h / 2 * s2)
            a4, s4 = slope(angle + h * a3, speed + h * s3)
            angle = angle + h / 6 * (a1 + 2 * a2 + 2 * a3 + a4)
            speed = speed + h / 6 * (s1 + 2 * s2 + 2 * s3 + s4)
        return angle * speed

    return f


@case(12, rows, square)
def recurrent_net(trips):
    def f(x, w):
        h = np.zeros(4)
        states = []
        for t in range(trips):
            h = np.tanh(x[t] + h @ w)
            states.append(h)
        return np.sum(np.stack(states) * x), h

    return f


@case(16, vector, square, positive)
def forward_algorithm(trips):
    def f(start, steps, likely):
        alpha = np.exp(start) * likely[0]
        total = 0.0
        for t in range(1, trips):
            scale = alpha.sum()
            total = total + np.log(scale)
            alpha = (alpha / scale) @ np.exp(steps) * likely[t]
        return total + np.log(alpha.sum())

    return f


@case(4, scalar)
def fibonacci(trips):
    def f(x):
        a, b = x, 2 * x
        for _ in range(trips):
            a, b = b, np.sin(a + b)
        return a * b

    return f


@case(16, scalar)
def leapfrog_in_a_list(trips):
    def f(x):
        xs = [x, np.cos(x)]
        for _ in range(trips):
            xs.append(2 * xs[-1] - xs[-2] - 0.01 * np.sin(xs[-1]))
        return np.sum(np.stack(xs) ** 2)

    return f


@case(10, scalar)
def written_and_read_by_index(trips):
    def f(x):
        y = np.zeros(trips + 1, like=x)
        y[0] = x
        for i in range(trips):
            y[i + 1] = y[i] + 0.1 * np.sin(y[i])
        return np.sum(y**2)

    return f


@case(10, rows)
def written_by_index(trips):
    def f(x):
        y = np.zeros((trips, 4), like=x)
        for i in range(trips):
            y[i] = np.sin(x[i]) * i
        return np.sum(y)

    return f


@case(12, rows)
def written_by_column(trips):
    def f(x):
        y = np.zeros((4, trips), like=x)
        for i in range(trips):
            y[:, i] = np.sin(x[i])
        return np.sum(y * x.T)

    return f


@case(14, line)
def array_read_in_each_iteration(trips):
    def f(x):
        y = np.zeros(trips, like=x)
        total = 0.0
        for i in range(trips):
            y[i] = np.sin(x[i])
            total = total + np.sum(y * x)
        return total

    return f


@case(6, line)
def windows(trips):
    def f(x):
        total = 0.0
        for i in range(trips - 2):
            total = total + np.sum(x[i : i + 3] ** 2) * i
        return total

    return f


@case(10, line)
def tiles(trips):
    def f(x):
        total = 0.0
        for i in range(0, trips - 3, 3):
            total = total * 0.9 + np.sin(np.sum(x[i : i + 3] ** 2)) + np.cos(total)
        return total

    return f


@case(8, rows)
def written_by_two_indices(trips):
    def f(x):
        y = np.zeros((trips, 4), like=x)
        for i in range(trips):
            for j in range(4):
                y[i, j] = np.sin(x[i, j]) * i + j
        return np.sum(y * x)

    return f


@case(9, line)
def written_in_some_order(trips):
    places = [int(k) for k in np.random.default_rng(5).permutation(trips)]

    def f(x):
        y = np.ones(trips + 3, like=x)
        for i, k in enumerate(places):
            y[k + 1] = np.sin(x[i]) * i
        return np.sum(y[1:] * y[:-1])

    return f


@case(8, rows)
def backwards(trips):
    def f(x):
        h = np.ones(4)
        for t in reversed(range(trips)):
            h = np.cos(h + x[t]) * x[t, 1]
        return np.sum(h)

    return f


@case(8, rows)
def over_zip_and_enumerate(trips):
    weights = np.linspace(0.0, 1.0, trips)

    def f(x):
        total = 0.0
        for i, (row, weight) in enumerate(zip(x, weights, strict=True)):
            total = total + np.sum(np.sin(row) * weight) * i
        return total

    return f


@case(8, rows)
def a_comprehension(trips):
    def f(x):
        return np.sum(np.stack([np.sin(row) * np.sum(row) for row in x]))

    return f


@case(8, line)
def a_sum_of_a_list(trips):
    def f(x):
        return sum([np.sin(x[i]) * 2.0 for i in range(trips)])

    return f


@case(8, scalar)
def recursion(trips):
    def deeper(x, n):
        return x if n == 0 else np.sin(deeper(x, n - 1)) * 1.1

    return lambda x: deeper(x, trips)


@case(13, rows)
def guarded_alike(trips):
    def f(x):
        total = 0.0
        for i in range(trips):
            size = np.sum(x[i] ** 2)
            if size >= 0:
                total = total + 0.01 * size * np.cos(total)
        return total

    return f


@case(15, rows)
def nested(trips):
    def f(x):
        total = 0.0
        for i in range(trips):
            inner = 1.0
            for j in range(4):
                inner = inner + np.sin(x[i, j] * inner)
            total = total + np.cos(inner)
        return total

    return f


@case(16, lambda numbers, trips: numbers.normal(size=(trips, 40)))
def deeply_nested(trips):
    def f(x):
        total = 0.0
        for i in range(trips):
            inner = 1.0
            for j in range(40):
                inner = inner + np.sin(x[i, j] * inner)
            total = total + np.cos(inner)
        return total

    return f


@case(14, rows)
def chosen_by_numbers(trips):
    order = [int(k) for k in np.random.default_rng(3).permutation(trips)]

    def f(x):
        h = np.ones(4)
        for k in order:
            h = np.sin(h * x[k]) + x[k]
        return np.sum(h)

    return f


@case(24, rows)
def two_lists(trips):
    def f(x):
        h, hs, both = np.ones(4), [], []
        for t in range(trips):
            h = np.sin(h + x[t])
            hs.append(h)
            both.append(h * 2)
            both.append(h * 3)
        total = 0.0
        for before, after in itertools.pairwise(hs):
            total = total + np.sum(before * after) * np.cos(total)
        return total + np.sum(np.stack(both))

    return f


@case(12, scalar, rows)
def first_iteration_differs(trips):
    def f(x, rows):
        last = None
        total = x
        for t in range(trips):
            total = np.sin(total) + (np.sum(rows[t]) if last is None else last * 0.5)
            last = total * 2
        return total

    return f


def graph_of(function: Callable[..., Any], args: tuple[Any, ...]) -> Graph:
    """Return a function's graph, unrolled, with what it reads from outside as constants."""
    site = gt.jit(function).site
    call = CallArguments(args, {}, site.static)
    with gt.config.override(reroll=False):
        specialisation = site.trace(call, CaptureSet(site.capture(call, substitutes=False)))
    assert specialisation is not None
    return specialisation.graph


def rolled_as_well(graph: Graph, args: tuple[Any, ...]) -> tuple[Graph, Rolled] | None:
    """Return the graph with loops after a look at whether it computes the same bits and holds where the other does."""
    found = rolled_graph(graph)
    if found is None:
        return None
    whole, _, result = found
    arrays = [np.asarray(arg) for arg in args]
    expected, computed = compute_values(graph, arrays), compute_values(whole, arrays)
    for old, new in zip(graph.outputs, whole.outputs, strict=True):
        one, other = expected.get(old, old.data), computed.get(new, new.data)
        assert one.dtype == other.dtype and one.shape == other.shape
        np.testing.assert_array_equal(one, other)
    for value, number in whole.guards:
        assert int(computed.get(value, value.data)) == number
    return whole, result
