"""The tape: record NumPy code as it runs, then ask for gradients."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from types import TracebackType
from typing import Any

import numpy as np

from gradtape.api.custom.complex_convention import CONVENTIONS, Convention, check_convention, conjugated
from gradtape.api.tape.endpoints import (
    Source,
    UnconnectedGradients,
    array_leaves,
    as_results,
    completed,
    in_convention,
    seeds_for,
    unconnected_choice,
    with_values,
)
from gradtape.api.tape.jacobian import Jacobians
from gradtape.api.tape.loops import warn_of_long_loop
from gradtape.api.tape.memory import Memory, memory_limit
from gradtape.api.tape.missing_paths import Cuts, warn_of_unrecorded_lines
from gradtape.api.tape.record import (
    Record,
    not_recording,
    pulled,
    single_values,
    source_of,
    target_value,
    values_of_one_tape,
    warn_of_integers,
    watch_array,
    watchable,
)
from gradtape.api.units import magnitudes, may_have_units, per_argument, unit_of_sum
from gradtape.config import within_memory
from gradtape.errors import (
    ArgumentError,
    DtypeError,
    GradtapeWarning,
    TapeError,
    kind_of,
    note_recursion,
    warn,
)
from gradtape.habits import TAPE as TAPE_HABITS
from gradtape.habits import Missing, suggests_keywords
from gradtape.ir.builder import here
from gradtape.ir.graph import TraceTag, Value
from gradtape.ir.types import is_inexact
from gradtape.runtime.compile.program import ACTIVE
from gradtape.trace.array.array import Array
from gradtape.trace.array.indexed_slices import flatten_arrays
from gradtape.trace.dispatch.call_errors import is_list_error, is_list_of_numbers, note_package
from gradtape.trace.jit.bodies import refuse_outside_derivative
from gradtape.trace.jit.guards import InBody
from gradtape.trace.lazy.call_observer import prediction
from gradtape.trace.lazy.gradient_cache import Derivatives, derivatives, gradients
from gradtape.trace.lazy.trace_prediction import predict
from gradtape.trace.patching import recorders
from gradtape.trace.random.comparisons import warn_of_chance
from gradtape.trace.source.contexts import Context, bodies_around, contexts, leave
from gradtape.trace.source.sites import user_site
from gradtape.trace.variables.variable import Variable
from gradtape.transforms.sparse_grads import SparseGradient
from gradtape.trees import flatten_up_to, flatten_with_none

_frame, _modules = sys._getframe, sys.modules


class GradientTape(Jacobians):
    """Record operations on watched arrays and variables, and differentiate them.

    Parameters
    ----------
    persistent : bool, default False
        Whether `gradient` may be called more than once. A tape that is not persistent stops recording when a gradient is taken.
    watch_accessed_variables : bool, default True
        Whether trainable variables are watched when they are read; otherwise only arrays passed to `watch` are.
    strict : bool, default False
        Whether it is an error, at the line, if a watched array is converted to a number or an ndarray while the tape records:
        ``float(x)``, ``x.numpy()``, a function that computes with ndarrays. Otherwise the results computed from these are constants,
        and part of the derivative is missing.
    convention : {"tensorflow", "jax"}, default "tensorflow"
        Gradients and rows of Jacobians with respect to complex sources: df/dx + i df/dy, the direction of steepest ascent, or its
        conjugate. With ``"jax"`` weights of complex targets are not conjugated either. Gradients of real targets with respect to real
        sources are the same in both.
    memory : int or str, optional
        The bytes that the records of each reversed loop may take, as a number or as in ``"2 GB"``, by default `gt.config.memory`.

    Notes
    -----
    Operations are recorded while the tape is active and one of their inputs is watched; results are then watched as well. Operations on
    another thread are not recorded, and `gradient` warns of them. Nothing is computed until a value is read. A gradient taken while
    another tape records is recorded by that tape, so nested tapes give derivatives of any order. Leaving the block and entering it
    again continues the record. The interface is TensorFlow's (Abadi et al., OSDI 2016).

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> with gt.GradientTape() as tape:
    ...     x = tape.watch(np.array([1.0, 2.0]))
    ...     y = np.sum(x**2)
    >>> tape.gradient(y, x)
    Array([2., 4.])
    """

    reads_records = True

    _record: Record | None = None  # also of a tape that could not be made
    _listed = False  # whether it was given a list of numbers to watch
    _active = False

    _paused = False  # whether stop_recording was used: then a missing gradient is meant

    @suggests_keywords
    def __init__(
        self,
        persistent: bool = False,
        watch_accessed_variables: bool = True,
        *,
        strict: bool = False,
        convention: Convention = "tensorflow",
        memory: Memory = None,
    ) -> None:
        for argument, given in (
            ("persistent", persistent),
            ("watch_accessed_variables", watch_accessed_variables),
            ("strict", strict),
        ):
            if type(given) is not bool and not isinstance(given, np.bool_):
                raise DtypeError(
                    f"{argument} must be a bool, got {kind_of(given)}",
                    where=user_site(),
                    remedy=f"gt.GradientTape({argument}={bool(given) if isinstance(given, int) else True})",
                )
        self._persistent = bool(persistent)
        self._accessed = bool(watch_accessed_variables)
        self._strict = bool(strict)
        if convention not in CONVENTIONS:  # asked here, since opening a tape is a hot path
            check_convention(convention, "GradientTape")
        self._convention = convention
        self._memory = None if memory is None else memory_limit(memory, "GradientTape")
        self._used = False
        self._around: tuple[InBody, ...] = ()
        self._stack: list[Context] = []

    def __enter__(self) -> GradientTape:
        if self._active:
            if not self._used:
                raise ArgumentError(
                    "this tape is recording already",
                    where=user_site(),
                    remedy="leave its with block first, or make another tape",
                )
            self._leave()  # its record was used inside the block
        if prediction.deferred is not None:
            prediction.materialise()
            prediction.deferred = None
        prediction.observer = None
        record = self._record
        self._around = bodies_around() if contexts.stack else ()
        self._stack = contexts.stack
        try:
            if record is None or self._used:
                record = self._record = Record(self._accessed, self._strict)
                self._used = False
                if not self._persistent and self._memory is None:
                    record.expected = predict(_frame(1), record.tag, record.own_tags, Array)
            else:
                record.tag.thread = threading.get_ident()
                record.tag.recording = True
            self._active = True
            self._stack.append(record)
            recorders.enter(self)
        except BaseException:  # Ctrl-C: nobody would leave what was entered by half
            self._leave()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        record = self._record
        if self._listed and is_list_error(error):
            assert error is not None
            error.add_note(
                "gradtape: watch was given a list of numbers, and returned a list of Arrays, which does not support arithmetic; watch "
                "an array: x = tape.watch(np.array(x))"
            )
        if error is not None:
            note_recursion(error, "the block of a tape")
            if isinstance(error, Exception):
                note_package(error, "while a tape recorded")
        try:  # as _leave does, without the price of calls
            prediction.observer = None
            if record is not None:
                record.tag.recording = False
                if record in self._stack:
                    self._stack.remove(record)
            recorders.leave(self)
            self._active = False
        except BaseException:  # Ctrl-C again
            self._leave()
            raise

    def __del__(self) -> None:
        if self._active:  # an interruption kept it from leaving
            self._leave()
        if self._record is not None:
            self._record.close()

    def _leave(self) -> None:
        prediction.observer = None
        record = self._record
        if record is not None:
            record.tag.recording = False
            leave(self._stack, record, self)
        self._active = False

    def __reduce__(self) -> tuple[Any, ...]:
        if self._record is None:
            make = partial(
                GradientTape, strict=self._strict, convention=self._convention, memory=self._memory
            )
            return make, (self._persistent, self._accessed)
        raise TapeError(
            "a tape that has recorded can be neither copied nor pickled",
            where=user_site(),
            why="it cannot be separated from the values that it records",
            remedy="make another tape; copy and pickle gradients and variables",
        )

    def __repr__(self) -> str:
        return f"<GradientTape: {self._state()}{', persistent' if self._persistent else ''}>"

    def _repr_html_(self) -> str:
        from gradtape.api.pictures.html import (
            tape_card,  # late: pictures are drawn in notebooks only, and cost 7 ms to import
        )

        return tape_card(self._state(), self._persistent, self.mark)

    def _state(self) -> str:
        return (
            "new"
            if self._record is None
            else "used"
            if self._used
            else "recording"
            if self._record.tag.recording
            else "recorded"
        )

    @property
    def mark(self) -> TraceTag | None:
        """What the values that this tape records carry; None while it was never entered."""
        prediction.materialise()
        return None if self._record is None else self._record.tag

    def watch(self, tensor: Any) -> Any:
        """Follow arrays and variables from here on.

        Parameters
        ----------
        tensor : Array, Variable, array_like, or nests of them
            Arrays and variables are watched in place. What is neither is copied into an Array: use what is returned. It is read-only if the
            ndarray is.

        Returns
        -------
        nest of Array or Variable
            `tensor`, with Arrays for ndarrays and numbers.

        Raises
        ------
        TapeError
            If the tape was never entered, or its record has been used.
        ArgumentError
            For None.
        DtypeError
            For an object without numbers.
        """
        record = self._live("watch")
        here.site = user_site()
        x = tensor
        if type(x) is Array and x._base is None and not x._current.tags and is_inexact(x.dtype):
            watch_array(x, record)
            return x
        leaves, filled = flatten_arrays(x)
        self._listed = self._listed or is_list_of_numbers(x)
        watched: list[Any] = []
        for position, leaf in enumerate(leaves):
            watched.append(leaf if isinstance(leaf, Array) else watchable(leaf, x, position))
        plain = [array.value for array in watched if not issubclass(type(array), Variable)]
        refuse_outside_derivative("watch", plain, self._around, "watch the inputs, or make a tape inside it")
        warn_of_integers(watched, x)
        for array in watched:
            if issubclass(type(array), Variable):  # isinstance would ask Array.__class__, a call of Python
                record.watch_variable(array)
            else:
                watch_array(array, record)
        for position, leaf in enumerate(leaves):
            if issubclass(type(leaf), np.ndarray) and not leaf.flags.writeable:
                watched[position] = watched[position].read_only()
        return filled(watched)

    def watched_variables(self) -> tuple[Variable, ...]:
        """Return the variables watched by the current record, in the order of their creation."""
        variables = {} if self._record is None else self._record.variables
        return tuple(variables[serial] for serial in sorted(variables))

    def stop_recording(self) -> AbstractContextManager[None]:
        """Return a context in which nothing is recorded, and no variable is watched.

        Returns
        -------
        context manager
            What is computed inside it counts as constant. Recording goes on afterwards, also after an exception.

        Raises
        ------
        TapeError
            If the tape was never entered, or its record has been used; in the body of a loop or branch that the tape records.
        ArgumentError
            If it is not recording.

        Examples
        --------
        >>> import gradtape as gt
        >>> with gt.GradientTape() as tape:
        ...     x = tape.watch(3.0)
        ...     with tape.stop_recording():
        ...         scale = 1 / x
        ...     y = x * scale
        >>> round(float(tape.gradient(y, x)), 4)
        0.3333
        """
        record = self._live("stop_recording")
        if not record.tag.recording:
            raise not_recording("stop_recording")
        for body in bodies_around():
            if body not in self._around:
                raise TapeError(
                    f"stop_recording in {body.described}",
                    where=user_site(),
                    why="the body is recorded whole, as one operation",
                    remedy="use gt.stop_gradient(x) for values that are to be constants",
                )
        return self._stopped(record)

    @contextmanager
    def _stopped(self, record: Record) -> Iterator[None]:
        prediction.materialise()
        self._paused = True
        try:
            record.tag.recording = False
            yield
        finally:
            if self._active and not self._used and self._record is record:
                record.tag.recording = True

    def reset(self) -> None:
        """Discard the record and the watched values, and continue to record.

        Raises
        ------
        ArgumentError
            If the tape is not recording.

        Examples
        --------
        >>> import gradtape as gt
        >>> with gt.GradientTape() as tape:
        ...     x = tape.watch(3.0)
        ...     tape.reset()
        ...     y = x * x
        >>> tape.gradient(y, x) is None
        True
        """
        old = self._record
        if old is None or not old.tag.recording:
            raise not_recording("reset")
        prediction.materialise()
        fresh = self._record = Record(self._accessed, self._strict)
        self._stack[self._stack.index(old)] = fresh
        old.close()

    @suggests_keywords
    def gradient(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        unconnected_gradients: UnconnectedGradients | str = UnconnectedGradients.NONE,
    ) -> Any:
        """Return the gradient of `target` in `sources`.

        Parameters
        ----------
        target : Array, Variable or nest of them
            The values to differentiate; several targets, and the elements of arrays, are summed.
        sources : Array, Variable or nest of them
            The values to differentiate with respect to: watched arrays and variables, or values computed from them. All reads of a
            variable add up. An array that has been written to since it was watched stands for the value that was watched.
        output_gradients : array_like or nest of them, optional
            One weight per target, of its shape; the default is ones. They are matched by position, in a dict by name.
        unconnected_gradients : UnconnectedGradients or {"none", "zero", "raise"}, default "none"
            The gradient of a source from which no differentiable path leads to a target: None, zeros of the source's shape, or an
            error.

        Returns
        -------
        nest of Array, IndexedSlices or None
            In the structure of `sources`. A source that is only read by gathers of its rows (`gradtape.gather`, ``np.take`` along the
            first axis, ``x[indices]`` with integers) has a gradient of these rows alone, an `IndexedSlices`.

        Raises
        ------
        TapeError
            If the tape was never entered, or is a one-shot tape whose record has been used.
        DtypeError
            If a source or target is None, or not an array.
        ArgumentError
            If a source or target is an ndarray or number; for an unknown `unconnected_gradients`.
        ShapeError
            If `output_gradients` does not match the targets.
        StructureError
            If it is a dict of other names.
        UnconnectedError
            If there is no path, with ``unconnected_gradients="raise"``.
        """
        here.site = user_site()
        asked = target, sources, output_gradients, unconnected_gradients, self._convention
        if self._memory is None:
            return self._gradient(*asked)
        with within_memory(self._memory):
            return self._gradient(*asked)

    def _gradient(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any,
        unconnected_gradients: UnconnectedGradients | str,
        convention: Convention,
    ) -> Any:
        """Return the gradient of `target` in `sources`; an optimiser descends along that of one convention, whatever that of the tape."""
        record = self._live("gradient")
        choice = unconnected_choice(unconnected_gradients, "gradient")
        unit = None
        if output_gradients is not None:
            output_gradients = with_values(output_gradients, target)
        has_units = ("pint" in _modules or "astropy.units" in _modules) and may_have_units(
            target, output_gradients, sources
        )
        if has_units:
            unit = unit_of_sum(target, output_gradients, "gradient")
            target, output_gradients = magnitudes(target), magnitudes(output_gradients)
        ends, _ = array_leaves(target, "target", "gradient", record.tag.log)
        leaves, nest = array_leaves(sources, "source", "gradient")
        if isinstance(output_gradients, dict):
            _, spec = flatten_with_none(target)
            flatten_up_to(spec, output_gradients, "output_gradients", "target", here.site)
        if record.tag.missed is not None:
            warn(
                GradtapeWarning,
                "part of the gradient is missing: an operation on a watched array ran on another thread than the with block of the tape",
                where=record.tag.missed,
                why="a tape records its own thread: what other threads compute counts as constant",
                remedy="compute on the thread of the tape, or take a gradient in each thread, gt.grad(f)(x), and add them",
            )
        log = record.tag.log  # a warning says where a path was cut by a conversion
        known = record.expected is not None and output_gradients is None and not (log and log.exits)
        parts: Sequence[Value | SparseGradient | None] | None = (
            self._expected(record, ends, leaves) if known else None
        )
        if parts is None:
            parts = self._derived(record, ends, leaves, output_gradients, choice, sources, convention)
        found = nest(as_results(in_convention(parts, convention), leaves))
        return per_argument(unit, found) if has_units else found

    def _expected(self, record: Record, ends: list[Any], leaves: list[Any]) -> Derivatives | None:
        """Return gradients without a look at the record, if it is known what it is."""
        starts = single_values(leaves, record)
        if starts is None or record.expected is None:
            return None
        tag = record.tag
        before, tag.recorded_by = tag.recorded_by, None
        try:
            parts = record.expected.gradients(ends, starts, tag)
        finally:
            tag.recorded_by = before
        if parts is not None:
            self._used = True
            record.close()
        return parts

    def _derived(
        self,
        record: Record,
        ends: list[Any],
        leaves: list[Any],
        output_gradients: Any,
        choice: UnconnectedGradients,
        sources: Any,
        convention: Convention,
    ) -> Sequence[Value | SparseGradient | None]:
        """Return gradients from the record, in TensorFlow's convention, and what stands for missing ones."""
        targets = values_of_one_tape(ends, record)
        starts = (
            None
            if targets is None or output_gradients is not None
            else values_of_one_tape(leaves, record, are_sources=True)
        )
        seeds = None
        if targets is None or starts is None:
            targets = [target_value(leaf, record) for leaf in ends]
            self._refuse_across("gradient", targets)
            points = [source_of(leaf, record) for leaf in leaves]
            if output_gradients is not None:
                seeds = seeds_for(output_gradients, targets, "gradient")
                seeds = seeds if convention == "tensorflow" else list(map(conjugated, seeds))
        warn_of_long_loop(targets, record.first, record.tag)
        last = not self._persistent
        cuts = None
        if record.tag.log is not None and record.tag.log.exits:
            begins = [point.values for point in points] if starts is None else [(start,) for start in starts]
            cuts = Cuts(record.tag, targets, begins)
        warn_of_chance(
            record.tag,
            targets,
            [value for point in points for value in point.values] if starts is None else starts,
        )
        asked = _OneShotQuery(self, record)
        try:
            parts = (
                pulled(record.tag, targets, seeds, points, last=last)
                if starts is None
                else derivatives(gradients, "gradient", targets, starts, None, record.tag, last=last)
            )
            if cuts is not None:
                cuts.warn([part is None for part in parts])
            is_meant = self._paused or choice is not UnconnectedGradients.NONE
            if None in parts and not is_meant and record.tag.missed is None and ACTIVE.profiler is None:
                warn_of_unrecorded_lines(record.tag, targets)  # a profiler reports them itself
            found = completed(parts, leaves, choice, sources)
        except BaseException:
            asked.fail()
            raise
        asked.succeed(release=None not in parts)
        if ACTIVE.profiler is not None and None in parts:
            lacking = [leaf for leaf, part in zip(leaves, parts, strict=True) if part is None]
            ACTIVE.profiler.unconnected(self, ends, lacking)
        return found

    @contextmanager
    def _differentiated(
        self, caller: str, target: Any, sources: Sequence[Any]
    ) -> Iterator[tuple[TraceTag, Value, list[Source], bool]]:
        record = self._live(caller)
        self._refuse_across(caller, [target.value])
        ends = target_value(target, record), [source_of(leaf, record) for leaf in sources]
        warn_of_long_loop(ends[:1], record.first, record.tag)
        if record.tag.log is not None and record.tag.log.exits:
            Cuts(record.tag, [ends[0]], [point.values for point in ends[1]]).warn([False] * len(sources))
        warn_of_chance(record.tag, [ends[0]], [value for point in ends[1] for value in point.values])
        asked = _OneShotQuery(self, record)
        try:
            if self._memory is None:  # to enter the context takes five calls
                yield record.tag, *ends, not self._persistent
            else:
                with within_memory(self._memory):
                    yield record.tag, *ends, not self._persistent
        except BaseException:
            asked.fail()
            raise
        asked.succeed()

    def _live(self, caller: str) -> Record:
        """Return the record that a call of `caller` is about."""
        if self._record is None:
            raise TapeError(
                f"{caller} on a tape that was never entered",
                where=user_site(),
                why="a tape records, and watches, only inside its with block",
                remedy="with gt.GradientTape() as tape: ...",
            )
        if self._used:
            raise TapeError(
                f"{caller} on a one-shot tape whose record has been used",
                where=user_site(),
                why="it releases its record and its memory after the first gradient",
                remedy="make it with gt.GradientTape(persistent=True) to take several gradients",
            )
        return self._record

    def _refuse_across(self, caller: str, targets: Sequence[Value]) -> None:
        refuse_outside_derivative(
            caller,
            targets,
            self._around,
            "take it outside, of the result, or make a tape inside it",
        )


Missing.teach(GradientTape, TAPE_HABITS)


def record_of(tape: GradientTape) -> Record | None:
    """Return what a tape records, or None if it was never entered."""
    return tape._record


class _OneShotQuery:
    """Lets a one-shot tape give up its record, unless the asking fails."""

    __slots__ = ("_record", "_recording", "_tape")

    def __init__(self, tape: GradientTape, record: Record) -> None:
        self._tape = tape
        self._record = record
        self._recording = record.tag.recording
        if not tape._persistent:
            record.tag.recording = False

    def fail(self) -> None:
        if not self._tape._persistent:
            self._record.tag.recording = self._recording

    def succeed(self, *, release: bool = True) -> None:
        if not self._tape._persistent:
            self._tape._used = True
            self._record.close(release=release)
