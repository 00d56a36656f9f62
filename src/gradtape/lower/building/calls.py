"""Contractions that are worth a call of BLAS, linear algebra, and sorting."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Final

from gradtape.ir.graph import Graph, Literal, Node, Value
from gradtape.kinds.contract import Contract
from gradtape.kinds.elementwise import Elementwise
from gradtape.kinds.index_map import IndexMap
from gradtape.kinds.join import Join
from gradtape.kinds.matrix import Matrix
from gradtape.kinds.sort import Sort
from gradtape.loops.affine import Affine, Atom, Position, Var, affine, substitute
from gradtape.loops.ir import Buffer, For, RoutineCall
from gradtape.lower.llvm.matrix import MATRIX_ROUTINES, multiplications_of
from gradtape.lower.schedule.nests import Axis, Root, flat
from gradtape.passes.layout.contract_transposes import LARGE, REUSED
from gradtape.passes.layout.matmul_tiling import LEAST_ROWS, PRODUCT
from gradtape.records import value_record

if TYPE_CHECKING:
    from gradtape.lower.building.builder import Builder

THIN: Final = 8
"""An extent below this keeps OpenBLAS from its fast path; batches of thin products are better fused."""

COMPARISONS: Final = 40
"""Multiplications in the time of what it takes to sort or to look up an element."""

Letters = tuple[int, ...]


@value_record
class Operand:
    """A matrix in memory: the value that is stored, its index for a position of each letter, and the stride of
    each letter."""

    base: Value
    index: tuple[Position, ...]
    variables: dict[int, Var]
    strides: dict[int, int]


@value_record
class Product:
    """A contraction as matrix products: letters that are looped over, the outermost first, and the three that
    BLAS sees."""

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
    return isinstance(node.op, Sort | Matrix) or (
        isinstance(node.op, Contract) and plan_product(node) is not None
    )


def call_root(node: Node) -> Root:
    """Return the root of a call. What is looped over around a product are its axes, so that what makes its operands and what uses
    its result can share the loops."""
    if isinstance(node.op, Sort | Matrix):
        return Root(node.out, "routine", (), (), node)
    product = plan_product(node)
    assert product is not None
    out = node.params["out"]
    axes = tuple(Axis(product.extents[s], out.index(s) if s in out else None) for s in product.looped)
    return Root(
        node.out, "blas", axes, (), node, letters={s: level for level, s in enumerate(product.looped)}
    )


def prepare_call(graph: Graph) -> set[Value]:
    """Return the values that routines read and that must be in memory for it."""
    needed: set[Value] = set()
    for node in graph.nodes:
        if isinstance(node.op, Contract):
            product = plan_product(node)
            if product is not None:
                needed.update((product.x.base, product.y.base))
        else:
            needed.update(operands_of_routine(node))
    return {
        value
        for value in needed
        if value.node is not None and isinstance(value.node.op, Elementwise | IndexMap | Join)
    }


def operands_of_routine(node: Node) -> Sequence[Value]:
    """Return the inputs whose numbers a routine reads."""
    if isinstance(node.op, Matrix):
        return [node.inputs[place] for place in node.op.reads]
    return node.inputs if isinstance(node.op, Sort) else ()


def transposed_leaves(graph: Graph) -> set[Value]:
    """Return what operands of large products are computed from, again and again, and read across its rows: a
    transposed copy pays."""
    found: set[Value] = set()
    for operand in prepare_call(graph):
        stack = [operand]
        seen = set(stack)
        while stack:
            node = stack.pop().node
            if node is None or not isinstance(node.op, Elementwise | IndexMap):
                continue
            across = node.op.name == "permute" and node.params["axes"][-1] != node.out.ndim - 1
            if across and operand.size >= REUSED * node.out.size:
                found.add(node.out)
                continue
            fresh = [value for value in node.inputs if value not in seen and not isinstance(value, Literal)]
            seen.update(fresh)
            stack.extend(fresh)
    return found


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
    if not all(groups) or not all(extents.values()):
        return None
    first, second = operand(node.inputs[0], x), operand(node.inputs[1], y)
    result = dense(out, extents)
    m, n = [
        _merged(group, extents, (o.strides, result))
        for group, o in zip(groups, (first, second), strict=False)
    ]
    k = _merged(groups[2], extents, (first.strides, second.strides))
    m, n, k = _in_pieces((m, n, k), extents)
    rest = tuple(s for group, kept in zip(groups, (m, n, k), strict=True) for s in group if s not in kept)
    looped = sorted((*batch, *rest), key=lambda s: -max(first.strides.get(s, 0), second.strides.get(s, 0)))
    product = Product(tuple(looped), m, n, k, extents, first, second, len(k) < len(groups[2]))
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
    variables = {
        letter: Var(f"s{letter}", 0, max(extent - 1, 1))
        for letter, extent in zip(letters, value.shape, strict=True)
    }
    base = value
    index: tuple[Position, ...] = tuple([affine(variable) for variable in variables.values()])
    if value.node is None or value.node.op.name != "permute":
        base, index = _viewed(value, index)
    strides = _strides(index, base.shape, variables)
    if strides is None:
        base, index = value, tuple([affine(variable) for variable in variables.values()])
        strides = dense(letters, dict(zip(letters, value.shape, strict=True)))
    return Operand(base, index, variables, strides)


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
    """Return how far apart in memory the positions of each letter are; None where that varies."""
    address = flat(index, shape)
    known = set(variables.values())
    if not isinstance(address, Affine) or not all(atom in known for atom in address.terms):
        return None
    strides = {s: address.terms.get(variable, 0) for s, variable in variables.items()}
    return strides if all(stride > 0 for stride in strides.values()) else None


def _merged(group: Letters, extents: dict[int, int], strides: Sequence[dict[int, int]]) -> Letters:
    """Return the longest run at the end of a group that walks memory as one letter would."""
    order = sorted(group, key=lambda letter: strides[0][letter], reverse=True)
    run = [order[-1]]
    for letter in reversed(order[:-1]):
        if any(steps[letter] != steps[run[0]] * extents[run[0]] for steps in strides):
            break
        run.insert(0, letter)
    return tuple(run)


def _in_pieces(groups: tuple[Letters, Letters, Letters], extents: dict[int, int]) -> tuple[Letters, ...]:
    """Leave the outer letters of the longest group to loops, where that makes products that BLAS computes without copying its
    operands: others can share the loops."""
    sizes = [prod([extents[letter] for letter in group]) for group in groups]
    longest = max(range(3), key=lambda number: sizes[number])
    others = prod(sizes) // sizes[longest]
    letters = groups[longest]
    while len(letters) > 1 and others * prod([extents[letter] for letter in letters]) > PRODUCT:
        letters = letters[1:]
    length = prod([extents[letter] for letter in letters])
    if not LEAST_ROWS <= length <= PRODUCT // others:
        return groups
    return tuple(letters if number == longest else group for number, group in enumerate(groups))


def _matrix(strides: dict[int, int], rows: Letters, columns: Letters) -> bool:
    return 1 in (strides[rows[-1]], strides[columns[-1]])


def emit_call(builder: Builder, root: Root, values: tuple[Position, ...]) -> None:
    """Emit the routine for a root, at a position of the loops around it."""
    assert root.node is not None
    if isinstance(root.node.op, Sort):
        emit_sort(builder, root)
        return
    if isinstance(root.node.op, Matrix):
        emit_matrices(builder, root)
        return
    product = plan_product(root.node)
    assert product is not None and root.storage is not None
    at = {letter: values[level] for letter, level in root.letters.items()}
    out = root.node.params["out"]
    variables = {s: Var(f"s{s}", 0, max(product.extents[s] - 1, 1)) for s in out}
    result = Operand(root.value, tuple([affine(v) for v in variables.values()]), variables, {})
    x, y, z = [_stored(builder, operand, at) for operand in (product.x, product.y, result)]
    builder.emit(_gemm(product, x, y, z))


@value_record
class _Matrix:
    """An operand where it stands when the loops stand somewhere."""

    buffer: Buffer
    start: Position
    strides: dict[int, int]


def _stored(builder: Builder, operand: Operand, at: dict[int, Position]) -> _Matrix:
    base = operand.base
    root = builder.roots.get(base)
    address = flat(operand.index, base.shape) if root is None else builder.address(root, operand.index)
    values: dict[Atom, Position] = {v: at.get(s, 0) for s, v in operand.variables.items()}
    strides = {
        s: address.terms.get(v, 0) if isinstance(address, Affine) else 0 for s, v in operand.variables.items()
    }
    return _Matrix(builder.memory_of(base), substitute(address, values), strides)


def _gemm(product: Product, x: _Matrix, y: _Matrix, z: _Matrix) -> RoutineCall:
    """BLAS stores matrices by columns: a result stored by rows is its transpose, the product of the
    transposes."""
    m, n, k = product.m[-1], product.n[-1], product.k[-1]
    first, second = (x.strides[m], x.strides[k]), (y.strides[k], y.strides[n])
    matrices = [y, x]
    rows, columns = product.m, product.n
    leading = z.strides[m]
    if z.strides[n] != 1:
        first, second = (second[1], second[0]), (first[1], first[0])
        matrices = [x, y]
        rows, columns = product.n, product.m
        leading = z.strides[n]
    wide, high, deep = product.extent(columns), product.extent(rows), product.extent(product.k)
    return RoutineCall(
        "gemm",
        tuple((matrix.buffer, matrix.start) for matrix in (*matrices, z)),
        (
            "N" if second[1] == 1 else "T",
            "N" if first[1] == 1 else "T",
            wide,
            high,
            deep,
            max(second[0] if second[1] == 1 else second[1], 1),
            max(first[0] if first[1] == 1 else first[1], 1),
            1.0 if product.accumulates else 0.0,
            max(leading, 1),
        ),
        "blas",
        wide * high * deep,
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
        numbers = (buffers[0].size, buffers[1].size, node.params["side"])
        builder.emit(
            RoutineCall("searchsorted", operands, numbers, "gradtape", COMPARISONS * buffers[0].size)
        )
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
    places = ((buffers[0], start), (root.storage, start), (root.spare, 0))
    body.append(RoutineCall("argsort", places, (row,), "gradtape", COMPARISONS * buffers[0].size))


def emit_matrices(builder: Builder, root: Root) -> None:
    """Emit one call per matrix."""
    node = root.node
    assert node is not None and root.storage is not None and root.spare is not None
    operands = operands_of_routine(node)
    if root.value.size == 0:
        return
    count = prod(operands[0].shape[:-2])
    places = [(builder.memory_of(value), value.size // count) for value in operands]
    places.append((root.storage, root.value.size // count))
    number: Position = 0
    body = builder.scopes[-1].statements
    if count > 1:
        loop = For(Var(builder.fresh("i_"), 0, count - 1))
        body.append(loop)
        body, number = loop.body, affine(loop.var)
    starts = tuple([(buffer, number * size) for buffer, size in places])
    if MATRIX_ROUTINES[node.op.name].is_rectangular:
        extents = operands[0].shape[-2:]
    else:
        extents = (operands[0].shape[-1], *[value.shape[-1] for value in operands[1:]])
    sizes = (*extents, *[node.params[name] for name in sorted(node.params)])
    multiplications = multiplications_of(node.op.name, sizes)
    body.append(RoutineCall(node.op.name, (*starts, (root.spare, 0)), sizes, "lapack", multiplications))
