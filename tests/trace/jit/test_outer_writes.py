"""Writes to objects outside are made in each call, as plain Python makes them."""

from __future__ import annotations

import collections
import copy
import dataclasses
import logging
import numbers
import random
import types
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import gradtape as gt
from gradtape.api.transforms.recording import Recording
from gradtape.trace.jit.tracing import Tracer
from tests.trace.jit.outer_writes import PROGRAMS

INPUTS = [
    np.array(x)
    for x in ([1.0, 2.0, 3.0], [0.5, -1.0, 2.0], [2.0, 2.0, 2.0], [1.0, 0.0, 1.0], [3.0, 1.0, 0.5])
]


def shown(thing: Any) -> Any:
    """Return the types and numbers of what a program has written."""
    if isinstance(thing, gt.Array):
        return "a gt.Array"
    if isinstance(thing, np.ndarray):
        return (
            "array",
            thing.dtype.name,
            thing.shape,
            tuple(np.round(thing.astype(float).ravel(), 9).tolist()),
        )
    if isinstance(thing, float | np.floating):
        return type(thing).__name__, round(float(thing), 9)
    if isinstance(thing, dict):
        return type(thing).__name__, [(key, shown(item)) for key, item in thing.items()]
    if isinstance(thing, list | tuple):
        return type(thing).__name__, [shown(item) for item in thing]
    if isinstance(thing, set):
        return "set", sorted(map(repr, thing))
    if dataclasses.is_dataclass(thing) or isinstance(thing, types.SimpleNamespace):
        return type(thing).__name__, shown(vars(thing))
    return type(thing).__name__, repr(thing)


def by_jit(f: Any) -> Any:
    return gt.jit(f)


def by_value_and_grad(f: Any) -> Any:
    both = gt.value_and_grad(f)
    return lambda x: both(x)[0]


def by_grad(f: Any) -> Any:
    gradient = gt.grad(f)

    def call(x: Any) -> None:
        gradient(x)

    return call


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("way", [by_jit, by_value_and_grad, by_grad])
@pytest.mark.filterwarnings("ignore::gradtape.errors.TraceLimitWarning")
def test_what_is_written_is_that_of_plain_python(name: str, way: Any) -> None:
    plain, plain_state = PROGRAMS[name]()
    wanted = []
    for x in INPUTS:
        y = plain(x.copy())
        wanted.append((None if way is by_grad else round(float(y), 9), copy.deepcopy(shown(plain_state()))))
    function, state = PROGRAMS[name]()
    compiled = way(function)
    for number, (x, (y, after)) in enumerate(zip(INPUTS, wanted, strict=True)):
        result = compiled(x.copy())
        assert (result if result is None else round(float(result), 9)) == y, f"call {number}"
        assert shown(state()) == after, f"call {number}"


# ``a += x`` of an ndarray and a watched array binds the name to an Array on a tape: other names keep the ndarray.
@pytest.mark.parametrize("name", sorted(PROGRAMS.keys() - {"array_in_place"}))
@pytest.mark.filterwarnings("ignore::gradtape.errors.TraceLimitWarning")
def test_what_is_written_in_calls_that_a_tape_follows_has_the_numbers_of_plain_python(name: str) -> None:
    plain, plain_state = PROGRAMS[name]()
    wanted = [(float(plain(x.copy())), in_numbers(plain_state())) for x in INPUTS]
    function, state = PROGRAMS[name]()
    compiled = gt.jit(function)
    for number, (x, (y, after)) in enumerate(zip(INPUTS, wanted, strict=True)):
        with gt.GradientTape() as tape:
            watched = tape.watch(x.copy())
            result = compiled(watched)
        assert float(result) == pytest.approx(y), f"call {number}"
        assert in_numbers(state()) == after, f"call {number}"
        if name != "memo_of_traced_values":
            assert tape.gradient(result, watched) is not None


