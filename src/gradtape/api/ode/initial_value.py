"""`scipy.integrate.solve_ivp` with derivatives."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from contextlib import suppress
from types import FunctionType
from typing import Any

import numpy as np

from gradtape.api.ode.backward_differences import BDF
from gradtape.api.ode.continuous_adjoint import solved_at
from gradtape.api.ode.events import Event, as_events, settled_times, terminal_count, times_on_host
from gradtape.api.ode.explicit import DormandPrince8, ExplicitMethod
from gradtape.api.ode.host_steps import advancing, beginning, stepping_solver
from gradtape.api.ode.implicit_method import Radau
from gradtape.api.ode.mass_matrix import AlgebraicEquations, check_beginning, mass_matrix
from gradtape.api.ode.problem import Problem
from gradtape.api.ode.solution import EndsOnly, Method, Unknown
from gradtape.api.ode.taylor_method import EPS, TaylorMethod, order_for
from gradtape.api.solvers.leibniz import array_of, called
from gradtape.api.solvers.solution import SolverCall, result_of, solver
from gradtape.api.tape.create import stop_gradient
from gradtape.api.transforms.functional import jacobian
from gradtape.api.transforms.jit import jit
from gradtape.errors import ArgumentError, DtypeError, GradtapeWarning, ShapeError, warn
from gradtape.trace.array.handle import Handle
from gradtape.trace.patching.opaque import paused, reading_numbers
from gradtape.trace.routines.registry import known_numbers, refused
from gradtape.trace.source.sites import user_site

METHODS: dict[str, Callable[[], Method]] = {
    "RK23": lambda: ExplicitMethod("RK23"),
    "RK45": lambda: ExplicitMethod("RK45"),
    "DOP853": lambda: DormandPrince8("DOP853"),
    "Radau": Radau,
    "BDF": BDF,
    "LSODA": Radau,
    "Taylor": lambda: TaylorMethod(order_for(EPS)),
}
"""LSODA switches between families of methods; Radau takes its place, with the same tolerances."""

IMPLICIT = (Radau, BDF)

WITH_MASS = ("Radau", "BDF")
"""The methods that take a mass matrix."""

OWN = ("Taylor",)
"""The methods that SciPy does not have."""

OWN_CALLER = "gt.scipy.solve_ivp"
"""The function that was called where gradtape's loops make the steps."""

OPTIONS = {"rtol": 1e-3, "atol": 1e-6, "max_step": np.inf, "first_step": None}

STIFF_OPTIONS = ("jac", "jac_sparsity", "lband", "uband", "min_step")
"""Further options of SciPy's implicit methods."""


