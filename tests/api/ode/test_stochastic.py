"""Stochastic differential equations: orders of convergence, moments, pathwise derivatives, many paths, mistakes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.stats

import gradtape as gt
from gradtape.api.ode import stochastic
from gradtape.api.ode.stochastic import Increments
from gradtape.errors import ArgumentError, GradtapeWarning, ShapeError

MU, SIGMA = 1.5, 1.0


def coarse(fine: Increments, count: int) -> Increments:
    """Return the increments of fewer steps of the same motions, whose integrals over time are those of the fine ones."""
    paths, steps = fine.dw.shape
    h, width = 1 / steps, 1 / count
    dw = fine.dw.reshape(paths, count, -1)
    before = np.cumsum(dw, axis=2) - dw
    area = 0.5 * h * (fine.dw + fine.dz / np.sqrt(3)).reshape(dw.shape)
    whole = np.sum(dw, axis=2)
    return Increments(whole, np.sqrt(3) * (2 * np.sum(area + before * h, axis=2) / width - whole))


@pytest.mark.parametrize("method, order", [("euler-maruyama", 0.5), ("milstein", 1.0), ("srk", 1.5)])
def test_strong_order_of_a_geometric_motion(method: Any, order: float) -> None:
    rng = np.random.default_rng(0)
    fine = Increments(*(rng.standard_normal((2, 3000, 512)) / np.sqrt(512)))
    exact = np.exp(MU - SIGMA**2 / 2 + SIGMA * np.sum(fine.dw, axis=1))
    errors = []
    for steps in (16, 32, 64, 128):
        found = gt.solve_sde(
            lambda t, y: MU * y,
            lambda t, y: SIGMA * y,
            (0.0, 1.0),
            1.0,
            steps=steps,
            paths=3000,
            method=method,
            increments=coarse(fine, steps),
            save="last",
        )
        errors.append(np.mean(np.abs(found.y - exact)))
    assert np.mean(np.log2(np.divide(errors[:-1], errors[1:]))) == pytest.approx(order, abs=0.12)


def test_weak_order_of_the_mean() -> None:
    # The mean of Euler's steps is that of Euler's method for the mean: (1 + mu h)**n.
    found = gt.solve_sde(
        lambda t, y: 0.5 * y, lambda t, y: 0.1 * y, (0.0, 1.0), 1.0, steps=8, paths=40_000, rng=3, save="last"
    )
    error = np.std(found.y) / 200
    assert abs(np.mean(found.y) - (1 + 0.5 / 8) ** 8) < 4 * error


@pytest.mark.parametrize("method", ["euler-maruyama", "milstein", "srk"])
def test_an_ornstein_uhlenbeck_process_has_its_variance(method: Any) -> None:
    found = gt.solve_sde(
        lambda t, y: -2.0 * y,
        lambda t, y: 0.5,
        (0.0, 3.0),
        1.0,
        steps=150,
        paths=20_000,
        method=method,
        rng=1,
        save="last",
    )
    variance = 0.25 / 4 * (1 - np.exp(-12.0))
    assert np.var(found.y) == pytest.approx(variance, rel=0.05)
    assert np.mean(found.y) == pytest.approx(np.exp(-6.0), abs=0.01)


@pytest.mark.parametrize("method", ["euler-maruyama", "milstein", "srk"])
def test_paths_have_derivatives(method: Any) -> None:
    def value(p: Any, interest: Any = 0.03) -> Any:
        found = gt.solve_sde(
            lambda t, y, p: interest * y + p[1] * np.sin(t),
            lambda t, y, p: p[2] * y,
            (0.0, 1.0),
            p[0],
            steps=12,
            paths=50,
            method=method,
            rng=7,
            args=(p,),
        )
        return np.mean(found.y[:, -1] ** 2) + np.mean(found.y)

    point = np.array([1.2, 0.4, 0.3])
    gt.check_grads(value, (point,), order=1)
    slope = gt.grad(value)(point)
    with gt.GradientTape() as tape:
        p = tape.watch(point)
        y = value(p)
    np.testing.assert_allclose(tape.gradient(y, p), slope)
    np.testing.assert_allclose(gt.jit(value)(point), value(point))


def test_greeks_of_black_and_scholes() -> None:
    s0, strike, rate, sigma = 100.0, 105.0, 0.03, 0.2

    def price(s0: Any, sigma: Any) -> Any:
        found = gt.solve_sde(
            lambda t, s: rate * s,
            lambda t, s: sigma * s,
            (0.0, 1.0),
            s0,
            steps=64,
            paths=20_000,
            method="milstein",
            rng=2,
            save="last",
        )
        return np.exp(-rate) * np.mean(np.maximum(found.y - strike, 0.0))

    delta, vega = gt.grad(price, argnums=(0, 1))(s0, sigma)
    d1 = (np.log(s0 / strike) + rate + sigma**2 / 2) / sigma
    assert delta == pytest.approx(scipy.stats.norm.cdf(d1), abs=0.01)
    assert vega == pytest.approx(s0 * scipy.stats.norm.pdf(d1), rel=0.05)


def test_several_numbers_with_diagonal_noise_are_each_alone() -> None:
    both = gt.solve_sde(
        lambda t, y: -y, lambda t, y: 0.2 * y, (0.0, 1.0), np.array([1.0, 2.0]), steps=10, method="srk", rng=5
    )
    for k, start in enumerate((1.0, 2.0)):
        part = Increments(both.increments.dw[:, k], both.increments.dz[:, k])
        alone = gt.solve_sde(
            lambda t, y: -y, lambda t, y: 0.2 * y, (0.0, 1.0), start, steps=10, method="srk", increments=part
        )
        np.testing.assert_allclose(both.y[:, k], alone.y, rtol=1e-13)


def test_general_noise_correlates() -> None:
    root = np.array([[1.0, 0.0], [0.6, 0.8]])
    found = gt.solve_sde(
        lambda t, y: 0 * y,
        lambda t, y: root,
        (0.0, 2.0),
        np.zeros(2),
        steps=4,
        paths=30_000,
        noise="general",
        rng=0,
        save="last",
    )
    np.testing.assert_allclose(np.cov(found.y, rowvar=False), 2 * root @ root.T, atol=0.08)
    wide = gt.solve_sde(
        lambda t, y: 0 * y,
        lambda t, y: np.ones((1, 3)),
        (0.0, 1.0),
        np.zeros(1),
        steps=4,
        noise="general",
        rng=0,
    )
    assert wide.increments.dw.shape == (4, 3)


@pytest.mark.parametrize("method", ["euler-maruyama", "srk"])
def test_many_increments_are_drawn_in_blocks_of_one_stream(
    method: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two blocks, Python answers Ctrl-C."""
    drawn: list[int] = []

    class Generator(np.random.Generator):
        def standard_normal(self, size: Any = None, *args: Any, **kwargs: Any) -> Any:
            drawn.append(int(np.prod(size)))
            return super().standard_normal(size, *args, **kwargs)

    def increments(rng: Any) -> Increments:
        found: Increments = gt.solve_sde(
            lambda t, y: -y, lambda t, y: y, (0.0, 1.0), np.ones(2), steps=5, paths=7, method=method, rng=rng
        ).increments
        return found

    whole = increments(8)
    monkeypatch.setattr(stochastic, "BLOCK", 16)
    blocks = increments(Generator(np.random.PCG64(8)))
    assert drawn == [16, 16, 16, 16, 6] * (2 if method == "srk" else 1)
    for one, other in zip(whole, blocks, strict=True):
        np.testing.assert_array_equal(one, other)
    traced = gt.jit(lambda: increments(8).dw)()
    np.testing.assert_array_equal(traced, whole.dw)


