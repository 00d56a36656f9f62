"""An operator as an `Op` of PyTensor: one class, for the function and for its derivatives of all orders."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import DisconnectedType
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.graph.replace import _vectorize_node
from pytensor.tensor.type import TensorType
from pytensor.tensor.variable import TensorConstant

from gradtape.api.export.specs import Spec
from gradtape.api.guests.constants import MOST_OPERATORS, key_of_all
from gradtape.api.guests.flat import Flat
from gradtape.api.guests.operator import Operator, OurTransforms, is_inexact
from gradtape.errors import ArgumentError, ShapeError
from gradtape.lru import LRU
from gradtape.trace.source.sites import user_site
from gradtape.trees import flatten, structure_key, unflatten

GUESSES = (2, 3)
"""Extents that are not known are taken for one of these, or for one that is known, to find the number of axes of the results."""


def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of PyTensor's variables for NumPy code."""
    operators: LRU[Any, tuple[Flat, Called]] = LRU(lambda: MOST_OPERATORS)
    transforms = OurTransforms("tensorflow")

    @functools.wraps(function)
    def of_variables(*args: Any, **kwargs: Any) -> Any:
        leaves, structure = flatten((args, kwargs))
        constants = {position: leaf for position, leaf in enumerate(leaves) if not is_operand(leaf)}
        key = structure_key((args, kwargs)), key_of_all(constants)
        flat_and_called = operators.get(key)
        if flat_and_called is None:
            flat = Flat(function, flatten, unflatten, structure, constants)
            name = getattr(function, "__name__", type(function).__name__)
            flat_and_called = operators[key] = flat, Called(Operator(flat, transforms), name)
        flat, called = flat_and_called
        operands = [pt.as_tensor_variable(leaf) for leaf in leaves if is_operand(leaf)]
        node = called.make_node(*operands)
        return flat.nested(node.outputs, called.traced(operands)[0])

    return of_variables


def is_operand(leaf: Any) -> bool:
    """Return whether an argument is an input of the node. Other objects are constants: what `range` takes, texts, options."""
    return isinstance(leaf, Variable | np.ndarray | np.generic | float | complex)


class Called(Op):  # type: ignore[misc, unused-ignore] # Any where PyTensor is not installed
    """An operator as an operation of PyTensor's graphs.

    Parameters
    ----------
    operator : Operator
        Takes and returns arrays.
    name : str
        What PyTensor prints.
    like : tuple of int, optional
        For each result, the input that has its type and shape. Without it, these are found by a trace.
    """

    __props__ = ("operator", "like")

    def __init__(self, operator: Operator, name: str, like: tuple[int, ...] | None = None) -> None:
        self.operator, self.name, self.like = operator, name, like

    def __str__(self) -> str:
        return self.name

    def make_node(self, *inputs: Any) -> Apply:
        variables = [pt.as_tensor_variable(variable) for variable in inputs]
        if self.like is not None:
            types = [variables[position].type for position in self.like]
        else:
            specs, results = self.traced(variables)
            is_known = [spec.shape for spec in specs] == [variable.type.shape for variable in variables]
            types = [
                TensorType(spec.dtype, spec.shape if is_known else (None,) * len(spec.shape))
                for spec in results
            ]
        return Apply(self, variables, [type_() for type_ in types])

    def traced(self, variables: Sequence[Any]) -> tuple[list[Spec], list[Spec]]:
        """Return types of operands with extents where none are known, and the types of the results for these."""
        shapes = [variable.type.shape for variable in variables]
        dtypes = [np.dtype(variable.type.dtype) for variable in variables]
        known_extents = sorted({extent for shape in shapes for extent in shape if extent is not None})
        first: Exception | None = None
        for guess in dict.fromkeys((*GUESSES, *known_extents)):
            specs = [
                Spec(tuple([guess if extent is None else extent for extent in shape]), dtype)
                for shape, dtype in zip(shapes, dtypes, strict=True)
            ]
            try:
                return specs, self.operator.types_of_results(specs)
            except (ShapeError, IndexError, ValueError) as error:  # of a guess, or of NumPy
                first = first or error
            if not any(None in shape for shape in shapes):
                break
        assert first is not None
        if not any(None in shape for shape in shapes):
            raise first
        raise ArgumentError(
            f"gt.pytensor: {self.name} could not be traced for shapes {', '.join(map(str, shapes))}",
            where=user_site(),
            why=f"the extents that are None are not known: {first}",
            remedy='pt.vector("x", shape=(3,)), or pt.specify_shape(x, (3,))',
        ) from first

    def perform(self, node: Apply, inputs: Sequence[Any], storage: Sequence[list[Any]]) -> None:
        results = self.operator.program(*inputs)
        for cell, result, output in zip(storage, results, node.outputs, strict=True):
            cell[0] = np.asarray(result, output.type.dtype)

    def infer_shape(self, graph: Any, node: Apply, shapes: Sequence[Any]) -> list[Any]:
        if self.like is not None:
            return [shapes[position] for position in self.like]
        if all(None not in output.type.shape for output in node.outputs):
            return [tuple(map(pt.constant, output.type.shape)) for output in node.outputs]
        extents = [extent for shape in shapes for extent in shape]
        inferred = iter(Shapes(self, tuple([variable.type for variable in node.inputs])).of(extents, node))
        return [tuple([next(inferred) for _ in output.type.shape]) for output in node.outputs]

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        return [[is_inexact(x.type) and is_inexact(y.type) for y in node.outputs] for x in node.inputs]

    def L_op(self, inputs: Sequence[Any], outputs: Sequence[Any], gradients: Sequence[Any]) -> list[Any]:
        upstream = [
            output.zeros_like()
            if isinstance(gradient.type, DisconnectedType)
            else gradient.astype(output.dtype)
            for output, gradient in zip(outputs, gradients, strict=True)
            if is_inexact(output.type)
        ]
        pulled: list[Any] = [DisconnectedType()()] * len(inputs)
        # Gradients in constants, for which nobody asks, are not computed with the others.
        for differentiated in (
            [k for k, x in enumerate(inputs) if is_inexact(x.type) and not isinstance(x, TensorConstant)],
            [k for k, x in enumerate(inputs) if is_inexact(x.type) and isinstance(x, TensorConstant)],
        ):
            if differentiated and upstream:
                pullback = self.operator.pullback(tuple(differentiated), len(inputs))
                called = Called(pullback, f"pullback of {self.name}", tuple(differentiated))
                for position, part in zip(
                    differentiated, called.make_node(*inputs, *upstream).outputs, strict=True
                ):
                    pulled[position] = part
        return pulled

    def R_op(self, inputs: Sequence[Any], eval_points: Sequence[Any]) -> list[Any]:
        moving = [
            k
            for k, (x, t) in enumerate(zip(inputs, eval_points, strict=True))
            if is_inexact(x.type) and t is not None
        ]
        outputs = self.make_node(*inputs).outputs
        if not moving or not any(is_inexact(output.type) for output in outputs):
            return [None] * len(outputs)
        pushforward = Called(
            self.operator.pushforward(tuple(moving), len(inputs)), f"pushforward of {self.name}"
        )
        directions = [pt.as_tensor_variable(eval_points[k]).astype(inputs[k].dtype) for k in moving]
        pushed = iter(pushforward.make_node(*inputs, *directions).outputs)
        return [next(pushed) if is_inexact(output.type) else None for output in outputs]


