"""Products, norms and traces."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradtape.frontend.numpy.registry import implements
from gradtape.kinds.arguments import NO_VALUE
from gradtape.kinds.registry import FUNCTIONS as RULES
from gradtape.ops.numpy.linalg.norms import root
from gradtape.procedures.arrays import products, reductions, shapes
from gradtape.procedures.arrays.graphs import apply_graph
from gradtape.procedures.arrays.view import apply, as_expression, as_operand
from gradtape.procedures.builder import ProcedureBuilder

implements(np.dot, method="dot")(products.dot)
implements(np.matmul)(products.matmul)
implements(np.tensordot)(products.tensordot)


@implements(np.vdot)
def vdot(build: ProcedureBuilder, a: Any, b: Any) -> Any:
    x, y = (shapes.ravel(as_expression(build, one)) for one in (a, b))
    return products.dot(build, apply(build, np.conjugate, x) if x.dtype.kind == "c" else x, y)


@implements(np.inner)
def inner(build: ProcedureBuilder, a: Any, b: Any) -> Any:
    x, y = as_operand(build, a), as_operand(build, b)
    if x.ndim == 0 or y.ndim == 0:
        return apply(build, np.multiply, x, y)
    return products.tensordot(build, x, y, (-1, -1))


@implements(np.outer)
def outer(build: ProcedureBuilder, a: Any, b: Any) -> Any:
    x, y = (shapes.ravel(as_expression(build, one)) for one in (a, b))
    return products.outer(build, np.multiply, x, y)


@implements(np.einsum)
def einsum(build: ProcedureBuilder, subscripts: str, *operands: Any, optimize: Any = False) -> Any:
    return products.einsum(build, subscripts, *operands)


@implements(np.trace, method="trace")
def trace(build: ProcedureBuilder, a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    return reductions.sum_(shapes.diagonal(as_expression(build, a), offset, axis1, axis2), axis=-1)


@implements(np.linalg.norm)
def norm(build: ProcedureBuilder, x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """Follow `numpy.linalg.norm`: norms of vectors, and Frobenius' norm, are one loop nest."""
    array = as_expression(build, x)
    is_vector = array.ndim == 1 or isinstance(axis, int)
    sizes = apply(build, np.absolute, array)
    if is_vector and ord in (1, np.inf, -np.inf):
        if ord == 1:
            return reductions.sum_(sizes, axis, None, keepdims)
        return reductions.extremum(sizes, ord > 0, axis, keepdims, NO_VALUE, NO_VALUE)
    if ord is None or (is_vector and ord == 2) or (ord == "fro" and array.ndim == 2):
        parts = array if array.dtype.kind == "f" else sizes
        if parts.dtype.kind != "f":
            parts = apply(build, np.multiply, parts, 1.0)
        squares = apply(build, np.square, parts)
        return apply(build, root, reductions.sum_(squares, axis, None, keepdims))
    return apply_graph(build, RULES[np.linalg.norm], (array, ord, axis, keepdims), {})
