"""Specialisations: the traces of one signature, by captures and guards, with their programs."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from gradtape.config import trace_settings
from gradtape.ir.body import holds_rules
from gradtape.ir.graph import Graph, Value
from gradtape.ir.op import NDArray
from gradtape.runtime.call.capture_entry import CheckedFunction, missing
from gradtape.runtime.call.convention import CallForm
from gradtape.runtime.compile.loader import LoadedModule
from gradtape.runtime.compile.program import GuardMiss, Program, program_for
from gradtape.trace.array.array import Array
from gradtape.trace.array.handle import Handle, fresh_value
from gradtape.trace.jit.aliases import Writes, is_memory
from gradtape.trace.jit.captures.spec import CaptureSpec
from gradtape.trace.jit.captures.steps import Step, read_captures
from gradtape.trace.jit.captures.table import checked_function
from gradtape.trace.jit.guards import Guard, Trace
from gradtape.trace.jit.loop_exits import dynamic_loop_key, may_be_loop
from gradtape.trace.jit.outcomes import OutcomeFailed
from gradtape.trace.jit.signature import (
    CallArguments,
    NativeCall,
)
from gradtape.trace.jit.state import State
from gradtape.trace.lazy.force import force
from gradtape.trace.random.draws import DrawPlan
from gradtape.transforms.call import recorded
from gradtape.trees import TreeSpec


class Specialisation:
    """One trace of a function and its compiled program.

    Attributes
    ----------
    graph : Graph
        The trace; its inputs are the dynamic arguments and the hidden inputs.
    guards : list of Guard
        The values that Python looked at.
    spec : TreeSpec
        The structure of the results.
    outputs : list of int or callable
        For each leaf of the results: its position in the outputs of the graph, or a function that returns a constant.
    captured : list of (weakref.ref to Handle, Value)
        The arrays from outside that are constants of the graph.
    state : State
        The variables.
    native : NativeCall or None
        The calling convention of the native entry, where there can be one.
    loops : list of LoopSummary
        The rolled loops.
    ways : list of Way
        What became of functions that were to be translated.
    alternatives : dict of (int, int) to Specialisation
        By guard and value, what was traced after that guard missed.
    initial_captures : list of ndarray or None
        The hidden inputs of the traced call, until it has been computed.
    draws : DrawPlan or None
        The random numbers that each call draws: inputs of the program after the arguments and the hidden inputs.
    shapes : {"exact", "symbolic"}
        Whether arrays of other lengths have machine code of their own.
    """

    __slots__ = (
        "_form",
        "_program",
        "alternatives",
        "captured",
        "declined",
        "draws",
        "graph",
        "guards",
        "initial_captures",
        "inputs",
        "is_prepared",
        "loops",
        "may_be_loop",
        "native",
        "outputs",
        "settings",
        "shapes",
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
        draws: DrawPlan | None,
        shapes: str,
    ) -> None:
        self.shapes = shapes
        self.draws = draws
        self.steps: list[Step] = []
        self.inputs: list[int] = []
        self.initial_captures: list[NDArray] | None = None
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
        self.ways = trace.ways
        self.may_be_loop = may_be_loop(trace.sites)
        self.settings = trace_settings()
        self.is_prepared = trace.outcome is not None
        self.alternatives: dict[tuple[int, int], Specialisation] = {}
        self._program: Program | None = None

    @property
    def program(self) -> Program:
        """The compiled program, made at the first access: a trace that only tapes use is never compiled."""
        if self._program is None:
            self._program = program_for(self.graph, self._form, self.shapes)
        return self._program

    @property
    def is_native(self) -> bool:
        """Return whether there is a compiled native entry."""
        if self.native is None or self._program is None or self._program.is_in_the_making:
            return False
        return self._program.kernel.loaded is not None

    def run(self, arrays: list[NDArray], generators: Sequence[Any] = ()) -> Any:
        """Run the program; raise GuardMiss where a guard does not hold."""
        draws = self.draws
        if draws is None:
            results = self.state.run(self.program.run, arrays)
        elif not (self.graph.guards or self.is_prepared):
            results = self.state.run(self.program.run, arrays, partial(draws.run, generators))
        else:
            with draws.undone_by_misses(generators) as taken:
                draw = partial(draws.run, generators, taken=taken)
                results = self.state.run(self.program.run, arrays, draw)
        return self._results(results)

    def run_as_traced(self, arrays: list[NDArray]) -> Any:
        """Compute the call that was traced, by NumPy as the trace has, whatever the guards come to now."""
        return self._results(self.state.run(self.program.run_unguarded, arrays))

    def _results(self, results: list[NDArray]) -> Any:
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

    def give_up_draws(self) -> None:
        """Set the random number generators back to before the trace, whose call is answered in another way."""
        if self.draws is not None:
            self.draws.give_up_first()

    @property
    def has_dynamic_trips(self) -> bool:
        """Whether there are loops whose trip count may differ in each call."""
        return any(loop.trips is None for loop in self.loops)

    @property
    def can_be_recorded(self) -> bool:
        """Whether its nodes are all that the function does: it assigns to no variable, returns arrays, all trip counts are those of the
        trace, and no rule of the user's holds arrays of the trace."""
        return (
            not self.has_dynamic_trips
            and not self.is_prepared
            and not holds_rules(self.graph.nodes)
            and not self.state.assigned
            and all(isinstance(output, int) for output in self.outputs)
        )

    @property
    def is_translated(self) -> bool:
        """Whether code was compiled in place of being traced."""
        return any(way.translated for way in self.ways)

    def recorded(
        self, given: list[Value], generators: Sequence[Any] = (), *, is_traced_call: bool = False
    ) -> Any:
        """Append the nodes to the recordings that follow the inputs, as the function itself would; raise GuardMiss where a guard does
        not hold. The call that was traced need not be checked."""
        if self.draws is None:
            return self._appended([*given, *self.state.reads()], is_traced_call)
        with self.draws.undone_by_misses(generators) as taken:
            reads = self.state.reads()
            drawn = self.draws.recorded(generators, [*given, *reads], taken)
            return self._appended([*given, *drawn, *reads], is_traced_call)

    def _appended(self, inputs: list[Value], is_traced_call: bool) -> Any:
        values, looks = recorded(self.graph, inputs)
        guards = () if is_traced_call else zip(self.graph.guards, looks, strict=True)
        for number, ((_, expected), value) in enumerate(guards):
            seen = int(force([value])[0])
            if seen != expected:
                raise GuardMiss(number, seen)
        return self.spec.unflatten([Array(fresh_value(values[output])) for output in self.outputs])

    def valid(self) -> bool:
        """Return whether the captured arrays are unchanged and unwatched, and the variables exist."""
        for handle, value in self.captured:
            owner = handle()
            if owner is not None and (owner.value is not value or any(tag.recording for tag in value.tags)):
                return False
        return self.state.alive()


