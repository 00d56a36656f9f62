"""Functions of a matrix by its eigenvalues or singular values, where some of these are equal.

Of F = V f(w) V.T the derivative is V (D * (V.T dA V)) V.T with the divided differences D[i, j] = (f(w[j]) - f(w[i])) / (w[j] - w[i]),
and f'(w) where two eigenvalues are equal (Y. L. Daleckii and S. G. Krein, 1965). The rows of `eigh` and `svd` give the part of different
values. For equal ones the vectors are not determined, and the part is found where a function of the values scales vectors: it is f' times
the rotation between these there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from gradtape.ir.graph import Node, Value, literal
from gradtape.kinds.contract import Contract
from gradtape.kinds.elementwise import Elementwise
from gradtape.kinds.index_map import IndexMap
from gradtape.ops.core.contract import contract
from gradtape.ops.core.elementwise.arithmetic import add, divide, multiply, negative, subtract
from gradtape.ops.core.elementwise.cast import convert_row, identity
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.core.lengths import MAIN
from gradtape.ops.core.linalg.symmetric import eigh_by
from gradtape.ops.core.matrices import adjoint, eigh, equal_pairs, svd, weighted
from gradtape.ops.core.shape import (
    expand,
    pad_row,
    permute,
    reshape,
    reshape_row,
    slice_,
)
from gradtape.ops.numpy.linalg.products import matmul
from gradtape.transforms.jvp import jvp
from gradtape.transforms.linear import Cotangents

LINEAR: Final = frozenset({add, subtract, negative, multiply, divide, convert_row, identity})
"""Elementwise rows that are linear in vectors, together with numbers that do not depend on the values."""


class _Member(NamedTuple):
    """A value with an axis that counts eigenvalues or singular values: vectors, functions of the values, or these on a diagonal.

    `axes` are where the axes of the stack of matrices stand, and last the one that counts; `numbers` is what stands on a diagonal.
    """

    kind: str
    axes: tuple[int, ...]
    numbers: Value | None = None


class _Product(NamedTuple):
    """Vectors scaled by a function of the values: the result, the vectors, the function, and whether they are divided by it."""

    out: Value
    vectors: Value
    numbers: Value
    divided: bool


def equal_part(node: Node, nodes: Sequence[Node], cotangents: Cotangents) -> Value | None:
    """Return the part of the matrix's cotangent from functions of equal eigenvalues or singular values.

    Parameters
    ----------
    node : Node
        An `eigh` or `svd` of real matrices.
    nodes : sequence of Node
        The nodes of the sweep, in topological order.
    found : Cotangents
        The cotangents of the values after `node`.
    """
    if node.op not in (eigh, eigh_by, svd) or node.inputs[0].dtype.kind == "c":
        return None
    if all(cotangents.get(out) is None for out in node.outs):
        return None
    if node.op is not svd:
        numbers, left = node.outs
        right = left
    else:
        left, numbers, right = node.outs
    family = _Family(numbers, (left, right))
    for each in nodes:
        family.meet(each)
    terms = [term for product in family.products if (term := family.term(product, cotangents)) is not None]
    if not terms:
        return None
    total = terms[0]
    for term in terms[1:]:
        total = add(total, term)
    total = (total + adjoint(total)) * 0.5
    same = equal_pairs(numbers)
    total = where(same, weighted(total, lambda d: 1 - MAIN(d)), 0.0)
    return matmul(left, matmul(total, adjoint(right)))


class _Family:
    """The values that are computed from the eigenvalues and vectors of a node."""

    def __init__(self, numbers: Value, vectors: Sequence[Value]) -> None:
        self.products: list[_Product] = []
        self._numbers = numbers
        self._members = {numbers: _Member("numbers", tuple(range(numbers.ndim)))}
        for value in vectors:
            self._members[value] = _Member("vectors", (*range(value.ndim - 2), value.ndim - 1))

    def meet(self, node: Node) -> None:
        """Classify the output of a node that reads members of the family."""
        members_read = [self._members.get(operand) for operand in node.inputs]
        if not any(members_read) or len(node.outs) != 1:
            return
        if isinstance(node.op, Elementwise):
            self._meet_elementwise(node, members_read)
        elif isinstance(node.op, Contract):
            self._meet_product(node, members_read)
        elif members_read[0] is not None and len(node.inputs) == 1:
            member = _moved(node, members_read[0])
            if member is not None:
                self._members[node.out] = member

    def _meet_elementwise(self, node: Node, members_read: Sequence[_Member | None]) -> None:
        members = [member for member in members_read if member is not None]
        kinds = [member.kind for member in members]
        if len({member.axes for member in members}) > 1 or "diagonal" in kinds:
            return
        if "vectors" not in kinds:
            self._members[node.out] = members[0]
        elif "numbers" not in kinds:
            together = node.op in (add, subtract) and len(kinds) == 2
            if node.op in LINEAR and (together or (len(kinds) == 1 and _is_linear(node, members_read))):
                self._members[node.out] = members[0]
        elif sorted(kinds) == ["numbers", "vectors"] and (
            node.op is multiply or (node.op is divide and kinds[0] == "vectors")
        ):
            vectors_position = kinds.index("vectors")
            self._members[node.out] = members[vectors_position]
            operands = node.inputs
            self.products.append(
                _Product(
                    node.out, operands[vectors_position], operands[1 - vectors_position], node.op is divide
                )
            )

    def _meet_product(self, node: Node, members_read: Sequence[_Member | None]) -> None:
        subscripts = (node.params["x"], node.params["y"])
        kinds = [member.kind if member is not None else "" for member in members_read]
        if "vectors" not in kinds or kinds.count("vectors") == 2:
            return
        vectors_position = kinds.index("vectors")
        member, other = members_read[vectors_position], members_read[1 - vectors_position]
        assert member is not None
        own_subscripts = [subscripts[vectors_position][axis] for axis in member.axes]
        out = node.params["out"]
        if other is not None and other.kind == "diagonal":
            pair = [subscripts[1 - vectors_position][axis] for axis in other.axes]
            if own_subscripts[-1] in pair and own_subscripts[-1] not in out and other.numbers is not None:
                pair.remove(own_subscripts[-1])
                own_subscripts[-1] = pair[0]
                self.products.append(_Product(node.out, node.inputs[vectors_position], other.numbers, False))
            else:
                return
        elif other is not None:
            theirs = [subscripts[1 - vectors_position][axis] for axis in other.axes]
            if theirs != own_subscripts or not set(own_subscripts) <= set(out):
                return
            self.products.append(
                _Product(node.out, node.inputs[vectors_position], node.inputs[1 - vectors_position], False)
            )
        if set(own_subscripts) <= set(out):
            self._members[node.out] = _Member(
                "vectors", tuple([out.index(subscript) for subscript in own_subscripts])
            )

    def term(self, product: _Product, cotangents: Cotangents) -> Value | None:
        """Return f' times the rotation between the scaled vectors, by pairs of these."""
        cotangent = cotangents.get(product.out)
        slope = self._slope(product)
        ends, starts = self._members.get(product.out), self._members[product.vectors]
        if cotangent is None or slope is None or ends is None:
            return None
        x, z = product.vectors, cotangent.applied()
        lead = len(starts.axes) - 1
        i, j = 0, 1
        # Axes of the stack have subscripts of their own, and so have all other axes of the vectors, in their order.
        subscripts_x = _subscripts(x.ndim, starts.axes, i, lead)
        subscripts_z = _subscripts(z.ndim, ends.axes, j, lead)
        if x.ndim != z.ndim:
            return None
        stack = tuple(range(2, 2 + lead))
        pairs = contract(x, z, subscripts_x, subscripts_z, (*stack, i, j))
        axes = (*range(lead), lead + 1)
        return pairs * expand(slope, pairs.shape, axes)

    def _slope(self, product: _Product) -> Value | None:
        """Return the derivative of what scales vectors in the values, one number for each."""
        numbers = product.numbers
        unit_tangent = expand(literal(1.0, self._numbers.dtype), self._numbers.shape, ())
        (slope,) = jvp([numbers], [self._numbers], [unit_tangent], lambda value: value not in self._members)
        if slope is None:
            return None
        if product.divided:
            slope = -slope / (numbers * numbers)
        member = self._members[numbers]
        # All other axes repeat the same numbers.
        shape = tuple([extent if axis in member.axes else 1 for axis, extent in enumerate(slope.shape)])
        if shape != slope.shape:
            slope = slice_(slope, (0,) * slope.ndim, shape, (1,) * slope.ndim)
        order = (*member.axes, *[axis for axis in range(slope.ndim) if axis not in member.axes])
        if order != tuple(range(slope.ndim)):
            slope = permute(slope, order)
        return reshape(slope, tuple([shape[axis] for axis in member.axes]))


