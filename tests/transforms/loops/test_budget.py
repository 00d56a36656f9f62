"""`gt.config.memory`: what reversed loops keep under a memory budget, and that it changes no gradient."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

import gradtape as gt
from gradtape.config import bytes_of
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