def test_shapes_and_the_same_increments_again() -> None:
    def solve(**options: Any) -> Any:
        return gt.solve_sde(lambda t, y: -y, lambda t, y: 0.1, (0.0, 1.0), np.ones(3), steps=5, **options)

    one, many = solve(rng=1), solve(rng=1, paths=4)
    assert one.t.shape == (6,) and one.y.shape == (6, 3)
    assert many.y.shape == (4, 6, 3) and many.increments.dw.shape == (4, 5, 3)
    assert solve(rng=1, save="last").y.shape == (3,)
    np.testing.assert_array_equal(solve(increments=many.increments, paths=4).y, many.y)
    np.testing.assert_array_equal(many.y[:, 0], np.ones((4, 3)))
    assert "y (4, 6, 3)" in repr(many)


@pytest.mark.parametrize("method, order", [("euler-maruyama", 1), ("milstein", 1), ("srk", 2)])
def test_weak_orders_of_smooth_functions(method: Any, order: int) -> None:
    """The orders that the page on differential equations states: of means, for the same motions as the exact solution."""
    errors = []
    for steps in (8, 16, 32):
        many: dict[str, Any] = {"paths": 20_000, "method": method, "rng": 1, "save": "last"}
        found = gt.solve_sde(lambda t, y: 0.5 * y, lambda t, y: 0.4 * y, (0.0, 1.0), 1.0, steps=steps, **many)
        exact = np.exp(0.42 + 0.4 * np.sum(found.increments.dw, axis=1))
        errors.append([abs(np.mean(f(found.y) - f(exact))) for f in (np.square, np.sin)])
    np.testing.assert_allclose(np.log2(np.divide(errors[:-1], errors[1:])), order, atol=0.35)


