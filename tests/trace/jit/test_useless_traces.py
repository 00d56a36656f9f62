"""Traces that no later call can use are warned of, once, with what differs; checks that machine code can make do not lose it."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gradtape as gt
from gradtape.errors import TraceLimitWarning
from gradtape.trace.jit.tracing import Tracer

X = np.array([1.0, 2.0])


class Counted:
    count = 0

    def __init__(self, value: Any) -> None:
        Counted.count += 1
        self.value = value


class Opaque:
    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


def test_a_class_that_counts_its_instances_is_an_input() -> None:
    f = gt.jit(lambda x: np.sum(Counted(x).value ** 2) * Counted.count)
    for _ in range(7):
        Counted(1.0)
        assert float(f(X)) == 5.0 * Counted.count


def test_a_class_that_code_may_read_whole_is_named_with_its_numbers() -> None:
    f = gt.jit(lambda x: np.sum(Counted(x).value ** 2) * len(vars(Counted)) ** 0)
    with pytest.warns(TraceLimitWarning, match=r"Counted.count counts: it was \d+, and is \d+") as caught:
        for _ in range(7):
            Counted(1.0)
            assert float(f(X)) == 5.0
    assert len([each for each in caught if each.category is TraceLimitWarning]) == 1


@pytest.mark.parametrize("transform", [gt.jit, gt.grad])
def test_an_object_that_is_new_in_each_call_is_named(transform: Any) -> None:
    held: list[Any] = [None]

    def f(x: Any) -> Any:
        return np.sum(x) if held[0] is not None else np.sum(x) * 2

    kept = transform(f)
    with pytest.warns(TraceLimitWarning, match="item 0 of .* is a new object in each call") as caught:
        for _ in range(7):
            held[0] = Opaque()
            kept(X)
    assert len(caught) == 1


def test_values_that_may_come_again_are_not_warned_of() -> None:
    mode = ""

    def f(x: Any) -> Any:
        return np.sum(x) * (2.0 if mode == "a" else 3.0)

    kept = gt.jit(f)
    for mode in ("a", "b", "c", "d", "a", "b", "c", "d"):
        assert float(kept(X)) == (6.0 if mode == "a" else 9.0)
    assert kept.site.traces == 4


@pytest.mark.parametrize(
    "items", [set(), frozenset({"a"}), bytearray()], ids=lambda items: type(items).__name__
)
def test_empty_and_immutable_sets_are_checked_by_machine_code(items: Any) -> None:
    def f(x: Any) -> Any:
        return np.sum(x) * (1 + len(items))

    kept = gt.jit(f)
    for _ in range(3):
        assert float(kept(X)) == 3.0 * (1 + len(items))
    assert kept.entry and kept.site.traces == 1
    (specialisation,) = kept.site.specialisations()
    missed: list[Any] = []
    bound = specialisation.bound(lambda *args: missed.append(args), None)
    assert bound is not None and bound(X) is not None and not missed
    if isinstance(items, set):
        items.add(1)
    elif isinstance(items, bytearray):
        items.append(1)
    else:
        items = frozenset({"a", "b"})
    for _ in range(3):
        assert float(kept(X)) == 3.0 * (1 + len(items))
    assert kept.site.traces == 2
    items = frozenset() if isinstance(items, set) else set()
    assert float(kept(X)) == 3.0


CONVERTED: dict[str, Callable[[Any, Any], Any]] = {
    "float": lambda x, k: np.sum(x**2) * float(k),
    "float of a power": lambda x, k: np.sum(x**2) * float(k * k + 1),
    "branch": lambda x, k: np.sum(x**2) * (float(k) if k > 2.5 else 1.0),
    "math": lambda x, k: np.sum(x**2) * math.sqrt(float(k)),
}


@pytest.mark.parametrize("case", CONVERTED)
@pytest.mark.parametrize("kind", [float, int, np.float64])
@pytest.mark.parametrize("kept", [True, False])
def test_captured_numbers_that_code_converts_are_traced_once_they_have_changed(
    case: str, kind: Any, kept: bool, monkeypatch: Any
) -> None:
    """``float(k)`` was a program for each value of k: after the third one it is as an argument would be."""
    compute = CONVERTED[case]
    attempts = []
    before = Tracer._attempt
    monkeypatch.setattr(Tracer, "_attempt", lambda *args: (attempts.append(1), before(*args))[1])
    model = SimpleNamespace(k=kind(0))
    gradient = gt.grad(lambda x: compute(x, model.k))
    for number in range(1, 16):
        if number == 9:
            attempts.clear()
        k = model.k = kind(number)
        found = gradient(X) if kept else gt.grad(lambda x: compute(x, k))(X)  # noqa: B023
        factor = compute(np.ones(1), kind(number))
        assert np.allclose(found, 2 * X * factor, rtol=1e-14), number
    assert not attempts


NEEDED: dict[str, Callable[[Any], Any]] = {
    "text": lambda k: {"1.0": 3.0}.get(str(float(k)), 1.0),
    "format": lambda k: {"1.0": 3.0}.get(f"{float(k)}", 1.0),
    "key": lambda k: {1.0: 3.0}.get(float(k), 1.0),
    "error": lambda k: 3.0 if k == 1.0 else 1.0 if k < 5.0 else _refuse(float(k)),
}


def _refuse(number: float) -> float:
    raise ValueError(f"{number} is too large")


@pytest.mark.parametrize("case", NEEDED)
def test_numbers_that_code_needs_are_checked_by_value_again(case: str) -> None:
    """A key or a text of a number cannot be traced: a program for each value, as before, and no other result or error."""
    model, factor = SimpleNamespace(k=0.0), NEEDED[case]
    scale = gt.jit(lambda x: np.sum(x) * factor(model.k) * float(model.k))
    for number in (1.0, 2.0, 3.0, 4.0, 1.0, 4.5, 1.0):
        model.k = number
        assert scale(X) == np.sum(X) * number * (3.0 if number == 1.0 else 1.0)
    model.k = 6.0
    if case == "error":
        with pytest.raises(ValueError, match=r"6.0 is too large"):
            scale(X)
    else:
        assert scale(X) == np.sum(X) * 6.0
