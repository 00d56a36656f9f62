"""BDF: backward differentiation formulas of orders 1 to 5 with SciPy's coefficients and its control of step size and order.

The solution is known by its backward differences on a grid of equal steps. A step of another size begins with the differences on another
grid: those of the same polynomial. The new state solves an equation, by Newton's method with the compiled Jacobian of the right-hand
side; Jacobian and factors are those of earlier steps as long as SciPy would keep them. Derivatives are those of the accepted steps, by
the implicit function theorem: as exact as if the equations had been solved exactly.

References
----------
L. F. Shampine, M. W. Reichelt, The MATLAB ODE Suite, SIAM Journal on Scientific Computing 18, 1997.
"""

from __future__ import annotations

import functools
from math import comb
from typing import Any, Final, NamedTuple

import numpy as np

from gradtape.api.control.branches import cond
from gradtape.api.ode.factors import systems_of
from gradtape.api.ode.newton import Newton, newton_solution, newton_tolerance, with_derivatives
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
from gradtape.ir.op import NDArray

MOST_ITERATIONS = 4
MOST_ORDERS: Final = 5
ROWS: Final = MOST_ORDERS + 3
"""Differences that are kept: up to the second beyond those of the highest order."""

_KAPPA: Final = np.array([0, -0.1850, -1 / 9, -0.0823, -0.0415, 0])
_GAMMA: Final = np.array([0, *np.cumsum(1 / np.arange(1, MOST_ORDERS + 1))])
ALPHA: Final = (1 - _KAPPA) * _GAMMA
"""By order: the coefficient of the new state; 0 for no order 0."""

ERRORS: Final = np.append(_KAPPA * _GAMMA + 1 / np.arange(1, MOST_ORDERS + 2), np.inf)
"""By order: the error, in differences of the next order; infinite beyond the highest order."""


class State(NamedTuple):
    """Where the integration is after an attempt at a step.

    Attributes
    ----------
    t, t_old : scalar
        The time, and that before the last step.
    differences : array of shape (8, n)
        The solution, and its backward differences.
    grid : scalar
        The step, with its sign, of the grid of the differences.
    order : int
        The order of the next attempt.
    size : scalar
        The size of the next attempt.
    equal_steps : int
        Steps since the size or the order has last changed.
    is_retry, hits_bound, has_failed : bool
        Whether the last attempt was rejected; whether it ended at the bound and is to be repeated; whether steps would be smaller
        than rounding errors.
    jacobian_is_stale, jacobian_is_current, factors_are_stale : bool
        Whether the Jacobian is to be computed; whether it is that of this step; whether the factors are to be computed.
    jacobian : array
        The elements of the Jacobian J.
    factored_c : scalar
        The number c in the matrix I - c J whose factors are kept.
    factors, pivots : array
    """

    t: Any
    t_old: Any
    differences: Any
    grid: Any
    order: Any
    size: Any
    equal_steps: Any
    is_retry: Any
    hits_bound: Any
    has_failed: Any
    jacobian_is_stale: Any
    jacobian_is_current: Any
    factors_are_stale: Any
    jacobian: Any
    factored_c: Any
    factors: Any
    pivots: Any

    @property
    def y(self) -> Any:
        """The solution, of shape (n,)."""
        return self.differences[0]


class _System(NamedTuple):
    """The linear system of Newton's method, I - c J in factors; `is_current` says whether J is the Jacobian of this step."""

    jacobian: Any
    is_current: Any
    c: Any
    factors: Any
    pivots: Any


