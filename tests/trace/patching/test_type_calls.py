"""``type(x)`` of traced numbers, wherever the code that calls it stands."""

from __future__ import annotations

import dis
import functools
import importlib
import pickle
import sys
from numbers import Real
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numba
import numpy as np
import pytest

import gradtape as gt
from gradtape.trace.patching.type_calls import answer_classes
from tests.support.processes import words_printed


def squared(x: Any) -> Any:
    return x * x if type(x) is float else 5.0 * x


def in_a_tuple(x: Any) -> Any:
    return x * x if type(x) in (int, float) else 5.0 * x


def by_name(x: Any) -> Any:
    return {"float": x * x, "float64": x * x}.get(type(x).__name__, 5.0 * x)


def made_of_the_class(x: Any) -> Any:
    return type(x)(2.0) * x * x / 2.0


def by_a_map(x: Any) -> Any:
    return x * x if list(map(type, [x, 1.0])) == [float, float] else 5.0 * x


def by_a_match(x: Any) -> Any:
    match x:
        case float():
            return x * x
        case _:
            return 5.0 * x


@functools.singledispatch
def by_dispatch(x: Any) -> Any:
    return 5.0 * x


@by_dispatch.register
def _(x: float) -> Any:
    return x * x


def _decorated(function: Any) -> Any:
    @functools.wraps(function)
    def wrapper(x: Any) -> Any:
        return function(x)

    return wrapper


@_decorated
def decorated(x: Any) -> Any:
    return x * x if type(x) is float else 5.0 * x


class Model:
    def __init__(self) -> None:
        self.power = 2

    def method(self, x: Any) -> Any:
        return x**self.power if type(x) is float else 5.0 * x

    @staticmethod
    def static(x: Any) -> Any:
        return x * x if type(x) is float else 5.0 * x

    @classmethod
    def of_the_class(cls, x: Any) -> Any:
        return x * x if type(x) is float else 5.0 * x

    def __call__(self, x: Any) -> Any:
        return (lambda y: y**self.power if type(y) == float else 5.0 * y)(x)  # noqa: E721


MODEL = Model()
TABLE = {"lambda": lambda x: x * x if type(x) is float else 5.0 * x}

