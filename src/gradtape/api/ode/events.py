"""Events: SciPy finds their times, whose derivatives follow from the equation that the event states.

The solution near an event at t is one step of the classical Runge-Kutta method from there, of size s. The event is at the root s = 0 of
``event(t + s, y(t + s))``, whose derivatives are those of some steps of the chord method from there: each makes one more right. One step
of the Runge-Kutta method has the derivatives of the solution up to the fourth.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradtape.api.ode.problem import Problem
from gradtape.api.solvers.closure import ClosedFunction
from gradtape.api.solvers.implicit import ORDER
from gradtape.api.solvers.leibniz import array_of, called
from gradtape.api.tape.create import stop_gradient
from gradtape.api.transforms.functional import jacobian
from gradtape.api.transforms.vmap import vmap
from gradtape.errors import ConcretizationError
from gradtape.kinds.operands import as_value
from gradtape.kinds.routines.host import call_host, enter_function
from gradtape.trace.array.array import Array
from gradtape.trace.array.handle import unwrap
from gradtape.trace.routines.registry import refused

Event = Callable[[Any, Any], Any]


def as_events(events: Any, extra: tuple[Any, ...]) -> list[Event]:
    """Return the user's events as functions of time and state, with the attributes by which SciPy treats them."""

    def bound(event: Any) -> Event:
        def value(t: Any, y: Any) -> Any:
            return np.reshape(array_of(called(event, (t, y, *extra))), ())

        return with_attributes_of(event, value)

    return [bound(event) for event in ((events,) if callable(events) else events)]


def with_attributes_of(event: Any, function: Event) -> Event:
    """Return a function with the `terminal` and the `direction` of an event."""
    for name in ("terminal", "direction"):
        if hasattr(event, name):
            setattr(function, name, getattr(event, name))
    return function


def settled_times(problem: Problem, event: Event, times: Any, states: Any, has_come: Any) -> tuple[Any, Any]:
    """Return times of an event, and the states there, with their derivatives.

    Parameters
    ----------
    times : array of shape (k,)
        As constants.
    states : array of shape (k, n)
        The solution at these times, with its derivatives.
    has_come : array of bool, of shape (k,)
        Whether the event occurs. Where it does not, the time is one at which there is a solution, and the results are NaN.
    """

    def settled(t: Any, y: Any, has_come: Any) -> tuple[Any, Any]:
        def value(s: Any) -> Any:
            return event(t + s, _flow(problem, t, y, s))

        start = 0.0 * stop_gradient(t)
        slope = np.where(has_come, stop_gradient(jacobian(value)(start)), 1.0)
        shift = start
        for _ in range(ORDER):
            shift = shift - value(shift) / slope
        shift = shift - stop_gradient(shift)
        time_and_state = t + shift, _flow(problem, t, y, shift)
        return np.where(has_come, time_and_state[0], np.nan), np.where(has_come, time_and_state[1], np.nan)

    if not len(times):
        return times, states
    return vmap(settled)(stop_gradient(times), states, has_come)  # type: ignore[no-any-return]  # vmap keeps no types


def _flow(problem: Problem, t: Any, y: Any, size: Any) -> Any:
    """Return the solution after one step of the classical Runge-Kutta method."""
    fun, half = problem.rate, 0.5 * size
    first = fun(t, y)
    second = fun(t + half, y + half * first)
    third = fun(t + half, y + half * second)
    fourth = fun(t + size, y + size * third)
    return y + size * (first + 2 * second + 2 * third + fourth) / 6