def test_time_enters() -> None:
    found = gt.solve_sde(lambda t, y: 2 * t, lambda t, y: 0.0, (1.0, 2.0), 1.0, steps=1000, rng=0)
    assert found.y[-1] == pytest.approx(4.0, abs=2e-3)
    np.testing.assert_allclose(found.t[[0, -1]], [1.0, 2.0])


@pytest.mark.parametrize(
    "options, error, message",
    [
        ({"method": "euler"}, ArgumentError, "unknown method 'euler'"),
        ({"noise": "scalar"}, ArgumentError, "unknown noise 'scalar'"),
        ({"save": "none"}, ArgumentError, "unknown save 'none'"),
        ({"noise": "general", "method": "milstein"}, ArgumentError, "'milstein' is for diagonal noise"),
        ({"noise": "general"}, ShapeError, r"the diffusion has the shape \(3,\)"),
        ({"steps": 0}, ArgumentError, "steps is 0"),
        ({"paths": 1.5}, ArgumentError, "paths is 1.5"),
        ({"method": "srk", "increments": Increments(np.zeros((5, 3)))}, ArgumentError, "needs increments.dz"),
        ({"increments": np.zeros((5, 3))}, ArgumentError, "increments is an ndarray"),
        ({"increments": Increments(np.zeros((4, 3)))}, ShapeError, r"increments.dw has the shape \(4, 3\)"),
        ({"increments": Increments(np.zeros((5, 3))), "paths": 2}, ShapeError, r"takes \(2, 5, 3\)"),
        ({"t_span": 1.0}, ArgumentError, "t_span is 1.0"),
        ({"rng": "a"}, ArgumentError, "solve_sde: rng is 'a'"),
        ({"rng": -1}, ArgumentError, "solve_sde: rng is -1"),
        ({"t_span": (0.0, 0.5, 1.0)}, ArgumentError, "t_span is "),
        ({"t_span": (1.0, 0.0)}, ArgumentError, "variance of a Brownian motion is the time that passes"),
        ({"t_span": (0.0, np.nan)}, ArgumentError, "finite ends"),
        ({"t_span": (0.0, np.inf)}, ArgumentError, "finite ends"),
        ({"y0": np.array([1.0, np.nan, np.inf])}, ArgumentError, "y0 has 2 of 3 numbers that are not finite"),
        (
            {"increments": Increments(np.full((5, 3), np.nan))},
            ArgumentError,
            "increments.dw has numbers that are not",
        ),
    ],
)
def test_mistakes(options: dict[str, Any], error: type[Exception], message: str) -> None:
    given: dict[str, Any] = {"t_span": (0.0, 1.0), "y0": np.ones(3), "steps": 5, "rng": 0, **options}
    with pytest.raises(error, match=message):
        gt.solve_sde(lambda t, y: -y, lambda t, y: 0.1 * y, **given)


@pytest.mark.parametrize("method", ["milstein", "srk"])
@pytest.mark.parametrize(
    "diffusion, message",
    [
        (lambda y, s: s * y[::-1], r"the diffusion of y\[0\] depends on y\[2\]"),
        (lambda y, s: s * y * np.sum(y), r"the diffusion of y\[0\] depends on y\[1\]"),
        (lambda y, s: np.stack([s, y[0], y[2]]), r"the diffusion of y\[1\] depends on y\[0\]"),
        (lambda y, s: s * np.ones((3, 3)) @ y, r"the diffusion of y\[0\] depends on y\[1\]"),
    ],
)
def test_motions_that_do_not_commute_are_refused(method: str, diffusion: Any, message: str) -> None:
    def last(s: Any, y0: Any) -> Any:
        given: Any = {"steps": 5, "rng": 0, "method": method}
        return np.sum(
            gt.solve_sde(lambda t, y: -y, lambda t, y: diffusion(y, s), (0.0, 1.0), y0, **given).y[-1]
        )

    for way in (lambda f: f, gt.jit, gt.grad, lambda f: gt.grad(f, argnums=1)):
        with pytest.raises(ArgumentError, match=message):
            way(last)(0.3, np.ones(3))