class Miss(NamedTuple):
    """The end of a search for a specialisation: the last one, its guard that missed, and the value of this call."""

    specialisation: Specialisation
    guard: int
    actual: int


class GuardTree:
    """The specialisations of one signature: a tree with guards at its forks.

    Each holds, by the guard that missed and the value that was found, the one that was traced then. A specialisation is right wherever
    all of its guards hold, whether or not others have the same guards: a loop checks the guards of all its iterations by one.
    """

    __slots__ = ("_dynamic_keys", "_replacements", "_root", "count", "in_python", "warned")

    def __init__(self) -> None:
        self._root: Specialisation | None = None
        self._dynamic_keys: dict[Any, tuple[int, ...]] = {}
        self._replacements = 0
        self.count = 0
        self.in_python: set[Miss | None] = set()
        self.warned = False

    def add(self, specialisation: Specialisation, missed: Miss | None) -> None:
        """Insert a specialisation where the search for it ended."""
        self.count += 1
        if missed is None:
            self._root = specialisation
        else:
            missed.specialisation.alternatives[missed.guard, missed.actual] = specialisation

    def give_up(self, missed: Miss) -> None:
        """Take out the specialisation where a search ended, and let later calls whose search ends there run in Python."""
        del missed.specialisation.alternatives[missed.guard, missed.actual]
        self.in_python.add(missed)
        self.count -= 1

    def replace_by_dynamic(self, specialisation: Specialisation) -> bool:
        """Replace all specialisations by one with dynamic trip counts, and return whether that was done.

        It is right if another call with other trip counts was traced to the same program: then nothing after the loops depends on them.
        """
        one = specialisation
        key = dynamic_loop_key(one.graph, one.guards, one.spec, one.outputs, one.state)
        trips = tuple(loop.recorded_trips for loop in one.loops)
        before = self._dynamic_keys.setdefault(key, trips)
        if before == trips:
            return False
        self._root = specialisation
        self._replacements += 1
        self.count = self._replacements
        return True

    def run(self, arrays: list[NDArray], generators: Sequence[Any] = ()) -> tuple[bool, Any, Miss | None]:
        """Return (found, result, where the search ended)."""
        return self._search(lambda specialisation: specialisation.run(arrays, generators))

    def recorded(self, given: list[Value], generators: Sequence[Any] = ()) -> tuple[bool, Any, Miss | None]:
        """Return what `run` returns; the nodes become a part of the recordings around the call."""
        return self._search(lambda specialisation: specialisation.recorded(given, generators))

    def _search(self, attempt: Callable[[Specialisation], Any]) -> tuple[bool, Any, Miss | None]:
        specialisation = self._root
        last: Miss | None = None
        while specialisation is not None:
            try:
                return True, attempt(specialisation), None
            except GuardMiss as miss:
                last = Miss(specialisation, miss.guard, miss.actual)
                specialisation = specialisation.alternatives.get((miss.guard, miss.actual))
            except np.linalg.LinAlgError as error:
                if not specialisation.is_prepared:
                    raise
                raise OutcomeFailed from error
        return False, None, last

    def followed(self) -> bool:
        """Return whether a tape or trace around would follow a variable of this function."""
        return any(specialisation.state.followed() for specialisation in self.all())

    def can_be_recorded(self) -> bool:
        """Return whether the nodes of each specialisation are all that the function does."""
        return all(specialisation.can_be_recorded for specialisation in self.all())

    def all(self) -> list[Specialisation]:
        """Return every specialisation once."""
        found = [] if self._root is None else [self._root]
        for specialisation in found:
            found.extend(specialisation.alternatives.values())
        return found


