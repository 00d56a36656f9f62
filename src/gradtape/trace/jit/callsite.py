"""A jitted function: traces by signature and by what Python saw of the values, compiled programs, and the way between them."""

from __future__ import annotations

import threading
import weakref
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, Final, NamedTuple

import numpy as np

from gradtape.config import config
from gradtape.errors import (
    ArgumentError,
    ConcretizationError,
    DtypeError,
    GradtapeError,
    InPlaceError,
    InternalError,
    SideEffectWarning,
    TraceLimitWarning,
    warn,
)
from gradtape.ir.body import holds_rules
from gradtape.ir.builder import here
from gradtape.ir.graph import Graph, Literal, Value, constant, extract
from gradtape.ir.op import NDArray
from gradtape.ir.types import aval
from gradtape.kinds.operands import as_value
from gradtape.kinds.refusals import comes_later
from gradtape.locks import renewed_in_child
from gradtape.progress import counting
from gradtape.runtime.call.capture_entry import CheckedFunction, missing
from gradtape.runtime.compile.loader import LoadedModule
from gradtape.runtime.compile.program import (
    ACTIVE,
    CallForm,
    GuardMiss,
    Program,
    is_of_interruption,
    program_for,
)
from gradtape.trace.array.array import Array
from gradtape.trace.array.handle import Handle, apart, is_recording
from gradtape.trace.array.layout import argument_layout
from gradtape.trace.array.masked import Selection
from gradtape.trace.dispatch.call_errors import list_meant
from gradtape.trace.jit.capture_steps import Check, Step, all_alive, read_all
from gradtape.trace.jit.capture_table import checked_function
from gradtape.trace.jit.captures import Walk
from gradtape.trace.jit.guards import Guard, Trace, trace_of
from gradtape.trace.jit.loop_exits import looked_at_again, open_form
from gradtape.trace.jit.outcomes import OutcomeFailed
from gradtape.trace.jit.side_effects import SideEffects, rebased, state_of_generator, write_back
from gradtape.trace.jit.signature import (
    EVERYTHING_TRACED,
    Call,
    NativeCall,
    StaticArguments,
    as_input,
    is_array,
    is_dynamic,
    is_weak,
    native_call,
)
from gradtape.trace.jit.state import State, any_alive, made_in, state_of
from gradtape.trace.lazy.collector import resting
from gradtape.trace.lazy.force import force
from gradtape.trace.lazy.instruments import RECORDING
from gradtape.trace.lazy.reroll import moment_now, recorded_since, rolled_trace
from gradtape.trace.patching.bytecode import raises_explicitly
from gradtape.trace.source.contexts import Scope, inside
from gradtape.trace.source.sites import is_users, user_site
from gradtape.trace.variables.variable import Variable
from gradtape.transforms.call import repeated
from gradtape.trees import TreeSpec, flatten, flatten_arguments

_tracing = threading.RLock()
"""Held while any function is traced: functions call each other in any order, and one lock cannot deadlock."""


def _renew_lock() -> None:
    global _tracing
    _tracing = threading.RLock()


renewed_in_child(_renew_lock)


MISSED: Final = object()
"""What machine code returns for calls with nested arguments that it cannot serve."""

MOST_NESTED = 64

OFTEN = 2
"""After how many changes an integer that is read from outside becomes a hidden input, as floats are from the first."""


class NestedEntry(NamedTuple):
    """Machine code that takes the leaves of nested arguments, and the containers of its results."""

    native: Callable[..., Any]
    results: TreeSpec


