"""Batches of loops and branches: one loop for all elements of a mapped axis.

Where elements take different numbers of turns, the loop turns as long as one of them does, and the others keep what they have. What a
turn computes for those that are done is thrown away, and may be anything; so that no derivative of it is infinite (a factor of
zero would make it NaN), they take the numbers of one that is not done, unless no formula in the turn has infinite derivatives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from gradtape.ir.graph import Node, Value, extract, literal
from gradtape.ir.primitives import PRIMITIVES
from gradtape.ir.types import BOOL, INT64, INTP, aval
from gradtape.kinds.batching import Shared, in_front
from gradtape.kinds.contract import Contract
from gradtape.kinds.registry import ROWS
from gradtape.transforms.loops.branches import select
from gradtape.transforms.loops.draft import Carry, Draft, Given, Loop, Outcome, emitted, substituted
from gradtape.transforms.loops.licm import TAME
from gradtape.transforms.loops.ops import Repeat, Scan, Switch, While

Batch: TypeAlias = Callable[[Sequence[Value], Mapping[Value, Value], int], list[Value | Shared]]
"""``(outputs for one element, all elements of what is mapped, size)`` to the outputs for all elements."""

Result: TypeAlias = tuple[Value | Shared, ...]


def batch_loop(
    op: Loop, node: Node, operands: Sequence[Value], mapped: Sequence[bool], size: int, batch: Batch
) -> Result:
    """Return the outputs of a loop for every element of the mapped axis."""
    lanes = _Lanes(op, node, operands, mapped, size, batch)
    if isinstance(op, While) and lanes.exits_apart():
        return lanes.turned_until_all_are_done()
    if isinstance(op, Repeat) and mapped[0]:
        return lanes.turned_as_often_as_the_longest(operands[0])
    return lanes.together()


class _Lanes:
    """A loop for one element, and what it is for all of them."""

    def __init__(
        self,
        op: Loop,
        node: Node,
        operands: Sequence[Value],
        mapped: Sequence[bool],
        size: int,
        batch: Batch,
    ) -> None:
        self._op = op
        self._size = size
        self._batch = batch
        self._draft = draft = op.opened(node)
        self._count = None if draft.count is None else operands[0]
        consts, starts, elements = draft.split(mapped)
        self._outside = draft.split(operands)
        self._flags = (consts, starts, elements)
        self._inside = {
            given.inside: self._many(given.inside)
            for given, flag in zip(draft.operands, (*consts, *starts, *elements), strict=True)
            if flag
        }
        self._spread()

    def _many(self, value: Value) -> Value:
        return Value(aval((self._size, *value.shape), value.dtype))

    def _spread(self) -> None:
        """Find the carries that differ between elements sooner or later."""
        carries = self._draft.carries
        while True:  # ends: each round but the last finds a carry more that differs
            afters = self._batch([carry.after for carry in carries], self._inside, self._size)
            woken = [
                carry.inside
                for carry, after in zip(carries, afters, strict=True)
                if isinstance(after, Value) and carry.inside not in self._inside
            ]
            if not woken:
                return
            self._inside.update({inside: self._many(inside) for inside in woken})

    def _for_all(self, value: Value, known: Mapping[Value, Value]) -> Value:
        (result,) = self._batch([value], known, self._size)
        return result if isinstance(result, Value) else in_front(result.value, self._size)

    def exits_apart(self) -> bool:
        """Return whether the condition differs between elements."""
        assert self._draft.test is not None
        (test,) = self._batch([self._draft.test], self._inside, self._size)
        return isinstance(test, Value)

    def together(self) -> Result:
        """Return the results where each element takes as many turns."""
        draft = self._draft
        results = self._batch(draft.ends, self._inside, self._size)
        loop = self._empty(draft.index)
        loop.count = self._count
        for carry, start, after, flag in zip(
            draft.carries, self._outside[1], results, self._flags[1], strict=False
        ):
            if carry.inside in self._inside:
                first = start if flag else in_front(start, self._size)
                then = after if isinstance(after, Value) else in_front(after.value, self._size)
                loop.carries.append(Carry(first, self._inside[carry.inside], then))
            else:
                assert isinstance(after, Shared)
                loop.carries.append(Carry(start, carry.inside, after.value))
        count = len(draft.carries)
        left = results[count : count + len(draft.left)]
        loop.left = [_value(each) for each in left]
        if draft.test is not None:
            loop.test = _value(results[-1])
        outcome = loop.emit()
        ends = [
            end if carry.inside in self._inside else Shared(end)
            for end, carry in zip(outcome.carries, draft.carries, strict=True)
        ]
        return self._arranged(ends, left, outcome)

    def _arranged(
        self, ends: Sequence[Value | Shared], left: Sequence[Value | Shared], outcome: Outcome
    ) -> Result:
        """Return the results in the order of the node's outputs."""
        stacks: list[Any] = []
        for stack, inside in zip(outcome.left, left, strict=False):
            if isinstance(inside, Shared):
                stacks.append(Shared(stack))
            else:
                stacks.append(_swapped(stack) if isinstance(self._op, Scan) else stack)
        count = [] if outcome.turns is None else [Shared(outcome.turns)]
        return (*ends, *count, *stacks)

    def _empty(self, index: Value) -> Draft:
        """Return the loop with what it reads, but for the carries."""
        draft = self._draft
        loop = Draft(self._op, draft.params, index)
        for given, outside in zip(draft.consts, self._outside[0], strict=True):
            loop.consts.append(Given(outside, self._inside.get(given.inside, given.inside)))
        for given, outside, flag in zip(draft.elements, self._outside[2], self._flags[2], strict=True):
            turned = _swapped(outside) if flag and isinstance(self._op, Scan) else outside
            loop.elements.append(Given(turned, self._inside.get(given.inside, given.inside)))
        return loop

    def _mapped_apart(self) -> None:
        """Let all carries differ between elements: they stop at different turns."""
        for carry in self._draft.carries:
            self._inside.setdefault(carry.inside, self._many(carry.inside))

    def _starts(self) -> list[Value]:
        return [
            start if flag else in_front(start, self._size)
            for start, flag in zip(self._outside[1], self._flags[1], strict=True)
        ]

    def turned_until_all_are_done(self) -> Result:
        """Return the results of a `while_loop` of which the elements take different numbers of turns."""
        draft = self._draft
        self._mapped_apart()
        assert draft.test is not None
        lanes = aval((self._size,), BOOL)
        active, turns = Value(lanes), Value(aval((self._size,), INT64))
        next_, left = self._turn(active)
        (then,) = substituted([draft.test], {draft.index: draft.index + 1})
        carried = {carry.inside: after for carry, after in zip(draft.carries, next_, strict=True)}
        goes_on = active & self._for_all(then, {**self._inside, **carried})
        loop = self._empty(draft.index)
        loop.test = ROWS["reduce_any"](active, axes=(0,))  # type: ignore[operator]
        zeros = PRIMITIVES["expand"](literal(0, INT64), (self._size,), ())
        loop.carries = [
            Carry(self._first_test(), active, goes_on),
            Carry(zeros, turns, turns + PRIMITIVES["convert"](active, INT64)),
            *[
                Carry(start, self._inside[carry.inside], after)
                for start, carry, after in zip(self._starts(), draft.carries, next_, strict=True)
            ],
        ]
        loop.left = [_value(each) for each in left]
        outcome = loop.emit()
        _, count, *ends = outcome.carries
        stacks = [
            Shared(stack) if isinstance(inside, Shared) else stack
            for stack, inside in zip(outcome.left, left, strict=True)
        ]
        return (*ends, count, *stacks)

    def _first_test(self) -> Value:
        """Return which elements take a turn at all."""
        draft = self._draft
        assert draft.test is not None
        consts, starts = zip(draft.consts, self._outside[0], strict=True), self._starts()
        outside: dict[Value, Value] = {draft.index: literal(0, INT64)}
        known: dict[Value, Value] = {}
        for given, operand in consts:
            (known if given.inside in self._inside else outside)[given.inside] = operand
        known.update({carry.inside: start for carry, start in zip(draft.carries, starts, strict=True)})
        (test,) = substituted([draft.test], outside)
        return self._for_all(test, known)

    def turned_as_often_as_the_longest(self, counts: Value) -> Result:
        """Return the results of a `repeat` of which the elements take different numbers of turns."""
        draft = self._draft
        self._mapped_apart()
        limits = Value(counts.aval)
        active = PRIMITIVES["less"](PRIMITIVES["expand"](draft.index, (self._size,), ()), limits)
        next_, left = self._turn(active)
        loop = self._empty(draft.index)
        longest = ROWS["reduce_max"](counts, axes=(0,)) if self._size else literal(0, INT64)  # type: ignore[operator]
        loop.count = longest
        loop.consts.append(Given(counts, limits))
        loop.carries = [
            Carry(start, self._inside[carry.inside], after)
            for start, carry, after in zip(self._starts(), draft.carries, next_, strict=True)
        ]
        loop.left = [_value(each) for each in left]
        outcome = loop.emit()
        stacks = [
            Shared(stack) if isinstance(inside, Shared) else stack
            for stack, inside in zip(outcome.left, left, strict=True)
        ]
        return (*outcome.carries, *stacks)

    def _turn(self, active: Value) -> tuple[list[Value], list[Value | Shared]]:
        """Return the carries after a turn that only active elements take, and what the turn leaves behind."""
        draft = self._draft
        work = [*[carry.after for carry in draft.carries], *draft.left]
        known = self._inside
        if not _is_tame(work, draft.insides):
            known = {single: among(active, many) for single, many in known.items()}
        results = self._batch(work, known, self._size)
        nexts = []
        for carry, result in zip(draft.carries, results, strict=False):
            after = result if isinstance(result, Value) else in_front(result.value, self._size)
            nexts.append(chosen(active, after, self._inside[carry.inside]))
        return nexts, results[len(nexts) :]


