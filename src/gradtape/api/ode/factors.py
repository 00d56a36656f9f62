"""The linear systems of implicit methods: Jacobians of right-hand sides, dense or in bands, and factors of matrices made of them.

The matrices are ``D x M - C x J``: k by k blocks, each a multiple of the mass matrix (or the identity) and of a Jacobian, one Jacobian for
each column of blocks. A sparse Jacobian is computed by few products; its unknowns are put in an order in which the elements are near to
the diagonal (Cuthill and McKee), those of all blocks side by side.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from gradtape.api.ode.problem import MassMatrix, Problem
from gradtape.api.solvers.closure import ClosedFunction
from gradtape.api.sparsity.plan import Plan, jacobian_plan
from gradtape.api.sparsity.transform import jacobian_pattern
from gradtape.api.transforms.functional import jacobian
from gradtape.errors import ShapeError
from gradtape.ir.op import NDArray
from gradtape.kinds.operands import as_value
from gradtape.ops.core.linalg.bands import band_lu, band_lu_solve
from gradtape.ops.core.matrices import lu, lu_solve
from gradtape.trace.array.array import Array
from gradtape.trace.array.handle import unwrap
from gradtape.trace.source.sites import user_site
from gradtape.transforms.sparsity.index_sets import from_matrix

SMALLEST_SPARSE: Final = 12
"""Unknowns from which on a pattern is looked for."""

BAND: Final = 0.3
"""Which part of a matrix its bands may be."""

RightHandSide = Callable[..., Any]


class LinearSystems(Protocol):
    """How a Jacobian is computed and stored, and systems with it are solved."""

    def jacobian(self, t: Any, y: Any, *parameters: Any) -> Any:
        """Return the elements of the Jacobian, in one array."""

    def mass_elements(self, mass: MassMatrix) -> Any:
        """Return the elements of the mass matrix as `matrix` and `times` take them."""

    def times(self, mass: Any, y: Any) -> Any:
        """Return ``M y`` for states along the last axis; y where `mass` is None."""

    def matrix(self, D: Any, C: Any, jacobians: Any, mass: Any = None) -> Any:
        """Return ``D x M - C x J``.

        Parameters
        ----------
        D, C : array of shape (k, k)
        jacobians : array of shape (k, ...)
            The elements of the Jacobian of each column of blocks.
        mass : array or None
            The elements of M; None for the identity.
        """

    def factors(self, matrix: Any) -> tuple[Any, Any]:
        """Return the factors of a matrix, and the pivots."""

    def solve(self, matrix: Any, factors: tuple[Any, Any], right: Any) -> Any:
        """Return the solution, (k, n), for the right-hand sides of k blocks."""


class DenseSystems:
    """Systems with dense matrices.

    Parameters
    ----------
    fun : callable
        ``fun(t, y, *parameters)``.
    """

    def __init__(self, fun: RightHandSide) -> None:
        self._fun = fun

    def jacobian(self, t: Any, y: Any, *parameters: Any) -> Any:
        return jacobian(lambda y: self._fun(t, y, *parameters))(y)

    def mass_elements(self, mass: MassMatrix) -> Any:
        return mass.dense()

    def times(self, mass: Any, y: Any) -> Any:
        return y if mass is None else y @ mass.T

    def matrix(self, D: Any, C: Any, jacobians: Any, mass: Any = None) -> Any:
        k, n = len(D), jacobians.shape[-1]
        blocks = D[:, :, None, None] * (np.eye(n) if mass is None else mass) - C[:, :, None, None] * jacobians
        return np.reshape(np.transpose(blocks, (0, 2, 1, 3)), (k * n, k * n))

    def factors(self, matrix: Any) -> tuple[Any, Any]:
        factors, pivots = lu.results(as_value(unwrap(matrix)))
        return Array(factors), Array(pivots)

    def solve(self, matrix: Any, factors: tuple[Any, Any], right: Any) -> Any:
        column = np.reshape(right, (-1, 1))
        operands = [as_value(unwrap(array)) for array in (matrix, *factors, column)]
        return np.reshape(Array(lu_solve(*operands, transposed=False)), right.shape)


class BandedSystems:
    """Systems with matrices in bands.

    Parameters
    ----------
    fun : callable
        ``fun(t, y, *parameters)``.
    plan : Plan
        How the Jacobian is computed by forward products.
    order : array of int, shape (n,)
        The unknowns in their new order.
    mass : MassMatrix or None
    """

    def __init__(
        self, fun: RightHandSide, plan: Plan, order: NDArray, mass: MassMatrix | None = None
    ) -> None:
        self._fun, self._plan, self._order = fun, plan, order
        self._rank = np.argsort(order)
        self._rows, self._columns = self._rank[plan.rows()], self._rank[plan.indices]
        diagonal = np.arange(len(order))
        self._mass_rows, self._mass_columns, self._slots = diagonal, diagonal, diagonal[:, None]
        if mass is not None:
            self._mass_rows, self._mass_columns = self._rank[mass.rows], self._rank[mass.columns]
            self._slots = mass.slots()
            self._factors_of_slots = np.append(mass.columns, 0)[self._slots]
        widths = [
            _bandwidths(self._rows, self._columns),
            _bandwidths(self._mass_rows, self._mass_columns),
        ]
        self.lower, self.upper = np.max(widths, axis=0).tolist()
        colours = np.arange(plan.products[0])
        self._seeds = (plan.column_colours == colours[:, None]).astype(float)

    def jacobian(self, t: Any, y: Any, *parameters: Any) -> Any:
        # The products with the seeds are the derivative in their weights, which are traced as the time is.
        moved = jacobian(lambda weights: self._fun(t, y + weights @ self._seeds, *parameters), mode="fwd")
        weights = np.zeros(len(self._seeds)) * t
        return np.reshape(moved(weights).T, -1)[self._plan.positions]

    def mass_elements(self, mass: MassMatrix) -> Any:
        return mass.elements

    def times(self, mass: Any, y: Any) -> Any:
        if mass is None:
            return y
        rows = np.concatenate([mass, np.zeros(1)])[self._slots]
        return np.sum(rows * y[..., self._factors_of_slots], axis=-1)

    def _widths(self, k: int) -> tuple[int, int]:
        """Return how many bands there are below and above the diagonal for k by k blocks."""
        return k * self.lower + k - 1, k * self.upper + k - 1

    def matrix(self, D: Any, C: Any, jacobians: Any, mass: Any = None) -> Any:
        k, n, count = len(D), len(self._order), self._plan.nnz
        lower, upper = self._widths(k)
        to, of = (block.reshape(-1, 1) for block in np.indices((k, k)))
        shape = lower + upper + 1, k * n

        def places(rows: NDArray, columns: NDArray) -> NDArray:
            """Return which element of the blocks stands at each place of the bands; the last one is zero."""
            i, j = k * rows + to, k * columns + of
            numbers = np.full(shape, i.size)
            numbers[upper + i - j, j] = np.arange(i.size).reshape(i.shape)
            return numbers

        zero = np.zeros(1)
        weights = np.reshape(np.reshape(D, (-1, 1)) * (np.ones(n) if mass is None else mass), -1)
        elements = np.reshape(np.reshape(C, (k, k, 1)) * np.reshape(jacobians, (1, k, count)), -1)
        first = np.concatenate([weights, zero])[places(self._mass_rows, self._mass_columns)]
        return first - np.concatenate([elements, zero])[places(self._rows, self._columns)]

    def factors(self, matrix: Any) -> tuple[Any, Any]:
        lower, upper = self._widths(matrix.shape[1] // len(self._order))
        factors, pivots = band_lu.results(as_value(unwrap(matrix)), lower=lower, upper=upper)
        return Array(factors), Array(pivots)

    def solve(self, matrix: Any, factors: tuple[Any, Any], right: Any) -> Any:
        lower, upper = self._widths(len(right))
        column = np.reshape(right[:, self._order].T, (-1, 1))
        operands = [as_value(unwrap(array)) for array in (matrix, *factors, column)]
        solution = band_lu_solve(*operands, columns=1, lower=lower, transposed=False, upper=upper)
        return np.reshape(Array(solution), right.shape[::-1]).T[:, self._rank]


class ComplexSystems:
    """Systems of complex unknowns: those of their real and imaginary parts, of which right-hand sides need not be analytic.

    Parameters
    ----------
    parts : LinearSystems
        Those of the parts.
    """

    def __init__(self, parts: LinearSystems) -> None:
        self._parts = parts
        self.matrix, self.factors, self.mass_elements, self.times = (
            parts.matrix,
            parts.factors,
            parts.mass_elements,
            parts.times,
        )

    def jacobian(self, t: Any, y: Any, *parameters: Any) -> Any:
        return self._parts.jacobian(t, _parts(y), *parameters)

    def solve(self, matrix: Any, factors: tuple[Any, Any], right: Any) -> Any:
        return _whole(self._parts.solve(matrix, factors, _parts(right)))


def _parts(y: Any) -> Any:
    """Return the real and the imaginary parts of numbers, side by side."""
    return np.concatenate([np.real(y), np.imag(y)], axis=-1)


def _whole(parts: Any) -> Any:
    n = parts.shape[-1] // 2
    return parts[..., :n] + 1j * parts[..., n:]


def _of_parts(fun: RightHandSide) -> RightHandSide:
    return lambda t, y, *parameters: _parts(fun(t, _whole(y), *parameters))


class Equations(NamedTuple):
    """The equations of a problem, with the arrays that they read as parameters.

    Attributes
    ----------
    apply, evaluate : callable
        ``apply(t, y, *parameters)``: the right-hand side, of which `ClosedFunction` tells the difference.
    parameters : tuple of array
        Those that the right-hand side reads, and the elements of the mass matrix, if there is one.
    systems : LinearSystems
        With the Jacobian of the right-hand side.
    has_mass : bool
    """

    apply: RightHandSide
    evaluate: RightHandSide
    parameters: tuple[Any, ...]
    systems: LinearSystems
    has_mass: bool

    def mass(self, parameters: tuple[Any, ...]) -> Any:
        """Return the elements of the mass matrix among parameters; None if there is none."""
        return parameters[-1] if self.has_mass else None

    def less_moved(self, value: Any, y: Any, parameters: tuple[Any, ...]) -> Any:
        """Return a value less ``M y``, where there is a mass matrix."""
        return value - self.systems.times(parameters[-1], y) if self.has_mass else value


def systems_of(problem: Problem) -> Equations:
    """Return the equations of a problem.

    A pattern of the Jacobian that is not given is found where there are enough unknowns.
    """
    like = [as_value(np.float64(0)), as_value(np.zeros(np.shape(problem.y0), np.result_type(problem.y0)))]
    closed = ClosedFunction(problem.fun, like, "the right-hand side of a differential equation")
    parameters = tuple(map(Array, closed.captured))
    read, mass = len(parameters), problem.mass
    fun: RightHandSide = closed.apply
    evaluate: RightHandSide = closed.evaluate
    if mass is not None:

        def fun(t: Any, y: Any, *parameters: Any) -> Any:
            return closed.apply(t, y, *parameters[:read])

        def evaluate(t: Any, y: Any, *parameters: Any) -> Any:
            return closed.evaluate(t, y, *parameters[:read])

    apply, pattern, count = fun, problem.jac_sparsity, 1
    if np.result_type(problem.y0).kind == "c":
        fun, count = _of_parts(fun), 2
    n = count * len(problem.y0)
    if pattern is None and n >= SMALLEST_SPARSE:
        pattern = jacobian_pattern(lambda y: fun(0.0, y, *parameters), np.zeros(n))
    systems = linear_systems(
        fun, pattern, n, count if problem.jac_sparsity is not None else 1, mass, problem.caller
    )
    if mass is not None:
        parameters = (*parameters, systems.mass_elements(mass))
    both: LinearSystems = ComplexSystems(systems) if count == 2 else systems
    return Equations(apply, evaluate, parameters, both, mass is not None)


def linear_systems(
    fun: RightHandSide,
    pattern: Any,
    n: int,
    parts: int = 1,
    mass: MassMatrix | None = None,
    caller: str = "gt.scipy.solve_ivp",
) -> LinearSystems:
    """Return how systems with the Jacobian of a right-hand side are solved.

    Parameters
    ----------
    fun : callable
        ``fun(t, y, *parameters)``.
    pattern : sparse matrix, array or None
        Where its Jacobian may be different from zero; None if that is not known.
    n : int
        The number of unknowns.
    parts : int
        How many of them are the parts of one unknown of the pattern.
    mass : MassMatrix or None
    caller : str
        The function that the user called, for errors.
    """
    if pattern is None:
        return DenseSystems(fun)
    from scipy.sparse import csr_array, kron  # late: it takes a while, and few problems are sparse
    from scipy.sparse.csgraph import (
        reverse_cuthill_mckee,
    )  # late: it takes a while, and few problems are sparse

    pattern_array = csr_array(pattern)
    if pattern_array.shape != (n // parts, n // parts):
        raise ShapeError(
            f"{caller}: jac_sparsity has shape {pattern_array.shape}, and there are {n // parts} unknowns",
            where=user_site(),
            remedy="it has a row for each equation, and a column for each unknown; omit it to have it detected",
        )
    pattern_array = kron(np.ones((parts, parts)), pattern_array, format="csr") if parts > 1 else pattern_array
    if n < SMALLEST_SPARSE:
        return DenseSystems(fun)
    is_nonzero = csr_array(
        (np.ones(pattern_array.nnz, bool), pattern_array.indices, pattern_array.indptr), pattern_array.shape
    )
    is_nonzero.sum_duplicates()
    plan = jacobian_plan(from_matrix(is_nonzero), "fwd")
    both = is_nonzero + is_nonzero.T
    if mass is not None:
        mass_pattern = csr_array((np.ones(len(mass.rows), bool), (mass.rows, mass.columns)), is_nonzero.shape)
        both = both + mass_pattern + mass_pattern.T
    orders = [np.arange(n), reverse_cuthill_mckee(both.tocsr(), symmetric_mode=True)]
    systems = [BandedSystems(fun, plan, np.asarray(order, np.intp), mass) for order in orders]
    best = min(systems, key=lambda system: system.lower + system.upper)
    return best if best.lower + best.upper + 1 <= BAND * n else DenseSystems(fun)


def _bandwidths(rows: NDArray, columns: NDArray) -> tuple[int, int]:
    distance = rows - columns
    return int(max(distance.max(initial=0), 0)), int(max(-distance.min(initial=0), 0))
