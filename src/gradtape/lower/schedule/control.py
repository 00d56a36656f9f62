"""Loops over time and branches as roots: one that runs, and one for each of its results."""

from __future__ import annotations

from collections.abc import Sequence

from gradtape.ir.graph import Graph, Literal, Node, Value
from gradtape.kinds.control import Structured
from gradtape.loops.affine import Position
from gradtape.loops.ir import Buffer
from gradtape.lower.building.outlined import outside_of, stands_apart
from gradtape.lower.schedule.nests import Root, check_dtype, part_of
from gradtape.lower.schedule.storage import readers_of, reads_before
from gradtape.transforms.loops.ops import STACK, Repeat, Scan, While


def control_roots(node: Node) -> list[Root]:
    """Return the root that runs a node, and those of its results."""
    for value in (*node.inputs, *node.outs):
        if value.aval is STACK and isinstance(node.op, While | Repeat):
            continue
        check_dtype(value, node)
    outs = node.outs
    main = Root(outs[0], "control", (), (), node)
    results = [
        Root(out, "result", (), (), node, main=main, stored_axes=tuple(range(out.ndim))) for out in outs
    ]
    main.results = tuple(results)
    return [main, *results]


def operands_in_memory(graph: Graph, apart: bool) -> set[Value]:
    """Return the arrays that loops and branches read turn by turn, and that must be in memory for it.

    Loops `apart` read all in kernels of their own.
    """
    needed: set[Value] = set()
    for node in graph.nodes:
        if isinstance(node.op, Structured):
            read = outside_of(node) if apart and stands_apart(node) else read_in_turns(node)
            needed.update(part_of(value)[0] for value in read if value.shape != ())
    return {value for value in needed if value.node is not None and not isinstance(value, Literal)}


def read_in_turns(node: Node) -> Sequence[Value]:
    """Return the inputs of a node that its bodies read: all but the initial carries."""
    params = node.params
    if "carries" not in params:
        return node.inputs[1:]
    first = params["consts"] + isinstance(node.op, Repeat)
    rest = node.inputs[first + params["carries"] :] if isinstance(node.op, Scan | Repeat) else ()
    return (*node.inputs[:first], *rest)


def share_carry(held: Root, own: Buffer, roots: Sequence[Root]) -> None:
    """Let what a loop carries be replaced in place, if each element is read before it is written."""
    held.stored_axes = tuple(range(held.value.ndim))
    if held.storage is held.following:
        return
    writers = [root for root in roots if root.storage is held.following]
    readers = readers_of(roots).get(held, ())
    if all(_keeps(reader, held, writer, readers) for reader in readers for writer in writers):
        held.storage = held.following
    else:
        held.storage = own


def _keeps(reader: Root, held: Root, writer: Root, readers: Sequence[Root]) -> bool:
    """Whether a reader has read what it needs before `writer` overwrites it.

    An element that one root of a loop has read is at hand for the others.
    """
    if reader is not writer and reads_before(reader, held, writer):
        return True
    if reader.block is not writer.block or not _in_step(reader, held, writer):
        return False
    return any(
        other.block is writer.block and other.rank <= writer.rank and _in_step(other, held, writer)
        for other in readers
    )


def _in_step(reader: Root, held: Root, writer: Root) -> bool:
    """Whether a root reads in each turn of the loops that it shares the element that the writer replaces in this turn."""
    if writer.kind != "each" or reader.kind not in ("each", "reduce") or reader.path != writer.path:
        return False
    own = _levels(writer.result_index(writer.variables), writer)
    return all(_levels(position, reader) == own for position in reader.reads[held])


def _levels(index: tuple[Position, ...], root: Root) -> list[tuple[str, int | Position]]:
    """Return which loop each position of an index follows; for one that follows none, itself."""
    levels: list[tuple[str, int | Position]] = []
    for position in index:
        found = [k for k, variable in enumerate(root.variables) if position == variable]
        follows = bool(found) and not isinstance(position, int)
        levels.append(("loop", found[0]) if follows else ("position", position))
    return levels
