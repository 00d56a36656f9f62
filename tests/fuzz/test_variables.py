"""Random programs that read and assign variables: every way to run them gives the same results, contents and gradients."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import gradtape as gt

COUNT = 3
SEEDS = range(12)


class Cell:
    """What a variable does, with ndarrays."""

    def __init__(self, content: Any) -> None:
        self.content = np.array(content)

    def value(self) -> Any:
        return self.content

    def assign(self, content: Any) -> None:
        self.content = np.array(content)

    def assign_add(self, delta: Any) -> None:
        self.content = self.content + delta


@dataclass(frozen=True)
class Step:
    kind: str
    i: int
    j: int
    number: float


@dataclass(frozen=True)
class Program:
    steps: list[Step]
    contents: list[Any]
    arguments: list[Any]

    def run(self, variables: Any, x: Any, helper: Callable[[int, int], Any]) -> Any:
        total = x * 1.0
        for step in self.steps:
            first, second = variables[step.i], variables[step.j]
            if step.kind == "assign":
                first.assign(second.value() * 0.5 + total * step.number)
            elif step.kind == "add":
                first.assign_add(total * 0.1 * step.number)
            elif step.kind == "read":
                total = total + first.value() * step.number
            elif step.kind == "multiply":
                total = np.tanh(total + first.value() * second.value())
            elif step.kind == "call":
                total = total + helper(step.i, step.j)
            elif np.sum(first.value()) > step.number:
                total = total * 0.5
            else:
                second.assign(total)
        return total


def program(seed: int) -> Program:
    rng = random.Random(seed)
    kinds = ["assign", "add", "read", "branch", "multiply", "call"]
    steps = [
        Step(rng.choice(kinds), rng.randrange(COUNT), rng.randrange(COUNT), rng.uniform(-1, 1))
        for _ in range(rng.randrange(2, 9))
    ]
    draw = np.random.default_rng(seed)
    return Program(steps, list(draw.uniform(-1, 1, (COUNT, 2))), list(draw.uniform(-1, 1, (4, 2))))


def helped(variables: Any, i: int, j: int) -> Any:
    variables[i].assign_add(0.25)
    return variables[j].value() * 0.1


class Running:
    """A program with variables of its own, and a compiled function that it calls."""

    def __init__(self, what: Program) -> None:
        self.program = what
        self.variables = [gt.Variable(content) for content in what.contents]
        self.helper = gt.jit(lambda i, j: helped(self.variables, i, j), static_argnums=(0, 1))

    def run(self, x: Any) -> Any:
        return self.program.run(self.variables, x, self.helper)

    def passed(self) -> Callable[[Any], Any]:
        """Return the program as a compiled function that is given its variables."""
        function = gt.jit(lambda variables, x: self.program.run(variables, x, self.helper))
        return lambda x: function(self.variables, x)


def on_a_tape(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def run(x: Any) -> Any:
        with gt.GradientTape():
            return function(x)

    return run


def on_the_interpreter(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def run(x: Any) -> Any:
        with gt.config.override(jit=False):
            return function(x)

    return run


WAYS: dict[str, Callable[[Running], Callable[[Any], Any]]] = {
    "as it is": lambda running: lambda x: running.run(gt.constant(x)),
    "compiled": lambda running: gt.jit(running.run),
    "compiled, variables passed": Running.passed,
    "compiled, on a tape": lambda running: on_a_tape(gt.jit(running.run)),
    "interpreted": lambda running: on_the_interpreter(gt.jit(running.run)),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("seed", SEEDS)
def test_results_and_contents(seed: int, way: str) -> None:
    what = program(seed)
    cells = [Cell(content) for content in what.contents]
    running = Running(what)
    function = WAYS[way](running)
    for x in what.arguments:
        expected = what.run(cells, x, lambda i, j: helped(cells, i, j))
        np.testing.assert_allclose(np.asarray(function(x)), expected, rtol=1e-10, atol=1e-13)
        for variable, cell in zip(running.variables, cells, strict=True):
            np.testing.assert_allclose(variable.numpy(), cell.content, rtol=1e-10, atol=1e-13)


def by_tape(running: Running, function: Callable[[Any], Any], x: Any) -> Any:
    with gt.GradientTape() as tape:
        x = tape.watch(x)
        y = np.sum(function(x) ** 2)
    return tape.gradient(y, [*running.variables, x], unconnected_gradients="zero")


def by_name(running: Running, x: Any) -> Any:
    y = np.sum(running.run(x) ** 2)
    return gt.gradients(y, [*running.variables, x], unconnected_gradients="zero")


def tape_inside(running: Running) -> Callable[[Any], Any]:
    return gt.jit(lambda x: by_tape(running, running.run, x))


def second_call(running: Running, function: Callable[[Any], Any], x: Any) -> Any:
    """Return what a call gives that is not the first, with the contents of the first."""
    function(x)
    for variable, content in zip(running.variables, running.program.contents, strict=True):
        variable.assign(content)
    return function(x)


GRADIENTS: dict[str, Callable[[Running, Any], Any]] = {
    "tape around a compiled function": lambda running, x: by_tape(running, gt.jit(running.run), x),
    "tape around, variables passed": lambda running, x: by_tape(running, running.passed(), x),
    "tape inside": lambda running, x: tape_inside(running)(x),
    "tape inside, again": lambda running, x: second_call(running, tape_inside(running), x),
    "by name": lambda running, x: gt.jit(lambda a: by_name(running, a))(x),
    "by name, recorded": lambda running, x: gt.jit(lambda a: by_name(running, a))(gt.constant(x)),
}


@pytest.mark.parametrize("way", GRADIENTS)
@pytest.mark.parametrize("seed", SEEDS)
def test_gradients(seed: int, way: str) -> None:
    what = program(seed)
    x = what.arguments[0]
    plain, running = Running(what), Running(what)
    expected = by_tape(plain, plain.run, x)
    for got, wanted in zip(GRADIENTS[way](running, x), expected, strict=True):
        np.testing.assert_allclose(np.asarray(got), np.asarray(wanted), rtol=1e-9, atol=1e-12)
    for variable, other in zip(running.variables, plain.variables, strict=True):
        np.testing.assert_allclose(variable.numpy(), other.numpy(), rtol=1e-9, atol=1e-12)
