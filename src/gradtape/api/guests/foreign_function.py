"""`from_jax`, `from_torch`: functions of other libraries inside gradtape's programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradtape.api.guests.function import imported
from gradtape.api.transforms.callables import check_callable
from gradtape.api.transforms.pickling import Wrapper, pickled_as_call


@pickled_as_call
def from_jax(function: Callable[..., Any]) -> Wrapper[..., Any]:
    """Return a function of arrays, traced ones included, that JAX evaluates and differentiates.

    Parameters
    ----------
    function : callable
        A function of JAX's arrays that `jax.jit` could compile.

    Returns
    -------
    callable
        Takes the arguments of `function` with arrays in place of JAX's, in any pytrees of JAX, and returns its results in their
        containers. It is one operation of jitted functions and of tapes, with derivatives of every order in both modes, and maps
        under `vmap`.

    Raises
    ------
    ImportError
        If JAX is not installed.
    ArgumentError
        At a call, if `function` converts its arguments to NumPy's arrays, or returns something else than arrays.
    DtypeError
        At a call, for arguments of dtypes that JAX does not have, and for results of dtypes that NumPy does not have (keys of random
        numbers are such).

    Notes
    -----
    Arrays and floating-point numbers are operands; integers, texts and other objects are constants: each value has its own program.
    JAX computes with 64 bits inside, whatever the value of ``jax_enable_x64``, so that dtypes are NumPy's. Arrays that `function` captures
    are constants: pass arrays to be differentiated as arguments.

    The function is compiled once for each combination of shapes: make it once, outside loops. A kernel enters Python for each call.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> import jax.numpy as jnp  # doctest: +SKIP
    >>> softplus = gt.from_jax(lambda x: jnp.logaddexp(x, 0.0))  # doctest: +SKIP
    >>> gt.grad(lambda x: np.sum(softplus(x) ** 2))(np.zeros(2))  # doctest: +SKIP
    array([0.69314718, 0.69314718])
    """
    return _foreign(function, "from_jax", "jax", "JAX", "jax_library")


@pickled_as_call
def from_torch(function: Callable[..., Any]) -> Wrapper[..., Any]:
    """Return a function of arrays, traced ones included, that PyTorch evaluates and differentiates.

    Parameters
    ----------
    function : callable
        A function of PyTorch's tensors, or a module. It does not write to its arguments.

    Returns
    -------
    callable
        Takes the arguments of `function` with arrays in place of tensors, in any containers, and returns its results in their
        containers. It is one operation of jitted functions and of tapes, with derivatives of every order in both modes, and maps
        under `vmap`.

    Raises
    ------
    ImportError
        If PyTorch is not installed.
    ArgumentError
        At a call, if `function` returns something else than dense tensors, converts its arguments to NumPy's arrays where derivatives
        are wanted, or returns tensors of other shapes than before in a compiled function.
    DtypeError
        At a call, for arguments of dtypes that PyTorch does not have, and for results of dtypes that NumPy does not have.
    ConcretizationError
        At a call in the body of a loop, or of a mapped function, if the shapes of the results of `function` are not found without the
        numbers of its arguments.

    Notes
    -----
    Arrays and floating-point numbers are operands; integers, texts and other objects are constants.

    The parameters of a module are constants, and no ``.grad`` is computed. For derivatives with respect to them, pass them as an argument:
    ``gt.from_torch(lambda params, x: torch.func.functional_call(module, params, (x,)))``.

    Shapes of results are found with tensors that have no numbers; if the function asks for numbers, by a call. They must not depend on
    numbers: a compiled function has the shapes of its first call, and raises ArgumentError for others. Return
    ``torch.where(x > 0, x, 0)``, not ``x[x > 0]``.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> import torch  # doctest: +SKIP
    >>> softplus = gt.from_torch(torch.nn.functional.softplus)  # doctest: +SKIP
    >>> gt.grad(lambda x: np.sum(softplus(x) ** 2))(np.zeros(2))  # doctest: +SKIP
    array([0.69314718, 0.69314718])
    """
    return _foreign(function, "from_torch", "torch", "PyTorch", "torch_library")


def _foreign(
    function: Callable[..., Any], caller: str, package: str, name: str, module: str
) -> Wrapper[..., Any]:
    check_callable(function, caller)
    run: Any = imported(caller, package, name, module).wrapped_function(function)
    run.__name__ = getattr(function, "__name__", type(function).__name__)
    run.__doc__ = getattr(function, "__doc__", None)
    return Wrapper(run, run)
