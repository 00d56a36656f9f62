"""Arguments that share memory with others: a write to one of them is seen in the others, or it is an error.

A compiled function has a copy of each argument. That is the same as NumPy's view of the matter, unless the function writes to one of two
arguments that share memory. Which arguments a function writes to is known when it has been traced; calls of functions that write to none
are not checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from typing import Any, Final, NamedTuple

import numpy as np

from gradtape.errors import InPlaceError
from gradtape.ir.graph import Value
from gradtape.ir.op import NDArray
from gradtape.trace.array.handle import Handle
from gradtape.trace.jit.guards import is_noted, note_write
from gradtape.trace.source.sites import user_site
from gradtape.trace.variables.variable import Variable
from gradtape.trees import flatten

EFFORT: Final = 1000
"""What NumPy may do to find out whether two strided arrays have an element in common; where that is not enough, they have."""


class Writes(NamedTuple):
    """The arguments that a function writes to, by the positions of leaves.

    Attributes
    ----------
    direct : frozenset of int
        Those that the function itself writes to.
    copies : frozenset of int
        Those of which a transform has made copies, such as the arguments in which it differentiates, that are written to.
    """

    direct: frozenset[int] = frozenset()
    copies: frozenset[int] = frozenset()

    def joined(self, other: Writes) -> Writes:
        """Return what either writes to."""
        return Writes(self.direct | other.direct, self.copies | other.copies)

    def all(self) -> frozenset[int]:
        """Return all positions."""
        return self.direct | self.copies


def share_memory(a: Any, b: Any) -> bool:
    """Return whether two leaves of arguments have an element in common.

    Examples
    --------
    >>> x = np.zeros(6)
    >>> share_memory(x[:4], x[2:]), share_memory(x[::2], x[1::2]), share_memory(x, 1.0)
    (True, False, False)
    """
    if isinstance(a, Handle) or isinstance(b, Handle):
        return isinstance(a, Handle) and isinstance(b, Handle) and _have_common_elements(a, b)
    if not (isinstance(a, np.ndarray) and isinstance(b, np.ndarray)):
        return False
    return _have_common_memory(a, b)


def _have_common_memory(a: NDArray, b: NDArray) -> bool:
    try:
        return np.shares_memory(a, b, max_work=EFFORT)  # type: ignore[arg-type]  # the stubs have two numbers only
    except np.exceptions.TooHardError:
        return True


def _have_common_elements(a: Handle, b: Handle) -> bool:
    """Return whether two traced arrays are views of one, and have an element of it in common, as NumPy's views have."""
    if a is b:
        return True
    (root, own), (other, others) = _views(a), _views(b)
    if root is not other:
        return False
    array = np.empty(root.shape, root.dtype)
    try:
        first, second = (
            reduce(lambda base, view: view.numpy_view(base), views, array) for views in (own, others)
        )
    except InPlaceError:  # whether one is a view is not known
        return True
    return _have_common_memory(first, second)


def _views(handle: Handle) -> tuple[Any, list[Any]]:
    """Return the array of which a handle is a view, and the views of views on the way to the handle; a variable is no view."""
    views: list[Any] = []
    while isinstance(handle._base, Handle) and not issubclass(type(handle), Variable):
        views.append(handle._view)
        handle = handle._base
    return handle, views[::-1]


def are_same(a: Any, b: Any) -> bool:
    """Return whether two leaves are one array: the same elements in the same places.

    Examples
    --------
    >>> x = np.zeros(6)
    >>> are_same(x, x), are_same(x, x[:]), are_same(x, x[::-1])
    (True, True, False)
    """
    if a is b:
        return True
    if isinstance(a, Handle) or isinstance(b, Handle):
        return False
    if (a.dtype, a.shape, a.strides) != (b.dtype, b.shape, b.strides):
        return False
    return bool(a.__array_interface__["data"][0] == b.__array_interface__["data"][0])


def is_memory(leaf: Any) -> bool:
    """Return whether another leaf may share the memory of this one."""
    return isinstance(leaf, np.ndarray | Handle)


def partners(leaves: Sequence[Any], written: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield the pairs of a leaf that is written to and another one that shares its memory, by position."""
    memories = [position for position, leaf in enumerate(leaves) if is_memory(leaf)]
    for position in written:
        for other in memories:
            if other != position and share_memory(leaves[position], leaves[other]):
                yield position, other


def merged(leaves: Sequence[Any]) -> dict[int, int]:
    """Return, for leaves that are one array with an earlier one, the position of that."""
    first_of: dict[int, int] = {}
    arrays: list[int] = []
    for position, leaf in enumerate(leaves):
        if not is_memory(leaf) or not leaf.size:
            continue
        first = next((earlier for earlier in arrays if are_same(leaves[earlier], leaf)), None)
        if first is None:
            arrays.append(position)
        else:
            first_of[position] = first
    return first_of


def read_only(leaves: Sequence[Any], written: Iterable[int]) -> list[int]:
    """Return those positions of leaves that are written to and hold an ndarray that is read-only."""
    return [
        position
        for position in sorted(written)
        if isinstance(leaves[position], np.ndarray) and not leaves[position].flags.writeable
    ]


def refuse_read_only(leaves: Sequence[Any], copies: Sequence[Any], written: Iterable[int]) -> None:
    """Raise NumPy's error where a function has written to the copy of an ndarray that is read-only."""
    for position in read_only(leaves, written):
        node = copies[position].value.node
        error = InPlaceError(
            "assignment destination is read-only",
            where=user_site() if node is None or node.site is None else node.site,
            why="the function writes to an argument, and this array is read-only",
            remedy="write to a copy in the function: x = x.copy()",
        )
        error.is_final = True
        raise error


def check_copies(
    what: str,
    copies: Sequence[Handle],
    begins: Sequence[Value],
    leaves: Sequence[Any],
    name_of: Callable[[int], str],
    rest: Any = (),
) -> None:
    """Raise an error if a function has written to copies of arguments that share memory with other arguments.

    Parameters
    ----------
    what : str
        The function.
    copies : sequence of Handle
        What the function got for some leaves of its arguments.
    begins : sequence of Value
        Their contents before the call.
    leaves : sequence of object
        These leaves.
    name_of : callable
        Returns what one of them is, by position.
    rest : nest
        The arguments that were passed as they are.
    """
    written = [k for k, copy in enumerate(copies) if copy.value is not begins[k] or is_noted(copy.value)]
    if not written:
        return
    for k in written:
        if isinstance(leaves[k], Handle):
            note_write(leaves[k].value)
    for position, other in partners([*leaves, *flatten(rest)[0]], written):
        second = name_of(other) if other < len(leaves) else "another argument"
        raise refusal(what, name_of(position), second)


def refusal(what: str, first: str, second: str) -> InPlaceError:
    """Return the error for a function that writes to memory which two names of its arguments share."""
    error = InPlaceError(
        f"{what} writes to {first}, which shares memory with {second}",
        where=user_site(),
        why="gradtape gives a function copies of its arguments, so the write would not be visible under the other name, as it is in NumPy",
        remedy="pass a copy of one of them: x.copy()",
    )
    error.is_final = True
    return error
