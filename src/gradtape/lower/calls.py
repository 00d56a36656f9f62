"""Contractions that are worth a call of BLAS, and sorting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ..ir.graph import Graph, Literal, Node, Value
from ..kinds.contract import Contract
from ..kinds.elementwise import Elementwise
from ..kinds.index_map import IndexMap
from ..kinds.join import Join
from ..kinds.sort import Sort
from ..loops.affine import Affine, Position, Var, affine
from ..loops.ir import Call, For, Store, const
from ..passes.transposes import LARGE
from ..records import value_record
from .roots import Root

if TYPE_CHECKING:
    from .build import Builder

THIN: Final = 8
"""An extent below this keeps OpenBLAS from its fast path; batches of thin products are better fused."""

Letters = tuple[int, ...]


@value_record
class Operand:
    """A matrix in memory: the value that is stored, and the stride of each letter in it."""

    base: Value
    offset: int
    strides: dict[int, int]


@value_record
class Product:
    """A contraction as matrix products: letters that are looped over, and the three that BLAS sees."""

    looped: Letters
    m: Letters
    n: Letters
    k: Letters
    extents: dict[int, int]
    x: Operand
    y: Operand
    accumulates: bool

    def extent(self, letters: Letters) -> int:
        """Return how many positions a group of letters has."""
        size = 1
        for letter in letters:
            size *= self.extents[letter]
        return size


def is_call(node: Node) -> bool:
    """Return whether a node is computed by a routine rather than by loops."""
    return isinstance(node.op, Sort) or (isinstance(node.op, Contract) and plan_product(node) is not None)


def prepare_call(graph: Graph) -> set[Value]:
    """Return the values that routines read and that must be in memory for it."""
    needed: set[Value] = set()
    for node in graph.nodes:
        if isinstance(node.op, Contract):
            product = plan_product(node)
            if product is not None:
                needed.update((product.x.base, product.y.base))
        elif isinstance(node.op, Sort):
            needed.update(node.inputs)
    return {
        value
        for value in needed
        if value.node is not None and isinstance(value.node.op, Elementwise | IndexMap | Join)
    }


def plan_product(node: Node) -> Product | None:
    """Return how BLAS computes a contraction; None where loops are better or the strides do not allow it."""
    if node.out.dtype.kind != "f" or any(isinstance(value, Literal) for value in node.inputs):
        return None
    x, y, out = node.params["x"], node.params["y"], node.params["out"]
    extents = dict(zip((*x, *y), (*node.inputs[0].shape, *node.inputs[1].shape), strict=True))
    batch = tuple(s for s in out if s in x and s in y)
    groups = (
        tuple(s for s in out if s in x and s not in y),
        tuple(s for s in out if s in y and s not in x),
        tuple(s for s in x if s in y and s not in out),
    )
    if not all(groups):
        return None
    first, second = operand(node.inputs[0], x), operand(node.inputs[1], y)
    result = dense(out, extents)
    m, n = [
        _merged(group, extents, (o.strides, result))
        for group, o in zip(groups, (first, second), strict=False)
    ]
    k = _merged(groups[2], extents, (first.strides, second.strides))
    rest = tuple(s for group, kept in zip(groups, (m, n, k), strict=True) for s in group if s not in kept)
    product = Product((*batch, *rest), m, n, k, extents, first, second, len(k) < len(groups[2]))
    sizes = sorted(product.extent(letters) for letters in (m, n, k))
    if sizes[0] * sizes[1] * sizes[2] < LARGE or sizes[0] < (2 * THIN if batch else THIN):
        return None
    ok = _matrix(result, m, n) and _matrix(first.strides, m, k) and _matrix(second.strides, k, n)
    return product if ok else None


def dense(letters: Letters, extents: dict[int, int]) -> dict[int, int]:
    """Return the strides of a contiguous array."""
    strides: dict[int, int] = {}
    stride = 1
    for letter in reversed(letters):
        strides[letter] = stride
        stride *= extents[letter]
    return strides


def operand(value: Value, letters: Letters) -> Operand:
    """Return where an operand stands in memory: in what it is a view of, or in an array of its own."""
    extents = dict(zip(letters, value.shape, strict=True))
    if value.node is not None and value.node.op.name == "permute":
        return Operand(value, 0, dense(letters, extents))
    variables = [
        Var(f"s{letter}", 0, max(extent - 1, 1)) for letter, extent in zip(letters, value.shape, strict=True)
    ]
    base = value
    index: Sequence[Position] = [affine(variable) for variable in variables]
    while base.node is not None and isinstance(base.node.op, IndexMap):
        node, op = base.node, base.node.op
        if op.inside is not None or len(node.inputs) > 1 or isinstance(node.inputs[0], Literal):
            break
        base = node.inputs[0]
        index = op.source(tuple(index), base.shape, **node.params)
    address: Position = 0
    for position, extent in zip(index, base.shape, strict=True):
        address = address * extent + position
    known = set(variables)
    if isinstance(address, Affine) and all(atom in known for atom in address.terms):
        strides = {s: address.terms.get(v, 0) for s, v in zip(letters, variables, strict=True)}
        if all(stride > 0 for stride in strides.values()):
            return Operand(base, address.offset, strides)
    return Operand(value, 0, dense(letters, extents))


def _merged(group: Letters, extents: dict[int, int], strides: Sequence[dict[int, int]]) -> Letters:
    """Return the longest run at the end of a group that walks memory as one letter would."""
    order = sorted(group, key=lambda letter: strides[0][letter], reverse=True)
    run = [order[-1]]
    for letter in reversed(order[:-1]):
        if any(steps[letter] != steps[run[0]] * extents[run[0]] for steps in strides):
            break
        run.insert(0, letter)
    return tuple(run)


def _matrix(strides: dict[int, int], rows: Letters, columns: Letters) -> bool:
    return 1 in (strides[rows[-1]], strides[columns[-1]])


def emit_call(builder: Builder, root: Root) -> None:
    """Emit the routine for a root, in loops over the letters that it does not take."""
    assert root.node is not None
    if isinstance(root.node.op, Sort):
        emit_sort(builder, root)
        return
    product = plan_product(root.node)
    assert product is not None and root.storage is not None
    result = dense(root.node.params["out"], product.extents)
    if product.accumulates:
        loop = For(Var(builder.fresh("i_"), 0, max(root.storage.size - 1, 0)))
        builder.emit(loop)
        loop.body.append(Store(root.storage, affine(loop.var), const(0, root.value.dtype)))
    starts: list[Position] = [product.x.offset, product.y.offset, 0]
    body = builder.scopes[-1].statements
    for letter in product.looped:
        if product.extents[letter] > 1:
            loop = For(Var(builder.fresh("i_"), 0, product.extents[letter] - 1))
            body.append(loop)
            body = loop.body
            steps = (product.x.strides, product.y.strides, result)
            starts = [
                start + affine(loop.var) * stride.get(letter, 0)
                for start, stride in zip(starts, steps, strict=True)
            ]
    body.append(_gemm(builder, root, product, result, starts))


def _gemm(
    builder: Builder, root: Root, product: Product, result: dict[int, int], starts: Sequence[Position]
) -> Call:
    """BLAS stores matrices by columns: a result stored by rows is its transpose, the product of the
    transposes."""
    m, n, k = product.m[-1], product.n[-1], product.k[-1]
    x = (product.x.strides[m], product.x.strides[k])
    y = (product.y.strides[k], product.y.strides[n])
    buffers = [builder.memory_of(product.x.base), builder.memory_of(product.y.base)]
    order = [0, 1]
    rows, columns = product.m, product.n
    leading = result[m]
    if result[n] != 1:
        x, y = (y[1], y[0]), (x[1], x[0])
        order = [1, 0]
        rows, columns = product.n, product.m
        leading = result[n]
    wide, high, deep = product.extent(columns), product.extent(rows), product.extent(product.k)
    assert root.storage is not None
    return Call(
        "gemm",
        (
            (buffers[order[1]], starts[order[1]]),
            (buffers[order[0]], starts[order[0]]),
            (root.storage, starts[2]),
        ),
        (
            "N" if y[1] == 1 else "T",
            "N" if x[1] == 1 else "T",
            wide,
            high,
            deep,
            max(y[0] if y[1] == 1 else y[1], 1),
            max(x[0] if x[1] == 1 else x[1], 1),
            1.0 if product.accumulates else 0.0,
            max(leading, 1),
        ),
    )


def emit_sort(builder: Builder, root: Root) -> None:
    """Emit one call per row that is sorted, or one for all that is searched for."""
    assert root.node is not None and root.storage is not None
    node = root.node
    buffers = [builder.memory_of(value) for value in node.inputs]
    if root.value.size == 0:
        return
    if node.op.name == "searchsorted":
        operands = ((buffers[0], 0), (buffers[1], 0), (root.storage, 0))
        builder.emit(Call("searchsorted", operands, (buffers[0].size, buffers[1].size, node.params["side"])))
        return
    row = node.inputs[0].shape[-1]
    rows = node.inputs[0].size // row
    assert root.spare is not None
    start: Position = 0
    body = builder.scopes[-1].statements
    if rows > 1:
        loop = For(Var(builder.fresh("i_"), 0, rows - 1))
        body.append(loop)
        body, start = loop.body, affine(loop.var) * row
    body.append(Call("argsort", ((buffers[0], start), (root.storage, start), (root.spare, 0)), (row,)))
