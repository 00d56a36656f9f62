"""Pairs of calls that differ in one thing that a trace can read: what the keys of traces have to tell apart.

Each case makes a function and two states. A state sets one thing and returns the arguments of a call. The function returns a number that
depends on what it reads, and on the first argument in a differentiable way. `python -m tests.trace.jit.key_cases` prints the results of the
second states, of a process that has never been in the first.
"""

from __future__ import annotations

import enum
import functools
import json
import os
import random
import sys
from collections import OrderedDict, defaultdict, namedtuple
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import Any, Final

import numpy as np

X: Final = np.array([1.0, 2.0, 4.0])

State = Callable[[], tuple[Any, ...]]
Case = tuple[Callable[..., Any], State, State]

CASES: Final[dict[str, Callable[[], Case]]] = {}


def case(make: Callable[[], Case]) -> Callable[[], Case]:
    """Register a case by its name."""
    CASES[make.__name__] = make
    return make


def weigh(parts: Any, start: float = 1.0) -> Any:
    """Return a sum in which the order of the parts counts."""
    total = 0.0
    for place, part in enumerate(parts):
        total = total + np.sum(part) * (start + 10.0 * place)
    return total


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


Pair = namedtuple("Pair", "left right")
Couple = namedtuple("Couple", "left right")


@dataclass
class Point:
    left: Any
    right: Any


@dataclass
class Corner(Point):
    pass


class Settings(dict[str, Any]):
    """A dict with attributes."""


class Keywords(dict[str, Any]):
    """The keywords of a call, as the last argument of a state."""


class Slotted:
    __slots__ = ("mode", "scale")

    def __init__(self, scale: float, mode: str) -> None:
        self.scale, self.mode = scale, mode


class Model:
    """An object whose parts are read in many ways."""

    factor = 2.0
    kind = "linear"

    def __init__(self) -> None:
        self.width = 3.0
        self.order = 1

    @property
    def area(self) -> float:
        return self.width**2

    def __call__(self, x: Any) -> Any:
        return np.sum(x) * self.width


# Containers of the arguments


@case
def order_of_a_dict() -> Case:
    def read(p: Any) -> Any:
        return weigh(p.values())

    return read, lambda: ({"w": X, "b": 3.0},), lambda: ({"b": 3.0, "w": X},)


@case
def order_of_a_nested_dict() -> Case:
    def read(p: Any) -> Any:
        return weigh([item for layer in p["layers"] for item in layer.values()])

    one, other = {"w": X, "b": 3.0}, {"b": 3.0, "w": X}
    return read, lambda: ({"layers": [one, one]},), lambda: ({"layers": [one, other]},)


@case
def order_of_keywords() -> Case:
    def read(x: Any, **rest: Any) -> Any:
        return np.sum(x) + weigh(rest.values())

    return read, lambda: (X, Keywords(a=1.0, b=2.0)), lambda: (X, Keywords(b=2.0, a=1.0))


@case
def order_of_a_dict_beside_none() -> Case:
    def read(p: Any, q: Any) -> Any:
        return weigh(p.values()) + (q is None)

    return read, lambda: ({"w": X, "b": X[:1]}, None), lambda: ({"b": X[:1], "w": X}, None)


@case
def place_of_none_in_a_dict() -> Case:
    def read(p: Any) -> Any:
        return weigh([1.0 if item is None else item for item in p.values()])

    return read, lambda: ({"a": None, "b": X},), lambda: ({"b": X, "a": None},)


@case
def order_of_a_defaultdict() -> Case:
    def read(p: Any) -> Any:
        return weigh(p.values())

    return (
        read,
        lambda: (defaultdict(float, {"w": X, "b": 3.0}),),
        lambda: (defaultdict(float, {"b": 3.0, "w": X}),),
    )


@case
def order_of_an_ordered_dict() -> Case:
    def read(p: Any) -> Any:
        return weigh(p.values())

    return read, lambda: (OrderedDict(w=X, b=3.0),), lambda: (OrderedDict(b=3.0, w=X),)


@case
def order_of_a_subclass_of_dict() -> Case:
    def read(p: Any) -> Any:
        return weigh(p.values())

    return read, lambda: (Settings(w=X, b=3.0),), lambda: (Settings(b=3.0, w=X),)


@case
def class_of_a_dict() -> Case:
    def read(p: Any) -> Any:
        return np.sum(p["x"]) * (2.0 if isinstance(p, Settings) else 3.0)

    return read, lambda: ({"x": X},), lambda: (Settings(x=X),)


