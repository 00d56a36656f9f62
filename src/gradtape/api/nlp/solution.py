"""What `nlp` returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

LOG: Final = np.dtype(
    [
        ("iteration", int),
        ("objective", float),
        ("violation", float),
        ("slope", float),
        ("barrier", float),
        ("step", float),
    ]
)
"""A row of the log: the violation of the constraints, the largest slope of the Lagrangian, the barrier parameter (IPOPT) and the step."""


NO_DIRECTION: Final = (
    "no search direction could be computed: the objective may have no lower bound, a function may have a kink, "
    "or a derivative may grow without limit near this point"
)
DIVERGES: Final = "the iterates diverge: the objective may have no lower bound"
NOT_FINITE: Final = "a function or a derivative is NaN or infinite"

REMEDIES: Final = {
    "the constraints are infeasible near this point": "look for constraints that contradict each other or the bounds, "
    "among them the one that the message names; or start at another x0",
    "the steps have become too small": "scale unknowns and functions to numbers around 1, or pass a larger tol",
    DIVERGES: "pass bounds for the unknowns, or look at the sign of the objective",
    "stopped by the callback": "nothing if that was meant; a callback that returns True stops the solver",
    "out of iterations": "pass a larger max_iterations, or a start nearer to the solution",
    "out of time": "pass a larger time_limit, or a start nearer to the solution",
    "the restoration of feasibility has failed": "start nearer to points that meet the constraints, and scale these to numbers around 1",
    NO_DIRECTION: "pass bounds that keep unknowns away from there; replace np.abs(v) by a further unknown t with -t <= v <= t, and other "
    "maxima likewise (gt.debug.kinks finds them)",
    "there are fewer unknowns than equality constraints": "leave out equality constraints that follow from others; for a best fit to all, "
    "minimise the sum of their squares (gt.scipy.least_squares)",
    "an option is not valid": "see the names and values of options= at https://coin-or.github.io/Ipopt/OPTIONS.html",
    NOT_FINITE: "pass bounds that keep unknowns inside the domain of all functions and of "
    "their derivatives (a root has none at 0)",
    "out of memory": "pass fewer unknowns, or another linear_solver in options=",
}
"""What to do about a message of a solver."""

OTHER_REMEDY: Final = (
    "start nearer to a solution, check the constraint that the message names, or bound the unknowns"
)


@dataclass(frozen=True, eq=False)
class Solution:
    """A solution of a nonlinear program; made by `nlp`.

    Attributes
    ----------
    x : nest of array
        The unknowns.
    fun : float
        The objective there.
    success : bool
        Whether it is a solution; else `message` says why not.
    status : int
        The solver's number for that.
    message : str
        The same in words.
    duals : list of array
        For each constraint the multipliers, those of the Lagrangian ``fun + sum(duals @ constraints)``: positive ones push from an upper
        limit, negative ones from a lower one. The derivative of `fun` in a limit is the negative multiplier.
    bound_duals : tuple of two nests
        The multipliers of lower and of upper bounds; none is negative.
    violation : float
        By how much a constraint is violated at most.
    iterations, evaluations : int
        How many there were.
    seconds : float
        How long it took.
    solver : str
        "ipopt" or "trust-constr".
    log : structured array
        A row for each iteration, with the fields "iteration", "objective", "violation", "slope", "barrier" and "step".
    """

    x: Any
    fun: Any
    success: Any
    status: Any
    message: str
    duals: list[Any]
    bound_duals: tuple[Any, Any]
    violation: Any = 0.0
    iterations: Any = 0
    evaluations: int = 0
    seconds: float = 0.0
    solver: str = ""
    log: Any = field(default_factory=lambda: np.zeros(0, LOG))

    def __repr__(self) -> str:
        if not isinstance(self.success, bool | np.bool_):
            return "<gt.nlp solution, in a compiled function>"
        size = sum(int(np.size(each)) for each in self.duals)
        state = "solved" if self.success else "not solved"
        return (
            f"<solution of a nonlinear program, {state} by {self.solver}: {self.message}\n"
            f" fun: {float(self.fun):.10g}, violation: {float(self.violation):.2g}, multipliers: {size}\n"
            f" {int(self.iterations)} iterations, {self.evaluations} evaluations, {self.seconds:.2g} s>"
        )
