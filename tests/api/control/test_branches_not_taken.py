"""What is not run does not count: a branch not taken, a loop of no iteration: neither can fail, cost, or reach a derivative."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as gt

SINGULAR = np.zeros((3, 3))
ONES = np.ones(3)


def captured(x: Any) -> Any:
    """The root is taken of a captured value."""
    return gt.cond(x > 0, lambda: np.sqrt(x), lambda: x * 0.5)


def computed_before(x: Any) -> Any:
    """What is captured was computed before, and is fit for both."""
    y = 2.0 * x
    return gt.cond(x > 0, lambda: np.log(y) + np.sqrt(y), lambda: y * 0.25)


def nested(x: Any) -> Any:
    return gt.cond(
        x > 0,
        lambda: gt.cond(x > 1, lambda: np.sqrt(x - 1), lambda: np.sqrt(x)),
        lambda: gt.cond(x < -2, lambda: np.sqrt(-2 - x), lambda: x * 0.5),
    )


def switched(x: Any) -> Any:
    """The index is out of range on both sides."""
    k = np.where(x > 0, 7, -7)
    return gt.switch(k, [lambda: x * 0.5, lambda: 1 / (x - x), lambda: np.sqrt(x)])


def in_scan(x: Any) -> Any:
    def step(c: Any, k: Any) -> Any:
        return c + gt.cond(x > 0, lambda: np.sqrt(x) * k, lambda: x * 0.5), None

    return gt.scan(step, 0.0, np.array([0.5, 0.25, 0.25]))[0] / gt.cond(x > 0, lambda: 1.0, lambda: 3.0)


def scan_in_cond(x: Any) -> Any:
    def roots() -> Any:
        return gt.scan(lambda c, k: (c + np.sqrt(x) * k, None), 0.0, np.array([0.5, 0.5]))[0]

    return gt.cond(x > 0, roots, lambda: x * 0.5)


def no_iteration(x: Any) -> Any:
    """The loop multiplies with the root of a captured value once, or never."""
    n = np.where(x > 0, 1, 0)
    _, r = gt.while_loop(lambda k, c: k < n, lambda k, c: (k + 1, c * np.sqrt(x)), (0, 1.0))
    return gt.cond(x > 0, lambda: r, lambda: r * x * 0.5)


def no_iteration_of_two(x: Any) -> Any:
    """The condition reads what the body reads."""
    limit = 1.5

    def goes_on(k: Any, c: Any) -> Any:
        return (k < 1) & (k + np.abs(np.sqrt(np.abs(x) + x)) > 0)

    _, r = gt.while_loop(goes_on, lambda k, c: (k + 1, c * np.sqrt(np.abs(x) + x)), (0, 1.0))
    return gt.cond(x > 0, lambda: r / np.sqrt(2.0), lambda: r * x * 0.5) + 0.0 * limit


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    f.__name__: f
    for f in (captured, nested, switched, in_scan, scan_in_cond, no_iteration, no_iteration_of_two)
}
"""Each is x / 2 for x < 0, where a root would be NaN; most are the root of x in (0, 1]."""


def gradient_of_tape(f: Callable[[Any], Any], x: Any) -> Any:
    with gt.GradientTape() as tape:
        watched = tape.watch(np.float64(x))
        y = f(watched)
    return tape.gradient(y, watched).numpy()


WAYS: dict[str, Callable[[Callable[[Any], Any], Any], Any]] = {
    "grad": lambda f, x: gt.grad(f)(x),
    "jit of grad": lambda f, x: gt.jit(gt.grad(f))(x),
    "grad of jit": lambda f, x: gt.grad(gt.jit(f))(x),
    "tape": gradient_of_tape,
    "jvp": lambda f, x: gt.jvp(f, (x,), (1.0,))[1],
    "jacfwd": lambda f, x: gt.jacfwd(f)(x),
    "vmap": lambda f, x: gt.vmap(gt.grad(f))(np.array([x, 0.25, -1.0]))[0],
    "jacobian of a map": lambda f, x: gt.jacobian(gt.vmap(f))(np.array([0.25, x, 4.0]))[1, 1],
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("way", WAYS)
def test_a_branch_not_taken_reaches_no_derivative(name: str, way: str) -> None:
    f = PROGRAMS[name]
    assert WAYS[way](f, -1.0) == 0.5
    np.testing.assert_allclose(WAYS[way](f, 0.25), 1.0)


@pytest.mark.parametrize("name", PROGRAMS)
def test_nor_a_second_one(name: str) -> None:
    f = PROGRAMS[name]
    assert f(-1.0) == -0.5
    assert gt.jit(f)(-1.0) == -0.5
    assert gt.hessian(f)(-1.0) == 0.0
    assert gt.grad(gt.grad(f))(-1.0) == 0.0
    assert gt.jit(gt.jacfwd(gt.jacfwd(f)))(-1.0) == 0.0
    np.testing.assert_allclose(gt.vmap(gt.grad(gt.grad(f)))(np.array([-1.0, 0.25])), [0.0, -2.0])


def test_at_the_border_of_its_domain() -> None:
    """At 0 the root has the slope infinity, and is not taken."""
    assert gt.grad(captured)(0.0) == 0.5
    assert gt.grad(computed_before)(0.0) == 0.5
    assert gt.jit(gt.hessian(computed_before))(0.0) == 0.0
    np.testing.assert_array_equal(gt.vmap(gt.grad(computed_before))(np.zeros(2)), [0.5, 0.5])


def solved(a: Any, b: Any) -> Any:
    return np.sum(gt.cond(np.sum(a) != 0, lambda: np.linalg.solve(a, b), lambda: b * 1.0))


def solved_in_iterations(a: Any, b: Any) -> Any:
    n = np.where(np.sum(a) != 0, 2, 0)
    _, x = gt.while_loop(lambda k, x: k < n, lambda k, x: (k + 1, np.linalg.solve(a, x)), (0, b))
    return np.sum(x)


def solved_of_captured(a: Any, b: Any) -> Any:
    """The invariant is computed once, before the first iteration, if there is one."""
    n = np.where(np.sum(a) != 0, 2, 0)
    _, x = gt.while_loop(lambda k, x: k < n, lambda k, x: (k + 1, x + np.linalg.solve(a, b)), (0, b))
    return np.sum(x)


@pytest.mark.parametrize("f", [solved, solved_in_iterations, solved_of_captured])
def test_what_is_not_run_does_not_fail(f: Any) -> None:
    for way in (f, gt.jit(f)):
        assert way(SINGULAR, ONES) == 3.0
    for slope in (gt.grad(f, argnums=(0, 1)), gt.jit(gt.grad(f, argnums=(0, 1)))):
        a, b = slope(SINGULAR, ONES)
        np.testing.assert_array_equal(a, SINGULAR)
        np.testing.assert_array_equal(b, ONES)
        a, b = slope(2 * np.eye(3), ONES)
        assert np.isfinite(a).all()
        assert (a != 0).any()
    with pytest.raises(np.linalg.LinAlgError):
        f(np.diag([1.0, 0.0, 1.0]), ONES)
    np.testing.assert_array_equal(
        gt.vmap(f, in_axes=(0, None))(np.stack([SINGULAR, np.eye(3)]), ONES), [3.0, f(np.eye(3), ONES)]
    )


def test_what_is_not_run_costs_nothing() -> None:
    """A branch of a kernel runs its own calls only; they are counted."""

    def f(x: Any, a: Any) -> Any:
        return gt.cond(x > 0, lambda: np.sum(np.linalg.inv(a)), lambda: x)

    loops = gt.inspect.loops(gt.jit(f), -1.0, np.eye(8))
    lines = loops.splitlines()
    first = next(k for k, line in enumerate(lines) if "inv" in line or "getr" in line or "solve" in line)
    assert any(line.strip().startswith(("if", "match", "case", "elif")) for line in lines[:first]), loops


def test_a_plain_choice_calls_what_it_chooses() -> None:
    """With ndarrays and numbers alone, NumPy would compute what a function captures as soon as it is called."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert captured(-1.0) == -0.5
        assert gt.switch(9, [lambda: np.sqrt(-ONES[0]), lambda: 2.0]) == 2.0
        assert gt.switch(-3, [lambda: 2.0, lambda: np.log(0.0 * ONES[0])]) == 2.0
    called = []

    def other() -> Any:
        called.append(1)
        return np.linalg.solve(SINGULAR, ONES)

    np.testing.assert_array_equal(gt.cond(False, other, lambda: ONES), ONES)
    assert not called
    with pytest.raises(gt.errors.ShapeError):  # what captures no numbers is compared
        gt.cond(True, lambda x: x, lambda x: x[:1], np.ones(3))