@case
def attribute_of_a_subclass_of_dict() -> Case:
    def read(p: Any) -> Any:
        return np.sum(p["x"]) * (2.0 if p.mode == "a" else 3.0)

    def made(mode: str) -> Settings:
        settings = Settings(x=X)
        settings.mode = mode  # type: ignore[attr-defined]
        return settings

    return read, lambda: (made("a"),), lambda: (made("b"),)


@case
def type_of_a_key() -> Case:
    def read(p: Any) -> Any:
        return sum([np.sum(item) * (5.0 if key is True else 2.0) for key, item in p.items()])

    return read, lambda: ({1: X},), lambda: ({True: X},)


@case
def type_of_a_key_of_none() -> Case:
    def read(x: Any, p: Any) -> Any:
        return np.sum(x) * sum([5.0 if key is True else 2.0 for key in p])

    return read, lambda: (X, {1: None}), lambda: (X, {True: None})


@case
def type_inside_a_key() -> Case:
    def read(p: Any) -> Any:
        return sum([np.sum(item) * (5.0 if key[0] is True else 2.0) for key, item in p.items()])

    return read, lambda: ({(1, "a"): X},), lambda: ({(True, "a"): X},)


@case
def sign_of_a_zero_key() -> Case:
    def read(p: Any) -> Any:
        return sum([np.sum(item) * np.copysign(1.0, key) for key, item in p.items()])

    return read, lambda: ({0.0: X},), lambda: ({-0.0: X},)


@case
def list_or_tuple() -> Case:
    def read(p: Any) -> Any:
        return np.sum(p[0]) * (2.0 if isinstance(p, list) else 3.0)

    return read, lambda: ([X, 1.0],), lambda: ((X, 1.0),)


@case
def number_or_dict_of_one_number() -> Case:
    def read(x: Any, n: Any) -> Any:
        return np.sum(x) * (n["a"] if isinstance(n, dict) else 3.0 * n)

    return read, lambda: (X, {"a": 2.0}), lambda: (X, 2.0)


@case
def array_or_list_of_one_array() -> Case:
    def read(x: Any) -> Any:
        return np.sum(x[0]) * 2.0 if isinstance(x, list) else np.sum(x) * 3.0

    return read, lambda: ([X],), lambda: (X,)


@case
def boolean_or_dict_of_one_boolean() -> Case:
    def read(x: Any, n: Any) -> Any:
        return np.sum(x) * (2.0 if isinstance(n, dict) else 3.0)

    return read, lambda: (X, {1: True}), lambda: (X, True)


@case
def type_of_a_namedtuple() -> Case:
    def read(p: Any) -> Any:
        return np.sum(p.left) * (2.0 if type(p).__name__ == "Pair" else 3.0) + p.right

    return read, lambda: (Pair(X, 1.0),), lambda: (Couple(X, 1.0),)


@case
def type_of_a_dataclass() -> Case:
    def read(p: Any) -> Any:
        return np.sum(p.left) * (2.0 if isinstance(p, Corner) else 3.0) + p.right

    return read, lambda: (Point(X, 1.0),), lambda: (Corner(X, 1.0),)


@case
def order_of_a_dict_in_an_object() -> Case:
    def read(p: Any) -> Any:
        return weigh(p.left.values()) + p.right

    return read, lambda: (Point({"w": X, "b": 3.0}, 1.0),), lambda: (Point({"b": 3.0, "w": X}, 1.0),)


# Leaves of the arguments


@case
def int_or_float() -> Case:
    def read(x: Any, n: Any) -> Any:
        return np.sum(x) * (2.0 if isinstance(n, int) else 3.0)

    return read, lambda: (X, 2), lambda: (X, 2.0)


@case
def float_or_vector() -> Case:
    def read(x: Any) -> Any:
        return np.sum(x) * 2.0 if isinstance(x, float) else np.sum(x) * 3.0

    return read, lambda: (X,), lambda: (2.0,)


@case
def bool_or_int() -> Case:
    def read(x: Any, flag: Any) -> Any:
        return np.sum(x) * (2.0 if flag is True else 3.0)

    return read, lambda: (X, True), lambda: (X, 1)


@case
def bool_or_numpy_bool() -> Case:
    def read(x: Any, flag: Any) -> Any:
        return np.sum(x) * (2.0 if isinstance(flag, bool) else 3.0)

    return read, lambda: (X, True), lambda: (X, np.bool_(True))


@case
def float_or_numpy_float() -> Case:
    def read(x: Any, s: Any) -> Any:
        return np.sum(np.float32(1.0) * x.astype(np.float32) * s).dtype.itemsize * np.sum(x)

    return read, lambda: (X, 2.0), lambda: (X, np.float64(2.0))


@case
def numpy_float_or_array_of_rank_0() -> Case:
    def read(x: Any, s: Any) -> Any:
        return np.sum(x) * (2.0 if isinstance(s, np.ndarray) else 3.0)

    return read, lambda: (X, np.float64(2.0)), lambda: (X, np.array(2.0))


