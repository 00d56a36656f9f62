"""Mass matrices: differential-algebraic equations ``M y' = f(t, y)`` of index 1, and their consistent initial values.

Where M is singular, the rows that combine to zero state algebraic equations ``Q f(t, y) = 0``, with the projector ``Q = 1 - M M^+`` on the
complement of its range. The index is 1 where ``M - Q f_y`` is regular: then these equations give the unknowns on which M does not act, and
the time derivative of these equations gives y'.

References
----------
E. Hairer, G. Wanner, Solving Ordinary Differential Equations II, 2nd ed., Springer 1996, sections VI.1 and VII.1.
L. F. Shampine, M. W. Reichelt, J. A. Kierzenka, Solving Index-1 DAEs in MATLAB and Simulink, SIAM Review 41, 1999.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from gradtape.api.control.loops import while_loop
from gradtape.api.ode.factors import SMALLEST_SPARSE, linear_systems
from gradtape.api.ode.newton import with_derivatives
from gradtape.api.ode.problem import MassMatrix, Problem, norm
from gradtape.api.solvers.closure import ClosedFunction
from gradtape.api.sparsity.transform import jacobian_pattern
from gradtape.api.tape.create import stop_gradient
from gradtape.api.transforms.gradient import jvp
from gradtape.api.transforms.vmap import vmap
from gradtape.errors import ArgumentError, DtypeError, GradtapeWarning, ShapeError, warn
from gradtape.ir.op import NDArray
from gradtape.ir.tags import TraceTag
from gradtape.kinds.arguments import known
from gradtape.kinds.operands import as_value
from gradtape.trace.array.array import Array
from gradtape.trace.array.handle import Handle
from gradtape.trace.source.sites import user_site

MOST_ITERATIONS: Final = 50
"""Newton iterations for consistent initial values."""

CONVERGED: Final = 1e-4
"""The last change, in allowed errors, after which Newton's quadratic convergence leaves nothing to be seen."""

SINGULAR: Final = 1e-13
"""The ratio of singular values below which the algebraic equations do not determine their unknowns."""

LARGEST_CHECKED: Final = 500
"""Algebraic unknowns up to which singular values are computed before the integration."""

HALVINGS: Final = 0.5 ** np.arange(12.0)

REMEDY: Final = (
    "the index of the equations is higher than 1, or an algebraic unknown is missing from them: replace a constraint by its derivative "
    "in time (for a pendulum the constraint on the acceleration, stabilised by Baumgarte's terms)"
)


def mass_matrix(mass: Any, n: int) -> MassMatrix | None:
    """Return a mass matrix as its elements; None for none.

    Parameters
    ----------
    given : array_like or sparse matrix, of shape (n, n)
    n : int
        The number of unknowns.

    Raises
    ------
    ShapeError, DtypeError, ArgumentError
        If it is another thing.
    """
    if mass is None:
        return None
    if callable(mass):
        raise ArgumentError(
            "gt.scipy.solve_ivp: mass_matrix is a function",
            where=user_site(),
            why="the matrix must not depend on time or state",
            remedy="state M(t, y) v = f(t, y) as algebraic equations for further unknowns v with y' = v; the matrix is then "
            "np.diag of ones for y and zeros for v",
        )
    if hasattr(mass, "toarray"):
        sparse: Any = mass.tocsr()
        if sparse is mass:
            sparse = sparse.copy()
        sparse.sum_duplicates()
        shape, elements = sparse.shape, _known(sparse.data)
        rows = np.repeat(np.arange(shape[0]), np.diff(np.asarray(sparse.indptr)))
        columns = np.asarray(sparse.indices)
    else:
        stacked: Any = np.stack([np.stack([*row]) for row in mass]) if _has_traced_rows(mass) else mass
        dense: Any = _known(stacked) if isinstance(stacked, Handle) else np.asarray(stacked)
        shape = np.shape(dense)
        (rows, columns), elements = np.indices((n, n)).reshape(2, -1), np.reshape(dense, -1)
    if shape != (n, n):
        raise ShapeError(
            f"gt.scipy.solve_ivp: mass_matrix has shape {shape}, and y0 has {n} elements",
            where=user_site(),
            remedy="it has a row for each equation, and a column for each unknown",
        )
    if np.result_type(elements).kind not in "biuf":
        raise DtypeError(
            f"gt.scipy.solve_ivp: mass_matrix has dtype {np.result_type(elements)}",
            where=user_site(),
            remedy="pass real numbers; for complex unknowns, the real and the imaginary parts are two unknowns each",
        )
    elements = elements * 1.0
    if not isinstance(elements, Handle) and not np.all(np.isfinite(elements)):
        raise ArgumentError(
            "gt.scipy.solve_ivp: mass_matrix has elements that are not finite",
            where=user_site(),
            remedy="an algebraic equation is a row of zeros",
        )
    if not isinstance(elements, Handle):
        used = elements != 0
        elements, rows, columns = elements[used], rows[used], columns[used]
    return MassMatrix(elements, rows, columns, n)