def in_numbers(thing: Any) -> Any:
    """Return what a program has written, without the difference between arrays and numbers of NumPy and of gradtape."""
    if isinstance(thing, gt.Array | np.ndarray | float | np.number):
        return np.round(np.asarray(thing).astype(float), 9).tolist()
    if isinstance(thing, dict):
        return [(key, in_numbers(item)) for key, item in thing.items()]
    if isinstance(thing, list | tuple):
        return [in_numbers(item) for item in thing]
    if hasattr(thing, "__dict__") and not isinstance(thing, type):
        return in_numbers(vars(thing))
    return shown(thing)


def test_gradients_flow_through_state_on_a_tape() -> None:
    def steps(step: Any) -> Any:
        cell = types.SimpleNamespace(h=np.zeros(2))

        def f(x: Any) -> Any:
            cell.h = np.tanh(cell.h + x)
            return np.sum(cell.h)

        f = step(f)
        with gt.GradientTape() as tape:
            x = tape.watch(np.array([0.5, -0.25]))
            y = f(x) + f(x)
        return tape.gradient(y, x)

    np.testing.assert_allclose(steps(gt.jit), steps(lambda f: f))


class Counted:
    def __init__(self) -> None:
        self.calls, self.total, self.log = 0, 0.0, [0.0]


def checked(model: Counted, x: Any) -> Any:
    model.calls += 1
    model.total = model.total + np.sum(x)
    model.log.append(np.sum(x))
    return np.linalg.cholesky(x) * 2.0 if model.calls % 3 else np.linalg.cholesky(x)


@pytest.mark.parametrize("tape", [False, True])
def test_a_call_that_raises_writes_nothing(tape: bool) -> None:
    model = Counted()
    f = gt.jit(lambda x: checked(model, x))
    good, bad = np.eye(2), -np.eye(2)

    def call(x: Any) -> None:
        if not tape:
            f(x)
            return
        with gt.GradientTape() as t:
            np.asarray(f(t.watch(x)))

    for number in range(1, 5):
        call(good)
        before = shown(vars(model))
        assert (model.calls, float(model.total), len(model.log)) == (number, 2.0 * number, number + 1)
        if not tape:  # on a tape the error comes when the result is read
            with pytest.raises(np.linalg.LinAlgError):
                call(bad)
            assert shown(vars(model)) == before


@pytest.mark.parametrize("stops", [1, 2, 3])
def test_an_error_of_python_in_the_middle_writes_nothing(stops: int) -> None:
    model, table = Counted(), {"a": 1.0}
    step = 0

    class Stop(Exception):
        pass

    def reach(number: int, fails: Any) -> None:
        nonlocal step
        step = number
        if fails and number == stops:
            raise Stop

    @gt.jit(static_argnums=(1,))
    def f(x: Any, fails: bool) -> Any:
        model.calls += 1
        reach(1, fails)
        table["a"] = table["a"] * 2.0
        model.log.append(x)
        reach(2, fails)
        model.total = np.sum(x)
        reach(3, fails)
        return x

    f(np.ones(2), False)
    before = shown((vars(model), table, step))
    with pytest.raises(Stop):
        f(np.ones(2), True)
    assert shown((vars(model), table, step)) == before
    f(np.ones(2), False)
    assert model.calls == 2 and table == {"a": 4.0}


def test_threads_lose_no_write() -> None:
    model = Counted()

    @gt.jit
    def f(x: Any) -> Any:
        model.calls += 1
        model.total = model.total + np.sum(x)
        model.log.append(1)
        return x * 2.0

    for _ in range(4):
        f(np.ones(2))
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: f(np.ones(2)), range(200)))
    assert model.calls == 204 and model.total == 408.0 and len(model.log) == 205


