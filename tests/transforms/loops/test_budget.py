"""`gt.config.memory`: what reversed loops keep under a memory budget, and that it changes no gradient."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

import gradtape as gt
from gradtape.config import bytes_of
from gradtape.transforms.loops import budget
from gradtape.transforms.loops.budget import (
    IMPOSSIBLE,
    Record,
    best_chunk,
    chunk_bytes,
    in_bytes,
    policy_within,
    runs_again,
)

STEPS = 60
SIZE = 50


def heat(u: Any) -> Any:
    def step(_: Any, u: Any) -> Any:
        return np.tanh(u + 0.2 * (np.roll(u, 1) - 2 * u + np.roll(u, -1)))

    return np.sum(gt.fori_loop(0, STEPS, step, u) ** 2)


def rolled(u: Any) -> Any:
    for _ in range(STEPS):
        u = np.sin(u) + 0.1 * np.roll(u, 1)
    return np.sum(u)


def scanned(u: Any) -> Any:
    def step(carry: Any, x: Any) -> Any:
        carry = np.tanh(carry * x + np.roll(carry, 1))
        return carry, np.sum(carry)

    carry, sums = gt.scan(step, u, np.linspace(0.5, 1.5, STEPS))
    return np.sum(carry) + np.sum(sums**2)


def until(u: Any) -> Any:
    def step(number: Any, u: Any) -> Any:
        return number + 1, np.sin(u) + 0.1 * np.roll(u, 1)

    return np.sum(gt.while_loop(lambda number, u: number < STEPS, step, (0, u))[1])


def nested(u: Any) -> Any:
    def step(_: Any, u: Any) -> Any:
        return np.tanh(gt.fori_loop(0, 5, lambda _, v: np.sin(v) + 0.1 * np.roll(v, 1), u))

    return np.sum(gt.fori_loop(0, STEPS, step, u))


def matrices(u: Any) -> Any:
    matrix = np.eye(SIZE) * 0.9 + 0.01
    return np.sum(gt.fori_loop(0, STEPS, lambda _, v: np.tanh(matrix @ v), u))


PROGRAMS = [heat, rolled, scanned, until, nested, matrices]


def point() -> Any:
    return np.linspace(0.1, 0.9, SIZE)


@pytest.mark.parametrize("memory", ["14 kB", "4 kB"])
@pytest.mark.parametrize("f", PROGRAMS)
def test_a_budget_changes_no_gradient(f: Callable[[Any], Any], memory: str) -> None:
    value, expected = gt.value_and_grad(f)(point())
    with gt.config.override(memory=memory):
        other, gradient = gt.value_and_grad(f)(point())
    assert value == other
    np.testing.assert_allclose(gradient, expected, rtol=1e-12)


@pytest.mark.parametrize("f", [heat, until])
def test_a_budget_changes_no_second_derivative(f: Callable[[Any], Any]) -> None:
    def slope(u: Any) -> Any:
        return gt.jvp(gt.grad(f), (u,), (np.ones(SIZE),))[1]

    with gt.config.override(memory="14 kB"):
        tangent = slope(point())
    np.testing.assert_allclose(tangent, slope(point()), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("memory", ["1 GB", "20 kB", "2 kB"])
def test_a_budget_changes_no_gradient_of_compiled_loops(memory: str) -> None:
    def f(u: Any) -> Any:
        for _ in range(STEPS):
            before = u.copy()
            for i in range(1, len(u) - 1):
                u[i] = np.sin(before[i] + 0.2 * (before[i - 1] - 2 * before[i] + before[i + 1]))
        return np.sum(u**2)

    with gt.config.override(loops="compile"):
        expected = gt.grad(f)(point())
        with gt.config.override(memory=memory):
            np.testing.assert_allclose(gt.grad(f)(point()), expected, rtol=1e-12)


def test_a_changed_budget_is_planned_with_again() -> None:
    gradient = gt.grad(heat)
    expected = gradient(point())
    graphs = []
    for memory in ("1 GB", "14 kB", "2500 B"):
        with gt.config.override(memory=memory):
            np.testing.assert_allclose(gradient(point()), expected, rtol=1e-12)
            graphs.append(str(gt.inspect.graph(gradient, point())))
    assert "policy" not in graphs[0]
    assert "policy 1" in graphs[1]
    assert "policy ('treeverse', 4)" in graphs[2]


def test_the_forward_loop_runs_once_before_the_reverse_sweep() -> None:
    """The loop of the value and the one that stores carries are one."""
    with gt.config.override(memory="14 kB"):
        text = str(gt.inspect.graph(gt.value_and_grad(heat), point(), optimised=True))
    loops = [line.strip() for line in text.splitlines() if line.strip().startswith("for ")]
    assert sum("policy 1" in line and "reversed" not in line for line in loops) == 1
    assert not any(f"range({STEPS})" in line for line in loops)


def test_explain_says_what_loops_record() -> None:
    gradient = gt.grad(heat)
    for memory in ("1 GB", "14 kB", "2500 B"):
        with gt.config.override(memory=memory):
            gradient(point())
    text = str(gt.inspect.explain(gradient))
    assert f"a reversed loop of {STEPS} iterations records 24 kB, and runs none again" in text
    assert "keeps the carries of 7 chunks, 2.8 kB, and runs each iteration once more" in text
    assert "keeps 4 sets of carries at a time" in text


def test_a_budget_that_cannot_be_kept_names_the_smallest() -> None:
    with gt.config.override(memory="1000 B"), pytest.raises(MemoryError) as caught:
        gt.grad(heat)(point())
    assert 'gt.config.memory = "1.2 kB" or more' in str(caught.value)
    with gt.config.override(memory="1.2 kB"):
        gradient = gt.grad(heat)(point())
    np.testing.assert_allclose(gradient, gt.grad(heat)(point()), rtol=1e-12)


@pytest.mark.parametrize("length", [2, 10, 1000, 12345])
@pytest.mark.parametrize("step", [8, 800])
@pytest.mark.parametrize("part", [2, 4, 16, 100])
def test_plans_stay_within_the_budget(length: int, step: int, part: int) -> None:
    record = Record(length, step, 80)
    budget = length * step // part
    policy = policy_within(record, budget)
    if policy == IMPOSSIBLE:
        assert budget < record.smallest()
    elif isinstance(policy, tuple):
        assert policy[1] * record.state + record.state + step <= budget
        assert runs_again(length, policy) >= length - 1
    else:
        assert policy == best_chunk(record)
        assert chunk_bytes(record, policy) <= budget


def test_iterations_of_treeverse_are_the_fewest() -> None:
    @lru_cache
    def advances(length: int, carries: int) -> int:
        if length <= 1 or carries == 1:
            return length * (length - 1) // 2
        return min(
            first + advances(length - first, carries - 1) + advances(first, carries)
            for first in range(1, length)
        )

    for length in (1, 2, 10, 60):
        for carries in (1, 2, 5, 20):
            assert runs_again(length, ("treeverse", carries)) == advances(length, carries) + length


@pytest.mark.parametrize("count", [1, 999, 1000, 1001, 123456, 10**9, 2**31 + 1])
def test_sizes_are_read_back_and_not_smaller(count: int) -> None:
    read = bytes_of(in_bytes(count))
    assert read is not None
    assert count <= read <= count * 1.02 + 1


@pytest.mark.parametrize("text", ["", "much", "0", "-1 GB", "2 GiB", "nan", "1e99"])
def test_other_texts_are_no_sizes(text: str) -> None:
    with pytest.raises(ValueError, match="expected a number of bytes"):
        gt.config.memory = text
    assert gt.config.memory is None


def on_a_tape(memory: Any) -> Any:
    with gt.GradientTape(memory=memory) as tape:
        u = tape.watch(point())
        y = heat(u)
    return tape.gradient(y, u)


WAYS: dict[str, Callable[[Any], Any]] = {
    "grad": lambda memory: gt.grad(heat, memory=memory)(point()),
    "value_and_grad": lambda memory: gt.value_and_grad(heat, memory=memory)(point())[1],
    "vjp": lambda memory: gt.vjp(heat, point(), memory=memory)[1](1.0)[0],
    "jacrev": lambda memory: gt.jacrev(heat, memory=memory)(point()),
    "sparse_jacobian": lambda memory: gt.sparse_jacobian(heat, mode="rev", memory=memory)(point()).toarray(),
    "GradientTape": on_a_tape,
    "hvp": lambda memory: gt.hvp(heat, (point(),), (np.ones(SIZE),), memory=memory),
    "hessian": lambda memory: gt.hessian(heat, memory=memory)(point()),
    "inside": lambda memory: gt.jit(lambda u: gt.grad(heat, memory=memory)(u))(point()),
    "around": lambda memory: gt.grad(lambda u: gt.jit(heat)(u), memory=memory)(point()),
}
"""Derivatives of `heat`, by way."""


@pytest.mark.parametrize("way", WAYS)
def test_transforms_plan_within_their_own_memory(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    budgets: list[int] = []
    planned = budget.policy_within

    def noted(record: Record, limit: int) -> Any:
        budgets.append(limit)
        return planned(record, limit)

    monkeypatch.setattr(budget, "policy_within", noted)
    expected = WAYS[way](None)
    assert 14_000 not in budgets
    for memory in ("14 kB", 14_000):
        budgets.clear()
        np.testing.assert_allclose(WAYS[way](memory), expected, rtol=1e-9)
        assert 14_000 in budgets
    with gt.config.override(memory="13 kB"):  # the setting holds for all others
        budgets.clear()
        np.testing.assert_allclose(WAYS[way]("14 kB"), expected, rtol=1e-9)
        assert 13_000 not in budgets
        WAYS[way](None)
        assert 13_000 in budgets


def test_gradients_within_different_memories_are_kept_apart() -> None:
    """Tapes and pullbacks keep their programs by what they recorded, which is the same here."""
    for make in (WAYS["GradientTape"], WAYS["vjp"]):
        for _ in range(3):
            make(None)
        for _ in range(3):
            with pytest.raises(MemoryError):
                make(1000)
        for _ in range(3):
            make(None)


def test_the_nearest_memory_holds() -> None:
    def inner(u: Any) -> Any:
        return np.sum(gt.grad(heat, memory=2500)(u) ** 2)

    with pytest.raises(MemoryError, match="memory = 1 kB"):
        gt.grad(heat, memory=1000)(point())
    np.testing.assert_allclose(gt.jit(inner)(point()), np.sum(gt.grad(heat)(point()) ** 2), rtol=1e-12)
    graph = str(gt.inspect.graph(gt.grad(heat, memory="14 kB"), point()))
    assert "policy 1" in graph


@pytest.mark.parametrize("way", [way for way in WAYS if way not in ("inside", "around")])
def test_what_is_no_memory_is_named(way: str) -> None:
    for wrong, error, words in (
        (0, gt.errors.ArgumentError, "memory is 0"),
        (-5, gt.errors.ArgumentError, "memory is -5"),
        ("2 GiB", gt.errors.ArgumentError, "memory is '2 GiB'"),
        ("", gt.errors.ArgumentError, "memory is ''"),
        (1.5, gt.errors.DtypeError, "memory must be an int, a str or None, got"),
        (True, gt.errors.DtypeError, "memory must be an int, a str or None, got"),
    ):
        with pytest.raises(error, match=f"{way}.*{words}"):
            WAYS[way](wrong)


def test_a_function_with_a_memory_is_pickled_with_it() -> None:
    again = pickle.loads(pickle.dumps(gt.grad(np.sin, memory="3 kB")))
    assert again.made_by.kwargs == {"memory": "3 kB"}
    tape = pickle.loads(pickle.dumps(gt.GradientTape(memory=3000)))
    assert tape._memory == "3000 B"
