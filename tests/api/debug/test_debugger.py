"""Looking at gradients: names and debuggers."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Iterator
from typing import Any

import matplotlib
import numpy as np
import pytest

import gradtape as gt
from gradtape.api.debug import GradientsDebugger
from gradtape.errors import (
    ArgumentError,
    ConcretizationError,
    DtypeError,
    UnknownGradientError,
)
from gradtape.trace.lazy.instruments import CHECKS, MADE, RECORDING
from gradtape.transforms.observers import OBSERVERS

matplotlib.use("Agg")
PAIR = np.array([0.5, 2.0])


pytestmark = pytest.mark.usefixtures("others_set_aside")


@pytest.fixture(autouse=True)
def nothing_is_left_behind() -> Iterator[None]:
    yield
    gt.debug.clear_gradient_debuggers()
    gc.collect()
    assert not CHECKS and not MADE and not RECORDING.tools and not OBSERVERS


def layers(x: Any) -> Any:
    hidden = gt.name(np.tanh(x), "hidden")
    output = gt.name(hidden * 3.0, "output")
    return np.sum(output**2)


HIDDEN = 18.0 * np.tanh(PAIR)
OUTPUT = 6.0 * np.tanh(PAIR)


# Names


def test_a_name_belongs_to_the_value() -> None:
    x = gt.constant(PAIR)
    assert gt.name(x, "x") is x and x.name == "x"
    x += 1.0
    assert x.name is None


def test_what_is_no_array_keeps_its_identity() -> None:
    assert gt.name(PAIR, "x") is PAIR
    assert np.isclose(layers(PAIR), np.sum((3 * np.tanh(PAIR)) ** 2))


@pytest.mark.parametrize("name", ["", 3, None])
def test_a_name_is_a_text(name: Any) -> None:
    with pytest.raises(DtypeError, match="name"):
        gt.name(gt.constant(PAIR), name)


def test_names_do_not_keep_a_function_from_compiling() -> None:
    assert np.allclose(gt.grad(layers)(PAIR), HIDDEN * (1 - np.tanh(PAIR) ** 2))


def test_names_stand_in_the_printed_graph() -> None:
    printed = gt.inspect.graph(gt.grad(layers), PAIR)
    assert "hidden: f64[2] = tanh(" in printed and "output: f64[2] = multiply(hidden, 3.0)" in printed


# The debugger


def on_tape(watch: Callable[[Any], None], persistent: bool = False) -> tuple[Any, Any]:
    with gt.GradientTape(persistent) as tape:
        x = tape.watch(PAIR)
        y = layers(x)
    watch(x)
    return tape, tape.gradient(y, x)


@pytest.mark.parametrize("times", [1, 3], ids=["once", "a structure seen before"])
def test_by_regular_expression_on_a_tape(times: int) -> None:
    for _ in range(times):
        debugger = GradientsDebugger().watch_gradients_by_tensor_names(None, "hid|out")
        on_tape(lambda x: None)
        assert list(debugger.gradient_tensors()) == ["hidden", "output"]
        assert np.allclose(debugger.gradient_tensor("hidden"), HIDDEN)
        assert np.allclose(debugger.gradient_tensor("output"), OUTPUT)


def test_a_regular_expression_matches_from_the_beginning() -> None:
    debugger = GradientsDebugger().watch_gradients_by_tensor_names(None, "idden")
    on_tape(lambda x: None)
    assert debugger.gradient_tensors() == {}


def test_by_array_all_paths_count() -> None:
    debugger = GradientsDebugger()
    with gt.GradientTape() as tape:
        x = tape.watch(np.array(3.0))
        y = x * x
        z = 2 * y + 5 * y
    assert debugger.watch_gradients_by_tensors(None, [y]) is debugger
    tape.gradient(z, x)
    assert float(debugger.gradient_tensor(y)) == 7.0


def test_an_identified_gradient_counts_its_own_path() -> None:
    debugger = GradientsDebugger()
    with gt.GradientTape() as tape:
        x = tape.watch(np.array(3.0))
        y = x * x
        stand_in = debugger.identify_gradient(y, name="y")
        z = 2 * stand_in + 5 * y
    assert float(tape.gradient(z, x)) == 42.0
    for key in (y, stand_in, "y"):
        assert float(debugger.gradient_tensor(key)) == 2.0


def test_a_name_is_found_for_what_has_none() -> None:
    debugger = GradientsDebugger()
    with gt.GradientTape() as tape:
        x = tape.watch(PAIR)
        a = debugger.identify_gradient(np.sin(x))
        b = debugger.identify_gradient(np.sin(a))
        z = np.sum(b)
    tape.gradient(z, x)
    assert sorted(debugger.gradient_tensors()) == ["sin_0", "sin_1"]


@pytest.mark.parametrize("wrap", [gt.jit, lambda f: f], ids=["jitted", "plain"])
def test_in_compiled_functions(wrap: Any) -> None:
    slope = gt.grad(wrap(layers))
    expected = slope(PAIR)
    with GradientsDebugger() as debugger:
        debugger.watch_gradients_by_tensor_names(None, ".*")
        assert np.allclose(slope(PAIR), expected)
    assert np.allclose(debugger.gradient_tensor("hidden"), HIDDEN)
    traces = slope.site.traces
    debugger_before = debugger.gradient_tensor("output").numpy()
    assert np.allclose(slope(2 * PAIR), gt.grad(layers)(2 * PAIR)) and slope.site.traces == traces
    assert np.allclose(debugger.gradient_tensor("output"), debugger_before)


def test_machine_code_answers_again_afterwards() -> None:
    doubled = gt.jit(lambda x: x * 2.0)
    doubled(PAIR)
    before = doubled.entry
    with GradientsDebugger():
        assert doubled.entry == 0
        with gt.debug.check_numerics():
            assert np.array_equal(doubled(PAIR), 2 * PAIR)
        assert doubled.entry == 0
    assert before != 0 and doubled.entry != 0
    assert np.array_equal(doubled(PAIR), 2 * PAIR)


def identifying(debugger: Any, x: Any) -> Any:
    y = np.tanh(x)
    return np.sum(2 * debugger.identify_gradient(y, name="t") ** 2 + 5 * y)


def watching(debugger: Any, x: Any) -> Any:
    y = gt.name(np.tanh(x), "t")
    debugger.watch_gradients_by_tensors(None, y)
    return np.sum(2 * y**2 + 5 * y)


def watching_names(debugger: Any, x: Any) -> Any:
    y = gt.name(np.tanh(x), "t")
    debugger.watch_gradients_by_tensor_names(None, "t")
    return np.sum(2 * y**2 + 5 * y)


def gradient_at(loss: Any, x: Any) -> Any:
    """The gradient at `t` in one of these functions."""
    return 4 * np.tanh(x) + (0 if loss is identifying else 5)


def slope_of(x: Any) -> Any:
    return (4 * np.tanh(x) + 5) * (1 - np.tanh(x) ** 2)


LOSSES = [identifying, watching, watching_names]


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(
    "wrap",
    [
        gt.grad,
        lambda loss: gt.jit(gt.grad(loss)),
        lambda loss: gt.grad(gt.jit(loss)),
        lambda loss: lambda x: gt.vjp(loss, x)[1](1.0)[0],
        lambda loss: lambda x: gt.value_and_grad(loss)(x)[1],
        lambda loss: gt.jit(lambda x: gt.gradients(loss(x), x)[0]),
        lambda loss: gt.grad(lambda x: gt.checkpoint(loss)(x)),
    ],
    ids=["grad", "jit of grad", "grad of jit", "vjp", "value_and_grad", "gradients", "checkpoint"],
)
def test_a_debugger_from_outside_in_a_compiled_function(loss: Any, wrap: Any) -> None:
    debugger = GradientsDebugger()
    slope = wrap(lambda x: loss(debugger, x))
    for x in (PAIR, 2 * PAIR, 3 * PAIR):
        assert np.allclose(slope(x), slope_of(x))
        assert np.allclose(debugger.gradient_tensor("t"), gradient_at(loss, x))


@pytest.mark.parametrize("loss", LOSSES)
def test_a_debugger_of_a_compiled_function_is_compiled(loss: Any) -> None:
    @gt.jit
    def both(x: Any) -> Any:
        debugger = GradientsDebugger()
        slope = gt.gradients(loss(debugger, x), x)[0]
        return slope, debugger.gradient_tensor("t"), debugger.gradient_tensors()["t"]

    for x in (PAIR, 2 * PAIR, 3 * PAIR):
        slope, kept, same = both(x)
        assert np.allclose(slope, slope_of(x))
        assert np.allclose(kept, gradient_at(loss, x)) and np.array_equal(kept, same)
    assert both.entry != 0 and both.site.traces == 1
    batch = np.linspace(0.1, 0.9, 6).reshape(3, 2)
    slopes, kept, _ = gt.vmap(both)(batch)
    assert np.allclose(slopes, slope_of(batch)) and np.allclose(kept, gradient_at(loss, batch))
    curvature = gt.grad(lambda x: np.sum(both(x)[1]))(PAIR)
    assert np.allclose(curvature, 4 * (1 - np.tanh(PAIR) ** 2))


@pytest.mark.parametrize("loss", LOSSES)
def test_a_debugger_on_a_tape_in_a_compiled_function(loss: Any) -> None:
    @gt.jit
    def both(x: Any) -> Any:
        with gt.GradientTape() as tape, GradientsDebugger() as debugger:
            tape.watch(x)
            y = loss(debugger, x)
            slope = tape.gradient(y, x)
        return slope, debugger.gradient_tensor("t")

    slope, kept = both(PAIR)
    assert np.allclose(slope, slope_of(PAIR)) and np.allclose(kept, gradient_at(loss, PAIR))
    assert both.entry != 0


@pytest.mark.parametrize("loss", LOSSES)
def test_a_debugger_that_outlives_its_trace_has_numbers(loss: Any) -> None:
    kept: list[Any] = []

    @gt.grad
    def slope(x: Any) -> Any:
        kept.append(GradientsDebugger())
        return loss(kept[-1], x)

    for count in (1, 2):
        assert np.allclose(slope(PAIR), slope_of(PAIR))
        assert len(kept) == count
        assert np.allclose(kept[-1].gradient_tensor("t").numpy(), gradient_at(loss, PAIR))


@pytest.mark.parametrize("loss", LOSSES)
def test_side_effects_of_functions_with_debuggers_happen_once(loss: Any) -> None:
    debugger, log = GradientsDebugger(), []

    def logged(x: Any) -> Any:
        log.append("called")
        return loss(debugger, x)

    slope = gt.grad(logged)
    for count in (1, 2, 3):
        slope(PAIR)
        assert len(log) == count


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("jitted", [False, True], ids=["", "jit"])
def test_gradients_inside_a_mapped_function(loss: Any, jitted: bool) -> None:
    debugger = GradientsDebugger()
    slopes = gt.vmap(gt.grad(lambda x: loss(debugger, x)))
    batch = np.linspace(0.1, 0.9, 6).reshape(3, 2)
    assert np.allclose((gt.jit(slopes) if jitted else slopes)(batch), slope_of(batch))
    assert np.allclose(debugger.gradient_tensor("t"), gradient_at(loss, batch))
    gt.vmap(gt.vmap(gt.grad(lambda x: loss(debugger, x))))(batch)
    assert np.allclose(debugger.gradient_tensor("t"), gradient_at(loss, batch))


def test_equal_gradients_of_all_mapped_elements_have_their_shape() -> None:
    debugger = GradientsDebugger()
    gt.vmap(gt.grad(lambda x: 3.0 * debugger.identify_gradient(x * x, name="y")))(PAIR)
    assert np.array_equal(debugger.gradient_tensor("y"), [3.0, 3.0])


@pytest.mark.parametrize("loss", LOSSES)
def test_gradients_of_a_mapped_function(loss: Any) -> None:
    debugger = GradientsDebugger()
    batch = np.linspace(0.1, 0.9, 6).reshape(3, 2)
    slope = gt.grad(lambda x: np.sum(gt.vmap(lambda row: loss(debugger, row))(x)))
    assert np.allclose(slope(batch), slope_of(batch))
    assert np.allclose(debugger.gradient_tensor("t"), gradient_at(loss, batch))


def test_a_compiled_function_with_a_debugger_is_refused_ahead_of_time() -> None:
    debugger = GradientsDebugger()
    slope = gt.grad(lambda x: identifying(debugger, x))
    with pytest.raises(ConcretizationError, match="identify_gradient uses a debugger"):
        slope.lower(PAIR)
    assert np.allclose(slope(PAIR), slope_of(PAIR))


@pytest.mark.parametrize(
    "read",
    [
        lambda debugger, x: debugger.gradient_tensor("t"),
        lambda debugger, x: debugger.gradient_tensors()["t"],
        lambda debugger, x: gt.debug.gradient_values_from_dump(debugger, "t")[0],
    ],
)
def test_reads_of_a_debugger_are_not_frozen_in_a_trace(read: Any) -> None:
    debugger = GradientsDebugger()
    slope = gt.grad(lambda x: identifying(debugger, x))
    scaled = gt.jit(lambda x: x * read(debugger, x))
    for x in (PAIR, 2 * PAIR):
        slope(x)
        assert np.allclose(scaled(x), x * gradient_at(identifying, x))


def test_numbers_of_gradients_inside_a_compiled_function() -> None:
    @gt.jit
    def numbers(x: Any) -> Any:
        debugger = GradientsDebugger()
        gt.gradients(identifying(debugger, x), x)
        return gt.debug.gradient_values_from_dump(debugger, "t")[0]

    assert np.allclose(numbers(PAIR), gradient_at(identifying, PAIR))


def test_registering_in_a_compiled_function_happens_at_each_call() -> None:
    debugger = GradientsDebugger()

    @gt.jit
    def doubled(x: Any) -> Any:
        debugger.register_gradient_tensor("x", x)
        return x * 2.0

    for x in (PAIR, 2 * PAIR):
        doubled(x)
        assert np.array_equal(debugger.gradient_tensor("x"), x)


def test_values_of_one_name_are_numbered_in_order() -> None:
    def loss(x: Any) -> Any:
        for _ in range(3):
            x = gt.name(x * 2.0, "twice")
        return np.sum(x)

    with GradientsDebugger().watch_gradients_by_tensor_names(None, "twice") as debugger:
        gt.grad(loss)(PAIR)
    found = {name: float(g.numpy()[0]) for name, g in debugger.gradient_tensors().items()}
    assert found == {"twice": 4.0, "twice_1": 2.0, "twice_2": 1.0}


def test_a_debugger_of_one_target_ignores_the_others() -> None:
    with gt.GradientTape(persistent=True) as tape:
        x = tape.watch(PAIR)
        h = gt.name(x * 2.0, "h")
        y, z = np.sum(h), np.sum(h * 5.0)
    debugger = GradientsDebugger(y).watch_gradients_by_tensor_names(None, "h")
    assert debugger.y_tensor is y
    tape.gradient(z, x)
    assert debugger.gradient_tensors() == {}
    tape.gradient(y, x)
    assert np.array_equal(debugger.gradient_tensor("h"), [1.0, 1.0])


def test_of_several_those_entered_listen() -> None:
    first = GradientsDebugger().watch_gradients_by_tensor_names(None, "hidden")
    second = GradientsDebugger().watch_gradients_by_tensor_names(None, "hidden")
    with second:
        on_tape(lambda x: None)
    assert not first.gradient_tensors() and second.gradient_tensors()
    on_tape(lambda x: None)
    assert first.gradient_tensors()


def test_registering() -> None:
    alone = GradientsDebugger()
    alone.register_gradient_tensor("x", gt.constant(PAIR))
    assert np.array_equal(alone.gradient_tensor("x"), PAIR)
    other = GradientsDebugger()
    alone.register_gradient_tensor("y", gt.constant(PAIR))
    assert list(alone.gradient_tensors()) == ["x"]
    with alone:
        alone.register_gradient_tensor("y", gt.constant(PAIR))
    assert list(alone.gradient_tensors()) == ["x", "y"] and not other.gradient_tensors()


def test_cleared_debuggers_are_deaf_until_entered() -> None:
    debugger = GradientsDebugger().watch_gradients_by_tensor_names(None, "hidden")
    gt.debug.clear_gradient_debuggers()
    on_tape(lambda x: None)
    assert not debugger.gradient_tensors()
    with debugger:
        on_tape(lambda x: None)
    assert debugger.gradient_tensors()


def test_complex_gradients_follow_the_convention() -> None:
    debugger = GradientsDebugger().watch_gradients_by_tensor_names(None, "w")
    with gt.GradientTape() as tape:
        z = tape.watch(np.array(1.0 + 2.0j))
        w = gt.name(z * 1j, "w")
        y = np.abs(w) ** 2
    tape.gradient(y, z)
    assert np.isclose(debugger.gradient_tensor("w").numpy(), 2 * (1j - 2.0))


def test_second_order() -> None:
    debugger = GradientsDebugger().watch_gradients_by_tensor_names(None, "cube")
    with gt.GradientTape() as outer:
        x = outer.watch(np.array(2.0))
        with gt.GradientTape() as inner:
            inner.watch(x)
            y = gt.name(x**3, "cube") ** 2
        slope = inner.gradient(y, x)
        assert float(debugger.gradient_tensor("cube")) == 16.0
    assert float(outer.gradient(slope, x)) == 30 * 2.0**4
    assert float(debugger.gradient_tensor("cube")) == 2 * 3 * 2.0**2


def test_graphs_are_compared() -> None:
    one, other = gt.GradientTape(), gt.GradientTape()
    debugger = GradientsDebugger().watch_gradients_by_tensor_names(one, "x")
    assert debugger.graph is one
    debugger.watch_gradients_by_tensor_names(None, "y")
    with pytest.raises(ArgumentError, match="another graph"):
        debugger.watch_gradients_by_tensors(other, gt.constant(PAIR))


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda d: d.identify_gradient(PAIR), DtypeError),
        (lambda d: d.identify_gradient(gt.constant(PAIR), name=3), DtypeError),
        (lambda d: d.watch_gradients_by_tensors(None, "x"), DtypeError),
        (lambda d: d.watch_gradients_by_tensor_names(None, 3), DtypeError),
        (lambda d: d.watch_gradients_by_tensor_names(None, "("), ArgumentError),
        (lambda d: d.gradient_tensor(3), DtypeError),
        (lambda d: d.gradient_tensor("nobody"), UnknownGradientError),
        (lambda d: d.gradient_tensor(gt.constant(PAIR)), LookupError),
        (lambda d: d.register_gradient_tensor("x", PAIR), DtypeError),
        (lambda d: GradientsDebugger(PAIR), DtypeError),
    ],
)
def test_what_a_debugger_refuses(call: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        call(GradientsDebugger())


def test_one_debugger_identifies_a_value_once() -> None:
    x = gt.constant(PAIR)
    debugger = GradientsDebugger()
    debugger.identify_gradient(x, name="x")
    with pytest.raises(ValueError, match="already"):
        debugger.identify_gradient(x, name="again")
    GradientsDebugger().identify_gradient(x, name="x")


# In loops, branches and mapped functions


def unrolled(w: Any, xs: Any) -> Any:
    h, total = 0.0, 0.0
    for x in xs:
        h = gt.name(np.tanh(w * h + x), "h")
        total = total + h**2
    return total


def scanned(w: Any, xs: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        h = gt.name(np.tanh(w * h + x), "h")
        return h, h

    _, states = gt.scan(step, 0.0, xs)
    return np.sum(states**2)


def whiled(w: Any, xs: Any) -> Any:
    def step(k: Any, h: Any, total: Any) -> Any:
        h = gt.name(np.tanh(w * h + gt.constant(xs)[k]), "h")
        return k + 1, h, total + h**2

    return gt.while_loop(lambda k, h, total: k < len(xs), step, (0, 0.0, 0.0))[2]


def nested(w: Any, xs: Any) -> Any:
    def step(state: Any, pair: Any) -> Any:
        def within(state: Any, x: Any) -> Any:
            h, total = state
            h = gt.cond(x < 1e9, lambda h: gt.name(np.tanh(w * h + x), "h"), lambda h: h, h)
            return (h, total + h**2), None

        return gt.scan(within, state, pair)[0], None

    return gt.scan(step, (0.0, 0.0), np.reshape(xs, (2, 2)))[0][1]


def again(w: Any, xs: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        h = gt.checkpoint(lambda h: gt.name(np.tanh(w * h + x), "h"))(h)
        return h, h

    return np.sum(gt.scan(step, 0.0, xs, reverse=False)[1] ** 2)


XS = np.array([0.3, -0.2, 0.5, 0.1])


def gradients_of(function: Any, tape: bool) -> dict[str, float]:
    with GradientsDebugger().watch_gradients_by_tensor_names(None, "h") as debugger:
        if tape:
            with gt.GradientTape() as recording:
                w = recording.watch(0.7)
                y = function(w, XS)
            slope = recording.gradient(y, w)
        else:
            slope = gt.grad(function)(0.7, XS)
    assert np.isclose(float(slope), gt.grad(unrolled)(0.7, XS))
    return {name: float(gradient) for name, gradient in debugger.gradient_tensors().items()}


@pytest.mark.parametrize("tape", [False, True])
@pytest.mark.parametrize("function", [scanned, whiled, nested, again])
def test_each_iteration_of_a_loop(function: Any, tape: bool) -> None:
    expected = gradients_of(unrolled, tape)
    assert list(expected) == ["h", "h_1", "h_2", "h_3"]
    found = gradients_of(function, tape)
    assert list(found) == list(expected)
    assert np.allclose(list(found.values()), list(expected.values()))


@pytest.mark.parametrize("function", [scanned, whiled, nested])
def test_each_iteration_of_a_second_derivative(function: Any) -> None:
    def gradients(function: Any) -> list[float]:
        with GradientsDebugger().watch_gradients_by_tensor_names(None, "h") as debugger:
            gt.grad(lambda w: gt.grad(function)(w, XS) ** 2)(0.7)
        return [float(gradient) for gradient in debugger.gradient_tensors().values()]

    assert np.allclose(gradients(function), gradients(unrolled))


def test_the_iterations_of_a_loop_that_is_mapped() -> None:
    with GradientsDebugger().watch_gradients_by_tensor_names(None, "h") as debugger:
        gt.grad(lambda w: np.sum(gt.vmap(scanned, in_axes=(None, 0))(w, np.stack([XS, XS]))))(0.7)
    expected = gradients_of(unrolled, False)
    for name, gradient in debugger.gradient_tensors().items():
        assert np.allclose(gradient.numpy(), expected[name]) and gradient.shape == (2,)


def test_the_iterations_of_a_loop_backwards() -> None:
    def loss(x: Any) -> Any:
        return gt.scan(lambda c, v: (gt.name(c * v, "c"), None), 1.0, x, reverse=True)[0]

    with GradientsDebugger().watch_gradients_by_tensor_names(None, "c") as debugger:
        gt.grad(loss)(np.array([2.0, 3.0, 5.0]))
    assert {name: float(g) for name, g in debugger.gradient_tensors().items()} == {"c": 6, "c_1": 2, "c_2": 1}


def test_a_named_argument_of_a_body() -> None:
    def loss(x: Any) -> Any:
        return gt.scan(lambda c, v: (gt.name(c, "before") * v, None), x[0], x)[0]

    with GradientsDebugger().watch_gradients_by_tensor_names(None, "before") as debugger:
        gt.grad(loss)(np.array([2.0, 3.0]))
    assert {name: float(g) for name, g in debugger.gradient_tensors().items()} == {"before": 6, "before_1": 3}


def test_mapped_functions_and_branches() -> None:
    def loss(x: Any) -> Any:
        squares = gt.vmap(lambda v: gt.name(v**2, "mapped"))(x)
        return gt.cond(
            True, lambda s: np.sum(gt.name(s * 3.0, "taken")), lambda s: np.sum(gt.name(s, "not")), squares
        )

    with GradientsDebugger().watch_gradients_by_tensor_names(None, ".*") as debugger:
        gt.grad(loss)(PAIR)
    found = {name: gradient.numpy().tolist() for name, gradient in debugger.gradient_tensors().items()}
    assert found == {"mapped": [3.0, 3.0], "taken": [1.0, 1.0]}


def test_loops_in_which_nothing_is_watched_are_not_unrolled(monkeypatch: pytest.MonkeyPatch) -> None:
    unrolled: list[Any] = []
    monkeypatch.setattr(
        "gradtape.api.debug.cotangents.sweep_unrolled", lambda node, *_: unrolled.append(node)
    )
    with GradientsDebugger().watch_gradients_by_tensor_names(None, "elsewhere") as debugger:
        gt.grad(scanned)(0.7, XS)
    assert not unrolled and not debugger.gradient_tensors()


# Which is which


def test_values_of_one_name_are_told_apart() -> None:
    debugger = GradientsDebugger().watch_gradients_by_tensor_names(None, "h")
    for _ in range(2):
        with gt.GradientTape() as tape:
            x = tape.watch(2.0)
            first, second = gt.name(x * 2, "h"), gt.name(x * 3, "h")
            y = second * 10 + first
        tape.gradient(y, x)
    assert float(debugger.gradient_tensor(first)) == float(debugger.gradient_tensor("h")) == 1.0
    assert float(debugger.gradient_tensor(second)) == float(debugger.gradient_tensor("h_1")) == 10.0


def test_a_gradient_that_was_replaced_is_not_that_of_another_array() -> None:
    debugger = GradientsDebugger().watch_gradients_by_tensor_names(None, "h")

    def step(scale: float) -> gt.Array:
        with gt.GradientTape() as tape:
            x = tape.watch(2.0)
            h: gt.Array = gt.name(x * 2, "h")
            y = h * scale
        tape.gradient(y, x)
        return h

    old, new = step(1.0), step(5.0)
    assert float(debugger.gradient_tensor(new)) == 5.0
    with pytest.raises(UnknownGradientError):
        debugger.gradient_tensor(old)


# Variables


def test_variables_are_watched() -> None:
    w, b = gt.Variable(PAIR, name="w"), gt.Variable(1.0)
    debugger = GradientsDebugger()
    with gt.GradientTape(persistent=True) as tape:
        y = np.sum(w**2) * b
        w.assign(np.ones(2))
        y = y + np.sum(w * 3.0)
    debugger.watch_gradients_by_tensors(tape, {"w": w, "b": [b]})
    gradients = tape.gradient(y, [w, b])
    assert sorted(debugger.gradient_tensors()) == ["variable_0", "w"]
    for variable, gradient in zip([w, b], gradients, strict=True):
        assert np.array_equal(debugger.gradient_tensor(variable).numpy(), gradient.numpy())
    by_name = GradientsDebugger().watch_gradients_by_tensor_names(None, re.compile("w|b"))
    tape.gradient(y, w)
    assert by_name.gradient_tensors()


def test_variables_are_identified() -> None:
    w, debugger = gt.Variable(PAIR), GradientsDebugger()
    with gt.GradientTape() as tape:
        y = np.sum(debugger.identify_gradient(w, name="one way") ** 2) + np.sum(w)
    tape.gradient(y, w)
    assert np.array_equal(debugger.gradient_tensor(w).numpy(), 2 * PAIR)


BODIES: dict[str, tuple[Callable[[Any, Any], Any], list[float]]] = {
    "scan": (
        lambda watch, x: gt.scan(lambda c, v: (watch(c * v) * 2.0, None), x[0], x)[0],
        [8.0, 2.0],
    ),
    "fori_loop": (lambda watch, x: gt.fori_loop(0, 3, lambda i, c: watch(c * x[1]), x[0]), [4.0, 2.0, 1.0]),
    "cond": (lambda watch, x: gt.cond(x[0] > 0, lambda: np.sum(watch(x * x)), lambda: x[1]), [1.0]),
}


@pytest.mark.parametrize("way", ["identify", "watch"])
@pytest.mark.parametrize("jitted", [False, True], ids=["from outside", "made inside"])
@pytest.mark.parametrize("body", BODIES)
def test_identifying_and_watching_in_a_body(way: str, jitted: bool, body: str) -> None:
    function, expected = BODIES[body]

    def loss(debugger: Any, x: Any) -> Any:
        def watch(y: Any) -> Any:
            if way == "identify":
                return debugger.identify_gradient(y, name="y")
            gt.name(y, "y")
            debugger.watch_gradients_by_tensors(y)
            return y

        return function(watch, x)

    def made_inside(x: Any) -> Any:
        debugger = GradientsDebugger()
        gt.gradients(loss(debugger, x), x)
        return debugger.gradient_tensors()

    x = np.array([0.5, 2.0])
    outside = GradientsDebugger()
    if jitted:
        found = gt.jit(made_inside)(x)
    else:
        gt.grad(lambda x: loss(outside, x))(x)
        found = outside.gradient_tensors()
    assert list(found) == ["y", "y_1", "y_2"][: len(expected)]
    assert [float(np.ravel(g)[0]) for g in found.values()] == expected


def test_a_debugger_made_in_a_body() -> None:
    @gt.jit
    def recurrent(x: Any) -> Any:
        def body(c: Any, v: Any) -> Any:
            debugger = GradientsDebugger()
            y = debugger.identify_gradient(c * v, name="y")
            return debugger.gradient_tensor("y") if gt.gradients(y * y, c) else c, y

        return gt.scan(body, x[0], x)

    last, ys = recurrent(np.array([1.0, 2.0]))
    assert last == 8.0 and np.array_equal(ys, [1.0, 4.0])


def test_traces_take_no_notice_of_debuggers() -> None:
    w = gt.Variable(PAIR)
    debugger = GradientsDebugger().watch_gradients_by_tensors(None, w)
    slope = gt.grad(lambda x: np.sum(x**2))
    assert np.array_equal(slope(PAIR), 2 * PAIR) and not debugger.gradient_tensors()
    (specialisation,) = slope.site.specialisations()
    assert len(specialisation.graph.inputs) == 1 and not specialisation.state.read
