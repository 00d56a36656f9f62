"""Operands that must be in memory: those of routines, of loops and of branches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Sequence
from typing import Final

from gradtape.ir.graph import Graph, Literal, Node, Value
from gradtape.kinds.contract import Contract
from gradtape.kinds.control import Structured
from gradtape.kinds.elementwise import Elementwise
from gradtape.kinds.index_map import IndexMap
from gradtape.kinds.join import Join
from gradtape.kinds.routines.callback import PythonCall
from gradtape.kinds.routines.matrix import Matrix
from gradtape.kinds.sort import Sort
from gradtape.lower.schedule.outlined import is_outlined, outlined_operands
from gradtape.lower.schedule.products import MatrixProduct, plan_product
from gradtape.ops.core.shape import permute_row, reshape_row, slice_row, windows_row
from gradtape.passes.layout.contract_transposes import REUSED
from gradtape.records import frozen_record
from gradtape.transforms.kinks.extrema import compared_with_extrema
from gradtape.transforms.loops.ops import Repeat, Scan
from gradtape.transforms.procedures.ops import ProcedureOp


@frozen_record
class MemoryOperands:
    """The values that a graph needs in memory however it is scheduled.

    Attributes
    ----------
    products : dict of Node to MatrixProduct
        The contractions that are calls of BLAS.
    of_calls : set of Value
        What is made for routines alone, and what their operands are made of again and again.
    stored : set of Value
        All that must be stored.
    """

    products: dict[Node, MatrixProduct]
    of_calls: set[Value]
    stored: set[Value]


def memory_operands(graph: Graph, outline: bool) -> MemoryOperands:
    """Return what must be in memory; outlined loops read all of their operands from there."""
    products = {
        node: product
        for node in graph.nodes
        if isinstance(node.op, Contract) and (product := plan_product(node)) is not None
    }
    read = _read_by_calls(graph, products)
    of_calls = read | _transposed_leaves(read)
    return MemoryOperands(
        products,
        of_calls,
        of_calls
        | _packed_operands(graph)
        | _stencil_operands(graph)
        | _read_by_bodies(graph, outline)
        | compared_with_extrema(graph.nodes),
    )


def _read_by_calls(graph: Graph, products: dict[Node, MatrixProduct]) -> set[Value]:
    """Return the values that routines read and that would not be in memory otherwise."""
    needed: set[Value] = set()
    for node in graph.nodes:
        product = products.get(node)
        if product is None:
            needed.update(operands_of_routine(node))
        else:
            needed.update((product.x.base, product.y.base))
    return {
        value
        for value in needed
        if value.node is not None and isinstance(value.node.op, Elementwise | IndexMap | Join)
    }


def operands_of_routine(node: Node) -> Sequence[Value]:
    """Return the inputs whose numbers a routine reads."""
    if isinstance(node.op, Matrix):
        return [node.inputs[position] for position in node.op.reads]
    if isinstance(node.op, ProcedureOp | PythonCall):
        return [
            part_of(value)[0] for value in node.inputs if value.shape != ()
        ]  # numbers may be in registers
    return node.inputs if isinstance(node.op, Sort) else ()


def _transposed_leaves(operands: Iterable[Value]) -> set[Value]:
    """Return what operands of large products are computed from, again and again, and read across its rows: a transposed copy pays."""
    leaves: set[Value] = set()
    for operand in operands:
        stack = [operand]
        visited = set(stack)
        while stack:
            node = stack.pop().node
            if node is None or not isinstance(node.op, Elementwise | IndexMap):
                continue
            across = node.op is permute_row and node.params["axes"][-1] != node.out.ndim - 1
            if across and operand.size >= REUSED * node.out.size:
                leaves.add(node.out)
                continue
            fresh = [
                value for value in node.inputs if value not in visited and not isinstance(value, Literal)
            ]
            visited.update(fresh)
            stack.extend(fresh)
    return leaves


def _packed_operands(graph: Graph) -> set[Value]:
    """Return the transposed operands of contractions."""
    return {
        value
        for node in graph.nodes
        if isinstance(node.op, Contract)
        for value in node.inputs
        if value.node is not None and value.node.op is permute_row
    }


STENCIL: Final = 4
"""Parts of a padded array that are read from which a copy pays: each read would ask whether it is inside."""


def _stencil_operands(graph: Graph) -> set[Value]:
    """Return the padded, joined and gathered arrays of which many parts are read."""
    parts: Counter[Value] = Counter()
    for node in graph.nodes:
        if node.op in (slice_row, windows_row):
            parts[node.inputs[0]] += 1
    return {
        value
        for value, count in parts.items()
        if count >= STENCIL and value.node is not None and _asks_for_each_element(value.node)
    }


def _asks_for_each_element(node: Node) -> bool:
    """Whether it depends on the position where an element comes from, or what it is."""
    op = node.op
    return isinstance(op, Join) or (
        isinstance(op, IndexMap) and (op.inside is not None or len(node.inputs) > 1)
    )


def _read_by_bodies(graph: Graph, outline: bool) -> set[Value]:
    """Return the arrays that loops and branches read iteration by iteration; outlined loops read all in kernels of their own."""
    needed: set[Value] = set()
    for node in graph.nodes:
        if isinstance(node.op, Structured):
            read = outlined_operands(node) if outline and is_outlined(node) else _inputs_of_bodies(node)
            needed.update(part_of(value)[0] for value in read if value.shape != ())
    return {value for value in needed if value.node is not None and not isinstance(value, Literal)}


def _inputs_of_bodies(node: Node) -> Sequence[Value]:
    """Return the inputs of a node that its bodies read: all but the initial carries."""
    params = node.params
    if "carries" not in params:
        return node.inputs[1:]
    first = params["consts"] + isinstance(node.op, Repeat)
    elements = node.inputs[first + params["carries"] :] if isinstance(node.op, Scan | Repeat) else ()
    return (*node.inputs[:first], *elements)


def base_of_view(value: Value) -> Value:
    """Return the array that a value is a reshaped view of; a number may be in a register, which has no views."""
    while (
        value.node is not None
        and value.node.op is reshape_row
        and not isinstance(value.node.inputs[0], Literal)
        and value.node.inputs[0].shape != ()
    ):
        value = value.node.inputs[0]
    return value


def part_of(value: Value, stored: Container[Value] = ()) -> tuple[Value, int]:
    """Return the value of which a value is a contiguous part in memory, and the element at which it begins.

    What is in `stored` has memory of its own.
    """
    offset = 0
    while value not in stored and value.node is not None and not isinstance(value.node.inputs[0], Literal):
        node, source = value.node, value.node.inputs[0]
        if node.op is slice_row and _is_run(node):
            stride = 1
            for start, extent in zip(reversed(node.params["starts"]), reversed(source.shape), strict=True):
                offset += start * stride
                stride *= extent
        elif node.op is not reshape_row or source.shape == ():  # a number is in a register
            break
        value = source
    return value, offset


def _is_run(node: Node) -> bool:
    """Whether the elements of a slice are contiguous."""
    shape, full_shape = node.params["shape"], node.inputs[0].shape
    if any(stride != 1 for stride in node.params["strides"]) or 0 in shape:
        return False
    cut = [axis for axis, (extent, all_) in enumerate(zip(shape, full_shape, strict=True)) if extent != all_]
    return not cut or all(extent == 1 for extent in shape[: cut[-1]])
