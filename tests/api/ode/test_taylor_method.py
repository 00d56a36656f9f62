"""Taylor's method of `gt.scipy.solve_ivp`: exact solutions to the last digits, derivatives, events, and right-hand sides without series."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import special
from scipy.integrate import solve_ivp

import gradtape as gt
from gradtape.errors import ArgumentError, NotDifferentiableError, ShapeError, UnsupportedFunctionError

EXACT: dict[str, Any] = {"rtol": 2.3e-16, "atol": 1e-16}


@pytest.fixture(autouse=True)
def seconds_of_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gt.config, "progress", False)


def solved(fun: Any, t_span: Any, y0: Any, **options: Any) -> Any:
    return gt.scipy.solve_ivp(fun, t_span, y0, "Taylor", **{**EXACT, **options})


def logistic(t: Any, y: Any) -> Any:
    return y * (1 - y)


def airy(t: Any, y: Any) -> Any:
    """Every third coefficient at 0 is 0."""
    return [y[1], t * y[0]]


def end_of_airy(t: Any) -> Any:
    ai, slope, *_ = special.airy(t)
    return np.stack([ai, slope])


SOLUTIONS: dict[str, tuple[Any, Any, Any, Any]] = {
    "an exponential": (
        lambda t, y: -1.5 * y,
        (0.0, 2.0),
        [1.0, 2.0],
        lambda t: np.exp(-1.5 * t) * np.array([1, 2]),
    ),
    "a logistic curve": (logistic, (0.0, 8.0), [0.01], lambda t: 1 / (1 + 99 * np.exp(-t)) * np.ones(1)),
    "an oscillator": (
        lambda t, y: [y[1], -y[0]],
        (0.0, 20.0),
        [1.0, 0.0],
        lambda t: np.array([np.cos(t), -np.sin(t)]),
    ),
    "backward": (
        lambda t, y: np.cos(t) * y,
        (3.0, 0.5),
        [np.exp(np.sin(3.0))],
        lambda t: np.exp(np.sin(t)) * np.ones(1),
    ),
    "a polynomial": (
        lambda t, y: [3 * t**2, y[0]],
        (0.0, 4.0),
        [1.0, 0.0],
        lambda t: np.array([t**3 + 1, t**4 / 4 + t]),
    ),
    "a constant": (lambda t, y: [0.0 * t], (0.0, 4.0), [2.0], lambda t: np.array([2.0])),
    "Airy's functions": (airy, (0.0, -6.0), end_of_airy(0.0), end_of_airy),
    "complex numbers": (lambda t, y: 1j * y, (0.0, 5.0), [1.0 + 0j], lambda t: np.exp(1j * t) * np.ones(1)),
}


@pytest.mark.parametrize("name", SOLUTIONS)
def test_solutions_to_the_last_digits(name: str) -> None:
    fun, (begin, end), y0, exact = SOLUTIONS[name]
    found = solved(fun, (begin, end), y0, dense_output=True)
    assert found.success and found.status == 0 and found.t[0] == begin and found.t[-1] == end
    size = max(1.0, float(np.max(np.abs(exact(end)))))
    for k in range(len(found.t)):
        np.testing.assert_allclose(found.y[:, k], exact(found.t[k]), rtol=1e-13, atol=2e-14 * size)
    times = np.linspace(begin, end, 9)[1:-1]
    expected = np.stack([exact(t) for t in times], axis=1)
    np.testing.assert_allclose(found.sol(times), expected, rtol=1e-13, atol=2e-14 * size)
    compiled = gt.jit(lambda y0: solved(fun, (begin, end), y0, t_eval=times).y)(np.asarray(y0))
    np.testing.assert_allclose(compiled, expected, rtol=1e-13, atol=2e-14 * size)


@pytest.mark.parametrize("rtol", [1e-3, 1e-6, 1e-10])
def test_errors_follow_the_tolerance(rtol: float) -> None:
    found = solved(lambda t, y: [y[1], -np.sin(y[0])], (0.0, 10.0), [1.0, 0.0], rtol=rtol, atol=rtol)
    exact = solved(lambda t, y: [y[1], -np.sin(y[0])], (0.0, 10.0), [1.0, 0.0])
    error = np.max(np.abs(found.y[:, -1] - exact.y[:, -1]))
    assert 1e-4 * rtol < error < 30 * rtol


def test_tolerances_of_one_function() -> None:
    """The order, which they decide, becomes a number that the trace guards."""

    def end(y0: Any, tolerance: float) -> Any:
        found = solved(logistic, (0.0, 1.5), y0, t_eval=[1.0, 1.5], rtol=tolerance, atol=tolerance)
        return found.y[0, -1]

    rise = 1 / (1 + 9 * math.exp(-1.5))
    for way in (end, gt.jit(end, static_argnames="tolerance")):
        for tolerance in (1e-3, 1e-6, 1e-3, 1e-10, 1e-4, 1e-12, 1.0, 7.0, 0.0):
            found = way(np.array([0.1]), tolerance=tolerance)
            np.testing.assert_allclose(found, rise, rtol=min(max(30 * tolerance, 1e-13), 0.2))


def swing(t: Any, s: Any, force: Any) -> Any:
    return [s[1], -force * np.sin(s[0])]


def angle(p: Any, **options: Any) -> Any:
    """The state of a pendulum after some time, by the force and the first angle."""
    start = np.stack([p[1], 0.0 * p[0]])
    given: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-6, "args": (p[0],), **options}
    return solved(swing, (0.0, 1.5), start, **given).y[:, -1]


def angle_exactly(p: Any) -> Any:
    start = np.stack([p[1], 0.0 * p[0]])
    return solve_ivp(swing, (0.0, 1.5), start, "DOP853", args=(p[0],), rtol=1e-11, atol=1e-12).y[:, -1]


P = np.array([1.0, 1.1])


@pytest.mark.parametrize("mode", ["fwd", "rev"])
def test_both_modes(mode: str) -> None:
    np.testing.assert_allclose(gt.jit(angle)(P), angle_exactly(P), rtol=1e-4)
    found = gt.jacobian(angle, mode=mode)(P)
    np.testing.assert_allclose(found, gt.jacobian(angle_exactly, mode="fwd")(P), rtol=1e-3)


def test_vmap_and_tapes() -> None:
    several = P * np.array([[1.0], [1.05], [0.9]])
    np.testing.assert_allclose(gt.vmap(angle)(several), np.stack([angle(q) for q in several]), rtol=1e-11)
    with gt.GradientTape() as tape:
        watched = tape.watch(P)
        total = np.sum(angle(watched))
    exact = gt.grad(lambda p: np.sum(angle_exactly(p)))(P)
    np.testing.assert_allclose(tape.gradient(total, watched), exact, rtol=1e-3)


def test_second_derivatives() -> None:
    """Those of a logistic curve in its rate, and in its first value."""

    def end(q: Any) -> Any:
        return solved(lambda t, y: q[0] * y * (1 - y), (0.0, 1.5), q[1:], rtol=1e-5, atol=1e-5).y[0, -1]

    def exact(q: Any) -> Any:
        return 1 / (1 + (1 / q[1] - 1) * np.exp(-1.5 * q[0]))

    q = np.array([1.2, 0.3])
    np.testing.assert_allclose(gt.jit(gt.hessian(end))(q), gt.hessian(exact)(q), rtol=1e-3)


def test_derivatives_in_the_times() -> None:
    def values(b: Any) -> Any:
        times = b * np.array([1.0, 1.4, 2.0])
        found = solved(lambda t, y: -t * y, (b, 2 * b), np.ones(1), t_eval=times, rtol=1e-12)
        return found.y[0]

    def exact(b: Any) -> Any:
        times = b * np.array([1.0, 1.4, 2.0])
        return np.exp((b**2 - times**2) / 2)

    np.testing.assert_allclose(gt.jacobian(values)(0.8), gt.jacobian(exact)(0.8), rtol=1e-10, atol=1e-11)

    def read(b: Any) -> Any:
        sol = solved(lambda t, y: -y, (0.0, 2.0), b * np.ones(1), dense_output=True).sol
        return sol(b)[0]

    np.testing.assert_allclose(gt.grad(read)(0.7), 0.3 * np.exp(-0.7), rtol=1e-12)


def crosses(t: Any, y: Any) -> Any:
    return y[0]


crosses.terminal, crosses.direction = 3, -1  # type: ignore[attr-defined]


def test_events_to_the_last_digits() -> None:
    """The zeros of an oscillator."""

    def times(rate: Any) -> Any:
        found = solved(lambda t, y: [rate * y[1], -rate * y[0]], (0.0, 50.0), [1.0, 0.0], events=crosses)
        return found.t_events[0], found.y_events[0][:, 1], found.t[-1]

    expected = np.pi * (0.5 + 2 * np.arange(3)) / 1.3
    for way in (times, gt.jit(times)):
        found, slopes, end = way(1.3)
        np.testing.assert_allclose(found, expected, rtol=1e-14)
        np.testing.assert_allclose(slopes, -1.0, rtol=1e-13)
        np.testing.assert_allclose(end, expected[-1], rtol=1e-14)
    for mode in ("fwd", "rev"):
        slope = gt.jacobian(lambda rate: times(rate)[0], mode=mode)(1.3)
        np.testing.assert_allclose(slope, -expected / 1.3, rtol=1e-12)


def test_a_singularity_ends_the_integration() -> None:
    """The solution 1 / (1 - t) ends at 1."""
    found = solved(lambda t, y: y**2, (0.0, 2.0), [1.0], rtol=1e-6, atol=1e-6)
    assert not found.success and found.status == -1 and abs(found.t[-1] - 1.0) < 1e-4
    value, has_come = gt.jit(
        lambda y0: (lambda s: (s.y[:, -1], s.success))(solved(lambda t, y: y**2, (0.0, 2.0), y0, rtol=1e-6))
    )(np.ones(1))
    assert np.isnan(value[0]) and not has_come


def test_steps_across_what_the_series_does_not_tell() -> None:
    """A step that the last coefficients make too long is tried again: those of t**31 at 0 are 0 up to order 30."""
    found = solved(
        lambda t, y: [t**30 * np.cos(y[1]), 1.0 + 0.0 * t], (0.0, 1.5), [0.0, 0.0], rtol=1e-10, atol=1e-10
    )
    exact = solve_ivp(
        lambda t, y: [t**30 * np.cos(y[1]), 1.0], (0, 1.5), [0.0, 0.0], "DOP853", rtol=1e-12, atol=1e-12
    )
    np.testing.assert_allclose(found.y[:, -1], exact.y[:, -1], rtol=1e-8)


def test_the_size_of_steps() -> None:
    found = solved(lambda t, y: -y, (0.0, 1.0), [1.0], max_step=0.05)
    assert np.max(np.diff(found.t)) <= 0.05 * (1 + 1e-12)
    found = solved(lambda t, y: -y, (0.0, 1.0), [1.0], first_step=0.01)
    np.testing.assert_allclose(found.t[1], 0.01)
    assert found.t[2] > 0.1


def scanned(t: Any, y: Any) -> Any:
    """The slope -sin(y), by a loop."""

    def add(carry: Any, k: Any) -> Any:
        total, term = carry
        term = -term * y**2 / ((2 * k) * (2 * k + 1))
        return (total + term, term), None

    return -gt.scan(add, (y, y), np.arange(1.0, 12.0))[0][0]


def test_loops_and_linear_algebra_in_the_right_hand_side() -> None:
    loose: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-7}
    exact = solve_ivp(lambda t, y: -np.sin(y), (0.0, 1.0), [0.5, 1.0], "DOP853", rtol=1e-9).y[:, -1]
    np.testing.assert_allclose(solved(scanned, (0.0, 1.0), [0.5, 1.0], **loose).y[:, -1], exact, rtol=1e-5)
    A = np.array([[2.0, 0.3], [0.1, 1.0]])
    found = solved(lambda t, y: -np.linalg.solve(A + np.diag(y), y), (0.0, 1.0), [0.5, 1.0], **loose)
    slow = solve_ivp(
        lambda t, y: -np.linalg.solve(A + np.diag(y), y), (0.0, 1.0), [0.5, 1.0], "DOP853", rtol=1e-9
    )
    np.testing.assert_allclose(found.y[:, -1], slow.y[:, -1], rtol=1e-5)


SELECTIONS: dict[str, Any] = {
    "where": lambda t, y: np.where(y > 0.5, -y, -2 * y),
    "absolute": lambda t, y: -np.abs(y),
    "maximum": lambda t, y: np.maximum(y, 0.2),
    "floor": lambda t, y: -y * np.floor(t),
    "a branch": lambda t, y: gt.cond(t > 0.5, lambda: y, lambda: -y),
    "the largest": lambda t, y: y - np.max(y),
    "sort": lambda t, y: np.sort(y),
    "an index": lambda t, y: y * np.take(np.arange(9.0), (4 * t).astype(int)),
    "in a loop": lambda t, y: gt.fori_loop(0, 3, lambda k, x: np.abs(x) - 1.0, y),
}


@pytest.mark.parametrize("name", SELECTIONS)
def test_right_hand_sides_that_select_are_refused(name: str) -> None:
    with pytest.raises(NotDifferentiableError, match="not analytic") as caught:
        solved(SELECTIONS[name], (0.0, 1.0), [0.1, 0.7])
    assert __file__ in str(caught.value) and "DOP853" in str(caught.value)


def test_selections_that_do_not_depend_on_the_state_are_none() -> None:
    rate = np.array([1.0, -1.0])
    found = solved(
        lambda t, y: -np.where(rate > 0, 1.0, 2.0) * y * np.abs(rate) + np.where(y == 0.0, 0.0 * y, 0.0),
        (0.0, 1.0),
        [1.0, 1.0],
    )
    np.testing.assert_allclose(found.y[:, -1], np.exp([-1.0, -2.0]), rtol=1e-14)


def test_names_and_shapes_of_arguments() -> None:
    def fun(t: Any, y: Any) -> Any:
        return -y

    with pytest.raises(ArgumentError, match="no method 'taylor'") as caught:
        gt.scipy.solve_ivp(fun, (0, 1), [1.0], "taylor")
    assert "'Taylor'" in str(caught.value)
    with pytest.raises(ArgumentError, match="does not take a mass_matrix"):
        gt.scipy.solve_ivp(fun, (0, 1), [1.0], "Taylor", mass_matrix=[[1.0]])
    with pytest.raises(ArgumentError, match="no method 'Taylor'") as caught:
        gt.grad(lambda a: solve_ivp(lambda t, y: -a * y, (0, 1), [1.0], "Taylor").y[0, -1])(1.0)
    assert "gt.scipy.solve_ivp" in str(caught.value)
    with pytest.raises(ShapeError, match="y0 has shape"):
        solved(fun, (0, 1), np.ones((2, 2)))
    with pytest.raises(ShapeError, match="fun returns"):
        solved(lambda t, y: y[:1], (0, 1), np.ones(2))


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a negative max_step": ({"max_step": -1.0}, "max_step is -1.0"),
    "max_step 0": ({"max_step": 0.0}, "max_step is 0.0"),
    "max_step NaN": ({"max_step": math.nan}, "max_step is nan"),
    "first_step 0": ({"first_step": 0}, "first_step is 0"),
    "a negative first_step": ({"first_step": -0.1}, "first_step is -0.1"),
    "first_step beyond the end": (
        {"first_step": 2.5},
        "first_step is 2.5, and the interval has the length 1",
    ),
    "a negative rtol": ({"rtol": -1e-3}, "rtol is -0.001"),
    "rtol NaN": ({"rtol": math.nan}, "rtol is nan"),
    "a negative atol": ({"atol": -1e-3}, "atol is -0.001"),
    "a negative atol of one": ({"atol": np.array([1e-3, -1e-3])}, "atol is array"),
    "atol of a wrong shape": ({"atol": np.ones(3)}, "atol has shape .3,., and there are 2 unknowns"),
}


@pytest.mark.parametrize("name", WRONG)
def test_options_that_decide_about_steps(name: str) -> None:
    """Also where SciPy's own function, which sees them first, does not run: on a tape with `t_eval`."""
    options, words = WRONG[name]
    y0 = np.array([1.0, 2.0])

    def end(y0: Any, solve: Any, method: str) -> Any:
        return np.sum(solve(lambda t, y: -y, (0.0, 1.0), y0, method, t_eval=[0.5, 1.0], **options).y)

    for solve, method in ((gt.scipy.solve_ivp, "Taylor"), (solve_ivp, "RK45")):
        with gt.GradientTape() as tape, pytest.raises(ArgumentError, match=f"scipy.*solve_ivp: {words}"):
            end(tape.watch(y0), solve, method)
    with pytest.raises(ArgumentError, match=f"gt.scipy.solve_ivp: {words}"):
        end(y0, gt.scipy.solve_ivp, "Taylor")


