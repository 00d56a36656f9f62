"""What implicit methods share: Newton's iteration with numbers, and solutions of equations with the derivatives that these give them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from gradtape.api.control.loops import while_loop
from gradtape.api.custom.rules import custom_jvp
from gradtape.api.ode.factors import LinearSystems
from gradtape.api.ode.problem import Problem, norm
from gradtape.api.transforms.gradient import jvp
from gradtape.ir.types import is_inexact


class Newton(NamedTuple):
    """Newton's iteration: how many there were, the unknowns, the last change and its rate, and the outcome."""

    count: Any
    x: Any
    change: Any
    rate: Any
    has_converged: Any
    has_failed: Any


def newton_tolerance(problem: Problem) -> Any:
    """Return the tolerance of Newton's iteration, relative to the allowed errors, as SciPy chooses it."""
    rtol = np.min(problem.rtol)
    return np.maximum(10 * np.finfo(float).eps / rtol, np.minimum(0.03, rtol**0.5))


def newton_solution(
    step: Callable[[Any], Any], start: Any, scale: Any, tolerance: Any, most_iterations: int
) -> Newton:
    """Solve equations with a Jacobian that stays, until the rate of convergence says that it succeeds or fails.

    Parameters
    ----------
    step : callable
        ``step(x)``: the change of the unknowns.
    start : array of shape (n,) or (k, n)
    scale : array of shape (n,)
        The errors that are allowed.
    tolerance : scalar
        Which part of them may be left.
    most_iterations : int
    """

    def iterate(*parts: Any) -> tuple[Any, ...]:
        now = Newton(*parts)
        dx = step(now.x)
        change = norm(np.reshape(dx / scale, -1))
        is_first = now.count == 0
        rate = np.where(is_first, 0.0, change / np.where(is_first, 1.0, now.change))
        left = most_iterations - now.count
        safe = np.where(rate < 1, rate, 0.5)
        diverges = (rate >= 1) | (safe**left / (1 - safe) * change > tolerance)
        diverges = ~np.isfinite(change) | (diverges & ~is_first)
        settles = (change == 0) | (~is_first & (safe / (1 - safe) * change < tolerance))
        x = np.where(diverges, now.x, now.x + dx)
        return (now.count + 1.0, x, change, rate, ~diverges & settles, diverges)

    def goes_on(*parts: Any) -> Any:
        now = Newton(*parts)
        return (now.count < most_iterations) & ~now.has_converged & ~now.has_failed

    zero = 0.0 * tolerance
    no = np.isinf(zero)
    return Newton(*while_loop(goes_on, iterate, (zero, start, zero, zero, no, no)))


def with_derivatives(
    increments: Callable[..., Any], matrix: Callable[..., Any], systems: LinearSystems
) -> Callable[..., Any]:
    """Return a function ``solution(x, *inputs)`` that gives x, a constant, the derivatives of the equations ``x = increments(x, *inputs)``.

    With a mass matrix M they are those of ``increments(x, *inputs) = 0``, and the matrix is M in place of the identity less a Jacobian.

    Parameters
    ----------
    increments : callable
        It takes the unknowns, of shape (k, n), and inputs of which those of inexact dtype have derivatives.
    matrix : callable
        ``matrix(x, *inputs)``: the identity less the Jacobian of the increments in x, for `systems`.
    systems : LinearSystems
    """

    @custom_jvp
    def solution(x: Any, *inputs: Any) -> Any:
        return x

    @solution.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        x, inputs = solution(*primals), list(primals[1:])
        free = [place for place, one in enumerate(inputs) if is_inexact(one.dtype)]

        def moved(*given: Any) -> Any:
            for place, one in zip(free, given, strict=True):
                inputs[place] = one
            return increments(x, *inputs)

        at = tuple([inputs[place] for place in free])
        _, change = jvp(moved, at, tuple([tangents[place + 1] for place in free]))
        system = matrix(x, *primals[1:])
        return x, systems.solve(system, systems.factors(system), change)

    return solution
