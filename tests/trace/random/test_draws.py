"""Random numbers in compiled functions and on tapes: the streams of NumPy's generators, and when they are drawn from."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as gt
from gradtape.errors import UnsupportedFunctionError
from tests.support.processes import words_printed

Generator = np.random.Generator


def same_state(one: Generator, other: Generator) -> bool:
    return bool(one.bit_generator.state == other.bit_generator.state)


def twins(seed: int = 0) -> tuple[Generator, Generator]:
    return np.random.default_rng(seed), np.random.default_rng(seed)


def test_each_call_draws_anew_in_the_stream_of_numpy() -> None:
    rng, plain = twins()

    def f(x: Any, generator: Any = None) -> Any:
        source = rng if generator is None else generator
        return x * source.normal(size=3) + source.random() + source.integers(0, 9, 3)

    compiled = gt.jit(f)
    for _ in range(3):
        np.testing.assert_array_equal(compiled(2.0), f(2.0, plain))
        assert same_state(rng, plain)
    assert compiled.site.traces == 1


def test_the_generator_may_be_another_one_in_each_call() -> None:
    f = gt.jit(lambda x, rng: x + rng.normal(x, 1.0, 3))
    for seed in range(3):
        rng, plain = twins(seed)
        np.testing.assert_array_equal(f(1.5, rng), 1.5 + plain.normal(1.5, 1.0, 3))
        assert same_state(rng, plain)
    assert f.site.traces == 1

    class Model:
        def __init__(self, seed: int) -> None:
            self.rng = np.random.default_rng(seed)

        def __call__(self, x: Any) -> Any:
            return x * self.rng.uniform(size=2)

    g = gt.jit(lambda x, model: model(x))
    for seed in range(3):
        np.testing.assert_array_equal(g(2.0, Model(seed)), 2.0 * np.random.default_rng(seed).uniform(size=2))
    assert g.site.traces == 1


def test_legacy_functions_draw_from_the_global_state() -> None:
    f = gt.jit(lambda x: x * np.random.normal(x, 1.0, 2) + np.random.rand(2))
    np.random.seed(5)
    found = [f(1.5) for _ in range(2)]
    np.random.seed(5)
    for one in found:
        np.testing.assert_array_equal(one, 1.5 * np.random.normal(1.5, 1.0, 2) + np.random.rand(2))


@pytest.mark.parametrize("by_name", [False, True])
def test_legacy_generators_that_the_function_makes(by_name: bool) -> None:
    def loss(x: Any) -> Any:
        rng = np.random.RandomState(seed=3) if by_name else np.random.RandomState(3)
        return np.sum(x * rng.normal(x, 1.0, 2)) + rng.exponential(x[0])

    x = np.array([1.5, 2.5])
    h = 1e-5 * np.eye(2)
    slopes = [(loss(x + step) - loss(x - step)) / 2e-5 for step in h]
    compiled = gt.jit(loss)
    for _ in range(2):
        np.testing.assert_allclose(compiled(x), loss(x), rtol=1e-13)
        np.testing.assert_allclose(gt.grad(loss)(x), slopes, rtol=1e-6)
        np.testing.assert_allclose(gt.vmap(gt.grad(loss))(x[None])[0], slopes, rtol=1e-6)
    fresh = gt.jit(lambda x: x * np.random.RandomState().normal(size=2))
    assert len({tuple(fresh(1.0)) for _ in range(3)}) == 3


def test_each_call_seeds_the_generators_that_the_trace_seeds() -> None:
    def total(x: Any) -> Any:
        rng = np.random.RandomState()
        rng.seed(7)
        np.random.seed(3)
        first = np.random.randn(2)
        for k in range(20):
            np.random.seed(seed=k)
            first = first + x * np.random.randn(2)
        return np.sum(first) * rng.rand()

    compiled, gradient = gt.jit(total), gt.grad(total)
    expected = total(1.5)
    after = np.random.rand()
    slope = (total(2.5) - expected) / 1.0
    for _ in range(2):
        np.random.seed(99)
        np.testing.assert_allclose(compiled(1.5), expected, rtol=1e-12)
        assert np.random.rand() == after
        np.testing.assert_allclose(gradient(1.5), slope, rtol=1e-11)
    outside = np.random.RandomState(1)
    reseeded = gt.jit(lambda x, rng: (rng.seed(5), x * rng.rand())[1])
    for _ in range(2):
        assert reseeded(2.0, outside) == 2.0 * np.random.RandomState(5).rand()


def test_a_seed_is_an_integer() -> None:
    with pytest.raises(gt.errors.DtypeError, match=r"np\.random\.RandomState got a traced array of float64"):
        gt.jit(lambda x: x * np.random.RandomState(x).rand())(2.0)
    with pytest.raises(gt.errors.DtypeError, match=r"np\.random\.seed got a traced array of float64"):
        gt.jit(lambda x: (np.random.seed(x), x)[1])(2.0)


def test_generators_that_the_function_makes() -> None:
    seeded = gt.jit(lambda x: x * np.random.default_rng(3).normal(x, 1.0, 2))
    fresh = gt.jit(lambda x: x * np.random.default_rng().normal(size=2))
    expected = 2.0 * np.random.default_rng(3).normal(2.0, 1.0, 2)
    for _ in range(2):
        np.testing.assert_array_equal(seeded(2.0), expected)
    assert len({tuple(fresh(1.0)) for _ in range(3)}) == 3


def test_branches_on_drawn_numbers() -> None:
    rng, plain = twins()

    def f(x: Any, generator: Any) -> Any:
        if generator.random() < 0.5:
            return x + generator.normal(size=2)
        return x - generator.uniform(size=2)

    compiled = gt.jit(f)
    for _ in range(12):
        np.testing.assert_array_equal(compiled(1.0, rng), f(1.0, plain))
        assert same_state(rng, plain)
    assert compiled.site.traces == 2


def test_a_limit_of_traces_draws_once() -> None:
    rng, plain = twins()

    def f(x: Any, generator: Any) -> Any:
        return x * int(generator.integers(0, 1000))

    compiled = gt.jit(f)
    with pytest.warns(gt.errors.TraceLimitWarning):
        for _ in range(25):
            assert compiled(1.0, rng) == f(1.0, plain)
            assert same_state(rng, plain)


def test_derivatives_draw_once() -> None:
    rng, plain = twins()

    def loss(mean: Any, scale: Any) -> Any:
        return np.mean(rng.normal(mean, scale, 50) ** 2)

    step = gt.value_and_grad(loss, argnums=(0, 1))
    for _ in range(3):
        value, (by_mean, by_scale) = step(1.0, 2.0)
        z = plain.standard_normal(50)
        x = 1.0 + 2.0 * z
        np.testing.assert_allclose(
            [value, by_mean, by_scale], [np.mean(x**2), 2 * np.mean(x), 2 * np.mean(x * z)]
        )
        assert same_state(rng, plain)
    hessian = gt.hessian(loss, argnums=0)(1.0, 2.0)
    plain.standard_normal(50)
    assert np.isclose(hessian, 2.0) and same_state(rng, plain)


def test_maps_and_jacobians_share_the_draw() -> None:
    rng, plain = twins()
    x = np.arange(3.0)
    np.testing.assert_array_equal(gt.vmap(lambda x: rng.normal(x, 1.0))(x), x + plain.standard_normal())
    jacobian = gt.jacobian(lambda x: rng.normal(0.0, x, (3, 3)))(x + 1.0)
    z = plain.standard_normal((3, 3))
    np.testing.assert_array_equal(jacobian, z[:, :, None] * np.eye(3))
    assert same_state(rng, plain)


def test_tapes_draw_at_once() -> None:
    rng, plain = twins()
    compiled = gt.jit(lambda x: rng.normal(x, 2.0, 4))
    for f in (lambda x: rng.normal(x, 2.0, 4), compiled, compiled):
        with gt.GradientTape() as tape:
            x = tape.watch(np.float64(3.0))
            y = np.sum(f(x) ** 2)
        expected = plain.normal(3.0, 2.0, 4)
        np.testing.assert_allclose(y, np.sum(expected**2))
        np.testing.assert_allclose(tape.gradient(y, x), np.sum(2 * expected))
        assert same_state(rng, plain)


def test_a_function_called_by_another_draws_in_its_place() -> None:
    rng, plain = twins()
    inner = gt.jit(lambda x: x + rng.normal())

    def outer(x: Any) -> Any:
        return inner(x) * inner(2.0) + rng.random()

    compiled = gt.jit(outer)
    for _ in range(3):
        a, b, c = plain.normal(), plain.normal(), plain.random()
        assert np.isclose(compiled(1.0), (1.0 + a) * (2.0 + b) + c)
        assert inner(1.0) == 1.0 + plain.normal()
        assert same_state(rng, plain)


def test_variables_and_draws() -> None:
    rng, plain = twins()
    total = gt.Variable(1.0)

    @gt.jit
    def step(x: Any) -> Any:
        total.assign_add(x * rng.normal(x, 1.0))
        return total * rng.random()

    expected = 1.0
    for _ in range(3):
        found = step(2.0)
        expected += 2.0 * plain.normal(2.0, 1.0)
        assert np.isclose(found, expected * plain.random())


def test_errors_of_numpy() -> None:
    rng, plain = twins()
    f = gt.jit(lambda x: rng.normal(1.0, x, 3))
    f(1.0)
    plain.normal(size=3)
    with pytest.raises(ValueError, match="scale < 0"):
        f(-1.0)
    assert same_state(rng, plain)
    with pytest.raises(ValueError, match="not compatible"):
        gt.jit(lambda x: rng.normal(x, size=2))(np.ones(3))
    with pytest.raises(ValueError, match="scale < 0"):
        gt.jit(lambda x: x + rng.normal(0.0, -1.0))(1.0)
    np.testing.assert_array_equal(f(2.0), plain.normal(1.0, 2.0, 3))


def test_a_seeded_generator_inside_draws_with_the_parameters_of_the_call() -> None:
    f = gt.jit(lambda a: np.random.default_rng(3).gamma(a, size=2))
    for a in (1.0, 2.0, 0.3):
        np.testing.assert_array_equal(f(a), np.random.default_rng(3).gamma(a, size=2))
    assert f.site.traces == 1


def test_parameters_behind_branches() -> None:
    """What computes a parameter holds in one trace only: its guards come first."""
    rng, plain = twins()

    def f(a: Any, source: Any) -> Any:
        if a > 0:
            return source.gamma(a, size=2)
        return source.normal(a, size=2)

    compiled = gt.jit(f)
    for a in (1.5, -1.0, 0.5, -3.0):
        np.testing.assert_array_equal(compiled(a, rng), f(a, plain))
        assert same_state(rng, plain)


def test_a_second_call_for_the_gradient_has_the_same_numbers() -> None:
    rng, plain = twins()
    layer = gt.recompute_grad(lambda x: np.sin(x * rng.normal(size=3)))
    compiled = gt.value_and_grad(lambda x: np.sum(layer(x)))
    for _ in range(2):
        z = plain.normal(size=3)
        np.testing.assert_allclose(compiled(1.0), [np.sum(np.sin(z)), np.sum(np.cos(z) * z)])
        assert same_state(rng, plain)
    with gt.GradientTape() as tape:
        x = tape.watch(np.float64(1.0))
        y = np.sum(layer(x))
    z = plain.normal(size=3)
    np.testing.assert_allclose(tape.gradient(y, x), np.sum(np.cos(z) * z))
    assert same_state(rng, plain)


def test_the_score_function() -> None:
    rng = np.random.default_rng(0)

    def mean_square(p: Any) -> Any:
        k = rng.poisson(gt.stop_gradient(p), 200_000)
        return np.mean(k**2 * gt.score_function(k * np.log(p) - p))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        value, slope = gt.value_and_grad(mean_square)(2.0)
        curvature = gt.grad(gt.grad(mean_square))(2.0)
    np.testing.assert_allclose([value, slope, curvature], [6.0, 5.0, 2.0], rtol=0.1)
    with pytest.raises(gt.errors.DtypeError, match="int64"):
        gt.score_function(np.arange(3))


STORED = """
import numpy as np, gradtape as gt
rng = np.random.default_rng(int(__import__("sys").argv[1]))
f = gt.jit(lambda x: x * rng.standard_normal(2))
for _ in range(2):
    print(*map(repr, map(float, f(1.0))))
