"""Reads of variables: values that later assignments do not change."""

from __future__ import annotations

from gradtape.ir.builder import here
from gradtape.ir.graph import ARRAYS, Node, TraceTag, Value
from gradtape.ir.op import NDArray, Op
from gradtape.ir.types import aval
from gradtape.ops.core.elementwise.cast import identity, stop_gradient
from gradtape.trace.array.array import Array
from gradtape.trace.array.handle import fresh_value
from gradtape.trace.array.layout import Layout
from gradtape.trace.jit.guards import Trace, trace_of
from gradtape.trace.variables.content import VariableRead


class CallableRead(VariableRead):
    """A read that returns itself as an `Array` when it is called: ``v.value()``, as in TensorFlow.

    Attributes
    ----------
    layout : Layout
        That of the variable; missing where it is C-contiguous.
    """

    __slots__ = ("layout",)

    layout: Layout

    def __call__(self) -> Array:
        """Return the content as an `Array`, which later assignments do not change."""
        return array_of_layout(fresh_value(self), getattr(self, "layout", True))


ARRAYS.add(CallableRead)


def array_of_layout(value: Value, layout: Layout) -> Array:
    """Return an `Array` that has no base, laid out as a variable or a part of one."""
    array = Array(value)
    array._contiguous = layout
    return array


def known_read(data: NDArray, name: str | None, tags: tuple[TraceTag, ...] = ()) -> VariableRead:
    """Return a read whose data are known."""
    made = CallableRead(aval(data.shape, data.dtype), data=data, tags=tags)
    made.name = name
    return made


def _computed_read(op: Op, value: Value, tags: tuple[TraceTag, ...], name: str | None) -> VariableRead:
    """Return a read that an op computes of a value."""
    node = Node(op, (value,), {}, here.site)
    out = CallableRead(aval(value.shape, value.dtype), node, 0, None, tags)
    out.name = name
    node.outs = (out,)
    return out


def detached_read(value: Value, name: str | None, trace: Trace | None = None) -> VariableRead:
    """Return a value without the tags of tapes: no tape records an assignment."""
    tags: tuple[TraceTag, ...] = tuple(tag for tag in value.tags if isinstance(tag, Trace))
    if trace is not None and trace not in tags:
        tags = (*tags, trace)
    return _computed_read(stop_gradient, value, tags, name)


def tagged_read(value: Value, tags: tuple[TraceTag, ...], name: str | None) -> VariableRead:
    """Return a read of a value that has these tags."""
    data = value.data  # once: another thread may take it over
    if data is not None and trace_of(value) is None:
        return known_read(data, name, tags)
    kept = tuple(tag for tag in value.tags if tag.recording)
    return _computed_read(identity, value, (*kept, *tags), name)
