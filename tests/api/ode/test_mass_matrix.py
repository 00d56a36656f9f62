"""Mass matrices: differential-algebraic equations of index 1, their consistent initial values and derivatives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.sparse import coo_array, csr_array, diags_array

import gradtape as gt
from gradtape.errors import ArgumentError, DtypeError, GradtapeWarning, ShapeError

METHODS = ["Radau", "BDF"]
TIGHT: dict[str, Any] = {"rtol": 1e-9, "atol": 1e-11}


@pytest.fixture(autouse=True)
def seconds_of_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gt.config, "progress", False)


def solved(*args: Any, **options: Any) -> Any:
    return gt.scipy.solve_ivp(*args, **{**TIGHT, **options})


def reactions(t: Any, y: Any, k: Any) -> Any:
    """Robertson's kinetics; mass is conserved."""
    slow, fast = k * y[0] - 1e4 * y[1] * y[2], 3e7 * y[1] ** 2
    return [-slow, slow - fast, y[0] + y[1] + y[2] - 1.0]


def reaction_rates(t: Any, y: Any, k: Any) -> Any:
    slow, fast = k * y[0] - 1e4 * y[1] * y[2], 3e7 * y[1] ** 2
    return [-slow, slow - fast, fast]


@pytest.mark.parametrize("method", METHODS)
def test_robertson_as_scipy_solves_its_differential_form(method: str) -> None:
    times = np.array([0.4, 40.0, 4000.0])
    exact = solve_ivp(
        reaction_rates, (0, 4000), [1.0, 0, 0], "Radau", times, args=(0.04,), rtol=1e-11, atol=1e-13
    )
    given: dict[str, Any] = {"t_eval": times, "args": (0.04,), "mass_matrix": np.diag([1, 1, 0]), **TIGHT}
    found = gt.scipy.solve_ivp(reactions, (0, 4000), [1.0, 0, 0], method, **given)
    assert found.success and found.status == 0 and found.t_events is None
    np.testing.assert_allclose(found.y, exact.y, rtol=1e-5, atol=1e-11)
    np.testing.assert_allclose(np.sum(found.y, axis=0), 1.0, rtol=1e-12)

    def states(k: Any) -> Any:
        return gt.scipy.solve_ivp(reactions, (0, 4000), [1.0, 0, 0], method, **{**given, "args": (k,)}).y

    def states_without(k: Any) -> Any:
        return solve_ivp(reaction_rates, (0, 4000), [1.0, 0, 0], "Radau", times, args=(k,), **TIGHT).y

    np.testing.assert_allclose(gt.jit(states)(0.04), found.y, rtol=1e-9, atol=1e-13)
    forward = gt.jvp(states, (0.04,), (1.0,))[1]
    np.testing.assert_allclose(forward, gt.jvp(states_without, (0.04,), (1.0,))[1], rtol=1e-4, atol=1e-8)
    reverse = gt.jacobian(states, mode="rev")(0.04)
    np.testing.assert_allclose(reverse, forward, rtol=1e-9, atol=1e-13)


# y' = -a y + z, 0 = z - b y^2 has the solution of a logistic equation.


def logistic(t: Any, y: Any, a: Any, b: Any) -> Any:
    return [-a * y[0] + y[1], y[1] - b * y[0] ** 2]


def logistic_exactly(q: Any, t: Any) -> Any:
    a, b, y0 = q
    y = a / (b + (a / y0 - b) * np.exp(a * t))
    return np.stack([y, b * y**2])


def logistic_end(q: Any, method: str = "Radau", **options: Any) -> Any:
    a, b, y0 = q
    start = np.stack([y0, b * y0**2])
    given = {"args": (a, b), "mass_matrix": np.diag([1.0, 0.0]), "t_eval": np.array([0.3, 1.0]), **options}
    return solved(logistic, (0.0, 1.0), start, method, **given).y


Q = np.array([1.3, 0.4, 0.8])


