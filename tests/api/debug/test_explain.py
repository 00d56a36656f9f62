"""Why a gradient is None, zero, or not finite."""

from __future__ import annotations

import gc
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as gt
from gradtape.api.debug import explain_gradient
from gradtape.errors import DtypeError, GradtapeWarning

PAIR = np.array([0.5, 2.0])


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
    "float64": ("left the graph", None, lambda x, t: gt.constant(1.0) * np.float64(np.sum(x).item())),
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


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("look", ["target", "gradient", "what is between"])
def test_numbers_that_were_looked_at(persistent: bool, look: str) -> None:
    for _ in range(3):
        with gt.GradientTape(persistent) as tape:
            x = tape.watch(PAIR)
            h = x * 3.0
            y = np.sum(np.floor(h))
        gradient = tape.gradient(y, x)
        print({"target": y, "gradient": gradient, "what is between": h}[look])
        found = explain_gradient(tape, y, x)
        if persistent:
            assert found.reason == "zero derivative"
        else:
            assert found.reason == "record used" or look == "what is between"


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
    with pytest.warns(gt.errors.GradtapeWarning, match="did not record this line"):
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
        z = x * 2.0
        y = np.sum(z**2)
        z += 1.0
    assert tape.gradient(y, z) is None
    found = explain_gradient(tape, y, z)
    assert (found.reason, found.op) == ("another value", "add")


def test_a_watched_array_that_is_overwritten_before_it_is_used_is_explained() -> None:
    with gt.GradientTape(persistent=True) as tape:
        x, w = tape.watch((PAIR, PAIR))
        x[:] = 2.0 * w
        y = np.sum(x**2)
    assert tape.gradient(y, x) is None
    assert "overwritten" in str(explain_gradient(tape, y, x))
    assert np.array_equal(tape.gradient(y, w), 8.0 * PAIR)


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
    with pytest.raises(gt.errors.DtypeError, match=r"test_explain\.py"):
        explain_gradient(None, PAIR, PAIR)  # type: ignore[arg-type]


# Loops and branches


def explained(step: Any) -> gt.debug.Explanation:
    with gt.GradientTape(persistent=True) as tape:
        w = tape.watch(1.5)
        y, _ = gt.scan(lambda c, x: step(w, c, x), 1.0, np.array([1.0, 2.0]))
    assert tape.gradient(y, w) is None
    return gt.debug.explain_gradient(tape, y, w)