def batch_switch(
    op: Switch, node: Node, operands: Sequence[Value], mapped: Sequence[bool], size: int, batch: Batch
) -> Result:
    """Return the outputs of a branch for every element of the mapped axis."""
    branches = node.params["branches"]
    inputs, results = [], []
    for branch in branches:
        many = [
            Value(aval((size, *single.shape), single.dtype)) if flag else single
            for single, flag in zip(branch.inputs, mapped[1:], strict=True)
        ]
        inputs.append(many)
        moved = {single: x for single, x, flag in zip(branch.inputs, many, mapped[1:], strict=True) if flag}
        results.append(batch(branch.outputs, moved, size))
    if mapped[0]:
        return _by_element(node, operands, mapped, size, inputs, results)
    shared = [all(isinstance(out, Shared) for out in column) for column in zip(*results, strict=True)]
    outputs = [
        [
            _value(out) if same or isinstance(out, Value) else in_front(out.value, size)
            for out, same in zip(result, shared, strict=True)
        ]
        for result in results
    ]
    outs = select(op, operands[0], operands[1:], inputs, outputs)
    return tuple([Shared(out) if same else out for out, same in zip(outs, shared, strict=True)])


def _by_element(
    node: Node,
    operands: Sequence[Value],
    mapped: Sequence[bool],
    size: int,
    inputs: Sequence[Sequence[Value]],
    results: Sequence[Sequence[Value | Shared]],
) -> Result:
    """Compute each branch that some element takes, and select."""
    index, last = operands[0], len(results) - 1
    total: list[Value] = []
    for place in reversed(range(len(results))):
        wide = [out if isinstance(out, Value) else in_front(out.value, size) for out in results[place]]
        compare = "less_equal" if place == 0 else "greater_equal" if place == last else "equal"
        taken = PRIMITIVES[compare](index, literal(place, INT64))
        found = _taken(node.op, taken, operands[1:], mapped[1:], inputs[place], wide)
        total = found if place == last else [chosen(taken, *pair) for pair in zip(found, total, strict=True)]
    return tuple(total)


