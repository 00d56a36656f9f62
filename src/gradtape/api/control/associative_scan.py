"""Prefixes of an associative function: `associative_scan`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gradtape.api.control.checks import flag_of, function_of
from gradtape.api.control.nested import (
    NumericLeaves,
    described,
    handed_back,
    result_value,
    returned_nest,
    type_of,
)
from gradtape.errors import ArgumentError, ShapeError
from gradtape.habits import suggests_keywords
from gradtape.ir.builder import here
from gradtape.ir.graph import Value
from gradtape.ops.core.indexing import parse_index
from gradtape.ops.core.join import stack
from gradtape.ops.core.shape import reshape
from gradtape.ops.numpy.arrays.join import concatenate
from gradtape.trace.jit.bodies import definition_site
from gradtape.trace.source.sites import user_site

if TYPE_CHECKING:
    from gradtape.api.type_variables import X


@suggests_keywords
def associative_scan(fn: Callable[[X, X], X], elems: X, reverse: bool = False, axis: int = 0) -> X:
    """Compute all prefixes of an associative function, in a number of steps that grows with the logarithm of the length.

    Parameters
    ----------
    fn : callable
        ``fn(a, b)``: NumPy code that combines many pairs at once, along `axis`. It must be associative:
        ``fn(a, fn(b, c)) == fn(fn(a, b), c)``. It returns the containers, shapes and dtypes of its arguments.
    elems : array_like or nest of them
        The elements, along `axis`.
    reverse : bool, default False
        Whether each element is combined with all after it.
    axis : int, default 0
        Along which axis of every array.

    Returns
    -------
    nest
        Of the containers and shapes of `elems`: ndarrays, or Arrays while a tape or trace is recording.

    Raises
    ------
    ShapeError, DtypeError, StructureError
        Where `fn` returns something else than it got, or the arrays differ in length.
    ArgumentError
        For no elements, or an axis that they do not have.

    Notes
    -----
    G. E. Blelloch, "Prefix sums and their applications", 1990. Every step is a function of whole arrays: for n elements `fn` is called
    about 2 log2(n) times, on 2 n pairs in all.

    See Also
    --------
    scan : Any function, one element after the other.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> gt.associative_scan(np.maximum, np.array([1.0, 3.0, 2.0, 4.0]))
    array([1., 3., 3., 4.])

    A recurrence x = a x + b, of which each step is a pair (a, b):

    >>> def then(first, second):
    ...     return first[0] * second[0], first[1] * second[0] + second[1]
    >>> a, b = np.full(4, 0.5), np.ones(4)
    >>> gt.associative_scan(then, (a, b))[1]
    array([1.   , 1.5  , 1.75 , 1.875])
    """
    here.site = user_site()
    combine = function_of(fn, "associative_scan", "fn", 2, ": two nests of elements")
    backwards = flag_of(reverse, "associative_scan", "reverse")
    start = NumericLeaves(elems, "elems")
    if not isinstance(axis, int | np.integer) or isinstance(axis, bool):
        raise ArgumentError(
            f"associative_scan: axis must be an int, got {axis!r}", where=here.site, remedy="axis=0"
        )
    prefixes = _Prefixes(combine, fn, start, int(axis))
    values = [prefixes.reversed(value) for value in start.values] if backwards else start.values
    found = prefixes.of(values)
    if backwards:
        found = [prefixes.reversed(value) for value in found]
    result: X = start.rebuild(handed_back(found, start.recorded))
    return result


class _Prefixes:
    """The recursion: combine neighbours, compute the prefixes of the pairs, and fill in those between them."""

    def __init__(
        self, combine: Callable[..., Any], written: Callable[..., Any], start: NumericLeaves, axis: int
    ) -> None:
        self._combine, self._start, self._axis = combine, start, axis
        self._name, self._site = described(written), definition_site(written)
        extents = {}
        if not start.values:
            raise ArgumentError(
                "associative_scan: elems holds no array",
                where=here.site,
                remedy="pass an array, or a nest of arrays",
            )
        for place, value in zip(start.places(), start.values, strict=True):
            if not -value.ndim <= axis < value.ndim:
                raise ShapeError(
                    f"associative_scan: {place} has shape {value.shape}; it has no axis {axis}",
                    where=here.site,
                    remedy="pass arrays that have the axis (np.array(elems) for a list of numbers), or choose another one",
                )
            extents[place] = value.shape[axis]
        if len(set(extents.values())) > 1:
            listed = "; ".join(f"{place} has {extent}" for place, extent in extents.items())
            raise ShapeError(
                f"associative_scan: the arrays of elems differ along axis {axis}: {listed}",
                where=here.site,
                remedy="cut them to the same length",
            )

    def of(self, values: list[Value]) -> list[Value]:
        """Return the prefixes of elements."""
        count = values[0].shape[self._axis]
        if count < 2:
            return values
        pairs = self._combined(self._cut(values, 0, count - 1, 2), self._cut(values, 1, count, 2))
        odd = self.of(pairs)
        first = self._cut(values, 0, 1)
        if count == 2:
            return [self._joined([one, two]) for one, two in zip(first, odd, strict=True)]
        whole = (count - 1) // 2
        even = self._combined(self._cut(odd, 0, whole), self._cut(values, 2, count, 2))
        return [
            self._woven(self._joined([one, rest]), between)
            for one, rest, between in zip(first, even, odd, strict=True)
        ]

    def reversed(self, value: Value) -> Value:
        """Return the elements in reverse order."""
        return self._read(value, slice(None, None, -1))

    def _combined(self, first: Sequence[Value], second: Sequence[Value]) -> list[Value]:
        result = self._combine(self._start.with_arrays(first), self._start.with_arrays(second))
        what = f"associative_scan: what {self._name} returned"
        leaves = returned_nest(result, self._start, what, self._site)
        values = [result_value(leaf, what) for leaf in leaves]
        for place, value, given in zip(self._start.places(), values, first, strict=True):
            if value.shape != given.shape or value.dtype != given.dtype:
                raise ShapeError(
                    f"{what} is {type_of(value)} for {place}, and it got {type_of(given)}",
                    where=self._site,
                    why="results are combined again",
                    remedy="return arrays of the shapes and dtypes of the arguments; convert elems first if they become wider",
                )
        return values

    def _cut(self, values: Sequence[Value], start: int, stop: int, step: int = 1) -> list[Value]:
        return [self._read(value, slice(start, stop, step)) for value in values]

    def _read(self, value: Value, part: slice) -> Value:
        axis = self._axis % value.ndim
        key = (*[slice(None)] * axis, part)
        return parse_index(value.shape, key).read(value)

    def _joined(self, parts: Sequence[Value]) -> Value:
        return concatenate(parts, axis=self._axis)

    def _woven(self, even: Value, odd: Value) -> Value:
        """Return the elements of two arrays interleaved; the first may have one more."""
        axis = self._axis % even.ndim
        count = odd.shape[axis]
        (paired,) = self._cut([even], 0, count)
        shape = (*even.shape[:axis], 2 * count, *even.shape[axis + 1 :])
        woven = reshape(stack(paired, odd, axis=axis + 1), shape)
        if even.shape[axis] == count:
            return woven
        return self._joined([woven, *self._cut([even], count, count + 1)])
