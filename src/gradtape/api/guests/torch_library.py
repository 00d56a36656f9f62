"""PyTorch's transforms, and its tensors as NumPy's arrays: functions of PyTorch as nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from gradtape.api.guests.foreign import ForeignCode, Library, NeedsNumbers, wrapped
from gradtape.errors import ArgumentError, DtypeError
from gradtape.ir.op import NDArray
from gradtape.ir.types import Aval, aval
from gradtape.trace.source.sites import user_site
from gradtape.trees import flatten, structure_key, unflatten


def wrapped_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of arrays for a function of PyTorch's tensors."""
    return wrapped(function, Torch())


class Torch(Library):
    """PyTorch on the CPU, by the transforms of `torch.func`."""

    caller = "gt.from_torch"
    results = "tensors"

    def jit(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return function

    def vjp(self, function: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[[Any], Any]]:
        # `torch.func` takes several times as long; only its transforms need it.
        is_inside = torch._C._are_functorch_transforms_active()
        results, pulled = (torch.func.vjp if is_inside else recorded_vjp)(function, *primals)

        def bilinear(cotangents: Any) -> Any:
            # PyTorch's cotangents are conjugates of ours.
            if not any(map(torch.is_complex, (*primals, *cotangents))):
                return pulled(cotangents)
            found = pulled(tuple([cotangent.conj() for cotangent in cotangents]))
            return tuple([part.conj() for part in found])

        return results, bilinear

    def jvp(
        self, function: Callable[..., Any], primals: tuple[Any, ...], tangents: tuple[Any, ...]
    ) -> tuple[Any, Any]:
        results, pushed = torch.func.jvp(function, primals, tangents)
        return results, pushed

    def vmap(self, function: Callable[..., Any], axes: tuple[int | None, ...]) -> Callable[..., Any]:
        mapped = torch.func.vmap(function, axes, randomness="different")

        def one_by_one(*operands: Any) -> Any:
            each = [function(*elements) for elements in zip(*operands, strict=True)]
            return tuple([torch.stack(column) for column in zip(*each, strict=True)])

        def of_all(*operands: Any) -> Any:
            try:
                return mapped(*operands)
            except RuntimeError:  # it asks for numbers, or has no rule
                return one_by_one(*operands)

        return of_all

    def is_inexact(self, leaf: Any) -> bool:
        return bool(leaf.is_floating_point() or leaf.is_complex())

    def flatten(self, tree: Any) -> tuple[list[Any], Any, Any]:
        leaves, structure = flatten(tree)
        return leaves, structure, structure_key(tree)

    def unflatten(self, structure: Any, leaves: Sequence[Any]) -> Any:
        return unflatten(structure, leaves)

    def is_operand(self, leaf: Any) -> bool:
        return isinstance(leaf, Tensor | np.ndarray | np.generic | float | complex)

    def is_result(self, leaf: Any) -> bool:
        return isinstance(leaf, Tensor)

    def running(self) -> AbstractContextManager[Any]:
        context: AbstractContextManager[Any] = torch.no_grad()  # parameters of modules are constants
        return context

    def given(self, array: NDArray, weak: bool) -> Any:
        if weak:
            return torch.tensor(array.item(), dtype=WEAK[array.dtype.kind])
        if not array.flags.writeable or any(step < 0 or step % array.itemsize for step in array.strides):
            array = array.copy()
        try:
            return torch.from_numpy(array)
        except TypeError:
            raise DtypeError(
                f"{self.caller}: an argument has the dtype {array.dtype}, which PyTorch does not have",
                where=user_site(),
                remedy="pass x.astype(float)",
            ) from None

    def taken(self, result: Any) -> NDArray:
        if not isinstance(result, Tensor):
            return np.asarray(result)
        array: NDArray = result.numpy(force=True)
        return array

    def is_conversion(self, error: Exception) -> bool:
        return isinstance(error, RuntimeError) and any(text in str(error) for text in CONVERSIONS)

    def is_mismatch(self, error: Exception) -> bool:
        return isinstance(error, RuntimeError) and any(text in str(error) for text in MISMATCHES)

    def types(self, flat: ForeignCode, operands: Sequence[Aval]) -> Sequence[Aval]:
        with FakeTensorMode(allow_non_fake_inputs=True) as mode:
            given = [
                mode.from_tensor(self.given(np.empty(type_.shape, type_.dtype), type_.weak))
                for type_ in operands
            ]
            try:
                results = flat(*given)
            except (RuntimeError, TypeError) as error:
                raise NeedsNumbers(str(error)) from error
        return self.types_of(flat, results)

    def types_of(self, flat: ForeignCode, results: Sequence[Any]) -> Sequence[Aval]:
        types = []
        for result in results:
            if result.layout is not torch.strided:
                raise ArgumentError(
                    f"{self.caller}: {flat.name} returned a tensor with the layout {str(result.layout)!r}",
                    where=user_site(),
                    why="NumPy's arrays are dense",
                    remedy="return x.to_dense()",
                )
            try:
                dtype = torch.empty(0, dtype=result.dtype).numpy().dtype
            except TypeError:
                raise DtypeError(
                    f"{self.caller}: {flat.name} returned a tensor of {result.dtype}, which NumPy does not have",
                    where=user_site(),
                    remedy="return x.to(torch.float32)",
                ) from None
            types.append(aval(tuple(result.shape), dtype))
        return types


def recorded_vjp(function: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[[Any], Any]]:
    """Do what `torch.func.vjp` does for a function that returns a tuple, by PyTorch's graph."""
    is_nested = torch.is_grad_enabled()
    with torch.enable_grad():
        # Views, so that other operands that are computed from the same tensor stay constants.
        inputs = [
            primal.view_as(primal) if primal.requires_grad else primal.detach().requires_grad_()
            for primal in primals
        ]
        results = function(*inputs)

    def pulled(cotangents: Any) -> Any:
        pairs = [(r, c) for r, c in zip(results, cotangents, strict=True) if r.requires_grad]
        if not pairs:
            return tuple(map(torch.zeros_like, primals))
        ends, seeds = zip(*pairs, strict=True)
        found = torch.autograd.grad(
            ends, inputs, seeds, create_graph=is_nested, retain_graph=True, allow_unused=True
        )
        return tuple([torch.zeros_like(p) if f is None else f for f, p in zip(found, primals, strict=True)])

    return results, pulled


CONVERSIONS = "call numpy() on Tensor", "Cannot access data pointer of Tensor"
"""What PyTorch says of tensors that are converted in reverse mode, and in forward mode or a batch."""

MISMATCHES = "Mismatch in shape: grad_output", "stack expects each tensor to be equal size"
"""What PyTorch says of a cotangent that has not the shape of its result, and of elements of several shapes."""

WEAK = {"f": torch.float64, "c": torch.complex128, "i": torch.int64}
"""Tensors of rank 0 do not widen others, as numbers of Python do not."""
