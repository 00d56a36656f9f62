"""Lookup: which specialisation answers a call, by the signature of the call, the captures of the function, and guards."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from numpy.linalg import LinAlgError

from gradtape.config import config
from gradtape.ir.graph import Value
from gradtape.ir.op import NDArray
from gradtape.runtime.call.capture_entry import CheckedFunction
from gradtape.runtime.compile.program import GuardMiss
from gradtape.trace.jit.aliases import Writes, are_same, is_memory, partners, read_only, refusal, share_memory
from gradtape.trace.jit.captures.spec import CaptureSpec
from gradtape.trace.jit.captures.steps import Check, Source, Step, are_alive, read_captures
from gradtape.trace.jit.captures.table import NativeReader
from gradtape.trace.jit.captures.user_classes import is_package_class, shows_fields
from gradtape.trace.jit.loop_exits import dynamic_loop_key
from gradtape.trace.jit.outcomes import FAILURES, OutcomeFailed
from gradtape.trace.jit.signature import CallArguments
from gradtape.trace.jit.specialisation import Assign, Specialisation
from gradtape.trace.patching.copies import ABSENT, Substitute

_READS_IN_PYTHON: Final = 4
"""How often captures are read in Python before a table for native code is made of their checks."""


FAILURE: Final = -1
"""In place of the number of a guard: an operation has failed that did not fail in the trace, and whose error the code handles."""


class Miss(NamedTuple):
    """The end of a search for a specialisation: the last one, its guard that missed, and the value of this call."""

    specialisation: Specialisation
    guard: int
    actual: int

    @property
    def is_failure(self) -> bool:
        """Whether an operation has failed, and no guard missed."""
        return self.guard == FAILURE

    @property
    def site(self) -> Any:
        """The place of the guard in the code; None for an operation that failed."""
        return None if self.is_failure else self.specialisation.guards[self.guard].site


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
        key = dynamic_loop_key(
            specialisation.graph,
            specialisation.guards,
            specialisation.spec,
            specialisation.outputs,
            specialisation.state,
        )
        trips = tuple(loop.recorded_trips for loop in specialisation.loops)
        before = self._dynamic_keys.setdefault(key, trips)
        if before == trips:
            return False
        self._root = specialisation
        self._replacements += 1
        self.count = self._replacements
        return True

    def run(
        self, arrays: list[NDArray], generators: Sequence[Any] = (), assign: Assign | None = None
    ) -> tuple[bool, Any, Miss | None]:
        """Return whether a specialisation has answered, its result, and otherwise where the search ended."""
        return self._search(lambda specialisation: specialisation.run(arrays, generators, assign))

    def recorded(self, inputs: list[Value], generators: Sequence[Any] = ()) -> tuple[bool, Any, Miss | None]:
        """Return what `run` returns; the nodes become a part of the recordings around the call."""
        return self._search(lambda specialisation: specialisation.recorded(inputs, generators))

    def _search(self, attempt: Callable[[Specialisation], Any]) -> tuple[bool, Any, Miss | None]:
        specialisation = self._root
        last: Miss | None = None
        while specialisation is not None:
            try:
                return True, attempt(specialisation), None
            except GuardMiss as miss:
                last = Miss(specialisation, miss.guard, miss.actual)
                specialisation = specialisation.alternatives.get((miss.guard, miss.actual))
            except FAILURES as error:
                # A guard that has not been computed yet may not hold: the function itself decides.
                if not (specialisation.is_prepared or specialisation.graph.guards):
                    raise
                if not (specialisation.is_prepared and isinstance(error, LinAlgError)):
                    raise OutcomeFailed from error
                last = Miss(specialisation, FAILURE, 1)
                specialisation = specialisation.alternatives.get((FAILURE, 1))
        return False, None, last

    def is_recorded(self) -> bool:
        """Return whether an enclosing tape or trace would record a variable of this function."""
        return any(specialisation.state.is_recorded() for specialisation in self.all())

    def can_be_recorded(self) -> bool:
        """Return whether the nodes of each specialisation are all that the function does."""
        return all(specialisation.can_be_recorded for specialisation in self.all())

    def all(self) -> list[Specialisation]:
        """Return every specialisation once."""
        specialisations = [] if self._root is None else [self._root]
        for specialisation in specialisations:
            specialisations.extend(specialisation.alternatives.values())
        return specialisations


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
    holders : list of (object, int, str, callable)
        The objects to which the function may write, as in `Substitute`; None for those that a step reads.
    may_draw : bool
        Whether the function may draw random numbers.
    tree : GuardTree
        The specialisations.
    substitutes : bool
        Whether arrays and numbers become hidden inputs; else everything is checked by value.
    in_python : bool
        Whether calls that belong to a recording run the function itself: as a trace, it is an error.
    op_by_op : bool
        Whether all calls run the function itself, for a debugger that it uses.
    writes : Writes
        The arguments that the traces have written to.
    memories : list of Step
        The checks of the memory of arguments and captures, where a trace has read it.
    spec : CaptureSpec or None
        What the next trace uses.
    checked : WeakSet of CheckedFunction
        Native functions whose checks of classes are renewed where Python finds that they hold.
    apart : tuple of int
        The steps that read different objects with which a trace has written outside: a call that finds one object under two of them is
        another trace.
    writes_to_containers : bool
        Whether a trace has written to containers among the arguments.
    """

    __slots__ = (
        "_reader",
        "_reads",
        "apart",
        "checked",
        "generators",
        "holders",
        "in_python",
        "inputs",
        "may_draw",
        "memories",
        "op_by_op",
        "spec",
        "steps",
        "substitutes",
        "tree",
        "writes",
        "writes_to_containers",
    )

    def __init__(self, spec: CaptureSpec) -> None:
        self.substitutes = spec.substitutes
        self.tree = GuardTree()
        self.in_python = self.op_by_op = False
        self.writes = Writes()
        self.memories: list[Step] = []
        self.checked: weakref.WeakSet[CheckedFunction] = weakref.WeakSet()
        self.apart: tuple[int, ...] = ()
        self.writes_to_containers = False
        self._reads = 0
        self._reader: NativeReader | None = None
        self.take(spec)

    def take(self, spec: CaptureSpec) -> None:
        """Set the captures that the next trace uses."""
        self.steps, self.inputs, self.generators = spec.steps, spec.inputs, spec.generators
        self.may_draw = spec.may_draw
        self.holders = [
            (each.original if each.step < 0 else None, each.step, each.name, each.part_label)
            for each in spec.holders()
        ]
        self.spec: CaptureSpec | None = spec

    @contextmanager
    def by_value(self) -> Iterator[None]:
        """Take the captures by value from now on, without the specialisations so far; if the trace in this block fails, nothing changes."""
        before = self.apart, self.steps, self.inputs, self.generators, self.may_draw, self.tree
        self.substitutes, self.apart = False, ()
        if self.tree.count:
            self.tree = GuardTree()
        try:
            yield
        except BaseException:
            if before[-1].count:
                self.substitutes = True
                self.apart, self.steps, self.inputs, self.generators, self.may_draw, self.tree = before
            raise

    def release(self) -> None:
        """Release copies that no trace has used."""
        if self.spec is not None:
            self.spec.release()
            self.spec = None

    def read(self, call: CallArguments) -> tuple[list[Any], list[Any], Sequence[Any]] | None:
        """Return the hidden inputs of a call, the random number generators, and all that is read; None where a check fails."""
        objects = self._read(call.objects)
        if objects is None or len({id(objects[number]) for number in self.apart}) < len(self.apart):
            return None
        return (
            [objects[number] for number in self.inputs],
            [objects[number] for number in self.generators],
            objects,
        )

    def part_arrays(self) -> None:
        """Leave calls that find one array in two places to other sets: their walks have fewer inputs."""
        arrays = [number for number in self.inputs if isinstance(self.steps[number].expected, tuple)]
        self.part(arrays)

    def part(self, steps: Iterable[int]) -> None:
        """Leave calls that find one object under two of these steps, or of those so far, to other sets."""
        self.apart = tuple(sorted({*self.apart, *steps}))

    def _read(self, leaves: Sequence[Any]) -> Sequence[Any] | None:
        """Read what all steps read: in Python, and natively once they have been read a few times since they changed."""
        reader = self._reader
        if reader is not None and reader.steps is self.steps:
            return reader.read(leaves)
        self._reader = None
        self._reads += 1
        if self._reads < _READS_IN_PYTHON:
            return read_captures(self.steps, leaves)
        self._reads, self._reader = 0, NativeReader(self.steps, len(leaves))
        return self._reader.read(leaves)

    def objects(self, call: CallArguments) -> list[Any]:
        """Return all that a call reads, unchecked."""
        objects: list[Any] = []
        for step in self.steps:
            objects.append(step.read(objects, call.objects))
        return objects

    def writable(self, call: CallArguments) -> list[Substitute]:
        """Return the objects to which the function may write in a call."""
        objects = self.objects(call)
        found = [
            Substitute(original if step < 0 else objects[step], None, name, part)
            for original, step, name, part in self.holders
        ]
        return [each for each in found if each.original is not ABSENT]

    def arrays(self, call: CallArguments) -> list[tuple[str, Any]]:
        """Return the arrays that are read from outside, by name."""
        objects = read_captures(self.steps, call.objects) or ()
        pairs = zip(self.steps, objects, strict=False)
        return [(step.name, value) for step, value in pairs if is_memory(value)]

    def is_seen(self, call: CallArguments, name: str) -> bool:
        """Return whether NumPy sees that the function writes to arguments: one is also another one, or is read-only."""
        return self.is_shared(call, name) or bool(read_only(call.leaves, self.writes.all()))

    def is_shared(self, call: CallArguments, name: str) -> bool:
        """Return whether an argument that the function writes to is also another one; refuse calls where it shares memory otherwise."""
        writes, leaves, is_shared = self.writes, call.leaves, False
        for position, other in partners(leaves, writes.all()):
            if position in writes.copies or not are_same(leaves[position], leaves[other]):
                raise refusal(name, call.name_of(position), call.name_of(other))
            is_shared = True
        for captured_name, array in self.arrays(call):
            for position in writes.all():
                if share_memory(leaves[position], array):
                    raise refusal(
                        name, call.name_of(position), f"{captured_name}, which it reads from outside"
                    )
        return is_shared

    def first_change(self, call: CallArguments) -> Step | None:
        """Return the first step whose check fails."""
        objects: list[Any] = []
        for step in self.steps:
            value = step.read(objects, call.objects)
            if not step.holds(value, objects):
                return step
            objects.append(value)
        return None

    def reads_data_of_package(self, step: Step) -> bool:
        """Return whether a step reads a part of an object of an installed package that was not empty, as caches are at first."""
        if step.expected is None or step.check is Check.KEYS:
            return False
        while step.parent >= 0:
            step = self.steps[step.parent]
            if step.check is Check.TYPE and is_package_class(step.expected):
                return True
        return step.source is Source.FIXED and shows_fields(step.key)

    def valid(self) -> bool:
        """Return whether all specialisations are valid."""
        return all(specialisation.valid() for specialisation in self.tree.all())


