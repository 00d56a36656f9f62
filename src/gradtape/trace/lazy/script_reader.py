"""Reading along: a call that stands next in the script only makes the array that it returned."""

from __future__ import annotations

import threading
import weakref
from operator import call
from types import FrameType
from typing import Any, Final

from gradtape.ir.graph import Literal, TraceTag, Value
from gradtape.kinds.operands import as_value
from gradtape.locks import Rank, new_lock
from gradtape.trace.array.handle import Handle
from gradtape.trace.lazy.call_observer import NO_NAMES, Attendant, Promised, speculation
from gradtape.trace.lazy.pattern import begins
from gradtape.trace.lazy.script import Argument, Script, Several, holding, is_plain, perform

_make: Final = object.__new__
_reference: Final = weakref.ref
_keeping: Final = new_lock(Rank.SCRIPT)


class Reader(Attendant, Promised):
    """Reads along with a tape, and makes the arrays that the script says.

    Parameters
    ----------
    script : Script
        What is expected.
    tag : TraceTag
        The tape's.
    alone : tuple of TraceTag
        The tags of what nobody else follows.
    """

    __slots__ = ("_alone", "_arrays", "_kind", "_leaves", "_made", "_script", "_steps", "_tag")

    def __init__(self, script: Script, tag: TraceTag, alone: tuple[TraceTag, ...]) -> None:
        self._script = script
        self._steps, kinds, self._kind = script
        self._leaves: list[Value | None] = [None] * len(kinds)
        self._arrays: list[weakref.ref[Any]] = []
        self._made: list[Any] | None = None
        self._tag = tag
        self._alone = alone

    def take(
        self, function: Any, operands: tuple[Any, ...], frame: FrameType, named: dict[str, Any] = NO_NAMES
    ) -> Any:
        arrays = self._arrays
        at = len(arrays)
        expected, places, names, first, last, code, sample, contiguous, view, _ = self._steps[at]
        if function is not expected or frame.f_code is not code or not first <= frame.f_lasti <= last:
            return self._left(operands, named)
        given = operands
        if named:
            given = (*operands, *named.values())
            if tuple(named) != names:
                return self._left(operands, named)
        if len(given) != len(places) or (names and not named):
            return self._left(operands, named)
        number = 0
        for place in places:  # what reading consists of: operands that have been met before, by position
            operand = given[number]
            number += 1
            if type(place) is not int:
                if operand is place.same:
                    continue
            elif isinstance(operand, Handle):
                base = operand._base
                if base is self:
                    if operand._view == place:
                        continue
                elif base is None and place < 0 and operand._current is self._leaves[place]:
                    continue
            if not self._is_at(operand, place):
                return self._left(operands, named)
        array = _make(self._kind)
        array._base = self
        array._view = at
        array._current = sample
        array._contiguous = contiguous
        if view is not None:
            array._derived = owner = operands[0]
            if owner._base is not None and owner._base is not self:
                return self._left(operands, named)
        arrays.append(_reference(array))
        return array

    def has_met(self, value: Value) -> bool:
        return value in self._leaves

    def keep(self) -> None:
        if speculation.attendant is self:
            speculation.attendant = None
        with _keeping:
            tag = self._tag
            before, tag.recorded_by = tag.recorded_by, threading.get_ident()
            try:
                leaves = [None if leaf is None else holding(self._kind, leaf) for leaf in self._leaves]
                if self._made is None:
                    self._made = []
                perform(self._steps[: len(self._arrays)], leaves, self._made, self._settled)
            finally:
                tag.recorded_by = before

    def leaves(self) -> list[Value | None]:
        """Return the leaves that were met: leaf k at -1 - k."""
        return self._leaves

    def reads(self, script: Script, tag: TraceTag) -> bool:
        """Return whether it is this script that is expected of a tape."""
        return self._script is script and self._tag is tag

    def place_of(self, array: Any) -> int | None:
        """Return which call returned an array; None if none did."""
        return array._view if array._base is self else None

    def held(self) -> tuple[int, ...]:
        """Return the places of what somebody holds."""
        return tuple([place for place, array in enumerate(map(call, self._arrays)) if array is not None])

    def give(self, place: int, value: Value) -> None:
        """Give the array at a place its value."""
        array = self._arrays[place]()
        if array is not None and array._base is self:
            value.tags = self._alone
            self._take_up(array, value)

    def _left(self, operands: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Give up the script, unless a call has nothing to do with what the tape follows."""
        if any(map(self._concerns, (*operands, *named.values()))):
            self.keep()

    def _concerns(self, operand: Any) -> bool:
        if isinstance(operand, Handle):
            return operand._base is self or self._tag in operand.value.tags
        return isinstance(operand, list | tuple) and any(map(self._concerns, operand))

    def _is_at(self, operand: Any, place: Any) -> bool:
        """Return whether an operand is the one that stands in the script."""
        if type(place) is Argument:
            return operand is place.same or place.matches(operand)
        if type(place) is Several:
            if not isinstance(operand, list | tuple) or type(operand) is not place.kind:
                return False
            return len(operand) == len(place.places) and all(map(self._is_at, operand, place.places))
        if isinstance(operand, Handle):
            if operand._base is self:
                same: bool = operand._view == place
                return same
            return place < 0 and self._begins_at(operand.value, place)
        return place < 0 and is_plain(operand) and self._begins_at(as_value(operand), place)

    def _begins_at(self, value: Value, place: int) -> bool:
        """Return whether a value is the leaf at a place, or may become it."""
        known = self._leaves[place]
        if known is not None:
            return known is value
        type_, tagged = self._script.leaves[place]
        if value.aval is not type_ or isinstance(value, Literal) or self.has_met(value):
            return False
        if tagged:
            fits = value.tags == self._alone and (not value.is_made or begins(value, self._tag))
        else:
            fits = self._tag not in value.tags
        if fits:
            self._leaves[place] = value
        return fits

    def _settled(self, place: int, made: Any) -> Any:
        """Give the array at a place what a call has made for it, and return whichever of the two is to go on."""
        array = self._arrays[place]()
        if array is None or array._base is not self:
            return made if array is None else array
        self._take_up(array, made._current)
        return array

    def _take_up(self, array: Any, value: Value) -> None:
        """Let an array without a value have it, and be the view that it is."""
        step = self._steps[array._view]
        if step.view is None:
            array._base = None
        else:
            owner = array._derived
            (place, *_) = step.places
            array._derived = self._leaves[place] if place < 0 else owner.value
            array._base = owner
            array._view = step.view
        array._hold(value)
