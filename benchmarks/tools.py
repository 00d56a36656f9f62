"""The tools: for each one how a work becomes two callables, and what to import first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
from works import LOOPS, SIZES, Work, wordings


@dataclass(frozen=True)
class Calls:
    """What a user of the tool would hold: functions of `arguments`, called in a plain Python loop."""

    value: Callable[..., Any]
    gradient: Callable[..., Any]
    arguments: tuple[Any, ...]
    read: Callable[[Any], list[np.ndarray]]
    finish: Callable[[Any], Any] = lambda result: result


@dataclass(frozen=True)
class Tool:
    """`modules` are imported first, and timed; `prepare` must not import anything heavy beyond them.

    A tool derived by hand is measured once for all wordings of a work.
    """

    name: str
    modules: tuple[str, ...]
    prepare: Callable[[Work], Calls]
    by_hand: bool = False
    works: tuple[str, ...] = tuple(SIZES)
    wordings: tuple[str, ...] = ("",)
    # Sizes that take this tool minutes or more.
    too_large: tuple[tuple[str, str], ...] = ()

    def wordings_of(self, name: str, size: str) -> tuple[str, ...]:
        """Those in which the tool does the work; the empty string is the only one there is, or none."""
        if name not in self.works or (name, size) in self.too_large:
            return ()
        if self.by_hand:
            return ("",)
        return tuple(wording for wording in wordings(name) if wording in self.wordings)


def read(result: Any) -> list[np.ndarray]:
    """All arrays of a result in order: the value and the gradients, or the Jacobian."""
    if isinstance(result, (tuple, list)):
        return [array for part in result for array in read(part)]
    return [np.asarray(result)]


def _bind(work: Work, **names: Any) -> Callable[..., Any]:
    """The function with the tool's own names in the module of its wording."""
    module = work.module()
    for name, bound in names.items():
        if name in vars(module):
            setattr(module, name, bound)
    return work.function()


def gradtape(work: Work) -> Calls:
    import gradtape as gt

    # A loop of gradtape's own is there for those works only that have a wording with it.
    loops = {name: getattr(gt, name) for name in (work.wording,) if name in ("scan", "while_loop")}
    function = _bind(work, **loops)
    derivatives = {"gradient": gt.value_and_grad, "jacobian": gt.jacobian, "hessian": gt.hessian}
    gradient = derivatives[work.derivative](function, argnums=work.argnums)
    return Calls(gt.jit(function), gradient, work.arguments, read)


def jax(work: Work) -> Calls:
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    function = _bind(work, np=jnp, erf=jax.scipy.special.erf, scan=jax.lax.scan)
    derivatives = {"gradient": jax.value_and_grad, "jacobian": jax.jacrev, "hessian": jax.hessian}
    gradient = jax.jit(derivatives[work.derivative](function, argnums=work.argnums))
    arguments = tuple(jnp.asarray(argument) for argument in work.arguments)
    return Calls(jax.jit(function), gradient, arguments, read, jax.block_until_ready)


def autograd(work: Work) -> Calls:
    import autograd
    import autograd.numpy
    from autograd.scipy.special import erf

    function = _bind(work, np=autograd.numpy, erf=erf)
    derivatives = {
        "gradient": autograd.value_and_grad,
        "jacobian": autograd.jacobian,
        "hessian": autograd.hessian,
    }
    gradient = derivatives[work.derivative](function, argnum=work.argnums)
    return Calls(function, gradient, work.arguments, read)


def torch(work: Work) -> Calls:
    import torch

    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    function = _bind(work, np=_numpy_names(torch), erf=torch.erf)
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

    return Calls(value, gradient, arguments, read)


def _numpy_names(torch: Any) -> SimpleNamespace:
    """The few names that PyTorch spells otherwise."""
    names = {
        name: getattr(torch, name) for name in ("exp", "log", "sqrt", "sum", "tanh", "zeros", "concatenate")
    }
    return SimpleNamespace(max=torch.amax, **names)


def numpy(work: Work) -> Calls:
    import byhand

    return Calls(work.function(), byhand.derivatives(work), work.arguments, read)


def numba(work: Work) -> Calls:
    import byhand_numba

    value, gradient = byhand_numba.COMPILED[work.name]
    arguments = (*work.arguments, *work.settings.values())
    return Calls(value, gradient, arguments, read)


def c(work: Work) -> Calls:
    import native

    bound = native.bind(work)
    return Calls(bound.value, bound.gradient, (), lambda value: read((value, bound.outputs)))


TOOLS = {
    tool.name: tool
    for tool in (
        Tool(
            "c",
            ("numpy",),
            c,
            by_hand=True,
            works=("rosen", "bs", "lse", "gmm", "ba", "pendulum", "lstm", "hmm", "newton"),
        ),
        Tool("numba", ("numpy", "numba"), numba, by_hand=True, works=("rosen", "bs", "lse", "pendulum")),
        Tool("numpy", ("numpy",), numpy, by_hand=True),
        Tool("gradtape", ("gradtape",), gradtape, wordings=("", *LOOPS)),
        # Its while_loop has no gradient, and it unrolls Python's loops: minutes and gigabytes.
        Tool("jax", ("jax", "jax.numpy"), jax, wordings=("", "scan")),
        Tool("torch", ("torch",), torch, works=("rosen", "bs", "lse", "gmm", "mlp")),
        Tool(
            "autograd",
            ("autograd", "autograd.numpy"),
            autograd,
            wordings=("", "loop"),
            too_large=(("pendulum", "10000"),),
        ),
    )
}