class Specialisation:
    """One trace of a function: its graph, what was seen on the way, how results are put together, and the compiled program."""

    __slots__ = (
        "_form",
        "_program",
        "begun",
        "captured",
        "checkpoint",
        "declined",
        "graph",
        "guards",
        "inputs",
        "is_prepared",
        "looks_again",
        "loops",
        "native",
        "outputs",
        "spec",
        "state",
        "steps",
        "ways",
    )

    def __init__(
        self,
        graph: Graph,
        guards: list[Guard],
        spec: TreeSpec,
        outputs: list[Any],
        captured: list[tuple[weakref.ref[Handle], Value]],
        state: State,
        native: NativeCall | None,
        trace: Trace,
        form: CallForm | None,
    ) -> None:
        self.steps: list[Step] = []
        self.inputs: list[int] = []
        self.begun: list[NDArray] | None = None
        self.graph = graph
        self.guards = guards
        self.spec = spec
        self.outputs = outputs
        self.captured = captured
        self.state = state
        self.native = native
        self._form = form
        self.loops = trace.loops
        self.declined = trace.declined
        self.looks_again = looked_at_again(trace.sites)
        self.checkpoint = config.reroll_checkpoint
        self.is_prepared = trace.outcome is not None
        self.ways: dict[tuple[int, int], Specialisation] = {}
        self._program: Program | None = None

    @property
    def program(self) -> Program:
        """The compiled program, made at the first look: what only tapes run is never compiled."""
        if self._program is None:
            self._program = program_for(self.graph, self._form)
        return self._program

    @property
    def is_native(self) -> bool:
        """Return whether machine code can serve calls without Python, and has been made."""
        return (
            self.native is not None and self._program is not None and self._program.kernel.loaded is not None
        )

    def run(self, arrays: list[NDArray]) -> Any:
        """Run the program; raise GuardMiss where Python would have seen something else."""
        results = self.state.run(self.program, arrays)
        return self.spec.unflatten([self._leaf(output, results) for output in self.outputs])

    @staticmethod
    def _leaf(output: Any, results: list[NDArray]) -> Any:
        if isinstance(output, int):
            array = results[output]
            return array if array.ndim else array[()]
        return output()

    def bound(self, fallback: Callable[..., Any], code: LoadedModule | None) -> CheckedFunction | None:
        """Return a native function for calls like the traced one, which hands all others to `fallback`; None where there can be none.

        `code` is machine code to be used in place of the program's own.
        """
        native = self.native
        assert native is not None
        straight = not self.inputs and len(native.passed) == native.leaves
        behind = self.program.bind(fallback if straight else missing(), native.statics, code)
        if behind is None:
            return None
        passed = None if straight else [*(-1 - number for number in native.passed), *self.inputs]
        return checked_function(behind, fallback, self.steps, native.leaves, passed)

    @property
    def is_open(self) -> bool:
        """Whether there are loops that turn as often as they must in each call."""
        return any(loop.trips is None for loop in self.loops)

    @property
    def can_be_recorded(self) -> bool:
        """Whether its nodes say all that the function does: it assigned to no variable, returns arrays, loops turn as traced, and no
        rule of the user's holds arrays of the trace."""
        return (
            not self.is_open
            and not self.is_prepared
            and not holds_rules(self.graph.nodes)
            and not self.state.assigned
            and all(isinstance(output, int) for output in self.outputs)
        )

    def recorded(self, given: list[Value]) -> Any:
        """Append the nodes to the recordings that follow what is given or read, as the function itself would; raise GuardMiss where
        Python would have seen something else."""
        values, looks = repeated(self.graph, [*given, *self.state.readings()])
        for number, ((_, expected), value) in enumerate(zip(self.graph.guards, looks, strict=True)):
            seen = int(force([value])[0])
            if seen != expected:
                raise GuardMiss(number, seen)
        return self.spec.unflatten([Array(apart(values[output])) for output in self.outputs])

    def valid(self) -> bool:
        """Return whether the captured arrays are still what was traced, nobody watches them, and the variables live."""
        for handle, value in self.captured:
            owner = handle()
            if owner is not None and (owner.value is not value or any(tag.recording for tag in value.tags)):
                return False
        return self.state.alive()


class Miss(NamedTuple):
    """Where a search for a specialisation ended: one that did not hold, its guard, and what stood there instead."""

    specialisation: Specialisation
    guard: int
    actual: int


