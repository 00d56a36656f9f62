"""NumPy code as a `casadi.Callback`: one class, for the function and for its derivatives of all orders."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import casadi
import numpy as np

from gradtape.api.export.specs import Spec, examples
from gradtape.api.guests.constants import key_of_all
from gradtape.api.transforms.functional import jacfwd, jacrev
from gradtape.api.transforms.gradient import jvp, vjp
from gradtape.api.transforms.jit import jit
from gradtape.api.transforms.vmap import vmap
from gradtape.errors import ArgumentError
from gradtape.ir.op import NDArray
from gradtape.trace.source.sites import user_site
from gradtape.trees import flatten, structure_key, unflatten

ALIVE: list[casadi.Callback] = []
"""Graphs of CasADi call these objects and hold no reference to them."""


def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of CasADi's matrices for NumPy code."""
    made: dict[Any, Called] = {}

    @functools.wraps(function)
    def of_matrices(*args: Any, **kwargs: Any) -> Any:
        leaves, spec = flatten((args, kwargs))
        operands = {position: leaf for position, leaf in enumerate(leaves) if is_operand(leaf)}
        constants = {
            position: leaf.copy() if isinstance(leaf, np.ndarray) else leaf
            for position, leaf in enumerate(leaves)
            if position not in operands
        }
        shapes = [shape_of(operand) for operand in operands.values()]
        key = (
            structure_key((args, kwargs)),
            tuple(shapes),
            key_of_all(constants),
        )
        called = made.get(key)
        if called is None:

            def of_operands(*arrays: Any) -> Any:
                values = {**constants, **dict(zip(operands, arrays, strict=True))}
                args, kwargs = unflatten(spec, [values[position] for position in range(len(leaves))])
                return function(*args, **kwargs)

            called = made[key] = Called(getattr(function, "__name__", "f"), of_operands, shapes)
        results = called.call(list(operands.values()))
        return unflatten(called.nesting, results)

    return of_matrices


class Called(casadi.Callback):
    """A function of arrays with shapes that CasADi calls.

    Parameters
    ----------
    name : str
        What CasADi prints.
    function : callable
        Takes arrays, and returns a nest of arrays.
    shapes : sequence of tuple of int
        The shapes of the arrays, of at most two dimensions. Columns are arrays of one dimension, and one element is a number.
    """

    def __init__(self, name: str, function: Callable[..., Any], shapes: Sequence[tuple[int, ...]]) -> None:
        super().__init__()
        self.shapes = list(shapes)
        arrays, _ = examples([Spec(shape, np.dtype(float)) for shape in shapes])
        leaves, self.nesting = flatten(jit(function).lower(*arrays).out_specs)
        self.out_shapes = [np.shape(leaf) for leaf in leaves]
        for leaf in leaves:
            if np.dtype(getattr(leaf, "dtype", type(leaf))).kind not in "fiub" or len(np.shape(leaf)) > 2:
                raise ArgumentError(
                    f"gt.casadi: {name} returned {leaf!r}",
                    where=user_site(),
                    why="matrices of CasADi have two dimensions and real numbers",
                    remedy="return x.reshape(x.shape[0], -1), or x.real and x.imag",
                )
        self.function = lambda *arrays: flatten(function(*arrays))[0]
        self.program = jit(self.function)
        ALIVE.append(self)
        self.construct("".join(c for c in name if c.isalnum()) or "f", {})

    def get_n_in(self) -> int:
        return len(self.shapes)

    def get_n_out(self) -> int:
        return len(self.out_shapes)

    def get_sparsity_in(self, position: int) -> casadi.Sparsity:
        return casadi.Sparsity.dense(*matrix_shape(self.shapes[position]))

    def get_sparsity_out(self, position: int) -> casadi.Sparsity:
        return casadi.Sparsity.dense(*matrix_shape(self.out_shapes[position]))

    def has_eval_buffer(self) -> bool:
        return True

    def eval_buffer(self, operands: Sequence[memoryview | None], results: Sequence[memoryview | None]) -> int:
        arrays = [in_memory(m, shape).copy() for m, shape in zip(operands, self.shapes, strict=True)]
        for memory, shape, result in zip(results, self.out_shapes, self.program(*arrays), strict=True):
            in_memory(memory, shape)[...] = result
        return 0

    def has_jacobian(self) -> bool:
        return True

    def get_jacobian(self, name: str, inputs: Any, outputs: Any, options: Any) -> casadi.Function:
        count = len(self.shapes)
        few = sum(map(math.prod, self.out_shapes)) < sum(map(math.prod, self.shapes))
        derivative = (jacrev if few else jacfwd)(
            lambda *arrays: [as_float(r) for r in self.function(*arrays)], tuple(range(count))
        )

        def blocks(*arrays: Any) -> list[Any]:
            return [
                as_block(block, out, shape)
                for row, out in zip(derivative(*arrays[:count]), self.out_shapes, strict=True)
                for block, shape in zip(row, self.shapes, strict=True)
            ]

        return Called(name, blocks, [*self.shapes, *self.out_shapes])

    def has_forward(self, count: int) -> bool:
        return True

    def get_forward(self, count: int, name: str, inputs: Any, outputs: Any, options: Any) -> casadi.Function:
        first, last = len(self.shapes), len(self.shapes) + len(self.out_shapes)

        def push(*arrays: Any) -> list[Any]:
            def along(*tangents: Any) -> Any:
                return jvp(
                    lambda *arrays: [as_float(r) for r in self.function(*arrays)], arrays[:first], tangents
                )[1]

            directions = [apart(a, s, count) for a, s in zip(arrays[last:], self.shapes, strict=True)]
            found = vmap(along)(*directions)
            return [beside(f, s, count) for f, s in zip(found, self.out_shapes, strict=True)]

        return Called(name, push, [*self.shapes, *self.out_shapes, *self._stacked(self.shapes, count)])

    def has_reverse(self, count: int) -> bool:
        return True

    def get_reverse(self, count: int, name: str, inputs: Any, outputs: Any, options: Any) -> casadi.Function:
        first, last = len(self.shapes), len(self.shapes) + len(self.out_shapes)

        def pull(*arrays: Any) -> list[Any]:
            _, pulled = vjp(lambda *arrays: [as_float(r) for r in self.function(*arrays)], *arrays[:first])
            weights = [apart(a, s, count) for a, s in zip(arrays[last:], self.out_shapes, strict=True)]
            found = vmap(lambda *weights: pulled(list(weights)))(*weights)
            return [beside(f, s, count) for f, s in zip(found, self.shapes, strict=True)]

        return Called(name, pull, [*self.shapes, *self.out_shapes, *self._stacked(self.out_shapes, count)])

    @staticmethod
    def _stacked(shapes: Sequence[tuple[int, ...]], count: int) -> list[tuple[int, ...]]:
        """Return the shapes of seeds: those of several directions stand beside each other."""
        return [(matrix_shape(s)[0], matrix_shape(s)[1] * count) for s in shapes]


