"""Initial value problems, and what all methods do in the same way: error norms, the first step, and limits of steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from gradtape.api.tape.create import stop_gradient
from gradtape.ir.op import NDArray

SAFETY = 0.9
SMALLEST_FACTOR = 0.2
LARGEST_FACTOR = 10.0


class MassMatrix(NamedTuple):
    """A mass matrix M, by the elements that may differ from zero, each of which is listed once.

    Attributes
    ----------
    elements : array of shape (k,)
    rows, columns : array of int, of shape (k,)
    n : int
        How many rows and columns it has.
    """

    elements: Any
    rows: NDArray
    columns: NDArray
    n: int

    def slots(self) -> NDArray:
        """Return which elements stand in each row, of shape (n, w); k for none."""
        order = np.argsort(self.rows, kind="stable")
        rows = self.rows[order]
        counts = np.bincount(rows, minlength=self.n)
        slots = np.full((self.n, counts.max(initial=1)), len(rows))
        slots[rows, np.arange(len(rows)) - (np.cumsum(counts) - counts)[rows]] = order
        return slots

    def dense(self) -> Any:
        """Return all elements, of shape (n, n)."""
        places = np.full((self.n, self.n), len(self.rows))
        places[self.rows, self.columns] = np.arange(len(self.rows))
        return np.concatenate([self.elements, np.zeros(1)])[places]


class Problem(NamedTuple):
    """An initial value problem, and the accuracy that is asked for.

    Attributes
    ----------
    fun : callable
        ``fun(t, y)``: the derivative of y, of shape (n,).
    t0, t_bound : scalar
        The ends of the interval.
    y0 : array of shape (n,)
    rtol, atol : float, or array of shape (n,)
    max_step : float
    first_step : float or None
        The size of the first step; None lets the method choose.
    jac_sparsity : sparse matrix or None
        Where the Jacobian of the right-hand side may be different from zero; None if that is to be found.
    mass : MassMatrix or None
        That of ``M y' = fun(t, y)``; None for the identity.
    slope : callable or None
        ``slope(t, y)``: y', if there is a mass matrix.
    caller : str
        The function that the user called, for errors.
    """

    fun: Callable[[Any, Any], Any]
    t0: Any
    t_bound: Any
    y0: Any
    rtol: Any
    atol: Any
    max_step: Any
    first_step: Any
    jac_sparsity: Any = None
    mass: MassMatrix | None = None
    slope: Callable[[Any, Any], Any] | None = None
    caller: str = "scipy.integrate.solve_ivp"

    def rate(self, t: Any, y: Any) -> Any:
        """Return the derivative of y in time."""
        return (self.slope or self.fun)(t, y)

    def initial_rate(self) -> Any:
        """Return the derivative of y in time at the beginning."""
        return self.rate(self.t0, self.y0)

    @property
    def direction(self) -> Any:
        """The sign of the steps."""
        return np.where(stop_gradient(self.t_bound) < stop_gradient(self.t0), -1.0, 1.0)

    def scale(self, *states: Any) -> Any:
        """Return the errors that are allowed, given the states at the ends of a step."""
        size = np.abs(states[0])
        for state in states[1:]:
            size = np.maximum(size, np.abs(state))
        return self.atol + self.rtol * size


def norm(x: Any) -> Any:
    """Return the root of the mean square."""
    return np.linalg.norm(x) / x.size**0.5


def first_step_size(problem: Problem, f0: Any, order: int) -> Any:
    """Return the size of the first step, as SciPy chooses it (Hairer, Norsett, Wanner 1993, section II.4)."""
    t0, t_bound, y0 = (stop_gradient(item) for item in (problem.t0, problem.t_bound, problem.y0))
    f0, length = stop_gradient(f0), np.abs(t_bound - t0)
    if problem.first_step is not None:
        return stop_gradient(problem.first_step) + 0.0 * length
    scale = problem.scale(y0)
    d0, d1 = norm(y0 / scale), norm(f0 / scale)
    is_small = (d0 < 1e-5) | (d1 < 1e-5)
    h0 = np.minimum(np.where(is_small, 1e-6, 0.01 * d0 / np.where(is_small, 1.0, d1)), length)
    f1 = stop_gradient(problem.rate(t0 + h0 * problem.direction, y0 + h0 * problem.direction * f0))
    d2 = norm((f1 - f0) / scale) / np.where(h0 == 0, 1.0, h0)
    fastest = np.maximum(d1, d2)
    is_still = (d1 <= 1e-15) & (d2 <= 1e-15)
    h1 = np.where(
        is_still,
        np.maximum(1e-6, h0 * 1e-3),
        (0.01 / np.where(is_still, 1.0, fastest)) ** (1 / (order + 1)),
    )
    return np.minimum(np.minimum(100 * h0, h1), np.minimum(length, problem.max_step))


def smallest_step(t: Any, direction: Any) -> Any:
    """Return the size of the smallest step from a time."""
    return 10 * np.abs(np.nextafter(t, direction * np.inf) - t)


def limited(problem: Problem, t: Any, h_abs: Any) -> tuple[Any, Any]:
    """Return the time after a step of a size, which does not go beyond the end, and the step."""
    ahead = t + h_abs * problem.direction
    is_beyond = problem.direction * stop_gradient(ahead - problem.t_bound) > 0
    t_new = np.where(is_beyond, problem.t_bound, ahead)
    # The size of a step is a constant, also after rounding; that of a step that has been cut depends on the end.
    return t_new, np.where(is_beyond, problem.t_bound - t, stop_gradient(ahead - t))


def rejected_factor(factor: Any) -> Any:
    """Return the factor that shrinks a rejected step, whose error is too large or NaN."""
    return np.where(factor > SMALLEST_FACTOR, factor, SMALLEST_FACTOR)


def select(condition: Any, yes: Any, no: Any) -> Any:
    """Return one of two tuples of arrays."""
    return type(yes)(*[np.where(condition, a, b) for a, b in zip(yes, no, strict=True)])
