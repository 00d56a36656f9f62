"""Functions that write outside: what they read is checked by native code from the fourth call on, and changes are seen."""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import Any

import numpy as np
import pytest

import gradtape as gt
from gradtape.trace.jit import lookup
from gradtape.trace.jit.captures import table

X = np.array([0.5, 1.5, 2.5])
WARM = 6


class Slotted:
    __slots__ = ("rate", "unset")

    def __init__(self) -> None:
        self.rate = 0.25


class Filter:
    factor = 2.0
    order = 1

    def __init__(self) -> None:
        self.mean = np.zeros(3)
        self.count = 0.0
        self.weights = np.ones(3)
        self.settings = {"power": 2, "names": ["a", "b"]}
        self.parts = [1.0, np.arange(3.0)]
        self.slotted = Slotted()
        self.log: list[Any] = []
        self.append = self.log.append
        self.transform: Callable[..., Any] = np.sin
        self.shift: Any = None

    def scaled(self, x: Any) -> Any:
        return x * self.factor

    def update(self, x: Any) -> Any:
        self.mean = (1 - self.slotted.rate) * self.mean + self.slotted.rate * self.transform(x)
        self.count = self.count + 1.0
        y = self.scaled(x) * self.weights ** self.settings["power"] + self.parts[1] * self.parts[0]
        if self.shift is not None:
            y = y + self.shift
        if hasattr(self.slotted, "unset"):
            y = y - 1.0
        if len(self.settings["names"]) > 2:
            y = y * 3.0
        return np.sum(y * self.order - self.mean)


def _halved(self: Filter, x: Any) -> Any:
    return x / 2


CHANGES: dict[str, Callable[[Filter], None]] = {
    "a number": lambda f: setattr(f, "count", 7.0),
    "the type of a number": lambda f: setattr(f, "count", np.float32(7.0)),
    "an array": lambda f: setattr(f, "weights", np.array([1.0, 2.0, 3.0])),
    "the dtype of an array": lambda f: setattr(f, "weights", np.array([1, 2, 3])),
    "the layout of an array": lambda f: setattr(f, "weights", np.arange(6.0)[::2]),
    "the shape of an array": lambda f: setattr(f, "weights", np.array([2.0])),
    "an array in place": lambda f: f.weights.__setitem__(1, 5.0),
    "an entry": lambda f: f.settings.update(power=3),
    "a nested list": lambda f: f.settings["names"].append("c"),
    "an item": lambda f: f.parts.__setitem__(0, 2.0),
    "a list": lambda f: setattr(f, "parts", [3.0, np.ones(3)]),
    "a slot": lambda f: setattr(f.slotted, "rate", 0.5),
    "an empty slot": lambda f: setattr(f.slotted, "unset", 1),
    "an object": lambda f: setattr(f, "slotted", Slotted()),
    "a function": lambda f: setattr(f, "transform", np.cos),
    "None": lambda f: setattr(f, "shift", 2.0),
    "a class attribute that it hides": lambda f: setattr(f, "factor", 4.0),
    "a method that it hides": lambda f: setattr(f, "scaled", MethodType(_halved, f)),
    "its class": lambda f: setattr(f, "__class__", type("Other", (Filter,), {"order": 5})),
}


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("way", [gt.jit, gt.grad])
def test_changes_between_calls_are_seen(way: Any, name: str) -> None:
    plain, ours = Filter(), Filter()
    update = way(ours.update)
    for change in (lambda f: None, CHANGES[name], lambda f: setattr(f, "shift", -1.0)):
        change(plain)
        change(ours)
        for _ in range(WARM):
            expected, found = plain.update(X), update(X)
            if way is gt.jit:
                np.testing.assert_allclose(found, expected, rtol=1e-12)
            np.testing.assert_allclose(ours.mean, plain.mean, rtol=1e-12)
            assert ours.count == plain.count


def test_attributes_of_the_class_that_change_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, ours = Filter(), Filter()
    update = gt.jit(ours.update)
    for factor in (2.0, 3.0, 2.0):
        monkeypatch.setattr(Filter, "factor", factor)
        for _ in range(WARM):
            np.testing.assert_allclose(update(X), plain.update(X), rtol=1e-12)


def test_bound_methods_of_builtin_objects_are_read() -> None:
    ours, log = Filter(), []  # type: ignore[var-annotated]

    def note(x: Any) -> Any:
        ours.append(np.sum(x))
        return x * 2.0

    noted = gt.jit(note)
    for k in range(WARM):
        noted(X * k)
        log.append(np.sum(X * k))
    np.testing.assert_allclose(ours.log, log)


def test_warm_calls_check_nothing_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    filter_ = Filter()
    filter_.slotted.unset = 1  # type: ignore[attr-defined] # that a slot is empty is checked in Python
    update = gt.jit(filter_.update)
    for _ in range(WARM):
        update(X)

    def refused(*_: Any) -> Any:
        raise AssertionError("captures were read in Python")

    monkeypatch.setattr(lookup, "read_captures", refused)
    monkeypatch.setattr(table, "read_captures", refused)
    for _ in range(3):
        update(X)
