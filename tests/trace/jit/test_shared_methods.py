"""Objects of installed packages that are made anew: their methods share programs, and what these read of the objects is checked."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest

import gradtape as gt
from gradtape.api.transforms import sharing
from tests.support.recording import traces_of

X = np.array([0.5, 1.5, 2.0])

SOURCE = """
import functools
import numpy as np

SHIFT = 0.25


def scaled(model, x):
    return model.scale * x + SHIFT


class Part:
    def __init__(self, power):
        self.power = power

    def raised(self, x):
        return x ** self.power


class Base:
    offset = 0.5

    def loss(self, x, *args):
        return np.sum(self.terms(x)) + self.offset

    def terms(self, x):
        return x**2


class Model(Base):
    def __init__(self, number=1.0, stamp=""):
        self.scale = number
        self.stamp = stamp
        self.array = np.array([1.0, 2.0, 3.0]) * number
        self.count = int(number)
        self.part = Part(int(number))
        self.numbers = [number, 2 * number]
        self.by_name = {"a": number}
        self.names = ["scale"]
        if number > 2:
            self.extra = number

    @property
    def doubled(self):
        return 2 * self.scale


class Scaled(Model):
    def terms(self, x):
        return self.scale * x**2


class Arrays(Model):
    def terms(self, x):
        return self.array * np.sin(x)


class Counts(Model):
    def terms(self, x):
        for _ in range(self.count):
            x = x * np.cos(x)
        return x


class Parts(Model):
    def terms(self, x):
        return self.part.raised(x)


class Lists(Model):
    def terms(self, x):
        return self.numbers[0] * x**2 + self.by_name["a"] * self.numbers[1] * x


class Properties(Model):
    def terms(self, x):
        return self.doubled * x**3


class Helpers(Model):
    def terms(self, x):
        return scaled(self, x) * x


class Named(Model):
    def terms(self, x):
        return getattr(self, self.names[0]) * x**2


class Asking(Model):
    def terms(self, x):
        return x * (self.extra if hasattr(self, "extra") else 7.0)


class Calling(Model):
    def __call__(self, x):
        return self.scale * x

    def terms(self, x):
        return self(x) * x


class Writing(Model):
    def terms(self, x):
        self.seen = self.scale
        return x * self.scale


class Inner(Model):
    def terms(self, x):
        return self.other.terms(x) * self.scale if hasattr(self, "other") else Scaled(self.scale).terms(x)


class Keeping(Model):
    @functools.cached_property
    def root(self):
        return np.sqrt(self.scale)

    def terms(self, x):
        return x**2 * self.root


class Slotted(Base):
    __slots__ = ("scale", "stamp")

    def __init__(self, number=1.0, stamp=""):
        self.scale, self.stamp = number, stamp

    def terms(self, x):
        return x**3 * self.scale


class Tables(Model):
    def terms(self, x):
        return x * self.table["a"].to_numpy() ** 2