def _subscripts(rank: int, axes: Sequence[int], own_subscript: int, lead: int) -> tuple[int, ...]:
    subscripts = dict(zip(axes, (*range(2, 2 + lead), own_subscript), strict=True))
    free_subscripts = iter(range(2 + lead, 2 + lead + rank))
    return tuple([subscripts[axis] if axis in subscripts else next(free_subscripts) for axis in range(rank)])


def _is_linear(node: Node, members_read: Sequence[_Member | None]) -> bool:
    return node.op is not divide or members_read[0] is not None


def _moved(node: Node, member: _Member) -> _Member | None:
    """Return the output of an index map, if it keeps the axes of its operand; else None."""
    op, shape = node.op, node.inputs[0].shape
    if member.kind == "flat":
        n = member.numbers.size if member.numbers is not None else 0
        is_square = op is reshape_row and node.out.shape == (n, n)
        return _Member("diagonal", (0, 1), member.numbers) if is_square else None
    if op is pad_row:
        n = shape[0] if len(shape) == 1 and member.kind == "numbers" else -1
        is_diagonal = node.params["shape"] == (n * n,) and node.params["strides"] == (n + 1,)
        return _Member("flat", (0,), node.inputs[0]) if is_diagonal else None
    if not isinstance(op, IndexMap):
        return None
    images = op.axis_images(node)
    axes = tuple([image for axis in member.axes if (image := images[axis]) is not None])
    return member._replace(axes=axes) if len(axes) == len(member.axes) else None
