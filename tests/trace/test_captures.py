"""What a function reads from outside is a hidden input: it is looked at in each call, as NumPy code looks at it."""

from __future__ import annotations

import functools
import importlib
import random
import sys
import threading
import types
import warnings
from collections import ChainMap, Counter, OrderedDict, UserDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

import gradtape as gt
from gradtape.errors import SideEffectWarning, TraceLimitWarning
from gradtape.trace.jit.captures.user_classes import fields_with_arrays
from tests.support.recording import Runs

X = np.array([1.0, 2.0, -0.5])


def traces(function: Any) -> int:
    return int(function.site.traces)


# The calls of the issue: what is captured is followed


class Layer:
    def __init__(self, w: Any, scale: float = 1.0, mode: str = "plus") -> None:
        self.w, self.scale, self.mode = w, scale, mode

    @gt.jit
    def l2(self) -> Any:
        return np.sum(self.w**2) * self.scale

    @gt.jit
    def apply(self, x: Any) -> Any:
        y = np.sum(self.w * x) * self.scale
        return y if self.mode == "plus" else -y


def test_captured_watched_values_are_followed() -> None:
    x = gt.constant(2.0)
    with gt.GradientTape() as tape:
        tape.watch(x)
        y = gt.jit(lambda: x * x)() + x
    assert float(tape.gradient(y, x)) == 5.0


def test_a_method_of_watched_weights_is_followed_and_sees_new_ones() -> None:
    layer = Layer(gt.constant([1.0, 2.0]))
    for _ in range(3):
        with gt.GradientTape() as tape:
            tape.watch(layer.w)
            y = layer.l2()
        np.testing.assert_allclose(tape.gradient(y, layer.w), 2 * layer.w.numpy())
        layer.w = layer.w - 0.5
        assert float(layer.l2()) == np.sum(layer.w.numpy() ** 2)


@pytest.mark.parametrize(
    "make",
    [
        lambda b: gt.grad(lambda a: a * b),
        lambda b: gt.jit(gt.grad(lambda a: a * b)),
        lambda b: lambda a: gt.grad(lambda c: (c * b, b), has_aux=True)(a)[0],
        lambda b: lambda a: gt.grad(lambda c: (c, b * c), has_aux=True)(a)[1] / a,
        lambda b: lambda a: gt.value_and_grad(lambda c: c * b)(a)[1],
        lambda b: lambda a: gt.vmap(lambda c: c * b)(np.ones(2))[0],
        lambda b: lambda a: gt.jacobian(lambda c: c * b)(np.ones(2))[0, 0],
        lambda b: lambda a: gt.jvp(lambda c: c * b, (a,), (1.0,))[1],
        lambda b: lambda a: gt.vjp(lambda c: c * b, a)[1](1.0)[0],
        lambda b: lambda a: gt.jit(lambda: b)(),
    ],
)
def test_transforms_inside_of_a_trace_see_the_outer_value(make: Callable[[Any], Any]) -> None:
    """Each is b, as a function of b; so is what is kept of it, a tape and a forward accumulator."""
    outer = gt.jit(lambda b: make(b)(1.0))
    assert [float(outer(b)) for b in (2.0, 3.0)] == [2.0, 3.0]
    assert float(gt.grad(lambda b: make(b)(1.0) * b)(3.0)) == 6.0
    with gt.GradientTape() as tape:
        b = tape.watch(4.0)
        y = make(b)(1.0) * b
    assert float(tape.gradient(y, b)) == 8.0
    b = gt.constant(5.0)
    with gt.ForwardAccumulator(b, gt.constant(1.0)) as forward:
        y = make(b)(1.0) * b
    assert float(forward.jvp(y)) == 10.0


