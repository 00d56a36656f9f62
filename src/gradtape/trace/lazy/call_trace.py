"""Call traces: the calls that the tape of one line makes, each with its operands by slot.

A call trace is recorded by the second tape of a line (`CallRecorder`), predicted by later ones (`gradtape.trace.lazy.trace_prediction`),
and can be replayed. It names functions and not nodes, so that a replay does what the user's code would have done. A *slot* is the
position of an array in the trace: a `ResultSlot`, ``k`` for the result of call ``k``, or a `LeafSlot`, ``-1 - k`` for leaf ``k``.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Iterable, Sequence
from types import CodeType, FrameType
from typing import Any, Final, NamedTuple, NewType, TypeAlias

import numpy as np

from gradtape.interruptions import raise_interruption
from gradtape.ir.builder import here
from gradtape.ir.graph import Literal, TraceTag, Value, extract
from gradtape.ir.templates import placeholder
from gradtape.ir.types import Aval
from gradtape.kinds.operands import as_value
from gradtape.kinds.registry import FUNCTIONS
from gradtape.trace.array.handle import Handle
from gradtape.trace.array.views import View
from gradtape.trace.dispatch.op_cache import MAX_ITEMS, NUMBERS
from gradtape.trace.lazy.call_observer import NO_KEYWORDS, CallObserver, prediction
from gradtape.trace.lazy.region import begins
from gradtape.trace.patching.bytecode import instruction_span

ResultSlot = NewType("ResultSlot", int)
"""The number of the call that returned an array."""

LeafSlot = NewType("LeafSlot", int)
"""Where an array stands among the leaves, of which the last one comes first: an index from the end."""

Slot: TypeAlias = ResultSlot | LeafSlot
"""They are told apart by their sign, in one comparison."""

ATOMS: Final = (type(None), str, bool, type, np.dtype, type(Ellipsis))
"""The types of arguments, besides numbers, that mean the same exactly if they are equal."""

INDICES: Final = frozenset({int, type(None)})
"""The types of a slice's bounds."""


class Constant:
    """An argument that holds no array.

    Parameters
    ----------
    argument : object
        The argument.

    Raises
    ------
    TypeError
        For an argument of which it is not known what it means.
    """

    __slots__ = ("_meaning", "argument", "identical")

    def __init__(self, argument: Any) -> None:
        self._meaning = _meaning(argument)
        self.argument = copy.deepcopy(argument)
        # A list may have other items when it comes again.
        self.identical = argument if type(argument) in NUMBERS or isinstance(argument, ATOMS) else self

    def matches(self, argument: Any) -> bool:
        """Return whether another argument means the same."""
        if type(argument) is slice and type(self.argument) is slice:  # which Python makes anew each time
            return argument == self.argument and INDICES.issuperset(
                (type(argument.start), type(argument.stop), type(argument.step))
            )
        try:
            return bool(_meaning(argument) == self._meaning)
        except TypeError:
            return False


def _meaning(argument: Any) -> Any:
    """Return what an argument means: equal numbers of other types are others, and so are zeros of other signs."""
    kind = type(argument)
    if kind in NUMBERS:
        return kind, argument or str(argument)
    if isinstance(argument, ATOMS):
        return argument
    if kind is slice:
        return kind, _meaning(argument.start), _meaning(argument.stop), _meaning(argument.step)
    if (kind is tuple or kind is list) and len(argument) <= MAX_ITEMS:
        return kind, *map(_meaning, argument)
    raise TypeError(kind)


class Items:
    """A list or tuple with arrays in it.

    Parameters
    ----------
    kind : type
        Which of the two.
    operands : tuple
        A slot, a `Constant`, or `Items` for each item.
    """

    __slots__ = ("identical", "kind", "operands")

    def __init__(self, kind: type, operands: tuple[Any, ...]) -> None:
        self.kind = kind
        self.operands = operands
        self.identical = self  # which no argument is


