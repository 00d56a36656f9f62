"""Derivatives against differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as gt
from gradtape.errors import ArgumentError, DtypeError, GradientCheckError, IntegerInputError

PAIR = np.array([0.5, 2.0])


def wrong(x: Any) -> Any:
    return x**2, lambda upstream: upstream * x


RIGHT: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "an array": (np.sin, (PAIR,)),
    "numbers": (lambda a, x: np.sum(np.exp(a * x)), (0.3, PAIR)),
    "an int": (np.sin, (3,)),
    "a nest": (lambda d: {"o": d["a"] * d["b"], "k": [d["a"]]}, ({"a": PAIR, "b": 2.0},)),
    "complex": (np.exp, (1 + 2j,)),
    "a modulus": (lambda z: np.abs(z) ** 2, (np.array([1 + 2j]),)),
    "an integer beside": (lambda x: (x**2, np.argmax(x)), (PAIR,)),
    "no elements": (np.sum, (np.zeros(0),)),
    "a loop": (lambda x: gt.scan(lambda c, v: (np.sin(c * v), c), 1.0, x), (PAIR,)),
    "jitted": (gt.jit(lambda x: np.sum(np.tanh(x))), (PAIR,)),
    "a closure": (lambda x: x * gt.Variable(PAIR), (PAIR,)),
}


@pytest.mark.parametrize("modes", ["fwd", "rev", ("fwd", "rev")])
@pytest.mark.parametrize("case", RIGHT)
def test_what_is_right(case: str, modes: Any) -> None:
    function, args = RIGHT[case]
    gt.check_grads(function, args, modes=modes)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.complex64])
def test_less_precise_numbers(dtype: Any) -> None:
    gt.check_grads(lambda x: np.sin(x) * x, (PAIR.astype(dtype),))
    with pytest.raises(GradientCheckError):
        gt.check_grads(gt.custom_gradient(wrong), (PAIR.astype(dtype),))


def test_tolerances_are_those_given() -> None:
    gt.check_grads(np.exp, (PAIR,), rtol=1e-8)
    with pytest.raises(GradientCheckError):
        gt.check_grads(np.exp, (PAIR.astype(np.float32),), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("modes", ["fwd", "rev"])
@pytest.mark.parametrize(
    ("function", "x"),
    [
        (gt.custom_gradient(wrong), PAIR),
        (lambda x: x * gt.stop_gradient(x), PAIR),
        (np.abs, np.zeros(2)),
    ],
    ids=["a rule", "a cut", "a kink"],
)
def test_what_is_wrong(function: Any, x: Any, modes: Any) -> None:
    with pytest.raises(GradientCheckError, match="disagrees with differences") as caught:
        gt.check_grads(function, (x,), modes=modes)
    assert "stop_gradient" in str(caught.value)


def test_reverse_mode_by_itself_needs_no_forward_mode() -> None:
    def curved(x: Any) -> Any:
        return np.sum(x**2), lambda upstream: 2 * x * upstream**3

    gt.check_grads(gt.custom_gradient(curved), (PAIR,), order=1, modes="rev", rtol=10.0)
    with pytest.raises(gt.errors.NotDifferentiableError):
        gt.check_grads(gt.custom_gradient(curved), (PAIR,), order=1, modes="fwd")


@pytest.mark.parametrize(
    ("function", "x"),
    [(np.log, np.array([-1.0])), (np.sqrt, np.array([0.0])), (lambda x: x * np.nan, PAIR)],
    ids=["outside", "at the edge", "always"],
)
def test_numbers_that_are_not_finite_are_never_right(function: Any, x: Any) -> None:
    with pytest.raises(GradientCheckError, match="not finite"):
        gt.check_grads(function, (x,))


@pytest.mark.parametrize(
    ("error", "args", "options", "part"),
    [
        (ArgumentError, PAIR, {}, "must be a tuple of arguments, got an ndarray"),
        (ArgumentError, (PAIR,), {"modes": ("reverse",)}, "'reverse'"),
        (ArgumentError, (PAIR,), {"modes": []}, "modes is empty"),
        (ArgumentError, (PAIR,), {"seed": "a"}, "seed is 'a'"),
        (ArgumentError, (PAIR,), {"order": 0}, "order"),
        (IntegerInputError, (np.arange(3),), {}, "check_grads: an argument is an array of int64"),
    ],
)
def test_arguments(error: type[Exception], args: Any, options: Any, part: str) -> None:
    with pytest.raises(error, match=part):
        gt.check_grads(np.sin, args, **options)


@pytest.mark.parametrize("function", [np.argmax, lambda x: None, lambda x: (np.argmax(x), None)])
def test_results_without_floats(function: Any) -> None:
    with pytest.raises(DtypeError, match="check_grads: the function returns no floats"):
        gt.check_grads(function, (PAIR,))