class Branches:
    """The specialisations of one signature: a tree whose forks are guards.

    Each names, by the guard that missed and what was seen there, the one that was traced then. A specialisation is right wherever all of
    its guards hold, so that it does not matter whether others have the same guards: a loop checks all that its turns saw by one.
    """

    __slots__ = ("_anew", "_open", "_root", "count", "warned")

    def __init__(self) -> None:
        self._root: Specialisation | None = None
        self._open: dict[Any, tuple[int, ...]] = {}
        self._anew = 0
        self.count = 0
        self.warned = False

    def add(self, specialisation: Specialisation, missed: Miss | None) -> None:
        """Enter a specialisation where the search for it ended."""
        self.count += 1
        if missed is None:
            self._root = specialisation
        else:
            missed.specialisation.ways[missed.guard, missed.actual] = specialisation

    def begins_anew(self, specialisation: Specialisation) -> bool:
        """Take a specialisation whose loops turn as often as they must in place of all others, if it is known to hold.

        It is where another call, in which the loops turned another number of times, was traced to the very same program: then nothing
        behind the loops depends on these numbers.
        """
        one = specialisation
        key = open_form(one.graph, one.guards, one.spec, one.outputs, one.state)
        turns = tuple(loop.recorded_trips for loop in one.loops)
        before = self._open.setdefault(key, turns)
        if before == turns:
            return False
        self._root = specialisation
        self._anew += 1
        self.count = self._anew
        return True

    def run(self, arrays: list[NDArray]) -> tuple[bool, Any, Miss | None]:
        """Return (found, result, where the search ended)."""
        return self._search(lambda specialisation: specialisation.run(arrays))

    def recorded(self, given: list[Value]) -> tuple[bool, Any, Miss | None]:
        """Return what `run` returns, with the result as a part of the recordings around."""
        return self._search(lambda specialisation: specialisation.recorded(given))

    def _search(self, attempt: Callable[[Specialisation], Any]) -> tuple[bool, Any, Miss | None]:
        specialisation = self._root
        last: Miss | None = None
        while specialisation is not None:
            try:
                return True, attempt(specialisation), None
            except GuardMiss as miss:
                last = Miss(specialisation, miss.guard, miss.actual)
                specialisation = specialisation.ways.get((miss.guard, miss.actual))
            except np.linalg.LinAlgError as error:
                if not specialisation.is_prepared:
                    raise
                raise OutcomeFailed from error
        return False, None, last

    def followed(self) -> bool:
        """Return whether a tape or trace around would follow a variable of this function."""
        return any(specialisation.state.followed() for specialisation in self.all())

    def can_be_recorded(self) -> bool:
        """Return whether the nodes of each specialisation say all that the function does."""
        return all(specialisation.can_be_recorded for specialisation in self.all())

    def all(self) -> list[Specialisation]:
        """Return every specialisation once."""
        found = [] if self._root is None else [self._root]
        for specialisation in found:
            found.extend(specialisation.ways.values())
        return found


class CaptureSet:
    """What a function has read from outside in one state of the world, and the specialisations that were traced in it.

    Attributes
    ----------
    steps : list of Step
        How a call finds what the function reads, and whether it is the same.
    inputs : list of int
        The steps whose objects are hidden inputs.
    branches : Branches
        The specialisations.
    substitutes : bool
        Whether hidden inputs could be traced in the function; else everything is checked by value.
    in_python : bool
        Whether calls that belong to a recording run the function itself: as a trace, it is an error.
    """

    __slots__ = ("branches", "checked", "in_python", "inputs", "steps", "substitutes", "walk")

    def __init__(self, walk: Walk, copy: Any, leaves: list[Any]) -> None:
        self.substitutes = walk.substitutes
        self.branches = Branches()
        self.in_python = False
        self.checked: weakref.WeakSet[CheckedFunction] = weakref.WeakSet()
        self.take(walk, copy, leaves)

    def take(self, walk: Walk, copy: Any, leaves: list[Any]) -> None:
        """Take a fresh walk, which the next trace uses."""
        self.steps, self.inputs = walk.steps, walk.inputs
        self.walk: tuple[Walk, Any, list[Any]] | None = (walk, copy, leaves)

    def release(self) -> None:
        """Let go of a walk that no trace has used."""
        if self.walk is not None:
            self.walk[0].release()
            self.walk = None

    def read(self, call: Call) -> list[Any] | None:
        """Return the hidden inputs of a call; None in another state of the world."""
        found = read_all(self.steps, call.objects)
        return None if found is None else [found[number] for number in self.inputs]

    def first_change(self, call: Call) -> Step | None:
        """Return the first step that finds something else than it did in the trace."""
        found: list[Any] = []
        for step in self.steps:
            value = step.read(found, call.objects)
            if not step.holds(value, found):
                return step
            found.append(value)
        return None

    def valid(self) -> bool:
        """Return whether what the specialisations hold on to is still what was traced."""
        return all(specialisation.valid() for specialisation in self.branches.all())


