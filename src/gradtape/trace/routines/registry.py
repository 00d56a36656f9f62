"""Where NumPy code enters itself for SciPy's compiled routines, and for methods of SciPy's that are built on several of them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, Final, TypeVar

import numpy as np

from gradtape.errors import UnsupportedFunctionError
from gradtape.ir.types import aval
from gradtape.kinds.arguments import known
from gradtape.kinds.operands import as_value
from gradtape.kinds.registry import HOOKS
from gradtape.kinds.routines.host import call_host, enter_function
from gradtape.ops.core.elementwise.cast import stop_gradient
from gradtape.trace.array.array import Array
from gradtape.trace.array.handle import Handle
from gradtape.trace.array.preallocated import to_ndarray
from gradtape.trace.source.sites import user_site

F = TypeVar("F", bound=Callable[..., Any])

ROUTINES: Final[dict[str, Callable[..., Any]]] = {}
"""NumPy code by the place in which SciPy looks the routine up: ``scipy.interpolate._ppoly.evaluate``. A colon follows the module whose
import is awaited, if it is not the subpackage.

It takes Arrays among the arguments, and writes results to the arrays that the routine writes to.
"""


def stands_for(*names: str) -> Callable[[F], F]:
    """Let the decorated function run in place of these routines when an argument is traced, or is an object that holds a traced array."""

    def enter(replacement: F) -> F:
        for name in names:
            if name in ROUTINES:
                raise ValueError(f"two replacements for {name}")
            ROUTINES[name] = replacement
        return replacement

    return enter


def refused(call: str, why: str, remedy: str) -> UnsupportedFunctionError:
    """Return the error for a call that is not supported."""
    return UnsupportedFunctionError(f"{call} is not supported", where=user_site(), why=why, remedy=remedy)


def known_numbers(array: Any, description: str) -> Any:
    """Return the numbers of an array, by which code decides what to compute; they are not differentiated.

    Raises
    ------
    UnsupportedFunctionError
        In a jitted function, where they are not known.
    """
    if not isinstance(array, Handle):
        return np.asarray(array)
    data = HOOKS.numbers(array.value)
    if data is None:
        raise refused(
            f"{description} of traced arrays in a jitted function",
            "its computation depends on numbers that are known only when the compiled function runs",
            "call it outside the jitted function; on a tape it works",
        )
    return np.array(data)


def computed(function: Callable[..., Any], like: Any, *arrays: Any) -> Any:
    """Return what a function computes of numbers, without a derivative; in a jitted function the kernel calls it back.

    Parameters
    ----------
    function : callable
        It takes ndarrays and returns one, or a tuple of them.
    like : ndarray or tuple of ndarray
        Arrays of the shapes and dtypes of the results.
    *arrays : array_like
        Its arguments, of which some are traced.
    """
    values = [array.value if isinstance(array, Handle) else as_value(np.asarray(array)) for array in arrays]
    numbers = [known(value) for value in values]
    if all(number is not None for number in numbers):
        return function(*[np.array(number) for number in numbers])
    several = isinstance(like, tuple)

    def call(*numbers: Any) -> tuple[Any, ...]:
        results = function(*numbers)
        return tuple(results) if several else (results,)

    types = [aval(each.shape, each.dtype) for each in (like if several else (like,))]
    outs = [Array(out) for out in call_host(enter_function(call), types, [stop_gradient(v) for v in values])]
    return tuple(outs) if several else outs[0]


def computed_arrays(
    function: Callable[..., Any], *types: tuple[tuple[int | str, ...], Any], given: tuple[Any, ...]
) -> tuple[Any, ...]:
    """Return arrays whose lengths depend on numbers, without a derivative. In a jitted function each length that is not known is guarded.

    Parameters
    ----------
    function : callable
        It takes ndarrays and returns a tuple of them.
    *types : tuple
        Shape and dtype of each result. A letter in a shape is a length that is not known, the same wherever it stands.
    given : tuple of array_like
        The arguments, of which some are traced.
    """
    last: list[tuple[Any, Any]] = []

    def found(*numbers: Any) -> Any:
        key = [(number.shape, number.tobytes()) for number in numbers]
        if not last or last[0][0] != key:
            last[:] = [
                (
                    key,
                    tuple(
                        np.asarray(each, type_)
                        for each, (_, type_) in zip(function(*numbers), types, strict=True)
                    ),
                )
            ]
        return last[0][1]

    numbers = [numbers_of(array) for array in given]
    if all(number is not None for number in numbers):
        return tuple(found(*numbers))
    letters = {
        extent: (k, axis)
        for k, (shape, _) in enumerate(types)
        for axis, extent in enumerate(shape)
        if isinstance(extent, str)
    }

    def lengths(*numbers: Any) -> Any:
        arrays = found(*numbers)
        return np.array([arrays[k].shape[axis] for k, axis in letters.values()], np.intp)

    known_lengths: dict[int | str, Any] = {}
    if letters:
        counts = computed(lengths, np.zeros(len(letters), np.intp), *given)
        known_lengths = {letter: int(counts[k]) for k, letter in enumerate(letters)}
    like = [
        np.zeros([known_lengths.get(extent, extent) for extent in shape], type_) for shape, type_ in types
    ]
    return tuple(computed(found, tuple(like), *given))


def numbers_of(array: Any) -> Any:
    """Return the numbers of an array, or None in a jitted function, where they are not known."""
    number = known(array.value) if isinstance(array, Handle) else np.asarray(array)
    return None if number is None else np.array(number)


def computed_structure(function: Callable[..., list[Any]], *arrays: Any) -> list[Any]:
    """Return the lists of integers that a function makes of numbers. In a jitted function they are guarded as a whole, by a hash."""
    numbers = [numbers_of(array) for array in arrays]
    if all(number is not None for number in numbers):
        return function(*numbers)
    by_code: dict[int, list[Any]] = {}
    is_stored = True

    def mark(*numbers: Any) -> Any:
        lists = function(*numbers)
        code = int.from_bytes(hashlib.blake2b(repr(lists).encode(), digest_size=7).digest())
        if is_stored:
            by_code[code] = lists
        return np.array(code, np.int64)

    code = int(computed(mark, np.zeros((), np.int64), *arrays))
    is_stored = False
    return by_code[code]


def lookup(array: Any, index: Any) -> Any:
    """Return elements (or rows) of an array by an array of positions, of which either may be traced."""
    parts = index if isinstance(index, tuple) else (index,)
    if any(isinstance(part, Handle) for part in parts) and not isinstance(array, Handle):
        array = constant_or_traced(array)
    return array[index]


def constant_or_traced(array: Any) -> Any:
    """Return an array as an Array, which takes traced positions and traced elements."""
    return (
        array
        if type(array) is Array
        else Array(as_value(to_ndarray(array) if isinstance(array, Handle) else np.asarray(array)))
    )
