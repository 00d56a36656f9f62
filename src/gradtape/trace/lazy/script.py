"""Scripts: what a tape at one line of the user's code records each time. Where it is known, recording is comparing.

To record an operation is to make an array, a value and a place in the user's code, and to ask for the derivative of a record is to walk
back through all of them. In a training loop the same line enters a tape again and again, and mostly the same happens under it. So the
second tape of a line writes down which functions are called with what: the script. A later tape reads along: a call that stands next in
the script only makes the array that it returned, without a value. When the gradient is asked for, everything has happened as before: what
was built for the script is called with the values at which it begins, and only what is still in the user's hands is given a value.

Where the script is left, or somebody wants the value of an array of which only the place in the script is known, the calls are made once
more, in full (`Reader.keep`), and the tape goes on as if there had been no script.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from types import CodeType
from typing import Any, Final, NamedTuple

import numpy as np

from gradtape.ir.builder import here
from gradtape.ir.graph import Value, extract
from gradtape.ir.templates import stand_in
from gradtape.ir.types import Aval
from gradtape.kinds.operands import as_value
from gradtape.kinds.registry import FUNCTIONS
from gradtape.trace.array.handle import Handle
from gradtape.trace.array.views import View
from gradtape.trace.dispatch.op_cache import LONGEST, NUMBERS
from gradtape.trace.lazy.call_observer import speculation

PLAIN: Final = (type(None), str, bool, type, np.dtype, type(Ellipsis))
"""Arguments that are what they are compared equal to, besides numbers."""


INDICES: Final = frozenset({int, type(None)})
"""The types of a slice's bounds."""


class Argument:
    """An argument that holds no array.

    Parameters
    ----------
    operand : object
        The argument itself.
    """

    __slots__ = ("_code", "operand", "same")

    def __init__(self, operand: Any) -> None:
        self._code = _code(operand)
        self.operand = copy.deepcopy(operand)
        # A list may be another one when it comes again.
        self.same = operand if type(operand) in NUMBERS or isinstance(operand, PLAIN) else self

    def matches(self, operand: Any) -> bool:
        """Return whether another argument means the same."""
        if type(operand) is slice and type(self.operand) is slice:  # which Python makes anew each time
            return operand == self.operand and INDICES.issuperset(
                (type(operand.start), type(operand.stop), type(operand.step))
            )
        try:
            code = _code(operand)
        except TypeError:
            return False
        return bool(code == self._code)


def _code(operand: Any) -> Any:
    """Return what an argument means: equal numbers of other types are others, and so are zeros of other signs."""
    kind = type(operand)
    if kind in NUMBERS:
        return kind, operand or str(operand)
    if isinstance(operand, PLAIN):
        return operand
    if kind is slice:
        return kind, _code(operand.start), _code(operand.stop), _code(operand.step)
    if (kind is tuple or kind is list) and len(operand) <= LONGEST:
        return kind, *map(_code, operand)
    raise TypeError(kind)


class Several:
    """A list or tuple with arrays in it.

    Parameters
    ----------
    kind : type
        Which of the two.
    places : tuple
        What stands for the items.
    """

    __slots__ = ("kind", "places", "same")

    def __init__(self, kind: type, places: tuple[Any, ...]) -> None:
        self.kind = kind
        self.places = places
        self.same = self  # which no operand is


class Step(NamedTuple):
    """One call.

    Attributes
    ----------
    function : callable
        What is called.
    places : tuple
        Its operands: the number of the call that returned it, -1 - k for leaf k, an `Argument`, or `Several` of these.
    names : tuple of str
        The keywords of the last of these.
    first, last, code : int, int, code
        Where the call stands: once Python has specialised an instruction, a frame may stand at the end of the caches behind it.
    sample : Value
        A value of the type of the result, and no more.
    contiguous : bool
        Whether the result is contiguous, as views see it.
    view : View or None
        As what view of the first operand the result sees it.
    site : Site
        The place in the user's code.
    """

    function: Any
    places: tuple[Any, ...]
    names: tuple[str, ...]
    first: int
    last: int
    code: CodeType | None
    sample: Value
    contiguous: bool
    view: View | None
    site: Any


_NO_SAMPLE: Final = stand_in(as_value(0.0).aval)
END: Final = Step(None, (), (), 0, -1, None, _NO_SAMPLE, True, None, None)
"""Follows the last call."""


class Leaf(NamedTuple):
    """A value at which a record begins: its type, and whether the tape follows it."""

    type: Aval
    tagged: bool


class Script(NamedTuple):
    """What a tape records.

    Attributes
    ----------
    steps : tuple of Step
        The calls in their order, and `END`.
    leaves : tuple of Leaf
        The last one comes first: leaf k is at -1 - k.
    kind : type
        Of the user's arrays.
    """

    steps: tuple[Step, ...]
    leaves: tuple[Leaf, ...]
    kind: type[Handle]


def is_plain(operand: Any) -> bool:
    """Return whether an operand is an ndarray that becomes a leaf."""
    return type(operand) is np.ndarray and operand.ndim > 0


def holding(kind: type[Handle], value: Value, contiguous: bool = True) -> Any:
    """Return an array that holds a value which stays another one's."""
    array = object.__new__(kind)
    array._base = None
    array._contiguous = contiguous
    array._current = value
    return array


def called(function: Any, operands: Sequence[Any], named: dict[str, Any]) -> Any:
    """Return what a function returns that was called with arrays, also where NumPy did not ask these itself but we did, for np.array."""
    if function in FUNCTIONS:
        handle = _handles_in((*operands, *named.values()))[0]
        return handle.__array_function__(function, (type(handle),), tuple(operands), named)
    return function(*operands, **named)


def perform(
    steps: Sequence[Step], leaves: Sequence[Any], made: list[Any], settled: Callable[[int, Any], Any]
) -> None:
    """Make the calls of a script.

    Parameters
    ----------
    steps : sequence of Step
        The calls.
    leaves : sequence of array
        At which they begin: leaf k at -1 - k.
    made : list of array
        What the first calls have returned already; what the others return is appended.
    settled : callable
        ``(place, array) -> array``: what stands for the result of the call at a place from then on.
    """
    before, attendant = here.site, speculation.attendant
    speculation.attendant = None
    try:
        for step in steps[len(made) :]:
            operands = [_operand_at(place, made, leaves) for place in step.places]
            count = len(operands) - len(step.names)
            named = dict(zip(step.names, operands[count:], strict=True))
            result = called(step.function, operands[:count], named)
            known = [handle._current for handle in _handles_in(operands)]
            for node in extract([result._current], known)[0]:
                node.site = step.site
            made.append(settled(len(made), result))
    finally:
        here.site, speculation.attendant = before, attendant


def _operand_at(place: Any, made: Sequence[Any], leaves: Sequence[Any]) -> Any:
    if type(place) is int:
        return made[place] if place >= 0 else leaves[place]
    if type(place) is Several:
        return place.kind([_operand_at(inner, made, leaves) for inner in place.places])
    return place.operand


def _handles_in(operands: Iterable[Any]) -> list[Any]:
    found: list[Any] = []
    for operand in operands:
        if isinstance(operand, Handle):
            found.append(operand)
        elif isinstance(operand, list | tuple):
            found += _handles_in(operand)
    return found
