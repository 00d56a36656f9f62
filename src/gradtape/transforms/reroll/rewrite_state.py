"""The state of the rewrite of a recording: the new nodes, and the replacements of old values."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

import numpy as np

from gradtape.ir.builder import at
from gradtape.ir.graph import Literal, Node, TraceTag, Value, constant, extract
from gradtape.ir.types import aval
from gradtape.kinds.index_map import IndexMap
from gradtape.kinds.join import Join
from gradtape.ops.core.join import join
from gradtape.ops.core.shape import expand_row, pad_row, permute, permute_row, reshape, reshape_row, slice_row
from gradtape.transforms.reroll.per_iteration import MAX_ELEMENTS, StackElement, picked_elements

REARRANGING: Final = frozenset({slice_row, reshape_row, permute_row})
"""Index maps that are applied to all elements of a stack at once."""

MAX_PIECES: Final = 8
"""Arrays from which a stack may be joined where its elements do not come from one array."""

MANY_TRIPS: Final = 32
"""Iterations from which a loop saves so much compile time that large arrays may be copied for it."""

MAX_ELEMENTS_OF_FEW: Final = 1 << 17
"""Elements of copied arrays at most in a loop of fewer iterations, which fuse into one nest as they stand: cubic interpolation at 200,000
points is a sum of 16 terms, and took 5 times as long as a loop over copies of their factors."""

MAX_INTERLEAVED: Final = 8
"""Stacks whose elements may alternate in a list."""


class NotRollable(Exception):
    """A loop cannot be rolled for this reason. It is `peelable` if the loop without its first iterations may be."""

    def __init__(self, reason: str, node: Node, *, peelable: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.node = node
        self.peelable = peelable


class RewriteState:
    """The nodes that replace those of a recording.

    Parameters
    ----------
    leaves : collection of Value
        Leaves that may be combined in one array.
    stacks : list of tuple
        Receives such arrays, each with the leaves that are its elements.
    stacking : set of Node
        Receives the nodes that make single values rows of stacks.

    Attributes
    ----------
    nodes : list of Node
        In order.
    """

    __slots__ = (
        "_constants",
        "_elements",
        "_leaves",
        "_listed",
        "_read",
        "_replaced",
        "_stacks",
        "nodes",
        "stacking",
    )

    def __init__(
        self,
        leaves: Collection[Value],
        stacks: list[tuple[Value, Sequence[Value]]],
        stacking: set[Node],
    ) -> None:
        self.nodes: list[Node] = []
        self.stacking = stacking
        self._leaves = leaves
        self._stacks = stacks
        self._replaced: dict[Value, Value] = {}
        self._elements: dict[Value, StackElement] = {}
        self._listed: set[Node] = set()
        self._constants: dict[Any, Value] = {}
        self._read: dict[Value, Value] = {}

    def begin(self, outside: Iterable[Value]) -> None:
        """Begin a new list of nodes; `outside` are the values that it reads and does not compute."""
        self.nodes = []
        self._listed = {value.node for value in outside if value.node is not None}

    def current(self, value: Value) -> Value:
        """Return the replacement of a value, which may be the proxy of an element of a stack."""
        replace = self._replaced
        while value in replace:
            value = replace[value]
        return value

    def replace(self, old: Value, new: Value) -> None:
        self._replaced[old] = new

    def replace_by_element(self, old: Value, stack: Value, index: int) -> None:
        """Replace a value by a proxy of an element of a stack."""
        proxy = Value(old.aval, tags=old.tags)
        self._elements[proxy] = StackElement(stack, index)
        self._replaced[old] = proxy

    def materialise(self, value: Value) -> Value:
        """Return a value, or for a proxy the element that is read from its stack."""
        element = self._elements.get(value)
        if element is None:
            return value
        stored = self._read.get(value)
        if stored is None:
            stored = self._read[value] = StackElement(self.current(element.stack), element.index).read()
            self.place([stored])
        return stored

    def append_recorded(self, node: Node) -> None:
        """Append a node of the recording, on the replacements of its inputs."""
        inputs = node.inputs
        replace = self._replaced
        if any(value in replace for value in inputs):
            inputs = tuple([replace.get(value, value) for value in inputs])
            element = self._elements.get(inputs[0])
            if element is not None and node.op in REARRANGING:
                self.replace_by_element(node.out, self._rearranged(element.stack, node), element.index)
                return
            if isinstance(node.op, Join) and len(inputs) > MAX_PIECES:
                joined = self._joined(inputs, node.params["axis"])
                if joined is not None:
                    self.place([joined])
                    self._replaced[node.out] = joined
                    return
            node = self._copy(node, inputs)
        self._append(node)

    def _rearranged(self, stack: Value, node: Node) -> Value:
        """Return a stack with an index map applied to each element."""
        op: IndexMap = node.op  # type: ignore[assignment]
        key = stack, op, tuple(node.params.items())
        rearranged = self._constants.get(key)
        if rearranged is None:
            with at(node.site):
                rearranged = op(stack, **op.lead(stack.shape[0], **node.params))
            self.place([rearranged])
            self._constants[key] = rearranged
        return rearranged

    def _copy(self, node: Node, inputs: tuple[Value, ...]) -> Node:
        copy = node.copy(inputs)
        for old, new in zip(node.outs, copy.outs, strict=True):
            new.tags = old.tags
            new.aval = old.aval
            self._replaced[old] = new
        copy.set_tags(node.tags)
        if node in self.stacking:
            self.stacking.add(copy)
        return copy

    def _append(self, node: Node) -> None:
        self.nodes.append(node)
        self._listed.add(node)

    def place(self, values: Iterable[Value]) -> None:
        """Append the nodes that compute new values, with the tags of their inputs."""
        listed = self._listed
        nodes, _ = extract(values, (), lambda value: value.node is None or value.node in listed)
        for node in nodes:
            tags: tuple[TraceTag, ...] = ()
            for value in node.inputs:
                tags = (*tags, *[tag for tag in value.tags if not tag.over and tag not in tags])
            for out in node.outs:
                out.tags = tags
            node.set_tags(tags)
            self._append(node)

    def materialise_all(self, outputs: Sequence[Value]) -> list[Value]:
        """Replace all proxies by the elements that they stand for; return the outputs."""
        if self._elements:
            nodes, self.nodes = self.nodes, []
            self._listed.difference_update(nodes)
            for node in nodes:
                if any(value in self._elements or value in self._replaced for value in node.inputs):
                    inputs = tuple([self.materialise(self.current(value)) for value in node.inputs])
                    node = self._copy(node, inputs)
                self._append(node)
        return [self.materialise(self.current(value)) for value in outputs]

    def constant_of(self, array: np.ndarray[Any, Any]) -> Value:
        """Return an array as a constant; equal arrays are one constant."""
        key = (array.dtype, array.shape, array.tobytes())
        shared = self._constants.get(key)
        if shared is None:
            shared = self._constants[key] = constant(array)
        return shared

    def stack(self, values: Sequence[Value], node: Node) -> Value:
        """Return the stack of these values.

        Raises
        ------
        NotRollable
            Where they differ in type, or are large arrays.
        """
        first = values[0].aval
        for value in values:
            if value.shape != first.shape or value.dtype != first.dtype:
                raise NotRollable("an input changes its type", node, peelable=True)
        if self._leaves and len(values) > MAX_PIECES and all(value in self._leaves for value in values):
            stack = Value(aval((len(values), *first.shape), first.dtype))
            self._stacks.append((stack, values))
            return stack
        pieces = self._pieces(values)
        if len(pieces) == 1:
            return pieces[0]
        most = MAX_ELEMENTS if len(values) >= MANY_TRIPS else MAX_ELEMENTS_OF_FEW
        if len(pieces) > MAX_PIECES and first.size * len(values) > most:
            raise NotRollable("each iteration reads another large array", node)
        return join(pieces, 0)

    def _pieces(self, values: Sequence[Value]) -> list[Value]:
        """Return stacks whose elements are these values, as few as possible."""
        pieces: list[Value] = []
        numbers: list[Any] = []
        for position, stack in self._runs(values):
            if stack is None and _is_number(values[position]):
                numbers.append(values[position].data)
                continue
            if numbers:
                pieces.append(self.constant_of(np.stack(numbers)))
                numbers = []
            if stack is None:
                value = values[position]
                array = literal_array(value) if isinstance(value, Literal) else value
                stack = reshape(array, (1, *value.shape))
                if stack.node is not None:
                    self.stacking.add(stack.node)
            pieces.append(stack)
        if numbers:
            pieces.append(self.constant_of(np.stack(numbers)))
        return pieces

    def _runs(self, values: Sequence[Value]) -> list[tuple[int, Value | None]]:
        """Return ``(position, stack)`` for each run of consecutive elements of stacks, and ``(position, None)`` for other values."""
        runs: list[tuple[int, Value | None]] = []
        elements = [self._elements.get(value) for value in values]
        position = 0
        while position < len(elements):
            element = elements[position]
            if element is None:
                runs.append((position, None))
                position += 1
                continue
            count = self._interleaving(elements, position)
            if count == 1:
                last = position
                while last < len(elements) and _stack_at(elements, last) is element.stack:
                    last += 1
                indices = [one.index for one in elements[position:last] if one is not None]
                runs.append((position, picked_elements(element.stack, indices)))
            else:
                last = position + count
                while last < len(elements) and _follows(elements[last - count], elements[last]):
                    last += 1
                last -= (last - position) % count
                columns = []
                for offset in range(count):
                    own_elements = elements[position + offset : last : count]
                    indices_of_own = [one.index for one in own_elements if one is not None]
                    stack = picked_elements(own_elements[0].stack, indices_of_own)  # type: ignore[union-attr]
                    columns.append(reshape(stack, (stack.shape[0], 1, *stack.shape[1:])))
                joined = join(columns, 1)
                runs.append((position, reshape(joined, (last - position, *joined.shape[2:]))))
            position = last
        return runs

    @staticmethod
    def _interleaving(elements: Sequence[StackElement | None], position: int) -> int:
        """Return how many stacks alternate regularly in a sequence of elements; 1 where there is no such order."""
        first = elements[position]
        for count in range(1, MAX_INTERLEAVED + 1):
            after = elements[position + count] if position + count < len(elements) else None
            if after is None:
                return 1
            if first is not None and after.stack is first.stack:
                return count if _follows(first, after) else 1
        return 1

    def _joined(self, inputs: Sequence[Value], axis: int) -> Value | None:
        """Return the join of elements of stacks without reading them one by one; None if no input is such an element."""
        pieces: list[Value] = []
        changed = False
        for position, stack in self._runs(inputs):
            if stack is None:
                pieces.append(inputs[position])
                continue
            shape = stack.shape[1:]
            front = contiguous(permute(stack, (*range(1, axis + 1), 0, *range(axis + 1, stack.ndim))))
            pieces.append(reshape(front, (*shape[:axis], stack.shape[0] * shape[axis], *shape[axis + 1 :])))
            changed = True
        if not changed:
            return None
        return pieces[0] if len(pieces) == 1 else join(pieces, axis)


def _stack_at(elements: Sequence[StackElement | None], position: int) -> Value | None:
    element = elements[position]
    return None if element is None else element.stack


def _follows(before: StackElement | None, after: StackElement | None) -> bool:
    """Return whether an element is the next one of the same stack."""
    return (
        before is not None
        and after is not None
        and after.stack is before.stack
        and after.index == before.index + 1
    )


def contiguous(x: Value) -> Value:
    """Return `x` contiguous, as a join returns it: NumPy's sums depend on the order in memory."""
    return (
        x
        if not x.node or x.node.op is not permute_row
        else pad_row(x, shape=x.shape, starts=(0,) * x.ndim, strides=(1,) * x.ndim)
    )


def literal_array(value: Literal) -> Value:
    """Return a number as an array of rank 0."""
    return expand_row(value, shape=(), axes=())


def filled(value: Literal, like: Value) -> Value:
    """Return a number as an array of this type."""
    assert value.data is not None
    constant_of = Literal(aval((), like.dtype), data=value.data.astype(like.dtype))
    return expand_row(constant_of, shape=like.shape, axes=())


def _is_number(value: Value) -> bool:
    if value.data is None or value.node is not None or value.tags:
        return False
    return isinstance(value, Literal) or value.owner is None or value.owner() is None
