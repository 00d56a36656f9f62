"""Strip mining across loops: reversed loops over long arrays run strip by strip, and their records are scratch memory of a strip."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import gradtape as gt
from gradtape.api.inspect.views import _specialisation
from gradtape.loops.ir import For, LoopProgram, SequentialFor
from gradtape.loops.passes import strip_mine
from gradtape.loops.passes.strip_mine import LONG
from gradtape.lower.pipeline import lower, schedule_of
from gradtape.runtime.interpret import interpret
from gradtape.statements import walk
from tests.support.lowering import Compiled

Array = np.ndarray[Any, Any]


@pytest.fixture
def small_strips(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut loops over 128 elements and more, and those with 4 KB of records."""
    monkeypatch.setattr(strip_mine, "LONG", 128)
    monkeypatch.setattr(strip_mine, "LARGE", 2**12)
    monkeypatch.setattr(strip_mine, "ROOM", 2**14)


@pytest.fixture(autouse=True)
def as_traces() -> Any:
    with gt.config.override(loops="trace"):
        yield


def graph_for(function: Callable[..., Any], arrays: Sequence[Array]) -> Any:
    return _specialisation(function, arrays, {}).graph


def strips_of(program: LoopProgram) -> list[SequentialFor]:
    """Return the loops over strips."""
    return [s for s in walk(program.body) if isinstance(s, SequentialFor) and s.var.name.endswith("_number")]


def agree(function: Callable[..., Any], arrays: Sequence[Array], rtol: float = 1e-9) -> LoopProgram:
    """Check that machine code and the interpreter agree; return the loops."""
    graph = graph_for(function, arrays)
    for got, want in zip(Compiled(graph)(arrays), interpret(graph, arrays), strict=True):
        np.testing.assert_allclose(got, want, rtol=rtol, atol=1e-12)
    return schedule_of(graph)


def sines(x: Array) -> Any:
    y = x
    for _ in range(300):
        y = np.sin(y) + x
    return np.sum(y)


def test_records_of_a_reversed_loop_are_those_of_a_strip() -> None:
    graph = graph_for(gt.value_and_grad(sines), [np.zeros(1_000_000)])
    program = schedule_of(graph)
    (loop,) = strips_of(program)
    assert sum(isinstance(s, SequentialFor) for s in loop.body) == 2  # forward and back
    assert lower(graph).workspace_bytes < 2**21
    outermost = [s for s in program.body if isinstance(s, For | SequentialFor)]
    assert outermost == [loop]


def test_machine_code_keeps_no_records() -> None:
    """The loops are no kernels of their own then, which would hand all records on."""
    called = gt.value_and_grad(sines)
    x = np.linspace(0, 1, 20_000)
    called(x)
    kernel = _specialisation(called, (), {}).program.kernel
    assert kernel.workspace < 2**21


@pytest.mark.parametrize("size", (64, 1000, LONG - 1))
def test_what_fits_in_the_second_cache_is_not_cut(size: int) -> None:
    def few(x: Array) -> Any:
        y = x
        for _ in range(10):
            y = np.sin(y) + x
        return np.sum(y)

    assert not strips_of(schedule_of(graph_for(gt.value_and_grad(few), [np.zeros(size)])))


@pytest.mark.parametrize(
    ("size", "dtype"),
    [(128, np.float64), (129, np.float64), (257, np.float64), (1000, np.float64), (257, np.float32)],
)
@pytest.mark.usefixtures("small_strips")
def test_elements_that_are_left_over(size: int, dtype: Any) -> None:
    def loss(x: Array, p: Array) -> Any:
        y, z = x, x * 0.5
        for _ in range(8):
            y, z = np.sin(y) * p[0] + z, np.cos(y) - z * p[1]
        return np.sum(y * z)

    rng = np.random.default_rng(size)
    arrays = [rng.standard_normal(size).astype(dtype), np.array([0.5, 0.3], dtype)]
    rtol = 1e-9 if dtype is np.float64 else 1e-3
    for function in (
        gt.value_and_grad(loss, argnums=(0, 1)),
        gt.jit(lambda x, p: gt.jvp(loss, (x, p), (x, p))),
        gt.jit(lambda x, p: gt.vjp(loss, x, p)[1](x[0])),
        gt.grad(lambda x, p: np.sum(gt.grad(loss)(x, p) ** 2)),
    ):
        program = agree(function, arrays, rtol)
        assert strips_of(program)


@pytest.mark.usefixtures("small_strips")
def test_sums_over_elements_in_each_iteration_are_added_strip_by_strip() -> None:
    def loss(x: Array, steps: Array, p: Array) -> Any:
        def step(y: Any, t: Any) -> Any:
            y = np.tanh(y * t) + p[0] * x
            return y, np.sum(y * p[1])

        y, sums = gt.scan(step, x, steps)
        return np.sum(y) + np.sum(sums)

    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(200), rng.standard_normal(30), np.array([0.3, 0.7])]
    program = agree(gt.value_and_grad(loss, argnums=(0, 1, 2)), arrays)
    (loop,) = strips_of(program)
    assert sum(isinstance(s, SequentialFor) for s in loop.body) == 2
    assert all(buffer.size < 30 * 200 for buffer in program.scratch)


