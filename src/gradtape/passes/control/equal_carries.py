"""Equal carries: loop-carried values that are equal in every iteration, found by induction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradtape.ir.budget import spend
from gradtape.ir.graph import Literal, Node, Value, extract
from gradtape.transforms.loops.draft import Carry, Draft, LoopOperand, substitute


class EqualCarries:
    """A value numbering of a loop's body: equal numbers, equal values.

    Carries with equal initial values are assumed to be equal until the body makes them differ, as in the minimisation of an automaton
    (E. F. Moore, 1956).

    Parameters
    ----------
    draft : Draft
        A loop.
    further : sequence of Value
        Further values of the body that are numbered.

    Attributes
    ----------
    carries : list of int
        The class of each carry.
    """

    def __init__(self, draft: Draft, further: Sequence[Value] = ()) -> None:
        self._draft = draft
        self._known: dict[Any, int] = {}
        self._nodes, _ = extract([*draft.body_outputs, *further], draft.body_inputs)
        self.carries = [self._number((source_key(carry.init), carry.inner.aval)) for carry in draft.carries]
        while True:  # terminates: each round but the last splits a class, and there are no more than carries
            self._values = self._numbered()
            finer = [
                self._number(("carry", class_, self.of(carry.next_carry)))
                for class_, carry in zip(self.carries, draft.carries, strict=True)
            ]
            if len(set(finer)) == len(set(self.carries)):
                return
            self.carries = finer

    def of(self, value: Value) -> int:
        """Return the number of a value of the body."""
        number = self._values.get(value)
        return self._number(source_key(value)) if number is None else number

    def _number(self, key: Any) -> int:
        return self._known.setdefault(key, len(self._known))

    def _numbered(self) -> dict[Value, int]:
        draft, number = self._draft, self._number
        spend(len(self._nodes))
        values = {draft.index: number("index")}
        for operand in draft.consts:
            values[operand.inner] = number(("const", source_key(operand.outer)))
        for operand in draft.elements:
            values[operand.inner] = number(("element", source_key(operand.outer)))
        for class_, carry in zip(self.carries, draft.carries, strict=True):
            values[carry.inner] = number(("before", class_))
        self._values = values
        for node in self._nodes:
            key = (node.op, tuple([self.of(value) for value in node.inputs]), _params_key(node))
            for index, out in enumerate(node.outs):
                values[out] = number((key, index))
        return values


def source_key(value: Value) -> Any:
    """Return a key that is equal for equal literals, and for the same value."""
    if isinstance(value, Literal) and value.data is not None:
        return value.data.dtype, value.data.tobytes()
    return value


def _params_key(node: Node) -> Any:
    key = tuple(sorted(node.params.items()))
    try:
        hash(key)
    except TypeError:  # a parameter that is an array
        return node
    return key


class MergedLoop:
    """A loop in which equal operands, carries and stacked outputs are merged.

    Attributes
    ----------
    draft : Draft
        The loop.
    carries, ys : list of int
        For each carry and each stacked output of the original loop, its position in the new one.
    """

    def __init__(self, old: Draft, classes: EqualCarries) -> None:
        becomes: dict[Value, Value] = {}
        self.draft = Draft(old.op, old.params, old.index, count=old.count)
        self.draft.consts = _without_duplicates(old.consts, becomes)
        self.draft.elements = _without_duplicates(old.elements, becomes)
        first: dict[int, int] = {}
        carries_kept: list[Carry] = []
        self.carries: list[int] = []
        for class_, carry in zip(classes.carries, old.carries, strict=True):
            if class_ in first:
                becomes[carry.inner] = carries_kept[first[class_]].inner
            else:
                first[class_] = len(carries_kept)
                carries_kept.append(carry)
            self.carries.append(first[class_])
        positions: dict[int, int] = {}
        ys: list[Value] = []
        self.ys: list[int] = []
        for value in old.ys:
            position = positions.setdefault(classes.of(value), len(ys))
            if position == len(ys):
                ys.append(value)
            self.ys.append(position)
        next_carries = substitute([carry.next_carry for carry in carries_kept], becomes)
        self.draft.carries = [
            carry._replace(next_carry=next_carry)
            for carry, next_carry in zip(carries_kept, next_carries, strict=True)
        ]
        self.draft.ys = substitute(ys, becomes)
        if old.test is not None:
            (self.draft.test,) = substitute([old.test], becomes)


def _without_duplicates(givens: list[LoopOperand], becomes: dict[Value, Value]) -> list[LoopOperand]:
    """Return operands without duplicates, and enter in `becomes` what the inner values of duplicates become."""
    first: dict[Any, LoopOperand] = {}
    for operand in givens:
        earlier = first.setdefault(source_key(operand.outer), operand)
        if earlier is not operand:
            becomes[operand.inner] = earlier.inner
    return list(first.values())
