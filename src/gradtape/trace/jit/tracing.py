"""Tracing: runs the function of one call of a function, and decides after an error whether it is traced again, and how.

========== ============================================== ==========================================================
reaction   errors                                         next
========== ============================================== ==========================================================
TRANSLATE  a value is not known, or a loop is long        functions are translated from their code, once for each site
CLASSES    other threads have read data of classes        these are checked by value
PINNED     captured numbers are as arguments              those that Python asks for are checked by value
BY_VALUE   hidden inputs may be the cause                 captures are checked by value; at last, the error stands
OP_BY_OP   an outcome, or a debugger, needs the numbers   the call site runs the function itself
FINAL      all others                                     the user sees it
========== ============================================== ==========================================================

What the trace has written outside is undone: each call, the traced one as well, assigns it when its program has run. One more trace is
made of a function that has made variables: it keeps them, and the first trace knows them only as new.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from enum import Enum, auto
from itertools import islice, takewhile
from types import CodeType
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from gradtape.collector import collector_paused
from gradtape.config import config
from gradtape.errors import (
    ArgumentError,
    ConcretizationError,
    DtypeError,
    GradtapeError,
    InPlaceError,
    InternalError,
    counted,
    kind_of,
)
from gradtape.interruptions import raise_interruption
from gradtape.ir.graph import Graph, Value, extract
from gradtape.kinds.refusals import comes_later
from gradtape.progress import counting
from gradtape.runtime.compile.program import ACTIVE
from gradtape.trace.array.handle import Handle, traced_value
from gradtape.trace.array.layout import memory_of
from gradtape.trace.array.masked import Selection
from gradtape.trace.jit.aliases import Writes, refuse_read_only
from gradtape.trace.jit.captures.arguments import argument_copies, has_repeated, with_repeated
from gradtape.trace.jit.captures.capture import capture
from gradtape.trace.jit.captures.recipes import NoRecipe
from gradtape.trace.jit.captures.spec import CaptureSpec
from gradtape.trace.jit.captures.steps import Check, Source, Step
from gradtape.trace.jit.dims import ANY_SHAPES
from gradtape.trace.jit.explain import Explain
from gradtape.trace.jit.guards import Trace
from gradtape.trace.jit.lookup import CaptureSet, SignatureTable
from gradtape.trace.jit.op_by_op import called_on_traced, owned_array
from gradtape.trace.jit.outcomes import OutcomeFailed
from gradtape.trace.jit.side_effects import (
    Outdated,
    SideEffects,
    kept_variables,
    side_effects_of,
    state_to_compare,
)
from gradtape.trace.jit.signature import CallArguments, native_call, without_lengths
from gradtape.trace.jit.specialisation import Specialisation
from gradtape.trace.jit.state import any_alive, state_of, variables_made
from gradtape.trace.lazy.force import force
from gradtape.trace.lazy.reroll import moment_now, recorded_since, rolled_trace
from gradtape.trace.patching.bytecode import raises_explicitly
from gradtape.trace.patching.copies import Substitute
from gradtape.trace.random.draws import Draws
from gradtape.trace.source.asking import ASKING
from gradtape.trace.source.contexts import Scope, inside
from gradtape.trace.source.sites import is_user_file, user_site
from gradtape.trace.subclasses.instances import TracedNdarray, returned_instance
from gradtape.trace.translation.mode import inner_codes, translating
from gradtape.trace.translation.trace_budget import TranslationWanted, watched
from gradtape.trace.variables.variable import Variable
from gradtape.trees import flatten

EXACT_LENGTHS: Final = 2
"""The number of lengths with exact kernels. That of the third is exact as well, and is what the fourth is compared with."""

AcceptTrace: TypeAlias = Callable[[Specialisation], bool]
"""Decides whether a new trace is kept; if not, the call is answered in another way."""


class Reaction(Enum):
    """What follows an error that ends a trace; see the table of the module."""

    TRANSLATE = auto()
    CLASSES = auto()
    PINNED = auto()
    BY_VALUE = auto()
    OP_BY_OP = auto()
    FINAL = auto()


class _ReadElsewhere(Exception):
    """Raised where other threads have read data of classes during a trace: the code may have started them, and has constants from them."""


class _Request(NamedTuple):
    """A call to be traced; see `Tracer.trace`."""

    call: CallArguments
    captures: CaptureSet
    dynamic_trips: bool
    accept: AcceptTrace | None


class _Attempt(NamedTuple):
    """The result of one run of the function.

    Attributes
    ----------
    specialisation : Specialisation or None
        None where a tape records a captured value.
    variables : list of weakref.ref
        The variables that the run has made.
    """

    specialisation: Specialisation | None
    variables: list[weakref.ref[Any]]


class Tracer:
    """Traces calls of one function.

    Parameters
    ----------
    function : callable
        The user's, or one made of it by a transform; it works on arrays.
    name : str
        For messages.

    Attributes
    ----------
    signatures : SignatureTable
        The traces.
    shapes : Shapes
        What is declared of the shapes of arguments, and whether kernels are exact.
    traces : int
        How many runs of the function there have been.
    translates : str or None
        Why functions are translated; empty if that did not help.
    inner : list of code
        The functions that are translated first.
    varying : frozenset of str
        The names of captured numbers that have changed: they are hidden inputs.
    unpinned : frozenset of str or None
        The names of captured numbers that are not checked by value where Python asks for them: they are as arguments, since they change
        from call to call. None where a trace has needed them.
    copies_packages : bool
        Whether the numbers of packages' objects are hidden inputs, since some have changed.
    substitutes_classes : bool
        Whether something stands in classes for their data; else they are checked by value, since other threads have read them.
    """

    by_parts = False
    """Whether functions that code makes anew are checked by their parts, and not by identity."""

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        self.function = function
        self.name = name
        self.explain = Explain(name)
        self.signatures = SignatureTable()
        self.shapes = ANY_SHAPES
        self.traces = 0
        self.translates: str | None = None
        self.inner: list[CodeType] = []
        self.varying: frozenset[str] = frozenset()
        self.unpinned: frozenset[str] | None = frozenset()
        self.copies_packages = False
        self.substitutes_classes = True

    def capture(self, call: CallArguments, substitutes: bool = True) -> CaptureSpec:
        """Return the captures of the function as they are now, for a new trace."""
        trace = Trace(f"the jitted function {self.name!r}")
        spec = capture(
            self.function,
            call.objects,
            trace,
            substitutes=substitutes,
            varying=self.varying,
            by_parts=self.by_parts,
            copies_packages=self.copies_packages,
            substitutes_classes=self.substitutes_classes,
        )
        spec.leaves = call.objects
        if self.unpinned:
            trace.varying = {
                k for k, step in enumerate(spec.inputs) if spec.steps[step].name in self.unpinned
            }
        return spec

    def trace(
        self,
        call: CallArguments,
        captures: CaptureSet | None = None,
        *,
        dynamic_trips: bool = False,
        accept: AcceptTrace | None = None,
    ) -> Specialisation | None:
        """Trace one call; None where a capture is being watched, so that the call belongs to a tape.

        A trace that `accept` refuses is returned as well. Without `accept` the function is not run again if it fails: then what it
        wrote until then stays.
        """
        request = _Request(call, captures or CaptureSet(self.capture(call)), dynamic_trips, accept)
        attempt = self._by_inputs_or_value(request)
        if any_alive(attempt.variables):
            if attempt.specialisation is not None:
                attempt.specialisation.give_up_draws()
            attempt = self._translated_at_need(request)
            if any_alive(attempt.variables):
                raise ArgumentError(
                    f"{self.name} makes variables in each call and keeps them",
                    where=user_site(),
                    why="a compiled function does not run its Python code again, so later calls could not make theirs",
                    remedy="make them outside the function, or in the first call only",
                )
        return attempt.specialisation

    def _by_inputs_or_value(self, request: _Request) -> _Attempt:
        """Trace a call with hidden inputs; if a traced array cannot stand for one of them, with captures that are checked by value."""
        call, captures, *_ = request
        before = self.translates, self.inner
        try:
            return self._translated_at_need(request)
        except Exception as error:
            raise_interruption(error)
            reaction = self._reaction(error, captures)
            if reaction in (Reaction.CLASSES, Reaction.PINNED):
                if reaction is Reaction.CLASSES:
                    self.substitutes_classes = False
                else:
                    self.unpinned, self.translates, self.inner = None, *before
                captures.take(self.capture(call, captures.substitutes))
                return self._by_inputs_or_value(request)
            if reaction is not Reaction.BY_VALUE:
                raise
        with captures.by_value():
            captures.take(self.capture(call, False))
            return self._translated_at_need(request)

    def _translated_at_need(self, request: _Request) -> _Attempt:
        """Trace a call; where it needs to, again with translated functions."""
        call, captures, *_ = request
        try:
            return self._attempt(request)
        except (TranslationWanted, Exception) as error:
            reason = self._reason_to_translate(error)
            if reason is None:
                raise
            self.translates = reason
            self.inner = inner_codes(error)
            self.explain.note("translation", f"its code is translated instead of traced: {reason}")
        spec = self.capture(call, captures.substitutes)
        captures.take(spec)
        try:
            return self._attempt(request)
        except ConcretizationError as error:
            for way in spec.trace.ways:
                error.add_note(f"  {way}")
            raise

    def _reaction(self, error: BaseException, captures: CaptureSet) -> Reaction:
        if isinstance(error, _ReadElsewhere):
            return Reaction.CLASSES
        if self._reason_to_translate(error) is not None:
            return Reaction.TRANSLATE
        if self.unpinned and not isinstance(error, OutcomeFailed):
            return Reaction.PINNED
        if isinstance(error, OutcomeFailed) or _needs_numbers(error):
            return Reaction.OP_BY_OP
        return Reaction.BY_VALUE if _may_be_of_inputs(error, captures) else Reaction.FINAL

    def _reason_to_translate(self, error: BaseException) -> str | None:
        """Return why functions are to be translated, if an error that ended a trace says so."""
        if self.translates is not None or config.loops == "trace" or _needs_numbers(error):
            return None
        if isinstance(error, TranslationWanted):
            return error.reason
        if ASKING.questions is not None:  # translated code cannot be exported for lengths that vary
            return None
        unknown = error if isinstance(error, ConcretizationError) else error.__cause__
        return unknown.what if isinstance(unknown, ConcretizationError) else None

    def _attempt(self, request: _Request) -> _Attempt:
        """Run the function once, in a trace; undo what it has done after an error. Random numbers stay drawn if that is final."""
        call, captures, _, accept = request
        self.traces += 1
        begin = time.perf_counter()
        spec = captures.spec
        if spec is None or spec.leaves is not call.objects:  # that of another thread's call has its function
            spec = self.capture(call, captures.substitutes)
        else:
            captures.spec = None
        draws = spec.trace.draws = Draws(spec.numpy_generators)
        try:
            attempt = self._run(request, spec)
            if attempt.specialisation is None:
                draws.restore()
            else:
                size = counted(len(attempt.specialisation.graph.nodes), "operation")
                self.explain.note("trace", f"traced: {size}", time.perf_counter() - begin)
            return attempt
        except BaseException as error:
            is_final = self._reaction(error, captures) is Reaction.FINAL
            if is_final and (accept is None or not isinstance(error, Exception)):
                spec.undo_writes()
            else:
                spec.undo()
                draws.restore()
            raise
        finally:
            spec.release()

    def _run(self, request: _Request, spec: CaptureSpec) -> _Attempt:
        """Trace the copy of the function, and return the specialisation and the variables that it made."""
        call, captures, dynamic_trips, _ = request
        trace = spec.trace
        trace.dynamic_trips = dynamic_trips
        may_translate = config.loops != "trace"
        trace.translates = (self.translates or "") if may_translate else ""
        leaves, inputs = call.placeholders(trace, spec.objects)
        spec.begin()
        trace.hidden = [placeholder.value for placeholder in spec.placeholders]
        trace.inputs = [*inputs, *trace.hidden]
        states = [(thing, state_to_compare(thing)) for thing in (*spec.python_generators, *spec.files)]
        profiler, nothing = ACTIVE.profiler, nullcontext()
        with (
            inside(trace, Scope()),
            collector_paused(),
            counting(f"tracing {self.name}", "operation", recorded_since(moment_now())),
            nothing if profiler is None else profiler.tracing(self),
            watched(Tracer._run.__code__) if may_translate and self.translates is None else nothing,
            translating(self.inner, trace) if may_translate and self.inner else nothing,
        ):
            try:
                specialisation, writes = self._close(call, spec, leaves)
                if any(data.is_read_elsewhere for data in spec.class_data):
                    raise _ReadElsewhere
                if trace.has_text and trace.varying:  # the text may decide what follows
                    raise _has_text(self.name)
                refuse_read_only(call.leaves, leaves, writes.all())
                captures.writes = captures.writes.joined(writes)
                if specialisation is not None and specialisation.effects.to_arguments:
                    captures.writes_to_containers = True
                    if has_repeated(call.given):
                        raise OutcomeFailed
                if any(captures.writes) and captures.is_shared(call, self.name):
                    raise OutcomeFailed
                if any_alive(trace.temporary):
                    raise _outlives(self.name)
                variables = variables_made(trace)
            finally:
                trace.finish()
        self._conclude(request, spec, specialisation, states)
        return _Attempt(specialisation, variables)

    def _conclude(
        self,
        request: _Request,
        spec: CaptureSpec,
        specialisation: Specialisation | None,
        states: list[tuple[Any, bytes]],
    ) -> None:
        """Undo what a trace has done, except for variables that a trace which is kept has made; let the checks be those of its captures."""
        call, captures, _, accept = request
        fits = len(spec.inputs) == len(captures.inputs)
        is_kept = fits and specialisation is not None and (accept is None or accept(specialisation))
        if is_kept:
            kept = kept_variables(spec)
            spec.undo_writes()
            for assign in kept:
                assign()
        else:
            spec.undo()
            if specialisation is not None:
                specialisation.give_up_draws()
        if not fits:
            captures.part_arrays()
            if captures.read(call) is None:
                raise Outdated
            raise InternalError(f"{self.name}: two walks over the same captures differ")
        if spec.trace.asks_memory and not captures.memories:
            captures.memories = list(_memories(call, spec))
        for number in spec.trace.pinned:
            spec.pin(number)
        captures.steps, captures.inputs = [*spec.steps, *captures.memories], spec.inputs
        captures.generators = spec.generators
        if specialisation is not None:
            specialisation.steps, specialisation.inputs = captures.steps, captures.inputs
            specialisation.initial_captures = spec.contents
            self.varying |= specialisation.effects.counted
            if specialisation.effects.changes:
                captures.part(spec.steps_apart(specialisation.effects.to_arrays))
        if is_kept:
            self.explain.warn_of_effects(spec, states)

    def _close(
        self, call: CallArguments, spec: CaptureSpec, leaves: list[Any]
    ) -> tuple[Specialisation | None, Writes]:
        """Run the copy of the function on traced arrays, and close the trace into a graph, which is None if a tape records a capture.

        Return also which arguments it has written to.
        """
        trace = spec.trace
        copies = with_repeated(call.given, call.with_leaves(leaves))
        containers = argument_copies(call.given, copies, "the arguments")
        results, tree = flatten(called_on_traced(spec.function, *copies))
        for array, value, original in zip(spec.placeholders, trace.hidden, spec.originals, strict=True):
            if array.value is not value and type(original) is not np.ndarray:
                raise InPlaceError(f"{self.name} writes to an array that it reads from outside")
        writes = _writes(call, trace, leaves)
        traced, outputs = _traced_results(results, spec)
        containers = [each for each in containers if spec.original(each.copy) is each.copy]
        unchanged = {k: leaves[k] for k in call.positions if k not in writes.all()}
        returned = [leaf for leaf, output in zip(results, outputs, strict=True) if isinstance(output, int)]
        effects = self._effects(spec, containers, unchanged, returned)
        state, stored = state_of(trace)
        computed = [*traced, *effects.values, *stored]
        draws = trace.draws.plan(trace.inputs, trace, lambda value: _is_captured(value, trace))
        arguments = len(call.positions) + len(trace.hidden)  # behind them: the contents of variables
        drawn = [] if draws is None else draws.inputs
        inputs = [*trace.inputs[:arguments], *drawn, *trace.inputs[arguments:]]
        ends = [*computed, *[guard.value for guard in trace.guards]]
        nodes, captured = extract(ends, inputs, stop=lambda value: _is_captured(value, trace))
        if any(tag.recording for value in (*captured, *computed) for tag in value.tags if tag is not trace):
            return None, writes
        force(captured)
        owners = [
            (value.owner, value)
            for value in captured
            if value.owner is not None and value.owner() is not None
        ]
        expected = [(guard.value, guard.expected) for guard in trace.guards]
        graph, guards = rolled_trace(Graph(inputs, nodes, computed, self.name, expected), trace)
        if draws is not None:
            guards = [*guards, *draws.number_guards(len(guards), trace.guards)]
        entry = None
        if (
            not effects.changes
            and not owners
            and not trace.has_outcomes
            and len(inputs) == arguments
            and _is_plain(call, outputs)
        ):
            entry = native_call(call, traced, tree, outputs, spec.originals, writes.all())
        # The native entry accepts only C-contiguous arrays, since views of other layouts alias differently; the kernel works for both.
        form = None if entry is None else entry.form
        native = entry if _is_safe(call, spec, writes) else None
        specialisation = Specialisation(
            graph, guards, tree, outputs, owners, state, native, trace, form, draws, self._kind(call), effects
        )
        return specialisation, writes

    def _effects(
        self, spec: CaptureSpec, arguments: list[Substitute], leaves: dict[int, Any], results: list[Any]
    ) -> SideEffects:
        """Return what each call assigns to objects outside; where a program cannot make that, calls run op by op."""
        try:
            return side_effects_of(spec, arguments, leaves, results)
        except NoRecipe as error:
            name, thing = error.args
            refusal = ConcretizationError(
                f"{self.name} writes {thing} to {name}", why="a program cannot make one in each call"
            )
            refusal.op_by_op = True
            raise refusal from None

    def _kind(self, call: CallArguments) -> str:
        """Return whether the kernel of a call is exact or symbolic."""
        kind: str = self.shapes.kind or config.shapes
        if kind != "auto":
            return kind
        form = without_lengths(call.key)
        earlier = takewhile(lambda key: key != call.key, list(self.signatures))
        alike = islice((key for key in earlier if without_lengths(key) == form), EXACT_LENGTHS)
        return "exact" if len(list(alike)) < EXACT_LENGTHS else "symbolic"


def _may_be_of_inputs(error: BaseException, captures: CaptureSet) -> bool:
    """Return whether hidden inputs may have caused an error, so that the function is traced again without them.

    An error that the user's own code raises is final, so that side effects happen once; except for those of types and values.
    """
    if not isinstance(error, Exception) or not captures.substitutes or not captures.inputs:
        return False
    if isinstance(error, InPlaceError) and error.is_final:
        return False
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    if last is not None and captures.tree.count and raises_explicitly(last):
        return False  # a check of the arguments: the function has been traced with these inputs
    if isinstance(error, GradtapeError | TypeError | ValueError | AssertionError | AttributeError):
        return True
    if last is None or not is_user_file(last.tb_frame.f_code.co_filename):
        return True
    return not raises_explicitly(last)


def _needs_numbers(error: BaseException) -> bool:
    return isinstance(error, ConcretizationError) and error.op_by_op


def _has_text(name: str) -> ConcretizationError:
    """Return the error that lets the numbers of a trace be checked by value, since it has made a text of one."""
    return ConcretizationError(f"{name} converts a number to text", where=user_site(), why="", remedy="")


def _outlives(name: str) -> ConcretizationError:
    error = ConcretizationError(
        f"{name} keeps a debugger that it makes",
        where=user_site(),
        why="the gradients of a compiled function have no numbers while it is traced",
        remedy="return debugger.gradient_tensors(), or call the function inside `with debugger:`",
    )
    error.op_by_op = True
    return error


def _writes(call: CallArguments, trace: Trace, leaves: list[Any]) -> Writes:
    """Return which arguments have been written to in a trace."""
    pairs = list(zip(call.positions, trace.inputs, strict=False))
    direct = {k for k, value in pairs if leaves[k]._base is None and leaves[k]._current is not value}
    noted = {k for k, value in pairs if value in trace.written}
    return Writes(frozenset(direct), frozenset(noted - direct))


def _memories(call: CallArguments, spec: CaptureSpec) -> Iterator[Step]:
    """Yield the checks that the memory of arguments and captures is that of a trace."""
    sources = [
        (Source.ARGUMENT, -1, k, leaf, call.name_of(k))
        for k, leaf in enumerate(call.leaves)
        if memory_of(leaf) is not None
    ]
    for number, original in zip(spec.inputs, spec.originals, strict=True):
        step = spec.steps[number]
        if memory_of(original) is not None:
            sources.append((step.source, step.parent, step.key, original, step.name))
    for source, parent, key, array, name in sources:
        yield Step(source, parent, key, Check.MEMORY, memory_of(array), f"the memory of {name}")


def _is_captured(value: Value, trace: Trace) -> bool:
    """Return whether a value was computed outside a trace; what depends on literals alone is computed in the kernel."""
    if trace in value.tags:
        return False
    return value.data is not None or (value.owner is not None and value.owner() is not None)


def _traced_results(results: list[Any], spec: CaptureSpec) -> tuple[list[Value], list[Any]]:
    """Return the results that are traced, and for each result its position among these, or a function that returns a constant."""
    traced: list[Value] = []
    outputs: list[Any] = []
    for result in results:
        leaf = result.elements() if isinstance(result, Selection) else result
        if ASKING.questions is not None and isinstance(leaf, Handle) and leaf.value.data is None:
            leaf.value.owner = (
                None  # what no argument decides may have a length as its extent: the program computes it
            )
            leaf._hold(traced_value(leaf.value))
        if isinstance(leaf, Handle) and spec.trace in leaf.value.tags:
            outputs.append(len(traced))
            traced.append(leaf.value)
        elif isinstance(leaf, TracedNdarray):
            raise returned_instance(leaf)
        else:
            outputs.append(_constant_result(spec.original(leaf)))
    return traced, outputs


def _refuse_traced_objects(array: Any) -> None:
    """Raise an error for an array of objects with traced numbers in it, which have no numbers after the trace."""
    traced = next((item for item in array.flat if isinstance(item, Handle)), None)
    if traced is not None:
        node = traced.value.node
        raise DtypeError(
            "the jitted function returned an array of objects that are traced numbers",
            where=user_site() if node is None or node.site is None else node.site,
            why="the numbers of each call are results, and an array of objects is not",
            remedy="return them as an array of floats: np.stack(list(y))",
        )


def _constant_result(leaf: Any) -> Callable[[], Any]:
    """Return a function that returns a result that depends on no argument."""
    if isinstance(leaf, Handle):
        (array,) = force([leaf.value])
        return lambda: owned_array(array)
    if isinstance(leaf, np.ndarray):
        if leaf.dtype == object:
            _refuse_traced_objects(leaf)
        snapshot = leaf.copy()
        return snapshot.copy
    if comes_later(leaf):
        raise DtypeError(
            f"the jitted function returned {kind_of(leaf)}",
            where=user_site(),
            why="its items would be computed after the function was traced",
            remedy="return an array, or a list or tuple of arrays",
        )
    return lambda: leaf


def _is_plain(call: CallArguments, outputs: list[Any]) -> bool:
    """Return whether there are traced results, and no argument is a variable."""
    is_computed = not outputs or any(isinstance(output, int) for output in outputs)
    return is_computed and not any(isinstance(leaf, Variable) for leaf in call.leaves)


def _is_safe(call: CallArguments, spec: CaptureSpec, writes: Writes) -> bool:
    """Return whether machine code may answer calls: it sees no other layouts, nor whether an argument that is written to is captured."""
    is_seen = spec.substitutes or not any(writes)
    return is_seen and all(map(_is_contiguous, (*call.leaves, *spec.originals)))


def _is_contiguous(leaf: Any) -> bool:
    return not issubclass(type(leaf), np.ndarray) or bool(leaf.flags.c_contiguous)
