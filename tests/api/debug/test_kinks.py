"""Kinks and jumps that are planted are found with their lines, and none is invented."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as gt
from gradtape.errors import ArgumentError, GradtapeWarning
from tests.support.recording import Runs

KINK, JUMP = "kink", "jump"
EDGES, LEVELS = np.array([0.0, 1.0, 2.0]), np.array([1.0, 5.0, 2.0, 7.0])


def loop(x: Any) -> Any:
    y = 0.0
    for i in range(5):
        y = y + abs(x - i)
    return y


def branch(x: Any) -> Any:
    if x > 1:
        return x**2
    return 2.1 * x - 1.1


def broken(x: Any) -> Any:
    if x > 1:
        return x**2
    return 3 * x


def halved(x: Any) -> Any:
    while x > 1.0:
        x = x * 0.5
    return x


def assigned(x: Any) -> Any:
    y = np.zeros(3)
    for i in range(3):
        if x[i] > 0:
            y[i] = 2 * x[i]
    return np.sum(y)


def best_of(x: Any) -> Any:
    best = x[0]
    for i in range(1, 3):
        if x[i] > best:
            best = x[i]
    return best


def call_payoff(x: Any) -> Any:
    return np.mean(np.maximum(x * np.array([0.9, 1.0, 1.2]) - 100.0, 0.0))


PLANTED: list[tuple[str, Callable[..., Any], Any, str, str]] = [
    # name, function, point, kind, op
    ("abs", lambda x: np.sum(np.abs(x)), np.array([0.0, 1.0]), KINK, "absolute"),
    ("near", lambda x: np.sum(np.abs(3 * x - 1)), np.array([1 / 3 + 1e-9, 1.0]), KINK, "absolute"),
    ("fabs", lambda x: np.fabs(x), 0.0, KINK, "fabs"),
    ("maximum", lambda x: np.maximum(x, 2.0), 2.0, KINK, "maximum"),
    ("minimum", lambda x: np.minimum(x[0], x[1]), np.array([3.0, 3.0]), KINK, "minimum"),
    ("fmax", lambda x: np.fmax(x, 0.5 * x), 0.0, KINK, "fmax"),
    ("payoff", call_payoff, 100.0, KINK, "maximum"),
    ("max", np.max, np.array([1.0, 1.0, 0.0]), KINK, "reduce_max"),
    ("min axis", lambda x: np.sum(np.min(x, axis=1)), np.array([[1.0, 1.0], [2.0, 3.0]]), KINK, "reduce_min"),
    ("ptp", np.ptp, np.array([1.0, 1.0, 2.0]), KINK, "reduce_min"),
    ("python max", lambda x: max(x, 1.0), 1.0, KINK, "less"),
    ("cummax", lambda x: np.sum(np.maximum.accumulate(x)), np.array([1.0, 1.0]), KINK, "cummax"),
    ("loop", loop, 2.0, KINK, "absolute"),
    ("branch", branch, 1.0, KINK, "greater"),
    ("assigned", assigned, np.array([1.0, 0.0, -1.0]), KINK, "greater"),
    ("best", best_of, np.array([1.0, 3.0, 3.0]), KINK, "greater"),
    ("fori", lambda x: gt.fori_loop(0, 5, lambda i, c: c + np.abs(x - i), 0.0), 2.0, KINK, "absolute"),
    ("scan", lambda x: gt.scan(lambda c, a: (np.maximum(c, a), c), x[0], x)[0], np.array([1.0, 2.0, 2.0]), KINK, "maximum"),
    ("while", lambda x: gt.while_loop(lambda i, c: i < 3, lambda i, c: (i + 1, np.maximum(c, 1.0) * 1.5), (0, x))[1], 1.0, KINK, "maximum"),
    ("cond", lambda x: gt.cond(x > 0, lambda x: 2 * x, lambda x: x, x), 0.0, KINK, "greater"),
    ("jitted", lambda x: gt.jit(np.abs)(x), 0.0, KINK, "absolute"),
    ("norm", np.linalg.norm, np.zeros(3), KINK, "root"),
    ("std", np.std, np.ones(3), KINK, "root"),
    ("root of a square", lambda x: np.sqrt(x**2), 0.0, KINK, "sqrt"),
    ("hypot", lambda x: np.hypot(x, 0.0), 0.0, KINK, "hypot"),
    ("sort", lambda x: np.sort(x)[0], np.array([1.0, 2.0, 1.0]), KINK, "argsort"),
    ("median", np.median, np.array([1.0, 2.0, 2.0]), KINK, "argsort"),
    ("clip", lambda x: np.sum(np.clip(x, 0, 1)), np.array([0.5, 1.0]), KINK, "clip"),
    ("interp", lambda x: np.interp(x, EDGES, LEVELS[:3]), 1.0, KINK, "searchsorted"),
    ("where", lambda x: np.where(x > 1, 2 * x, x + 1), 1.0, KINK, "greater"),
    ("select", lambda x: np.select([x < 1, x < 2], [x, x**2], x**3), 1.0, KINK, "less"),
    ("piecewise", lambda x: np.piecewise(x, [x < 0, x >= 0], [lambda x: -x, lambda x: x])[0], np.zeros(2), KINK, "greater_equal"),
    ("mask", lambda x: np.sum(x[x > 0]), np.array([0.0, 1.0]), KINK, "greater"),
    ("and", lambda x: np.where((x > 0) & (x < 5), x, 0.0), 0.0, KINK, "greater"),
    ("sign", lambda x: np.sign(x) * x, 0.0, KINK, "sign"),
    ("copysign", lambda x: np.copysign(2.0, x) * x, 0.0, KINK, "copysign"),
    ("heaviside", lambda x: np.heaviside(x, 0.5), 0.0, JUMP, "heaviside"),
    ("broken branch", broken, 1.0, JUMP, "greater"),
    ("floor", lambda x: x * np.floor(x), 3.0, JUMP, "floor"),
    ("ceil", lambda x: np.ceil(x) + x, 2.0, JUMP, "ceil"),
    ("round", lambda x: np.round(x, 1), 0.25, JUMP, "rint"),
    ("remainder", lambda x: x % 2, 4.0, JUMP, "remainder"),
    ("floor_divide", lambda x: x // 2, 4.0, JUMP, "floor_divide"),
    ("int", lambda x: x * int(x), 2.0, JUMP, "trunc"),
    ("trunc", lambda x: np.trunc(x), 1.0, JUMP, "trunc"),
    ("argmax", lambda x: np.array([1.0, 5.0, 9.0])[np.argmax(x)], np.array([1.0, 2.0, 2.0]), JUMP, "argmax"),
    ("search", lambda x: LEVELS[np.searchsorted(EDGES, x)] * x, 1.0, JUMP, "searchsorted"),
    ("digitize", lambda x: LEVELS[np.digitize(x, EDGES)], 1.0, JUMP, "searchsorted"),
    ("while trips", lambda x: gt.while_loop(lambda c: c > 1.0, lambda c: c * 0.5, x), 4.0, JUMP, "greater"),
    ("python while", halved, 4.0, JUMP, "greater"),
]  # fmt: skip

SMOOTH: list[tuple[str, Callable[..., Any], Any]] = [
    ("far", lambda x: np.sum(np.abs(x)), np.array([0.1, -1.0])),
    ("square of abs", lambda x: np.sum(np.abs(x) ** 2), np.array([0.0, 1.0])),
    ("square of norm", lambda x: np.linalg.norm(x) ** 2, np.zeros(3)),
    ("square of relu", lambda x: np.maximum(x, 0) ** 2, 0.0),
    ("huber", lambda r: np.where(np.abs(r) < 1, 0.5 * r**2, np.abs(r) - 0.5), 1.0),
    ("smooth branches", lambda x: np.where(x > 0, x**2, 0 * x), 0.0),
    ("sum of sorted", lambda x: np.sum(np.sort(x)), np.array([1.0, 2.0, 1.0])),
    ("unused comparison", lambda x: (x, x > 0)[0], 0.0),
    ("constant comparison", lambda x: np.where(EDGES > 1, x, 2 * x).sum(), 1.0),
    ("max times nothing", lambda x: x + 0.0 * np.abs(x), 0.0),
    ("cos", lambda x: np.cos(x), 0.0),
]


def line_of(function: Callable[..., Any]) -> set[int]:
    """Return the lines of a function's text."""
    if not inspect.isfunction(function) or function.__code__.co_filename != __file__:
        return set()
    lines, first = inspect.getsourcelines(function)
    return set(range(first, first + len(lines)))


