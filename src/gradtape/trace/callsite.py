"""A jitted function: traces by signature and by what Python saw of the values, compiled programs, and the way between them."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, Final, NamedTuple

import numpy as np

from ..config import config
from ..errors import ArgumentError, ConcretizationError, DtypeError, TraceLimitWarning, warn
from ..ir.builder import here
from ..ir.graph import Graph, Literal, Value, extract
from ..ir.op import NDArray
from ..kinds.operands import as_value
from ..kinds.refusals import comes_later
from ..locks import renewed_in_child
from ..progress import counting
from ..runtime.program import ACTIVE, GuardMiss, Program, program_for
from ..transforms.call import repeated
from ..trees import TreeSpec, flatten
from .array import Array
from .collector import resting
from .contexts import Scope, inside
from .force import force
from .guards import Guard, Trace
from .handle import Handle, apart, is_recording
from .instruments import RECORDING
from .layout import argument_layout
from .mistakes import list_meant
from .outcomes import OutcomeFailed
from .rolling import moment_now, recorded_since, rolled_trace
from .signature import EVERYTHING_TRACED, Call, NativeCall, StaticArguments, is_dynamic, native_call
from .sites import user_site
from .state import State, any_alive, made_in, state_of
from .variable import Variable
from .ways_out import looked_at_again, open_form

_tracing = threading.RLock()
"""Held while any function is traced: functions call each other in any order, and one lock cannot deadlock."""


def _renew_lock() -> None:
    global _tracing
    _tracing = threading.RLock()


renewed_in_child(_renew_lock)


MISSED: Final = object()
"""What machine code returns for calls with nested arguments that it cannot serve."""

MOST_NESTED = 64


class NestedEntry(NamedTuple):
    """Machine code that takes the leaves of nested arguments, and the containers of its results."""

    native: Callable[..., Any]
    results: TreeSpec


class Specialisation:
    """One trace of a function: its graph, what was seen on the way, how results are put together, and the compiled program."""

    __slots__ = (
        "_program",
        "captured",
        "declined",
        "graph",
        "guards",
        "is_prepared",
        "looks_again",
        "loops",
        "native",
        "outputs",
        "spec",
        "state",
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
    ) -> None:
        self.graph = graph
        self.guards = guards
        self.spec = spec
        self.outputs = outputs
        self.captured = captured
        self.state = state
        self.native = native
        self.loops = trace.loops
        self.declined = trace.declined
        self.looks_again = looked_at_again(trace.sites)
        self.is_prepared = trace.outcome is not None
        self.ways: dict[tuple[int, int], Specialisation] = {}
        self._program: Program | None = None

    @property
    def program(self) -> Program:
        """The compiled program, made at the first look: what only tapes run is never compiled."""
        if self._program is None:
            self._program = program_for(self.graph, None if self.native is None else self.native.form)
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

    @property
    def is_open(self) -> bool:
        """Whether there are loops that turn as often as they must in each call."""
        return any(loop.trips is None for loop in self.loops)

    @property
    def can_be_recorded(self) -> bool:
        """Whether its nodes say all that the function does: it looked at no numbers, assigned to no variable and returns arrays."""
        return (
            not self.guards
            and not self.state.assigned
            and all(isinstance(output, int) for output in self.outputs)
        )

    def recorded(self, arrays: list[NDArray]) -> Any:
        """Append the nodes to the recordings that follow its variables, as the function itself would."""
        given = [Value(value.aval, data=np.array(array)) for value, array in zip(self.graph.inputs, arrays)]  # noqa: B905 - the variables come behind
        values = repeated(self.graph, [*given, *self.state.readings()])
        return self.spec.unflatten([Array(apart(values[output])) for output in self.outputs])

    def valid(self) -> bool:
        """Return whether the captured arrays are still what was traced, nobody watches them, and the variables live."""
        for handle, value in self.captured:
            owner = handle()
            if owner is not None and (
                owner.value is not value or any(mark.recording for mark in value.marks)
            ):
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
        turns = tuple(loop.turns for loop in one.loops)
        before = self._open.setdefault(key, turns)
        if before == turns:
            return False
        self._root = specialisation
        self._anew += 1
        self.count = self._anew
        return True

    def run(self, arrays: list[NDArray]) -> tuple[bool, Any, Miss | None]:
        """Return (found, result, where the search ended)."""
        specialisation = self._root
        last: Miss | None = None
        while specialisation is not None:
            try:
                return True, specialisation.run(arrays), None
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

    def only(self) -> Specialisation | None:
        """Return the specialisation, if there is just one."""
        return self._root if self.count == 1 else None

    def all(self) -> list[Specialisation]:
        """Return every specialisation once."""
        found = [] if self._root is None else [self._root]
        for specialisation in found:
            found.extend(specialisation.ways.values())
        return found


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
        self.branches: dict[Any, Branches] = {}
        self.nested: dict[TreeSpec, NestedEntry] = {}
        self.on_new: Callable[[Specialisation], None] | None = None
        self.traces = 0

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Answer a call: by a compiled program, a new trace, or as a part of the recording that the arguments belong to."""
        if self.nested and config.jit and not (config.eager or RECORDING.tools):
            leaves, spec = flatten(self.static.mark(args, kwargs))
            entry = self.nested.get(spec)
            if entry is not None and (results := entry.native(*leaves)) is not MISSED:
                return entry.results.unflatten(results)
        here.site = user_site()
        call = Call(args, kwargs, self.static)
        if call.traced:
            return self.run_recorded(call, keep_arrays=True)
        if not config.jit or config.eager or RECORDING.tools:
            return self.run_recorded(call)
        with _tracing:
            branches = self.branches.get(call.key)
            if branches is None or any(not specialisation.valid() for specialisation in branches.all()):
                self._forget_the_dead()
                branches = self.branches[call.key] = Branches()
                if len(self.branches) > config.memory_cache:
                    del self.branches[next(iter(self.branches))]
            arrays = call.dynamic()
        if branches.followed():
            only = branches.only()
            if only is None or not only.can_be_recorded:
                return self.run_recorded(call, keep_arrays=True)
            return only.recorded(arrays)
        try:
            return self._answer(call, branches, arrays)
        except OutcomeFailed:
            return self.run_recorded(call)

    def _answer(self, call: Call, branches: Branches, arrays: list[NDArray]) -> Any:
        """Answer a call by a compiled program or a new trace."""
        found, result, missed = branches.run(arrays)
        if found:
            return result
        with _tracing:
            if branches.followed():  # of what another thread has traced meanwhile
                return self.call(*call.with_leaves(call.leaves))
            found, result, missed = branches.run(arrays)
            if found:
                return result
            if branches.count >= config.trace_limit:
                self._warn(branches, missed)
                return self.run_recorded(call)
            specialisation = self._open(call, branches, missed) or self.trace(call)
            if specialisation is None:
                return self.run_recorded(call, keep_arrays=True)
            if not specialisation.is_open:
                branches.add(specialisation, missed)
        if specialisation.state.followed():
            if specialisation.can_be_recorded:
                return specialisation.recorded(arrays)
            return self.run_recorded(call, keep_arrays=True)
        result = specialisation.run(arrays)
        if self.on_new is not None:
            self.on_new(specialisation)
        return result

    def _forget_the_dead(self) -> None:
        """Drop what was compiled for variables that are no more."""
        for key, branches in list(self.branches.items()):
            if not all(specialisation.state.alive() for specialisation in branches.all()):
                del self.branches[key]

    def _open(self, call: Call, branches: Branches, missed: Miss | None) -> Specialisation | None:
        """Trace a call with loops that turn as often as they must, if the search ended where such a loop may be."""
        if missed is None or not missed.specialisation.looks_again or not config.reroll:
            return None
        specialisation = self.trace(call, until=True)
        if specialisation is None or not specialisation.is_open or not branches.begins_anew(specialisation):
            return None
        return specialisation

    def trace(self, call: Call, *, until: bool = False) -> Specialisation | None:
        """Trace one call; None where what it captures is being watched, so that the call belongs to a tape.

        A function may make its variables in its first call and keep them: then that trace knows them only as new, and another
        one is made.
        """
        specialisation, made = self._trace(call, until)
        if any_alive(made):
            specialisation, made = self._trace(call, until)
            if any_alive(made):
                raise ArgumentError(
                    f"{self.name} makes variables in each call and keeps them",
                    where=user_site(),
                    why="a compiled function does not run its Python code again, so later calls could not make theirs",
                    remedy="make them outside of the function, or in the first call only",
                )
        return specialisation

    def _trace(self, call: Call, until: bool) -> tuple[Specialisation | None, list[weakref.ref[Any]]]:
        """Trace one call; return also the variables that it made."""
        self.traces += 1
        trace = Trace(f"the jitted function {self.name!r}", until=until)
        leaves, trace.inputs = call.placeholders(trace)
        profiler = ACTIVE.profiler
        traced = counting(f"tracing {self.name}", "operation", recorded_since(moment_now()))
        profiled = nullcontext() if profiler is None else profiler.tracing(self)
        with inside(trace, Scope()), resting(), traced, profiled:
            try:
                return self._specialise(call, trace, leaves), made_in(trace)
            finally:
                trace.finish()

    def _specialise(self, call: Call, trace: Trace, leaves: list[Any]) -> Specialisation | None:
        args, kwargs = call.with_leaves(leaves)
        results, spec = flatten(self._result(args, kwargs))
        if trace.outcome is False:
            raise OutcomeFailed
        traced: list[Value] = []
        outputs: list[Any] = []
        for leaf in results:
            if isinstance(leaf, Handle) and trace in leaf.value.marks:
                outputs.append(len(traced))
                traced.append(leaf.value)
            else:
                outputs.append(_constant(leaf))
        state, stored = state_of(trace)
        computed = [*traced, *stored]
        wanted = [*computed, *[guard.value for guard in trace.guards]]
        nodes, captured = extract(wanted, trace.inputs, stop=lambda value: _is_captured(value, trace))
        if any(
            mark.recording for value in (*captured, *computed) for mark in value.marks if mark is not trace
        ):
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
            and len(trace.inputs) == len(call.dynamic())
            and all(isinstance(output, int) for output in outputs)
            and not any(isinstance(leaf, Variable) for leaf in call.leaves)
            # Machine code takes C-contiguous arrays, of which views may be other views.
            and all(leaf.flags.c_contiguous for leaf in call.leaves if isinstance(leaf, np.ndarray))
        )
        native = native_call(call, traced, spec, outputs) if plain else None
        return Specialisation(graph, seen, spec, outputs, owners, state, native, trace)

    def _result(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            return self._called(args, kwargs)
        except ValueError as error:
            # NumPy hides what float(x) raised behind "setting an array element with a sequence".
            if isinstance(error.__cause__, ConcretizationError):
                raise error.__cause__ from None
            raise

    def _called(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            return self.function(*args, **kwargs)
        except (TypeError, AttributeError) as error:
            mistake = list_meant(error, self.function, args, kwargs)
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
            results, spec = flatten(self._called(args, kwargs))
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


def _is_captured(value: Value, trace: Trace) -> bool:
    """Return whether a value came from outside; what depends on numbers alone is computed in the kernel."""
    if trace in value.marks:
        return False
    return value.data is not None or (value.owner is not None and value.owner() is not None)


def _recorded(leaf: Any) -> Any:
    """Return a leaf as it enters a recording: arrays and numbers become Arrays, so that writes never reach the caller's."""
    if not is_dynamic(leaf):
        return leaf
    value = as_value(leaf, "an argument")
    # A literal has no place in the graph that gradients could ask for.
    array = Array(Value(value.aval, data=value.data) if isinstance(value, Literal) else value)
    if isinstance(leaf, np.ndarray):
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
