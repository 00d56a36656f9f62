"""TensorFlow's interfaces, parameter by parameter."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import gradtape as gt
from gradtape import errors
from tests.support.ways import PAIR, expect

PARAMETERS = {
    gt.GradientTape: "persistent watch_accessed_variables",
    gt.GradientTape.watch: "self tensor",
    gt.GradientTape.gradient: "self target sources output_gradients unconnected_gradients",
    gt.GradientTape.jacobian: "self target sources unconnected_gradients parallel_iterations experimental_use_pfor",
    gt.GradientTape.batch_jacobian: "self target source unconnected_gradients parallel_iterations experimental_use_pfor",
    gt.gradients: "ys xs grad_ys name colocate_gradients_with_ops gate_gradients aggregation_method stop_gradients unconnected_gradients",
    gt.hessians: "ys xs name colocate_gradients_with_ops gate_gradients aggregation_method",
    gt.ForwardAccumulator: "primals tangents",
    gt.IndexedSlices: "values indices dense_shape",
    gt.debug.GradientsDebugger: "y_tensor",
    gt.debug.GradientsDebugger.watch_gradients_by_tensors: "self graph tensors",
    gt.debug.GradientsDebugger.watch_gradients_by_tensor_names: "self graph tensor_name_regex",
    gt.debug.GradientsDebugger.gradient_tensor: "self x_tensor",
    gt.debug.GradientsDebugger.register_gradient_tensor: "self x_tensor_name gradient_tensor",
    gt.debug.gradient_values_from_dump: "grad_debugger x_tensor dump",
}


@pytest.mark.parametrize("function", PARAMETERS, ids=lambda function: function.__qualname__)
def test_parameters(function: Any) -> None:
    """Parameters of gradtape's own follow TensorFlow's, and are given by keyword."""
    parameters = list(inspect.signature(function).parameters.values())
    expected = PARAMETERS[function].split()
    assert [each.name for each in parameters[: len(expected)]] == expected
    assert all(each.kind is each.KEYWORD_ONLY for each in parameters[len(expected) :])


def test_identify_gradient_takes_input_tensor() -> None:
    assert (
        next(iter(inspect.signature(gt.debug.GradientsDebugger().identify_gradient).parameters))
        == "input_tensor"
    )


# gradients()


def test_positions_of_gradients_are_tensorflows() -> None:
    def f(x: Any) -> Any:
        a = 2 * x
        return gt.gradients(a + x, [x, a], None, "g", False, False, None, [a], gt.UnconnectedGradients.ZERO)

    for part in gt.jit(f)(PAIR):
        np.testing.assert_array_equal(part, [1.0, 1.0])


def names_in(function: Any, *args: Any) -> list[Any]:
    found: list[Any] = []

    def run(*args: Any) -> Any:
        found.append(
            [
                None if g is None else (g.values if isinstance(g, gt.IndexedSlices) else g).name
                for g in function(*args)
            ]
        )
        return 0.0

    gt.jit(run)(*args)
    return found[0]


def test_gradients_are_named() -> None:
    def both(x: Any, w: Any) -> Any:
        gt.name(w, "w")
        y = np.sum(x * w)
        return [
            *gt.gradients(y, [x, w]),
            *gt.gradients(y, [x, w], name="slope"),
            *gt.gradients(y, x),
            *gt.hessians(y * y, w),
        ]

    assert names_in(both, PAIR, PAIR) == [
        "gradients/0",
        "gradients/w",
        "slope/0",
        "slope/w",
        "gradients_1/0",
        "hessians/w",
    ]


def test_naming_a_gradient_renames_nothing_of_the_users() -> None:
    def f(x: Any, w: Any) -> Any:
        hidden = gt.name(w * 1.0, "hidden")
        (g,) = gt.gradients(x * hidden, x)
        return [g, hidden, x]

    assert names_in(f, 2.0, 3.0) == ["gradients/0", "hidden", "x0"]


def test_sparse_and_missing_gradients_are_named_where_they_are() -> None:
    table = gt.Variable(np.ones((3, 2)), name="table")
    assert names_in(lambda x: gt.gradients(np.sum(table[np.array([0, 0])]) * x, [x, table]), 1.0) == [
        "gradients/0",
        "gradients/table",
    ]
    assert names_in(lambda x: gt.gradients(np.sum(x), [x * 2]), PAIR) == [None]


def test_the_debugger_finds_gradients_by_their_names() -> None:
    def f(x: Any) -> Any:
        (g,) = gt.gradients(x**3, x, name="first")
        return gt.gradients(g * g, x)[0]

    with gt.debug.GradientsDebugger() as debugger:
        debugger.watch_gradients_by_tensor_names("first/")
        assert gt.jit(f)(2.0) == 2 * 12.0 * 12.0
    assert float(debugger.gradient_tensor("first/0")) == 24.0


# Names in traces


def squares_have_names(way: Any) -> None:
    def f(x: Any) -> Any:
        assert (x * x).name == "multiply"
        return np.sum(x)

    way(f)(PAIR)


def test_every_array_in_a_trace_has_a_name() -> None:
    kept = gt.constant(PAIR)

    def f(x: Any, y: Any) -> Any:
        a = x * y
        b = x * a
        assert a.name == a.name
        return [x, y, a, b, np.sin(b), gt.name(a + 1, "mine"), kept]

    names = names_in(f, PAIR, PAIR)
    assert names == ["x0", "x1", "multiply", "multiply_1", "sin", "mine", "x2"]
    assert kept.name is None and gt.constant(1.0).name is None
    for way in (gt.grad, gt.value_and_grad, gt.vmap):
        squares_have_names(way)
    gt.jit(lambda x: [x.name == "x0"])(PAIR)


# The debugger


@pytest.mark.parametrize("pattern", ["hidden", "hidden:0", "^hid.*:0$", "hidden$", ".*den:0"])
def test_names_with_an_output_number(pattern: str) -> None:
    debugger = gt.debug.GradientsDebugger()
    debugger.watch_gradients_by_tensor_names(None, pattern)
    with gt.GradientTape() as tape:
        x = tape.watch(tensor=PAIR)
        y = np.sum(gt.name(x * x, "hidden") ** 2)
    tape.gradient(y, x)
    for name in ("hidden", "hidden:0"):
        np.testing.assert_array_equal(debugger.gradient_tensor(name), 2 * PAIR**2)
        (values,) = gt.debug.gradient_values_from_dump(debugger, name)
        assert type(values) is np.ndarray
    assert list(debugger.gradient_tensors()) == ["hidden"]
    expect(errors.UnknownGradientError, lambda: debugger.gradient_tensor("hidden:1"), "'hidden:1'")


def test_a_pattern_for_another_output_finds_nothing() -> None:
    debugger = gt.debug.GradientsDebugger().watch_gradients_by_tensor_names("hidden:1")
    with gt.GradientTape() as tape:
        x = tape.watch(2.0)
        y = gt.name(x * x, "hidden") * 1.0
    tape.gradient(y, x)
    assert debugger.gradient_tensors() == {}


@pytest.mark.parametrize(
    "arguments", [lambda h: (h,), lambda h: (None, h), lambda h: ("graph", h)], ids=["1", "None", "2"]
)
def test_the_graph_may_be_left_out(arguments: Any) -> None:
    debugger = gt.debug.GradientsDebugger()
    with gt.GradientTape() as tape:
        x = tape.watch(2.0)
        h = x * x
        y = h * h
    assert debugger.watch_gradients_by_tensors(*arguments(h)) is debugger
    tape.gradient(y, x)
    assert float(debugger.gradient_tensor(h)) == 8.0
    assert debugger.graph == (arguments(h)[0] if len(arguments(h)) == 2 else None)


def test_keywords_of_the_debugger() -> None:
    debugger = gt.debug.GradientsDebugger()
    with gt.GradientTape() as tape:
        x = tape.watch(2.0)
        h = debugger.identify_gradient(input_tensor=x * x, name="h:0")
        y = h * h
    debugger.watch_gradients_by_tensors(tensors=[h])
    debugger.watch_gradients_by_tensor_names(tensor_name_regex="h")
    tape.gradient(y, x)
    assert float(debugger.gradient_tensor("h")) == float(debugger.gradient_tensor("h:0")) == 8.0
    for watch in (debugger.watch_gradients_by_tensors, debugger.watch_gradients_by_tensor_names):
        expect(errors.DtypeError, watch, "nothing to watch")


def test_values_from_a_dump() -> None:
    debugger = gt.debug.GradientsDebugger().watch_gradients_by_tensor_names("state")
    x = gt.constant(2.0)

    def slope(trips: int) -> Any:
        with gt.GradientTape() as tape:
            tape.watch(x)
            y = gt.fori_loop(0, trips, lambda i, c: gt.name(c * x, "state"), 1.0)
        return tape.gradient(y, x)

    slope(3)
    dump = debugger.gradient_tensors()
    assert [float(v) for v in gt.debug.gradient_values_from_dump(debugger, "state:0")] == [4.0, 2.0, 1.0]
    slope(2)
    assert [float(v) for v in gt.debug.gradient_values_from_dump(debugger, "state")] == [2.0, 1.0]
    assert [float(v) for v in gt.debug.gradient_values_from_dump(debugger, "state", dump)] == [4.0, 2.0]
    expect(
        errors.UnknownGradientError, lambda: gt.debug.gradient_values_from_dump(debugger, "state", {}), "none"
    )
    expect(LookupError, lambda: gt.debug.gradient_values_from_dump(debugger, "nobody"), "nobody")
    expect(TypeError, lambda: gt.debug.gradient_values_from_dump(debugger, 3.0), "float")
    expect(
        TypeError, lambda: gt.debug.gradient_values_from_dump(debugger, "state", "file"), "dict of gradients"
    )
    expect(TypeError, lambda: gt.debug.gradient_values_from_dump(None, "state"), "GradientsDebugger")


# No rule


def test_what_has_no_rule_is_a_lookup_error() -> None:
    expect(LookupError, lambda: gt.grad(lambda x: np.sum(np.less.accumulate(x)))(PAIR), "less")
    expect(LookupError, lambda: gt.grad(lambda z: np.real(np.sign(z)))(1.0 + 2.0j), "np.sign")
