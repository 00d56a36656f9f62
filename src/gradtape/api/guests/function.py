"""`torch`: NumPy code as a function of another framework's arrays."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from gradtape.api.transforms.callables import check_callable
from gradtape.habits import suggests_keywords


@suggests_keywords
def torch(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of PyTorch's tensors that is evaluated and differentiated by gradtape.

    Parameters
    ----------
    function : callable
        NumPy code.

    Returns
    -------
    callable
        Takes the arguments of `function` with tensors in place of arrays, in any containers; other objects are passed unchanged. It returns
        its results as tensors. ``backward``, `torch.autograd.grad` of any order, forward mode, and `torch.func` go through it.
        Tensors on the CPU are read without copies.

    Raises
    ------
    ImportError
        If PyTorch is not installed.
    ArgumentError, DtypeError
        At a call, for tensors that NumPy cannot read: on other devices, sparse, or of dtypes that NumPy does not have.

    Notes
    -----
    Integer tensors are constants. A result that is an integer array is a tensor without derivative. A backward pass computes
    the function again, together with its derivative in what requires one.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> def energy(x):
    ...     return np.sum(np.sin(x) ** 2)
    >>> import torch  # doctest: +SKIP
    >>> x = torch.ones(3, dtype=torch.float64, requires_grad=True)  # doctest: +SKIP
    >>> gt.torch(energy)(x).backward()  # doctest: +SKIP
    >>> x.grad  # doctest: +SKIP
    tensor([0.9093, 0.9093, 0.9093], dtype=torch.float64)
    """
    return _wrapped(function, "torch", "PyTorch", "torch_function")


@suggests_keywords
def jax(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of JAX's arrays that is evaluated and differentiated by gradtape.

    Parameters
    ----------
    function : callable
        NumPy code.

    Returns
    -------
    callable
        Takes the arguments of `function` with JAX's arrays in place of NumPy's, in any pytrees of JAX, and returns its results as JAX's
        arrays. `jax.jit`, `jax.vmap`, `jax.grad`, `jax.jvp`, `jax.hessian` and other transforms go through it, in any order.

    Raises
    ------
    ImportError
        If JAX is not installed.
    DtypeError
        At a call, for arrays of dtypes that NumPy does not have.

    Notes
    -----
    Arrays and floating-point numbers are operands; integers, texts and other objects are constants: each value has its own program.
    The function is traced for the shapes of the operands without their values. On the CPU it reads XLA's memory and writes the results to
    it; arrays on other devices are brought to the CPU and back.

    JAX has numbers of 32 bits only, unless ``jax.config.update("jax_enable_x64", True)`` was called: operands arrive with 32 bits, and
    results of 64 are rounded.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> def energy(x):
    ...     return np.sum(np.sin(x) ** 2)
    >>> import jax, jax.numpy as jnp  # doctest: +SKIP
    >>> jax.jit(jax.grad(gt.jax(energy)))(jnp.ones(3))  # doctest: +SKIP
    Array([0.9092974, 0.9092974, 0.9092974], dtype=float32)
    """
    return _wrapped(function, "jax", "JAX", "jax_primitive")


@suggests_keywords
def casadi(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of CasADi's matrices that is evaluated and differentiated by gradtape.

    Parameters
    ----------
    function : callable
        NumPy code.

    Returns
    -------
    callable
        Takes the arguments of `function` with CasADi's MX or DM in place of arrays, in any containers; other objects, and arrays of NumPy,
        are constants. It returns its results as matrices, in their containers. CasADi's functions, derivatives and solvers go through it.

    Raises
    ------
    ImportError
        If CasADi is not installed.
    ArgumentError
        At a call, for SX, and for results that are no real matrices.

    Notes
    -----
    A column is an array of one dimension, a matrix with one element is a number, and results become columns and matrices in the same way.
    All matrices are dense, and so are the derivatives: for large programs with sparse derivatives there is `nlp`.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> def energy(x):
    ...     return np.sum(np.sin(x) ** 2)
    >>> import casadi as ca  # doctest: +SKIP
    >>> x = ca.MX.sym("x", 3)  # doctest: +SKIP
    >>> slope = ca.Function("slope", [x], [ca.gradient(gt.casadi(energy)(x), x)])  # doctest: +SKIP
    >>> slope([1, 1, 1])  # doctest: +SKIP
    DM([0.909297, 0.909297, 0.909297])
    """
    return _wrapped(function, "casadi", "CasADi", "casadi_callback")


@suggests_keywords
def pytensor(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of PyTensor's variables that is evaluated and differentiated by gradtape.

    Parameters
    ----------
    function : callable
        NumPy code.

    Returns
    -------
    callable
        Takes the arguments of `function` with PyTensor's variables in place of arrays, in any containers, and returns its results as
        variables, in their containers. `pytensor.function`, `pytensor.grad`, ``Rop``, and the models of PyMC go through it.

    Raises
    ------
    ImportError
        If PyTensor is not installed.
    ArgumentError
        If the number of axes of the results cannot be determined, because the shapes of variables are unknown.

    Notes
    -----
    Variables, arrays and floating-point numbers are inputs; integers, texts and other objects are constants. The function is traced for
    the static shapes of its inputs, without values. Extents that PyTensor does not know are guessed, to find the number of axes of the
    results; `perform` takes them as they are.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> def energy(x):
    ...     return np.sum(np.sin(x) ** 2)
    >>> import pytensor, pytensor.tensor as pt  # doctest: +SKIP
    >>> x = pt.vector("x")  # doctest: +SKIP
    >>> pytensor.function([x], pytensor.grad(gt.pytensor(energy)(x), x))([1.0, 1.0, 1.0])  # doctest: +SKIP
    array([0.90929743, 0.90929743, 0.90929743])
    """
    return _wrapped(function, "pytensor", "PyTensor", "pytensor_op")


def _wrapped(function: Callable[..., Any], caller: str, package: str, module: str) -> Callable[..., Any]:
    """Return what the module for a framework makes of a function."""
    check_callable(function, caller)
    wrapped: Callable[..., Any] = imported(caller, caller, package, module).wrapped(function)
    return wrapped


def imported(caller: str, extra: str, name: str, module: str) -> Any:
    """Return the module of ours that imports a framework, which need not be installed.

    Parameters
    ----------
    caller : str
        What the user calls, for errors.
    extra : str
        The framework's module, which is also the name of the extra that installs it.
    name : str
        Its name.
    module : str
        The module of ours.
    """
    try:
        return importlib.import_module(f"gradtape.api.guests.{module}")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != extra:
            raise
        raise ImportError(
            f"gt.{caller} works with {name}, which is not installed: pip install 'gradtape[{extra}]'"
        ) from error