WRITERS: dict[str, Any] = {
    "attribute": lambda model, x: setattr(model, "total", np.sum(x)),
    "counter": lambda model, x: setattr(model, "calls", model.calls + 1),
    "append": lambda model, x: model.log.append(1),
    "array": lambda model, x: model.best.__setitem__(0, x[0]),
}


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("tape", [False, True])
def test_vmap_refuses_writes_and_changes_nothing(name: str, tape: bool) -> None:
    model = Counted()
    model.best = np.zeros(2)  # type: ignore[attr-defined]
    write = WRITERS[name]

    def f(x: Any) -> Any:
        write(model, x)
        return np.sum(x)

    mapped = gt.vmap(f)
    before = shown(vars(model))
    for _ in range(2):
        with pytest.raises(gt.errors.InPlaceError, match=r"vmap maps writes to (?s:.*)whole batch"):
            if tape:
                with gt.GradientTape() as t:
                    mapped(t.watch(np.ones((3, 2))))
            else:
                mapped(np.ones((3, 2)))
        assert shown(vars(model)) == before


def test_jacobians_and_second_derivatives_write_the_values_of_the_function() -> None:
    for transform, calls in (
        (gt.jacobian, 1),
        (gt.hessian, 1),
        (lambda f: gt.grad(lambda x: np.sum(gt.grad(f)(x))), 1),
    ):
        model = Counted()

        def f(x: Any, model: Counted = model) -> Any:
            model.calls += 1
            model.total = model.total + np.sum(x**2)
            return np.sum(x**3)

        derivative = transform(f)
        for call in (1, 2, 3):
            derivative(np.ones(2))
            assert model.calls == calls * call and float(model.total) == 2.0 * calls * call


def test_bodies_of_loops_refuse_traced_values_and_warn_of_others() -> None:
    model = Counted()

    def body(carry: Any, x: Any) -> Any:
        model.total = carry
        return carry + x, carry

    with pytest.raises(
        gt.errors.InPlaceError, match=r"body 'body' of gt.scan writes to the attribute 'total'"
    ):
        gt.jit(lambda x: gt.scan(body, 0.0, x))(np.ones(3))
    assert model.total == 0.0

    def counting(carry: Any, x: Any) -> Any:
        model.calls += 1
        return carry + x, carry

    with pytest.warns(gt.errors.SideEffectWarning, match="the attribute 'calls'"):
        gt.jit(lambda x: gt.scan(counting, 0.0, x)[0])(np.ones(3))


def test_objects_that_a_program_cannot_make_are_made_by_python() -> None:
    model = Counted()

    @gt.jit
    def f(x: Any) -> Any:
        model.total = np.sum(x)
        model.log = (number for number in range(3))  # type: ignore[assignment]
        return x * 2.0

    for number in range(1, 4):
        np.testing.assert_array_equal(f(np.full(2, float(number))), np.full(2, 2.0 * number))
        assert list(model.log) == [0, 1, 2] and model.total == 2.0 * number
        assert not isinstance(model.total, gt.Array)


def test_functions_that_write_nothing_keep_their_native_entry() -> None:
    model = Counted()
    f = gt.jit(lambda x: x * 2.0 + model.total)
    f(np.ones(2))
    assert f.site.specialisations()[0].is_native


def test_counters_and_state_are_traced_twice_at_most() -> None:
    for name in (
        "running_mean",
        "method_with_state",
        "closure_variable",
        "global_variables",
        "log_of_values",
        "array_in_place",
    ):
        function, _ = PROGRAMS[name]()
        compiled = gt.jit(function)
        for k in range(20):
            compiled(INPUTS[k % len(INPUTS)])
        assert compiled.site.traces <= 2, name