def test_what_fails_while_it_is_recorded_counts_if_it_is_chosen() -> None:
    def f(x: Any) -> Any:
        return gt.cond(x > 0, lambda: np.sum(np.linalg.solve(SINGULAR, ONES)) * x, lambda: x * 0.5)

    jitted = gt.jit(f)
    assert jitted(-1.0) == -0.5
    assert gt.grad(f)(-2.0) == 0.5
    assert gradient_of_tape(f, -1.0) == 0.5
    with pytest.raises(np.linalg.LinAlgError):
        jitted(1.0)
    with pytest.raises(np.linalg.LinAlgError):
        f(1.0)
    assert jitted(-3.0) == -1.5


def test_all_branches_that_lanes_take_are_safe() -> None:
    x = np.array([-1.0, 0.0, 0.25, 4.0])
    np.testing.assert_array_equal(gt.vmap(captured)(x), [-0.5, 0.0, 0.5, 2.0])
    np.testing.assert_array_equal(gt.vmap(gt.grad(captured))(x), [0.5, 0.5, 1.0, 0.25])
    np.testing.assert_array_equal(np.diag(gt.jacobian(gt.vmap(captured))(x)), [0.5, 0.5, 1.0, 0.25])
    none = gt.vmap(gt.grad(captured))(-np.ones(3))
    np.testing.assert_array_equal(none, np.full(3, 0.5))


