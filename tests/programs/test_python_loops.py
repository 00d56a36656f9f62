"""Plain Python around arrays: iteration, comprehensions, accumulation, indices, early exits, recursion; on tapes and in jit."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import gradtape as gt
from tests.support.differences import gradient_by_differences

Function = Callable[..., Any]
RNG = np.random.default_rng(0)
X = RNG.normal(size=5) + 0.1
M = RNG.normal(size=(3, 4))

FUNCTIONS: dict[str, tuple[Function, Any]] = {}


def entered(*args: Any) -> Callable[[Function], Function]:
    def enter(function: Function) -> Function:
        FUNCTIONS[function.__name__] = (function, args[0])
        return function

    return enter


@entered(X)
def iteration(x: Any) -> Any:
    total = 0
    for v in x:
        total += np.sin(v)
    return total


@entered(M)
def iteration_over_rows(m: Any) -> Any:
    total = np.zeros(4)
    for row in m:
        total = total + row**2 * np.sum(row)
    return np.sum(total)


@entered(M)
def iteration_over_elements(m: Any) -> Any:
    total = 1.0
    for row in m:
        for v in row:
            total = total * np.cos(v) + v
    return total


@entered(X)
def comprehension(x: Any) -> Any:
    return sum([v**2 for v in x if v > 0]) + max(v * 2 for v in x)


@entered(X)
def comprehension_of_a_dict(x: Any) -> Any:
    squares = {k: v**2 for k, v in enumerate(x)}
    return sum(k * v for k, v in squares.items())


@entered(X)
def enumeration(x: Any) -> Any:
    total = 0.0
    for k, v in enumerate(x, start=1):
        total += v**k
    return total


@entered(X)
def zipped(x: Any) -> Any:
    return sum(a * b for a, b in itertools.pairwise(x)) + sum(a * w for a, w in zip(x, range(5), strict=True))


@entered(X)
def integers(x: Any) -> Any:
    total = 0.0
    for k in range(len(x) - 1, -1, -2):
        total = total * x[k] + x[k - 1]
    return total


@entered(X)
def reversed_and_sorted(x: Any) -> Any:
    total = 0.0
    for k, v in enumerate(reversed(x)):
        total = total + k * v
    for k, v in enumerate(sorted(x)):
        total = total + k * v**2
    return total


@entered(X)
def unpacked(x: Any) -> Any:
    first, *middle, last = x
    (a, b), c = x[:2], x[2]
    return first * last + sum(middle) + a * b * c


@entered(X)
def tools(x: Any) -> Any:
    pairs = itertools.combinations(x, 2)
    total = functools.reduce(lambda s, v: s * 0.5 + v, x, 1.0)
    return total + sum(a * b for a, b in pairs) + sum(itertools.accumulate(x, lambda a, b: a * b))


@entered(X)
def list_stacked(x: Any) -> Any:
    found = []
    for v in x:
        product = v * np.exp(v)
        found.append(product)
    return np.sum(np.stack(found) * np.arange(5))


@entered(X)
def list_to_array(x: Any) -> Any:
    return np.sum(np.array([v**2 for v in x]) * np.asarray([1.0, *x[1:]]))


@entered(M)
def lists_of_lists(m: Any) -> Any:
    table = np.array([[v * (j + 1) for j, v in enumerate(row)] for row in m])
    again = np.asarray([[m[0, 0], 2.0], [3, m[1, 1]]])
    return np.sum(table**2) + np.sum(again @ again) + np.array([m[0], m[1]]).sum()


@entered(M)
def joined(m: Any) -> Any:
    parts = [row[k:] for k, row in enumerate(m)]
    return (
        np.sum(np.concatenate(parts) ** 2)
        + np.sum(np.hstack(parts))
        + np.vstack([row * 2 for row in m]).sum()
    )


@entered(X)
def preallocated(x: Any) -> Any:
    y = np.zeros(len(x), like=x)
    for k in range(len(x)):
        y[k] = x[k] ** 2 + (y[k - 1] if k else 0.0)
    return np.sum(y * y)


@entered(M)
def preallocated_rows(m: Any) -> Any:
    y = np.empty_like(m)
    for k, row in enumerate(m):
        y[k] = row * k
        y[k, 1:] += row[:-1]
        y[k, ::2] *= 2.0
    return np.sum(np.sin(y))


@entered(X)
def broken_off(x: Any) -> Any:
    total = 0.0
    for v in x:
        if total > 0.3:
            break
        total = total + v**2
    else:
        total = total * 100
    return total


@entered(X)
def passed_over(x: Any) -> Any:
    total = 0.0
    for v in x:
        if v < 0:
            continue
        total = total + np.sqrt(v)
    return total


@entered(X)
def early_return(x: Any) -> Any:
    for k, v in enumerate(x):
        if v < 0:
            return v * k + x[-1]
    return np.sum(x)


@entered(X)
def while_over_a_value(x: Any) -> Any:
    s, n = np.sum(x**2), 0
    while s > 0.01 and n < 30:
        s = s * 0.5
        n += 1
    return s * n


@entered(X)
def until_true(x: Any) -> Any:
    guess = np.float64(1.0)
    target = np.sum(x**2)
    while True:
        new = 0.5 * (guess + target / guess)
        if abs(new - guess) < 1e-12:
            return new
        guess = new


@entered(X)
def recursion(x: Any) -> Any:
    def tree(part: Any) -> Any:
        if len(part) == 1:
            return np.sin(part[0])
        half = len(part) // 2
        return tree(part[:half]) * tree(part[half:]) + part[0]

    return tree(x)


@entered(X)
def recursion_on_a_value(x: Any) -> Any:
    def shrunk(v: Any, depth: int = 0) -> Any:
        return v * depth if v < 0.05 else shrunk(v * 0.5, depth + 1)

    return sum(shrunk(np.abs(v)) for v in x)


@entered(X)
def generated(x: Any) -> Any:
    def running(x: Any) -> Iterator[Any]:
        total = 0.0
        for v in x:
            total = total + v
            yield total * v

    return sum(running(x))


@entered(X)
def containers(x: Any) -> Any:
    state = {"sum": 0.0, "terms": []}
    for v in x:
        state["sum"] = state["sum"] + v
        state["terms"].append(state["sum"] * v)
    tail = state["terms"].pop()
    return sum(state["terms"]) * tail


@entered(X)
def flags(x: Any) -> Any:
    return np.sum(x) * any(v > 0.5 for v in x) + (x[0] if all(v > -9 for v in x) else x[1])


@entered(X)
def index_of_a_value(x: Any) -> Any:
    k = int(np.argmax(x))
    return x[k] ** 2 + x[np.argmin(x)] + x[: k + 1].sum()


@entered(X)
def conditional_expressions(x: Any) -> Any:
    y = [v if v > 0 else 0.1 * v for v in x]
    return sum(y) * (1 if y[0] > y[1] else 2)


@entered(X)
def exceptions(x: Any) -> Any:
    total = 0.0
    for k in itertools.count():
        try:
            total = total + x[k] * k
        except IndexError:
            return total


@entered(X)
def matched(x: Any) -> Any:
    total = 0.0
    for k, v in enumerate(x):
        match k % 3:
            case 0:
                total += v
            case 1:
                total *= v
            case _:
                total -= v**2
    return total


functions = pytest.mark.parametrize(("function", "x"), FUNCTIONS.values(), ids=list(FUNCTIONS))


@functions
def test_values(function: Function, x: Any) -> None:
    wanted = function(x.copy())
    compiled = gt.jit(function)
    for _ in range(2):
        np.testing.assert_allclose(compiled(x), wanted, rtol=1e-12)
    np.testing.assert_allclose(float(function(gt.constant(x))), wanted, rtol=1e-12)


@functions
def test_gradients(function: Function, x: Any) -> None:
    wanted = gradient_by_differences(function, x)
    with gt.GradientTape() as tape:
        watched = tape.watch(x)
        y = function(watched)
    np.testing.assert_allclose(tape.gradient(y, watched).numpy(), wanted, atol=2e-7, rtol=1e-6)
    np.testing.assert_allclose(gt.grad(function)(x), wanted, atol=2e-7, rtol=1e-6)
    np.testing.assert_allclose(gt.jit(gt.grad(function))(x), wanted, atol=2e-7, rtol=1e-6)


# Lists that become arrays


def test_lists_of_followed_numbers_become_operations() -> None:
    with gt.GradientTape() as tape:
        x = tape.watch(X)
        for made in (
            np.array([x[0], 2.0]),
            np.asarray((x[1], x[0])),
            np.array([[x[0], 1], [2, x[1]]], dtype=np.float32),
            np.array([x[:2], x[2:4]], ndmin=3),
            np.array([x[0], x[1]], like=x),
        ):
            assert isinstance(made, gt.Array)
        assert made.shape == (2,)


def test_lists_without_followed_numbers_are_left_alone() -> None:
    known = gt.constant(X)
    with gt.GradientTape() as tape:
        tape.watch(2.0)
        assert type(np.array([known[0], 1.0])) is np.ndarray
        assert type(np.array([1.0, 2.0])) is np.ndarray
        assert type(np.array([X, X], like=X)) is np.ndarray
        assert np.array([[1, 2], [3, 4]], dtype="i2", order="F").flags.f_contiguous
        with pytest.raises(ValueError, match="inhomogeneous"):
            np.array([[1, 2], [3]])
        with pytest.raises(TypeError):
            np.array()


def test_ragged_lists_of_followed_numbers() -> None:
    with pytest.raises(ValueError, match="inhomogeneous"):
        gt.jit(lambda x: np.array([x[:2], x[:3]]))(X)


def test_numpy_has_its_own_functions_whoever_records() -> None:
    own = np.array, np.asarray
    with gt.GradientTape(), gt.GradientTape():
        assert np.array is own[0]
        assert np.array.__name__ == "array"
    assert (np.array, np.asarray) == own
    gt.grad(lambda x: np.sum(np.array([x, x * 2])))(1.0)
    with pytest.raises(ZeroDivisionError), gt.GradientTape():
        raise ZeroDivisionError
    assert (np.array, np.asarray) == own


def test_lists_in_transforms() -> None:
    def pendulum(state: Any) -> Any:
        angle, speed = state
        return np.array([speed, -np.sin(angle)])

    state = np.array([0.3, -0.2])
    jacobian = np.array([[0.0, 1.0], [-np.cos(0.3), 0.0]])
    np.testing.assert_allclose(gt.jacobian(pendulum)(state), jacobian)
    np.testing.assert_allclose(gt.jacfwd(pendulum)(state), jacobian)
    np.testing.assert_allclose(gt.vmap(pendulum)(np.stack([state, state]))[1], pendulum(state))
    wanted = state
    for _ in range(5):
        wanted = wanted + 0.1 * pendulum(wanted)
    found = gt.fori_loop(0, 5, lambda i, state: state + 0.1 * pendulum(state), state)
    np.testing.assert_allclose(found, wanted)


@pytest.mark.parametrize("steps", [10, 400])
def test_what_a_long_loop_leaves_is_a_source_of_a_tape(steps: int) -> None:
    """A value in the middle of a record has a gradient whether or not the record becomes a loop."""
    with gt.GradientTape(persistent=True) as tape:
        x = first = tape.watch(np.array([1.0, 2.0]))
        middle = x
        for k in range(steps):
            x = x + 0.1 * np.sin(x)
            if k == steps // 2:
                middle = x
        y = np.sum(x**2)
    for _ in range(3):
        np.testing.assert_allclose(tape.gradient(y, x), 2 * x.numpy())
        by_first, by_middle, by_last = tape.gradient(y, [first, middle, x])
        assert by_first is not None and by_middle is not None
        np.testing.assert_allclose(by_last, 2 * x.numpy())
    np.testing.assert_allclose(
        gt.grad(lambda x: np.sum(walked(x, steps // 2 + 1, steps) ** 2))(middle.numpy()), by_middle
    )


def walked(x: Any, first: int, last: int) -> Any:
    for _ in range(first, last):
        x = x + 0.1 * np.sin(x)
    return x


def test_routines_inside_of_a_loop() -> None:
    """A sort, a product that BLAS computes, and a system of equations in each turn."""
    weights = np.cos(np.arange(1600.0)).reshape(40, 40) / 8

    def function(x: Any) -> Any:
        y = np.ones((40, 40)) * x
        for _ in range(20):
            x = np.sort(x) * np.arange(1, 41) / 40 + 0.1 * x
            y = np.tanh(y @ weights)
            x = x + 0.01 * np.linalg.solve(weights + 4 * np.eye(40), x)
        return np.sum(x**2) + np.sum(y**2)

    x = np.linspace(1, 0, 40)
    value, slope = gt.value_and_grad(function)(x)
    np.testing.assert_allclose(value, function(x))
    step = 1e-6 * np.sin(np.arange(40.0))
    np.testing.assert_allclose(slope @ step, (function(x + step) - function(x - step)) / 2, rtol=1e-6)