"""


def test_other_processes_draw_from_their_own_generators() -> None:
    for seed in (1, 2):
        expected = np.random.default_rng(seed).standard_normal(4)
        assert [float(word) for word in words_printed(STORED, str(seed))] == list(expected)


@pytest.mark.parametrize(
    ("function", "named"),
    [
        (lambda x, rng: x * len(rng.bytes(3)), "bytes"),
        (lambda x, rng: x + rng.random(out=np.empty(3)), "random"),
        (lambda x, rng: x + rng.spawn(1)[0].normal(), "spawn"),
        (lambda x, rng: gt.while_loop(lambda y: y < 3, lambda y: (y + rng.random(),), (x,)), "while_loop"),
        (lambda x, rng: gt.fori_loop(0, 3, lambda k, y: y + rng.gamma(y), x), "gamma"),
        (
            lambda x, rng: gt.fori_loop(
                0, 3, lambda k, y: gt.cond(y > 0, lambda: rng.normal(), lambda: y), x
            ),
            "cond",
        ),
    ],
)
def test_what_cannot_be_repeated_is_refused(function: Callable[..., Any], named: str) -> None:
    with pytest.raises(UnsupportedFunctionError, match=named):
        gt.jit(function)(1.0, np.random.default_rng(0))


def test_threads_share_a_generator() -> None:
    rng = np.random.default_rng(1)
    compiled = gt.jit(lambda x: x * rng.normal(size=4))
    found: list[tuple[float, ...]] = []

    def work() -> None:
        found.extend(tuple(compiled(1.0)) for _ in range(25))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == sorted(map(tuple, np.random.default_rng(1).normal(size=(100, 4))))


def test_threads_share_a_generator_behind_branches() -> None:
    for seed in range(4):
        rng = np.random.default_rng(seed)
        compiled = gt.jit(lambda x, rng=rng: x * rng.random() if rng.random() < 0.5 else -x * rng.random())
        found: list[float] = []

        def work(compiled: Any = compiled, found: list[float] = found) -> None:
            found.extend(abs(float(compiled(1.0))) for _ in range(20))

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        plain = np.random.default_rng(seed)
        assert len(set(found)) == 60 and set(found) <= set(plain.random(120))


def test_callbacks_draw_numbers() -> None:
    rng, plain = twins()
    compiled = gt.jit(lambda x: x if gt.callback(lambda y: y * rng.normal(), 0.0, x) > 0 else -x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert {abs(float(compiled(1.0))) for _ in range(4)} == {1.0}
    assert not same_state(rng, plain)


def test_edges_of_parameters() -> None:
    rng, plain = twins()
    np.testing.assert_array_equal(
        gt.jit(lambda a: rng.weibull(a, 3))(np.array([0.0, 1.0, 2.0])), plain.weibull([0.0, 1.0, 2.0], 3)
    )
    assert same_state(rng, plain)
    assert gt.jit(lambda x: rng.normal(x, 1.0, 0))(1.0).shape == (0,)
    assert gt.jit(lambda x: x * rng.random())(np.ones(2, np.float32)).dtype == np.float32
    with pytest.raises(UnsupportedFunctionError, match="differs between elements"):
        gt.fori_loop(0, 2, lambda i, a: rng.dirichlet(a), np.ones(3))
    with pytest.raises(UnsupportedFunctionError, match="no element"):
        gt.vmap(lambda a: rng.dirichlet(a))(np.ones((0, 3)))