class InitialValueCall:
    """A call of `solve_ivp` with traced arrays: the problem that it states.

    Parameters
    ----------
    call : SolverCall
    """

    def __init__(self, call: SolverCall) -> None:
        self.call, arguments = call, call.given
        self.caller = OWN_CALLER if call.plain is solve_by_own_steps else call.name
        options = dict(OPTIONS) | arguments.get("options", {})
        mass = options.pop("mass_matrix", None)
        self.extra = call.extra() if arguments["args"] is not None else ()
        self.t0, self.t_bound = (_floats(end) for end in arguments["t_span"])
        self.y0 = _state(arguments["y0"])
        if np.ndim(self.y0) != 1:
            raise ShapeError(
                f"{self.caller}: y0 has shape {np.shape(self.y0)}",
                where=user_site(),
                remedy="pass an array of one axis, and reshape it in the function",
            )
        self.name = method_of(arguments["method"], self.caller)
        if mass is not None:
            self._check_mass(call)
        self.mass = mass_matrix(mass, len(self.y0))
        self.options = options
        check_steering(self.caller, options, (self.t0, self.t_bound), len(self.y0))
        for name in ("rtol", "atol", "max_step", "first_step"):
            if options[name] is not None:
                options[name] = stop_gradient(options[name])
        allowed = (*OPTIONS, *(STIFF_OPTIONS if METHODS[self.name] in IMPLICIT else ()))
        without_effect = sorted(options.keys() - set(allowed))
        if without_effect:
            warn(
                GradtapeWarning,
                f"{self.caller}: {', '.join(without_effect)} has no effect with method {self.name}",
                where=user_site(),
                remedy=f"choose among {', '.join(allowed)}",
            )
        if METHODS[self.name] is Radau and np.result_type(self.y0).kind == "c":
            raise DtypeError(
                f"{self.caller}: method {self.name} does not take a complex y0",
                where=user_site(),
                remedy="use BDF, RK45 or DOP853, or the real and the imaginary part as two states",
            )
        self._stated: Problem | None = None

    def _check_mass(self, call: SolverCall) -> None:
        """Raise an error where a mass matrix does not go with the call."""
        if self.caller != OWN_CALLER:
            raise ArgumentError(
                "scipy.integrate.solve_ivp has no mass_matrix",
                where=user_site(),
                remedy="call gt.scipy.solve_ivp, which has one",
            )
        if self.name not in WITH_MASS:
            raise ArgumentError(
                f"{self.caller}: method {self.name} does not take a mass_matrix",
                where=user_site(),
                remedy=f"use {' or '.join(WITH_MASS)}, which are implicit",
            )
        if np.result_type(self.y0).kind == "c":
            raise DtypeError(
                f"{self.caller}: a complex y0 cannot be combined with a mass_matrix",
                where=user_site(),
                remedy="state the real and the imaginary parts as unknowns",
            )

    def fun(self, t: Any, y: Any) -> Any:
        """Return the right-hand side."""
        state = y[:, None] if self.call.given["vectorized"] else y
        slope = array_of(called(self.call.given["fun"], (t, state, *self.extra)))
        if np.size(slope) != np.size(y):
            raise ShapeError(
                f"{self.caller}: fun returns an array of shape {np.shape(slope)} for y of shape {np.shape(y)}",
                where=user_site(),
                remedy="return one derivative for each element of y",
            )
        return np.reshape(slope, np.shape(y)).astype(np.result_type(slope, y))

    def problem(self) -> Problem:
        """Return the problem, with consistent initial values."""
        if self._stated is None:
            stated = self._problem()
            if self.mass is not None:
                equations = AlgebraicEquations(stated)
                self.y0 = equations.consistent()
                stated = stated._replace(y0=self.y0, slope=equations.rate)
            self._stated = stated
        return self._stated

    def _problem(self) -> Problem:
        options = self.options
        least = EPS if self.name in OWN else 100 * EPS  # SciPy's own methods are not exact enough
        rtol = np.maximum(options["rtol"], least)
        limits = options["max_step"], options["first_step"]
        sparsity = options.get("jac_sparsity")
        return Problem(
            self.fun,
            self.t0,
            self.t_bound,
            self.y0,
            rtol,
            options["atol"],
            *limits,
            sparsity,
            self.mass,
            caller=self.caller,
        )

    @functools.cached_property
    def make(self) -> Callable[[], Method]:
        """What makes the method."""
        if self.name != "Taylor":
            return METHODS[self.name]
        return functools.partial(TaylorMethod, order_for(self.options["rtol"]))

    def solve(self, times: Any) -> tuple[Any, Any]:
        """Return the states at times, of shape (n, m), and whether the integration has come that far."""
        y, has_come = solved_at(self.problem(), self.make, times)
        return y.T, has_come

    def solve_unsorted(self, times: Any) -> Any:
        """Return the states at times in any order, of shape (n, m)."""
        direction: Any = self.problem().direction
        order: Any = np.argsort(direction * stop_gradient(times))
        y, _ = self.solve(np.take(times, order))
        return y[:, np.argsort(order)]

    def events(self) -> list[Event]:
        """Return the events."""
        return as_events(self.call.given["events"], self.extra)

    def checked_times(self) -> Any:
        """Return `t_eval`.

        Raises
        ------
        ShapeError, ArgumentError
            If it is out of the interval, or not sorted, as far as its numbers are known.
        """
        times = self.call.given["t_eval"]
        if np.ndim(times) != 1:
            raise ShapeError("`t_eval` must be 1-dimensional.", where=user_site())
        if isinstance(times, list | tuple) and any(isinstance(time, Handle) for time in times):
            times = np.stack([_floats(time) for time in times])
        if any(isinstance(item, Handle) for item in (times, self.t0, self.t_bound)):
            return _floats(times)
        times = np.asarray(times, float)
        low, high = sorted((self.t0, self.t_bound))
        if np.any(times < low) or np.any(times > high):
            raise ArgumentError("Values in `t_eval` are not within `t_span`.", where=user_site())
        if np.any(np.diff(times) * (1 if self.t_bound > self.t0 else -1) <= 0):
            raise ArgumentError("Values in `t_eval` are not properly sorted.", where=user_site())
        return times


