"""Installed packages: code in Python is traced like the user's own, on tapes, in jitted functions and under vmap."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import gradtape as gt
from tests.support.differences import gradient_by_differences
from tests.trace.patching import installed_package

X = np.array([0.7, 1.3, 2.1])
KINDS = ("own", "installed")

LEAVES_TAPES = {"asks_for_items", "asks_for_lists", "converts_numbers", "converts_to_complex_numbers"}
"""In the user's own code on a tape, ``x.item()``, ``float(x)`` and ``complex(x)`` say that a number is meant to leave."""

FAILS_IN_BATCHES = {"attempts"}
"""All rows of a batch are factorised in one operation, whose error is that of the batch."""


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, ModuleType]]:
    """The package as a module on the path of a project, and as an installed one."""
    folder = tmp_path_factory.mktemp("packages")
    source = Path(installed_package.__file__).read_text()
    places = {"own": folder / "project", "installed": folder / "lib" / "site-packages"}
    for kind, place in places.items():
        (place / f"{kind}_package").mkdir(parents=True)
        (place / f"{kind}_package" / "__init__.py").write_text(source)
        sys.path.insert(0, os.fspath(place))
    try:
        importlib.invalidate_caches()
        yield {kind: importlib.import_module(f"{kind}_package") for kind in KINDS}
    finally:
        for kind, place in places.items():
            sys.path.remove(os.fspath(place))
            sys.modules.pop(f"{kind}_package", None)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", installed_package.CALLS)
def test_what_packages_do_is_traced(modules: dict[str, ModuleType], name: str, kind: str) -> None:
    function = modules[kind].CALLS[name]
    weights = np.arange(1.0, 1.0 + np.size(function(X))).reshape(np.shape(function(X)))

    def total(x: Any) -> Any:
        return np.sum(function(x) * weights)

    value, slope = function(X), gradient_by_differences(total, X)
    jitted = gt.jit(function)
    for _ in range(2):
        np.testing.assert_allclose(jitted(X), value, rtol=1e-12)
    np.testing.assert_allclose(gt.grad(total)(X), slope, rtol=1e-5, atol=1e-7)
    if kind == "installed" or name not in LEAVES_TAPES:
        with gt.GradientTape() as tape:
            x = tape.watch(X)
            y = total(x)
        np.testing.assert_allclose(tape.gradient(y, x), slope, rtol=1e-5, atol=1e-7)
    if name in FAILS_IN_BATCHES:
        return
    batch = np.stack([X, 1.1 * X])
    np.testing.assert_allclose(gt.vmap(function)(batch), [function(row) for row in batch], rtol=1e-12)


def test_functions_that_packages_cache_are_called_with_traced_numbers(modules: dict[str, ModuleType]) -> None:
    function = modules["installed"].caches_results
    slope = gradient_by_differences(function, X)
    for _ in range(2):
        np.testing.assert_allclose(gt.jit(function)(X), function(X), rtol=1e-12)
        np.testing.assert_allclose(gt.grad(function)(X), slope, rtol=1e-6)
    np.testing.assert_allclose(gt.jvp(function, (X,), (np.ones(3),))[1], slope.sum(), rtol=1e-6)
    np.testing.assert_allclose(gt.hessian(function)(X), gt.hessian(_product)(X), rtol=1e-12)
    with gt.GradientTape() as tape:
        y = function(x := tape.watch(X))
    np.testing.assert_allclose(tape.gradient(y, x), slope, rtol=1e-6)
    batch = np.stack([X, 1.1 * X])
    np.testing.assert_allclose(gt.vmap(function)(batch), [function(row) for row in batch], rtol=1e-12)
    kept = modules["installed"]._cached_product.cache_info().currsize
    gt.jit(lambda x: function(3.0 * x))(X)
    assert modules["installed"]._cached_product.cache_info().currsize == kept
    with pytest.raises(TypeError, match=r"f\.__wrapped__\(x\)"):
        gt.jit(modules["own"].caches_results)(X)


def _product(x: Any) -> Any:
    return x[0] * x[1] * x[2]


