"""The types of loop-carried values, found by tracing the body until it returns the types that it takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from gradtape.api.control.nested import NumericLeaves, type_of
from gradtape.errors import DtypeError, ShapeError
from gradtape.ir.graph import Value, number_of
from gradtape.ir.types import Aval, aval
from gradtape.kinds.elementwise import Elementwise
from gradtape.kinds.operands import broadcast_to
from gradtape.ops.core.elementwise.cast import convert, convert_row, identity
from gradtape.ops.core.shape import expand_row
from gradtape.trace.array.handle import Handle
from gradtape.trace.jit.bodies import TracedBody
from gradtape.trace.jit.leaf_kinds import is_weak

RANKS: Final = {"b": 0, "i": 1, "u": 1, "f": 2, "c": 3}
"""Kinds of dtypes, from the narrowest to the widest; a number of Python's takes the kind of what it meets if that is no narrower."""


class CarryTypes:
    """The types of the carries of a loop.

    Parameters
    ----------
    init : NumericLeaves
        The initial carry.
    caller : str
        The function that loops, for errors.

    Attributes
    ----------
    types : list of Aval
        The types, as far as they are known.
    """

    def __init__(self, init: NumericLeaves, caller: str) -> None:
        self.init, self.caller = init, caller
        self.types: list[Aval] = [value.aval for value in init.values]
        self._numbers = [is_weak(init.leaves[position]) for position in init.positions]

    def initial(self) -> list[Value]:
        """Return the initial carries, in these types."""
        return [_promoted(value, type_) for value, type_ in zip(self.init.values, self.types, strict=True)]

    def settled(
        self, trace: Callable[[list[Aval]], TracedBody], returned: Callable[[TracedBody], list[Value]]
    ) -> tuple[TracedBody, list[Value]]:
        """Trace a body until it returns the types that it takes.

        Parameters
        ----------
        trace : callable
            ``(types) -> Traced``: traces the body on placeholders; the first `starts` but one are those of the carries.
        returned : callable
            ``(traced) -> values``: the next carries.

        Returns
        -------
        traced : Traced
            The last run of the body.
        values : list of Value
            The next carries, in the types of `types`.
        """
        # In each round a number becomes strong, wider, or an array, each of them once at most.
        for _ in range(1 + (len(RANKS) + 2) * len(self.types)):
            traced = trace(self.types)
            values = returned(traced)
            types = [self._met(traced, position, value) for position, value in enumerate(values)]
            if types == self.types:
                types = self._spread(traced, values)
                if types == self.types:
                    break
                self._check_same(traced, trace, returned, types)
            self.types = types
        return traced, [_promoted(value, type_) for value, type_ in zip(values, self.types, strict=True)]

    def _met(self, traced: TracedBody, position: int, value: Value) -> Aval:
        """Return the type in which one carry is taken and returned, but for the shape of a number that becomes an array."""
        old, new = self.types[position], value.aval
        if old == new:
            return old
        if not self._numbers[position]:
            if old.shape == new.shape and (old.dtype == new.dtype or (new.weak and not _wider(new, old))):
                return old
        elif not _wider(old, new):
            dtype = old.dtype if new.weak and not _wider(new, old) else new.dtype
            if not old.weak:
                dtype = np.promote_types(old.dtype, dtype)
            if old.shape in (new.shape, ()):
                return aval(old.shape, dtype, old.weak and new.weak)
        elif old.shape == new.shape and new.weak:
            return old
        raise self._changes(traced, position, value)

    def _spread(self, traced: TracedBody, values: Sequence[Value]) -> list[Aval]:
        """Return the types with arrays in place of the numbers that become arrays."""
        types = []
        for position, (old, value) in enumerate(zip(self.types, values, strict=True)):
            if old.shape != value.shape and not _only_elementwise(traced, position):
                raise self._changes(traced, position, value)
            types.append(aval(value.shape, old.dtype, old.weak and old.shape == value.shape))
        return types

    def _check_same(
        self,
        before: TracedBody,
        trace: Callable[[list[Aval]], TracedBody],
        returned: Callable[[TracedBody], list[Value]],
        types: list[Aval],
    ) -> None:
        """Raise ShapeError unless a body does the same with arrays of equal numbers as it did with the numbers."""
        after = trace(types)
        values = returned(after)
        if _steps(before) != _steps(after):
            for position, (old, type_) in enumerate(zip(self.types, types, strict=True)):
                if old.shape != type_.shape:
                    raise self._changes(before, position, values[position])

    def _changes(self, traced: TracedBody, position: int, value: Value) -> DtypeError | ShapeError:
        path, old = self.init.places()[position], self.types[position]
        where = traced.line_of(value)
        leaf = self.init.leaves[self.init.positions[position]]
        number = "a Python number" if isinstance(leaf, Handle) else f"the Python number {leaf!r}"
        began = number if self._numbers[position] else type_of(old)
        message = f"{self.caller}: {path} starts as {began}, and the body returns {type_of(value)} for it"
        why = "a loop's carry has the same shape and dtype in each iteration"
        if old.shape != value.shape:
            init = f"np.full({value.shape}, ...)" if old.shape == () else f"an array of shape {value.shape}"
            remedy = f"start with {init}, or return an array of shape {old.shape}"
            return ShapeError(message, where=where, why=why, remedy=remedy)
        return DtypeError(
            message,
            where=where,
            why=why,
            remedy=f"start with {value.dtype} (x.astype({value.dtype})), or return x.astype({old.dtype})",
        )


def _wider(first: Aval, second: Aval) -> bool:
    """Return whether a number of one dtype cannot stand in another."""
    return RANKS[first.dtype.kind] > RANKS[second.dtype.kind]


def _promoted(value: Value, type_: Aval) -> Value:
    if value.aval.weak and value.data is not None and value.dtype.kind == "i" and type_.dtype.kind in "iu":
        np.array(value.data.item(), type_.dtype)  # raises OverflowError as NumPy does
    if value.dtype != type_.dtype or (value.aval.weak and not type_.weak):
        value = convert(value, type_.dtype)
    return value if value.shape == type_.shape else broadcast_to(value, type_.shape)


def _only_elementwise(traced: TracedBody, position: int) -> bool:
    """Return whether a body only computes elementwise with a number."""
    reached = {traced.inputs[1 + position]}
    for node in traced.nodes:
        if node.op is expand_row or not any(value in reached for value in node.inputs):
            continue
        if not isinstance(node.op, Elementwise):
            return False
        reached.update(node.outs)
    return True


def _steps(traced: TracedBody) -> list[Any]:
    """Return the ops of a body with the numbers in its text: equal for runs that do the same with numbers and with arrays of them."""
    return [
        (node.op, *[number_of(value) for value in node.inputs])
        for node in traced.nodes
        if node.op not in (expand_row, convert_row, identity)
    ]


def element_types(stacked: Sequence[Value]) -> list[Aval]:
    """Return the types of elements along the leading axis."""
    return [aval(value.shape[1:], value.dtype) for value in stacked]


def placeholders(types: Sequence[Aval], tag: Any) -> list[Value]:
    """Return values of these types without numbers, with a tag."""
    return [Value(type_, tags=(tag,)) for type_ in types]
