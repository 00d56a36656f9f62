"""Storage assignment: which values need memory, how much of it, and which are written into the memory of another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Final, TypeAlias

from gradtape.ir.body import Body
from gradtape.ir.graph import Node, Value
from gradtape.kinds.routines.callback import PythonCall
from gradtape.kinds.routines.matrix import Matrix
from gradtape.loops.affine import Position
from gradtape.loops.ir import Buffer
from gradtape.lower.schedule.access import Accesses, readers_of
from gradtape.lower.schedule.fusion import Placements, shared_levels
from gradtape.lower.schedule.nests import LoopNest, Note, describe
from gradtape.lower.schedule.operands import part_of
from gradtape.lower.schedule.outlined import is_outlined
from gradtape.records import frozen_record
from gradtape.transforms.loops.checkpoint import IN_FILE
from gradtape.transforms.loops.ops import STACK, Repeat, Switch
from gradtape.transforms.procedures.ops import ProcedureOp

IN_REGISTERS: Final = ("reduce", "contract", "argreduce", "elementwise", "result")
"""Kinds of nests whose elements may be read from registers."""

Replaces: TypeAlias = Callable[[Body, int, int], bool]
"""Says whether a branch makes the output of a number in the memory of the input of a number."""


@frozen_record
class Storage:
    """Where the elements of a value are.

    Attributes
    ----------
    buffer : Buffer or None
        Its memory; None where registers suffice.
    axes : tuple of int
        The axes of the value that the memory has; the others are those of loops that all readers share.
    workspace : Buffer or None
        What a routine needs besides.
    in_place_of : LoopNest or None
        The nest whose value is overwritten.
    """

    buffer: Buffer | None = None
    axes: tuple[int, ...] = ()
    workspace: Buffer | None = None
    in_place_of: LoopNest | None = None


class StorageAssignment:
    """Assigns storage to the nests of a program.

    Parameters
    ----------
    nests : sequence of LoopNest
        In topological order.
    by_value : mapping of Value to LoopNest
        Which of them makes which value.
    accesses, placements : mapping
        What they read, and where they run.
    """

    def __init__(
        self,
        nests: Sequence[LoopNest],
        by_value: Mapping[Value, LoopNest],
        accesses: Accesses,
        placements: Placements,
    ) -> None:
        self.explain: list[Note] = []
        self.in_place: dict[LoopNest, LoopNest] = {}
        self._nests = nests
        self._by_value = by_value
        self._accesses = accesses
        self._placements = placements
        self._readers = readers_of(accesses)
        self._storage: dict[LoopNest, Storage] = {}

    # Updates in place

    def choose_in_place(self, outline: bool, replaces: Replaces) -> None:
        """Let a scatter write into its base, and a loop into what it begins with, where nothing reads that after it."""
        scatters = [nest for nest in self._nests if nest.kind == "scatter"]
        carried: dict[LoopNest, Value] = {}
        for nest in self._nests:
            initial = self._initial(nest, outline, replaces) if nest.kind == "result" else None
            if initial is not None:
                carried[nest] = initial
        for nest in scatters:
            self._choose_base(nest)
        for nest, initial in carried.items():
            base = self._begins_in(nest, initial)
            if base is not None:
                self.in_place[nest] = base
        updates = (*scatters, *carried)
        for nest in updates:
            base = self.in_place.get(nest)
            if (
                base is not None
                and base.kind == "carry"
                and self._last(nest, updates).output is not base.carried_to
            ):
                del self.in_place[nest]

    def _choose_base(self, nest: LoopNest) -> None:
        assert nest.node is not None
        base = self._by_value.get(nest.node.inputs[0])
        if base is None or base.output is not None or base.kind == "guard" or base.value.shape == ():
            self.explain.append(Note(nest, "copies its base: it is read elsewhere"))
            return
        others = [reader for reader in self._readers.get(base, ()) if reader is not nest]
        if all(self._step(reader) < self._step(nest) for reader in others):
            self.in_place[nest] = base
            self.explain.append(Note(nest, "writes into its base, which nothing reads later"))
        else:
            self.explain.append(Note(nest, "copies its base: it is read later"))

    def _step(self, nest: LoopNest) -> int:
        return self._placements[nest].step

    def _initial(self, result: LoopNest, outline: bool, replaces: Replaces) -> Value | None:
        """Return what becomes a result if a loop makes no iteration, or if no branch changes it; None where there is no such thing.

        Outlined loops have memory of their own.
        """
        node = result.node
        assert node is not None
        output_number = result.value.index
        if result.shape == () or (outline and is_outlined(node)):
            return None
        if isinstance(node.op, Switch):
            source = source_of(node, output_number, replaces)
            return None if source is None else node.inputs[1 + source]
        if output_number >= node.params["carries"]:
            return None
        consts: int = node.params["consts"]
        return node.inputs[isinstance(node.op, Repeat) + consts + output_number]

    def _begins_in(self, result: LoopNest, initial: Value) -> LoopNest | None:
        """Return the nest in whose memory a loop may carry what becomes a result."""
        control = result.maker
        assert result.node is not None and control is not None
        base = self._by_value.get(initial)
        if base is None or base.output is not None or base.kind == "guard":
            return None
        if result not in self._readers and result.output is None:
            return None
        if sum(part_of(value)[0] is initial for value in result.node.inputs) > 1:
            return None
        others = [reader for reader in self._readers.get(base, ()) if reader is not control]
        return base if all(self._step(reader) < self._step(control) for reader in others) else None

    def _last(self, nest: LoopNest, updates: Sequence[LoopNest]) -> LoopNest:
        """Return the last of the nests that write into the same memory one after the other."""
        following = next((other for other in updates if self.in_place.get(other) is nest), None)
        return nest if following is None else self._last(following, updates)

    def read_while_written(self) -> list[LoopNest]:
        """Return scatters in place whose operand reads the base while it is being written: the operand is to be stored first.

        Of several updates of the same memory, the first one is done in place.
        """
        scatters = []
        bases: set[LoopNest] = set()
        for nest in self._nests:
            base = self.in_place.get(nest)
            if base is None:
                continue
            if base in bases:
                del self.in_place[nest]
                continue
            bases.add(base)
            if nest.kind != "scatter":
                continue
            assert nest.node is not None
            access = self._accesses[nest]
            if not access.reads[base] - {access.base_index, access.target}:
                continue
            operand = self._by_value.get(nest.node.inputs[1])
            if operand is None:
                scatters.append(nest)
            elif operand is base:  # it is stored already, in the memory that would be overwritten
                del self.in_place[nest]
        return scatters

    # Memory

    def assign(
        self, carried: Mapping[Value, Buffer], prefix: str = ""
    ) -> tuple[dict[LoopNest, Storage], list[Buffer]]:
        """Return the storage of each nest, and the scratch buffers in the order of their first use.

        Parameters
        ----------
        carried : mapping of Value to Buffer
            The inputs that are loop-carried, and their own buffers.
        prefix : str
            What the names of buffers begin with.
        """
        scratch: list[Buffer] = []
        for nest in reversed(self._nests):
            self._storage[nest] = self._assigned(nest, scratch, prefix)
        scratch.reverse()
        for value, own_buffer in carried.items():
            self._share_carry(self._by_value[value], own_buffer)
        self._share_outputs()
        return self._storage, scratch

    def _assigned(self, nest: LoopNest, scratch: list[Buffer], prefix: str) -> Storage:
        """Return the storage of a nest; those of all later ones are known."""
        if nest.kind in ("guard", "control"):
            return Storage()
        in_place_of, axes = self.in_place.get(nest), tuple(range(nest.value.ndim))
        readers = self._readers.get(nest, ())
        heirs = [heir for reader in readers for heir in (reader, *self._results(reader))]
        heir = next((heir for heir in heirs if self.in_place.get(heir) is nest), None)
        workspace = None
        if nest.kind == "routine":
            workspace = Buffer(f"{prefix}w{len(scratch)}", nest.value.dtype, _workspace_size(nest), "scratch")
            scratch.append(workspace)
        if heir is not None:
            return Storage(self._storage[heir].buffer, axes, workspace, in_place_of)
        if nest.kind == "result" and not readers and nest.output is None:
            return Storage(None, axes, workspace, in_place_of)
        if nest.output is not None and nest.value.aval is not STACK:
            return Storage(nest.output, axes, workspace, in_place_of)
        if nest.kind == "carry":
            return Storage(None, axes)
        if nest.value.aval is STACK:
            return Storage(_stack_of(nest, prefix) if readers else None, axes)
        # An array without elements is never read, but bodies and routines need its address.
        common = self._common_levels(nest, readers) if nest.value.size else 0
        if common is None:
            return Storage(None, axes if nest.kind == "result" else (), workspace, in_place_of)
        outside = {axis.position for axis in nest.axes[:common]}
        axes = tuple([k for k in axes if k not in outside])
        size = prod([nest.shape[axis] for axis in axes])
        buffer = Buffer(f"{prefix}w{len(scratch)}", nest.value.dtype, size, "scratch", _is_in_file(nest))
        called = any(reader.kind in ("product", "routine") for reader in readers)
        why = "a routine reads it from memory" if called else "it is read by another loop"
        self.explain.append(Note(nest, f"is stored ({size} of {nest.value.size} elements): {why}"))
        scratch.append(buffer)
        return Storage(buffer, axes, workspace, in_place_of)

    def _results(self, nest: LoopNest) -> list[LoopNest]:
        """Return the results of a loop or a branch."""
        if nest.kind != "control":
            return []
        assert nest.node is not None
        return [self._by_value[out] for out in nest.node.outs]

    def _common_levels(self, nest: LoopNest, readers: Sequence[LoopNest]) -> int | None:
        """Return how many loops all readers share with a nest that they read from memory; None if registers suffice."""
        common: int | None = None
        for reader in readers:
            levels = shared_levels(self._placements[nest], self._placements[reader])
            if (
                nest.kind in IN_REGISTERS
                and reader.kind != "routine"
                and self._in_registers(nest, reader, levels)
            ):
                continue
            common = levels if common is None else min(common, levels)
        if nest.kind in ("scatter", "join", "routine", "part") or (
            nest.kind == "result" and nest.shape != ()
        ):
            return 0
        if nest.kind == "product":
            return min(nest.first_reduced(), nest.first_reduced() if common is None else common)
        partly = nest.first_reduced() < nest.trailing_reduced() and nest.kind != "argreduce"
        if partly:
            level = nest.first_reduced()
            return level if common is None else min(common, level)
        if nest.kind == "cumulative" and not nest.accumulates_along(len(nest.axes) - 1):
            assert nest.node is not None
            level = int(nest.node.params["axis"])
            return level if common is None else min(common, level)
        return common

    def _in_registers(self, nest: LoopNest, reader: LoopNest, levels: int) -> bool:
        """Whether a reader that shares so many loops reads what has just been computed in them."""
        if any(axis.position is not None for axis in nest.axes[levels:]):
            return False
        if nest.first_reduced() < nest.trailing_reduced():
            return False
        return all(
            position[axis.position] == reader.variables[level]
            for position in self._accesses[reader].reads[nest]
            for level, axis in enumerate(nest.axes[:levels])
            if axis.position is not None
        )

    # Memory that two values share

    def _share_carry(self, carry: LoopNest, own_buffer: Buffer) -> None:
        """Let a loop-carried value be replaced in place, if each element is read before it is written."""
        storage = self._storage[carry]
        if storage.buffer is carry.carried_to:
            return
        writers = [nest for nest, other in self._storage.items() if other.buffer is carry.carried_to]
        readers = self._readers.get(carry, ())
        keeps = all(self._keeps(reader, carry, writer, readers) for reader in readers for writer in writers)
        self._storage[carry] = Storage(carry.carried_to if keeps else own_buffer, storage.axes)

    def _keeps(
        self, reader: LoopNest, carry: LoopNest, writer: LoopNest, readers: Sequence[LoopNest]
    ) -> bool:
        """Whether a reader has read what it needs before `writer` overwrites it.

        An element that one nest of a loop has read is at hand for the others.
        """
        if reader is not writer and self._reads_before(reader, carry, writer):
            return True
        block, rank = self._placements[writer].block, self._placements[writer].rank
        if self._placements[reader].block is not block or not self._in_step(reader, carry, writer):
            return False
        return any(
            self._placements[other].block is block
            and self._placements[other].rank <= rank
            and self._in_step(other, carry, writer)
            for other in readers
        )

    def _in_step(self, reader: LoopNest, carry: LoopNest, writer: LoopNest) -> bool:
        """Whether a nest reads in each iteration of the loops that it shares the element that the writer replaces in this iteration."""
        if writer.kind != "elementwise" or reader.kind not in ("elementwise", "reduce"):
            return False
        if self._placements[reader].path != self._placements[writer].path:
            return False
        written_levels = _levels(writer.result_index(writer.variables), writer)
        return all(
            _levels(position, reader) == written_levels for position in self._accesses[reader].reads[carry]
        )

    def _share_outputs(self) -> None:
        """Let a value live in the memory of the one that is made of it, element by element, when nothing else needs it any more."""
        carry_buffers = {id(self._storage[nest].buffer) for nest in self._nests if nest.kind == "carry"}
        residents = Counter([id(storage.buffer) for storage in self._storage.values()])
        for heir in self._nests:
            storage = self._storage[heir]
            if heir.kind != "elementwise" or storage.buffer is None or not heir.axes:
                continue
            if id(storage.buffer) not in carry_buffers and storage.in_place_of is None:
                self._share_output(heir, storage.buffer, storage.axes, residents)

    def _share_output(
        self, heir: LoopNest, buffer: Buffer, axes: tuple[int, ...], residents: Counter[int]
    ) -> None:
        """Do so for one value; `residents` counts the values in each buffer."""
        all_axes = tuple(range(heir.value.ndim))
        for read, positions in self._accesses[heir].reads.items():
            storage = self._storage[read]
            old = storage.buffer
            if old is None or old is buffer or old.role != "scratch":
                continue
            if (old.size, old.dtype) != (buffer.size, buffer.dtype):
                continue
            if not storage.axes == axes == all_axes or self._step(read) >= self._step(heir):
                continue
            if positions != {heir.result_index(heir.variables)}:
                continue
            alone = residents[id(old)] == 1
            others = [reader for reader in self._readers[read] if reader is not heir]
            if alone and all(self._reads_before(reader, read, heir) for reader in others):
                self.explain.append(
                    Note(read, f"lives in the memory of {describe(heir)}, which is made of it")
                )
                self._storage[read] = Storage(buffer, storage.axes, storage.workspace, storage.in_place_of)
                residents[id(old)] -= 1
                residents[id(buffer)] += 1
                return

    def _reads_before(self, reader: LoopNest, read: LoopNest, heir: LoopNest) -> bool:
        """Whether a reader has read an element before its heir overwrites it."""
        mine, theirs = self._placements[reader], self._placements[heir]
        if mine.step != theirs.step:
            return mine.step < theirs.step
        in_step = self._accesses[reader].reads[read] == {reader.result_index(reader.variables)}
        return mine.block is theirs.block and mine.rank < theirs.rank and in_step


def source_of(node: Node, output: int, replaces: Replaces) -> int | None:
    """Return the operand in whose memory all branches make an output."""
    result = node.outs[output]
    for position, value in enumerate(node.inputs[1:]):
        if (value.shape, value.dtype) == (result.shape, result.dtype) and all(
            replaces(branch, position, output) for branch in node.params["branches"]
        ):
            return position
    return None


def _workspace_size(nest: LoopNest) -> int:
    """Return how many elements a routine needs besides its operands and its result."""
    assert nest.node is not None
    if isinstance(nest.node.op, Matrix):
        return nest.node.op.routine.spare(*nest.node.inputs[0].shape[-2:])
    if isinstance(nest.node.op, ProcedureOp | PythonCall):
        return 1
    return nest.shape[-1] if nest.shape else 1


def _stack_of(nest: LoopNest, prefix: str) -> Buffer:
    """Return the memory of a stack: its size is that of one element."""
    assert nest.node is not None
    body = nest.node.params["body"]
    element = body.outputs[nest.value.index - len(nest.node.outs) + len(body.outputs)]
    return Buffer(f"{prefix}s{nest.order}", element.dtype, element.size, "stack")


def _levels(index: tuple[Position, ...], nest: LoopNest) -> list[tuple[str, int | Position]]:
    """Return which loop each position of an index follows; for one that follows none, itself."""
    levels: list[tuple[str, int | Position]] = []
    for position in index:
        loop_numbers = [k for k, variable in enumerate(nest.variables) if position == variable]
        follows = bool(loop_numbers) and not isinstance(position, int)
        levels.append(("loop", loop_numbers[0]) if follows else ("position", position))
    return levels


def _is_in_file(nest: LoopNest) -> bool:
    """Return whether a value consists of the carries that a loop stores in a scratch file."""
    node = nest.node
    if node is None or nest.kind != "result" or node.params.get("policy") != IN_FILE:
        return False
    return bool(nest.value.index >= node.params["carries"])
