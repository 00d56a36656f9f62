"""Solutions of nonlinear programs on tapes and in compiled functions, with derivatives by the optimality conditions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from gradtape.api.nlp.derivatives import Compiled, Derivatives, Found, Limits
from gradtape.api.solvers.closure import ClosedFunction
from gradtape.api.solvers.nested import LARGE
from gradtape.api.solvers.optimality import FOLLOWS, Constraint, Optimum, optimum, with_independent
from gradtape.api.tape.create import stop_gradient
from gradtape.api.transforms.gradient import grad
from gradtape.errors import GradtapeWarning, warn
from gradtape.ir.graph import Value
from gradtape.kinds.operands import as_value
from gradtape.kinds.routines.host import call_host, enter_function
from gradtape.trace.array.array import Array
from gradtape.trace.array.concretize import abstracting_trace
from gradtape.trace.array.handle import unwrap
from gradtape.trace.patching.opaque import paused
from gradtape.trace.source.sites import user_site

SMALL: Final = 1e-2
ALIKE: Final = 10.0
"""A distance to a limit and a multiplier that are both small, and by this factor alike, do not say whether the limit is active."""


class Traced(NamedTuple):
    """A solution with derivatives."""

    x: Any
    fun: Any
    found: Found
    violation: Any


def traced_solution(
    joined: Callable[[Any], Any],
    start: Found,
    limits: Limits,
    run: Callable[[Derivatives, Limits, Found], Found],
    values: Sequence[Value],
    place: Callable[[int], str],
) -> Traced:
    """Solve a program that reads traced arrays.

    Parameters
    ----------
    joined : callable
        ``joined(x)``: the objective and the constraints.
    start : Found
        Where to start.
    limits : Limits
        Of unknowns and constraints.
    run : callable
        ``run(functions, limits, start)`` solves it with numbers.
    values : sequence of Value
        The traced arrays.
    place : callable
        ``place(k)``: the name of an element of the constraints.

    Returns
    -------
    Traced
        The solution. In a compiled function, all of its numbers are traced.
    """
    n, m = int(np.size(start.x)), int(np.size(limits.lower))
    closed = ClosedFunction(joined, as_value(np.zeros(n)), "the program given to gt.nlp")
    compiled = Compiled(closed.apply)
    messages: list[str] = []

    def solve(numbers: Sequence[Any], captured: Sequence[Any]) -> tuple[Any, ...]:
        ends, first = Limits(*numbers[:4]), Found(*numbers[4:])
        functions = Derivatives(compiled, captured, first.x, m)
        found = run(functions, ends, first)
        messages[:] = [found.message]
        return _active(found, functions, ends, place)

    numbers = [*limits, *start[:4]]
    if any(abstracting_trace(value) is not None for value in values):
        inputs = [as_value(unwrap(number)) * 1.0 for number in numbers]
        shapes = [np.zeros(n), np.zeros(n, int), np.zeros(m), np.zeros(m, int), np.True_, np.int64(0), 0.0]
        types = [as_value(unwrap(one)).aval for one in shapes]

        def call(*arrays: Any) -> tuple[Any, ...]:
            return solve(arrays[: len(inputs)], arrays[len(inputs) :])

        constants = [as_value(unwrap(stop_gradient(Array(one)))) for one in (*inputs, *closed.captured)]
        outs: Any = list(map(Array, call_host(enter_function(call), types, constants)))
    else:
        captured = list(map(Array, closed.captured))
        outs = paused("gt.nlp", solve, (numbers, captured), {}, [*values, *closed.captured])
    best = Optimum(*outs[:4])
    success, status, violation = outs[4:]

    def objective(x: Any) -> Any:
        return joined(x)[0]

    rows = [Constraint(lambda x: joined(x)[1:], limits.lower, limits.upper, None)] if m else []
    x, duals = optimum(best, objective, rows, (limits.low, limits.high), sparse=n + m >= LARGE)

    def lagrangian(x: Any, duals: Any) -> Any:
        values = joined(x)
        return values[0] + np.sum(duals * values[1:])

    slope = grad(lagrangian)(x, duals)
    low = np.where(best.sides == -1, slope, 0.0)
    high = np.where(best.sides == 1, -slope, 0.0)
    found = Found(x, duals, low, high, success, status, messages[0] if messages else "")
    return Traced(x, objective(x), found, violation)


def _active(
    found: Found, functions: Derivatives, limits: Limits, place: Callable[[int], str]
) -> tuple[Any, ...]:
    """Return a solution as the fields of `Optimum`, and how good it is.

    A limit is active where the multiplier is larger than the distance, both relative to their scales: in an interior-point method their
    product is the barrier parameter, and one of them is far larger than the other.
    """
    _, values = functions.values(found.x)
    largest = max(1.0, *[np.max(np.abs(each), initial=0.0) for each in (found.duals, found.low, found.high)])
    below, low_unclear = _is_active(found.x - limits.low, found.low, found.x, largest)
    above, high_unclear = _is_active(limits.high - found.x, found.high, found.x, largest)
    fixed = limits.low == limits.high
    sides = np.where(below | fixed, -1, np.where(above, 1, 0))
    x = np.where(sides == -1, limits.low, np.where(sides == 1, limits.high, found.x))
    at_low, lower_unclear = _is_active(values - limits.lower, np.maximum(-found.duals, 0), values, largest)
    at_high, upper_unclear = _is_active(limits.upper - values, np.maximum(found.duals, 0), values, largest)
    equal = limits.lower == limits.upper
    active = np.where(equal, 1, np.where(at_low, -1, np.where(at_high, 1, 0)))
    unclear = np.count_nonzero((low_unclear | high_unclear) & ~fixed) + np.count_nonzero(
        (lower_unclear | upper_unclear) & ~equal
    )
    if unclear:
        warn(
            GradtapeWarning,
            f"gt.nlp: {unclear} bounds or constraints are met with a multiplier of zero",
            where=user_site(),
            why="the solution has a different derivative on each side, as at a kink; that of one side is returned",
            remedy="pass a smaller tol, which separates them; if they are exactly zero, move the limits or the parameters a little",
        )
    duals = np.where(active == 0, 0.0, found.duals)
    chosen = np.flatnonzero(active)
    if len(chosen):
        slopes = functions.jacobian_matrix(found.x).tocsr()[chosen][:, np.flatnonzero(sides == 0)]
        small = values.size + found.x.size < LARGE
        slopes = slopes.toarray() if small else slopes
        active[chosen], duals[chosen] = with_independent(active[chosen], duals[chosen], slopes, equal[chosen])
        if (active == FOLLOWS).any():
            _warn_of_dependence(np.flatnonzero(active == FOLLOWS), place)
    violation = np.max(np.maximum(limits.lower - values, values - limits.upper), initial=0.0)
    return x, sides, duals, active, np.bool_(found.success), np.int64(found.status), np.float64(violation)


def _warn_of_dependence(which: Any, place: Callable[[int], str]) -> None:
    more = f" (and {len(which) - 1} more)" if len(which) > 1 else ""
    warn(
        GradtapeWarning,
        f"gt.nlp: {place(int(which[0]))}{more} follows from the other active constraints at the solution",
        where=user_site(),
        why="the multipliers are not unique; those of the others get the derivatives, which are right for parameters that leave the "
        "constraints consistent",
        remedy="leave it out",
    )


def _is_active(distance: Any, multiplier: Any, size: Any, largest: float) -> tuple[Any, Any]:
    near, push = distance / (1 + np.abs(size)), multiplier / largest
    alike = (near < ALIKE * push) & (push < ALIKE * near)
    return near < push, (near < SMALL) & (push < SMALL) & alike