@pytest.mark.parametrize(
    "function, point, kind, op", [case[1:] for case in PLANTED], ids=[case[0] for case in PLANTED]
)
def test_what_is_planted_is_found(function: Callable[..., Any], point: Any, kind: str, op: str) -> None:
    found = gt.debug.kinks(function, point)
    assert [kink.kind for kink in found] == [kind]
    assert found[0].op == op
    assert found[0].distance < 1e-6
    lines = line_of(function)
    if lines:
        assert found[0].site.line in lines
    assert kind in repr(found)


@pytest.mark.parametrize("function, point", [case[1:] for case in SMOOTH], ids=[case[0] for case in SMOOTH])
def test_nothing_is_invented(function: Callable[..., Any], point: Any) -> None:
    assert gt.debug.kinks(function, point) == ()


def test_both_sides_and_what_is_returned() -> None:
    (kink,) = gt.debug.kinks(
        lambda x, k: np.sum(k * np.abs(x["a"])) + x["b"], {"a": np.zeros(1), "b": 1.0}, 3.0
    )
    assert kink.slopes == (-3.0, 3.0)
    assert kink.returned == 0.0
    before, behind = (gradient[0] for gradient in kink.gradients)
    assert (before["a"], behind["a"], before["b"]) == (-3.0, 3.0, 1.0)
    assert kink.is_stationary is False  # x["b"] has a slope on both sides