def test_prepared_calls_write_nothing() -> None:
    model = Counted()
    f = gt.jit(lambda x: (setattr(model, "total", np.sum(x)), x)[1])
    f.compile(np.ones(2)) if hasattr(f, "compile") else f.lower(np.ones(2)) if hasattr(f, "lower") else None
    assert model.total == 0.0


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.filterwarnings("ignore::gradtape.errors.TraceLimitWarning")
def test_sequences_of_random_writes(seed: int) -> None:
    """Statements in random order, each of which reads and writes some of the state; compared with plain Python after each call."""

    def build() -> tuple[Any, Any]:
        random = np.random.default_rng(seed)
        model, table, items = Counted(), {"a": 1.0, "b": np.ones(3), "n": 0}, [0.5, np.ones(3), 0]
        total = 0.0

        def to_attribute(x: Any) -> None:
            model.total = model.total * 0.5 + np.sum(x)

        def count(x: Any) -> None:
            model.calls += 1
            table["n"] = model.calls + items[2]

        def to_entry(x: Any) -> None:
            table["b"] = table["b"] + x * table["a"]

        def swap(x: Any) -> None:
            table["b"], items[1] = items[1], table["b"]

        def to_item(x: Any) -> None:
            items[0] = items[0] + model.total
            items[2] += 1

        def to_closure(x: Any) -> None:
            nonlocal total
            total = total + items[0] * 0.1

        def log(x: Any) -> None:
            model.log.append(np.max(x) + total)

        def alias(x: Any) -> None:
            model.last = table["b"]  # type: ignore[attr-defined]

        def in_place(x: Any) -> None:
            items[1] = items[1] * 1.0
            items[1][1] = model.total

        def branch(x: Any) -> None:
            if np.sum(x) > 3.0:
                table["big"] = np.sum(x)
            else:
                table.pop("big", None)

        statements = [to_attribute, count, to_entry, swap, to_item, to_closure, log, alias, in_place, branch]
        chosen = [statements[k] for k in random.integers(len(statements), size=6)]

        def f(x: Any) -> Any:
            for statement in chosen:
                statement(x)
            return np.sum(table["b"]) + items[0] + model.total

        return f, lambda: (vars(model), table, items, total)

    (plain, wanted), (function, state) = build(), build()
    compiled = gt.value_and_grad(function) if seed % 2 else gt.jit(function)
    for number, x in enumerate([*INPUTS, *INPUTS]):
        y, result = plain(x), compiled(x)
        value = result[0] if seed % 2 else result
        assert float(value) == pytest.approx(float(y)), number
        assert shown(state()) == shown(wanted()), number


def by_vjp(f: Any) -> Any:
    return lambda x: gt.vjp(f, x)[0]


def by_linearize(f: Any) -> Any:
    return lambda x: gt.linearize(f, x)[0]


def by_hessian(f: Any) -> Any:
    second = gt.hessian(f)

    def call(x: Any) -> None:
        second(x)

    return call


@pytest.mark.parametrize("name", [name for name in PROGRAMS if "global" not in name])
@pytest.mark.parametrize(
    "way",
    [by_jit, by_value_and_grad, by_grad, by_vjp, by_linearize, by_hessian],
    ids=lambda way: way.__name__,
)
@pytest.mark.filterwarnings("ignore::gradtape.errors.TraceLimitWarning")
def test_functions_of_one_code_write_to_objects_of_their_own(name: str, way: Any) -> None:
    if name == "array_in_place" and way in (by_vjp, by_linearize):
        pytest.skip("the first call is recorded, and there += makes another array")
    earlier = []
    for number, x in enumerate(INPUTS):
        (plain, wanted), (function, state) = PROGRAMS[name](), PROGRAMS[name]()
        made = way(function)
        for _ in range(2):
            y, result = plain(x.copy()), made(x.copy())
            if result is not None:
                assert float(result) == pytest.approx(float(y), rel=1e-9), number
            assert in_numbers(state()) == in_numbers(wanted()), number
        assert all(in_numbers(state()) == content for state, content in earlier), number
        earlier.append((state, in_numbers(state())))


class Model:
    def __init__(self, seed: int) -> None:
        self.target = np.random.default_rng(seed).normal(size=3)
        self.w, self.inner = np.zeros(3), types.SimpleNamespace(last=0.0)


def steps_of_a_fit(seed: int) -> None:
    """Take the derivatives of a function that is made anew in each step, and writes to an object of its own."""
    model = Model(seed)
    w = np.arange(3.0) + seed
    for step in range(3):

        def f(w: Any, step: int = step) -> Any:
            scale = 1.0 / (step + 1) if isinstance(step, int) else 0.0
            model.w, model.inner.last = w, w[0] * 2.0
            return np.sum((model.target - model.w) ** 2) * scale

        y, pullback = gt.vjp(f, w)
        assert y == pytest.approx(np.sum((model.target - w) ** 2) / (step + 1))
        np.testing.assert_allclose(pullback(1.0)[0], 2.0 * (w - model.target) / (step + 1))
        np.testing.assert_array_equal(np.asarray(model.w), w)
        assert float(model.inner.last) == 2.0 * w[0]
        w = w + 1.0


