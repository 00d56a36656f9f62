"""IPOPT by its C interface, which CasADi's wheel has.

References
----------
A. Wächter, L. T. Biegler, On the implementation of an interior-point filter line-search algorithm for large-scale nonlinear programming,
Mathematical Programming 106, 2006.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

from gradtape.api.nlp.derivatives import Derivatives, Found, Limits
from gradtape.api.nlp.solution import DIVERGES, NO_DIRECTION, NOT_FINITE
from gradtape.errors import ArgumentError
from gradtape.interruptions import Deferral
from gradtape.trace.source.sites import user_site

MESSAGES: Final = {
    0: "solved",
    1: "solved to the acceptable tolerance",
    2: "the constraints are infeasible near this point",
    3: "the steps have become too small",
    4: DIVERGES,
    5: "stopped by the callback",
    6: "a feasible point of a square problem",
    -1: "out of iterations",
    -2: "the restoration of feasibility has failed",
    -3: NO_DIRECTION,
    -4: "out of time",
    -5: "out of time",
    -10: "there are fewer unknowns than equality constraints",
    -11: "the problem is not valid",
    -12: "an option is not valid",
    -13: NOT_FINITE,
    -102: "out of memory",
}
"""IPOPT's statuses."""

SOLVED: Final = (0, 1, 6)

STEEP: Final = 1e19
"""IPOPT's infinity: bounds beyond it are none."""

WARM: Final = {
    "warm_start_init_point": "yes",
    "warm_start_bound_push": 1e-9,
    "warm_start_bound_frac": 1e-9,
    "warm_start_slack_bound_push": 1e-9,
    "warm_start_slack_bound_frac": 1e-9,
    "warm_start_mult_bound_push": 1e-9,
    "mu_init": 1e-6,
}
"""Options of a start near a solution."""

_NUMBERS = ctypes.POINTER(ctypes.c_double)
_INTEGERS = ctypes.POINTER(ctypes.c_int)
_INT, _NUMBER, _BOOL, _POINTER = ctypes.c_int, ctypes.c_double, ctypes.c_bool, ctypes.c_void_p

_OBJECTIVE = ctypes.CFUNCTYPE(_BOOL, _INT, _NUMBERS, _BOOL, _NUMBERS, _POINTER)
_GRADIENT = ctypes.CFUNCTYPE(_BOOL, _INT, _NUMBERS, _BOOL, _NUMBERS, _POINTER)
_CONSTRAINTS = ctypes.CFUNCTYPE(_BOOL, _INT, _NUMBERS, _BOOL, _INT, _NUMBERS, _POINTER)
_JACOBIAN = ctypes.CFUNCTYPE(
    _BOOL, _INT, _NUMBERS, _BOOL, _INT, _INT, _INTEGERS, _INTEGERS, _NUMBERS, _POINTER
)
_HESSIAN = ctypes.CFUNCTYPE(
    _BOOL,
    *(_INT, _NUMBERS, _BOOL, _NUMBER, _INT, _NUMBERS, _BOOL),
    *(_INT, _INTEGERS, _INTEGERS, _NUMBERS, _POINTER),
)
_INTERMEDIATE = ctypes.CFUNCTYPE(_BOOL, _INT, _INT, *[_NUMBER] * 8, _INT, _POINTER)


@functools.cache
def library() -> Any:
    """Return IPOPT's library: that in the package of CasADi, or the system's; None if there is none."""
    for path in _paths():
        try:
            handle = ctypes.CDLL(path)
            version = [ctypes.c_int() for _ in range(3)]
            handle.GetIpoptVersion(
                *map(ctypes.byref, version)
            )  # since 3.14, which has the C interface of below
        except (OSError, AttributeError):
            continue
        handle.CreateIpoptProblem.restype = _POINTER
        for name, kind in (("Str", ctypes.c_char_p), ("Num", _NUMBER), ("Int", _INT)):
            setter = getattr(handle, f"AddIpopt{name}Option")
            setter.restype, setter.argtypes = _BOOL, [_POINTER, ctypes.c_char_p, kind]
        handle.FreeIpoptProblem.argtypes = [_POINTER]
        handle.SetIntermediateCallback.argtypes = [_POINTER, _INTERMEDIATE]
        return handle
    return None


def _paths() -> Iterator[str]:
    """Yield where the library may be; the system is asked last, which runs other programs."""
    spec = importlib.util.find_spec("casadi")
    for folder in [] if spec is None else spec.submodule_search_locations or ():
        for path in sorted(Path(folder).glob("*ipopt*")):
            if path.name.startswith(("libipopt", "ipopt")) and path.suffix != ".la":
                yield str(path)
    system = importlib.import_module("ctypes.util").find_library("ipopt")
    if system:
        yield system


def _array(pointer: Any, count: int) -> Any:
    return np.ctypeslib.as_array(pointer, (count,)) if count else np.zeros(0)


def _pointer(array: Any) -> Any:
    return array.ctypes.data_as(_NUMBERS)


