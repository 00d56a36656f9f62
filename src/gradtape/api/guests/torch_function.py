"""An operator as a `torch.autograd.Function`: one class, for the function and for its derivatives of all orders."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gradtape.api.guests.operator import Operator, Operators
from gradtape.errors import ArgumentError, DtypeError
from gradtape.trace.source.sites import user_site
from gradtape.trees import TreeSpec, flatten, unflatten


def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of tensors for NumPy code."""
    operators = Operators(function, "tensorflow")

    @functools.wraps(function)
    def of_tensors(*args: Any, **kwargs: Any) -> Any:
        operator, operands = operators.of(args, kwargs, Tensor)
        return Call(operator).applied(operands)

    return of_tensors


class Call:
    """One call of an operator; PyTorch hands it on beside the operands.

    Attributes
    ----------
    operator : Operator
        What is called.
    spec : TreeSpec or None
        The containers of the results, known when they are computed; None for one array without any.
    others : dict
        The results that are no arrays, by position.
    """

    __slots__ = ("operator", "others", "spec")

    spec: TreeSpec | None
    others: dict[int, Any]

    def __init__(self, operator: Operator) -> None:
        self.operator = operator

    def applied(self, operands: Sequence[Any]) -> Any:
        """Return the results, in their containers, as a part of PyTorch's graph."""
        # PyTorch's `apply` binds the arguments to the signature of `forward`, which takes longer than the call; only transforms need it.
        apply = Applied.apply if torch._C._are_functorch_transforms_active() else _APPLY
        results = apply(self, *operands)
        if self.spec is None:
            return results[0]
        results = list(results)
        for position, other in self.others.items():
            results.insert(position, other)
        return unflatten(self.spec, results)


class Applied(torch.autograd.Function):  # type: ignore[misc, unused-ignore] # Any where PyTorch is not installed
    """A call whose first argument is a `Call`."""

    @staticmethod
    def forward(call: Call, *operands: Any) -> tuple[Tensor, ...]:
        results = call.operator.program(*map(array_of, operands))
        if isinstance(results, np.ndarray | np.generic):
            call.spec, call.others = None, {}
            return (tensor_of(results),)
        leaves, call.spec = flatten(results)
        call.others = {
            position: leaf
            for position, leaf in enumerate(leaves)
            if not isinstance(leaf, np.ndarray | np.generic | float | complex)
        }
        return tuple([tensor_of(leaf) for position, leaf in enumerate(leaves) if position not in call.others])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.call, *operands = inputs
        ctx.positions = [position for position, operand in enumerate(operands) if isinstance(operand, Tensor)]
        tensors = [operands[position] for position in ctx.positions]
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)
        ctx.operands = [None if isinstance(operand, Tensor) else operand for operand in operands]
        ctx.inexact = [has_derivative(tensor) for tensor in output]
        ctx.mark_non_differentiable(*[tensor for tensor in output if not has_derivative(tensor)])

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        operands = saved(ctx)
        needed = ctx.needs_input_grad  # of tensors with derivatives only
        wanted = tuple([position for position in ctx.positions if needed[position + 1]])
        given = [c for c, inexact in zip(cotangents, ctx.inexact, strict=True) if inexact]
        pullback = ctx.call.operator.pullback(wanted, len(operands))
        if torch.is_grad_enabled() or torch._C._are_functorch_transforms_active():
            pulled = Call(pullback).applied([*operands, *given])
        else:  # nobody differentiates this: it is no part of a graph
            pulled = map(tensor_of, pullback.program(*map(array_of, operands), *map(array_of, given)))
        gradients = [None] * (len(operands) + 1)
        for position, gradient in zip(wanted, pulled, strict=True):
            gradients[position + 1] = gradient
        return tuple(gradients)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        operands = saved(ctx)
        moving = active(ctx, operands, [tangent is not None for tangent in tangents])
        pushforward = ctx.call.operator.pushforward(moving, len(operands))
        given = [tangents[position + 1] for position in moving]
        pushed = iter(Call(pushforward).applied([*operands, *given]))
        return tuple([next(pushed) if inexact else None for inexact in ctx.inexact])

    @staticmethod
    def vmap(info: Any, in_dims: Any, call: Call, *operands: Any) -> Any:
        mapped = Call(call.operator.mapped(tuple(in_dims[1:])))
        results = Applied.apply(mapped, *operands)
        call.spec, call.others = mapped.spec, mapped.others
        return results, (0,) * len(results)


_APPLY = super(torch.autograd.Function, Applied).apply


def saved(ctx: Any) -> list[Any]:
    """Return the operands of a call, with the tensors that PyTorch keeps for it."""
    operands = list(ctx.operands)
    for position, tensor in zip(ctx.positions, ctx.saved_tensors, strict=True):
        operands[position] = tensor
    return operands


def active(ctx: Any, operands: Sequence[Any], chosen: Sequence[bool]) -> tuple[int, ...]:
    """Return the positions of operands with derivatives among the arguments that are chosen: the `Call` is the first of these."""
    return tuple(
        [
            position
            for position in ctx.positions
            if chosen[position + 1] and has_derivative(operands[position])
        ]
    )


def has_derivative(tensor: Tensor) -> bool:
    return bool(tensor.is_floating_point() or tensor.is_complex())


def array_of(operand: Any) -> Any:
    """Return a tensor as an array that shares its memory, and another operand as it is."""
    if not isinstance(operand, Tensor):
        return operand
    try:
        return operand.numpy()
    except (RuntimeError, TypeError):
        pass
    if operand.device.type != "cpu":
        raise ArgumentError(
            f"gt.torch: a tensor is on the device {str(operand.device)!r}",
            where=user_site(),
            why="gradtape computes on the CPU",
            remedy="f(x.cpu()); gradients go back to the device through .cpu()",
        )
    if operand.layout is not torch.strided:
        raise ArgumentError(
            f"gt.torch: a tensor has the layout {str(operand.layout)!r}",
            where=user_site(),
            why="NumPy's arrays are dense",
            remedy="f(x.to_dense())",
        )
    try:
        return operand.detach().resolve_conj().resolve_neg().numpy()
    except TypeError:
        raise DtypeError(
            f"gt.torch: a tensor has the dtype {operand.dtype}, which NumPy does not have",
            where=user_site(),
            remedy="f(x.double()) or f(x.to(torch.float32)); gradients are converted back",
        ) from None


def tensor_of(result: Any) -> Tensor:
    """Return a result of a compiled function, which nobody else holds, as a tensor that shares its memory."""
    array = np.asarray(result)
    if not array.flags.writeable or min(array.strides, default=0) < 0:
        array = array.copy()
    return torch.from_numpy(array)
