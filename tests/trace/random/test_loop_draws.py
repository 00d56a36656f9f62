"""Draws in the bodies of loops with known trip count: NumPy's numbers, in the order of the iterations."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import pytest

import gradtape as gt

XS = np.array([0.1, 0.2, 0.3])


class Twins:
    """Two generators, and the same ones for plain NumPy code."""

    def __init__(self) -> None:
        self.one, self.two = np.random.default_rng(1), np.random.default_rng(2)

    def same(self, other: Twins) -> bool:
        pairs = (self.one, other.one), (self.two, other.two)
        return all(a.bit_generator.state == b.bit_generator.state for a, b in pairs)

    def step(self, c: Any, x: Any) -> tuple[Any, Any]:
        c = 0.9 * c + self.one.normal(x, c * c) + np.sum(self.two.integers(0, 5, 3))
        return c, self.two.standard_exponential(2) * x + self.one.uniform(0, x)

    def expected(self, c: Any, xs: Any, reverse: bool = False) -> tuple[Any, Any]:
        out: list[Any] = [None] * len(xs)
        for i in reversed(range(len(xs))) if reverse else range(len(xs)):
            c, out[i] = self.step(c, xs[i])
        return c, np.array(out)


@pytest.mark.parametrize("reverse", [False, True])
def test_scans_draw_in_the_order_of_numpy(reverse: bool) -> None:
    traced, plain = Twins(), Twins()
    scan = gt.jit(lambda xs: gt.scan(traced.step, 0.5, xs, reverse=reverse))
    for _ in range(3):
        for found, wanted in zip(scan(XS), plain.expected(0.5, XS, reverse), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-13)
        assert traced.same(plain)
    assert scan.site.traces == 1


def test_loops_outside_of_traces_and_on_tapes_draw_at_once() -> None:
    traced, plain = Twins(), Twins()
    found = gt.scan(traced.step, 0.5, XS)
    np.testing.assert_allclose(found[1], plain.expected(0.5, XS)[1], rtol=1e-13)
    with gt.GradientTape() as tape:
        x = tape.watch(np.array(1.0))
        y = gt.fori_loop(0, 4, lambda i, y: 0.5 * y + traced.one.random() * i, x)
    wanted = 1.0
    for i in range(4):
        wanted = 0.5 * wanted + plain.one.random() * i
    np.testing.assert_allclose(y, wanted)
    np.testing.assert_allclose(tape.gradient(y, x), 0.5**4)
    assert traced.same(plain)


def test_nested_loops_and_draws_around_them() -> None:
    traced, plain = Twins(), Twins()

    def rows(source: Any, loop: Any, x: Any) -> Any:
        x = x * source.random()
        x = loop(3, lambda i, y: loop(2, lambda j, z: z * source.random() + i, y) + source.normal(), x)
        return x + source.random()

    def python_loop(n: int, body: Any, x: Any) -> Any:
        for i in range(n):
            x = body(i, x)
        return x

    compiled = gt.jit(lambda x: rows(traced.one, lambda n, body, x: gt.fori_loop(0, n, body, x), x))
    for _ in range(3):
        np.testing.assert_allclose(compiled(2.0), rows(plain.one, python_loop, 2.0), rtol=1e-13)
        assert traced.same(plain)


def test_derivatives_and_maps_draw_once() -> None:
    traced, plain = Twins(), Twins()

    def product(source: Any, x: Any) -> Any:
        return gt.fori_loop(0, 3, lambda i, y: y * source.random(), x)

    slope = np.prod(plain.one.random(3))
    np.testing.assert_allclose(gt.grad(lambda x: product(traced.one, x))(2.0), slope, rtol=1e-13)
    slope = np.prod(plain.one.random(3))
    np.testing.assert_allclose(gt.vmap(lambda x: product(traced.one, x))(XS), slope * XS, rtol=1e-13)
    assert traced.same(plain)


def test_the_legacy_functions() -> None:
    compiled = gt.jit(lambda xs: gt.map(lambda x: x + np.random.normal() * np.random.rand(2), xs))
    np.random.seed(0)
    found = [compiled(XS), compiled(XS)]
    np.random.seed(0)
    wanted = [[x + np.random.normal() * np.random.rand(2) for x in XS] for _ in range(2)]
    np.testing.assert_allclose(found, wanted, rtol=1e-13)


def test_a_loop_without_iterations_draws_nothing() -> None:
    traced, plain = Twins(), Twins()
    assert gt.jit(lambda x: gt.fori_loop(0, 0, lambda i, y: y + traced.one.random(), x))(2.0) == 2.0
    assert traced.same(plain)


def test_a_branch_that_misses_draws_again() -> None:
    traced, plain = Twins(), Twins()

    def f(source: Any, loop: Any, x: Any) -> Any:
        total = loop(x, source)
        return total * 2 if total > 1.5 else total

    compiled = gt.jit(
        lambda x: f(traced.one, lambda x, s: gt.fori_loop(0, 3, lambda i, y: y + s.random(), x), x)
    )
    for _ in range(8):
        wanted = f(plain.one, lambda x, s: x + s.random() + s.random() + s.random(), 0.1)
        np.testing.assert_allclose(compiled(0.1), wanted, rtol=1e-13)
        assert traced.same(plain)


def test_the_chosen_branch_draws() -> None:
    traced, plain = np.random.default_rng(5), np.random.default_rng(5)

    def drawn(rng: Any, choice: Any, x: Any) -> Any:
        return choice(x > 0, lambda: x * rng.normal(x) + rng.uniform(), lambda: x + rng.exponential())

    def python(chosen: Any, first: Any, second: Any) -> Any:
        return first() if chosen else second()

    value_and_slope = gt.value_and_grad(lambda x: drawn(traced, gt.cond, x) + traced.random())
    for x in (2.0, -2.0, 2.0):
        noise = deepcopy(plain).normal()
        value, slope = value_and_slope(x)
        np.testing.assert_allclose(value, drawn(plain, python, x) + plain.random(), rtol=1e-14)
        np.testing.assert_allclose(slope, noise + 2 * x if x > 0 else 1.0)
        assert plain.bit_generator.state == traced.bit_generator.state
    with gt.GradientTape() as tape:
        x = tape.watch(-3.0)
        y = drawn(traced, gt.cond, x)
    np.testing.assert_allclose(y, drawn(plain, python, -3.0))
    np.testing.assert_allclose(tape.gradient(y, x), 1.0)
    with pytest.raises(gt.errors.UnsupportedFunctionError, match="an iteration"):
        gt.vmap(lambda x: drawn(traced, gt.cond, x))(XS)


def test_branches_in_branches_and_choices_that_are_drawn() -> None:
    def walk(rng: Any, switch: Any, x: Any) -> Any:
        k = rng.integers(4)
        inner = [lambda: x * rng.normal(), lambda: x + rng.gamma(x)]
        return switch(k, [lambda: switch(k - 1, inner), lambda: x, lambda: rng.random(2)[0] * x])

    def python(k: Any, functions: Any) -> Any:
        return functions[min(max(int(k), 0), len(functions) - 1)]()

    traced, plain = np.random.default_rng(5), np.random.default_rng(5)
    compiled = gt.jit(lambda x: walk(traced, gt.switch, x))
    for _ in range(8):
        np.testing.assert_allclose(compiled(1.5), walk(plain, python, 1.5), rtol=1e-14)
    assert compiled.site.traces == 1


def test_samplers_with_parameters_from_outside() -> None:
    def body(rng: Any, a: Any, c: Any) -> Any:
        return 0.5 * c + rng.gamma(a + 1) * rng.normal(a) + rng.beta(a, 2.0)

    traced, plain = np.random.default_rng(5), np.random.default_rng(5)
    compiled = gt.jit(lambda a: gt.fori_loop(0, 3, lambda i, c: body(traced, a, c), a))
    for a in (0.7, 1.9):
        wanted = a
        for _ in range(3):
            wanted = body(plain, a, wanted)
        np.testing.assert_allclose(compiled(a), wanted, rtol=1e-14)
    mean = gt.grad(lambda a: gt.fori_loop(0, 4000, lambda i, c: c + traced.gamma(a), 0 * a) / 4000)
    assert np.isclose(mean(2.0), 1.0, atol=0.05)