def test_a_minimum_at_a_kink_is_stationary() -> None:
    (kink,) = gt.debug.kinks(lambda x: np.abs(x - 1) + (x - 1) ** 2, 1.0)
    assert kink.is_stationary
    assert "zero is between the gradients" in repr(kink)


def test_distances_are_those_of_the_arguments() -> None:
    (kink,) = gt.debug.kinks(lambda x: np.abs(100 * x[0] - 1) + x[1], np.array([0.01 + 1e-9, 7.0]))
    assert kink.margin == pytest.approx(1e-7, rel=1e-3)
    assert kink.distance == pytest.approx(1e-9, rel=1e-3)
    np.testing.assert_allclose(kink.direction, [1.0, 0.0])
    assert gt.debug.kinks(np.abs, 0.01) == ()
    assert len(gt.debug.kinks(np.abs, 0.01, near=0.1)) == 1


def test_elements_of_one_line_are_counted_and_iterations_named() -> None:
    (kink,) = gt.debug.kinks(lambda x: np.sum(np.abs(x)), np.array([0.0, 1e-9, 1.0, -1e-8]))
    assert kink.count == 3
    assert "and 2 more" in repr(kink)
    (kink,) = gt.debug.kinks(lambda x: gt.fori_loop(0, 5, lambda i, c: c + np.abs(x - i), 0.0), 3.0)
    assert kink.iterations[0][1] == 3
    assert "in iteration 3" in repr(kink)


