"""The Radau IIA method of order 5 with SciPy's coefficients and control of the step size, for stiff problems.

The stages of a step solve equations, by Newton's method with the compiled Jacobian of the right-hand side, at the beginning of each step.
Derivatives are those of the accepted steps, by the implicit function theorem: as exact as if the equations had been solved exactly.

References
----------
E. Hairer, G. Wanner, Solving Ordinary Differential Equations II, 2nd ed., Springer 1996, section IV.8.
"""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple

import numpy as np

from gradtape.api.control.loops import while_loop
from gradtape.api.custom.rules import custom_jvp
from gradtape.api.ode.problem import (
    LARGEST_FACTOR,
    Problem,
    first_step_size,
    limited,
    norm,
    rejected_factor,
    smallest_step,
)
from gradtape.api.solvers.implicit import ORDER
from gradtape.api.tape.create import stop_gradient
from gradtape.api.transforms.functional import jacobian

MOST_ITERATIONS = 6


class State(NamedTuple):
    """Where the integration is after an attempt at a step.

    Attributes
    ----------
    t, y : scalar, array of shape (n,)
        The time, and the solution there.
    t_old, y_old : scalar, array of shape (n,)
        Those before the last step.
    changes : array of shape (3, n)
        The stages of the last step, less `y_old`.
    size, last_size, last_error : scalar
        The size of the next step, that of the last, and its error; 0 before the first.
    was_rejected, has_failed : bool
        Whether the last attempt was; whether steps would be smaller than rounding errors.
    """

    t: Any
    y: Any
    t_old: Any
    y_old: Any
    changes: Any
    size: Any
    last_size: Any
    last_error: Any
    was_rejected: Any
    has_failed: Any


class Newton(NamedTuple):
    """Newton's iteration for the stages: how many there were, the transformed stages, the last change and its rate, and the outcome."""

    count: Any
    stages: Any
    change: Any
    rate: Any
    has_converged: Any
    has_failed: Any


