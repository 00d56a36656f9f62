"""Handles: the current value of a user's array, and for a view, its base."""

from __future__ import annotations

import sys
import threading
import weakref
from typing import Any

import numpy as np

from gradtape.config import config
from gradtape.errors import CastError, ShapeError
from gradtape.ir.builder import emit, here
from gradtape.ir.graph import TraceTag, Value
from gradtape.ir.types import Shape
from gradtape.kinds.operands import as_value
from gradtape.ops.core.elementwise.cast import identity
from gradtape.ops.core.indexing import fit_for_write
from gradtape.trace.array.views import StaleBase, UncertainView, View
from gradtape.trace.jit.guards import abstract_of, note_write
from gradtape.trace.lazy.call_observer import prediction
from gradtape.trace.lazy.force import compute
from gradtape.trace.lazy.instruments import CHECKS, MADE
from gradtape.trace.lazy.pending import live_arrays
from gradtape.trace.source.asking import ASKING
from gradtape.trace.source.contexts import compiled_trace, scopes
from gradtape.trace.variables.content import VariableRead
from gradtape.trees import LEAVES, map_nested


class Handle:
    """A mutable reference to a value. In-place syntax rebinds it; a view reads from its base and writes through to it."""

    __slots__ = ("__weakref__", "_base", "_contiguous", "_current", "_derived", "_view")

    _base: Any
    """None; or the source of the content: another handle, the memory of a preallocated array, or the predictor of a deferred value."""

    _view: Any

    _contiguous: Any
    """The layout that NumPy's array would have: see `gradtape.trace.array.layout`."""

    def __init_subclass__(cls) -> None:
        LEAVES.add(cls)

    def __init__(self, value: Value, base: Handle | None = None, view: View | None = None) -> None:
        if not isinstance(value, Value):  # libraries call the type of an array, ``type(x)([y, z])``
            value = as_value(unwrap(value), "the argument of Array")
        self._base = base
        self._contiguous = True
        if base is not None:
            self._view = view
            self._derived = base.value
        self._hold(value)
        if config.eager or CHECKS:
            run_checks(self)

    @property
    def value(self) -> Value:
        """The value in the graph; a view follows its base."""
        base = self._base
        if base is not None:
            if isinstance(base, Handle) and base._base is not None:
                base._refresh()
                content = base._current
            else:
                content = base.value
                if self._base is not base:  # which had promised a value, and has given it now
                    return self.value
            if content is not self._derived:
                self._derived = content
                self._hold(_reread(self._view, content))
        return self._current

    def _refresh(self) -> None:
        """Update a view and the views that it is a view of: in a loop, since there may be thousands."""
        chain: list[Handle] = []
        handle: Any = self
        while isinstance(handle, Handle) and handle._base is not None:
            chain.append(handle)
            handle = handle._base
        first = chain.pop()
        content = first.value
        while chain:
            view = chain.pop()
            if content is not view._derived:
                view._derived = content
                view._hold(view._view.read(content))
            content = view._current

    def rebind(self, value: Value) -> None:
        """Make `value` the content, also of the base of a view."""
        prediction.materialise(self.value)
        if ASKING.questions is not None and compiled_trace() in self.value.tags:
            value = traced_value(value)  # what is written to an array made of a length belongs to one
        value = fresh_value(value)
        if self._base is not None:
            if type(self._view) is UncertainView:
                self._detach()
            else:
                self._base.rebind(self._view.write(self._base.value, value))
                self._derived = self._base.value
        else:
            note_write(self._current)
        self._hold(value)

    def _detach(self) -> None:
        """Detach from a base of which this may be a view: reading the base, which may have changed, becomes an error."""
        root: Any = self._base
        root.value  # noqa: B018 - it is an error already after an earlier write
        while isinstance(root._base, Handle):
            root = root._base
        note_write(root._current)
        root._base = StaleBase(self._view)
        self._base = None

    def _hold(self, value: Value) -> None:
        self._current = value
        # The base owns the data that it shares with a view: the view may die first, and sees changes of the base.
        if self._base is None or value is not self._base._current:
            value.owner = reference = weakref.ref(self)
            if value.data is None:
                live_arrays.handles.append(reference)

    def write_result(self, result: Value, what: str) -> None:
        """Write the result of an in-place operation, cast as NumPy casts (same kind)."""
        value = self.value
        check_fits(result, value.dtype, value.shape, what)
        self.rebind(fit_for_write(result, value.dtype, value.shape))

    @property
    def shape(self) -> Shape:
        shape = self._current.aval.shape
        if ASKING.questions is not None and (questions := ASKING.by_user(sys._getframe(1))) is not None:
            return questions.extents(shape)  # type: ignore[no-any-return] # lengths stand for integers
        return shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._current.aval.dtype

    @property
    def ndim(self) -> int:
        return self._current.aval.ndim

    @property
    def size(self) -> int:
        size = self._current.aval.size
        if ASKING.questions is not None and (questions := ASKING.by_user(sys._getframe(1))) is not None:
            return questions.extent(size)  # type: ignore[no-any-return] # a length stands for an integer
        return size


