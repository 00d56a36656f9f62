"""The solution of an initial value problem at given times: a scan over the times, with the steps between them in a loop."""

from __future__ import annotations

from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from gradtape.api.control.loops import while_loop
from gradtape.api.control.scanning import scan
from gradtape.api.ode.problem import Problem
from gradtape.api.tape.create import stop_gradient
from gradtape.config import rolling
from gradtape.trace.routines.registry import refused

LARGE_STATE: Final = 32
"""Unknowns from which on states are stored at chunks of the steps only, and steps run again in the reverse sweep."""


class Method(Protocol):
    """A method that goes on step by step. A state is a named tuple with the time `t` and whether it `has_failed`.

    Attributes
    ----------
    dense : tuple of str
        The fields of a state that `interpolate` reads.
    repeats_steps : bool
        Whether a step costs so little, beside its derivative, that it may run again in the reverse sweep.
    """

    dense: tuple[str, ...]
    repeats_steps: bool

    def start(self, problem: Problem) -> Any:
        """Return the state at the beginning."""

    def attempt(self, problem: Problem, state: Any) -> Any:
        """Return the state after an attempt at a step."""

    def interpolate(self, problem: Problem, state: Any, t: Any) -> Any:
        """Return the solution at a time in the last step."""


class Unknown(NamedTuple):
    """What is not known of a result before the program runs: of which call, how many of which things, and how to do without it."""

    call: str
    things: str
    remedy: str


class EndsOnly:
    """The positions or states of steps or nodes whose number is not known in a compiled function: the first and the last.

    Parameters
    ----------
    ends : Array
        Those, along the last axis.
    name : str
        The attribute of the result, for errors.
    unknown : Unknown
        What is not known.
    """

    def __init__(self, ends: Any, name: str, unknown: Unknown) -> None:
        self._ends, self._name, self._unknown = ends, name, unknown

    def __getitem__(self, key: Any) -> Any:
        keys = key if isinstance(key, tuple) else (key,)
        *others, last = keys
        is_end = (isinstance(last, int) and last in (0, -1)) or last in (
            slice(-1, None),
            slice(None, 1),
            slice(1),
        )
        if not is_end or (len(keys) != self._ends.ndim and Ellipsis not in others):
            raise self._refusal(f"{self._name}[{key!r}]")
        return self._ends[key]

    def __getattr__(self, name: str) -> Any:
        raise self._refusal(f"{self._name}.{name}")

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise self._refusal(self._name)

    def __iter__(self) -> Any:
        raise self._refusal(self._name)

    def _refusal(self, what: str) -> Exception:
        end = "[-1]" if self._ends.ndim == 1 else "[:, -1]"
        unknown = self._unknown
        return refused(
            f"{what} of {unknown.call}",
            f"the number of {unknown.things} is not known before it runs",
            f"{unknown.remedy}, or read the last one alone: {self._name}{end}",
        )


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
    is_large = method.repeats_steps and np.size(problem.y0) >= LARGE_STATE
    policy = rolling().policy or ("sqrt" if is_large else None)

    def until(state: Any, t: Any) -> tuple[Any, Any]:
        goal, bound = stop_gradient(t), stop_gradient(problem.t_bound)
        ahead = problem.direction * (goal - bound)

        def goes_on(*parts: Any) -> Any:
            now = kind(*parts)
            left = np.where(ahead < 0, goal, bound) - stop_gradient(now.t)
            return (problem.direction * left > 0) & ~now.has_failed

        state = kind(
            *while_loop(
                goes_on,
                lambda *parts: tuple(method.attempt(problem, kind(*parts))),
                tuple(state),
                checkpoint=policy,
            )
        )
        y = method.interpolate(problem, state, t)
        is_outside = (ahead > 0) | (problem.direction * (goal - stop_gradient(problem.t0)) < 0)
        return state, np.where(state.has_failed | is_outside, np.nan, y)

    last, values = scan(lambda state, t: until(kind(*state), t), start, times)
    return values, ~kind(*last).has_failed