@pytest.mark.parametrize("method", METHODS)
def test_a_closed_form_and_all_transforms(method: str) -> None:
    def found(q: Any) -> Any:
        return logistic_end(q, method)

    def exact(q: Any) -> Any:
        return logistic_exactly(q, np.array([0.3, 1.0]))

    tolerance: dict[str, Any] = {"rtol": 1e-6 if method == "BDF" else 1e-7, "atol": 1e-9}
    np.testing.assert_allclose(found(Q), exact(Q), **tolerance)
    np.testing.assert_allclose(gt.jacobian(found)(Q), gt.jacobian(exact)(Q), **tolerance)
    np.testing.assert_allclose(gt.jacobian(found, mode="fwd")(Q), gt.jacobian(exact)(Q), **tolerance)

    def total(q: Any) -> Any:
        return np.sum(found(q))

    np.testing.assert_allclose(
        gt.jit(gt.hessian(total))(Q), gt.hessian(lambda q: np.sum(exact(q)))(Q), rtol=1e-5, atol=1e-6
    )
    several = Q * np.array([[1.0], [0.7], [1.5]])
    np.testing.assert_allclose(gt.vmap(found)(several), np.stack([found(q) for q in several]), rtol=1e-8)
    slopes = gt.vmap(gt.grad(total))(several)
    # Lanes share the steps of the adjoint, so each is as near to the exact slope as the tolerance of its steps.
    exactly = np.stack([gt.grad(lambda q: np.sum(exact(q)))(q) for q in several])
    np.testing.assert_allclose(slopes, exactly, rtol=1e-5 if method == "BDF" else 1e-6)
    with gt.GradientTape() as tape:
        watched = tape.watch(Q)
        result = total(watched)
    np.testing.assert_allclose(tape.gradient(result, watched), gt.grad(total)(Q), rtol=1e-7)


@pytest.mark.parametrize(("method", "order"), [("Radau", 5), ("BDF", 1)])
def test_orders_of_convergence(method: str, order: int) -> None:
    """With steps of a fixed size, both kinds of unknowns converge at least with the order of the method; BDF begins with order 1."""
    errors = []
    for count in (4, 8):
        size = (1.0 if method == "Radau" else 2e-3) / count
        end = 1.0 if method == "Radau" else 2 * size
        given: dict[str, Any] = {"max_step": size, "first_step": size, "rtol": 1e-2, "atol": 1e-2}
        found = logistic_end(Q, method, t_eval=np.array([end]), **given)
        errors.append(np.abs(found[:, 0] - logistic_exactly(Q, end)))
    local = order if method == "Radau" else order + 1
    rates = np.log2(errors[0] / errors[1])
    assert np.all(rates > local - 0.35) and rates[0] < local + 0.35


def test_derivatives_in_the_interval_and_dense_output() -> None:
    def end(q: Any) -> Any:
        found = solved(
            logistic,
            (q[3], q[4]),
            [q[2], 0.0 * q[2]],
            args=(q[0], q[1]),
            mass_matrix=np.diag([1.0, 0.0]),
            dense_output=True,
        )
        return np.sum(found.y[:, -1]) + np.sum(found.sol(np.array([0.2, 0.5])))

    def exact(q: Any) -> Any:
        times = np.stack([q[4] - q[3], 0.2 - q[3], 0.5 - q[3]])
        return np.sum(logistic_exactly(q[:3], times))

    q = np.array([*Q, 0.1, 1.0])
    np.testing.assert_allclose(gt.jit(end)(q), exact(q), rtol=1e-7)
    np.testing.assert_allclose(gt.jit(gt.grad(end))(q), gt.grad(exact)(q), rtol=1e-5)


def test_dense_output_and_all_steps_with_numbers() -> None:
    given: dict[str, Any] = {"args": tuple(Q[:2]), "mass_matrix": np.diag([1.0, 0.0])}
    for method, tolerance in (("Radau", 1e-6), ("BDF", 1e-6)):
        found = solved(logistic, (0.0, 1.0), [Q[2], Q[1] * Q[2] ** 2], method, dense_output=True, **given)
        times = np.linspace(0, 1, 7)
        np.testing.assert_allclose(found.sol(times), logistic_exactly(Q, times), rtol=tolerance)
        np.testing.assert_allclose(found.y, logistic_exactly(Q, found.t), rtol=tolerance)
        with gt.GradientTape() as tape:
            a = tape.watch(Q[0])
            watched = solved(
                logistic,
                (0.0, 1.0),
                [Q[2], Q[1] * Q[2] ** 2],
                method,
                mass_matrix=np.diag([1.0, 0.0]),
                args=(a, Q[1]),
            )
            total = np.sum(watched.y)
        np.testing.assert_allclose(watched.t, found.t)
        np.testing.assert_allclose(watched.y.numpy(), found.y, rtol=1e-9)
        assert np.isfinite(tape.gradient(total, a))


