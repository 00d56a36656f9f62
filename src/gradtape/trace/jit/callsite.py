"""Call sites: a jitted function finds the specialisation for a call, traces a new one, or becomes a part of a recording around it.

A call passes these states, each of which answers it or hands it on:

1. `call`: machine code for nested arguments; a call inside a trace, or without compilation, runs op by op.
2. `SignatureTable.read`, or `_capture_anew`: the captures that are valid now (`lookup`).
3. `_answer`: a call that a tape or trace records becomes a part of its recording (`_recorded`), all others are computed (`_computed`).
4. `GuardTree.run`: a specialisation whose guards hold. Otherwise `_specialise` makes one (`tracing`), or says that the call runs op by op.

What costs time on the way, and what the user is warned of, is in `explain`.
"""

from __future__ import annotations

import itertools
import operator
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Self

import numpy as np
from numpy.linalg import LinAlgError

from gradtape.collector import collector_paused
from gradtape.config import config
from gradtape.errors import ConcretizationError, InPlaceError, LeakedValueError
from gradtape.interruptions import raise_interruption
from gradtape.ir.builder import here
from gradtape.ir.graph import Value, constant
from gradtape.ir.op import NDArray
from gradtape.ir.types import aval
from gradtape.locks import Rank, new_lock
from gradtape.runtime.call.capture_entry import CheckedFunction
from gradtape.runtime.compile.program import GuardMiss
from gradtape.trace.array.array import Array
from gradtape.trace.array.handle import Handle
from gradtape.trace.array.masked import Selection
from gradtape.trace.jit.captures.arguments import has_repeated
from gradtape.trace.jit.captures.recipes import IntegerTooLarge, Moment
from gradtape.trace.jit.captures.steps import Check, Step, changed_numbers, is_key_of_number, why_never_again
from gradtape.trace.jit.guards import trace_of
from gradtape.trace.jit.leaf_kinds import is_array, is_weak
from gradtape.trace.jit.lookup import Captured, CaptureSet, GuardTree, Miss
from gradtape.trace.jit.op_by_op import run_op_by_op
from gradtape.trace.jit.outcomes import OutcomeFailed
from gradtape.trace.jit.side_effects import Outdated, settled
from gradtape.trace.jit.signature import (
    EVERYTHING_TRACED,
    CallArguments,
    OwnOrder,
    StaticArguments,
    StaticLeaf,
    as_input,
    describe_key,
)
from gradtape.trace.jit.specialisation import Assign, Specialisation
from gradtape.trace.jit.tracing import Tracer
from gradtape.trace.lazy.instruments import RECORDING
from gradtape.trace.patching.recorders import install_hooks
from gradtape.trace.source.contexts import contexts, running_trace
from gradtape.trace.source.sites import Site, user_site
from gradtape.trace.variables.variable import Variable
from gradtape.trees import ORDERED, TreeSpec, flatten, flatten_arguments, structure_key

_tracing: Final = new_lock(Rank.TRACE)
"""Held while any function is traced: functions call each other in any order, and one lock cannot deadlock."""

MISSED: Final = object()
"""The result of a native entry for nested arguments that it does not match."""

MOST_NESTED: Final = 64

_UNEQUAL_TRACES: Final = 4
"""The number of traces of a loop by the values that it looks at after which the function is translated, if it can be."""

_MOST_USELESS: Final = 3
"""The number of traces whose checks will not hold again after which there is a warning."""

_MOST_CHANGES: Final = 2
"""The number of changes after which a captured number becomes a hidden input, as most floats are from the first; and after which a number
that Python has asked for is no longer checked by value."""


