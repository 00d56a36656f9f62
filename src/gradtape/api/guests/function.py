"""`torch`: NumPy code as a function of another framework's arrays."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from gradtape.api.transforms.callables import check_callable


def torch(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of PyTorch's tensors that is evaluated and differentiated by gradtape.

    Parameters
    ----------
    function : callable
        NumPy code.

    Returns
    -------
    callable
        Takes the arguments of `function` with tensors in place of arrays, in any containers; other objects stay what they are. It returns
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
    Arrays and floating-point numbers are operands; integers, texts and other objects are constants, each with programs of its own.
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


def _wrapped(function: Callable[..., Any], caller: str, package: str, module: str) -> Callable[..., Any]:
    """Return what the module for a framework makes of a function; it imports the framework, which need not be installed."""
    check_callable(function, caller)
    try:
        framework = importlib.import_module(f"gradtape.api.guests.{module}")
    except ModuleNotFoundError as error:
        if error.name != caller:
            raise
        raise ImportError(
            f"gt.{caller} works with {package}, which is not installed: pip install 'gradtape[{caller}]'"
        ) from error
    wrapped: Callable[..., Any] = framework.wrapped(function)
    return wrapped
