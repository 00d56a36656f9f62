"""Calls of routines: matrix products by BLAS, linear algebra by LAPACK, sorting."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Final, Literal

from gradtape.ir.graph import Node, Value
from gradtape.kinds.routines.callback import PythonCall, multiplications
from gradtape.kinds.routines.matrix import Matrix
from gradtape.kinds.sort import Sort
from gradtape.loops.affine import Affine, Atom, Position, Var, affine, flat, substitute
from gradtape.loops.ir import Buffer, For, Load, Register, RoutineCall, Store
from gradtape.lower.building.elements import ElementBuilder
from gradtape.lower.resident.callbacks import call_text
from gradtape.lower.schedule.element_interpreter import Where
from gradtape.lower.schedule.nests import LoopNest
from gradtape.lower.schedule.operands import operands_of_routine
from gradtape.lower.schedule.products import MatrixOperand, MatrixProduct
from gradtape.records import frozen_record
from gradtape.transforms.procedures.ops import ProcedureOp

COMPARISONS: Final = 40
"""Multiplications in the time of what it takes to sort or to look up an element."""

LONG: Final = 10**6
"""Multiplications in the time of a procedure: nobody knows."""


@frozen_record
class _Matrix:
    """An operand of a product in one iteration of the loops around it: its first element, and the stride of each subscript."""

    buffer: Buffer
    start: Position
    strides: dict[int, int]


def emit_product(builder: ElementBuilder, nest: LoopNest, values: Where) -> None:
    """Emit the matrix product of a nest, at a position of the loops around it."""
    node, product = nest.node, nest.product
    assert node is not None and product is not None
    at = {subscript: values[level] for subscript, level in nest.subscript_levels.items()}
    variables = {s: Var(f"s{s}", 0, max(product.extents[s] - 1, 1)) for s in node.params["out"]}
    result = MatrixOperand(nest.value, tuple([affine(v) for v in variables.values()]), variables, {})
    x, y, z = [_matrix_at(builder, operand, at) for operand in (product.x, product.y, result)]
    builder.emit(_gemm(product, x, y, z))


def _matrix_at(builder: ElementBuilder, operand: MatrixOperand, at: dict[int, Position]) -> _Matrix:
    base = operand.base
    nest = builder.nests.get(base)
    address = flat(operand.index, base.shape) if nest is None else builder.address(nest, operand.index)
    values: dict[Atom, Position] = {v: at.get(s, 0) for s, v in operand.variables.items()}
    strides = {
        s: address.terms.get(v, 0) if isinstance(address, Affine) else 0 for s, v in operand.variables.items()
    }
    return _Matrix(builder.memory_of(base), substitute(address, values), strides)


def _gemm(product: MatrixProduct, x: _Matrix, y: _Matrix, z: _Matrix) -> RoutineCall:
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


def emit_routine(builder: ElementBuilder, nest: LoopNest, values: Where) -> None:
    """Emit the calls of a routine: one for each matrix or row that it works on, in a loop where there are several."""
    node, storage = nest.node, builder.plan.storage[nest]
    assert node is not None and storage.workspace is not None
    if all(out.size == 0 for out in node.outs):
        return
    if isinstance(node.op, ProcedureOp):
        _emit_call(builder, node, node.op.name, node.op.whole(node.params), "procedure", LONG)
        return
    if isinstance(node.op, PythonCall):
        _emit_call(builder, node, node.params["row"], call_text(node), "python", multiplications(node))
        return
    operands, results = operands_of_routine(node), node.outs
    count, numbers = _calls(node, operands)
    statements = builder.scopes[-1].statements
    number: Position = 0
    if count > 1:
        loop = For(Var(builder.fresh("i_"), 0, count - 1))
        statements.append(loop)
        statements, number = loop.body, affine(loop.var)
    buffers = [builder.memory_of(value) for value in (*operands, *results)]
    sizes = [value.size // count for value in (*operands, *results)]
    places = [(buffer, number * size) for buffer, size in zip(buffers, sizes, strict=True)]
    if isinstance(node.op, Matrix):
        work = node.op.routine.multiplications(numbers)
    else:
        work = COMPARISONS * buffers[0].size
    looks_up = isinstance(node.op, Sort) and len(operands) > 1
    if not looks_up:
        places.append((storage.workspace, 0))
    if isinstance(node.op, Matrix):
        statements.append(RoutineCall(node.op.name, tuple(places), numbers, "lapack", work))
    else:
        statements.append(RoutineCall(node.op.name, tuple(places), numbers, "gradtape", work))


def _emit_call(
    builder: ElementBuilder,
    node: Node,
    name: str,
    what: object,
    library: Literal["procedure", "python"],
    work: int,
) -> None:
    """Emit the call of a procedure or of Python, which take numbers by address, too; what is around it may hold them in registers."""
    places: list[tuple[Buffer, int]] = []
    for value in node.inputs:
        if value.shape == ():
            number = builder.element(value, ())
            places.append((builder.new_scratch(value.dtype, 1), 0))
            builder.emit(Store(*places[-1], number))
        else:
            places.append(builder.place_of(value))
    made = [builder.new_scratch(x.dtype, 1) if x.shape == () else builder.memory_of(x) for x in node.outs]
    places += [(buffer, 0) for buffer in made]
    builder.emit(RoutineCall(name, tuple(places), (what,), library, work))
    for value, buffer in zip(node.outs, made, strict=True):
        if value.shape == ():
            number = Register(builder.fresh("s"), value.dtype)
            builder.emit(Load(number, buffer, 0))
            builder.emit(Store(builder.memory_of(value), 0, number))


def _calls(node: Node, operands: Sequence[Value]) -> tuple[int, tuple[Any, ...]]:
    """Return how often a routine is called, and the extents and options that it gets each time."""
    params = [node.params[name] for name in sorted(node.params)]
    shape = operands[0].shape
    if not isinstance(node.op, Matrix):
        if len(operands) > 1:  # the second one is looked up in the first
            return 1, (operands[0].size, operands[1].size, *params)
        return prod(shape[:-1]), (shape[-1],)
    if node.op.routine.is_rectangular:
        extents = shape[-2:]
    else:
        extents = (shape[-1], *[value.shape[-1] for value in operands[1:] if value.ndim == len(shape)])
    return prod(shape[:-2]), (*extents, *params)