def test_packages_that_refuse_the_type_of_an_array_have_a_remedy(modules: dict[str, ModuleType]) -> None:
    function = modules["installed"].refuses_types

    def on_a_tape() -> Any:
        with gt.GradientTape() as tape:
            return function(tape.watch(X))

    for call in (
        lambda: gt.jit(lambda x: function(x))(X),
        lambda: gt.grad(lambda x: function(x).sum())(X),
        on_a_tape,
    ):
        with pytest.raises(ValueError, match="must be a numpy array") as caught:
            call()
        (note,) = caught.value.__notes__
        assert "installed_package/__init__.py:" in note and "gt.callback" in note and f"{__file__}:" in note
    with pytest.raises(ValueError) as caught:
        gt.jit(lambda x: function([1.0]) + x)(X)
    assert not getattr(caught.value, "__notes__", [])


@pytest.mark.parametrize("kind", [float, complex])
def test_objects_that_stand_for_traced_numbers_have_a_remedy(
    modules: dict[str, ModuleType], kind: type
) -> None:
    function = modules["installed"].converts_an_object

    def on_a_tape() -> Any:
        with gt.GradientTape() as tape:
            return function(tape.watch(X), kind)

    for way in (on_a_tape, lambda: gt.jit(lambda x: function(x, kind))(X)):
        with pytest.raises(TypeError, match=f"__{kind.__name__}__ returned non-{kind.__name__}") as caught:
            way()
        assert f"in place of {kind.__name__}(thing)" in "".join(caught.value.__notes__)


def test_text_that_is_read_as_a_number_has_a_remedy(modules: dict[str, ModuleType]) -> None:
    with pytest.raises(ValueError, match="could not convert") as caught:
        gt.jit(modules["installed"].reads_text)(X)
    assert "gt.callback" in caught.value.__notes__[0]
    np.testing.assert_array_equal(modules["installed"].reads_text(X), 0.7 * X)


