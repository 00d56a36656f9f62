"""`nlp`: nonlinear programs."""

from __future__ import annotations

import functools
import importlib
import itertools
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from gradtape.api.nlp import ipopt, trust_region
from gradtape.api.nlp.derivatives import Compiled, Derivatives, Found, Limits
from gradtape.api.nlp.implicit import traced_solution
from gradtape.api.nlp.solution import LOG, OTHER_REMEDY, REMEDIES, Solution
from gradtape.api.solvers.nested import Unknowns, nested, vector_of
from gradtape.api.solvers.optimality import check_constraint
from gradtape.api.transforms.callables import check_callable
from gradtape.errors import (
    ArgumentError,
    DtypeError,
    GradtapeWarning,
    NonScalarOutputError,
    NumericsError,
    ShapeError,
    kind_of,
    warn,
)
from gradtape.habits import suggests_keywords
from gradtape.lru import LRU
from gradtape.progress import counting
from gradtape.trace.dispatch.call_errors import list_error
from gradtape.trace.patching.opaque import traced_parts
from gradtape.trace.source.sites import user_site
from gradtape.trees import flatten

Solver = Literal["auto", "ipopt", "trust-constr"]
SOLVERS: Final = ("auto", "ipopt", "trust-constr")

_compiled: Final[LRU[Any, Compiled]] = LRU(lambda: 64)
"""Compiled derivatives, by the user's functions and the structure of the unknowns."""


class Rows(NamedTuple):
    """A constraint: ``lower <= function(x, *args) <= upper``.

    Attributes
    ----------
    function : callable
        The user's; None for a linear constraint.
    args : tuple
        Its arguments after the unknowns; the matrix of a linear constraint.
    lower, upper : array_like
        Its limits.
    name : str
        The function and its line, for messages.
    """

    function: Any
    args: tuple[Any, ...]
    lower: Any
    upper: Any
    name: str

    def value(self, vector: Any, unknowns: tuple[Any, Any], args: Any) -> Any:
        """Return the values for a vector of unknowns."""
        if self.function is None:
            return np.reshape(args[0] @ vector, -1)
        returned = self.function(nested(vector, *unknowns), *args)
        _check_real(returned, f"the constraint {self.name}")
        return vector_of(returned)


def _check_real(returned: Any, name: str) -> None:
    """Raise unless what a function returned is made of real numbers."""
    leaves = flatten(returned)[0]
    for leaf in leaves or [None]:
        kind = leaf.dtype.kind if hasattr(leaf, "dtype") else np.asarray(leaf).dtype.kind
        if kind == "c":
            raise DtypeError(
                f"gt.nlp: {name} returned complex numbers",
                where=user_site(),
                why="a solver compares real numbers",
                remedy="return real numbers: np.real(z), or real and imaginary parts as two constraints",
            )
        if kind not in "biuf":
            raise DtypeError(
                f"gt.nlp: {name} returned {'None' if leaf is None else kind_of(leaf)}",
                where=user_site(),
                why="a solver needs its numbers",
                remedy="end the function with a return statement that returns a number or an array of numbers",
            )