class NestedEntry(NamedTuple):
    """A native entry that takes the leaves of nested arguments, which are found by their structure with the keys in order.

    Attributes
    ----------
    native : callable
        Takes the leaves, with the keys of dicts sorted.
    results : TreeSpec
        The structure of its results.
    order, keys : object
        As in `OwnOrder`.
    outputs : list of int or callable, or None
        Where some results are constants: for each its position among those of machine code, or a function that returns it.
    """

    native: Callable[..., Any]
    results: TreeSpec
    order: Callable[[list[Any]], Sequence[Any]] | None
    keys: Any
    outputs: list[Any] | None

    @classmethod
    def of(
        cls, native: Callable[..., Any], arguments: OwnOrder, results: TreeSpec, outputs: Sequence[Any]
    ) -> Self:
        """Return the entry for arguments of a structure."""
        if all(isinstance(output, int) for output in outputs):
            return cls(native, results, arguments.order, arguments.keys, None)
        numbering = itertools.count()
        places = [next(numbering) if isinstance(output, int) else output for output in outputs]
        return cls(native, results, arguments.order, arguments.keys, places)

    def nested(self, results: Sequence[Any]) -> Any:
        """Return what machine code has computed, and the constants, as the function returns them."""
        if self.outputs is not None:
            results = [results[each] if isinstance(each, int) else each() for each in self.outputs]
        return self.results.unflatten(results)


class OpByOp(NamedTuple):
    """Says that a call runs op by op, and whether its results stay Arrays in any case."""

    keep_arrays: bool


