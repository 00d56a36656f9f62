"""Taylor's method: the power series of the solution at the beginning of each step, to an order that the tolerance decides.

The size of a step follows from the last two coefficients, as A. Jorba and M. Zou choose it (Experimental Mathematics 14, 2005, section 3).
That presumes a right-hand side whose coefficients decay alike. So a step is tried again with half its size if the slope at its end is not
that of the series: that costs one evaluation of the right-hand side, where a step costs as many as the square of its order.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final, NamedTuple

import numpy as np

from gradtape.api.debug.nonsmooth.switches import SWITCHES
from gradtape.api.ode.problem import Problem, limited, smallest_step
from gradtape.api.tape.create import stop_gradient
from gradtape.api.transforms.recording import Recording
from gradtape.errors import ConcretizationError, NotDifferentiableError
from gradtape.ir.graph import Node, Value, extract
from gradtape.ir.types import is_inexact
from gradtape.kinds.control import visible_inputs
from gradtape.kinds.registry import ROWS
from gradtape.kinds.routines.matrix import Matrix
from gradtape.trace.array.array import Array
from gradtape.transforms.call import GraphCall
from gradtape.transforms.loops.draft import LoopOp
from gradtape.transforms.taylor.flow import flow

EPS: Final = float(np.finfo(float).eps)

SAFETY: Final = 0.7
"""A step is smaller by ``exp(-SAFETY / (order - 1))``, as Jorba and Zou choose it."""

LARGEST_DEFECT: Final = 10.0
"""How many times the tolerance the error may be that follows from the slope at the end of a step."""

LOWEST: Final = 2
"""The lowest order: the size of a step follows from two coefficients beside the value."""

NOISE: Final = 100 * EPS
"""Rounding errors of slopes, as a part of the state: that of the right-hand side is not known."""


class State(NamedTuple):
    """Where the integration is after an attempt at a step.

    Attributes
    ----------
    t, y : scalar, array of shape (n,)
        The time, and the solution there.
    t_old : scalar
        That before the last step.
    series : array of shape (order + 1, n)
        The coefficients of the solution there.
    size : scalar
        The largest size of the next step.
    has_failed : bool
        Whether steps would be smaller than rounding errors.
    """

    t: Any
    y: Any
    t_old: Any
    series: Any
    size: Any
    has_failed: Any


class TaylorMethod:
    """The method.

    Parameters
    ----------
    order : int
        The order of the series.

    Attributes
    ----------
    dense : tuple of str
        The fields of a state that `interpolate` reads.
    """

    dense: tuple[str, ...] = ("t", "t_old", "series")
    repeats_steps = True

    def __init__(self, order: int) -> None:
        self._order = order

    def start(self, problem: Problem, slope: Any) -> State:
        """Return the state at the beginning."""
        size = np.inf if problem.first_step is None else problem.first_step
        t = problem.t0 + 0.0 * stop_gradient(problem.t_bound)
        none = np.zeros_like(problem.y0)
        # The order may be a number that a trace guards; a list times one would be an array.
        series = np.stack([problem.y0, slope, *[none for _ in range(1, self._order)]])
        return State(t, problem.y0, t, series, stop_gradient(size) + 0.0 * stop_gradient(t), np.isinf(t))

    def attempt(self, problem: Problem, state: State) -> State:
        """Return the state after an attempt at a step."""
        t, y = state.t, state.y
        series = _series(problem, t, y, self._order)
        smallest = smallest_step(stop_gradient(t), problem.direction)
        chosen_size = _step_size([stop_gradient(part) for part in series], stop_gradient(problem.scale(y)))
        size = np.minimum(np.minimum(chosen_size, state.size), problem.max_step)
        fails = ~(size >= smallest)
        t_new, h = limited(problem, t, size)
        y_new = _sum(series, h)
        numbers, step = [stop_gradient(part) for part in series], stop_gradient(h)
        end = stop_gradient(y_new)
        slope = _sum([k * part for k, part in enumerate(numbers)][1:], step)
        defect = np.abs(step * (stop_gradient(problem.fun(stop_gradient(t_new), end)) - slope)) / len(series)
        allowed = LARGEST_DEFECT * problem.scale(numbers[0], end) + NOISE * np.max(np.abs(end))
        is_accepted = np.all(defect <= allowed) & ~fails

        def chosen(new: Any, old: Any) -> Any:
            return np.where(is_accepted, new, old)

        return State(
            chosen(t_new, t),
            chosen(y_new, y),
            chosen(t, state.t_old),
            chosen(np.stack(series), state.series),
            stop_gradient(np.where(is_accepted, np.inf, np.abs(step) / 2)),
            fails,
        )

    def interpolate(self, problem: Problem, state: State, t: Any) -> Any:
        """Return the solution at a time in the last step."""
        return _sum(list(state.series), t - state.t_old)


def order_for(rtol: Any) -> int:
    """Return the order with the least work for a tolerance (Jorba and Zou, section 3.1), which a compiled function guards.

    It is the highest one where a number cannot be had, as in the body of a loop.
    """
    with suppress(ConcretizationError):
        return max(LOWEST, int(np.ceil(1 - np.log(np.maximum(np.min(rtol), EPS)) / 2)))
    return int(np.ceil(1 - np.log(EPS) / 2))


def _sum(series: list[Any], h: Any) -> Any:
    """Return the sum of a series at a distance."""
    *lower, total = series
    for part in reversed(lower):
        total = total * h + part
    return total


def _step_size(series: list[Any], scale: Any) -> Any:
    """Return the size of a step that makes the last two terms of a series smaller than a scale."""
    order = len(series) - 1
    sizes = []
    for k in (order - 1, order):
        parts = np.abs(series[k])
        share = np.max(np.where(parts == 0, 0.0, parts / scale))
        sizes.append(np.where(share == 0, np.inf, np.where(share == 0, 1.0, share) ** (-1 / k)))
    return np.exp(-SAFETY / (order - 1)) * np.minimum(*sizes)


def _series(problem: Problem, t: Any, y: Any, order: int) -> list[Any]:
    """Return the coefficients of the solution at a time."""
    recording = Recording("solve_ivp with method Taylor", (t, y))
    recording.run(problem.fun)
    (slope,), sources = recording.targets, recording.sources
    time, place = sources
    nodes, _ = extract(
        [slope], sources, lambda value: value.node is None or recording.is_outside(value), visible_inputs
    )
    _check_analytic(nodes, set(sources))
    return [Array(part) for part in flow(slope, time, place, order, recording.is_outside)]


_SINGULAR: Final = {ROWS[name] for name in ("sqrt", "root", "cbrt", "hypot")}
"""Rows that switch at a point of their domain, beside which they are analytic."""

_EXCEPTIONS: Final = {ROWS[name] for name in ("equal", "not_equal", "isnan", "isfinite")}
"""Comparisons that hold, or fail, at single points: what they select is analytic beside these."""


def _check_analytic(nodes: Iterable[Node], moving: set[Value]) -> None:
    """Raise an error if nodes select by values that move; what moves with these is added to them."""
    for node in nodes:
        if moving.isdisjoint(node.inputs) or node.op in _EXCEPTIONS:
            continue
        op = node.op
        selects = op in SWITCHES and op not in _SINGULAR
        decides = any(value in moving and not is_inexact(value.dtype) for value in node.inputs)
        is_free = isinstance(op, Matrix)  # which rows a factorisation exchanges makes no difference
        if selects or (decides and not is_free and any(is_inexact(out.dtype) for out in node.outs)):
            raise NotDifferentiableError(
                f"gt.scipy.solve_ivp: the right-hand side is not analytic: {op.name} selects by the state or the time",
                where=node.site,
                why="method Taylor sums power series, which end at a kink or a jump",
                remedy="use method DOP853, or end the integration by an event at the switch and begin anew",
            )
        if isinstance(op, LoopOp):
            _check_loop(op, node, moving)
        elif isinstance(op, GraphCall):
            pairs = zip(node.inputs, op.graph.inputs, strict=True)
            _check_analytic(op.graph.nodes, {own for outer, own in pairs if outer in moving})
        moving.update(node.outs)


def _check_loop(op: LoopOp, node: Node, moving: set[Value]) -> None:
    draft = op.open_draft(node)
    start = {given.inner for given in draft.operands if given.outer in moving}
    while True:  # terminates: each round but the last adds a carry
        inside = set(start)
        _check_analytic(draft.nodes(), inside)
        more = {carry.inner for carry in draft.carries if carry.next_carry in inside}
        if more <= start:
            return
        start |= more
