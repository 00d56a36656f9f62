"""The functions of a nonlinear program and their sparse derivatives, compiled once, for all solvers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from gradtape.api.sparsity.transform import sparse_hessian, sparse_jacobian
from gradtape.api.transforms.gradient import grad
from gradtape.api.transforms.jit import jit
from gradtape.runtime.compile.background import solving


class Limits(NamedTuple):
    """Limits of the unknowns (`low`, `high`) and of the constraints (`lower`, `upper`), as vectors."""

    low: Any
    high: Any
    lower: Any
    upper: Any


class Found(NamedTuple):
    """A point with its multipliers, as numbers.

    Attributes
    ----------
    x : array
        The unknowns.
    duals : array
        The multipliers of the constraints, those of the Lagrangian ``objective + duals @ constraints``.
    low, high : array
        The multipliers of the bounds; none is negative.
    success : bool
        Whether it is a solution.
    status : int
        The solver's number for that.
    message : str
        The same in words.
    """

    x: Any
    duals: Any
    low: Any
    high: Any
    success: bool = False
    status: int = 0
    message: str = ""


class Compiled:
    """Compiled derivatives of ``joined(x, *parameters)``, a vector of the objective and the constraints.

    Parameters
    ----------
    joined : callable
        The function.
    """

    def __init__(self, joined: Callable[..., Any]) -> None:
        def lagrangian(x: Any, factor: Any, duals: Any, *parameters: Any) -> Any:
            values = joined(x, *parameters)
            return factor * values[0] + np.sum(duals * values[1:])

        self.joined = joined
        self.values = jit(joined)
        self.gradient = jit(grad(lambda x, *parameters: joined(x, *parameters)[0]))
        self.jacobian = sparse_jacobian(lambda x, *parameters: joined(x, *parameters)[1:])
        self.hessian = sparse_hessian(lagrangian)

    @solving
    def values_at(self, x: Any, *parameters: Any) -> Any:
        """Return the objective and the constraints as one vector."""
        return np.asarray(self.values(x, *parameters))


class Derivatives:
    """The functions of a program with parameters as numbers.

    Parameters
    ----------
    compiled : Compiled
        The functions.
    parameters : sequence
        Their arguments after the unknowns.
    x : array
        A point, for the patterns.
    count : int
        The number of constraints.

    Attributes
    ----------
    calls : int
        How often the functions were evaluated.
    """

    def __init__(self, compiled: Compiled, parameters: Any, x: Any, count: int) -> None:
        self._compiled, self._parameters = compiled, tuple(parameters)
        self._count = count
        self.calls = 0
        self._at: Any = None
        self._values: Any = None
        self._size = x.size
        self._patterns: Any = None
        self._lower: Any = None
        self._start = x

    def values(self, x: Any) -> tuple[float, Any]:
        """Return the objective and the constraints."""
        if self._at is None or not np.array_equal(self._at, x):
            self.calls += 1
            self._values = self._compiled.values_at(np.array(x), *self._parameters)
            self._at = np.array(x)
        return float(self._values[0]), self._values[1:]

    def plain(self, x: Any) -> Any:
        """Return the objective and the constraints by the user's code, for a search of what is not finite."""
        return self._compiled.joined(x, *self._parameters)

    @solving
    def gradient(self, x: Any) -> Any:
        """Return the gradient of the objective."""
        return np.asarray(self._compiled.gradient(np.array(x), *self._parameters))

    @solving
    def patterns(self) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
        """Return rows and columns of the Jacobian, and of the lower half of the Hessian."""
        if self._patterns is None:
            none = np.zeros(0, np.int32)
            where: list[Any] = [(none, none), (none, none)]
            if self._count:
                where[0] = _places(self._compiled.jacobian.plan(self._start, *self._parameters))
            duals = np.zeros(self._count)
            rows, columns = _places(self._compiled.hessian.plan(self._start, 1.0, duals, *self._parameters))
            self._lower = np.flatnonzero(rows >= columns)
            where[1] = (rows[self._lower], columns[self._lower])
            self._patterns = tuple(where)
        patterns: tuple[tuple[Any, Any], tuple[Any, Any]] = self._patterns
        return patterns

    @solving
    def jacobian(self, x: Any) -> Any:
        """Return the elements of the Jacobian of the constraints."""
        if not self._count:
            return np.zeros(0)
        return self._compiled.jacobian.elements(np.array(x), *self._parameters)

    @solving
    def jacobian_matrix(self, x: Any) -> Any:
        """Return the Jacobian of the constraints as a sparse matrix."""
        return self._compiled.jacobian(np.array(x), *self._parameters)

    @solving
    def hessian(self, x: Any, factor: float, duals: Any) -> Any:
        """Return the elements of the lower half of the Hessian of the Lagrangian."""
        more = float(factor), np.array(duals), *self._parameters
        return self._compiled.hessian.elements(np.array(x), *more)[self._lower]

    @solving
    def hessian_matrix(self, x: Any, factor: float, duals: Any) -> Any:
        """Return the Hessian of the Lagrangian as a sparse matrix."""
        return self._compiled.hessian(np.array(x), float(factor), np.array(duals), *self._parameters)


def _places(plan: Any) -> tuple[Any, Any]:
    return plan.rows().astype(np.int32), plan.indices.astype(np.int32)