class CallSite(Tracer):
    """The traces and programs of one jitted function.

    Parameters
    ----------
    function : callable
        The user's, or one made of it by a transform; it works on arrays.
    name : str
        For messages.
    static : StaticArguments
        The arguments that are parts of the program.

    Attributes
    ----------
    nested : dict of TreeSpec to NestedEntry
        Machine code for nested arguments.
    on_new : callable or None
        Is called with each new specialisation.
    inline : bool
        Whether all calls run op by op: of a copy of the function that a trace calls.
    lent : list of Specialisation
        Those of a program that this function shares with others which have answered its calls.
    """

    def __init__(
        self, function: Callable[..., Any], name: str, static: StaticArguments = EVERYTHING_TRACED
    ) -> None:
        super().__init__(function, name)
        self.static = static
        self.nested: dict[TreeSpec, NestedEntry] = {}
        self.on_new: Callable[[Specialisation], None] | None = None
        self.inline = False
        self.lent: list[Specialisation] = []
        self._changes: Counter[tuple[str, bool]] = Counter()
        self._useless = 0

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Answer a call: by a compiled program, a new trace, or as a part of the recording that what it reads belongs to."""
        if self.shapes.declared is not None:
            self.shapes.check(self.name, self.function, args, kwargs)
        if self.nested and config.jit and not (config.eager or RECORDING.tools):
            leaves, spec = flatten_arguments(self.static.mark(args, kwargs), ORDERED)
            entry = self.nested.get(spec)
            if self.static is not EVERYTHING_TRACED:  # machine code checks what marks hold
                leaves = [leaf.value if isinstance(leaf, StaticLeaf) else leaf for leaf in leaves]
            if entry is not None and (entry.keys is None or entry.keys == self._structure(args, kwargs)):
                results = entry.native(*leaves) if entry.order is None else entry.native(*entry.order(leaves))
                if results is not MISSED:
                    return entry.nested(results)
        here.site = user_site()
        call = CallArguments(args, kwargs, self.static)
        if self.inline or not config.jit or config.eager or RECORDING.tools or _is_traced(call.leaves):
            return self.run_op_by_op(call, keep_arrays=call.arrays)
        with _tracing:
            captured = self.signatures.read(call) or self._capture_anew(call)
            if captured is None:
                return self.run_op_by_op(call, self.signatures.latest(call), keep_arrays=call.arrays)
        captures = captured.captures
        try:
            if captures.op_by_op:
                return self.run_op_by_op(call, captures, keep_arrays=call.arrays)
            if captures.may_draw and running_trace()[0] is not None:  # the trace repeats its draws
                return self.run_op_by_op(call, captures, keep_arrays=True)
            return self._answer(call, captured)
        except Outdated:
            return self.call(args, kwargs)
        except IntegerTooLarge:
            captures.op_by_op = True
            self.explain.note(
                "limit",
                "it assigns integers that are too large for a program: its calls run op by op",
                remedy="assign floats, or integers below 2**63",
            )
            return self.run_op_by_op(call, captures, keep_arrays=call.arrays)
        finally:
            captures.release()

    def _structure(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return structure_key(self.static.mark(args, kwargs))

    def run_op_by_op(
        self,
        call: CallArguments,
        captures: CaptureSet | None = None,
        *,
        keep_arrays: bool = False,
        copies: bool = False,
    ) -> Any:
        """Run the function as it stands on pending arrays; what it writes to the objects of its captures is undone if it fails."""
        with settled(() if captures is None else captures.writable(call)):
            return run_op_by_op(self.function, self.name, call, keep_arrays=keep_arrays, copies=copies)

    def _capture_anew(self, call: CallArguments) -> Captured | None:
        """Return the captures as they are now, for a new trace; None at the limit of traces: then the call runs op by op."""
        change = self.signatures.first_change(call)
        latest = self.signatures.latest(call)
        if change is not None and latest is not None:
            self.copies_packages = self.copies_packages or latest.reads_data_of_package(change)
            self._note_change(change)
        sets = self.signatures.room_for(call)
        if sets is None:
            self.explain.warn_of_changes(change)
            return None
        if change is None:
            self.explain.note("signature", f"called with arguments of new types: {describe_key(call.key)}")
        else:
            self.explain.note("capture", f"{change.name}, which it reads from outside, has changed")
        with collector_paused():
            install_hooks()  # before functions are copied, whose code they change
            captures = CaptureSet(self.capture(call))
        if config.effects == "run" and captures.spec is not None and captures.spec.has_effects:
            captures.op_by_op = True
            self.explain.note(
                "limit",
                "it has side effects: its calls run op by op",
                remedy='do them outside the function, or set gt.config.effects = "trace"',
            )
        sets.insert(0, captures)
        values = captures.read(call)
        assert values is not None
        return Captured(captures, *values)

    def _note_change(self, change: Step) -> None:
        """Count the changes of a captured number, which becomes a hidden input or is as an argument, and of what makes traces useless."""
        why = why_never_again(change)
        if why:
            self._useless += 1
            if self._useless == _MOST_USELESS:
                self.explain.warn_of_useless_traces(why, self._useless)
        for name in changed_numbers(change):
            self._changes[name, False] += 1
            if self._changes[name, False] >= _MOST_CHANGES:
                self.varying |= {name}
        if change.check is Check.PINNED and is_key_of_number(change.expected[0]):
            self._changes[change.name, True] += 1
        if self._changes[change.name, True] >= _MOST_CHANGES and self.unpinned is not None:
            self.unpinned |= {change.name}

    def _answer(self, call: CallArguments, captured: Captured) -> Any:
        """Answer a call whose captures are known."""
        captures, hidden, *_ = captured
        if any(captures.writes) and captures.is_seen(call, self.name):
            return self.run_op_by_op(call, captures, keep_arrays=call.arrays, copies=True)
        if captures.writes_to_containers and has_repeated(call.given):
            return self.run_op_by_op(call, captures, keep_arrays=call.arrays)
        if _is_traced(hidden):
            return self.run_op_by_op(call, captures, keep_arrays=True)
        if _is_recorded(call.leaves) or _is_recorded(hidden) or captures.tree.is_recorded():
            return self._recorded(call, captured)
        try:
            return self._computed(call, captured)
        except OutcomeFailed:
            writes = any(captures.writes)
            if not writes:
                self.explain.note_outcome()
            return self.run_op_by_op(call, captures, keep_arrays=call.arrays, copies=writes)
        except ConcretizationError as error:
            if not error.op_by_op:
                raise
            captures.op_by_op = True
            self.explain.note(
                "limit", f"{error.what}: its calls run op by op", site=error.where, remedy=error.remedy
            )
            return self.run_op_by_op(call, captures, keep_arrays=call.arrays)
        except LeakedValueError:
            if not contexts.rules:
                raise
            # the rule of a node in the body of a loop, which is differentiated before there are numbers
            return self.run_op_by_op(call, captures, keep_arrays=True)

    def _computed(self, call: CallArguments, captured: Captured) -> Any:
        """Answer a call that no tape or trace records."""
        captures, hidden, generators, _ = captured
        tree, assign = captures.tree, self._assigning(call, captured)
        arrays = [*call.dynamic(), *map(as_input, hidden)]
        is_answered, result, missed = tree.run(arrays, generators, assign)
        if is_answered:
            for function in captures.checked:
                function.renew()
            return _as_arrays(call, result)
        with _tracing:
            if tree.is_recorded():  # by what another thread has traced meanwhile
                return self._recorded(call, captured)
            is_answered, result, missed = tree.run(arrays, generators, assign)
            if is_answered:
                return _as_arrays(call, result)
            if missed is not None and missed.is_failure and any(captures.writes):
                raise OutcomeFailed
            specialisation = self._specialise(call, captures, missed)
            if isinstance(specialisation, OpByOp):
                return self.run_op_by_op(call, captures, keep_arrays=specialisation.keep_arrays)
            if captures.tree is not tree:  # with other inputs than the traces before
                tree, missed = captures.tree, None
            if not specialisation.has_dynamic_trips:
                tree.add(specialisation, missed)
        if specialisation.state.is_recorded():
            return self._recorded(call, captured)
        # The captures as they were before the trace, which may have written to them.
        initial = hidden if specialisation.initial_captures is None else specialisation.initial_captures
        specialisation.initial_captures = None
        arrays = [*call.dynamic(), *map(as_input, initial)]
        self.explain.note_kernel(specialisation.program)
        assign = self._assigning(call, captured._replace(objects=captures.objects(call)), is_first=True)
        try:
            result = specialisation.run(arrays, generators, assign)
        except GuardMiss as miss:
            # The kernel rounds differently from NumPy in the trace, and Python has branched on the result: the traced path is kept.
            self._note_disagreement(tree, missed, Miss(specialisation, miss.guard, miss.actual))
            if specialisation.draws is not None:
                return self.run_op_by_op(call, captures, keep_arrays=call.arrays)
            result = specialisation.run_as_traced(arrays, assign)
        except LinAlgError as error:
            if not specialisation.is_prepared:
                raise
            if missed is not None and not specialisation.has_dynamic_trips:
                tree.give_up(missed)
            raise OutcomeFailed from error
        if self.on_new is not None:
            with collector_paused():
                self.on_new(specialisation)
        return _as_arrays(call, result)

    def _assigning(self, call: CallArguments, captured: Captured, *, is_first: bool = False) -> Assign:
        """Return what assigns what a call writes to objects outside, unless another thread has changed what the call has read."""

        def assign(specialisation: Specialisation, outputs: list[NDArray]) -> None:
            def is_current() -> bool:
                if is_first or not specialisation.may_run_again:
                    return True
                now = captured.captures.read(call)
                return now is not None and all(map(operator.is_, now[0], captured.hidden))

            moment = Moment(captured.objects, call.leaves, outputs, call.given, {})
            specialisation.effects.carry_out(moment, is_current)

        return assign

    def _specialise(
        self, call: CallArguments, captures: CaptureSet, missed: Miss | None
    ) -> Specialisation | OpByOp:
        """Trace a call that no specialisation answers, where that is of use: translated, with dynamic trip counts, or as it is."""
        tree = captures.tree
        translated = self._trace_translated(call, captures, missed)
        if translated is not None:
            return translated
        if missed in tree.in_python:
            return OpByOp(call.arrays)
        if tree.count >= config.trace_limit:
            self.explain.warn_of_limit(tree, missed)
            return OpByOp(call.arrays)
        if missed is not None:
            self.explain.note_guard(missed)
        specialisation = self._trace_dynamic(call, captures, missed) or self.trace(call, captures)
        return OpByOp(keep_arrays=True) if specialisation is None else specialisation

    def _trace_translated(
        self, call: CallArguments, captures: CaptureSet, missed: Miss | None
    ) -> Specialisation | None:
        """Trace a call with translated functions, if a loop has looked at values that differ from call to call; None otherwise."""
        often = captures.tree.count >= min(_UNEQUAL_TRACES, config.trace_limit)
        if missed is None or missed.is_failure or not often or not missed.specialisation.may_be_loop:
            return None
        if self.translates is not None or config.loops == "trace":
            return None
        site = missed.site
        self.translates = f"the branch at {site!r} differs from call to call"
        self.inner = [site.code] if isinstance(site, Site) else []
        specialisation = self.trace(call, captures, accept=lambda trace: trace.is_translated)
        if specialisation is None or not specialisation.is_translated:
            self.translates = ""
            return None
        captures.tree = GuardTree()
        return specialisation

    def _trace_dynamic(
        self, call: CallArguments, captures: CaptureSet, missed: Miss | None
    ) -> Specialisation | None:
        """Trace a call with dynamic trip counts, if the search ended at a guard that may be the condition of a loop; None otherwise."""
        if missed is None or missed.is_failure or not missed.specialisation.may_be_loop or not config.reroll:
            return None
        is_accepted = False

        def accept(trace: Specialisation) -> bool:
            nonlocal is_accepted
            is_accepted = (
                trace.has_dynamic_trips
                and not trace.effects.changes
                and captures.tree.replace_by_dynamic(trace)
            )
            return is_accepted

        specialisation = self.trace(call, captures, dynamic_trips=True, accept=accept)
        return specialisation if is_accepted else None

    def _note_disagreement(self, tree: GuardTree, missed: Miss | None, own: Miss) -> None:
        """Give a guard's value up if two traces in a row have disagreed with the kernel on it: calls that find it run in Python."""
        if missed is None or own[1:] != missed[1:]:
            return
        if own.specialisation.program.kernel is missed.specialisation.program.kernel:
            tree.give_up(missed)
            self.explain.warn_of_disagreement(own)

    def _recorded(self, call: CallArguments, captured: Captured) -> Any:
        """Answer a call that a tape or trace records: the nodes of the trace are appended to its recording."""
        captures, hidden, generators, _ = captured
        tree = captures.tree
        with _tracing:
            if captures.in_python or not tree.can_be_recorded():
                return self.run_op_by_op(call, captures, keep_arrays=True)
            inputs = [_as_value(leaf) for leaf in (*call.traced(), *hidden)]
            try:
                is_answered, result, missed = tree.recorded(inputs, generators)
            except OutcomeFailed:
                return self.run_op_by_op(call, captures, keep_arrays=True)
            if is_answered:
                return result
            if tree.count >= config.trace_limit:
                self.explain.warn_of_limit(tree, missed)
                return self.run_op_by_op(call, captures, keep_arrays=True)
            try:
                specialisation = self.trace(call, captures, accept=lambda trace: trace.can_be_recorded)
            except InPlaceError as error:
                if error.is_final:
                    raise
                specialisation = None
            except (Exception, OutcomeFailed) as error:  # only a trace raises it: the function itself decides
                raise_interruption(error)
                specialisation = None
            if specialisation is None:
                captures.in_python = True
                return self.run_op_by_op(call, captures, keep_arrays=True)
            specialisation.initial_captures = None
            if captures.tree is not tree:  # with other inputs than the traces before
                tree, missed = captures.tree, None
            tree.add(specialisation, missed)
            if not specialisation.can_be_recorded:
                return self.run_op_by_op(call, captures, keep_arrays=True)
            return specialisation.recorded(inputs, generators, is_traced_call=True)

    def prepare(self, call: CallArguments) -> None:
        """Trace a call, if there is no trace for it yet, and compute nothing."""
        here.site = user_site()
        with _tracing:
            captured = self.signatures.read(call) or self._capture_anew(call)
            if captured is None:
                return
            captures = captured.captures
            try:
                if captures.tree.count or _is_traced(captured.hidden):
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
            values = captures.read(call)
            if values is not None and captures.tree.all():
                return captures.tree.all()[-1], [as_input(content) for content in values[0]]
        return None

    def specialisations(self) -> list[Specialisation]:
        """Return every specialisation, of every signature, and those of a program that this function shares."""
        return [*self.signatures.specialisations(), *self.lent]

    def specialisations_for(self, call: CallArguments) -> list[Specialisation]:
        """Return the specialisations for calls like this one whose captures are valid now."""
        return self.signatures.specialisations_for(call)

    def note_bound(self, specialisation: Specialisation, bound: CheckedFunction | None) -> None:
        """Register a native function, whose checks of classes are renewed where Python finds that they hold."""
        made = specialisation.origin or specialisation
        for sets in list(self.signatures.values()):
            for captures in sets:
                if bound is not None and made in captures.tree.all():
                    captures.checked.add(bound)


def _is_traced(leaves: list[Any]) -> bool:
    """Return whether one of the leaves belongs to a running trace."""
    return any(
        type(leaf) is Selection or (is_array(leaf) and trace_of(leaf.value) is not None) for leaf in leaves
    )


def _is_recorded(leaves: list[Any]) -> bool:
    """Return whether a tape or a trace records one of the leaves."""
    return any(
        leaf.is_recorded if isinstance(leaf, Variable) else any(tag.recording for tag in leaf.value.tags)
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
