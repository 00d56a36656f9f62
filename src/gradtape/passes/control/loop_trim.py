"""Loops that do no more than what is asked of them: nothing carried that nobody reads, nothing that is known passed in."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from gradtape.ir.graph import Graph, Literal, Node, Value, extract
from gradtape.ir.primitives import PRIMITIVES
from gradtape.passes.control.equal_carries import Classes, United, source_key
from gradtape.passes.rewrite import rewrite
from gradtape.passes.simplify.fold import repeated_number
from gradtape.transforms.loops.batch_before_loop import lifted
from gradtape.transforms.loops.branches import select
from gradtape.transforms.loops.draft import Given, Loop, Outcome, stand_in, substituted
from gradtape.transforms.loops.licm import hoisted
from gradtape.transforms.loops.ops import Scan, Switch


def trim_loops(graph: Graph) -> Graph:
    """Return the graph in which loops and branches pass, carry and leave behind only what somebody reads."""
    used = {value for node in graph.nodes for value in node.inputs}
    used.update(graph.outputs, [value for value, _ in graph.guards])
    return rewrite(graph, lambda node, inputs: _trimmed(node, inputs, used))


def hoist_invariants(graph: Graph) -> Graph:
    """Return the graph in which no turn computes what is the same in each, nor what all turns can compute at once."""

    def rule(node: Node, inputs: tuple[Value, ...]) -> Sequence[Value] | None:
        if not isinstance(node.op, Loop):
            return None
        draft = node.op.opened(node.copy(inputs))
        better = hoisted(draft) or draft
        better = lifted(better) or better
        return None if better is draft else node.op.outs(better.emit())

    return rewrite(graph, rule)


def _trimmed(node: Node, inputs: tuple[Value, ...], used: Collection[Value]) -> Sequence[Value] | None:
    flags = [out in used for out in node.outs]
    if isinstance(node.op, Loop):
        return _Trim(node.op, node.copy(inputs), flags).outs()
    if isinstance(node.op, Switch):
        return _trimmed_switch(node, inputs, flags)
    return None


class _Trim:
    """A loop whose outputs are used where `flags` says so."""

    def __init__(self, op: Loop, node: Node, flags: Sequence[bool]) -> None:
        self._op = op
        self._node = node
        self._draft = draft = op.opened(node)
        carries, left, _ = op.parted(flags, len(draft.carries))
        self._used = [place for place, flag in enumerate(carries) if flag]
        self._used_left = [place for place, flag in enumerate(left) if flag]

    def outs(self) -> Sequence[Value] | None:
        """Return the outputs from a smaller loop; None where there is none."""
        before = self._node
        self._fold_givens()
        lasting = self._settle_carries()
        places = self._drop_dead(lasting)
        outside = self._read_outside(places)
        classes = Classes(self._draft)
        united = United(self._draft, classes)
        loop = united.draft
        if not loop.carries and not loop.left and loop.test is None:
            ends, stacks = [], []
            turns = None
        else:
            outcome = (hoisted(loop) or loop).emit()
            if _is_same(outcome, before):
                return None
            ends = [outcome.carries[place] for place in united.carries]
            stacks = [outcome.left[place] for place in united.left]
            turns = outcome.turns
        found = {**dict(zip(places, ends, strict=True)), **lasting}
        carries = [found.get(place) for place in range(before.params["carries"])]
        more = iter(stacks)
        left = [
            outside[place] if place in outside else next(more) if place in self._used_left else None
            for place in range(self._count_left())
        ]
        arranged = self._op.arranged(carries, left, turns)
        return [old if new is None else new for old, new in zip(before.outs, arranged, strict=True)]

    def _count_left(self) -> int:
        body: Any = self._node.params["body"]
        return len(body.outputs) - int(self._node.params["carries"])

    def _substitute(self, becomes: dict[Value, Value]) -> None:
        draft = self._draft
        if not becomes:
            return
        ends = substituted(draft.ends, becomes)
        count = len(draft.carries)
        draft.carries = [
            carry._replace(after=after) for carry, after in zip(draft.carries, ends, strict=False)
        ]
        draft.left = ends[count : count + len(draft.left)]
        draft.test = None if draft.test is None else ends[-1]

    def _fold_givens(self) -> None:
        """Let a turn know numbers, and what is the same for all turns."""
        draft = self._draft
        becomes: dict[Value, Value] = {}
        if isinstance(self._op, Scan):
            elements = draft.elements
            draft.elements = []
            for given in elements:
                const = _repeated_along(given.outside)
                if const is None:
                    draft.elements.append(given)
                else:
                    outside, shape, axes = const
                    inside = outside if isinstance(outside, Literal) else stand_in(outside)
                    if inside is not outside:
                        draft.consts.append(Given(outside, inside))
                    becomes[given.inside] = PRIMITIVES["expand"](inside, shape, axes)
        self._substitute(becomes)  # before the next, which may know the numbers of what was put in
        becomes = {}
        consts = draft.consts
        draft.consts = []
        for given in consts:
            number = repeated_number(given.outside)
            if number is None:
                draft.consts.append(given)
            else:
                becomes[given.inside] = PRIMITIVES["expand"](number, given.inside.shape, ())
        self._substitute(becomes)

    def _settle_carries(self) -> dict[int, Value]:
        """Take out carries that never change; return what they are."""
        draft = self._draft
        lasting: dict[int, Value] = {}
        places = list(range(len(draft.carries)))
        while True:  # ends: each round but the last takes out a carry
            outside = {given.inside: _number_key(given.outside) for given in draft.consts}
            settled = {
                place: carry
                for place, carry in zip(places, draft.carries, strict=True)
                if carry.after is carry.inside
                or outside.get(carry.after, _number_key(carry.after)) == _number_key(carry.start)
            }
            if not settled:
                self._places = places
                return lasting
            draft.carries = [
                carry for place, carry in zip(places, draft.carries, strict=True) if place not in settled
            ]
            places = [place for place in places if place not in settled]
            becomes: dict[Value, Value] = {}
            for place, carry in settled.items():
                lasting[place] = carry.start
                number = repeated_number(carry.start)
                if number is None:
                    draft.consts.append(Given(carry.start, carry.inside))
                else:
                    becomes[carry.inside] = PRIMITIVES["expand"](number, carry.inside.shape, ())
            self._substitute(becomes)

    def _drop_dead(self, lasting: Collection[int]) -> list[int]:
        """Keep only carries that a result needs; return which of the node's these are."""
        draft = self._draft
        draft.left = [draft.left[place] for place in self._used_left]
        live = {place for place in self._used if place not in lasting}
        by_place = dict(zip(self._places, draft.carries, strict=True))
        roots = [*draft.left, *([] if draft.test is None else [draft.test])]
        insides = draft.insides
        while True:  # ends: each round but the last finds another live carry
            ends = [*roots, *[by_place[place].after for place in live]]
            nodes, _ = extract(ends, insides)
            read = {value for node in nodes for value in node.inputs}.union(ends)
            woken = {place for place, carry in by_place.items() if carry.inside in read} - live
            if not woken:
                break
            live |= woken
        kept = [place for place in self._places if place in live]
        draft.carries = [by_place[place] for place in kept]
        return kept

    def _read_outside(self, kept: Sequence[int]) -> dict[int, Value]:
        """Return the stacks of what each turn hands through as it was given."""
        draft = self._draft
        if not isinstance(self._op, Scan):
            return {}
        arrays = {given.inside: given.outside for given in draft.elements}
        consts = {given.inside: given.outside for given in draft.consts}
        length = draft.params["length"]
        found: dict[int, Value] = {}
        left = []
        for place, value in zip(self._used_left, draft.left, strict=True):
            number = repeated_number(value)
            if value in arrays:
                found[place] = arrays[value]
            elif number is not None:
                found[place] = PRIMITIVES["expand"](number, (length, *value.shape), ())
            elif value in consts:
                axes = tuple(range(1, value.ndim + 1))
                found[place] = PRIMITIVES["expand"](consts[value], (length, *value.shape), axes)
            else:
                left.append(value)
        draft.left = left
        return found