def test_a_path_that_ends_in_a_body() -> None:
    for step, kind, op in (
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
        found = explained(step)
        assert (found.reason, found.op) == (kind, op)
        assert __file__ in str(found)


def test_a_path_that_ends_in_a_condition() -> None:
    with gt.GradientTape(persistent=True) as tape:
        w = tape.watch(1.5)
        y = gt.while_loop(lambda x: x < w * 10, lambda x: x + 1.0, 0.0)
    assert tape.gradient(y, w) is None
    assert "no derivative leads through while_loop" in str(gt.debug.explain_gradient(tape, y, w))


# Zeros in bodies

ZEROS: dict[str, tuple[str, str, str, Callable[[Any], Any]]] = {
    "an iteration": (
        "zero derivative",
        "floor",
        "in iteration 0 of scan",
        lambda x: gt.scan(lambda c, v: (c + np.floor(v), None), 0.0, x)[0],
    ),
    "another operand in an iteration": (
        "zero derivative",
        "maximum",
        "another operand of maximum is the result everywhere, in iteration 0 of scan",
        lambda x: gt.scan(lambda c, v: (c + np.maximum(v, 9.0), c), 0.0, x)[1],
    ),
    "a cast in a carry": (
        "integer",
        "convert",
        "in iteration 0 of while_loop",
        lambda x: gt.while_loop(lambda c: c < 30, lambda c: np.round(c * 2).astype(int) * 1.0, x[1]),
    ),
    "a loop in a loop": (
        "zero derivative",
        "sign",
        "in iteration 0 of scan, in iteration 0 of scan",
        lambda x: gt.scan(
            lambda c, v: (gt.scan(lambda d, w: (d + np.sign(w * v), None), c, x)[0], None), 0.0, x
        )[0],
    ),
    "the branch that is taken": (
        "zero derivative",
        "floor",
        "floor is piecewise constant",
        lambda x: gt.cond(x[0] > 0, lambda x: np.floor(x[0]), lambda x: x[0], x),
    ),
    "a cast in it": (
        "integer",
        "convert",
        "converted to int64",
        lambda x: gt.switch(1, [lambda x: x[0], lambda x: x[0].astype(int) * 1.0], x),
    ),
    "stop_gradient in it": (
        "stop_gradient",
        "stop_gradient",
        "cuts the gradient off",
        lambda x: gt.cond(x[0] > 0, lambda x: gt.stop_gradient(x[0]), lambda x: x[0], x),
    ),
    "nothing in it": (
        "zero derivative",
        "switch",
        "the branch that is taken does not use it",
        lambda x: gt.cond(x[0] > 0, lambda x: 1.0, lambda x: x[0], x),
    ),
    "no iteration": (
        "zero derivative",
        "while_loop",
        "each iteration of while_loop",
        lambda x: gt.while_loop(lambda c: c < 1, lambda c: c + x[0], 1.0),
    ),
    "what is computed again": (
        "zero derivative",
        "floor",
        "floor is piecewise constant",
        lambda x: np.sum(gt.checkpoint(lambda x: np.floor(x) * 2.0)(x)),
    ),
    "a cast that is computed again": (
        "integer",
        "convert",
        "converted to int64",
        lambda x: np.sum(gt.checkpoint(lambda x: x.astype(int) * 2.0)(x)),
    ),
    "a rule": (
        "zero derivative",
        "squares",
        "the derivative rule given for squares is 0",
        lambda x: np.sum(gt.custom_gradient(squares)(x)),
    ),
    "a rule without anything": (
        "not differentiable",
        "cubes",
        "the derivative rule given for cubes returns nothing",
        lambda x: np.sum(gt.custom_gradient(cubes)(x)),
    ),
}


def squares(x: Any) -> Any:
    return x**2, lambda upstream: upstream * 0.0


def cubes(x: Any) -> Any:
    return x**3, lambda upstream: None


@pytest.mark.parametrize("wrap", [lambda f: f, gt.jit], ids=["plain", "jitted"])
@pytest.mark.parametrize("case", ZEROS)
def test_where_it_became_zero_inside(case: str, wrap: Any) -> None:
    reason, op, part, function = ZEROS[case]
    with gt.GradientTape(persistent=True) as tape:
        x = tape.watch(PAIR)
        y = np.sum(wrap(function)(x))
    found = explain_gradient(tape, y, x)
    assert (found.reason, found.op) == (reason, op)
    assert part in found.text and __file__ in str(found)
    gradient = tape.gradient(y, x)
    assert gradient is None or not np.any(gradient.numpy())


def test_a_gradient_without_elements_is_connected() -> None:
    with gt.GradientTape() as tape:
        x = tape.watch(np.zeros((0, 2)))
        y = np.sum(x * 2.0)
    found = explain_gradient(tape, y, x)
    assert found.reason == "connected" and "no elements" in found.text


# NaN and infinity


def nan_rule(x: Any) -> Any:
    return x**2, lambda upstream: upstream * np.nan


@pytest.mark.parametrize(
    ("function", "op", "parts"),
    [
        (lambda x: np.sum(np.sqrt(x)), "sqrt", ["divide gave inf at [1]", "divide(0.5, 0) is inf"]),
        (lambda x: np.sum(np.sqrt(x) * np.zeros(2)), "sqrt", ["divide gave inf at [1]"]),
        (gt.jit(lambda x: np.sum(np.sqrt(x))), "sqrt", ["divide gave inf at [1]"]),
        (
            lambda x: gt.scan(lambda c, v: (c + np.sqrt(v), None), 0.0, x)[0],
            "sqrt",
            ["divide gave inf", "in iteration 1 of scan"],
        ),
        (lambda x: np.sum(gt.custom_gradient(nan_rule)(x)), "multiply", ["multiply(1, nan) is nan"]),
    ],
    ids=["an op", "a product", "jitted", "a loop", "a rule"],
)
@pytest.mark.parametrize("seen", range(3))
def test_where_a_gradient_became_infinite(function: Any, op: str, parts: list[str], seen: int) -> None:
    with gt.GradientTape(persistent=True) as tape:
        x = tape.watch(np.array([1.0, 0.0]))
        y = function(x)
    if seen:  # numbers that were computed by machine code, and numbers that were not
        assert not np.isfinite(tape.gradient(y, x).numpy()).all()
    found = explain_gradient(tape, y, x)
    assert (found.reason, found.op) == ("not finite", op)
    assert all(part in found.text for part in parts)
    assert __file__ in str(found) and found.remedy


def test_a_bad_number_that_came_in() -> None:
    with gt.GradientTape() as tape:
        x = tape.watch(np.array([np.nan, 1.0]))
        y = np.sum(x**2)
    found = explain_gradient(tape, y, x)
    assert found.reason == "not finite" and "came in with an array of shape (2,)" in found.text


# Variables


def explained_variable(
    function: Callable[[Any], Any], trainable: bool = True, accessed: bool = True
) -> gt.debug.Explanation:
    variable = gt.Variable(PAIR, trainable=trainable, name="w")
    with gt.GradientTape(persistent=True, watch_accessed_variables=accessed) as tape:
        y = function(variable)
    found = explain_gradient(tape, y, variable)
    gradient = tape.gradient(y, variable)
    assert (found.reason in ("connected", "zero derivative")) == (gradient is not None)
    return found


def test_variables_as_sources() -> None:
    assert explained_variable(lambda w: np.sum(w**2)).reason == "connected"
    assert explained_variable(lambda w: np.sum(w.astype(int) * 1.0)).op == "convert"
    assert explained_variable(gt.jit(lambda w: np.sum(np.floor(w)))).op == "floor"
    assert (
        explained_variable(lambda w: gt.scan(lambda c, x: (c + x * np.argmax(w), None), 0.0, PAIR)[0]).op
        == "argmax"
    )
    unread = explained_variable(lambda w: gt.constant(3.0) * 2)
    assert unread.reason == "not used" and "'w' was not read while the tape recorded" in unread.text
    frozen = explained_variable(lambda w: np.sum(w), trainable=False)
    assert frozen.reason == "never watched" and "it is not trainable" in frozen.text
    asked = explained_variable(lambda w: np.sum(w), accessed=False)
    assert asked.reason == "never watched" and "watch_accessed_variables=False" in asked.text


def test_a_variable_that_was_assigned_to_since() -> None:
    variable = gt.Variable(PAIR)
    with gt.GradientTape(persistent=True) as tape:
        y = np.sum(variable**2)
        variable.assign(2 * PAIR)
    assert explain_gradient(tape, y, variable).reason == "connected"
    assert np.array_equal(tape.gradient(y, variable).numpy(), 2 * PAIR)


def test_a_variable_as_target() -> None:
    variable = gt.Variable(PAIR)
    with gt.GradientTape(persistent=True) as tape:
        y = variable * 2.0
    assert explain_gradient(tape, variable, variable).reason == "connected"
    assert explain_gradient(tape, variable, y).reason == "not used"


@pytest.mark.parametrize("computed", [False, True])
def test_an_assignment_is_no_step(computed: bool) -> None:
    variable = gt.Variable(PAIR, name="w")
    with gt.GradientTape(persistent=True) as tape:
        x = tape.watch(PAIR)
        z = x * 2.0
        if computed:
            bool(np.all(z > 0))
        variable.assign(z)
        y = np.sum(variable**2)
    found = explain_gradient(tape, y, x)
    assert found.reason in ("left the graph", "stop_gradient") and "assignment" in found.text
    assert tape.gradient(y, x) is None


@pytest.mark.parametrize("known", [False, True])
def test_a_derivative_that_nobody_recorded(known: bool) -> None:
    if known:  # then one call has replaced the record of the derivative
        test_a_derivative_that_nobody_recorded(False)
    with gt.GradientTape() as outer:
        x = outer.watch(2.0)
        with gt.GradientTape() as inner:
            inner.watch(x)
            y = x**3
    slope = inner.gradient(y, x)
    found = explain_gradient(outer, slope, x)
    assert found.reason == "recording stopped" and "when the gradient was taken" in found.text
    assert "derivative of power" in found.text


def test_the_line_is_that_of_the_record_and_not_of_an_earlier_one_with_the_same_structure() -> None:
    def one(x):
        y = np.cos(x)
        return np.sum(y * 0.0)

    def other(x):
        y = np.cos(x)
        return np.sum(y * 0.0)

    for function in (one, one, one, other, other, one):
        with gt.GradientTape() as tape:
            x = tape.watch(np.array([0.3, 0.8]))
            y = function(x)
        tape.gradient(y, x)
        report = gt.debug.explain_gradient(tape, y, x)
        line = function.__code__.co_firstlineno + 2
        assert f"test_explain.py:{line} in {function.__name__}" in str(report)
