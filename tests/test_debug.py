"""Looking at gradients: names, debuggers, explanations, checks of numbers, statistics."""

from __future__ import annotations

import gc
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import matplotlib
import numpy as np
import pytest

import gradtape as gt
from gradtape.api.debug import GradientsDebugger, explain_gradient
from gradtape.errors import (
    ArgumentError,
    ConcretizationError,
    DtypeError,
    GradtapeWarning,
    UnknownGradientError,
)
from gradtape.trace.instruments import CHECKS, MADE, RECORDING
from gradtape.transforms.observers import OBSERVERS

matplotlib.use("Agg")
PAIR = np.array([0.5, 2.0])


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


def test_identifying_inside_a_compiled_function() -> None:
    debugger = GradientsDebugger()

    def loss(x: Any) -> Any:
        return np.sum(debugger.identify_gradient(np.tanh(x), name="t") ** 2)

    slope = gt.grad(loss)
    with pytest.raises(ConcretizationError, match="with debugger"):
        slope(PAIR)
    with debugger:
        slope(PAIR)
    assert np.allclose(debugger.gradient_tensor("t"), 2 * np.tanh(PAIR))


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


# Why is it None?

Recording = Callable[[Any, Any], Any]
CUTS: dict[str, tuple[str, str | None, Recording]] = {
    "a cast": ("integer", "convert", lambda x, t: np.sum(x.astype(int) * 2.0)),
    "stop_gradient": ("stop_gradient", "stop_gradient", lambda x, t: np.sum(gt.stop_gradient(x) ** 2)),
    "argmax": ("not differentiable", "argmax", lambda x, t: np.argmax(x) * 2.0),
    "a comparison": ("not differentiable", "greater", lambda x, t: np.sum((x > 1) * 2.0)),
    "numpy()": ("left the graph", None, lambda x, t: gt.constant(1.0) * x.numpy()),
    "float()": ("left the graph", None, lambda x, t: gt.constant(1.0) * float(np.sum(x))),
    "item()": ("left the graph", None, lambda x, t: gt.constant(1.0) * x[0].item()),
    "int()": ("left the graph", None, lambda x, t: gt.constant(1.0) * int(x[1])),
    "asarray": ("left the graph", None, lambda x, t: gt.constant(1.0) * np.sum(np.asarray(x))),
    "a float as target": ("left the graph", None, lambda x, t: float(np.sum(x))),
    "floor": ("zero derivative", "floor", lambda x, t: np.sum(np.floor(x))),
    "the other branch": ("zero derivative", "where", lambda x, t: np.sum(np.where(x > 0, 1.0, x))),
    "the other operand": ("zero derivative", "maximum", lambda x, t: np.sum(np.maximum(x, 9.0))),
    "a factor of zero": ("zero derivative", "multiply", lambda x, t: np.sum(x * 0.0)),
    "cancelling": ("zero derivative", "subtract", lambda x, t: np.sum(x - x)),
    "not used": ("not used", None, lambda x, t: np.sum(t.watch(PAIR))),
    "a gradient": ("connected", None, lambda x, t: np.sum(x**2)),
}


@pytest.mark.filterwarnings(f"ignore::{GradtapeWarning.__module__}.{GradtapeWarning.__name__}")
@pytest.mark.parametrize("asked", [False, True], ids=["before the gradient", "after it"])
@pytest.mark.parametrize("case", CUTS)
def test_the_reason(case: str, asked: bool) -> None:
    reason, op, record = CUTS[case]
    for _ in range(3):  # a structure seen before is differentiated by another way
        with gt.GradientTape() as tape:
            x = tape.watch(PAIR)
            y = record(x, tape)
        gradient = None
        if asked and isinstance(y, gt.Array):
            gradient = tape.gradient(y, x)
        found = explain_gradient(tape, y, x)
        assert (found.reason, found.op) == (reason, op), found
        assert found.text and (found.remedy or reason == "connected")
        if found.site is not None and case != "not used":
            assert found.site.filename == __file__
        if gradient is not None:
            assert np.any(gradient.numpy()) == (reason == "connected")
            assert reason in ("connected", "zero derivative")
        assert reason in repr(found) and reason in found._repr_html_()


def test_the_line_is_shown() -> None:
    with gt.GradientTape() as tape:
        x = tape.watch(PAIR)
        y = np.sum(np.rint(x))  # this line
    assert "# this line" in repr(explain_gradient(tape, y, x))


@pytest.mark.parametrize("persistent", [False, True])
def test_values_in_between(persistent: bool) -> None:
    for _ in range(3):
        with gt.GradientTape(persistent) as tape:
            x = tape.watch(PAIR)
            h = x * 3.0
            y = np.sum(np.floor(h))
        before = explain_gradient(tape, y, h)
        assert not np.any(tape.gradient(y, h).numpy())
        after = explain_gradient(tape, y, h)
    assert (before.reason, before.op) == ("zero derivative", "floor")
    assert after.reason == (before.reason if persistent else "record used")