def _number_key(value: Value) -> Any:
    number = repeated_number(value)
    return source_key(value) if number is None else (source_key(number), value.shape)


def _is_same(outcome: Outcome, node: Node) -> bool:
    """Return whether a loop is what it was; one that carries nothing may still count its turns."""
    new = next(
        (value for value in (*outcome.carries, *outcome.left, outcome.turns) if value is not None), None
    )
    return (
        new is not None
        and new.node is not None
        and new.node.inputs == node.inputs
        and new.node.params == node.params
    )


def _repeated_along(array: Value) -> tuple[Value, tuple[int, ...], tuple[int, ...]] | None:
    """Return what each element along the leading axis is an expansion of, where all are the same."""
    node = array.node
    if node is None or node.op.name != "expand" or 0 in node.params["axes"]:
        return None
    return node.inputs[0], array.shape[1:], tuple(axis - 1 for axis in node.params["axes"])


def _trimmed_switch(node: Node, inputs: tuple[Value, ...], flags: Sequence[bool]) -> Sequence[Value] | None:
    """Return the outputs that are used, from branches that know the numbers among their operands."""
    branches = node.params["branches"]
    numbers = [repeated_number(operand) for operand in inputs[1:]]
    if all(flags) and not any(number is not None for number in numbers):
        return None
    outputs = []
    for branch in branches:
        becomes = {
            inside: PRIMITIVES["expand"](number, inside.shape, ())
            for inside, number in zip(branch.inputs, numbers, strict=True)
            if number is not None
        }
        ends = [out for out, flag in zip(branch.outputs, flags, strict=True) if flag]
        outputs.append(substituted(ends, becomes))
    outs = iter(select(node.op, inputs[0], inputs[1:], [branch.inputs for branch in branches], outputs))
    return [next(outs) if flag else old for old, flag in zip(node.outs, flags, strict=True)]