def test_compiled_code_that_asks_for_the_numbers_of_a_watched_array_is_refused(
    modules: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    package = modules["installed"]
    origin = SimpleNamespace(origin=f"numbers{EXTENSION_SUFFIXES[0]}")
    compiled = ModuleType("compiled_numbers")
    compiled.__spec__ = origin  # type: ignore[assignment]
    monkeypatch.setitem(sys.modules, "compiled_numbers", compiled)
    vars(package.takes_numbers).update(__module__="compiled_numbers", __name__="takes_numbers")
    vars(package.takes_a_number).update(__module__="compiled_numbers", __name__="takes_a_number")
    with gt.GradientTape() as tape:
        x = tape.watch(X)
        with pytest.raises(gt.errors.UnsupportedFunctionError, match="takes_numbers of compiled_numbers"):
            package.calls_compiled_code(x)
        assert package.calls_compiled_code(x.numpy()) == X.sum()
        with pytest.raises(gt.errors.UnsupportedFunctionError, match="takes_a_number of compiled_numbers"):
            package.calls_compiled_code_with_a_number(x)
        assert package.calls_compiled_code_with_a_number(x.numpy()) == X[0] * X[1]


WAYS_TO_STATE: dict[str, Any] = {
    "called": lambda thing: lambda x: thing(x),
    "passed": lambda thing: thing,
    "updated": lambda thing: lambda x: thing.update(x),
    "by its method": lambda thing: thing.update,
    "counted": lambda thing: thing.count,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", WAYS_TO_STATE)
def test_attributes_of_objects_are_read_and_written_at_each_call(
    modules: dict[str, ModuleType], name: str, kind: str
) -> None:
    ours, plain = modules[kind].Stateful(), modules[kind].Stateful()
    function, expected = gt.jit(WAYS_TO_STATE[name](ours)), WAYS_TO_STATE[name](plain)
    for scale in (2.0, 2.0, 5.0, 5.0, 2.0):
        ours.scale = plain.scale = scale
        np.testing.assert_allclose(function(X), expected(X), rtol=1e-12)
        assert type(ours.mean) is np.ndarray
        np.testing.assert_allclose(ours.mean, plain.mean, rtol=1e-12)
        assert (ours.steps, ours.is_begun) == (plain.steps, plain.is_begun)


def _set_level(thing: Any) -> None:
    thing.level.number = 0.7


def _replace_level(thing: Any) -> None:
    thing.level = type(thing.level)(0.9)


def _set_entry(thing: Any) -> None:
    thing.settings["shift"] = 1.5


def _set_item(thing: Any) -> None:
    thing.settings["weights"][1] = 4.0


def _hide_number_of_class(thing: Any) -> None:
    thing.power = 3


def _empty_cache(thing: Any) -> None:
    thing.cache = None


CHANGES = [_set_level, _replace_level, _set_entry, _set_item, _hide_number_of_class, _empty_cache]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("transform", [gt.jit, gt.grad])
@pytest.mark.parametrize("change", CHANGES)
def test_changes_of_what_objects_hold_are_seen(
    modules: dict[str, ModuleType], change: Any, transform: Any, kind: str
) -> None:
    thing = modules[kind].Stateful()

    def by_itself(x: Any) -> Any:
        return x[0] * thing(x)

    def as_argument(x: Any, thing: Any) -> Any:
        return x[0] * thing(x)

    kept, passed = transform(by_itself), transform(as_argument)
    for _ in range(3):
        kept(X), passed(X, thing)
    change(thing)
    anew = transform(lambda x: x[0] * thing(x))
    for _ in range(2):
        np.testing.assert_allclose(kept(X), anew(X), rtol=1e-12)
        np.testing.assert_allclose(passed(X, thing), anew(X), rtol=1e-12)
    if transform is gt.jit:
        np.testing.assert_allclose(kept(X), X[0] * thing(X), rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_set_back_is_written_again(modules: dict[str, ModuleType], kind: str) -> None:
    ours, plain = modules[kind].Stateful(), modules[kind].Stateful()
    function = gt.jit(ours.count)
    for _ in range(3):
        for thing in (ours, plain):
            thing.is_begun, thing.mean = False, np.zeros(3)
        for _ in range(2):
            np.testing.assert_allclose(function(X), plain.count(X), rtol=1e-12)
            assert ours.is_begun
            np.testing.assert_array_equal(ours.mean, plain.mean)


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_of_objects_that_change_often_become_inputs(
    modules: dict[str, ModuleType], kind: str
) -> None:
    thing = modules[kind].Stateful()
    function = gt.jit(lambda x: thing(x))
    function(X)
    for number in range(20):
        thing.scale = 1.0 + number
        np.testing.assert_allclose(function(X), thing(X), rtol=1e-12)
    assert function.site.traces <= 4


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("number", [float, np.float64, np.array])
def test_numbers_that_python_asks_for_become_inputs(
    modules: dict[str, ModuleType], kind: str, number: Any
) -> None:
    thing = modules[kind].Stateful()

    def steered(x: Any) -> Any:
        scale = float(thing.scale)
        return scale * np.sum(x)

    function = gt.value_and_grad(steered)
    for k in range(20):
        thing.scale = number(k - 10.0)
        y, gradient = function(X)
        assert y == pytest.approx(steered(X))
        np.testing.assert_allclose(gradient, np.full(3, steered(np.array([1.0, 0.0, 0.0]))))
    assert function.site.traces <= 6


@pytest.mark.parametrize("kind", KINDS)
def test_tables_of_objects_are_compared_by_their_data(modules: dict[str, ModuleType], kind: str) -> None:
    thing = modules[kind].Stateful()
    thing.table = pd.DataFrame({"a": X, "b": 2 * X})
    thing.settings["column"] = pd.Series(X)

    def total(x: Any) -> Any:
        return np.sum(thing.table["a"].to_numpy() * thing.settings["column"].to_numpy() * x)

    function = gt.jit(total)
    for _ in range(3):
        assert function(X) == pytest.approx(total(X))
        thing.table, thing.settings["column"] = thing.table.copy(), thing.settings["column"].copy()
    assert function.site.traces == 1
    thing.table.loc[1, "a"] = 9.0
    assert function(X) == pytest.approx(total(X))
    thing.settings["column"][2] = -3.0
    assert function(X) == pytest.approx(total(X))
