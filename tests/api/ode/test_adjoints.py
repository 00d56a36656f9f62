"""The adjoints of initial value problems: the continuous one agrees with that of the steps, and neither stores all steps."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.integrate import odeint, solve_ivp

import gradtape as gt

TIGHT: dict[str, Any] = {"rtol": 1e-8, "atol": 1e-10}


@pytest.fixture(autouse=True)
def seconds_of_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gt.config, "progress", False)


def both(function: Callable[[], Any]) -> tuple[Any, Any]:
    """Return what a function returns with either adjoint."""
    discrete = function()
    with gt.config.override(ode_adjoint="continuous"):
        return discrete, function()


def lotka_volterra(p: Any, method: str = "RK45") -> Any:
    def fun(t: Any, z: Any) -> Any:
        return [p[0] * z[0] - p[1] * z[0] * z[1], -p[2] * z[1] + p[3] * z[0] * z[1]]

    times = np.linspace(0, 8, 9)
    return np.sum(solve_ivp(fun, (0, 8), [10.0, 5.0], t_eval=times, method=method, **TIGHT).y)


@pytest.mark.parametrize("method", ["RK45", "DOP853"])
def test_lotka_volterra(method: str) -> None:
    p = np.array([1.5, 1.0, 3.0, 1.0])
    discrete, continuous = both(lambda: gt.grad(lambda p: lotka_volterra(p, method))(p))
    np.testing.assert_allclose(continuous, discrete, rtol=1e-5)
    assert not np.array_equal(continuous, discrete)  # they are two ways


def test_robertson() -> None:
    def fun(t: Any, y: Any, slow: Any, fast: Any, back: Any) -> Any:
        first = slow * y[0] - back * 1e4 * y[1] * y[2]
        return [-first, first - fast * 3e7 * y[1] ** 2, fast * 3e7 * y[1] ** 2]

    def loss(p: Any, start: Any) -> Any:
        times = np.array([0.4, 40.0, 4000.0])
        options = {"method": "Radau", "rtol": 1e-7, "atol": 1e-10}
        return np.sum(solve_ivp(fun, (0, 4000), start, t_eval=times, args=tuple(p), **options).y[0])

    at = np.array([0.04, 1.0, 1.0]), np.array([1.0, 0.0, 0.0])
    discrete, continuous = both(lambda: gt.grad(loss, argnums=(0, 1))(*at))
    for one, other in zip(continuous, discrete, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def hit(t: Any, y: Any) -> Any:
    return y[0]


hit.terminal, hit.direction = True, -1  # type: ignore[attr-defined]


def landing(g: Any) -> Any:
    found = solve_ivp(lambda t, y: [y[1], -g * np.exp(-y[0])], (0, 10), [1.0, 2.0], events=hit, **TIGHT)
    return found.y[1, -1] * found.t[-1] + found.y_events[0][0, 1] * found.t_events[0][0]


def wave(a: Any) -> Any:
    return solve_ivp(lambda t, y: -a * y * np.cos(t), (0, 1), [1.0, 2.0], t_eval=[0.0, 0.3, 1.0], **TIGHT).y


W = np.random.default_rng(0).normal(size=(6, 6)) * 0.5

CASES: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "an event": (landing, 9.81),
    "an array from outside": (
        lambda w: np.sum(
            solve_ivp(lambda t, y: np.tanh(w @ y), (0, 3), np.ones(6), t_eval=[1.0, 3.0], **TIGHT).y
        ),
        W,
    ),
    "times": (
        lambda b: np.sum(
            solve_ivp(lambda t, y: -t * y, (0, 2), [1.0], t_eval=b * np.array([0.5, 1.0]), **TIGHT).y
        ),
        1.3,
    ),
    "both ends": (lambda b: solve_ivp(lambda t, y: -t * y, (b, 2 * b), [1.0], **TIGHT).y[0, -1], 0.8),
    "backward": (
        lambda a: solve_ivp(lambda t, y: -a * y, (2, 0), [1.0, a], t_eval=[1.5, 0.1], **TIGHT).y[1, -1],
        2.0,
    ),
    "dense output": (
        lambda b: np.sum(
            solve_ivp(lambda t, y: -b * y, (0, 2), [1.0], dense_output=True, **TIGHT).sol(
                np.array([1.5, 0.3 * b])
            )
        ),
        1.3,
    ),
    "odeint": (
        lambda b: np.sum(
            odeint(lambda y, t: [y[1], -b * y[1] - 5 * np.sin(y[0])], [1.0, 0.0], np.linspace(0, 3, 4))
        ),
        0.25,
    ),
    "what is not reached": (
        lambda a: np.nansum(
            solve_ivp(lambda t, y: a * y**2, (0, 2), [1.0], t_eval=[0.5, 2.0], rtol=1e-6, atol=1e-8).y
        ),
        1.0,
    ),
    "complex numbers, whose adjoint is that of the steps": (
        lambda a: np.abs(
            solve_ivp(lambda t, y: 1j * a * y, (0, 2), [1.0 + 0j], t_eval=[2.0], **TIGHT).y[0, 0] + a
        ),
        2.0,
    ),
    "no influence": (
        lambda a: a + 0.0 * np.sum(solve_ivp(lambda t, y: -a * y, (0, 1), [1.0], t_eval=[1.0], **TIGHT).y),
        2.0,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_a_problem_is_stated_with(name: str) -> None:
    function, at = CASES[name]
    discrete, continuous = both(lambda: gt.grad(function)(at))
    np.testing.assert_allclose(continuous, discrete, rtol=1e-5, atol=1e-9)


TRANSFORMS: dict[str, Callable[[], Any]] = {
    "forward mode": lambda: gt.jacfwd(wave)(1.3),
    "rows of a Jacobian": lambda: gt.jacrev(wave)(1.3),
    "forward over reverse": lambda: gt.jvp(gt.grad(lambda a: np.sum(wave(a) ** 2)), (1.3,), (1.0,))[1],
    "reverse over reverse": lambda: gt.grad(gt.grad(lambda a: np.sum(wave(a) ** 2)))(1.3),
    "elements of gradients": lambda: gt.vmap(gt.grad(lambda a: np.sum(wave(a) ** 2)))(np.array([0.3, 5.0])),
    "gradient of elements": lambda: gt.grad(lambda a: np.sum(gt.vmap(wave)(a) ** 2))(np.array([0.3, 5.0])),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms(name: str) -> None:
    discrete, continuous = both(TRANSFORMS[name])
    np.testing.assert_allclose(continuous, discrete, rtol=1e-5)


def test_on_a_tape_and_in_a_function_that_was_compiled_before() -> None:
    gradient = gt.jit(gt.grad(lambda a: np.sum(wave(a) ** 2)))

    def by_tape() -> Any:
        with gt.GradientTape() as tape:
            a = tape.watch(np.array(1.3))
            loss = np.sum(wave(a) ** 2)
        return tape.gradient(loss, a)

    discrete, continuous = both(by_tape)
    np.testing.assert_allclose(continuous, discrete, rtol=1e-6)
    first, other = both(lambda: gradient(1.3))
    np.testing.assert_allclose([first, other], [discrete, continuous], rtol=1e-12)


def test_a_parameter_that_is_not_a_number() -> None:
    def end(a: Any) -> Any:
        return solve_ivp(lambda t, y: -a * y, (0, 1), [1.0], t_eval=[1.0]).y[0, 0]

    assert np.isnan(both(lambda: gt.grad(end)(np.nan))).all()


def test_the_setting() -> None:
    with pytest.raises(ValueError, match='"discrete" or "continuous"'):
        gt.config.ode_adjoint = "backward"


MEMORY = """
import resource, sys
import numpy as np
from scipy.integrate import solve_ivp
import gradtape as gt

