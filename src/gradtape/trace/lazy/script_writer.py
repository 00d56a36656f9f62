"""Writing a script: what is called with the arrays of a tape that records as always."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from types import FrameType
from typing import Any

from gradtape.ir.builder import here
from gradtape.ir.graph import Literal, TraceTag, Value
from gradtape.ir.templates import stand_in
from gradtape.kinds.operands import as_value
from gradtape.trace.array.handle import Handle
from gradtape.trace.lazy.call_observer import NO_NAMES, Attendant, speculation
from gradtape.trace.lazy.pattern import begins
from gradtape.trace.lazy.script import END, Argument, Leaf, Script, Several, Step, called, holding, is_plain
from gradtape.trace.patching.bytecode import instruction_span


class Writer(Attendant):
    """Writes the script of a tape that records as always.

    Parameters
    ----------
    tag : TraceTag
        The tape's.
    alone : tuple of TraceTag
        The tags of what nobody else follows.
    kind : type
        Of the user's arrays.
    """

    def __init__(self, tag: TraceTag, alone: tuple[TraceTag, ...], kind: type[Handle]) -> None:
        self._tag = tag
        self._alone = alone
        self._kind = kind
        self._steps: list[Step] = []
        self._places: weakref.WeakKeyDictionary[Value, int] = weakref.WeakKeyDictionary()
        self._arrays: list[weakref.ref[Any]] = []
        self._values: list[weakref.ref[Value]] = []
        self._returned: dict[int, int] = {}
        self._leaves: list[Value] = []

    def take(
        self, function: Any, operands: tuple[Any, ...], frame: FrameType, named: dict[str, Any] = NO_NAMES
    ) -> Any:
        if not any(map(self._concerns, (*operands, *named.values()))):
            return None
        given = [self._as_array(operand) for operand in operands]
        speculation.attendant = None
        places = self._places_of([*given, *named.values()])
        result = called(function, given, named)
        step = (
            None if places is None else self._step(function, given, named, places, frame, result, here.site)
        )
        if step is not None:
            self._places.setdefault(result._current, len(self._steps))
            self._returned[id(result)] = len(self._steps)
            self._steps.append(step)
            self._arrays.append(weakref.ref(result))
            self._values.append(weakref.ref(result._current))
            speculation.attendant = self
        return None if result is NotImplemented else result

    def script(self) -> Script:
        """Return what was written."""
        leaves = [Leaf(leaf.aval, self._tag in leaf.tags) for leaf in self._leaves]
        return Script((*self._steps, END), tuple(leaves[::-1]), self._kind)

    def place_of(self, value: Value) -> int | None:
        """Return where a value stands, if it does: the first call that returned it, or which leaf it is."""
        return self._places.get(value)

    def returned_by(self, array: Any) -> int | None:
        """Return which call returned an array; None if none did, or it has been written to."""
        place = self._returned.get(id(array))
        return place if place is not None and self._array_at(place) is array else None

    def leaves(self) -> Sequence[Value]:
        """Return the leaves: leaf k at -1 - k."""
        return self._leaves[::-1]

    def held(self) -> tuple[int, ...]:
        """Return the places of what somebody holds."""
        return tuple([place for place in range(len(self._arrays)) if self._array_at(place) is not None])

    def give(self, place: int, value: Value) -> None:
        """Let the array at a place have another value."""
        array = self._array_at(place)
        if array is not None:
            value.tags = self._alone
            if array._base is not None:
                array._derived = array._base.value
            array._hold(value)

    def _array_at(self, place: int) -> Any:
        """Return what a call returned, if somebody holds it and has not written to it."""
        array = self._arrays[place]()
        return array if array is not None and array.value is self._values[place]() else None

    def _concerns(self, operand: Any) -> bool:
        """Return whether an operand is followed."""
        if isinstance(operand, Handle):
            return self._tag in operand.value.tags
        return isinstance(operand, list | tuple) and any(map(self._concerns, operand))

    def _as_array(self, operand: Any) -> Any:
        """Return an ndarray, or what is to be written to, as an array, which is a leaf; anything else itself."""
        if is_plain(operand):
            return holding(self._kind, as_value(operand))
        if isinstance(operand, Handle) and type(operand) is not self._kind:
            return holding(self._kind, operand.value)
        return operand

    def _places_of(self, operands: Sequence[Any]) -> tuple[Any, ...] | None:
        places = tuple([self._place(operand) for operand in operands])
        return None if None in places else places

    def _place(self, operand: Any) -> Any:
        if isinstance(operand, Handle):
            # A view of a whole array shares its value: it is known by itself.
            place = self.returned_by(operand)
            return self._place_of_value(operand.value) if place is None else place
        if isinstance(operand, list | tuple) and any(isinstance(item, Handle) for item in operand):
            places = self._places_of(operand)
            return None if places is None else Several(type(operand), places)
        try:
            return Argument(operand)
        except TypeError:
            return None

    def _place_of_value(self, value: Value) -> int | None:
        place = self._places.get(value)
        if place is None and not isinstance(value, Literal) and not value.aval.weak:
            followed = self._tag in value.tags
            if followed and (value.tags != self._alone or not begins(value, self._tag)):
                return None
            self._leaves.append(value)
            place = self._places[value] = -len(self._leaves)
        return place

    def _step(
        self,
        function: Any,
        operands: Sequence[Any],
        named: dict[str, Any],
        places: tuple[Any, ...],
        frame: FrameType,
        result: Any,
        site: Any,
    ) -> Step | None:
        """Return a call as a step, if a later one like it is sure to return another array of the same type."""
        if type(result) is not self._kind:
            return None
        value = result._current
        base = result._base
        if value.tags != self._alone or value.aval.weak:
            return None
        if base is None and (value in self._places or not value.is_made):
            return None
        if base is not None:
            owner = operands[0]
            if base is not owner or (owner._base is not None and places[0] < 0):
                return None
        sample = stand_in(value.aval)
        if not self._is_sure(function, operands, named, result):
            return None
        return Step(
            function,
            places,
            tuple(named),
            *instruction_span(frame),
            frame.f_code,
            sample,
            result._contiguous,
            None if base is None else result._view,
            site,
        )

    def _is_sure(self, function: Any, operands: Sequence[Any], named: dict[str, Any], result: Any) -> bool:
        """Return whether a call never looks at numbers: it does not of arrays that have none."""

        try:
            again = called(
                function,
                [self._without_numbers(operand) for operand in operands],
                {name: self._without_numbers(named[name]) for name in named},
            )
        except Exception:
            return False
        return type(again) is type(result) and again._current.aval is result._current.aval

    def _without_numbers(self, operand: Any) -> Any:
        """Return an operand with arrays of which only the type is known."""
        if isinstance(operand, Handle):
            return holding(self._kind, stand_in(operand.value.aval), operand._contiguous)
        if type(operand) in (list, tuple):
            return type(operand)([self._without_numbers(item) for item in operand])
        return operand
