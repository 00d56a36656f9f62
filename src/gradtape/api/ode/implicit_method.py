"""The Radau IIA method of order 5 with SciPy's coefficients and control of the step size, for stiff problems.

The stages of a step solve equations, by Newton's method with the compiled Jacobian of the right-hand side. The Jacobian and the factors
are those of earlier steps as long as SciPy would keep them. Derivatives are those of the accepted steps, by the implicit function
theorem: as exact as if the equations had been solved exactly.

References
----------
E. Hairer, G. Wanner, Solving Ordinary Differential Equations II, 2nd ed., Springer 1996, section IV.8.
"""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple

import numpy as np

from gradtape.api.control.branches import cond
from gradtape.api.ode.factors import systems_of
from gradtape.api.ode.newton import newton_solution, newton_tolerance, with_derivatives
from gradtape.api.ode.problem import (
    LARGEST_FACTOR,
    Problem,
    first_step_size,
    limited,
    norm,
    rejected_factor,
    smallest_step,
)
from gradtape.api.tape.create import stop_gradient

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
    size, planned_size : scalar
        The size of the next attempt, and that of the first attempt at this step.
    last_size, last_error : scalar
        The planned size of the last step, and its error; 0 before the first.
    is_retry, was_too_long, is_cut, has_failed : bool
        Whether the last attempt was rejected; whether the error of one at this step was too large; whether the planned size was out of
        bounds; whether steps would be smaller than rounding errors.
    slopes_are_old, slopes_are_current, factors_are_old : bool
        Whether the Jacobian is to be computed; whether it is that at `t`; whether the factors are to be computed.
    slopes : array
        The elements of the Jacobian.
    factored_size : scalar
        The size of the step for which the factors are.
    real, real_pivots, pair, pair_pivots : array
        The factors for the real eigenvalue of the coefficients, and for the complex pair.
    """

    t: Any
    y: Any
    t_old: Any
    y_old: Any
    changes: Any
    size: Any
    planned_size: Any
    last_size: Any
    last_error: Any
    is_retry: Any
    was_too_long: Any
    is_cut: Any
    has_failed: Any
    slopes_are_old: Any
    slopes_are_current: Any
    factors_are_old: Any
    slopes: Any
    factored_size: Any
    real: Any
    real_pivots: Any
    pair: Any
    pair_pivots: Any


class Radau:
    """The method. It is made for one problem."""

    dense: tuple[str, ...] = ("t", "t_old", "y_old", "changes")
    repeats_steps = False

    def __init__(self) -> None:
        self.table: Any = importlib.import_module("scipy.integrate._ivp.radau")

    def start(self, problem: Problem, slope: Any) -> State:
        """Return the state at the beginning."""
        self._equations = systems_of(problem)
        self._apply, self._evaluate, self._parameters, self._systems, _ = self._equations
        self._stages = with_derivatives(self._increments, self._stage_matrix, self._systems)
        size = first_step_size(problem, slope, 3)
        t = problem.t0 + 0.0 * size
        zero, no = 0.0 * size, np.isinf(t)
        slopes = 0.0 * stop_gradient(self._systems.jacobian(t, problem.y0, *self._parameters))
        real, real_pivots, pair, pair_pivots = (
            stop_gradient(one * 0) for one in self._factors(slopes, 1.0 + zero)
        )
        return State(
            t=t,
            y=problem.y0,
            t_old=t,
            y_old=problem.y0,
            changes=np.stack([0.0 * problem.y0] * 3),
            size=size,
            planned_size=zero,
            last_size=zero,
            last_error=zero,
            is_retry=no,
            was_too_long=no,
            is_cut=no,
            has_failed=np.isnan(t),
            slopes_are_old=~no,
            slopes_are_current=~no,
            factors_are_old=~no,
            slopes=slopes,
            factored_size=zero,
            real=real,
            real_pivots=real_pivots,
            pair=pair,
            pair_pivots=pair_pivots,
        )

    def _fun(self, t: Any, y: Any) -> Any:
        return self._evaluate(t, y, *self._parameters)

    def attempt(self, problem: Problem, state: State) -> State:
        """Return the state after an attempt at a step."""
        table, numbers = self.table, State(*map(stop_gradient, state))
        t, y, direction = numbers.t, numbers.y, problem.direction
        smallest = smallest_step(t, direction)
        is_out = (numbers.size > problem.max_step) | (numbers.size < smallest)
        within = np.minimum(np.maximum(numbers.size, smallest), problem.max_step)
        size = np.where(numbers.is_retry, numbers.size, within)
        is_cut = np.where(numbers.is_retry, numbers.is_cut, is_out)
        planned_size = np.where(numbers.is_retry, numbers.planned_size, numbers.size)
        fails = ~(size >= smallest)
        t_new, moving = limited(problem, state.t, size)
        h = stop_gradient(moving)
        slopes = cond(
            numbers.slopes_are_old,
            lambda: stop_gradient(self._systems.jacobian(t, y, *self._parameters)),
            lambda: numbers.slopes,
        )
        kept: Any = (
            numbers.factored_size,
            numbers.real,
            numbers.real_pivots,
            numbers.pair,
            numbers.pair_pivots,
        )
        factored_size, *factors = cond(
            numbers.factors_are_old, lambda: (h, *self._factors(slopes, h)), lambda: kept
        )
        matrices = self._matrices(slopes, factored_size)

        def by_real(right: Any) -> Any:
            return self._systems.solve(matrices[0], factors[:2], right[None])[0]

        def by_pair(right: Any) -> Any:
            return self._systems.solve(matrices[1], factors[2:], right)

        def fun(t: Any, y: Any) -> Any:
            return stop_gradient(self._fun(t, y))

        guess = np.where(
            numbers.t == numbers.t_old, 0.0, np.stack([self._within(numbers, t + h * c) - y for c in table.C])
        )
        mu = table.MU_COMPLEX
        mass = stop_gradient(self._equations.mass(self._parameters))

        def change_of(W: Any) -> Any:
            Z, W = table.T @ W, self._systems.times(mass, W)
            F = np.stack([fun(t + h * c, y + Z[k]) for k, c in enumerate(table.C)])
            G = table.TI @ F
            right = [
                G[0] - table.MU_REAL / h * W[0],
                G[1] - (mu.real * W[1] - mu.imag * W[2]) / h,
                G[2] - (mu.real * W[2] + mu.imag * W[1]) / h,
            ]
            both = by_pair(np.stack(right[1:]))
            return np.stack([by_real(right[0]), both[0], both[1]])

        newton = newton_solution(
            change_of, table.TI @ guess, problem.scale(y), newton_tolerance(problem), MOST_ITERATIONS
        )
        changes = stop_gradient(table.T @ newton.x)
        start = self._systems.times(mass, table.E @ changes) / h
        scale = problem.scale(y, y + changes[2])
        error = by_real(fun(t, y) + start)
        size_of_error = norm(error / scale)
        size_of_error = cond(
            numbers.was_too_long & (size_of_error > 1),
            lambda: norm(by_real(fun(t, y + error) + start) / scale),
            lambda: size_of_error,
        )
        converges, is_current = newton.has_converged, numbers.slopes_are_current | numbers.slopes_are_old
        safety = 0.9 * (2 * MOST_ITERATIONS + 1) / (2 * MOST_ITERATIONS + newton.count)
        factor = safety * _predicted(h, size_of_error, numbers, is_cut)
        is_accepted = (size_of_error <= 1) & converges & ~fails
        wants_slopes = (newton.count > 2) & (newton.rate > 1e-3)
        growth = np.minimum(LARGEST_FACTOR, factor)
        keeps = ~wants_slopes & (growth < 1.2)
        accepted_growth = np.where(keeps, 1.0, growth)
        rejected_growth = np.where(converges, rejected_factor(factor), np.where(is_current, 0.5, 1.0))
        exact = cond(
            is_accepted,
            lambda: self._stages(changes, state.t, state.y, moving, *self._parameters),
            lambda: state.changes,
        )

        def chosen(new: Any, old: Any) -> Any:
            return np.where(is_accepted, new, old)

        return State(
            t=chosen(t_new, state.t),
            y=chosen(state.y + exact[2], state.y),
            t_old=chosen(state.t, state.t_old),
            y_old=chosen(state.y, state.y_old),
            changes=exact,
            size=np.abs(h) * chosen(accepted_growth, rejected_growth),
            planned_size=planned_size,
            last_size=chosen(planned_size, numbers.last_size),
            last_error=chosen(np.maximum(size_of_error, 1e-10), numbers.last_error),
            is_retry=~is_accepted,
            was_too_long=~is_accepted & ((numbers.is_retry & numbers.was_too_long) | converges),
            is_cut=is_cut,
            has_failed=fails,
            slopes_are_old=chosen(wants_slopes, ~converges & ~is_current),
            slopes_are_current=~is_accepted & is_current,
            factors_are_old=chosen(~keeps, True),
            slopes=slopes,
            factored_size=factored_size,
            real=factors[0],
            real_pivots=factors[1],
            pair=factors[2],
            pair_pivots=factors[3],
        )

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

    def _matrices(self, slopes: Any, h: Any) -> tuple[Any, Any]:
        """Return the matrices for the real eigenvalue of the coefficients, and for the complex pair, in real numbers."""
        mu = self.table.MU_COMPLEX
        turn = np.array([[mu.real, -mu.imag], [mu.imag, mu.real]])
        mass = stop_gradient(self._equations.mass(self._parameters))
        real = self._systems.matrix(
            np.full((1, 1), self.table.MU_REAL) / h, np.ones((1, 1)), slopes[None], mass
        )
        return real, self._systems.matrix(turn / h, np.eye(2), np.stack([slopes] * 2), mass)

    def _factors(self, slopes: Any, h: Any) -> tuple[Any, Any, Any, Any]:
        """Return the factors and pivots of both matrices."""
        real, pair = self._matrices(slopes, h)
        return (*self._systems.factors(real), *self._systems.factors(pair))

    def _increments(self, changes: Any, t: Any, y: Any, h: Any, *parameters: Any) -> Any:
        """Return the stages of a step less the state before, (3, n), as the equations give them."""
        nodes = enumerate(self.table.C)
        slopes = [self._apply(t + h * c, y + changes[k], *parameters) for k, c in nodes]
        return self._equations.less_moved(h * (self._matrix @ np.stack(slopes)), changes, parameters)

    def _stage_matrix(self, changes: Any, t: Any, y: Any, h: Any, *parameters: Any) -> Any:
        """Return the matrix of the equations of the stages."""
        nodes = enumerate(self.table.C)
        slopes = [self._systems.jacobian(t + h * c, y + changes[k], *parameters) for k, c in nodes]
        mass = self._equations.mass(parameters)
        return self._systems.matrix(np.eye(3), h * self._matrix, np.stack(slopes), mass)

    def _within(self, state: State, t: Any) -> Any:
        h = state.t - state.t_old
        x = (t - state.t_old) / np.where(h == 0, 1.0, h)
        powers = np.stack([x, x**2, x**3])
        return state.y_old + (self.table.P @ powers) @ state.changes

    def interpolate(self, problem: Problem, state: State, t: Any) -> Any:
        """Return the solution at a time in the last step."""
        return self._within(state, t)


def _predicted(h: Any, error: Any, state: State, is_cut: Any) -> Any:
    """Return by which factor to change the size of the step, from the last two errors."""
    is_first = (state.last_error == 0) | is_cut | (error == 0)
    safe = np.where(error == 0, 1.0, error)
    old = np.where(is_first, 1.0, state.last_error)
    multiplier = np.abs(h) / np.where(is_first, 1.0, state.last_size) * (old / safe) ** 0.25
    factor = np.where(is_first, 1.0, np.minimum(1.0, multiplier)) * safe**-0.25
    return np.where(error == 0, LARGEST_FACTOR, factor)
