"""Errors that code is prepared for: ``except np.linalg.LinAlgError`` with a fallback, and those of `math`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import linalg

import gradtape as gt
from gradtape.errors import ConcretizationError
from tests.support.differences import gradient_by_differences

GOOD = np.array([[2.0, 0.3], [0.3, 1.0]])
BAD = np.array([[1.0, 2.0], [2.0, 1.0]])
FLAT = np.array([[1.0, 2.0], [2.0, 4.0]])
Function = Callable[..., Any]


def jittered(k: Any) -> Any:
    jitter = 0.0
    for _ in range(6):
        try:
            factor = np.linalg.cholesky(k + jitter * np.eye(len(k)))
            break
        except np.linalg.LinAlgError:
            jitter = max(10 * jitter, 0.3)
    return np.sum(factor)


def in_a_caller(k: Any) -> Any:
    def factored(k: Any) -> Any:
        with np.errstate(all="ignore"):
            return np.linalg.cholesky(k)

    try:
        return np.sum(factored(k))
    except np.linalg.LinAlgError:
        return np.sum(k**2)


def pseudo(k: Any) -> Any:
    try:
        inverse = np.linalg.inv(k)
    except np.linalg.LinAlgError:
        inverse = np.linalg.pinv(k + np.eye(2))
    return np.sum(inverse)


def by_scipy(k: Any) -> Any:
    try:
        return np.sum(linalg.cholesky(k, lower=True))
    except linalg.LinAlgError:
        return np.trace(k)


def of_a_list(k: Any) -> Any:
    try:
        return np.sum(np.linalg.solve([[k[0, 0], k[0, 1]], [k[1, 0], k[1, 1]]], [1.0, k[0, 0]]))
    except Exception as error:
        assert "ingular" in str(error)
        return k[0, 0] * 3.0


PROGRAMS = (jittered, in_a_caller, pseudo, by_scipy, of_a_list)


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda function: function.__name__)
def test_the_fallback_runs_where_it_must(function: Function) -> None:
    cases = (GOOD, FLAT if function in (pseudo, of_a_list) else BAD, GOOD)
    for order in (cases, cases[1:]):
        compiled, slope = gt.jit(function), gt.jit(gt.grad(function))
        for k in order:
            expected = function(k)
            np.testing.assert_allclose(compiled(k), expected, rtol=1e-12)
            gradient = slope(k)
            np.testing.assert_allclose(gt.grad(function)(k), gradient, rtol=1e-9, atol=1e-12)
            for _ in range(3):
                with gt.GradientTape() as tape:
                    x = tape.watch(k)
                    y = function(x)
                np.testing.assert_allclose(y.numpy(), expected, rtol=1e-12)
                np.testing.assert_allclose(tape.gradient(y, x).numpy(), gradient, rtol=1e-9, atol=1e-12)


def test_the_derivative_is_that_of_the_fallback() -> None:
    np.testing.assert_allclose(gt.grad(in_a_caller)(BAD), 2 * BAD)
    np.testing.assert_allclose(gt.grad(of_a_list)(FLAT), [[3.0, 0.0], [0.0, 0.0]])
    symmetric = gradient_by_differences(lambda k: jittered((k + k.T) / 2), BAD)
    np.testing.assert_allclose(gt.grad(lambda k: jittered((k + k.T) / 2))(BAD), symmetric, atol=1e-5)


def test_what_went_well_is_compiled_once() -> None:
    counted = gt.jit(jittered)
    for k in (GOOD, GOOD * 2, GOOD + 0.1):
        counted(k)
    assert repr(counted).endswith(": 1 trace>")


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda function: function.__name__)
@pytest.mark.parametrize("begins", ["well", "badly"])
def test_each_way_is_compiled_once(function: Function, begins: str) -> None:
    bad = FLAT if function in (pseudo, of_a_list) else BAD
    cases = (GOOD, bad) if begins == "well" else (bad, GOOD)
    compiled, gradient = gt.jit(function), gt.grad(function)
    for scale in (1.0, 1.5, 2.0):
        for k in cases:
            np.testing.assert_allclose(compiled(scale * k), function(scale * k), rtol=1e-12)
            gradient(scale * k)
    for made in (compiled, gradient):
        assert len(made.site.signatures.specialisations()) == 2
        assert [event.text for event in made.site.explain.events if event.kind == "limit"] == []


def test_each_number_of_failures_is_a_way() -> None:
    compiled = gt.jit(jittered)
    for shift in (3.0, 1.8, 0.5, 2.7, 0.1, 1.9, 3.0):  # the smallest eigenvalue is shift - 2
        k = BAD + (shift - 1.0) * np.eye(2)
        np.testing.assert_allclose(compiled(k), jittered(k), rtol=1e-12)
    assert len(compiled.site.signatures.specialisations()) == 3


def test_a_failure_that_is_handled_beside_one_that_is_not() -> None:
    def both(k: Any, m: Any) -> Any:
        return in_a_caller(k) + np.sum(np.linalg.cholesky(m))

    compiled = gt.jit(both)
    for _ in range(2):
        for k, m in ((GOOD, GOOD), (BAD, GOOD), (GOOD, BAD), (BAD, BAD)):
            if m is BAD:
                with pytest.raises(np.linalg.LinAlgError):
                    compiled(k, m)
            else:
                np.testing.assert_allclose(compiled(k, m), both(k, m), rtol=1e-12)


def test_random_numbers_and_writes_of_calls_that_fail() -> None:
    class Counter:
        calls = 0

    def drawn(k: Any, rng: Any, counts: Any) -> Any:
        counts.calls = counts.calls + 1
        number = rng.normal()
        return in_a_caller(k + 0.0 * number) + number

    compiled = gt.jit(drawn)
    ours, plain = np.random.default_rng(1), np.random.default_rng(1)
    mine, other = Counter(), Counter()
    for k in (GOOD, BAD, BAD, GOOD, BAD):
        np.testing.assert_allclose(compiled(k, ours, mine), drawn(k, plain, other), rtol=1e-12)
        assert mine.calls == other.calls


def test_errors_that_nobody_is_prepared_for_are_errors() -> None:
    for function in (
        lambda k: np.sum(np.linalg.cholesky(k)),
        gt.grad(lambda k: np.sum(np.linalg.cholesky(k))),
    ):
        compiled = gt.jit(function)
        compiled(GOOD)
        with pytest.raises(np.linalg.LinAlgError):
            compiled(BAD)
        compiled(GOOD)


def jittered_by_scipy(k: Any) -> Any:
    for power in range(6):
        try:
            return np.sum(np.log(linalg.cholesky(k + (10.0**power - 1.0) * np.eye(2), lower=True).diagonal()))
        except np.linalg.LinAlgError:
            pass
    return np.sum(k)


@pytest.mark.parametrize("function", [in_a_caller, jittered, jittered_by_scipy])
@pytest.mark.parametrize("way", ["vmap", "jit", "grad", "forward", "hessian", "nested"])
def test_a_map_handles_errors_that_all_elements_have(function: Any, way: str) -> None:
    mapped, batched = gt.vmap(function), lambda k: np.sum(gt.vmap(function)(k) ** 2)
    seeds = np.ones((2, 2, 2))
    answers: dict[str, Any] = {
        "vmap": mapped,
        "jit": gt.jit(mapped),
        "grad": gt.grad(batched),
        "forward": lambda k: gt.jvp(batched, (k,), (seeds,))[1],
        "hessian": gt.hessian(batched),
        "nested": gt.jit(lambda k: gt.vmap(mapped)(np.stack([k, 2 * k]))),
    }
    by_hand: dict[str, Any] = {
        "vmap": lambda k: np.stack([function(each) for each in k]),
        "grad": gt.grad(lambda k: sum(function(each) ** 2 for each in k)),
        "forward": lambda k: gt.jvp(lambda k: sum(function(each) ** 2 for each in k), (k,), (seeds,))[1],
        "hessian": gt.hessian(lambda k: sum(function(each) ** 2 for each in k)),
        "nested": lambda k: np.stack([[function(each) for each in part] for part in (k, 2 * k)]),
    }
    expected = by_hand.get(way, by_hand["vmap"])
    for stack in ([GOOD, 2 * GOOD], [BAD, 1.1 * BAD], [GOOD, GOOD], [BAD, BAD]):
        np.testing.assert_allclose(
            answers[way](np.stack(stack)), expected(np.stack(stack)), rtol=1e-10, atol=1e-12
        )


@pytest.mark.parametrize("function", [in_a_caller, jittered, jittered_by_scipy])
def test_elements_that_do_not_agree_in_an_error_are_an_error_with_a_remedy(function: Any) -> None:
    mapped = gt.jit(gt.vmap(function))
    for stack in ([GOOD, BAD], [BAD, GOOD], [GOOD, GOOD, BAD]):
        for way in (mapped, gt.vmap(function), gt.grad(lambda k: np.sum(gt.vmap(function)(k)))):
            with pytest.raises(ConcretizationError, match=r"some elements(.|\n)*np\.where"):
                way(np.stack(stack))
    np.testing.assert_allclose(mapped(np.stack([GOOD, GOOD])), [function(GOOD)] * 2)


def by_any_error(k):
    try:
        return np.sum(np.linalg.cholesky(k))
    except Exception:
        return -np.sum(k)


def by_named_errors(k):
    try:
        return np.sum(np.linalg.cholesky(k))
    except (ValueError, TypeError):
        return -np.sum(k)


@pytest.mark.parametrize("function", [by_any_error, by_named_errors])
def test_code_that_handles_any_error_does_not_hide_that_elements_do_not_agree(function: Any) -> None:
    for way in (
        gt.vmap(function),
        gt.jit(gt.vmap(function)),
        gt.grad(lambda k: np.sum(gt.vmap(function)(k))),
    ):
        with pytest.raises(ConcretizationError, match="some elements"):
            way(np.stack([GOOD, BAD]))


def test_code_does_not_handle_an_error_of_what_was_computed_before() -> None:
    def f(k):
        inverse = np.linalg.inv(k)
        try:
            return np.sum(np.linalg.cholesky(inverse @ k))
        except np.linalg.LinAlgError:
            return -1.0

    for stack in ([np.zeros((2, 2))] * 2, [np.zeros((2, 2)), GOOD]):
        for way in (gt.vmap(f), gt.jit(gt.vmap(f))):
            with pytest.raises(np.linalg.LinAlgError):
                way(np.stack(stack))


def roots(x):
    total = 0.0
    for i in range(4):
        try:
            total += math.sqrt(x[i])
        except ValueError:
            total += 10.0 * x[i]
    return total


def until_it_fails(x):
    total = 0.0
    try:
        for i in range(4):
            total += math.log(x[i])
    except Exception:
        total += 1.0
    finally:
        total *= 2.0
    return total


def helped(x):
    def inner(y):
        return math.exp(1000.0 * y) + math.pow(y, 0.5)

    try:
        return inner(x[0])
    except OverflowError:
        return 5.0 * x[0]
    except ValueError:
        return 7.0 * x[0]


@pytest.mark.parametrize("function", [roots, until_it_fails, helped], ids=lambda f: f.__name__)
@pytest.mark.parametrize(
    "x", [[0.3, 0.5, 0.7, 0.9], [0.3, 0.5, -0.7, 0.9], [-0.3, -0.5, 0.7, 0.9], [2.0, 0.0, 1.0, 1.0]]
)
def test_errors_of_math_that_the_code_catches_are_raised(function, x):
    x = np.array(x)
    expected = function(x)
    compiled = gt.jit(function)
    for _ in range(2):
        np.testing.assert_allclose(compiled(x), expected, rtol=1e-12)
    np.testing.assert_allclose(compiled(x[::-1]), function(x[::-1]), rtol=1e-12)
    with gt.GradientTape() as tape:
        watched = tape.watch(x)
        value = function(watched) + 0.0 * watched[0]
    np.testing.assert_allclose(value, expected, rtol=1e-12)
    np.testing.assert_allclose(tape.gradient(value, watched), gt.grad(function)(x), rtol=1e-12)


def guarded(a, b):
    total = 0.0
    for k in range(3):
        try:
            total += a / (b - k) + 1.0 // (b + 1.0 - k) + a % (b + 2.0 - k)
        except ZeroDivisionError:
            total += a * (k + 1.0)
    return total


@pytest.mark.parametrize("b", [0.5, 1.0, 0.0, -1.0])
def test_divisions_of_numbers_by_zero_that_the_code_handles_raise_an_error(b):
    function = gt.jit(guarded)
    for _ in range(2):
        assert function(2.5, b) == pytest.approx(guarded(2.5, b), rel=1e-12)
    assert function(2.5, 0.25) == pytest.approx(guarded(2.5, 0.25), rel=1e-12)


def test_divisions_in_the_body_of_a_loop_are_those_of_numpy():
    def halved(x):
        try:
            return 1.0 / x + 0.5 * x
        except ZeroDivisionError:
            return 0.0

    assert gt.fori_loop(0, 30, lambda k, x: halved(x), 2.0) == pytest.approx(math.sqrt(2.0))


def test_a_division_is_that_of_numpy_where_nobody_handles_the_error():
    assert gt.jit(lambda a, b: a / b)(1.0, 0.0) == np.inf


def test_numbers_of_numpy_are_divided_by_zero():
    assert gt.jit(guarded)(np.float64(2.5), np.float64(1.0)) == np.inf


def test_a_function_of_math_without_try_is_not_asked():
    assert np.isnan(gt.jit(lambda x: math.sqrt(x[0]))(np.array([-1.0])))