def _state(initial: Any) -> Any:
    """Return an initial state as an array of float64 or complex128."""
    state = (
        np.stack([part * 1.0 for part in initial])
        if isinstance(initial, list | tuple) and initial
        else initial
    )
    plain: Any = state if isinstance(state, Handle) else np.asarray(state)
    return plain.astype(np.result_type(plain.dtype, np.float64))


def check_steering(caller: str, options: dict[str, Any], t_span: tuple[Any, Any], n: int) -> None:
    """Check the options that decide about steps, as far as their numbers are known.

    Parameters
    ----------
    caller : str
        For errors.
    options : dict
        `rtol`, `atol`, `max_step` and `first_step`, or some of them.
    t_span : tuple of scalar
        The ends of the interval.
    n : int
        How many unknowns there are.

    Raises
    ------
    ArgumentError
        For negative tolerances, and sizes of steps that are not positive; for a first step longer than the interval.
    ShapeError
        For tolerances that are neither numbers nor one for each unknown.
    """
    numbers = {
        name: np.asarray(option)
        for name, option in options.items()
        if option is not None and not isinstance(option, Handle)
    }
    for name in ("rtol", "atol"):
        if name in numbers and numbers[name].shape not in ((), (n,)):
            raise ShapeError(
                f"{caller}: {name} has shape {numbers[name].shape}, and there are {n} unknowns",
                where=user_site(),
                remedy="pass a number, or one for each unknown",
            )
    for name, valid, remedy in (
        ("rtol", np.greater_equal, "pass a number of at least 0"),
        ("atol", np.greater_equal, "pass a number of at least 0"),
        ("max_step", np.greater, "pass a positive size, also for integration backwards in time"),
        ("first_step", np.greater, "pass a positive size, also for integration backwards in time"),
    ):
        if name in numbers and not np.all(valid(numbers[name], 0)):
            raise ArgumentError(f"{caller}: {name} is {options[name]!r}", where=user_site(), remedy=remedy)
    if "first_step" in numbers and not any(isinstance(end, Handle) for end in t_span):
        length = abs(t_span[1] - t_span[0])
        if numbers["first_step"] > length:
            raise ArgumentError(
                f"{caller}: first_step is {options['first_step']!r}, and the interval has the length {length:.6g}",
                where=user_site(),
                remedy="pass a smaller one",
            )


def method_of(method: Any, caller: str) -> str:
    """Return the name of a method; those that SciPy does not have are known to `gt.scipy.solve_ivp` alone.

    Raises
    ------
    UnsupportedFunctionError
        If it is not supported.
    """
    module: Any = importlib.import_module("scipy.integrate")
    name = method if isinstance(method, str) else getattr(method, "__name__", "")
    if name in OWN and caller == OWN_CALLER:
        return name
    if name in OWN:
        raise ArgumentError(
            f"{caller} has no method {name!r}",
            where=user_site(),
            remedy="call gt.scipy.solve_ivp, which has it",
        )
    if name in METHODS and method in (name, getattr(module, name)):
        return name
    raise refused(
        f"{caller} with method={method!r}",
        "gradtape does not implement this method",
        f"use one of {', '.join(METHODS)}",
    )