def test_never_entered() -> None:
    x = gt.constant(PAIR)
    assert explain_gradient(gt.GradientTape(), x, x).reason == "never entered"


def test_never_watched() -> None:
    with gt.GradientTape() as tape:
        tape.watch(np.ones(2))
        x = gt.constant(PAIR)
        y = np.sum(x * 2.0)
    found = explain_gradient(tape, y, x)
    assert (found.reason, found.op) == ("never watched", "multiply")
    assert explain_gradient(tape, y, PAIR).reason == "never watched"
    assert explain_gradient(tape, np.sum(gt.constant(PAIR)), x).reason == "never watched"


def test_watched_after_use() -> None:
    x = gt.constant(PAIR)
    with gt.GradientTape() as tape:
        y = np.sum(x * 2.0)
        tape.watch(x)
    assert tape.gradient(y, x) is None
    assert explain_gradient(tape, y, x).reason == "watched after use"


def test_watched_after_use_elsewhere_and_again() -> None:
    def used(x: Any) -> Any:
        return np.sum(x * 2.0)

    x, y = gt.constant(PAIR), gt.constant(0.0)
    with gt.GradientTape() as tape:
        for step in range(2):
            if step:
                tape.watch(x)
            else:
                y = used(x)
    assert explain_gradient(tape, y, x).reason == "watched after use"
    assert explain_gradient(tape, used(x), x).reason == "recording stopped"
    with tape:
        assert explain_gradient(tape, used(x), x).reason == "connected"


def test_recording_stopped() -> None:
    with gt.GradientTape() as tape:
        x = tape.watch(PAIR)
        y = x * 2.0
    z = np.sum(y)
    found = explain_gradient(tape, z, x)
    assert (found.reason, found.op) == ("recording stopped", "reduce_sum")


def test_in_place_code_makes_another_value() -> None:
    with gt.GradientTape() as tape:
        x = tape.watch(PAIR)
        y = np.sum(x**2)
        x += 1.0
    assert tape.gradient(y, x) is None
    found = explain_gradient(tape, y, x)
    assert (found.reason, found.op) == ("another value", "add")


def test_integers_are_no_sources() -> None:
    with warnings.catch_warnings(), gt.GradientTape() as tape:
        warnings.simplefilter("ignore")
        x = tape.watch(np.arange(3))
        y = np.sum(x * 2.0)
    assert explain_gradient(tape, y, x).reason == "integer"


def test_what_an_explanation_refuses() -> None:
    x = gt.constant(PAIR)
    for tape, target, source in ((None, x, x), (gt.GradientTape(), None, x), (gt.GradientTape(), x, "x")):
        with pytest.raises(DtypeError):
            explain_gradient(tape, target, source)  # type: ignore[arg-type]


def test_a_tape_log_keeps_nothing_alive() -> None:
    with gt.GradientTape() as tape:
        x = tape.watch(PAIR)
        y = np.sum(x**2)
        (lambda kept: float(kept))(y)
    value = weakref.ref(y.value)
    del y
    gc.collect()
    assert value() is None and tape.mark is not None


def test_wrong_arguments_are_blamed_on_the_users_line() -> None:
    with pytest.raises(gt.errors.DtypeError, match=r"test_debug\.py"):
        explain_gradient(None, PAIR, PAIR)  # type: ignore[arg-type]


# Loops and branches


def explained(turn: Any) -> gt.debug.Explanation:
    with gt.GradientTape(persistent=True) as tape:
        w = tape.watch(1.5)
        y, _ = gt.scan(lambda c, x: turn(w, c, x), 1.0, np.array([1.0, 2.0]))
    assert tape.gradient(y, w) is None
    return gt.debug.explain_gradient(tape, y, w)


def test_a_path_that_ends_in_a_body() -> None:
    for turn, kind, op in (
        (lambda w, c, x: ((c * w).astype(int) * 1.0, None), "integer", "convert"),
        (lambda w, c, x: (c + x * gt.stop_gradient(w), None), "stop_gradient", "stop_gradient"),
        (lambda w, c, x: (np.where(w > c, c + x, c), None), "not differentiable", "greater"),
        (
            lambda w, c, x: (gt.cond(x > 1, lambda: (w * 2).astype(int) * 1.0, lambda: c), None),
            "integer",
            "convert",
        ),
        (lambda w, c, x: (c + x, w * c), "not differentiable", "scan"),
    ):
        found = explained(turn)
        assert (found.reason, found.op) == (kind, op)
        assert __file__ in str(found)


def test_a_path_that_ends_in_a_condition() -> None:
    with gt.GradientTape(persistent=True) as tape:
        w = tape.watch(1.5)
        y = gt.while_loop(lambda x: x < w * 10, lambda x: x + 1.0, 0.0)
    assert tape.gradient(y, w) is None
    assert "no derivative leads through while_loop" in str(gt.debug.explain_gradient(tape, y, w))