def test_functions_of_one_code_with_writes_share_programs(monkeypatch: Any) -> None:
    for seed in range(4):
        steps_of_a_fit(seed)
    attempts: list[Any] = []
    before = Tracer._attempt
    monkeypatch.setattr(Tracer, "_attempt", lambda *args: (attempts.append(args[0].name), before(*args))[1])
    recorded: list[Any] = []
    monkeypatch.setattr(Recording, "run_untold", lambda *args: recorded.append(args))
    for seed in range(4, 30):
        steps_of_a_fit(seed)
    assert not attempts and not recorded


KINDS: dict[str, Any] = {
    "isinstance": lambda k: isinstance(k, int) + 2 * isinstance(k, float) + 4 * isinstance(k, np.ndarray),
    "numbers": lambda k: isinstance(k, numbers.Integral) + 2 * isinstance(k, numbers.Number),
    "type": lambda k: (type(k) is int) + 2 * (type(k) in (float, complex)) + 4 * (type(k) is np.float64),
    "isscalar": lambda k: np.isscalar(k) + 2 * isinstance(k, np.generic | np.floating),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("convert", [int, float])
def test_numbers_that_have_changed_are_inputs_where_code_asks_for_their_types(
    kind: str, convert: Any
) -> None:
    model = types.SimpleNamespace(k=convert(1))

    def f(x: Any) -> Any:
        return np.sum(x**2) * model.k * KINDS[kind](model.k)

    compiled = gt.value_and_grad(f)
    for k in range(1, 30):
        model.k = convert(k)
        y, gradient = compiled(INPUTS[0])
        assert y == pytest.approx(f(INPUTS[0]))
        np.testing.assert_allclose(gradient, 2.0 * INPUTS[0] * k * KINDS[kind](model.k))
    assert compiled.site.traces <= 6


class Layer:
    def __init__(self) -> None:
        self.w, self.calls, self.norm = np.ones(3), 0, 0.0


def write_to_arguments(table: Any, items: Any, layer: Any, x: Any) -> Any:
    """Write to containers and objects that are arguments."""
    table["h"] = table["h"] * 0.5 + x
    table["n"] = table["n"] + 1
    table["inner"]["last"] = np.sum(x)
    table.pop("gone", None)
    items[0], items[1] = items[1], items[0] * 2.0
    items.append(np.max(x))
    layer.w = layer.w - 0.1 * x
    layer.calls += 1
    layer.norm = np.sum(layer.w**2)
    return np.sum(table["h"]) * items[0] + layer.norm


TRANSFORMS: dict[str, Any] = {
    "jit": lambda f: gt.jit(f),
    "value_and_grad": lambda f: lambda *args: gt.value_and_grad(f, argnums=3)(*args)[0],
    "grad of everything": lambda f: lambda *args: gt.value_and_grad(f, argnums=(0, 1, 3))(*args)[0],
    "vjp": lambda f: lambda *args: gt.vjp(f, *args)[0],
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_containers_and_objects_that_are_arguments_are_written_to(name: str) -> None:
    def arguments() -> list[Any]:
        return [{"h": np.ones(3), "n": 1.0, "inner": {"last": 0.0}, "gone": 1.0}, [1.0, 3.0], Layer()]

    wanted, compiled = arguments(), arguments()
    f = TRANSFORMS[name](write_to_arguments)
    for x in INPUTS:
        y, result = write_to_arguments(*wanted, x), f(*compiled, x)
        assert float(result) == pytest.approx(float(y))
        assert in_numbers(
            [vars(each) if isinstance(each, Layer) else each for each in compiled]
        ) == in_numbers([vars(each) if isinstance(each, Layer) else each for each in wanted])


def test_vmap_refuses_writes_to_containers_among_its_arguments() -> None:
    def f(table: Any) -> Any:
        table["y"] = table["x"] * 2.0
        return np.sum(table["y"])

    table = {"x": np.ones((2, 3))}
    with pytest.raises(gt.errors.InPlaceError, match="whole batch"):
        gt.vmap(f)(table)
    assert table.keys() == {"x"}


def said(x: Any) -> Any:
    print("sum", f"{np.sum(x):.1f}", x)
    LOGGER.info("largest %.1f", np.max(x))
    return np.sum(x**2)


LOGGER = logging.getLogger("a test of effects")


@pytest.mark.parametrize("transform", [gt.jit, gt.grad, gt.value_and_grad])
def test_effects_happen_in_each_call_where_that_is_asked_for(
    transform: Any, capsys: Any, caplog: Any
) -> None:
    function = transform(said)
    with gt.config.override(effects="run"), caplog.at_level(logging.INFO):
        for scale in (1.0, 2.0, 3.0):
            result = function(np.array([1.0, 2.0]) * scale)
        assert capsys.readouterr().out == "sum 3.0 [1. 2.]\nsum 6.0 [2. 4.]\nsum 9.0 [3. 6.]\n"
        assert caplog.messages == ["largest 2.0", "largest 4.0", "largest 6.0"]
    plain = [6.0, 12.0] if transform is gt.grad else 45.0
    np.testing.assert_allclose(result[0] if transform is gt.value_and_grad else result, plain)


@pytest.mark.filterwarnings("error")
def test_iterators_clocks_files_and_generators_of_python_run_in_each_call(tmp_path: Any) -> None:
    items, generator, path = iter(range(1, 9)), random.Random(3), tmp_path / "log"
    wanted = random.Random(3)

    @gt.jit
    def f(x: Any) -> Any:
        with open(path, "a") as file:
            file.write(f"{np.sum(x):.0f} ")
        return np.sum(x) * next(items) + generator.random()

    with gt.config.override(effects="run"):
        for k in (1, 2, 3):
            assert float(f(np.ones(2))) == pytest.approx(2.0 * k + wanted.random())
    assert path.read_text() == "2 2 2 "


def test_functions_without_effects_are_compiled_where_effects_run() -> None:
    with gt.config.override(effects="run"):
        f = gt.jit(lambda x: np.sum(x) * 2.0)
        assert f(np.ones(2)) == 4.0 and f.site.specialisations()[0].is_native


def test_effects_is_trace_or_run() -> None:
    with pytest.raises(ValueError, match='"trace" or "run"'):
        gt.config.effects = "each"


def test_the_order_of_an_ordered_dict_is_checked() -> None:
    table = collections.OrderedDict(a=1.0, b=2.0)
    f = gt.jit(
        lambda x: sum(k * item for k, item in zip((1.0, 10.0), table.values(), strict=True)) * np.sum(x)
    )
    assert f(np.ones(1)) == 21.0
    table.move_to_end("a")
    assert f(np.ones(1)) == 12.0
    table.move_to_end("a", last=False)
    assert f(np.ones(1)) == 21.0


@pytest.mark.parametrize("way", ["vjp", "linearize", "jvp"])
def test_functions_that_python_reads_a_number_of_write_once_in_each_call(way: str) -> None:
    model, log = types.SimpleNamespace(calls=0, last=0.0), []

    def f(x: Any) -> Any:
        model.calls += 1
        model.last = x * model.calls
        log.append(model.calls)
        return x * 2.0 * model.calls if float(x) > 0 else x

    for call in range(1, 5):
        x = 0.5 * call
        if way == "jvp":
            y, slope = gt.jvp(f, (x,), (1.0,))
        elif way == "vjp":
            y, pull = gt.vjp(f, x)
            (slope,) = pull(1.0)
        else:
            y, push = gt.linearize(f, x)
            slope = push(1.0)
        assert (float(y), float(slope)) == (2.0 * call * x, 2.0 * call)
        assert (model.calls, float(model.last), log) == (call, x * call, [*range(1, call + 1)])