def _floats(numbers: Any) -> Any:
    """Return numbers, or a traced array, as floats."""
    traced: Any = numbers
    return traced * 1.0 if isinstance(numbers, Handle) else np.asarray(numbers, float)[()]


@solver("scipy.integrate.solve_ivp")
def solve_ivp(call: SolverCall) -> Any:
    """Follow `scipy.integrate.solve_ivp`."""
    initial = InitialValueCall(call)
    result = _in_compiled_function(initial) if call.is_compiled else _on_tape(initial)
    result.sol = _dense(initial) if call.given["dense_output"] else None
    return result


@solver("scipy.integrate.odeint")
def odeint(call: SolverCall) -> Any:
    """Follow `scipy.integrate.odeint`: by the method Radau, which takes stiff problems as LSODA does."""
    given, extra = call.given, call.extra()
    if given["full_output"]:
        raise refused(
            "scipy.integrate.odeint with full_output",
            "it is the report of LSODA, which does not run here",
            "leave it out, or call scipy.integrate.solve_ivp",
        )
    start = _state(given["y0"]) * np.ones(1)

    def fun(t: Any, y: Any) -> Any:
        arguments = (t, y, *extra) if given["tfirst"] else (y, t, *extra)
        return np.reshape(array_of(called(given["func"], arguments)), y.shape) * 1.0

    times = _floats(given["t"])
    rtol, atol = (
        stop_gradient(1.49012e-8 if given[name] is None else given[name]) for name in ("rtol", "atol")
    )
    largest, first = given["hmax"] or np.inf, given["h0"] or None
    problem = Problem(fun, times[0], times[-1], start, rtol, atol, largest, first, caller=call.name)
    y, _ = solved_at(problem, Radau, times)
    return y


def _on_tape(initial: InitialValueCall) -> Any:
    """Return the result where numbers are known: SciPy says which steps it makes, and when events are."""
    call, times = initial.call, initial.call.given["t_eval"]
    events = call.given["events"]
    needs_steps = times is None or events is not None or initial.mass is not None
    steps: Any = _steps(call) if needs_steps else None
    if times is None:
        times, y, has_come = _at_steps(initial, steps.t)
    else:
        times = initial.checked_times()[: None if steps is None else len(steps.t)]
        y, has_come = initial.solve(times)
    result = result_of(
        {}, t=times, y=y, success=has_come, status=np.where(has_come, 0, -1), t_events=None, y_events=None
    )
    if steps is not None:
        result.update({name: steps[name] for name in ("nfev", "njev", "nlu", "status", "message", "success")})
    if events is not None:
        _settle(initial, result, steps.t_events)
        if steps.status == 1 and call.given["t_eval"] is None:
            last = next(k for k, one in enumerate(steps.t_events) if steps.t[-1] in one)
            result.t = np.append(result.t[:-1], result.t_events[last][-1])
            state = result.y_events[last][-1]
            result.y = np.concatenate([result.y[:, :-1], state[:, None]], axis=1)
    return result


class _LostTimeError(Exception):
    """A step has led to a time that is not a number. SciPy would go on forever."""


def _steps(call: SolverCall) -> Any:
    """Return what SciPy returns: it runs with numbers while the tape pauses."""
    arguments = {**call.given, **call.given.get("options", {}), "dense_output": False}
    ends = np.array([known_numbers(stop_gradient(end), "t_span") for end in arguments["t_span"]], float)
    try:
        if np.isnan(ends).any():
            raise _LostTimeError
        return _paused_steps(call, arguments)
    except _LostTimeError:
        events = arguments["events"]
        count = 0 if events is None else len(as_events(events, ()))
        return result_of(
            {"nfev": 0, "njev": 0, "nlu": 0, "status": -1, "success": False},
            message="A time, a tolerance or the right-hand side is NaN.",
            t=ends,
            t_events=[np.zeros(0)] * count,
        )


