"""Functions that write outside, called when two of the objects that they write to have become one, or are one no more."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as gt


class Node:
    def __init__(self, number: float = 1.0) -> None:
        self.number, self.left, self.right = number, None, None

    def shifted(self, x: Any) -> Any:
        self.number = self.number + x
        self.right.number = self.right.number * 2
        return self.number * self.right.number


def both(a: Any, b: Any, x: float) -> Any:
    a.number = a.number + x
    b.number = b.number * 2.0
    return a.number * b.number


def of_attributes(wrap: Callable[[Any], Any]) -> list[float]:
    root = Node()
    root.left, root.right = Node(2.0), Node(3.0)
    function = wrap(lambda x: both(root.left, root.right, x))
    results = [function(1.0), function(1.0)]
    root.right = root.left
    results += [function(1.0), function(2.0)]
    root.right = Node()
    results += [function(1.0), function(1.0)]
    return [*map(float, results), float(root.left.number), float(root.right.number)]


def of_arguments(wrap: Callable[[Any], Any]) -> list[float]:
    function, a, b = wrap(both), Node(1.0), Node(2.0)
    results = [function(*pair, 1.0) for pair in ((a, b), (a, b), (a, a), (b, a), (b, b))]
    return [*map(float, results), float(a.number), float(b.number)]


def of_items(wrap: Callable[[Any], Any]) -> list[float]:
    nodes = [Node(0.5), Node(0.75)]

    def function(x: Any) -> Any:
        nodes[0].number = np.tanh(nodes[-1].number)
        nodes[0] = Node(0.25)
        for node in nodes:
            node.number = node.number * 0.9
        return x * 1.0

    call = wrap(function)
    call(1.0), call(1.0)
    nodes[1] = nodes[0]
    call(1.0)
    return [float(node.number) for node in nodes]


def of_methods(wrap: Callable[[Any], Any]) -> list[float]:
    node = Node()
    node.right = Node(3.0)
    method = wrap(node.shifted)
    results = [method(1.0), method(1.0)]
    node.right = node
    results += [method(1.0), method(1.0)]
    return [*map(float, results), float(node.number)]


def of_lists(wrap: Callable[[Any], Any]) -> list[float]:
    def function(a: list[Any], b: list[Any], x: float) -> Any:
        a.append(x)
        b.append(2 * x)
        return x * len(a)

    call, a, b = wrap(function), [], []
    results = [call(*pair, 1.0) for pair in ((a, b), (a, b), (a, a), (b, b), (a, b))]
    return [*map(float, [*results, *a, *b])]


def of_dicts(wrap: Callable[[Any], Any]) -> list[float]:
    def function(tables: Any, x: float) -> Any:
        tables[0]["k"] = x
        tables[1]["k"] = tables[1]["k"] * 3
        return x * tables[0]["k"]

    call, a, b = wrap(function), {"k": 1.0}, {"k": 2.0}
    results = [call(pair, 1.5) for pair in ((a, a), (a, b), (a, b), (b, b))]
    return [*map(float, results), float(a["k"]), float(b["k"])]


def of_arrays(wrap: Callable[[Any], Any]) -> list[float]:
    root = Node()
    root.left, root.right = np.array([1.0, 2.0]), np.array([3.0, 4.0])

    def function(x: Any) -> Any:
        root.left *= 2.0
        y = np.sum(root.right) * x
        root.left[1] = x
        return y

    call = wrap(function)
    results = [call(1.0), call(1.5)]
    root.right = root.left
    results += [call(1.0), call(2.0)]
    root.right = np.array([5.0, 6.0])
    results += [call(1.0), call(1.0)]
    return [*map(float, results), *map(float, [*root.left, *root.right])]


def of_arrays_in_another_branch(wrap: Callable[[Any], Any]) -> list[float]:
    """The first trace writes to no array; that of the other branch finds one array in two places."""
    root = Node()
    root.left, root.right = np.array([1.0, 2.0]), np.array([3.0, 4.0])

    def function(x: Any) -> Any:
        y = np.sum(root.left) * x
        if x > 2.0:
            root.left *= 2.0
        elif x > 1.0:
            root.number = y
        return y + np.sum(root.right)

    call = wrap(function)
    results = [call(1.0), call(1.5), call(3.0)]
    root.right = root.left
    results += [call(1.0), call(1.5), call(3.0), call(1.0)]
    root.right = np.array([5.0, 6.0])
    results += [call(3.0), call(1.5), call(1.0)]
    return [*map(float, results), float(root.number), *map(float, [*root.left, *root.right])]


def of_arrays_before_another_branch(wrap: Callable[[Any], Any]) -> list[float]:
    """One array is in two places when the other branch is first traced."""
    root = Node()
    root.left, root.right = np.array([1.0, 2.0]), np.array([3.0, 4.0])

    def function(x: Any) -> Any:
        y = np.sum(root.left) * x
        if x > 2.0:
            root.left *= 2.0
        return y + np.sum(root.right)

    call = wrap(function)
    results = [call(1.0), call(1.5)]
    root.right = root.left
    results += [call(3.0), call(1.0), call(3.0)]
    return [*map(float, results), *map(float, root.left)]


def compiled_from_code(function: Any) -> Any:
    compiled = gt.jit(function)

    def called(*args: Any) -> Any:
        with gt.config.override(loops="compile"):
            return compiled(*args)

    return called


WAYS: dict[str, Callable[[Any], Any]] = {
    "jit": gt.jit,
    "compiled from code": compiled_from_code,
    "value_and_grad": lambda f: lambda *args: gt.value_and_grad(f, argnums=len(args) - 1)(*args)[0],
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "program",
    [
        of_attributes,
        of_arguments,
        of_items,
        of_methods,
        of_lists,
        of_dicts,
        of_arrays,
        of_arrays_in_another_branch,
        of_arrays_before_another_branch,
    ],
)
def test_writes_to_one_object_at_two_places(program: Callable[[Any], list[float]], way: str) -> None:
    np.testing.assert_allclose(program(WAYS[way]), program(lambda f: f))


@pytest.mark.parametrize("is_compiled", [False, True])
def test_on_a_tape(is_compiled: bool) -> None:
    def slopes(method: Any) -> list[float]:
        found = []
        for _ in range(2):
            with gt.GradientTape() as tape:
                x = tape.watch(np.array(1.0))
                y = method(x)
            found.append(float(tape.gradient(y, x)))
        return found

    node = Node()
    node.right = Node(3.0)
    method = gt.jit(node.shifted) if is_compiled else node.shifted
    apart = slopes(method)
    node.right = Node(1.0)
    node.right.right = node.right
    shared = slopes(gt.jit(node.right.shifted) if is_compiled else node.right.shifted)
    np.testing.assert_allclose([apart, shared], [[6.0, 12.0], [16.0, 40.0]])


def test_a_node_that_its_children_refer_to_is_no_tree_of_numbers() -> None:
    root = Node()
    root.left = Node(3.0)
    root.left.right = root  # its parent

    def product(node: Any, x: Any) -> Any:
        return node.left.number * node.left.right.number * x

    assert gt.grad(product, argnums=1)(root, 2.0) == 3.0
    assert (
        gt.grad(lambda node: node.number**2)(Node(3.0)).number == 6.0
    )  # the class is one of trees of numbers now
    assert gt.grad(product, argnums=1)(root, 2.0) == 3.0
    with pytest.raises(gt.errors.DtypeError, match="node is a Node that contains itself"):
        gt.grad(product)(root, 2.0)


@pytest.mark.parametrize("loops", ["trace", "compile"])
def test_an_argument_that_the_function_also_reads_from_outside_and_writes_to(loops: str) -> None:
    state = np.ones(3)

    def doubled(x: Any) -> Any:
        state[...] = 2.0 * x
        return x + state

    call = gt.jit(doubled)
    with gt.config.override(loops=loops):
        np.testing.assert_array_equal(call(np.full(3, 2.0)), np.full(3, 6.0))
        with pytest.raises(gt.errors.InPlaceError, match="shares memory with another one"):
            call(state)
        with pytest.raises(gt.errors.InPlaceError, match="shares memory with another one"):
            call(state[::-1])
    np.testing.assert_array_equal(state, np.full(3, 4.0))


class Log:
    """Values that are appended by one method, and counted by a property of the base class that only a branch reads."""

    def __init__(self) -> None:
        self.scale, self.calls, self.recent = 0.3, 0, deque([0.1], maxlen=3)

    @property
    def level(self) -> Any:
        return self.scale * 0.5 + len(self.recent)


class Logged(Log):
    def step(self, x: Any) -> Any:
        self.recent.append(x)
        if self.calls % 2 == 1:
            self.scale = np.tanh(self.level)
        return x * self.scale

    def __call__(self, x: Any) -> Any:
        y = self.step(x)
        self.recent.append(2.0 * x)
        return y


@pytest.mark.parametrize("way", WAYS)
def test_containers_that_code_reads_which_is_found_late(way: str) -> None:
    """All code has to be read before a container counts as one that is only written to."""

    def results(wrap: Callable[[Any], Any]) -> list[float]:
        log = Logged()
        call, found = wrap(lambda x: log(x)), []
        for x in (1.0, 2.0, 3.0, 4.0):
            found += [float(call(x)), float(log.scale), *map(float, log.recent)]
            log.calls += x == 2.0
        return found

    np.testing.assert_allclose(results(WAYS[way]), results(lambda f: f))