@case
def dtype_of_an_array() -> Case:
    def read(x: Any, y: Any) -> Any:
        return np.sum(x) * y.dtype.itemsize

    return read, lambda: (X, X.astype(np.float32)), lambda: (X, X)


@case
def byte_order_of_an_array() -> Case:
    def read(x: Any) -> Any:
        return np.sum(x * X)

    return read, lambda: (X,), lambda: (X.astype(">f8") + 1.0,)


@case
def shape_of_an_array() -> Case:
    def read(x: Any) -> Any:
        return np.sum(x) * x.ndim + x.shape[0]

    return read, lambda: (np.ones((2, 3)),), lambda: (np.ones((3, 2)),)


@case
def layout_of_an_array() -> Case:
    def read(x: Any) -> Any:
        y = x * 1.0
        flat = y.ravel(order="K")
        return np.sum(flat * np.arange(6.0))

    a = np.arange(6.0).reshape(2, 3)
    return read, lambda: (a,), lambda: (np.asfortranarray(a),)


@case
def static_number_of_another_type() -> Case:
    def read(x: Any, options: Any) -> Any:
        return np.sum(x) * (2.0 if options[1] is True else 3.0)

    return read, lambda: (X, ("a", 1)), lambda: (X, ("a", True))


@case
def text() -> Case:
    def read(x: Any, mode: str) -> Any:
        return np.sum(x) * len(mode)

    return read, lambda: (X, "a"), lambda: (X, "mean")


@case
def member_of_an_enum() -> Case:
    def read(x: Any, colour: Colour) -> Any:
        return np.sum(x) * (2.0 if colour is Colour.RED else 3.0)

    return read, lambda: (X, Colour.RED), lambda: (X, Colour.BLUE)


@case
def member_of_an_int_enum() -> Case:
    def read(x: Any, level: Any) -> Any:
        return np.sum(x) * (2.0 if isinstance(level, Level) else 3.0)

    return read, lambda: (X, 1), lambda: (X, Level.LOW)


@case
def content_of_a_frozenset() -> Case:
    def read(x: Any, names: frozenset[str]) -> Any:
        return np.sum(x) * (2.0 if "a" in names else 3.0)

    return read, lambda: (X, frozenset("ab")), lambda: (X, frozenset("bc"))


@case
def one_array_twice() -> Case:
    def read(x: Any, y: Any) -> Any:
        return np.sum(x) * (2.0 if x is y else 3.0) + np.sum(y)

    return read, lambda: (X, X.copy()), lambda: (X, X.copy() + 1.0)


# Objects among the arguments


@case
def attribute_of_an_argument() -> Case:
    def read(x: Any, model: Model) -> Any:
        return np.sum(x) * (2.0 if model.order == 1 else 3.0)

    model = Model()

    def state(order: int) -> tuple[Any, ...]:
        model.order = order
        return X, model

    return read, lambda: state(1), lambda: state(2)


@case
def slot_of_an_argument() -> Case:
    def read(x: Any, slotted: Slotted) -> Any:
        return np.sum(x) * slotted.scale * (2.0 if slotted.mode == "a" else 3.0)

    return read, lambda: (X, Slotted(2.0, "a")), lambda: (X, Slotted(2.0, "b"))


@case
def empty_slot_of_an_object() -> Case:
    slotted = Slotted(2.0, "a")

    def read(x: Any) -> Any:
        return np.sum(x) * (slotted.scale if hasattr(slotted, "scale") else 5.0)

    def state(scale: float | None) -> tuple[Any, ...]:
        if scale is not None:
            slotted.scale = scale
        elif hasattr(slotted, "scale"):
            del slotted.scale
        return (X,)

    return read, lambda: state(None), lambda: state(3.0)


@case
def property_of_an_argument() -> Case:
    def read(x: Any, model: Model) -> Any:
        return np.sum(x) * model.area

    model = Model()

    def state(width: float) -> tuple[Any, ...]:
        model.width = width
        return X, model

    return read, lambda: state(1.0), lambda: state(2.0)


# What a function reads from outside

G_MODE = "a"
G_SCALE = 2.0
G_TABLE: dict[str, Any] = {"mode": "a", "w": 1.0}
G_ITEMS: list[Any] = [1.0, 2.0]
G_FLAGS: set[Any] = {"a"}
G_MODEL = Model()


def _set_global(name: str, value: Any) -> tuple[Any, ...]:
    globals()[name] = value
    return (X,)