def test_of_switches_in_one_place_those_are_named_that_make_the_kink() -> None:
    def penalties(x: Any) -> Any:
        smooth = np.sum(np.abs(x) ** 2) + np.where(x[0] > 0, x[0] ** 2, 0.0)
        return smooth + np.abs(x[0])

    (kink,) = gt.debug.kinks(penalties, np.array([0.0, 1.0]))
    assert kink.site.line == penalties.__code__.co_firstlineno + 2
    both = gt.debug.kinks(lambda x: (np.abs(x - 1) ** 2, np.abs(x - 1)), 1.0)  # one line
    assert [kink.op for kink in both] == ["absolute"]

    def bend_and_jump(x: Any) -> Any:
        bend = np.maximum(x, 1.0)
        return bend + np.floor(x)

    found = gt.debug.kinks(bend_and_jump, 1.0)
    assert sorted((kink.op, kink.kind) for kink in found) == [("floor", JUMP), ("maximum", KINK)]
    # Two kinks that cancel are none.
    assert gt.debug.kinks(lambda x: np.maximum(x, 1.0) + np.minimum(x, 1.0), 1.0) == ()


def test_a_guard_is_named_only_where_nothing_else_makes_the_kink() -> None:
    def guarded(x: Any) -> Any:
        safe = np.where(x > 0, x, 1.0)
        return np.where(x > 0, x * np.sqrt(safe) + x, 0.0)

    (kink,) = gt.debug.kinks(guarded, 0.0)
    assert kink.site.line == guarded.__code__.co_firstlineno + 2


def test_slopes_of_a_side_do_not_mix_with_infinite_ones_elsewhere() -> None:
    found = gt.debug.kinks(lambda x: np.abs(x[0]) + np.sqrt(x[1]), np.array([0.0, 0.0]))
    (kink,) = [kink for kink in found if kink.op == "absolute"]
    assert kink.slopes == (-1.0, 1.0)
    assert kink.is_stationary is False


def test_jumps_of_several_results() -> None:
    (kink,) = gt.debug.kinks(lambda x: {"a": np.floor(x), "b": 2 * x}, np.array([1.0, 2.5]))
    np.testing.assert_allclose(kink.jumps["a"], [1.0, 0.0], atol=1e-8)
    np.testing.assert_allclose(kink.jumps["b"], [0.0, 0.0], atol=1e-8)
    assert kink.gradients is None and kink.is_stationary is None


def test_integers_are_no_arguments_of_derivatives() -> None:
    assert len(gt.debug.kinks(lambda x, n: np.abs(x - n), 2.0, 2)) == 1
    with pytest.raises(ArgumentError, match=r"no argument is a float(.|\n)*got an int"):
        gt.debug.kinks(lambda n: n, 2)


@pytest.mark.parametrize("near", ["a", -1.0, np.nan, None])
def test_near_is_a_distance(near: Any) -> None:
    with pytest.raises(ArgumentError, match="near is"):
        gt.debug.kinks(np.abs, 0.0, near=near)


def test_nothing_stays_behind() -> None:
    gt.debug.kinks(np.abs, 0.0)
    calls = Runs()

    @gt.jit
    def f(x: Any) -> Any:
        calls.append(1)
        return x * x

    assert [float(f(2.0)) for _ in range(4)] == [4.0] * 4
    assert len(calls) == 1
    with pytest.raises(ZeroDivisionError):
        gt.debug.kinks(lambda x: 1 / 0, 0.0)
    assert float(f(3.0)) == 9.0


def test_minimize_says_that_it_stopped_at_a_kink() -> None:
    rng = np.random.default_rng(0)
    design = rng.normal(size=(30, 4))
    y = design @ np.arange(1.0, 5.0) + rng.standard_t(2, size=30)
    with pytest.warns(GradtapeWarning, match=r"minimize stopped near a kink of absolute"):
        gt.scipy.minimize(lambda x: np.sum(np.abs(design @ x["w"] - y)), {"w": np.zeros(4)})