@suggests_keywords
def nlp(
    objective: Callable[..., Any],
    x0: Any,
    args: Any = (),
    *,
    constraints: Any = (),
    bounds: Any = None,
    warm_start: Solution | None = None,
    solver: Solver = "auto",
    tol: float | None = None,
    max_iterations: int | None = None,
    time_limit: float | None = None,
    callback: Callable[[Any], Any] | None = None,
    options: dict[str, Any] | None = None,
) -> Solution:
    """Solve a nonlinear program: minimise a function under constraints and bounds, with sparse derivatives.

    The Jacobian of the constraints and the Hessian of the Lagrangian are sparse matrices, computed by a few products (see
    `sparse_jacobian`). IPOPT solves the program where it is installed (``pip install gradtape[ipopt]``), else "trust-constr" of SciPy.

    Parameters
    ----------
    objective : callable
        ``objective(x, *args)``: NumPy code that returns a number.
    x0 : nest of array_like
        The initial guess; a list of numbers is an array. `x` has its containers and shapes.
    args : tuple
        Further arguments.
    constraints : dict, constraint of scipy.optimize, or list of these
        As for `gradtape.scipy.minimize`: ``{"type": "eq" or "ineq", "fun": f, "args": ()}`` for ``f(x, *args) == 0`` or ``>= 0``,
        ``NonlinearConstraint(f, lower, upper)`` or ``LinearConstraint(matrix, lower, upper)``. Functions get nested unknowns, and return
        arrays or nested arrays; the matrix, dense or sparse, is multiplied by the vector of the unknowns.
    bounds : pair, scipy.optimize.Bounds or list, optional
        Lower and upper bounds: each None, a number, or containers like `x0` or its outer ones; for a single array a list of pairs too.
    warm_start : Solution, optional
        The solution of a similar program, whose multipliers are the initial multipliers of this one. Pass its `x` as `x0`.
    solver : {"auto", "ipopt", "trust-constr"}
        By default IPOPT if it is installed.
    tol : float, optional
        The tolerance of the optimality conditions, 1e-8 by default.
    max_iterations : int, optional
        By default 3000.
    time_limit : float, optional
        The time limit of the solver in seconds.
    callback : callable, optional
        ``callback(row)``, called in each iteration with a row of the log; if it returns True the solver stops.
    options : dict, optional
        Further options of the solver.

    Returns
    -------
    Solution
        With `x`, `fun`, `success`, `message`, the multipliers `duals` and `bound_duals`, and the `log` of the iterations. On tapes and
        in compiled functions `x`, `fun`, `duals` and `bound_duals` have derivatives with respect to the values that the functions,
        limits and bounds capture; they follow from the optimality conditions with the active set of the solution.

    Raises
    ------
    NumericsError
        If a function is NaN or infinite at `x0`; names the op and the line.
    ArgumentError, ShapeError, DtypeError, NonScalarOutputError
        If functions, limits or options are invalid or do not fit together.

    See Also
    --------
    gradtape.scipy.minimize : All methods of SciPy, with dense derivatives.

    Notes
    -----
    If no solution is found, a warning names the constraint that is violated most. If a constraint is active and its Lagrange multiplier
    is zero, the solution has one-sided derivatives only; a warning is given when they are taken.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> def cost(x, price):
    ...     return price * x["a"] + x["b"]
    >>> area = {"type": "eq", "fun": lambda x: x["a"] * x["b"] - 4}
    >>> found = gt.nlp(cost, {"a": 1.0, "b": 1.0}, 4.0, constraints=area, bounds=(0.1, 10.0), solver="trust-constr")
    >>> print(f"{found.x['a']:.3f} {found.x['b']:.3f} {found.fun:.3f}")
    1.000 4.000 8.000
    """
    begin = time.perf_counter()
    check_callable(objective, "gt.nlp")
    if solver not in SOLVERS:
        raise ArgumentError(
            f"gt.nlp: solver is {solver!r}",
            where=user_site(),
            remedy='choose "auto", "ipopt" or "trust-constr"',
        )
    if time_limit is not None and not time_limit > 0:
        raise ArgumentError(
            f"gt.nlp: time_limit is {time_limit!r}",
            where=user_site(),
            remedy="pass seconds, or None for no limit",
        )
    name, solve = _solver(solver)
    unknowns, args = Unknowns(x0, "gt.nlp"), _tuple(args)
    if not unknowns.vector.size:
        raise ArgumentError(
            "gt.nlp: x0 has no unknowns",
            where=user_site(),
            remedy="pass initial values: x0=np.zeros(3), a number, or nested containers of these",
        )
    rows = [_rows(each) for each in _several(constraints)]
    containers = unknowns.shapes, unknowns.spec
    parameters = args, [row.args for row in rows]

    def joined(vector: Any, args: Any, extras: Any) -> Any:
        """Return the objective and all constraints as one vector."""
        value = objective(nested(vector, *containers), *args)
        _check_real(value, "objective")
        if np.size(value) != 1:
            raise NonScalarOutputError(
                f"gt.nlp: objective returned an array of shape {np.shape(value)}",
                where=user_site(),
                remedy="return one number: np.sum(...) for instance",
            )
        parts = [row.value(vector, containers, extra) for row, extra in zip(rows, extras, strict=True)]
        return np.concatenate([np.reshape(value, (1,)) * 1.0, *parts])

    log: list[Any] = []

    def run(functions: Derivatives, limits: Limits, start: Found) -> Found:
        """Solve the program with numbers."""
        log.clear()
        _check_limits(limits, rows, sizes)
        first = np.concatenate([[each] if np.ndim(each) == 0 else each for each in functions.values(start.x)])
        if not np.isfinite(first).all():
            _explain_nan(functions.plain, start.x, first, rows, sizes)
        beginning = time.perf_counter()

        def report(*row: Any) -> bool:
            log.append(np.array(row, LOG)[()])
            late = time_limit is not None and time.perf_counter() - beginning > time_limit
            answer = None if callback is None else callback(log[-1])
            return not late and not (isinstance(answer, bool | np.bool_) and answer)

        more = _options(name, tol, max_iterations, time_limit, warm_start is not None) | (options or {})
        with np.errstate(all="ignore"), counting("solving", "iteration", lambda: len(log)):
            solution = solve(functions, limits, start, more, report)
        if time_limit is not None and time.perf_counter() - beginning > time_limit and not solution.success:
            solution = solution._replace(message="out of time")
        if not solution.success:
            remedy = REMEDIES.get(solution.message, OTHER_REMEDY)
            solution = solution._replace(message=_with_reason(solution, functions, limits, rows, sizes))
            warn(
                GradtapeWarning,
                f"gt.nlp has not found a solution: {solution.message}",
                where=user_site(),
                why=f"{name} ended with status {solution.status} after {len(log)} iterations",
                remedy=remedy,
            )
        return solution

    vector = unknowns.vector
    low, high = unknowns.ends(bounds, "gt.nlp")
    handles = list(traced_parts((objective, x0, args, constraints, bounds)))
    if handles:
        with np.errstate(all="ignore"):  # `run` names what is not finite
            sizes = [int(np.size(row.value(vector, containers, row.args))) for row in rows]
        limits = Limits(low, high, *_ends(rows, sizes))
        start = _start(vector, limits, warm_start)
        made = traced_solution(
            lambda x: joined(x, *parameters),
            start,
            limits,
            run,
            [handle.value for handle in handles],
            lambda position: _place(position, rows, sizes),
        )
        x, fun, solution, violation = made.x, made.fun, made.found, made.violation
        evaluations = 0
    else:
        compiled = _derivatives(objective, rows, unknowns, joined)
        try:
            values = compiled.values_at(vector, *parameters)
        except (TypeError, AttributeError) as error:
            mistake = list_error(error, objective, (unknowns.nested(vector), *args), {})
            if mistake is None:
                raise
            raise mistake from None
        sizes = _sizes(rows, unknowns, values)
        limits = Limits(low, high, *_ends(rows, sizes))
        functions = Derivatives(compiled, parameters, vector, values.size - 1)
        solution = run(functions, limits, _start(vector, limits, warm_start))
        x = solution.x
        fun, reached = functions.values(x)
        violation = _violation(reached, limits)
        evaluations = functions.calls
    pieces = np.cumsum([0, *sizes])
    return Solution(
        unknowns.nested(x),
        fun,
        solution.success,
        solution.status,
        solution.message,
        [solution.duals[first:last] for first, last in itertools.pairwise(pieces)],
        (unknowns.nested(solution.low), unknowns.nested(solution.high)),
        violation,
        len(log),
        evaluations,
        time.perf_counter() - begin,
        name,
        np.array(log, LOG),
    )