@pytest.mark.parametrize("method", ["milstein", "srk"])
@pytest.mark.parametrize(
    "diffusion",
    [
        lambda y: np.diag([0.1, 0.2, 0.3]) @ y,
        lambda y: np.stack([0.1 * y[0], 0.2 * y[1], 0.3 * y[2]]),
        lambda y: np.array([0.1, 0.2, 0.3]) * np.where(y > 0, y, y),
    ],
)
def test_diagonal_noise_in_other_words(method: str, diffusion: Any) -> None:
    given: Any = {"steps": 5, "rng": 0, "method": method}
    found, expected = [
        gt.solve_sde(lambda t, y: -y, lambda t, y, one=one: one(y), (0.0, 1.0), np.ones(3), **given).y
        for one in (diffusion, lambda y: np.array([0.1, 0.2, 0.3]) * y)
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_functions_without_a_result() -> None:
    for drift, diffusion, name in ((None, 0.1, "drift"), (0.1, None, "diffusion")):
        with pytest.raises(ArgumentError, match=f"the {name} returned None"):
            gt.solve_sde(lambda t, y, a=drift: a, lambda t, y, b=diffusion: b, (0.0, 1.0), 1.0, steps=2)


@pytest.mark.parametrize("save", ["all", "last"])
@pytest.mark.parametrize("method", ["euler-maruyama", "milstein", "srk"])
@pytest.mark.parametrize(
    "drift, diffusion, message",
    [
        (lambda t, y: np.sqrt(0.5 - t) * y, lambda t, y: 0.1 * y, "the drift is nan at t = 0.6"),
        (lambda t, y: -y, lambda t, y: np.sqrt(0.5 - t) + 0 * y, "the diffusion is nan at t = 0.6"),
        (
            lambda t, y: np.sqrt(-1.0 - t) * y,
            lambda t, y: np.log(t - 2) + y,
            "the drift is nan and the diffusion is nan at t = 0",
        ),
        (
            lambda t, y: 1e60 * y**3,
            lambda t, y: 0.0 * y,
            "the drift is inf at t = 0.|the step computed from them is not",
        ),
    ],
)
def test_paths_that_become_nan_or_infinite_are_named(
    drift: Any, diffusion: Any, message: str, method: Any, save: Any
) -> None:
    if method == "srk" and "0.6" in message:
        message = "are finite at t = 0.5"  # the stage that is not lies in the step before
    given: dict[str, Any] = {"steps": 10, "rng": 0, "method": method, "save": save}
    for start in (1.0, np.ones(2)):
        with pytest.warns(GradtapeWarning, match=message):
            gt.solve_sde(drift, diffusion, (0.0, 1.0), start, **given)


@pytest.mark.parametrize("save", ["all", "last"])
def test_the_first_path_that_is_lost_is_named(save: Any) -> None:
    def solve(**given: Any) -> Any:
        return gt.solve_sde(lambda t, y: 0.0 * y, lambda t, y: np.sqrt(y), (0.0, 1.0), 1.0, steps=20, **given)

    with pytest.warns(GradtapeWarning) as caught:
        found = solve(paths=50, rng=3, save="all")
    is_lost = np.isnan(found.y[:, -1])
    first = int(np.argmax(is_lost))
    step = int(np.argmax(np.isnan(found.y[first]))) - 1
    what = str(caught[0].message)
    assert f"not finite after step {step} in {is_lost.sum()} of 50 paths, first in path {first}" in what
    assert "the diffusion is nan" in what
    with pytest.warns(GradtapeWarning) as again:
        solve(paths=50, rng=3, save=save)
    assert str(again[0].message).split("where")[0] == what.split("where")[0]


def test_check_numerics_finds_what_a_gradient_does_not_look_at() -> None:
    def end(a: Any) -> Any:
        return gt.solve_sde(
            lambda t, y: np.sqrt(0.5 - t) * a * y,
            lambda t, y: 0.1 * y,
            (0.0, 1.0),
            1.0,
            steps=10,
            rng=0,
            save="last",
        ).y

    assert np.isnan(gt.grad(end)(1.0))
    with pytest.raises(gt.errors.NumericsError, match=r"sqrt\(-0.1\) is nan"), gt.debug.check_numerics():
        gt.grad(end)(1.0)


@pytest.mark.parametrize("what", ["drift", "diffusion"])
def test_other_shapes_are_named(what: str) -> None:
    functions: dict[str, Callable[..., Any]] = {"drift": lambda t, y: -y, "diffusion": lambda t, y: y}
    functions[what] = lambda t, y: np.ones(2)
    with pytest.raises(ShapeError, match=f"the {what} has the shape"):
        gt.solve_sde(functions["drift"], functions["diffusion"], (0.0, 1.0), np.ones(3), steps=3, rng=0)