def _reread(view: Any, content: Value) -> Value:
    """Return the value of a view after a write to its base; tapes that have stopped since the write record it as well."""
    ended = [tag for tag in content.tags if type(tag) is TraceTag and not tag.recording]
    if not ended:
        return view.read(content)  # type: ignore[no-any-return]
    before = [tag.recorded_by for tag in ended]
    try:
        for tag in ended:
            tag.recorded_by = threading.get_ident()
        return view.read(content)  # type: ignore[no-any-return]
    finally:
        for tag, recorded_by in zip(ended, before, strict=True):
            tag.recorded_by = recorded_by


def check_fits(result: Value, dtype: np.dtype[Any], shape: Shape, what: str) -> None:
    """Raise an error unless NumPy would write the result of an in-place operation into such an array."""
    if result.ndim and not _fits(result.shape, shape):
        raise ShapeError(
            f"non-broadcastable output operand with shape {shape} doesn't match the broadcast shape {result.shape}",
            where=here.site,
            remedy="write x = x + y instead of x += y where the result is larger than x",
        )
    if not np.can_cast(result.dtype, dtype, "same_kind"):
        raise CastError(
            f"cannot cast the result of {what} from {result.dtype} to {dtype} in place",
            where=here.site,
            remedy=f"write x = x.astype({result.dtype}) first, or a new name for the result",
        )


def _fits(own: Shape, shape: Shape) -> bool:
    try:
        return np.broadcast_shapes(own, shape) == shape
    except ValueError:
        return False


def run_checks(handle: Handle) -> None:
    """Run the debugging checks on a new array: compute it in eager mode, register it for instruments."""
    value = handle._current
    if config.eager and abstract_of(value) is None:
        compute([value])
    if CHECKS:
        MADE.append(weakref.ref(handle))


def fresh_value(value: Value) -> Value:
    """Return a value that no other handle holds: to watch an array does not watch its copies."""
    if not isinstance(value, VariableRead) and (value.owner is None or value.owner() is None):
        return value
    data = value.data  # once: another thread may take it over
    if data is not None and not value.tags and not scopes():
        return Value(value.aval, data=data)
    fresh = emit(identity, [value])
    fresh.aval = value.aval
    return fresh


def traced_value(value: Value) -> Value:
    """Return a value as one that depends on the arguments of the traced function, so that Python cannot read its number."""
    trace = compiled_trace()
    if trace is None or trace in value.tags:
        return value
    made = emit(identity, [value])
    made.aval = value.aval
    made.tags = (*made.tags, trace)
    return made


def is_recorded(leaf: Any) -> bool:
    """Return whether a leaf is an array whose value an active tape or trace records."""
    return isinstance(leaf, Handle) and any(tag.recording for tag in leaf.value.tags)


def unwrap(operand: Any) -> Any:
    """Return an operand with values for arrays, also in nested lists and tuples."""
    if isinstance(operand, Handle):
        return operand.value
    return map_nested(unwrap, Handle, operand) if isinstance(operand, list | tuple) else operand