def _tuple(args: Any) -> tuple[Any, ...]:
    return tuple(args) if isinstance(args, tuple | list) else (args,)


def _several(constraints: Any) -> Sequence[Any]:
    return constraints if isinstance(constraints, list | tuple) else [constraints]


def _rows(given: Any) -> Rows:
    """Return a constraint in any form that SciPy takes."""
    check_constraint(given, "gt.nlp")
    if isinstance(given, dict):
        high = 0.0 if given["type"].lower() == "eq" else np.inf
        return Rows(given["fun"], _tuple(given.get("args", ())), 0.0, high, _described(given["fun"]))
    if hasattr(given, "A"):
        return Rows(None, (given.A,), given.lb, given.ub, "a linear constraint")
    return Rows(given.fun, (), given.lb, given.ub, _described(given.fun))


def _described(function: Any) -> str:
    code = getattr(function, "__code__", None)
    name = getattr(function, "__name__", type(function).__name__)
    return name if code is None else f"{name} ({code.co_filename}:{code.co_firstlineno})"


def _derivatives(
    objective: Any, rows: Sequence[Rows], unknowns: Unknowns, joined: Callable[..., Any]
) -> Compiled:
    """Return compiled functions: those of an earlier call with the same functions, if there are any."""
    key = objective, tuple([row.function for row in rows]), unknowns.shapes, unknowns.spec, unknowns.structure
    try:
        made = _compiled.get(key)
    except TypeError:  # a callable that cannot be hashed
        return Compiled(joined)
    if made is None:
        made = _compiled[key] = Compiled(joined)
    return made