@case
def text_of_a_global() -> Case:
    def read(x: Any) -> Any:
        return np.sum(x) * (2.0 if G_MODE == "a" else 3.0)

    return read, lambda: _set_global("G_MODE", "a"), lambda: _set_global("G_MODE", "b")


@case
def number_of_a_global() -> Case:
    def read(x: Any) -> Any:
        return np.sum(x) * G_SCALE

    return read, lambda: _set_global("G_SCALE", 2.0), lambda: _set_global("G_SCALE", 3.0)


@case
def type_of_a_global() -> Case:
    def read(x: Any) -> Any:
        return np.sum(x) * (2.0 if isinstance(G_SCALE, float) else 3.0)

    return read, lambda: _set_global("G_SCALE", 2.0), lambda: _set_global("G_SCALE", 2)


@case
def bool_or_int_of_a_global() -> Case:
    def read(x: Any) -> Any:
        return np.sum(x) * (2.0 if G_SCALE is True else 3.0)

    return read, lambda: _set_global("G_SCALE", True), lambda: _set_global("G_SCALE", 1)


@case
def order_of_a_global_dict() -> Case:
    def read(x: Any) -> Any:
        return np.sum(x) * weigh([1.0 if key == "w" else 2.0 for key in G_TABLE])

    return (
        read,
        lambda: _set_global("G_TABLE", {"w": 1.0, "mode": "a"}),
        lambda: _set_global("G_TABLE", {"mode": "a", "w": 1.0}),
    )


@case
def order_of_a_global_dict_changed_in_place() -> Case:
    def read(x: Any) -> Any:
        return np.sum(x) * weigh([1.0 if key == "w" else 2.0 for key in G_TABLE])

    table = {"w": 1.0, "mode": "a"}

    def state(first: str) -> tuple[Any, ...]:
        items = sorted(table.items(), key=lambda item: item[0] != first)
        table.clear()
        table.update(items)
        return _set_global("G_TABLE", table)

    return read, lambda: state("w"), lambda: state("mode")


@case
def item_of_a_global_list() -> Case:
    def read(x: Any) -> Any:
        return np.sum(x) * weigh(G_ITEMS)

    items = [1.0, 2.0]

    def state(last: float) -> tuple[Any, ...]:
        items[-1] = last
        return _set_global("G_ITEMS", items)

    return read, lambda: state(2.0), lambda: state(5.0)


@case
def length_of_a_global_list() -> Case:
    def read(x: Any) -> Any:
        return np.sum(x) * len(G_ITEMS)

    return read, lambda: _set_global("G_ITEMS", [1.0]), lambda: _set_global("G_ITEMS", [1.0, 1.0])


@case
def content_of_a_global_set() -> Case:
    def read(x: Any) -> Any:
        return np.sum(x) * (2.0 if "a" in G_FLAGS else 3.0)

    flags = {"a"}

    def state(flag: str) -> tuple[Any, ...]:
        flags.clear()
        flags.add(flag)
        return _set_global("G_FLAGS", flags)

    return read, lambda: state("a"), lambda: state("b")


@case
def type_in_a_global_set() -> Case:
    def read(x: Any) -> Any:
        return np.sum(x) * sum([5.0 if flag is True else 1.0 for flag in G_FLAGS])

    return read, lambda: _set_global("G_FLAGS", {1, 2}), lambda: _set_global("G_FLAGS", {True, 2})


@case
def name_that_is_missing() -> Case:
    def read(x: Any) -> Any:
        try:
            return np.sum(x) * G_OPTIONAL  # type: ignore[name-defined]
        except NameError:
            return np.sum(x) * 7.0

    def without() -> tuple[Any, ...]:
        globals().pop("G_OPTIONAL", None)
        return (X,)

    return read, without, lambda: _set_global("G_OPTIONAL", 3.0)


@case
def closure_cell() -> Case:
    mode = "a"

    def read(x: Any) -> Any:
        return np.sum(x) * (2.0 if mode == "a" else 3.0)

    def state(new: str) -> tuple[Any, ...]:
        nonlocal mode
        mode = new
        return (X,)

    return read, lambda: state("a"), lambda: state("b")


@case
def default_of_a_parameter() -> Case:
    def read(x: Any, mode: str = "a") -> Any:
        return np.sum(x) * (2.0 if mode == "a" else 3.0)

    def state(mode: str) -> tuple[Any, ...]:
        read.__defaults__ = (mode,)
        return (X,)

    return read, lambda: state("a"), lambda: state("b")


@case
def default_of_a_keyword() -> Case:
    def read(x: Any, *, scale: float = 2.0) -> Any:
        return np.sum(x) * scale

    def state(scale: float) -> tuple[Any, ...]:
        read.__kwdefaults__["scale"] = scale
        return (X,)

    return read, lambda: state(2.0), lambda: state(3.0)


