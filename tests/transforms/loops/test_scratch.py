"""Scratch files: reversed loops whose carries are in a file without a name."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gradtape as gt
from gradtape import scratch
from gradtape.scratch import ALIGNMENT, free_scratch, scratch_folder, workspace_with_file
from gradtape.transforms.loops import budget
from gradtape.transforms.loops.budget import Record, file_chunk, in_file_if_faster, policy_within

pytestmark = pytest.mark.skipif(free_scratch() == 0, reason="this system has no scratch files")

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


def pairs(u: Any) -> Any:
    def step(carry: Any, x: Any) -> Any:
        a, b = carry
        a = np.tanh(a * x + np.roll(b, 1))
        return (a, b + 0.01 * a), np.sum(a)

    (a, b), sums = gt.scan(step, (u, np.cos(u)), np.linspace(0.5, 1.5, STEPS), reverse=True)
    return np.sum(a * b) + np.sum(sums**2)


def nested(u: Any) -> Any:
    def step(_: Any, u: Any) -> Any:
        return np.tanh(gt.fori_loop(0, 5, lambda _, v: np.sin(v) + 0.1 * np.roll(v, 1), u))

    return np.sum(gt.fori_loop(0, STEPS, step, u))


PROGRAMS = {heat: "4 kB", rolled: "4 kB", pairs: "6 kB", nested: "9 kB"}
"""Budgets that would mean treeverse."""


def point() -> Any:
    return np.linspace(0.1, 0.9, SIZE)


@pytest.fixture
def in_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Let plans take a file wherever there would be treeverse, and count the files."""
    made: list[tuple[int, int]] = []
    real = scratch.workspace_with_file

    def counted(size: int, file_from: int) -> Any:
        made.append((size, file_from))
        return real(size, file_from)

    monkeypatch.setattr(budget.costs, "FILE_SECONDS", 0.0)
    monkeypatch.setattr(budget.costs, "FILE_BYTES", 1e30)
    monkeypatch.setattr("gradtape.runtime.compile.program.workspace_with_file", counted)
    with gt.config.override(scratch_dir=str(tmp_path)):
        yield made
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("f", PROGRAMS)
def test_a_scratch_file_changes_no_gradient(f: Callable[[Any], Any], in_files: list[tuple[int, int]]) -> None:
    expected_value, expected = gt.value_and_grad(f)(point())
    assert not in_files
    gradient = gt.value_and_grad(f, memory=PROGRAMS[f])
    for _ in range(3):
        value, found = gradient(point())
        assert value == expected_value
        np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert len(in_files) == 3
    for size, file_from in in_files:
        assert file_from % ALIGNMENT == 0
        assert file_from < size
    assert "in a scratch file" in str(gt.inspect.explain(gradient))


@pytest.mark.parametrize("f", [heat, rolled])
def test_another_folder_means_another_plan(
    f: Callable[[Any], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = gt.value_and_grad(f, memory="4 kB")
    monkeypatch.setattr(budget, "free_scratch", lambda: 0)
    expected = full(point())
    assert "scratch file" not in str(gt.inspect.explain(full))
    monkeypatch.undo()
    monkeypatch.setattr(budget.costs, "FILE_SECONDS", 0.0)
    monkeypatch.setattr(budget.costs, "FILE_BYTES", 1e30)
    with gt.config.override(scratch_dir=str(tmp_path)):
        for gradient in (full, gt.value_and_grad(f, memory="4 kB")):
            np.testing.assert_allclose(gradient(point())[1], expected[1], rtol=1e-12)
            assert "in a scratch file" in str(gt.inspect.explain(gradient))


def test_second_derivatives_and_tapes_use_scratch_files(in_files: list[tuple[int, int]]) -> None:
    direction = np.ones(SIZE)
    expected = gt.jvp(gt.grad(heat), (point(),), (direction,))[1]
    with gt.config.override(memory="4 kB"):
        tangent = gt.jvp(gt.grad(heat), (point(),), (direction,))[1]
        np.testing.assert_allclose(tangent, expected, rtol=1e-9, atol=1e-12)
        before = len(in_files)
        for _ in range(3):  # the first record is interpreted
            with gt.GradientTape() as tape:
                u = tape.watch(point())
                y = heat(u)
            gradient = tape.gradient(y, u)
            np.testing.assert_allclose(gradient, gt.grad(heat, memory="1 GB")(point()), rtol=1e-12)
    assert len(in_files) > before > 0


def test_the_plan_is_the_one_that_takes_the_least_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "free_scratch", lambda: 10**13)
    monkeypatch.setattr(budget, "work_of", lambda node: 1e7)
    record = Record(100_000, 8_000_000, 8_000_000)
    treeverse = policy_within(record, 4 * 10**9)
    assert treeverse == ("treeverse", 498)
    chosen = in_file_if_faster(record, 4 * 10**9, treeverse, [None])  # type: ignore[list-item]
    assert chosen == ("file", 498)
    assert file_chunk(record, 4 * 10**9) == 498
    for policy in (None, 100):  # what fits in memory stays there
        assert in_file_if_faster(record, 4 * 10**9, policy, [None]) == policy  # type: ignore[list-item]
    monkeypatch.setattr(budget.costs, "FILE_BYTES", 1e3)
    assert in_file_if_faster(record, 4 * 10**9, treeverse, [None]) == treeverse  # type: ignore[list-item]
    monkeypatch.undo()
    monkeypatch.setattr(budget, "work_of", lambda node: 1e7)
    monkeypatch.setattr(budget, "free_scratch", lambda: 10**6)
    assert in_file_if_faster(record, 4 * 10**9, treeverse, [None]) == treeverse  # type: ignore[list-item]


def test_small_loops_take_no_files() -> None:
    with gt.config.override(memory="2500 B"):
        assert "treeverse" in str(gt.inspect.graph(gt.grad(heat), point()))


def test_a_file_has_no_name_while_it_is_used(tmp_path: Path) -> None:
    with gt.config.override(scratch_dir=str(tmp_path / "new")):
        with workspace_with_file(3 * ALIGNMENT, ALIGNMENT) as memory:
            memory[:] = 1
            memory[ALIGNMENT:] += 6
            assert memory[ALIGNMENT - 1] == 1
            assert memory[ALIGNMENT] == memory[-1] == 7
            assert os.listdir(scratch_folder()) == []
        assert os.listdir(scratch_folder()) == []


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    place = tmp_path / "file"
    place.write_text("")
    with (
        gt.config.override(scratch_dir=str(place)),
        pytest.raises(OSError, match="file") as caught,
        workspace_with_file(2 * ALIGNMENT, ALIGNMENT),
    ):
        pass
    assert "gt.config.scratch_dir" in "".join(caught.value.__notes__)


def test_the_folder_is_the_setting_or_that_of_the_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with gt.config.override(scratch_dir=None, cache_dir=str(tmp_path / "cache")):
        monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
        assert scratch_folder() == tmp_path / "tmp"
        monkeypatch.delenv("TMPDIR")
        assert scratch_folder() == tmp_path / "cache"
        with gt.config.override(scratch_dir=str(tmp_path)):
            assert scratch_folder() == tmp_path