def _sizes(rows: Sequence[Rows], unknowns: Unknowns, values: Any) -> list[int]:
    """Return how many numbers each constraint has."""
    if len(rows) == 1:
        return [values.size - 1]
    containers = unknowns.shapes, unknowns.spec
    return [int(np.size(row.value(unknowns.vector, containers, row.args))) for row in rows]


def _ends(rows: Sequence[Rows], sizes: Sequence[int]) -> tuple[Any, Any]:
    """Return the lower and upper limits of all constraints."""
    ends = []
    for name in ("lower", "upper"):
        parts = []
        for row, size in zip(rows, sizes, strict=True):
            end = getattr(row, name)
            end = np.reshape(end, -1) if np.ndim(end) else end
            if np.ndim(end) and np.size(end) not in (1, size):
                raise ShapeError(
                    f"gt.nlp: {row.name} returns {size} numbers, and its {name} limits are {np.size(end)}",
                    where=user_site(),
                    remedy="pass one limit for each number, or one for all",
                )
            parts.append(end + np.zeros(size))
        ends.append(np.concatenate(parts) if parts else np.zeros(0))
    return ends[0], ends[1]


def _start(vector: Any, limits: Limits, warm: Solution | None) -> Found:
    n, m = vector.size, int(np.size(limits.lower))
    if warm is None:
        return Found(vector, np.zeros(m), np.zeros(n), np.zeros(n))
    if not isinstance(warm, Solution):
        raise ArgumentError(
            f"gt.nlp: warm_start is {kind_of(warm)}",
            where=user_site(),
            remedy="pass what gt.nlp returned, and its x as x0",
        )
    duals = np.concatenate([np.ravel(each) for each in warm.duals]) if warm.duals else np.zeros(0)
    low, high = [vector_of(each) for each in warm.bound_duals]
    if np.size(duals) != m or np.size(low) != n:
        raise ShapeError(
            f"gt.nlp: warm_start has {np.size(low)} unknowns and {np.size(duals)} multipliers, this program {n} and {m}",
            where=user_site(),
            remedy="pass the solution of a program with the same unknowns and constraints",
        )
    return Found(vector, duals, low, high)


def _solver(asked: str) -> tuple[str, Callable[..., Found]]:
    if asked == "trust-constr":
        return asked, trust_region.solve
    if ipopt.library() is not None:
        return "ipopt", ipopt.solve
    if asked == "ipopt":
        raise ArgumentError(
            "gt.nlp: IPOPT is not installed",
            where=user_site(),
            remedy='pip install "gradtape[ipopt]", or solver="trust-constr"',
        )
    _say_default()
    return "trust-constr", trust_region.solve


