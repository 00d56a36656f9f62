"""The record of a tape: the tag that its values carry, the variables that were read, and the sweeps over it."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from itertools import compress
from typing import Any

import numpy as np

from gradtape.api.tape.endpoints import Source, followable, per_source
from gradtape.errors import ArgumentError, DtypeError, IntegerWatchWarning, warn
from gradtape.ir.builder import here
from gradtape.ir.graph import Literal, Node, TraceTag, Value, next_serial
from gradtape.ir.types import is_inexact
from gradtape.kinds.operands import argument_value
from gradtape.ops.core.elementwise.cast import identity
from gradtape.trace.array.array import Array
from gradtape.trace.array.layout import argument_layout, layout_of_operand
from gradtape.trace.lazy.call_observer import prediction
from gradtape.trace.lazy.gradient_cache import derivatives, gradients
from gradtape.trace.lazy.trace_prediction import TapePrediction
from gradtape.trace.source.contexts import Watcher
from gradtape.trace.source.log import log_of, note_watch
from gradtape.trace.source.sites import user_site
from gradtape.trace.variables.variable import Variable
from gradtape.transforms.sparse_grads import SparseGradient
from gradtape.trees import place_of_leaf


class Record(Watcher):
    """The record of a tape: the tag that its values carry, and the variables that were read.

    Parameters
    ----------
    accessed : bool
        Whether trainable variables are watched automatically.
    """

    __slots__ = (
        "_accessed",
        "_asked_for",
        "_made_before",
        "_reads",
        "expected",
        "first",
        "own_tags",
        "tag",
        "variables",
    )

    def __init__(self, accessed: bool, strict: bool = False) -> None:
        self.tag = TraceTag(threading.get_ident())
        if strict:
            log_of(self.tag).strict = True
        self.own_tags = (self.tag,)  # one tuple for what no other tape records: quick to compare
        self.expected: TapePrediction | None = None
        self.first = next_serial()
        self.variables: dict[int, Variable] = {}
        self._accessed = accessed
        self._asked_for: set[int] = set()
        self._reads: dict[int, weakref.WeakValueDictionary[int, Value]] = {}
        self._made_before: dict[int, list[weakref.ref[Value]]] = {}

    def tag_for(self, variable: Any) -> TraceTag | None:
        return self.tag if self.tag.recording and self.wants(variable) else None

    def note(self, variable: Any, value: Value) -> None:
        self.variables[variable.serial] = variable
        self._reads.setdefault(variable.serial, weakref.WeakValueDictionary())[id(value)] = value

    def wants(self, variable: Variable) -> bool:
        """Return whether the tape records reads of a variable."""
        return (self._accessed and variable.trainable) or variable.serial in self._asked_for

    def watch_variable(self, variable: Variable) -> None:
        """Follow a variable from here on, trainable or not."""
        self.variables[variable.serial] = variable
        self._asked_for.add(variable.serial)

    def reads(self, variable: Variable) -> tuple[Value, ...]:
        """Return what was read of a variable and is still in use."""
        return tuple(self._reads.get(variable.serial, {}).values())

    def begin_at(self, value: Value) -> None:
        """Let the record begin at a value that was made of others, also where these are watched, earlier or later."""
        for operand in value._inputs:
            if self.tag in operand.tags:
                _hide_history(value, self.tag)
                return
        for operand in value._inputs:
            self._made_before.setdefault(id(operand), []).append(weakref.ref(value))

    def detach_from(self, value: Value) -> None:
        """Let what was made of a value before it was watched, and is watched itself, not count as made of it."""
        for reference in self._made_before.get(id(value), ()):
            made = reference()
            if made is not None and any(operand is value for operand in made._inputs):
                _hide_history(made, self.tag)

    def close(self, *, release: bool = True) -> None:
        """Give up the record; which variables were watched stays known.

        Parameters
        ----------
        release : bool
            Whether values that were computed while it was open let go of what they were computed from. A gradient that is missing may be
            asked about: then they do when the tape goes.
        """
        tag = self.tag
        if not tag.over:
            tag.recording = False
            tag.over = True
            self.expected = None
            self._reads.clear()
        if release:
            tag.release()


def watch_array(array: Array, record: Record) -> None:
    """Let a tape record an array from here on."""
    value = array.value
    if isinstance(value, Literal):
        array.rebind(followable(value))
        value = array.value
    tag = record.tag
    if tag not in value.tags:
        if prediction.deferred is not None:
            prediction.materialise(value)
        others = [other for other in value.tags if not other.over] if value.tags else ()
        if value._op is not None:
            record.begin_at(value)
        value.tags = (*others, tag) if others else record.own_tags
        if record._made_before:
            record.detach_from(value)
        note_watch(value, tag, here.site)
    elif value._op is not None and (before := log_of(tag).watched_in(array)) and before() is not value:
        log_of(tag).note(value, here.site)  # it was written to since it was watched


def watched_value(array: Any, record: Record) -> Value | None:
    """Return the value of an array that is a source: the one that was watched, also if code has written to the array since.

    None if that was not used and is gone.
    """
    value: Value = array.value
    if record.tag.log is None or (value._op is None and record.tag in value.tags):
        return value
    watched = record.tag.log.watched_in(array)
    return value if watched is None else watched()


def not_recording(caller: str) -> ArgumentError:
    """Return the error for what a tape does only while it records."""
    return ArgumentError(
        f"{caller} on a tape that is not recording",
        where=user_site(),
        remedy=f"call tape.{caller}() inside the tape's with block",
    )


def watchable(leaf: Any, tree: Any, position: int) -> Array:
    """Return an Array of a leaf that is none; errors say where it stands in its tree."""
    if leaf is None:
        raise ArgumentError(
            f"watch got None{place_in(tree, position)}, of type NoneType",
            where=here.site,
            remedy="pass an array, a variable, a number, or a nest of these",
        )
    try:
        array = Array(followable(argument_value(leaf, "x")))
        is_plain = isinstance(leaf, (np.ndarray, np.generic))  # the most frequent: without a further call
        array._contiguous = argument_layout(leaf) if is_plain else layout_of_operand(leaf)
        return array
    except DtypeError:
        if leaf is tree:
            raise
        argument_value(leaf, "x" + place_of_leaf(tree, position, none_is_leaf=True))
        raise


def warn_of_integers(watched: Sequence[Any], tree: Any) -> None:
    """Warn of arrays that have no gradient, where they stand in a tree."""
    for position, array in enumerate(watched):
        if not is_inexact(array.dtype):
            warn(
                IntegerWatchWarning,
                f"watch got an array of {array.dtype}{place_in(tree, position)}",
                where=here.site,
                why="integers and booleans have no gradient: it will be None",
                remedy="x.astype(float)",
            )


def place_in(tree: Any, position: int) -> str:
    """Return where a leaf stands in its tree, for a message; nothing if it is the tree."""
    place = place_of_leaf(tree, position, none_is_leaf=True)
    return f" (at {place})" if place else ""


def _hide_history(value: Value, tag: TraceTag) -> None:
    """Insert an untagged value between a tagged value and its node."""
    node = value.node
    assert node is not None
    tags = tuple([other for other in value.tags if other is not tag])
    before = Value(value.aval, node, value.index, value.data, tags)
    node.take_as_out(before, value.index)
    copy = Node(identity, (before,), {}, here.site)
    copy.adopt(value, (value.aval,))
    value.node, value.index = copy, 0


def values_of_one_tape(
    leaves: Sequence[Any], record: Record, *, are_sources: bool = False
) -> list[Value] | None:
    """Return the values of real arrays that one tape alone records, so that nothing must be checked or converted; None for others."""
    values = []
    own_tags = record.own_tags
    for leaf in leaves:
        if type(leaf) is not Array or leaf._base is not None:
            return None
        value: Value | None = leaf._current
        if are_sources and value is not None and value._op is not None:
            value = watched_value(leaf, record)
        if value is None or value.tags is not own_tags or value.aval.dtype.kind != "f":
            return None
        values.append(value)
    return values


def single_values(leaves: Sequence[Any], record: Record) -> list[Value] | None:
    """Return the values of sources, and what was read of variables; None where one is not real or stands for not just one value."""
    values = []
    for leaf in leaves:
        if type(leaf) is Array and leaf._base is None:
            value = leaf._current if leaf._current._op is None else watched_value(leaf, record)
            if value is None:
                return None
        elif isinstance(leaf, Variable) and len(reads := record.reads(leaf)) == 1:
            (value,) = reads
        else:
            return None
        if value.aval.dtype.kind != "f":
            return None
        values.append(value)
    return values


def target_value(leaf: Any, record: Record) -> Value:
    if not issubclass(type(leaf), Variable):
        value: Value = leaf.value
        return value
    known = record.reads(leaf)
    if known or not record.wants(leaf):
        return known[0] if known else leaf.value
    read: Value = leaf.read_for(record.tag)
    record.note(leaf, read)
    return read


def source_of(leaf: Any, record: Record) -> Source:
    tag = record.tag
    if issubclass(type(leaf), Variable):
        values = record.reads(leaf)
        is_active = is_inexact(leaf.dtype)
        return Source(
            leaf.shape, leaf.dtype, tuple([value for value in values if is_active and tag in value.tags])
        )
    value = watched_value(leaf, record)
    if value is None:
        return Source(leaf.shape, leaf.dtype, ())
    type_ = value.aval
    is_active = tag in value.tags and is_inexact(type_.dtype)
    return Source(type_.shape, type_.dtype, (value,) if is_active else ())


def pulled(
    tag: TraceTag, targets: list[Value], seeds: list[Value] | None, sources: list[Source], *, last: bool
) -> list[Value | SparseGradient | None]:
    """Return the gradient of the targets in each source, along values that carry `tag`."""
    chosen = [tag in value.tags and is_inexact(value.aval.dtype) for value in targets]
    if not all(chosen):
        targets = list(compress(targets, chosen))
        seeds = None if seeds is None else list(compress(seeds, chosen))
    starts = [value for source in sources for value in source.values]
    parts = derivatives(gradients, "gradient", targets, starts, seeds, tag, last=last)
    return per_source(sources, parts)
