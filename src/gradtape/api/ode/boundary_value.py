"""`scipy.integrate.solve_bvp` with derivatives, by multiple shooting.

SciPy's mesh is data: how many nodes it has is not known in a compiled function. So the unknowns of the equations for the derivative are the
states at the nodes that the caller has given, and the parameters. The integration from each node to the next, by RK45, ends at its state,
and the boundary conditions hold.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from gradtape.api.ode.explicit import ExplicitMethod
from gradtape.api.ode.problem import Problem
from gradtape.api.ode.solution import EndsOnly, Unknown, solution_at
from gradtape.api.solvers.implicit import attach_derivative
from gradtape.api.solvers.leibniz import array_of, called
from gradtape.api.solvers.solution import INTEGERS, SolverCall, result_of, solver
from gradtape.api.tape.create import stop_gradient
from gradtape.api.transforms.vmap import vmap
from gradtape.errors import ShapeError
from gradtape.trace.array.handle import Handle
from gradtape.trace.routines.registry import refused
from gradtape.trace.source.sites import user_site

ACCURACY: Final = 0.01
"""The tolerance of the integrations between nodes, as a part of that of the solution."""


NODES: Final = Unknown("scipy.integrate.solve_bvp", "nodes", "call sol(x)")


class BoundaryValueCall:
    """A call of `solve_bvp` with traced arrays.

    Attributes
    ----------
    nodes : array of shape (m,)
    guess : array of shape (n, m)
    parameters : array of shape (k,)
        The first guess of the unknown parameters.
    """

    def __init__(self, call: SolverCall) -> None:
        self.call, arguments = call, call.given
        if arguments["S"] is not None:
            raise refused(
                "scipy.integrate.solve_bvp with S",
                "the equations are singular at the first node",
                "begin the interval a little later, with the series of the solution as boundary conditions",
            )
        self.nodes, self.guess = _floats(arguments["x"]), _floats(arguments["y"])
        self.parameters = np.zeros(0) if arguments["p"] is None else _floats(arguments["p"])
        m, n = np.size(self.nodes), np.shape(self.guess)[0] if np.ndim(self.guess) else 0
        if np.ndim(self.nodes) != 1 or np.shape(self.guess) != (n, m) or m < 2:
            raise ShapeError(
                f"scipy.integrate.solve_bvp: x has shape {np.shape(self.nodes)}, and y has shape {np.shape(self.guess)}",
                where=user_site(),
                remedy="pass x of shape (m,) with two nodes or more, and y of shape (n, m)",
            )
        if np.ndim(self.parameters) != 1:
            raise ShapeError(
                f"scipy.integrate.solve_bvp: p has shape {np.shape(self.parameters)}",
                where=user_site(),
                remedy="pass an array of one axis",
            )
        self.size, self.count = n, np.size(self.parameters)
        self.has_parameters = arguments["p"] is not None

    def fun(self, x: Any, y: Any, p: Any) -> Any:
        """Return the derivative, (n,), of a state."""
        arguments = (np.reshape(x, 1), np.reshape(y, (-1, 1)), *self._passed(p))
        return self._checked("fun", array_of(called(self.call.given["fun"], arguments)), self.size)

    def bc(self, first: Any, last: Any, p: Any) -> Any:
        """Return the residual of the boundary conditions, (n + k,)."""
        arguments = (first, last, *self._passed(p))
        return self._checked("bc", array_of(called(self.call.given["bc"], arguments)), self.size + self.count)

    def _passed(self, p: Any) -> tuple[Any, ...]:
        return (p,) if self.has_parameters else ()

    def _checked(self, name: str, returned: Any, size: int) -> Any:
        if np.size(returned) != size:
            raise ShapeError(
                f"scipy.integrate.solve_bvp: {name} returns an array of shape {np.shape(returned)}, where {size} numbers are expected",
                where=user_site(),
                remedy="fun returns an array like y; bc one number for each equation and each unknown parameter",
            )
        return np.reshape(returned, size) * 1.0

    def numbers(self) -> dict[str, Any]:
        """Return SciPy's solution at the nodes, as constants."""
        n, m, plain = self.size, np.size(self.nodes), self.call.plain
        room = np.zeros(1 + 2 * n + self.count)

        def slope(packed: Any) -> Any:
            return self.fun(packed[0], packed[1 : 1 + n], packed[1 + 2 * n :])

        def ends(packed: Any) -> Any:
            return self.bc(packed[1 : 1 + n], packed[1 + n : 1 + 2 * n], packed[1 + 2 * n :])

        def solve(functions: Any, x: Any, y: Any, p: Any) -> dict[str, Any]:
            slope, ends = functions
            none = np.zeros(n)

            def packed(x: Any, first: Any, last: Any, p: tuple[Any, ...]) -> Any:
                return np.concatenate([[x], first, last, *p])

            def fun(x: Any, y: Any, *p: Any) -> Any:
                columns = [slope(packed(x[k], y[:, k], none, p)) for k in range(len(x))]
                return np.stack([np.asarray(column, float) for column in columns], axis=1)

            def bc(first: Any, last: Any, *p: Any) -> Any:
                return np.asarray(ends(packed(0.0, first, last, p)), float)

            options = self.call.options("tol", "max_nodes", "verbose", "bc_tol")
            solution = plain(fun, bc, x, y, p if self.has_parameters else None, **options)
            unknowns = np.concatenate(
                [solution.sol(x).T.reshape(-1), [] if solution.p is None else solution.p]
            )
            fields = {"unknowns": unknowns, "success": solution.success, "status": solution.status}
            return fields | {"niter": solution.niter, "message": solution.message}

        like = {
            "unknowns": np.zeros(n * m + self.count),
            "success": INTEGERS["success"],
            "status": INTEGERS["status"],
            "niter": 0,
        }
        return self.call.on_host([slope, ends], room, solve, like, self.nodes, self.guess, self.parameters)

    def flow(self, start: Any, end: Any, states: Any, p: Any) -> Any:
        """Return the states (q, n) at the ends of integrations from some times with some states."""
        tolerance = np.maximum(ACCURACY * stop_gradient(self.call.given["tol"]), 1e-12)

        def one(start: Any, end: Any, state: Any) -> Any:
            problem = Problem(
                lambda x, y: self.fun(x, y, p), start, end, state, tolerance, tolerance, np.inf, None
            )
            states, _ = solution_at(problem, ExplicitMethod("RK45"), np.reshape(end, 1))
            return states[0]

        return vmap(one)(start, end, states)

    def split(self, unknowns: Any) -> tuple[Any, Any]:
        """Return the states at the nodes, (m, n), and the parameters."""
        count = self.size * np.size(self.nodes)
        return np.reshape(unknowns[:count], (-1, self.size)), unknowns[count:]

    def residual(self, unknowns: Any) -> Any:
        """Return the residual, which is zero at the solution."""
        states, p = self.split(unknowns)
        ends = self.flow(self.nodes[:-1], self.nodes[1:], states[:-1], p)
        return np.concatenate([np.reshape(states[1:] - ends, -1), self.bc(states[0], states[-1], p)])

    def solution(self, states: Any, p: Any) -> Callable[[Any], Any]:
        """Return the solution as a function of the position."""
        nodes, last = self.nodes, np.size(self.nodes) - 1

        def sol(x: Any) -> Any:
            """Return the solution at positions in any order, of shape (n,) or (n, q)."""
            positions = np.reshape(_floats(x), -1)
            before = np.searchsorted(stop_gradient(nodes), stop_gradient(positions), side="right") - 1
            before = np.clip(before, 0, last)
            states_there = self.flow(np.take(nodes, before), positions, np.take(states, before, axis=0), p).T
            return states_there if np.ndim(x) else states_there[:, 0]

        return sol


def _floats(numbers: Any) -> Any:
    if isinstance(numbers, list | tuple) and any(isinstance(number, Handle) for number in numbers):
        return np.stack([_floats(number) for number in numbers])
    traced: Any = numbers
    return traced * 1.0 if isinstance(numbers, Handle) else np.asarray(numbers, float)


@solver("scipy.integrate.solve_bvp")
def solve_bvp(call: SolverCall) -> Any:
    """Follow `scipy.integrate.solve_bvp`."""
    problem = BoundaryValueCall(call)
    fields = problem.numbers()
    unknowns = attach_derivative(problem.residual, fields.pop("unknowns"))
    states, p = problem.split(unknowns)
    mesh, values = problem.nodes, states.T
    return result_of(
        fields,
        sol=problem.solution(states, p),
        p=p if problem.has_parameters else None,
        x=EndsOnly(np.stack([mesh[0], mesh[-1]]), "x", NODES),
        y=EndsOnly(np.stack([values[:, 0], values[:, -1]], axis=1), "y", NODES),
    )