def falls(t: Any, y: Any, *args: Any) -> Any:
    return y[1] - 0.1


falls.terminal, falls.direction = True, -1  # type: ignore[attr-defined]


@pytest.mark.parametrize("method", METHODS)
def test_events(method: str) -> None:
    """The algebraic unknown falls to 0.1."""

    def time(q: Any) -> Any:
        found = solved(
            logistic,
            (0.0, 5.0),
            np.stack([q[2], q[1] * q[2] ** 2]),
            method,
            args=(q[0], q[1]),
            mass_matrix=np.diag([1.0, 0.0]),
            events=falls,
        )
        return np.stack([found.t_events[0][0], found.y_events[0][0][0], found.y[1, -1], found.t[-1]])

    def exact(q: Any) -> Any:
        a, b, y0 = q
        y = np.sqrt(0.1 / b)
        t = np.log((a / y - b) / (a / y0 - b)) / a
        return np.stack([t, y, 0.1 + 0.0 * a, t])

    np.testing.assert_allclose(time(Q), exact(Q), rtol=1e-6)
    np.testing.assert_allclose(gt.jit(time)(Q), exact(Q), rtol=1e-6)
    direction = np.array([0.3, -0.2, 0.5])
    _, change = gt.jit(lambda q: gt.jvp(time, (q,), (direction,)))(Q)
    np.testing.assert_allclose(change, gt.jacobian(exact)(Q) @ direction, rtol=1e-5, atol=1e-6)
    with gt.GradientTape() as tape:
        watched = tape.watch(Q)
        total = np.sum(time(watched))
    exactly = gt.grad(lambda q: np.sum(exact(q)))(Q)
    np.testing.assert_allclose(tape.gradient(total, watched), exactly, rtol=1e-5, atol=1e-6)


# The rows of M combine to zero: y1 + y2 decays, and y1 = a y2.

COMBINED = np.array([[1.0, 1.0], [2e-9, 2e-9]])


def combined(t: Any, y: Any, a: Any) -> Any:
    decay = -(y[0] + y[1])
    return [decay, 2e-9 * (decay + y[0] - a * y[1])]


