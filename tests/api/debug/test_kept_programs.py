"""Diagnoses of a function that was looked at before come from programs, and are those of a run op by op."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import special

import gradtape as gt
from gradtape.api.debug.precision import HAS_EXTENDED
from tests.api.debug.test_kinks import PLANTED
from tests.support.recording import Runs

NUMBER = re.compile(r"-?\b\d+(\.\d*)?(e[-+]?\d+)?|\bnan\b|-?\binf\b")


def parts_of(report: Any) -> tuple[list[str], list[float]]:
    """Return the text of a report without its numbers, and the numbers."""
    text = repr(report)
    return NUMBER.split(text)[::4], [float(found[0]) for found in NUMBER.finditer(text)]


def assert_same(report: Any, expected: Any) -> None:
    (words, numbers), (others, wanted) = parts_of(report), parts_of(expected)
    assert words == others
    np.testing.assert_allclose(numbers, wanted, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize(
    "function, point", [case[1:3] for case in PLANTED], ids=[case[0] for case in PLANTED]
)
def test_kinks_of_later_calls_are_those_of_the_first(function: Callable[..., Any], point: Any) -> None:
    first, *others = [gt.debug.kinks(function, point) for _ in range(3)]
    for found in others:
        assert found.seen == first.seen
        assert_same(found, first)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: np.sum(np.abs(x[np.array([True, False, True, True])])),
        lambda x: np.mean(np.abs(x[x > -0.5])),
        lambda x: np.sum(np.maximum(x[x != 0.0], 0.0)),
        lambda x: np.sum(np.sqrt(np.abs(x[[0, 2]]))),
        lambda x: np.sum(np.abs(np.unique(x))),
        lambda x: np.sum(np.abs(np.compress([True, False, True, True], x))),
    ],
)
def test_kinks_of_elements_that_are_not_selected_are_none(function: Callable[..., Any]) -> None:
    first, *others = [gt.debug.kinks(function, np.array([1e-9, 0.0, 1e-8, 3.0])) for _ in range(3)]
    assert len(first) > 0
    for found in others:
        assert found.seen == first.seen
        assert_same(found, first)


def test_kinks_of_a_mask_among_the_arguments() -> None:
    x, mask = np.array([1e-9, 0.0, 3.0]), np.array([True, False, True])
    for _ in range(3):
        (kink,) = gt.debug.kinks(lambda x, mask: np.sum(np.abs(x[mask])), x, mask)
        assert kink.distance == pytest.approx(1e-9)


def test_kinks_of_a_ufunc_have_the_line_of_their_call() -> None:
    lines = set()
    for _ in range(2):
        (kink,) = gt.debug.kinks(np.abs, 0.0)
        lines.add(kink.site.line)
        (kink,) = gt.debug.kinks(np.abs, 0.0)
        lines.add(kink.site.line)
    assert len(lines) == 2


def test_kept_traces_are_bounded() -> None:
    def f(x: Any) -> Any:
        return np.sum(np.abs(x))

    with gt.config.override(memory_cache=8):
        for size in (*range(1, 30), *range(1, 30)):
            assert len(gt.debug.kinks(f, np.zeros(size))) > 0


def test_kinks_run_the_function_no_more_than_its_ways_need() -> None:
    calls = Runs()

    def f(x: Any, n: int) -> Any:
        calls.append(1)
        return np.sum(np.abs(x)) * n if x[0] > 2.0 else np.sum(np.abs(x - 1.0)) + n

    for _ in range(3):
        gt.debug.kinks(f, np.array([1.0, 3.0]), 2)
    before = len(calls)
    for k in range(5):
        (kink,) = gt.debug.kinks(f, np.array([1.0, 3.0 + k]), 2)
        assert kink.op == "absolute"
    assert len(calls) == before


SCALE = 1.0


def test_kinks_see_what_has_changed_outside() -> None:
    weights, box = np.array([1.0, 2.0]), {"shift": 0.0}

    def make(level: float) -> Any:
        def f(x: Any) -> Any:
            return SCALE * np.sum(weights * np.abs(x - box["shift"])) + np.maximum(x[1], level)

        return f

    def expect(f: Any, op: str, slopes: tuple[float, float]) -> None:
        (kink,) = gt.debug.kinks(f, np.array([0.0, 1.0]))
        assert kink.op == op
        np.testing.assert_allclose(kink.slopes, slopes, atol=1e-9)

    global SCALE
    f = make(-5.0)
    try:
        for _ in range(3):
            expect(f, "absolute", (-1.0, 1.0))
        SCALE = 3.0
        expect(f, "absolute", (-3.0, 3.0))
        weights[0] = 2.0
        expect(f, "absolute", (-6.0, 6.0))
        box["shift"] = -4.0
        assert not gt.debug.kinks(f, np.array([0.0, 1.0]))
        expect(make(1.0), "maximum", (6.0, 7.0))
        assert not gt.debug.kinks(make(2.0), np.array([0.0, 1.0]))
    finally:
        SCALE = 1.0


def test_kinks_follow_the_branches_of_each_point() -> None:
    def f(x: Any) -> Any:
        while x > 3.0:
            x = x - 2.0
        return np.abs(x - 2.0) if x > 1.0 else np.abs(x)

    for _ in range(3):
        found = [gt.debug.kinks(f, x) for x in (0.0, 1.5, 2.0, 4.0, 7.0, 9.5)]
        assert [[(kink.kind, kink.op) for kink in each] for each in found] == [
            [("kink", "absolute")],
            [],
            [("kink", "absolute")],
            [("kink", "absolute")],
            [("kink", "greater")],
            [],
        ]


def test_kinks_of_random_and_failing_functions_are_as_ever() -> None:
    rng = np.random.default_rng(0)

    def noisy(x: Any) -> Any:
        return np.abs(x) + rng.normal()

    assert [len(gt.debug.kinks(noisy, 0.0)) for _ in range(3)] == [1, 1, 1]

    def failing(x: Any) -> Any:
        raise KeyError("missing")

    for _ in range(3):
        with pytest.raises(KeyError, match="missing"):
            gt.debug.kinks(failing, 0.0)


def test_kinks_of_structured_arguments_and_several_results_are_kept() -> None:
    calls = Runs()

    def f(p: Any, n: int, name: str) -> Any:
        calls.append(1)
        return {"a": np.abs(p["x"]) * n, "b": np.float32(2.0) * p["y"][0], name: p["z"]}

    given = {"x": np.array([0.0, 1.0]), "y": (np.float32(1.5), 3), "z": np.arange(3)}
    first, *others = [gt.debug.kinks(f, given, 2, "c") for _ in range(4)]
    for found in others:
        assert_same(found, first)
        np.testing.assert_allclose(found[0].slopes[1]["a"], [2.0, 0.0])
    before = len(calls)
    gt.debug.kinks(f, given, 2, "c")
    assert len(calls) == before


def ratio(x: Any) -> Any:
    return (1.0 - np.cos(x)) / x**2


def variance(x: Any) -> Any:
    return np.mean(x**2) - np.mean(x) ** 2


def recurrence(x: Any) -> Any:
    return gt.fori_loop(0, 12, lambda k, y: y - x / (k + 1.0), 5.0 * x + 1e-9)


def halved(x: Any) -> Any:
    return gt.while_loop(lambda y: y > 1.0, lambda y: 0.5 * y, x) - 0.75


def solved(x: Any) -> Any:
    return np.sum(np.linalg.solve(np.array([[1.0, 1.0], [1.0, 1.0 + 1e-9]]) * x, np.array([1.0, 2.0])))


HILBERT = np.arange(6.0)[:, None] + np.arange(6.0) + 1.0

LOSING = {
    "ratio": (ratio, 1e-7),
    "variance": (variance, 1e7 + np.arange(4.0)),
    "recurrence": (recurrence, 0.3),
    "while": (halved, 3.0 * (1.0 + 1e-12)),
    "solve": (solved, 2.0),
    "complex": (lambda x: np.abs(np.exp(1j * x) - 1.0), 1e-9),
    "several results": (lambda x: {"a": np.exp(x) - 1.0, "b": x * 2.0}, np.array([1e-9, 1.0])),
    "system": (
        lambda b: np.sum(np.linalg.solve(1.0 / HILBERT, b)),
        np.array([1.0, 0.5, -0.3, 0.2, 0.7, -0.1]),
    ),
    "special": (lambda x: special.gamma(1.0 + x) - 1.0, 1e-9),
    "mask": (lambda x: np.sum(x[x > 1.0]) - 5.0, np.array([0.0, 2.0, 3.0 + 1e-12])),
}


@pytest.mark.skipif(not HAS_EXTENDED, reason="long double is double on this machine")
@pytest.mark.parametrize("name", LOSING)
def test_digits_of_later_calls_are_those_of_the_first(name: str) -> None:
    function, point = LOSING[name]
    calls = Runs()

    def f(x: Any) -> Any:
        calls.append(1)
        return function(x)

    first, *others = [gt.debug.digits(f, point) for _ in range(3)]
    before = len(calls)
    others.append(gt.debug.digits(f, point))
    assert len(calls) == before or name == "mask"  # its elements are known op by op alone
    for found in others:
        assert [repr(loss.site) for loss in found.losses] == [repr(loss.site) for loss in first.losses]
        assert [loss.remedy for loss in found.losses] == [loss.remedy for loss in first.losses]
        # LAPACK's last digits depend on where arrays stand in memory.
        assert found.value == pytest.approx(first.value, abs=1.0)
        assert found.derivative == pytest.approx(first.derivative, abs=1.0)


@pytest.mark.skipif(not HAS_EXTENDED, reason="long double is double on this machine")
def test_digits_see_what_has_changed_outside_and_the_branches_of_each_point() -> None:
    offset = np.array([1.0])

    def f(x: Any) -> Any:
        return np.cos(x) - offset[0] if x < 1.0 else x * offset[0]

    for _ in range(3):
        offset[0] = 1.0
        assert gt.debug.digits(f, 1e-7).value < 5.0
        assert gt.debug.digits(f, 2.0).value > 15.0
        offset[0] = 7.0
        assert gt.debug.digits(f, 1e-7).value > 15.0


@pytest.mark.skipif(not HAS_EXTENDED, reason="long double is double on this machine")
@pytest.mark.parametrize(
    "function",
    [
        lambda x, c: np.clip(x * x, 0.0, 4.0) - c,
        lambda x, c: np.fabs(x * x) - c,
        lambda x, c: np.copysign(x * x, 1.0) - c,
        lambda x, c: np.cumsum([x * x, -c])[1],
        lambda x, c: np.array([x * x, 1.0]) @ np.array([1.0, -c]),
    ],
)
def test_operations_without_two_part_numbers_keep_no_digits_that_are_lost(
    function: Callable[..., Any],
) -> None:
    x, c = 1.0 + 2.0**-33, 1.0 + 2.0**-32  # x*x - c is 2**-66, and 0 in doubles
    assert gt.debug.digits(lambda x: function(x, c), x).value < 1.0
