"""Call sites: a jitted function finds the specialisation for a call, traces a new one, or becomes a part of a recording around it."""

from __future__ import annotations

import time
import weakref
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from itertools import islice, takewhile
from operator import itemgetter
from types import CodeType
from typing import Any, Final, NamedTuple, Self, TypeAlias

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
    LeakedValueError,
    SideEffectWarning,
    TraceLimitWarning,
    counted,
    kind_of,
    warn,
)
from gradtape.ir.builder import here
from gradtape.ir.graph import Graph, Literal, Value, constant, extract
from gradtape.ir.op import NDArray
from gradtape.ir.types import aval
from gradtape.kinds.operands import as_value
from gradtape.kinds.refusals import comes_later
from gradtape.locks import Rank, new_lock
from gradtape.progress import counting
from gradtape.runtime.call.capture_entry import CheckedFunction
from gradtape.runtime.compile.kernel import is_of_interruption
from gradtape.runtime.compile.program import ACTIVE, GuardMiss, Program
from gradtape.trace.array.array import Array
from gradtape.trace.array.handle import Handle, fresh_value, is_followed
from gradtape.trace.array.layout import argument_layout
from gradtape.trace.array.masked import Selection
from gradtape.trace.dispatch.call_errors import call_error
from gradtape.trace.jit.aliases import Writes, are_same, merged, partners, refusal, share_memory
from gradtape.trace.jit.captures.capture import capture
from gradtape.trace.jit.captures.spec import CaptureSpec
from gradtape.trace.jit.captures.steps import Check, Step, are_alive
from gradtape.trace.jit.dims import ANY_SHAPES
from gradtape.trace.jit.guards import Trace, trace_of
from gradtape.trace.jit.leaf_kinds import is_array, is_dynamic, is_handle, is_weak
from gradtape.trace.jit.outcomes import OutcomeFailed
from gradtape.trace.jit.side_effects import SideEffects, expect_side_effects, generator_state, write_back
from gradtape.trace.jit.signature import (
    EVERYTHING_TRACED,
    CallArguments,
    StaticArguments,
    as_input,
    describe_key,
    layout_of_input,
    native_call,
    without_lengths,
)
from gradtape.trace.jit.specialisation import CaptureSet, CaptureSets, GuardTree, Miss, Specialisation
from gradtape.trace.jit.state import any_alive, state_of, variables_made
from gradtape.trace.lazy.force import force
from gradtape.trace.lazy.instruments import RECORDING
from gradtape.trace.lazy.reroll import moment_now, recorded_since, rolled_trace
from gradtape.trace.patching.bytecode import raises_explicitly
from gradtape.trace.patching.recorders import install_hooks
from gradtape.trace.random.draws import Draws
from gradtape.trace.source.asking import ASKING
from gradtape.trace.source.contexts import Scope, contexts, inside, running_trace
from gradtape.trace.source.sites import Site, is_user_file, user_site
from gradtape.trace.translation.mode import inner_codes, run_function, translating
from gradtape.trace.translation.trace_budget import TranslationWanted, watched
from gradtape.trace.variables.variable import Variable
from gradtape.trees import (
    ORDERED,
    Leaves,
    TreeSpec,
    flatten,
    flatten_arguments,
    has_texts_only,
    structure_key,
)

_tracing: Final = new_lock(Rank.TRACE)
"""Held while any function is traced: functions call each other in any order, and one lock cannot deadlock."""


Keeps: TypeAlias = Callable[[Specialisation], bool]
"""Says whether a trace is used; else the function is run again."""

MISSED: Final = object()
"""The result of a native entry for nested arguments that it does not match."""

MOST_NESTED = 64

UNEQUAL_TRACES = 4
"""The number of traces of a loop by the values that it looks at after which the function is translated, if it can be."""

OFTEN = 2
"""The number of changes after which a captured integer becomes a hidden input, as floats are from the first."""


EXACT_LENGTHS: Final = 2
"""The number of lengths with exact kernels. That of the third is exact as well, and is what the fourth is compared with."""

EVENTS = 1000
"""The number of events that a call site keeps."""


class Event(NamedTuple):
    """Something that made a call slower than the machine code of its function.

    Attributes
    ----------
    at : float
        When it ended, in seconds since 1970.
    kind : str
        ``signature`` (arguments of new types), ``guard`` (one did not hold), ``capture`` (something that is read from outside has changed),
        ``trace``, ``translation``, ``kernel`` or ``limit`` (there are too many traces: the call runs on the interpreter).
    text : str
        What happened.
    seconds : float
        How long it took.
    site : Site or None
        The user's line.
    """

    at: float
    kind: str
    text: str
    seconds: float = 0.0
    site: Any = None


