"""The programs with loops: values and all derivatives, from code that Numba takes and from plain Python.

What does not work yet is listed in `MISSING`, with a reason; the tests are strict, so the list cannot be longer than it has to be.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import pytest

import gradtape as gt
from tests.programs.loops.all import PROGRAMS
from tests.programs.loops.cases import Array, LoopProgram
from tests.support.differences import gradient_by_differences

MISSING: dict[str, dict[str, str]] = {}
"""Of each test, the programs that it refuses, or all of them, and why."""


def cases(test: str) -> pytest.MarkDecorator:
    """Parametrise a test with all programs; those that are missing are expected to fail."""
    missing = MISSING.get(test, {})
    marks = {
        name: [pytest.mark.xfail(reason=missing.get(name, missing.get("all", "")), strict=True)]
        if name in missing or "all" in missing
        else []
        for name in PROGRAMS
    }
    return pytest.mark.parametrize(
        "case", [pytest.param(case, id=name, marks=marks[name]) for name, case in PROGRAMS.items()]
    )


def weights(result: Any) -> Any:
    """Return fixed weights for what a program returns; a number has none."""
    if isinstance(result, tuple):
        return tuple([np.float64(k + 1.0) for k in range(len(result))])
    return (
        None if np.ndim(result) == 0 else np.cos(np.arange(np.size(result)) + 1.0).reshape(np.shape(result))
    )


def to_scalar(function: Callable[..., Any], case: LoopProgram) -> Callable[..., Any]:
    """Return a program as one that returns a number: itself, or the weighted sum of its results."""
    weight = weights(case.function(*case.arguments()))
    if weight is None:
        return function
    if isinstance(weight, tuple):
        return lambda *args: sum(w * r for w, r in zip(weight, function(*args), strict=True))
    return lambda *args: np.sum(weight * function(*args))


@functools.cache
def njit(name: str) -> Callable[..., Any]:
    compiled: Callable[..., Any] = numba.njit(PROGRAMS[name].function)
    return compiled


@functools.cache
def slopes(name: str) -> tuple[Array, ...]:
    """Return the gradient by differences."""
    case = PROGRAMS[name]
    function, args = to_scalar(case.function, case), case.arguments()
    return tuple(
        [gradient_by_differences(along(function, args, k), np.asarray(args[k])) for k in case.active]
    )


def along(function: Callable[..., Any], args: tuple[Any, ...], k: int) -> Callable[[Array], Any]:
    """Return a function of one argument; floats stay Python's floats."""
    return lambda x: function(*args[:k], x if np.ndim(args[k]) else float(x), *args[k + 1 :])


def directions(case: LoopProgram, seed: int = 1) -> tuple[Array, ...]:
    random = np.random.default_rng(seed)
    return tuple([random.standard_normal(np.shape(case.arguments()[k])) for k in case.active])


def with_active(case: LoopProgram, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of the arguments that are differentiated."""
    args = case.arguments()

    def of_active(*active: Any) -> Any:
        given = list(args)
        for k, value in zip(case.active, active, strict=True):
            given[k] = value
        return function(*given)

    return of_active


def active(case: LoopProgram) -> tuple[Any, ...]:
    args = case.arguments()
    return tuple([args[k] for k in case.active])


def assert_near(found: Any, expected: Any, tolerance: float = 1e-6) -> None:
    for one, other in zip(found, expected, strict=True):
        scale = np.max(np.abs(other), initial=1e-3)
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance * scale)


def parts(result: Any) -> tuple[Array, ...]:
    return result if isinstance(result, tuple) else (result,)


@pytest.mark.filterwarnings("ignore::numba.core.errors.NumbaPerformanceWarning")
@cases("value")
def test_value_is_that_of_numba(case: LoopProgram) -> None:
    function = njit(case.name)
    assert_near(parts(gt.jit(function)(*case.arguments())), parts(function(*case.arguments())), 1e-11)


@cases("njit")
def test_gradient_of_code_for_numba(case: LoopProgram) -> None:
    function = to_scalar(njit(case.name), case)
    value, found = gt.value_and_grad(function, argnums=case.active)(*case.arguments())
    assert_near([value], [to_scalar(case.function, case)(*case.arguments())], 1e-11)
    assert_near(found, slopes(case.name))


@pytest.mark.parametrize("way", ["auto", "compile"])
@cases("plain")
def test_gradient_of_plain_code(case: LoopProgram, way: str) -> None:
    function = to_scalar(case.function, case)
    gradient = gt.value_and_grad(function, argnums=case.active)
    with gt.config.override(loops=way):
        for _ in range(2):
            value, found = gradient(*case.arguments())
            assert_near([value], [function(*case.arguments())], 1e-11)
            assert_near(found, slopes(case.name))


@cases("tape")
def test_gradient_on_a_tape(case: LoopProgram) -> None:
    args = list(case.arguments())
    with gt.GradientTape() as tape:
        for k in case.active:
            args[k] = gt.asarray(args[k])
            tape.watch(args[k])
        result = to_scalar(njit(case.name), case)(*args)
    assert_near(tape.gradient(result, [args[k] for k in case.active]), slopes(case.name))


@cases("forward")
def test_tangent(case: LoopProgram) -> None:
    function = with_active(case, to_scalar(njit(case.name), case))
    along = directions(case)
    _, found = gt.jvp(function, active(case), along)
    expected = sum(np.sum(s * d) for s, d in zip(slopes(case.name), along, strict=True))
    assert_near([found], [expected])


@cases("batch")
def test_gradients_of_a_batch(case: LoopProgram) -> None:
    batch = [np.stack([np.asarray(x) * (1.0 + 1e-3 * b) for b in range(3)]) for x in active(case)]
    gradient = gt.grad(
        with_active(case, to_scalar(njit(case.name), case)), argnums=tuple(range(len(case.active)))
    )
    found = gt.vmap(gradient)(*batch)
    for b in range(3):
        assert_near([one[b] for one in found], gradient(*[one[b] for one in batch]), 1e-9)


@cases("second")
def test_second_derivative(case: LoopProgram) -> None:
    """The product of the Hessian and a vector, against differences of gradients."""
    function = with_active(case, to_scalar(njit(case.name), case))
    gradient = gt.grad(function, argnums=tuple(range(len(case.active))))
    along = directions(case)
    _, found = gt.jvp(gradient, active(case), along)
    step = 1e-5

    def moved(h: float) -> Any:
        return gradient(*[x + h * d for x, d in zip(active(case), along, strict=True)])

    expected = [(up - down) / (2 * step) for up, down in zip(moved(step), moved(-step), strict=True)]
    assert_near(found, expected, 1e-5)
