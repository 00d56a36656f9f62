"""Numbers that differ are inputs of one program; programs are compiled when the interpreter has cost as much."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as gt
from gradtape.runtime.compile import program as programs
from gradtape.trace.lazy import force
from gradtape.trace.lazy.literals import MAX_INPUTS, Structure
from gradtape.trace.lazy.region import region_of
from tests.support.compiled import forget_structures

VECTOR = np.array([0.5, 1.5, 2.5])


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The graphs that are compiled or loaded, from empty tables."""
    graphs: list[Any] = []
    kernel = programs._kernel
    monkeypatch.setattr(
        programs, "_kernel", lambda graph, *rest: graphs.append(graph) or kernel(graph, *rest)
    )
    forget_structures()
    programs.kernels.clear()
    return graphs


def keys_of(structure: Structure, *expressions: Any) -> list[tuple[Any, ...]]:
    """Return the keys of the numbers of arrays that were computed in the same way."""
    regions = [region_of([each.value], None) for each in expressions]
    assert len({region.key for region in regions}) == 1
    return [structure.numbers(region).key for region in regions]


def test_a_number_that_has_differed_is_an_input() -> None:
    x = gt.constant(VECTOR)
    first, second, third = keys_of(Structure(), *[x * 2.0 + number for number in (0.1, 0.2, 0.3)])
    assert isinstance(first[0], bytes) and isinstance(first[1], bytes)
    assert second == third
    assert [type(entry) for entry in second] == [int, bytes]  # the walk meets the sum first


def test_equal_numbers_are_one_input() -> None:
    x = gt.constant(VECTOR)
    structure = Structure()
    keys = keys_of(structure, *[x * a + b for a, b in ((1.5, 1.5), (2.5, 2.5), (3.5, 3.5), (3.5, 2.5))])
    assert keys[1] == keys[2] != keys[3]
    region = region_of([(x * 4.5 + 4.5).value], None)
    assert len(structure.numbers(region).inputs) == 1


@pytest.mark.parametrize(
    "function",
    [
        lambda x, number: x**number,
        lambda x, number: np.where(x > 1.0, x, number),
        lambda x, number: gt.constant(np.arange(3)) * int(number),
    ],
    ids=["an exponent", "a choice", "an integer"],
)
def test_numbers_that_stay_in_the_program(function: Callable[[Any, float], Any]) -> None:
    keys = keys_of(Structure(), *[function(gt.constant(VECTOR), number) for number in (2.5, 3.5, 4.5)])
    assert len(set(keys)) == 3


def test_zeros_of_other_signs_are_other_numbers() -> None:
    x = gt.constant(VECTOR)
    keys = keys_of(Structure(), x**0.0, x**-0.0)
    assert keys[0] != keys[1]


def test_a_region_that_differs_in_too_many_numbers_keeps_them() -> None:
    def sum_of(numbers: np.ndarray[Any, Any]) -> Any:
        total = gt.constant(VECTOR)
        for number in numbers:
            total = total * float(number)
        return total

    rng = np.random.default_rng(0)
    for count, is_kept in ((MAX_INPUTS, False), (MAX_INPUTS + 1, True)):
        keys = keys_of(Structure(), *[sum_of(rng.uniform(1, 2, count)) for _ in range(3)])
        assert (len(set(keys)) == 3) is is_kept


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "arithmetic": lambda x, a, b: (a * x + b) / (x - a) - b * x,
    "reflected": lambda x, a, b: a / x + (b - x),
    "a comparison": lambda x, a, b: np.where(x > a, a * x, b * x),
    "power": lambda x, a, b: a * x**2 + b * x**3.0,
    "matrix": lambda x, a, b: (np.outer(x, x) * a + b) @ x,
    "scalar": lambda x, a, b: a * x[0] * x[1] + b * x[2],
    "single precision": lambda x, a, b: np.sin(a * x.astype(np.float32) + b),
    "complex": lambda x, a, b: np.abs(x * complex(a, b) + b * 1j),
    "a loop": lambda x, a, b: gt.fori_loop(0, 4, lambda k, s: s * x + 0.5, a * x + b),
    "unrolled": lambda x, a, b: unrolled(x, a, b),
    "one number twice": lambda x, a, b: (x * a) * (x + a) + (b if b == a else 2.0 * b) * x,
}


def unrolled(x: Any, a: float, b: float) -> Any:
    y = x * b
    for _ in range(40):
        y = y + a * np.sin(y) * 0.1 + b * 0.01
    return y