class TracedCall(NamedTuple):
    """One call.

    Attributes
    ----------
    function : callable
        What is called.
    operands : tuple
        A slot, a `Constant`, or `Items` for each operand.
    keywords : tuple of str
        The keywords of the last of these.
    first, last, code : int, int, code
        The instruction that calls: once Python has specialised it, a frame may stand at the end of the caches behind it.
    placeholder : Value
        A value of the type of the result, without data.
    contiguous : bool
        Whether the result is contiguous, as views see it.
    view : View or None
        As what view of the first operand the result sees it.
    site : Site
        The place in the user's code.
    """

    function: Any
    operands: tuple[Any, ...]
    keywords: tuple[str, ...]
    first: int
    last: int
    code: CodeType | None
    placeholder: Value
    contiguous: bool
    view: View | None
    site: Any


END: Final = TracedCall(None, (), (), 0, -1, None, placeholder(as_value(0.0).aval), True, None, None)
"""Follows the last call, and equals no call."""


class Leaf(NamedTuple):
    """A value at which a record begins: its type, and whether the tape records it."""

    type: Aval
    tagged: bool


class CallTrace(NamedTuple):
    """The calls of a tape.

    Attributes
    ----------
    calls : tuple of TracedCall
        In their order, and `END`.
    leaves : tuple of Leaf
        The last one comes first: leaf k is at -1 - k.
    kind : type
        Of the user's arrays.
    """

    calls: tuple[TracedCall, ...]
    leaves: tuple[Leaf, ...]
    kind: type[Handle]


def is_array_leaf(operand: Any) -> bool:
    """Return whether an operand is an ndarray that becomes a leaf."""
    return type(operand) is np.ndarray and operand.ndim > 0


def alias(kind: type[Handle], value: Value, contiguous: bool = True) -> Any:
    """Return an array that holds a value whose owner is another array."""
    array = object.__new__(kind)
    array._base = None
    array._contiguous = contiguous
    array._current = value
    return array


def replay(
    calls: Sequence[TracedCall],
    leaves: Sequence[Any],
    results: list[Any],
    adopted: Callable[[ResultSlot, Any], Any],
) -> None:
    """Make the calls of a trace.

    Parameters
    ----------
    calls : sequence of TracedCall
        The calls.
    leaves : sequence of array
        At which they begin: leaf k at -1 - k.
    results : list of array
        What the first calls have returned already; the results of the others are appended.
    adopted : callable
        ``(slot, array) -> array``: what stands for the result of a call from then on.
    """
    before, observer = here.site, prediction.observer
    prediction.observer = None
    try:
        for call in calls[len(results) :]:
            operands = [_operand(each, results, leaves) for each in call.operands]
            count = len(operands) - len(call.keywords)
            keywords = dict(zip(call.keywords, operands[count:], strict=True))
            result = _result(call.function, operands[:count], keywords)
            inputs = [handle._current for handle in _handles_in(operands)]
            for node in extract([result._current], inputs)[0]:
                node.site = call.site
            results.append(adopted(ResultSlot(len(results)), result))
    finally:
        here.site, prediction.observer = before, observer


def _operand(operand: Any, results: Sequence[Any], leaves: Sequence[Any]) -> Any:
    """Return what an operand of a `TracedCall` stands for."""
    if type(operand) is int:
        return results[operand] if operand >= 0 else leaves[operand]
    if type(operand) is Items:
        return operand.kind([_operand(item, results, leaves) for item in operand.operands])
    return operand.argument


def _result(function: Any, operands: Sequence[Any], keywords: dict[str, Any]) -> Any:
    """Return the result of a function of arrays; NumPy would not dispatch all functions that a hook has told of, such as np.array."""
    if function in FUNCTIONS:
        handle = _handles_in((*operands, *keywords.values()))[0]
        return handle.__array_function__(function, (type(handle),), tuple(operands), keywords)
    return function(*operands, **keywords)