def _known(array: Any) -> Any:
    """Return the numbers of an array that is a constant of a trace, and watched by no tape; other arrays as they are."""
    if not isinstance(array, Handle) or any(type(tag) is TraceTag for tag in array.value.tags):
        return array
    numbers = known(array.value)
    return array if numbers is None else numbers


def _has_traced_rows(mass: Any) -> bool:
    return isinstance(mass, list | tuple) and any(
        isinstance(number, Handle)
        for row in mass
        for number in (row if isinstance(row, list | tuple) else [row])
    )


class Nature(NamedTuple):
    """The facts about a mass matrix that follow from its elements before the program runs.

    Attributes
    ----------
    algebraic : array of bool, of shape (n,), or None
        The equations whose rows are zero, if they are all the algebraic ones; None if rows have to be combined, or numbers are not known.
    free : array of bool, of shape (n,)
        The unknowns whose columns are zero.
    """

    algebraic: NDArray | None
    free: NDArray


def _nature(mass: MassMatrix) -> Nature:
    n = mass.n
    algebraic, free = np.ones(n, bool), np.ones(n, bool)
    if isinstance(mass.elements, Handle):
        return Nature(None, ~free)
    algebraic[mass.rows] = free[mass.columns] = False
    if np.array_equal(mass.rows, mass.columns):
        return Nature(algebraic, free)
    rows = mass.dense()[~algebraic]
    rows = rows / np.max(np.abs(rows), axis=1, keepdims=True)
    is_regular = not len(rows) or np.linalg.matrix_rank(rows) == len(rows)
    return Nature(algebraic if is_regular else None, free)


