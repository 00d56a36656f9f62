"""Implicit differentiation: the derivative of what a solver returns, by the equations that it solves.

The implicit function theorem gives the derivative of a root x of ``f(x, p) = 0`` as ``-f_x^-1 f_p``. It is the rule of a function of the
parameters whose value is the root. The root in the rule is that function again, so that the rule has derivatives of its own.

References
----------
M. Blondel et al., Efficient and modular implicit differentiation, NeurIPS 2022.
A. Griewank, A. Walther, Evaluating Derivatives, 2nd ed., SIAM 2008, chapter 15.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from gradtape.api.custom.callback import callback
from gradtape.api.custom.rules import custom_jvp
from gradtape.api.solvers.closure import ClosedFunction
from gradtape.api.sparsity.transform import sparse_jacobian
from gradtape.api.tape.create import stop_gradient
from gradtape.api.transforms.callables import check_callable
from gradtape.api.transforms.functional import jacobian
from gradtape.api.transforms.gradient import jvp
from gradtape.api.transforms.pickling import Wrapper, pickled_as_call
from gradtape.errors import ArgumentError, ConcretizationError, ShapeError
from gradtape.ir.body import bodies_of
from gradtape.ir.types import is_inexact
from gradtape.kinds.operands import as_value
from gradtape.ops.core.linalg.equations import regular
from gradtape.ops.numpy.linalg.solve import solved
from gradtape.trace.array.array import Array
from gradtape.trace.array.handle import unwrap
from gradtape.trace.patching.opaque import traced_parts
from gradtape.trace.source.sites import user_site
from gradtape.trees import flatten, tree_map, unflatten

ORDER: Final = 3
"""The highest derivative that is right where the equations cannot be traced apart from their parameters."""


def attach_derivative(
    residual: Callable[[Any], Any], root: Any, *, elementwise: bool = False, sparse: bool = False
) -> Any:
    """Return a root with the derivatives that its equations give it.

    Parameters
    ----------
    residual : callable
        ``residual(x)``: an array with as many elements as `x`, zero at the root. What it reads from outside are the parameters.
    root : array_like
        The root, as a constant.
    elementwise : bool
        Whether each equation has one unknown only: the element of `x` at its place.
    sparse : bool
        Whether the Jacobian is a sparse matrix.

    Returns
    -------
    Array
        The same numbers. The equations are evaluated for derivatives only.
    """
    root = stop_gradient(root if isinstance(root, Array) else np.asarray(root) * 1.0)
    try:
        closed = ClosedFunction(residual, as_value(unwrap(root)), "the equations of a solution")
    except ConcretizationError:
        return _chord(residual, root, elementwise, sparse)
    has_loops = any(bodies_of(node) for node in closed.body.nodes)
    captured = list(map(Array, closed.captured))
    traced = [position for position, value in enumerate(closed.captured) if value.tags]

    def equations(x: Any, *parameters: Any) -> Any:
        """Constants are no parameters: what a solver in the equations is called with has no derivative."""
        by_position = dict(zip(traced, parameters, strict=True))
        return closed.apply(x, *[by_position.get(position, array) for position, array in enumerate(captured)])

    @custom_jvp
    def solution(root: Any, *parameters: Any) -> Any:
        return root

    @solution.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        x, parameters = solution(*primals), list(primals[1:])
        free = [position for position, value in enumerate(parameters) if is_inexact(value.dtype)]

        def of_free(*free_values: Any) -> Any:
            moving = dict(zip(free, free_values, strict=True))
            return equations(x, *[moving.get(position, value) for position, value in enumerate(parameters)])

        at = tuple([parameters[position] for position in free])
        moved = tuple([tangents[position + 1] for position in free])
        if has_loops:
            change_of_root, change = of_free(*at), _product(of_free, at, moved)
        else:
            change_of_root, change = jvp(of_free, at, moved)
        change = change * np.where(
            np.isnan(change_of_root), np.nan, 1.0
        )  # what solves no equation has no derivative
        return x, -_solved(lambda x: equations(x, *primals[1:]), x, change, elementwise, sparse)

    return solution(root, *[captured[position] for position in traced])


def _product(function: Callable[..., Any], at: tuple[Any, ...], moved: tuple[Any, ...]) -> Any:
    """Return the change of a function in which there are loops, by the matrix of its derivative.

    A loop that pushes tangents computes numbers too: it is not linear, and cannot be transposed. To compute the matrix takes no longer than
    to compute that of the equations.
    """
    parts = jacobian(function, argnums=tuple(range(len(at))))(*at)
    terms = [
        np.tensordot(part, direction, direction.ndim) for part, direction in zip(parts, moved, strict=True)
    ]
    return sum(terms[1:], terms[0])


def _solved(residual: Callable[[Any], Any], x: Any, change: Any, elementwise: bool, sparse: bool) -> Any:
    """Return ``J^-1 change`` for the Jacobian J of the equations at `x`."""
    if elementwise:
        _, slopes = jvp(residual, (x,), (np.ones(x.shape),))
        return change / slopes
    if sparse:
        linalg: Any = importlib.import_module("scipy.sparse.linalg")
        return np.reshape(
            linalg.spsolve(sparse_jacobian(residual)(x).tocsc(), np.reshape(change, -1)), x.shape
        )
    matrix = np.reshape(jacobian(residual)(x), (x.size, x.size))
    steps = solved(regular(as_value(unwrap(matrix))), as_value(unwrap(np.reshape(change, (-1, 1)))))
    return np.reshape(Array(steps), x.shape)


def _chord(residual: Callable[[Any], Any], root: Any, elementwise: bool, sparse: bool) -> Any:
    """Return a root with derivatives up to `ORDER`, by steps of the chord method: the equations have branches on numbers.

    A step is ``x - J^-1 f(x, p)``, in which the Jacobian J at the root is a constant. It makes one more derivative right.
    """
    x = root
    for _ in range(ORDER):
        x = x - _solved(residual, root, residual(x), elementwise, sparse)
    return root + (x - stop_gradient(x))


@pickled_as_call
def custom_root(optimality: Callable[..., Any], solver: Callable[..., Any]) -> Wrapper[..., Any]:
    """Return a solver that is differentiated implicitly, through the equations that its root satisfies.

    Parameters
    ----------
    optimality : callable
        ``optimality(x, *args)``: NumPy code, zero at the root. It returns the containers and shapes of `x`. Derivatives with respect to
        captured arrays are supported too.
    solver : callable
        ``solver(init, *args) -> x``. It gets ndarrays and is not traced, so it may use any library.

    Returns
    -------
    callable
        ``solve(init, *args) -> x``, on tapes and in compiled functions. Its derivatives with respect to `args` follow from the implicit
        function theorem, in forward and reverse mode, up to the third order; the derivative with respect to `init` is zero. The
        Jacobian of `optimality` with respect to `x` must not be singular at the root.

    Raises
    ------
    ArgumentError
        If `solver` captures a traced array, whose concrete value it would need.
    ShapeError
        If what `optimality` returns does not have as many elements as `x`.

    See Also
    --------
    custom_fixed_point : For equations ``x = f(x, *args)``.
    callback : Without a derivative.

    Notes
    -----
    If the solver has not converged, derivatives are taken at the point that it returned.

    References
    ----------
    M. Blondel et al., Efficient and modular implicit differentiation, NeurIPS 2022.

    Examples
    --------
    >>> import gradtape as gt
    >>> from scipy.optimize import brentq
    >>> def cubic(x, p):
    ...     return x**3 + p * x - 1
    >>> solve = gt.custom_root(cubic, lambda init, p: brentq(cubic, 0, 2, args=(p,)))
    >>> print(f"{gt.grad(lambda p: solve(0.0, p))(2.0):.6f}")
    -0.173270
    """
    check_callable(optimality, "custom_root")
    check_callable(solver, "custom_root")

    def solve(init: Any, *args: Any) -> Any:
        if any(True for _ in traced_parts(solver)):
            raise ArgumentError(
                "custom_root: the solver reads a traced array from outside",
                where=user_site(),
                why="it is called with numbers",
                remedy="pass the array to solve(init, *args), which passes its numbers to the solver",
            )
        constants = tree_map(stop_gradient, (init, *args))
        solution = callback(solver, tree_map(_like, init), *constants)
        leaves, spec = flatten(solution)
        if len(leaves) == 1 and leaves[0] is solution:
            return attach_derivative(lambda x: optimality(x, *args), solution)
        shapes = [np.shape(leaf) for leaf in leaves]

        def residual(vector: Any) -> Any:
            parts, _ = flatten(optimality(_parted(vector, shapes, spec), *args))
            flat = np.concatenate([np.reshape(part, -1) for part in parts])
            if flat.size != vector.size:
                raise ShapeError(
                    f"custom_root: optimality returned {flat.size} numbers for {vector.size} unknowns",
                    where=user_site(),
                    remedy="return one equation for each unknown",
                )
            return flat

        vector = np.concatenate([np.reshape(leaf, -1) for leaf in leaves])
        return _parted(attach_derivative(residual, vector), shapes, spec)

    return Wrapper(solve, solve)


@pickled_as_call
def custom_fixed_point(function: Callable[..., Any], solver: Callable[..., Any]) -> Wrapper[..., Any]:
    """Return a solver that is differentiated implicitly, through the fixed-point equation ``x = function(x, *args)``.

    Parameters
    ----------
    function : callable
        ``function(x, *args)``: NumPy code, which returns the containers and shapes of `x`.
    solver : callable
        ``solver(init, *args) -> x``, as for `custom_root`.

    Returns
    -------
    callable
        ``solve(init, *args) -> x``; see `custom_root`.

    Raises
    ------
    ArgumentError, ShapeError
        As `custom_root`.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> def iterate(x, p):
    ...     for _ in range(100):
    ...         x = np.cos(p * x)
    ...     return x
    >>> solve = gt.custom_fixed_point(lambda x, p: np.cos(p * x), iterate)
    >>> print(f"{gt.grad(lambda p: solve(0.5, p))(1.0):.6f}")
    -0.297474
    """
    check_callable(function, "custom_fixed_point")

    def optimality(x: Any, *args: Any) -> Any:
        leaves, spec = flatten(x)
        images, _ = flatten(function(x, *args))
        return unflatten(spec, [image - leaf for image, leaf in zip(images, leaves, strict=True)])

    return custom_root(optimality, solver)


def _like(leaf: Any) -> Any:
    return np.zeros(np.shape(leaf), np.result_type(getattr(leaf, "dtype", type(leaf)), np.float32))


def _parted(vector: Any, shapes: list[tuple[int, ...]], spec: Any) -> Any:
    """Return the parts of a vector in their containers."""
    ends = np.cumsum([0, *[int(np.prod(shape, dtype=int)) for shape in shapes]])
    return unflatten(
        spec,
        [
            np.reshape(vector[first:last], shape)
            for first, last, shape in zip(ends, ends[1:], shapes, strict=False)
        ],
    )