def _handles_in(operands: Iterable[Any]) -> list[Any]:
    handles: list[Any] = []
    for operand in operands:
        if isinstance(operand, Handle):
            handles.append(operand)
        elif isinstance(operand, list | tuple):
            handles += _handles_in(operand)
    return handles


class TapeObserver(CallObserver):
    """An observer of the calls that a tape records.

    Parameters
    ----------
    tag : TraceTag
        The tape's.
    own_tags : tuple of TraceTag
        The tags of what no other tape records.
    kind : type
        Of the user's arrays.
    """

    __slots__ = ("_arrays", "_kind", "_own_tags", "_tag")

    def __init__(self, tag: TraceTag, own_tags: tuple[TraceTag, ...], kind: type[Handle]) -> None:
        self._tag = tag
        self._own_tags = own_tags
        self._kind = kind
        self._arrays: list[weakref.ref[Any]] = []

    def _is_recorded(self, operands: Iterable[Any]) -> bool:
        """Return whether the tape records one of these operands."""
        for operand in operands:
            if isinstance(operand, Handle):
                if operand._base is self or self._tag in operand.value.tags:
                    return True
            elif isinstance(operand, list | tuple) and self._is_recorded(operand):
                return True
        return False


class CallRecorder(TapeObserver):
    """Records the call trace of a tape, which records nodes as always."""

    __slots__ = ("_calls", "_leaves", "_results", "_slots", "_values")

    def __init__(self, tag: TraceTag, own_tags: tuple[TraceTag, ...], kind: type[Handle]) -> None:
        super().__init__(tag, own_tags, kind)
        self._calls: list[TracedCall] = []
        self._slots: weakref.WeakKeyDictionary[Value, Slot] = weakref.WeakKeyDictionary()
        self._values: list[weakref.ref[Value]] = []
        self._results: dict[int, ResultSlot] = {}
        self._leaves: list[Value] = []

    def observe(
        self,
        function: Any,
        operands: tuple[Any, ...],
        frame: FrameType,
        keywords: dict[str, Any] = NO_KEYWORDS,
    ) -> Any:
        if not self._is_recorded((*operands, *keywords.values())):
            return None
        arrays = [self._as_array(operand) for operand in operands]
        prediction.observer = None
        traced = self._operands([*arrays, *keywords.values()])
        result = _result(function, arrays, keywords)
        call = None if traced is None else self._call(function, arrays, keywords, traced, frame, result)
        if call is not None:
            slot = ResultSlot(len(self._calls))
            self._slots.setdefault(result._current, slot)
            self._results[id(result)] = slot
            self._calls.append(call)
            self._arrays.append(weakref.ref(result))
            self._values.append(weakref.ref(result._current))
            prediction.observer = self
        return None if result is NotImplemented else result

    def trace(self) -> CallTrace:
        """Return what was recorded."""
        leaves = [Leaf(leaf.aval, self._tag in leaf.tags) for leaf in self._leaves]
        return CallTrace((*self._calls, END), tuple(leaves[::-1]), self._kind)

    def slot_of(self, value: Value) -> Slot | None:
        """Return the slot of a value, if it has one: that of the first call that returned it, or of a leaf."""
        return self._slots.get(value)

    def result_slot(self, array: Any) -> ResultSlot | None:
        """Return the slot of the call that returned an array; None if none did, or it has been written to."""
        slot = self._results.get(id(array))
        return slot if slot is not None and self._array_at(slot) is array else None

    def leaves(self) -> Sequence[Value]:
        """Return the leaves: leaf k at -1 - k."""
        return self._leaves[::-1]

    def live_slots(self) -> tuple[ResultSlot, ...]:
        """Return the slots of arrays that the user holds."""
        slots = map(ResultSlot, range(len(self._arrays)))
        return tuple([slot for slot in slots if self._array_at(slot) is not None])

    def bind(self, slot: ResultSlot, value: Value) -> None:
        """Let the array at a slot hold another value."""
        array = self._array_at(slot)
        if array is not None:
            value.tags = self._own_tags
            if array._base is not None:
                array._derived = array._base.value
            array._hold(value)

    def _array_at(self, slot: ResultSlot) -> Any:
        """Return the result of a call, if the user holds it and has not written to it."""
        array = self._arrays[slot]()
        return array if array is not None and array.value is self._values[slot]() else None

    def _as_array(self, operand: Any) -> Any:
        """Return an ndarray, or an array of another kind, as an array, which is a leaf; anything else itself."""
        if is_array_leaf(operand):
            return alias(self._kind, as_value(operand))
        if isinstance(operand, Handle) and type(operand) is not self._kind:
            return alias(self._kind, operand.value)
        return operand

    def _operands(self, operands: Sequence[Any]) -> tuple[Any, ...] | None:
        """Return operands as a `TracedCall` has them; None if one of them has no slot and is no constant."""
        traced = tuple([self._operand(operand) for operand in operands])
        return None if None in traced else traced

    def _operand(self, operand: Any) -> Any:
        if isinstance(operand, Handle):
            # A view of a whole array shares its value: it is known by itself.
            slot = self.result_slot(operand)
            return self._slot_or_leaf(operand.value) if slot is None else slot
        if isinstance(operand, list | tuple) and any(isinstance(item, Handle) for item in operand):
            items = self._operands(operand)
            return None if items is None else Items(type(operand), items)
        try:
            return Constant(operand)
        except TypeError:
            return None

    def _slot_or_leaf(self, value: Value) -> Slot | None:
        """Return the slot of a value, which becomes a leaf if it has none and may be one."""
        slot = self._slots.get(value)
        if slot is None and not isinstance(value, Literal) and not value.aval.weak:
            if self._tag in value.tags and (value.tags != self._own_tags or not begins(value, self._tag)):
                return None
            self._leaves.append(value)
            slot = self._slots[value] = LeafSlot(-len(self._leaves))
        return slot

    def _call(
        self,
        function: Any,
        operands: Sequence[Any],
        keywords: dict[str, Any],
        traced: tuple[Any, ...],
        frame: FrameType,
        result: Any,
    ) -> TracedCall | None:
        """Return a call for the trace, if a later one like it is sure to return another array of the same type; else None."""
        site = here.site
        if type(result) is not self._kind:
            return None
        value, base = result._current, result._base
        if value.tags != self._own_tags or value.aval.weak:
            return None
        if base is None and (value in self._slots or not value.is_made):
            return None
        if base is not None and (base is not operands[0] or (base._base is not None and traced[0] < 0)):
            return None
        if not self._reads_no_data(function, operands, keywords, result):
            return None
        return TracedCall(
            function,
            traced,
            tuple(keywords),
            *instruction_span(frame),
            frame.f_code,
            placeholder(value.aval),
            result._contiguous,
            None if base is None else result._view,
            site,
        )

    def _reads_no_data(
        self, function: Any, operands: Sequence[Any], keywords: dict[str, Any], result: Any
    ) -> bool:
        """Return whether a call depends on types alone: then it works with placeholders, which have no data."""
        try:
            again = _result(
                function,
                [self._without_data(operand) for operand in operands],
                {name: self._without_data(keywords[name]) for name in keywords},
            )
        except Exception as error:
            raise_interruption(error)
            return False
        return type(again) is type(result) and again._current.aval is result._current.aval

    def _without_data(self, operand: Any) -> Any:
        """Return an operand with a placeholder for each array."""
        if isinstance(operand, Handle):
            return alias(self._kind, placeholder(operand.value.aval), operand._contiguous)
        if type(operand) in (list, tuple):
            return type(operand)([self._without_data(item) for item in operand])
        return operand
