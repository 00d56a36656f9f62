"""Compiling ends: fixpoints converge, work is bounded per node, and what is deep or wide ends with a result or with a remedy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import pytest

import gradtape as gt
from gradtape.errors import CompileBudgetError, CompileWarning
from gradtape.ir.body import bodies_of
from gradtape.ir.budget import STEPS, STEPS_PER_NODE, budget, graph_size, spend, steps_since_now
from gradtape.ir.graph import Graph, Value
from gradtape.ir.types import aval
from gradtape.kinds.control import Structured
from gradtape.ops.core.elementwise.arithmetic import negative
from gradtape.passes import pipeline
from gradtape.passes.pipeline import optimise
from gradtape.passes.rewrite import rewrite

RNG = np.random.default_rng(10)


def slope(function: Callable[[Any], Any], x: Any, step: float = 1e-6) -> float:
    """Return the derivative along all ones by central differences."""
    return float((function(x + step) - function(x - step)) / (2 * step))


# Fixpoints


def test_a_loop_that_only_counts_its_turns_is_trimmed_once() -> None:
    """What is left of the forward loop is the number of its turns, which the way back is told."""
    gradient = gt.grad(lambda x, n: gt.fori_loop(0, n, lambda i, c: c + x, 0.0))
    assert gradient(4.0, 3) == 3.0
    assert gradient(4.0, 0) == 0.0
    both = gt.value_and_grad(lambda x, n: gt.fori_loop(0, n, lambda i, c: c * x, 1.0))
    assert both(2.0, 5) == (32.0, 80.0)


def test_bodies_that_never_stay_as_they_are_do_not_keep_the_passes_going() -> None:
    """A pass that changes a body in each round, and does not make it smaller, is run a few times."""
    graph = traced(lambda x: gt.fori_loop(0, 3, lambda i, c: np.sin(c) * x, x), 0.5)
    rounds = 0

    def restless(graph: Graph) -> Graph:
        nonlocal rounds
        rounds += 1
        return rewrite(graph, lambda node, inputs: node.copy(inputs).outs)

    with mock.patch.object(pipeline, "trim_loops", restless):
        passes = tuple(restless if step.__name__ == "trim_loops" else step for step in pipeline.PASSES)
        with mock.patch.object(pipeline, "PASSES", passes):
            pipeline._prepared_body.cache_clear()
            optimise(graph)
            pipeline._prepared_body.cache_clear()
    assert rounds < 20


def test_a_pass_that_does_not_end_is_stopped() -> None:
    x = Value(aval((2,), np.dtype(float)))
    y = negative(x)
    assert y.node is not None
    graph = Graph([x], [y.node], [y])
    rounds = 0
    with pytest.raises(CompileBudgetError, match="steps"), budget(graph):
        while True:
            graph = rewrite(graph, lambda node, inputs: node.copy(inputs).outs)
            rounds += 1
    assert rounds <= STEPS + STEPS_PER_NODE


def test_what_goes_over_its_budget_runs_on_the_interpreter() -> None:
    def endless(graph: Graph) -> Graph:
        while True:
            spend(1)

    with (
        mock.patch.object(pipeline, "PASSES", (*pipeline.PASSES, endless)),
        gt.config.override(disk_cache=False),
        pytest.warns(CompileWarning, match="took more than 5[0-9],000 steps"),
    ):
        assert gt.jit(lambda x: x * 3.25 - 1.125)(2.0) == 5.375


def test_a_budget_is_given_back() -> None:
    x = Value(aval((), np.dtype(float)))
    with budget(Graph([x], [], [x])), pytest.raises(CompileBudgetError):
        spend(10**9)
    spend(10**9)


def test_the_size_of_a_graph_counts_bodies() -> None:
    graph = traced(lambda x: gt.fori_loop(0, 3, lambda i, c: np.sin(c) * x, x), 0.5)
    inside = [
        len(body.nodes) for node in graph.nodes if isinstance(node.op, Structured) for body in bodies_of(node)
    ]
    assert inside
    assert graph_size(graph) == len(graph.nodes) + sum(inside)


def traced(function: Callable[..., Any], *args: Any) -> Graph:
    compiled = gt.jit(function)
    compiled(*args)
    made = compiled.site.specialisations()
    (specialisation,) = made
    return specialisation.graph


# Elements that are read at many positions: the scheduler must not follow each


def stencils(u: Any, axes: tuple[int, ...], rounds: int) -> Any:
    for k in range(rounds):
        total = u * (0.1 + 0.01 * k)
        for axis in axes:
            total = total + 0.1 * (np.roll(u, 1, axis) + np.roll(u, -1, axis))
        u = total
    return np.sum(u * u)


def slices(u: Any) -> Any:
    for k in range(80):
        u = u[1:] * 0.5 + u[:-1] * (0.1 * (k % 7))
    return np.sum(u)


def reversals(u: Any) -> Any:
    for k in range(150):
        u = u[1:] if k % 3 else u[::-1]
    return np.sum(u * u)


def reshapes(u: Any) -> Any:
    for k in range(30):
        u = (u.T if k % 2 else u.reshape(6, 5)).reshape(5, 6)
    return np.sum(u**3)


def rotations(u: Any) -> Any:
    for k in range(40):
        u = np.concatenate([u[2:], u[:2]]) if k % 2 else np.concatenate([u[5:], u[:5] * 0.9])
    return np.sum(u**2)


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (lambda u: stencils(u, (0, 1, 2), 4), (3, 3, 3)),
        (lambda u: stencils(u, (0, 1), 6), (4, 4)),
        (slices, (120,)),
        (reversals, (160,)),
        (reshapes, (5, 6)),
        (rotations, (11,)),
    ],
    ids=["stencils-3d", "stencils-2d", "slices", "reversals", "reshapes", "rotations"],
)
def test_chains_of_shifts_and_reshapes_compile(
    function: Callable[[Any], Any], shape: tuple[int, ...]
) -> None:
    x = RNG.random(shape)
    with gt.config.override(reroll=False):
        value, gradient = gt.value_and_grad(function)(x)
    np.testing.assert_allclose(value, function(x), rtol=1e-12)
    np.testing.assert_allclose(gradient.sum(), slope(function, x), rtol=1e-6, atol=1e-8)


def test_views_of_views_are_followed_without_recursion() -> None:
    def last(x: Any) -> Any:
        view = x
        for _ in range(1100):
            view = view[1:]
        return np.sum(view * view)

    x = RNG.random(1103)
    with gt.config.override(reroll=False):
        gradient = gt.grad(last)(x)
    np.testing.assert_array_equal(gradient, np.where(np.arange(1103) < 1100, 0.0, 2 * x))
    base = gt.constant(np.zeros(1101))
    view = base
    for _ in range(1100):
        view = view[1:]
    base += 1.0
    assert float(view[0]) == 1.0


def test_a_number_that_is_squared_again_and_again_is_one_chain() -> None:
    def squares(x: Any) -> Any:
        y = x
        for _ in range(60):
            y = y * y
        return y

    with gt.config.override(reroll=False):
        assert gt.grad(squares)(1.0) == 2.0**60


# Loops with several states


def wave(u: Any, v: Any, turns: Any) -> Any:
    def step(state: Any, _: Any) -> Any:
        u, v = state
        return (u + 0.01 * np.roll(v, 1), v - 0.01 * np.roll(u, -1)), None

    return gt.scan(step, (u, v), None, length=turns)[0]


@pytest.mark.parametrize("turns", [2, 3, 40, 41])
def test_two_arrays_that_take_turns_come_home(turns: int) -> None:
    """Each is copied to where it belongs behind the loop: phi nodes before all addresses and copies."""
    u, v = RNG.random(130), RNG.random(130)
    got = gt.jit(lambda u, v: wave(u, v, turns))(u, v)
    want_u, want_v = u, v
    for _ in range(turns):
        want_u, want_v = want_u + 0.01 * np.roll(want_v, 1), want_v - 0.01 * np.roll(want_u, -1)
    np.testing.assert_allclose(got[0], want_u, rtol=1e-12)
    np.testing.assert_allclose(got[1], want_v, rtol=1e-12)


def test_the_gradient_of_a_loop_with_two_arrays() -> None:
    def energy(u: Any, v: Any) -> Any:
        u, v = wave(u, v, 25)
        return np.sum(u**2 * v)

    u, v = RNG.random(100), RNG.random(100)
    gu, gv = gt.grad(energy, argnums=(0, 1))(u, v)
    with gt.config.override(jit=False):
        want_u, want_v = gt.grad(energy, argnums=(0, 1))(u, v)
    np.testing.assert_allclose(gu, want_u, rtol=1e-10)
    np.testing.assert_allclose(gv, want_v, rtol=1e-10)


# What is deep or wide


def zigzag(x: Any, count: int) -> Any:
    """Return what a straight line without a period computes."""
    numbers = np.random.default_rng(3).integers(0, 4, count)
    for number in numbers:
        x = (np.sqrt(x * x + 0.01), x * 1.001, x + 0.01, x - 0.01)[number]
    return np.sum(x)


def test_a_straight_line_too_long_to_compile_runs_on_the_interpreter() -> None:
    with (
        mock.patch("gradtape.ir.budget.NODES", 300),
        pytest.warns(CompileWarning, match=r"straight line of [0-9,]+ operations.*\n.*gt\.scan"),
    ):
        gradient = gt.grad(lambda x: zigzag(x, 400))(np.full(3, 0.5))
    np.testing.assert_allclose(gradient.sum(), slope(lambda x: zigzag(x, 400), np.full(3, 0.5)), rtol=1e-5)


def test_many_small_operations_of_a_tape_are_interpreted_at_first_sight() -> None:
    with gt.GradientTape() as tape:
        x = tape.watch(np.full(200, 0.5))
        y = zigzag(x, 3000)
    with mock.patch("gradtape.runtime.compile.kernel.compile_object", side_effect=AssertionError("compiled")):
        gradient = np.asarray(tape.gradient(y, x))
    assert gradient.shape == (200,)


def test_a_hard_dynamic_time_warping_of_nested_lists() -> None:
    def distance(a: Any, b: Any) -> Any:
        n = len(a)
        table = [[float("inf")] * (n + 1) for _ in range(n + 1)]
        table[0][0] = 0.0
        for i in range(1, n + 1):
            for j in range(1, n + 1):
                best = min(table[i - 1][j], table[i][j - 1], table[i - 1][j - 1])
                table[i][j] = (a[i - 1] - b[j - 1]) ** 2 + best
        return table[n][n]

    a, b = RNG.random(9), RNG.random(9)
    value, gradient = gt.value_and_grad(distance)(a, b)
    assert value == pytest.approx(distance(a, b))
    assert gradient.sum() == pytest.approx(slope(lambda a: distance(a, b), a), rel=1e-5)
    with gt.GradientTape() as tape:
        x = tape.watch(a)
        y = distance(x, b)
    np.testing.assert_allclose(tape.gradient(y, x), gradient)


def test_thousands_of_appended_operations() -> None:
    def appended(x: Any) -> Any:
        parts = []
        for k in range(4_000):
            parts.append(x[k % 4] * (k % 10))  # noqa: PERF401 - as programs do
        return sum(parts)

    x = RNG.random(4)
    with gt.GradientTape() as tape:
        watched = tape.watch(x)
        y = appended(watched)
    want = [sum(k % 10 for k in range(j, 4_000, 4)) for j in range(4)]
    np.testing.assert_allclose(tape.gradient(y, watched), want)


def endless(x: Any) -> Any:
    return endless(x * 0.5) + x


@pytest.mark.parametrize("transform", [gt.jit, gt.grad, gt.value_and_grad, gt.hessian])
def test_a_recursion_without_end_says_what_to_do(transform: Callable[..., Any]) -> None:
    with pytest.raises(RecursionError) as caught:
        transform(endless)(1.0)
    (note,) = caught.value.__notes__
    assert "setrecursionlimit" in note and "gt.while_loop" in note


def test_containers_nested_too_deep_say_what_to_do() -> None:
    nested: Any = 1.0
    for _ in range(3000):
        nested = [nested]
    with pytest.raises(RecursionError) as caught:
        gt.grad(lambda x: 2.0)(nested)
    (note,) = caught.value.__notes__
    assert "nested containers" in note


def test_a_recursion_on_a_tape_says_what_to_do() -> None:
    with pytest.raises(RecursionError) as caught, gt.GradientTape() as tape:
        endless(tape.watch(np.ones(2)))
    (note,) = caught.value.__notes__
    assert "the block of a tape" in note


def test_a_recursion_that_ends_is_followed() -> None:
    def tower(x: Any, height: int) -> Any:
        return x if height == 0 else np.sin(tower(x, height - 1)) + 0.5 * x

    gradient = gt.grad(lambda x: tower(x, 200))(0.7)
    assert gradient == pytest.approx(slope(lambda x: tower(x, 200), 0.7), rel=1e-5)


# Matrix routines in loops

SIZE = 5
EYE, RHS = np.eye(SIZE), RNG.normal(size=SIZE)
BODIES: dict[str, Callable[[Any, Any], Any]] = {
    "inverse": lambda w, x: np.tanh(np.linalg.inv(w + EYE) @ RHS + x) * 0.5,
    "solution": lambda w, x: np.tanh(np.linalg.solve(w + EYE + np.outer(x, x), RHS)) * 0.5,
    "chain": lambda w, x: np.tanh(np.linalg.inv(np.tanh(np.linalg.inv(w + EYE)) + 2 * EYE) @ x + RHS) * 0.5,
    "determinant": lambda w, x: np.tanh(np.linalg.det(w + EYE + np.outer(x, x)) * x + RHS) * 0.2,
    "cholesky": lambda w, x: np.tanh(np.linalg.cholesky(w @ w.T + EYE + np.outer(x, x)) @ RHS) * 0.2,
    "singular values": lambda w, x: np.tanh(np.linalg.svd(w + EYE + np.outer(x, x))[1] + x) * 0.2,
    "transform": lambda w, x: np.tanh(np.real(np.fft.ifft(np.fft.fft(w @ x) * np.fft.fft(RHS)))) * 0.2,
    "sorted": lambda w, x: np.tanh(np.sort(w @ x + RHS) + x) * 0.2,
    "products": lambda w, x: np.tanh(w @ (w @ (w @ (w @ (w @ (x + RHS)))))) + x * 0.2,
    "loop": lambda w, x: gt.fori_loop(
        0, 3, lambda i, y: np.tanh(np.linalg.inv(w + EYE + i * EYE) @ y + RHS) * 0.3, x
    ),
    "until": lambda w, x: gt.while_loop(
        lambda y, k: k < 3, lambda y, k: (np.tanh(np.linalg.solve(w + EYE, y)) * 0.5, k + 1), (x, 0)
    )[0],
}


@pytest.mark.parametrize("name", BODIES)
def test_gradients_of_loops_with_matrix_routines_compile_within_steps(name: str) -> None:
    """Such a loop once kept the passes going without end: what is the same in each iteration leaves it, behind a branch."""

    def f(w: Any) -> Any:
        def goes_on(x: Any, y: Any) -> Any:
            return np.max(np.abs(x - y)) > 1e-3

        start = np.zeros(SIZE)
        ends = gt.while_loop(
            goes_on, lambda x, y: (BODIES[name](w, x), x), (start, start + 1), max_iterations=50
        )
        return np.sum(ends[0])

    w = np.random.default_rng(0).normal(size=(SIZE, SIZE)) * 0.1
    taken = steps_since_now()
    with gt.config.override(disk_cache=False):
        loss, gradient = gt.jit(gt.value_and_grad(f))(w)
    assert 0 < taken() < 25_000
    direction = np.linspace(-0.4, 0.5, SIZE * SIZE).reshape(SIZE, SIZE)
    np.testing.assert_allclose(
        np.sum(gradient * direction), slope(lambda t: f(w + t * direction), 0.0), rtol=1e-4
    )
    assert loss == f(w) or abs(loss - f(w)) < 1e-12


def test_the_gradient_of_a_loop_that_inverts_a_large_matrix_compiles_within_steps() -> None:
    """The forward loop, of which nothing is left but the trip count, was trimmed again and again: small matrices did not show it."""
    size = 256
    eye, rhs = np.eye(size), np.ones(size)

    def f(x: Any, w: Any, n: Any) -> Any:
        def body(i: Any, c: Any) -> Any:
            return i + 1, np.tanh(np.linalg.inv(w + eye) @ c + x)

        return np.sum(gt.while_loop(lambda i, c: i < n, body, (0, x))[1])

    w = np.random.default_rng(0).normal(size=(size, size)) / 30
    taken = steps_since_now()
    with gt.config.override(disk_cache=False):
        by_x, by_w = gt.jit(gt.grad(f, argnums=(0, 1)))(rhs, w, 2)
    assert 0 < taken() < 10_000
    np.testing.assert_allclose(np.sum(by_x), slope(lambda t: f(rhs + t, w, 2), 0.0), rtol=1e-4)
    direction = np.eye(size)
    np.testing.assert_allclose(
        np.sum(by_w * direction), slope(lambda t: f(rhs, w + t * direction, 2), 0.0), rtol=1e-4
    )
