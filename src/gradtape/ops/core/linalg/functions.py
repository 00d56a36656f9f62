"""Functions of matrices: logarithms and powers, and square roots.

The derivative of order k of a function of matrices in the directions E1, ..., Ek is a block of the function of a matrix of twice the size
for each direction: f([[A, E], [0, A]]) = [[f(A), Df(A)E], [0, f(A)]]. It is linear and symmetric in the directions; its adjoint in one
of them is the same of the transposes. So nothing divides by differences of eigenvalues.

References
----------
R. Mathias, "A chain rule for matrix functions and applications", 1996.
N. J. Higham, "Functions of Matrices", 2008, chapters 3, 6 and 11.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from gradtape.errors import NotDifferentiableError
from gradtape.ir.builder import here
from gradtape.ir.graph import Node, Value
from gradtape.ir.op import NDArray
from gradtape.kinds.routines.callback import Callback, callback_row
from gradtape.kinds.routines.derivatives import Outs, Push, Tangents
from gradtape.ops.core.elementwise.cast import convert
from gradtape.ops.core.linalg.eigen import apart, complex_dtype
from gradtape.ops.core.linalg.equations import scipy_function, sylvester, total
from gradtape.ops.core.matrices import transposed

ORDERS: Final = 5
"""Directions that a derivative of a function may have: a matrix of 32 times the size has all blocks of the last one."""


def _nested(a: NDArray, directions: Sequence[NDArray]) -> NDArray:
    """Return the matrix of twice the size for each direction."""
    whole = a
    for direction in directions:
        copies = len(whole) // len(direction)
        whole = np.block([[whole, np.kron(np.eye(copies), direction)], [np.zeros_like(whole), whole]])
    return whole


def _matrix_function(a: NDArray, *directions: NDArray, name: str, power: float) -> NDArray:
    whole = _nested(a, directions)
    if not a.size:
        return whole
    with warnings.catch_warnings():  # about an accuracy that is estimated for the whole
        warnings.simplefilter("ignore")
        function = scipy_function(name)
        found = function(whole, power) if name == "fractional_matrix_power" else function(whole)
    n = len(a)
    return np.asarray(found[:n, len(whole) - n :])


def _function_tangent(outs: Outs, inputs: Sequence[Value], params: dict[str, Any]) -> Push:
    a, *directions = inputs

    def push(tangents: Tangents) -> Value | None:
        da, *changes = tangents
        terms = [] if da is None else [matrix_derivative(a, *directions, da, **params)]
        for k, change in enumerate(changes):
            if change is not None:
                others = [direction for j, direction in enumerate(directions) if j != k]
                terms.append(matrix_derivative(a, *others, change, **params))
        return total(*terms)

    return push


def _function_transpose(ct: Value, node: Node) -> Value:
    *known, last = node.inputs
    found = matrix_derivative(*map(transposed, known), ct, **node.params)
    return found if last.dtype.kind == "c" else convert(found, last.dtype)


def matrix_derivative(a: Value, *directions: Value, name: str, power: float = 0.0) -> Value:
    """Return the derivative of a function at a matrix, in as many directions as there are."""
    if len(directions) > ORDERS:
        raise NotDifferentiableError(
            f"scipy.linalg.{name} has derivatives up to order {ORDERS}", where=here.site
        )
    dtype = np.result_type(*[x.dtype for x in (a, *directions)])
    dtype = dtype if name == "expm" else complex_dtype(dtype)
    operands = [convert(x, dtype) for x in (a, *directions)]
    return _FUNCTIONS[len(directions)](*operands, name=name, power=power)


_FUNCTIONS: Final = tuple(
    [
        callback_row(
            f"matrix_function_{order}" if order else "matrix_function",
            ranks=(2,) * (order + 1),
            shapes=lambda a, *directions, **params: (a,),
            evaluate=_matrix_function,
            tangent=_function_tangent,
            transpose=_function_transpose if order else None,
            linear_in=order or None,
            samples=tuple(
                (*((*lead, 2, 2),) * (order + 1), params)
                for lead, params in (
                    ((), {"name": "logm", "power": 0.0}),
                    ((2,), {"name": "fractional_matrix_power", "power": 0.3}),
                )
            )[: 2 if order < 2 else 0],
            prepare=lambda a, *directions: [*apart(a), *directions],
            codes="FD",
        )
        for order in range(ORDERS + 1)
    ]
)
"""A function of complex matrices, and its derivatives."""


def _sqrtm(a: NDArray) -> NDArray:
    with warnings.catch_warnings():  # about a singular matrix: the result is what it is
        warnings.simplefilter("ignore")
        return np.asarray(scipy_function("sqrtm")(a))


def _sqrtm_tangent(outs: Outs, inputs: Sequence[Value], params: dict[str, Any]) -> Push:
    (root,) = outs

    def push(tangents: Tangents) -> Value | None:
        (da,) = tangents
        return None if da is None else sylvester(root, root, convert(da, root.dtype))

    return push


sqrtm: Callback = callback_row(
    "sqrtm",
    ranks=(2,),
    shapes=lambda a: (a,),
    dtypes=lambda dtype: (complex_dtype(dtype),),
    evaluate=_sqrtm,
    tangent=_sqrtm_tangent,
    samples=(((3, 3), {}), ((2, 2, 2), {}), ((0, 1, 1), {})),
    prepare=apart,
)
"""The principal square root; it is complex."""
