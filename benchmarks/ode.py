"""Measures solve_ivp and its gradients: against SciPy's time for the values, central differences, and JAX with diffrax.

    python benchmarks/ode.py [--problems lotka_volterra,robertson] [--repeats 7]

Times are medians of calls after the first, in one process and in turns, so that their ratios count. `differences` is the error of the
gradient against central differences of SciPy's own values, relative to the largest element.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.integrate import solve_ivp

import gradtape as gt


class Problem(NamedTuple):
    """A problem: a number that depends on parameters, by NumPy code that calls `solve_ivp`, and the step of the differences."""

    loss: Callable[[Any], Any]
    parameters: Any
    step: float
    diffrax: Callable[[], Callable[[Any], Any]] | None = None


def lotka_volterra(p: Any) -> Any:
    """Predators and prey, 100 times, RK45."""

    def fun(t: Any, z: Any) -> Any:
        x, y = z
        return [p[0] * x - p[1] * x * y, -p[2] * y + p[3] * x * y]

    times = np.linspace(0.0, 15.0, 100)
    return np.sum(solve_ivp(fun, (0.0, 15.0), [10.0, 5.0], t_eval=times, rtol=1e-7, atol=1e-9).y)


def by_diffrax(
    fun: Callable[..., Any],
    start: Any,
    times: Any,
    solver: str,
    read: Callable[[Any], Any],
    **tolerances: float,
) -> Callable[[Any], Any]:
    """Return the value and gradient of a number that is read from states at some times, by JAX with diffrax.

    Parameters
    ----------
    fun : callable
        ``fun(jnp, t, y, p)``, the right-hand side.
    start : array_like
        The state at 0.
    times : array_like
        When states are saved.
    solver : str
        A class of diffrax.
    read : callable
        ``read(states)``, states of shape (times, unknowns).
    **tolerances
        rtol and atol.
    """
    import diffrax
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)

    def loss(p: Any) -> Any:
        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(lambda t, y, p: fun(jnp, t, y, p)),
            getattr(diffrax, solver)(),
            0.0,
            times[-1],
            None,
            jnp.asarray(start),
            args=p,
            saveat=diffrax.SaveAt(ts=jnp.asarray(times)),
            stepsize_controller=diffrax.PIDController(**tolerances),
            max_steps=4096,
        )
        return read(solution.ys)

    return jax.jit(jax.value_and_grad(loss))


def lotka_volterra_by_diffrax() -> Callable[[Any], Any]:
    """Return the same for JAX: Dormand and Prince's method with the same tolerances."""

    def fun(jnp: Any, t: Any, z: Any, p: Any) -> Any:
        return jnp.stack([p[0] * z[0] - p[1] * z[0] * z[1], -p[2] * z[1] + p[3] * z[0] * z[1]])

    times = np.linspace(0.0, 15.0, 100)
    return by_diffrax(fun, [10.0, 5.0], times, "Dopri5", lambda y: y.sum(), rtol=1e-7, atol=1e-9)


def robertson_by_diffrax() -> Callable[[Any], Any]:
    """Return the same for JAX: an implicit method of order 5, as Radau's is."""

    def fun(jnp: Any, t: Any, y: Any, p: Any) -> Any:
        slow, fast = p[0] * y[0] - p[1] * 1e4 * y[1] * y[2], p[2] * 3e7 * y[1] ** 2
        return jnp.stack([-slow, slow - fast, fast])

    times = np.array([0.4, 4.0, 40.0, 400.0, 4000.0])
    return by_diffrax(fun, [1.0, 0.0, 0.0], times, "Kvaerno5", lambda y: y[:, 0].sum(), rtol=1e-7, atol=1e-10)


def brusselator_by_diffrax() -> Callable[[Any], Any]:
    """Return the same for JAX."""
    n = 100
    x = np.arange(1, n + 1) / (n + 1)

    def fun(jnp: Any, t: Any, y: Any, p: Any) -> Any:
        u, v = y[:n], y[n:]
        wide_u, wide_v = jnp.pad(u, 1, constant_values=1.0), jnp.pad(v, 1, constant_values=3.0)
        scale = p[2] * (n + 1) ** 2
        rate_u = p[0] + u * u * v - (p[1] + 1) * u + scale * (wide_u[2:] - 2 * u + wide_u[:-2])
        rate_v = p[1] * u - u * u * v + scale * (wide_v[2:] - 2 * v + wide_v[:-2])
        return jnp.concatenate([rate_u, rate_v])

    start = np.concatenate([1 + np.sin(2 * np.pi * x), 3 * np.ones(n)])
    return by_diffrax(fun, start, np.array([1.0, 2.0]), "Kvaerno5", lambda y: y.sum(), rtol=1e-5, atol=1e-7)


def robertson(p: Any) -> Any:
    """A stiff reaction, Radau."""

    def fun(t: Any, y: Any) -> Any:
        slow, fast = p[0] * y[0] - p[1] * 1e4 * y[1] * y[2], p[2] * 3e7 * y[1] ** 2
        return [-slow, slow - fast, fast]

    times = np.array([0.4, 4.0, 40.0, 400.0, 4000.0])
    options = {"method": "Radau", "rtol": 1e-7, "atol": 1e-10}
    return np.sum(solve_ivp(fun, (0.0, 4000.0), [1.0, 0.0, 0.0], t_eval=times, **options).y[0])


