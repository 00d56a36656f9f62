"""Traces that no later call can use are warned of, once, with what differs; checks that machine code can make do not lose it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gradtape as gt
from gradtape.errors import TraceLimitWarning

X = np.array([1.0, 2.0])


class Counted:
    count = 0

    def __init__(self, value: Any) -> None:
        Counted.count += 1
        self.value = value


class Opaque:
    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


def test_a_class_that_counts_its_instances_is_named_with_its_numbers() -> None:
    f = gt.jit(lambda x: np.sum(Counted(x).value ** 2))
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
