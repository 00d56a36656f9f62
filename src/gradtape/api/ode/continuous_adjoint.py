"""The continuous adjoint of initial value problems: reverse mode solves the adjoint equation backward in time.

For a solution y of ``y' = f(t, y, p)`` and cotangents at some times, the adjoint a obeys ``a' = -f_y^T a`` backward in time, and takes up
each cotangent when it passes its time. The derivative in y(t0) is a(t0), that in p the integral of ``f_p^T a``.

The solution is not stored: it is computed again from the states at the times that were asked for, in windows of the last steps before the
adjoint's time. A window has a fixed number of steps. The first run between two times leaves a fixed number of states from which later runs
begin, and drops every second one where there are too many: the memory does not depend on the number of steps.

References
----------
Y. Cao, S. Li, L. Petzold, R. Serban, Adjoint sensitivity analysis for differential-algebraic equations, SIAM J. Sci. Comput. 24, 2003.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from gradtape.api.control.branches import cond
from gradtape.api.control.loops import while_loop
from gradtape.api.control.scanning import scan
from gradtape.api.custom.call import BothModes, Operands, attached
from gradtape.api.ode.problem import Problem, first_step_size
from gradtape.api.ode.solution import Method, solution_at
from gradtape.api.ode.taylor_method import TaylorMethod
from gradtape.api.solvers.closure import ClosedFunction
from gradtape.api.tape.create import stop_gradient
from gradtape.api.transforms.gradient import jvp, vjp
from gradtape.api.transforms.vmap import vmap
from gradtape.config import config
from gradtape.ir.graph import Node, Value
from gradtape.ir.types import is_inexact
from gradtape.kinds.control import visible_inputs
from gradtape.kinds.operands import as_value
from gradtape.trace.array.array import Array
from gradtape.trace.array.handle import unwrap

WINDOW_BYTES: Final = 2**23
"""The memory limit of the steps of a window."""

WINDOW_STEPS: Final = (8, 256)
"""The fewest and the most steps of a window."""

RESTARTS: Final = 64
"""From how many states runs between two times can begin."""

ADJOINT_ATOL: Final = 0.1
"""The absolute tolerance of the adjoint, as a part of its relative one and of the largest cotangent: the equation is linear."""

NODES, WEIGHTS = np.polynomial.legendre.leggauss(4)

Function = Callable[..., Any]


def solved_at(problem: Problem, make: Callable[[], Method], times: Any) -> tuple[Any, Any]:
    """Return the solution at times as `solution_at` does, with the adjoint that ``gt.config.ode_adjoint`` names.

    Parameters
    ----------
    problem : Problem
    make : callable
        ``make()``: a method.
    times : array of shape (m,)
        In the order in which the integration passes them.

    Returns
    -------
    y : array of shape (m, n)
    has_come : bool
    """
    is_real = all(np.result_type(array).kind == "f" for array in (problem.y0, times))
    method = make()
    # Series need analytic right-hand sides, and the solution in a window is analytic in pieces only.
    has_adjoint = problem.mass is None and not isinstance(method, TaylorMethod)
    if config.ode_adjoint == "discrete" or not is_real or not np.size(times) or not has_adjoint:
        return solution_at(problem, method, times)
    like = [as_value(np.float64(0)), as_value(np.zeros(np.shape(problem.y0)))]
    closed = ClosedFunction(problem.fun, like, "the right-hand side of a differential equation")
    arrays = {name: getattr(problem, name) for name in _ARRAYS if getattr(problem, name) is not None}
    statement = Statement(closed.apply, tuple(arrays), problem.jac_sparsity, make, problem.caller)
    inputs = [Array(as_value(unwrap(array)) * 1.0) for array in (times, *arrays.values())]
    operands = Operands((*inputs, *map(Array, closed.captured)))
    come: list[Any] = []

    def solve(*values: Any) -> Any:
        y, has_come = solution_at(statement.problem(values), make(), values[0])
        come.append(stop_gradient(has_come))
        return y

    y = attached(operands.run(solve, {}), operands, (), _ContinuousAdjoint(operands, statement))
    return y, come[0]


_ARRAYS: Final = ("t0", "t_bound", "y0", "rtol", "atol", "max_step", "first_step")
"""The fields of a problem that may be traced."""


class Statement(NamedTuple):
    """A problem without its arrays: those come in the order times, fields of the problem, parameters of the right-hand side.

    Attributes
    ----------
    fun : callable
        ``fun(t, y, *parameters)``.
    fields : tuple of str
        Which fields of the problem are arrays.
    sparsity : sparse matrix or None
    make : callable
        ``make()``: a method.
    caller : str
        The function that the user called.
    """

    fun: Function
    fields: tuple[str, ...]
    sparsity: Any
    make: Callable[[], Method]
    caller: str

    def parameters(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """Return the parameters of the right-hand side."""
        return tuple(values[1 + len(self.fields) :])

    def problem(self, values: Sequence[Any]) -> Problem:
        """Return the problem."""
        parameters = self.parameters(values)
        fields = dict(zip(self.fields, values[1:], strict=False))
        steering = {name: stop_gradient(fields[name]) for name in ("rtol", "atol", "max_step")}
        first = stop_gradient(fields["first_step"]) if "first_step" in fields else None
        return Problem(
            lambda t, y: self.fun(t, y, *parameters),
            fields["t0"],
            fields["t_bound"],
            fields["y0"],
            steering["rtol"],
            steering["atol"],
            steering["max_step"],
            first,
            self.sparsity,
            caller=self.caller,
        )

    def states(self, values: Sequence[Any]) -> Any:
        """Return the solution, (m, n), whose derivatives are those of the steps."""
        return solution_at(self.problem(values), self.make(), values[0])[0]


class _ByFunction(BothModes):
    """The derivatives of another function of the operands, whose value is the same up to the accuracy of a method."""

    def __init__(self, name: str, operands: Operands, function: Function) -> None:
        super().__init__(name, operands)
        self._function = function

    def _moving(self, values: Sequence[Any], free: Sequence[int]) -> Function:
        def moved(*arguments: Any) -> Any:
            every = list(values)
            for position, argument in zip(free, arguments, strict=True):
                every[position] = argument
            return self._function(*every)

        return moved

    def push(self, node: Node, tangents: Sequence[Value | None]) -> Sequence[Value | None]:
        values = [Array(value) for value in visible_inputs(node)]
        free = [position for position, tangent in enumerate(tangents) if tangent is not None]
        directions = tuple([Array(tangent) for tangent in tangents if tangent is not None])
        _, pushed = jvp(
            self._moving(values, free), tuple([values[position] for position in free]), directions
        )
        return [unwrap(one) for one in (pushed if isinstance(pushed, tuple) else (pushed,))]

    def pull(
        self, node: Node, cotangents: Sequence[Value | None], is_needed: Sequence[bool]
    ) -> Sequence[Value | None]:
        values = [Array(value) for value in visible_inputs(node)]
        free = [
            position for position, flag in enumerate(is_needed) if flag and is_inexact(values[position].dtype)
        ]
        seeds = tuple(
            np.zeros(out.shape) if cotangent is None else Array(cotangent)
            for out, cotangent in zip(node.outs, cotangents, strict=True)
        )
        result, pullback = vjp(self._moving(values, free), *[values[position] for position in free])
        pulled = dict(zip(free, pullback(seeds if isinstance(result, tuple) else seeds[0]), strict=True))
        return [unwrap(pulled[position]) if position in pulled else None for position in range(len(values))]


class _ContinuousAdjoint(_ByFunction):
    """Reverse mode by the adjoint equation, once: its own derivatives, and those of forward mode, are those of the steps."""

    def __init__(self, operands: Operands, statement: Statement) -> None:
        super().__init__(statement.caller, operands, lambda *values: statement.states(values))
        self._statement = statement

    def pull(
        self, node: Node, cotangents: Sequence[Value | None], is_needed: Sequence[bool]
    ) -> Sequence[Value | None]:
        statement = self._statement
        values = [Array(value) for value in visible_inputs(node)]
        (upstream,) = cotangents
        positions = dict(zip(("times", *statement.fields), range(len(values)), strict=False))
        first = 1 + len(statement.fields)
        free = [
            position
            for position, flag in enumerate(is_needed)
            if flag
            and is_inexact(values[position].dtype)
            and (position >= first or position in (0, positions["t0"], positions["y0"]))
        ]
        if upstream is None or not free:
            return [None] * len(values)

        def by_steps(*arguments: Any) -> Any:
            *inputs, seed = arguments
            _, pullback = vjp(self._moving(inputs, free), *[inputs[position] for position in free])
            return tuple(pullback(seed))

        operands = Operands((*values, Array(upstream)))
        moving = [position - first for position in free if position >= first]

        def by_equation(*arguments: Any) -> Any:
            *inputs, seed = map(stop_gradient, arguments)
            y = stop_gradient(Array(node.outs[0]))
            gradients = _Sweep(statement, inputs, moving).gradients(y, seed)
            by_position = dict(zip((0, positions["t0"], positions["y0"]), gradients[:3], strict=True))
            by_position |= {
                position + first: gradient for position, gradient in zip(moving, gradients[3], strict=True)
            }
            return tuple([np.reshape(by_position[position], np.shape(values[position])) for position in free])

        rule = _ByFunction(f"the adjoint of {statement.caller}", operands, by_steps)
        pulled = attached(operands.run(by_equation, {}), operands, (), rule)
        by_position = dict(zip(free, pulled, strict=True))
        return [
            unwrap(by_position[position]) if position in by_position else None
            for position in range(len(values))
        ]


class _Window(NamedTuple):
    """The last steps of a run.

    Attributes
    ----------
    state : tuple
        The state of the method after the last step.
    kept : tuple of array
        Of each step, in a ring, what is needed for values in it.
    count : int
        How many steps there were.
    """

    state: Any
    kept: Any
    count: Any


class _Restarts(NamedTuple):
    """From where runs begin: times, states (RESTARTS, n), sizes of the next steps, how many there are, and the windows between them."""

    t: Any
    y: Any
    size: Any
    count: Any
    stride: Any


class _Sweep:
    """The backward integration of the adjoint, with numbers.

    Parameters
    ----------
    statement : Statement
    values : sequence of array
        The times, the fields of the problem, and the parameters.
    moving : sequence of int
        The parameters in which the derivative is wanted.
    """

    def __init__(self, statement: Statement, values: Sequence[Any], moving: Sequence[int]) -> None:
        self._statement, self._moving = statement, moving
        self._times = values[0]
        self._problem = statement.problem(values)
        self._parameters = statement.parameters(values)

    def gradients(self, y: Any, upstream: Any) -> tuple[Any, Any, Any, Sequence[Any]]:
        """Return the derivatives in the times, in t0, in y0, and in parameters.

        Parameters
        ----------
        y, upstream : array of shape (m, n)
            The solution at the times, and its cotangent.
        """
        problem, times = self._problem, self._times
        is_known = np.all(np.isfinite(y), axis=1)
        # A state that is not a number has no adjoint: it shows, where somebody asks for it.
        unknown = np.where(np.any((upstream != 0) & ~is_known[:, None]), np.nan, 0.0)
        upstream = np.where(is_known[:, None], upstream, 0.0)
        states = np.where(is_known[:, None], y, problem.y0)
        slopes = vmap(problem.fun)(np.where(is_known, times, problem.t0), states)
        by_times = np.sum(upstream * slopes, axis=1)
        self._atol = ADJOINT_ATOL * np.min(problem.rtol) * np.max(np.abs(upstream))
        lefts = np.concatenate([np.reshape(problem.t0, 1), np.where(is_known, times, problem.t0)[:-1]])
        left_states = np.concatenate([problem.y0[None], states[:-1]])
        sums = tuple(np.zeros(np.shape(self._parameters[position])) for position in self._moving)

        def between(carry: Any, item: Any) -> tuple[Any, Any]:
            (a, *sums), (left, right, state, cotangent, is_known) = carry, item
            right = np.where(is_known, right, left)
            return self._between(left, right, state, a + cotangent, tuple(sums)), None

        start: Any = (0.0 * problem.y0, *sums)
        items = (lefts, times, left_states, upstream, is_known)
        (a, *sums), _ = scan(between, start, items, reverse=True)
        by_start = -np.sum(a * problem.fun(problem.t0, problem.y0))
        return by_times + unknown, by_start + unknown, a + unknown, [integral + unknown for integral in sums]

    def _between(self, left: Any, right: Any, y: Any, a: Any, sums: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the adjoint at the left end of an interval, and the integrals for parameters, from those at the right end."""
        direction = self._problem.direction
        begin = self._problem._replace(t0=left, t_bound=right, y0=y)
        size = first_step_size(begin, self._problem.fun(left, y), 4)
        unit = np.where(left == left, 1, 1)
        starts = _Restarts(
            np.zeros(RESTARTS) + left,
            np.zeros((RESTARTS, np.size(y))) + y,
            np.zeros(RESTARTS) + size,
            unit,
            unit,
        )

        def goes_on(end: Any, *carry: Any) -> Any:
            return direction * (end - left) > 0

        def window(end: Any, is_first: Any, a: Any, sums: Any, starts: Any) -> Any:
            steps, starts, method, problem = self._run(end, _Restarts(*starts), is_first)
            length = np.shape(steps.kept[0])[0]
            oldest = np.maximum(steps.count - length, 0) % length
            names = type(steps.state)._fields
            times = steps.kept[[name for name in names if name in method.dense].index("t_old")]
            first = np.where(steps.count > 0, times[oldest], left)
            a = np.where((steps.count > 0) & ~steps.state.has_failed, a, np.nan)
            dense = _Dense(method, problem, steps, direction)
            a, sums = self._adjoint(dense, end, first, a, sums)
            return first, is_first & False, a, sums, tuple(starts)

        carry = right, unit == 1, a, sums, tuple(starts)
        _, _, a, sums, _ = while_loop(goes_on, window, carry)
        return (a, *sums)

    def _run(self, end: Any, starts: _Restarts, is_first: Any) -> tuple[_Window, _Restarts, Any, Problem]:
        """Return the last steps before a time, from the nearest restart before it; the first run leaves restarts."""
        direction = self._problem.direction
        method: Any = self._statement.make()
        is_before = (np.arange(RESTARTS) < starts.count) & (direction * (end - starts.t) > 0)
        position = np.maximum(np.sum(is_before) - 1, 0)
        problem = self._problem._replace(
            t0=starts.t[position], t_bound=end, y0=starts.y[position], first_step=starts.size[position]
        )
        state = method.start(problem, problem.initial_rate())
        kind = type(state)
        fields = [name for name in kind._fields if name in method.dense]
        sample = [getattr(state, name) for name in fields]
        low, high = WINDOW_STEPS
        length = min(max(WINDOW_BYTES // (8 * sum(np.size(field) for field in sample)), low), high)
        kept = tuple([np.zeros((length, *np.shape(field))) for field in sample])

        def goes_on(state: Any, *carry: Any) -> Any:
            now = kind(*state)
            return (direction * (end - now.t) > 0) & ~now.has_failed

        def step(state: Any, kept: Any, count: Any, starts: Any) -> Any:
            old, new = kind(*state), method.attempt(problem, kind(*state))
            is_step = direction * (new.t - old.t) > 0
            position, rings = count % length, []
            for ring, name in zip(kept, fields, strict=True):
                ring[position] = np.where(is_step, getattr(new, name), ring[position])
                rings.append(ring)
            count = count + np.where(is_step, 1, 0)
            leaves = is_step & is_first & (count % (length * _Restarts(*starts).stride) == 0)
            starts = cond(leaves, lambda: tuple(_with_restart(_Restarts(*starts), new)), lambda: starts)
            return tuple(new), tuple(rings), count, starts

        zero = starts.count - starts.count
        carry: Any = tuple(state), kept, zero, tuple(starts)
        last, kept, count, starts = while_loop(goes_on, step, carry)
        return _Window(kind(*last), kept, count), _Restarts(*starts), method, problem

    def _adjoint(
        self, dense: _Dense, begin: Any, end: Any, a: Any, sums: tuple[Any, ...]
    ) -> tuple[Any, tuple[Any, ...]]:
        """Return the adjoint at the end of an interval that it goes through backward, and the integrals with what it adds."""
        statement, parameters, moving = self._statement, self._parameters, self._moving

        def fun(t: Any, a: Any) -> Any:
            _, pullback = vjp(lambda y: statement.fun(t, y, *parameters), dense(t))
            return -pullback(a)[0]

        def by_parameters(t: Any, a: Any) -> Any:
            y = dense(t)

            def of_moving(*arguments: Any) -> Any:
                every = list(parameters)
                for position, argument in zip(moving, arguments, strict=True):
                    every[position] = argument
                return statement.fun(t, y, *every)

            _, pullback = vjp(of_moving, *[parameters[position] for position in moving])
            return tuple(pullback(a))

        forward_problem = self._problem
        sparsity = (
            None if forward_problem.jac_sparsity is None else np.transpose(forward_problem.jac_sparsity)
        )
        problem = Problem(
            fun, begin, end, a, forward_problem.rtol, self._atol, forward_problem.max_step, None, sparsity
        )
        method: Any = statement.make()
        start = method.start(problem, problem.initial_rate())
        kind = type(start)

        def goes_on(state: Any, sums: Any) -> Any:
            now = kind(*state)
            return (problem.direction * (end - now.t) > 0) & ~now.has_failed

        def step(state: Any, sums: Any) -> Any:
            old, new = kind(*state), method.attempt(problem, kind(*state))
            h = new.t - old.t

            def added(sums: Any, item: Any) -> tuple[Any, None]:
                node, weight = item
                t = old.t + h * node
                parts = by_parameters(t, method.interpolate(problem, new, t))
                return tuple(total - h * weight * part for total, part in zip(sums, parts, strict=True)), None

            if moving:
                nodes = (1 + NODES) / 2, WEIGHTS / 2
                sums = cond(h != 0, lambda: scan(added, sums, nodes)[0], lambda: sums)
            return tuple(new), sums

        last, sums = while_loop(goes_on, step, (tuple(start), sums))
        final = kind(*last)
        return np.where(final.has_failed, np.nan, final.y), sums


class _Dense:
    """The solution at times in a window.

    Parameters
    ----------
    method : Method
    problem : Problem
    window : _Window
    direction : scalar
    """

    def __init__(self, method: Any, problem: Problem, window: _Window, direction: Any) -> None:
        self._method, self._problem, self._window, self._direction = method, problem, window, direction
        self._fields = [name for name in type(window.state)._fields if name in method.dense]

    def __call__(self, t: Any) -> Any:
        rings, count = self._window.kept, self._window.count
        length = np.shape(rings[0])[0]
        starts = rings[self._fields.index("t_old")]
        # The steps are in the order of their times, but for where the ring begins.
        is_before = (np.arange(length) < count) & (self._direction * (t - starts) >= 0)
        first = np.maximum(count - length, 0)
        position = (first + np.maximum(np.sum(is_before) - 1, 0)) % length
        fields = {name: ring[position] for name, ring in zip(self._fields, rings, strict=True)}
        return self._method.interpolate(self._problem, self._window.state._replace(**fields), t)


def _with_restart(starts: _Restarts, state: Any) -> _Restarts:
    """Return restarts with the state after a step; every second one is dropped where there is no room."""
    is_full = starts.count == RESTARTS
    half = np.minimum(2 * np.arange(RESTARTS), RESTARTS - 1)
    order = np.where(is_full, half, np.arange(RESTARTS))
    position = np.where(is_full, RESTARTS // 2, starts.count)
    is_new = np.arange(RESTARTS) == position
    return _Restarts(
        np.where(is_new, state.t, starts.t[order]),
        np.where(is_new[:, None], state.y, starts.y[order]),
        np.where(is_new, state.size, starts.size[order]),
        position + 1,
        np.where(is_full, 2 * starts.stride, starts.stride),
    )