FUNCTIONS = {
    "a function": squared,
    "a test in a tuple": in_a_tuple,
    "a name": by_name,
    "the class called": made_of_the_class,
    "a map": by_a_map,
    "a match": by_a_match,
    "a single dispatch": by_dispatch,
    "a decorated function": decorated,
    "a lambda in a table": TABLE["lambda"],
    "a method": MODEL.method,
    "a method looked up": lambda x: MODEL.method(x),
    "a static method": lambda x: MODEL.static(x),
    "a class method": lambda x: MODEL.of_the_class(x),
    "an object": MODEL,
    "an object called": lambda x: MODEL(x),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_class_of_a_float_is_float(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    f = FUNCTIONS[name]
    assert f(3.0) == gt.jit(f)(3.0) == 9.0
    assert gt.value_and_grad(f)(3.0) == (9.0, 6.0)
    assert gt.grad(gt.grad(f))(3.0) == 2.0
    assert gt.jvp(f, (3.0,), (1.0,)) == (9.0, 6.0)
    value, pullback = gt.vjp(f, 3.0)
    assert (value, pullback(1.0)[0]) == (9.0, 6.0)
    with gt.GradientTape(persistent=True) as outer:
        x = outer.watch(3.0)
        with gt.GradientTape() as tape:
            tape.watch(x)
            y = f(x)
        slope = tape.gradient(y, x)
    assert (float(y), float(slope), float(outer.gradient(slope, x))) == (9.0, 6.0, 2.0)
    monkeypatch.setattr(gt.config, "loops", "compile")
    assert gt.jit(f)(3.0) == 9.0
    assert gt.grad(f)(3.0) == 6.0


def scaled(x: Any) -> Any:
    return np.sum(2.0 * x) if type(x) is np.ndarray else np.sum(7.0 * x)


def test_the_class_of_an_array_is_ndarray() -> None:
    x = np.arange(3.0)
    assert gt.jit(scaled)(x) == scaled(x) == 6.0
    np.testing.assert_array_equal(gt.grad(scaled)(x), [2.0, 2.0, 2.0])
    np.testing.assert_array_equal(gt.vmap(scaled)(np.stack([x, 2 * x])), [6.0, 12.0])
    with gt.GradientTape() as tape:
        y = scaled(watched := tape.watch(x))
    np.testing.assert_array_equal(tape.gradient(y, watched), [2.0, 2.0, 2.0])


def asks_for_identity(x: Any) -> Any:
    made = type("Made", (), {"factor": 2.0})
    kinds = [made is not type, type(made) is type, isinstance(made, type), type is not made]
    return x * made.factor * sum(kinds) if type(x) is float else x


def test_classes_that_are_made_during_a_recording_belong_to_the_module_that_makes_them() -> None:
    made = []

    def program(x: Any) -> Any:
        made.append(type("Made", (), {"order": 5}))
        made.append(type("Named", (), {"__module__": "elsewhere"}))
        return x

    gt.jit(program)(np.ones(2))
    assert [(cls.__module__, cls.__name__) for cls in made[:2]] == [
        (__name__, "Made"),
        ("elsewhere", "Named"),
    ]
    assert made[0].order == 5


def test_other_reads_of_the_name_get_the_type() -> None:
    assert gt.jit(asks_for_identity)(1.0) == asks_for_identity(1.0) == 8.0
    with gt.GradientTape() as tape:
        y = asks_for_identity(x := tape.watch(1.0))
    assert tape.gradient(y, x) == 8.0


def test_the_type_is_the_own_one_outside_of_recordings() -> None:
    v = gt.Variable(2.0)
    with gt.GradientTape() as tape:
        y = 2.0 * tape.watch(1.0)
        inside = type(y)
    assert inside is float and type(y) is not float
    assert type(v) is gt.Variable


def test_many_constants_and_names_need_wide_instructions() -> None:
    names = "\n".join(f"    n{k} = g{k}" for k in range(300))
    consts = "\n".join(f"    x = x + {k}.5" for k in range(300))
    namespace: dict[str, Any] = {f"g{k}": k for k in range(300)}
    exec(f"def f(x):\n{names}\n{consts}\n    return x * x if type(x) is float else 5.0 * x", namespace)
    f = namespace["f"]
    expected = f(1.5)
    answer_classes(f)
    assert f(1.5) == expected == gt.jit(f)(1.5)
    assert gt.grad(f)(1.5) == 2.0 * expected**0.5


def test_lines_and_positions_stay() -> None:
    namespace: dict[str, Any] = {}
    exec("def f(x):\n    return type(\n        x,\n    )(x)", namespace)
    f = namespace["f"]
    before = f.__code__
    answer_classes(f)
    assert f.__code__ is not before
    assert [*f.__code__.co_lines()] == [*before.co_lines()]
    assert [*f.__code__.co_positions()] == [*before.co_positions()]
    assert f.__code__.co_names == before.co_names and f(2.0) == 2.0


def test_what_replaces_the_type_is_pickled_as_the_type() -> None:
    def f(x: Any) -> Any:
        return type(x)

    answer_classes(f)
    (made,) = [one for one in f.__code__.co_consts if repr(one) == repr(type)]
    assert made is not type and pickle.loads(pickle.dumps(made)) is type
    assert "type" in dis.Bytecode(f).dis()


@numba.njit
def kind_in_numba(x: Any) -> Any:
    return type(x)(2) * x


def test_functions_that_numba_compiles_stay_as_they_are() -> None:
    gt.jit(squared)(3.0)
    assert kind_in_numba(3.0) == gt.jit(lambda x: kind_in_numba(x))(3.0) == 6.0
    assert gt.grad(kind_in_numba)(3.0) == 2.0


def test_modules_that_are_imported_during_a_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = "def f(x):\n    return x * x if type(x) is float else 5.0 * x\n"
    (tmp_path / "imported_within.py").write_text(source)
    (tmp_path / "imported_on_a_tape.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)

    def within(x: Any) -> Any:
        return importlib.import_module("imported_within").f(x)

    try:
        assert gt.value_and_grad(within)(3.0) == (9.0, 6.0)
        with gt.GradientTape() as tape:
            y = importlib.import_module("imported_on_a_tape").f(x := tape.watch(3.0))
        assert tape.gradient(y, x) == 6.0
    finally:
        for name in ("imported_within", "imported_on_a_tape"):
            sys.modules.pop(name, None)


def test_classes_that_a_package_gives_its_own_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As pandas does: their methods have the names of another module."""
    package = tmp_path / "giving_names"
    package.mkdir()
    (package / "__init__.py").write_text("from giving_names.core import Model\n")
    method = "def method(self, x):\n        return x * x if type(x) is float else 5.0 * x\n"
    (package / "core.py").write_text(f"class Model:\n    {method}\nModel.__module__ = 'giving_names'\n")
    monkeypatch.syspath_prepend(tmp_path)
    try:
        model = importlib.import_module("giving_names").Model()
        with gt.GradientTape() as tape:
            y = model.method(x := tape.watch(3.0))
        assert tape.gradient(y, x) == 6.0
    finally:
        for name in ("giving_names", "giving_names.core"):
            sys.modules.pop(name, None)


MAIN = """
import numpy as np, gradtape as gt

def slope(f):
    with gt.GradientTape() as tape:
        y = f(x := tape.watch(3.0))
    return float(tape.gradient(y, x))

def early(x):
    return x * x if type(x) is float else 5.0 * x

print(slope(early))
data = list(range(10**6))

def late(x):
    return x * x * x if type(x) is float else 5.0 * x

print(slope(late), "type" in globals(), type is __builtins__.type)
"""


def test_functions_of_the_main_program_that_are_defined_after_a_recording() -> None:
    assert words_printed(MAIN) == ["6.0", "27.0", "False", "True"]


def test_instances_of_protocols_with_attributes() -> None:
    @runtime_checkable
    class Chunked(Protocol):
        @property
        def chunks(self) -> Any: ...

    def of_class(x: Any) -> Any:
        return x.sum() * (2.0 if isinstance(x, Chunked) else 3.0) * (5.0 if isinstance(x[0], Real) else 7.0)

    # The first question about a class is the one that the protocol answers; then the answer is kept.
    assert gt.jit(of_class)(np.ones(2)) == 30.0 == of_class(np.ones(2))


@functools.singledispatch
def by_dispatch_of_arrays(x: Any) -> Any:
    return 5.0 * x


@by_dispatch_of_arrays.register(float)
def _(x: Any) -> Any:
    return x * x


@by_dispatch_of_arrays.register(np.ndarray)
def _(x: Any) -> Any:
    return np.sum(7.0 * x)


def dispatched(x: Any) -> Any:
    return by_dispatch_of_arrays(x[1]) + by_dispatch_of_arrays(x) + by_dispatch_of_arrays(2)


def test_pythons_library_tells_elements_of_arrays_from_arrays() -> None:
    x = np.arange(3.0) + 0.5
    slope = [7.0, 7.0 + 2 * x[1], 7.0]
    assert gt.jit(dispatched)(x) == dispatched(x) == x[1] ** 2 + 7.0 * np.sum(x) + 10.0
    np.testing.assert_array_equal(gt.grad(dispatched)(x), slope)
    np.testing.assert_array_equal(gt.vmap(gt.grad(dispatched))(np.stack([x, x])), [slope, slope])
    with gt.GradientTape() as tape:
        y = dispatched(watched := tape.watch(x))
    np.testing.assert_array_equal(tape.gradient(y, watched), slope)