@case
def default_of_a_helper() -> Case:
    def helper(x: Any, *, mode: str = "a") -> Any:
        return np.sum(x) * (2.0 if mode == "a" else 3.0)

    def read(x: Any) -> Any:
        return helper(x)

    def state(mode: str) -> tuple[Any, ...]:
        helper.__kwdefaults__ = {"mode": mode}
        return (X,)

    return read, lambda: state("a"), lambda: state("b")


@case
def code_of_a_helper() -> Case:
    def helper(x: Any) -> Any:
        return np.sum(x) * 2.0

    def other(x: Any) -> Any:
        return np.sum(x) * 3.0

    code = helper.__code__

    def read(x: Any) -> Any:
        return helper(x)

    def state(new: Any) -> tuple[Any, ...]:
        helper.__code__ = new
        return (X,)

    return read, lambda: state(code), lambda: state(other.__code__)


@case
def attribute_of_a_function() -> Case:
    def read(x: Any) -> Any:
        return np.sum(x) * (2.0 if read.mode == "a" else 3.0)  # type: ignore[attr-defined]

    def state(mode: str) -> tuple[Any, ...]:
        read.mode = mode  # type: ignore[attr-defined]
        return (X,)

    return read, lambda: state("a"), lambda: state("b")


@case
def attribute_of_a_module() -> Case:
    module = ModuleType("settings_of_this_test")
    module.__file__ = __file__
    sys.modules[module.__name__] = module

    def read(x: Any) -> Any:
        return np.sum(x) * (2.0 if module.mode == "a" else 3.0)

    def state(mode: str) -> tuple[Any, ...]:
        module.mode = mode  # type: ignore[attr-defined]
        return (X,)

    return read, lambda: state("a"), lambda: state("b")


@case
def attribute_of_a_module_by_a_computed_name() -> Case:
    module = ModuleType("variants_of_this_test")
    module.__file__ = __file__
    sys.modules[module.__name__] = module

    def read(x: Any) -> Any:
        factor = getattr(module, f"factor{len(x)}") * vars(module)[f"order{len(x)}"]
        return np.sum(x) * factor * (2.0 if getattr(module, f"mode{len(x)}") == "a" else 3.0)

    def state(factor: float, mode: str) -> tuple[Any, ...]:
        names = {f"factor{len(X)}": factor, f"order{len(X)}": factor + 1.0, f"mode{len(X)}": mode}
        vars(module).update(names)
        return (X,)

    return read, lambda: state(2.0, "a"), lambda: state(3.0, "b")


@case
def attribute_of_an_object() -> Case:
    def read(x: Any) -> Any:
        return np.sum(x) * (2.0 if G_MODEL.order == 1 else 3.0)

    def state(order: int) -> tuple[Any, ...]:
        G_MODEL.order = order
        return (X,)

    return read, lambda: state(1), lambda: state(2)


@case
def attribute_by_a_computed_name() -> Case:
    def read(x: Any) -> Any:
        return np.sum(x) * getattr(G_MODEL, "or" + "der") * getattr(G_MODEL, G_MODE + "dth")

    def state(order: int) -> tuple[Any, ...]:
        G_MODEL.order = order
        return _set_global("G_MODE", "wi")

    return read, lambda: state(1), lambda: state(2)


@case
def attribute_of_a_class() -> Case:
    class Local:
        kind = "a"

        def __call__(self, x: Any) -> Any:
            return np.sum(x) * (2.0 if self.kind == "a" else 3.0)

    model = Local()

    def state(kind: str) -> tuple[Any, ...]:
        Local.kind = kind
        return (X,)

    return model, lambda: state("a"), lambda: state("b")


@case
def number_of_a_class() -> Case:
    class Local:
        factor = 2.0

    def read(x: Any) -> Any:
        return np.sum(x) * Local.factor

    def state(factor: float) -> tuple[Any, ...]:
        Local.factor = factor
        return (X,)

    return read, lambda: state(2.0), lambda: state(3.0)


@case
def attribute_of_a_base_class() -> Case:
    class Base:
        kind = "a"

    class Local(Base):
        def __call__(self, x: Any) -> Any:
            return np.sum(x) * (2.0 if self.kind == "a" else 3.0)

    model = Local()

    def state(kind: str) -> tuple[Any, ...]:
        Base.kind = kind
        return (X,)

    return model, lambda: state("a"), lambda: state("b")


@case
def attribute_that_hides_a_class_attribute() -> Case:
    class Local:
        kind = "a"

        def __call__(self, x: Any) -> Any:
            return np.sum(x) * (2.0 if self.kind == "a" else 3.0)

    model = Local()

    def hidden() -> tuple[Any, ...]:
        model.kind = "b"
        return (X,)

    def plain() -> tuple[Any, ...]:
        vars(model).pop("kind", None)
        return (X,)

    return model, plain, hidden


