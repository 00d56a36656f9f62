"""Which roots need memory, how much of it, and which write into the memory of another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from gradtape.ir.body import Body
from gradtape.ir.graph import Node, Value
from gradtape.kinds.matrix import Matrix
from gradtape.loops.ir import Buffer
from gradtape.lower.building.outlined import stands_apart
from gradtape.lower.llvm.matrix import MATRIX_ROUTINES
from gradtape.lower.schedule.fusion import describe, shared_levels
from gradtape.lower.schedule.nests import Root, part_of
from gradtape.transforms.loops.ops import STACK, Repeat, Switch

IN_REGISTERS: Final = ("reduce", "contract", "argreduce", "each", "result")
"""Kinds of roots whose elements may be read from registers."""


def choose_in_place(
    roots: Sequence[Root],
    by_value: dict[Value, Root],
    explain: list[str],
    apart: bool,
    replaces: Callable[[Body, int, int], bool],
) -> None:
    """Let a scatter write into its base, and a loop into what it begins with, where nothing reads that after it."""
    scatters = [root for root in roots if root.kind == "scatter"]
    carried: dict[Root, Value] = {}
    for root in roots:
        initial = carried_from(root, apart, replaces) if root.kind == "result" else None
        if initial is not None:
            carried[root] = initial
    readers = readers_of(roots) if scatters or carried else {}
    for root in scatters:
        assert root.node is not None
        base = by_value.get(root.node.inputs[0])
        root.in_place_of = None
        if base is None or base.output is not None or base.kind == "guard" or base.value.shape == ():
            explain.append(f"{describe(root)} copies its base: it is read elsewhere")
            continue
        others = [reader for reader in readers.get(base, ()) if reader is not root]
        if all(reader.turn < root.turn for reader in others):
            root.in_place_of = base
            explain.append(f"{describe(root)} writes into its base, which nothing reads later")
        else:
            explain.append(f"{describe(root)} copies its base: it is read later")
    for root, initial in carried.items():
        root.in_place_of = _begins_in(root, initial, by_value, readers)
    for root in (*scatters, *carried):
        base = root.in_place_of
        last = _last(root, (*scatters, *carried))
        if base is not None and base.kind == "held" and last.output is not base.following:
            root.in_place_of = None


def carried_from(result: Root, apart: bool, replaces: Callable[[Body, int, int], bool]) -> Value | None:
    """Return what becomes a result if a loop makes no turn, or if no branch changes it; None where there is no such thing.

    Loops apart have memory of their own. `replaces` says whether a branch makes an output in the memory of an input.
    """
    node = result.node
    assert node is not None
    place = result.value.index
    if result.shape == () or (apart and stands_apart(node)):
        return None
    if isinstance(node.op, Switch):
        source = source_of(node, place, replaces)
        return None if source is None else node.inputs[1 + source]
    if place >= node.params["carries"]:
        return None
    consts: int = node.params["consts"]
    return node.inputs[isinstance(node.op, Repeat) + consts + place]


def source_of(node: Node, output: int, replaces: Callable[[Body, int, int], bool]) -> int | None:
    """Return the operand in whose memory all branches make an output."""
    made = node.outs[output]
    for place, value in enumerate(node.inputs[1:]):
        if (value.shape, value.dtype) == (made.shape, made.dtype) and all(
            replaces(branch, place, output) for branch in node.params["branches"]
        ):
            return place
    return None


def _begins_in(
    result: Root, initial: Value, by_value: dict[Value, Root], readers: dict[Root, list[Root]]
) -> Root | None:
    """Return the root in whose memory a loop may carry what becomes a result."""
    assert result.node is not None and result.main is not None
    base = by_value.get(initial)
    if base is None or base.output is not None or base.kind == "guard":
        return None
    if result not in readers and result.output is None:
        return None
    if sum(part_of(value)[0] is initial for value in result.node.inputs) > 1:
        return None
    others = [reader for reader in readers.get(base, ()) if reader is not result.main]
    return base if all(reader.turn < result.main.turn for reader in others) else None


def _last(root: Root, scatters: Sequence[Root]) -> Root:
    """Return the last of scatters that write into the same memory one after the other."""
    following = next((other for other in scatters if other.in_place_of is root), None)
    return root if following is None else _last(following, scatters)


def assign_storage(roots: Sequence[Root], explain: list[str], prefix: str = "") -> list[Buffer]:
    """Give each root that needs memory a buffer, and return the scratch buffers in the order of their
    first use."""
    scratch: list[Buffer] = []
    readers = readers_of(roots)
    for root in reversed(roots):
        heirs = [heir for reader in readers.get(root, ()) for heir in (reader, *reader.results)]
        successor = next((heir for heir in heirs if heir.in_place_of is root), None)
        if root.kind in ("guard", "control"):
            continue
        if root.kind == "routine":
            root.spare = Buffer(f"{prefix}w{len(scratch)}", root.value.dtype, spare_room(root), "scratch")
            scratch.append(root.spare)
        if successor is not None:
            root.storage, root.stored_axes = successor.storage, tuple(range(root.value.ndim))
            continue
        if root.kind == "result" and root not in readers and root.output is None:
            continue
        if root.output is not None and root.value.aval is not STACK:
            root.storage, root.stored_axes = root.output, tuple(range(root.value.ndim))
            continue
        if root.kind == "held":
            continue
        if root.value.aval is STACK:
            if root in readers:
                root.storage = stack_of(root, prefix)
            continue
        # Nobody reads elements of what has none, but bodies and routines are told where it stands.
        common = _common_levels(root, readers.get(root, ())) if root.value.size else 0
        if common is None:
            continue
        outside = {axis.position for axis in root.axes[:common]}
        root.stored_axes = tuple(k for k in range(root.value.ndim) if k not in outside)
        size = 1
        for axis in root.stored_axes:
            size *= root.shape[axis]
        root.storage = Buffer(f"{prefix}w{len(scratch)}", root.value.dtype, size, "scratch")
        called = any(reader.kind in ("blas", "routine") for reader in readers.get(root, ()))
        why = "a routine reads it from memory" if called else "it is read by another loop"
        explain.append(f"{describe(root)} is stored ({size} of {root.value.size} elements): {why}")
        scratch.append(root.storage)
    scratch.reverse()
    return scratch


def spare_room(root: Root) -> int:
    """Return how many elements a routine needs besides its operands and its result."""
    assert root.node is not None
    if isinstance(root.node.op, Matrix):
        return MATRIX_ROUTINES[root.node.op.name].spare(*root.node.inputs[0].shape[-2:])
    return root.shape[-1] if root.shape else 1


def share_outputs(roots: Sequence[Root], explain: list[str]) -> None:
    """Let a value live in the memory of the one that is made of it, element by element, when nothing else
    needs it any more."""
    kept = {id(root.storage) for root in roots if root.kind == "held"}
    heirs = [
        root
        for root in roots
        if root.kind == "each" and root.storage is not None and root.axes and id(root.storage) not in kept
    ]
    readers = readers_of(roots) if heirs else {}
    for heir in heirs:
        storage = heir.storage
        if heir.kind != "each" or storage is None or heir.in_place_of is not None or not heir.axes:
            continue
        for read, positions in heir.reads.items():
            old = read.storage
            if (
                old is None
                or old is storage
                or old.role != "scratch"
                or (old.size, old.dtype) != (storage.size, storage.dtype)
            ):
                continue
            whole = read.stored_axes == heir.stored_axes == tuple(range(heir.value.ndim))
            if not whole or read.turn >= heir.turn or positions != {heir.result_index(heir.variables)}:
                continue
            others = [reader for reader in readers[read] if reader is not heir]
            alone = not any(root is not read and root.storage is old for root in roots)
            if alone and all(reads_before(reader, read, heir) for reader in others):
                explain.append(
                    f"{describe(read)} lives in the memory of {describe(heir)}, which is made of it"
                )
                read.storage = storage
                break


def stack_of(root: Root, prefix: str) -> Buffer:
    """Return the memory of a stack: its size is that of one element."""
    assert root.node is not None
    body = root.node.params["body"]
    element = body.outputs[root.value.index - len(root.node.outs) + len(body.outputs)]
    return Buffer(f"{prefix}s{root.order}", element.dtype, element.size, "stack")


def reads_before(reader: Root, read: Root, heir: Root) -> bool:
    """Whether a reader has read an element before its heir overwrites it."""
    if reader.turn != heir.turn:
        return reader.turn < heir.turn
    in_step = reader.reads[read] == {reader.result_index(reader.variables)}
    return reader.block is heir.block and reader.rank < heir.rank and in_step


def _common_levels(root: Root, readers: Sequence[Root]) -> int | None:
    """Return how many loops all readers share with a root that they read from memory; None if registers
    suffice."""
    common: int | None = None
    for reader in readers:
        levels = shared_levels(root, reader)
        if root.kind in IN_REGISTERS and reader.kind != "routine" and _in_registers(root, reader, levels):
            continue
        common = levels if common is None else min(common, levels)
    if root.kind in ("scatter", "join", "routine") or (root.kind == "result" and root.shape != ()):
        return 0
    if root.kind == "blas":
        return min(root.first_reduced(), root.first_reduced() if common is None else common)
    partly = root.first_reduced() < root.trailing_reduced() and root.kind != "argreduce"
    if partly:
        own = root.first_reduced()
        return own if common is None else min(common, own)
    if root.kind == "scan" and not root.carries(len(root.axes) - 1):
        assert root.node is not None
        own = int(root.node.params["axis"])
        return own if common is None else min(common, own)
    return common


def _in_registers(root: Root, reader: Root, levels: int) -> bool:
    if any(axis.position is not None for axis in root.axes[levels:]):
        return False
    if root.first_reduced() < root.trailing_reduced():
        return False
    return all(
        position[axis.position] == reader.variables[level]
        for position in reader.reads[root]
        for level, axis in enumerate(root.axes[:levels])
        if axis.position is not None
    )


def readers_of(roots: Sequence[Root]) -> dict[Root, list[Root]]:
    """Return for each root the roots that read it."""
    readers: dict[Root, list[Root]] = {}
    for root in roots:
        for read in root.reads:
            readers.setdefault(read, []).append(root)
    return readers