def _paused_steps(call: SolverCall, arguments: dict[str, Any]) -> Any:
    arguments.pop("options", None)
    if call.plain is solve_by_own_steps:  # it compiles the caller's functions, and returns numbers itself
        functions = {name: arguments.pop(name) for name in ("fun", "events")}

        def solve(**numbers: Any) -> Any:
            return solve_by_own_steps(**_reading_numbers(functions), **numbers)

        return paused(call.name, solve, (), arguments, call.values)
    fun = arguments["fun"]

    def timed(t: Any, *parameters: Any) -> Any:
        if np.isnan(t):
            raise _LostTimeError
        return fun(t, *parameters)

    return paused(call.name, call.plain, (), arguments | {"fun": timed}, call.values)


def _reading_numbers(functions: Any) -> Any:
    """Return functions, in containers, that read numbers where they read arrays of a tape."""
    if isinstance(functions, dict):
        return {name: _reading_numbers(function) for name, function in functions.items()}
    if isinstance(functions, list | tuple):
        return [_reading_numbers(function) for function in functions]
    return reading_numbers(functions) if isinstance(functions, FunctionType) else functions


def _in_compiled_function(initial: InitialValueCall) -> Any:
    """Return the result where the number of steps is not known."""
    call, problem = initial.call, initial.problem()
    result = result_of({}, t_events=None, y_events=None)
    t_end, is_before = initial.t_bound + 0.0 * initial.t0, True
    y_end: Any = None
    if call.given["events"] is not None:
        solve = functools.partial(call.plain, method=initial.name)
        events = initial.events()
        event_times, end = times_on_host(problem, events, solve, call.plain is solve_by_own_steps)
        _settle(initial, result, event_times)
        is_before = problem.direction * (end - t_end) < 0
        for event, times, states in zip(events, result.t_events, result.y_events, strict=True):
            if not terminal_count(event):
                continue
            y_end = 0.0 if y_end is None else y_end
            is_last = stop_gradient(times[-1]) == end
            t_end = np.where(is_last, times[-1], t_end)
            y_end = np.where(is_last, states[-1], y_end)
    if call.given["t_eval"] is not None:
        times = initial.checked_times()
        y, has_come = initial.solve(times)
        if y_end is not None:
            y = np.where(problem.direction * (stop_gradient(times) - end) > 0, np.nan, y)
        result.t, result.y = times, y
    else:
        times = np.stack([initial.t0 + 0.0 * t_end, initial.t_bound + 0.0 * initial.t0])
        if y_end is None:
            y, has_come = initial.solve(times)
        else:
            y, has_come = initial.solve(np.where(is_before, stop_gradient(end), times))
            y = np.stack([initial.y0 + 0.0 * y[:, 0], np.where(is_before, y_end, y[:, -1])], axis=1)
            times = np.stack([times[0], t_end])
        steps = Unknown(f"{initial.caller} without t_eval in a compiled function", "steps", "pass t_eval=")
        result.t, result.y = EndsOnly(times, "t", steps), EndsOnly(y, "y", steps)
    result.success = has_come
    result.status = np.where(has_come, np.where(is_before, 1, 0) if y_end is not None else 0, -1)
    return result