@pytest.mark.parametrize("name", FUNCTIONS)
def test_numbers_that_differ_give_what_a_fresh_program_gives(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(force, "SMALL_WORK", 0)
    monkeypatch.setattr(force, "WORK_PER_NODE", 0)
    function = FUNCTIONS[name]
    numbers = [(0.3, 0.7), (0.4, 0.7), (0.4, 0.9), (0.6, 0.6), (0.2, 0.2), (0.3, 0.7), (0.1, 0.8), (0.1, 0.1)]
    for a, b in numbers:
        with gt.GradientTape() as tape:
            x = tape.watch(gt.constant(VECTOR))
            y = function(x, a, b)
            loss = np.sum(y * y)
        gradient = tape.gradient(loss, x).numpy()
        value = function(gt.constant(VECTOR), a, b).numpy()
        with gt.config.override(jit=False):
            with gt.GradientTape() as tape:
                x = tape.watch(gt.constant(VECTOR))
                expected = function(x, a, b)
                total = np.sum(expected * expected)
            slope = tape.gradient(total, x).numpy()
            tolerance = 1e-5 if name == "single precision" else 1e-12
            np.testing.assert_allclose(value, expected.numpy(), rtol=tolerance)
            assert value.dtype == expected.dtype
            np.testing.assert_allclose(float(loss), float(total), rtol=tolerance)
        np.testing.assert_allclose(gradient, slope, rtol=tolerance)


def test_a_plan_is_for_the_numbers_that_it_was_made_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two numbers are the same at first, in the part that is computed, and in the whole that a plan is for."""
    monkeypatch.setattr(force, "SMALL_WORK", 0)
    monkeypatch.setattr(force, "WORK_PER_NODE", 0)
    x = gt.constant(VECTOR)
    for holds_other in (False, True, False, True):
        for a, b in ((1.0, 1.0), (2.0, 2.0), (3.0, 3.0), (3.0, 4.0), (5.0, 6.0), (5.0, 5.0)):
            y = np.sin(x * a + b)
            other = y * a - b if holds_other else None
            np.testing.assert_allclose(y.numpy(), np.sin(VECTOR * a + b))
            if other is not None:
                np.testing.assert_allclose(other.numpy(), np.sin(VECTOR * a + b) * a - b)


def value_iteration() -> float:
    """A table that Python fills with numbers, and a sum on the tape that branches on its values."""
    rewards = np.random.default_rng(0).normal(size=(4, 4))
    with gt.GradientTape() as tape:
        watched = tape.watch(gt.constant(rewards))
        table = np.zeros((4, 4))
        total: Any = 0.0
        for _ in range(5):
            for i, j in np.ndindex(4, 4):
                table[i, j] = rewards[i, j] + 0.9 * max(table[i - 1, j], table[i, j - 1])
                gain = watched[i, j] + 0.9 * float(table[i, j])
                if gain > 0:
                    total = total + gain * gain
    return float(np.sum(tape.gradient(total, watched).numpy()))


def time_warping() -> float:
    """Hard dynamic time warping: Python's min compares values of the tape."""
    rng = np.random.default_rng(1)
    one, other = rng.normal(size=8), rng.normal(size=9)
    with gt.GradientTape() as tape:
        x = tape.watch(gt.constant(one))
        costs: Any = {(-1, -1): 0.0}
        for i, j in np.ndindex(8, 9):
            before = [costs.get(place, np.inf) for place in ((i - 1, j), (i, j - 1), (i - 1, j - 1))]
            costs[i, j] = (x[i] - float(other[j])) ** 2 + min(before)
    return float(np.sum(tape.gradient(costs[7, 8], x).numpy()))


def newton() -> float:
    """Roots by Newton's method, with the iterate and the coefficient as Python's numbers."""
    found = 0.0
    for coefficient in np.linspace(1.0, 3.0, 20).tolist():
        root = 2.0
        for _ in range(6):
            with gt.GradientTape() as tape:
                x = tape.watch(gt.constant(root))
                y = np.exp(0.3 * x) + coefficient * x**2 - 5.0 * coefficient
            root -= float(y) / float(tape.gradient(y, x))
        found += root
    return found


def decaying_steps() -> float:
    """Gradient descent with momentum, bias correction and a rate that decays."""
    data = np.random.default_rng(2).normal(size=(20, 3))
    weights: Any = gt.constant(VECTOR)
    mean: Any = 0.0
    for step in range(1, 30):
        with gt.GradientTape() as tape:
            tape.watch(weights)
            loss = np.mean(np.tanh(data @ weights) ** 2)
        mean = 0.9 * mean + 0.1 * tape.gradient(loss, weights)
        weights = weights - 0.1 * 0.99**step * mean / (1 - 0.9**step)
        float(loss)
    return float(np.sum(weights.numpy()))


@pytest.mark.parametrize(
    ("program", "budget"), [(value_iteration, 2), (time_warping, 3), (newton, 6), (decaying_steps, 5)]
)
def test_budget_of_compilations(compiled: list[Any], program: Callable[[], float], budget: int) -> None:
    """All runs together compile what answers all steps; it is the same number for ten runs."""
    results = [program() for _ in range(4)]
    assert 1 <= len(compiled) <= budget
    np.testing.assert_allclose(results, results[0])


def test_small_regions_are_compiled_once_they_have_come_often(compiled: list[Any]) -> None:
    x = gt.constant(VECTOR)
    runs = force.SMALL_WORK // force.REGION_OVERHEAD
    for count in range(runs):
        np.testing.assert_allclose((x * 2.0).numpy(), VECTOR * 2.0)
        if count == runs // 4:
            assert not compiled
    assert len(compiled) == 1


def test_heavy_regions_are_compiled_at_once(compiled: list[Any]) -> None:
    x = gt.constant(np.ones(force.SMALL_WORK))
    np.testing.assert_allclose((np.sin(x) * 2.0).numpy(), np.full(force.SMALL_WORK, 2 * np.sin(1.0)))
    assert len(compiled) == 1