def test_errors_name_what_was_called() -> None:
    def fun(t: Any, y: Any) -> Any:
        return -y

    for solve, method, name in (
        (gt.scipy.solve_ivp, "Taylor", "gt.scipy"),
        (solve_ivp, "RK45", "scipy.integrate"),
    ):

        def at(y0: Any, pick: Any, solve: Any = solve, method: str = method) -> Any:
            return np.sum(pick(solve(fun, (0.0, 1.0), y0, method)))

        with pytest.raises(ShapeError, match=f"^{name}.solve_ivp: y0 has shape"):
            gt.grad(at)(np.ones((2, 2)), lambda found: found.y)
        with pytest.raises(UnsupportedFunctionError, match=f"{name}.solve_ivp without t_eval"):
            gt.jit(at, static_argnums=1)(np.ones(2), lambda found: found.y)


@pytest.mark.parametrize("compiled", [False, True])
def test_reverse_mode_is_that_of_the_steps(compiled: bool) -> None:
    def angles(p: Any) -> Any:
        start = np.stack([p[1], 0.0 * p[0]])
        found = solved(swing, (0.0, 1.5), start, args=(p[0],), t_eval=[0.7, 1.5], rtol=1e-5, atol=1e-6)
        return np.sum(found.y[0] * np.array([1.0, 2.0]))

    way = gt.jit(gt.grad(angles)) if compiled else gt.grad(angles)
    with gt.config.override(ode_adjoint="discrete"):
        expected = way(P)
    with gt.config.override(ode_adjoint="continuous"):
        np.testing.assert_allclose(way(P), expected, rtol=1e-13)
        assert "the adjoint of" not in str(gt.inspect.graph(gt.grad(angles), P))


def test_an_error_names_the_function_that_was_called() -> None:
    def crossing(t: Any, y: Any) -> Any:
        return y[0] - 0.5

    def count(y0: Any) -> Any:
        found = gt.scipy.solve_ivp(
            lambda t, y: -y, (0, 1), y0, method="Taylor", events=crossing, t_eval=[1.0]
        )
        return found.y[:, -1] + len(found.t_events[0])

    with pytest.raises(UnsupportedFunctionError, match=r"^gt\.scipy\.solve_ivp with an event"):
        gt.jit(gt.vmap(count))(np.ones((2, 2)))