def _settle(initial: InitialValueCall, result: Any, event_times: Any) -> None:
    """Enter the times of events in a result, with the states there."""
    counts = [len(times) for times in event_times]
    times = np.concatenate([stop_gradient(times) for times in event_times])
    has_come = ~np.isnan(times)
    times = np.where(has_come, times, stop_gradient(initial.t0))  # NaN times zero would be NaN in derivatives
    states = initial.solve_unsorted(times).T
    ends = np.cumsum([0, *counts])
    result.t_events, result.y_events = [], []
    for event, first, last in zip(initial.events(), ends, ends[1:], strict=False):
        of_event = slice(first, last)
        t, y = settled_times(initial.problem(), event, times[of_event], states[of_event], has_come[of_event])
        result.t_events.append(t)
        result.y_events.append(y)


def solve_by_own_steps(
    fun: Any,
    t_span: Any,
    y0: Any,
    method: str = "Radau",
    t_eval: Any = None,
    dense_output: bool = False,
    events: Any = None,
    vectorized: bool = False,
    args: Any = None,
    **options: Any,
) -> Any:
    """Return what SciPy's `solve_ivp` returns, with numbers: for a mass matrix or a method of our own, whose steps our loops make."""
    scipy: Any = importlib.import_module("scipy.integrate")
    extra = () if args is None else tuple(args) if isinstance(args, tuple | list) else (args,)
    steering = {
        name: options.pop(name)
        for name in ("rtol", "atol", "max_step", "first_step")
        if options.get(name) is not None
    }

    def initial(t_span: Any, y0: Any, extra: Any, steering: Any) -> InitialValueCall:
        arguments = {**options, **steering, "args": extra, "vectorized": vectorized}
        return InitialValueCall(
            SolverCall("scipy.integrate.solve_ivp", solve_by_own_steps, (fun, t_span, y0, method), arguments)
        )

    def statement(*arguments: Any) -> Problem:
        return initial(*arguments).problem()

    t0, t_bound = map(np.float64, t_span)
    numbers = (t0, t_bound), _state(y0), extra, steering
    check_steering(OWN_CALLER, steering, numbers[0], len(numbers[1]))  # the trace does not know their numbers
    stated = initial(*numbers)
    make = stated.make
    state, initial_slope = None, np.full(len(numbers[1]), np.nan)
    with suppress(np.linalg.LinAlgError):  # the equations are singular: the check says so
        state, initial_slope = beginning(statement, make)(*numbers)

    def slopes(y: Any, *arguments: Any) -> Any:
        now = initial(*arguments)
        return jacobian(lambda y: now.fun(now.t0, y))(y)

    if stated.mass is not None:
        check_beginning(
            stated.mass, numbers[1], initial_slope, lambda y: jit(slopes)(y, *numbers), stated.options
        )
    advance = advancing(statement, make)
    return scipy.solve_ivp(
        lambda t, y: y,
        t_span,
        initial_slope,
        method=stepping_solver(),
        t_eval=t_eval,
        dense_output=dense_output,
        events=None if events is None else as_events(events, extra),
        state=state,
        advance=lambda state: advance(state, *numbers),
        stepper=make(),
    )


def _at_steps(initial: InitialValueCall, step_times: Any) -> tuple[Any, Any, Any]:
    """Return times, states at them, and whether the integration has come that far, for the steps that SciPy has made.

    The times are padded, lest each number of steps is compiled.
    """
    count = len(step_times)
    room = max(16, 1 << (count - 1).bit_length())
    is_whole = np.isnan(step_times[-1]) or step_times[-1] == known_numbers(
        stop_gradient(initial.t_bound), "t_span"
    )
    last = (initial.t_bound if is_whole else step_times[-1]) * np.ones(room - count + 1)
    padded = np.concatenate([np.reshape(initial.t0, 1), step_times[1:-1], last])
    y, has_come = initial.solve(padded)
    return padded[:count], y[:, :count], has_come


def _dense(initial: InitialValueCall) -> Callable[[Any], Any]:
    def sol(t: Any) -> Any:
        """Return the solution at times in any order, of shape (n,) or (n, m)."""
        y = initial.solve_unsorted(np.reshape(_floats(t), -1))
        return y if np.ndim(t) else y[:, 0]

    return sol