@functools.cache
def _say_default() -> None:
    warn(
        GradtapeWarning,
        'gt.nlp uses "trust-constr" of SciPy',
        where=user_site(),
        why="IPOPT, which is faster on all but small programs, is not installed",
        remedy='pip install "gradtape[ipopt]", or pass solver="trust-constr"; this warning appears once',
    )


def _options(
    name: str, tol: float | None, max_iterations: int | None, time_limit: float | None, is_warm: bool
) -> dict[str, Any]:
    tol = 1e-8 if tol is None else tol
    most = 3000 if max_iterations is None else int(max_iterations)
    if name == "trust-constr":
        return {"gtol": tol, "xtol": min(tol, 1e-8) / 10, "barrier_tol": tol, "maxiter": most}
    made: dict[str, Any] = {"print_level": 0, "sb": "yes", "tol": float(tol), "max_iter": most}
    made["honor_original_bounds"] = "yes"  # else solutions are outside the bounds by 1e-8
    made |= {} if time_limit is None else {"max_wall_time": float(time_limit)}
    return made | (ipopt.WARM if is_warm else {})


def _check_limits(limits: Limits, rows: Sequence[Rows], sizes: Sequence[int]) -> None:
    """Raise if a lower limit is above the upper one, or a limit is NaN."""
    for low, high, is_bound in (
        (limits.low, limits.high, True),
        (limits.lower, limits.upper, False),
    ):
        wrong = np.flatnonzero(~(np.asarray(low) <= np.asarray(high)))
        if len(wrong):
            at = int(wrong[0])
            what = f"bound of unknown {at}" if is_bound else f"limit of {_place(at, rows, sizes)}"
            raise ArgumentError(
                f"gt.nlp: the lower {what} is {low[at]:.6g}, the upper one {high[at]:.6g}",
                where=user_site(),
                remedy="pass lower limits that are not above the upper ones",
            )


def _place(position: int, rows: Sequence[Rows], sizes: Sequence[int]) -> str:
    """Return the name of an element of the constraints."""
    ends = np.cumsum(sizes)
    number = int(np.searchsorted(ends, position, side="right"))
    within = position - (int(ends[number - 1]) if number else 0)
    return f"constraint {number}, {rows[number].name}, element {within}"


def _violation(values: Any, limits: Limits) -> float:
    return float(np.max(np.maximum(limits.lower - values, values - limits.upper), initial=0.0))


def _with_reason(
    found: Found, functions: Derivatives, limits: Limits, rows: Sequence[Rows], sizes: Sequence[int]
) -> str:
    """Return a solver's message with the constraint that is not finite, or violated most."""
    value, values = functions.values(found.x)
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad):
        return f"{found.message}; {_place(int(bad[0]), rows, sizes)} is {values[bad[0]]}"
    if not np.isfinite(value):
        return f"{found.message}; the objective is {value}"
    excess = np.maximum(limits.lower - values, values - limits.upper)
    if excess.size and excess.max() > 1e-6:
        worst = int(np.argmax(excess))
        return f"{found.message}; {_place(worst, rows, sizes)} is violated by {excess[worst]:.3g}"
    return found.message


def _explain_nan(
    joined: Callable[[Any], Any], x: Any, values: Any, rows: Sequence[Rows], sizes: Sequence[int]
) -> None:
    """Raise for functions that are not finite at the start, at the op that made the number if it can be found."""
    numerics: Any = importlib.import_module("gradtape.api.debug.numerics")
    gradient: Any = importlib.import_module("gradtape.api.transforms.gradient")
    number = int(np.flatnonzero(~np.isfinite(values))[0])
    function = "the objective" if number == 0 else _place(number - 1, rows, sizes)
    error = NumericsError(
        f"gt.nlp: {function} is {values[number]} at x0",
        where=user_site(),
        why="a solver needs finite numbers to start from",
        remedy="start inside the domain of all functions, and keep unknowns in it by bounds",
    )
    try:
        with numerics.check_numerics(), np.errstate(all="ignore"):
            gradient.value_and_grad(lambda x: np.sum(joined(x)))(x)
    except NumericsError as cause:
        raise error from cause
    raise error