@pytest.mark.parametrize("as_given", [np.asarray, csr_array, coo_array])
@pytest.mark.parametrize("method", METHODS)
def test_rows_that_combine_to_zero(method: str, as_given: Any) -> None:
    def end(a: Any, y0: Any) -> Any:
        given: dict[str, Any] = {
            "args": (a,),
            "mass_matrix": as_given(COMBINED),
            "t_eval": np.array([0.0, 1.0]),
        }
        return solved(combined, (0.0, 1.0), y0, method, **given).y

    def exact(a: Any, y0: Any) -> Any:
        total = np.sum(y0) * np.exp(-np.array([0.0, 1.0]))
        return np.stack([total * a / (1 + a), total / (1 + a)])

    y0 = np.array([0.5, 2.5])
    with pytest.warns(GradtapeWarning, match=r"y0\[\d\] was changed"):
        value = end(2.0, y0)
    np.testing.assert_allclose(value, exact(2.0, y0), rtol=1e-6)
    for mode in ("fwd", "rev"):
        found = gt.jit(gt.jacobian(end, argnums=(0, 1), mode=mode))(2.0, y0)
        for one, other in zip(found, gt.jacobian(exact, argnums=(0, 1))(2.0, y0), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("method", METHODS)
def test_derivatives_in_the_elements_of_the_matrix(method: str) -> None:
    """Two capacitors in a circuit: c1 v1' = (v2 - v1) / r, and v2 is the middle of v1 and the source."""

    def circuit(t: Any, y: Any) -> Any:
        return [y[1] - y[0], (1.0 - y[1]) - (y[1] - y[0])]

    def end(c: Any, way: Any = np.diag) -> Any:
        M = way(np.stack([c, 0.0 * c]))
        return solved(circuit, (0.0, 1.0), [0.0, 0.5], method, mass_matrix=M, t_eval=[0.0, 0.7, 1.0]).y

    def exact(c: Any) -> Any:
        v = 1 - np.exp(-np.array([0.0, 0.7, 1.0]) / (2 * c))
        return np.stack([v, (1 + v) / 2])

    for way in (np.diag, lambda c: diags_array(c, offsets=0), lambda c: [[c[0], 0.0], [0.0, 0.0]]):
        np.testing.assert_allclose(
            gt.jit(lambda c, way=way: end(c, way))(0.6), exact(0.6), rtol=1e-6, atol=1e-9
        )
        found = gt.jvp(lambda c, way=way: end(c, way), (0.6,), (1.0,))[1]
        np.testing.assert_allclose(found, gt.jvp(exact, (0.6,), (1.0,))[1], rtol=1e-5, atol=1e-7)
    slope, second = (f(lambda c: np.sum(end(c)))(0.6) for f in (gt.grad, lambda f: gt.grad(gt.grad(f))))
    np.testing.assert_allclose(slope, gt.grad(lambda c: np.sum(exact(c)))(0.6), rtol=1e-5)
    np.testing.assert_allclose(second, gt.grad(gt.grad(lambda c: np.sum(exact(c))))(0.6), rtol=1e-4)


def ladder(n: int, method: str, sparse: bool, r: Any) -> Any:
    """A ladder of resistors, with a capacitor at every second node."""
    masses = np.where(np.arange(n) % 2 == 0, 1e-3, 0.0)
    M = diags_array(masses, format="csr") if sparse else np.diag(masses)

    def currents(t: Any, v: Any) -> Any:
        source = np.sin(20 * t)
        left, right = np.append(source, v[:-1]), np.append(v[1:], 0.0)
        return (left - 2 * v + right) / r - 1e-2 * v**3

    given: dict[str, Any] = {"mass_matrix": M, "t_eval": np.array([0.05, 0.1]), "rtol": 1e-7, "atol": 1e-9}
    return gt.scipy.solve_ivp(currents, (0.0, 0.1), np.zeros(n), method, **given).y


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_a_ladder_in_bands(method: str, sparse: bool) -> None:
    """24 unknowns are solved in bands, 6 are not; differences of the values say that the derivatives are right."""
    for n in (6, 24):
        value, slope = gt.jvp(lambda r, n=n: ladder(n, method, sparse, r), (0.5,), (1.0,))
        np.testing.assert_allclose(value, ladder(n, method, sparse, 0.5), rtol=1e-9, atol=1e-12)
        differences = (ladder(n, method, sparse, 0.501) - ladder(n, method, sparse, 0.499)) / 0.002
        np.testing.assert_allclose(slope, differences, rtol=1e-3, atol=1e-4)
        slopes = gt.grad(lambda r, n=n: np.sum(ladder(n, method, sparse, r)))(0.5)
        np.testing.assert_allclose(slopes, np.sum(slope), rtol=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_an_end_that_is_nan_gives_nan(method: str) -> None:
    def end(time: Any) -> Any:
        return gt.scipy.solve_ivp(lambda t, y: -y, (0.0, time), [1.0], method, mass_matrix=np.eye(1)).y[0, -1]

    assert np.isnan(gt.value_and_grad(end)(np.nan)).all()
    with gt.GradientTape() as tape:
        time = tape.watch(np.array(np.nan))
        value = end(time)
    assert np.isnan(value)
    assert np.isnan(tape.gradient(value, time).numpy())


@pytest.mark.parametrize("method", METHODS)
def test_a_mass_matrix_in_bands(method: str) -> None:
    """Finite elements for the heat equation: M is tridiagonal and regular. The first mode decays as the discrete eigenvalue says."""
    n, h = 19, 1 / 20
    M = h / 6 * diags_array([1.0, 4.0, 1.0], offsets=[-1, 0, 1], shape=(n, n))
    mode = np.sin(np.pi * h * np.arange(1, n + 1))
    rate = 6 / h**2 * (1 - np.cos(np.pi * h)) / (2 + np.cos(np.pi * h))

    def end(k: Any) -> Any:
        def heat(t: Any, u: Any) -> Any:
            padded = np.concatenate([np.zeros(1), u, np.zeros(1)])
            return k * (padded[:-2] - 2 * u + padded[2:]) / h

        return solved(heat, (0.0, 0.1), mode, method, mass_matrix=M).y[:, -1]

    np.testing.assert_allclose(end(1.0), mode * np.exp(-0.1 * rate), rtol=1e-5)
    slope = gt.jacobian(end)(1.0)
    np.testing.assert_allclose(slope, -0.1 * rate * mode * np.exp(-0.1 * rate), rtol=1e-5)


def pendulum(index: int, gamma: float = 0.0) -> Any:
    """x, y, u, v and the tension; the constraint is on the length, or its time derivatives, with Baumgarte's terms."""

    def motion(t: Any, s: Any, g: Any) -> Any:
        x, y, u, v, force = s
        length, speed = x**2 + y**2 - 1, x * u + y * v
        bend = u**2 + v**2 - force * (x**2 + y**2) - g * y
        constraint = {3: length, 2: speed, 1: bend + 2 * gamma * speed + gamma**2 * length / 2}[index]
        return [u, v, -force * x, -force * y - g, constraint]

    return motion


PENDULUM = np.diag([1.0, 1, 1, 1, 0])


@pytest.mark.parametrize("method", METHODS)
def test_a_pendulum_by_index_reduction(method: str) -> None:
    """It is that in its angle, and its length stays; the tension is found."""

    def swing(t: Any, s: Any, g: Any) -> Any:
        return [s[1], -g * np.sin(s[0])]

    start = [1.0, 0.0, 0.0, 0.0, 0.0]

    def end(g: Any) -> Any:
        given: dict[str, Any] = {"args": (g,), "mass_matrix": PENDULUM, "t_eval": np.array([0.0, 2.0])}
        return solved(pendulum(1, 5.0), (0.0, 2.0), start, method, **given).y

    def by_angle(g: Any) -> Any:
        angle, speed = solve_ivp(swing, (0.0, 2.0), [np.pi / 2, 0.0], "DOP853", args=(g,), **TIGHT).y[:, -1]
        return np.stack([np.sin(angle), -np.cos(angle), speed**2 + g * np.cos(angle)])

    found = end(9.81)
    assert abs(found[4, 0]) < 1e-12  # the tension at rest, to the side
    np.testing.assert_allclose(found[[0, 1, 4], 1], by_angle(9.81), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found[0, 1] ** 2 + found[1, 1] ** 2, 1.0, atol=1e-5)
    slope, exact = gt.jacobian(end)(9.81)[[0, 1, 4], 1], gt.jacobian(by_angle)(9.81)
    np.testing.assert_allclose(slope, exact, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("index", [2, 3])
@pytest.mark.parametrize("compiled", [False, True])
def test_higher_index_is_named(index: int, compiled: bool) -> None:
    def end(g: Any) -> Any:
        given: dict[str, Any] = {"args": (g,), "mass_matrix": PENDULUM}
        return gt.scipy.solve_ivp(pendulum(index), (0.0, 1.0), [1.0, 0, 0, 0, 0], **given).y[0, -1]

    with pytest.raises(ArgumentError, match="index of the equations is higher than 1") as caught:
        (gt.jit(gt.grad(end)) if compiled else end)(9.81)
    assert "Baumgarte" in str(caught.value) and __file__ in str(caught.value)


def test_a_singularity_that_depends_on_numbers() -> None:
    """0 = y2^2 - y1 has a singular Jacobian where y2 is 0. In a compiled function no number is known."""

    def fun(t: Any, y: Any) -> Any:
        return [-y[1], y[1] ** 2 - y[0]]

    M = np.diag([1.0, 0.0])
    with pytest.raises(ArgumentError, match="index of the equations"):
        gt.scipy.solve_ivp(fun, (0.0, 1.0), [0.0, 0.0], mass_matrix=M)

    def end(y0: Any) -> Any:
        found = gt.scipy.solve_ivp(fun, (0.0, 1.0), y0, mass_matrix=M, t_eval=[1.0])
        return found.y[:, 0], found.success

    with pytest.raises(np.linalg.LinAlgError):
        gt.jit(end)(np.zeros(2))
    value, success = gt.jit(end)(np.array([4.0, 1.0]))
    np.testing.assert_allclose(value, [2.25, 1.5], rtol=1e-4)
    assert success


def test_no_consistent_values() -> None:
    def fun(t: Any, y: Any) -> Any:
        return [-y[0], y[1] ** 2 + 1.0 + y[1] * 0.01]

    def solved(y0: Any) -> Any:
        return gt.scipy.solve_ivp(fun, (0.0, 1.0), y0, mass_matrix=np.diag([1.0, 0.0]), t_eval=[1.0])

    for y0 in ([1.0, 1.0], [1.0, np.nan]):
        with pytest.raises(ArgumentError, match="no consistent initial values near y0"):
            solved(y0)
    y, success = gt.jit(lambda y0: (solved(y0).y, solved(y0).success))(np.ones(2))
    assert np.all(np.isnan(y)) and not success


def test_initial_values_far_off_are_found() -> None:
    """Newton's method alone diverges from here: atan."""

    def fun(t: Any, y: Any) -> Any:
        return [-y[0], np.arctan(y[1] - y[0])]

    with pytest.warns(GradtapeWarning, match=r"y0\[1\] was changed from 20 to 1"):
        found = gt.scipy.solve_ivp(fun, (0.0, 1.0), [1.0, 20.0], mass_matrix=np.diag([1.0, 0.0]))
    np.testing.assert_allclose(found.y[1], np.exp(-found.t), rtol=1e-2)
    np.testing.assert_allclose(found.y[:, 0], [1.0, 1.0], rtol=1e-6)


def test_a_reactor() -> None:
    """A cooled tank whose temperature follows the heat balance at once: the steady state solves the balances."""

    def tank(t: Any, s: Any, p: Any) -> Any:
        c, temperature = s
        rate = p[0] * np.exp(p[1] * (1 - 1 / temperature)) * c
        return [p[2] * (1.0 - c) - rate, 0.3 * rate - (temperature - 1.0)]

    def steady(p: Any) -> Any:
        given: dict[str, Any] = {"args": (p,), "mass_matrix": np.diag([1.0, 0.0])}
        return solved(tank, (0.0, 60.0), [1.0, 1.1], **given).y[:, -1]

    def balances(s: Any, p: Any) -> Any:
        return np.stack(tank(0.0, s, p))

    p = np.array([0.8, 2.0, 1.0])
    with pytest.warns(GradtapeWarning, match="was changed"):
        state = steady(p)
    np.testing.assert_allclose(balances(state, p), 0.0, atol=1e-7)
    by_state, by_parameters = gt.jacobian(balances, argnums=(0, 1))(state, p)
    exact = -np.linalg.solve(by_state, by_parameters)
    np.testing.assert_allclose(gt.jit(gt.jacobian(steady))(p), exact, rtol=1e-5, atol=1e-7)


def test_the_identity_and_no_matrix() -> None:
    def end(a: Any, **options: Any) -> Any:
        return solved(lambda t, y: -a * y, (0.0, 1.0), [1.0, 2.0], "Radau", **options).y[:, -1]

    plain = end(1.3)
    np.testing.assert_allclose(end(1.3, mass_matrix=np.eye(2)), plain, rtol=1e-9)
    np.testing.assert_allclose(end(1.3, mass_matrix=np.eye(2, dtype=np.float32)), plain, rtol=1e-9)
    np.testing.assert_allclose(gt.jacobian(end)(1.3), -plain, rtol=1e-6)
    with gt.config.override(
        ode_adjoint="continuous"
    ):  # it is for equations without a matrix; the steps are differentiated
        slope = gt.jacobian(lambda a: end(a, mass_matrix=np.eye(2)), mode="rev")(1.3)
    np.testing.assert_allclose(slope, -plain, rtol=1e-6)


def test_backward_in_time() -> None:
    def end(a: Any) -> Any:
        return solved(
            logistic, (1.0, 0.0), [0.3, 0.4 * 0.09], args=(a, 0.4), mass_matrix=np.diag([1.0, 0.0])
        ).y[0, -1]

    exact = logistic_exactly(np.array([1.3, 0.4, 0.3]), -1.0)[0]
    np.testing.assert_allclose(end(1.3), exact, rtol=1e-7)
    np.testing.assert_allclose(gt.grad(end)(1.3), (end(1.301) - end(1.299)) / 0.002, rtol=1e-4)


def decay(t: Any, y: Any) -> Any:
    return -y


@pytest.mark.parametrize("traced", [False, True])
def test_wrong_arguments(traced: bool) -> None:
    def called(*args: Any, **options: Any) -> Any:
        def end(y0: Any) -> Any:
            return gt.scipy.solve_ivp(decay, (0.0, 1.0), y0, *args, t_eval=[1.0], **options).y

        return (gt.jit(end) if traced else end)(np.ones(2))

    for method in ("RK45", "RK23", "DOP853", "LSODA"):
        with pytest.raises(ArgumentError, match=f"method {method} does not take a mass_matrix"):
            called(method, mass_matrix=np.eye(2))
    for name in ("mass_matrx", "massmatrix", "Mass"):
        with pytest.raises(TypeError, match=f"{name}'.*did you mean mass_matrix"):
            called("Radau", **{name: np.eye(2)})
    with pytest.raises(ShapeError, match=r"mass_matrix has shape \(3, 3\), and y0 has 2 elements"):
        called(mass_matrix=np.eye(3))
    with pytest.raises(ShapeError, match=r"mass_matrix has shape \(2,\)"):
        called(mass_matrix=[1.0, 0.0])
    with pytest.raises(ShapeError, match=r"mass_matrix has shape \(1, 2\)"):
        called(mass_matrix=csr_array([[1.0, 0.0]]))
    with pytest.raises(DtypeError, match="mass_matrix has dtype complex128"):
        called(mass_matrix=np.eye(2) * 1j)
    with pytest.raises(DtypeError, match="mass_matrix has dtype <U1"):
        called(mass_matrix=[["a", "b"], ["c", "d"]])
    with pytest.raises(ArgumentError, match="not finite"):
        called(mass_matrix=np.diag([1.0, np.nan]))
    with pytest.raises(ArgumentError, match="mass_matrix is a function"):
        called(mass_matrix=lambda t: np.eye(2))
    with pytest.raises(ArgumentError, match="has no method 'Adams'"):
        called("Adams", mass_matrix=np.eye(2))


def test_other_wrong_calls() -> None:
    with pytest.raises(DtypeError, match="complex y0"):
        gt.scipy.solve_ivp(decay, (0.0, 1.0), [1j], "BDF", mass_matrix=np.eye(1))
    with pytest.raises(ArgumentError, match=r"call gt\.scipy\.solve_ivp"):
        gt.jit(lambda y0: solve_ivp(decay, (0.0, 1.0), y0, "BDF", t_eval=[1.0], mass_matrix=np.eye(1)).y)(
            np.ones(1)
        )
    with pytest.raises(ArgumentError, match=r"gt\.scipy\.solve_ivp"):
        gt.scipy.solve_ivp(3, (0.0, 1.0), [1.0], mass_matrix=np.eye(1))


def test_a_right_hand_side_that_becomes_nan() -> None:
    def fun(t: Any, y: Any) -> Any:
        return [np.where(t > 0.5, np.nan, -y[0]), y[1] - y[0]]

    for method in METHODS:
        found = gt.scipy.solve_ivp(fun, (0.0, 1.0), [1.0, 1.0], method, mass_matrix=np.diag([1.0, 0.0]))
        assert not found.success and found.status == -1 and found.t[-1] <= 0.5
        end = gt.jit(
            lambda y0, method=method: (
                gt.scipy.solve_ivp(
                    fun, (0.0, 1.0), y0, method, mass_matrix=np.diag([1.0, 0.0]), t_eval=[0.25, 1.0]
                ).y
            )
        )(np.ones(2))
        assert np.all(np.isfinite(end[:, 0])) and np.all(np.isnan(end[:, 1]))