@case
def method_of_a_class() -> Case:
    class Local:
        def part(self, x: Any) -> Any:
            return np.sum(x) * 2.0

        def __call__(self, x: Any) -> Any:
            return self.part(x)

    first = Local.part

    def other(self: Any, x: Any) -> Any:
        return np.sum(x) * 3.0

    model = Local()

    def state(method: Any) -> tuple[Any, ...]:
        Local.part = method  # type: ignore[method-assign]
        return (X,)

    return model, lambda: state(first), lambda: state(other)


@case
def class_of_an_object() -> Case:
    class One:
        def part(self, x: Any) -> Any:
            return np.sum(x) * 2.0

    class Other:
        def part(self, x: Any) -> Any:
            return np.sum(x) * 3.0

    held = SimpleNamespace(model=One())

    def read(x: Any) -> Any:
        return held.model.part(x)

    def state(cls: Any) -> tuple[Any, ...]:
        held.model.__class__ = cls
        return (X,)

    return read, lambda: state(One), lambda: state(Other)


@case
def class_without_a_module() -> Case:
    space: dict[str, Any] = {"np": np}
    exec(
        "class Local:\n"
        "    def __init__(self): self.mode = 'a'\n"
        "    def __call__(self, x): return np.sum(x) * (2.0 if self.mode == 'a' else 3.0)\n"
        "model = Local()\n",
        space,
    )
    model = space["model"]

    def state(mode: str) -> tuple[Any, ...]:
        model.mode = mode
        return (X,)

    return model, lambda: state("a"), lambda: state("b")


@case
def function_without_a_module() -> Case:
    space: dict[str, Any] = {"np": np, "mode": "a"}
    exec("def read(x): return np.sum(x) * (2.0 if mode == 'a' else 3.0)\n", space)

    def state(mode: str) -> tuple[Any, ...]:
        space["mode"] = mode
        return (X,)

    return space["read"], lambda: state("a"), lambda: state("b")


@case
def attribute_of_a_slotted_object() -> Case:
    slotted = Slotted(2.0, "a")

    def read(x: Any) -> Any:
        return np.sum(x) * slotted.scale * (2.0 if slotted.mode == "a" else 3.0)

    def state(mode: str) -> tuple[Any, ...]:
        slotted.mode = mode
        return (X,)

    return read, lambda: state("a"), lambda: state("b")


@case
def member_of_an_enum_from_outside() -> Case:
    held = SimpleNamespace(colour=Colour.RED)

    def read(x: Any) -> Any:
        return np.sum(x) * (2.0 if held.colour is Colour.RED else 3.0)

    def state(colour: Colour) -> tuple[Any, ...]:
        held.colour = colour
        return (X,)

    return read, lambda: state(Colour.RED), lambda: state(Colour.BLUE)


@case
def argument_of_a_partial() -> Case:
    def helper(mode: list[str], x: Any) -> Any:
        return np.sum(x) * (2.0 if mode[0] == "a" else 3.0)

    modes = ["a"]

    def state(mode: str) -> tuple[Any, ...]:
        modes[0] = mode
        return (X,)

    return functools.partial(helper, modes), lambda: state("a"), lambda: state("b")


@case
def content_of_an_array_that_python_reads() -> Case:
    table = np.array([1, 2])

    def read(x: Any) -> Any:
        return np.sum(x) * (2.0 if table[0] == 1 else 3.0)

    def state(first: int) -> tuple[Any, ...]:
        table[0] = first
        return (X,)

    return read, lambda: state(1), lambda: state(5)


@case
def dtype_of_an_array_from_outside() -> Case:
    held = SimpleNamespace(table=X)

    def read(x: Any) -> Any:
        return np.sum(x) * held.table.dtype.itemsize

    def state(dtype: Any) -> tuple[Any, ...]:
        held.table = X.astype(dtype)
        return (X,)

    return read, lambda: state(np.float64), lambda: state(np.float32)


@case
def layout_of_an_array_from_outside() -> Case:
    a = np.arange(6.0).reshape(2, 3)
    held = SimpleNamespace(table=a)

    def read(x: Any) -> Any:
        return np.sum(x) * np.sum((held.table * 1.0).ravel(order="K") * np.arange(6.0))

    def state(array: Any) -> tuple[Any, ...]:
        held.table = array
        return (X,)

    return read, lambda: state(a), lambda: state(np.asfortranarray(a))