gt.config.progress = False
gt.config.ode_adjoint = sys.argv[1]
N = 2000

def loss(w, end):
    start = np.linspace(0.5, 1, N)
    return np.sum(solve_ivp(lambda t, y: w * np.cos(w * t) * y, (0, end), start, t_eval=end[None],
                            method="RK23", rtol=1e-5, atol=1e-8).y)

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

gradient = gt.jit(gt.grad(loss))
gradient(2.0, np.float64(15.0))
before = peak()
gradient(2.0, np.float64(600.0))
steps = solve_ivp(lambda t, y: 2 * np.cos(2 * t) * y, (0, 600), [0.5, 1.0], method="RK23", rtol=1e-5, atol=1e-8).t.size
print(peak() - before, steps * N * 8 // 2**20)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the unit of ru_maxrss is that of Linux")
@pytest.mark.parametrize("adjoint", ["discrete", "continuous"])
def test_the_memory_of_a_long_integration(adjoint: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", MEMORY, adjoint], capture_output=True, text=True, check=True, timeout=300
    )
    grown, all_states = map(int, ran.stdout.split())
    assert all_states > 100
    assert grown < all_states / 4


def kinetics(t: Any, y: Any, k: Any) -> Any:
    slow, fast = k[0] * y[0] - k[1] * 1e4 * y[1] * y[2], k[2] * 3e7 * y[1] ** 2
    return [-slow, slow - fast, fast]


def conserved(t: Any, y: Any, k: Any) -> Any:
    return [*kinetics(t, y, k)[:2], y[0] + y[1] + y[2] - 1.0]


def waves(t: Any, y: Any, k: Any) -> Any:
    return -k[0] * y * np.cos(10 * k[1] * t) + k[2] * np.roll(y, 1) * np.sin(t)


def states(k: Any, method: str, kind: str) -> Any:
    """The states at many times, most of which are in the same steps, or many steps apart."""
    options: dict[str, Any] = {"method": method, "rtol": 1e-9, "atol": 1e-12, "args": (k,)}
    if kind == "waves":
        times = np.concatenate([[0.0, 0.5, 0.5 + 1e-9], np.linspace(0.51, 0.52, 5), [1.9, 2.0]])
        return solve_ivp(waves, (0, 2), np.linspace(0.1, 1.0, 40), t_eval=times, **options).y
    times = np.concatenate([[0.4, 0.4 + 1e-9, 40.0], np.linspace(41, 41.1, 5), [4000.0]])
    if kind == "kinetics":
        return solve_ivp(kinetics, (0, 5000), [1.0, 0, 0], t_eval=times, **options).y
    options["mass_matrix"] = np.diag([1.0, 1.0, 0.0])
    return gt.scipy.solve_ivp(conserved, (0, 5000), [1.0, 0, 0], t_eval=times, **options).y


@pytest.mark.parametrize(
    "method, kind",
    [
        *[(method, "waves") for method in ("RK23", "RK45", "DOP853", "Radau", "BDF")],
        *[(method, kind) for method in ("Radau", "BDF") for kind in ("kinetics", "conserved")],
    ],
)
def test_reverse_mode_at_many_times_is_the_transpose_of_forward_mode(method: str, kind: str) -> None:
    # A loop over the steps within one over the times repeated the steps in the reverse sweep, with other sizes because of rounding errors.
    k = np.array([0.04, 1.0, 1.0]) if kind != "waves" else np.array([2.0, 1.5, 0.7])
    forward = gt.jacobian(lambda k: states(k, method, kind), mode="fwd")(k)
    weights = np.random.default_rng(1).normal(size=forward.shape[:2])
    for chosen in (weights, weights * (np.arange(forward.shape[1]) < 2)):
        reverse = gt.grad(lambda k, w=chosen: np.sum(w * states(k, method, kind)))(k)
        exact = np.tensordot(chosen, forward, 2)
        size = np.tensordot(np.abs(chosen), np.abs(forward), 2)
        np.testing.assert_allclose(reverse, exact, atol=1e-9 * np.max(size), rtol=1e-9)


@pytest.mark.parametrize("method", ["RK45", "BDF"])
def test_a_state_moves_with_its_time_at_the_beginning_too(method: str) -> None:
    def total(times: Any, start: Any, t0: Any) -> Any:
        options = {**TIGHT, "method": method, "t_eval": times}
        return np.sum(solve_ivp(lambda t, y: -2.0 * y * t, (t0, 2.0), [start], **options).y)

    times = np.array([1.0, 1.5, 2.0])
    exact = 3.0 * np.exp(1 - times**2)
    for mode in ("fwd", "rev"):
        by_times, by_start, by_begin = gt.jacobian(total, argnums=(0, 1, 2), mode=mode)(times, 3.0, 1.0)
        np.testing.assert_allclose(by_times, -2 * times * exact, rtol=1e-6)
        np.testing.assert_allclose(by_start, np.sum(exact) / 3, rtol=1e-6)
        np.testing.assert_allclose(by_begin, 2 * np.sum(exact), rtol=1e-6)