@pytest.mark.usefixtures("small_strips")
def test_loops_that_read_neighbours_or_depend_on_a_sum_stay_whole() -> None:
    def heat(x: Array) -> Any:
        for _ in range(20):
            x = x + 0.1 * (np.roll(x, 1) - 2 * x + np.roll(x, -1))
        return np.sum(x**2)

    def normalised(x: Array) -> Any:
        for _ in range(20):
            x = np.sin(x)
            x = x / np.sum(x)
        return np.sum(x**2)

    x = np.random.default_rng(0).uniform(0.5, 1.0, 300)
    for function in (heat, normalised):
        assert not strips_of(agree(gt.value_and_grad(function), [x]))


@pytest.mark.usefixtures("small_strips")
def test_a_seed_that_depends_on_all_elements_comes_between_two_groups() -> None:
    def loss(x: Array) -> Any:
        y = x
        for _ in range(40):
            y = np.sin(y) + x
        return np.sqrt(np.sum(y**2))

    program = agree(gt.value_and_grad(loss), [np.random.default_rng(0).standard_normal(300)])
    assert len(strips_of(program)) == 2


@pytest.mark.usefixtures("small_strips")
def test_loops_that_begin_the_carries_of_a_loop_over_a_stack_are_cut_along() -> None:
    def root(a: Array) -> Any:
        def goes_on(x: Any, change: Any) -> Any:
            return np.max(np.abs(change)) > 1e-12

        def step(x: Any, change: Any) -> Any:
            change = (x * x - a) / (2 * x)
            return x - change, change

        return np.sum(gt.while_loop(goes_on, step, (a * 0 + 1, a * 0 + 1))[0])

    program = agree(gt.value_and_grad(root), [np.random.default_rng(0).uniform(1, 2, 300)])
    (loop,) = strips_of(program)
    first, second, *_ = loop.body
    assert isinstance(first, For) and isinstance(second, For)


def _random_loss(choose: random.Random) -> tuple[Callable[..., Any], list[Array]]:
    """Return a loss over a loop whose arrays have a long axis and perhaps a short one, and its arguments."""
    n, steps, count = choose.choice([128, 130, 257, 400]), choose.choice([2, 3, 7]), choose.choice([1, 2, 3])
    short, is_first = choose.choice([0, 0, 2, 3]), choose.random() < 0.5
    shape = (n,) if not short else (n, short) if is_first else (short, n)
    rng = np.random.default_rng(choose.randrange(10**6))
    arrays = [
        rng.standard_normal(shape) * 0.5,
        rng.standard_normal(4) * 0.3,
        rng.standard_normal((steps, *shape)) * 0.2,
        rng.standard_normal(steps) * 0.2,
        rng.standard_normal(n) * 0.2,
    ]
    chosen = [choose.randrange(9) for _ in range(3 * count)]
    is_summed, is_mixed, end = choose.random() < 0.4, choose.random() < 0.3, choose.randrange(4)

    def wide(w: Any) -> Any:
        return w[:, None] if short and is_first else w

    def updated(a: Any, b: Any, choice: int, x: Any, p: Any, z: Any, t: Any, w: Any) -> Any:
        if choice == 8 and short:
            return a + 0.1 * np.sum(b, axis=1 if is_first else 0, keepdims=True)
        return [
            lambda: np.sin(a) + x,
            lambda: a * p[0] + b * 0.5,
            lambda: np.tanh(a) * np.cos(b),
            lambda: a + z * p[1],
            lambda: a * t + 0.1 * b,
            lambda: np.where(b > 0, a, 0.5 * a),
            lambda: a + wide(w) * p[2],
            lambda: np.maximum(a, b * 0.9) * 0.9,
            lambda: a / (1 + b * b),
        ][choice]()

    def loss(x: Array, p: Array, zs: Array, ts: Array, w: Array) -> Any:
        def step(carry: Any, element: Any) -> Any:
            arrays, s = carry
            z, t = element
            following = []
            for k in range(count):
                a = arrays[k]
                for choice in chosen[3 * k : 3 * k + 3]:
                    a = updated(a, arrays[(k + 1) % count], choice, x, p, z, t, w)
                following.append(a)
            s = s * 0.9 + 0.1 * np.mean(arrays[0]) if is_mixed else s + t
            return (tuple(following), s), np.sum(following[-1] * p[0]) if is_summed else s

        first = tuple(x * (0.5 * (k + 1)) for k in range(count))
        (ends, s), ys = gt.scan(step, (first, p[3]), (zs, ts))
        y = sum(ends[1:], ends[0])
        total = [
            lambda: np.sum(y),
            lambda: np.mean(y * y),
            lambda: np.sum(np.exp(-y * y) * wide(w)),
            lambda: np.sqrt(np.mean(y**2) + 1),
        ][end]()
        return total + s + 0.1 * np.sum(ys)

    return loss, arrays


@pytest.mark.parametrize("seed", range(16))
@pytest.mark.usefixtures("small_strips")
def test_random_loops(seed: int) -> None:
    choose = random.Random(seed)
    loss, arrays = _random_loss(choose)
    if choose.random() < 0.7:
        agree(gt.value_and_grad(loss, argnums=(0, 1, 3, 4)), arrays)
    else:
        agree(gt.jit(lambda *args: gt.jvp(loss, args, args)), arrays)


@pytest.mark.usefixtures("small_strips")
def test_most_random_loops_are_cut() -> None:
    """Otherwise the test above would be of nothing."""
    cut = 0
    for seed in range(12):
        loss, arrays = _random_loss(random.Random(seed))
        graph = graph_for(gt.value_and_grad(loss, argnums=(0, 1, 3, 4)), arrays)
        cut += bool(strips_of(schedule_of(graph)))
    assert cut >= 6
