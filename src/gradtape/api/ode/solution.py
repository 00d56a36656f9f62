"""The solution of an initial value problem at given times: a scan over the times, with the steps between them in a loop."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from gradtape.api.control.loops import while_loop
from gradtape.api.control.scanning import scan
from gradtape.api.ode.problem import Problem
from gradtape.api.tape.create import stop_gradient


class Method(Protocol):
    """A method that goes on step by step. A state is a named tuple with the time `t` and whether it `has_failed`."""

    def start(self, problem: Problem) -> Any:
        """Return the state at the beginning."""

    def attempt(self, problem: Problem, state: Any) -> Any:
        """Return the state after an attempt at a step."""

    def interpolate(self, problem: Problem, state: Any, t: Any) -> Any:
        """Return the solution at a time in the last step."""


def solution_at(problem: Problem, method: Method, times: Any) -> tuple[Any, Any]:
    """Return the solution at times in the order in which the integration passes them, and whether it has come that far.

    Parameters
    ----------
    problem : Problem
    method : Method
    times : array of shape (m,)

    Returns
    -------
    y : array of shape (m, n)
        NaN at times that it has not come to, or that are not in the interval.
    has_come : bool
    """
    start = method.start(problem)
    kind = type(start)

    def until(state: Any, t: Any) -> tuple[Any, Any]:
        goal, bound = stop_gradient(t), stop_gradient(problem.t_bound)
        ahead = problem.direction * (goal - bound)

        def goes_on(*parts: Any) -> Any:
            now = kind(*parts)
            left = np.where(ahead < 0, goal, bound) - stop_gradient(now.t)
            return (problem.direction * left > 0) & ~now.has_failed

        state = kind(
            *while_loop(goes_on, lambda *parts: tuple(method.attempt(problem, kind(*parts))), tuple(state))
        )
        y = method.interpolate(problem, state, t)
        is_outside = (ahead > 0) | (problem.direction * (goal - stop_gradient(problem.t0)) < 0)
        return state, np.where(state.has_failed | is_outside, np.nan, y)

    last, values = scan(lambda state, t: until(kind(*state), t), start, times)
    return values, ~kind(*last).has_failed