@case
def bytes_of_an_object_array() -> Case:
    names = np.array(["a", "b"], dtype=object)

    def read(x: Any) -> Any:
        return np.sum(x) * (2.0 if names[0] == "a" else 3.0)

    def state(name: str) -> tuple[Any, ...]:
        names[0] = name
        return (X,)

    return read, lambda: state("a"), lambda: state("c")


@case
def sign_of_a_zero_from_outside() -> Case:
    held = SimpleNamespace(zero=0.0)

    def read(x: Any) -> Any:
        return np.sum(x) * np.copysign(1.0, held.zero)

    def state(zero: float) -> tuple[Any, ...]:
        held.zero = zero
        return (X,)

    return read, lambda: state(0.0), lambda: state(-0.0)


# The environment and the settings


def _set_variable(value: str) -> tuple[Any, ...]:
    os.environ["GRADTAPE_KEY_CASE"] = value
    return (X,)


@case
def environment_by_item() -> Case:
    def read(x: Any) -> Any:
        return np.sum(x) * float(os.environ["GRADTAPE_KEY_CASE"])

    return read, lambda: _set_variable("2"), lambda: _set_variable("3")


@case
def environment_by_get() -> Case:
    def read(x: Any) -> Any:
        return np.sum(x) * float(os.environ.get("GRADTAPE_KEY_CASE", "1"))

    def without() -> tuple[Any, ...]:
        os.environ.pop("GRADTAPE_KEY_CASE", None)
        return (X,)

    return read, without, lambda: _set_variable("3")


@case
def environment_by_getenv() -> Case:
    from os import getenv

    def read(x: Any) -> Any:
        return np.sum(x) * float(getenv("GRADTAPE_KEY_CASE", "1"))

    return read, lambda: _set_variable("2"), lambda: _set_variable("3")


@case
def environment_by_its_own_name() -> Case:
    from os import environ

    def read(x: Any) -> Any:
        return np.sum(x) * ("GRADTAPE_KEY_CASE" in environ) * float(environ.get("GRADTAPE_KEY_CASE", "1"))

    return read, lambda: _set_variable("2"), lambda: _set_variable("3")


@case
def environment_in_an_import() -> Case:
    def read(x: Any) -> Any:
        import os as system

        return np.sum(x) * float(system.path.expandvars("$GRADTAPE_KEY_CASE"))

    return read, lambda: _set_variable("2"), lambda: _set_variable("3")


class Alike(Mapping[str, Any]):
    """A mapping that is no dict: an object whose attributes are read."""

    def __init__(self, content: dict[str, Any]) -> None:
        self.content = content

    def __getitem__(self, key: str) -> Any:
        return self.content[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.content)

    def __len__(self) -> int:
        return len(self.content)


@case
def order_of_a_mapping() -> Case:
    held = SimpleNamespace(table=Alike({"a": 1.0, "b": 2.0}))

    def read(x: Any) -> Any:
        return np.sum(x) * weigh(held.table.values())

    def state(content: dict[str, Any]) -> tuple[Any, ...]:
        held.table.content = content
        return (X,)

    return read, lambda: state({"a": 1.0, "b": 2.0}), lambda: state({"b": 2.0, "a": 1.0})


@case
def lazily_computed_attribute() -> Case:
    class Local:
        def __init__(self) -> None:
            self.base = 2.0

        @functools.cached_property
        def double(self) -> float:
            return 2.0 * self.base

    held = SimpleNamespace(model=Local())

    def read(x: Any) -> Any:
        return np.sum(x) * held.model.double

    def state(base: float) -> tuple[Any, ...]:
        held.model = Local()
        held.model.base = base
        return (X,)

    return read, lambda: state(2.0), lambda: state(3.0)


# Random pairs: nests that differ in one place, read by code that sees all of it


def random_case(seed: int) -> Case:
    """Return a case of a random nest of containers, and of another one that differs from it in one place."""
    rng = random.Random(seed)
    nest = _nest(rng, 3)
    places = list(_places(nest))
    rng.shuffle(places)
    other = next(
        (
            changed
            for place in places
            if (changed := _changed(rng, nest, place)) is not None and _shown(changed) != _shown(nest)
        ),
        (nest, "b"),
    )
    return _all_of, lambda: (X, nest), lambda: (X, other)


def _all_of(x: Any, nest: Any) -> Any:
    seen: list[Any] = []
    total = np.sum(x) * 0.0
    for place, (text, part) in enumerate(_shown(nest)):
        seen.append(text)
        if part is not None:
            total = total + np.sum(part) * (1.0 + 10.0 * place)
    return total + np.sum(x) * (sum(map(ord, "".join(seen))) % 1009)