def brusselator(p: Any, method: str = "Radau") -> Any:
    """A reaction with diffusion on a line, 200 unknowns."""
    n = 100
    x = np.arange(1, n + 1) / (n + 1)

    def fun(t: Any, y: Any) -> Any:
        u, v = y[:n], y[n:]
        wide_u = np.concatenate([np.ones(1), u, np.ones(1)])
        wide_v = np.concatenate([3 * np.ones(1), v, 3 * np.ones(1)])
        scale = p[2] * (n + 1) ** 2
        return np.concatenate(
            [
                p[0] + u * u * v - (p[1] + 1) * u + scale * (wide_u[2:] - 2 * u + wide_u[:-2]),
                p[1] * u - u * u * v + scale * (wide_v[2:] - 2 * v + wide_v[:-2]),
            ]
        )

    start = np.concatenate([1 + np.sin(2 * np.pi * x), 3 * np.ones(n)])
    options = {"method": method, "rtol": 1e-5, "atol": 1e-7}
    return np.sum(solve_ivp(fun, (0.0, 2.0), start, t_eval=[1.0, 2.0], **options).y)


def brusselator_bdf(p: Any) -> Any:
    """The same by BDF."""
    return brusselator(p, "BDF")


def crossing(t: Any, y: Any) -> Any:
    """The event of a pendulum that hangs down."""
    return y[0]


crossing.terminal = True  # type: ignore[attr-defined]


def pendulum(p: Any) -> Any:
    """The time at which a damped pendulum hangs down, an event."""

    def fun(t: Any, y: Any) -> Any:
        return [y[1], -p[0] * np.sin(y[0]) - p[1] * y[1]]

    options = {"events": crossing, "rtol": 1e-8, "atol": 1e-10}
    return solve_ivp(fun, (0.0, 10.0), [p[2], 0.0], **options).t_events[0][0]


def pendulum_by_diffrax() -> Callable[[Any], Any]:
    """Return the same for JAX: Newton's method finds the event in the last step."""
    import diffrax
    import jax
    import jax.numpy as jnp
    import optimistix

    jax.config.update("jax_enable_x64", True)
    event = diffrax.Event(lambda t, y, args, **_: y[0], optimistix.Newton(1e-10, 1e-12))

    def loss(p: Any) -> Any:
        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(lambda t, y, p: jnp.stack([y[1], -p[0] * jnp.sin(y[0]) - p[1] * y[1]])),
            diffrax.Dopri5(),
            0.0,
            10.0,
            None,
            jnp.stack([p[2], jnp.zeros(())]),
            args=p,
            event=event,
            stepsize_controller=diffrax.PIDController(rtol=1e-8, atol=1e-10),
        )
        return solution.ts[0]

    return jax.jit(jax.value_and_grad(loss))


PROBLEMS = {
    "lotka_volterra": Problem(
        lotka_volterra, np.array([1.5, 1.0, 3.0, 1.0]), 1e-5, lotka_volterra_by_diffrax
    ),
    "robertson": Problem(robertson, np.array([0.04, 1.0, 1.0]), 1e-4, robertson_by_diffrax),
    "brusselator": Problem(brusselator, np.array([1.0, 3.0, 0.02]), 1e-4, brusselator_by_diffrax),
    "brusselator_bdf": Problem(brusselator_bdf, np.array([1.0, 3.0, 0.02]), 1e-4),
    "pendulum": Problem(pendulum, np.array([9.81, 0.2, 1.2]), 1e-5, pendulum_by_diffrax),
}


def seconds(function: Callable[[Any], Any], argument: Any, repeats: int) -> float:
    """Return the median time of a call."""
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        function(argument)
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def measured(name: str, repeats: int) -> str:
    """Return a line of the table."""
    problem = PROBLEMS[name]
    p = problem.parameters
    value, gradient = gt.jit(problem.loss), gt.value_and_grad(problem.loss)
    begin = time.perf_counter()
    _, slopes = gradient(p)
    first = time.perf_counter() - begin
    value(p)
    steps = np.diag(problem.step * p)
    differences = [(problem.loss(p + h) - problem.loss(p - h)) / (2 * h.sum()) for h in steps]
    error = np.max(np.abs(slopes - differences)) / np.max(np.abs(differences))
    by_scipy, by_value, by_gradient = (seconds(f, p, repeats) for f in (problem.loss, value, gradient))
    line = (
        f"{name:16} {by_scipy * 1e3:10.2f} {by_value * 1e3:10.3f} {by_gradient * 1e3:10.3f} {by_gradient / by_scipy:12.4f}"
        f" {first:8.1f} {error:12.1e}"
    )
    if problem.diffrax is not None:
        try:
            other = problem.diffrax()
        except ImportError:
            return line
        np.testing.assert_allclose(other(p)[1], slopes, rtol=1e-3)
        line += f" {seconds(lambda p: other(p)[1].block_until_ready(), p, repeats) * 1e3:10.3f}"
    return line


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", default=",".join(PROBLEMS))
    parser.add_argument("--repeats", type=int, default=7)
    given = parser.parse_args()
    print(
        f"{'':16} {'SciPy ms':>10} {'value ms':>10} {'grad ms':>10} {'grad/SciPy':>12} {'first s':>8} {'differences':>12}"
        f" {'diffrax ms':>10}"
    )
    for name in given.problems.split(","):
        print(measured(name, given.repeats), flush=True)


if __name__ == "__main__":
    main()
