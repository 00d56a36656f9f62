"""Derivatives of sums over data in partitions, on one machine or on a cluster, by Dask.

Each partition is evaluated where it is, and results are added in a tree. The tree depends on the partitions alone: the bits of a result are
the same for any number of workers, and where work is done again because a worker was lost.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from gradtape.api.solvers.minimize import WITH_GRADIENT, WITH_HESSIAN, WITH_PRODUCTS
from gradtape.api.solvers.nested import Unknowns, vector_of
from gradtape.api.solvers.solution import product
from gradtape.api.sparsity.transform import sparse_jacobian as _sparse_jacobian
from gradtape.api.transforms.gradient import jvp, vjp
from gradtape.api.transforms.gradient import value_and_grad as _value_and_grad
from gradtape.api.transforms.jit import jit
from gradtape.errors import ArgumentError
from gradtape.progress import counting
from gradtape.trace.source.sites import user_site

try:
    from gradtape.api.clusters.partitions import partitions
    from gradtape.api.clusters.reduction import (
        Distributed,
        Reduce,
        in_tree,
        mean,
        reduced,
        total,
    )
except ImportError as error:
    raise ImportError(
        "gt.dask works with Dask, which is not installed: pip install 'gradtape[dask]'"
    ) from error

Function = Callable[..., Any]
Linear = Literal["sum", "mean"]


def value_and_grad(function: Function, *, reduce: Reduce = "sum") -> Distributed:
    """Return a function that computes a loss over partitioned data, and its gradient.

    Parameters
    ----------
    function : callable
        ``function(params, block, *args)``: NumPy code that returns the loss of one partition, a number. A block has the containers of the
        data, with NumPy arrays in them; a partition of a data frame arrives as a dict of its columns.
    reduce : {"sum", "mean"} or callable, default "sum"
        How the losses of the partitions are combined. "mean" weights each by its rows: `function` returns the mean over the rows of a
        block. A callable gets the array of all losses, in the order of the partitions, and is differentiated as well.

    Returns
    -------
    Distributed
        ``f(params, data, *args, **kwargs)`` returns ``(value, gradient)``; the gradient has the containers and shapes of `params`. `data`
        is a `dask.array`, a `dask.dataframe`, a tuple or dict of these, or a list of delayed partitions; arrays are divided along their
        first axis. ``f.delayed(params, data, *args, **kwargs)`` returns the result as a `dask.delayed.Delayed`.

    Raises
    ------
    ArgumentError
        If `reduce` is none of these, or the data is not in partitions.
    ShapeError
        If parts of the data are not divided alike.

    Notes
    -----
    Without a client of `dask.distributed`, the threads of this process work; compiled code lets other threads run. Each process traces
    and compiles a function once for each shape of a block.

    Examples
    --------
    >>> import dask.array as da, numpy as np, gradtape as gt
    >>> x = da.arange(6.0, chunks=2)
    >>> def misfit(slope, data):
    ...     x, y = data
    ...     return np.sum((slope * x - y) ** 2)
    >>> value, gradient = gt.dask.value_and_grad(misfit)(1.0, (x, 2 * x))
    >>> float(value), float(gradient)
    (55.0, -110.0)
    """
    return _gradient(function, reduce, "gt.dask.value_and_grad")


def grad(function: Function, *, reduce: Reduce = "sum") -> Distributed:
    """Return a function that computes the gradient of a loss over partitioned data.

    Parameters
    ----------
    function, reduce
        As for `value_and_grad`.

    Returns
    -------
    Distributed
        ``f(params, data, *args)`` returns the gradient.

    Raises
    ------
    ArgumentError, ShapeError
        As `value_and_grad` does.

    Examples
    --------
    >>> import dask.array as da, numpy as np, gradtape as gt
    >>> gt.dask.grad(lambda scale, x: np.sum(scale * x))(2.0, da.ones(10, chunks=4)).item()
    10.0
    """
    return _gradient(function, reduce, "gt.dask.grad").then(_gradient_of)


def hvp(function: Function, *, reduce: Linear = "sum") -> Distributed:
    """Return a function that computes the product of a vector and the Hessian of a loss over partitioned data.

    Parameters
    ----------
    function : callable
        As for `value_and_grad`.
    reduce : {"sum", "mean"}, default "sum"
        How the losses of the partitions are combined.

    Returns
    -------
    Distributed
        ``f(params, data, vector, *args)``, with a vector that has the containers and shapes of `params`, as the product does.

    Raises
    ------
    ArgumentError, ShapeError
        As `value_and_grad` does.

    Examples
    --------
    >>> import dask.array as da, numpy as np, gradtape as gt
    >>> product = gt.dask.hvp(lambda w, x: np.sum((x @ w) ** 4))
    >>> product(np.ones(2), da.ones((4, 2), chunks=2), np.array([1.0, 0.0]))
    array([192., 192.])
    """
    return _linear(function, _hessian_product, reduce, "gt.dask.hvp")


def gauss_newton_product(function: Function, *, reduce: Linear = "sum") -> Distributed:
    """Return a function that computes the product of a vector and the Gauss-Newton matrix of residuals over partitioned data.

    The matrix is the transposed Jacobian times the Jacobian, summed over partitions; neither is formed. It is the Hessian of half the sum
    of squares without the second derivatives of the residuals (Schraudolph 2002, "Fast curvature matrix-vector products").

    Parameters
    ----------
    function : callable
        ``function(params, block, *args)``: the residuals of one partition, an array or nested arrays.
    reduce : {"sum", "mean"}, default "sum"
        "mean" weights each partition by its rows.

    Returns
    -------
    Distributed
        ``f(params, data, vector, *args)``, as for `hvp`.

    Raises
    ------
    ArgumentError, ShapeError
        As `value_and_grad` does.

    Examples
    --------
    >>> import dask.array as da, numpy as np, gradtape as gt
    >>> product = gt.dask.gauss_newton_product(lambda w, x: x @ w)
    >>> product(np.zeros(2), da.ones((4, 2), chunks=2), np.array([1.0, 0.0]))
    array([4., 4.])
    """
    return _linear(function, _gauss_newton, reduce, "gt.dask.gauss_newton_product")


def sparse_jacobian(function: Function) -> Distributed:
    """Return a function that computes the sparse Jacobian of residuals over partitioned data.

    Parameters
    ----------
    function : callable
        ``function(params, block, *args)``: the residuals of one partition, an array; `params` is one array.

    Returns
    -------
    Distributed
        ``f(params, data, *args)`` returns a `scipy.sparse.csr_array`: the rows of all partitions, in their order.

    Raises
    ------
    ArgumentError, ShapeError
        As `value_and_grad` does.

    See Also
    --------
    gradtape.sparse_jacobian : Of a function in this process.

    Examples
    --------
    >>> import dask.array as da, numpy as np, gradtape as gt
    >>> jacobian = gt.dask.sparse_jacobian(lambda w, x: w[:2] ** 2 * x)
    >>> jacobian(np.array([1.0, 2.0, 3.0]), da.ones((2, 2), chunks=(1, 2))).toarray()
    array([[2., 0., 0.],
           [0., 4., 0.],
           [2., 0., 0.],
           [0., 4., 0.]])
    """
    return Distributed(function, "gt.dask.sparse_jacobian", _jacobian_rows, _stacked)


def minimize(
    fun: Function,
    x0: Any,
    data: Any,
    args: tuple[Any, ...] = (),
    *,
    method: str = "L-BFGS-B",
    reduce: Reduce = "sum",
    bounds: Any = None,
    tol: float | None = None,
    callback: Function | None = None,
    options: dict[str, Any] | None = None,
) -> Any:
    """Minimise a loss over partitioned data with `scipy.optimize.minimize`.

    The solver runs in this process; values, gradients and products with Hessians are computed where the partitions are.

    Parameters
    ----------
    fun : callable
        ``fun(x, block, *args)``: as for `value_and_grad`.
    x0 : nest of array_like
        The initial guess; a list of numbers is an array. `x` has its containers and shapes.
    data : dask.array, dask.dataframe, nest of these, or list of delayed partitions
        As for `value_and_grad`. It is read at each evaluation: ``data.persist()`` keeps it in memory.
    args : tuple
        Further arguments of `fun`.
    method : str, default "L-BFGS-B"
        A method of `scipy.optimize.minimize` that takes gradients. "Newton-CG", "trust-ncg", "trust-krylov" and "trust-constr" get
        products of the Hessian with vectors.
    reduce : {"sum", "mean"} or callable, default "sum"
        As for `value_and_grad`; a callable only with methods without products of the Hessian.
    bounds : pair, scipy.optimize.Bounds or list, optional
        As for `gradtape.scipy.minimize`.
    tol, callback, options
        As for `scipy.optimize.minimize`; ``callback(x)`` gets nested unknowns.

    Returns
    -------
    scipy.optimize.OptimizeResult
        With nested `x` and `jac`.

    Raises
    ------
    ArgumentError
        For a method that takes no gradient, or a whole Hessian.
    DtypeError
        If `x0` is not real.

    Examples
    --------
    >>> import dask.array as da, numpy as np, gradtape as gt
    >>> x = da.linspace(0.0, 1.0, 10, chunks=5)
    >>> def misfit(line, data):
    ...     x, y = data
    ...     return np.sum((line["slope"] * x + line["level"] - y) ** 2)
    >>> found = gt.dask.minimize(misfit, {"slope": 0.0, "level": 0.0}, (x, 2 * x + 1), method="Newton-CG")
    >>> print(f"{found.x['slope']:.4f} {found.x['level']:.4f}")
    2.0000 1.0000
    """
    caller = "gt.dask.minimize"
    known = method.lower() if isinstance(method, str) else method
    if known not in WITH_GRADIENT or known in WITH_HESSIAN:
        raise ArgumentError(
            f"{caller}: method is {method!r}",
            where=user_site(),
            why="it needs the matrix of second derivatives, and partitions give products with it"
            if known in WITH_HESSIAN
            else "",
            remedy='pass a method that takes gradients, such as "L-BFGS-B", "BFGS", "CG", "Newton-CG" or "trust-krylov"',
        )
    optimize: Any = importlib.import_module("scipy.optimize")
    both = _gradient(fun, reduce, caller)
    unknowns = Unknowns(x0, "gt.dask.minimize")
    ends = unknowns.bounds(bounds, "gt.dask.minimize")
    blocks = partitions(data, caller)
    evaluations = 0

    def value_and_slope(vector: Any) -> Any:
        nonlocal evaluations
        value, gradient = both.of_blocks(blocks, unknowns.nested(vector), *args)
        evaluations += 1
        return float(value), vector_of(gradient)

    more: dict[str, Any] = {}
    if known in WITH_PRODUCTS:
        products = _linear(fun, _hessian_product, reduce, caller)

        def multiplied(vector: Any, direction: Any) -> Any:
            nonlocal evaluations
            at, along = unknowns.nested(vector), unknowns.nested(np.asarray(direction, float))
            evaluations += 1
            return vector_of(products.of_blocks(blocks, at, along, *args))

        more["hessp"] = multiplied
    if callback is not None:
        report = callback
        more["callback"] = lambda vector, *state: report(unknowns.nested(vector))
    with counting("minimising", "evaluation", lambda: evaluations):
        found = optimize.minimize(
            value_and_slope,
            unknowns.vector,
            jac=True,
            method=method,
            bounds=ends,
            tol=tol,
            options=options,
            **more,
        )
    slope = (
        found.grad if known == "trust-constr" else found.jac
    )  # which are the Jacobians of constraints there
    found.x, found.jac = unknowns.nested(found.x), unknowns.nested(slope)
    return found


def _gradient(function: Function, reduce: Any, caller: str) -> Distributed:
    if reduce in ("sum", "mean"):
        return _linear(function, _value_and_grad, reduce, caller)
    if not callable(reduce):
        raise ArgumentError(
            f"{caller}: reduce is {reduce!r}",
            where=user_site(),
            remedy='pass "sum", "mean", or a function of the array of the losses of the partitions',
        )
    return Distributed(function, caller, _value_and_grad, reduced(reduce))


def _linear(function: Function, transform: Function, reduce: Any, caller: str) -> Distributed:
    if reduce not in ("sum", "mean"):
        raise ArgumentError(
            f"{caller}: reduce is {reduce!r}, and products with Hessians are sums over partitions",
            where=user_site(),
            remedy='pass "sum" or "mean"; a function of all losses has gradients only',
        )
    is_mean = reduce == "mean"
    return Distributed(function, caller, transform, mean if is_mean else total, weighted=is_mean)


def _gradient_of(pair: Any) -> Any:
    return pair[1]


def _hessian_product(function: Function) -> Function:
    def hvp(params: Any, block: Any, vector: Any, *args: Any, **kwargs: Any) -> Any:
        return product(functools.partial(function, **kwargs))(params, vector, block, *args)

    return jit(hvp)


def _gauss_newton(function: Function) -> Function:
    def gauss_newton_product(params: Any, block: Any, vector: Any, *args: Any, **kwargs: Any) -> Any:
        def residuals(params: Any) -> Any:
            return function(params, block, *args, **kwargs)

        _, pull_back = vjp(residuals, params)
        return pull_back(jvp(residuals, (params,), (vector,))[1])[0]

    return jit(gauss_newton_product)


def _jacobian_rows(function: Function) -> Function:
    return _sparse_jacobian(function)


def _stacked(call: Any, run: str, parts: list[Any]) -> Any:
    return in_tree(_rows, call, run, parts)


def _rows(*parts: Any) -> Any:
    sparse: Any = importlib.import_module("scipy.sparse")
    return sparse.vstack(parts, format="csr")
