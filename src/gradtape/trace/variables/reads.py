"""What is read of a variable: values that later assignments do not change."""

from __future__ import annotations

from gradtape.ir.builder import here
from gradtape.ir.graph import ARRAYS, Node, TraceTag, Value
from gradtape.ir.op import NDArray, Op
from gradtape.ir.types import aval
from gradtape.ops.core.elementwise.cast import identity, stop_gradient
from gradtape.trace.array.array import Array
from gradtape.trace.array.handle import fresh_value
from gradtape.trace.jit.guards import Trace, trace_of
from gradtape.trace.variables.content import Reading


class CallableReading(Reading):
    """A reading that hands itself to the user when it is called: ``v.value()``, as TensorFlow spells it."""

    __slots__ = ()

    def __call__(self) -> Array:
        """Return the content as an `Array`, which later assignments do not change."""
        return Array(fresh_value(self))


ARRAYS.add(CallableReading)


def known(data: NDArray, name: str | None, tags: tuple[TraceTag, ...] = ()) -> Reading:
    made = CallableReading(aval(data.shape, data.dtype), data=data, tags=tags)
    made.name = name
    return made


def _derived(op: Op, value: Value, tags: tuple[TraceTag, ...], name: str | None) -> Reading:
    node = Node(op, (value,), {}, here.site)
    out = CallableReading(aval(value.shape, value.dtype), node, 0, None, tags)
    out.name = name
    node.outs = (out,)
    return out


def cut(value: Value, name: str | None, trace: Trace | None = None) -> Reading:
    """Return a value without the tags of tapes, so that none follows an assignment."""
    tags: tuple[TraceTag, ...] = tuple(tag for tag in value.tags if isinstance(tag, Trace))
    if trace is not None and trace not in tags:
        tags = (*tags, trace)
    return _derived(stop_gradient, value, tags, name)


def followed_by(value: Value, tags: tuple[TraceTag, ...], name: str | None) -> Reading:
    """Return a value of its own that these tags follow."""
    data = value.data  # once: another thread may take it over
    if data is not None and trace_of(value) is None:
        return known(data, name, tags)
    kept = tuple(tag for tag in value.tags if tag.recording)
    return _derived(identity, value, (*kept, *tags), name)