class NestedEntry(NamedTuple):
    """A native entry that takes the leaves of nested arguments, which are found by their structure with the keys in order.

    Attributes
    ----------
    native : callable
        Takes the leaves, with the keys of dicts sorted.
    results : TreeSpec
        The structure of its results.
    order : callable or None
        Sorts the leaves of arguments whose keys are in another order.
    keys : object
        What `structure_key` returns, if there are dicts with other keys than texts: equal ones may be of other types.
    """

    native: Callable[..., Any]
    results: TreeSpec
    order: Callable[[list[Any]], Sequence[Any]] | None
    keys: Any

    @classmethod
    def of(cls, native: Callable[..., Any], arguments: TreeSpec, results: TreeSpec) -> tuple[TreeSpec, Self]:
        """Return the entry for arguments of a structure, and that structure with the keys in order."""
        tree: Any = arguments.unflatten(range(arguments.num_leaves))
        numbers, spec = flatten_arguments(tree, ORDERED)
        places = sorted(range(len(numbers)), key=numbers.__getitem__)
        order = None if places == sorted(places) else itemgetter(*places)
        return spec, cls(native, results, order, None if has_texts_only(tree) else structure_key(tree))


class CallSite:
    """The traces and programs of one jitted function.

    Parameters
    ----------
    function : callable
        The user's, or one made of it by a transform; it works on arrays.
    name : str
        For messages.
    static : StaticArguments
        The arguments that are parts of the program.
    """

    def __init__(
        self, function: Callable[..., Any], name: str, static: StaticArguments = EVERYTHING_TRACED
    ) -> None:
        self.function = function
        self.static = static
        self.name = name
        self.signatures: dict[Any, CaptureSets] = {}
        self.nested: dict[TreeSpec, NestedEntry] = {}
        self.on_new: Callable[[Specialisation], None] | None = None
        self.traces = 0
        self.inline = False
        self.shapes = ANY_SHAPES
        self.translates: str | None = None
        self.inner: list[CodeType] = []
        self.events: deque[Event] = deque(maxlen=EVENTS)
        self._changed: Counter[str] = Counter()
        self._varying: frozenset[str] = frozenset()
        self._warned = False
        self._told: set[str] = set()

    def _structure(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return structure_key(self.static.mark(args, kwargs))

    def _note(self, kind: str, text: str, seconds: float = 0.0, site: Any = None) -> None:
        self.events.append(Event(time.time(), kind, text, seconds, site))

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Answer a call: by a compiled program, a new trace, or as a part of the recording that what it reads belongs to."""
        if self.shapes.declared is not None:
            self.shapes.check(self.name, self.function, args, kwargs)
        if self.nested and config.jit and not (config.eager or RECORDING.tools):
            leaves, spec = flatten_arguments(self.static.mark(args, kwargs), ORDERED)
            entry = self.nested.get(spec)
            if entry is not None and (entry.keys is None or entry.keys == self._structure(args, kwargs)):
                results = entry.native(*leaves) if entry.order is None else entry.native(*entry.order(leaves))
                if results is not MISSED:
                    return entry.results.unflatten(results)
        here.site = user_site()
        call = CallArguments(args, kwargs, self.static)
        if self.inline or not config.jit or config.eager or RECORDING.tools or _is_traced(call.leaves):
            return self.run_recorded(call, keep_arrays=call.arrays)
        with _tracing:
            found = self._captures(call)
            if found is None:
                return self.run_recorded(call, keep_arrays=call.arrays)
            captures, hidden, generators = found
        try:
            if captures.op_by_op:
                return self.run_recorded(call, keep_arrays=call.arrays)
            if captures.may_draw and running_trace()[0] is not None:  # the trace repeats its draws
                return self.run_recorded(call, keep_arrays=True)
            return self._answer(call, captures, hidden, generators)
        finally:
            captures.release()

    def _answer(
        self, call: CallArguments, captures: CaptureSet, hidden: list[Any], generators: list[Any]
    ) -> Any:
        """Answer a call whose captures are known."""
        if any(captures.writes) and self._is_shared(call, captures):
            return self.run_recorded(call, keep_arrays=call.arrays, copies=True)
        if _is_traced(hidden):
            return self.run_recorded(call, keep_arrays=True)
        if _is_followed(call.leaves) or _is_followed(hidden) or captures.tree.followed():
            return self._recorded(call, captures, hidden, generators)
        try:
            return self._computed(call, captures, hidden, generators)
        except OutcomeFailed:
            return self.run_recorded(call, keep_arrays=call.arrays, copies=any(captures.writes))
        except ConcretizationError as error:
            if not error.op_by_op:
                raise
            captures.op_by_op = True
            self._note("limit", f"{error.what}: its calls run op by op", site=error.where)
            return self.run_recorded(call, keep_arrays=call.arrays)
        except LeakedValueError:
            if not contexts.rules:
                raise
            # the rule of a node in the body of a loop, which is differentiated before there are numbers
            return self.run_recorded(call, keep_arrays=True)

    def _is_shared(self, call: CallArguments, captures: CaptureSet) -> bool:
        """Return whether an argument that the function writes to is also another one; refuse calls where it shares memory otherwise."""
        writes, leaves, shared = captures.writes, call.leaves, False
        for position, other in partners(leaves, writes.all()):
            if position in writes.copies or not are_same(leaves[position], leaves[other]):
                raise refusal(self.name, call.name_of(position), call.name_of(other))
            shared = True
        for name, array in captures.arrays(call):
            for position in writes.all():
                if share_memory(leaves[position], array):
                    raise refusal(self.name, call.name_of(position), f"{name}, which it reads from outside")
        return shared

    def _computed(
        self, call: CallArguments, captures: CaptureSet, hidden: list[Any], generators: list[Any]
    ) -> Any:
        """Answer a call that no tape or trace follows."""
        tree = captures.tree
        arrays = [*call.dynamic(), *map(as_input, hidden)]
        found, result, missed = tree.run(arrays, generators)
        if found:
            for function in captures.checked:
                function.renew()
            return _as_arrays(call, result)
        with _tracing:
            if tree.followed():  # by what another thread has traced meanwhile
                return self._recorded(call, captures, hidden, generators)
            found, result, missed = tree.run(arrays, generators)
            if found:
                return _as_arrays(call, result)
            specialisation = self._trace_translated(call, captures, missed)
            if specialisation is not None:
                tree, missed = captures.tree, None
            elif missed in tree.in_python:
                return self.run_recorded(call, keep_arrays=call.arrays)
            elif tree.count >= config.trace_limit:
                self._warn(tree, missed)
                return self.run_recorded(call, keep_arrays=call.arrays)
            else:
                if missed is not None:
                    guard = missed.specialisation.guards[missed.guard]
                    text = f"a guard expects {guard.expected} and found {missed.actual}"
                    self._note("guard", text, site=guard.site)
                specialisation = self._trace_dynamic(call, captures, missed) or self.trace(call, captures)
            if specialisation is None:
                return self.run_recorded(call, keep_arrays=True)
            if captures.tree is not tree:  # with other inputs than the traces before
                tree, missed = captures.tree, None
            if not specialisation.has_dynamic_trips:
                tree.add(specialisation, missed)
        if specialisation.state.followed():
            return self._recorded(call, captures, hidden, generators)
        # The captures as they were before the trace, which may have written to them.
        initial = hidden if specialisation.initial_captures is None else specialisation.initial_captures
        specialisation.initial_captures = None
        arrays = [*call.dynamic(), *map(as_input, initial)]
        self._note_kernel(specialisation.program)
        try:
            result = specialisation.run(arrays, generators)
        except GuardMiss as miss:
            # The kernel rounds otherwise than NumPy has in the trace, and Python has looked at what depends on it: its way stands.
            self._note_disagreement(tree, missed, Miss(specialisation, miss.guard, miss.actual))
            if specialisation.draws is not None:
                return self.run_recorded(call, keep_arrays=call.arrays)
            result = specialisation.run_as_traced(arrays)
        if self.on_new is not None:
            self.on_new(specialisation)
        return _as_arrays(call, result)

    def _note_kernel(self, program: Program) -> None:
        kernel = program.kernel_so_far
        text = {
            "background": "a thread compiles it, and the NumPy interpreter answers until then",
            "compiled": "compiled by LLVM",
            "disk": "loaded from the disk cache",
            "interpreter": f"not compiled, the NumPy interpreter runs it: {kernel.reason}",
        }[kernel.origin]
        if program.was_known:
            text = "found in memory: another function, or another trace, computes the same"
        self._note("kernel", text, 0.0 if program.was_known else kernel.seconds)

    def _recorded(
        self, call: CallArguments, captures: CaptureSet, hidden: list[Any], generators: list[Any]
    ) -> Any:
        """Answer a call that a tape or trace follows: the nodes of the trace are appended to its recording."""
        tree = captures.tree
        with _tracing:
            if captures.in_python or not tree.can_be_recorded():
                return self.run_recorded(call, keep_arrays=True)
            given = [_as_value(leaf) for leaf in (*call.traced(), *hidden)]
            found, result, missed = tree.recorded(given, generators)
            if found:
                return result
            if tree.count >= config.trace_limit:
                self._warn(tree, missed)
                return self.run_recorded(call, keep_arrays=True)
            try:
                specialisation = self.trace(call, captures, keeps=lambda made: made.can_be_recorded)
            except (
                Exception,
                OutcomeFailed,
            ):  # that only a trace raises: the function itself decides
                specialisation = None
            if specialisation is not None:
                specialisation.initial_captures = None
            if specialisation is None:
                captures.in_python = True
                return self.run_recorded(call, keep_arrays=True)
            if captures.tree is not tree:  # with other inputs than the traces before
                tree, missed = captures.tree, None
            tree.add(specialisation, missed)
            if not specialisation.can_be_recorded:
                return self.run_recorded(call, keep_arrays=True)
            return specialisation.recorded(given, generators, is_traced_call=True)

    def _captures(self, call: CallArguments) -> tuple[CaptureSet, list[Any], list[Any]] | None:
        """Return the captures that are valid now, the hidden inputs and the generators; None where the limit of traces is reached."""
        known = self.signatures.setdefault(call.key, CaptureSets())
        for captures in known:
            found = captures.read(call)
            if found is None:
                continue
            if captures.valid():
                return captures, *found
            known.remove(captures)
            break
        changed = None
        if known:
            changed = known[0].first_change(call)
            if changed is not None and changed.check is Check.SAME and type(changed.expected) is int:
                self._changed[changed.name] += 1
                if self._changed[changed.name] >= OFTEN:
                    self._varying |= {changed.name}
        self._drop_dead()
        known = self.signatures.setdefault(call.key, CaptureSets())
        if len(known) >= config.trace_limit:
            self._warn_of_changes(changed)
            return None
        if len(self.signatures) > config.memory_cache:
            del self.signatures[next(iter(self.signatures))]
        if changed is None:
            self._note("signature", f"called with arguments of new types: {describe_key(call.key)}")
        else:
            self._note("capture", f"{changed.name}, which it reads from outside, has changed")
        install_hooks()  # before functions are copied, whose code they change
        captures = CaptureSet(self.capture(call))
        known.insert(0, captures)
        found = captures.read(call)
        assert found is not None
        return captures, *found

    def specialisations(self) -> list[Specialisation]:
        """Return every specialisation, of every signature."""
        return [specialisation for known in list(self.signatures.values()) for specialisation in known.all()]

    def note_bound(self, specialisation: Specialisation, bound: CheckedFunction | None) -> None:
        """Register a native function, whose checks of classes are renewed where Python finds that they hold."""
        for known in list(self.signatures.values()):
            for captures in known:
                if bound is not None and specialisation in captures.tree.all():
                    captures.checked.add(bound)

    def specialisations_for(self, call: CallArguments) -> list[Specialisation]:
        """Return the specialisations for calls like this one whose captures are valid now."""
        for captures in self.signatures.get(call.key, ()):
            if captures.read(call) is not None:
                return captures.tree.all()
        return []

    def prepare(self, call: CallArguments) -> None:
        """Trace a call, if there is no trace for it yet, and compute nothing."""
        here.site = user_site()
        with _tracing:
            found = self._captures(call)
            if found is None:
                return
            captures, hidden, _ = found
            try:
                if captures.tree.count or _is_traced(hidden):
                    return
                specialisation = self.trace(call, captures)
                if specialisation is not None:
                    specialisation.initial_captures = None
                    specialisation.give_up_draws()
                    captures.tree.add(specialisation, None)
            finally:
                captures.release()

    def kernel_call(self, call: CallArguments) -> tuple[Specialisation, list[NDArray]] | None:
        """Return the latest specialisation for calls like this one, with its hidden inputs as they are now; None where there is none."""
        for captures in self.signatures.get(call.key, ()):
            found = captures.read(call)
            if found is not None and captures.tree.all():
                return captures.tree.all()[-1], [as_input(content) for content in found[0]]
        return None

    def capture(self, call: CallArguments, substitutes: bool = True) -> CaptureSpec:
        """Return the captures of the function as they are now, for a new trace."""
        trace = Trace(f"the jitted function {self.name!r}")
        return capture(self.function, call.objects, trace, substitutes=substitutes, varying=self._varying)

    def _drop_dead(self) -> None:
        """Drop the traces of variables and objects that do not exist any more."""
        for key, known in list(self.signatures.items()):
            known[:] = [captures for captures in known if captures.valid() and are_alive(captures.steps)]
            if not known:
                del self.signatures[key]

    def _trace_dynamic(
        self, call: CallArguments, captures: CaptureSet, missed: Miss | None
    ) -> Specialisation | None:
        """Trace a call with dynamic trip counts, if the search ended at a guard that may be the condition of a loop."""
        if missed is None or not missed.specialisation.may_be_loop or not config.reroll:
            return None
        kept = False

        def keeps(made: Specialisation) -> bool:
            nonlocal kept
            kept = made.has_dynamic_trips and captures.tree.replace_by_dynamic(made)
            return kept

        specialisation = self.trace(call, captures, dynamic_trips=True, keeps=keeps)
        return specialisation if kept else None

    def _trace_translated(
        self, call: CallArguments, captures: CaptureSet, missed: Miss | None
    ) -> Specialisation | None:
        """Trace a call with translated functions, if a loop has looked at values that differ from call to call; None otherwise."""
        often = captures.tree.count >= min(UNEQUAL_TRACES, config.trace_limit)
        if missed is None or not often or not missed.specialisation.may_be_loop:
            return None
        if self.translates is not None or config.loops == "trace":
            return None
        site = missed.specialisation.guards[missed.guard].site
        self.translates = f"what Python sees at {site!r} differs from call to call"
        self.inner = [site.code] if isinstance(site, Site) else []
        specialisation = self.trace(call, captures, keeps=lambda made: made.is_translated)
        if specialisation is None or not specialisation.is_translated:
            self.translates = ""
            return None
        captures.tree = GuardTree()
        return specialisation

    def trace(
        self,
        call: CallArguments,
        captures: CaptureSet | None = None,
        *,
        dynamic_trips: bool = False,
        keeps: Keeps | None = None,
    ) -> Specialisation | None:
        """Trace one call; None where a capture is being watched, so that the call belongs to a tape.

        A function may make its variables in its first call and keep them: then that trace knows them only as new, and another
        one is made. Where `keeps` says that a trace is not used, or it is None, the function is run again, and the side effects of
        the trace are undone. Without `keeps` the function is not run again if it fails: then what it wrote until then stays.
        """
        if captures is None:
            captures = CaptureSet(self.capture(call))
        traced = None
        try:
            traced = self._trace(call, captures, dynamic_trips, keeps)
        except Exception as error:
            if is_of_interruption(error):
                raise KeyboardInterrupt from error
            if not _may_retry(error, captures):
                raise
        if traced is None:
            # A traced array cannot stand for one of the captures: then they are checked by value.
            with captures.by_value():
                captures.take(self.capture(call, False))
                traced = self._trace(call, captures, dynamic_trips, keeps)
        specialisation, made = traced
        if any_alive(made):
            if specialisation is not None:
                specialisation.give_up_draws()
            specialisation, made = self._trace(call, captures, dynamic_trips, keeps)
            if any_alive(made):
                raise ArgumentError(
                    f"{self.name} makes variables in each call and keeps them",
                    where=user_site(),
                    why="a compiled function does not run its Python code again, so later calls could not make theirs",
                    remedy="make them outside of the function, or in the first call only",
                )
        return specialisation

    def _trace(
        self, call: CallArguments, captures: CaptureSet, dynamic_trips: bool, keeps: Keeps | None
    ) -> tuple[Specialisation | None, list[weakref.ref[Any]]]:
        """Trace one call; return also the variables that it made. Where it needs to, trace it again with translated functions."""
        try:
            return self._trace_once(call, captures, dynamic_trips, keeps)
        except (TranslationWanted, Exception) as error:
            reason = self._reason_to_translate(error)
            if reason is None:
                raise
            self.translates = reason
            self.inner = inner_codes(error)
            self._note("translation", f"its code is translated in place of being traced: {reason}")
        spec = self.capture(call, captures.substitutes)
        captures.take(spec)
        try:
            return self._trace_once(call, captures, dynamic_trips, keeps)
        except ConcretizationError as error:
            for way in spec.trace.ways:
                error.add_note(f"  {way}")
            raise

    def _reason_to_translate(self, error: BaseException) -> str | None:
        """Return why functions are to be translated, if an error that ended a trace says so."""
        if self.translates is not None or config.loops == "trace" or _runs_op_by_op(error):
            return None
        if isinstance(error, TranslationWanted):
            return error.reason
        if ASKING.questions is not None:  # translated code cannot be exported for lengths that vary
            return None
        unknown = error if isinstance(error, ConcretizationError) else error.__cause__
        return unknown.what if isinstance(unknown, ConcretizationError) else None

    def _trace_once(
        self, call: CallArguments, captures: CaptureSet, dynamic_trips: bool, keeps: Keeps | None
    ) -> tuple[Specialisation | None, list[weakref.ref[Any]]]:
        self.traces += 1
        begin = time.perf_counter()
        spec = captures.spec or self.capture(call, captures.substitutes)
        captures.spec = None
        draws = spec.trace.draws = Draws(spec.numpy_generators)
        try:
            traced = self._trace_copy(call, captures, dynamic_trips, keeps, spec)
            if traced[0] is None:
                draws.restore()
            else:
                size = counted(len(traced[0].graph.nodes), "operation")
                self._note("trace", f"traced: {size}", time.perf_counter() - begin)
            return traced
        except BaseException as error:
            again = (
                isinstance(error, OutcomeFailed)
                or _runs_op_by_op(error)
                or _may_retry(error, captures)
                or self._reason_to_translate(error) is not None
            )
            if again or (keeps is not None and isinstance(error, Exception)):
                spec.undo()
                draws.restore()
            else:
                write_back(
                    spec, SideEffects()
                )  # what the function has done until then stays, as without a trace
            raise
        finally:
            spec.release()

    def _trace_copy(
        self,
        call: CallArguments,
        captures: CaptureSet,
        dynamic_trips: bool,
        keeps: Keeps | None,
        spec: CaptureSpec,
    ) -> tuple[Specialisation | None, list[weakref.ref[Any]]]:
        """Trace the copy of the function, write its side effects back, and return the specialisation and the variables it created."""
        trace = spec.trace
        trace.dynamic_trips = dynamic_trips
        by_need = config.loops != "trace"
        trace.translates = (self.translates or "") if by_need else ""
        leaves, inputs = call.placeholders(trace, spec.objects)
        spec.begin()
        trace.hidden = [array.value for array in spec.placeholders]
        trace.inputs = [*inputs, *trace.hidden]
        draws = [(generator, generator_state(generator)) for generator in spec.python_generators]
        profiler = ACTIVE.profiler
        traced = counting(f"tracing {self.name}", "operation", recorded_since(moment_now()))
        profiled = nullcontext() if profiler is None else profiler.tracing(self)
        looked_at = (
            watched(CallSite._trace_copy.__code__) if by_need and self.translates is None else nullcontext()
        )
        inner = translating(self.inner, trace) if by_need and self.inner else nullcontext()
        with inside(trace, Scope()), collector_paused(), traced, profiled, looked_at, inner:
            try:
                specialisation, writes = self._specialise(call, spec, leaves)
                captures.writes = captures.writes.joined(writes)
                if any(captures.writes) and self._is_shared(call, captures):
                    raise OutcomeFailed
                if any_alive(trace.temporary):
                    raise _outlives(self.name)
                made = variables_made(trace)
            finally:
                trace.finish()
        effects = SideEffects()
        is_kept = specialisation is not None and (keeps is None or keeps(specialisation))
        if is_kept:
            write_back(spec, effects)
        else:
            spec.undo()
            if specialisation is not None:
                specialisation.give_up_draws()
        if len(spec.inputs) != len(captures.inputs):
            raise InternalError(f"{self.name}: two walks over the same captures differ")
        captures.steps, captures.inputs, captures.generators = spec.steps, spec.inputs, spec.generators
        for number in trace.pinned:
            spec.pin(number)
        if is_kept and not expect_side_effects(captures.steps, call.objects, effects):
            self._forget(captures)
        if specialisation is not None:
            specialisation.steps, specialisation.inputs = captures.steps, captures.inputs
            specialisation.initial_captures = spec.contents
        if is_kept:
            self._warn_of_effects(spec, effects, draws)
        return specialisation, made

    def _forget(self, captures: CaptureSet) -> None:
        for known in self.signatures.values():
            if captures in known:
                known.remove(captures)

    def _specialise(
        self, call: CallArguments, spec: CaptureSpec, leaves: list[Any]
    ) -> tuple[Specialisation | None, Writes]:
        """Run the copy of the function on traced arrays, and close the trace into a graph, which is None if a tape follows a capture.

        Return also which arguments it has written to.
        """
        trace = spec.trace
        args, kwargs = call.with_leaves(leaves)
        results, tree = flatten(self._result(spec.function, args, kwargs))
        if trace.outcome is False:
            raise OutcomeFailed
        if any(
            array.value is not value for array, value in zip(spec.placeholders, trace.hidden, strict=True)
        ):
            raise InPlaceError(f"{self.name} writes to an array that it reads from outside")
        writes = _writes(call, trace, leaves)
        traced: list[Value] = []
        outputs: list[Any] = []
        for result in results:
            leaf = result.elements() if isinstance(result, Selection) else result
            if isinstance(leaf, Handle) and trace in leaf.value.tags:
                outputs.append(len(traced))
                traced.append(leaf.value)
            else:
                outputs.append(_constant_result(spec.original(leaf)))
        state, stored = state_of(trace)
        computed = [*traced, *stored]
        wanted = [*computed, *[guard.value for guard in trace.guards]]
        draws = trace.draws.plan(trace.inputs, trace, lambda value: _is_captured(value, trace))
        drawn = [] if draws is None else draws.inputs
        first_content = len(call.positions) + len(trace.hidden)
        inputs = [*trace.inputs[:first_content], *drawn, *trace.inputs[first_content:]]
        nodes, captured = extract(wanted, inputs, stop=lambda value: _is_captured(value, trace))
        if any(tag.recording for value in (*captured, *computed) for tag in value.tags if tag is not trace):
            return None, writes
        force(captured)
        owners = [
            (value.owner, value)
            for value in captured
            if value.owner is not None and value.owner() is not None
        ]
        guards = [(guard.value, guard.expected) for guard in trace.guards]
        graph = Graph(inputs, nodes, computed, self.name, guards)
        graph, seen = rolled_trace(graph, trace)
        if draws is not None:
            seen = [*seen, *draws.number_guards(len(seen), trace.guards)]
        plain = (
            not owners
            and trace.outcome is None
            and len(inputs) == first_content
            and all(isinstance(output, int) for output in outputs)
            and not any(isinstance(leaf, Variable) for leaf in call.leaves)
        )
        served = native_call(call, traced, tree, outputs, spec.originals, writes.all()) if plain else None
        # Machine code takes C-contiguous arrays, of which views may be other views; the kernel behind it serves both.
        form = None if served is None else served.form
        # It does not see whether an array that is checked by value is also an argument that is written to.
        is_seen = all(map(_is_contiguous, (*call.leaves, *spec.originals))) and (
            spec.substitutes or not any(writes)
        )
        native = served if is_seen else None
        specialisation = Specialisation(
            graph, seen, tree, outputs, owners, state, native, trace, form, draws, self._kind(call)
        )
        return specialisation, writes

    def _kind(self, call: CallArguments) -> str:
        """Return whether the kernel of a call is exact or symbolic."""
        kind: str = self.shapes.kind or config.shapes
        if kind != "auto":
            return kind
        form = without_lengths(call.key)
        earlier = takewhile(lambda key: key != call.key, list(self.signatures))
        alike = islice((key for key in earlier if without_lengths(key) == form), EXACT_LENGTHS)
        return "exact" if len(list(alike)) < EXACT_LENGTHS else "symbolic"

    def _result(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            return self._called(function, args, kwargs)
        except ValueError as error:
            # NumPy replaces the error of float(x) by "setting an array element with a sequence".
            if isinstance(error.__cause__, ConcretizationError):
                raise error.__cause__ from None
            raise

    def _called(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            return run_function(function, args, kwargs)
        except (TypeError, AttributeError) as error:
            mistake = call_error(error, function, args, kwargs)
            if mistake is None:
                raise
            raise mistake from None

    def run_recorded(self, call: CallArguments, *, keep_arrays: bool = False, copies: bool = False) -> Any:
        """Run the function as it stands on pending arrays, and compute the results.

        Parameters
        ----------
        call : Call
            The arguments.
        keep_arrays : bool
            Whether results stay Arrays in any case, and not only where a tape or trace around the call follows them.
        copies : bool
            Whether the function gets copies of Arrays, as compiled functions do, and not these themselves.
        """
        leaves = [_as_recorded(leaf) for leaf in call.leaves]
        if copies:
            leaves = [_copied(leaf) if type(leaf) is Array else leaf for leaf in leaves]
        for position, first in merged(call.leaves).items():
            leaves[position] = leaves[first]
        begins = [leaf.value if isinstance(leaf, Handle) else None for leaf in leaves]
        args, kwargs = call.with_leaves(leaves)
        with inside(Scope()):
            results = Leaves(*flatten(self._called(self.function, args, kwargs)), is_handle)
        written = [
            k for k, leaf in enumerate(leaves) if isinstance(leaf, Handle) and leaf.value is not begins[k]
        ]
        for position, other in partners(call.leaves, written):
            if leaves[position] is not leaves[other]:
                raise refusal(self.name, call.name_of(position), call.name_of(other))
        arrays = results.traced()
        if not (keep_arrays or any(map(is_followed, arrays))):
            arrays = list(map(_owned_array, force([array.value for array in arrays])))
        return results.rebuild(arrays)

    def _warn(self, tree: GuardTree, missed: Miss | None) -> None:
        if tree.warned:
            return
        tree.warned = True
        self._note(
            "limit", f"there are {tree.count} traces already: calls that need another run on the interpreter"
        )
        warn(
            TraceLimitWarning,
            f"{self.name} has {tree.count} traces for one signature; calls that need another run on the interpreter",
            where=None if missed is None else missed.specialisation.guards[missed.guard].site,
            why="what Python sees there differs from call to call, and each way on is traced and compiled",
            remedy="use np.where in place of the branch, or raise gt.config.trace_limit",
        )

    def _note_disagreement(self, tree: GuardTree, missed: Miss | None, own: Miss) -> None:
        """Give a guard's value up if two traces in a row have disagreed with the kernel on it: calls that find it run in Python."""
        one = own.specialisation
        if missed is None or own[1:] != missed[1:]:
            return
        if one.program.kernel is not missed.specialisation.program.kernel:
            return
        tree.give_up(missed)
        warn(
            TraceLimitWarning,
            f"{self.name} looks at a number that its kernel rounds otherwise than NumPy; calls in which this decides run on the "
            "interpreter",
            where=one.guards[own.guard].site,
            why="sums in another order, and other implementations of functions, differ in the last digits",
            remedy="use np.where in place of the branch, or compare with a tolerance",
        )

    def _warn_of_changes(self, changed: Step | None) -> None:
        if self._warned:
            return
        self._warned = True
        what = "what it reads from outside" if changed is None else changed.name
        warn(
            TraceLimitWarning,
            f"{self.name} was traced {config.trace_limit} times for one signature, because {what} changes; calls that find it "
            "changed once more run on the interpreter",
            why="it steers Python, or could not be traced, and each value is traced and compiled",
            remedy="pass it as an argument, keep it in an array or a gt.Variable, or raise gt.config.trace_limit",
        )

    def _warn_of_effects(self, spec: CaptureSpec, effects: SideEffects, draws: list[tuple[Any, Any]]) -> None:
        """Warn once of each side effect that the compiled function does not repeat."""
        unrepeated = dict(spec.unrepeatable)
        if any(generator_state(generator) != state for generator, state in draws):
            unrepeated["a random number generator"] = (
                "it has drawn numbers, and the compiled function has those of the trace"
            )
        for name in effects.written.keys() - spec.logs:
            unrepeated.setdefault(name, "it is written to, which compiled calls do not repeat")
        for name in effects.lost:
            unrepeated[name] = "a traced array is written to it, which is not done"
        fresh = {name: why for name, why in unrepeated.items() if name not in self._told}
        self._told |= fresh.keys()
        for name, why in fresh.items():
            warn(
                SideEffectWarning,
                f"{self.name} uses {name}",
                why=f"{why}: a function is run once in Python and compiled",
                remedy="do it outside of the function; pass and return what changes, or keep it in a gt.Variable",
            )


def _writes(call: CallArguments, trace: Trace, leaves: list[Any]) -> Writes:
    """Return which arguments have been written to in a trace."""
    pairs = list(zip(call.positions, trace.inputs, strict=False))
    direct = {k for k, value in pairs if leaves[k]._base is None and leaves[k]._current is not value}
    noted = {k for k, value in pairs if value in trace.written}
    return Writes(frozenset(direct), frozenset(noted - direct))


def _may_retry(error: BaseException, captures: CaptureSet) -> bool:
    """Return whether a function is traced again, without hidden inputs, after an error that they may have caused.

    An error that the user's own code raises is final, so that side effects happen once; except for those of types and values.
    """
    if not isinstance(error, Exception) or not captures.substitutes or not captures.inputs:
        return False
    if _runs_op_by_op(error) or (isinstance(error, InPlaceError) and error.is_final):
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


def _runs_op_by_op(error: BaseException) -> bool:
    return isinstance(error, ConcretizationError) and error.op_by_op


def _outlives(name: str) -> ConcretizationError:
    error = ConcretizationError(
        f"{name} keeps a debugger that it makes",
        where=user_site(),
        why="the gradients of a compiled function have no numbers while it is traced",
        remedy="return debugger.gradient_tensors(), or call the function inside `with debugger:`",
    )
    error.op_by_op = True
    return error


def _is_traced(leaves: list[Any]) -> bool:
    """Return whether one of the leaves belongs to a running trace."""
    return any(
        type(leaf) is Selection or (is_array(leaf) and trace_of(leaf.value) is not None) for leaf in leaves
    )


def _is_followed(leaves: list[Any]) -> bool:
    """Return whether a tape or trace follows one of the leaves."""
    return any(
        leaf.followed if isinstance(leaf, Variable) else any(tag.recording for tag in leaf.value.tags)
        for leaf in leaves
        if isinstance(leaf, Handle)
    )


def _as_value(leaf: Any) -> Value:
    """Return an argument or hidden input as a value of the recording."""
    if isinstance(leaf, Handle):
        return leaf.value
    array = as_input(leaf)
    return Value(aval(array.shape, array.dtype, is_weak(leaf)), data=np.array(array))


def _as_arrays(call: CallArguments, result: Any) -> Any:
    """Return results as Arrays where an argument is one."""
    if not call.arrays:
        return result
    leaves, spec = flatten(result)
    arrays = [
        Array(constant(np.asarray(leaf))) if issubclass(type(leaf), np.ndarray | np.generic) else leaf
        for leaf in leaves
    ]
    return spec.unflatten(arrays)


def _is_contiguous(leaf: Any) -> bool:
    return not issubclass(type(leaf), np.ndarray) or bool(leaf.flags.c_contiguous)


def _is_captured(value: Value, trace: Trace) -> bool:
    """Return whether a value was computed outside of a trace; what depends on literals alone is computed in the kernel."""
    if trace in value.tags:
        return False
    return value.data is not None or (value.owner is not None and value.owner() is not None)


def _as_recorded(leaf: Any) -> Any:
    """Return a leaf as it enters a recording: arrays and numbers become Arrays, so that writes never reach the caller's."""
    if not is_dynamic(leaf) or isinstance(leaf, Handle):
        return leaf
    value = as_value(leaf, "an argument")
    # A literal has no place in the graph that gradients could ask for.
    array = Array(Value(value.aval, data=value.data) if isinstance(value, Literal) else value)
    if issubclass(type(leaf), np.ndarray):
        array._contiguous = argument_layout(leaf)
    return array


def _copied(leaf: Array) -> Array:
    """Return an Array of its own with the content of another one."""
    copy = Array(fresh_value(leaf.value))
    copy._contiguous = layout_of_input(leaf)
    return copy


def _owned_array(array: NDArray) -> Any:
    """Return a computed array as the caller's own; rank 0 becomes a NumPy scalar, as NumPy's functions return it."""
    return np.array(array) if array.ndim else array[()]


def _constant_result(leaf: Any) -> Callable[[], Any]:
    """Return a function that returns a result that depends on no argument."""
    if isinstance(leaf, Handle):
        (array,) = force([leaf.value])
        return lambda: _owned_array(array)
    if isinstance(leaf, np.ndarray):
        snapshot = leaf.copy()
        return snapshot.copy
    if comes_later(leaf):
        raise DtypeError(
            f"the jitted function returned {kind_of(leaf)}",
            where=user_site(),
            why="what it gives would be computed after the function was traced",
            remedy="return an array, or a list or tuple of arrays",
        )
    return lambda: leaf