def in_memory(memory: memoryview | None, shape: tuple[int, ...]) -> NDArray:
    """Return the array in the memory of a matrix, whose elements are in the order of its columns. Empty matrices have none."""
    return np.empty(shape) if memory is None else np.ndarray(shape, float, memory, order="F")


def as_float(result: Any) -> Any:
    return result * 1.0


def apart(seeds: Any, shape: tuple[int, ...], count: int) -> Any:
    """Return seeds that stand beside each other as arrays along the first axis."""
    rows, columns = matrix_shape(shape)
    return np.moveaxis(np.reshape(seeds, (rows, count, columns)), 1, 0).reshape((count, *shape))


def beside(found: Any, shape: tuple[int, ...], count: int) -> Any:
    """Return arrays along the first axis as matrices beside each other."""
    rows, columns = matrix_shape(shape)
    return np.moveaxis(np.reshape(found, (count, rows, columns)), 0, 1).reshape((rows, count * columns))


def as_block(block: Any, out: tuple[int, ...], shape: tuple[int, ...]) -> Any:
    """Return the derivative of a result as a matrix; the elements of matrices are numbered by columns."""
    axes = [*reversed(range(len(out))), *reversed(range(len(out), len(out) + len(shape)))]
    return np.transpose(block, axes).reshape((math.prod(out), math.prod(shape)))


def matrix_shape(shape: tuple[int, ...]) -> tuple[int, int]:
    rows, columns = (*shape, 1, 1)[:2]
    return rows, columns


def shape_of(matrix: Any) -> tuple[int, ...]:
    """Return the shape of the array for a matrix: a column is one of one dimension, and one element is a number."""
    rows, columns = matrix.shape
    return (rows, columns) if columns != 1 else (rows,) if rows != 1 else ()


def is_operand(leaf: Any) -> bool:
    """Return whether an argument is an operand. Arrays of NumPy are constants, like other objects."""
    if isinstance(leaf, casadi.SX):
        raise ArgumentError(
            "gt.casadi: an argument is an SX",
            where=user_site(),
            why="expressions of SX are made of numbers, and call no functions",
            remedy='x = casadi.MX.sym("x", 3)',
        )
    return isinstance(leaf, casadi.MX | casadi.DM)