class AlgebraicEquations:
    """The algebraic equations of a problem with a mass matrix: consistent states, and their derivatives in time.

    Parameters
    ----------
    problem : Problem
        With a mass matrix.

    Raises
    ------
    ArgumentError
        If the equations cannot be of index 1, whatever the numbers are.
    """

    def __init__(self, problem: Problem) -> None:
        self._problem, mass = problem, problem.mass
        assert mass is not None
        n = mass.n
        like = [as_value(np.float64(0)), as_value(np.zeros(n))]
        closed = ClosedFunction(problem.fun, like, "the right-hand side of a differential equation")
        captured, count = tuple(map(Array, closed.captured)), len(closed.captured)
        nature = _nature(mass)
        sparsity = problem.jac_sparsity
        if nature.algebraic is not None and nature.algebraic.any():
            pattern = sparsity
            if pattern is None:
                pattern = jacobian_pattern(lambda y: closed.apply(0.0, y, *captured), np.zeros(n))
            _check_structure(pattern, nature.algebraic, nature.free)
            sparsity = pattern if n >= SMALLEST_SPARSE else None
        # Rows of very different sizes would hide from the pseudo-inverse which of them combine to zero.
        sizes = np.max(np.abs(np.concatenate([mass.elements, np.zeros(1)])[mass.slots()]), axis=1)
        scale = stop_gradient(np.where(sizes > 0, 1 / np.where(sizes > 0, sizes, 1.0), 1.0))
        elements = mass.elements * scale[mass.rows]
        if nature.algebraic is not None:
            share: Any = nature.algebraic * 1.0
        else:
            dense = mass._replace(elements=elements).dense()
            share = np.eye(n) - dense @ np.linalg.pinv(dense, rcond=1e-12)

        def fun(t: Any, y: Any, *parameters: Any) -> Any:
            return parameters[-2] * closed.apply(t, y, *parameters[:count])

        def projected(t: Any, y: Any, *parameters: Any) -> Any:
            value, share = fun(t, y, *parameters), parameters[-1]
            return share * value if np.ndim(share) == 1 else share @ value

        self._fun, self._projected = fun, projected
        known = sparsity if nature.algebraic is not None else None
        self._systems = linear_systems(projected, known, n, mass=mass)
        self._parameters = (
            *captured,
            self._systems.mass_elements(mass._replace(elements=elements)),
            scale,
            share,
        )
        self._mass = len(captured)
        self._solution = with_derivatives(self._residual, self._matrix, self._systems)

    def _residual(self, x: Any, y0: Any, t0: Any, *parameters: Any) -> Any:
        moved = self._systems.times(parameters[self._mass], y0 - x[0])
        return (moved + self._projected(t0, x[0], *parameters))[None]

    def _matrix(self, x: Any, y0: Any, t0: Any, *parameters: Any) -> Any:
        unit, slopes = np.ones((1, 1)), self._systems.jacobian(t0, x[0], *parameters)
        return self._systems.matrix(unit, unit, slopes[None], parameters[self._mass])

    def consistent(self) -> Any:
        """Return the consistent state in which ``M y`` is that of the initial state: NaN where Newton's method, damped, does not find it.

        The algebraic unknowns of the initial state are where it begins.
        """
        problem, systems = self._problem, self._systems
        t0, y0, *parameters = map(stop_gradient, (problem.t0, problem.y0, *self._parameters))
        t0 = t0 + 0.0 * y0[0]

        def iterate(count: Any, y: Any, is_done: Any, has_failed: Any) -> tuple[Any, ...]:
            matrix = self._matrix(y[None], y0, t0, *parameters)
            factors = systems.factors(matrix)

            def change(y: Any) -> Any:
                right = self._residual(y[None], y0, t0, *parameters)
                return systems.solve(matrix, factors, right)[0]

            full, scale = change(y), problem.scale(y)
            size = norm(full / scale)
            sizes = vmap(lambda part: norm(change(y + part * full) / scale))(HALVINGS)
            is_less = sizes <= (1 - HALVINGS / 4) * size
            part = np.take(HALVINGS, np.argmax(is_less))
            settles = size < CONVERGED
            fails = ~np.isfinite(size) | (~np.any(is_less) & ~settles)
            return count + 1, y + np.where(settles, 1.0, part) * full, settles, fails

        def goes_on(count: Any, y: Any, is_done: Any, has_failed: Any) -> Any:
            return ~is_done & ~has_failed & (count < MOST_ITERATIONS)

        no = np.isinf(0.0 * t0)
        _, y, is_done, _ = while_loop(goes_on, iterate, (0.0 * t0, y0 + 0.0, no, no))
        solution = self._solution(stop_gradient(y)[None], problem.y0, problem.t0 + 0.0, *self._parameters)[0]
        return np.where(is_done, solution, np.nan)

    def rate(self, t: Any, y: Any) -> Any:
        """Return y' in a consistent state: that of the equations, and of the time derivative of the algebraic ones."""
        parameters, t = self._parameters, t + 0.0
        value = self._fun(t, y, *parameters)
        algebraic, moving = jvp(lambda t: self._projected(t, y, *parameters), (t,), (np.ones_like(t),))
        system = self._matrix(y[None], y, t, *parameters)
        return self._systems.solve(system, self._systems.factors(system), (value - algebraic + moving)[None])[
            0
        ]