class BDF:
    """The method. It is made for one problem. Names are those of the reference: differences are D, `psi` is the part of the formula that
    is known, and ``c = h / alpha``."""

    dense: tuple[str, ...] = ("t", "t_old", "differences", "grid", "order")
    repeats_steps = False

    def start(self, problem: Problem, slope: Any) -> State:
        """Return the state at the beginning."""
        self._equations = systems_of(problem)
        self._apply, self._evaluate, self._parameters, systems, _ = self._equations
        self._systems = systems
        self._change = with_derivatives(self._increments, self._step_matrix, systems)
        size = first_step_size(problem, slope, 1)
        t, grid = problem.t0 + 0.0 * size, size * problem.direction
        zero, no = 0.0 * size, np.isinf(t)
        jacobian = 0.0 * stop_gradient(systems.jacobian(t, problem.y0, *self._parameters))
        factors, pivots = (
            stop_gradient(array * 0)
            for array in systems.factors(self._matrix(jacobian, zero, self._parameters))
        )
        empty = [0.0 * problem.y0] * (ROWS - 2)
        return State(
            t=t,
            t_old=t,
            differences=np.stack([problem.y0 * 1.0, slope * grid, *empty]),
            grid=grid,
            order=np.where(no, 0, 1),
            size=size,
            equal_steps=np.where(no, 1, 0),
            is_retry=no,
            hits_bound=no,
            has_failed=np.isnan(t),
            jacobian_is_stale=~no,
            jacobian_is_current=no,
            factors_are_stale=~no,
            jacobian=jacobian,
            factored_c=zero,
            factors=factors,
            pivots=pivots,
        )

    def _fun(self, t: Any, y: Any) -> Any:
        return self._evaluate(t, y, *self._parameters)

    def attempt(self, problem: Problem, state: State) -> State:
        """Return the state after an attempt at a step."""
        now = State(*map(stop_gradient, state))
        order = now.order
        smallest = smallest_step(now.t, problem.direction)
        bounded = np.minimum(np.maximum(now.size, smallest), problem.max_step)
        size = np.where(now.is_retry, now.size, bounded)
        has_failed = ~(size >= smallest)
        t_new, step = limited(problem, state.t, size)
        t_new = np.where(now.hits_bound, problem.t_bound, t_new)
        step = np.where(now.hits_bound, problem.t_bound - state.t, step)
        t, h = stop_gradient(t_new), stop_gradient(step)
        hits_bound = t == stop_gradient(problem.t_bound)
        is_resized = (size != now.size) | hits_bound
        # A rejected attempt leaves the differences: the next one takes them to its own grid, so that each step does that once.
        differences = _on_grid(state.differences, step / state.grid, order)
        alpha = _of_order(ALPHA, order)
        predicted = _of_order(PREDICTION, order) @ differences
        psi = _of_order(HISTORY, order) @ differences
        y, c = stop_gradient(predicted), h / alpha
        system = self._linearised(now, t, y, c, is_resized)
        newton = self._corrected(problem, system, t, y, stop_gradient(psi), c)
        correction, converges = stop_gradient(newton.x), newton.has_converged
        scale = problem.scale(y + correction)
        error = norm(_of_order(ERRORS, order) * correction / scale)
        is_accepted = (error <= 1) & converges & ~has_failed
        change = cond(
            is_accepted,
            lambda: self._change(correction[None], t_new, predicted, psi, step / alpha, *self._parameters)[0],
            lambda: 0.0 * predicted,
        )
        updated = _of_order(UPDATE, order) @ differences + _of_order(ADDITION, order)[:, None] * change
        safety = 0.9 * (2 * MOST_ITERATIONS + 1) / (2 * MOST_ITERATIONS + newton.count)
        equal_steps = np.where(is_resized, 0, now.equal_steps)
        may_change_order = equal_steps + 1 > order
        growth, order_change = _next_order(stop_gradient(updated), scale, error, order)
        growth = np.where(may_change_order, np.minimum(LARGEST_FACTOR, safety * growth), 1.0)
        shrinkage = rejected_factor(safety * np.where(error == 0, 1.0, error) ** (-1 / (order + 1)))
        needs_jacobian = ~converges & ~system.is_current

        def if_accepted(new: Any, old: Any) -> Any:
            return np.where(is_accepted, new, old)

        return State(
            t=if_accepted(t_new, state.t),
            t_old=if_accepted(state.t, state.t_old),
            differences=if_accepted(updated, state.differences),
            grid=if_accepted(step, state.grid),
            order=order + np.where(is_accepted & may_change_order, order_change, 0),
            size=np.abs(h)
            * if_accepted(growth, np.where(converges, shrinkage, np.where(needs_jacobian, 1.0, 0.5))),
            equal_steps=if_accepted(
                np.where(may_change_order, 0, equal_steps + 1), np.where(needs_jacobian, equal_steps, 0)
            ),
            is_retry=~is_accepted,
            hits_bound=~is_accepted & needs_jacobian & hits_bound,
            has_failed=has_failed,
            jacobian_is_stale=~is_accepted & needs_jacobian,
            jacobian_is_current=~is_accepted & system.is_current,
            factors_are_stale=if_accepted(may_change_order, ~converges),
            jacobian=system.jacobian,
            factored_c=system.c,
            factors=system.factors,
            pivots=system.pivots,
        )

    def _linearised(self, now: State, t: Any, y: Any, c: Any, is_resized: Any) -> _System:
        """Return the system of Newton's method at a predicted state; the Jacobian and the factors are those of before, if they will do."""
        is_first = ~now.is_retry & now.jacobian_is_stale
        jacobian = cond(
            now.jacobian_is_stale,
            lambda: stop_gradient(
                self._systems.jacobian(
                    np.where(is_first, now.t, t), np.where(is_first, now.y, y), *self._parameters
                )
            ),
            lambda: now.jacobian,
        )
        is_current = now.jacobian_is_current | (now.jacobian_is_stale & now.is_retry)
        factored = cond(
            now.factors_are_stale | now.jacobian_is_stale | is_resized,
            lambda: (c, *self._systems.factors(self._matrix(jacobian, c, stop_gradient(self._parameters)))),
            lambda: (now.factored_c, now.factors, now.pivots),
        )
        return _System(jacobian, is_current, *factored)

    def _corrected(self, problem: Problem, system: _System, t: Any, y: Any, psi: Any, c: Any) -> Newton:
        """Solve ``c * f(t, y + d) = psi + d`` for the correction d of the predicted state y."""
        parameters = stop_gradient(self._parameters)
        matrix, mass = self._matrix(system.jacobian, system.c, parameters), self._equations.mass(parameters)

        def step(d: Any) -> Any:
            residual = c * stop_gradient(self._fun(t, y + d)) - self._systems.times(mass, psi + d)
            return self._systems.solve(matrix, (system.factors, system.pivots), residual[None])[0]

        return newton_solution(step, 0.0 * y, problem.scale(y), newton_tolerance(problem), MOST_ITERATIONS)

    def _matrix(self, jacobian: Any, c: Any, parameters: Any) -> Any:
        """Return the identity, or the mass matrix, less a multiple of the Jacobian."""
        one, mass = np.ones((1, 1)), self._equations.mass(parameters)
        return self._systems.matrix(one, one * c, jacobian[None], mass)

    def _increments(self, change: Any, t: Any, predicted: Any, psi: Any, c: Any, *parameters: Any) -> Any:
        """Return the new state less the predicted one, (1, n), as the formula gives it."""
        value = c * self._apply(t, predicted + change[0], *parameters)
        if not self._equations.has_mass:
            return (value - psi)[None]
        return self._equations.less_moved(value, psi + change[0], parameters)[None]

    def _step_matrix(self, change: Any, t: Any, predicted: Any, psi: Any, c: Any, *parameters: Any) -> Any:
        """Return the matrix of the equation of a step."""
        return self._matrix(self._systems.jacobian(t, predicted + change[0], *parameters), c, parameters)

    def interpolate(self, problem: Problem, state: State, t: Any) -> Any:
        """Return the solution at a time in the last step."""
        j = np.arange(MOST_ORDERS)
        h = np.where(state.grid == 0, 1.0, state.grid)
        x = np.where(j < stop_gradient(state.order), (t - state.t + h * j) / (h * (1 + j)), 0.0)
        return state.differences[0] + np.cumprod(x) @ state.differences[1 : MOST_ORDERS + 1]