@pytest.mark.parametrize("transform", [gt.jit, gt.grad, gt.value_and_grad, gt.vmap, gt.jacobian, gt.hessian])
def test_kept_transforms_see_what_changes(transform: Any) -> None:
    w = np.array(2.0)
    c = 1.5
    kept = transform(lambda a: a * a * w * c)
    at = X if transform is gt.vmap else 3.0
    for c, number in ((1.5, 2.0), (2.5, 2.0), (2.5, 4.0)):
        w[...] = number
        fresh = transform(lambda a, w=float(w), c=c: a * a * w * c)
        for one, other in zip(np.atleast_1d(kept(at)), np.atleast_1d(fresh(at)), strict=True):
            np.testing.assert_allclose(one, other)
    assert traces(kept) == 1


# Each sort of thing that is read


scale, table, mode, sizes = 2.0, {"w": np.ones(3), "deep": [np.full(3, 2.0), {"n": 1}]}, "sum", 2


def helper(x: Any) -> Any:
    return x * scale


@pytest.fixture(autouse=True)
def _as_it_was() -> Any:
    kept = {name: globals()[name] for name in ("scale", "mode", "sizes", "helper")}
    code = helper.__code__
    yield
    globals().update(kept)
    helper.__code__ = code
    table.clear()
    table.update({"w": np.ones(3), "deep": [np.full(3, 2.0), {"n": 1}]})


def everything(x: Any) -> Any:
    y = helper(x) * table["w"] + table["deep"][0] * table["deep"][1]["n"]
    for _ in range(sizes):
        y = y + x
    return np.sum(y) if mode == "sum" else np.max(y)


def test_globals_containers_and_helpers_are_read_in_each_call() -> None:
    global scale, mode, sizes, helper
    f = gt.jit(everything)

    def agrees(made: int) -> None:
        np.testing.assert_allclose(f(X), everything(X))
        np.testing.assert_allclose(f(X), everything(X))
        assert traces(f) == made

    agrees(1)
    scale = 3.5
    agrees(1)
    table["w"] = X * 2
    agrees(1)
    table["w"][0] = 9.0
    agrees(1)
    table["deep"][0][:] = -1.0
    agrees(1)
    mode = "max"
    agrees(2)
    mode = "sum"
    agrees(2)
    sizes = 3
    agrees(3)
    table["deep"][1]["n"] = 7
    agrees(4)
    table["w"] = np.ones(1)
    agrees(5)

    def helper(x: Any) -> Any:
        return x - scale

    agrees(6)


def test_code_that_is_exchanged_in_place_is_seen() -> None:
    def other(x: Any) -> Any:
        return x + 10.0

    f = gt.jit(everything)
    before = f(X)
    helper.__code__ = other.__code__
    np.testing.assert_allclose(f(X), everything(X))
    assert f(X) != before