class Shapes(Op):  # type: ignore[misc, unused-ignore]
    """The shapes of an operation's results, from those of its operands."""

    __props__ = ("called", "types")

    def __init__(self, called: Called, types: tuple[TensorType, ...]) -> None:
        self.called, self.types = called, types

    def of(self, extents: Sequence[Any], node: Apply) -> list[Any]:
        """Return the extents of the results of a node, one after another."""
        count = sum(len(output.type.shape) for output in node.outputs)
        inputs = [pt.as_tensor_variable(extent).astype("int64") for extent in extents]
        outputs: list[Any] = Apply(self, inputs, [pt.lscalar() for _ in range(count)]).outputs
        return outputs

    def make_node(self, *inputs: Any) -> Apply:
        raise NotImplementedError

    def perform(self, node: Apply, inputs: Sequence[Any], storage: Sequence[list[Any]]) -> None:
        extents: Iterator[int] = map(int, inputs)
        specs = [
            Spec(tuple([next(extents) for _ in type_.shape]), np.dtype(type_.dtype)) for type_ in self.types
        ]
        result_extents = [
            extent for spec in self.called.operator.types_of_results(specs) for extent in spec.shape
        ]
        for cell, extent in zip(storage, result_extents, strict=True):
            cell[0] = np.asarray(extent, np.int64)


@_vectorize_node.register(Called)  # type: ignore[untyped-decorator, unused-ignore]
def mapped(op: Called, node: Apply, *batched: Any) -> Any:
    """Return the results for all elements along the axes that operands have in front."""
    inputs = list(batched)
    fronts = [x.type.ndim - core.type.ndim for x, core in zip(inputs, node.inputs, strict=True)]
    operator = op.operator
    for axis in range(1, max(fronts) + 1):  # from the innermost one
        has_it = [front >= axis for front in fronts]
        is_single = [
            flag and x.type.shape[front - axis] == 1
            for flag, x, front in zip(has_it, inputs, fronts, strict=True)
        ]
        if is_single != has_it:  # what is the same for all elements is not repeated
            inputs = [
                pt.squeeze(x, front - axis) if flag else x
                for x, flag, front in zip(inputs, is_single, fronts, strict=True)
            ]
            has_it = [flag and not single for flag, single in zip(has_it, is_single, strict=True)]
        operator = operator.mapped(tuple([0 if flag else None for flag in has_it]))
    return Called(operator, op.name).make_node(*inputs).outputs
