"""Explicit Runge-Kutta methods with SciPy's coefficients and SciPy's control of the step size, one attempt at a step after the other.

The size of a step is a constant: derivatives are those of the accepted steps (the discrete adjoint).
"""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple

import numpy as np

from gradtape.api.ode.problem import (
    LARGEST_FACTOR,
    SAFETY,
    Problem,
    first_step_size,
    limited,
    norm,
    rejected_factor,
    smallest_step,
)
from gradtape.api.tape.create import stop_gradient


class State(NamedTuple):
    """Where the integration is after an attempt at a step.

    Attributes
    ----------
    t, y : scalar, array of shape (n,)
        The time, and the solution there.
    t_old, y_old : scalar, array of shape (n,)
        Those before the last step.
    slopes : array of shape (stages + 1, n)
        The derivatives in the last step; the last row is that at `t`.
    size : scalar
        The size of the next step.
    was_rejected, has_failed : bool
        Whether the last attempt was; whether steps would be smaller than rounding errors.
    """

    t: Any
    y: Any
    t_old: Any
    y_old: Any
    slopes: Any
    size: Any
    was_rejected: Any
    has_failed: Any


class ExplicitMethod:
    """A method.

    Parameters
    ----------
    name : str
        The class of SciPy's with its coefficients.

    Attributes
    ----------
    dense : tuple of str
        The fields of a state that `interpolate` reads.
    """

    dense: tuple[str, ...] = ("t", "t_old", "y_old", "slopes")
    repeats_steps = True

    def __init__(self, name: str) -> None:
        self.table: Any = getattr(importlib.import_module("scipy.integrate"), name)

    def start(self, problem: Problem, slope: Any) -> State:
        """Return the state at the beginning."""
        size = first_step_size(problem, slope, self.table.error_estimator_order)
        slopes = np.stack([slope] * (self.table.n_stages + 1))
        t = problem.t0 + 0.0 * size
        no = np.isinf(t)
        return State(t, problem.y0, t, problem.y0, slopes, size, no, no)

    def attempt(self, problem: Problem, state: State) -> State:
        """Return the state after an attempt at a step."""
        table, t, y = self.table, state.t, state.y
        smallest = smallest_step(stop_gradient(t), problem.direction)
        within = np.minimum(np.maximum(state.size, smallest), problem.max_step)
        size = np.where(
            state.was_rejected, state.size, np.where(state.size > problem.max_step, problem.max_step, within)
        )
        fails = ~(size >= smallest)
        t_new, h = limited(problem, t, size)
        slopes = [state.slopes[-1]]
        for s in range(1, table.n_stages):
            change = _combined(slopes, table.A[s, :s]) * h
            slopes.append(problem.fun(t + table.C[s] * h, y + change))
        y_new = y + h * _combined(slopes, table.B)
        slopes.append(problem.fun(t + h, y_new))
        K = np.stack(slopes)
        error = stop_gradient(self._error(K, h, problem.scale(y, y_new)))
        is_accepted = (error < 1) & ~fails
        factor = SAFETY * np.where(error == 0, 1.0, error) ** (-1 / (table.error_estimator_order + 1))
        growth = np.where(error == 0, LARGEST_FACTOR, np.minimum(LARGEST_FACTOR, factor))
        growth = np.where(state.was_rejected, np.minimum(1.0, growth), growth)
        size = np.abs(stop_gradient(h)) * np.where(is_accepted, growth, rejected_factor(factor))

        def chosen(new: Any, old: Any) -> Any:
            return np.where(is_accepted, new, old)

        return State(
            chosen(t_new, t),
            chosen(y_new, y),
            chosen(t, state.t_old),
            chosen(y, state.y_old),
            chosen(K, state.slopes),
            stop_gradient(size),
            ~is_accepted,
            fails,
        )

    def _error(self, slopes: Any, h: Any, scale: Any) -> Any:
        return norm((self.table.E @ slopes) * h / scale)

    def interpolate(self, problem: Problem, state: State, t: Any) -> Any:
        """Return the solution at a time in the last step."""
        h = state.t - state.t_old
        x = (t - state.t_old) / np.where(h == 0, 1.0, h)
        powers = np.stack([x ** (k + 1) for k in range(self.table.P.shape[1])])
        return state.y_old + h * ((self.table.P @ powers) @ state.slopes)


class DormandPrince8(ExplicitMethod):
    """DOP853: two estimates of the error, and three more evaluations for values in a step."""

    dense: tuple[str, ...] = ("t", "y", "t_old", "y_old", "slopes")

    def _error(self, slopes: Any, h: Any, scale: Any) -> Any:
        fifth = np.sum(np.abs((self.table.E5 @ slopes) / scale) ** 2)
        third = np.sum(np.abs((self.table.E3 @ slopes) / scale) ** 2)
        whole = fifth + 0.01 * third
        is_zero = (fifth == 0) & (third == 0)
        return np.where(is_zero, 0.0, np.abs(h) * fifth / np.sqrt(np.where(is_zero, 1.0, whole) * scale.size))

    def interpolate(self, problem: Problem, state: State, t: Any) -> Any:
        h = state.t - state.t_old
        slopes = [state.slopes[k] for k in range(self.table.n_stages + 1)]
        for a, c in zip(self.table.A_EXTRA, self.table.C_EXTRA, strict=True):
            change = _combined(slopes, a[: len(slopes)]) * h
            slopes.append(problem.fun(state.t_old + c * h, state.y_old + change))
        difference = state.y - state.y_old
        first, last = state.slopes[0], state.slopes[-1]
        parts = [difference, h * first - difference, 2 * difference - h * (last + first)]
        parts += list(h * (self.table.D @ np.stack(slopes)))
        x = (t - state.t_old) / np.where(h == 0, 1.0, h)
        y = np.zeros_like(state.y)
        for k, part in enumerate(reversed(parts)):
            y = (y + part) * (x if k % 2 == 0 else 1 - x)
        return y + state.y_old


def _combined(slopes: list[Any], weights: Any) -> Any:
    terms = [weight * slope for weight, slope in zip(weights, slopes, strict=True) if weight]
    return sum(terms[1:], terms[0])
