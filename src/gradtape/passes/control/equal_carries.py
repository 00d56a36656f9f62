"""Which carries of a loop are equal in every turn, by induction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradtape.ir.budget import spend
from gradtape.ir.graph import Literal, Node, Value, extract
from gradtape.transforms.loops.draft import Carry, Draft, Given, substituted


class Classes:
    """The values of a turn by number: equal numbers, equal values.

    Carries that start equal are taken to be equal until a turn tells them apart, as states of an automaton are (E. F. Moore, 1956).

    Parameters
    ----------
    draft : Draft
        A loop.
    further : sequence of Value
        What else of a turn is asked for.

    Attributes
    ----------
    carries : list of int
        The class of each carry.
    """

    def __init__(self, draft: Draft, further: Sequence[Value] = ()) -> None:
        self._draft = draft
        self._known: dict[Any, int] = {}
        self._nodes, _ = extract([*draft.ends, *further], draft.insides)
        self.carries = [self._number((source_key(carry.start), carry.inside.aval)) for carry in draft.carries]
        while (
            True
        ):  # ends: each round but the last tells more classes apart, and there are no more than carries
            self._values = self._numbered()
            finer = [
                self._number(("carry", class_, self.of(carry.after)))
                for class_, carry in zip(self.carries, draft.carries, strict=True)
            ]
            if len(set(finer)) == len(set(self.carries)):
                return
            self.carries = finer

    def of(self, value: Value) -> int:
        """Return the number of a value of a turn."""
        found = self._values.get(value)
        return self._number(source_key(value)) if found is None else found

    def _number(self, key: Any) -> int:
        return self._known.setdefault(key, len(self._known))

    def _numbered(self) -> dict[Value, int]:
        draft, number = self._draft, self._number
        spend(len(self._nodes))
        values = {draft.index: number("index")}
        for given in draft.consts:
            values[given.inside] = number(("const", source_key(given.outside)))
        for given in draft.elements:
            values[given.inside] = number(("element", source_key(given.outside)))
        for class_, carry in zip(self.carries, draft.carries, strict=True):
            values[carry.inside] = number(("before", class_))
        self._values = values
        for node in self._nodes:
            key = (node.op, tuple([self.of(value) for value in node.inputs]), _params_key(node))
            for index, out in enumerate(node.outs):
                values[out] = number((key, index))
        return values


def source_key(value: Value) -> Any:
    """Return what two values share that are the same number, or the same value."""
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


class United:
    """A loop in which what is equal is there once.

    Attributes
    ----------
    draft : Draft
        The loop.
    carries, left : list of int
        For each carry and each thing left behind of the loop as it was, which it is now.
    """

    def __init__(self, old: Draft, classes: Classes) -> None:
        becomes: dict[Value, Value] = {}
        self.draft = Draft(old.op, old.params, old.index, count=old.count)
        self.draft.consts = _once(old.consts, becomes)
        self.draft.elements = _once(old.elements, becomes)
        first: dict[int, int] = {}
        kept: list[Carry] = []
        self.carries: list[int] = []
        for class_, carry in zip(classes.carries, old.carries, strict=True):
            if class_ in first:
                becomes[carry.inside] = kept[first[class_]].inside
            else:
                first[class_] = len(kept)
                kept.append(carry)
            self.carries.append(first[class_])
        places: dict[int, int] = {}
        left: list[Value] = []
        self.left: list[int] = []
        for value in old.left:
            place = places.setdefault(classes.of(value), len(left))
            if place == len(left):
                left.append(value)
            self.left.append(place)
        afters = substituted([carry.after for carry in kept], becomes)
        self.draft.carries = [carry._replace(after=after) for carry, after in zip(kept, afters, strict=True)]
        self.draft.left = substituted(left, becomes)
        if old.test is not None:
            (self.draft.test,) = substituted([old.test], becomes)


def _once(givens: list[Given], becomes: dict[Value, Value]) -> list[Given]:
    """Return what is given without repetitions; says what the repeated ones become."""
    first: dict[Any, Given] = {}
    for given in givens:
        earlier = first.setdefault(source_key(given.outside), given)
        if earlier is not given:
            becomes[given.inside] = earlier.inside
    return list(first.values())