def _of_order(table: NDArray, order: Any) -> Any:
    """Return the row of a table for an order."""
    return np.take(table, order, axis=0, mode="clip")


def _on_grid(differences: Any, factor: Any, order: Any) -> Any:
    """Return the differences on the grid whose step is `factor` times as long."""
    powers = np.stack([factor**k for k in range(MOST_ORDERS + 1)])
    return np.tensordot(powers, _of_order(_grids(), order), 1) @ differences


def _next_order(differences: Any, scale: Any, error: Any, order: Any) -> tuple[Any, Any]:
    """Return the largest growth that the errors of this order and of its neighbours allow, and by how much the order changes."""
    lower = np.where(order > 1, norm(_of_order(ERRORS, order - 1) * differences[order] / scale), np.inf)
    has_higher = order < MOST_ORDERS
    constant = np.where(has_higher, _of_order(ERRORS, order + 1), 1.0)
    higher = np.where(has_higher, norm(constant * differences[order + 2] / scale), np.inf)
    errors = np.stack([lower, error, higher])
    factors = np.where(
        errors == 0, np.inf, np.where(errors == 0, 1.0, errors) ** (-1 / (order + np.arange(3)))
    )
    return np.max(factors), np.argmax(factors) - 1


@functools.cache
def _grids() -> NDArray:
    """Return, by order, the matrices that `_on_grid` weighs with the powers of its factor, of shape (6, 6, 8, 8).

    The values at the points of the new grid are binomials of the old differences, polynomials in the factor; the new differences are
    those of these values.
    """
    n = MOST_ORDERS + 1
    values = np.zeros((n, n, n))  # of difference i at new point j, by powers
    values[0, :, 0] = 1.0
    for i in range(1, n):
        values[i] = (i - 1) / i * values[i - 1]
        values[i, :, 1:] -= np.arange(n)[:, None] / i * values[i - 1, :, :-1]
    signs = np.array([[(-1) ** j * comb(k, j) for j in range(n)] for k in range(n)], float)
    stencils = np.einsum("kj,ijp->pki", signs, values) * np.triu(np.ones((n, n)))
    tables = np.zeros((n, n, ROWS, ROWS))
    for order in range(n):
        tables[order, 0] = np.eye(ROWS)
        tables[order, :, : order + 1, : order + 1] = stencils[:, : order + 1, : order + 1]
    return tables