def _check_structure(pattern: Any, algebraic: NDArray, free: NDArray) -> None:
    """Raise ArgumentError if the algebraic equations cannot determine their unknowns, whatever the numbers are."""
    from scipy.sparse import csr_array  # late: it takes a while, and few problems are algebraic
    from scipy.sparse.csgraph import structural_rank

    rows, columns = np.flatnonzero(algebraic), np.flatnonzero(free)
    block = csr_array(pattern)[rows][:, columns]
    if len(rows) == len(columns) and structural_rank(block) < len(rows):
        raise index_error()


def index_error() -> ArgumentError:
    """Return the error for equations of higher index."""
    return ArgumentError(
        "gt.scipy.solve_ivp: the algebraic equations do not determine the algebraic unknowns (their Jacobian is singular)",
        where=user_site(),
        remedy=REMEDY,
    )


def is_singular(mass: MassMatrix, slopes: NDArray) -> bool:
    """Return whether a Jacobian, of numbers, leaves algebraic unknowns undetermined.

    Parameters
    ----------
    mass : MassMatrix
        With numbers.
    slopes : ndarray of shape (n, n)
        The Jacobian of the right-hand side.
    """
    nature = _nature(mass)
    if nature.algebraic is not None and nature.algebraic.sum() == nature.free.sum():
        block = slopes[nature.algebraic][:, nature.free]
    else:
        dense = mass.dense()
        sizes = np.max(np.abs(dense), axis=1, keepdims=True)
        scale = np.where(sizes > 0, 1 / np.where(sizes > 0, sizes, 1.0), 1.0)
        left, values, right = np.linalg.svd(dense * scale)
        rank = np.sum(values > 1e-12 * values[0])
        block = left[:, rank:].T @ (scale * slopes) @ right[rank:].T
    if not 0 < len(block) <= LARGEST_CHECKED:
        return False
    for axis in (1, 0):
        sizes = np.max(np.abs(block), axis=axis, keepdims=True)
        if not np.all(sizes > 0):
            return bool(np.all(np.isfinite(sizes)))
        block = block / sizes
    values = np.linalg.svd(block, compute_uv=False)
    return bool(values[-1] < SINGULAR * values[0])


def check_beginning(
    mass: MassMatrix | None, y0: NDArray, consistent: NDArray, slopes: Any, options: Any
) -> None:
    """Raise ArgumentError if there are no consistent initial values, and warn if those that were given are others.

    Parameters
    ----------
    mass : MassMatrix
        With numbers.
    given, found : ndarray of shape (n,)
        The initial values of the caller, and consistent ones.
    slopes : callable
        ``slopes(y)``: the Jacobian of the right-hand side.
    options : dict
        With the tolerances.
    """
    assert mass is not None
    has_found = bool(np.all(np.isfinite(consistent)))
    if mass.n <= LARGEST_CHECKED and is_singular(mass, slopes(consistent if has_found else y0)):
        raise index_error()
    if not has_found:
        raise ArgumentError(
            "gt.scipy.solve_ivp finds no consistent initial values near y0",
            where=user_site(),
            why="Newton's method for the algebraic equations does not converge, or they are NaN at y0",
            remedy="pass a y0 that is nearer to a solution of the algebraic equations",
        )
    change = np.abs(consistent - y0)
    position = int(np.argmax(change / (options["atol"] + options["rtol"] * np.abs(consistent))))
    if np.any(change > options["atol"] + options["rtol"] * np.abs(consistent)):
        warn(
            GradtapeWarning,
            f"gt.scipy.solve_ivp: y0 does not satisfy the algebraic equations: "
            f"y0[{position}] was changed from {y0[position]:.6g} to {consistent[position]:.6g}",
            where=user_site(),
            why="y0 gives M @ y, and the algebraic unknowns follow from the equations",
            remedy="pass the initial values that the result has in y[:, 0]",
        )
