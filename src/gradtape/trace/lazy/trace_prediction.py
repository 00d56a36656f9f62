"""Trace prediction: a tape that makes the calls of a known call trace records nothing, and its gradients are one call of a program.

A line of the user's code that enters tapes mostly does the same each time. Its second tape records the call trace. Under a later tape a
call that is the next one of the trace only makes the array that it returned, without a value (`CallPredictor`). Where the gradient is
requested that was requested before, the program that was built for it is called with the values of the leaves, and the arrays that the
user still holds become outputs of the same call: there is a *variant* of the program for each combination of live arrays.

Where the user's code does anything else, or needs the value of such an array, the trace is left: the calls are replayed in full, their
arrays take over the results, and the tape goes on as if there had been no prediction.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable, Sequence
from operator import call
from types import CodeType, FrameType
from typing import Any, Final, NamedTuple, TypeGuard, TypeVar

from gradtape.config import config, running
from gradtape.ir.builder import here
from gradtape.ir.graph import Graph, Literal, TraceTag, Value, extract
from gradtape.kinds.control import Structured
from gradtape.kinds.operands import as_value
from gradtape.locks import Rank, new_lock
from gradtape.runtime.compile.program import ACTIVE
from gradtape.trace.array.handle import Handle
from gradtape.trace.lazy.call_observer import NO_KEYWORDS, Deferred, prediction
from gradtape.trace.lazy.call_trace import (
    CallRecorder,
    CallTrace,
    Constant,
    Items,
    LeafSlot,
    ResultSlot,
    Slot,
    TapeObserver,
    alias,
    is_array_leaf,
    replay,
)
from gradtape.trace.lazy.gradient_cache import (
    Derivatives,
    GradientTemplate,
    LazyProgram,
    gradients,
    grouped,
    template_for,
)
from gradtape.trace.lazy.instruments import CHECKS
from gradtape.trace.lazy.region import begins
from gradtape.trace.source.contexts import contexts
from gradtape.transforms.call import GraphCall, without_data
from gradtape.transforms.observers import OBSERVERS

T = TypeVar("T")

MAX_VARIANTS: Final = 8
"""Combinations of live arrays for which a program is kept."""

MAX_MISSES: Final = 16
"""Predictions since the last one that held, after which a trace is given up; some may be under way on other threads."""

MAX_RECORDINGS: Final = 4
"""How often the call trace of a line is recorded."""

_make: Final = object.__new__
_reference: Final = weakref.ref
_materialising: Final = new_lock(Rank.CALL_TRACE)


class CallPredictor(TapeObserver, Deferred):
    """Makes the arrays that a call trace says, without values.

    Such an array has the predictor as its base, and its slot as its view. One comparison of slots stands for the whole history of an
    operand.

    Parameters
    ----------
    trace : CallTrace
        What is expected.
    tag : TraceTag
        The tape's.
    own_tags : tuple of TraceTag
        The tags of what no other tape records.
    """

    __slots__ = ("__weakref__", "_calls", "_leaves", "_results", "_trace")

    def __init__(self, trace: CallTrace, tag: TraceTag, own_tags: tuple[TraceTag, ...]) -> None:
        super().__init__(tag, own_tags, trace.kind)
        self._trace = trace
        self._calls = trace.calls
        self._leaves: list[Value | None] = [None] * len(trace.leaves)
        self._results: list[Any] | None = None

    def observe(
        self,
        function: Any,
        operands: tuple[Any, ...],
        frame: FrameType,
        keywords: dict[str, Any] = NO_KEYWORDS,
    ) -> Any:
        arrays = self._arrays
        at = len(arrays)
        expected, traced, names, first, last, code, placeholder, contiguous, view, _ = self._calls[at]
        if function is not expected or frame.f_code is not code or not first <= frame.f_lasti <= last:
            return self._leave(operands, keywords)
        arguments = operands
        if keywords:
            arguments = (*operands, *keywords.values())
            if tuple(keywords) != names:
                return self._leave(operands, keywords)
        if len(arguments) != len(traced) or (names and not keywords):
            return self._leave(operands, keywords)
        number = 0
        for slot in traced:  # the hot path: operands that have been met before, by slot
            operand = arguments[number]
            number += 1
            if type(slot) is not int:
                if operand is slot.identical:
                    continue
            elif isinstance(operand, Handle):
                base = operand._base
                if base is self:
                    if operand._view == slot:
                        continue
                elif base is None and slot < 0 and operand._current is self._leaves[slot]:
                    continue
            if not self._matches(operand, slot):
                return self._leave(operands, keywords)
        array = _make(self._kind)
        array._base = self
        array._view = at
        array._current = placeholder
        array._contiguous = contiguous
        if view is not None:
            array._derived = owner = operands[0]
            if owner._base is not None and owner._base is not self:
                return self._leave(operands, keywords)
        arrays.append(_reference(array))
        return array

    def is_view(self, slot: int) -> bool:
        """Return whether the array at a slot is a view of another one."""
        return self._calls[slot].view is not None

    def starts_from(self, value: Value) -> bool:
        return value in self._leaves

    def materialise(self) -> None:
        if prediction.observer is self:
            prediction.observer = None
        with _materialising:
            tag = self._tag
            before, tag.recorded_by = tag.recorded_by, threading.get_ident()
            try:
                leaves = [None if leaf is None else alias(self._kind, leaf) for leaf in self._leaves]
                if self._results is None:
                    self._results = []
                replay(self._calls[: len(self._arrays)], leaves, self._results, self._adopt)
            finally:
                tag.recorded_by = before

    def predicts(self, trace: CallTrace, tag: TraceTag) -> bool:
        """Return whether this is the prediction of a trace for a tape."""
        return self._trace is trace and self._tag is tag

    def leaves(self) -> Sequence[Value | None]:
        """Return the leaves that were met: leaf k at -1 - k."""
        return self._leaves

    def result_slot(self, array: Any) -> ResultSlot | None:
        """Return the slot of the call that returned an array; None if none did."""
        return array._view if array._base is self else None

    def live_slots(self) -> tuple[ResultSlot, ...]:
        """Return the slots of arrays that the user holds."""
        slots: Any = tuple([slot for slot, array in enumerate(map(call, self._arrays)) if array is not None])
        return slots  # type: ignore[no-any-return] # a call for each slot would cost more than the rest

    def bind(self, slot: ResultSlot, value: Value) -> None:
        """Give the array at a slot its value."""
        array = self._arrays[slot]()
        if array is not None and array._base is self:
            value.tags = self._own_tags
            self._give_value(array, value)

    def _leave(self, operands: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        """Leave the trace, unless a call has nothing to do with what the tape records."""
        if self._is_recorded((*operands, *keywords.values())):
            self.materialise()

    def _matches(self, operand: Any, traced: Any) -> bool:
        """Return whether an operand is the one that is expected."""
        if type(traced) is Constant:
            return operand is traced.identical or traced.matches(operand)
        if type(traced) is Items:
            if not isinstance(operand, list | tuple) or type(operand) is not traced.kind:
                return False
            return len(operand) == len(traced.operands) and all(map(self._matches, operand, traced.operands))
        if isinstance(operand, Handle):
            if operand._base is self:
                return bool(operand._view == traced)
            return traced < 0 and self._is_leaf(operand.value, traced)
        return traced < 0 and is_array_leaf(operand) and self._is_leaf(as_value(operand), traced)

    def _is_leaf(self, value: Value, slot: LeafSlot) -> bool:
        """Return whether a value is the leaf at a slot, or becomes it now."""
        leaf = self._leaves[slot]
        if leaf is not None:
            return leaf is value
        type_, tagged = self._trace.leaves[slot]
        if value.aval is not type_ or isinstance(value, Literal) or self.starts_from(value):
            return False
        if tagged:
            fits = value.tags == self._own_tags and begins(value, self._tag)
        else:
            fits = self._tag not in value.tags
        if fits:
            self._leaves[slot] = value
        return fits

    def _adopt(self, slot: ResultSlot, result: Any) -> Any:
        """Give the array at a slot the value of a replayed call, and return the array that stands for the result."""
        array = self._arrays[slot]()
        if array is None or array._base is not self:
            return result if array is None else array
        self._give_value(array, result._current)
        return array

    def _give_value(self, array: Any, value: Value) -> None:
        """Let an array without a value hold one, and be the view that it is."""
        traced = self._calls[array._view]
        if traced.view is None:
            array._base = None
        else:
            owner = array._derived
            slot = traced.operands[0]
            array._derived = self._leaves[slot] if slot < 0 else owner.value
            array._base = owner
            array._view = traced.view
        array._hold(value)


class _Variant(NamedTuple):
    """The program of a call trace for one combination of live arrays.

    Attributes
    ----------
    template : GradientTemplate
        Computes the targets, the other live arrays and the derivatives, in this order.
    leaves : tuple of int
        The slots of the leaves that it takes.
    live : tuple of int
        The slots of the live arrays that are no targets.
    """

    template: GradientTemplate
    leaves: tuple[LeafSlot, ...]
    live: tuple[ResultSlot, ...]


class _Expected(NamedTuple):
    """A call trace, and the gradients that are requested at its end.

    Attributes
    ----------
    trace : CallTrace
        The calls.
    targets : tuple of int
        The slots of the targets.
    sources : tuple of int
        The slots of the sources, which are leaves.
    variants : dict
        By the slots of all live arrays.
    """

    trace: CallTrace
    targets: tuple[ResultSlot, ...]
    sources: tuple[LeafSlot, ...]
    variants: dict[tuple[ResultSlot, ...], _Variant]


class _Line:
    """An instruction of the user's code that enters tapes.

    Parameters
    ----------
    code : code
        In which it stands.

    Attributes
    ----------
    differentiates : bool
        Whether a gradient was requested of one of its tapes.
    expected : _Expected or None
        What its tapes are expected to do.
    recordings : int
        How many call traces were recorded since the last prediction that held.
    misses : int
        How many predictions were begun since then.
    changes : bool
        Whether a call trace was given up: numbers of Python's in it may be others each time.
    """

    __slots__ = ("changes", "code", "differentiates", "expected", "misses", "recordings")

    def __init__(self, code: CodeType) -> None:
        self.code = code  # also so that no other code has its identity
        self.differentiates = False
        self.expected: _Expected | None = None
        self.recordings = 0
        self.misses = 0
        self.changes = False

    def gradients(self, ends: Sequence[Any], starts: Sequence[Value], tag: TraceTag) -> Derivatives | None:
        """Return the gradients of arrays in sources, if they are what is expected; None where the record is to be derived."""
        self.differentiates = True
        expected = self.expected
        predictor = ends[0]._base if ends else None
        if (
            expected is None
            or type(predictor) is not CallPredictor
            or not predictor.predicts(expected.trace, tag)
            or _is_observed()
        ):
            return None
        leaves = predictor.leaves()
        if expected.targets != tuple(map(predictor.result_slot, ends)) or len(expected.sources) != len(
            starts
        ):
            return None
        for start, slot in zip(starts, expected.sources, strict=True):
            if start is not leaves[slot]:
                return None
        live = predictor.live_slots()
        variant = expected.variants.get(live) or _variant(expected, live)
        if variant is None:
            return None
        self.misses = self.recordings = 0
        return _apply(variant, expected, predictor)


class _Recording(NamedTuple):
    """A tape whose call trace is recorded.

    Attributes
    ----------
    line : _Line
        Where it was entered.
    recorder : CallRecorder
        Records its calls.
    """

    line: _Line
    recorder: CallRecorder

    def gradients(self, ends: Sequence[Any], starts: Sequence[Value], tag: TraceTag) -> Derivatives | None:
        """Return the gradients of arrays in sources, and expect the same of later tapes; None where the record is to be derived."""
        if _is_observed():
            return None
        return _recorded(self.line, self.recorder, ends, starts, tag)


TapePrediction = _Line | _Recording
"""The facts about a tape that are known when it is entered."""

_lines: Final[dict[Any, _Line]] = {}
"""By instruction and settings: a plain table, which costs no call of a Python function for each tape."""


def predict(
    frame: FrameType, tag: TraceTag, own_tags: tuple[TraceTag, ...], kind: type[Handle]
) -> TapePrediction:
    """Begin to predict, or to record, the calls under a tape, if its line is known.

    Parameters
    ----------
    frame : frame
        What enters the tape.
    tag : TraceTag
        The tape's.
    own_tags : tuple of TraceTag
        The tags of what no other tape records.
    kind : type
        Of the user's arrays.
    """
    code = frame.f_code
    memory = running.memory or config.memory
    key = id(code), frame.f_lasti, config.reroll, config.reroll_checkpoint, memory, config.scratch_dir
    line = _lines.get(key)
    if line is None:
        if len(_lines) >= config.memory_cache:
            _lines.clear()
        line = _lines[key] = _Line(code)
        return line
    if not line.differentiates or contexts.stack or _is_observed():
        return line
    if line.expected is not None and line.misses <= MAX_MISSES:
        line.misses += 1
        predictor = CallPredictor(line.expected.trace, tag, own_tags)
        # After the tape has ended, only its arrays keep it alive.
        prediction.observer, prediction.deferred = predictor, weakref.ref(predictor)
    elif line.recordings < MAX_RECORDINGS:
        line.changes = line.changes or line.expected is not None
        line.expected, line.misses = None, 0
        line.recordings += 1
        recorder = prediction.observer = CallRecorder(tag, own_tags, kind)
        return _Recording(line, recorder)
    return line


def _is_observed() -> bool:
    """Return whether a tool observes each operation."""
    return not config.jit or config.eager or bool(CHECKS) or len(OBSERVERS) > 0 or ACTIVE.profiler is not None


def _recorded(
    line: _Line, recorder: CallRecorder, ends: Sequence[Any], starts: Sequence[Value], tag: TraceTag
) -> Derivatives | None:
    """Return the gradients of a tape whose call trace was recorded, and expect the same of later tapes."""
    targets = [end.value for end in ends]
    target_slots = _without_none(map(recorder.result_slot, ends))
    sources: tuple[Slot, ...] | None = _without_none(map(recorder.slot_of, starts))
    if target_slots is None or sources is None or len(set(targets)) < len(targets):
        return None
    template_and_leaves = template_for(gradients, "gradient", targets, starts, None, tag)
    if template_and_leaves is None:
        return None
    template, leaves = template_and_leaves
    slots: tuple[Slot, ...] | None = _without_none(map(recorder.slot_of, leaves))
    if slots is None or not _are_leaves(sources) or not _are_leaves(slots):
        return None
    if 0 in template.counts or template.stacks:
        return None
    if template.numbers and line.changes:
        return None
    own = _Variant(template, tuple([slots[position] for position in template.leaves]), ())
    expected = _Expected(recorder.trace(), target_slots, sources, {tuple(sorted(target_slots)): own})
    live = recorder.live_slots()
    variant = expected.variants.get(live) or _variant(expected, live)
    if variant is None:
        return None
    line.expected = expected
    return _apply(variant, expected, recorder)


def _without_none(slots: Iterable[T | None]) -> tuple[T, ...] | None:
    """Return slots, or None where one of them is not known or there are none."""
    all_slots = list(slots)
    known_slots = tuple([slot for slot in all_slots if slot is not None])
    return known_slots if known_slots and len(known_slots) == len(all_slots) else None


def _are_leaves(slots: tuple[Slot, ...]) -> TypeGuard[tuple[LeafSlot, ...]]:
    return max(slots) < 0


def _apply(variant: _Variant, expected: _Expected, observer: CallRecorder | CallPredictor) -> Derivatives:
    """Append the call of a variant, let the live arrays be outputs of it, and return the derivatives."""
    prediction.observer = prediction.deferred = None
    leaves = observer.leaves()
    template = variant.template
    inputs = [leaves[slot] for slot in variant.leaves]
    _, outs = template.call.appended([*inputs, *template.constants], here.site)  # type: ignore[list-item]
    for slot, value in zip((*expected.targets, *variant.live), outs, strict=False):
        observer.bind(slot, value)
    return grouped(template.counts, outs[len(expected.targets) + len(variant.live) :])


def _variant(expected: _Expected, live: tuple[ResultSlot, ...]) -> _Variant | None:
    """Return a new variant for some live arrays, whose nodes a replay with placeholders records; None where there is to be none."""
    own = expected.variants[tuple(sorted(expected.targets))]
    graph = own.template.call.graph
    if len(expected.variants) >= MAX_VARIANTS or any(isinstance(node.op, Structured) for node in graph.nodes):
        return None
    others = tuple([slot for slot in live if slot not in expected.targets])
    count = len(own.leaves)
    input_at = dict(zip(own.leaves, graph.inputs, strict=False))
    slots = [LeafSlot(slot) for slot in range(-len(expected.trace.leaves), 0)]
    leaves = [
        input_at[slot] if slot in input_at else Value(leaf.type)
        for slot, leaf in zip(slots, expected.trace.leaves, strict=True)
    ]
    results: list[Any] = []
    replay(
        expected.trace.calls[:-1],
        [alias(expected.trace.kind, leaf) for leaf in leaves],
        results,
        lambda _, array: array,
    )
    values = [results[slot].value for slot in others]
    nodes, constants = extract(values, leaves, lambda value: value.node is None)
    new = tuple([slot for slot, leaf in zip(slots, leaves, strict=True) if leaf not in graph.inputs])
    inputs = [*graph.inputs[:count], *[leaves[slot] for slot in new], *graph.inputs[count:], *constants]
    ends = len(expected.targets)
    outputs = [*graph.outputs[:ends], *values, *graph.outputs[ends:]]
    whole = without_data(Graph(inputs, [*graph.nodes, *nodes], outputs, "gradient"))
    template = own.template._replace(
        call=GraphCall(whole, LazyProgram(whole).run), constants=(*own.template.constants, *constants)
    )
    variant = expected.variants[live] = _Variant(template, (*own.leaves, *new), others)
    return variant