def _updates() -> tuple[NDArray, NDArray]:
    """Return, by order, how the differences after a step depend on those before, and on the change: shapes (6, 8, 8) and (6, 8)."""
    n = MOST_ORDERS + 1
    update, addition = np.zeros((n, ROWS, ROWS)), np.zeros((n, ROWS))
    for order in range(n):
        update[order] = np.eye(ROWS)
        update[order, : order + 1, : order + 1] = np.triu(np.ones((order + 1, order + 1)))
        update[order, order + 1, order + 1] = 0.0
        update[order, order + 2, order + 1 :][:2] = -1.0, 0.0
        addition[order, : order + 3] = 1.0
    return update, addition


_ROW: Final = np.arange(ROWS)
_ORDER: Final = np.arange(MOST_ORDERS + 1)[:, None]

UPDATE, ADDITION = _updates()

PREDICTION: Final = (_ROW <= _ORDER).astype(float)
"""By order: the weights of the differences in the predicted state."""

HISTORY: Final = np.where(
    (_ROW > 0) & (_ROW <= _ORDER),
    np.append(_GAMMA, [0, 0]) / np.where(_ORDER == 0, 1.0, ALPHA[:, None]),
    0.0,
)
"""By order: the weights of the differences in psi, the part of the formula that is known."""