def _shown(nest: Any, path: str = "") -> list[tuple[str, Any]]:
    """Return texts of the containers and leaves in the order in which code meets them, with the leaves that are numbers."""
    if isinstance(nest, dict):
        head = [(f"{path}{type(nest).__name__}", None)]
        return head + [
            each
            for key, item in nest.items()
            for each in [(f"{type(key).__name__}{key!r}", None), *_shown(item, path + "d")]
        ]
    if isinstance(nest, list | tuple):
        return [(f"{path}{type(nest).__name__}", None)] + [
            each for item in nest for each in _shown(item, path + "s")
        ]
    if isinstance(nest, Point):
        return [(f"{path}{type(nest).__name__}", None), *_shown(nest.left), *_shown(nest.right)]
    if nest is None or isinstance(nest, str | bool | enum.Enum | frozenset):
        return [
            (f"{type(nest).__name__}{nest!r}" if not isinstance(nest, frozenset) else str(sorted(nest)), None)
        ]
    kinds = [kind.__name__ for kind in (int, float, np.floating, np.ndarray) if isinstance(nest, kind)]
    return [(f"{kinds}{np.shape(nest)}{np.result_type(nest, np.float32)}", nest)]


def _leaf(rng: random.Random) -> Any:
    return rng.choice(
        [
            1,
            2.0,
            np.float64(3.0),
            np.float32(4.0),
            np.array(5.0),
            X,
            X[:2],
            X.astype(np.float32),
            True,
            "a",
            None,
        ]
        + [Colour.RED, frozenset("ab"), np.bool_(True), np.arange(3)]
    )


def _nest(rng: random.Random, depth: int) -> Any:
    if not depth or rng.random() < 0.3:
        return _leaf(rng)
    items = [_nest(rng, depth - 1) for _ in range(rng.randint(1, 3))]
    keys = rng.sample(["w", "b", "a", "c", 1, 0, 2.5], len(items))
    kind = rng.choice(["dict", "dict", "ordered", "default", "settings", "list", "tuple", "pair", "point"])
    if kind in ("pair", "point"):
        return (Pair if kind == "pair" else Point)(items[0], items[-1])
    if kind in ("list", "tuple"):
        return (list if kind == "list" else tuple)(items)
    if kind == "settings":
        return Settings({str(key): item for key, item in zip(keys, items, strict=True)})
    named = dict(zip(map(str, keys) if rng.random() < 0.7 else keys, items, strict=True))
    return named if kind == "dict" else OrderedDict(named) if kind == "ordered" else defaultdict(float, named)


def _places(nest: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    if isinstance(nest, dict):
        for key, item in nest.items():
            yield from _places(item, (*path, key))
    elif isinstance(nest, list | tuple):
        for number, item in enumerate(nest):
            yield from _places(item, (*path, number))


def _changed(rng: random.Random, nest: Any, path: tuple[Any, ...]) -> Any:
    """Return a nest with another part at a place; None where nothing there can be changed."""
    if path:
        inner = _changed(rng, nest[path[0]], path[1:])
        if inner is None:
            return None
        if isinstance(nest, dict):
            copy = nest.copy() if type(nest) is not Settings else Settings(nest)
            copy[path[0]] = inner
            return copy
        items = [inner if number == path[0] else item for number, item in enumerate(nest)]
        return type(nest)(*items) if isinstance(nest, Pair) else type(nest)(items)
    if isinstance(nest, dict):
        items = list(nest.items())
        if len(items) > 1 and rng.random() < 0.7:
            items.reverse()
        elif any(type(key) is int for key in nest):
            items = [(bool(key) if key in (0, 1) and type(key) is int else key, item) for key, item in items]
        else:
            return {"dict": OrderedDict, "OrderedDict": dict}.get(type(nest).__name__, dict)(items)
        copy = nest.copy() if type(nest) is not Settings else Settings()
        copy.clear()
        copy.update(items)
        return copy
    if isinstance(nest, Pair):
        return Couple(*nest)
    if isinstance(nest, list | tuple):
        return tuple(nest) if isinstance(nest, list) else list(nest)
    if isinstance(nest, Point):
        return Corner(nest.left, nest.right)
    return _leaf(rng)


RANDOM: Final = {f"random_{seed}": functools.partial(random_case, seed) for seed in range(60)}


def result_of(call: Callable[..., Any], given: tuple[Any, ...]) -> Any:
    """Return the result of a call with the arguments of a state."""
    *args, last = given
    return call(*args, **last) if isinstance(last, Keywords) else call(*given)


def main() -> None:
    """Print the results of all second states."""
    import gradtape as gt

    found = {}
    for name, make in {**CASES, **RANDOM}.items():
        function, _, second = make()
        try:
            found[name] = float(result_of(gt.jit(function), second()))
        except Exception as error:
            found[name] = f"{type(error).__name__}: {error}"  # type: ignore[assignment]
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
