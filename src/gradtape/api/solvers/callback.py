"""`callback`: what stays Python inside of a compiled function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gradtape.api.control.nested import NumericLeaves, handed_back
from gradtape.api.transforms.callables import check_callable
from gradtape.errors import ShapeError
from gradtape.ir.builder import here
from gradtape.ir.op import NDArray
from gradtape.kinds.routines.host import call_host, enter_function
from gradtape.trace.random.observation import own_calls
from gradtape.trace.source.sites import user_site
from gradtape.trees import flatten


def callback(function: Callable[..., Any], result_like: Any, *args: Any) -> Any:
    """Call a Python function with ndarrays, also inside of a compiled function, each time that it is called.

    Parameters
    ----------
    function : callable
        ``function(*args) -> results``. It gets ndarrays, and scalars for arrays of rank 0, and is not traced: it may use any library.
        What it returns must depend on its arguments alone.
    result_like : nest of array_like
        Arrays with the shapes and dtypes of the results: ``np.zeros(3)``. Their numbers do not count.
    *args : array_like, or nests of them
        Its arguments.

    Returns
    -------
    nest
        The results, in the containers of `result_like`.

    Raises
    ------
    ShapeError
        When it is called, if a result has another shape or structure than `result_like`.
    NotDifferentiableError
        If a derivative in one of the arguments is asked for. Pass ``gt.stop_gradient(x)`` where it is constant, or call it in the body of
        a function with a derivative of its own (`custom_vjp`, `custom_jvp`).

    See Also
    --------
    custom_root : What a solver returns, with its derivative.

    Notes
    -----
    A kernel takes Python's lock for the call, which costs 3 to 10 microseconds. Under `vmap` the function is called once for each
    element. A call whose result is not used may be left out.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> def rank(a):
    ...     return np.float64(np.linalg.matrix_rank(a))
    >>> @gt.jit
    ... def f(a):
    ...     return np.sum(a) * gt.callback(rank, 0.0, gt.stop_gradient(a))
    >>> float(f(np.eye(3)))
    9.0
    """
    here.site = user_site()
    check_callable(function, "callback")
    operands = NumericLeaves(args, "args")
    like = NumericLeaves(result_like, "result_like")
    types = [value.aval for value in like.values]
    name = getattr(function, "__name__", type(function).__name__)

    def call(*arrays: NDArray) -> tuple[NDArray, ...]:
        given = operands.rebuild([array if array.ndim else array[()] for array in arrays])
        with own_calls():  # while a trace computes an example
            leaves, spec = flatten(function(*given))
        found = [np.asarray(leaf) for leaf in leaves]
        if spec != like.spec or [array.shape for array in found] != [type_.shape for type_ in types]:
            raise ShapeError(
                f"callback: {name} returned arrays of shapes {[array.shape for array in found]}",
                why=f"result_like has the shapes {[type_.shape for type_ in types]}",
                remedy="give arrays with the shapes of its results, in the same containers, as result_like",
            )
        return tuple(found)

    outs = call_host(enter_function(call), types, operands.values)
    return like.rebuild(handed_back(outs, operands.recorded))
