"""Analysis of bytecode: what a trace asks for each array of a Python loop is read once."""

from __future__ import annotations

import sys
from typing import Any, ClassVar

import numpy as np
import pytest

import gradtape as gt
from gradtape.trace.patching import bytecode


def slope(s: Any) -> Any:
    return np.array([s[1], -np.sin(s[0])])


def swing(s: Any) -> Any:
    for _ in range(60):
        s = s + 0.01 * slope(s)
    return s[0]


def test_calls_in_a_loop_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[int] = []
    read = bytecode._read_callee_names

    def counted(*args: Any) -> tuple[str, ...]:
        reads.append(1)
        return read(*args)

    monkeypatch.setattr(bytecode, "_read_callee_names", counted)
    gradient = gt.grad(swing)(np.array([0.3, 0.0]))
    assert len(reads) < 10
    step = 1e-6
    differences = [
        (float(swing(np.array([0.3, 0.0]) + d)) - float(swing(np.array([0.3, 0.0]) - d))) / (2 * step)
        for d in step * np.eye(2)
    ]
    np.testing.assert_allclose(gradient, differences, rtol=1e-6)


class Notes:
    seen: ClassVar[list[tuple[str, ...]]] = []

    @staticmethod
    def take(*_: Any) -> None:
        Notes.seen.append(bytecode.callee_names(sys._getframe(1)))


take = Notes.take


def test_names_are_those_of_each_call() -> None:
    Notes.seen.clear()
    for _ in range(2):
        take(1)
        Notes.take(1, 2)
    assert Notes.seen == [("take",), ("Notes", "take")] * 2