class Radau:
    """The method."""

    def __init__(self) -> None:
        self.table: Any = importlib.import_module("scipy.integrate._ivp.radau")

    def start(self, problem: Problem) -> State:
        """Return the state at the beginning."""
        size = first_step_size(problem, problem.fun(problem.t0, problem.y0), 3)
        t = problem.t0 + 0.0 * size
        zero, no = 0.0 * size, np.isinf(t)
        return State(t, problem.y0, t, problem.y0, np.stack([0.0 * problem.y0] * 3), size, zero, zero, no, no)

    def attempt(self, problem: Problem, state: State) -> State:
        """Return the state after an attempt at a step."""
        table, numbers = self.table, State(*map(stop_gradient, state))
        t, y, direction = numbers.t, numbers.y, problem.direction
        smallest = smallest_step(t, direction)
        is_cut = ~numbers.was_rejected & ((numbers.size > problem.max_step) | (numbers.size < smallest))
        within = np.minimum(np.maximum(numbers.size, smallest), problem.max_step)
        size = np.where(is_cut, within, numbers.size)
        fails = ~(size >= smallest)
        t_new, moving = limited(problem, state.t, size)
        h = stop_gradient(moving)
        steering = problem._replace(fun=lambda t, y: stop_gradient(problem.fun(t, y)))
        slope = steering.fun(t, y)
        matrix = stop_gradient(jacobian(lambda y: problem.fun(t, y))(y))
        real, pair = self._inverses(matrix, h)
        guess = np.where(
            numbers.t == numbers.t_old, 0.0, np.stack([self._within(numbers, t + h * c) - y for c in table.C])
        )
        newton = self._solve(steering, t, y, h, guess, real, pair)
        changes = stop_gradient(table.T @ newton.stages)
        start = (table.E @ changes) / h
        scale = problem.scale(y, y + changes[2])
        error = real @ (slope + start)
        again = real @ (steering.fun(t, y + error) + start)
        first = norm(error / scale)
        size_of_error = np.where(numbers.was_rejected & (first > 1), norm(again / scale), first)
        safety = 0.9 * (2 * MOST_ITERATIONS + 1) / (2 * MOST_ITERATIONS + newton.count)
        factor = safety * _predicted(h, size_of_error, numbers, is_cut)
        is_accepted = (size_of_error <= 1) & newton.has_converged & ~fails
        growth = np.where(is_accepted, np.minimum(LARGEST_FACTOR, factor), rejected_factor(factor))
        growth = np.where(
            newton.has_converged, np.where(is_accepted & (growth > 1) & (growth < 1.2), 1.0, growth), 0.5
        )

        def residual(changes: Any) -> Any:
            slopes = [problem.fun(state.t + moving * c, state.y + changes[k]) for k, c in enumerate(table.C)]
            return changes - moving * (self._matrix @ np.stack(slopes))

        exact = _with_derivative(changes, self._chord(problem, state, moving, changes, residual))

        def chosen(new: Any, old: Any) -> Any:
            return np.where(is_accepted, new, old)

        return State(
            chosen(t_new, state.t),
            chosen(state.y + exact[2], state.y),
            chosen(state.t, state.t_old),
            chosen(state.y, state.y_old),
            chosen(exact, state.changes),
            np.abs(h) * growth,
            chosen(np.abs(h), numbers.last_size),
            chosen(np.maximum(size_of_error, 1e-10), numbers.last_error),
            ~is_accepted,
            fails,
        )

    def _chord(self, problem: Problem, state: State, h: Any, changes: Any, residual: Any) -> Any:
        """Return the stages after steps of the chord method from the solution: each makes one more derivative right."""
        numbers, size = State(*map(stop_gradient, state)), stop_gradient(h)
        slopes = np.stack(
            [
                jacobian(lambda y, t=numbers.t + size * c: problem.fun(t, y))(numbers.y + changes[k])
                for k, c in enumerate(self.table.C)
            ]
        )
        blocks = self._matrix[:, :, None, None] * slopes
        matrix = np.eye(changes.size) - size * np.reshape(
            np.transpose(blocks, (0, 2, 1, 3)), (changes.size,) * 2
        )
        inverse = stop_gradient(np.linalg.inv(matrix))
        for _ in range(ORDER):
            changes = changes - np.reshape(inverse @ np.reshape(residual(changes), -1), changes.shape)
        return changes

    @property
    def _matrix(self) -> Any:
        """The coefficients of the stages."""
        root = 6**0.5
        return np.array(
            [
                [(88 - 7 * root) / 360, (296 - 169 * root) / 1800, (-2 + 3 * root) / 225],
                [(296 + 169 * root) / 1800, (88 + 7 * root) / 360, (-2 - 3 * root) / 225],
                [(16 - root) / 36, (16 + root) / 36, 1 / 9],
            ]
        )

    def _inverses(self, matrix: Any, h: Any) -> tuple[Any, Any]:
        """Return the inverses for the real eigenvalue of the coefficients, and for the complex pair, in real numbers."""
        eye = np.eye(matrix.shape[0])
        mu = self.table.MU_COMPLEX
        block, turn = mu.real / h * eye - matrix, mu.imag / h * eye
        pair = np.concatenate(
            [np.concatenate([block, -turn], axis=1), np.concatenate([turn, block], axis=1)], axis=0
        )
        return np.linalg.inv(self.table.MU_REAL / h * eye - matrix), np.linalg.inv(pair)

    def _solve(self, problem: Problem, t: Any, y: Any, h: Any, guess: Any, real: Any, pair: Any) -> Newton:
        """Return the stages of a step, transformed, by Newton's method."""
        table, n = self.table, y.size
        scale = problem.scale(y)
        rtol = np.min(problem.rtol)
        tolerance = np.maximum(10 * np.finfo(float).eps / rtol, np.minimum(0.03, rtol**0.5))
        mu = table.MU_COMPLEX

        def iterate(*parts: Any) -> tuple[Any, ...]:
            now = Newton(*parts)
            W, Z = now.stages, table.T @ now.stages
            F = np.stack([problem.fun(t + h * c, y + Z[k]) for k, c in enumerate(table.C)])
            G = table.TI @ F
            right = [
                G[0] - table.MU_REAL / h * W[0],
                G[1] - (mu.real * W[1] - mu.imag * W[2]) / h,
                G[2] - (mu.real * W[2] + mu.imag * W[1]) / h,
            ]
            both = pair @ np.concatenate(right[1:])
            dW = np.stack([real @ right[0], both[:n], both[n:]])
            change = norm(np.reshape(dW / scale, -1))
            is_first = now.count == 0
            rate = np.where(is_first, 0.0, change / np.where(is_first, 1.0, now.change))
            left = MOST_ITERATIONS - now.count
            safe = np.where(rate < 1, rate, 0.5)
            diverges = (rate >= 1) | (safe**left / (1 - safe) * change > tolerance)
            diverges = ~np.isfinite(change) | (diverges & ~is_first)
            settles = (change == 0) | (~is_first & (safe / (1 - safe) * change < tolerance))
            stages = np.where(diverges, W, W + dW)
            return (now.count + 1.0, stages, change, rate, ~diverges & settles, diverges)

        def goes_on(*parts: Any) -> Any:
            now = Newton(*parts)
            return (now.count < MOST_ITERATIONS) & ~now.has_converged & ~now.has_failed

        zero = 0.0 * h
        no = np.isinf(zero)
        return Newton(*while_loop(goes_on, iterate, (zero, table.TI @ guess, zero, zero, no, no)))

    def _within(self, state: State, t: Any) -> Any:
        h = state.t - state.t_old
        x = (t - state.t_old) / np.where(h == 0, 1.0, h)
        powers = np.stack([x, x**2, x**3])
        return state.y_old + (self.table.P @ powers) @ state.changes

    def interpolate(self, problem: Problem, state: State, t: Any) -> Any:
        """Return the solution at a time in the last step."""
        return self._within(state, t)


@custom_jvp
def _with_derivative(value: Any, other: Any) -> Any:
    """Return a value, with the derivative of another computation of it, which runs for derivatives only."""
    return value


@_with_derivative.defjvp
def _(primals: Any, tangents: Any) -> Any:
    return _with_derivative(*primals), tangents[1]


def _predicted(h: Any, error: Any, state: State, is_cut: Any) -> Any:
    """Return by which factor to change the size of the step, from the last two errors."""
    is_first = (state.last_error == 0) | is_cut | (error == 0)
    safe = np.where(error == 0, 1.0, error)
    old = np.where(is_first, 1.0, state.last_error)
    multiplier = np.abs(h) / np.where(is_first, 1.0, state.last_size) * (old / safe) ** 0.25
    factor = np.where(is_first, 1.0, np.minimum(1.0, multiplier)) * safe**-0.25
    return np.where(error == 0, LARGEST_FACTOR, factor)
