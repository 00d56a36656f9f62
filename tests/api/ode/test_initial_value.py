"""Initial value problems: SciPy's numbers, and derivatives in everything that a problem is stated with."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.integrate import RK23, odeint, solve_ivp

import gradtape as gt
from gradtape.errors import ArgumentError, DtypeError, ShapeError, UnsupportedFunctionError

TIGHT: dict[str, Any] = {"rtol": 1e-9, "atol": 1e-11}
SMALL: dict[str, Any] = {"method": "RK23", "rtol": 1e-6, "atol": 1e-8}
"""The method with the fewest stages, which compiles the fastest."""


def prey(t: Any, z: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    x, y = z
    return [a * x - b * x * y, -c * y + d * x * y]


def populations(p: Any, y0: Any, method: Any, **options: Any) -> Any:
    times = np.linspace(0, 6, 7)
    options = {"rtol": 1e-7, "atol": 1e-9, **options}
    return solve_ivp(prey, (0, 6), y0, args=tuple(p), t_eval=times, method=method, **options).y


P, Y0 = np.array([1.5, 1.0, 3.0, 1.0]), np.array([10.0, 5.0])


@pytest.mark.parametrize("method", ["RK45", "DOP853", RK23])
def test_explicit_methods_make_the_steps_of_scipy(method: Any) -> None:
    direction = np.array([0.3, 0.1, -0.2, 0.4])
    found, slope = gt.jvp(lambda p: populations(p, Y0, method), (P,), (direction,))
    np.testing.assert_allclose(found, populations(P, Y0, method), rtol=1e-11)
    h = 1e-5
    ends = [populations(P + step * direction, Y0, method) for step in (h, -h)]
    np.testing.assert_allclose(slope, (ends[0] - ends[1]) / (2 * h), rtol=1e-3, atol=1e-3)


def test_a_gradient_in_parameters_and_initial_values() -> None:
    def loss(p: Any, y0: Any) -> Any:
        return np.sum(np.sin(populations(p, y0, "RK45")))

    slopes = gt.grad(loss, argnums=(0, 1))(P, Y0)
    h = 1e-5
    for k, slope in enumerate(slopes):
        for axis in np.eye(slope.size) * h:
            ends = [
                loss(*[one + (sign * axis if k == j else 0) for j, one in enumerate((P, Y0))])
                for sign in (1, -1)
            ]
            np.testing.assert_allclose(slope @ axis / h, (ends[0] - ends[1]) / (2 * h), rtol=1e-3)


def hit(t: Any, y: Any) -> Any:
    return y[0]


hit.terminal, hit.direction = True, -1  # type: ignore[attr-defined]


def thrown(g: Any) -> Any:
    return solve_ivp(lambda t, y: [y[1], -g * np.exp(-y[0])], (0, 10), [1.0, 2.0], events=hit, **SMALL)


def product(found: Any) -> Any:
    return found.y[1, -1] * found.t[-1] + found.y_events[0][0, 1] * found.t_events[0][0]


CASES: dict[str, tuple[Callable[[Any], Any], float]] = {
    "the last step": (
        lambda a: solve_ivp(lambda t, y: [-a * y[0] * math.sin(t)], (0, 2), [1.0], **TIGHT).y[0, -1],
        2.0,
    ),
    "backward": (
        lambda a: solve_ivp(lambda t, y: -a * y, (2, 0), [1.0, a], t_eval=[1.5, 0.1], **TIGHT).y[1, -1],
        2.0,
    ),
    "both ends": (lambda b: solve_ivp(lambda t, y: -t * y, (b, 2 * b), [1.0], **TIGHT).y[0, -1], 0.8),
    "times": (
        lambda b: np.sum(
            solve_ivp(lambda t, y: -t * y, (0, 2), [1.0], t_eval=b * np.array([0.5, 1.0]), **TIGHT).y
        ),
        1.3,
    ),
    "dense output": (
        lambda b: np.sum(
            solve_ivp(lambda t, y: -b * y, (0, 2), [1.0], dense_output=True, **TIGHT).sol(
                np.array([1.5, 0.3 * b])
            )
        ),
        1.3,
    ),
    "complex numbers": (
        lambda a: np.abs(
            solve_ivp(lambda t, y: 1j * a * y, (0, 2), [1.0 + 0j], t_eval=[2.0], **TIGHT).y[0, 0] + a
        ),
        2.0,
    ),
    "the end by an event": (lambda g: product(thrown(g)), 9.81),
}


@pytest.mark.parametrize("name", CASES)
def test_values_and_slopes(name: str) -> None:
    function, p = CASES[name]
    h = 1e-5
    slope = (function(p + h) - function(p - h)) / (2 * h)
    value, gradient = gt.value_and_grad(function)(p)
    np.testing.assert_allclose(value, function(p), rtol=1e-11)
    np.testing.assert_allclose(gradient, slope, rtol=1e-4)
    with gt.GradientTape() as tape:
        watched = tape.watch(np.array(p))
        result = function(watched)
    np.testing.assert_allclose(result.numpy(), function(p), rtol=1e-11)
    np.testing.assert_allclose(tape.gradient(result, watched), gradient, rtol=1e-8)


def decay(a: Any) -> Any:
    return solve_ivp(lambda t, y: -a * y, (0, 1), [1.0, 2.0], t_eval=[1.0], **SMALL).y


def test_every_transform() -> None:
    gt.check_grads(decay, (1.3,), order=2, rtol=1e-3, atol=1e-5)
    rates = np.array([0.5, 1.0, 40.0])
    np.testing.assert_allclose(
        gt.vmap(decay)(rates), np.stack([decay(a) for a in rates]), rtol=1e-11, atol=1e-13
    )


def test_second_derivatives_of_an_event() -> None:
    def time(g: Any) -> Any:
        return thrown(g).t_events[0][0]

    h = 1e-4
    slopes = [gt.grad(time)(9.81 + step) for step in (h, -h)]
    np.testing.assert_allclose(gt.grad(gt.grad(time))(9.81), (slopes[0] - slopes[1]) / (2 * h), rtol=1e-3)


def test_an_event_that_does_not_come() -> None:
    def ground(t: Any, y: Any) -> Any:
        return y[0]

    def ceiling(t: Any, y: Any) -> Any:
        return y[0] - 9.0

    ground.terminal = ceiling.terminal = True  # type: ignore[attr-defined]
    ground.direction = -1  # type: ignore[attr-defined]

    def flight(v: Any) -> Any:
        found = solve_ivp(lambda t, y: [y[1], -9.81], (0, 9), [1.0, v], events=[ceiling, ground], **SMALL)
        return found.t_events[1][0] + found.y[1, -1:][0], found.t_events[0][0]

    value, slope = gt.value_and_grad(lambda v: flight(v)[0])(3.0)
    root = np.sqrt(3.0**2 + 2 * 9.81)
    np.testing.assert_allclose(value, (3 + root) / 9.81 - root, rtol=1e-7)
    np.testing.assert_allclose(slope, (1 + 3 / root) / 9.81 - 3 / root, rtol=1e-6)
    assert np.isnan(gt.jit(flight)(3.0)[1])


def test_all_events_on_a_tape() -> None:
    def apexes(a: Any) -> Any:
        wave = solve_ivp(
            lambda t, y: [y[1], -(a**2) * y[0]], (0, 8), [1.0, 0.5], events=lambda t, y: y[1], **SMALL
        )
        return wave.t_events[0]

    with gt.GradientTape() as tape:
        a = tape.watch(np.array(2.0))
        times = apexes(a)
        last = times[-1]
    np.testing.assert_allclose(times, apexes(2.0))
    h = 1e-5
    np.testing.assert_allclose(
        tape.gradient(last, a), (apexes(2 + h)[-1] - apexes(2 - h)[-1]) / (2 * h), rtol=1e-6
    )


def test_what_the_integration_does_not_reach_is_nan() -> None:
    def burst(a: Any) -> Any:
        found = solve_ivp(lambda t, y: a * y**2, (0, 2), [1.0], t_eval=[0.5, 2.0])
        return found.y, found.success

    y, success = gt.jit(burst)(1.0)
    assert not success
    np.testing.assert_allclose(y[0, 0], 2.0, rtol=1e-3)
    assert np.isnan(y[0, 1])
    assert np.isnan(gt.jit(decay)(np.nan)).all()


@pytest.mark.parametrize("method", ["RK45", "DOP853", "Radau", "BDF"])
@pytest.mark.parametrize("place", ["end", "beginning", "state", "tolerance"])
def test_what_is_nan_gives_nan(method: str, place: str) -> None:
    """On tapes SciPy makes the steps: its explicit methods would never end."""

    def at_end(end: Any, beginning: Any, state: Any, tolerance: Any) -> Any:
        return solve_ivp(lambda t, y: -y, (beginning, end), [state], method, rtol=tolerance).y[0, -1]

    names = ("end", "beginning", "state", "tolerance")
    given = [
        np.nan if name == place else number for name, number in zip(names, (1.0, 0.0, 1.0, 1e-3), strict=True)
    ]
    value, slopes = gt.value_and_grad(at_end, argnums=(0, 1, 2))(*given)
    assert np.isnan(value) and np.isnan(slopes[2])
    if place in names[:2]:
        assert np.isnan(slopes).all()
    if method in ("RK45", "DOP853") and place != "state":
        with gt.GradientTape() as tape:
            watched = [tape.watch(np.array(number)) for number in given]
            value = at_end(*watched)
        assert np.isnan(value)
        assert np.isnan(tape.gradient(value, watched[0 if place == "end" else 2]).numpy())


def test_times_outside_of_a_traced_interval_and_single_precision() -> None:
    def ends(b: Any) -> Any:
        return solve_ivp(lambda t, y: -y, (0, b), np.ones(1, np.float32) * b, t_eval=[0.5, 2.0], **SMALL).y[0]

    found = gt.jit(ends)(np.float32(1.0))
    np.testing.assert_allclose(found[0], np.exp(-0.5), rtol=1e-5)
    assert np.isnan(found[1])


def swings(w: Any) -> Any:
    """The times and velocities at which a pendulum is upright, that at which it turns, and its end."""

    def fun(t: Any, y: Any) -> Any:
        return [y[1], -w * w * np.sin(y[0])]

    def upright(t: Any, y: Any) -> Any:
        return y[0]

    def turns(t: Any, y: Any) -> Any:
        return y[1]

    def never(t: Any, y: Any) -> Any:
        return y[0] - 100

    turns.terminal, turns.direction = 2, -1  # type: ignore[attr-defined]
    found = solve_ivp(fun, (0, 6), [1.0, 0.2], events=[upright, turns, never], **TIGHT)
    return *found.t_events, found.y_events[0], found.y[:, -1]


def test_events_that_are_not_terminal() -> None:
    compiled = gt.jit(swings)
    for w, count in ((1.0, 2), (1.5, 2), (0.4, 1), (1.1, 2)):
        found, plain = compiled(w), swings(w)
        assert len(found[0]) == count
        for place in (0, 2, 3, 4):
            np.testing.assert_allclose(found[place], plain[place], rtol=1e-7, atol=1e-7)
        np.testing.assert_allclose(found[1][: len(plain[1])], plain[1], rtol=1e-7)

    def total(w: Any) -> Any:
        times, _, _, states, end = swings(w)
        return np.sum(times**2) + np.sum(states[:, 1] ** 3) + np.sum(end**2)

    gradient = gt.jit(gt.grad(total))
    for w in (0.4, 1.3):
        slope = (total(w + 1e-5) - total(w - 1e-5)) / 2e-5
        np.testing.assert_allclose(gradient(w), slope, rtol=1e-6)
    with pytest.raises(UnsupportedFunctionError, match=r"event\.terminal"):
        gt.jit(gt.vmap(lambda w: np.sum(swings(w)[0])))(np.array([0.4, 1.0]))


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"y0": 1.0}, ShapeError, "y0 has shape"),
        ({"y0": [1.0, 2.0], "fun": lambda t, y: y[:1]}, ShapeError, r"shape \(1,\)"),
        ({"method": "Radau", "y0": [1j]}, DtypeError, "complex"),
        ({"method": object}, UnsupportedFunctionError, "method"),
    ],
)
def test_what_is_refused(options: dict[str, Any], error: type[Exception], match: str) -> None:
    options = {"fun": lambda t, y: y, "t_span": (0, 1), "y0": [1.0], **options}

    def solved(a: Any) -> Any:
        fun = options["fun"]
        return solve_ivp(**{**options, "fun": lambda t, y: a * fun(t, y)}).y[0, -1]

    with pytest.raises(error, match=match):
        gt.jit(solved)(1.0)


@pytest.mark.parametrize(("method", "known"), [("RK45", "rtol"), ("BDF", "jac_sparsity")])
def test_options_without_effect(method: str, known: str) -> None:
    def end(a: Any) -> Any:
        return solve_ivp(lambda t, y: a * y, (0, 1), [1.0], method=method, rtoll=1e-9).y[0, -1]

    with pytest.warns(
        gt.errors.GradtapeWarning, match=f"(?s)rtoll has no effect with method {method}.*{known}"
    ):
        gt.jit(end)(1.0)


def test_times_that_are_not_in_order() -> None:
    with pytest.raises(ArgumentError, match="not within"):
        gt.jit(lambda a: solve_ivp(lambda t, y: a * y, (0, 1), [1.0], t_eval=[3.0]).y)(1.0)
    with pytest.raises(ArgumentError, match="not properly sorted"):
        gt.jit(lambda a: solve_ivp(lambda t, y: a * y, (0, 1), [1.0], t_eval=[0.7, 0.5]).y)(1.0)


def robertson(t: Any, y: Any, k: Any) -> Any:
    slow, fast = 0.04 * k * y[0] - 1e4 * y[1] * y[2], 3e7 * y[1] ** 2
    return [-slow, slow - fast, fast]


def test_a_stiff_problem() -> None:
    times = np.array([0.4, 40.0, 4000.0])

    def left(k: Any) -> Any:
        options = {"method": "Radau", "rtol": 1e-7, "atol": 1e-10}
        return np.sum(solve_ivp(robertson, (0, 4000), [1.0, 0, 0], t_eval=times, args=(k,), **options).y[0])

    value, slope = gt.value_and_grad(left)(1.0)
    np.testing.assert_allclose(value, left(1.0), rtol=1e-8)
    np.testing.assert_allclose(slope, (left(1.001) - left(0.999)) / 0.002, rtol=1e-4)


def heat(t: Any, y: Any, k: Any) -> Any:
    """Diffusion and reactions of two substances, each in a half of the state, so that its order is to be found."""
    u, v = y[: len(y) // 2], y[len(y) // 2 :]
    left, right = np.append(u[1:], u[-1]), np.append(u[0], u[:-1])
    return np.concatenate([k * 400.0 * (left - 2 * u + right) - u * v, u**2 - k * v])


@pytest.mark.parametrize("options", [{}, {"jac_sparsity": np.ones((24, 24))}])
def test_a_stiff_problem_with_many_unknowns(options: dict[str, Any]) -> None:
    start = np.concatenate([np.linspace(0, 1, 12) ** 2, np.ones(12)])

    def end(k: Any) -> Any:
        given = {"method": "Radau", "rtol": 1e-6, "atol": 1e-8, **options}
        return np.sum(solve_ivp(heat, (0, 1), start, t_eval=[0.1, 1.0], args=(k,), **given).y ** 2)

    value, slope = gt.value_and_grad(end)(0.7)
    np.testing.assert_allclose(value, end(0.7), rtol=1e-8)
    np.testing.assert_allclose(slope, (end(0.701) - end(0.699)) / 0.002, rtol=1e-4)


def test_a_sparsity_of_another_shape() -> None:
    with pytest.raises(ShapeError, match="jac_sparsity"):
        gt.jit(
            lambda k: (
                solve_ivp(
                    heat, (0, 1), np.ones(24), args=(k,), method="Radau", t_eval=[1.0], jac_sparsity=np.eye(3)
                ).y
            )
        )(1.0)


def test_odeint() -> None:
    times = np.linspace(0, 3, 4)

    def swings(damping: Any) -> Any:
        return odeint(
            lambda y, t, b: [y[1], -b * y[1] - 5 * np.sin(y[0])], [1.0, 0.0], times, args=(damping,)
        )[:, 0]

    found, slope = gt.jvp(swings, (0.25,), (1.0,))
    np.testing.assert_allclose(found, swings(0.25), rtol=1e-6)
    h = 1e-3
    np.testing.assert_allclose(slope, (swings(0.25 + h) - swings(0.25 - h)) / (2 * h), rtol=1e-4, atol=1e-5)
    with pytest.raises(UnsupportedFunctionError, match="full_output"):
        gt.jit(lambda b: odeint(lambda y, t: -b * y, 1.0, times, full_output=True)[0])(1.0)


def test_second_derivatives_of_an_implicit_method() -> None:
    def end(k: Any) -> Any:
        return solve_ivp(
            lambda t, y: [-k * y[0] ** 2], (0, 2), [1.0], t_eval=[2.0], method="Radau", rtol=1e-6
        ).y[0, 0]

    np.testing.assert_allclose(gt.grad(gt.grad(end))(1.3), 8 / (1 + 2 * 1.3) ** 3, rtol=1e-4)


def test_steps_whose_number_is_not_known() -> None:
    with pytest.raises(UnsupportedFunctionError, match=r"y\[:, -1\]"):
        gt.jit(lambda a: np.sum(solve_ivp(lambda t, y: a * y, (0, 1), [1.0]).y))(1.0)


@pytest.mark.parametrize("method", ["RK45", "Radau", "Taylor", None])
@pytest.mark.parametrize("span", [(0.0, np.nan), (0, 1, 2), 1.0, {0, 1}, None, (0, None)])
def test_times_that_are_no_pair_of_numbers(span: Any, method: str | None) -> None:
    with pytest.raises(ArgumentError, match=r"t_span is .*[\s\S]*the initial and the final time"):
        gt.scipy.solve_ivp(lambda t, y: -y, span, np.ones(2), method=method)