def test_two_kinks_close_to_each_other_are_no_jump():
    def three_planes(x):
        return np.max(np.stack([x @ x, (x - 2.0) @ (x - 2.0), x[0] + x[1] ** 2]))

    found = gt.debug.kinks(three_planes, np.array([1.0, 1.0 + 1.5e-7]))
    assert [kink.kind for kink in found] == ["kink"]


NONSMOOTH = {
    "absolute": (
        lambda x: np.sum(np.abs(x - np.array([0.3, -0.2, 1.0]))) + 0.1 * x[0] * x[1],
        [2.0, 1.0, -1.0],
    ),
    "reduce_max": (lambda x: np.max(np.stack([x @ x, (x - 2.0) @ (x - 2.0), x[0] + x[1] ** 2])), [3.0, 2.0]),
    "maximum": (lambda x: 0.5 * x @ x + 5.0 * np.sum(np.maximum(0.0, 1.0 - HINGES @ x)), [1.0, -1.0]),
    "absolute in a valley": (lambda x: 10.0 * np.abs(x[1] - x[0] ** 2) + np.abs(1.0 - x[0]), [-1.2, 1.0]),
    "root": (lambda x: np.linalg.norm(x - 1.0) + 2.0 * np.linalg.norm(x + 1.0), [2.0, 1.0]),
}
HINGES = np.array([[1.0, 2.0], [2.0, 1.0], [1.0, -1.0]])

SMOOTH = {
    "valley": (lambda x: 100.0 * (x[1] - x[0] ** 2) ** 2 + (1.0 - x[0]) ** 2, [-1.2, 1.0]),
    "scales": (lambda x: x @ (np.array([1.0, 1e3, 1e-2]) * x), [1.0, 2.0, 3.0]),
    "logistic": (lambda x: np.sum(np.logaddexp(0.0, HINGES @ x)) + 0.01 * x @ x, [0.0, 0.0]),
    "far kink": (lambda x: np.sum(np.where(np.abs(x) < 1.0, x**2 / 2.0, np.abs(x) - 0.5)), [3.0, -4.0]),
    "smooth kink": (lambda x: np.sum(np.maximum(x, 0.0) ** 2) + (x - 1.0) @ (x - 1.0), [-3.0, 2.0]),
}


@pytest.mark.parametrize("method", ["BFGS", "CG", "L-BFGS-B"])
@pytest.mark.parametrize("name", NONSMOOTH)
def test_minimize_says_that_its_run_crosses_a_kink(name, method):
    function, start = NONSMOOTH[name]
    with pytest.warns(GradtapeWarning, match=f"minimize stopped near a kink of {name.split()[0]}"):
        gt.scipy.minimize(function, np.array(start), method=method)


@pytest.mark.parametrize("method", ["BFGS", "CG", "L-BFGS-B", "SLSQP"])
@pytest.mark.parametrize("name", SMOOTH)
def test_minimize_warns_of_no_kink_where_a_run_is_smooth(name, method):
    function, start = SMOOTH[name]
    assert gt.scipy.minimize(function, np.array(start), method=method).success


def test_a_smooth_run_that_fails_at_its_precision_crosses_no_kink():
    found = gt.scipy.minimize(
        lambda x: np.cosh(x[0] - 1.0) * 1e8 + x[1] ** 2, np.array([3.0, 1.0]), tol=1e-300
    )
    assert not found.success


def test_a_branch_in_a_function_without_results_is_no_kink():
    def nothing(x):
        return () if x > 0.0 else []

    assert not gt.debug.kinks(nothing, 0.0)


def test_one_side_of_a_branch_may_be_a_constant():
    (found,) = gt.debug.kinks(lambda x: 2.0 * x if x > 0.0 else 0.0, 0.0)
    assert found.kind == "kink" and found.slopes == (0.0, 2.0) and found.returned == 0.0
    assert found.gradients == (0.0, 2.0)
