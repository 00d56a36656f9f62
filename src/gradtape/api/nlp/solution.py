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