class CaptureSet:
    """The captures of a function in one state, and the specialisations that were traced with them.

    Attributes
    ----------
    steps : list of Step
        The reads of captures, with their checks.
    inputs : list of int
        The steps that read hidden inputs.
    generators : list of int
        The steps that read random number generators of NumPy's.
    may_draw : bool
        Whether the function may draw random numbers.
    branches : Branches
        The specialisations.
    substitutes : bool
        Whether arrays and numbers become hidden inputs; else everything is checked by value.
    in_python : bool
        Whether calls that belong to a recording run the function itself: as a trace, it is an error.
    op_by_op : bool
        Whether all calls run the function itself, for a debugger that it uses.
    writes : Writes
        The arguments that the traces have written to.
    """

    __slots__ = (
        "checked",
        "generators",
        "in_python",
        "inputs",
        "may_draw",
        "op_by_op",
        "spec",
        "steps",
        "substitutes",
        "tree",
        "writes",
    )

    def __init__(self, spec: CaptureSpec) -> None:
        self.substitutes = spec.substitutes
        self.tree = GuardTree()
        self.in_python = self.op_by_op = False
        self.writes = Writes()
        self.checked: weakref.WeakSet[CheckedFunction] = weakref.WeakSet()
        self.take(spec)

    def take(self, spec: CaptureSpec) -> None:
        """Set the captures that the next trace uses."""
        self.steps, self.inputs, self.generators = spec.steps, spec.inputs, spec.generators
        self.may_draw = spec.may_draw
        self.spec: CaptureSpec | None = spec

    @contextmanager
    def by_value(self) -> Iterator[None]:
        """Take the captures by value from now on, without the specialisations so far; if the trace in this block fails, nothing changes."""
        before = self.steps, self.inputs, self.generators, self.may_draw, self.tree
        self.substitutes = False
        if self.tree.count:
            self.tree = GuardTree()
        try:
            yield
        except BaseException:
            if before[-1].count:
                self.substitutes = True
                self.steps, self.inputs, self.generators, self.may_draw, self.tree = before
            raise

    def release(self) -> None:
        """Release copies that no trace has used."""
        if self.spec is not None:
            self.spec.release()
            self.spec = None

    def read(self, call: CallArguments) -> tuple[list[Any], list[Any]] | None:
        """Return the hidden inputs of a call, and the random number generators; None where a check fails."""
        objects = read_captures(self.steps, call.objects)
        if objects is None:
            return None
        return [objects[number] for number in self.inputs], [objects[number] for number in self.generators]

    def arrays(self, call: CallArguments) -> list[tuple[str, Any]]:
        """Return the arrays that are read from outside, by name."""
        objects = read_captures(self.steps, call.objects) or ()
        pairs = zip(self.steps, objects, strict=False)
        return [(step.name, value) for step, value in pairs if is_memory(value)]

    def first_change(self, call: CallArguments) -> Step | None:
        """Return the first step whose check fails."""
        objects: list[Any] = []
        for step in self.steps:
            value = step.read(objects, call.objects)
            if not step.holds(value, objects):
                return step
            objects.append(value)
        return None

    def valid(self) -> bool:
        """Return whether all specialisations are valid."""
        return all(specialisation.valid() for specialisation in self.tree.all())


class CaptureSets(list[CaptureSet]):
    """The capture sets of one signature, the latest first."""

    def all(self) -> list[Specialisation]:
        """Return every specialisation once."""
        return [specialisation for captures in reversed(self) for specialisation in captures.tree.all()]
