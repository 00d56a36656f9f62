"""The tools: for each one how a work becomes two callables, and what to import first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
from works import Work

Read = Callable[[Any], tuple[float, list[np.ndarray]]]


@dataclass(frozen=True)
class Calls:
    """What a user of the tool would hold: functions of `arguments`, called in a plain Python loop."""

    value: Callable[..., Any]
    gradient: Callable[..., Any]
    arguments: tuple[Any, ...]
    read: Read
    finish: Callable[[Any], Any] = lambda result: result


@dataclass(frozen=True)
class Tool:
    """`modules` are imported first, and timed; `prepare` must not import anything heavy beyond them."""

    name: str
    modules: tuple[str, ...]
    prepare: Callable[[Work], Calls]
    by_hand: bool = False
    works: tuple[str, ...] = ("rosen", "bs", "lse", "gmm")


def _read(result: Any) -> tuple[float, list[np.ndarray]]:
    value, gradients = result
    parts = gradients if isinstance(gradients, (tuple, list)) else (gradients,)
    return float(value), [np.asarray(part) for part in parts]


def gradtape(work: Work) -> Calls:
    import gradtape as gt

    function = work.function()
    gradient = gt.value_and_grad(function, argnums=work.argnums)
    return Calls(gt.jit(function), gradient, work.arguments, _read)


def jax(work: Work) -> Calls:
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    wording: Any = work.wording()
    wording.np = jnp
    if work.name == "bs":
        wording.erf = jax.scipy.special.erf
    function = work.function()
    gradient = jax.jit(jax.value_and_grad(function, argnums=work.argnums))
    arguments = tuple(jnp.asarray(argument) for argument in work.arguments)
    return Calls(jax.jit(function), gradient, arguments, _read, jax.block_until_ready)


def autograd(work: Work) -> Calls:
    import autograd
    import autograd.numpy

    wording: Any = work.wording()
    wording.np = autograd.numpy
    if work.name == "bs":
        from autograd.scipy.special import erf

        wording.erf = erf
    function = work.function()
    return Calls(function, autograd.value_and_grad(function, argnum=work.argnums), work.arguments, _read)


def torch(work: Work) -> Calls:
    import torch

    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    wording: Any = work.wording()
    wording.np, wording.erf = _numpy_names(torch), torch.erf
    function = work.function()
    n = work.n_differentiated
    arguments = tuple(
        torch.tensor(argument, requires_grad=i < n) for i, argument in enumerate(work.arguments)
    )

    def value(*arguments: Any) -> Any:
        with torch.no_grad():
            return function(*arguments)

    def gradient(*arguments: Any) -> Any:
        result = function(*arguments)
        return result.detach(), torch.autograd.grad(result, arguments[:n])

    return Calls(value, gradient, arguments, _read)


def _numpy_names(torch: Any) -> SimpleNamespace:
    """The few names that PyTorch spells otherwise."""
    names = {name: getattr(torch, name) for name in ("exp", "log", "sqrt", "sum", "zeros", "concatenate")}
    return SimpleNamespace(max=torch.amax, **names)


def numpy(work: Work) -> Calls:
    import byhand

    return Calls(work.function(), byhand.value_and_gradient(work), work.arguments, _read)


def numba(work: Work) -> Calls:
    import byhand_numba

    value, gradient = byhand_numba.COMPILED[work.name]
    return Calls(value, gradient, work.arguments, _read)


def c(work: Work) -> Calls:
    import native

    bound = native.bind(work)
    return Calls(bound.value, bound.gradient, (), lambda value: (value, list(bound.outputs)))


TOOLS = {
    tool.name: tool
    for tool in (
        Tool("c", ("numpy",), c, by_hand=True),
        Tool("numba", ("numpy", "numba"), numba, by_hand=True, works=("rosen", "bs", "lse")),
        Tool("numpy", ("numpy",), numpy, by_hand=True),
        Tool("gradtape", ("gradtape",), gradtape),
        Tool("jax", ("jax", "jax.numpy"), jax),
        Tool("torch", ("torch",), torch),
        Tool("autograd", ("autograd", "autograd.numpy"), autograd),
    )
}
