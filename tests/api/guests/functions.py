"""Functions of NumPy with loops and solvers inside, which return one number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.integrate
import scipy.optimize
import scipy.special
import scipy.stats

import gradtape as gt

V = np.array([0.3, -1.2, 0.7])
W = np.array([1.1, 0.4, 0.9])
M = np.array([[2.0, 0.3, -0.1], [0.2, 1.5, 0.4], [0.1, -0.3, 1.8]])
R = np.array([[0.3, -1.2, 0.7], [0.5, 0.1, -0.4]])


def loop_with_writes(x: Any, y: Any) -> Any:
    levels, level = np.zeros(x.shape[0]), 0.0
    for i in range(x.shape[0]):
        level = level + y[i] * (np.sin(x[i]) - level)
        levels[i] = level if level > 0 else 0.5 * level
    return np.sum(levels**2)


def loop_of_gradtape(x: Any, y: Any) -> Any:
    last, steps = gt.scan(lambda c, e: (0.5 * c + np.tanh(c * e), c * e), y, np.stack([x, x**2, -x]))
    return np.sum(last) + np.sum(steps**2)


def until(x: Any) -> Any:
    """Newton's steps until they are small."""
    root, step = 1.0, 1.0
    while abs(step) > 1e-14:
        step = (root**2 - np.sum(x**2)) / (2 * root)
        root = root - step
    return root**3


def until_by_loop(x: Any) -> Any:
    def step(root: Any, last: Any) -> Any:
        step = (root**2 - np.sum(x**2)) / (2 * root)
        return root - step, step

    def is_going(root: Any, last: Any) -> Any:
        return np.abs(last) > 1e-14

    return gt.while_loop(is_going, step, (1.0, 1.0), max_iterations=60)[0] ** 3


def system(x: Any, matrix: Any) -> Any:
    return np.sum(np.linalg.solve(matrix, x) ** 2) + np.linalg.slogdet(matrix)[1]


def factored(matrix: Any) -> Any:
    spd = matrix @ matrix.T + np.eye(matrix.shape[0])
    return np.sum(np.linalg.cholesky(spd) ** 3) + np.sum(np.linalg.eigvalsh(spd) ** 2)


def root(x: Any) -> Any:
    solution = scipy.optimize.root(lambda z: z**3 + z - x, np.zeros(x.shape)).x
    return np.sum(solution**2)


def flow(x: Any, rate: Any) -> Any:
    solution = scipy.integrate.solve_ivp(
        lambda t, y: -rate * y**2 + np.sin(t), (0.0, 1.0), x, rtol=1e-10, atol=1e-12
    )
    return np.sum(solution.y[:, -1] ** 2)


def area(x: Any) -> Any:
    return scipy.integrate.quad(lambda t: np.exp(-x[0] * t) * np.cos(x[1] * t), 0.0, 1.0)[0] * x[2]


def density(x: Any, scale: Any) -> Any:
    return np.sum(scipy.stats.norm.logpdf(x, 0.1, scale)) + np.sum(scipy.special.gammaln(scale))


def signal(x: Any) -> Any:
    return np.sum(np.abs(np.fft.rfft(x)) ** 2 * np.arange(1, 3)) + np.interp(x[0], [0.0, 0.5, 1.0], W)


def indexed(matrix: Any) -> Any:
    rows = np.sort(matrix, axis=1)[:, [2, 0]]
    return np.einsum("ij,kj->", rows, rows) + np.max(matrix) * np.min(matrix)


def own_derivative(x: Any) -> Any:
    return np.sum(gt.grad(lambda x: np.sum(np.sin(x) * x))(x) ** 2)


def of_containers(x: Any, y: Any) -> Any:
    state: dict[str, Any] = {"pair": (x, [y, 2.0]), "rest": None}
    state = {**state, "pair": (state["pair"][0] * state["pair"][1][1], [np.exp(state["pair"][1][0])])}
    return state["pair"][0] @ state["pair"][1][0]


FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "writes in a loop": (loop_with_writes, (V, W)),
    "gt.scan": (loop_of_gradtape, (V, W)),
    "while": (until, (V,)),
    "gt.while_loop": (until_by_loop, (V,)),
    "solve": (system, (V, M)),
    "factorisations": (factored, (M,)),
    "root": (root, (V,)),
    "solve_ivp": (flow, (W, np.array(0.7))),
    "quad": (area, (V,)),
    "densities": (density, (V, W)),
    "fft, interp": (signal, (W,)),
    "sort, einsum": (indexed, (R,)),
    "gt.grad": (own_derivative, (V,)),
    "containers": (of_containers, (V, W)),
}

ONE_BY_ONE = ("while",)
"""What has no batch: Python decides for all elements at once."""
