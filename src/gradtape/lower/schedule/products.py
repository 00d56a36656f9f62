"""Matrix products: the contractions that BLAS computes, and how."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

from gradtape.ir.graph import Literal, Node, Value
from gradtape.ir.varying import lengths_vary
from gradtape.kinds.contract import Subscripts, extents_of, groups_of
from gradtape.kinds.index_map import IndexMap
from gradtape.loops.affine import Affine, Position, Var, affine, flat
from gradtape.ops.core.shape import permute_row
from gradtape.passes.layout.contract_transposes import LARGE
from gradtape.passes.layout.matmul_tiling import LEAST_ROWS, PRODUCT
from gradtape.records import frozen_record

THIN: Final = 8
"""An extent below this keeps OpenBLAS from its fast path; batches of thin products are better fused."""


@frozen_record
class MatrixOperand:
    """A matrix in memory.

    Attributes
    ----------
    base : Value
        The value that is stored.
    index : tuple of Position
        The index of an element in it, in terms of `variables`.
    variables : dict of int to Var
        The position of each subscript.
    strides : dict of int to int
        Of each subscript, in elements.
    """

    base: Value
    index: tuple[Position, ...]
    variables: dict[int, Var]
    strides: dict[int, int]


@frozen_record
class MatrixProduct:
    """A contraction as matrix products, ``z[m, n] = sum of x[m, k] * y[k, n]``.

    Attributes
    ----------
    looped : tuple of int
        The subscripts of the loops around the product, outermost first.
    m, n, k : tuple of int
        The subscripts that are an extent of the matrices.
    extents : dict of int to int
        Of all subscripts.
    x, y : MatrixOperand
        The matrices.
    accumulates : bool
        Whether products are added to the result, which is cleared before.
    """

    looped: Subscripts
    m: Subscripts
    n: Subscripts
    k: Subscripts
    extents: dict[int, int]
    x: MatrixOperand
    y: MatrixOperand
    accumulates: bool

    def extent(self, subscripts: Subscripts) -> int:
        """Return how many positions a group of subscripts has."""
        size = 1
        for subscript in subscripts:
            size *= self.extents[subscript]
        return size


def plan_product(node: Node) -> MatrixProduct | None:
    """Return how BLAS computes a contraction; None where loops are better or the strides do not allow it."""
    if node.out.dtype.kind != "f" or any(isinstance(value, Literal) for value in node.inputs):
        return None
    x, y, out = node.params["x"], node.params["y"], node.params["out"]
    extents = extents_of(node)
    batch, *groups = groups_of(node.params)
    if not all(groups) or not all(extents.values()):
        return None
    first, second = _operand(node.inputs[0], x), _operand(node.inputs[1], y)
    result = _dense(out, extents)
    m, n = [
        _merged(group, extents, (o.strides, result))
        for group, o in zip(groups, (first, second), strict=False)
    ]
    k = _merged(groups[2], extents, (first.strides, second.strides))
    if not lengths_vary():
        m, n, k = _in_pieces((m, n, k), extents)
    rest = tuple(s for group, kept in zip(groups, (m, n, k), strict=True) for s in group if s not in kept)
    looped = [*batch, *rest]
    if not lengths_vary():
        looped.sort(key=lambda s: -max(first.strides.get(s, 0), second.strides.get(s, 0)))
    product = MatrixProduct(tuple(looped), m, n, k, extents, first, second, len(k) < len(groups[2]))
    sizes = sorted(product.extent(subscripts) for subscripts in (m, n, k))
    if (sizes[0] * sizes[1] * sizes[2] < LARGE and not lengths_vary()) or sizes[0] < (
        2 * THIN if batch else THIN
    ):
        return None
    ok = _matrix(result, m, n) and _matrix(first.strides, m, k) and _matrix(second.strides, k, n)
    return product if ok else None


def _dense(subscripts: Subscripts, extents: dict[int, int]) -> dict[int, int]:
    """Return the strides of a contiguous array."""
    strides: dict[int, int] = {}
    stride = 1
    for subscript in reversed(subscripts):
        strides[subscript] = stride
        stride *= extents[subscript]
    return strides


def _operand(value: Value, subscripts: Subscripts) -> MatrixOperand:
    """Return where an operand is in memory: in what it is a view of, or in an array of its own."""
    variables = {
        subscript: Var(f"s{subscript}", 0, max(extent - 1, 1))
        for subscript, extent in zip(subscripts, value.shape, strict=True)
    }
    base = value
    index: tuple[Position, ...] = tuple([affine(variable) for variable in variables.values()])
    if value.node is None or value.node.op is not permute_row:
        base, index = _viewed(value, index)
    strides = _strides(index, base.shape, variables)
    if strides is None:
        base, index = value, tuple([affine(variable) for variable in variables.values()])
        strides = _dense(subscripts, dict(zip(subscripts, value.shape, strict=True)))
    return MatrixOperand(base, index, variables, strides)


def _viewed(value: Value, index: tuple[Position, ...]) -> tuple[Value, tuple[Position, ...]]:
    """Return what a value is a view of, and the index in it."""
    while value.node is not None and isinstance(value.node.op, IndexMap):
        node, op = value.node, value.node.op
        if op.inside is not None or len(node.inputs) > 1 or isinstance(node.inputs[0], Literal):
            break
        value = node.inputs[0]
        index = tuple(op.source(index, value.shape, **node.params))
    return value, index


def _strides(
    index: tuple[Position, ...], shape: tuple[int, ...], variables: dict[int, Var]
) -> dict[int, int] | None:
    """Return the stride of each subscript, in elements; None where it varies."""
    address = flat(index, shape)
    known = set(variables.values())
    if not isinstance(address, Affine) or not all(atom in known for atom in address.terms):
        return None
    strides = {s: address.terms.get(variable, 0) for s, variable in variables.items()}
    return strides if all(stride > 0 for stride in strides.values()) else None


def _merged(group: Subscripts, extents: dict[int, int], strides: Sequence[dict[int, int]]) -> Subscripts:
    """Return the longest run at the end of a group that is contiguous, as one subscript would be."""
    order = sorted(group, key=lambda subscript: strides[0][subscript], reverse=True)
    run = [order[-1]]
    for subscript in reversed(order[:-1]):
        if any(steps[subscript] != steps[run[0]] * extents[run[0]] for steps in strides):
            break
        run.insert(0, subscript)
    return tuple(run)


def _in_pieces(
    groups: tuple[Subscripts, Subscripts, Subscripts], extents: dict[int, int]
) -> tuple[Subscripts, ...]:
    """Leave the outer subscripts of the longest group to loops, where that makes products that BLAS computes without copying its
    operands: others can share the loops."""
    sizes = [prod([extents[subscript] for subscript in group]) for group in groups]
    longest = max(range(3), key=lambda number: sizes[number])
    others = prod(sizes) // sizes[longest]
    subscripts = groups[longest]
    while len(subscripts) > 1 and others * prod([extents[subscript] for subscript in subscripts]) > PRODUCT:
        subscripts = subscripts[1:]
    length = prod([extents[subscript] for subscript in subscripts])
    if not LEAST_ROWS <= length <= PRODUCT // others:
        return groups
    return tuple(subscripts if number == longest else group for number, group in enumerate(groups))


def _matrix(strides: dict[int, int], rows: Subscripts, columns: Subscripts) -> bool:
    return 1 in (strides[rows[-1]], strides[columns[-1]])