def test_a_loop_over_no_integer() -> None:
    def f(x: Any, n: Any) -> Any:
        return gt.fori_loop(0, n, lambda k, c: c * np.sqrt(x), 1.0)

    assert gt.jit(f)(-1.0, 0) == 1.0
    assert gt.grad(lambda x: f(x, 0))(-1.0) == 0.0
    assert gt.grad(lambda x: gt.scan(lambda c, k: (c * np.sqrt(x), None), 1.0, np.zeros(0))[0])(-1.0) == 0.0
    limited = gt.grad(
        lambda x: gt.while_loop(lambda c: c < 9, lambda c: c * np.sqrt(x), 1.0, max_iterations=0)
    )
    assert limited(-1.0) == 0.0


def test_a_body_that_fails_while_it_is_recorded_counts_if_it_is_run() -> None:
    def f(x: Any, n: Any) -> Any:
        return gt.while_loop(
            lambda k, c: k < n,
            lambda k, c: (k + 1, c * np.sum(np.linalg.solve(SINGULAR, ONES))),
            (0, x),
        )[1]

    assert f(2.0, 0) == 2.0
    assert gt.jit(f)(2.0, 0) == 2.0
    assert gt.grad(lambda x: f(x, 0))(2.0) == 1.0
    with pytest.raises(np.linalg.LinAlgError):
        f(2.0, 1)
    with pytest.raises(np.linalg.LinAlgError):
        gt.jit(f)(2.0, 1)