class Captured(NamedTuple):
    """The capture set that is valid for a call, with the hidden inputs, the random number generators, and all that it reads."""

    captures: CaptureSet
    hidden: list[Any]
    generators: list[Any]
    objects: Sequence[Any]


class CaptureSets(list[CaptureSet]):
    """The capture sets of one signature, the latest first."""

    def all(self) -> list[Specialisation]:
        """Return every specialisation once."""
        return [specialisation for captures in reversed(self) for specialisation in captures.tree.all()]


class SignatureTable(dict[Any, CaptureSets]):
    """The capture sets of a function by the signatures of calls, the oldest signature first."""

    def read(self, call: CallArguments) -> Captured | None:
        """Return the first set whose checks hold for a call; None where there is none, or its specialisations are no longer valid."""
        sets = self.get(call.key, CaptureSets())
        for captures in sets:
            values = captures.read(call)
            if values is not None:
                if captures.valid():
                    return Captured(captures, *values)
                sets.remove(captures)
                break
        return None

    def first_change(self, call: CallArguments) -> Step | None:
        """Return the first step of the latest set for calls like this one whose check fails; None if there is no set."""
        sets = self.get(call.key)
        return sets[0].first_change(call) if sets else None

    def latest(self, call: CallArguments) -> CaptureSet | None:
        """Return the latest set for calls like this one."""
        sets = self.get(call.key)
        return sets[0] if sets else None

    def room_for(self, call: CallArguments) -> CaptureSets | None:
        """Return the sets for calls like this one, for a new set; None if there are as many as there may be.

        The traces of variables and objects that do not exist any more are dropped.
        """
        for key, sets in list(self.items()):
            sets[:] = [captures for captures in sets if captures.valid() and are_alive(captures.steps)]
            if not sets:
                del self[key]
        sets = self.setdefault(call.key, CaptureSets())
        if len(sets) >= config.trace_limit:
            return None
        if len(self) > config.memory_cache:
            del self[next(iter(self))]
        return sets

    def forget(self, captures: CaptureSet) -> None:
        """Drop a set."""
        for sets in self.values():
            if captures in sets:
                sets.remove(captures)

    def specialisations(self) -> list[Specialisation]:
        """Return every specialisation, of every signature."""
        return [specialisation for sets in list(self.values()) for specialisation in sets.all()]

    def specialisations_for(self, call: CallArguments) -> list[Specialisation]:
        """Return the specialisations for calls like this one whose captures are valid now."""
        for captures in self.get(call.key, ()):
            if captures.read(call) is not None:
                return captures.tree.all()
        return []
