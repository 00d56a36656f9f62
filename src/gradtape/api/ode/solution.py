"""The solution of an initial value problem at given times: one loop over the steps, which enters the solution at the times in each."""

from __future__ import annotations

from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from gradtape.api.control.loops import fori_loop, while_loop
from gradtape.api.ode.problem import Problem
from gradtape.api.tape.create import stop_gradient
from gradtape.config import loop_policy
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

    def start(self, problem: Problem, slope: Any) -> Any:
        """Return the state at the beginning, where the solution has this slope."""

    def attempt(self, problem: Problem, state: Any) -> Any:
        """Return the state after an attempt at a step."""

    def interpolate(self, problem: Problem, state: Any, t: Any) -> Any:
        """Return the solution at a time in the last step."""


class Unknown(NamedTuple):
    """A part of a result that is not known before the program runs: of which call, how many of which things, and the remedy."""

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
    slope = problem.initial_rate()
    start, count = method.start(problem, slope), np.shape(times)[0]
    kind = type(start)
    is_large = method.repeats_steps and np.size(problem.y0) >= LARGE_STATE
    policy = loop_policy() or ("sqrt" if is_large else None)
    direction, goals, bound = problem.direction, stop_gradient(times), stop_gradient(problem.t_bound)
    lead = direction * (goals - stop_gradient(problem.t0))
    is_begun = ~(lead > 0)  # a time that is not a number is reached at once
    # At the beginning: its derivatives in the times are those of the solution, and NaN at a time that is none.
    begun = problem.y0 + ((times - problem.t0) * np.where(np.isnan(lead), np.nan, 1.0))[:, None] * slope
    values = np.where((is_begun & ~(lead < 0))[:, None], begun, np.nan)

    def goes_on(state: Any, values: Any, number: Any) -> Any:
        now = kind(*state)
        return (number < count) & (direction * (bound - stop_gradient(now.t)) > 0) & ~now.has_failed

    def step(state: Any, values: Any, number: Any) -> Any:
        state = method.attempt(problem, kind(*state))
        now = stop_gradient(state.t)
        end = while_loop(
            lambda place: (place < count) & ~(direction * (np.take(goals, place, mode="clip") - now) > 0),
            lambda place: place + 1,
            number,
        )

        def enter(place: Any, values: Any) -> Any:
            values = values.copy()
            values[place] = method.interpolate(problem, state, np.take(times, place, mode="clip"))
            return values

        # The reverse sweep needs no more than the bounds of this loop. Steps in a loop of their own for each time would be repeated there,
        # with other rounding errors, which the control of the step size enlarges.
        return tuple(state), fori_loop(number, end, enter, values), end

    loop = tuple(start), values, np.sum(np.cumprod(is_begun * 1))
    end, values, number = while_loop(goes_on, step, loop, checkpoint=policy)
    last = kind(*end)
    # What an integration that has failed does not come to is not a number, and neither are its derivatives.
    is_lost = (number < count) & ~(direction * (bound - stop_gradient(last.t)) <= 0)
    unknown = np.where(is_lost, np.nan, 1.0) * (last.y + slope)
    is_left = is_lost & (np.arange(count) >= number)
    return np.where(is_left[:, None], unknown, values), ~(last.has_failed | is_lost)