def _taken(
    op: Any,
    taken: Value,
    operands: Sequence[Value],
    mapped: Sequence[bool],
    stands: Sequence[Value],
    outputs: Sequence[Value],
) -> list[Value]:
    """Return what a branch comes to for those elements that take it, and anything for the others."""
    tame = _is_tame(outputs, stands)
    if tame and not any(isinstance(node.op, Contract) for node in extract(outputs, stands)[0]):
        return emitted(outputs, dict(zip(stands, operands, strict=True)))
    given = [
        among(taken, operand) if flag and not tame else operand
        for operand, flag in zip(operands, mapped, strict=True)
    ]
    nothing = [PRIMITIVES["zeros_like"](out) for out in outputs]
    some = PRIMITIVES["convert"](ROWS["reduce_any"](taken, axes=(0,)), INT64)  # type: ignore[operator]
    return list(select(op, some, given, [stands, stands], [nothing, outputs]))


def chosen(mask: Value, x: Value, y: Value) -> Value:
    """Return, for each element of the mapped axis, `x` or `y`."""
    wide = mask if x.ndim == 1 else PRIMITIVES["expand"](mask, x.shape, (0,))
    return PRIMITIVES["where"](wide, x, y)


def among(active: Value, x: Value) -> Value:
    """Return `x` in which elements of the mapped axis that are not active equal the first one that is."""
    if not x.shape[0]:
        return x
    first = ROWS["argmax"](PRIMITIVES["convert"](active, INTP), axes=(0,))  # type: ignore[operator]
    row = ROWS["gather"](x, PRIMITIVES["reshape"](first, (1,)))  # type: ignore[operator]
    return chosen(active, x, in_front(PRIMITIVES["reshape"](row, x.shape[1:]), x.shape[0]))


def _is_tame(outputs: Sequence[Value], inputs: Sequence[Value]) -> bool:
    """Return whether no derivative of the outputs of any order is infinite where the inputs are finite."""
    return all(node.op.name in TAME for node in extract(outputs, inputs)[0])


def _value(result: Value | Shared) -> Value:
    return result.value if isinstance(result, Shared) else result


def _swapped(x: Value) -> Value:
    """Return an array with the mapped axis and the loop's in the other order."""
    return PRIMITIVES["permute"](x, (1, 0, *range(2, x.ndim)))