"""

NAMES = [
    "Scaled",
    "Arrays",
    "Counts",
    "Parts",
    "Lists",
    "Properties",
    "Helpers",
    "Named",
    "Asking",
    "Calling",
    "Writing",
    "Inner",
    "Keeping",
    "Slotted",
    "Base",
]
SHARED = {
    "Scaled",
    "Arrays",
    "Parts",
    "Lists",
    "Properties",
    "Helpers",
    "Calling",
    "Slotted",
    "Base",
}
"""Classes whose methods read no names that are computed, and of which no number of those below steers Python."""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """A package as others install it."""
    place = tmp_path_factory.mktemp("installed") / "lib" / "site-packages"
    (place / "package_of_models").mkdir(parents=True)
    (place / "package_of_models" / "__init__.py").write_text(SOURCE)
    sys.path.insert(0, os.fspath(place))
    importlib.invalidate_caches()
    try:
        yield importlib.import_module("package_of_models")
    finally:
        sys.path.remove(os.fspath(place))
        del sys.modules["package_of_models"]


WAYS: dict[str, Callable[[Any], Any]] = {
    "jit": lambda f: gt.jit(f)(X),
    "grad": lambda f: gt.grad(f)(X),
    "gradient of a lambda": lambda f: gt.grad(lambda x: f(x))(X),
    "forward": lambda f: gt.jacfwd(f)(X),
    "hessian": lambda f: gt.hessian(f)(X),
    "vjp": lambda f: gt.vjp(f, X)[1](1.0)[0],
    "jvp": lambda f: gt.jvp(f, (X,), (np.ones(3),))[1],
    "vmap": lambda f: gt.vmap(f)(np.stack([X, 2 * X])),
    "value_and_grad": lambda f: gt.value_and_grad(f)(X)[1],
}


def made(package: ModuleType, name: str, number: float, stamp: str = "") -> Any:
    cls = getattr(package, name)
    return cls() if name == "Base" else cls(number, stamp)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("way", WAYS)
def test_methods_of_new_objects_compute_what_those_of_the_first_do(
    package: ModuleType, name: str, way: str
) -> None:
    numbers = (1.5, 2.5, 3.5, 1.0)
    expected = {}
    for number in numbers:
        sharing.clear()
        expected[number] = WAYS[way](made(package, name, number).loss)
    sharing.clear()
    for turn in range(2):
        for number in numbers:
            model = made(package, name, number, f"{turn} {number}")
            result = WAYS[way](model.loss)
            np.testing.assert_allclose(result, expected[number], rtol=1e-13, err_msg=f"{number}")
            if way == "jit":
                np.testing.assert_allclose(result, model.loss(X), rtol=1e-13)


@pytest.mark.parametrize("name", sorted(SHARED))
def test_methods_of_new_objects_are_not_traced_again(package: ModuleType, name: str) -> None:
    sharing.clear()
    numbers = iter(range(100))

    def call() -> None:
        number = 2.0 if name == "Parts" else 1.0 + next(numbers) / 8
        gt.grad(made(package, name, number, f"stamp {next(numbers)}").loss)(X)

    for _ in range(4):
        call()
    with traces_of() as names:
        for _ in range(4):
            call()
    assert not names


CHANGES: list[tuple[str, Callable[[Any, ModuleType], None]]] = [
    ("Scaled", lambda model, _: setattr(model, "scale", 3.0)),
    ("Scaled", lambda model, _: setattr(model, "scale", 3)),
    ("Scaled", lambda model, _: setattr(model, "scale", X)),
    ("Scaled", lambda model, _: setattr(model, "offset", 9.0)),
    ("Scaled", lambda model, _: setattr(model, "terms", lambda x: x)),
    ("Scaled", lambda model, package: setattr(model, "__class__", package.Arrays)),
    ("Arrays", lambda model, _: setattr(model, "array", np.array([5.0]))),
    ("Inner", lambda model, package: setattr(model, "other", package.Arrays(4.0))),
    ("Asking", lambda model, _: setattr(model, "extra", 4.0)),
    ("Named", lambda model, _: setattr(model, "names", ["count"])),
    ("Parts", lambda model, _: setattr(model.part, "power", 3)),
    ("Lists", lambda model, _: model.numbers.insert(0, 4.0)),
    ("Lists", lambda model, _: model.by_name.update(a=8.0)),
]


@pytest.mark.parametrize("number", range(len(CHANGES)))
def test_what_changes_between_objects_is_seen(package: ModuleType, number: int) -> None:
    name, change = CHANGES[number]
    sharing.clear()
    for turn in range(8):
        model = made(package, name, 2.0)
        if turn % 2:
            change(model, package)
        np.testing.assert_allclose(gt.jit(model.loss)(X), model.loss(X), rtol=1e-13)


def test_what_changes_of_a_class_is_seen(package: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    sharing.clear()
    for offset in (0.5, 0.5, 0.5, 0.5, 4.0, 0.5, 7.0):
        monkeypatch.setattr(package.Base, "offset", offset)
        model = package.Scaled(2.0)
        np.testing.assert_allclose(gt.jit(model.loss)(X), model.loss(X), rtol=1e-13)
    monkeypatch.setattr(package.Scaled, "terms", package.Arrays.terms)
    np.testing.assert_allclose(gt.jit(package.Scaled(2.0).loss)(X), package.Arrays(2.0).loss(X), rtol=1e-13)


def test_tables_of_objects_are_compared(package: ModuleType) -> None:
    sharing.clear()
    for number in (1.0, 1.0, 1.0, 1.0, 2.0, 3.0, 1.0):
        model = package.Tables(1.0)
        model.table = pd.DataFrame({"a": [number, 2.0, 3.0], "b": [1, 2, 3]})
        assert np.array_equal(gt.grad(model.loss)(X), model.table["a"].to_numpy() ** 2)


def test_objects_that_a_method_writes_to_have_what_it_writes(package: ModuleType) -> None:
    sharing.clear()
    for number in (1.0, 2.0, 3.0, 4.0, 5.0):
        model = package.Writing(number)
        assert gt.jit(model.loss)(X) == model.loss(X)
        model = package.Writing(number)
        gt.jit(model.loss)(X)
        assert model.seen == number


def test_users_classes_of_a_packages_base_share_programs(package: ModuleType) -> None:
    class Own(package.Model):  # type: ignore[misc, name-defined]
        def terms(self, x: Any) -> Any:
            return self.scale * np.exp(x)

    for number in (1.0, 2.0, 3.0, 4.0, 5.0):
        model = Own(number, f"stamp {number}")
        np.testing.assert_allclose(gt.grad(model.loss)(X), number * np.exp(X), rtol=1e-13)


def square(x: Any) -> Any:
    return np.sum(x**2)


def cube(x: Any) -> Any:
    return np.sum(x**3)


def test_wrappers_of_different_functions_share_no_programs() -> None:
    """One of them has side effects, so that its calls are traced each time: those of the others are not."""
    seen: list[int] = []

    def counting(x: Any) -> Any:
        seen.append(1)
        return np.sum(x)

    def wrapped(function: Any) -> Any:
        return lambda x: function(x) * 2

    sharing.clear()
    for _ in range(4):
        gt.grad(wrapped(counting))(X)
        gt.grad(wrapped(square))(X)
        gt.grad(wrapped(cube))(X)
    with traces_of() as names:
        for _ in range(3):
            assert np.array_equal(gt.grad(wrapped(square))(X), 4 * X)
            np.testing.assert_allclose(gt.grad(wrapped(cube))(X), 6 * X**2, rtol=1e-14)
    assert not names
    gt.grad(wrapped(counting))(X)
    assert len(seen) >= 5