def times_on_host(
    problem: Problem, events: Sequence[Event], solve: Callable[..., Any], is_compiled: bool
) -> tuple[list[Any], Any]:
    """Return the times of events, and the time at which the integration ends, as a compiled function finds them.

    Parameters
    ----------
    solve : callable
        SciPy's function, with the method, or `solve_by_own_steps`.
    is_compiled : bool
        Whether that compiles the steps, with the right-hand side of the trace.

    Returns
    -------
    times : list of arrays
        For each terminal event as many times as end the integration, NaN for those that do not come. For other events those that come;
        the trace guards how many.
    end : scalar
    """
    like = [as_value(np.float64(0)), as_value(np.zeros(np.shape(problem.y0)))]
    functions = [problem.fun, *events]
    closed = [
        ClosedFunction(function, like, f"a function given to {problem.caller}") for function in functions
    ]
    options = {name: getattr(problem, name) for name in ("rtol", "atol", "max_step", "first_step")}
    options = {name: option for name, option in options.items() if option is not None}
    masses = [] if problem.mass is None else [problem.mass.elements]
    bounds = np.cumsum([3 + len(options) + len(masses), *[len(function.captured) for function in closed]])

    last: list[Any] = []

    def solved(*arrays: Any) -> Any:
        """Return what SciPy returns: it runs once, for the numbers of the events and for their times."""
        key = [array.tobytes() for array in arrays]
        if not last or last[0] != key:
            last[:] = key, run(*arrays)
        return last[1]

    def run(*arrays: Any) -> Any:
        t0, t_bound, y0, *steering = [array if array.ndim else array[()] for array in arrays[: bounds[0]]]
        compiled = [
            _with_numbers(function, arrays[first:end])
            for function, first, end in zip(closed, bounds, bounds[1:], strict=False)
        ]
        fun, *functions_of_events = compiled
        bound_events = [
            with_attributes_of(event, function)
            for event, function in zip(events, functions_of_events, strict=True)
        ]
        known_options = dict(zip(options, steering, strict=False))
        if not is_compiled:
            return solve(fun, (t0, t_bound), y0, events=bound_events, **known_options)
        if problem.mass is not None:
            mass = problem.mass._replace(elements=steering[-1])
            known_options |= {"mass_matrix": mass.dense(), "jac_sparsity": problem.jac_sparsity}
        ignoring = [
            with_attributes_of(event, lambda t, y, *_, of=function: of(t, y))
            for event, function in zip(events, functions_of_events, strict=True)
        ]
        extra = tuple(arrays[bounds[0] : bounds[1]])
        return solve(closed[0].apply, (t0, t_bound), y0, events=ignoring, args=extra, **known_options)

    def count(*arrays: Any) -> tuple[Any, ...]:
        return (np.array([len(times) for times in solved(*arrays).t_events], np.intp),)

    def call(*arrays: Any) -> tuple[Any, ...]:
        counted = solved(*arrays)
        padded = [
            np.append(times, np.full(count - len(times), np.nan))
            for times, count in zip(counted.t_events, counts, strict=True)
        ]
        return (*padded, np.asarray(counted.t[-1]))

    reads = [Array(value) for function in closed for value in function.captured]
    bound_events = [problem.t0, problem.t_bound, problem.y0, *options.values(), *masses, *reads]
    operands = [as_value(unwrap(stop_gradient(function)) * 1.0) for function in bound_events]
    counts = [terminal_count(event) for event in events]
    if 0 in counts:
        (functions_of_events,) = call_host(
            enter_function(count), [as_value(np.zeros(len(events), np.intp)).aval], operands
        )
        counts = [
            known_options or _guarded(Array(functions_of_events)[k], problem.caller)
            for k, known_options in enumerate(counts)
        ]
    types = [*[as_value(np.zeros(count)).aval for count in counts], as_value(0.0).aval]
    *times, end = call_host(enter_function(call), types, operands)
    return [Array(function) for function in times], Array(end)


def _guarded(count: Any, caller: str) -> int:
    """Return how often an event occurs.

    Raises
    ------
    UnsupportedFunctionError
        Where the iterations of a loop, or the elements of an array that is mapped, need not agree.
    """
    try:
        return int(count)
    except ConcretizationError:
        raise refused(
            f"{caller} with an event that is not terminal in a loop or under gt.vmap",
            "the event may occur more often in one iteration or element than in another",
            "set event.terminal to the number of times after which the integration ends; events that do not occur are NaN",
        ) from None


def _with_numbers(closed: ClosedFunction, captured: Sequence[Any]) -> Callable[[Any, Any], Any]:
    return lambda t, y: closed.compiled(np.float64(t), y, *captured)


def terminal_count(event: Any) -> int:
    """Return how many times of an event end the integration; 0 for an event that does not end it."""
    return int(getattr(event, "terminal", 0) or 0)