def test_a_reloaded_module_is_seen(tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    file = tmp_path / "reloaded_for_captures.py"
    file.write_text("rate = 2.0\ndef slope(x):\n    return x * rate\n")
    module: Any = importlib.import_module("reloaded_for_captures")
    f = gt.jit(lambda x: np.sum(module.slope(x)) + module.rate)
    assert f(X) == np.sum(X * 2.0) + 2.0
    module.rate = 3.0
    assert f(X) == np.sum(X * 3.0) + 3.0
    assert traces(f) == 1
    file.write_text("rate = 5.0\ndef slope(x):\n    return x + rate\n")
    importlib.reload(module)
    assert f(X) == np.sum(X + 5.0) + 5.0
    del sys.modules["reloaded_for_captures"]


def test_attributes_and_patched_classes_are_seen() -> None:
    class Model:
        factor = 2.0

        def __init__(self) -> None:
            self.layers = [Layer(np.ones(3)), Layer(X)]
            self.on = True

        def __call__(self, x: Any) -> Any:
            return (
                self.twice(sum(np.sum(layer.w * x) * layer.scale for layer in self.layers)) if self.on else x
            )

        def twice(self, y: Any) -> Any:
            return y * self.factor

    model = Model()
    f = gt.jit(lambda x: model(x))
    g = gt.jit(lambda m, x: m(x))

    def agrees() -> None:
        for _ in range(2):
            np.testing.assert_allclose(f(X), model(X))
            np.testing.assert_allclose(g(model, X), model(X))

    agrees()
    model.layers[0].w = X * 3
    agrees()
    model.layers[1].scale = 0.25
    agrees()
    assert traces(f) == 1
    Model.factor = 5.0
    agrees()
    model.factor = 7.0  # type: ignore[misc]
    agrees()
    model.on = False
    agrees()
    model.on = True
    agrees()
    Model.twice = lambda self, y: y - 1.0  # type: ignore[method-assign]
    agrees()
    model.layers.append(Layer(np.ones(3)))
    agrees()
    model.layers = model.layers[:1]
    agrees()
    Model.__call__ = lambda self, x: np.sum(x)  # type: ignore[method-assign]
    agrees()


def test_defaults_partials_and_bound_methods_are_read_in_each_call() -> None:
    weights = np.ones(3)

    def weighted(x: Any, w: Any = weights, *, c: float = 2.0) -> Any:
        return np.sum(x * w) * c

    f, g = gt.jit(lambda x: weighted(x)), gt.jit(functools.partial(weighted, c=3.0))
    layer = Layer(weights)
    h = gt.jit(layer.l2)
    for _ in range(3):
        np.testing.assert_allclose(f(X), weighted(X))
        np.testing.assert_allclose(g(X), weighted(X, c=3.0))
        np.testing.assert_allclose(h(), np.sum(layer.w**2) * layer.scale)
        weights += 1.0
        layer.scale += 1.0
    weighted.__defaults__ = (np.full(3, 5.0),)
    weighted.__kwdefaults__ = {"c": 0.5}
    np.testing.assert_allclose(f(X), weighted(X))
    assert traces(f) <= 2 and traces(h) == 1


class Pair(NamedTuple):
    a: Any
    b: Any


@dataclass
class Data:
    w: Any
    n: int = 1
    inner: Any = None


def test_objects_that_are_arguments_are_read_in_each_call() -> None:
    def total(data: Any, x: Any) -> Any:
        return np.sum(data.w * x) * data.n + (0.0 if data.inner is None else data.inner.a * data.inner.b)

    f = gt.jit(total)
    for data in (
        Data(X),
        Data(X * 2),
        Data(X, 3),
        Data(X, 3, Pair(2.0, 3.0)),
        Data(X, 3, Pair(4.0, 3.0)),
        Data(X),
    ):
        for _ in range(2):
            np.testing.assert_allclose(f(data, X), total(data, X))
    assert traces(f) == 3


class Net:
    def __init__(self, w: Any) -> None:
        self.w, self.parts, self.kind = w, [Data(w * 2, 3), Data(w)], "net"

    def __call__(self, x: Any) -> Any:
        return np.sum(self.w * x) + sum(np.sum(part.w * x) * part.n for part in self.parts)


def test_objects_of_arrays_are_containers() -> None:
    net = Net(np.ones(3))
    slope = gt.grad(lambda net, x: net(x))(net, X)
    with gt.GradientTape() as tape:
        watched = tape.watch(net)
        y = watched(X)
    for found in (slope, tape.gradient(y, watched)):
        assert type(found) is Net and found.kind == "net" and found.parts[0].n == 3
        for part, factor in ((found, 1), (found.parts[0], 3), (found.parts[1], 1)):
            np.testing.assert_allclose(part.w, X * factor)
    moved = gt.jit(lambda data, x: Data(data.w - x, data.n, data.inner))(Data(X, 5), X)
    assert type(moved) is Data and moved.n == 5 and moved.inner is None
    np.testing.assert_array_equal(moved.w, np.zeros(3))
    rows = gt.vmap(lambda data: np.sum(data.w) * data.n)(Data(np.ones((2, 3)), 2))
    np.testing.assert_array_equal(rows, [6.0, 6.0])


def test_an_integer_that_keeps_changing_becomes_an_input() -> None:
    state = types.SimpleNamespace(step=0)
    box = {"step": 0}
    f = gt.jit(lambda x: x * box["step"])
    for box["step"] in range(12):
        np.testing.assert_allclose(f(X), X * box["step"])
    assert traces(f) <= 4
    del state


def test_what_python_asks_of_captures_is_checked_by_value() -> None:
    width, mask = 2.5, np.array([True, False, True])
    f = gt.jit(lambda x: np.sum(x[mask]) * float(width) * len(f"{width:.1f}"))

    def plain(x: Any) -> Any:
        return np.sum(x[mask]) * width * len(f"{width:.1f}")

    for width in (2.5, 3.5, 10.5, 2.5):  # noqa: B007
        np.testing.assert_allclose(f(X), plain(X))
        mask[1] = not mask[1]
        np.testing.assert_allclose(f(X), plain(X))


def test_states_beyond_the_limit_run_in_python() -> None:
    name = "0"
    f = gt.jit(lambda x: x * int(name))
    with gt.config.override(trace_limit=3), pytest.warns(TraceLimitWarning, match="'name'") as caught:
        for number in range(8):
            name = str(number)
            np.testing.assert_allclose(f(X), X * number)
    assert traces(f) == 3 and len(caught) == 1


def test_threads_see_nothing_of_a_trace() -> None:
    w, stop, seen = np.ones(3), threading.Event(), set()
    shared = {"w": w}

    def look() -> None:
        while not stop.is_set():
            seen.add((type(shared["w"]), type(w)))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        for number in range(20):
            f = gt.jit(lambda x, n=float(number): np.sum(shared["w"] * x) * n)
            np.testing.assert_allclose(f(X), np.sum(X) * number)
    finally:
        stop.set()
        thread.join()
    assert seen == {(np.ndarray, np.ndarray)}


# By chance


def world_of(rng: random.Random) -> dict[str, Any]:
    """Return something of each sort that a function may read."""
    return {
        "number": rng.uniform(-2, 2),
        "whole": rng.randrange(3),
        "array": np.array([rng.uniform(-2, 2) for _ in range(3)]),
        "mode": rng.choice(["plus", "times"]),
        "table": {key: rng.uniform(-1, 1) for key in rng.sample("abc", rng.randrange(1, 4))},
        "rows": [np.full(3, rng.uniform(-1, 1)) for _ in range(rng.randrange(1, 3))],
        "layer": Layer(np.full(3, rng.uniform(-1, 1)), rng.uniform(-1, 1), rng.choice(["plus", "minus"])),
        "pair": Pair(rng.uniform(-1, 1), np.full(3, rng.uniform(-1, 1))),
        "act": rng.choice([np.sin, np.tanh, lambda x: x * 0.5]),
        "flag": rng.choice([None, True, False]),
    }


@pytest.mark.parametrize("seed", range(6))
def test_what_changes_between_calls_by_chance(seed: int) -> None:
    rng = random.Random(seed)
    state = types.SimpleNamespace(**world_of(rng))
    number, array = rng.uniform(-2, 2), np.ones(3)

    def read(x: Any) -> Any:
        y = x * state.number + state.array * number
        y = y + array if state.mode == "plus" else y * array
        for key in state.table:
            y = y + state.table[key] * (2.0 if key == "a" else 1.0)
        for row in state.rows:
            y = state.act(y + row)
        for _ in range(state.whole):
            y = y * 1.5
        y = y * state.layer.w * state.layer.scale if state.layer.mode == "plus" else y - state.layer.w
        y = y + state.pair.a * state.pair.b
        return np.sum(y) if state.flag is None else np.sum(y) * (2.0 if state.flag else 3.0)

    f, slope = gt.jit(read), gt.grad(read)
    seen = [dict(vars(state))]
    with gt.config.override(trace_limit=64):
        for _ in range(30):
            np.testing.assert_allclose(f(X), read(X), rtol=1e-12)
            np.testing.assert_allclose(slope(X), gt.grad(lambda x: read(x))(X), rtol=1e-12)
            how = rng.randrange(6)
            if how == 0:
                vars(state).update(rng.choice(seen))
            elif how == 1:
                array[rng.randrange(3)] = rng.uniform(-2, 2)
            elif how == 2:
                number = rng.uniform(-2, 2)
            elif how == 3:
                state.rows[0][:] = rng.uniform(-1, 1)
                state.layer.scale = rng.uniform(-1, 1)
            else:
                name, content = rng.choice(list(world_of(rng).items()))
                setattr(state, name, content)
                seen.append(dict(vars(state)))


# Arguments that are Arrays


def test_a_function_of_arrays_is_traced_once() -> None:
    runs = Runs()

    @gt.jit
    def f(x: Any, k: Any) -> Any:
        runs.append(1)
        return np.sum(np.sin(x)) * k if k > 0 else np.sum(x) * k

    for _ in range(3):
        result = f(gt.constant(X), 2.0)
        assert isinstance(result, gt.Array)
        np.testing.assert_allclose(result, np.sum(np.sin(X)) * 2.0)
    assert len(runs) == 1
    for _ in range(3):
        with gt.GradientTape(persistent=True) as tape:
            x = tape.watch(X)
            y = f(x * 2, 2.0)
            slope = tape.gradient(y, x)
        np.testing.assert_allclose(slope, 4 * np.cos(2 * X))
        np.testing.assert_allclose(tape.gradient(slope, x), -8 * np.sin(2 * X))
    assert len(runs) == 1
    for _ in range(2):
        with gt.GradientTape() as tape:
            x = tape.watch(X)
            y = f(x, -1.0)
        np.testing.assert_allclose(tape.gradient(y, x), -np.ones(3))
    assert len(runs) == 2


# What cannot be seen is said


def test_side_effects_are_said_once() -> None:
    generator = random.Random(0)
    items = iter([1.0, 2.0])

    def read_line() -> int:
        with open(__file__) as file:
            return len(file.readline())

    for function, named in (
        (lambda x: x * generator.gauss(), "random number"),
        (lambda x: x * next(items), "'items'"),
        (lambda x: x * read_line(), "open"),
    ):
        f = gt.jit(function)
        with pytest.warns(SideEffectWarning, match=named) as caught:
            f(X)
            f(X)
        assert len(caught) == 1


def test_ordinary_code_raises_no_alarm() -> None:
    log: list[int] = []
    cache: dict[str, Any] = {"w": np.ones(3)}

    def f(x: Any) -> Any:
        log.append(1)
        local = {}
        local["y"] = x * cache["w"]
        rows = [random.Random(0)]
        rows.pop()
        return np.sum(local["y"])

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kept = gt.jit(f)
        kept(X)
        kept(X)
    assert log == [1, 1]


def test_the_first_call_passes_what_the_trace_has_kept_of_the_captures() -> None:
    held = [np.array(5.0)]

    def f(x: Any) -> Any:
        order = 1.0 if held[0].flags.c_contiguous else 2.0  # no number of the captured array is needed
        return order * np.interp(x, np.array([-1.0, 0.0, 2.0]), np.array([0.0, 1.0, -1.0]))

    jitted = gt.jit(f)
    x = np.array(1.25)
    assert [float(jitted(x)) for _ in range(3)] == [float(f(x))] * 3


# Objects whose inside is not plain, and what is not there


class Box(dict[str, Any]):
    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value


class Proxy:
    def __init__(self, behind: Any) -> None:
        self.behind = behind

    def __getattr__(self, name: str) -> Any:
        return getattr(self.behind, name)


class Numbers(list[Any]):
    pass


class Gain:
    """A descriptor that computes the name of what it reads."""

    factor = 1.0

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = "_" + name

    def __get__(self, instance: Any, owner: type) -> Any:
        return getattr(instance, self.name) * self.factor

    def __set__(self, instance: Any, value: Any) -> None:
        setattr(instance, self.name, value)


class Amplifier:
    gain = Gain()


class Slotted:
    __slots__ = ("__weakref__", "c")

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


def _set_entry(holder: Any, key: Any) -> Callable[[Any], None]:
    return functools.partial(type(holder).__setitem__, holder, key)


def _opaque_things() -> list[tuple[Callable[[Any], Any], Callable[[Any], None]]]:
    box, behind, numbers, amplifier = Box(a=1.0), types.SimpleNamespace(a=1.0), Numbers([1.0]), Amplifier()
    proxy, chain = Proxy(behind), ChainMap({"b": 1.0}, {"a": 1.0})
    amplifier.gain = 1.0
    user, counted, named = UserDict(a=1.0), Counter(a=1), OrderedDict(a=1.0)
    shown = types.MappingProxyType(named)
    slotted = Slotted()
    slotted.c = np.ones(1)
    return [
        (lambda x: x * box.a, functools.partial(setattr, box, "a")),
        (lambda x: x * box["a"], _set_entry(box, "a")),
        (lambda x: x * proxy.a, functools.partial(setattr, behind, "a")),
        (lambda x: x * numbers[0], _set_entry(numbers, 0)),
        (lambda x: x * amplifier.gain, functools.partial(setattr, amplifier, "gain")),
        (lambda x: x * amplifier.gain, functools.partial(setattr, Gain, "factor")),
        (lambda x: x * user["a"], _set_entry(user, "a")),
        (lambda x: x * counted["a"], _set_entry(counted, "a")),
        (lambda x: x * chain["a"], _set_entry(chain.maps[1], "a")),
        (lambda x: x * chain["a"], _set_entry(chain, "a")),
        (lambda x: x * shown["a"], _set_entry(named, "a")),
        (lambda x: np.sum(x * slotted.c), _set_entry(slotted.c, 0)),
    ]


@pytest.mark.parametrize("number", range(len(_opaque_things())))
def test_objects_that_answer_by_their_own_code_are_read_in_each_call(number: int) -> None:
    function, write = _opaque_things()[number]
    jitted, gradient = gt.jit(function), gt.grad(lambda x: function(x))
    try:
        for value in (1.0, 4.0, 2.5, 4.0):
            write(value)
            assert float(jitted(3.0)) == function(3.0) == 3.0 * value
            assert float(gradient(3.0)) == value
    finally:
        Gain.factor = 1.0


@pytest.mark.parametrize(
    "collected", [lambda thing: types.MappingProxyType({"k": thing}), lambda thing: frozenset({thing})]
)
def test_objects_in_collections_are_read_in_each_call(collected: Callable[[Any], Any]) -> None:
    amplifier = Amplifier()
    amplifier.gain, amplifier.steps = 2.0, [1.0]
    held = collected(amplifier)

    def function(x: Any) -> Any:
        (each,) = held.values() if isinstance(held, types.MappingProxyType) else held
        return x * each.gain + each.steps[0] * len(each.steps)

    jitted, gradient = gt.jit(function), gt.grad(lambda x: function(x))
    assert (float(jitted(3.0)), float(gradient(3.0))) == (7.0, 2.0)
    amplifier.gain = 4.0
    assert (float(jitted(3.0)), float(gradient(3.0))) == (13.0, 4.0)
    amplifier.steps[0] = 5.0
    assert float(jitted(3.0)) == 17.0
    amplifier.steps.append(1.0)
    assert float(jitted(3.0)) == 22.0


def test_attributes_that_appear_and_go_are_seen() -> None:
    class Thing:
        pass

    thing = Thing()

    def tried(x: Any) -> Any:
        try:
            return x * thing.k  # type: ignore[attr-defined]
        except AttributeError:
            return x

    functions = [
        tried,
        lambda x: x * getattr(thing, "k", 7.0),
        lambda x: x * 5.0 if hasattr(thing, "k") else x,
        lambda x: x * sum(getattr(thing, name, 0.5) for name in ("j", "k")),
    ]
    jitted = [gt.jit(function) for function in functions]
    for change in (
        lambda: None,
        lambda: setattr(thing, "k", 3.0),
        lambda: delattr(thing, "k"),
        lambda: setattr(Thing, "k", 9.0),
        lambda: setattr(thing, "k", 2.0),
        lambda: (delattr(thing, "k"), delattr(Thing, "k")),
    ):
        change()
        assert [float(f(2.0)) for f in jitted] == [f(2.0) for f in functions]


def test_native_checks_of_another_state_of_a_class_do_not_hold_in_this_one() -> None:
    class Base:
        c = 2.0

        def f(self, x: Any) -> Any:
            return x + self.c

    class Mixin:
        def g(self, x: Any) -> Any:
            return x * self.c  # type: ignore[attr-defined]

    class Derived(Mixin, Base):
        def f(self, x: Any) -> Any:
            return super().f(x) + self.g(x)

    thing = Derived()
    f = gt.jit(lambda x: thing.f(x))
    assert f(3.0) == 11.0
    Derived.c = 1.0
    assert f(3.0) == 7.0
    del Derived.c
    assert f(3.0) == 11.0
    thing.c = 0.5
    assert f(3.0) == 5.0
    Mixin.g = lambda self, x: x * x  # type: ignore[method-assign]
    assert f(3.0) == 12.5
    thing = Derived()  # as at first, but for the class
    for _ in range(3):
        assert f(3.0) == 14.0


# What the function leaves outside is what it would have left without a trace


class Holder:
    def __init__(self) -> None:
        self.k, self.w, self.items, self.count = 3.0, np.ones(2), [1.0, 2.0], 0


def _busy(world: dict[str, Any], fails: type[BaseException] | None) -> Callable[[Any], Any]:
    numbers, arrays, table, holder = world["numbers"], world["arrays"], world["table"], world["holder"]
    total = 1.0
    world["total"] = lambda: total

    def f(x: Any) -> Any:
        nonlocal total
        y = x * numbers[0] * np.sum(arrays[0]) * table["a"] * holder.k * total
        numbers.insert(0, numbers.pop())
        numbers.append("end")
        arrays.append(arrays[0])
        table["b"], table["n"] = table["a"], [table["a"], {"q": arrays[0]}, (table["z"], 1.0)]
        del table["z"]
        holder.w, holder.v = arrays[0], holder.w
        holder.items[0], holder.items[1] = holder.items[1], holder.items[0]
        holder.made = Holder()
        holder.made.w = table["n"]
        holder.count += 1
        total = holder.k
        if fails is not None:
            raise fails
        return y

    return f


def _shown(thing: Any) -> Any:
    if isinstance(thing, Holder):
        return {name: _shown(item) for name, item in vars(thing).items()}
    if isinstance(thing, dict):
        return [(name, _shown(item)) for name, item in thing.items() if name != "total"]
    if isinstance(thing, list | tuple):
        return [type(thing), *map(_shown, thing)]
    return type(thing), thing.tolist() if isinstance(thing, np.ndarray) else thing


@pytest.mark.parametrize("fails", [None, RuntimeError, KeyboardInterrupt])
@pytest.mark.filterwarnings("ignore::gradtape.errors.SideEffectWarning")
def test_what_is_moved_outside_is_the_users_own(fails: type[BaseException] | None) -> None:
    worlds = []
    before = None
    for wrap in (lambda f: f, gt.jit):
        world: dict[str, Any] = {
            "numbers": [1.0, 2.0],
            "arrays": [np.array([1.0, 2.0])],
            "table": {"a": 2.0, "z": np.zeros(2)},
            "holder": Holder(),
        }
        f = wrap(_busy(world, fails))
        before = (_shown(world), world["total"]()) if fails else None
        if fails is None:
            assert float(f(2.0)) == 36.0
        else:
            with pytest.raises(fails):
                f(2.0)
        worlds.append((_shown(world), world["total"]()))
        assert fails or world["arrays"][1] is world["arrays"][0] is world["holder"].w
    assert worlds[1] == (before or worlds[0])


def test_the_first_call_has_the_numbers_with_which_it_began() -> None:
    holder = Holder()
    holder.items = [np.ones(2), np.zeros(2)]

    def rotated(x: Any) -> Any:
        result = np.sum(holder.items[0] * x)
        holder.items = [holder.items[1], holder.items[0]]
        return result

    rotate = gt.jit(rotated)
    assert [float(rotate(2.0)) for _ in range(3)] == [4.0, 0.0, 4.0]
    assert holder.items[0].tolist() == [0.0, 0.0]


def test_what_the_function_raises_itself_is_raised_by_its_first_run() -> None:
    runs = Runs()
    scale = 2.0

    class Stop(Exception):
        pass

    def f(x: Any) -> Any:
        runs.append(1)
        if len(runs) < 100:
            raise Stop
        return x * scale

    for function in (gt.jit(f), gt.grad(f)):
        runs.clear()
        with pytest.raises(Stop):
            function(1.0)
        assert len(runs) == 1


def test_metaclasses_are_code_as_well() -> None:
    class Meta(type):
        factor = 2.0

        def scaled(cls, x: Any) -> Any:
            return x * cls.factor * cls.unit  # type: ignore[attr-defined]

    class Units(metaclass=Meta):
        unit = 3.0

    f = gt.jit(lambda x: Units.scaled(x))
    assert f(1.0) == 6.0
    Units.unit = 4.0
    assert f(1.0) == 8.0
    Meta.factor = 7.0
    assert f(1.0) == 28.0


class Polynomial(np.ndarray):
    """An array whose dtype is that of the coefficients, and not that of its memory."""

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(float)


def test_objects_that_say_another_dtype_than_that_of_their_memory() -> None:
    data = np.zeros(2, [("constant", float), ("slope", float)])
    data["slope"] = [2.0, 3.0]
    polynomial = data.view(Polynomial)
    runs = Runs()

    def f(x: float) -> Any:
        runs.append(x)
        return x * polynomial.view(np.ndarray)["slope"][1]

    slope = gt.grad(f)
    assert (slope(1.0), slope(2.0)) == (3.0, 3.0)
    before = len(runs)
    data["slope"][1] = 5.0
    assert slope(1.0) == 5.0 and len(runs) > before


class Numbered:
    """Has attributes with numbers in their names."""

    def __init__(self) -> None:
        self.w0, self.w1 = 1.0, np.array([2.0, 3.0])

    def weight(self, number: int) -> Any:
        return getattr(self, f"w{number}")


numbered_0, numbered_1 = 1.0, 2.0

BY_COMPUTED_NAMES: dict[str, Any] = {
    "a formatted string": lambda o, x: sum(getattr(o, f"w{i}") * x for i in range(2)),
    "a sum of strings": lambda o, x: getattr(o, "w" + str(1)) * x,
    "a percent sign": lambda o, x: getattr(o, "w%d" % 1) * x,  # noqa: UP031
    "a method": lambda o, x: o.weight(1) * x,
    "a default": lambda o, x: getattr(o, f"w{1}", None) * x,
    "an item of a string": lambda o, x: getattr(o, ["w0", "w1"][1]) * x,
    "global names": lambda o, x: globals()[f"numbered_{1}"] * x,
    "evaluated text": lambda o, x: eval(f"numbered_{1}") * x,
}


@pytest.mark.parametrize("program", BY_COMPUTED_NAMES)
def test_what_is_read_by_a_computed_name_is_read_in_each_call(program: str, monkeypatch: Any) -> None:
    f, o = BY_COMPUTED_NAMES[program], Numbered()
    compiled = gt.jit(lambda x: f(o, x))
    for change in (
        lambda: None,
        lambda: setattr(o, "w1", np.array([5.0, 7.0])),
        lambda: setattr(o, "w1", 4.0),
    ):
        change()
        np.testing.assert_allclose(compiled(2.0), f(o, 2.0))
    monkeypatch.setitem(globals(), "numbered_1", 9.0)
    np.testing.assert_allclose(compiled(2.0), f(o, 2.0))


class Held:
    content: Any


@pytest.mark.parametrize(("depth", "holds"), [(9, True), (10, False)])
def test_objects_are_looked_through_for_numbers_nine_containers_deep(depth: int, holds: bool) -> None:
    content: Any = 1.0
    for _ in range(depth):
        content = [content]
    held = Held()
    held.content = content
    assert fields_with_arrays(held) == ((("content",), ()) if holds else ((), ("content",)))