class States(list[CaptureSet]):
    """What calls of one signature have found outside, the latest first."""

    def all(self) -> list[Specialisation]:
        """Return every specialisation once."""
        return [specialisation for captures in reversed(self) for specialisation in captures.branches.all()]


class CallSite:
    """What stands behind a jitted function.

    Parameters
    ----------
    function : callable
        The user's, or one made of it by a transform; it works on arrays.
    name : str
        For printing.
    static : StaticArguments
        What the user declared to be a part of the program text.
    """

    def __init__(
        self, function: Callable[..., Any], name: str, static: StaticArguments = EVERYTHING_TRACED
    ) -> None:
        self.function = function
        self.static = static
        self.name = name
        self.branches: dict[Any, States] = {}
        self.nested: dict[TreeSpec, NestedEntry] = {}
        self.on_new: Callable[[Specialisation], None] | None = None
        self.traces = 0
        self.inline = False
        self._changed: Counter[str] = Counter()
        self._varying: frozenset[str] = frozenset()
        self._warned = False
        self._told: set[str] = set()

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Answer a call: by a compiled program, a new trace, or as a part of the recording that what it reads belongs to."""
        if self.nested and config.jit and not (config.eager or RECORDING.tools):
            leaves, spec = flatten_arguments(self.static.mark(args, kwargs))
            entry = self.nested.get(spec)
            if entry is not None and (results := entry.native(*leaves)) is not MISSED:
                return entry.results.unflatten(results)
        here.site = user_site()
        call = Call(args, kwargs, self.static)
        if self.inline or not config.jit or config.eager or RECORDING.tools or _is_traced(call.leaves):
            return self.run_recorded(call, keep_arrays=call.arrays)
        with _tracing:
            found = self._captures(call)
            if found is None:
                return self.run_recorded(call, keep_arrays=call.arrays)
            captures, hidden = found
        try:
            return self._answer(call, captures, hidden)
        finally:
            captures.release()

    def _answer(self, call: Call, captures: CaptureSet, hidden: list[Any]) -> Any:
        """Answer a call in a state of the world that is known."""
        if _is_traced(hidden):
            return self.run_recorded(call, keep_arrays=True)
        if _is_followed(call.leaves) or _is_followed(hidden) or captures.branches.followed():
            return self._recorded(call, captures, hidden)
        try:
            return self._computed(call, captures, hidden)
        except OutcomeFailed:
            return self.run_recorded(call, keep_arrays=call.arrays)

    def _computed(self, call: Call, captures: CaptureSet, hidden: list[Any]) -> Any:
        """Answer a call that nobody follows."""
        branches = captures.branches
        arrays = [*call.dynamic(), *map(as_input, hidden)]
        found, result, missed = branches.run(arrays)
        if found:
            for function in captures.checked:
                function.renew()
            return _as_called(call, result)
        with _tracing:
            if branches.followed():  # of what another thread has traced meanwhile
                return self._recorded(call, captures, hidden)
            found, result, missed = branches.run(arrays)
            if found:
                return _as_called(call, result)
            if branches.count >= config.trace_limit:
                self._warn(branches, missed)
                return self.run_recorded(call, keep_arrays=call.arrays)
            specialisation = self._open(call, captures, missed) or self.trace(call, captures, is_last=True)
            if specialisation is None:
                return self.run_recorded(call, keep_arrays=True)
            if not specialisation.is_open:
                branches.add(specialisation, missed)
        if specialisation.state.followed():
            return self._recorded(call, captures, hidden)
        # The numbers with which the trace began: it may have written to the places that they came from.
        begun = hidden if specialisation.begun is None else specialisation.begun
        specialisation.begun = None
        result = specialisation.run([*call.dynamic(), *map(as_input, begun)])
        if self.on_new is not None:
            self.on_new(specialisation)
        return _as_called(call, result)

    def _recorded(self, call: Call, captures: CaptureSet, hidden: list[Any]) -> Any:
        """Answer a call that somebody follows: what was traced becomes a part of the recording."""
        branches = captures.branches
        with _tracing:
            if captures.in_python or not branches.can_be_recorded():
                return self.run_recorded(call, keep_arrays=True)
            given = [_given(leaf) for leaf in (*(leaf for leaf in call.leaves if is_dynamic(leaf)), *hidden)]
            found, result, missed = branches.recorded(given)
            if found:
                return result
            if branches.count >= config.trace_limit:
                self._warn(branches, missed)
                return self.run_recorded(call, keep_arrays=True)
            try:
                specialisation = self.trace(call, captures)
            except (
                Exception,
                OutcomeFailed,
            ):  # of what only a trace refuses: what the function itself does decides
                specialisation = None
            if specialisation is not None:
                specialisation.begun = None
            if specialisation is None:
                captures.in_python = True
                return self.run_recorded(call, keep_arrays=True)
            branches.add(specialisation, missed)
            if not specialisation.can_be_recorded:
                return self.run_recorded(call, keep_arrays=True)
            return specialisation.recorded(given)

    def _captures(self, call: Call) -> tuple[CaptureSet, list[Any]] | None:
        """Return what was read in the present state of the world, and the hidden inputs; None where there are too many states."""
        known = self.branches.setdefault(call.key, States())
        for captures in known:
            hidden = captures.read(call)
            if hidden is None:
                continue
            if captures.valid():
                return captures, hidden
            known.remove(captures)
            break
        changed = None
        if known:
            changed = known[0].first_change(call)
            if changed is not None and changed.check is Check.SAME and type(changed.expected) is int:
                self._changed[changed.name] += 1
                if self._changed[changed.name] >= OFTEN:
                    self._varying |= {changed.name}
        self._forget_the_dead()
        known = self.branches.setdefault(call.key, States())
        if len(known) >= config.trace_limit:
            self._warn_of_changes(changed)
            return None
        if len(self.branches) > config.memory_cache:
            del self.branches[next(iter(self.branches))]
        captures = CaptureSet(*self.walk(call))
        known.insert(0, captures)
        hidden = captures.read(call)
        assert hidden is not None
        return captures, hidden

    def specialisations(self) -> list[Specialisation]:
        """Return every specialisation, of every signature."""
        return [specialisation for known in list(self.branches.values()) for specialisation in known.all()]

    def note_bound(self, specialisation: Specialisation, bound: CheckedFunction | None) -> None:
        """Take note of a native function, whose checks of classes are renewed where Python finds that they hold."""
        for known in list(self.branches.values()):
            for captures in known:
                if bound is not None and specialisation in captures.branches.all():
                    captures.checked.add(bound)

    def serving(self, call: Call) -> list[Specialisation]:
        """Return the specialisations for calls like this one in the present state of the world."""
        for captures in self.branches.get(call.key, ()):
            if captures.read(call) is not None:
                return captures.branches.all()
        return []

    def walk(self, call: Call, substitutes: bool = True) -> tuple[Walk, Any, list[Any]]:
        """Walk over what the function reads; return the walk, the copy of the function, and what it is given for objects."""
        trace = Trace(f"the jitted function {self.name!r}")
        walk = Walk(trace, call.objects, substitutes, self._varying)
        copy, leaves = walk.function(self.function)
        return walk, copy, leaves

    def _forget_the_dead(self) -> None:
        """Drop what was compiled for variables and objects that are no more."""
        for key, known in list(self.branches.items()):
            known[:] = [captures for captures in known if captures.valid() and all_alive(captures.steps)]
            if not known:
                del self.branches[key]

    def _open(self, call: Call, captures: CaptureSet, missed: Miss | None) -> Specialisation | None:
        """Trace a call with loops that turn as often as they must, if the search ended where such a loop may be."""
        if missed is None or not missed.specialisation.looks_again or not config.reroll:
            return None
        specialisation = self.trace(call, captures, until=True)
        if (
            specialisation is None
            or not specialisation.is_open
            or not captures.branches.begins_anew(specialisation)
        ):
            return None
        return specialisation

    def trace(
        self, call: Call, captures: CaptureSet | None = None, *, until: bool = False, is_last: bool = False
    ) -> Specialisation | None:
        """Trace one call; None where what it captures is being watched, so that the call belongs to a tape.

        A function may make its variables in its first call and keep them: then that trace knows them only as new, and another
        one is made. `is_last` says that the function is not run again if it fails: then what it wrote until then stays.
        """
        if captures is None:
            captures = CaptureSet(*self.walk(call))
        traced = None
        try:
            traced = self._trace(call, captures, until, is_last)
        except Exception as error:
            if is_of_interruption(error):
                raise KeyboardInterrupt from error
            if not _is_tried_again(error, captures):
                raise
        if traced is None:
            # It asks for more than a traced array can answer of what it reads from outside: then that is checked by value.
            captures.substitutes = False
            captures.take(*self.walk(call, False))
            traced = self._trace(call, captures, until, is_last)
        specialisation, made = traced
        if any_alive(made):
            specialisation, made = self._trace(call, captures, until)
            if any_alive(made):
                raise ArgumentError(
                    f"{self.name} makes variables in each call and keeps them",
                    where=user_site(),
                    why="a compiled function does not run its Python code again, so later calls could not make theirs",
                    remedy="make them outside of the function, or in the first call only",
                )
        return specialisation

    def _trace(
        self, call: Call, captures: CaptureSet, until: bool, is_last: bool = False
    ) -> tuple[Specialisation | None, list[weakref.ref[Any]]]:
        """Trace one call; return also the variables that it made."""
        self.traces += 1
        walk, copy, objects = captures.walk or self.walk(call, captures.substitutes)
        captures.walk = None
        try:
            return self._trace_copy(call, captures, until, walk, copy, objects)
        except BaseException as error:
            if is_last and not isinstance(error, OutcomeFailed) and not _is_tried_again(error, captures):
                write_back(
                    walk, SideEffects()
                )  # what the function has done until then stays, as without a trace
            raise
        finally:
            walk.release()

    def _trace_copy(
        self, call: Call, captures: CaptureSet, until: bool, walk: Walk, copy: Any, objects: list[Any]
    ) -> tuple[Specialisation | None, list[weakref.ref[Any]]]:
        trace = walk.trace
        trace.until = until
        leaves, inputs = call.placeholders(trace, objects)
        walk.begin()
        trace.hidden = [array.value for array in walk.arrays]
        trace.inputs = [*inputs, *trace.hidden]
        draws = [(generator, state_of_generator(generator)) for generator in walk.generators]
        profiler = ACTIVE.profiler
        traced = counting(f"tracing {self.name}", "operation", recorded_since(moment_now()))
        profiled = nullcontext() if profiler is None else profiler.tracing(self)
        with inside(trace, Scope()), resting(), traced, profiled:
            try:
                specialisation = self._specialise(call, walk, copy, leaves)
                made = made_in(trace)
            finally:
                trace.finish()
        effects = SideEffects()
        write_back(walk, effects)
        if len(walk.inputs) != len(captures.inputs):
            raise InternalError(f"{self.name}: two walks in one state of the world differ")
        captures.steps, captures.inputs = walk.steps, walk.inputs
        for number in trace.pinned:
            walk.pin(number)
        if not rebased(captures.steps, call.objects, effects):
            self._forget(captures)
        if specialisation is not None:
            specialisation.steps, specialisation.inputs = captures.steps, captures.inputs
            specialisation.begun = walk.contents
        self._warn_of_effects(walk, effects, draws)
        return specialisation, made

    def _forget(self, captures: CaptureSet) -> None:
        for known in self.branches.values():
            if captures in known:
                known.remove(captures)

    def _specialise(self, call: Call, walk: Walk, copy: Any, leaves: list[Any]) -> Specialisation | None:
        trace = walk.trace
        args, kwargs = call.with_leaves(leaves)
        results, spec = flatten(self._result(copy, args, kwargs))
        if trace.outcome is False:
            raise OutcomeFailed
        if any(array.value is not value for array, value in zip(walk.arrays, trace.hidden, strict=True)):
            raise InPlaceError(f"{self.name} writes to an array that it reads from outside")
        traced: list[Value] = []
        outputs: list[Any] = []
        for leaf in results:
            if isinstance(leaf, Handle) and trace in leaf.value.tags:
                outputs.append(len(traced))
                traced.append(leaf.value)
            else:
                outputs.append(_constant(walk.original(leaf)))
        state, stored = state_of(trace)
        computed = [*traced, *stored]
        wanted = [*computed, *[guard.value for guard in trace.guards]]
        nodes, captured = extract(wanted, trace.inputs, stop=lambda value: _is_captured(value, trace))
        if any(tag.recording for value in (*captured, *computed) for tag in value.tags if tag is not trace):
            return None
        force(captured)
        owners = [
            (value.owner, value)
            for value in captured
            if value.owner is not None and value.owner() is not None
        ]
        guards = [(guard.value, guard.expected) for guard in trace.guards]
        graph = Graph(trace.inputs, nodes, computed, self.name, guards)
        graph, seen = rolled_trace(graph, trace)
        plain = (
            not owners
            and trace.outcome is None
            and len(trace.inputs) == len(call.dynamic()) + len(trace.hidden)
            and all(isinstance(output, int) for output in outputs)
            and not any(isinstance(leaf, Variable) for leaf in call.leaves)
        )
        served = native_call(call, traced, spec, outputs, walk.things) if plain else None
        # Machine code takes C-contiguous arrays, of which views may be other views; the kernel behind it serves both.
        form = None if served is None else served.form
        native = served if all(map(_is_contiguous, call.leaves)) else None
        return Specialisation(graph, seen, spec, outputs, owners, state, native, trace, form)

    def _result(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            return self._called(function, args, kwargs)
        except ValueError as error:
            # NumPy hides what float(x) raised behind "setting an array element with a sequence".
            if isinstance(error.__cause__, ConcretizationError):
                raise error.__cause__ from None
            raise

    def _called(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            return function(*args, **kwargs)
        except (TypeError, AttributeError) as error:
            mistake = list_meant(error, function, args, kwargs)
            if mistake is None:
                raise
            raise mistake from None

    def run_recorded(self, call: Call, *, keep_arrays: bool = False) -> Any:
        """Run the function as it stands on pending arrays, and compute the results.

        Parameters
        ----------
        call : Call
            The arguments.
        keep_arrays : bool
            Whether results stay Arrays in any case, and not only where a tape or trace around the call follows them.
        """
        leaves = [_recorded(leaf) for leaf in call.leaves]
        args, kwargs = call.with_leaves(leaves)
        with inside(Scope()):
            results, spec = flatten(self._called(self.function, args, kwargs))
        if keep_arrays or any(is_recording(leaf) for leaf in results):
            return spec.unflatten(results)
        handles = [leaf.value for leaf in results if isinstance(leaf, Handle)]
        arrays = iter(force(handles))
        return spec.unflatten([_own(next(arrays)) if isinstance(leaf, Handle) else leaf for leaf in results])

    def _warn(self, branches: Branches, missed: Miss | None) -> None:
        if branches.warned:
            return
        branches.warned = True
        warn(
            TraceLimitWarning,
            f"{self.name} has {branches.count} traces for one signature; calls that need another run on the interpreter",
            where=None if missed is None else missed.specialisation.guards[missed.guard].site,
            why="what Python sees there differs from call to call, and each way on is traced and compiled",
            remedy="use np.where in place of the branch, or raise gt.config.trace_limit",
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

    def _warn_of_effects(self, walk: Walk, effects: SideEffects, draws: list[tuple[Any, Any]]) -> None:
        """Say once what the compiled function will not do as the function itself does."""
        unrepeated = dict(walk.unwatched)
        if any(state_of_generator(generator) != state for generator, state in draws):
            unrepeated["a random number generator"] = (
                "it has drawn numbers, and the compiled function has those of the trace"
            )
        for name in effects.written.keys() - walk.logs:
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


def _is_tried_again(error: BaseException, captures: CaptureSet) -> bool:
    """Return whether a function that failed in its trace may do so because hidden inputs are no numbers there.

    What a `raise` of the user's own says is its last word, so that side effects happen once; except where it may speak of a type or
    value that it has been given.
    """
    if not isinstance(error, Exception) or not captures.substitutes or not captures.inputs:
        return False
    if isinstance(error, GradtapeError | TypeError | ValueError | AssertionError | AttributeError):
        return True
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    if last is None or not is_users(last.tb_frame.f_code.co_filename):
        return True
    return not raises_explicitly(last)


def _is_traced(leaves: list[Any]) -> bool:
    """Return whether a trace that is running follows one of these."""
    return any(is_array(leaf) and trace_of(leaf.value) is not None for leaf in leaves)


def _is_followed(leaves: list[Any]) -> bool:
    """Return whether somebody around follows one of these."""
    return any(
        leaf.followed if isinstance(leaf, Variable) else any(tag.recording for tag in leaf.value.tags)
        for leaf in leaves
        if isinstance(leaf, Handle)
    )


def _given(leaf: Any) -> Value:
    """Return an argument or hidden input as a value of the recording."""
    if isinstance(leaf, Handle):
        return leaf.value
    array = as_input(leaf)
    return Value(aval(array.shape, array.dtype, is_weak(leaf)), data=np.array(array))


def _as_called(call: Call, result: Any) -> Any:
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
    """Return whether a value came from outside; what depends on numbers alone is computed in the kernel."""
    if trace in value.tags:
        return False
    return value.data is not None or (value.owner is not None and value.owner() is not None)


def _recorded(leaf: Any) -> Any:
    """Return a leaf as it enters a recording: arrays and numbers become Arrays, so that writes never reach the caller's."""
    if not is_dynamic(leaf) or isinstance(leaf, Handle):
        return leaf
    value = as_value(leaf, "an argument")
    # A literal has no place in the graph that gradients could ask for.
    array = Array(Value(value.aval, data=value.data) if isinstance(value, Literal) else value)
    if issubclass(type(leaf), np.ndarray):
        array._contiguous = argument_layout(leaf)
    return array


def _own(array: NDArray) -> Any:
    """Return a computed array as the caller's own; rank 0 becomes a NumPy scalar, as NumPy's functions return it."""
    return np.array(array) if array.ndim else array[()]


def _constant(leaf: Any) -> Callable[[], Any]:
    """Return what makes a result that depends on no argument."""
    if isinstance(leaf, Handle):
        (array,) = force([leaf.value])
        return lambda: _own(array)
    if isinstance(leaf, Selection):
        leaf.refuse("a result")
    if isinstance(leaf, np.ndarray):
        snapshot = leaf.copy()
        return snapshot.copy
    if comes_later(leaf):
        raise DtypeError(
            f"the jitted function returned a {type(leaf).__name__}",
            where=user_site(),
            why="what it gives would be computed after the function was traced",
            remedy="return an array, or a list or tuple of arrays",
        )
    return lambda: leaf