def solve(
    functions: Derivatives,
    limits: Limits,
    start: Found,
    options: dict[str, Any],
    report: Callable[..., bool],
) -> Found:
    """Solve a nonlinear program by IPOPT.

    Parameters
    ----------
    functions : Derivatives
        The program.
    limits : Limits
        Of unknowns and constraints.
    start : Found
        Where to start; with multipliers for a warm start.
    options : dict
        Options of IPOPT.
    report : callable
        ``report(iteration, objective, violation, slope, barrier, step)``, called in each iteration; False ends the solution.

    Returns
    -------
    Found
        The solution.
    """
    ipopt = library()
    n, m = limits.low.size, limits.lower.size
    (jacobian_rows, jacobian_columns), (hessian_rows, hessian_columns) = functions.patterns()
    if m and not len(
        jacobian_rows
    ):  # IPOPT takes no Jacobian without elements: that of constants gets one, which is zero
        jacobian_rows = jacobian_columns = np.zeros(1, np.int32)
    deferral = Deferral()

    def objective(_n: int, x: Any, _new: bool, target: Any, _user: Any) -> None:
        target[0] = functions.values(_array(x, n))[0]

    def gradient(_n: int, x: Any, _new: bool, target: Any, _user: Any) -> None:
        _array(target, n)[:] = functions.gradient(_array(x, n))

    def constraints(_n: int, x: Any, _new: bool, _m: int, target: Any, _user: Any) -> None:
        _array(target, m)[:] = functions.values(_array(x, n))[1]

    def jacobian(
        _n: int, x: Any, _new: bool, _m: int, count: int, rows: Any, columns: Any, target: Any, _user: Any
    ) -> None:
        if target:
            elements = functions.jacobian(_array(x, n))
            _array(target, count)[:] = elements if len(elements) else 0.0
        elif count:
            _array(rows, count)[:] = jacobian_rows
            _array(columns, count)[:] = jacobian_columns

    def hessian(
        _n: int,
        x: Any,
        _new: bool,
        factor: float,
        _m: int,
        multipliers: Any,
        _new_multipliers: bool,
        count: int,
        rows: Any,
        columns: Any,
        target: Any,
        _user: Any,
    ) -> None:
        if target:
            _array(target, count)[:] = functions.hessian(_array(x, n), factor, _array(multipliers, m))
        elif count:
            _array(rows, count)[:] = hessian_rows
            _array(columns, count)[:] = hessian_columns

    def intermediate(
        _mode: int,
        iteration: int,
        objective: float,
        violation: float,
        slope: float,
        barrier: float,
        step: float,
        _regularisation: float,
        _dual_step: float,
        _primal_step: float,
        _trials: int,
        _user: Any,
    ) -> bool:
        return report(iteration, objective, violation, slope, barrier, step)

    callbacks = (
        _OBJECTIVE(deferral.calls(objective)),
        _CONSTRAINTS(deferral.calls(constraints)),
        _GRADIENT(deferral.calls(gradient)),
        _JACOBIAN(deferral.calls(jacobian)),
        _HESSIAN(deferral.calls(hessian)),
    )
    after = _INTERMEDIATE(deferral.calls(intermediate))
    ends = [np.clip(np.ascontiguousarray(end, float), -2 * STEEP, 2 * STEEP) for end in limits]
    low, high, lower, upper = map(_pointer, ends)
    problem = ctypes.c_void_p(
        ipopt.CreateIpoptProblem(
            n, low, high, m, lower, upper, len(jacobian_rows), len(hessian_rows), 0, *callbacks
        )
    )
    if not problem:
        raise ArgumentError(
            "gt.nlp: IPOPT does not accept the sizes of the program",
            where=user_site(),
            remedy="pass at least one unknown, and no lower limit above its upper one",
        )
    try:
        for name, value in options.items():
            _set(ipopt, problem, name, value)
        ipopt.SetIntermediateCallback(problem, after)
        x, duals = start.x.copy(), np.array(start.duals, float)
        push_low, push_high = np.array(start.low, float), np.array(start.high, float)
        values, best = np.zeros(m), np.zeros(1)
        arrays = map(_pointer, (x, values, best, duals, push_low, push_high))
        with deferral:
            status = ipopt.IpoptSolve(problem, *arrays, None)
    finally:
        ipopt.FreeIpoptProblem(problem)
    if deferral.errors:
        raise deferral.errors[0]
    message = MESSAGES.get(status, f"IPOPT's status {status}")
    return Found(x, duals, push_low, push_high, status in SOLVED, status, message)


def _set(ipopt: Any, problem: Any, name: str, value: Any) -> None:
    if isinstance(value, bool):
        value = "yes" if value else "no"
    if isinstance(value, str):
        done = ipopt.AddIpoptStrOption(problem, name.encode(), value.encode())
    elif isinstance(value, int | np.integer):
        done = ipopt.AddIpoptIntOption(problem, name.encode(), int(value)) or ipopt.AddIpoptNumOption(
            problem, name.encode(), float(value)
        )
    else:
        done = ipopt.AddIpoptNumOption(problem, name.encode(), float(value))
    if not done:
        raise ArgumentError(
            f"gt.nlp: IPOPT does not accept the option {name}={value!r}",
            where=user_site(),
            remedy="see the names and ranges at https://coin-or.github.io/Ipopt/OPTIONS.html",
        )
