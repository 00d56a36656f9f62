"""Specialisations: the traces of one signature, by captures and guards, with their programs."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from copy import copy
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from gradtape.config import trace_settings
from gradtape.ir.body import holds_rules
from gradtape.ir.graph import Graph, Value
from gradtape.ir.op import NDArray
from gradtape.runtime.call.capture_entry import CheckedFunction, missing
from gradtape.runtime.call.convention import ArraySpec, CallForm, ScalarSpec, StaticSpec
from gradtape.runtime.compile.loader import LoadedModule
from gradtape.runtime.compile.program import GuardMiss, Program, program_for, tape_program
from gradtape.runtime.compile.prologue import Kept, Prologue, prologue_of
from gradtape.trace.array.array import Array
from gradtape.trace.array.handle import Handle, fresh_value
from gradtape.trace.jit.captures.steps import Step, steps_with_first
from gradtape.trace.jit.captures.table import checked_function
from gradtape.trace.jit.guards import Guard, Trace
from gradtape.trace.jit.loop_exits import may_be_loop
from gradtape.trace.jit.side_effects import SideEffects
from gradtape.trace.jit.signature import NativeCall
from gradtape.trace.jit.state import State
from gradtape.trace.lazy.force import force
from gradtape.trace.random.draws import DrawPlan
from gradtape.transforms.call import recorded
from gradtape.trees import TreeSpec

Assign: TypeAlias = "Callable[[Specialisation, list[NDArray]], None]"
"""Assigns what a call writes outside, of the outputs of the program."""


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
    effects : SideEffects
        What each call assigns to objects outside.
    shapes : {"exact", "symbolic"}
        Whether arrays of other lengths have machine code of their own.
    origin : Specialisation or None
        That of a shared program of which this is the form for one function; see `with_first`.
    prologue : Prologue or None
        What the program computes from inputs that stay equal from call to call, if that may be worth keeping; made with the program.
    """

    __slots__ = (
        "__weakref__",
        "_differentiated",
        "_form",
        "_program",
        "alternatives",
        "captured",
        "declined",
        "draws",
        "effects",
        "graph",
        "guards",
        "initial_captures",
        "inputs",
        "is_prepared",
        "loops",
        "may_be_loop",
        "native",
        "origin",
        "outputs",
        "prologue",
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
        effects: SideEffects,
    ) -> None:
        self.shapes = shapes
        self.origin: Specialisation | None = None
        self.effects = effects
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
        self.is_prepared = trace.has_outcomes
        self.alternatives: dict[tuple[int, int], Specialisation] = {}
        self._program: Program | None = None
        self._differentiated = [
            position for position, value in enumerate(graph.inputs) if value in trace.differentiated
        ]
        self.prologue: Prologue | None = None

    @property
    def program(self) -> Program:
        """The compiled program, made at the first access: a trace that only tapes use is never compiled."""
        if self._program is None:
            if self.effects.changes and self._form is None and self.shapes == "exact":
                self._program = tape_program(self.graph)
            else:
                self._program = program_for(self.graph, self._form, self.shapes)
            if self.native is not None and self.shapes == "exact":
                form, hidden = self.native.form, len(self.inputs)
                self.prologue = prologue_of(self.graph, form, hidden, self._differentiated)
        return self._program

    @property
    def is_native(self) -> bool:
        """Return whether there is a compiled native entry."""
        if self.native is None or self._program is None or self._program.is_in_the_making:
            return False
        if self.prologue is not None and self.prologue.is_watching:
            return False
        return self._program.kernel.loaded is not None

    def run(self, arrays: list[NDArray], generators: Sequence[Any] = (), assign: Assign | None = None) -> Any:
        """Run the program, and assign what it writes outside; raise GuardMiss where a guard does not hold."""
        program, draws = self.program, self.draws
        run = program.run if self.prologue is None else partial(self.prologue.run, program)
        if draws is None:
            results = self.state.run(run, arrays)
        elif not (self.graph.guards or self.is_prepared):
            results = self.state.run(run, arrays, partial(draws.run, generators))
        else:
            with draws.undone_by_misses(generators) as states:
                draw = partial(draws.run, generators, taken=states)
                results = self.state.run(run, arrays, draw)
        return self._results(results, assign)

    def run_as_traced(self, arrays: list[NDArray], assign: Assign | None = None) -> Any:
        """Compute the call that was traced, by NumPy as the trace has, whatever the guards come to now."""
        return self._results(self.state.run(self.program.run_unguarded, arrays), assign)

    @property
    def may_run_again(self) -> bool:
        """Return whether a call may be computed twice: it draws no numbers, and assigns to no variable."""
        return self.draws is None and not self.state.assigned

    def _results(self, results: list[NDArray], assign: Assign | None) -> Any:
        if assign is not None and self.effects.changes:
            assign(self, results)
        return self.spec.unflatten([self._leaf(output, results) for output in self.outputs])

    @staticmethod
    def _leaf(output: Any, results: list[NDArray]) -> Any:
        if isinstance(output, int):
            array = results[output]
            return array if array.ndim else array[()]
        return output()

    def bound(self, fallback: Callable[..., Any], code: LoadedModule | None) -> CheckedFunction | None:
        """Return a native function for calls like the traced one, which hands all others to `fallback`; None where there can be none.

        `code` is machine code to be used in place of the program's own. Where results of a prologue are kept, calls with other data go to
        `fallback` as well.
        """
        prologue = self.prologue
        if prologue is None or prologue.main is None or code is not None:
            return self._bound_whole(fallback, code)
        function: Any = self._bound_whole(fallback, None) or fallback if prologue.is_over else fallback
        for kept_prologue in reversed(prologue.kept):
            function = self._bound_to(prologue.main, kept_prologue, function) or function
        return None if function is fallback else function

    def _bound_whole(self, fallback: Callable[..., Any], code: LoadedModule | None) -> CheckedFunction | None:
        """Return a native function that runs the whole program."""
        native = self.native
        assert native is not None
        straight = not self.inputs and len(native.passed) == native.leaves
        behind = self.program.bind(fallback if straight else missing(), native.statics, code)
        if behind is None:
            return None
        positions = None if straight else [*(-1 - number for number in native.passed), *self.inputs]
        return checked_function(behind, fallback, self.steps, native.leaves, positions)

    def with_first(self, function: Any) -> Specialisation:
        """Return this specialisation of a program that takes a function before its other arguments, for one function."""
        bound = copy(self)
        bound.origin, bound.steps = self, steps_with_first(self.steps, function)
        native = self.native
        if native is not None:
            positions = tuple([number - 1 for number in native.passed])
            bound.native = native._replace(leaves=native.leaves - 1, passed=positions)
        return bound

    def _bound_to(
        self, main: Program, kept_prologue: Kept, fallback: Callable[..., Any]
    ) -> CheckedFunction | None:
        """Return a native function for calls whose data are those of which results are kept."""
        native = self.native
        assert native is not None
        behind = main.bind(missing(), native.statics)
        if behind is None:
            return None
        positions = [*(-1 - number for number in native.passed), *self.inputs]
        pairs = zip(positions, native.form.arguments, strict=True)
        inputs = [(position, spec) for position, spec in pairs if not isinstance(spec, StaticSpec)]
        equal = [
            (inputs[number][0], _type_of(inputs[number][1]), copy)
            for number, copy in kept_prologue.inputs.items()
        ]
        return checked_function(
            behind, fallback, self.steps, native.leaves, positions, equal=equal, further=kept_prologue.results
        )

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
        """Whether its nodes are all that the function does: it assigns nothing, returns arrays, all trip counts are those of the
        trace, and no rule of the user's holds arrays of the trace."""
        return (
            not self.has_dynamic_trips
            and not self.is_prepared
            and not holds_rules(self.graph.nodes)
            and not self.state.assigned
            and not self.effects.changes
            and all(isinstance(output, int) for output in self.outputs)
        )

    @property
    def is_translated(self) -> bool:
        """Whether code was compiled in place of being traced."""
        return any(way.translated for way in self.ways)

    def recorded(
        self, inputs: list[Value], generators: Sequence[Any] = (), *, is_traced_call: bool = False
    ) -> Any:
        """Append the nodes to the recordings that record the inputs, as the function itself would; raise GuardMiss where a guard does
        not hold. The call that was traced need not be checked."""
        if self.draws is None:
            return self._appended([*inputs, *self.state.reads()], is_traced_call)
        with self.draws.undone_by_misses(generators) as states:
            reads = self.state.reads()
            drawn = self.draws.recorded(generators, [*inputs, *reads], states)
            return self._appended([*inputs, *drawn, *reads], is_traced_call)

    def _appended(self, inputs: list[Value], is_traced_call: bool) -> Any:
        values, looks = recorded(self.graph, inputs)
        guards = () if is_traced_call else zip(self.graph.guards, looks, strict=True)
        for number, ((_, expected), value) in enumerate(guards):
            answer = int(force([value])[0])
            if answer != expected:
                raise GuardMiss(number, answer)
        return self.spec.unflatten([Array(fresh_value(values[output])) for output in self.outputs])

    def valid(self) -> bool:
        """Return whether the captured arrays are unchanged and unwatched, and the variables exist."""
        for handle, value in self.captured:
            owner = handle()
            if owner is not None and (owner.value is not value or any(tag.recording for tag in value.tags)):
                return False
        return self.state.alive()


def _type_of(spec: ArraySpec | ScalarSpec) -> type:
    """Return the type of an input that native code compares with a copy."""
    if isinstance(spec, ScalarSpec):
        return float
    return np.float64 if spec.kind == "scalar" else np.ndarray
