"""Measures Robertson's kinetics with a mass matrix, against SciPy's Radau for the differential form, and IDAS.

    python benchmarks/dae.py [--repeats 7]

Times are medians of calls after the first, in one process and in turns, so that their ratios count. Derivatives are in the three rates.
IDAS, of CasADi's wheel, is left out where there is none.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.integrate import solve_ivp

import gradtape as gt

TOLERANCES: dict[str, Any] = {"rtol": 1e-7, "atol": 1e-10}
RATES = np.array([0.04, 1e4, 3e7])
END, START = 40.0, np.array([1.0, 0.0, 0.0])
M = np.diag([1.0, 1.0, 0.0])


def reactions(t: Any, y: Any, k: Any) -> Any:
    """The kinetics; the last equation conserves mass."""
    slow, fast = k[0] * y[0] - k[1] * y[1] * y[2], k[2] * y[1] ** 2
    return [-slow, slow - fast, y[0] + y[1] + y[2] - 1.0]


def rates_of_change(t: Any, y: Any, k: Any) -> Any:
    """The kinetics as differential equations."""
    slow, fast = k[0] * y[0] - k[1] * y[1] * y[2], k[2] * y[1] ** 2
    return [-slow, slow - fast, fast]


def by_gradtape(method: str, part: slice | None = None) -> Callable[[Any], Any]:
    """Return the last state, or the sum of a part of it, of the equations with a mass matrix."""

    def end(k: Any) -> Any:
        given: dict[str, Any] = {"args": (k,), "mass_matrix": M, **TOLERANCES}
        y = gt.scipy.solve_ivp(reactions, (0.0, END), START, method, **given).y[:, -1]
        return y if part is None else np.sum(y[part])

    return end


def by_idas() -> dict[str, Callable[[Any], Any]]:
    """Return the last state, and its Jacobian, by IDAS."""
    import casadi

    y, z, k = (casadi.SX.sym(name, n) for name, n in (("y", 2), ("z", 1), ("k", 3)))
    slow, fast = k[0] * y[0] - k[1] * y[1] * z, k[2] * y[1] ** 2
    problem = {"x": y, "z": z, "p": k, "ode": casadi.vertcat(-slow, slow - fast), "alg": y[0] + y[1] + z - 1}
    options = {"reltol": TOLERANCES["rtol"], "abstol": TOLERANCES["atol"]}
    solve = casadi.integrator("solve", "idas", problem, 0.0, END, options)
    p = casadi.MX.sym("p", 3)
    found = solve(x0=[1, 0], z0=0, p=p)
    end = casadi.vertcat(found["xf"], found["zf"])
    value = casadi.Function("value", [p], [end])
    slopes = casadi.Function("slopes", [p], [end, casadi.jacobian(end, p)])
    return {
        "IDAS": lambda k: np.ravel(value(k)),
        "IDAS and Jacobian": lambda k: np.asarray(slopes(k)[1]),
    }


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    repeats = parser.parse_args().repeats
    tight = {"rtol": 1e-11, "atol": 1e-13}
    exact = gt.jit(
        lambda k: solve_ivp(rates_of_change, (0, END), START, "Radau", args=(k,), **tight).y[:, -1]
    )
    slopes = gt.jacobian(exact)
    ways: dict[str, Callable[[Any], Any]] = {
        "SciPy, Radau, differential form": lambda k: solve_ivp(
            rates_of_change, (0, END), START, "Radau", args=(k,), **TOLERANCES
        ).y[:, -1]
    }
    for method in ("Radau", "BDF"):
        ways[method] = gt.jit(by_gradtape(method))
        ways[f"{method} and Jacobian"] = gt.jit(gt.jacobian(by_gradtape(method), mode="fwd"))
        ways[f"{method} and gradient of a number"] = gt.jit(gt.grad(by_gradtape(method, slice(1))))
    if importlib.util.find_spec("casadi") is not None:
        ways |= by_idas()
    truth = {1: exact(RATES), 2: slopes(RATES)}
    times: dict[str, list[float]] = {name: [] for name in ways}
    first: dict[str, float] = {}
    for name, way in ways.items():
        begin = time.perf_counter()
        found = np.asarray(way(RATES))
        first[name] = time.perf_counter() - begin
        like = truth[2][0] if "gradient" in name else truth[found.ndim]
        error = np.max(np.abs(found - like) / np.max(np.abs(like), axis=0))
        print(f"{name:36s} first {first[name]:7.2f} s   error {error:.1e}", flush=True)
    for _ in range(repeats):
        for name, way in ways.items():
            begin = time.process_time()
            way(RATES)
            times[name].append(time.process_time() - begin)
    for name, one in times.items():
        print(f"{name:36s} {1e3 * statistics.median(one):9.3f} ms")


if __name__ == "__main__":
    main()
